"""Comparing the index files of a segment with its log.

The scan has rebuilt the indexes. If a file equals the rebuilt one, all its entries are proved at once. Otherwise,
because a broker or another configuration wrote it or because it is damaged, its entries are checked one by one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import islice

from seeklog import names
from seeklog.errors import counted
from seeklog.log.check.finding import Finding, Kind, Severity
from seeklog.log.check.index_entries import (
    OFFSETS,
    TIMES,
    BatchMap,
    IndexFile,
    IndexProblem,
    index_problems,
    key_index_problem,
    state_of_every_batch,
)
from seeklog.log.check.salvage import Salvage
from seeklog.log.check.segment_task import SegmentTask
from seeklog.log.index import read_entries
from seeklog.log.side.seal import Seal
from seeklog.record.crc import crc32c
from seeklog.record.saved_state import SavedState

# After this many wrong entries of an index, the rest are only counted.
MAX_ENTRIES = 100
_KINDS = {OFFSETS: (Kind.INDEX, Kind.INDEX_MISSING), TIMES: (Kind.TIME_INDEX, Kind.TIME_INDEX_MISSING)}


class IndexCheck:
    """The check of one segment's indexes. `has_lost_end`: batches that entries may name are missing at the end."""

    def __init__(
        self, task: SegmentTask, salvage: Salvage, seal: Seal | None, contiguous_from: int, *, has_lost_end: bool
    ) -> None:
        self._task = task
        self._salvage = salvage
        self._segment = salvage.segment
        self._seal = seal
        self._contiguous_from = contiguous_from
        self._has_lost_end = has_lost_end
        self._batches: BatchMap | None = None

    def findings(self) -> Iterator[Finding]:
        """Yield the problems of the two sparse indexes, and of seeklog's key index."""
        state = self._salvage.state
        noted: Seal | SavedState | None = self._seal
        if noted is None and not self._is_growing():
            noted = self._task.saved
        crcs = (noted.offset_index_crc, noted.time_index_crc) if noted is not None else (None, None)
        yield from self._check(OFFSETS, bytes(state.offset_table), crcs[0])
        yield from self._check(TIMES, bytes(state.time_table), crcs[1])
        # No reader uses a key index from before a broker wrote to the log.
        if self._task.is_ours and not self._is_growing():
            problem = key_index_problem(self._segment, state, is_whole=not self._salvage.damages)
            if problem is not None:
                severity = Severity.ERROR if problem.is_damage else Severity.WARNING
                yield self._task.finding(Kind.KEY_INDEX, severity, problem.reason, suffix=names.KEY_INDEX)

    def _is_growing(self) -> bool:
        # Checked after a file was read: a writer may have started since the scan.
        return self._task.is_growing(self._segment)

    def _check(self, file: IndexFile, expected: bytes, crc: int | None) -> Iterator[Finding]:
        task = self._task
        path = task.path_of(file.suffix)
        kind, missing = _KINDS[file]
        try:
            table = self._read(path, file)
        except FileNotFoundError:
            # A new segment, or one rewritten by a broker's cleaner, gets its log before its indexes.
            if not self._is_growing() and not self._is_renamed_next(path):
                detail = "the file is missing: every reader rebuilds the index, and `reindex` writes it"
                yield task.finding(missing, Severity.WARNING, detail, suffix=file.suffix)
            return
        is_as_written = crc is None or crc32c(table) == crc
        if not self._salvage.damages and is_as_written and self._is_proved(table, expected):
            return
        problems = self._problems(file, table)
        is_sound = True
        for problem in islice(problems, MAX_ENTRIES):
            is_sound = False
            position = None if problem.entry is None else problem.entry * file.entry.size
            detail = problem.reason if problem.entry is None else f"entry {problem.entry}: {problem.reason}"
            yield task.finding(kind, Severity.ERROR, detail, suffix=file.suffix, position=position)
        more = sum(1 for _ in problems)
        if more:
            yield task.finding(
                kind, Severity.ERROR, f"{counted(more, 'more entry is', 'more entries are')} wrong", suffix=file.suffix
            )
        if is_sound and not is_as_written:
            detail = f"{counted(len(table), 'byte')}, fewer than were written"
            yield task.finding(kind, Severity.ERROR, detail, suffix=file.suffix, position=len(table))

    def _is_renamed_next(self, path: str) -> bool:
        if not self._task.is_ours:
            with contextlib.suppress(OSError):
                self._segment.shared.files.status(path + names.SWAP)
                return True
        return False

    def _read(self, path: str, file: IndexFile) -> bytes:
        files = self._segment.shared.files
        if self._seal is None and self._task.is_last:
            return read_entries(files, path, file.entry)
        table = files.read_file(path)
        if self._seal is not None:
            return table
        return table[: -(-len(table.rstrip(b"\0")) // file.entry.size) * file.entry.size]

    def _is_proved(self, table: bytes, expected: bytes) -> bool:
        if table == expected:
            return True
        # The entries of the last segment are written a few at a time, and more may follow.
        common = min(len(table), len(expected))
        return (
            self._task.is_last and table[:common] == expected[:common] and (len(table) == common or self._is_growing())
        )

    def _problems(self, file: IndexFile, table: bytes) -> Iterator[IndexProblem]:
        """Yield the problems, except for entries of batches that are damaged, lost, or not yet written."""
        if self._batches is None:
            end_offset = self._task.end_offset
            every = Salvage(self._segment, self._contiguous_from, state_of_every_batch, end_offset=end_offset)
            self._batches = BatchMap(every.state)
        is_short = self._has_lost_end or self._is_growing()
        end = self._salvage.state.next_offset
        reported: int | None = None
        for problem in index_problems(self._segment, file, table, self._batches):
            if problem.entry is not None:
                if problem.entry == reported:
                    continue
                reported = problem.entry
                first, second = file.entry.unpack_from(table, problem.entry * file.entry.size)
                offset = self._task.base_offset + (first if file is OFFSETS else second)
                if (is_short and offset >= end) or not self._salvage.has_read_offset(offset):
                    continue
                if file is OFFSETS and not self._salvage.has_read(second):
                    continue
            yield problem
