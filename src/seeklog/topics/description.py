"""Snapshots of topics and partitions, and the result of archiving."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seeklog.config import LogConfig


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
class Archived:
    """The result of archiving."""

    location: str
    copied_segments: int
    copied_bytes: int
    kept_segments: int
    """Segments of the archived topics that were in the archive already."""
    removed_files: int
    """Files of segments that an earlier archive run had replaced."""
