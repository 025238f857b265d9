"""A pytest plugin: writes the duration of each test, if `SEEKLOG_DURATIONS` names a file."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

_seconds: Counter[str] = Counter()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[report.nodeid] += report.duration


def pytest_sessionfinish(session: pytest.Session) -> None:
    path = os.environ.get("SEEKLOG_DURATIONS")
    # Workers report to the process that started them.
    if path and not hasattr(session.config, "workerinput"):
        Path(path).write_text(json.dumps(_seconds))
