"""Planning the repair of a damaged partition. Whole batches on both sides of the damage stay, at their offsets.

Damaged bytes are quarantined and leave a gap, as compaction does. If the end of the log is lost, the log continues
after the lost offsets, so that no other record gets a promised offset. Nothing is guessed: a batch with one damaged
byte, in its header or its records, is quarantined as a whole. A segment of whole batches is not rewritten; it gets new
indexes and a new seal if they do not match.

A plan only reads.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from seeklog import names
from seeklog.arguments import check_flags
from seeklog.clock import Clock, SystemClock
from seeklog.config import INT64_MAX, LogConfig
from seeklog.errors import CorruptionError, NotALog, UsageError
from seeklog.files import Files, OsFiles, absolute
from seeklog.log.check.finding import Kind, Severity
from seeklog.log.check.inspection import Plan, plan_inspection
from seeklog.log.check.salvage import Damage, Salvage, read_batches
from seeklog.log.check.segment_check import SegmentCheck
from seeklog.log.check.segment_task import SegmentTask
from seeklog.log.segment import Segment, Shared
from seeklog.log.side.checkpoint import Checkpoint, read_checkpoint
from seeklog.log.side.epochs import LeaderEpochs
from seeklog.log.side.losses import Loss
from seeklog.log.side.seal import read_seal
from seeklog.log.side.watermark import EXPLICIT, decode_watermark

Range = tuple[int, int]
"""[start, stop) in bytes."""

_RENEWED: Final = (Kind.INDEX, Kind.INDEX_MISSING, Kind.TIME_INDEX, Kind.TIME_INDEX_MISSING, Kind.SEAL)
_WHOLE: Final = "indexes and seal of a segment whose log is whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """Bytes that are moved out of a segment into a file next to it."""

    start: int
    stop: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRepair:
    """One segment to rewrite: the ranges of the old file to copy, and the bytes to quarantine."""

    base_offset: int
    path: str
    size: int
    pieces: Sequence[Range]
    quarantines: Sequence[Quarantine]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredSegment:
    """Whole batches of a `.torn` file that can be restored, as a new segment."""

    path: str
    base_offset: int
    next_offset: int
    pieces: tuple[Range, ...]
    record_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPlan:
    """The steps of a repair. Nothing is done yet."""

    directory: str
    segments: tuple[SegmentRepair, ...] = ()
    unsynced: tuple[str, ...] = ()
    """Paths of segments that may be only in the page cache: neither a seal nor the checkpoint proves a sync."""
    resealed: Mapping[int, str] = field(default_factory=dict)
    """Why segments with unchanged logs get new indexes and seals, by base offset."""
    losses: tuple[Loss, ...] = ()
    roll_at: int | None = None
    """Where an empty segment starts, so that no promised offset is assigned twice."""
    restored: tuple[RestoredSegment, ...] = ()
    checkpoint: Checkpoint | None = None
    """The checkpoint to write; None: it stays, or the partition has none of seeklog."""
    has_damaged_checkpoint: bool = False

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to repair."""
        is_rolled = self.roll_at is not None
        return bool(
            self.segments or self.resealed or self.losses or self.restored or is_rolled or self.has_damaged_checkpoint
        )

    @property
    def quarantines(self) -> tuple[Quarantine, ...]:
        return tuple(quarantine for segment in self.segments for quarantine in segment.quarantines)

    @property
    def quarantined_bytes(self) -> int:
        return sum(quarantine.stop - quarantine.start for quarantine in self.quarantines)

    @property
    def lost_offsets(self) -> int:
        return sum(loss.next_offset - loss.first_offset for loss in self.losses)


