"""What a topic looks like at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from seeklog.config import LogConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """One partition as it is now."""

    partition: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    segment_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """One topic as it is now."""

    name: str
    topic_id: str
    config: LogConfig
    """What holds for its partitions."""
    configured: Mapping[str, Any]
    """What of that was set for this topic, in Kafka's words."""
    partitions: tuple[PartitionDescription, ...]

    @property
    def size_bytes(self) -> int:
        return sum(partition.size_bytes for partition in self.partitions)

    @property
    def record_count(self) -> int:
        """How many offsets are kept; compaction may have left fewer records."""
        return sum(partition.high_watermark - partition.log_start_offset for partition in self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Archived:
    """What an archiving has done."""

    location: str
    copied_segments: int
    copied_bytes: int
    kept_segments: int
    """Segments that were there already, of the topics that were archived."""
    removed_files: int
    """Files of segments that an earlier archiving had replaced."""
