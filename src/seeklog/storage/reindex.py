"""The indexes of one segment as files: validated against the log, and made anew from it.

These verbs take the path of a segment's `.log` file and need no open log. Those that write take the
partition's lock for as long as they run, so that they never meet a writer.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

from seeklog import names
from seeklog.config import INT64_MAX, LogConfig
from seeklog.errors import NotALog
from seeklog.files import Files, OsFiles
from seeklog.record.batch import BatchHeader, split_batches
from seeklog.record.kernel import crc32c
from seeklog.storage.checkpoint import read_checkpoint
from seeklog.storage.directory import lock_directory
from seeklog.storage.index import OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, TimeIndex
from seeklog.storage.seal import read_seal
from seeklog.storage.segment import Indexes, Segment, Shared, scan_into


@dataclass(frozen=True, slots=True)
class IndexProblem:
    """What is wrong with an index file, or with one entry of it."""

    path: str
    entry: int | None
    reason: str


def rebuild_index(
    path: str | os.PathLike[str], *, config: LogConfig | None = None, files: Files | None = None
) -> Indexes:
    """Write both indexes of a segment anew from its log, and return them. Damage in the log is raised."""
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
    """Hold every entry of both indexes against the log; nothing on disk changes."""
    segment = _segment(path, None, files, writable=False)
    indexes = _read_indexes(segment)
    if indexes is None:
        return [IndexProblem(segment.path, None, "an index is missing")]
    return _problems(segment, indexes)


def _segment(path: str | os.PathLike[str], config: LogConfig | None, files: Files | None, *, writable: bool) -> Segment:
    files = files or OsFiles()
    directory, name = os.path.split(os.path.abspath(os.fspath(path)))
    parsed = names.parse_segment_name(name)
    if parsed is None or parsed[1] != names.LOG:
        raise NotALog(f"{name} is no segment: its name must be 20 digits and {names.LOG}")
    shared = Shared(files, directory, config or LogConfig(), writable=writable)
    segment = Segment(shared, parsed[0], size=0, next_offset=INT64_MAX, seal=None)
    try:
        handle = segment.handle()
        size = files.size(handle.number)
    except FileNotFoundError as error:
        raise NotALog(f"there is no segment {segment.path}") from error
    seal = read_seal(files, directory, parsed[0])
    return Segment(shared, parsed[0], size=size, next_offset=INT64_MAX, seal=seal)


@contextlib.contextmanager
def _locked(segment: Segment) -> Iterator[None]:
    lock = lock_directory(segment.shared.files, segment.shared.directory)
    try:
        yield
    finally:
        lock.close()


def _rebuild(segment: Segment) -> Indexes:
    state = segment.scan_all()
    if state.problem is not None:
        raise state.problem.located(segment.path)
    state.finish_times()
    if segment.seal is not None:
        gaps = not segment.seal.contiguous
        segment.write_sealed(state, sealed_at_ms=segment.seal.sealed_at_ms, may_have_gaps=gaps)
    else:
        segment.write_indexes_of(state)
    segment.shared.files.sync_directory(segment.shared.directory)
    return Indexes(
        OffsetIndex(segment.base_offset, bytes(state.offset_table)),
        TimeIndex(segment.base_offset, bytes(state.time_table)),
    )


def _read_indexes(segment: Segment) -> Indexes | None:
    tables = []
    for suffix in (names.OFFSET_INDEX, names.TIME_INDEX):
        try:
            tables.append(segment.shared.files.read_file(segment.shared.path(segment.base_offset, suffix)))
        except FileNotFoundError:
            return None
    return Indexes(OffsetIndex(segment.base_offset, tables[0]), TimeIndex(segment.base_offset, tables[1]))


def _problems(segment: Segment, indexes: Indexes) -> list[IndexProblem]:
    state = segment.shared.new_state(segment.base_offset)
    starts: dict[int, BatchHeader] = {}
    newest: dict[int, BatchHeader] = {}
    largest = -1
    for position, data, size in scan_into(state, segment, contiguous_from=INT64_MAX):
        at = position
        for batch in split_batches(data[:size], origin=position):
            starts[at] = batch.header
            largest = max(largest, batch.max_timestamp_ms)
            newest.setdefault(largest, batch.header)
            at += len(batch.raw)
    found = list(_offset_problems(segment, indexes.offsets, starts))
    found += _time_problems(segment, indexes.times, newest)
    tables = ((names.OFFSET_INDEX, indexes.offsets.table), (names.TIME_INDEX, indexes.times.table))
    for (suffix, table), crc in zip(tables, _recorded_crcs(segment), strict=False):
        path = segment.shared.path(segment.base_offset, suffix)
        if crc32c(table) != crc and all(problem.path != path for problem in found):
            found.append(IndexProblem(path, None, f"{len(table)} bytes, which are not all that were written"))
    if state.problem is not None:
        found.append(IndexProblem(segment.path, None, str(state.problem.reason)))
    return found


def _recorded_crcs(segment: Segment) -> tuple[int, ...]:
    """Return the CRCs of both indexes where seeklog has noted them: in the seal, or on a clean close."""
    if segment.seal is not None:
        return segment.seal.offset_index_crc, segment.seal.time_index_crc
    checkpoint = read_checkpoint(segment.shared.files, segment.shared.directory)
    saved = checkpoint.active if checkpoint is not None else None
    if saved is not None and saved[0] == segment.base_offset and saved[2] == segment.size:
        return saved[14:16]
    return ()


def _offset_problems(segment: Segment, index: OffsetIndex, starts: dict[int, BatchHeader]) -> Iterator[IndexProblem]:
    path = segment.shared.path(segment.base_offset, names.OFFSET_INDEX)
    if len(index.table) % OFFSET_ENTRY.size:
        yield IndexProblem(path, None, "the last entry is incomplete")
    before = (-1, -1)
    for number, entry in enumerate(index):
        header = starts.get(entry.position)
        if header is None:
            yield IndexProblem(path, number, f"no batch starts at byte {entry.position}")
        elif header.base_offset > entry.offset or (segment.is_exact and header.last_offset != entry.offset):
            yield IndexProblem(
                path, number, f"offset {entry.offset}, but the batch has {header.base_offset} to {header.last_offset}"
            )
        if entry.offset <= before[0] or entry.position <= before[1]:
            yield IndexProblem(path, number, "it does not grow")
        before = (entry.offset, entry.position)


def _time_problems(segment: Segment, index: TimeIndex, newest: dict[int, BatchHeader]) -> Iterator[IndexProblem]:
    path = segment.shared.path(segment.base_offset, names.TIME_INDEX)
    if len(index.table) % TIME_ENTRY.size:
        yield IndexProblem(path, None, "the last entry is incomplete")
    before = -1
    for number, entry in enumerate(index):
        header = newest.get(entry.timestamp_ms)
        # Kafka before 4.0 names the record that had the timestamp, later ones the last of its batch.
        if header is None or not header.base_offset <= entry.offset <= header.last_offset:
            yield IndexProblem(
                path, number, f"the largest timestamp is not {entry.timestamp_ms} from offset {entry.offset} on"
            )
        if entry.timestamp_ms <= before:
            yield IndexProblem(path, number, "it does not grow")
        before = entry.timestamp_ms
