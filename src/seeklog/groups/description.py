"""Snapshots of a group and of its lag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from seeklog.groups.records import CommittedOffset, Member
from seeklog.names import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """One group at one moment."""

    name: str
    generation: int
    members: tuple[Member, ...]
    committed: Mapping[TopicPartition, CommittedOffset]

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The committed offsets: for each partition the offset of the next record to read."""
        return {partition: committed.offset for partition, committed in self.committed.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """The lag of a group in one partition."""

    topic: str
    partition: int
    committed: int | None
    """The committed offset, or None."""
    log_start_offset: int
    high_watermark: int
    lag: int
    """The number of offsets from the committed one to the high watermark; without one, from the log start offset."""
    member_id: str | None
