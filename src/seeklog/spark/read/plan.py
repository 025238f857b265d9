"""From ranges of offsets to splits: what one task reads.

A split carries about `SPLIT_BYTES` of log. A large partition is cut, at batch boundaries that the index knows, and
many small ones are packed together: a task costs Spark some 70 ms, whatever it reads. Planning opens indexes only
where a cut falls inside a segment; a task gets the segments with their sizes, and lists and opens nothing else.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from pyspark.sql.datasource import InputPartition

from seeklog import names
from seeklog.archive.reading import Origin
from seeklog.errors import TopicNotFound
from seeklog.files import Files
from seeklog.log import Pin, Segment, View, make_pin, offset_index, take_snapshot
from seeklog.names import TopicPartition
from seeklog.spark.read.offsets import Range, report_loss
from seeklog.spark.read.options import SPLIT_BYTES
from seeklog.store import Store, origin_of
from seeklog.topics.catalog import are_different
from seeklog.topics.layout import parse_topic_id

# A log that is small for the machine is shared among its cores, in splits that are still worth a task.
SPLIT_LEAST: Final = 32 << 20
# What a partition costs a task beside its bytes: files are opened, and its Arrow batches are its own.
OPEN_COST: Final = 256 << 10
# Spark's driver keeps a task's description in memory for each; a larger log gets larger splits.
SPLITS_MOST: Final = 20_000


class Piece(NamedTuple):
    """What a task reads of one partition."""

    topic: str
    partition: int
    start: int
    stop: int
    pin: Pin
    identity: bytes
    """The partition's metadata file, which a topic that was made anew has otherwise."""
    limit: int
    """The largest that a batch may become when it is decompressed."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Split(InputPartition):
    """What one task reads: pieces of one or of many partitions. Small, and complete."""

    def __init__(self, origin: Origin | str, pieces: Sequence[Piece], *, fail_on_data_loss: bool) -> None:
        """Take pieces of the store that has its files at `origin`, or in a directory of that path."""
        self.origin = Origin(root=origin) if isinstance(origin, str) else origin
        self.pieces = tuple(pieces)
        self.fail_on_data_loss = fail_on_data_loss

    @property
    def path(self) -> str:
        """The store's directory or URL."""
        return self.origin.root

    def __repr__(self) -> str:
        return f"Split({', '.join(f'{piece} {piece.start}..{piece.stop}' for piece in self.pieces)})"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the offsets of a log lie in its segments, as far as indexes tell."""

    view: View
    starts: list[int]
    """How many bytes lie before each segment."""

    @classmethod
    def of(cls, view: View) -> Layout:
        return cls(view, [0, *accumulate(segment.size for segment in view.segments)])

    def position(self, offset: int) -> int:
        """Return how many bytes of the log lie before an offset; less by an index interval at most."""
        place = self.view.find(offset)
        segment = self.view.segments[place]
        if offset <= segment.base_offset:
            inside = 0
        elif offset >= segment.next_offset:
            inside = segment.size
        else:
            inside = min(segment.size, offset_index(segment).lookup(offset).position)
        return self.starts[place] + inside

    def boundary(self, position: int, *, slack: int) -> int:
        """Return an offset at which a batch begins, near a position; a segment's ends are taken if within `slack`."""
        place = min(bisect_right(self.starts, position), len(self.view.segments)) - 1
        segment = self.view.segments[place]
        inside = position - self.starts[place]
        if inside <= min(slack, segment.size // 2):
            return segment.base_offset
        if segment.size - inside <= slack:
            return segment.next_offset
        return _boundary_in(segment, inside)

    def boundary_after(self, offset: int) -> int:
        """Return the next offset above this one at which a batch begins, as far as the index knows them."""
        segment = self.view.segments[self.view.find(offset)]
        offsets = offset_index(segment)
        number = offsets.floor(offset - 1) + 1
        behind = offsets[number].offset + 1 if number < len(offsets) else segment.next_offset
        return max(behind, offset + 1)


def _boundary_in(segment: Segment, position: int) -> int:
    """Return the offset behind the last indexed batch that begins before a position: the next batch begins there.

    Where there is none, it is the nearer end of the segment.
    """
    offsets = offset_index(segment)
    low, high = 0, len(offsets)
    while low < high:
        middle = (low + high) // 2
        if offsets[middle].position < position:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return segment.base_offset if 2 * position <= segment.size else segment.next_offset
    return min(max(offsets[low - 1].offset + 1, segment.base_offset), segment.next_offset)


class _Part(NamedTuple):
    """A part of a range, before it is pinned."""

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
    cores: int | None = None,
    topic_ids: Mapping[str, str] | None = None,
) -> list[Split]:
    """Return splits that have every offset of the ranges once, in order.

    What was deleted since the ranges were found raises `DataLoss`, or is left out with a warning; `TopicNotFound` if
    topics are not those that `topic_ids` has by their names.
    """
    ranges = [one for one in ranges if one.start < one.stop]
    layouts = {one.partition: _layout_of(store, one.partition) for one in ranges}
    kept = [_kept(layouts[one.partition], one, fail=fail_on_data_loss) for one in ranges]
    ranges = [one for one in kept if one.start < one.stop]
    sizes = {one.partition: _size(layouts[one.partition], one) for one in ranges}
    target = _target(
        sum(sizes.values()) + OPEN_COST * len(ranges), split_bytes, min_partitions, cores or _usable_cores()
    )
    parts = [
        part
        for one in ranges
        for part in _cut(layouts[one.partition], one, sizes[one.partition], target=target, max_records=max_records)
    ]
    packed = list(_packed(parts, target=target, max_records=max_records))
    if min_partitions is not None and len(packed) < min_partitions:
        packed = _more(packed, min_partitions)
    pieces = _PieceMaker(store, {at: layout.view for at, layout in layouts.items()}, topic_ids or {})
    origin = origin_of(store)
    return [
        Split(origin, [pieces.make(part.range) for part in group], fail_on_data_loss=fail_on_data_loss)
        for group in packed
    ]


