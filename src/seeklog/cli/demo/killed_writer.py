"""A writer that is killed in the middle of a batch: `python -m seeklog.cli.demo.killed_writer STORE COUNT`.

It appends the first `COUNT` payments of the stream, except those that the store has, and prints the number of
acknowledged payments after each part as a line of JSON. It writes the first half of the next batch, prints that, and
waits for its parent to kill it.
"""

from __future__ import annotations

import itertools
import json
import struct
import sys
import threading

from seeklog.cli.demo.payments import append, arrivals, missing
from seeklog.files import Buffer, OsFiles
from seeklog.store import open_store

PARTS = 4
# A batch begins with its base offset and the number of bytes that follow: docs/format/batch.md.
_START = struct.Struct(">qi")


class HalfWrites(OsFiles):
    """The real disk. Once armed, it writes half of the next batch, and nothing after it."""

    is_armed = False

    def write(self, handle: int, data: Buffer, position: int) -> None:
        if not self.is_armed or not _is_batch(data):
            super().write(handle, data, position)
            return
        half = len(data) // 2
        super().write(handle, bytes(data)[:half], position)
        _report(written=half, size=len(data))
        threading.Event().wait()


def _is_batch(data: Buffer) -> bool:
    return len(data) > _START.size and _START.unpack_from(data)[1] == len(data) - _START.size


def _report(**counts: int) -> None:
    print(json.dumps(counts), flush=True)


def main(path: str, count: int) -> None:
    """Append until the process is killed."""
    files = HalfWrites()
    with open_store(path, files=files, background=False) as store:
        records = missing(store, itertools.islice(arrivals(), count))
        size = max(1, len(records) // (PARTS + 1))
        acknowledged = count - len(records)
        for start in range(0, len(records), size):
            files.is_armed = start >= PARTS * size
            acknowledged += append(store, records[start : start + size])
            _report(acknowledged=acknowledged)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
