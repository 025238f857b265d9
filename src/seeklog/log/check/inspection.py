"""Whether the files of a partition are what was written: every batch, every index entry, seals and promises.

The work has three steps, so that the middle one can be done in many places at once. `plan_inspection` looks at the
directory and takes every file's size, once. `inspect_segment` holds one segment's files against each other and
against what the plan says. `conclude` drops what a writer that went on meanwhile explains. Nothing on disk changes,
and nothing is locked.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from seeklog import names
from seeklog.config import INT64_MAX, LogConfig
from seeklog.errors import CorruptionError
from seeklog.files import Files, FileStatus, OsFiles
from seeklog.log.broker_visit import known_checkpoint
from seeklog.log.check.finding import Finding, Kind, Severity
from seeklog.log.check.key_indexes import key_index_problem
from seeklog.log.check.reindex import BatchMap, IndexProblem, offset_problems, state_of_every_batch, time_problems
from seeklog.log.check.salvage import DAMAGES_MOST, Damage, Salvage
from seeklog.log.check.unprotected import ChangedOffset, changed_epochs, changed_offsets
from seeklog.log.directory import has_broker
from seeklog.log.index import OFFSET_ENTRY, TIME_ENTRY, read_entries
from seeklog.log.recovery import list_beside_writer
from seeklog.log.segment import Segment, Shared, Trust, seal_of
from seeklog.log.side.checkpoint import Checkpoint
from seeklog.log.side.pages import PageSums, first_difference
from seeklog.log.side.seal import HEAD_SIZE as SEAL_HEAD_SIZE
from seeklog.log.side.seal import SIZE as SEAL_SIZE
from seeklog.log.side.seal import Seal, decode_seal, read_table
from seeklog.log.view import mark_gaps
from seeklog.record.crc import crc32c
from seeklog.record.saved_state import SavedState
from seeklog.record.segment_state import SegmentState

# More wrong entries of one index are not told one by one.
ENTRIES_MOST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One segment to inspect, and what was known of it when the inspection was planned."""

    directory: str
    base_offset: int
    path: str
    size: int
    next_base_offset: int | None
    """Where the next segment starts; None: this is the last one."""
    gap_from: int | None
    """From where on an archive declares offsets to be missing, up to the next segment. None: nowhere."""
    recovery_point: int | None
    """Records below it were promised durable. None: nobody tells."""
    contiguous_from: int
    is_ours: bool
    is_live: bool
    """Whether a writer was at it: its last batch may be half written."""
    saved: SavedState | None
    """What a clean close said of it."""
    listed: tuple[FileStatus | None, ...]
    """Its log and both index files as they were when the inspection was planned."""
    config: LogConfig

    @property
    def is_last(self) -> bool:
        return self.next_base_offset is None

    @property
    def end_offset(self) -> int | None:
        """The offset that the segment should end before, where anything tells."""
        if self.next_base_offset is None and self.saved is not None:
            return self.saved.next_offset
        return self.next_base_offset if self.gap_from is None else self.gap_from

    def is_promised(self, offset: int) -> bool:
        """Tell whether the record with this offset was promised durable."""
        return self.recovery_point is not None and offset < self.recovery_point

    def path_of(self, suffix: str) -> str:
        return f"{self.directory}/{names.segment_name(self.base_offset, suffix)}"

    def finding(
        self,
        kind: Kind,
        severity: Severity,
        detail: str,
        *,
        path: str = "",
        position: int | None = None,
        offset: int | None = None,
    ) -> Finding:
        """Return a finding about this segment, in its log unless another file is named."""
        return Finding(
            kind=kind,
            severity=severity,
            path=path or self.path,
            segment=self.base_offset,
            position=position,
            offset=offset,
            detail=detail,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A partition's segments, and what is wrong with it that no segment tells."""

    directory: str
    checkpoint: Checkpoint | None
    subjects: tuple[Subject, ...]
    findings: tuple[Finding, ...] = ()


@dataclass(slots=True, kw_only=True)
class Inspection:
    """What came out of one segment."""

    base_offset: int
    findings: list[Finding] = field(default_factory=list)
    batch_count: int = 0
    record_count: int = 0
    size: int = 0
    """How many bytes were looked at."""
    is_gone: bool = False
    """Whether the segment was not there any more."""
    damages: list[Damage] = field(default_factory=list)
    """Where the scan of its batches could not go on."""


def inspect_partition(
    directory: str, *, config: LogConfig | None = None, inherited: Checkpoint | None = None, files: Files | None = None
) -> list[Finding]:
    """Do all three steps in this process."""
    plan = plan_inspection(directory, config=config, inherited=inherited, files=files)
    return conclude(plan, [inspect_segment(subject, files=files) for subject in plan.subjects], files=files)


# ---------------------------------------------------------------- before and after


def plan_inspection(
    directory: str,
    *,
    config: LogConfig | None = None,
    inherited: Checkpoint | None = None,
    files: Files | None = None,
    is_locked_here: bool = False,
) -> Plan:
    """Look at a partition's directory. `inherited` is what a broker's checkpoints in the root say of it.

    The checkpoint is read before the files' sizes: what it promises is then in them, also while a writer goes on.
    With `is_locked_here` the caller holds the writer's lock itself, and so knows that none does.
    """
    files = files or OsFiles()
    config = config or LogConfig()
    findings: list[Finding] = []
    checkpoint = inherited
    try:
        checkpoint = known_checkpoint(files, directory, inherited=inherited)
    except CorruptionError as error:
        path = f"{directory}/{names.CHECKPOINT}"
        findings.append(Finding(kind=Kind.CHECKPOINT, severity=Severity.ERROR, path=path, detail=error.reason))
    listing, segments = list_beside_writer(Shared(files, directory, config, writable=False))
    is_ours = names.CHECKPOINT in listing and not (checkpoint is not None and checkpoint.is_visited)
    saved = None
    if checkpoint is not None:
        # Segments below the start were deleted; a crash may have brought them back, with holes among them.
        while len(segments) > 1 and segments[1].base_offset <= checkpoint.log_start_offset:
            segments.pop(0)
        findings += _lost_at_start(directory, segments, checkpoint)
        saved = checkpoint.active
    if saved is not None and not (segments and saved.is_of(segments[-1].base_offset, size=segments[-1].size)):
        saved = None
    # After the sizes: a writer that was in the middle of a batch then is still at it, or its file has grown.
    is_brokers = not is_ours and has_broker(files, directory)
    is_live = is_brokers or (is_ours and not is_locked_here and _is_locked(files, f"{directory}/{names.LOCK}"))
    # A broker cuts and recreates partitions rightly, and writes what it promises once a minute.
    recovery_point = checkpoint.recovery_point if checkpoint is not None and not is_brokers else None
    if checkpoint is not None:
        mark_gaps(segments, checkpoint.gaps)
    followers: list[Segment | None] = [*segments[1:], None]
    subjects = tuple(
        Subject(
            directory=directory,
            base_offset=segment.base_offset,
            path=segment.path,
            size=segment.size,
            next_base_offset=following.base_offset if following is not None else None,
            gap_from=segment.next_offset if following and segment.next_offset < following.base_offset else None,
            recovery_point=recovery_point,
            contiguous_from=checkpoint.contiguous_from if checkpoint is not None else INT64_MAX,
            is_ours=is_ours,
            is_live=is_live and following is None,
            saved=saved if following is None and not is_live else None,
            listed=(segment.listed, *_index_statuses(files, directory, segment.base_offset)),
            config=config,
        )
        for segment, following in zip(segments, followers, strict=False)
    )
    return Plan(directory=directory, checkpoint=checkpoint, subjects=subjects, findings=tuple(findings))


def _index_statuses(files: Files, directory: str, base_offset: int) -> Iterator[FileStatus | None]:
    for suffix in (names.OFFSET_INDEX, names.TIME_INDEX):
        yield _status(files, f"{directory}/{names.segment_name(base_offset, suffix)}")


def _status(files: Files, path: str) -> FileStatus | None:
    with contextlib.suppress(OSError):
        return files.status(path)
    return None


def _is_overtaken(subject: Subject, files: Files) -> bool:
    """Tell whether a broker has replaced a segment's files since the inspection was planned, or taken them away."""
    if subject.is_ours:
        return False  # a writer of ours says so in its checkpoint
    now = (
        _status(files, subject.path),
        *_index_statuses(files, subject.directory, subject.base_offset),
    )
    for before, after in zip(subject.listed, now, strict=True):
        if before is None or after is None or before.identity != after.identity:
            if before != after:
                return True
        elif before.size != after.size and not subject.is_last:
            return True
    return False


def _lost_at_start(directory: str, segments: list[Segment], checkpoint: Checkpoint) -> Iterator[Finding]:
    start, promised = checkpoint.log_start_offset, checkpoint.recovery_point
    if not segments and promised > start:
        detail = f"no segment is left, but offsets {start} to {promised - 1} were synced"
        yield Finding(kind=Kind.GAP, severity=Severity.ERROR, path=directory, offset=start, detail=detail)
    if segments and segments[0].base_offset > start and not checkpoint.foreign:
        detail = f"the first segment starts at offset {segments[0].base_offset}, but the log starts at {start}"
        yield Finding(kind=Kind.GAP, severity=Severity.ERROR, path=segments[0].path, offset=start, detail=detail)


def _is_locked(files: Files, path: str) -> bool:
    with contextlib.suppress(OSError):
        return files.is_locked(path)
    return False


def conclude(plan: Plan, inspections: Iterable[Inspection], *, files: Files | None = None) -> list[Finding]:
    """Return what is to be told of a partition: what a writer has deleted or cut meanwhile is not damage."""
    files = files or OsFiles()
    before = now = plan.checkpoint
    try:
        files.list(plan.directory)
        now = known_checkpoint(files, plan.directory, inherited=before) or before
    except FileNotFoundError:
        return [] if plan.subjects else list(plan.findings)  # the topic was deleted, or its directory never there
    except (OSError, CorruptionError):
        pass  # told already
    if before is not None and now is not None and now.generation != before.generation:
        detail = "the end of the log was cut while it was looked at; inspect it again"
        return [Finding(kind=Kind.CHANGED, severity=Severity.NOTE, path=plan.directory, detail=detail)]
    start = now.log_start_offset if now is not None else 0
    by_base = {inspection.base_offset: inspection for inspection in inspections}
    findings = [finding for finding in plan.findings if finding.offset is None or finding.offset >= start]
    overtaken = {subject.base_offset for subject in plan.subjects if _is_overtaken(subject, files)}
    if overtaken:
        findings.append(
            Finding(kind=Kind.CHANGED, severity=Severity.NOTE, path=plan.directory, detail=_describe(overtaken))
        )
    for subject in plan.subjects:
        if subject.base_offset in overtaken or subject.next_base_offset in overtaken:
            continue
        inspection = by_base.get(subject.base_offset)
        if inspection is None or (subject.next_base_offset is not None and subject.next_base_offset <= start):
            continue
        if inspection.is_gone and subject.is_last and subject.base_offset < start:
            continue  # it was rolled and deleted
        if inspection.is_gone:
            detail = "the segment was there when the directory was listed, and is gone"
            findings.append(subject.finding(Kind.UNREADABLE, Severity.ERROR, detail, offset=subject.base_offset))
        findings += inspection.findings
    return findings


def _describe(overtaken: Collection[int]) -> str:
    segments = "a segment was" if len(overtaken) == 1 else f"{len(overtaken)} segments were"
    return f"{segments} replaced or deleted by a broker during the inspection; inspect the partition again"


def has_changed(findings: Iterable[Finding]) -> bool:
    """Tell whether files were replaced during an inspection, so that another one would see more."""
    return any(finding.kind is Kind.CHANGED for finding in findings)


# ---------------------------------------------------------------- one segment


def inspect_segment(subject: Subject, *, files: Files | None = None) -> Inspection:
    """Check every batch of one segment, every entry of its indexes, its seal, and that it holds what was promised."""
    shared = Shared(files or OsFiles(), subject.directory, subject.config, writable=False)
    result = Inspection(base_offset=subject.base_offset)
    try:
        _inspect(subject, shared, result)
    except FileNotFoundError:
        result.is_gone = True
    except OSError as error:
        result.findings.append(subject.finding(Kind.UNREADABLE, Severity.ERROR, str(error)))
    finally:
        shared.clear()
    return result


def _inspect(subject: Subject, shared: Shared, result: Inspection) -> None:
    segment = Segment(shared, subject.base_offset, size=subject.size, next_offset=INT64_MAX, seal=None)
    segment.path = subject.path
    seal, findings = _read_seal(subject, shared.files)
    result.findings = findings
    segment.trust = Trust(is_exact=subject.is_ours and subject.contiguous_from <= subject.base_offset)
    if seal is not None:
        segment.attach(seal)
        segment.read_unproved()
    pages = _Pages(subject, shared.files, seal)
    findings += pages.findings
    contiguous_from = subject.base_offset if segment.contiguous else subject.contiguous_from
    salvage = Salvage(segment, contiguous_from, shared.new_state, end_offset=subject.end_offset, sums=pages.sums)
    state = salvage.state
    result.batch_count, result.record_count, result.size = state.batch_count, state.record_count, subject.size
    result.damages = salvage.damages
    findings += _damage_findings(subject, salvage)
    lost_end = _end_findings(subject, salvage, seal)
    findings += lost_end
    if not salvage.damages:
        state.finish_times()
        findings += _seal_findings(subject, segment, state, seal, pages)
        findings += _closed_findings(subject, segment, state)
        if not lost_end:
            findings += _gap_notes(subject, state)
    if not subject.path.endswith(names.SWAP):
        check = _IndexCheck(subject, segment, salvage, contiguous_from, has_lost_end=bool(lost_end))
        findings += check.findings(seal)
        findings += _key_index_findings(subject, segment, salvage)


def _has_grown(subject: Subject, segment: Segment) -> bool:
    handle = segment.handle()
    return segment.shared.files.size(handle.number) > subject.size


# ---------------------------------------------------------------- batches


def _damage_findings(subject: Subject, salvage: Salvage) -> list[Finding]:
    findings = [
        _damage_finding(subject, salvage, damage)
        for damage in salvage.damages
        if not _is_not_yet(subject, salvage.segment, damage)
    ]
    if salvage.is_given_up:
        last = salvage.damages[-1]
        many = len(salvage.damages) == DAMAGES_MOST
        what = f"{DAMAGES_MOST} damages" if many else "too much looks like the beginning of a batch and is none"
        detail = f"{what}; what lies behind is not looked at"
        findings.append(subject.finding(last.kind, Severity.ERROR, detail, position=last.position))
    return findings


def _is_tail(subject: Subject, damage: Damage) -> bool:
    return subject.is_last and damage.resumed_at is None


def _is_unfinished(subject: Subject, damage: Damage) -> bool:
    """Tell whether a damage looks like the end of a write, or like room that was made for one."""
    return _is_tail(subject, damage) and (damage.kind is Kind.TRUNCATED or damage.is_blank)


def _is_lost(subject: Subject, damage: Damage) -> bool:
    """Tell whether records were promised there. Where nobody tells, only the very end is taken for unpromised."""
    if subject.recovery_point is None:
        return not _is_tail(subject, damage)
    return subject.is_promised(damage.offset)


def _is_not_yet(subject: Subject, segment: Segment, damage: Damage) -> bool:
    """Tell whether a writer is just at it."""
    return (
        _is_unfinished(subject, damage)
        and not _is_lost(subject, damage)
        and (subject.is_live or _has_grown(subject, segment))
    )


def _damage_finding(subject: Subject, salvage: Salvage, damage: Damage) -> Finding:
    severity, kind = Severity.ERROR, damage.kind
    detail = [damage.reason]
    if kind is Kind.FORMAT and subject.is_ours:
        kind = Kind.HEADER  # seeklog writes no other
    if kind is Kind.FORMAT:
        severity = Severity.WARNING
    elif not _is_lost(subject, damage):
        severity = Severity.NOTE if _is_unfinished(subject, damage) else Severity.WARNING
        detail.append("it was never promised durable, and is cut when the log is next opened for writing")
    if damage.is_blank:
        detail.append("nothing but zeros follows")
    if damage.resumed_offset is not None and damage.offset < damage.resumed_offset and kind in (Kind.CRC, Kind.HEADER):
        detail.append(f"offsets {damage.offset} to {damage.resumed_offset - 1} cannot be read")
    batches = salvage.state.batch_count - damage.batches_before
    records = salvage.state.record_count - damage.records_before
    if batches:
        detail.append(f"{batches} whole batches with {records} records follow, from byte {damage.resumed_at} on")
    return subject.finding(kind, severity, "; ".join(detail), position=damage.position, offset=damage.offset)


def _end_findings(subject: Subject, salvage: Salvage, seal: Seal | None) -> list[Finding]:
    """Hold the end of the segment against what was promised, sealed, and begun behind it."""
    if salvage.is_given_up or any(damage.resumed_at is None for damage in salvage.damages):
        return []  # the damage tells it
    end, size, following = salvage.state.next_offset, salvage.state.size, subject.next_base_offset
    if seal is not None and subject.size < seal.size:
        kind = Kind.TRUNCATED
        detail = f"the file has {subject.size} bytes, its seal says {seal.size}: offsets from {end} on are lost"
    elif following is None and subject.is_promised(end):
        kind = Kind.TRUNCATED
        detail = f"whole batches end at offset {end}, but offsets below {subject.recovery_point} were synced"
    elif following is not None and end > following:
        kind = Kind.OVERLAP
        detail = f"the segment ends with offset {end - 1}, but the next one starts at {following}"
    elif end == subject.gap_from:
        return []
    elif following is not None and end < following and (salvage.segment.contiguous or end >= subject.contiguous_from):
        kind = Kind.GAP
        detail = f"offsets {end} to {following - 1} are missing behind this segment"
    else:
        return []
    return [subject.finding(kind, Severity.ERROR, detail, position=size, offset=end)]


def _gap_notes(subject: Subject, state: SegmentState) -> list[Finding]:
    """Note offsets without records where that is lawful."""
    notes = []
    end = state.next_offset if subject.next_base_offset is None else subject.next_base_offset
    if subject.gap_from is not None:
        detail = f"offsets {subject.gap_from} to {end - 1} are missing behind, as the archive's manifest declares"
        notes.append(subject.finding(Kind.GAP, Severity.NOTE, detail, offset=subject.gap_from))
        end = subject.gap_from
    missing = end - subject.base_offset - state.record_count
    if subject.contiguous_from <= subject.base_offset or missing <= 0:
        return notes
    detail = f"{missing} of {end - subject.base_offset} offsets have no record, as compaction or a repair leaves them"
    return [*notes, subject.finding(Kind.GAP, Severity.NOTE, detail, offset=subject.base_offset)]


# ---------------------------------------------------------------- the seal


def _read_seal(subject: Subject, files: Files) -> tuple[Seal | None, list[Finding]]:
    if subject.next_base_offset is None or not subject.is_ours or subject.path.endswith(names.SWAP):
        return None, []
    path = subject.path_of(names.SEAL)
    try:
        data = files.read_file(path)
    except FileNotFoundError:
        if not subject.is_promised(subject.next_base_offset):
            # The sync that seals a segment covers records of the next one, too: it may have been rolled just now.
            return None, []
        detail = "a segment that was synced has no seal; it gets one when the log is next opened for writing"
        return None, [subject.finding(Kind.SEAL_MISSING, Severity.WARNING, detail, path=path)]
    seal = decode_seal(data)
    if seal is None:
        detail = f"{len(data)} bytes that are no seal: one has at least {SEAL_SIZE}, with a CRC of the others"
        return None, [subject.finding(Kind.SEAL, Severity.ERROR, detail, path=path, position=0)]
    if seal.base_offset != subject.base_offset:
        detail = f"the seal of another segment, which starts at offset {seal.base_offset}"
        return None, [subject.finding(Kind.SEAL, Severity.ERROR, detail, path=path, position=0)]
    return seal, []


class _Pages:
    """The checksums of a segment's pages: those that its seal has, and those that are summed up as the log is read."""

    def __init__(self, subject: Subject, files: Files, seal: Seal | None) -> None:
        self.findings: list[Finding] = []
        self.sums: PageSums | None = None
        self._table: bytes | None = None
        if seal is not None and seal.pages is not None:
            self._table = read_table(files, subject.directory, subject.base_offset, seal.pages)
            if self._table is None:
                detail = "the table of page checksums behind its head is damaged, or cut off"
                path = subject.path_of(names.SEAL)
                self.findings.append(
                    subject.finding(Kind.SEAL, Severity.ERROR, detail, path=path, position=SEAL_HEAD_SIZE)
                )
            else:
                self.sums = PageSums(seal.pages.page_size)

    def first_wrong(self) -> int | None:
        """Return where the first page starts that is not the one that was sealed; None: nothing says so."""
        if self.sums is None or self._table is None:
            return None
        return first_difference(self._table, self.sums.table, page_size=self.sums.pages.page_size)


def _seal_findings(
    subject: Subject, segment: Segment, state: SegmentState, seal: Seal | None, pages: _Pages
) -> list[Finding]:
    """Hold a seal against the log, which is sound by itself. The indexes are held against it apart."""
    if seal is None or subject.size < seal.size:
        return []
    expected = seal_of(state, sealed_at_ms=seal.sealed_at_ms, may_have_gaps=not seal.contiguous)
    expected = replace(
        expected,
        offset_index_crc=seal.offset_index_crc,
        time_index_crc=seal.time_index_crc,
        clean_offset=seal.clean_offset,
        pages=seal.pages,
    )
    wrong = pages.first_wrong()
    if seal == expected:
        if wrong is None:
            return []
        detail = f"the log is the one that was sealed, but the seal has another checksum of its page at byte {wrong}"
        return [subject.finding(Kind.SEAL, Severity.ERROR, detail, path=subject.path_of(names.SEAL))]
    different = [
        f"{word.replace('_', ' ')} {getattr(seal, word)}, but the log has {getattr(expected, word)}"
        for word in ("size", "next_offset", "record_count", "batch_count", "max_timestamp_ms", "contiguous")
        if getattr(seal, word) != getattr(expected, word)
    ]
    if different:
        path = subject.path_of(names.SEAL)
        return [subject.finding(Kind.SEAL, Severity.ERROR, "; ".join(different), path=path, position=0)]
    moved = changed_offsets(segment, seal)
    return [_uncovered_finding(subject, segment, state, seal.log_crc, told_by="its seal says", page=wrong, moved=moved)]


def _closed_findings(subject: Subject, segment: Segment, state: SegmentState) -> list[Finding]:
    """Hold the last segment against what a clean close has noted of it."""
    saved = subject.saved
    if saved is None or (saved.size, saved.log_crc) == (state.size, state.crc) or _has_grown(subject, segment):
        return []
    return [_uncovered_finding(subject, segment, state, saved.log_crc, told_by="it was closed with")]


def _uncovered_finding(
    subject: Subject,
    segment: Segment,
    state: SegmentState,
    crc: int,
    *,
    told_by: str,
    page: int | None = None,
    moved: Sequence[ChangedOffset] = (),
) -> Finding:
    """Tell of a change that no batch's own CRC sees; its byte, where that can be proved, or its page."""
    changed = changed_epochs(segment, crc=crc)
    what = "a byte that no batch's own CRC covers, such as one of a leader epoch, is not what was written"
    position = page
    if page is not None:
        what += f", in the page that starts at byte {page}"
    if changed:
        first = changed[0]
        position = first.position
        what = f"leader epoch {first.found} of the batch at byte {first.batch_position} should be {first.epoch}"
    elif moved:
        position = moved[0].batch_position
        what = f"base offset {moved[0].found} of the batch at byte {position} should be {moved[0].base_offset}"
    detail = f"the log has CRC {state.crc:#010x}, {told_by} {crc:#010x}: {what}"
    return subject.finding(Kind.SEAL, Severity.ERROR, detail, position=position)


# ---------------------------------------------------------------- indexes


@dataclass(frozen=True, slots=True)
class _IndexFile:
    suffix: str
    entry: struct.Struct
    kind: Kind
    missing: Kind
    problems: Callable[[Segment, bytes, BatchMap], Iterator[IndexProblem]]

    @property
    def entry_size(self) -> int:
        return self.entry.size


_OFFSETS = _IndexFile(names.OFFSET_INDEX, OFFSET_ENTRY, Kind.INDEX, Kind.INDEX_MISSING, offset_problems)
_TIMES = _IndexFile(names.TIME_INDEX, TIME_ENTRY, Kind.TIME_INDEX, Kind.TIME_INDEX_MISSING, time_problems)


class _IndexCheck:
    """Holds the index files of a segment against its log.

    The scan has made the indexes anew. Where a file is the same, every entry of it is proved at once; only where it
    is not, because a broker or another configuration wrote it, or because it is damaged, are its entries looked at.
    """

    def __init__(
        self, subject: Subject, segment: Segment, salvage: Salvage, contiguous_from: int, *, has_lost_end: bool
    ) -> None:
        self._subject = subject
        self._has_lost_end = has_lost_end
        self._segment = segment
        self._salvage = salvage
        self._contiguous_from = contiguous_from
        self._batches: BatchMap | None = None

    def findings(self, seal: Seal | None) -> Iterator[Finding]:
        crcs: tuple[int | None, int | None] = (None, None)
        if seal is not None:
            crcs = seal.offset_index_crc, seal.time_index_crc
        elif self._subject.saved is not None and not self._may_be_growing():
            crcs = self._subject.saved.offset_index_crc, self._subject.saved.time_index_crc
        state = self._salvage.state
        yield from self._file_findings(_OFFSETS, bytes(state.offset_table), crcs[0], is_sealed=seal is not None)
        yield from self._file_findings(_TIMES, bytes(state.time_table), crcs[1], is_sealed=seal is not None)

    def _may_be_growing(self) -> bool:
        subject = self._subject
        return subject.is_last and (subject.is_live or _has_grown(subject, self._segment))

    def _file_findings(
        self, file: _IndexFile, expected: bytes, crc: int | None, *, is_sealed: bool
    ) -> Iterator[Finding]:
        subject = self._subject
        path = subject.path_of(file.suffix)
        try:
            table = self._read(path, file, is_sealed=is_sealed)
        except FileNotFoundError:
            is_renamed_next = not subject.is_ours and _status(self._segment.shared.files, path + names.SWAP) is not None
            if self._may_be_growing() or is_renamed_next:
                return  # a new segment, and one that a broker's cleaner has rewritten, gets its log first
            detail = "the file is missing: every reader makes the index anew, and `reindex` writes it"
            yield subject.finding(file.missing, Severity.WARNING, detail, path=path)
            return
        is_as_written = crc is None or crc32c(table) == crc
        if not self._salvage.damages and is_as_written and self._is_proved(table, expected):
            return
        if self._batches is None:
            end_offset = self._subject.end_offset
            every = Salvage(self._segment, self._contiguous_from, state_of_every_batch, end_offset=end_offset)
            self._batches = BatchMap(every.state)
        problems = self._of_batches_read(file, table, self._batches)
        is_sound = True
        for problem in islice(problems, ENTRIES_MOST):
            is_sound = False
            position = None if problem.entry is None else problem.entry * file.entry_size
            detail = problem.reason if problem.entry is None else f"entry {problem.entry}: {problem.reason}"
            yield subject.finding(file.kind, Severity.ERROR, detail, path=path, position=position)
        more = sum(1 for _ in problems)
        if more:
            yield subject.finding(file.kind, Severity.ERROR, f"{more} more entries are wrong", path=path)
        if is_sound and not is_as_written:
            detail = f"{len(table)} bytes, which are not all that were written"
            yield subject.finding(file.kind, Severity.ERROR, detail, path=path, position=len(table))

    def _read(self, path: str, file: _IndexFile, *, is_sealed: bool) -> bytes:
        files = self._segment.shared.files
        if is_sealed or not self._subject.is_last:
            table = files.read_file(path)
            return table if is_sealed else table[: -(-len(table.rstrip(b"\0")) // file.entry_size) * file.entry_size]
        return read_entries(files, path, file.entry)

    def _is_proved(self, table: bytes, expected: bytes) -> bool:
        if table == expected:
            return True
        # Entries of the last segment are written a few at a time, and go on to be.
        common = min(len(table), len(expected))
        return (
            self._subject.is_last
            and table[:common] == expected[:common]
            and (len(table) == common or self._may_be_growing())
        )

    def _of_batches_read(self, file: _IndexFile, table: bytes, batches: BatchMap) -> Iterator[IndexProblem]:
        """Yield the problems, but for entries of batches that could not be read: damaged, lost, or not yet there."""
        is_short = self._has_lost_end or self._may_be_growing()
        end, base_offset = self._salvage.state.next_offset, self._subject.base_offset
        told: int | None = None
        for problem in file.problems(self._segment, table, batches):
            if problem.entry is not None:
                if problem.entry == told:
                    continue
                told = problem.entry
                at = problem.entry * file.entry_size
                if file is _OFFSETS:
                    relative, position = OFFSET_ENTRY.unpack_from(table, at)
                else:
                    relative, position = TIME_ENTRY.unpack_from(table, at)[1], None
                offset = base_offset + relative
                if (is_short and offset >= end) or not self._salvage.has_read_offset(offset):
                    continue
                if position is not None and not self._salvage.has_read(position):
                    continue
            yield problem


def _key_index_findings(subject: Subject, segment: Segment, salvage: Salvage) -> list[Finding]:
    if subject.is_last and (subject.is_live or _has_grown(subject, segment)):
        return []
    if not subject.is_ours:
        return []  # left from before a broker's visit: no reader uses it
    problem = key_index_problem(segment, salvage.state, is_whole=not salvage.damages)
    if problem is None:
        return []
    severity = Severity.ERROR if problem.is_damage else Severity.WARNING
    return [subject.finding(Kind.KEY_INDEX, severity, problem.reason, path=problem.path)]
