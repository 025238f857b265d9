"""What the page shows, in figures: plain data without a way back to the files."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from seeklog.groups.description import PartitionLag
from seeklog.log.check import Finding
from seeklog.record.sketch import Keys, Sizes, Throughput

# A process of one's own can afford more than each of many tasks: some ten megabytes.
KEYS_COUNTED: Final = 1 << 16


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
    first_ms: int | None = None
    last_ms: int | None = None
    index_entries: int = 0
    index_positions: list[int] = field(default_factory=list)
    """Byte positions of index entries; evenly thinned where there are many."""
    codecs: Counter[str] = field(default_factory=Counter)
    """Stored bytes by codec."""
    sampled_bytes: int = 0
    """Of how many stored bytes, in compressed batches, it is known what they were."""
    sampled_raw_bytes: int = 0
    damage: list[int] = field(default_factory=list)
    """Byte positions in the log where it is not what was written."""
    problem: str = ""
    """Why not all of it could be read."""

    @property
    def raw_bytes(self) -> float:
        """About how large the segment would be if nothing were compressed."""
        compressed = sum(size for codec, size in self.codecs.items() if codec != "none")
        ratio = self.sampled_raw_bytes / self.sampled_bytes if self.sampled_bytes else 1.0
        return self.codecs["none"] + compressed * ratio

    @property
    def ratio(self) -> float | None:
        """How many bytes of batches a stored byte stands for; None if there are none."""
        stored = sum(self.codecs.values())
        return self.raw_bytes / stored if stored else None

    @property
    def codec(self) -> str:
        """The codec of most of its bytes."""
        return self.codecs.most_common(1)[0][0] if self.codecs else "none"


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
    places: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Where a watermark lies: the number of the segment, and the byte in it."""
    problem: str = ""

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def records(self) -> int:
        return self.high_watermark - self.log_start_offset


@dataclass(kw_only=True)
class TopicFacts:
    """One topic: its partitions, and what all of them add up to."""

    name: str
    configured: dict[str, Any]
    partitions: list[PartitionFacts] = field(default_factory=list)
    stored: Throughput = field(default_factory=lambda: Throughput(1))
    """Records and stored bytes over time, as the headers of batches tell it."""
    read: Throughput = field(default_factory=lambda: Throughput(1))
    """Records, and the bytes of keys and values, over time: of those that were read."""
    batch_sizes: Sizes = field(default_factory=Sizes)
    record_sizes: Sizes = field(default_factory=Sizes)
    keys: Keys = field(default_factory=lambda: Keys(counters_most=KEYS_COUNTED))
    null_keys: int = 0
    tombstones: int = 0
    lateness: Sizes = field(default_factory=Sizes)
    """By how many milliseconds records are behind the latest before them, of those that are."""
    records_read: int = 0
    """Of how many records sizes, keys and lateness are known."""
    records_seen: int = 0
    """How many there are by the headers of batches."""

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
    def first_ms(self) -> int | None:
        return min((each.first_ms for each in self.segments if each.first_ms is not None), default=None)

    @property
    def last_ms(self) -> int | None:
        return max((each.last_ms for each in self.segments if each.last_ms is not None), default=None)

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
    version: str
    topics: list[TopicFacts]
    left_out: list[str]
    """Topics that are in the table only, because there are so many."""
    lags: dict[str, list[PartitionLag]]
    """By group."""
    is_checked: bool
    """Whether every byte was held against its checksum."""
    problems: list[str] = field(default_factory=list)
