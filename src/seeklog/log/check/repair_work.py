"""Mending a partition that was damaged: what is whole on both sides of the damage stays, at its offsets.

Recovery refuses what was promised durable and is damaged. A repair is what its owner may choose then, if there is no
copy to restore: the damaged bytes are set aside, the segment is written anew without them, and readers go on over the
offsets that are missing, as they do where compaction has been. Nothing is thrown away: the bytes lie in
`<base>.<position>.damaged`, and what was lost is told in `seeklog-losses`. No offset that was promised is ever given
to another record: where the end is lost, the log goes on behind it.

What no CRC covers can often be put right instead: a batch's offset, length and magic, which its CRC proves, and its
leader epoch and the CRC itself, which the seal's CRC of the whole file proves.

First a plan is made, by reading alone. Then it is done, each step durable before the next: what may not be synced yet,
evidence, the checkpoint that makes the gaps lawful, and each segment by the three names that compaction uses. After a
crash the next repair finds what is left to do.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from seeklog import names
from seeklog.clock import Clock, SystemClock
from seeklog.config import INT64_MAX, LogConfig
from seeklog.errors import CorruptionError, NotALog, UsageError
from seeklog.files import Files, OsFiles, absolute, replace_file, translated
from seeklog.log.active import ActiveSegment
from seeklog.log.check.deep_inspection import read_batches, whole_ranges
from seeklog.log.check.evidence import promised_offset
from seeklog.log.check.finding import Kind, Severity
from seeklog.log.check.inspection import Subject, inspect_segment, plan_inspection
from seeklog.log.check.salvage import Damage, Salvage
from seeklog.log.check.unprotected import EPOCH_AT, changed_epochs, changed_offsets
from seeklog.log.clean import swap
from seeklog.log.directory import lock_lone_directory
from seeklog.log.host import Host, OpenSegments
from seeklog.log.recovery import complete_swaps, list_segments
from seeklog.log.segment import SCAN_CHUNK, Segment, Shared, seal_of
from seeklog.log.side.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from seeklog.log.side.epochs import LeaderEpochs
from seeklog.log.side.losses import Loss, add_losses
from seeklog.log.side.pages import PageSums
from seeklog.log.side.seal import Seal, read_seal
from seeklog.log.writer import Log
from seeklog.names import TopicPartition
from seeklog.record.crc import crc32c
from seeklog.record.layout import HEADER_SIZE
from seeklog.record.segment_state import SegmentState

_LENGTH_AT: Final = 8
_MAGIC_AT: Final = 16
_CRC_AT: Final = 17
_CRC_COVERS_FROM: Final = 21
_MADE_ANEW: Final = (Kind.INDEX, Kind.INDEX_MISSING, Kind.TIME_INDEX, Kind.TIME_INDEX_MISSING, Kind.SEAL)


# ---------------------------------------------------------------- what a plan says


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """Bytes of a segment that are put right."""

    position: int
    data: bytes
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """Bytes that are taken out of a segment and kept beside it."""

    base_offset: int
    start: int
    stop: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRepair:
    """One segment that is written anew: the bytes that stay, and what is put right in them."""

    base_offset: int
    path: str
    size: int
    pieces: tuple[tuple[int, int], ...]
    """What is copied, as [start, stop) in the old file."""
    patches: tuple[Patch, ...]
    next_base_offset: int | None
    seal: Seal | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Returning:
    """Whole batches of a `.torn` file that can come back, as a segment of their own."""

    path: str
    base_offset: int
    next_offset: int
    pieces: tuple[tuple[int, int], ...]
    record_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPlan:
    """What a repair would do. Nothing is done yet."""

    directory: str
    segments: tuple[SegmentRepair, ...] = ()
    unsynced: tuple[str, ...] = ()
    """Paths of segments that may be in the page cache alone: neither a seal nor the checkpoint says otherwise."""
    resealed: tuple[int, ...] = ()
    """Segments whose logs are whole, and whose indexes and seals are made anew, by their base offsets."""
    quarantines: tuple[Quarantine, ...] = ()
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
        return bool(
            self.segments
            or self.resealed
            or self.losses
            or self.returning
            or self.roll_at is not None
            or self.has_damaged_checkpoint
        )

    @property
    def patches(self) -> tuple[Patch, ...]:
        return tuple(patch for segment in self.segments for patch in segment.patches)

    @property
    def quarantined_bytes(self) -> int:
        return sum(each.stop - each.start for each in self.quarantines)

    @property
    def lost_offsets(self) -> int:
        return sum(loss.next_offset - loss.first_offset for loss in self.losses)


# ---------------------------------------------------------------- making a plan


def plan_repair(
    directory: str | os.PathLike[str],
    *,
    config: LogConfig | None = None,
    inherited: Checkpoint | None = None,
    from_torn: bool = False,
    files: Files | None = None,
    clock: Clock | None = None,
) -> RepairPlan:
    """Say what a repair would do. Nothing on disk changes, and nothing is locked.

    `inherited` is what a broker's checkpoints in the root say of the partition. With `from_torn`, whole batches that
    recovery has cut come back where their offsets are still free.
    """
    return _plan(
        absolute(os.fsdecode(directory), follows=files is None),
        config or LogConfig(),
        inherited,
        files or OsFiles(),
        clock or SystemClock(),
        from_torn,
    )


def _plan(
    directory: str,
    config: LogConfig,
    inherited: Checkpoint | None,
    files: Files,
    clock: Clock,
    from_torn: bool,
    *,
    is_locked_here: bool = False,
) -> RepairPlan:
    try:
        inspection = plan_inspection(
            directory, config=config, inherited=inherited, files=files, is_locked_here=is_locked_here
        )
    except (FileNotFoundError, NotADirectoryError):
        raise NotALog(f"there is no log at {directory}") from None
    shared = Shared(files, directory, config, writable=False)
    try:
        return _Planner(shared, inspection.subjects, inspection.checkpoint, clock).plan(from_torn=from_torn)
    finally:
        shared.clear()


class _Planner:
    def __init__(
        self, shared: Shared, subjects: tuple[Subject, ...], checkpoint: Checkpoint | None, clock: Clock
    ) -> None:
        self._shared = shared
        self._subjects = subjects
        self._clock = clock
        self._listing = shared.files.list(shared.directory)
        self._is_ours = names.CHECKPOINT in self._listing and not (checkpoint is not None and checkpoint.is_visited)
        self._has_damaged_checkpoint = self._is_ours and self._is_checkpoint_damaged()
        self._checkpoint = None if self._has_damaged_checkpoint else checkpoint
        self._contiguous_from = INT64_MAX if self._checkpoint is None else self._checkpoint.contiguous_from
        self._promised = 0 if self._checkpoint is None else self._checkpoint.recovery_point
        if self._has_damaged_checkpoint:
            self._promised = promised_offset(shared.files, shared.directory, inherited=checkpoint)
        self._segments: list[SegmentRepair] = []
        self._unsynced: list[str] = []
        self._resealed: list[int] = []
        self._quarantines: list[Quarantine] = []
        self._losses: list[Loss] = []

    def _is_checkpoint_damaged(self) -> bool:
        try:
            read_checkpoint(self._shared.files, self._shared.directory)
        except CorruptionError:
            return True
        return False

    def plan(self, *, from_torn: bool) -> RepairPlan:
        end = self._start()
        for subject in self._subjects:
            end = self._segment(subject, is_cut_here=from_torn and self._is_ours)
        roll_at = None
        if self._promised > end:
            self._losses.append(Loss(first_offset=end, next_offset=self._promised, reason="the end of the log is lost"))
            roll_at = end = self._promised
            if self._subjects and not any(each.base_offset == self._last_base for each in self._segments):
                self._resealed.append(self._last_base)
        returning = tuple(self._returning(end)) if from_torn else ()
        # What comes back is written last: the checkpoint, which comes before, promises nothing of it.
        promised = end
        for each in returning:
            if each.base_offset > end:
                self._losses.append(
                    Loss(first_offset=end, next_offset=each.base_offset, reason="damaged when recovery cut the log")
                )
            end = each.next_offset
        plan = RepairPlan(
            directory=self._shared.directory,
            segments=tuple(self._segments),
            unsynced=tuple(self._unsynced),
            resealed=tuple(dict.fromkeys(self._resealed)),
            quarantines=tuple(self._quarantines),
            losses=tuple(self._losses),
            roll_at=roll_at,
            returning=returning,
            has_damaged_checkpoint=self._has_damaged_checkpoint,
        )
        return replace(plan, checkpoint=self._new_checkpoint(promised)) if plan.is_needed and self._is_ours else plan

    @property
    def _last_base(self) -> int:
        return self._subjects[-1].base_offset

    def _start(self) -> int:
        """Return where the log begins; what should come before the first segment is lost."""
        start = self._checkpoint.log_start_offset if self._checkpoint is not None else 0
        if not self._subjects:
            return start
        first = self._subjects[0].base_offset
        if self._is_ours and self._checkpoint is not None and first > start:
            self._losses.append(Loss(first_offset=start, next_offset=first, reason="the first segments are gone"))
        return first

    # ------------------------------------------------------------ one segment

    def _segment(self, subject: Subject, *, is_cut_here: bool) -> int:
        """Decide what becomes of a segment; return the offset behind what stays of it.

        With `is_cut_here` a torn end is not left to recovery, which would cut with it what comes behind.
        """
        files, directory = self._shared.files, self._shared.directory
        seal = None
        if not subject.is_last and self._is_ours and not subject.path.endswith(names.SWAP):
            seal = read_seal(files, directory, subject.base_offset)
        segment = Segment(self._shared, subject.base_offset, size=subject.size, next_offset=INT64_MAX, seal=seal)
        segment.path = subject.path
        segment.read_unproved()
        is_contiguous = seal is not None and seal.contiguous
        contiguous_from = subject.base_offset if is_contiguous else self._contiguous_from
        salvage = Salvage(segment, contiguous_from, self._shared.new_state, end_offset=subject.end_offset)
        if salvage.is_given_up:
            raise UsageError(
                f"{subject.path}: too much of it is damaged to be mended; restore it from a copy. Nothing was changed"
            )
        work = _Work(segment, subject, contiguous_from, self._promised)
        if salvage.damages and (is_cut_here or not self._is_left_to_recovery(subject, salvage)):
            work.take(salvage, crc=self._file_crc(subject, seal))
        else:
            work.end = salvage.state.next_offset
            crc = self._file_crc(subject, seal)
            if not salvage.damages and crc is not None and crc != salvage.state.crc:
                work.patches += [
                    Patch(
                        position=changed.batch_position + EPOCH_AT,
                        data=changed.right,
                        what=f"leader epoch {changed.epoch} in place of {changed.found}",
                    )
                    for changed in changed_epochs(segment, crc=crc)
                ]
                if seal is not None and not work.patches:
                    work.patches += [
                        Patch(
                            position=changed.batch_position,
                            data=changed.right,
                            what=f"base offset {changed.base_offset} in place of {changed.found}",
                        )
                        for changed in changed_offsets(segment, seal)
                    ]
                work.pieces = [(0, subject.size)]
        end = work.end
        is_synced = seal is not None or (self._checkpoint is not None and end <= self._checkpoint.recovery_point)
        if self._is_ours and not is_synced:
            self._unsynced.append(subject.path)
        if subject.next_base_offset is not None and end < subject.next_base_offset:
            if (is_contiguous or end >= contiguous_from) and subject.gap_from is None:
                # What the damage of the end has lost is told by it.
                if not any(loss.next_offset == subject.next_base_offset for loss in work.losses):
                    self._losses.append(
                        Loss(
                            first_offset=end,
                            next_offset=subject.next_base_offset,
                            reason="they are missing behind a segment",
                        )
                    )
                if not work.is_rewritten:
                    self._resealed.append(subject.base_offset)
            end = subject.next_base_offset
        self._quarantines += work.quarantines
        self._losses += work.losses
        if work.is_rewritten:
            self._segments.append(
                SegmentRepair(
                    base_offset=subject.base_offset,
                    path=subject.path,
                    size=subject.size,
                    pieces=tuple(work.pieces),
                    patches=tuple(work.patches),
                    next_base_offset=subject.next_base_offset,
                    seal=seal,
                )
            )
        elif self._must_reseal(subject):
            self._resealed.append(subject.base_offset)
        return end

    def _is_left_to_recovery(self, subject: Subject, salvage: Salvage) -> bool:
        """Tell whether nothing is wrong but an end that was never promised: the next open cuts it, and keeps it."""
        (first, *more) = salvage.damages
        return subject.is_last and not more and first.resumed_at is None and first.offset >= self._promised

    def _file_crc(self, subject: Subject, seal: Seal | None) -> int | None:
        """Return the CRC that the whole file had, where anything tells."""
        if seal is not None:
            return seal.log_crc if seal.size == subject.size else None
        return subject.saved.log_crc if subject.saved is not None and subject.saved.size == subject.size else None

    def _must_reseal(self, subject: Subject) -> bool:
        findings = inspect_segment(subject, files=self._shared.files).findings
        return any(
            finding.kind in _MADE_ANEW and finding.severity is not Severity.NOTE for finding in findings
        ) and not subject.path.endswith(names.SWAP)

    # ------------------------------------------------------------ what comes back

    def _returning(self, end: int) -> Iterator[Returning]:
        torn = []
        for name in self._listing:
            parsed = names.parse_torn_name(name)
            if parsed is not None:
                torn.append((*parsed, name))
        for base_offset, _, name in sorted(torn):
            path = f"{self._shared.directory}/{name}"
            size = self._shared.files.file_size(path)
            segment = Segment(self._shared, base_offset, size=size, next_offset=INT64_MAX, seal=None)
            segment.path = path
            salvage = Salvage(segment, INT64_MAX, self._shared.new_state)
            pieces: list[tuple[int, int]] = []
            first = next_offset = end
            records = 0
            for start, stop in whole_ranges(salvage):
                for position, batch in read_batches(segment, start, stop):
                    if batch.base_offset < next_offset:
                        continue  # written since, or before
                    first = batch.base_offset if not pieces else first
                    pieces.append((position, position + batch.header.size))
                    next_offset = batch.next_offset
                    records += batch.record_count
            segment.release()
            if pieces:
                yield Returning(
                    path=path,
                    base_offset=first,
                    next_offset=next_offset,
                    pieces=tuple(_joined(pieces)),
                    record_count=records,
                )
                end = next_offset

    # ------------------------------------------------------------ the checkpoint

    def _new_checkpoint(self, end: int) -> Checkpoint:
        first = self._subjects[0].base_offset if self._subjects else end
        behind_losses = max((loss.next_offset for loss in self._losses), default=0)
        if self._checkpoint is None:
            epochs = LeaderEpochs.read(self._shared.files, self._shared.directory).entries
            return Checkpoint(
                recovery_point=end,
                log_start_offset=first,
                high_watermark=end,
                contiguous_from=max(end, behind_losses),
                # Nobody knows the one before; readers only ask whether it is another.
                generation=self._clock.now_ms() // 1000,
                epochs=tuple(epochs),
            )
        old = self._checkpoint
        is_gone_before = bool(self._subjects) and first > old.log_start_offset
        return replace(
            old,
            log_start_offset=first if is_gone_before else (end if not self._subjects else old.log_start_offset),
            contiguous_from=max(old.contiguous_from, behind_losses) if self._losses else old.contiguous_from,
            generation=old.generation + 1,
            active=None,
            has_producers=None,
        )


def _joined(pieces: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Put ranges together that follow each other."""
    before: tuple[int, int] | None = None
    for start, stop in pieces:
        if before is not None and before[1] == start:
            before = (before[0], stop)
            continue
        if before is not None:
            yield before
        before = (start, stop)
    if before is not None:
        yield before


