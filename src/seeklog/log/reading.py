"""Reading a view of segments forward, backward, as records, columns, batches or file ranges.

Every way starts with `locate`: the floor entry of the index, proved by the batch it points at. From there
batches are read in chunks; a chunk may end in the middle of a batch, never a segment. Readers take no lock.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

from seeklog.errors import CorruptionError, LostRecords, OffsetOutOfRange
from seeklog.files import Handle
from seeklog.log.recovery import list_beside_writer
from seeklog.log.segment import ADVICE, Segment, SegmentReplaced, check_fits, cut_short, whole_batch_size
from seeklog.log.view import View
from seeklog.record import batch_header, decode, index_lookup
from seeklog.record.batch import Batch, read_header, split_batches
from seeklog.record.layout import HEADER_SIZE
from seeklog.record.record import Record

logger = logging.getLogger("seeklog")

# One read covers what lies between two index entries at the default interval, and the batch after it.
POINT_READ = 8192
READ_CHUNK = 64 << 10
# Records are made from a chunk at once; it stays below the 128 KiB from which on malloc takes fresh pages for each.
SCAN_CHUNK = 96 << 10
# The record of a time lies within an index interval or two of the entry.
TIME_CHUNK = 16 << 10
# From this distance on, two neighbouring entries most likely enclose one large batch.
LARGE_BATCH = 8192
RECORDS_PER_CHUNK = 8192
ALL_RECORDS = 2**62
# A reader that is overtaken by compaction so often without getting any further has another problem.
MAX_RENEWALS = 8
# What looks like damage so often while files are replaced is damage.
MAX_LOOKS = 100


@dataclass(frozen=True, slots=True)
class Seek:
    """Where an offset was found, and what it took."""

    offset: int
    segment: int
    """Base offset of the segment."""
    path: str
    position: int
    """Where the batch that holds the offset starts in the file."""
    scanned_batches: int
    scanned_bytes: int
    """What was walked between the index entry and the batch."""


@dataclass(frozen=True, slots=True)
class FileRange:
    """Whole batches as bytes of a file, for `os.sendfile`. Holding it keeps the file open."""

    handle: Handle
    path: str
    position: int
    size: int
    base_offset: int
    next_offset: int

    def fileno(self) -> int:
        return self.handle.fileno()


def locate(segment: Segment, offset: int, chunk: int) -> tuple[int, int, bytes]:
    """Return (position, base offset, bytes from there) of a batch at or before the one that holds `offset`.

    An index entry that its batch does not prove makes the segment rebuild its indexes, once.
    """
    for _ in range(2):
        found = _try_entries(segment, offset, chunk)
        if found is not None:
            return found
        segment.rebuild_indexes("an entry does not point at the batch it names")
    raise segment.damaged("the batch that a rebuilt index points at changes while it is read")


def _try_entries(segment: Segment, offset: int, chunk: int) -> tuple[int, int, bytes] | None:
    base_offset = segment.base_offset
    indexes = segment.loaded.indexes or segment.indexes
    last, position, next_last, next_position = index_lookup.entries_around(indexes.offsets.table, offset - base_offset)
    if position < 0:
        return None
    gap = next_position - position
    if gap >= LARGE_BATCH:
        # An entry names the last offset of its batch, so the floor entry of an offset inside a large
        # batch is the batch before it. Look at the next one first; if it starts too late, nothing is lost.
        # The batches on both sides of the entry are most likely of one size.
        data = segment.read_point(max(chunk, gap + 512), next_position)
        base = batch_header.entry_base(data, base_offset + next_last, segment.trust.is_exact)
        if 0 <= base <= offset:
            return next_position, base, data
    elif gap > 0 and chunk == POINT_READ:
        chunk = gap + 512
    data = segment.read_point(chunk, position)
    if last < 0:
        # Without an entry it is the start of the file. An entry below the base is damaged, wherever it points.
        return (0, base_offset, data) if position == 0 else None
    base = batch_header.entry_base(data, base_offset + last, segment.trust.is_exact)
    return (position, base, data) if base >= 0 else None


def was_overtaken(view: View) -> bool:
    """Tell whether another process has replaced files under a reader's view, so that what looks like damage is not.

    A broker that runs on the directory compacts, merges and deletes segments, and says so nowhere but in the names.
    Only the names are looked at: to look at the files again, and meet real damage there, would end the log before it.
    """
    shared = view.segments[0].shared
    if not shared.is_beside_writer:
        return False
    _, segments = list_beside_writer(shared)
    files_now = {segment.base_offset: segment.listed for segment in segments}
    return any(not segment.is_same_file(files_now.get(segment.base_offset)) for segment in view.segments)


def renewed(view: View, offset: int, error: FileNotFoundError) -> View:
    """Return the current segments, in which compaction may have replaced some.

    Raises the error where nothing was replaced, or where what holds the offset is really gone.
    """
    renew = view.segments[0].shared.renew
    for _ in range(MAX_RENEWALS):
        fresh = renew() if renew is not None else None
        if fresh is None or fresh is view or offset < fresh.bases[0]:
            raise error
        segment = fresh.segments[fresh.find(offset)]
        if segment is not fresh.last and not segment.is_exact:
            return fresh  # a broker's compaction may have left any offset out, also the last ones of a file
        try:
            end = segment.exact_end()
        except FileNotFoundError:
            continue  # and replaced once more
        # Compaction keeps the last batch of a file, if only its header: where a file ends before, the next is missing.
        if offset < end:
            return fresh
        if not segment.is_bounded:
            # The log was cut, by its writer or by a broker.
            if offset == end:
                return fresh
            raise OffsetOutOfRange(offset, log_start_offset=fresh.bases[0], log_end_offset=end)
        is_known = any(
            old.base_offset == segment.base_offset and old.is_same_file(segment.listed) for old in view.segments
        )
        if not segment.contiguous and not is_known:
            return fresh  # a broker rewrote it, whose compaction keeps no such header, and seeklog sealed it since
        break
    raise error


class Cursor:
    """A place in a view that moves forward, with the bytes around it.

    Where compaction replaces the segment that it comes to, it goes on at its offset in the newest view.
    """

    __slots__ = (
        "_looks",
        "_renewals",
        "at",
        "chunk",
        "data",
        "next_offset",
        "origin",
        "place",
        "resumed_at",
        "segment",
        "view",
    )
    at: int
    data: bytes
    next_offset: int
    origin: int
    place: int
    segment: Segment

    def __init__(self, view: View, offset: int, *, chunk: int) -> None:
        self.chunk = chunk
        self._renewals = self._looks = 0
        self.resumed_at = 0
        """Where it went on in a newer view. The batch there may begin before: what was cut off was written again."""
        self.view = view
        try:
            self._go_to(view, offset)
        except FileNotFoundError as error:
            self._resume(view, offset, error)
        except CorruptionError as error:
            self.look_again(offset, error)

    def _go_to(self, view: View, offset: int) -> None:
        self.view = view
        self._enter(view.find(offset))
        # In a compacted log the batch that held the offset may be gone from the end of its segment.
        while offset >= self.segment.next_offset and self.place + 1 < len(view.segments):
            self._enter(self.place + 1)
        if offset >= self.segment.base_offset and self.segment.size:
            self.origin, self.next_offset, data = locate(self.segment, offset, self.chunk)
            self.data = data[: self.segment.size - self.origin]

    def look_again(self, offset: int, error: CorruptionError) -> None:
        """Go on at an offset in a newer view if files were replaced under this one; else raise the damage."""
        self._looks += 1
        if self._looks > MAX_LOOKS or not was_overtaken(self.view):
            raise self.segment.located(error) from error
        self._resume(self.view, offset, SegmentReplaced(self.segment.path))

    def _resume(self, view: View, offset: int, error: FileNotFoundError) -> None:
        """Go to the batch that holds an offset, or the next one, in the newest view."""
        self._renewals += 1
        if self._renewals > MAX_RENEWALS:
            raise error
        view = renewed(view, offset, error)
        self.resumed_at = offset
        try:
            self._go_to(view, offset)
            while True:
                self.skip_to(offset)
                if self.has_batch() or not self._fill():
                    return
        except FileNotFoundError as again:
            self._resume(view, offset, again)
        except CorruptionError as damage:
            self.look_again(offset, damage)

    def skip_to(self, offset: int) -> int:
        """Move past the batches in `data` that end below an offset; return how many they are."""
        self.at, self.next_offset, walked = batch_header.skip_batches(
            self.data, self.at, self.origin, self.next_offset, offset, self.segment.contiguous
        )
        return walked

    @property
    def position(self) -> int:
        """Where in the segment's file the cursor stands."""
        return self.origin + self.at

    def has_batch(self) -> bool:
        """Tell whether a whole batch lies ahead in `data`."""
        rest = len(self.data) - self.at
        return rest >= HEADER_SIZE and rest >= whole_batch_size(self.data[self.at : self.at + HEADER_SIZE])

    def fill(self) -> bool:
        """Read on, so that a whole batch lies ahead; go to the next segment at the end of one.

        False at the end of the view. Called when the batch ahead is not all in `data`.
        """
        try:
            is_filled = self._fill()
        except FileNotFoundError as error:
            self._resume(self.view, self.next_offset, error)
            return self.has_batch()
        except CorruptionError as error:
            self.look_again(self.next_offset, error)
            return self.has_batch()
        self._renewals = 0
        return is_filled

    def _fill(self) -> bool:
        segment = self.segment
        position = self.origin + self.at
        while position >= segment.size:
            if self.place + 1 >= len(self.view.segments):
                return False
            ended_at = self.next_offset
            self._enter(self.place + 1)
            segment, position = self.segment, 0
            before = self.view.segments[self.place - 1]
            # A segment that does not end where the next begins does so because an archive declares a gap.
            is_declared = before.is_bounded and ended_at == before.next_offset
            if ended_at != segment.base_offset and before.contiguous and not is_declared:
                raise LostRecords(
                    f"offsets {ended_at} to {segment.base_offset - 1} are missing before this segment",
                    path=segment.path,
                    advice=ADVICE,
                )
        rest = self.data[self.at :] if position == self.origin + self.at else b""
        wanted = self.chunk
        if rest and position + len(rest) >= segment.size:
            check_fits(rest, position=position, segment=segment)
        elif len(rest) >= 12:
            wanted = max(wanted, check_fits(rest, position=position, segment=segment))
        size = segment.size  # before the read: what is appended meanwhile is not missing in it
        self.origin, self.data = segment.read_on(wanted, position)
        self.at = position - self.origin
        found = len(self.data) - self.at
        if found >= HEADER_SIZE and (found >= min(wanted, size - position) or position + found >= segment.size):
            return True
        if position >= segment.size:
            return False  # it was truncated under the reader
        raise cut_short(segment, position + found)

    def _enter(self, place: int) -> None:
        self.place = place
        self.segment = self.view.segments[place]
        self.next_offset = self.segment.base_offset
        self.origin = self.at = 0
        self.data = b""

    def take_records(
        self,
        start: int,
        stop: int,
        *,
        max_records: int,
        enough_records: int,
        enough_bytes: int,
        limit: int,
        out: list[Record],
    ) -> int:
        """Decode the whole batches ahead that lie in [start, stop) into `out`, and move on.

        Returns the bytes of the batches that were decoded.
        """
        segment, before = self.segment, len(out)
        start = max(start, self.resumed_at)
        try:
            at, next_offset, taken = decode.read_records(
                self.data,
                self.at,
                self.origin,
                self.next_offset,
                segment.contiguous,
                start,
                stop,
                max_records,
                enough_records,
                enough_bytes,
                limit,
                out,
                segment.shared.source,
            )
            if not segment.contiguous:
                segment.check_bound(next_offset, self.origin + at)
        except CorruptionError as error:
            del out[before:]
            self.look_again(max(start, self.next_offset), error)
            return 0
        self.at, self.next_offset = at, next_offset
        return taken


