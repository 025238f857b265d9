"""Open the log at the path given; print the milliseconds it took and the megabytes the process grew by.

A program of its own, so that no other work has warmed or filled the process.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from time import perf_counter

from seeklog import Log


def resident_bytes() -> int:
    """Return the memory that the process holds, as Linux tells it."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    before = resident_bytes()
    started = perf_counter()
    log = Log(sys.argv[1])
    seconds = perf_counter() - started
    grown = resident_bytes() - before
    log.close()
    print(json.dumps({"milliseconds": seconds * 1e3, "megabytes": grown / 1e6}))


if __name__ == "__main__":
    main()
