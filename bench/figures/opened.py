"""A log opened in a process that did nothing else: run as a program, it opens the log at the path given.

Opens are measured this way because that is how they happen: with nothing warmed, and no memory to reuse.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

from seeklog import Log


@dataclass(frozen=True, kw_only=True)
class Opened:
    """What an open took, and what it found."""

    seconds: float
    grown_bytes: int
    """How much memory the process holds more than before."""
    log_end_offset: int
    scanned_bytes: int


def open_in_child(path: Path) -> Opened:
    """Open and close a log in a process of its own."""
    command = [sys.executable, __file__, str(path)]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Opened(**json.loads(run.stdout))


def _resident_bytes() -> int:
    """Return the memory that the process holds, as Linux tells it."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _open(path: str) -> Opened:
    before = _resident_bytes()
    started = perf_counter()
    log = Log(path)
    seconds = perf_counter() - started
    grown_bytes = _resident_bytes() - before
    with log:
        return Opened(
            seconds=seconds,
            grown_bytes=grown_bytes,
            log_end_offset=log.log_end_offset,
            scanned_bytes=log.recovery.scanned_bytes,
        )


if __name__ == "__main__":
    print(json.dumps(asdict(_open(sys.argv[1]))))
