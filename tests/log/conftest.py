"""Fixtures: an empty log, and one of seven segments."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from log.workbench import SEVEN_SEGMENTS, fill, open_log
from seeklog import Log


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    """An empty log that syncs only on request."""
    with open_log(tmp_path / "log") as log:
        yield log


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Log]:
    """33 records in seven segments: 0-4, 5-9, ..., 30-32."""
    with open_log(tmp_path / "filled", **SEVEN_SEGMENTS) as log:
        fill(log, 33)
        yield log