@dataclass(slots=True)
class _Work:
    """What becomes of the bytes of one segment."""

    segment: Segment
    subject: Subject
    contiguous_from: int
    promised: int
    pieces: list[tuple[int, int]] = field(default_factory=list)
    patches: list[Patch] = field(default_factory=list)
    quarantines: list[Quarantine] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    end: int = 0

    @property
    def is_rewritten(self) -> bool:
        return bool(self.patches or self.quarantines)

    def take(self, salvage: Salvage, *, crc: int | None) -> None:
        """Go through whole ranges and damages in order."""
        self.end = self.segment.base_offset
        places: list[tuple[int, int, Damage | None, int]] = [
            (start, 1, None, stop) for start, stop in whole_ranges(salvage)
        ]
        places += [(damage.position, 0, damage, 0) for damage in salvage.damages]
        only = len(salvage.damages) == 1
        for start, _, damage, stop in sorted(places, key=lambda place: place[:2]):
            if damage is None:
                self._keep(start, stop)
            else:
                self._mend(damage, crc=crc if only else None)
        self.pieces = list(_joined(self.pieces))

    def _keep(self, start: int, stop: int) -> None:
        limit = self.subject.next_base_offset
        for position, batch in read_batches(self.segment, start, stop):
            behind = position + batch.header.size
            is_again = batch.base_offset < self.end or (limit is not None and batch.last_offset >= limit)
            if is_again:
                self._set_aside(position, behind, f"offsets {batch.base_offset} to {batch.last_offset} come again")
                continue
            self.pieces.append((position, behind))
            self.end = batch.next_offset

    def _mend(self, damage: Damage, *, crc: int | None) -> None:
        start = damage.position
        stop = self.segment.size if damage.resumed_at is None else damage.resumed_at
        if damage.kind is Kind.FORMAT and not self.subject.is_ours:
            raise UsageError(
                f"{self.segment.path}, byte {start}: {damage.reason}; that is no damage, and there is nothing to mend. "
                "Nothing was changed"
            )
        if start == stop:
            if damage.kind is Kind.GAP and damage.resumed_offset is not None:
                self._lose(damage.offset, damage.resumed_offset, damage.reason)
            return  # offsets that come again are seen batch by batch
        patches = self._put_right(damage, stop, crc=crc)
        if patches:
            self.patches += patches
            self.pieces.append((start, stop))
            self.end = self._end_of(start, stop, patches)
            return
        self._set_aside(start, stop, damage.reason)
        lost_to = damage.resumed_offset
        if lost_to is None:
            lost_to = self.subject.next_base_offset if self.subject.next_base_offset is not None else self.promised
        if lost_to > damage.offset and self.subject.next_base_offset is None and damage.resumed_offset is None:
            return  # the end of the log is told once, for all of it
        self._lose(damage.offset, lost_to, damage.reason)

    def _lose(self, first_offset: int, next_offset: int, reason: str) -> None:
        if next_offset > first_offset:
            self.losses.append(Loss(first_offset=first_offset, next_offset=next_offset, reason=reason))

    def _set_aside(self, start: int, stop: int, reason: str) -> None:
        self.quarantines.append(Quarantine(base_offset=self.segment.base_offset, start=start, stop=stop, reason=reason))

    # ------------------------------------------------------------ putting right what can be proved

    def _put_right(self, damage: Damage, stop: int, *, crc: int | None) -> list[Patch]:
        """Return what makes one whole batch of the damaged bytes, if anything proves that it was so."""
        start, size = damage.position, stop - damage.position
        if size < HEADER_SIZE or size > self.segment.shared.config.segment_bytes + SCAN_CHUNK:
            return []
        raw = self.segment.read(size, start)
        head = [
            (0, damage.offset.to_bytes(8, "big"), f"base offset {damage.offset}"),
            (_LENGTH_AT, (size - 12).to_bytes(4, "big"), f"length {size - 12}"),
            (_MAGIC_AT, b"\2", "magic 2"),
        ]
        changes = [
            Patch(position=start + at, data=data, what=f"{what} of the batch at byte {start}")
            for at, data, what in head
            if raw[at : at + len(data)] != data
        ]
        expected = damage.resumed_offset if damage.resumed_offset is not None else self.subject.end_offset
        if self._is_batch(_patched(raw, start, changes), expected):
            return changes
        if crc is None:
            return []
        # The CRC itself may be what was changed; only the CRC of the whole file can tell.
        data = _patched(raw, start, changes)
        right = crc32c(data[_CRC_COVERS_FROM:]).to_bytes(4, "big")
        changes.append(Patch(position=start + _CRC_AT, data=right, what=f"CRC of the batch at byte {start}"))
        if self._is_batch(_patched(raw, start, changes), expected) and self._crc_with(changes) == crc:
            return changes
        return []

    def _is_batch(self, raw: bytes, expected: int | None) -> bool:
        state = self.segment.shared.new_state(self.segment.base_offset)
        if state.scan(raw, INT64_MAX) != len(raw) or state.batch_count != 1:
            return False
        return expected is None or state.next_offset == expected

    def _end_of(self, start: int, stop: int, patches: list[Patch]) -> int:
        state = self.segment.shared.new_state(self.segment.base_offset)
        state.scan(_patched(self.segment.read(stop - start, start), start, patches), INT64_MAX)
        return state.next_offset

    def _crc_with(self, patches: list[Patch]) -> int:
        value = 0
        for at in range(0, self.segment.size, SCAN_CHUNK):
            value = crc32c(_patched(self.segment.read(SCAN_CHUNK, at), at, patches), value)
        return value


