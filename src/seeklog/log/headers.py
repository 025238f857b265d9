"""Walking the batch headers of a segment: counts and the largest timestamp. Records are not read, CRCs not checked.

A header contains the size of its batch, and so the position of the next one. Small batches are read in whole chunks of
many headers; of large batches only the headers are read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import attrgetter
from typing import Final, NamedTuple

from seeklog import names
from seeklog.config import INT64_MAX
from seeklog.errors import CorruptionError, counted
from seeklog.files import Handle
from seeklog.log.index import TIME_ENTRY, used_entries
from seeklog.log.reading import ALL_RECORDS, locate
from seeklog.log.segment import SCAN_CHUNK, Segment, cut_short, whole_batch_size
from seeklog.log.view import View
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
            reason = f"the batch claims {counted(header.size, 'byte')}, the segment ends after {size - position:,}"
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


# ---------------------------------------------------------------- the largest timestamp


def max_timestamp_ms(view: View, start: int, stop: int) -> int:
    """Return the largest timestamp of the batches with records in [start, stop), or -1.

    Of most segments only the seal or the last time entry is read. The headers are walked where one of these promises
    more than was found so far: in the segment that holds the record, and in one that still grows.
    """
    if start >= stop:
        return NO_TIMESTAMP
    segments = [segment for segment in view.segments if segment.base_offset < stop and segment.next_offset > start]
    bounds = sorted(((_bound(segment), segment.base_offset, segment) for segment in segments), reverse=True)
    newest = NO_TIMESTAMP
    for bound, _, segment in bounds:
        if bound <= newest:
            break
        newest = max(newest, _max_in_segment(segment, max(start, segment.base_offset), min(stop, segment.next_offset)))
    return newest


def _bound(segment: Segment) -> int:
    """Return a timestamp that no batch of a segment exceeds, by its seal or, without a seal, its last time entry."""
    known = segment.max_timestamp_ms()
    if known is not None:
        return known
    if not segment.is_bounded:
        return INT64_MAX
    files = segment.shared.files
    try:
        handle = Handle(files, segment.shared.path(segment.base_offset, names.TIME_INDEX))
        entry = files.read(handle.number, TIME_ENTRY.size, max(0, files.size(handle.number) - TIME_ENTRY.size))
    except OSError:
        return INT64_MAX
    timestamp_ms: int
    # A broker that rolls a segment indexes its largest timestamp, unless no record has one.
    timestamp_ms, _ = TIME_ENTRY.unpack(entry) if used_entries(entry, TIME_ENTRY) else (INT64_MAX, 0)
    return timestamp_ms


def _max_in_segment(segment: Segment, start: int, stop: int) -> int:
    """Return the largest timestamp of the batches in [start, stop) of one segment, or -1.

    The last entry of the time index names the batch with the largest timestamp among those up to the last entry of the
    offset index, so only the others are walked. If that batch holds no records, or the entry is wrong, the walk goes
    back from entry to entry.
    """
    offsets, times = segment.indexes
    number = offsets.floor(stop - 1)
    covered = end = max(start, offsets[number].offset if number >= 0 else start)
    newest = _max_of_headers(segment, covered, stop)
    last = bisect_right(times, covered, key=attrgetter("offset"))
    first = bisect_left(times, start, key=attrgetter("offset"))
    if first < last:
        promised = times[last - 1]
        newest = max(newest, _max_of_headers(segment, promised.offset, promised.offset + 1))
        if promised.timestamp_ms <= newest:
            return newest
    for number in range(last - 1, first - 1, -1):
        entry = times[number]
        newest = max(newest, _max_of_headers(segment, entry.offset, end))
        end = entry.offset
        if entry.timestamp_ms <= newest:
            return newest
    return max(newest, _max_of_headers(segment, start, end))


def _max_of_headers(segment: Segment, start: int, stop: int) -> int:
    return max(
        (
            header.max_timestamp_ms
            for _, header in scan_headers(segment, start, stop)
            if header.record_count and not header.attributes & CONTROL
        ),
        default=NO_TIMESTAMP,
    )