def read_records(view: View, start: int, stop: int, max_records: int, max_bytes: int, limit: int) -> list[Record]:
    """Return records from `start` on, below `stop`: at most `max_records`, from about `max_bytes` of log.

    At least one batch is read, however large it is. The way to one record or a few is short: one index
    lookup, one read, one decode; only what that does not answer goes on with a cursor.
    """
    out: list[Record] = []
    segment = view.segments[view.find(start)]
    if start < segment.base_offset:
        raise SegmentReplaced(segment.path)  # it was deleted since the caller looked where the log starts
    contiguous = segment.trust.contiguous
    position, base, data = locate(segment, start, POINT_READ if max_records == 1 else READ_CHUNK)
    try:
        _, next_offset, taken = decode.read_records(
            data,
            0,
            position,
            base,
            contiguous,
            start,
            stop,
            max_records,
            max_records,
            max_bytes,
            limit,
            out,
            segment.shared.source,
        )
    except CorruptionError as error:
        raise segment.located(error) from error
    if not contiguous:
        segment.check_bound(next_offset, position)
    max_bytes -= taken
    if len(out) >= max_records or next_offset >= stop or (out and max_bytes <= 0):
        return out
    start = out[-1].offset + 1 if out else start
    cursor = Cursor(view, start, chunk=POINT_READ if max_records == 1 else min(max(max_bytes, POINT_READ), SCAN_CHUNK))
    while True:
        # An empty batch, or one of markers, may use up the bytes and give no record: then one more is read.
        max_bytes -= cursor.take_records(
            start,
            stop,
            max_records=max_records,
            enough_records=max_records,
            enough_bytes=max(max_bytes, 1),
            limit=limit,
            out=out,
        )
        if len(out) >= max_records or cursor.next_offset >= stop or (out and max_bytes <= 0):
            return out
        if not cursor.has_batch() and not cursor.fill():
            return out