def _patched(data: bytes, origin: int, patches: list[Patch] | tuple[Patch, ...]) -> bytes:
    """Return bytes that were read at `origin` with the patches in them, as far as these fall into them."""
    out = bytearray(data)
    for patch in patches:
        for number, byte in enumerate(patch.data):
            at = patch.position + number - origin
            if 0 <= at < len(out):
                out[at] = byte
    return bytes(out)


# ---------------------------------------------------------------- doing it


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
    """Mend a partition, and return what was done. It must not be open for writing.

    After a crash in the middle, the log is damaged as before or partly mended; repair it again.
    """
    path = absolute(os.fsdecode(directory), follows=files is None)
    files, config, clock = files or OsFiles(), config or LogConfig(), clock or SystemClock()
    finished_later = "the next repair finishes what was begun"
    with translated(
        f"{path} cannot be repaired",
        when_full=f"it takes as much as the segments that are rewritten; {finished_later}",
        advice=finished_later,
    ):
        return _repair(path, config, inherited, files, clock, from_torn, advance)


def _repair(
    path: str,
    config: LogConfig,
    inherited: Checkpoint | None,
    files: Files,
    clock: Clock,
    from_torn: bool,
    advance: Callable[[int], None] | None,
) -> RepairPlan:
    # Before a lock file is made there.
    _plan(path, config, inherited, files, clock, from_torn)
    with lock_lone_directory(files, path):
        shared = Shared(files, path, config, writable=True)
        listing = files.list(path)
        # What is seen here may not be on the disk yet, and nothing is taken away on the word of what is not.
        files.sync_directory(path)
        if any(name.endswith((names.SWAP, names.CLEANED)) for name in listing):
            complete_swaps(shared, listing, list_segments(shared, listing))
            swap.drop_cleaned(shared)
            files.sync_directory(path)
        plan = _plan(path, config, inherited, files, clock, from_torn, is_locked_here=True)
        if plan.is_needed:
            _Act(shared, plan, clock, advance).run()
        shared.clear()
    if plan.is_needed and names.CHECKPOINT in files.list(path):
        _settle(path, config, inherited, files, clock)
    return plan


