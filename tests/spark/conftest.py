"""These tests need the `spark` extra."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")

SOURCES = Path(__file__).resolve().parents[2] / "src"
"""What a process must have on its path that finds seeklog by itself."""
