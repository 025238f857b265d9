"""The two indexes of one segment: sparse maps from offsets to positions, and from times to offsets.

`.index` is a run of 8-byte entries, `.timeindex` of 12-byte entries, big-endian, in increasing order:

    last_offset   int32   last offset of the indexed batch, less the segment's base offset
    position      int32   where that batch starts in the .log file

    timestamp     int64   the largest timestamp so far, in ms
    offset        int32   last offset of the batch that had it, less the segment's base offset

There is no header and no checksum. An offset entry proves itself: a batch must start at `position`, with a
base offset not above `last_offset`; where seeklog wrote it, its last offset is exactly `last_offset`. A time
entry is proved by the batch it names, whose largest timestamp it holds. What is not proved is rebuilt from
the log, the only truth. When an entry is written is decided in one place, `segment_state.SegmentState`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from seeklog.config import INT32_MAX
from seeklog.errors import UsageError
from seeklog.files import Buffer, Files, Handle
from seeklog.record.index_lookup import floor_entry

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
# Whole entries of either kind. A broker makes room for 10 MB of them, and most of that is zeros.
_CHUNK = 2048 * 24


class OffsetEntry(NamedTuple):
    """The batch at `position` ends with `offset`."""

    offset: int
    position: int


class TimeEntry(NamedTuple):
    """No record up to `offset` has a timestamp above `timestamp_ms`."""

    timestamp_ms: int
    offset: int


def read_entries(files: Files, path: str, entry: struct.Struct) -> bytes:
    """Return the entries of an index file that no seal vouches for, up to the zeros that a broker preallocates.

    A broker may be writing the file through a map: a last entry of which only one field is there yet is left out.
    """
    handle = Handle(files, path)
    table = b""
    while len(table) % _CHUNK == 0:
        chunk = used_entries(files.read(handle.number, _CHUNK, len(table)), entry)
        table += chunk
        if not chunk:
            break
    return table


def used_entries(table: bytes, entry: struct.Struct) -> bytes:
    """Cut what no seal vouches for: zeros that a broker preallocates, and a last entry that is not all there."""
    table = table[: len(table) - len(table) % entry.size]
    table = table[: -(-len(table.rstrip(b"\0")) // entry.size) * entry.size]
    # No entry names the first batch of a segment, so none has the position 0, and no second one the offset 0.
    is_first_time = entry is TIME_ENTRY and len(table) == entry.size
    if table and not is_first_time and entry.unpack(table[-entry.size :])[1] == 0:
        return table[: -entry.size]
    return table


class OffsetIndex:
    """The offset index of one segment over a table of entries: the bytes of a file, or a growing bytearray."""

    __slots__ = ("base_offset", "table")

    def __init__(self, base_offset: int, table: Buffer | None = None) -> None:
        self.base_offset = base_offset
        self.table: Buffer = bytearray() if table is None else table

    def __len__(self) -> int:
        return len(self.table) // OFFSET_ENTRY.size

    def __getitem__(self, number: int) -> OffsetEntry:
        if not 0 <= number < len(self):
            raise IndexError(f"entry {number} of {len(self)}")
        offset, position = OFFSET_ENTRY.unpack_from(self.table, number * OFFSET_ENTRY.size)
        return OffsetEntry(self.base_offset + offset, position)

    def __iter__(self) -> Iterator[OffsetEntry]:
        return (self[number] for number in range(len(self)))

    def floor(self, offset: int) -> int:
        """Return the number of the last entry at or below `offset`, or -1."""
        return floor_entry(self.table, OFFSET_ENTRY.size, False, offset - self.base_offset)

    def lookup(self, offset: int) -> OffsetEntry:
        """Return where to start reading for `offset`: the floor entry, or the start of the segment."""
        number = self.floor(offset)
        return self[number] if number >= 0 else OffsetEntry(self.base_offset, 0)

    def last(self) -> OffsetEntry | None:
        """Return the last entry, or None."""
        return self[len(self) - 1] if len(self) else None

    def append(self, offset: int, position: int) -> None:
        """Add an entry behind the others; both fields must grow and fit in 31 bits."""
        _check_grows(self.last(), OffsetEntry(offset, position), offset - self.base_offset, position)
        _growing(self.table).extend(OFFSET_ENTRY.pack(offset - self.base_offset, position))

    def truncate(self, offset: int) -> None:
        """Drop the entries of batches that end at or behind `offset`."""
        keep = self.floor(offset - 1) + 1
        del _growing(self.table)[keep * OFFSET_ENTRY.size :]


class TimeIndex:
    """The time index of one segment over a table of entries."""

    __slots__ = ("base_offset", "table")

    def __init__(self, base_offset: int, table: Buffer | None = None) -> None:
        self.base_offset = base_offset
        self.table: Buffer = bytearray() if table is None else table

    def __len__(self) -> int:
        return len(self.table) // TIME_ENTRY.size

    def __getitem__(self, number: int) -> TimeEntry:
        if not 0 <= number < len(self):
            raise IndexError(f"entry {number} of {len(self)}")
        timestamp_ms, offset = TIME_ENTRY.unpack_from(self.table, number * TIME_ENTRY.size)
        return TimeEntry(timestamp_ms, self.base_offset + offset)

    def __iter__(self) -> Iterator[TimeEntry]:
        return (self[number] for number in range(len(self)))

    def lookup(self, timestamp_ms: int) -> TimeEntry | None:
        """Return the last entry at or before `timestamp_ms`: no earlier batch can hold a later record."""
        number = floor_entry(self.table, TIME_ENTRY.size, True, timestamp_ms)
        return self[number] if number >= 0 else None

    def last(self) -> TimeEntry | None:
        """Return the last entry, or None."""
        return self[len(self) - 1] if len(self) else None

    def append(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry behind the others; both fields must grow."""
        _check_grows(self.last(), TimeEntry(timestamp_ms, offset), offset - self.base_offset, 0)
        _growing(self.table).extend(TIME_ENTRY.pack(timestamp_ms, offset - self.base_offset))

    def truncate(self, offset: int) -> None:
        """Drop the entries that name batches at or behind `offset`."""
        keep = len(self)
        while keep and self[keep - 1].offset >= offset:
            keep -= 1
        del _growing(self.table)[keep * TIME_ENTRY.size :]


def _growing(table: Buffer) -> bytearray:
    if not isinstance(table, bytearray):
        raise UsageError("the index of a sealed segment does not change")
    return table


def _check_grows(last: tuple[int, int] | None, new: tuple[int, int], offset: int, position: int) -> None:
    if not (0 <= offset <= INT32_MAX and 0 <= position <= INT32_MAX):
        raise UsageError(f"relative offset {offset} and position {position} must fit in 31 bits")
    if last is not None and not (new[0] > last[0] and new[1] > last[1]):
        raise UsageError(f"index entries must grow: {tuple(new)} after {tuple(last)}")
