"""A store opened in a process that did nothing else: run as a program, it opens the store at the path given."""

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
    """What an open took."""

    seconds: float
    seconds_asked: float
    """The same, and every partition asked for its end."""
    resident_bytes: int
    """All memory that the process holds then."""


def open_in_child(path: Path) -> OpenedStore:
    """Open a store in a process of its own."""
    run = subprocess.run([sys.executable, __file__, str(path)], check=True, stdout=subprocess.PIPE, text=True)
    return OpenedStore(**json.loads(run.stdout))


def _open(path: str) -> OpenedStore:
    started = perf_counter()
    with seeklog.open(path) as store:
        seconds = perf_counter() - started
        for topic in store.topics():
            store.describe_topic(topic)
        seconds_asked = perf_counter() - started
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return OpenedStore(
            seconds=seconds, seconds_asked=seconds_asked, resident_bytes=pages * os.sysconf("SC_PAGE_SIZE")
        )


if __name__ == "__main__":
    print(json.dumps(asdict(_open(sys.argv[1]))))
