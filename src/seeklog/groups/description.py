"""What a group looks like at one moment, and how far it is behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from seeklog.groups.records import CommittedOffset, Member
from seeklog.names import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """One group as it is now."""

    name: str
    generation: int
    members: tuple[Member, ...]
    committed: Mapping[TopicPartition, CommittedOffset]

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The next offset that the group reads of each partition that it has committed."""
        return {partition: committed.offset for partition, committed in self.committed.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """How far a group is behind in one partition."""

    topic: str
    partition: int
    committed: int | None
    """The next offset that the group reads, or None if it has committed none."""
    log_start_offset: int
    high_watermark: int
    lag: int
    """How many offsets lie between; all that are kept, if nothing was committed."""
    member_id: str | None