def _settle(directory: str, config: LogConfig, inherited: Checkpoint | None, files: Files, clock: Clock) -> None:
    """Open the log as its next writer would, so that all that is made of the segments is made now."""
    partition = names.parse_partition_name(directory.rpartition("/")[2]) or TopicPartition("log", 0)
    host = Host(source=partition, open_segments=OpenSegments(16), inherited=lambda: inherited)
    Log(directory, config=config, files=files, clock=clock, background=False, host=host).close()


class _Act:
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
                self._rewrite(segment)
                if self._advance is not None:
                    self._advance(segment.size)
            for base_offset in plan.resealed:
                self._make_sides(base_offset)
            if plan.roll_at is not None:
                ActiveSegment.create(self._shared, plan.roll_at).close_files()
                self._files.sync_directory(self._directory)
            for returning in plan.returning:
                self._bring_back(returning)
        except OSError:
            swap.drop_cleaned(self._shared)
            raise

    def _sync(self, path: str) -> None:
        """Make a segment durable before anything is said of it: that it is, that a gap is lawful, what was lost.

        It is written once more, as in recovery: pages of a sync that failed read back fine and are lost later.
        """
        files = self._files
        handle = files.open(path, write=True)
        try:
            for at in range(0, files.size(handle), SCAN_CHUNK):
                files.write(handle, files.read(handle, SCAN_CHUNK, at), at)
            files.sync(handle)
        finally:
            files.close(handle)

    def _keep_evidence(self) -> None:
        for each in self._plan.quarantines:
            segment = next(found for found in self._plan.segments if found.base_offset == each.base_offset)
            handle = self._files.open(segment.path)
            try:
                data = self._files.read(handle, each.stop - each.start, each.start)
            finally:
                self._files.close(handle)
            self._keep(each, data)
        if self._plan.has_damaged_checkpoint:
            data = self._files.read_file(f"{self._directory}/{names.CHECKPOINT}")
            replace_file(self._files, self._directory, names.CHECKPOINT + names.DAMAGED, data)
        if self._plan.losses:
            add_losses(self._files, self._directory, self._plan.losses, now_ms=self._clock.now_ms())
        self._files.sync_directory(self._directory)

    def _keep(self, quarantine: Quarantine, data: bytes) -> None:
        """Keep bytes; the same are not kept twice when a repair was interrupted."""
        attempt = 0
        while True:
            name = names.damaged_name(quarantine.base_offset, quarantine.start, attempt)
            try:
                if self._files.read_file(f"{self._directory}/{name}") == data:
                    return
            except FileNotFoundError:
                replace_file(self._files, self._directory, name, data)
                return
            attempt += 1

    def _rewrite(self, segment: SegmentRepair) -> None:
        state, sums = self._copy(segment.base_offset, segment.path, segment.pieces, segment.patches)
        is_last = segment.next_base_offset is None and self._plan.roll_at is None
        follows = segment.next_base_offset if segment.next_base_offset is not None else self._plan.roll_at
        self._write_sides(state, sums, segment.seal, has_seal=self._is_ours and not is_last, follows=follows)
        swap.commit(self._shared, segment.base_offset)
        swap.complete(self._shared, segment.base_offset, [segment.base_offset], has_sides=True)

    def _bring_back(self, returning: Returning) -> None:
        state, sums = self._copy(returning.base_offset, returning.path, returning.pieces, ())
        self._write_sides(state, sums, None, has_seal=False, follows=None)
        swap.commit(self._shared, returning.base_offset)
        swap.complete(self._shared, returning.base_offset, [returning.base_offset], has_sides=True)

    def _copy(
        self,
        base_offset: int,
        path: str,
        pieces: tuple[tuple[int, int], ...],
        patches: tuple[Patch, ...],
    ) -> tuple[SegmentState, PageSums]:
        files, sums = self._files, PageSums()
        source = files.open(path)
        try:
            target = files.open(self._shared.path(base_offset, names.LOG) + names.CLEANED, write=True, create=True)
            try:
                files.truncate(target, 0)
                at = 0
                for start, stop in pieces:
                    for begin in range(start, stop, SCAN_CHUNK):
                        data = files.read(source, min(SCAN_CHUNK, stop - begin), begin)
                        files.write(target, _patched(data, begin, patches), at)
                        at += len(data)
                files.sync(target)
            finally:
                files.close(target)
        finally:
            files.close(source)
        written = Segment(self._shared, base_offset, size=at, next_offset=INT64_MAX, seal=None)
        written.path = self._shared.path(base_offset, names.LOG) + names.CLEANED
        state = written.scan_all(sums=sums)
        written.release()
        if state.problem is not None or state.size != at:
            raise UsageError(f"{path}: what is whole of it does not make a segment; nothing of it was changed")
        return state, sums

    def _write_sides(
        self, state: SegmentState, sums: PageSums, seal: Seal | None, *, has_seal: bool, follows: int | None
    ) -> None:
        base_offset = state.base_offset
        state.finish_times()
        aborted = b""
        with contextlib.suppress(FileNotFoundError):
            aborted = self._files.read_file(self._shared.path(base_offset, names.TRANSACTION_INDEX))
        if has_seal:
            new = seal_of(
                state,
                sealed_at_ms=seal.sealed_at_ms if seal is not None else self._clock.now_ms(),
                may_have_gaps=state.next_offset != follows,
                clean_offset=seal.clean_offset if seal is not None else 0,
                sums=sums,
            )
            swap.write_sides(self._shared, state, new, page_table=sums.table, aborted=aborted)
            return
        swap.write_cleaned(self._shared, base_offset, names.OFFSET_INDEX, bytes(state.offset_table))
        swap.write_cleaned(self._shared, base_offset, names.TIME_INDEX, bytes(state.time_table))
        if aborted:
            swap.write_cleaned(self._shared, base_offset, names.TRANSACTION_INDEX, aborted)

    def _make_sides(self, base_offset: int) -> None:
        """Make the indexes and the seal of a whole segment anew."""
        size = self._files.file_size(self._shared.path(base_offset, names.LOG))
        segment = Segment(self._shared, base_offset, size=size, next_offset=INT64_MAX, seal=None)
        sums = PageSums()
        state = segment.scan_all(sums=sums)
        segment.release()
        state.finish_times()
        bases = sorted(
            parsed[0]
            for parsed in map(names.parse_segment_name, self._files.list(self._directory))
            if parsed is not None and parsed[1] == names.LOG
        )
        follows = next((base for base in bases if base > base_offset), self._plan.roll_at)
        if not self._is_ours or follows is None:
            segment.write_indexes_of(state)
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(self._shared.path(base_offset, names.SEAL))
        else:
            old = read_seal(self._files, self._directory, base_offset)
            segment.write_sealed(
                state,
                sealed_at_ms=old.sealed_at_ms if old is not None else self._clock.now_ms(),
                may_have_gaps=state.next_offset != follows,
                clean_offset=old.clean_offset if old is not None else 0,
                sums=sums,
            )
        self._files.sync_directory(self._directory)
