"""How the rows of metadata tables are made: planned in the driver, counted in tasks. `tables` says what they mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql.datasource import InputPartition

from seeklog import names
from seeklog.archive.reading import Origin
from seeklog.errors import GroupNotFound, SeeklogError
from seeklog.files import Files
from seeklog.log import (
    Census,
    Pin,
    Segment,
    first_timestamp_ms,
    make_pin,
    pinned_view,
    scan_headers,
    take_census,
    take_snapshot,
)
from seeklog.log.side import Seal
from seeklog.names import TopicPartition
from seeklog.record.batch import BatchHeader
from seeklog.spark.read.offsets import Bounds, Range, find_bounds
from seeklog.spark.read.options import Choice
from seeklog.spark.read.plan import plan_splits
from seeklog.store import Store, open_store, origin_of

# Headers of a gigabyte are walked in a fraction of a second, so splits of tables are larger than those of records.
WALK_BYTES: Final = 1 << 30
OPEN_COST: Final = 1 << 20
US_PER_MS: Final = 1000


class SegmentPlan(NamedTuple):
    """One segment to be counted, and where; a seal that may be believed saves the walk."""

    topic: str
    partition: int
    start: int
    stop: int
    pin: Pin
    seal: Seal | None
    is_believed: bool
    limit: int


class PartitionPlan(NamedTuple):
    """One partition to be counted."""

    topic: str
    partition: int
    bounds: Bounds
    log_end_offset: int
    segments: tuple[SegmentPlan, ...]


class TableSplit(InputPartition):
    """What one task makes rows of."""

    def __init__(self, origin: Origin, parts: Sequence[Any]) -> None:
        self.origin = origin
        self.parts = tuple(parts)


# ---------------------------------------------------------------- planning


def _plan_partitions(store: Store, choice: Choice) -> Iterator[PartitionPlan]:
    for at, bounds in find_bounds(store, choice).items():
        log = store.log(at.topic, at.partition)
        limit = log.config.max_decompressed_bytes
        seen = take_snapshot(log)
        view = seen.view
        for segment in view.segments:
            segment.fetch_seal()  # dearer than a listing where files lie at a URL, cheaper than a walk
        yield PartitionPlan(
            topic=at.topic,
            partition=at.partition,
            bounds=bounds,
            log_end_offset=seen.log_end_offset,
            segments=tuple(
                SegmentPlan(
                    topic=at.topic,
                    partition=at.partition,
                    start=max(segment.base_offset, bounds.log_start_offset),
                    stop=max(segment.base_offset, min(segment.next_offset, bounds.high_watermark)),
                    pin=make_pin(view, segment.base_offset, max(segment.next_offset, segment.base_offset + 1)),
                    seal=segment.seal,
                    is_believed=segment.seal is not None and segment.base_offset >= seen.contiguous_from,
                    limit=limit,
                )
                for segment in view.segments
            ),
        )


def plan_segments(store: Store, choice: Choice) -> list[TableSplit]:
    """Share the segments out; those that must be walked count by their size."""
    plans = [segment for plan in _plan_partitions(store, choice) for segment in plan.segments]
    return _packed(origin_of(store), plans, _walk_cost)


def plan_offsets(store: Store, choice: Choice) -> list[TableSplit]:
    """Share the partitions out, each with all of its segments."""
    return _packed(origin_of(store), _plan_partitions(store, choice), lambda plan: sum(map(_walk_cost, plan.segments)))


def plan_batches(store: Store, choice: Choice) -> list[TableSplit]:
    """Share the log out as records are. A batch belongs to the piece it begins in, or else to the first."""
    bounds = find_bounds(store, choice)
    starts = {at: one.log_start_offset for at, one in bounds.items()}
    ranges = [Range(at, one.log_start_offset, one.high_watermark) for at, one in bounds.items()]
    return [
        TableSplit(
            split.origin,
            [(piece, piece.start == starts[TopicPartition(piece.topic, piece.partition)]) for piece in split.pieces],
        )
        for split in plan_splits(store, ranges, split_bytes=WALK_BYTES)
    ]


def plan_groups(store: Store, choice: Choice) -> list[TableSplit]:
    """One task reads all of the groups."""
    return [TableSplit(origin_of(store), [choice])]


def _walk_cost(plan: SegmentPlan) -> int:
    return OPEN_COST + (0 if plan.is_believed else plan.pin.segments[0].size)


def _packed(origin: Origin, parts: Iterable[Any], cost_of: Callable[[Any], int]) -> list[TableSplit]:
    groups: list[list[Any]] = []
    cost = WALK_BYTES
    for part in parts:
        cost += cost_of(part)
        if cost > WALK_BYTES:
            groups.append([])
            cost = cost_of(part)
        groups[-1].append(part)
    return [TableSplit(origin, group) for group in groups]


# ---------------------------------------------------------------- rows


def segment_rows(split: TableSplit) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each segment: what its file holds, whatever of it can be read."""
    files = split.origin.files()
    for plan in split.parts:
        segment = _open_segment(files, split.origin.root, plan)
        census = _census(segment, plan, start=segment.base_offset, stop=segment.next_offset)
        yield (
            plan.topic,
            plan.partition,
            segment.base_offset,
            segment.next_offset,
            segment.size,
            census.batch_count,
            census.record_count,
            _us(census.first_timestamp_ms),
            _us(census.max_timestamp_ms),
            plan.seal is not None and plan.seal.sealed_at_ms > 0,
            segment.contiguous,
            _us(plan.seal.sealed_at_ms if plan.seal is not None and plan.seal.sealed_at_ms else -1),
            _file_size(segment, names.OFFSET_INDEX),
            _file_size(segment, names.TIME_INDEX),
            segment.path,
        )


