"""Opens a store in a new process. Run as a program, it opens the store at the given path and prints the measurement."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import seeklog


@dataclass(frozen=True, kw_only=True)
class OpenedStore:
    """The measurement of an open."""

    seconds: float
    seconds_with_ends: float
    """The same, including a read of every partition's end."""
    resident_bytes: int
    """The memory of the process after that."""


def open_in_child(path: Path) -> OpenedStore:
    """Open a store in a new process."""
    run = subprocess.run([sys.executable, __file__, str(path)], check=True, stdout=subprocess.PIPE, text=True)
    return OpenedStore(**json.loads(run.stdout))


def _open(path: str) -> OpenedStore:
    started = perf_counter()
    with seeklog.open(path) as store:
        seconds = perf_counter() - started
        for topic in store.topics():
            store.describe_topic(topic)
        seconds_with_ends = perf_counter() - started
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return OpenedStore(
            seconds=seconds, seconds_with_ends=seconds_with_ends, resident_bytes=pages * os.sysconf("SC_PAGE_SIZE")
        )


if __name__ == "__main__":
    print(json.dumps(asdict(_open(sys.argv[1]))))
