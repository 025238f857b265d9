"""Carrying out the plan of a repair. No bytes are thrown away.

Recovery refuses a log whose promised records are damaged. If there is no copy to restore, the owner may choose a
repair. The removed bytes are kept in `<base>.<position>.damaged`, and the lost offsets are listed in `seeklog-losses`.

Each step is durable before the next: segments that may not be synced, evidence, the checkpoint that allows the gaps,
and each segment under the three names that compaction uses. After a crash, the next repair finds what is left to do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial

from seeklog import names
from seeklog.arguments import check_flags
from seeklog.clock import Clock, SystemClock
from seeklog.config import INT64_MAX, LogConfig
from seeklog.errors import UsageError
from seeklog.files import Files, Handle, OsFiles, absolute, read_if_exists, replace_file, translated
from seeklog.log.active import ActiveSegment
from seeklog.log.check.repair_plan import Range, RepairPlan, check_is_there, plan_repair
from seeklog.log.clean import swap
from seeklog.log.directory import lock_lone_directory
from seeklog.log.host import Host, OpenSegments
from seeklog.log.recovery import complete_swaps, list_segments, write_evidence
from seeklog.log.segment import SCAN_CHUNK, Segment, Shared, seal_of
from seeklog.log.side.checkpoint import Checkpoint, write_checkpoint
from seeklog.log.side.losses import add_losses
from seeklog.log.side.pages import PageSums
from seeklog.log.side.seal import Seal, read_seal, write_seal
from seeklog.log.writer import Log
from seeklog.names import TopicPartition
from seeklog.record.segment_state import SegmentState


def repair(
    directory: str | os.PathLike[str],
    *,
    config: LogConfig | None = None,
    inherited: Checkpoint | None = None,
    from_torn: bool = False,
    files: Files | None = None,
    clock: Clock | None = None,
    advance: Callable[[int], None] | None = None,
) -> RepairPlan:
    """Repair a partition that is not open for writing; return what was done.

    After a crash, the log is damaged as before or partly repaired. Repair it again.
    """
    check_flags(from_torn=from_torn)
    path = absolute(os.fsdecode(directory), follows=files is None)
    files, config, clock = files or OsFiles(), config or LogConfig(), clock or SystemClock()
    finished_later = "the next repair completes it"
    room = f"it takes as much as the segments that are rewritten; {finished_later}"
    with translated(f"{path} cannot be repaired", when_full=room, advice=finished_later):
        check_is_there(files, path)  # before creating a lock file
        with lock_lone_directory(files, path):
            shared = Shared(files, path, config, writable=True)
            _complete_compaction(shared)
            done = plan_repair(
                path,
                config=config,
                inherited=inherited,
                from_torn=from_torn,
                files=files,
                clock=clock,
                is_locked_here=True,
            )
            if done.is_needed:
                _Work(shared, done, clock, advance).run()
            shared.clear()
        if done.is_needed and names.CHECKPOINT in files.list(path):
            # Open it as the next writer would, so that everything derived from the segments is written now.
            partition = names.parse_partition_name(os.path.basename(path)) or TopicPartition("log", 0)
            host = Host(source=partition, open_segments=OpenSegments(16), inherited=lambda: inherited)
            Log(path, config=config, files=files, clock=clock, background=False, host=host).close()
        return done


def _complete_compaction(shared: Shared) -> None:
    """Complete a compaction that a crash interrupted."""
    files, listing = shared.files, shared.files.list(shared.directory)
    # The directory entries may not be durable yet; sync them before deleting anything that depends on them.
    files.sync_directory(shared.directory)
    if any(name.endswith((names.SWAP, names.CLEANED)) for name in listing):
        complete_swaps(shared, listing, list_segments(shared, listing))
        swap.drop_cleaned(shared)
        files.sync_directory(shared.directory)


class _Work:
    """The execution of a plan."""

    def __init__(self, shared: Shared, plan: RepairPlan, clock: Clock, advance: Callable[[int], None] | None) -> None:
        self._shared = shared
        self._plan = plan
        self._clock = clock
        self._advance = advance
        self._files = shared.files
        self._directory = shared.directory
        self._is_ours = plan.checkpoint is not None

    def run(self) -> None:
        plan = self._plan
        if plan.unsynced:
            for path in plan.unsynced:
                self._sync(path)
            self._files.sync_directory(self._directory)
        self._keep_evidence()
        if plan.checkpoint is not None:
            write_checkpoint(self._files, self._directory, plan.checkpoint)
        swap.drop_cleaned(self._shared)
        try:
            for segment in plan.segments:
                self._rewrite(segment.base_offset, segment.path, segment.pieces, can_seal=True)
                if self._advance is not None:
                    self._advance(segment.size)
            for base_offset in plan.resealed:
                self._reseal(base_offset)
            if plan.roll_at is not None:
                ActiveSegment.create(self._shared, plan.roll_at).close_files()
                self._files.sync_directory(self._directory)
            for restored in plan.restored:
                self._rewrite(restored.base_offset, restored.path, restored.pieces, can_seal=False)
        except OSError:
            swap.drop_cleaned(self._shared)
            raise

    def _sync(self, path: str) -> None:
        """Sync a segment before anything is recorded that depends on it.

        It is first rewritten in place, as in recovery: after a failed sync, pages read back fine but may be lost later.
        """
        files, handle = self._files, Handle(self._files, path, write=True)
        for position in range(0, files.size(handle.number), SCAN_CHUNK):
            files.write(handle.number, files.read(handle.number, SCAN_CHUNK, position), position)
        files.sync(handle.number)

    # ------------------------------------------------------------ evidence

    def _keep_evidence(self) -> None:
        for segment in self._plan.segments:
            handle = Handle(self._files, segment.path)
            for quarantine in segment.quarantines:
                start, stop = quarantine.start, quarantine.stop
                data = self._files.read(handle.number, stop - start, start)
                write_evidence(self._shared, partial(names.damaged_name, segment.base_offset, start), data)
        if self._plan.has_damaged_checkpoint:
            data = self._files.read_file(f"{self._directory}/{names.CHECKPOINT}")
            replace_file(self._files, self._directory, names.CHECKPOINT + names.DAMAGED, data)
        if self._plan.losses:
            add_losses(self._files, self._directory, self._plan.losses, now_ms=self._clock.now_ms())
        self._files.sync_directory(self._directory)

    # ------------------------------------------------------------ segments

    def _rewrite(self, base_offset: int, path: str, pieces: Iterable[Range], *, can_seal: bool) -> None:
        """Replace a segment by ranges of bytes copied from a file."""
        cleaned = self._shared.path(base_offset, names.LOG) + names.CLEANED
        size = self._copy(path, cleaned, pieces)
        written = Segment(self._shared, base_offset, size=size, next_offset=INT64_MAX, seal=None)
        written.path = cleaned
        sums = PageSums()
        state = written.scan_all(sums=sums)
        written.release()
        if state.problem is not None or state.size != size:
            raise UsageError(
                f"{path}: its whole batches do not form a segment; it was not changed. Restore it from a copy"
            )
        state.finish_times()
        aborted = read_if_exists(self._files, self._shared.path(base_offset, names.TRANSACTION_INDEX)) or b""
        follows = self._next_base(base_offset) if can_seal else None
        seal = self._seal_of(state, sums, follows=follows) if follows is not None else None
        swap.write_sides(self._shared, state, seal, page_table=sums.table, aborted=aborted)
        swap.commit(self._shared, base_offset)
        swap.complete(self._shared, base_offset, [base_offset], has_sides=True)

    def _copy(self, source: str, target: str, pieces: Iterable[Range]) -> int:
        """Write a file from ranges of another, and sync it; return its size."""
        files, size = self._files, 0
        read, write = Handle(files, source), Handle(files, target, write=True, create=True)
        files.truncate(write.number, 0)
        for start, stop in pieces:
            for position in range(start, stop, SCAN_CHUNK):
                data = files.read(read.number, min(SCAN_CHUNK, stop - position), position)
                files.write(write.number, data, size)
                size += len(data)
        files.sync(write.number)
        return size

    def _reseal(self, base_offset: int) -> None:
        """Rebuild the indexes and the seal of a whole segment."""
        size = self._files.file_size(self._shared.path(base_offset, names.LOG))
        segment = Segment(self._shared, base_offset, size=size, next_offset=INT64_MAX, seal=None)
        sums = PageSums()
        state = segment.scan_all(sums=sums)
        segment.release()
        state.finish_times()
        segment.write_indexes_of(state)
        follows = self._next_base(base_offset)
        if follows is not None:
            write_seal(self._files, self._directory, self._seal_of(state, sums, follows=follows), sums.table)
        else:
            self._shared.remove(base_offset, names.SEAL)
        self._files.sync_directory(self._directory)

    def _next_base(self, base_offset: int) -> int | None:
        """Return the next segment's base offset, existing or planned; None for the last one and in a broker's log."""
        if not self._is_ours:
            return None
        parsed = filter(None, map(names.parse_segment_name, self._files.list(self._directory)))
        bases = (base for base, suffix in parsed if suffix == names.LOG and base > base_offset)
        return min(bases, default=self._plan.roll_at)

    def _seal_of(self, state: SegmentState, sums: PageSums, *, follows: int) -> Seal:
        """Return a segment's new seal. Facts that are not in the batches are taken from the old seal."""
        old = read_seal(self._files, self._directory, state.base_offset)
        return seal_of(
            state,
            sealed_at_ms=old.sealed_at_ms if old is not None else self._clock.now_ms(),
            may_have_gaps=state.next_offset != follows,
            clean_offset=old.clean_offset if old is not None else 0,
            sums=sums,
        )
