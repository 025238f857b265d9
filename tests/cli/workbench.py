"""Shared by the tests of the command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import seeklog

COMMAND = (sys.executable, "-m", "seeklog.cli")
TIMEOUT_S = 300.0  # starting Spark on a busy machine takes more than a minute
SOURCE = str(Path(seeklog.__file__).parents[1])  # tests run in other directories and must import this package
MORNING_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


@dataclass(frozen=True)
class Ran:
    """The output and the exit code of a command."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


Run = Callable[..., Ran]


def surroundings(home: Path, **more: str) -> dict[str, str]:
    """Return an environment without the user's settings and colours, in UTC."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SEEKLOG_", "XDG_", "LC_"))}
    kept.pop("NO_COLOR", None)
    return (
        kept
        | {
            "HOME": str(home),
            "TZ": "UTC",
            "COLUMNS": "120",
            "LINES": "40",
            "TERM": "xterm-256color",
            "PYTHONPATH": SOURCE,
        }
        | more
    )
