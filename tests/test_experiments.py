"""The experiments behind decisions still run, and compare things that give the same answers."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.id("index-shapes")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="the shapes are in C")
def test_all_index_layouts_find_the_same_entries(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from bench.experiments.index_shapes import library, measure;"
        f"path = Path({str(tmp_path)!r}); measure(library(path), path, 700)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "700 entries" in done.stdout
