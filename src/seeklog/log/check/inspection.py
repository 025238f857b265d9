"""Inspecting the files of a partition: every batch, every index entry, seals and promises.

The work has three steps, so that the second can run in many processes. `plan_inspection` lists the directory and takes
every file's size, once. `inspect_segment` compares the files of one segment with each other and with the plan.
`conclude` drops the findings that a concurrent writer explains. Nothing on disk changes, and nothing is locked.

`inspect_records` and `inspect_snapshots` check the rest, which costs more or is only advice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from seeklog import names
from seeklog.config import INT64_MAX, LogConfig
from seeklog.errors import CorruptionError, counted
from seeklog.files import Files, FileStatus, OsFiles
from seeklog.log.broker_visit import known_checkpoint
from seeklog.log.check.finding import Finding, Kind, Severity
from seeklog.log.check.salvage import Damage, Salvage
from seeklog.log.check.segment_check import SegmentCheck
from seeklog.log.check.segment_task import SegmentTask
from seeklog.log.directory import has_broker
from seeklog.log.recovery import list_beside_writer
from seeklog.log.segment import Segment, Shared
from seeklog.log.side.checkpoint import Checkpoint
from seeklog.log.side.producer_snapshot import decode_snapshot
from seeklog.log.view import mark_gaps
from seeklog.record.batch import decode_records


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A partition's segments, and the problems of the partition as a whole."""

    directory: str
    checkpoint: Checkpoint | None
    tasks: tuple[SegmentTask, ...]
    findings: tuple[Finding, ...] = ()


@dataclass(slots=True, kw_only=True)
class Inspection:
    """The result for one segment. It can be sent to another process."""

    base_offset: int
    findings: list[Finding] = field(default_factory=list)
    batch_count: int = 0
    record_count: int = 0
    size: int = 0
    """The number of bytes checked."""
    is_gone: bool = False
    """Whether the segment had disappeared."""
    damages: list[Damage] = field(default_factory=list)
    """Where the scan of its batches could not continue."""


def inspect_partition(
    directory: str, *, config: LogConfig | None = None, inherited: Checkpoint | None = None, files: Files | None = None
) -> list[Finding]:
    """Do all three steps in this process."""
    plan = plan_inspection(directory, config=config, inherited=inherited, files=files)
    return conclude(plan, [inspect_segment(task, files=files) for task in plan.tasks], files=files)


# ---------------------------------------------------------------- before


