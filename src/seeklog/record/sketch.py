"""Statistics of many records in little memory. They can be merged: each task makes its own, the driver merges them.

Sizes      exact count, minimum, maximum and sum; percentiles within 3 %.
Throughput records and bytes by time, in buckets that double when there are too many.
Keys       the number of distinct keys: exact up to 16,384, then within about 1 %; and the most frequent ones: exact up
           to 4,096 distinct keys (or `max_counters`), then too low by at most a known error (Misra-Gries).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from seeklog.record.key_hash import hash_key

if TYPE_CHECKING:
    import pyarrow

# How many leading bits of a size are kept: the error is below 1 in 2 ** (EXACT_BITS - 1).
EXACT_BITS: Final = 6
MAX_BUCKETS: Final = 1024
HASHES_KEPT: Final = 16_384
COUNTERS_KEPT: Final = 4_096
HASH_SPACE: Final = 2**64


@dataclass
class Sizes:
    """The distribution of sizes."""

    count: int = 0
    total: int = 0
    least: int = 0
    most: int = 0
    by_class: Counter[int] = field(default_factory=Counter)

    def add(self, size: int, count: int = 1) -> None:
        """Count items of one size."""
        self.least = min(self.least, size) if self.count else size
        self.most = max(self.most, size)
        self.count += count
        self.total += size * count
        self.by_class[_class_of(size)] += count

    def add_counts(self, counts: Mapping[int, int]) -> None:
        """Add the number of items of each size."""
        for size, count in counts.items():
            self.add(size, count)

    def add_all(self, sizes: pyarrow.Array) -> None:
        """Count items whose sizes are int64 without nulls."""
        import pyarrow.compute as pc

        if not len(sizes):
            return
        extent = pc.min_max(sizes)
        added = Sizes(len(sizes), pc.sum(sizes).as_py(), extent["min"].as_py(), extent["max"].as_py())
        # Like `_class_of`, vectorized.
        bits = pc.floor(pc.log2(pc.max_element_wise(sizes, 1).cast("float64"))).cast("int64")
        shift = pc.max_element_wise(pc.subtract(bits, EXACT_BITS - 1), 0)
        middle = pc.shift_right(pc.shift_left(1, shift), 1)
        classes = pc.add(pc.shift_left(pc.shift_right(sizes, shift), shift), middle)
        for row in pc.value_counts(classes).to_pylist():
            added.by_class[row["values"]] = row["counts"]
        self.merge(added)

    def merge(self, other: Sizes) -> None:
        """Add the counts of another instance."""
        if other.count:
            self.least = min(self.least, other.least) if self.count else other.least
            self.most = max(self.most, other.most)
            self.count += other.count
            self.total += other.total
            self.by_class.update(other.by_class)

    def percentile(self, share: float) -> int:
        """Return a size that at least this share of the items does not exceed, up to rounding."""
        left = share * self.count
        for size in sorted(self.by_class):
            left -= self.by_class[size]
            if left <= 0:
                return max(self.least, min(size, self.most))
        return self.most


def _class_of(size: int) -> int:
    """Return a size reduced to its leading bits: the middle of all sizes that share them."""
    shift = size.bit_length() - EXACT_BITS
    return size if shift <= 0 else (size >> shift << shift) + (1 << shift >> 1)


@dataclass
class Throughput:
    """Records and bytes over time."""

    bucket_ms: int
    records: Counter[int] = field(default_factory=Counter)
    """Keyed by bucket number, counted from 1970."""
    size: Counter[int] = field(default_factory=Counter)

    def add(self, time_ms: int, *, records: int, size: int) -> None:
        """Count records of one time."""
        self.records[time_ms // self.bucket_ms] += records
        self.size[time_ms // self.bucket_ms] += size
        self._bound()

    def merge(self, other: Throughput) -> None:
        """Add the counts of another instance, using the coarser buckets of the two."""
        while self.bucket_ms < other.bucket_ms:
            self._coarsen()
        step = self.bucket_ms // other.bucket_ms
        for bucket, count in other.records.items():
            self.records[bucket // step] += count
            self.size[bucket // step] += other.size[bucket]
        self._bound()

    def _bound(self) -> None:
        while len(self.records) > MAX_BUCKETS:
            self._coarsen()

    def _coarsen(self) -> None:
        self.bucket_ms *= 2
        for name in ("records", "size"):
            halved: Counter[int] = Counter()
            for bucket, count in getattr(self, name).items():
                halved[bucket // 2] += count
            setattr(self, name, halved)


@dataclass
class Keys:
    """The number of distinct keys, and the most frequent ones."""

    count: int = 0
    hashes: list[int] = field(default_factory=list)
    """The smallest hashes, sorted. Their density gives the number of distinct keys."""
    counters: dict[bytes, int] = field(default_factory=dict)
    error: int = 0
    """The most that a counter may be too low."""
    max_counters: int = COUNTERS_KEPT

    def add_all(self, keys: pyarrow.Array) -> None:
        """Count keys, none of them null."""
        import pyarrow.compute as pc

        counted = pc.value_counts(keys)
        distinct = counted.field("values").to_pylist()
        counts = counted.field("counts").to_pylist()
        self.add_counts(dict(zip(distinct, counts, strict=True)))

    def add_counts(self, counts: Mapping[bytes, int]) -> None:
        """Add the number of occurrences of each key."""
        self.count += sum(counts.values())
        self._add_hashes({hash_key(key)[0] for key in counts})
        self._add_counts(counts)

    def merge(self, other: Keys) -> None:
        """Add the counts of another instance."""
        self.count += other.count
        self.error += other.error
        self._add_hashes(other.hashes)
        self._add_counts(other.counters)

    def _add_hashes(self, hashes: set[int] | list[int]) -> None:
        if len(self.hashes) == HASHES_KEPT:
            largest = self.hashes[-1]
            hashes = [value for value in hashes if value < largest]
        self.hashes = heapq.nsmallest(HASHES_KEPT, {*self.hashes, *hashes}) if hashes else self.hashes

    def _add_counts(self, counts: Mapping[bytes, int]) -> None:
        for key, count in counts.items():
            self.counters[key] = self.counters.get(key, 0) + count
        if len(self.counters) > self.max_counters:
            cut = heapq.nlargest(self.max_counters + 1, self.counters.values())[-1]
            self.counters = {key: count - cut for key, count in self.counters.items() if count > cut}
            self.error += cut

    @property
    def distinct(self) -> int:
        """The approximate number of distinct keys."""
        if len(self.hashes) < HASHES_KEPT:
            return len(self.hashes)
        return round((HASHES_KEPT - 1) * HASH_SPACE / self.hashes[-1])

    def most_frequent(self, count: int) -> list[tuple[bytes, int]]:
        """Return the most frequent keys, with a lower bound of each one's count, in descending order."""
        return sorted(self.counters.items(), key=lambda item: (-item[1], item[0]))[:count]
