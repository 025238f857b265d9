"""The data of the page, without references to files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from seeklog.groups.description import PartitionLag
from seeklog.log.check import Finding
from seeklog.record.sketch import Keys, Sizes, Throughput

# About ten megabytes.
MAX_KEY_COUNTERS: Final = 1 << 16

Times = tuple[int, int]
"""The first and the last time, in milliseconds."""


def union(times: Iterable[Times | None]) -> Times | None:
    """Return the first and the last of all times; None if there are none."""
    known = [pair for pair in times if pair is not None]
    return (min(first for first, _ in known), max(last for _, last in known)) if known else None


@dataclass(kw_only=True)
class SegmentFacts:
    """One segment."""

    base_offset: int
    next_offset: int
    size: int
    is_sealed: bool
    is_active: bool
    records: int = 0
    batches: int = 0
    times: Times | None = None
    index_entries: int = 0
    index_positions: list[int] = field(default_factory=list)
    """Byte positions of index entries, evenly thinned if there are many."""
    codecs: Counter[str] = field(default_factory=Counter)
    """Stored bytes by codec."""
    sampled_bytes: int = 0
    """Stored bytes of the compressed batches in the sample."""
    sampled_raw_bytes: int = 0
    damage: list[int] = field(default_factory=list)
    """Damaged byte positions in the log; -1 for a damaged side file."""
    problem: str = ""
    """Why it could not be read completely."""

    @property
    def raw_bytes(self) -> float:
        """The estimated size without compression."""
        compressed = sum(size for codec, size in self.codecs.items() if codec != "none")
        ratio = self.sampled_raw_bytes / self.sampled_bytes if self.sampled_bytes else 1.0
        return self.codecs["none"] + compressed * ratio


@dataclass(kw_only=True)
class PartitionFacts:
    """One partition."""

    partition: int
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    recovery_point: int
    needs_recovery: bool
    segments: list[SegmentFacts] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    marks: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The marks of the map: the number of the segment, and the byte in it."""
    problem: str = ""

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def records(self) -> int:
        return self.high_watermark - self.log_start_offset


@dataclass(kw_only=True)
class TopicFacts:
    """One topic: its partitions and their totals."""

    name: str
    configured: dict[str, Any]
    partitions: list[PartitionFacts] = field(default_factory=list)
    stored: Throughput = field(default_factory=lambda: Throughput(1))
    """Records and stored bytes over time, from the headers of batches."""
    read: Throughput = field(default_factory=lambda: Throughput(1))
    """Records, and bytes of keys and values, over time, of the records that were read."""
    batch_sizes: Sizes = field(default_factory=Sizes)
    record_sizes: Sizes = field(default_factory=Sizes)
    keys: Keys = field(default_factory=lambda: Keys(max_counters=MAX_KEY_COUNTERS))
    null_keys: int = 0
    tombstones: int = 0
    lateness: Sizes = field(default_factory=Sizes)
    """For each late record, its distance in milliseconds to the latest record before it."""
    records_read: int = 0
    """The number of records that were read for sizes, keys and lateness."""
    records_seen: int = 0
    """The number of records in the headers of batches."""

    @property
    def size(self) -> int:
        return sum(partition.size for partition in self.partitions)

    @property
    def records(self) -> int:
        return sum(partition.records for partition in self.partitions)

    @property
    def segments(self) -> list[SegmentFacts]:
        return [segment for partition in self.partitions for segment in partition.segments]

    @property
    def times(self) -> Times | None:
        return union(segment.times for segment in self.segments)

    @property
    def findings(self) -> list[Finding]:
        return [finding for partition in self.partitions for finding in partition.findings]

    @property
    def is_sampled(self) -> bool:
        return self.records_read < self.records_seen


@dataclass(kw_only=True)
class StoreFacts:
    """A store at one moment."""

    location: str
    made_at_ms: int
    topics: list[TopicFacts] = field(default_factory=list)
    left_out: list[str]
    """The names of smaller topics, which were not read."""
    lags: dict[str, list[PartitionLag]] = field(default_factory=dict)
    """By group."""
    is_checked: bool
    """Whether checksums were verified."""
    problems: list[str] = field(default_factory=list)
