"""Reading a view of segments: forward or backward, as records, columns, batches, or file ranges.

Every read starts with `locate`: the floor entry of the index, proved by the batch that it points at. From there the log
is read in chunks. A chunk may end inside a batch; a segment never does. Readers take no lock.
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

# One read covers the distance between two index entries at the default interval, and the next batch.
POINT_READ = 8192
READ_CHUNK = 64 << 10
# Records are decoded a chunk at a time. From 128 KiB on, malloc would map fresh pages for each chunk.
SCAN_CHUNK = 96 << 10
# The record for a timestamp is within an index interval or two of its entry.
TIME_CHUNK = 16 << 10
# At this distance or more, two adjacent entries most likely enclose one large batch.
LARGE_BATCH = 8192
RECORDS_PER_CHUNK = 8192
ALL_RECORDS = 2**62
# A reader that compaction overtakes this often without any progress has another problem.
MAX_RENEWALS = 8
# If files are replaced and a batch looks damaged this often, it is damaged.
MAX_LOOKS = 100


@dataclass(frozen=True, slots=True)
class Seek:
    """Where an offset was found, and the cost of finding it."""

    offset: int
    segment: int
    path: str
    position: int
    """The byte position of the batch that holds the offset."""
    scanned_batches: int
    scanned_bytes: int
    """The bytes between the index entry and the batch."""


@dataclass(frozen=True, slots=True)
class FileRange:
    """Whole batches as a range of a file, for `os.sendfile`. Holding it keeps the file open."""

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

    If a batch does not prove its index entry, the segment rebuilds its indexes, once.
    """
    for _ in range(2):
        batch = _try_entries(segment, offset, chunk)
        if batch is not None:
            return batch
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
        # An entry names the last offset of its batch, so the floor entry of an offset inside a large batch is the
        # batch before it. Try the next entry first; if its batch starts too late, little is lost. The batches on
        # both sides of the entry are most likely of the same size.
        data = segment.read_point(max(chunk, gap + 512), next_position)
        base = batch_header.entry_base(data, base_offset + next_last, segment.trust.is_exact)
        if 0 <= base <= offset:
            return next_position, base, data
    elif gap > 0 and chunk == POINT_READ:
        chunk = gap + 512
    data = segment.read_point(chunk, position)
    if last < 0:
        # No entry: start of the file. An entry below the base offset is damaged, wherever it points.
        return (0, base_offset, data) if position == 0 else None
    base = batch_header.entry_base(data, base_offset + last, segment.trust.is_exact)
    return (position, base, data) if base >= 0 else None


def was_overtaken(view: View) -> bool:
    """Return whether another process has replaced files of a view, so that apparent damage may not be real.

    A broker that runs on the directory compacts, merges and deletes segments, and only the file names show it. Nothing
    but the names is checked: reading the files again could meet real damage, and end the log before it.
    """
    shared = view.segments[0].shared
    if not shared.is_beside_writer:
        return False
    _, segments = list_beside_writer(shared)
    files_now = {segment.base_offset: segment.listed for segment in segments}
    return any(not segment.is_same_file(files_now.get(segment.base_offset)) for segment in view.segments)


def renewed(view: View, offset: int, error: FileNotFoundError) -> View:
    """Return the current segments, some of which compaction may have replaced.

    Raises `error` if nothing was replaced, or if the records at `offset` are really gone.
    """
    renew = view.segments[0].shared.renew
    for _ in range(MAX_RENEWALS):
        fresh = renew() if renew is not None else None
        if fresh is None or fresh is view or offset < fresh.bases[0]:
            raise error
        segment = fresh.segments[fresh.find(offset)]
        if segment is not fresh.last and not segment.is_exact:
            return fresh  # a broker's compaction may have removed any batch, even the last one of a file
        try:
            end = segment.exact_end()
        except FileNotFoundError:
            continue  # replaced once more
        # Compaction keeps at least the header of a file's last batch. If a file ends earlier, the next one is missing.
        if offset < end:
            return fresh
        if not segment.is_bounded:
            # The log was truncated, by its writer or by a broker.
            if offset == end:
                return fresh
            raise OffsetOutOfRange(offset, log_start_offset=fresh.bases[0], log_end_offset=end)
        is_known = any(
            old.base_offset == segment.base_offset and old.is_same_file(segment.listed) for old in view.segments
        )
        if not segment.contiguous and not is_known:
            return fresh  # rewritten by a broker's compaction, which keeps no such header
        break
    raise error


