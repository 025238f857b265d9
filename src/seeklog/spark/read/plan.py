"""Plans splits, which tasks read, from ranges of offsets.

A split has about `SPLIT_BYTES` of log. A large partition is cut at batch boundaries found in its index, and small ones
are packed together, because a task costs some 70 ms whatever it reads. Planning opens an index only if a cut is inside
its segment. A task gets the paths and sizes of its segments and lists no directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar

from pyspark.sql.datasource import InputPartition

from seeklog import names
from seeklog.archive.reading import Origin
from seeklog.config import INT64_MAX
from seeklog.errors import TopicNotFound
from seeklog.files import Files
from seeklog.log import Layout, Pin, View, make_pin, take_snapshot
from seeklog.names import TopicPartition
from seeklog.spark.read.offsets import Bounds, Range, kept_range, report_loss
from seeklog.store import Store, origin_of, usable_cores
from seeklog.topics.catalog import are_different
from seeklog.topics.layout import parse_topic_id

Item = TypeVar("Item")

# About a second of work. The overhead of a task shows in smaller splits, and a retry costs more in larger ones.
SPLIT_BYTES: Final = 128 << 20
# A small log is divided among the cores, into splits of at least this size.
MIN_SPLIT_BYTES: Final = 32 << 20
# The cost of a partition besides its bytes, for opening files and for incomplete Arrow batches.
OPEN_COST: Final = 256 << 10
# Spark's driver keeps every split in memory; a larger log gets larger splits.
MAX_SPLITS: Final = 20_000


class Piece(NamedTuple):
    """The part of one partition that a task reads."""

    topic: str
    partition: int
    start: int
    stop: int
    pin: Pin
    identity: bytes
    """The partition's metadata file, which differs in a recreated topic."""
    limit: int
    """The maximum size of a decompressed batch."""

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def segment_bytes(self) -> int:
        """The size of all segments of the piece."""
        return sum(segment.size for segment in self.pin.segments)

    def __str__(self) -> str:
        return str(self.at)


class Split(InputPartition):
    """The pieces that one task reads, of one or more partitions."""

    def __init__(self, origin: Origin, pieces: Sequence[Piece], *, fail_on_data_loss: bool) -> None:
        self.origin = origin
        self.pieces = tuple(pieces)
        self.fail_on_data_loss = fail_on_data_loss

    def __repr__(self) -> str:
        return f"Split({', '.join(f'{piece} {piece.start}..{piece.stop}' for piece in self.pieces)})"


@dataclass(frozen=True, slots=True)
class Partition:
    """The current segments of a partition, and where its ranges of offsets can be cut."""

    layout: Layout
    limit: int
    """The maximum size of a decompressed batch."""

    @classmethod
    def of(cls, store: Store, at: TopicPartition) -> Partition:
        log = store.log(at.topic, at.partition)
        return cls(Layout(take_snapshot(log).view), log.config.max_decompressed_bytes)

    @property
    def view(self) -> View:
        return self.layout.view

    def size(self, wanted: Range) -> int:
        """Return the approximate size of a range in bytes."""
        return self.layout.size(wanted.start, wanted.stop)

    def stop_after(self, wanted: Range, maximum: int) -> int:
        """Return the end of a range of about `maximum` bytes: a batch boundary, after at least one batch."""
        if self.size(wanted) <= maximum:
            return wanted.stop
        stop = self.layout.boundary(self.layout.position(wanted.start) + maximum, slack=0)
        return min(stop if stop > wanted.start else self.layout.boundary_after(wanted.start), wanted.stop)

    def cut(self, wanted: Range, *, target: int, max_records: int | None) -> list[_Part]:
        """Cut a range into parts of equal size, of about `target` bytes and at most `max_records` offsets."""
        edges = [start for start, _ in self.layout.cut(wanted.start, wanted.stop, target=target)] + [wanted.stop]
        if max_records is not None:
            edges = [*_even_starts(edges, max_records), wanted.stop]
        stretch = self.size(wanted) / wanted.length
        return [
            _Part(wanted._replace(start=start, stop=stop), OPEN_COST + int(stretch * (stop - start)))
            for start, stop in pairwise(edges)
        ]


class _Part(NamedTuple):
    """A part of a range and its cost in bytes."""

    range: Range
    cost: int


