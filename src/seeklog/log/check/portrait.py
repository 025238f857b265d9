"""A picture of a partition: its segments with their files, index points and damage, and its offsets.

Only the directory, seals, indexes, and the headers of unsealed segments are read. With `is_checked` every byte is
checked, and damage is included. A partition that cannot be opened still has a portrait; `problem` gives the reason.
Nothing on disk changes, and nothing is locked.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from seeklog import names
from seeklog.config import INT64_MAX, LogConfig
from seeklog.errors import CorruptionError, SeeklogError
from seeklog.files import Files, OsFiles
from seeklog.log.check.finding import Finding, Severity
from seeklog.log.check.inspection import Inspection, Plan, conclude, inspect_segment, plan_inspection
from seeklog.log.check.salvage import Damage
from seeklog.log.check.segment_task import SegmentTask
from seeklog.log.headers import first_timestamp_ms, scan_headers
from seeklog.log.host import Host, OpenSegments
from seeklog.log.index import OFFSET_ENTRY, TIME_ENTRY, read_entries
from seeklog.log.reader import LogReader
from seeklog.log.segment import Shared
from seeklog.log.side.checkpoint import Checkpoint
from seeklog.log.side.seal import Seal, read_seal
from seeklog.names import TopicPartition
from seeklog.record.batch import BatchHeader

_FILES_AT_ONCE: Final = 16
_SIDE_FILES: Final = (names.OFFSET_INDEX, names.TIME_INDEX, names.SEAL, names.KEY_INDEX, names.TRANSACTION_INDEX)


@dataclass(slots=True, kw_only=True)
class SegmentPortrait:
    """One segment."""

    base_offset: int
    next_offset: int
    """The base offset of the next segment, or the log end offset."""
    size_bytes: int
    is_active: bool
    seal: Seal | None = None
    batch_count: int | None = 0
    record_count: int | None = 0
    """None if the headers, the only source, cannot be read."""
    first_timestamp_ms: int | None = None
    max_timestamp_ms: int | None = None
    side_files: Mapping[str, int] = field(default_factory=dict)
    """The sizes of the files next to the log, by suffix."""
    index_points: tuple[tuple[int, int], ...] = ()
    """The offset and position of each entry of the offset index."""
    time_points: int = 0
    damages: tuple[Damage, ...] = ()

    @property
    def clean_offset(self) -> int:
        """Compaction has seen every record below this offset."""
        return self.seal.clean_offset if self.seal is not None else 0

    def add_headers(self, headers: Iterable[BatchHeader]) -> None:
        """Count batches while their headers can be read; for a sealed segment, read only the first."""
        batches = records = 0
        for header in headers:
            if not batches:
                first_ms = first_timestamp_ms(header)
                self.first_timestamp_ms = first_ms if first_ms >= 0 else header.max_timestamp_ms
            batches += 1
            records += header.record_count
            self.max_timestamp_ms = max(self.max_timestamp_ms or header.max_timestamp_ms, header.max_timestamp_ms)
            self.next_offset = header.next_offset
            if self.seal is not None:
                break
        self.batch_count, self.record_count = batches, records


@dataclass(slots=True, kw_only=True)
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
    """Whether seeklog has written it, rather than only a broker."""
    torn_files: Mapping[str, int]
    """The sizes of files with bytes that recovery cut or a repair quarantined, by name."""
    findings: tuple[Finding, ...] = ()
    problem: str = ""
    """Why the partition cannot be opened."""

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
    """Return the portrait of a partition. `inherited` is its checkpoint from the root of a broker.

    `advance` is called with the number of bytes checked, once per segment.
    """
    files, config = files or OsFiles(), config or LogConfig()
    plan = plan_inspection(directory, config=config, inherited=inherited, files=files)
    listing = files.list(directory)
    inspections: dict[int, Inspection] = {}
    if is_checked:
        for task in plan.tasks:
            inspections[task.base_offset] = inspect_segment(task, files=files)
            if advance is not None:
                advance(task.size)
    shared = Shared(files, directory, config, writable=False)
    try:
        segments = [_segment(task, shared, listing, inspections.get(task.base_offset)) for task in plan.tasks]
    finally:
        shared.clear()
    findings = conclude(plan, inspections.values(), files=files) if is_checked else plan.findings
    portrait = _without_log(plan, segments, listing, files)
    portrait.findings = tuple(findings)
    partition = names.parse_partition_name(directory.rpartition("/")[2]) or TopicPartition("log", 0)
    host = Host(source=partition, open_segments=OpenSegments(_FILES_AT_ONCE), inherited=lambda: inherited)
    try:
        with LogReader(directory, config=config, files=files, host=host) as log:
            portrait.log_start_offset, portrait.log_end_offset = log.log_start_offset, log.log_end_offset
            portrait.high_watermark, portrait.recovery_point = log.high_watermark, log.recovery_point
            portrait.leader_epoch = log.leader_epoch
            if segments:
                segments[-1].next_offset = max(log.log_end_offset, segments[-1].base_offset)
    except (SeeklogError, OSError) as error:
        portrait.problem = str(error).splitlines()[0]
    return portrait


def _without_log(plan: Plan, segments: list[SegmentPortrait], listing: list[str], files: Files) -> Portrait:
    """Return the facts that are known without opening the log."""
    checkpoint = plan.checkpoint
    end = segments[-1].next_offset if segments else 0
    first = segments[0].base_offset if segments else 0
    kept = [name for name in sorted(listing) if name.endswith((names.TORN, names.DAMAGED))]
    return Portrait(
        directory=plan.directory,
        segments=tuple(segments),
        log_start_offset=max(first, checkpoint.log_start_offset) if checkpoint is not None else first,
        high_watermark=min(end, checkpoint.high_watermark) if checkpoint is not None else end,
        log_end_offset=end,
        recovery_point=checkpoint.recovery_point if checkpoint is not None else first,
        leader_epoch=max((epoch for epoch, _ in checkpoint.epochs), default=-1) if checkpoint is not None else -1,
        is_ours=names.CHECKPOINT in listing,
        torn_files={name: files.file_size(f"{plan.directory}/{name}") for name in kept},
    )


def _segment(task: SegmentTask, shared: Shared, listing: list[str], inspection: Inspection | None) -> SegmentPortrait:
    files = shared.files
    beside = [suffix for suffix in _SIDE_FILES if names.segment_name(task.base_offset, suffix) in listing]
    portrait = SegmentPortrait(
        base_offset=task.base_offset,
        next_offset=task.base_offset,
        size_bytes=task.size,
        is_active=task.is_last,
        seal=None if task.is_last else read_seal(files, task.directory, task.base_offset),
        side_files={suffix: files.file_size(task.path_of(suffix)) for suffix in beside},
        index_points=tuple(_points(files, task)),
        time_points=len(_entries(files, task, names.TIME_INDEX, TIME_ENTRY)) // TIME_ENTRY.size,
        damages=_damages(task, inspection),
    )
    try:
        portrait.add_headers(header for _, header in scan_headers(task.segment_in(shared), 0, INT64_MAX))
    except (CorruptionError, OSError):
        portrait.batch_count = portrait.record_count = None
    if portrait.seal is not None:
        portrait.batch_count, portrait.record_count = portrait.seal.batch_count, portrait.seal.record_count
        portrait.max_timestamp_ms = portrait.seal.max_timestamp_ms
    if task.next_base_offset is not None:
        portrait.next_offset = task.next_base_offset
    return portrait


def _points(files: Files, task: SegmentTask) -> list[tuple[int, int]]:
    table = _entries(files, task, names.OFFSET_INDEX, OFFSET_ENTRY)
    points = [(task.base_offset + relative, position) for relative, position in OFFSET_ENTRY.iter_unpack(table)]
    # An entry that is not greater than the one before is damaged, and is not an index point.
    grown = [points[0]] if points and points[0] != (task.base_offset, 0) else []
    grown += [point for before, point in pairwise(points) if point[1] > before[1] and point[1] < task.size]
    return grown


def _entries(files: Files, task: SegmentTask, suffix: str, entry: struct.Struct) -> bytes:
    try:
        return read_entries(files, task.path_of(suffix), entry)
    except OSError:
        return b""


def _damages(task: SegmentTask, inspection: Inspection | None) -> tuple[Damage, ...]:
    if inspection is None:
        return ()
    reported = {finding.position for finding in inspection.findings if finding.severity is not Severity.NOTE}
    return tuple(damage for damage in inspection.damages if damage.start in reported)