class Cursor:
    """A position in a view that moves forward, with the bytes around it.

    If compaction replaces the segment that it enters, the cursor continues at its offset in the newest view.
    """

    __slots__ = (
        "_looks",
        "_renewals",
        "at",
        "chunk",
        "data",
        "index",
        "next_offset",
        "origin",
        "resumed_at",
        "segment",
        "view",
    )
    at: int
    data: bytes
    next_offset: int
    origin: int
    index: int
    segment: Segment

    def __init__(self, view: View, offset: int, *, chunk: int) -> None:
        self.chunk = chunk
        self._renewals = self._looks = 0
        self.resumed_at = 0
        """The offset at which it continued in a newer view. The batch there may start earlier."""
        self.view = view
        try:
            self._go_to(view, offset)
        except FileNotFoundError as error:
            self._resume(view, offset, error)
        except CorruptionError as error:
            self.resume_or_raise(offset, error)

    def _go_to(self, view: View, offset: int) -> None:
        self.view = view
        self._enter(view.find(offset))
        # In a compacted log, the batch with this offset may be missing from the end of its segment.
        while offset >= self.segment.next_offset and self.index + 1 < len(view.segments):
            self._enter(self.index + 1)
        if offset >= self.segment.base_offset and self.segment.size:
            self.origin, self.next_offset, data = locate(self.segment, offset, self.chunk)
            self.data = data[: self.segment.size - self.origin]

    def resume_or_raise(self, offset: int, error: CorruptionError) -> None:
        """Continue at an offset in a newer view if files were replaced; otherwise raise the damage."""
        self._looks += 1
        if self._looks > MAX_LOOKS or not was_overtaken(self.view):
            raise self.segment.located(error) from error
        self._resume(self.view, offset, SegmentReplaced(self.segment.path))

    def _resume(self, view: View, offset: int, error: FileNotFoundError) -> None:
        """Move to the batch that holds an offset in the newest view, or to the next batch."""
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
            self.resume_or_raise(offset, damage)

    def skip_to(self, offset: int) -> int:
        """Skip the batches in `data` that end below an offset; return their number."""
        self.at, self.next_offset, walked = batch_header.skip_batches(
            self.data, self.at, self.origin, self.next_offset, offset, self.segment.contiguous
        )
        return walked

    @property
    def position(self) -> int:
        return self.origin + self.at

    def jump(self, position: int, next_offset: int) -> None:
        """Move to a batch of the segment that was not read yet."""
        self.origin, self.at, self.data, self.next_offset = position, 0, b"", next_offset

    def has_batch(self) -> bool:
        """Return whether `data` holds a whole batch at the cursor."""
        rest = len(self.data) - self.at
        return rest >= HEADER_SIZE and rest >= whole_batch_size(self.data[self.at : self.at + HEADER_SIZE])

    def fill(self) -> bool:
        """Read until a whole batch is in `data`, if necessary from the next segment. Return False at the end.

        Called when the batch at the cursor is not complete in `data`.
        """
        try:
            is_filled = self._fill()
        except FileNotFoundError as error:
            self._resume(self.view, self.next_offset, error)
            return self.has_batch()
        except CorruptionError as error:
            self.resume_or_raise(self.next_offset, error)
            return self.has_batch()
        self._renewals = 0
        return is_filled

    def _fill(self) -> bool:
        segment = self.segment
        position = self.origin + self.at
        while position >= segment.size:
            if self.index + 1 >= len(self.view.segments):
                return False
            ended_at = self.next_offset
            self._enter(self.index + 1)
            segment, position = self.segment, 0
            before = self.view.segments[self.index - 1]
            # A segment may end before the next one begins if an archive declares a gap there.
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
        size = segment.size  # taken before the read, which does not cover later appends
        self.origin, self.data = segment.read_on(wanted, position)
        self.at = position - self.origin
        available = len(self.data) - self.at
        if available >= HEADER_SIZE and (
            available >= min(wanted, size - position) or position + available >= segment.size
        ):
            return True
        if position >= segment.size:
            return False  # the segment was truncated during the read
        raise cut_short(segment, position + available)

    def _enter(self, index: int) -> None:
        self.index = index
        self.segment = self.view.segments[index]
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
        """Decode whole batches in [start, stop) into `out` and move past them.

        Returns the size of the decoded batches.
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
            self.resume_or_raise(max(start, self.next_offset), error)
            return 0
        self.at, self.next_offset = at, next_offset
        return taken


def read_records(view: View, start: int, stop: int, max_records: int, max_bytes: int, limit: int) -> list[Record]:
    """Return records in [start, stop): at most `max_records`, from about `max_bytes` of the log.

    At least one batch is read, however large. A read of one record or a few usually takes one index lookup, one read
    and one decode; only the rest needs a cursor.
    """
    out: list[Record] = []
    segment = view.segments[view.find(start)]
    if start < segment.base_offset:
        raise SegmentReplaced(segment.path)  # deleted since the caller checked the log start offset
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
        # An empty batch or a control batch may use up the bytes without yielding a record: then read one more.
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
    """Yield the records in [start, stop) as lists, one for each decoded chunk; none is empty."""
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
    """Yield the records in [start, stop), newest first."""
    while stop > start:
        index = view.find(stop - 1)
        segment = view.segments[index]
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
            # Step back through the index until a chunk of log fits between the entry and `stop`.
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
    """Yield whole batches from the one that holds `start` up to `stop`, at least one. CRCs are checked."""
    for cursor, size in _whole_batches(view, start, stop, max_bytes=max_bytes):
        yield from split_batches(cursor.data[cursor.at : cursor.at + size], origin=cursor.position)


def read_ranges(view: View, start: int, stop: int, *, max_bytes: int) -> list[FileRange]:
    """Return the same batches as file ranges, one for each segment. Only headers are read."""
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
    """Yield (cursor, size) for runs of whole batches at the cursor, up to `stop` or `max_bytes`.

    While the consumer runs, the cursor is at the start of the run, but its `next_offset` is the one after the run.
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
            cursor.resume_or_raise(max(start, cursor.next_offset), error)
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
    """Return the position of the batch that holds `offset`, or else of the next batch."""
    cursor = Cursor(view, offset, chunk=POINT_READ)
    entry_position = cursor.position
    entry_segment = cursor.segment
    scanned = 0
    while True:
        try:
            scanned += cursor.skip_to(offset)
        except CorruptionError as error:
            cursor.resume_or_raise(offset, error)
            continue
        # The walk also stops before a batch that is not complete in `data`, even far below the offset.
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
    """Return the offset of the first record in [start, stop) with this timestamp or a later one, or None."""
    for segment in view.segments[view.find(start) :]:
        newest = segment.max_timestamp_ms()
        if segment.base_offset >= stop or (newest is not None and newest < timestamp_ms):
            continue
        offset = _time_in_segment(segment, timestamp_ms, start, stop, limit)
        if offset is not None:
            return offset
    return None