def plan_repair(
    directory: str | os.PathLike[str],
    *,
    config: LogConfig | None = None,
    inherited: Checkpoint | None = None,
    from_torn: bool = False,
    files: Files | None = None,
    clock: Clock | None = None,
    is_locked_here: bool = False,
) -> RepairPlan:
    """Return the plan of a repair. Nothing on disk changes, and nothing is locked.

    `inherited` is the partition's checkpoint from the root of a broker. With `from_torn`, whole batches that recovery
    has cut are restored if their offsets are still free. `is_locked_here` means that the caller holds the writer's
    lock.
    """
    check_flags(from_torn=from_torn, is_locked_here=is_locked_here)
    path = absolute(os.fsdecode(directory), follows=files is None)
    files, config = files or OsFiles(), config or LogConfig()
    check_is_there(files, path)
    inspection = plan_inspection(path, config=config, inherited=inherited, files=files, is_locked_here=is_locked_here)
    shared = Shared(files, path, config, writable=False)
    try:
        return _Planner(shared, inspection, clock or SystemClock()).plan(from_torn=from_torn)
    finally:
        shared.clear()


def check_is_there(files: Files, path: str) -> None:
    """Raise `NotALog` unless the directory exists."""
    try:
        files.list(path)
    except (FileNotFoundError, NotADirectoryError):
        raise NotALog(f"there is no log at {path}") from None