def plan_inspection(
    directory: str,
    *,
    config: LogConfig | None = None,
    inherited: Checkpoint | None = None,
    files: Files | None = None,
    is_locked_here: bool = False,
) -> Plan:
    """List a partition's directory. `inherited` is the partition's checkpoint from the root of a broker.

    The checkpoint is read before the file sizes, so the files contain what it promises, even with a concurrent writer.
    `is_locked_here` means that the caller holds the writer's lock, so that no other process can.
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
        # Segments below the log start offset were deleted; after a crash some may be back, with gaps among them.
        while len(segments) > 1 and segments[1].base_offset <= checkpoint.log_start_offset:
            segments.pop(0)
        findings += _lost_at_start(directory, segments, checkpoint)
        saved = checkpoint.active
    if saved is not None and not (segments and saved.is_of(segments[-1].base_offset, size=segments[-1].size)):
        saved = None
    # Checked after the sizes: a writer that was in the middle of a batch is then still running, or its file has grown.
    is_brokers = not is_ours and has_broker(files, directory)
    is_live = is_brokers or (is_ours and not is_locked_here and _is_locked(files, f"{directory}/{names.LOCK}"))
    # A broker may cut and recreate partitions, and writes its promises only once a minute.
    recovery_point = checkpoint.recovery_point if checkpoint is not None and not is_brokers else None
    if checkpoint is not None:
        mark_gaps(segments, checkpoint.gaps)
    followers: list[Segment | None] = [*segments[1:], None]
    tasks = tuple(
        SegmentTask(
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
    return Plan(directory=directory, checkpoint=checkpoint, tasks=tasks, findings=tuple(findings))


def _index_statuses(files: Files, directory: str, base_offset: int) -> Iterator[FileStatus | None]:
    for suffix in (names.OFFSET_INDEX, names.TIME_INDEX):
        yield _status(files, f"{directory}/{names.segment_name(base_offset, suffix)}")


def _status(files: Files, path: str) -> FileStatus | None:
    with contextlib.suppress(OSError):
        return files.status(path)
    return None


def _is_locked(files: Files, path: str) -> bool:
    with contextlib.suppress(OSError):
        return files.is_locked(path)
    return False


def _lost_at_start(directory: str, segments: list[Segment], checkpoint: Checkpoint) -> Iterator[Finding]:
    start, promised = checkpoint.log_start_offset, checkpoint.recovery_point
    if not segments and promised > start:
        detail = f"no segment is left, but offsets {start} to {promised - 1} were synced"
        yield Finding(kind=Kind.GAP, severity=Severity.ERROR, path=directory, offset=start, detail=detail)
    if segments and segments[0].base_offset > start and not checkpoint.foreign:
        detail = f"the first segment starts at offset {segments[0].base_offset}, but the log starts at {start}"
        yield Finding(kind=Kind.GAP, severity=Severity.ERROR, path=segments[0].path, offset=start, detail=detail)


# ---------------------------------------------------------------- one segment


def inspect_segment(task: SegmentTask, *, files: Files | None = None) -> Inspection:
    """Check every batch of a segment, every index entry, its seal, and that no promised record is missing."""
    shared = Shared(files or OsFiles(), task.directory, task.config, writable=False)
    result = Inspection(base_offset=task.base_offset)
    try:
        check = SegmentCheck(task, shared, result.findings)
        result.batch_count, result.record_count = check.state.batch_count, check.state.record_count
        result.size, result.damages = task.size, check.salvage.damages
        check.check_indexes()
    except FileNotFoundError:
        result.is_gone = True
    except OSError as error:
        result.findings.append(task.finding(Kind.UNREADABLE, Severity.ERROR, str(error)))
    finally:
        shared.clear()
    return result


def inspect_records(
    task: SegmentTask, *, files: Files | None = None, advance: Callable[[int], None] | None = None
) -> list[Finding]:
    """Read every record of a segment's whole batches; return a finding for each batch that fails.

    The CRCs are valid, so any problem found here was already in the bytes when they were written.
    """
    shared = Shared(files or OsFiles(), task.directory, task.config, writable=False)
    findings = []
    try:
        salvage = Salvage(task.segment_in(shared), INT64_MAX, shared.new_state, end_offset=task.end_offset)
        for position, batch in salvage.batches():
            try:
                decode_records(batch.raw, limit=task.config.max_decompressed_bytes)
            except CorruptionError as error:
                at = batch.base_offset
                findings.append(task.finding(Kind.RECORDS, Severity.ERROR, error.reason, position=position, offset=at))
            if advance is not None:
                advance(batch.header.size)
    except OSError:
        pass  # the inspection before has reported it
    finally:
        shared.clear()
    return findings


def inspect_snapshots(plan: Plan, *, files: Files | None = None) -> list[Finding]:
    """Check the producer snapshots of a partition."""
    files = files or OsFiles()
    findings = []
    with contextlib.suppress(OSError):
        for name in sorted(files.list(plan.directory)):
            if not (name.endswith(names.SNAPSHOT) and names.parse_segment_name(name)):
                continue
            path = f"{plan.directory}/{name}"
            with contextlib.suppress(OSError):
                data = files.read_file(path)
                if decode_snapshot(data) is None:
                    detail = f"{counted(len(data), 'byte is', 'bytes are')} not a valid producer snapshot"
                    finding = Finding(
                        kind=Kind.SNAPSHOT, severity=Severity.WARNING, path=path, detail=detail, position=0
                    )
                    findings.append(finding)
    return findings


# ---------------------------------------------------------------- after


def conclude(plan: Plan, inspections: Iterable[Inspection], *, files: Files | None = None) -> list[Finding]:
    """Return the findings of a partition, without those that a writer's deletions or cuts explain."""
    files = files or OsFiles()
    before = now = plan.checkpoint
    try:
        files.list(plan.directory)
        now = known_checkpoint(files, plan.directory, inherited=before) or before
    except FileNotFoundError:
        return [] if plan.tasks else list(plan.findings)  # the topic was deleted, or the directory never existed
    except (OSError, CorruptionError):
        pass  # reported already
    if before is not None and now is not None and now.generation != before.generation:
        return [_changed(plan, "the end of the log was cut during the inspection; inspect it again")]
    start = now.log_start_offset if now is not None else 0
    by_base = {inspection.base_offset: inspection for inspection in inspections}
    findings = [finding for finding in plan.findings if finding.offset is None or finding.offset >= start]
    overtaken = {task.base_offset for task in plan.tasks if _is_overtaken(task, files)}
    if overtaken:
        segments = counted(len(overtaken), "segment was", "segments were")
        cause = "replaced or deleted by a broker during the inspection; inspect the partition again"
        findings.append(_changed(plan, f"{segments} {cause}"))
    for task in plan.tasks:
        if task.base_offset in overtaken or task.next_base_offset in overtaken:
            continue
        inspection = by_base.get(task.base_offset)
        if inspection is None or (task.next_base_offset is not None and task.next_base_offset <= start):
            continue
        if inspection.is_gone and task.is_last and task.base_offset < start:
            continue  # the segment was rolled and deleted
        if inspection.is_gone:
            detail = "the segment disappeared after the directory was listed"
            findings.append(task.finding(Kind.UNREADABLE, Severity.ERROR, detail, offset=task.base_offset))
        findings += inspection.findings
    return findings


def _changed(plan: Plan, detail: str) -> Finding:
    return Finding(kind=Kind.CHANGED, severity=Severity.NOTE, path=plan.directory, detail=detail)


def _is_overtaken(task: SegmentTask, files: Files) -> bool:
    """Return whether a broker has replaced or deleted a segment's files since the inspection was planned."""
    if task.is_ours:
        return False  # seeklog's writer records the change in its checkpoint
    now = (
        _status(files, task.path),
        *_index_statuses(files, task.directory, task.base_offset),
    )
    for before, after in zip(task.listed, now, strict=True):
        if before is None or after is None or before.identity != after.identity:
            if before != after:
                return True
        elif before.size != after.size and not task.is_last:
            return True
    return False


def has_changed(findings: Iterable[Finding]) -> bool:
    """Return whether files were replaced during an inspection, so that it should be repeated."""
    return any(finding.kind is Kind.CHANGED for finding in findings)
