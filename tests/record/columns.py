"""Arrow's column buffers read back in plain Python, so that columns can be compared with records."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from typing import Any

from record.batches import INT64_MAX, LIMIT
from seeklog.record.columns import Columns
from seeklog.record.record import Record

RECORD = ("key", "value", "offset", "timestamp", "headers")
ALL = (*RECORD, "timestampType")
BytesBuffers = tuple[int, int, bytearray | None, bytearray, bytearray]


def ints(buffer: bytearray, width: int) -> list[int]:
    return [int.from_bytes(buffer[at : at + width], sys.byteorder, signed=True) for at in range(0, len(buffer), width)]


def byte_strings(buffers: BytesBuffers) -> list[bytes | None]:
    """Return a column of byte strings, after checking every rule of its layout."""
    rows, null_count, valid, ends, data = buffers
    bounds = ints(ends, 4)
    assert len(bounds) == rows + 1
    assert bounds[0] == 0
    assert bounds == sorted(bounds)
    assert bounds[-1] == len(data)
    assert (valid is None) == (null_count == 0)
    assert valid is None or len(valid) == (rows + 7) // 8
    present = [valid is None or bool(valid[row >> 3] >> (row & 7) & 1) for row in range(rows)]
    assert present.count(False) == null_count
    return [bytes(data[bounds[row] : bounds[row + 1]]) if present[row] else None for row in range(rows)]


def header_lists(buffers: tuple[bytearray, BytesBuffers, BytesBuffers]) -> list[tuple[tuple[str, bytes | None], ...]]:
    ends, keys, values = buffers
    bounds = ints(ends, 4)
    pairs = [
        ((key or b"").decode("utf-8", "surrogateescape"), value)
        for key, value in zip(byte_strings(keys), byte_strings(values), strict=True)
    ]
    assert bounds[-1] == len(pairs)
    return [tuple(pairs[first:last]) for first, last in itertools.pairwise(bounds)]


def rows_of(columns: Columns) -> dict[str, list[Any]]:
    """Return the finished columns as lists of Python values; all have the same length."""
    row_count = columns.rows
    buffers = columns.finish()
    out: dict[str, list[Any]] = {}
    for name, column in buffers.items():
        if name in ("key", "value"):
            out[name] = byte_strings(column)
        elif name == "headers":
            out[name] = header_lists(column)
        else:
            out[name] = ints(column, 4 if name == "timestampType" else 8)
        assert len(out[name]) == row_count
    return out


def make(
    columns: Sequence[str] = ALL, *, rows: int = 1000, data_bytes: int = 10_000, limit: int = LIMIT, scale: int = 1
) -> Columns:
    return Columns(columns, rows=rows, data_bytes=data_bytes, limit=limit, timestamp_scale=scale)


def read_columns(
    raw: bytes,
    *,
    next_offset: int = -(2**63),
    contiguous: bool = False,
    start: int = -(2**63),
    stop: int = INT64_MAX,
    rows: int = 1000,
    data_bytes: int = 10_000,
    limit: int = LIMIT,
) -> tuple[int, int, list[Record]]:
    """Decode whole batches into columns and return (end, next offset, records), as `read` does for records."""
    out: list[Record] = []
    at, full = 0, True
    while full:
        columns = make(rows=rows, data_bytes=data_bytes, limit=limit)
        before = at
        at, next_offset, full = columns.add(raw, at, 0, next_offset, contiguous, start, stop)
        assert not full or at > before or columns.rows, "full columns must have taken something"
        table = rows_of(columns)
        out += [
            Record(value, key=key, headers=headers, timestamp_ms=timestamp, offset=offset)
            for key, value, offset, timestamp, headers in zip(*(table[name] for name in RECORD), strict=True)
        ]
    return at, next_offset, out