class _Planner:
    """Goes through the segments in order, and collects its decisions in lists."""

    def __init__(self, shared: Shared, inspection: Plan, clock: Clock) -> None:
        self._shared = shared
        self._tasks = inspection.tasks
        self._clock = clock
        self._listing = shared.files.list(shared.directory)
        checkpoint = inspection.checkpoint
        self._is_ours = names.CHECKPOINT in self._listing and not (checkpoint is not None and checkpoint.is_visited)
        self._has_damaged_checkpoint = self._is_ours and self._is_checkpoint_damaged()
        self._promised = 0 if checkpoint is None else checkpoint.recovery_point
        if self._has_damaged_checkpoint:
            self._promised = promised_offset(shared.files, shared.directory, inherited=checkpoint)
            checkpoint = None
        self._checkpoint = checkpoint
        self._segments: list[SegmentRepair] = []
        self._unsynced: list[str] = []
        self._resealed: dict[int, str] = {}
        self._losses: list[Loss] = []

    def _is_checkpoint_damaged(self) -> bool:
        try:
            read_checkpoint(self._shared.files, self._shared.directory)
        except CorruptionError:
            return True
        return False

    def plan(self, *, from_torn: bool) -> RepairPlan:
        end = self._start()
        for task in self._tasks:
            end = self._plan_segment(task, is_cut_here=from_torn and self._is_ours)
        roll_at = None
        if self._promised > end:
            self._lose(end, self._promised, "the end of the log is lost")
            roll_at = end = self._promised
            last = self._tasks[-1].base_offset if self._tasks else None
            if last is not None and not any(each.base_offset == last for each in self._segments):
                self._resealed.setdefault(last, _WHOLE)
        restored = tuple(self._find_restored(end)) if from_torn else ()
        # Restored segments are written last, so the checkpoint, written before, must not promise their records.
        promised = end
        for segment in restored:
            self._lose(end, segment.base_offset, "damaged when recovery cut the log")
            end = segment.next_offset
        plan = RepairPlan(
            directory=self._shared.directory,
            segments=tuple(self._segments),
            unsynced=tuple(self._unsynced),
            resealed=self._resealed,
            losses=tuple(self._losses),
            roll_at=roll_at,
            restored=restored,
            has_damaged_checkpoint=self._has_damaged_checkpoint,
        )
        return replace(plan, checkpoint=self._new_checkpoint(promised)) if plan.is_needed and self._is_ours else plan

    def _lose(self, first_offset: int, next_offset: int, reason: str) -> None:
        if next_offset > first_offset:
            self._losses.append(Loss(first_offset=first_offset, next_offset=next_offset, reason=reason))

    def _start(self) -> int:
        """Return the start of the log. Offsets missing before the first segment are lost."""
        start = self._checkpoint.log_start_offset if self._checkpoint is not None else 0
        if not self._tasks:
            return start
        first = self._tasks[0].base_offset
        if self._is_ours and self._checkpoint is not None:
            self._lose(start, first, "the first segments are gone")
        return first

    # ------------------------------------------------------------ one segment

    def _plan_segment(self, task: SegmentTask, *, is_cut_here: bool) -> int:
        """Decide how to repair a segment; return the offset after its remaining records.

        With `is_cut_here`, a torn end is repaired now: recovery would also cut what is restored after it.
        """
        check = SegmentCheck(task, self._shared, [])
        if check.salvage.is_given_up:
            raise UsageError(
                f"{task.path}: too much of it is damaged to repair; restore it from a copy. Nothing was changed"
            )
        end, rewritten = check.state.next_offset, None
        is_mended = bool(check.salvage.damages) and (is_cut_here or not self._is_left_to_recovery(check))
        if is_mended:
            end, rewritten = self._mend(check)
        is_synced = self._checkpoint is not None and end <= self._checkpoint.recovery_point
        if self._is_ours and check.seal is None and not is_synced:
            self._unsynced.append(task.path)
        following = task.next_base_offset
        is_short = following is not None and end < following and check.is_gap_damage(end)
        # The damage at the end has already reported these offsets.
        if is_short and following is not None and not any(loss.next_offset == following for loss in self._losses):
            self._lose(end, following, "they are missing after a segment")
        if rewritten is not None and rewritten.quarantines:
            self._segments.append(rewritten)
        else:
            reason = self._reason_to_reseal(check) or (_WHOLE if is_mended or is_short else None)
            if reason is not None:
                self._resealed[task.base_offset] = reason
        return end if following is None else following

    def _is_left_to_recovery(self, check: SegmentCheck) -> bool:
        """Return whether the only damage is an unpromised end: the next open cuts it, and keeps the bytes."""
        (first, *more) = check.salvage.damages
        return check.task.is_last and not more and first.next_offset is None and first.offset >= self._promised

    def _reason_to_reseal(self, check: SegmentCheck) -> str | None:
        with contextlib.suppress(OSError):  # an unreadable index must not stop the repair
            check.check_indexes()
        if check.task.is_swap:
            return None
        problems = [finding for finding in check.findings if finding.severity is not Severity.NOTE]
        outdated = [problem for problem in problems if problem.kind in _RENEWED]
        changed = [
            problem.detail for problem in outdated if problem.kind is Kind.SEAL and problem.path == check.task.path
        ]
        if changed:
            return f"indexes and seal of a segment whose log does not change: {changed[0]}"
        return _WHOLE if outdated else None

    def _mend(self, check: SegmentCheck) -> tuple[int, SegmentRepair]:
        """Remove the damaged bytes from a segment; return the offset after the rest, and the rewritten segment."""
        task, following = check.task, check.task.next_base_offset
        end, pieces, quarantines = task.base_offset, list[Range](), list[Quarantine]()
        for part in check.salvage.parts():
            if isinstance(part, Damage):
                quarantines += self._give_up(task, part)
                continue
            for position, batch in read_batches(check.segment, *part):
                stop = position + batch.header.size
                if batch.base_offset < end or (following is not None and batch.last_offset >= following):
                    reason = f"offsets {batch.base_offset} to {batch.last_offset} are repeated"
                    quarantines.append(Quarantine(start=position, stop=stop, reason=reason))
                else:
                    _add_piece(pieces, position, stop)
                    end = batch.next_offset
        repair = SegmentRepair(
            base_offset=task.base_offset, path=task.path, size=task.size, pieces=pieces, quarantines=quarantines
        )
        return end, repair

    def _give_up(self, task: SegmentTask, damage: Damage) -> list[Quarantine]:
        """Record the offsets that the damage lost; return its bytes to quarantine, if it has any."""
        if damage.kind is Kind.FORMAT and not task.is_ours:
            raise UsageError(
                f"{task.path}, byte {damage.start}: {damage.reason}; this is not damage, and there is nothing to "
                "repair. Nothing was changed"
            )
        lost_to = task.next_base_offset if damage.next_offset is None else damage.next_offset
        # Repeated offsets are found batch by batch, and the lost end of the log is reported once, by the caller.
        is_reported = damage.kind is Kind.OVERLAP or (task.is_last and damage.stop == task.size)
        if lost_to is not None and not is_reported:
            self._lose(damage.offset, lost_to, damage.reason)
        if damage.start == damage.stop:
            return []
        return [Quarantine(start=damage.start, stop=damage.stop, reason=damage.reason)]

    # ------------------------------------------------------------ restoring from torn files

    def _find_restored(self, end: int) -> Iterator[RestoredSegment]:
        torn = [(*parsed, name) for name in self._listing if (parsed := names.parse_torn_name(name)) is not None]
        for base_offset, _, name in sorted(torn):
            path = f"{self._shared.directory}/{name}"
            size = self._shared.files.file_size(path)
            segment = Segment(self._shared, base_offset, size=size, next_offset=INT64_MAX, seal=None)
            segment.path = path
            pieces: list[Range] = []
            first = next_offset = end
            records = 0
            for position, batch in Salvage(segment, INT64_MAX, self._shared.new_state).batches():
                if batch.base_offset < next_offset:
                    continue  # still in the log, or written again since
                first = first if pieces else batch.base_offset
                _add_piece(pieces, position, position + batch.header.size)
                next_offset = batch.next_offset
                records += batch.record_count
            segment.release()
            if pieces:
                yield RestoredSegment(
                    path=path,
                    base_offset=first,
                    next_offset=next_offset,
                    pieces=tuple(pieces),
                    record_count=records,
                )
                end = next_offset

    # ------------------------------------------------------------ the checkpoint

    def _new_checkpoint(self, end: int) -> Checkpoint:
        first = self._tasks[0].base_offset if self._tasks else end
        after_losses = max((loss.next_offset for loss in self._losses), default=0)
        if self._checkpoint is None:
            epochs = LeaderEpochs.read(self._shared.files, self._shared.directory).entries
            return Checkpoint(
                recovery_point=end,
                log_start_offset=first,
                high_watermark=end,
                contiguous_from=max(end, after_losses),
                # The old generation is unknown; readers only check that it has changed.
                generation=self._clock.now_ms() // 1000,
                epochs=tuple(epochs),
            )
        old = self._checkpoint
        return replace(
            old,
            log_start_offset=max(first, old.log_start_offset) if self._tasks else end,
            contiguous_from=max(old.contiguous_from, after_losses),
            generation=old.generation + 1,
            active=None,
            has_producers=None,
        )