def scan_chunks(view: View, start: int, stop: int, *, limit: int) -> Iterator[list[Record]]:
    """Yield the records in [start, stop) in lists, as many at a time as are decoded at once; none is empty."""
    if start >= stop:
        return
    cursor = Cursor(view, start, chunk=SCAN_CHUNK)
    while True:
        out: list[Record] = []
        cursor.take_records(
            start,
            stop,
            max_records=ALL_RECORDS,
            enough_records=RECORDS_PER_CHUNK,
            enough_bytes=ALL_RECORDS,
            limit=limit,
            out=out,
        )
        is_full = len(out) >= RECORDS_PER_CHUNK
        if out:
            yield out
        if cursor.next_offset >= stop or (not is_full and not cursor.fill()):
            return


def scan_reverse(view: View, start: int, stop: int, *, limit: int) -> Iterator[Record]:
    """Yield the records in [start, stop) from the last to the first."""
    while stop > start:
        place = view.find(stop - 1)
        segment = view.segments[place]
        if segment.base_offset > stop - 1:
            return
        low = max(start, segment.base_offset)
        stop = min(stop, segment.next_offset)
        try:
            offsets = segment.indexes.offsets
        except FileNotFoundError as error:
            view = renewed(view, stop - 1, error)
            continue
        while stop > low:
            # Go back by index entries until a chunk's worth of log lies between there and `stop`.
            number = offsets.floor(stop - 1)
            end_position = offsets[number].position if number >= 0 else 0
            while number >= 0 and end_position - offsets[number].position < READ_CHUNK:
                number -= 1
            block = offsets[number].offset + 1 if number >= 0 else segment.base_offset
            block = min(max(low, block), stop - 1)
            yield from reversed(list(chain.from_iterable(scan_chunks(view, block, stop, limit=limit))))
            stop = block
        stop = low


