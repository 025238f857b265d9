"""The indexes of one segment as files: validated against the log, and made anew from it; a key index, if it has one.

These verbs take the path of a segment's `.log` file and need no open log. `rebuild_index` and `recover_or_rebuild`
take the partition's lock for as long as they run, so that they never meet a writer; `renew_index` is for one who
holds it already. The log is read and searched by the kernel: only the entries of an index cost Python.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from seeklog import names
from seeklog.config import INT32_MAX, INT64_MAX, LogConfig
from seeklog.errors import CorruptionError, LostRecords, NotALog, SeeklogError
from seeklog.files import Files, OsFiles, absolute
from seeklog.log.check.key_indexes import key_index_problem, make_key_index, write_key_index
from seeklog.log.directory import lock_lone_directory
from seeklog.log.index import OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, TimeIndex
from seeklog.log.segment import Indexes, Segment, Shared, scan_into, seal_of
from seeklog.log.side.checkpoint import read_checkpoint
from seeklog.log.side.pages import PageSums
from seeklog.log.side.seal import read_seal, read_table
from seeklog.record.batch import read_header
from seeklog.record.crc import crc32c
from seeklog.record.index_lookup import floor_entry
from seeklog.record.layout import HEADER_SIZE
from seeklog.record.saved_state import SavedState
from seeklog.record.segment_state import SegmentState


@dataclass(frozen=True, slots=True)
class IndexProblem:
    """What is wrong with an index file, or with one entry of it."""

    path: str
    entry: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed:
    """What `renew_index` found and did."""

    done: Literal["unchanged", "rebuilt", "damaged"]
    detail: str = ""
    batch_count: int = 0
    record_count: int = 0
    size: int = 0
    sizes_before: tuple[int | None, int | None] = (None, None)
    """Bytes of the offset index and of the time index; None: there was none."""
    sizes_after: tuple[int | None, int | None] = (None, None)
    key_sizes: tuple[int | None, int | None] = (None, None)
    """Bytes of the key index, before and after."""


def rebuild_index(
    path: str | os.PathLike[str], *, config: LogConfig | None = None, files: Files | None = None
) -> Indexes:
    """Write the indexes of a segment anew from its log, a key index if it has one, and return the first two.

    Damage in the log is raised."""
    segment = _segment(path, config, files, writable=True)
    with _locked(segment):
        return _rebuild(segment)


def recover_or_rebuild(
    path: str | os.PathLike[str], *, config: LogConfig | None = None, files: Files | None = None
) -> Indexes:
    """Return a segment's indexes, written anew if they are missing or anything is wrong with them."""
    segment = _segment(path, config, files, writable=True)
    with _locked(segment):
        indexes = _read_indexes(segment)
        if indexes is None or _problems(segment, indexes):
            return _rebuild(segment)
        return indexes


def validate_index(path: str | os.PathLike[str], *, files: Files | None = None) -> list[IndexProblem]:
    """Hold every entry of both indexes, and the key index if there is one, against the log; nothing on disk changes."""
    segment = _segment(path, None, files, writable=False)
    indexes = _read_indexes(segment)
    if indexes is None:
        return [IndexProblem(segment.path, None, "an index is missing")]
    return _problems(segment, indexes)


def renew_index(
    path: str | os.PathLike[str], *, config: LogConfig | None = None, files: Files | None = None
) -> Renewed:
    """Make the indexes of a segment, its key index and its seal if it has them, what its log says.

    Those that are so stay untouched.

    The caller holds the partition's lock, and no batch is appended meanwhile. A segment whose log is damaged, or not
    what its seal says, is left as it is.
    """
    segment = _segment(path, config, files, writable=True)
    before = _tables(segment)
    sizes = sizes_of(before)
    try:
        sums = PageSums()
        state = segment.scan_all(sums=sums)
        _check_whole(segment, state)
    except CorruptionError as error:
        position = "" if error.position is None else f"byte {error.position}: "
        return Renewed(done="damaged", detail=f"{position}{error.reason}", sizes_before=sizes, sizes_after=sizes)
    state.finish_times()
    after = (bytes(state.offset_table), bytes(state.time_table))
    is_new = before != after or not _seal_tells(segment, state, sums)
    if is_new:
        _write(segment, state, sums)
    key_sizes, is_new_keys = _renew_keys(segment, state)
    return Renewed(
        done="rebuilt" if is_new or is_new_keys else "unchanged",
        batch_count=state.batch_count,
        record_count=state.record_count,
        size=state.size,
        sizes_before=sizes,
        sizes_after=sizes_of(after),
        key_sizes=key_sizes,
    )