def offset_rows(split: TableSplit) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each partition: what of it can be read."""
    files = split.origin.files()
    for plan in split.parts:
        found = [
            _census(_open_segment(files, split.origin.root, one), one, start=one.start, stop=one.stop)
            for one in plan.segments
            if one.start < one.stop
        ]
        first = next((one.first_timestamp_ms for one in found if one.record_count), -1)
        yield (
            plan.topic,
            plan.partition,
            plan.bounds.log_start_offset,
            plan.bounds.high_watermark,
            plan.log_end_offset,
            sum(one.record_count for one in found),
            sum(one.batch_count for one in found),
            sum(one.pin.segments[0].size for one in plan.segments),
            len(plan.segments),
            _us(first),
            _us(max((one.max_timestamp_ms for one in found), default=-1)),
            plan.bounds.topic_id,
            f"{split.origin.root}/{TopicPartition(plan.topic, plan.partition)}",
        )


def batch_rows(split: TableSplit) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each batch."""
    files = split.origin.files()
    for piece, is_first in split.parts:
        view = pinned_view(files, f"{split.origin.root}/{piece}", piece.pin)
        for segment in view.segments:
            for position, header in scan_headers(segment, piece.start, piece.stop):
                if header.base_offset < piece.start and not is_first:
                    continue
                yield _batch_row(piece.topic, piece.partition, segment.base_offset, position, header)


def _batch_row(topic: str, partition: int, segment: int, position: int, header: BatchHeader) -> tuple[Any, ...]:
    return (
        topic,
        partition,
        segment,
        position,
        header.size,
        header.base_offset,
        header.last_offset,
        header.record_count,
        header.codec,
        int(header.is_log_append_time),
        _us(first_timestamp_ms(header)),
        _us(header.max_timestamp_ms),
        header.leader_epoch,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        header.is_transactional,
        header.is_control,
        header.crc,
    )


def group_rows(split: TableSplit) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each partition of a group."""
    (choice,) = split.parts
    origin = split.origin
    with open_store(origin.root, read_only=True, background=False, storage_options=origin.storage_options) as store:
        chosen = None if choice == Choice() else find_bounds(store, choice)
        for name in store.groups():
            try:
                group = store.describe_group(name)
            except GroupNotFound:
                continue  # deleted since its name was listed
            readers = {at: one for one in group.members for at in one.assignment}
            for at in sorted({*group.committed, *readers}):
                if chosen is not None and at not in chosen:
                    continue
                committed, reader = group.committed.get(at), readers.get(at)
                start, end = _bounds_of(store, at)
                next_offset = committed.offset if committed is not None else None
                yield (
                    name,
                    at.topic,
                    at.partition,
                    next_offset,
                    start,
                    end,
                    None if start is None or end is None else max(0, end - max(start, next_offset or start)),
                    committed.metadata if committed is not None else None,
                    _us(committed.commit_timestamp_ms) if committed is not None else None,
                    group.generation,
                    reader.member_id if reader is not None else None,
                    reader.client_id if reader is not None else None,
                )


def _bounds_of(store: Store, at: TopicPartition) -> tuple[int | None, int | None]:
    try:
        log = store.log(at.topic, at.partition)
        return log.log_start_offset, log.high_watermark
    except SeeklogError:
        return None, None  # a group may speak of a topic that is gone, or of partitions that lie elsewhere


def _open_segment(files: Files, root: str, plan: SegmentPlan) -> Segment:
    directory = f"{root}/{TopicPartition(plan.topic, plan.partition)}"
    return pinned_view(files, directory, plan.pin).segments[0]


def _census(segment: Segment, plan: SegmentPlan, *, start: int, stop: int) -> Census:
    seal = plan.seal
    if plan.is_believed and seal is not None and start <= segment.base_offset and segment.next_offset <= stop:
        first = next(scan_headers(segment, segment.base_offset, stop), None)
        return Census(
            seal.batch_count,
            seal.record_count,
            -1 if first is None else first_timestamp_ms(first[1]),
            seal.max_timestamp_ms,
        )
    return take_census(segment, start, stop, limit=plan.limit)


def _file_size(segment: Segment, suffix: str) -> int | None:
    try:
        return segment.shared.files.file_size(segment.shared.path(segment.base_offset, suffix))
    except OSError:
        return None


def _us(timestamp_ms: int) -> int | None:
    return timestamp_ms * US_PER_MS if timestamp_ms >= 0 else None