def read_batches(view: View, start: int, stop: int, *, max_bytes: int) -> Iterator[Batch]:
    """Yield whole batches from the one that holds `start` on, all below `stop`, at least one, CRC checked."""
    for cursor, size in _whole_batches(view, start, stop, max_bytes=max_bytes):
        yield from split_batches(cursor.data[cursor.at : cursor.at + size], origin=cursor.position)


def read_ranges(view: View, start: int, stop: int, *, max_bytes: int) -> list[FileRange]:
    """Return the same batches as ranges of files, one a segment. Only their headers are looked at."""
    ranges: list[FileRange] = []
    for cursor, size in _whole_batches(view, start, stop, max_bytes=max_bytes, verify=False):
        last = ranges[-1] if ranges else None
        if last is not None and last.path == cursor.segment.path and last.position + last.size == cursor.position:
            ranges[-1] = replace(last, size=last.size + size, next_offset=cursor.next_offset)
        else:
            base = batch_header.read_header(cursor.data, cursor.at, cursor.origin)[0]
            handle, path = cursor.segment.handle(), cursor.segment.path
            ranges.append(FileRange(handle, path, cursor.position, size, base, cursor.next_offset))
    return ranges


def _whole_batches(
    view: View, start: int, stop: int, *, max_bytes: int, verify: bool = True
) -> Iterator[tuple[Cursor, int]]:
    """Yield (cursor, size): runs of whole batches ahead of the cursor, until `stop` or `max_bytes`.

    While the consumer runs, the cursor stands at the run and its `next_offset` is the one after it.
    """
    if start >= stop:
        return
    cursor = Cursor(view, start, chunk=max(READ_CHUNK, min(max_bytes, SCAN_CHUNK)))
    budget = max_bytes
    first = True
    while budget > 0:
        try:
            data, origin, contiguous = cursor.data, cursor.origin, cursor.segment.contiguous
            begin, next_offset, _ = batch_header.skip_batches(
                data, cursor.at, origin, cursor.next_offset, start, contiguous
            )
            end, next_offset, took = batch_header.take_batches(
                data, begin, origin, next_offset, contiguous, stop, budget, first, verify
            )
            if took and not contiguous:
                ahead = read_header(data[end : end + HEADER_SIZE])
                cursor.segment.check_bound(ahead.next_offset, origin + end)
        except CorruptionError as error:
            cursor.look_again(max(start, cursor.next_offset), error)
            continue
        cursor.at, cursor.next_offset = begin, next_offset
        if end > begin:
            first = False
            budget -= end - begin
            yield cursor, end - begin
        cursor.at = end
        if took or not cursor.fill():
            return