def _renew_keys(segment: Segment, state: SegmentState) -> tuple[tuple[int | None, int | None], bool]:
    """Make a key index that is there what the log says; return its sizes before and after, and whether it is new."""
    before = _read_if_there(segment.shared.files, segment.shared.path(segment.base_offset, names.KEY_INDEX))
    if before is None:
        return (None, None), False
    try:
        after = make_key_index(segment, state)
    except SeeklogError:
        return (len(before), len(before)), False  # whoever reads the records will tell
    if after != before:
        write_key_index(segment, after)
        segment.shared.files.sync_directory(segment.shared.directory)
    return (len(before), len(after)), after != before


def _segment(path: str | os.PathLike[str], config: LogConfig | None, files: Files | None, *, writable: bool) -> Segment:
    files = files or OsFiles()
    directory, name = os.path.split(os.path.abspath(os.fspath(path)))
    parsed = names.parse_segment_name(name)
    if parsed is None or parsed[1] != names.LOG:
        raise NotALog(f"{name} is no segment: its name must be 20 digits and {names.LOG}")
    shared = Shared(files, absolute(directory), config or LogConfig(), writable=writable)
    segment = Segment(shared, parsed[0], size=0, next_offset=INT64_MAX, seal=None)
    try:
        handle = segment.handle()
        size = files.size(handle.number)
    except FileNotFoundError as error:
        raise NotALog(f"there is no segment {segment.path}") from error
    seal = read_seal(files, directory, parsed[0])
    segment = Segment(shared, parsed[0], size=size, next_offset=INT64_MAX, seal=seal)
    segment.read_unproved()
    return segment


@contextlib.contextmanager
def _locked(segment: Segment) -> Iterator[None]:
    with lock_lone_directory(segment.shared.files, segment.shared.directory):
        yield


def _rebuild(segment: Segment) -> Indexes:
    sums = PageSums()
    state = segment.scan_all(sums=sums)
    if state.problem is not None:
        raise state.problem.located(segment.path)
    if segment.seal is not None:
        segment.check_sealed(state, segment.seal)
    state.finish_times()
    _write(segment, state, sums)
    _renew_keys(segment, state)
    return Indexes(
        OffsetIndex(segment.base_offset, bytes(state.offset_table)),
        TimeIndex(segment.base_offset, bytes(state.time_table)),
    )


def _write(segment: Segment, state: SegmentState, sums: PageSums) -> None:
    if segment.seal is not None:
        segment.write_sealed_again(state, segment.seal, sums=sums)
    else:
        segment.write_indexes_of(state)
    segment.shared.files.sync_directory(segment.shared.directory)


def _check_whole(segment: Segment, state: SegmentState) -> None:
    """Raise unless the whole file is sound batches, and those that were sealed."""
    if state.problem is not None:
        raise state.problem
    if state.size < segment.size:
        raise CorruptionError("the last batch is not all there", position=state.size)
    seal = segment.seal
    if seal is not None and (seal.size, seal.log_crc) != (state.size, state.crc):
        raise CorruptionError(
            f"the seal speaks of {seal.size} bytes with CRC {seal.log_crc:#010x}, "
            f"the log has {state.size} with {state.crc:#010x}"
        )


