"""Opens a log in a new process, where nothing is warm and no memory is reused.

Run as a program, it opens the log at the given path and prints the measurement.
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
    """The measurement of an open."""

    seconds: float
    grown_bytes: int
    """The additional resident memory."""
    log_end_offset: int
    scanned_bytes: int


def open_in_child(path: Path) -> Opened:
    """Open and close a log in a new process."""
    command = [sys.executable, __file__, str(path)]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Opened(**json.loads(run.stdout))


def _resident_bytes() -> int:
    """Return the resident memory of this process on Linux."""
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
