"""The two indexes of one segment: sparse maps from offsets to positions, and from times to offsets.

`.index` is a run of 8-byte entries, `.timeindex` of 12-byte entries, big-endian, in increasing order:

    last_offset   int32   last offset of the indexed batch, less the segment's base offset
    position      int32   where that batch starts in the .log file

    timestamp     int64   the largest timestamp so far, in ms
    offset        int32   last offset of the batch that had it, less the segment's base offset

There is no header and no checksum. An offset entry proves itself: a batch must start at `position`, with a base offset
not above `last_offset`. If seeklog wrote the entry, that batch ends exactly with `last_offset`. A time entry is proved
by the batch it names, whose largest timestamp it holds. If an entry is not proved, the index is rebuilt from the log,
the only truth. Only `segment_state.SegmentState` adds entries.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import ClassVar, Generic, NamedTuple, TypeVar

from seeklog.files import Buffer, Files, Handle
from seeklog.record.index_lookup import floor_entry

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
# A multiple of both entry sizes. A broker preallocates 10 MB for entries, and most of that is zeros.
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
    """Return the entries of an index file that no seal covers, without the zeros that a broker preallocates.

    A broker may be writing the file through a map: a last entry with only one field written is left out.
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
    """Cut preallocated zeros and an incomplete last entry off the table of an unsealed index."""
    table = table[: len(table) - len(table) % entry.size]
    table = table[: -(-len(table.rstrip(b"\0")) // entry.size) * entry.size]
    # The first batch of a segment is never indexed, so no position is 0. Only the first time entry can have offset 0.
    is_first_time = entry is TIME_ENTRY and len(table) == entry.size
    if table and not is_first_time and entry.unpack(table[-entry.size :])[1] == 0:
        return table[: -entry.size]
    return table


Entry = TypeVar("Entry")


class _Index(ABC, Generic[Entry]):
    """A sequence of entries over a table: the bytes of a file, or a bytearray that grows."""

    __slots__ = ("base_offset", "table")
    ENTRY: ClassVar[struct.Struct]

    def __init__(self, base_offset: int, table: Buffer) -> None:
        self.base_offset = base_offset
        self.table = table

    def __len__(self) -> int:
        return len(self.table) // self.ENTRY.size

    def __getitem__(self, number: int) -> Entry:
        if not 0 <= number < len(self):
            raise IndexError(f"entry {number} of {len(self)}")
        return self._entry(*self.ENTRY.unpack_from(self.table, number * self.ENTRY.size))

    def __iter__(self) -> Iterator[Entry]:
        return (self[number] for number in range(len(self)))

    @abstractmethod
    def _entry(self, first: int, second: int) -> Entry: ...


class OffsetIndex(_Index[OffsetEntry]):
    __slots__ = ()
    ENTRY = OFFSET_ENTRY

    def _entry(self, first: int, second: int) -> OffsetEntry:
        return OffsetEntry(self.base_offset + first, second)

    def floor(self, offset: int) -> int:
        """Return the number of the last entry at or below `offset`, or -1."""
        return floor_entry(self.table, OFFSET_ENTRY.size, False, offset - self.base_offset)

    def lookup(self, offset: int) -> OffsetEntry:
        """Return where to start reading for `offset`: the floor entry, or the start of the segment."""
        number = self.floor(offset)
        return self[number] if number >= 0 else OffsetEntry(self.base_offset, 0)


class TimeIndex(_Index[TimeEntry]):
    __slots__ = ()
    ENTRY = TIME_ENTRY

    def _entry(self, first: int, second: int) -> TimeEntry:
        return TimeEntry(first, self.base_offset + second)

    def lookup(self, timestamp_ms: int) -> TimeEntry | None:
        """Return the last entry at or before `timestamp_ms`. Earlier batches hold no later record."""
        number = floor_entry(self.table, TIME_ENTRY.size, True, timestamp_ms)
        return self[number] if number >= 0 else None