def _seal_tells(segment: Segment, state: SegmentState, sums: PageSums) -> bool:
    """Tell whether the seal, if there is one, speaks of the indexes and the pages that the log makes."""
    seal, shared = segment.seal, segment.shared
    if seal is None:
        return True
    made = seal_of(
        state,
        sealed_at_ms=seal.sealed_at_ms,
        may_have_gaps=not seal.contiguous,
        clean_offset=seal.clean_offset,
        sums=sums,
    )
    if seal.pages is None:
        return seal == replace(made, pages=None)  # from before there were pages
    return seal == made and read_table(shared.files, shared.directory, segment.base_offset, seal.pages) is not None


def _tables(segment: Segment) -> tuple[bytes | None, bytes | None]:
    """Return the bytes of both index files; None for one that is missing."""
    offsets, times = (
        _read_if_there(segment.shared.files, segment.shared.path(segment.base_offset, suffix))
        for suffix in (names.OFFSET_INDEX, names.TIME_INDEX)
    )
    return offsets, times


def _read_if_there(files: Files, path: str) -> bytes | None:
    try:
        return files.read_file(path)
    except FileNotFoundError:
        return None


def sizes_of(tables: tuple[bytes | None, bytes | None]) -> tuple[int | None, int | None]:
    """Return how large the bytes of two index files are; None for one that is missing."""
    offsets, times = (None if table is None else len(table) for table in tables)
    return offsets, times


def _read_indexes(segment: Segment) -> Indexes | None:
    offsets, times = _tables(segment)
    if offsets is None or times is None:
        return None
    return Indexes(OffsetIndex(segment.base_offset, offsets), TimeIndex(segment.base_offset, times))


# ---------------------------------------------------------------- holding entries against the log