def range_bytes(store: Store, one: Range) -> int:
    """Return about how many bytes of log a range takes."""
    return _size(_layout_of(store, one.partition), one)


def cut_at_bytes(store: Store, one: Range, most: int) -> int:
    """Return where a range ends if it is to take about `most` bytes: at a batch boundary, one batch at least."""
    layout = _layout_of(store, one.partition)
    begin = layout.position(one.start)
    if layout.position(one.stop) - begin <= most:
        return one.stop
    stop = layout.boundary(begin + most, slack=0)
    return min(stop if stop > one.start else layout.boundary_after(one.start), one.stop)


def _layout_of(store: Store, at: TopicPartition) -> Layout:
    return Layout.of(take_snapshot(store.log(at.topic, at.partition)).view)


def _kept(layout: Layout, one: Range, *, fail: bool) -> Range:
    first = layout.view.segments[0].base_offset
    if one.start >= first:
        return one
    report_loss(
        "START_OFFSET_RESET",
        f"{one.partition} was to be read from offset {one.start}, but its segments begin at {first} by now",
        count=min(first, one.stop) - one.start,
        fail=fail,
    )
    return one._replace(start=min(first, one.stop))


def _size(layout: Layout, one: Range) -> int:
    return max(0, layout.position(one.stop) - layout.position(one.start))


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _target(total: int, split_bytes: int | None, min_partitions: int | None, cores: int) -> int:
    """Return how many bytes a split should have."""
    target = split_bytes or min(SPLIT_BYTES, max(SPLIT_LEAST, -(-total // cores)))
    if min_partitions is not None:
        target = min(target, -(-total // min_partitions))
    return max(target, total // SPLITS_MOST, 1)


def _cut(layout: Layout, one: Range, size: int, *, target: int, max_records: int | None) -> list[_Part]:
    """Cut one range into parts of even size, of about `target` bytes and at most `max_records` offsets."""
    count = max(1, round(size / target))
    begin = layout.position(one.start)
    cuts = {one.start, one.stop}
    for number in range(1, count):
        cut = layout.boundary(begin + size * number // count, slack=target // 8)
        if one.start < cut < one.stop:
            cuts.add(cut)
    edges = sorted(cuts)
    if max_records is not None:
        edges = [*_fine(edges, max_records), one.stop]
    stretch = size / (one.stop - one.start)
    return [
        _Part(Range(one.partition, start, stop), OPEN_COST + int(stretch * (stop - start)))
        for start, stop in pairwise(edges)
    ]


def _fine(edges: Sequence[int], most: int) -> Iterable[int]:
    """Yield where parts begin when none may span more than `most` offsets: as even as can be."""
    for start, stop in pairwise(edges):
        count = -(-(stop - start) // most)
        for number in range(count):
            yield start + (stop - start) * number // count


def _packed(parts: Iterable[_Part], *, target: int, max_records: int | None) -> Iterable[list[_Part]]:
    """Put parts together, in order, while they stay within a split's size."""
    group: list[_Part] = []
    cost = records = 0
    for part in parts:
        count = part.range.stop - part.range.start
        full = cost + part.cost > target or (max_records is not None and records + count > max_records)
        if group and full:
            yield group
            group, cost, records = [], 0, 0
        group.append(part)
        cost += part.cost
        records += count
    if group:
        yield group


def _more(packed: list[list[_Part]], least: int) -> list[list[_Part]]:
    """Halve the largest groups until there are enough, or nothing is left to halve."""
    heap = [(-_weight(group), number, group) for number, group in enumerate(packed)]
    heapify(heap)
    number = len(heap)
    whole: list[list[_Part]] = []
    while heap and len(heap) + len(whole) < least:
        _, _, group = heappop(heap)
        halves = _halved(group)
        if halves is None:
            whole.append(group)
            continue
        for half in halves:
            heappush(heap, (-_weight(half), number, half))
            number += 1
    groups = [*whole, *(group for _, _, group in heap)]
    return sorted(groups, key=lambda group: group[0].range)


def _weight(group: list[_Part]) -> int:
    return sum(part.range.stop - part.range.start for part in group)


def _halved(group: list[_Part]) -> tuple[list[_Part], list[_Part]] | None:
    if len(group) > 1:
        return group[: len(group) // 2], group[len(group) // 2 :]
    (at, start, stop), cost = group[0]
    middle = (start + stop) // 2
    if middle == start:
        return None
    return [_Part(Range(at, start, middle), cost // 2)], [_Part(Range(at, middle, stop), cost // 2)]


class _PieceMaker:
    """Makes pieces of ranges, asking each topic and partition once."""

    def __init__(self, store: Store, views: Mapping[TopicPartition, View], topic_ids: Mapping[str, str]) -> None:
        self._store = store
        self._views = views
        self._topic_ids = topic_ids
        self._files = origin_of(store).files()
        self._facts: dict[TopicPartition, tuple[bytes, int]] = {}

    def make(self, one: Range) -> Piece:
        at = one.partition
        if at not in self._facts:
            config = self._store.log(at.topic, at.partition).config
            # Behind the look at its segments: if this is the topic's own directory, they were.
            identity = read_identity(self._files, f"{self._store.location}/{at}")
            if are_different(self._topic_ids.get(at.topic), parse_topic_id(identity)):
                raise TopicNotFound(f"topic {at.topic!r} was deleted and made anew while reading it was planned")
            self._facts[at] = (identity, config.max_decompressed_bytes)
        identity, limit = self._facts[at]
        return Piece(
            topic=at.topic,
            partition=at.partition,
            start=one.start,
            stop=one.stop,
            pin=make_pin(self._views[at], one.start, one.stop),
            identity=identity,
            limit=limit,
        )


def read_identity(files: Files, directory: str) -> bytes:
    """Return what tells a partition from one of the same name that was made later; nothing if it has no such file."""
    try:
        return files.read_file(f"{directory}/{names.PARTITION_METADATA}")
    except FileNotFoundError:
        return b""
