"""What a partition looks like: its segments with their files, index points and damage, and the offsets that mark it.

Only what is there is read: the directory, seals, indexes, and the headers of a segment that has no seal. With
`is_checked` every byte is, too, and damage has its place. A partition that cannot be opened still has a portrait, and
`problem` says why. Nothing on disk changes, and nothing is locked.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from seeklog import names
from seeklog.config import INT64_MAX, LogConfig
from seeklog.errors import CorruptionError, SeeklogError
from seeklog.files import Files, OsFiles
from seeklog.log.check.finding import Finding, Severity
from seeklog.log.check.inspection import Inspection, Plan, conclude, inspect_segment, plan_inspection
from seeklog.log.check.subject import Subject
from seeklog.log.headers import first_timestamp_ms, scan_headers
from seeklog.log.host import Host, OpenSegments
from seeklog.log.index import OFFSET_ENTRY, TIME_ENTRY, read_entries
from seeklog.log.reader import LogReader
from seeklog.log.segment import Segment, Shared
from seeklog.log.side.checkpoint import Checkpoint
from seeklog.log.side.seal import Seal, read_seal
from seeklog.names import TopicPartition

_FILES_AT_ONCE: Final = 16
_SIDE_FILES: Final = (names.OFFSET_INDEX, names.TIME_INDEX, names.SEAL, names.KEY_INDEX, names.TRANSACTION_INDEX)


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedBytes:
    """A range of a `.log` file in which no whole batch stands."""

    start: int
    stop: int
    offset: int
    """The offset that should have come there."""
    next_offset: int | None
    """The offset with which whole batches go on; None: none does."""
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentPortrait:
    """One segment."""

    base_offset: int
    next_offset: int
    """Where the next segment begins, or the log ends."""
    size_bytes: int
    is_active: bool
    seal: Seal | None = None
    batch_count: int | None = None
    record_count: int | None = None
    """None: only its headers tell, and they do not read."""
    first_timestamp_ms: int | None = None
    max_timestamp_ms: int | None = None
    side_files: Mapping[str, int] = field(default_factory=dict)
    """The sizes of the files beside the log, by suffix."""
    index_points: tuple[tuple[int, int], ...] = ()
    """Offset and position of each entry of the offset index."""
    time_points: int = 0
    damages: tuple[DamagedBytes, ...] = ()

    @property
    def clean_offset(self) -> int:
        """Below it compaction has seen every record."""
        return self.seal.clean_offset if self.seal is not None else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Portrait:
    """One partition."""

    directory: str
    segments: tuple[SegmentPortrait, ...]
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    recovery_point: int
    leader_epoch: int
    is_ours: bool
    """Whether seeklog has written it, and not a broker alone."""
    torn_files: Mapping[str, int]
    """What recovery or a repair has set aside, with its size."""
    findings: tuple[Finding, ...] = ()
    problem: str = ""
    """Why it cannot be opened."""

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)


def take_portrait(
    directory: str,
    *,
    config: LogConfig | None = None,
    inherited: Checkpoint | None = None,
    files: Files | None = None,
    is_checked: bool = False,
    advance: Callable[[int], None] | None = None,
) -> Portrait:
    """Look at a partition. `inherited` is what a broker's checkpoints in the root say of it.

    `advance` is told how many bytes were checked, segment by segment.
    """
    files, config = files or OsFiles(), config or LogConfig()
    plan = plan_inspection(directory, config=config, inherited=inherited, files=files)
    listing = files.list(directory)
    shared = Shared(files, directory, config, writable=False)
    inspections: dict[int, Inspection] = {}
    if is_checked:
        for subject in plan.subjects:
            inspections[subject.base_offset] = inspect_segment(subject, files=files)
            if advance is not None:
                advance(subject.size)
    try:
        segments = [
            _segment(subject, shared, listing, inspections.get(subject.base_offset)) for subject in plan.subjects
        ]
    finally:
        shared.clear()
    findings = conclude(plan, inspections.values(), files=files) if is_checked else plan.findings
    blank = _blank(plan, segments, listing, files)
    partition = names.parse_partition_name(directory.rpartition("/")[2]) or TopicPartition("log", 0)
    host = Host(source=partition, open_segments=OpenSegments(_FILES_AT_ONCE), inherited=lambda: inherited)
    try:
        with LogReader(directory, config=config, files=files, host=host) as log:
            if segments:
                segments[-1] = replace(segments[-1], next_offset=max(log.log_end_offset, segments[-1].base_offset))
            return replace(
                blank,
                segments=tuple(segments),
                log_start_offset=log.log_start_offset,
                high_watermark=log.high_watermark,
                log_end_offset=log.log_end_offset,
                recovery_point=log.recovery_point,
                leader_epoch=log.leader_epoch,
                findings=tuple(findings),
            )
    except (SeeklogError, OSError) as error:
        return replace(blank, findings=tuple(findings), problem=str(error).splitlines()[0])


def _blank(plan: Plan, segments: list[SegmentPortrait], listing: list[str], files: Files) -> Portrait:
    """Return what is known without opening the log."""
    checkpoint = plan.checkpoint
    end = segments[-1].next_offset if segments else 0
    first = segments[0].base_offset if segments else 0
    kept = {}
    for name in sorted(listing):
        if name.endswith((names.TORN, names.DAMAGED)):
            kept[name] = files.file_size(f"{plan.directory}/{name}")
    return Portrait(
        directory=plan.directory,
        segments=tuple(segments),
        log_start_offset=max(first, checkpoint.log_start_offset) if checkpoint is not None else first,
        high_watermark=min(end, checkpoint.high_watermark) if checkpoint is not None else end,
        log_end_offset=end,
        recovery_point=checkpoint.recovery_point if checkpoint is not None else first,
        leader_epoch=max((epoch for epoch, _ in checkpoint.epochs), default=-1) if checkpoint is not None else -1,
        is_ours=names.CHECKPOINT in listing,
        torn_files=kept,
    )


def _segment(subject: Subject, shared: Shared, listing: list[str], inspection: Inspection | None) -> SegmentPortrait:
    files, is_active = shared.files, subject.is_last
    seal = None if is_active else read_seal(files, subject.directory, subject.base_offset)
    segment = subject.segment_in(shared)
    census = _Census(segment, is_all=seal is None)
    beside = {}
    for suffix in _SIDE_FILES:
        if names.segment_name(subject.base_offset, suffix) in listing:
            beside[suffix] = files.file_size(subject.path_of(suffix))
    end = subject.next_base_offset
    return SegmentPortrait(
        base_offset=subject.base_offset,
        next_offset=end if end is not None else max(census.next_offset, subject.base_offset),
        size_bytes=subject.size,
        is_active=is_active,
        seal=seal,
        batch_count=seal.batch_count if seal is not None else census.batches,
        record_count=seal.record_count if seal is not None else census.records,
        first_timestamp_ms=census.first_ms,
        max_timestamp_ms=seal.max_timestamp_ms if seal is not None else census.max_ms,
        side_files=beside,
        index_points=tuple(_points(files, subject)),
        time_points=len(_entries(files, subject, names.TIME_INDEX, TIME_ENTRY)) // TIME_ENTRY.size,
        damages=_damages(subject, inspection),
    )


class _Census:
    """What the headers of a segment tell, up to where they can be read; of a sealed one the first is enough."""

    def __init__(self, segment: Segment, *, is_all: bool) -> None:
        self.first_ms: int | None = None
        self.max_ms: int | None = None
        self.batches: int | None = 0
        self.records: int | None = 0
        self.next_offset = segment.base_offset
        batches = records = 0
        try:
            for _, header in scan_headers(segment, segment.base_offset, INT64_MAX):
                if not batches:
                    first = first_timestamp_ms(header)
                    self.first_ms = first if first >= 0 else header.max_timestamp_ms
                batches += 1
                records += header.record_count
                self.max_ms = max(self.max_ms or header.max_timestamp_ms, header.max_timestamp_ms)
                self.next_offset = header.next_offset
                if not is_all:
                    break
            self.batches, self.records = batches, records
        except (CorruptionError, OSError):
            self.batches = self.records = None


def _points(files: Files, subject: Subject) -> list[tuple[int, int]]:
    table = _entries(files, subject, names.OFFSET_INDEX, OFFSET_ENTRY)
    points = [(subject.base_offset + relative, position) for relative, position in OFFSET_ENTRY.iter_unpack(table)]
    # An entry that does not grow is damaged: it is no index point.
    grown = [points[0]] if points and points[0] != (subject.base_offset, 0) else []
    grown += [point for before, point in pairwise(points) if point[1] > before[1] and point[1] < subject.size]
    return grown


def _entries(files: Files, subject: Subject, suffix: str, entry: struct.Struct) -> bytes:
    try:
        return read_entries(files, subject.path_of(suffix), entry)
    except OSError:
        return b""


def _damages(subject: Subject, inspection: Inspection | None) -> tuple[DamagedBytes, ...]:
    if inspection is None:
        return ()
    told = {finding.position for finding in inspection.findings if finding.severity is not Severity.NOTE}
    return tuple(
        DamagedBytes(
            start=damage.position,
            stop=subject.size if damage.resumed_at is None else damage.resumed_at,
            offset=damage.offset,
            next_offset=damage.resumed_offset,
            kind=damage.kind.value,
        )
        for damage in inspection.damages
        if damage.position in told
    )
