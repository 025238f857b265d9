"""The index files of one segment: validated against the log, and rebuilt from it, including an existing key index.

These functions take the path of a segment's `.log` file and need no open log. `rebuild_index` and `recover_or_rebuild`
hold the partition's lock while they run, so no writer is active; the caller of `renew_index` must hold it. The compiled
kernel reads and searches the log: only the entries of an index are processed in Python.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Literal

from seeklog import names
from seeklog.config import INT64_MAX, LogConfig
from seeklog.errors import CorruptionError, LostRecords, NotALog, SeeklogError, counted
from seeklog.files import Files, Handle, OsFiles, absolute, read_if_exists, replace_file
from seeklog.log.check.index_entries import (
    OFFSETS,
    TIMES,
    BatchMap,
    IndexProblem,
    build_key_index,
    index_problems,
    key_index_problem,
    state_of_every_batch,
)
from seeklog.log.directory import lock_lone_directory
from seeklog.log.index import OffsetIndex, TimeIndex
from seeklog.log.segment import Indexes, Segment, Shared, scan_into, seal_of
from seeklog.log.side.checkpoint import read_checkpoint
from seeklog.log.side.pages import PageSums
from seeklog.log.side.seal import Seal, read_seal, read_table
from seeklog.record.crc import crc32c
from seeklog.record.segment_state import SegmentState

Sizes = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewed:
    """The result of `renew_index`."""

    done: Literal["unchanged", "rebuilt", "damaged"]
    detail: str = ""
    batch_count: int = 0
    record_count: int = 0
    size: int = 0
    sizes_before: Sizes = (None, None)
    """Sizes of the offset index and the time index in bytes; None for a missing file."""
    sizes_after: Sizes = (None, None)
    key_sizes: Sizes = (None, None)
    """Sizes of the key index in bytes, before and after."""


def rebuild_index(
    path: str | os.PathLike[str], *, config: LogConfig | None = None, files: Files | None = None
) -> Indexes:
    """Rebuild the index files of a segment from its log, including an existing key index; return the first two.

    Raises the error if the log is damaged.
    """
    segment = _open_segment(path, config, files, writable=True)
    with lock_lone_directory(segment.shared.files, segment.shared.directory):
        return _rebuild(segment)


def recover_or_rebuild(
    path: str | os.PathLike[str], *, config: LogConfig | None = None, files: Files | None = None
) -> Indexes:
    """Return a segment's indexes, rebuilt if they are missing or have any problem."""
    segment = _open_segment(path, config, files, writable=True)
    with lock_lone_directory(segment.shared.files, segment.shared.directory):
        return _rebuild(segment) if _problems(segment) else segment.load_indexes()


def validate_index(path: str | os.PathLike[str], *, files: Files | None = None) -> list[IndexProblem]:
    """Check every entry of both indexes, and the key index if it exists, against the log; nothing on disk changes."""
    return _problems(_open_segment(path, None, files, writable=False))


def renew_index(
    path: str | os.PathLike[str], *, config: LogConfig | None = None, files: Files | None = None
) -> Renewed:
    """Make a segment's indexes, and an existing key index and seal, match its log. Files that match stay untouched.

    The caller holds the partition's lock, and no batch is appended meanwhile. If the log is damaged or does not match
    its seal, nothing is changed.
    """
    segment = _open_segment(path, config, files, writable=True)
    before = _read_tables(segment)
    try:
        sums = PageSums()
        state = segment.scan_all(sums=sums)
        _check_whole(segment, state)
    except CorruptionError as error:
        position = "" if error.position is None else f"byte {error.position}: "
        sizes = sizes_of(before)
        return Renewed(done="damaged", detail=f"{position}{error.reason}", sizes_before=sizes, sizes_after=sizes)
    state.finish_times()
    after = (bytes(state.offset_table), bytes(state.time_table))
    is_new = before != after or (segment.seal is not None and not _matches_seal(segment, segment.seal, state, sums))
    if is_new:
        _write(segment, state, sums)
    key_sizes, has_new_keys = _renew_keys(segment, state)
    return Renewed(
        done="rebuilt" if is_new or has_new_keys else "unchanged",
        batch_count=state.batch_count,
        record_count=state.record_count,
        size=state.size,
        sizes_before=sizes_of(before),
        sizes_after=sizes_of(after),
        key_sizes=key_sizes,
    )


def sizes_of(tables: tuple[bytes | None, bytes | None]) -> Sizes:
    """Return the sizes of two index files; None for a missing file."""
    offsets, times = (None if table is None else len(table) for table in tables)
    return offsets, times


