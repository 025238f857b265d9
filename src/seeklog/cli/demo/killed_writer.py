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
_MAGIC = 16
_HEADER_SIZE = 61


class HalfWrites(OsFiles):
    """The real disk. Once armed, it writes half of the next batch, and nothing after it."""

    is_armed = False

    def write(self, handle: int, data: Buffer, position: int) -> None:
        size = _first_batch_size(data) if self.is_armed else 0
        if not size:
            super().write(handle, data, position)
            return
        super().write(handle, bytes(data)[: size // 2], position)
        _report(written=size // 2, size=size)
        threading.Event().wait()


def _first_batch_size(data: Buffer) -> int:
    """Return the size of the batch that the data begin with, or 0 for other data."""
    if len(data) < _HEADER_SIZE or data[_MAGIC] != 2:
        return 0
    size = _START.size + int(_START.unpack_from(data)[1])
    return size if _HEADER_SIZE <= size <= len(data) else 0


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