def seek(view: View, offset: int) -> Seek:
    """Return where the batch that holds `offset`, or else the next one, starts."""
    cursor = Cursor(view, offset, chunk=POINT_READ)
    entry_position = cursor.position
    entry_segment = cursor.segment
    scanned = 0
    while True:
        try:
            scanned += cursor.skip_to(offset)
        except CorruptionError as error:
            cursor.look_again(offset, error)
            continue
        # The walk also stops before a batch that is not all in `data`, which may lie far below the offset.
        ahead = cursor.data[cursor.at : cursor.at + HEADER_SIZE]
        if len(ahead) == HEADER_SIZE and read_header(ahead).last_offset >= offset:
            break
        if not cursor.fill():
            break
    same = cursor.segment is entry_segment
    logger.debug("offset %d: index entry at byte %d of %s", offset, entry_position, entry_segment.path)
    return Seek(
        offset=offset,
        segment=cursor.segment.base_offset,
        path=cursor.segment.path,
        position=cursor.position,
        scanned_batches=scanned,
        scanned_bytes=cursor.position - entry_position if same else cursor.position,
    )


def offset_at_time(view: View, timestamp_ms: int, start: int, stop: int, *, limit: int) -> int | None:
    """Return the offset of the first record in [start, stop) stamped at or after `timestamp_ms`, or None."""
    for segment in view.segments[view.find(start) :]:
        newest = segment.max_timestamp_ms()
        if segment.base_offset >= stop or (newest is not None and newest < timestamp_ms):
            continue
        found = _time_in_segment(segment, timestamp_ms, start, stop, limit)
        if found is not None:
            return found
    return None


def _time_in_segment(segment: Segment, timestamp_ms: int, start: int, stop: int, limit: int) -> int | None:
    begin = max(start, _time_entry(segment, timestamp_ms))
    if begin >= min(stop, segment.next_offset):
        return None
    cursor = Cursor(View([segment]), begin, chunk=TIME_CHUNK)
    while True:
        try:
            cursor.at, found = batch_header.find_time(cursor.data, cursor.at, cursor.origin, timestamp_ms)
            if found:
                out: list[Record] = []
                # One byte is enough: just the batch that was found.
                cursor.at, next_offset, _ = decode.read_records(
                    cursor.data, cursor.at, cursor.origin, 0, False, 0, stop, ALL_RECORDS, ALL_RECORDS, 1, limit, out
                )
                cursor.segment.check_bound(next_offset, cursor.position)
                for record in out:
                    if record.offset >= start and record.timestamp_ms >= timestamp_ms:
                        return record.offset
                continue
        except CorruptionError as error:
            cursor.look_again(begin, error)
            continue
        if not cursor.fill():
            return None


def _time_entry(segment: Segment, timestamp_ms: int) -> int:
    """Return an offset before which, by the time index, no record is stamped at `timestamp_ms` or later.

    The entry is proved by the batch it names, whose largest timestamp it holds.
    """
    for _ in range(2):
        entry = segment.indexes.times.lookup(timestamp_ms)
        if entry is None:
            return segment.base_offset
        if segment.base_offset <= entry.offset < segment.next_offset:
            data = segment.read(HEADER_SIZE, seek(View([segment]), entry.offset).position)
            # Nothing is there where the entry names an offset after the last batch, in a gap before the next segment.
            header = read_header(data) if data else None
            if header and header.max_timestamp_ms == entry.timestamp_ms and header.base_offset <= entry.offset:
                return header.base_offset
        segment.rebuild_indexes("a time entry does not name the batch it stands for")
    return segment.base_offset