def _open_segment(
    path: str | os.PathLike[str], config: LogConfig | None, files: Files | None, *, writable: bool
) -> Segment:
    files = files or OsFiles()
    directory, name = os.path.split(os.path.abspath(os.fspath(path)))
    parsed = names.parse_segment_name(name)
    if parsed is None or parsed[1] != names.LOG:
        raise NotALog(f"{name} is not a segment: its name must be 20 digits and {names.LOG}")
    shared = Shared(files, absolute(directory), config or LogConfig(), writable=writable)
    try:
        handle = Handle(files, shared.path(parsed[0], names.LOG))
    except FileNotFoundError as error:
        raise NotALog(f"there is no segment {shared.path(parsed[0], names.LOG)}") from error
    size, seal = files.size(handle.number), read_seal(files, shared.directory, parsed[0])
    segment = Segment(shared, parsed[0], size=size, next_offset=INT64_MAX, seal=seal)
    segment.read_unproved()
    return segment


def _read_tables(segment: Segment) -> tuple[bytes | None, bytes | None]:
    """Return the bytes of both index files; None for a missing file."""
    return _read_side(segment, names.OFFSET_INDEX), _read_side(segment, names.TIME_INDEX)


def _read_side(segment: Segment, suffix: str) -> bytes | None:
    return read_if_exists(segment.shared.files, segment.shared.path(segment.base_offset, suffix))


# ---------------------------------------------------------------- checking


def _check_whole(segment: Segment, state: SegmentState) -> None:
    """Raise unless the file consists of whole batches and matches its seal."""
    if state.problem is not None:
        raise state.problem
    if state.size < segment.size:
        raise CorruptionError("the last batch is incomplete", position=state.size)
    seal = segment.seal
    if seal is not None and (seal.size, seal.log_crc) != (state.size, state.crc):
        raise CorruptionError(
            f"the seal names {counted(seal.size, 'byte')} with CRC {seal.log_crc:#010x}, "
            f"the log has {state.size:,} with {state.crc:#010x}"
        )


def _matches_seal(segment: Segment, seal: Seal, state: SegmentState, sums: PageSums) -> bool:
    """Return whether the seal has the same facts about indexes and pages as the log."""
    made = seal_of(
        state,
        sealed_at_ms=seal.sealed_at_ms,
        may_have_gaps=not seal.contiguous,
        clean_offset=seal.clean_offset,
        sums=sums,
    )
    if seal.pages is None:
        return seal == replace(made, pages=None)  # a seal from before page checksums
    shared = segment.shared
    return seal == made and read_table(shared.files, shared.directory, segment.base_offset, seal.pages) is not None


def _problems(segment: Segment) -> list[IndexProblem]:
    offsets, times = _read_tables(segment)
    if offsets is None or times is None:
        return [IndexProblem(segment.path, None, "an index is missing")]
    state = state_of_every_batch(segment.base_offset)
    try:
        for _ in scan_into(state, segment, contiguous_from=INT64_MAX):
            pass
    except LostRecords as error:
        # The file is being cut, so the entries cannot be checked.
        return [IndexProblem(segment.path, None, error.reason)]
    batches = BatchMap(state)
    problems = []
    for file, table, crc in zip((OFFSETS, TIMES), (offsets, times), _noted_crcs(segment), strict=True):
        wrong = list(index_problems(segment, file, table, batches))
        if not wrong and crc is not None and crc32c(table) != crc:
            path = segment.shared.path(segment.base_offset, file.suffix)
            wrong.append(IndexProblem(path, None, f"{counted(len(table), 'byte')}, fewer than were written"))
        problems += wrong
    if state.problem is not None:
        problems.append(IndexProblem(segment.path, None, str(state.problem.reason)))
    key_problem = key_index_problem(segment, state, is_whole=state.problem is None)
    return problems if key_problem is None else [*problems, key_problem]


def _noted_crcs(segment: Segment) -> tuple[int | None, int | None]:
    """Return the CRCs of both indexes that the seal or a clean close recorded, or None."""
    if segment.seal is not None:
        return segment.seal.offset_index_crc, segment.seal.time_index_crc
    checkpoint = read_checkpoint(segment.shared.files, segment.shared.directory)
    saved = checkpoint.active if checkpoint is not None else None
    if saved is not None and saved.is_of(segment.base_offset, size=segment.size):
        return saved.offset_index_crc, saved.time_index_crc
    return None, None


# ---------------------------------------------------------------- writing


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


def _renew_keys(segment: Segment, state: SegmentState) -> tuple[Sizes, bool]:
    """Rebuild an existing key index from the log; return its sizes before and after, and whether it changed."""
    before = _read_side(segment, names.KEY_INDEX)
    if before is None:
        return (None, None), False
    try:
        after = build_key_index(segment, state)
    except SeeklogError:
        return (len(before), len(before)), False  # reading the records will report the error
    if after != before:
        shared = segment.shared
        replace_file(shared.files, shared.directory, names.segment_name(segment.base_offset, names.KEY_INDEX), after)
        shared.files.sync_directory(shared.directory)
    return (len(before), len(after)), after != before