def _time_in_segment(segment: Segment, timestamp_ms: int, start: int, stop: int, limit: int) -> int | None:
    begin = max(start, _time_entry(segment, timestamp_ms))
    if begin >= min(stop, segment.next_offset):
        return None
    cursor = Cursor(View([segment]), begin, chunk=TIME_CHUNK)
    while True:
        try:
            cursor.at, has_match = batch_header.find_time(cursor.data, cursor.at, cursor.origin, timestamp_ms)
            if has_match:
                out: list[Record] = []
                # A limit of one byte decodes just this batch.
                cursor.at, next_offset, _ = decode.read_records(
                    cursor.data, cursor.at, cursor.origin, 0, False, 0, stop, ALL_RECORDS, ALL_RECORDS, 1, limit, out
                )
                cursor.segment.check_bound(next_offset, cursor.position)
                for record in out:
                    if record.offset >= start and record.timestamp_ms >= timestamp_ms:
                        return record.offset
                continue
        except CorruptionError as error:
            cursor.resume_or_raise(begin, error)
            continue
        if not cursor.fill():
            return None


def _time_entry(segment: Segment, timestamp_ms: int) -> int:
    """Return an offset below which, by the time index, every record has an earlier timestamp.

    The entry is checked against the batch that it names, whose largest timestamp it holds.
    """
    for _ in range(2):
        entry = segment.indexes.times.lookup(timestamp_ms)
        if entry is None:
            return segment.base_offset
        if segment.base_offset <= entry.offset < segment.next_offset:
            data = segment.read(HEADER_SIZE, seek(View([segment]), entry.offset).position)
            # There is no header if the entry names an offset after the last batch.
            header = read_header(data) if data else None
            if header and header.max_timestamp_ms == entry.timestamp_ms and header.base_offset <= entry.offset:
                return header.base_offset
        segment.rebuild_indexes("a time entry does not name the batch that has its timestamp")
    return segment.base_offset
