"""What a repair of a damaged partition would do. What is whole on both sides of the damage stays, at its offsets.

Damaged bytes are set aside and leave a gap, as compaction does. Where the end is lost, the log goes on after it, so
that no offset that was promised is ever given to another record. Nothing is guessed: a batch with one damaged byte, in
its header or in its records, is set aside as a whole. A segment of whole batches stays as it is, and gets new indexes
and a new seal where those are not its own.

A plan is made by reading alone.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from seeklog import names
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
    """Bytes that are taken out of a segment and kept beside it."""

    start: int
    stop: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRepair:
    """One segment that is written anew: what is copied of the old file, and what is set aside."""

    base_offset: int
    path: str
    size: int
    pieces: Sequence[Range]
    quarantines: Sequence[Quarantine]


@dataclass(frozen=True, slots=True, kw_only=True)
class Returning:
    """Whole batches of a `.torn` file that can come back, as a segment of their own."""

    path: str
    base_offset: int
    next_offset: int
    pieces: tuple[Range, ...]
    record_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPlan:
    """What a repair would do. Nothing is done yet."""

    directory: str
    segments: tuple[SegmentRepair, ...] = ()
    unsynced: tuple[str, ...] = ()
    """Paths of segments that may be in the page cache alone: neither a seal nor the checkpoint says otherwise."""
    resealed: Mapping[int, str] = field(default_factory=dict)
    """Segments whose logs stay as they are and get new indexes and seals, by their base offsets, and why."""
    losses: tuple[Loss, ...] = ()
    roll_at: int | None = None
    """Where an empty segment begins, so that no offset that was promised is given twice."""
    returning: tuple[Returning, ...] = ()
    checkpoint: Checkpoint | None = None
    """The checkpoint to write; None: it stays, or there is none of ours."""
    has_damaged_checkpoint: bool = False

    @property
    def is_needed(self) -> bool:
        """Whether there is anything to do."""
        is_rolled = self.roll_at is not None
        return bool(
            self.segments or self.resealed or self.losses or self.returning or is_rolled or self.has_damaged_checkpoint
        )

    @property
    def quarantines(self) -> tuple[Quarantine, ...]:
        return tuple(each for segment in self.segments for each in segment.quarantines)

    @property
    def quarantined_bytes(self) -> int:
        return sum(each.stop - each.start for each in self.quarantines)

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
    """Say what a repair would do. Nothing on disk changes, and nothing is locked.

    `inherited` is what a broker's checkpoints in the root say of the partition. With `from_torn`, whole batches that
    recovery has cut come back where their offsets are still free. With `is_locked_here` the caller holds the writer's
    lock itself.
    """
    path = absolute(os.fsdecode(directory), follows=files is None)
    files, config = files or OsFiles(), config or LogConfig()
    check_is_there(files, path)
    found = plan_inspection(path, config=config, inherited=inherited, files=files, is_locked_here=is_locked_here)
    shared = Shared(files, path, config, writable=False)
    try:
        return _Planner(shared, found, clock or SystemClock()).plan(from_torn=from_torn)
    finally:
        shared.clear()


def check_is_there(files: Files, path: str) -> None:
    """Raise `NotALog` unless there is a directory."""
    try:
        files.list(path)
    except (FileNotFoundError, NotADirectoryError):
        raise NotALog(f"there is no log at {path}") from None


class _Planner:
    """Goes through the segments in order. What it has decided so far is in its lists."""

    def __init__(self, shared: Shared, found: Plan, clock: Clock) -> None:
        self._shared = shared
        self._tasks = found.tasks
        self._clock = clock
        self._listing = shared.files.list(shared.directory)
        checkpoint = found.checkpoint
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
        returning = tuple(self._returning(end)) if from_torn else ()
        # What comes back is written last: the checkpoint, which comes before, promises nothing of it.
        promised = end
        for each in returning:
            self._lose(end, each.base_offset, "damaged when recovery cut the log")
            end = each.next_offset
        plan = RepairPlan(
            directory=self._shared.directory,
            segments=tuple(self._segments),
            unsynced=tuple(self._unsynced),
            resealed=self._resealed,
            losses=tuple(self._losses),
            roll_at=roll_at,
            returning=returning,
            has_damaged_checkpoint=self._has_damaged_checkpoint,
        )
        return replace(plan, checkpoint=self._new_checkpoint(promised)) if plan.is_needed and self._is_ours else plan

    def _lose(self, first_offset: int, next_offset: int, reason: str) -> None:
        if next_offset > first_offset:
            self._losses.append(Loss(first_offset=first_offset, next_offset=next_offset, reason=reason))

    def _start(self) -> int:
        """Return where the log begins; what should come before the first segment is lost."""
        start = self._checkpoint.log_start_offset if self._checkpoint is not None else 0
        if not self._tasks:
            return start
        first = self._tasks[0].base_offset
        if self._is_ours and self._checkpoint is not None:
            self._lose(start, first, "the first segments are gone")
        return first

    # ------------------------------------------------------------ one segment

    def _plan_segment(self, task: SegmentTask, *, is_cut_here: bool) -> int:
        """Decide what becomes of a segment; return the offset after what stays of it.

        With `is_cut_here` a torn end is not left to recovery, which would cut with it what comes after.
        """
        check = SegmentCheck(task, self._shared, [])
        if check.salvage.is_given_up:
            raise UsageError(
                f"{task.path}: too much of it is damaged to be mended; restore it from a copy. Nothing was changed"
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
        # What the damage of the end has lost is told by it.
        if is_short and following is not None and not any(loss.next_offset == following for loss in self._losses):
            self._lose(end, following, "they are missing behind a segment")
        if rewritten is not None and rewritten.quarantines:
            self._segments.append(rewritten)
        else:
            reason = self._reason_to_reseal(check) or (_WHOLE if is_mended or is_short else None)
            if reason is not None:
                self._resealed[task.base_offset] = reason
        return end if following is None else following

    def _is_left_to_recovery(self, check: SegmentCheck) -> bool:
        """Tell whether nothing is wrong but an end that was never promised: the next open cuts it, and keeps it."""
        (first, *more) = check.salvage.damages
        return check.task.is_last and not more and first.next_offset is None and first.offset >= self._promised

    def _reason_to_reseal(self, check: SegmentCheck) -> str | None:
        with contextlib.suppress(OSError):  # an index that cannot be read is no reason to stop
            check.check_indexes()
        if check.task.is_swap:
            return None
        found = [each for each in check.findings if each.kind in _RENEWED and each.severity is not Severity.NOTE]
        changed = [each.detail for each in found if each.kind is Kind.SEAL and each.path == check.task.path]
        if changed:
            return f"indexes and seal of a segment whose log stays as it is: {changed[0]}"
        return _WHOLE if found else None

    def _mend(self, check: SegmentCheck) -> tuple[int, SegmentRepair]:
        """Take the damaged bytes out of a segment; return the offset after what stays, and what stays."""
        task, following = check.task, check.task.next_base_offset
        end, pieces, aside = task.base_offset, list[Range](), list[Quarantine]()
        for place in check.salvage.places():
            if isinstance(place, Damage):
                aside += self._give_up(task, place)
                continue
            for position, batch in read_batches(check.segment, *place):
                stop = position + batch.header.size
                if batch.base_offset < end or (following is not None and batch.last_offset >= following):
                    reason = f"offsets {batch.base_offset} to {batch.last_offset} come again"
                    aside.append(Quarantine(start=position, stop=stop, reason=reason))
                else:
                    _add_piece(pieces, position, stop)
                    end = batch.next_offset
        repair = SegmentRepair(
            base_offset=task.base_offset, path=task.path, size=task.size, pieces=pieces, quarantines=aside
        )
        return end, repair

    def _give_up(self, task: SegmentTask, damage: Damage) -> list[Quarantine]:
        """Note the offsets that are lost with a damage; return its bytes, if it has any."""
        if damage.kind is Kind.FORMAT and not task.is_ours:
            raise UsageError(
                f"{task.path}, byte {damage.start}: {damage.reason}; that is no damage, and there is nothing to "
                "mend. Nothing was changed"
            )
        lost_to = task.next_base_offset if damage.next_offset is None else damage.next_offset
        # Offsets that come again are seen batch by batch, and the end of the log is told once, for all of it.
        is_told = damage.kind is Kind.OVERLAP or (task.is_last and damage.stop == task.size)
        if lost_to is not None and not is_told:
            self._lose(damage.offset, lost_to, damage.reason)
        if damage.start == damage.stop:
            return []
        return [Quarantine(start=damage.start, stop=damage.stop, reason=damage.reason)]

    # ------------------------------------------------------------ what comes back

    def _returning(self, end: int) -> Iterator[Returning]:
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
                    continue  # written since, or before
                first = first if pieces else batch.base_offset
                _add_piece(pieces, position, position + batch.header.size)
                next_offset = batch.next_offset
                records += batch.record_count
            segment.release()
            if pieces:
                yield Returning(
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
                # Nobody knows the one before; readers only ask whether it is another.
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
    """Add a range, which may go on from the last one."""
    if pieces and pieces[-1][1] == start:
        start = pieces.pop()[0]
    pieces.append((start, stop))


# ---------------------------------------------------------------- what was promised

# The recovery point and the watermark, and the end of the last segment where the log was closed. They are the same but
# where the log was being written; any two that are the same stand for what was synced.
_ENDS: Final = re.compile(rb"^(?:recovery_point|high_watermark|active \d{1,19}) (\d{1,19})\b", re.MULTILINE)


def promised_offset(files: Files, directory: str, *, inherited: Checkpoint | None) -> int:
    """Return the offset below which all was promised durable, as far as anything but a damaged checkpoint says.

    What is asked was written after a sync of what it speaks of: seals, snapshots of producers, a published watermark, a
    broker's checkpoint in the root, and the damaged checkpoint itself where two of its numbers agree. So the answer may
    be too low, if nothing is left that says. A watermark that is set by hand may be ahead of the sync; what it showed
    to readers and is gone then counts as lost, and is not given to other records either.
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
        # One place that has rotted does not change two numbers to the same.
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