class BatchMap:
    """Every batch of a segment, and every batch with a timestamp above all before it, as tables of index entries.

    The kernel makes the tables and searches them.
    """

    def __init__(self, state: SegmentState) -> None:
        self._base_offset = state.base_offset
        self._batches = bytes(state.offset_table)
        # Shifted by half an entry, so that a search by the first field finds positions.
        self._positions = self._batches[4:] + bytes(4)
        self._newest = bytes(state.time_table)

    def starting_at(self, position: int) -> int:
        """Return the number of the batch that starts at `position`, or -1."""
        number = floor_entry(self._positions, OFFSET_ENTRY.size, False, position)
        return number if number >= 0 and self._entry(number)[1] == position else -1

    def last_offset(self, number: int) -> int:
        """Return the last offset of a batch; of the one before the first, the offset before the segment's."""
        return self._base_offset + (self._entry(number)[0] if number >= 0 else -1)

    def newest(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return the offsets, first and last, of the batch that first had `timestamp_ms` as the largest so far."""
        number = floor_entry(self._newest, TIME_ENTRY.size, True, timestamp_ms)
        if number < 0:
            return None
        largest, last = TIME_ENTRY.unpack_from(self._newest, number * TIME_ENTRY.size)
        if largest != timestamp_ms:
            return None
        batch = floor_entry(self._batches, OFFSET_ENTRY.size, False, last)
        return self.last_offset(batch - 1) + 1, self._base_offset + last

    def _entry(self, number: int) -> tuple[int, int]:
        last, position = OFFSET_ENTRY.unpack_from(self._batches, number * OFFSET_ENTRY.size)
        return last, position


def state_of_every_batch(base_offset: int) -> SegmentState:
    """Return the state of an empty segment that will give every batch an index entry, the first one too."""
    state = SegmentState(
        base_offset,
        interval_bytes=0,
        interval_records=0,
        segment_bytes=INT32_MAX,
        segment_ms=INT64_MAX,
        segment_index_bytes=INT32_MAX,
    )
    state.restore(tuple(SavedState(*state.save())._replace(bytes_since_entry=1)), b"", b"")
    return state


def _problems(segment: Segment, indexes: Indexes) -> list[IndexProblem]:
    state = state_of_every_batch(segment.base_offset)
    try:
        for _ in scan_into(state, segment, contiguous_from=INT64_MAX):
            pass
    except LostRecords as error:
        # The entries cannot be judged by a file that is being cut.
        return [IndexProblem(segment.path, None, error.reason)]
    batches = BatchMap(state)
    found = list(offset_problems(segment, bytes(indexes.offsets.table), batches))
    found += time_problems(segment, bytes(indexes.times.table), batches)
    tables = ((names.OFFSET_INDEX, indexes.offsets.table), (names.TIME_INDEX, indexes.times.table))
    for (suffix, table), crc in zip(tables, _recorded_crcs(segment), strict=False):
        path = segment.shared.path(segment.base_offset, suffix)
        if crc32c(table) != crc and all(problem.path != path for problem in found):
            found.append(IndexProblem(path, None, f"{len(table)} bytes, which are not all that were written"))
    if state.problem is not None:
        found.append(IndexProblem(segment.path, None, str(state.problem.reason)))
    wrong = key_index_problem(segment, state, is_whole=state.problem is None)
    if wrong is not None:
        found.append(IndexProblem(wrong.path, None, wrong.reason))
    return found


def _recorded_crcs(segment: Segment) -> tuple[int, ...]:
    """Return the CRCs of both indexes where seeklog has noted them: in the seal, or on a clean close."""
    if segment.seal is not None:
        return segment.seal.offset_index_crc, segment.seal.time_index_crc
    checkpoint = read_checkpoint(segment.shared.files, segment.shared.directory)
    saved = checkpoint.active if checkpoint is not None else None
    if saved is not None and saved.is_of(segment.base_offset, size=segment.size):
        return saved.offset_index_crc, saved.time_index_crc
    return ()


def offset_problems(segment: Segment, table: bytes, batches: BatchMap) -> Iterator[IndexProblem]:
    """Yield what is wrong with an offset index, in the order of its entries."""
    path = segment.shared.path(segment.base_offset, names.OFFSET_INDEX)
    whole = len(table) - len(table) % OFFSET_ENTRY.size
    if whole != len(table):
        yield IndexProblem(path, None, "the last entry is incomplete")
    before = (-1, -1)
    for number, (relative, position) in enumerate(OFFSET_ENTRY.iter_unpack(table[:whole])):
        batch = batches.starting_at(position)
        offset = segment.base_offset + relative
        if batch < 0:
            yield IndexProblem(path, number, f"no batch starts at byte {position}")
        elif batches.last_offset(batch) != offset:
            # A broker may have written several batches at once, with one entry for the last offset of them all.
            header = read_header(segment.read(HEADER_SIZE, position))
            if header.base_offset > offset or segment.is_exact:
                yield IndexProblem(
                    path, number, f"offset {offset}, but the batch has {header.base_offset} to {header.last_offset}"
                )
        if relative <= before[0] or position <= before[1]:
            yield IndexProblem(path, number, "it does not grow")
        before = (relative, position)


def time_problems(segment: Segment, table: bytes, batches: BatchMap) -> Iterator[IndexProblem]:
    """Yield what is wrong with a time index, in the order of its entries."""
    path = segment.shared.path(segment.base_offset, names.TIME_INDEX)
    whole = len(table) - len(table) % TIME_ENTRY.size
    if whole != len(table):
        yield IndexProblem(path, None, "the last entry is incomplete")
    before = -1
    for number, (timestamp_ms, relative) in enumerate(TIME_ENTRY.iter_unpack(table[:whole])):
        offset = segment.base_offset + relative
        newest = batches.newest(timestamp_ms)
        # Kafka before 4.0 names the record that had the timestamp, later ones the last of its batch.
        if newest is None or not newest[0] <= offset <= newest[1]:
            yield IndexProblem(path, number, f"the largest timestamp is not {timestamp_ms} from offset {offset} on")
        if timestamp_ms <= before:
            yield IndexProblem(path, number, "it does not grow")
        before = timestamp_ms