def _add_piece(pieces: list[Range], start: int, stop: int) -> None:
    """Add a range, joining it with the last one if they are adjacent."""
    if pieces and pieces[-1][1] == start:
        start = pieces.pop()[0]
    pieces.append((start, stop))


# ---------------------------------------------------------------- what was promised

# The recovery point, the high watermark, and after a clean close the end of the last segment. They are equal except
# while the log is being written. Two that are equal prove a synced offset.
_ENDS: Final = re.compile(rb"^(?:recovery_point|high_watermark|active \d{1,19}) (\d{1,19})\b", re.MULTILINE)


def promised_offset(files: Files, directory: str, *, inherited: Checkpoint | None) -> int:
    """Return the offset below which all records were promised durable, without trusting a damaged checkpoint.

    The sources were written after a sync: seals, producer snapshots, a published watermark, a broker's checkpoint in
    the root, and the damaged checkpoint itself if two of its numbers agree. The result may be too low if no source is
    left. A manual watermark may be ahead of the sync; records that it exposed and that are gone then count as lost, and
    their offsets are not reused.
    """
    ends = [0 if inherited is None else inherited.recovery_point]
    for name in files.list(directory):
        ends += _promised_by(files, directory, name)
    return max(ends)


def _promised_by(files: Files, directory: str, name: str) -> Iterator[int]:
    if name == names.WATERMARK:
        published = decode_watermark(files.read_file(f"{directory}/{name}"))
        if published is not None and published[0] == EXPLICIT:
            yield published[1]
    elif name == names.CHECKPOINT:
        # A single damaged byte cannot make two different numbers equal.
        ends = [int(end) for end in _ENDS.findall(files.read_file(f"{directory}/{name}"))]
        yield from (end for end in ends if ends.count(end) > 1 and end <= INT64_MAX)
    else:
        base_offset, suffix = names.parse_segment_name(name) or (0, "")
        if suffix == names.SNAPSHOT:
            yield base_offset
        elif suffix == names.SEAL:
            seal = read_seal(files, directory, base_offset)
            if seal is not None:
                yield seal.next_offset
