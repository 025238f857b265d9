"""Walking the batch headers of a segment and counting. Records are not read, and CRCs are not checked.

A header contains the size of its batch, and so the position of the next one. Small batches are read in whole chunks of
many headers; of large batches only the headers are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from seeklog.config import INT64_MAX
from seeklog.errors import CorruptionError
from seeklog.log.reading import ALL_RECORDS, locate
from seeklog.log.segment import SCAN_CHUNK, Segment, cut_short, whole_batch_size
from seeklog.record import batch_header, decode, record
from seeklog.record.batch import BatchHeader
from seeklog.record.layout import CONTROL, DELETE_HORIZON, HEADER_SIZE, LOG_APPEND_TIME

CHUNK: Final = 64 << 10
# A read costs about as much as copying this many bytes, so of a larger batch only the header is read.
LARGE_BATCH: Final = 4096
NO_TIMESTAMP: Final = -1


class Census(NamedTuple):
    """Counts over some batches. Control batches count, but their records do not."""

    batch_count: int = 0
    record_count: int = 0
    first_timestamp_ms: int = NO_TIMESTAMP
    """The timestamp of the first record, or -1 if the headers do not contain it."""
    max_timestamp_ms: int = NO_TIMESTAMP


def scan_headers(segment: Segment, start: int, stop: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of every batch in the segment that has an offset in [start, stop)."""
    position = locate(segment, start, HEADER_SIZE)[0] if start > segment.base_offset and segment.size else 0
    size = segment.size
    origin, data = position, b""
    wanted = CHUNK
    while position < size:
        at = position - origin
        if len(data) - at < HEADER_SIZE:
            data = segment.read(wanted, position)
            origin, at = position, 0
            if len(data) < min(HEADER_SIZE, size - position):
                raise cut_short(segment, position + len(data))
        try:
            header = BatchHeader(*batch_header.read_header(data, at, origin))
        except CorruptionError as error:
            raise segment.located(error) from error
        if header.size > size - position:
            reason = f"the batch claims {header.size} bytes, the segment ends after {size - position}"
            raise segment.damaged(reason, position)
        if header.base_offset >= stop:
            return
        if header.last_offset >= start:
            yield position, header
        position += header.size
        wanted = HEADER_SIZE if header.size >= LARGE_BATCH else CHUNK


def prefix_size(segment: Segment, end: int, *, contiguous: bool) -> tuple[int, int]:
    """Return the size of the batches that end at or below the offset `end`, and the offset after them.

    For a segment that another process may be writing: bytes that cannot be a batch end the walk without an error.
    """
    position, next_offset = 0, segment.base_offset
    wanted = SCAN_CHUNK
    while position < segment.size:
        data = segment.read(wanted, position)
        taken, reached = batch_header.walk_batches(data, next_offset, contiguous)
        if reached > end:
            return _cut_at(data, end, position=position, next_offset=next_offset)
        if taken:
            wanted = SCAN_CHUNK
        else:
            claimed = whole_batch_size(data) if len(data) >= HEADER_SIZE else 0
            if not len(data) < claimed <= segment.size - position:
                break
            wanted = claimed
        position, next_offset = position + taken, reached
    return position, next_offset


def _cut_at(data: bytes, end: int, *, position: int, next_offset: int) -> tuple[int, int]:
    """Return where the batches of `data`, read at `position`, pass the offset `end`, and the offset before that."""
    at = 0
    while (header := BatchHeader(*batch_header.read_header(data, at, position))).next_offset <= end:
        at, next_offset = at + header.size, header.next_offset
    return position + at, next_offset


def take_census(segment: Segment, start: int, stop: int, *, limit: int) -> Census:
    """Count the batches and records of a segment in [start, stop).

    Only a batch with gaps that crosses `start` or `stop` is decoded to count its records.
    """
    batches = records = 0
    first = newest = NO_TIMESTAMP
    for position, header in scan_headers(segment, start, stop):
        batches += 1
        if header.attributes & CONTROL or not header.record_count:
            continue
        if not records:
            first = first_timestamp_ms(header)
        newest = max(newest, header.max_timestamp_ms)
        records += _count_inside(segment, position, header, start, stop, limit)
    return Census(batches, records, first, newest)


def first_timestamp_ms(header: BatchHeader) -> int:
    """Return the timestamp of a batch's first record, or -1 if the header does not contain it."""
    if header.attributes & LOG_APPEND_TIME:
        return header.max_timestamp_ms
    return NO_TIMESTAMP if header.attributes & DELETE_HORIZON else header.base_timestamp_ms


def _count_inside(segment: Segment, position: int, header: BatchHeader, start: int, stop: int, limit: int) -> int:
    if header.base_offset >= start and header.next_offset <= stop:
        return header.record_count
    if header.record_count == header.last_offset_delta + 1:
        return min(header.next_offset, stop) - max(header.base_offset, start)
    raw = segment.read(header.size, position)
    out: list[record.Record] = []
    try:
        decode.read_records(
            raw, 0, position, 0, False, start, min(stop, INT64_MAX), ALL_RECORDS, ALL_RECORDS, 1, limit, out
        )
    except CorruptionError as error:
        raise segment.located(error) from error
    return len(out)
