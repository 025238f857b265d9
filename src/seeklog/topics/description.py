"""Snapshots of topics and partitions, and the results of archiving and of restoring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seeklog.config import LogConfig
from seeklog.log import LogReader, take_snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """One partition at one moment."""

    partition: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    segment_count: int


def empty_partition(partition: int) -> PartitionDescription:
    """Return the description of a new partition."""
    return PartitionDescription(
        partition=partition, log_start_offset=0, high_watermark=0, log_end_offset=0, size_bytes=0, segment_count=1
    )


def describe_partition(log: LogReader, *, partition: int) -> PartitionDescription:
    """Return the description of a partition, from one look at its log."""
    seen = take_snapshot(log)
    return PartitionDescription(
        partition=partition,
        log_start_offset=seen.log_start_offset,
        high_watermark=seen.high_watermark,
        log_end_offset=seen.log_end_offset,
        size_bytes=seen.size_bytes,
        segment_count=len(seen.view.segments),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """One topic at one moment."""

    name: str
    topic_id: str
    config: LogConfig
    """The effective configuration."""
    configured: Mapping[str, Any]
    """The settings of this topic itself, by Kafka's names."""
    partitions: tuple[PartitionDescription, ...]

    @property
    def size_bytes(self) -> int:
        return sum(partition.size_bytes for partition in self.partitions)

    @property
    def record_count(self) -> int:
        """The number of offsets kept. After compaction there may be fewer records."""
        return sum(partition.high_watermark - partition.log_start_offset for partition in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedPartition:
    """How much of one partition is in an archive."""

    topic: str
    partition: int
    archived_end_offset: int | None
    """The offset after the last archived record, or None if nothing is archived."""
    log_start_offset: int | None
    """The first offset of the log in the store, or None if the log cannot be read."""
    high_watermark: int | None
    """The offset up to which the log in the store can be read, exclusive; None if the log cannot be read."""
    newest_timestamp_ms: int | None
    """The newest timestamp of the last archived records, or None if no record has one."""

    @property
    def missing_records(self) -> int | None:
        """The number of offsets in the store's log that are not in the archive; None if the log cannot be read."""
        if self.high_watermark is None or self.log_start_offset is None:
            return None
        return max(0, self.high_watermark - max(self.archived_end_offset or 0, self.log_start_offset))


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """The result of archiving."""

    location: str
    copied_segments: int
    copied_bytes: int
    kept_segments: int
    """Segments of the archived topics that were in the archive already."""
    removed_files: int
    """Files of segments that an earlier archive run had replaced."""
    partitions: tuple[ArchivedPartition, ...] = ()
    """How much of each partition is in the archive."""

    @property
    def missing_records(self) -> int:
        """The number of offsets in the store's logs that are not in the archive, of all logs that can be read."""
        return sum(partition.missing_records or 0 for partition in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredGap:
    """Offsets that an archive declares missing: they were deleted before they were archived."""

    topic: str
    partition: int
    first_offset: int
    next_offset: int
    """The offset after the last missing one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedOffset:
    """A committed offset that was beyond the restored records, and was set back to their end."""

    group: str
    topic: str
    partition: int
    was: int
    now: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """The result of restoring."""

    directory: str
    location: str
    """The archive."""
    topics: tuple[str, ...]
    partitions: int
    segments: int
    records: int
    bytes: int
    """The bytes of the log files."""
    gaps: tuple[RestoredGap, ...] = ()
    moved_offsets: tuple[MovedOffset, ...] = ()
    torn_transactions: tuple[str, ...] = ()
    """Applications whose last transaction is only partly in the archive."""