def plan_splits(
    store: Store,
    ranges: Iterable[Range],
    *,
    split_bytes: int | None = None,
    min_partitions: int | None = None,
    max_records: int | None = None,
    fail_on_data_loss: bool = True,
) -> list[Split]:
    """Return splits with every offset of the ranges once, in order.

    Offsets deleted since the ranges were found raise `DataLoss`, or are skipped with a warning. Raises `TopicNotFound`
    if a topic was recreated meanwhile.
    """
    ranges = [wanted for wanted in ranges if wanted.length > 0]
    partitions = {wanted.partition: Partition.of(store, wanted.partition) for wanted in ranges}
    report = partial(report_loss, fail=fail_on_data_loss)
    kept = [
        kept_range(
            wanted, Bounds(partitions[wanted.partition].view.segments[0].base_offset, INT64_MAX, ""), report=report
        )
        for wanted in ranges
    ]
    ranges = [wanted for wanted in kept if wanted.length > 0]
    total = sum(partitions[wanted.partition].size(wanted) + OPEN_COST for wanted in ranges)
    target = _target(total, split_bytes, min_partitions, usable_cores())
    parts = [
        part
        for wanted in ranges
        for part in partitions[wanted.partition].cut(wanted, target=target, max_records=max_records)
    ]
    packed = pack(
        parts,
        lambda part: part.cost,
        target,
        length_of=lambda part: part.range.length,
        max_length=max_records or INT64_MAX,
    )
    if min_partitions is not None:
        packed = _at_least(min_partitions, packed)
    # Read after the segments were listed: a directory that has the right topic id now had it then too.
    origin = origin_of(store)
    files = origin.files()
    identities = {wanted.partition: _identity_of(files, store.location, wanted) for wanted in ranges}

    def piece(wanted: Range) -> Piece:
        at, partition = wanted.partition, partitions[wanted.partition]
        pin = make_pin(partition.view, wanted.start, wanted.stop)
        return Piece(at.topic, at.partition, wanted.start, wanted.stop, pin, identities[at], partition.limit)

    return [
        Split(origin, [piece(part.range) for part in group], fail_on_data_loss=fail_on_data_loss) for group in packed
    ]


def _identity_of(files: Files, root: str, wanted: Range) -> bytes:
    identity = read_identity(files, f"{root}/{wanted.partition}")
    if are_different(wanted.topic_id, parse_topic_id(identity)):
        raise TopicNotFound(f"topic {wanted.partition.topic!r} was deleted and recreated while its read was planned")
    return identity


def pack(
    items: Iterable[Item],
    cost_of: Callable[[Item], int],
    limit: int,
    *,
    length_of: Callable[[Item], int] = lambda _: 0,
    max_length: int = INT64_MAX,
) -> list[list[Item]]:
    """Group items in order; the costs and the lengths of a group stay within their limits."""
    groups: list[list[Item]] = []
    cost = length = 0
    for item in items:
        cost, length = cost + cost_of(item), length + length_of(item)
        if not groups or cost > limit or length > max_length:
            groups.append([])
            cost, length = cost_of(item), length_of(item)
        groups[-1].append(item)
    return groups


def read_identity(files: Files, directory: str) -> bytes:
    """Return a partition's metadata file, or nothing. A recreated topic has different bytes."""
    try:
        return files.read_file(f"{directory}/{names.PARTITION_METADATA}")
    except FileNotFoundError:
        return b""


def _target(total: int, split_bytes: int | None, min_partitions: int | None, cores: int) -> int:
    """Return the size of a split in bytes."""
    target = split_bytes or min(SPLIT_BYTES, max(MIN_SPLIT_BYTES, -(-total // cores)))
    if min_partitions is not None:
        target = min(target, -(-total // min_partitions))
    return max(target, total // MAX_SPLITS, 1)


def _even_starts(edges: Sequence[int], max_records: int) -> Iterator[int]:
    """Yield the starts of parts of equal length, of at most `max_records` offsets."""
    for start, stop in pairwise(edges):
        count = -(-(stop - start) // max_records)
        yield from (start + (stop - start) * number // count for number in range(count))


def _at_least(minimum: int, groups: list[list[_Part]]) -> list[list[_Part]]:
    """Halve the longest groups until there are enough, or each is a single offset."""

    def entry(group: list[_Part]) -> tuple[int, list[_Part]]:
        return -sum(part.range.length for part in group), group

    heap = [entry(group) for group in groups]
    heapify(heap)
    while heap and len(heap) < minimum and heap[0][0] < -1:
        for half in _halves(heappop(heap)[1]):
            heappush(heap, entry(half))
    return sorted(group for _, group in heap)


def _halves(group: list[_Part]) -> tuple[list[_Part], list[_Part]]:
    if len(group) > 1:
        return group[: len(group) // 2], group[len(group) // 2 :]
    whole, cost = group[0]
    middle = (whole.start + whole.stop) // 2
    return [_Part(whole._replace(stop=middle), cost // 2)], [_Part(whole._replace(start=middle), cost // 2)]
