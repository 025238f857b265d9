"""A first-afternoon log: segments, a sparse index, one record at a time.

A record is a 32-byte header and a body, big-endian:

    offset         uint64   the record's number in the log
    timestamp_ms   uint64
    key_size       uint32
    value_size     uint32
    crc            uint32   CRC-32 of timestamp_ms, key_size, value_size, key and value
    reserved       4 bytes
    key, value

Every fourth record has an index entry of two uint64, offset and position. Python lists hold the entries of all
segments. A segment rolls at 10 MB. An open reads every record, checks its CRC, and cuts the segment at the first that
fails. It is for one thread.
"""

from __future__ import annotations

import os
import struct
import time
import zlib
from bisect import bisect_right
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEADER: Final = struct.Struct(">QQIII4x")
CHECKED_HEADER: Final = struct.Struct(">QII")
INDEX_ENTRY: Final = struct.Struct(">QQ")
SEGMENT_BYTES: Final = 10 * 1024 * 1024
INDEX_INTERVAL_RECORDS: Final = 4


class CorruptRecord(Exception):
    """A stored CRC does not match its record."""


class NaiveSegment:
    """A pair of files, `.log` and `.index`, named after the first offset."""

    def __init__(self, directory: Path, *, base_offset: int, fsync: bool) -> None:
        self.base_offset = base_offset
        self.fsync = fsync
        self.log_path = directory / f"{base_offset:020d}.log"
        self._log_name = str(self.log_path)
        self.index_path = directory / f"{base_offset:020d}.index"
        self.indexed_offsets: list[int] = []
        self.indexed_positions: list[int] = []
        self.records_since_entry = 0
        self.next_offset, self.size = self._recover()
        self._log_file = self.log_path.open("ab")
        self._index_file = self.index_path.open("ab")

    def _recover(self) -> tuple[int, int]:
        """Load the index, check every record, and cut the log at the first bad one; return the next offset and size."""
        if not self.log_path.exists():
            return self.base_offset, 0
        next_offset, size = self.base_offset, 0
        with self.log_path.open("rb") as file:
            for offset, record_size in _checked_sizes(file):
                next_offset = offset + 1
                size += record_size
        if size < self.log_path.stat().st_size:
            os.truncate(self.log_path, size)
        if self.index_path.exists():
            with self.index_path.open("rb") as file:
                while len(entry := file.read(INDEX_ENTRY.size)) == INDEX_ENTRY.size:
                    offset, position = INDEX_ENTRY.unpack(entry)
                    if position >= size:
                        break
                    self.indexed_offsets.append(offset)
                    self.indexed_positions.append(position)
            os.truncate(self.index_path, INDEX_ENTRY.size * len(self.indexed_offsets))
        return next_offset, size

    def append(self, key: bytes, value: bytes) -> int:
        timestamp_ms = int(time.time() * 1000)
        offset = self.next_offset
        crc = zlib.crc32(CHECKED_HEADER.pack(timestamp_ms, len(key), len(value)) + key + value)
        record = HEADER.pack(offset, timestamp_ms, len(key), len(value), crc) + key + value
        position = self._log_file.tell()
        self._log_file.write(record)
        self._log_file.flush()
        if self.fsync:
            os.fsync(self._log_file.fileno())
        self.size += len(record)
        self.next_offset += 1
        self.records_since_entry += 1
        if self.records_since_entry >= INDEX_INTERVAL_RECORDS:
            self._append_entry(offset, position)
            self.records_since_entry = 0
        return offset

    def _append_entry(self, offset: int, position: int) -> None:
        self._index_file.write(INDEX_ENTRY.pack(offset, position))
        self._index_file.flush()
        if self.fsync:
            os.fsync(self._index_file.fileno())
        self.indexed_offsets.append(offset)
        self.indexed_positions.append(position)

    def position_before(self, offset: int) -> int:
        """Return the position of the last indexed record at or before `offset`, or 0."""
        entry = bisect_right(self.indexed_offsets, offset) - 1
        return self.indexed_positions[entry] if entry >= 0 else 0

    def read(self, offset: int, *, position: int) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield (offset, key, value) from `offset` on, reading from a byte position."""
        # `Path.open` would add a call to the measured path.
        with open(self._log_name, "rb") as file:
            file.seek(position)
            while len(header := file.read(HEADER.size)) == HEADER.size:
                found, timestamp_ms, key_size, value_size, crc = HEADER.unpack(header)
                key = file.read(key_size)
                value = file.read(value_size)
                if crc != zlib.crc32(CHECKED_HEADER.pack(timestamp_ms, key_size, value_size) + key + value):
                    raise CorruptRecord(f"{self.log_path.name}: the CRC of offset {found} does not match")
                if found >= offset:
                    yield found, key, value

    def close(self) -> None:
        self._log_file.close()
        self._index_file.close()


class NaiveLog:
    """Segments in offset order, the last one active."""

    def __init__(self, directory: Path, *, fsync: bool = False) -> None:
        self.directory = directory
        self.fsync = fsync
        directory.mkdir(parents=True, exist_ok=True)
        base_offsets = sorted(int(path.stem) for path in directory.glob("*.log")) or [0]
        self._base_offsets = base_offsets
        self._segments = [self._open_segment(base_offset) for base_offset in base_offsets]

    def _open_segment(self, base_offset: int) -> NaiveSegment:
        return NaiveSegment(self.directory, base_offset=base_offset, fsync=self.fsync)

    @property
    def next_offset(self) -> int:
        return self._segments[-1].next_offset

    def append(self, key: bytes, value: bytes) -> int:
        active = self._segments[-1]
        if active.size >= SEGMENT_BYTES:
            active = self._open_segment(active.next_offset)
            self._segments.append(active)
            self._base_offsets.append(active.base_offset)
        return active.append(key, value)

    def read(self, offset: int) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield (offset, key, value) from `offset` to the end."""
        first = max(0, bisect_right(self._base_offsets, offset) - 1)
        for segment in self._segments[first:]:
            yield from segment.read(offset, position=segment.position_before(offset))

    def scan(self, offset: int = 0) -> Iterator[tuple[int, bytes, bytes]]:
        """Yield the same without the index, reading every segment from its start."""
        for segment in self._segments:
            yield from segment.read(offset, position=0)

    def close(self) -> None:
        for segment in self._segments:
            segment.close()


def _checked_sizes(file: BinaryIO) -> Iterator[tuple[int, int]]:
    """Yield (offset, size) of each record up to the first that is torn or fails its CRC."""
    read = file.read
    while len(header := read(HEADER.size)) == HEADER.size:
        offset, timestamp_ms, key_size, value_size, crc = HEADER.unpack(header)
        body = read(key_size + value_size)
        if crc != zlib.crc32(CHECKED_HEADER.pack(timestamp_ms, key_size, value_size) + body):
            return
        yield offset, HEADER.size + len(body)
