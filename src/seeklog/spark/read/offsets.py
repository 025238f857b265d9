"""Resolves the options of a read to partitions, and to offsets where it starts and ends in each.

Every function reads the current state of an open store. `DataLoss` has the error conditions of Spark's Kafka source.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple, TypeAlias

from seeklog.clock import Clock, SystemClock
from seeklog.errors import DataLoss, InvalidConfig, OffsetOutOfRange, TopicNotFound, counted
from seeklog.log import find_offset_at_time
from seeklog.names import TopicPartition
from seeklog.spark.read.bounds import (
    EARLIEST_MARK,
    LATEST_MARK,
    Ago,
    AtOffsets,
    AtTime,
    AtTimes,
    Earliest,
    LastOffsets,
    Latest,
    Point,
)
from seeklog.spark.read.options import Choice, ReadOptions, Strategy
from seeklog.store import Store
from seeklog.topics.catalog import NO_TOPIC_ID

logger = logging.getLogger("seeklog")


class Bounds(NamedTuple):
    """The readable offsets of a partition: from the log start offset to the high watermark, exclusive."""

    log_start_offset: int
    high_watermark: int
    topic_id: str


class Range(NamedTuple):
    """Offsets of one partition from `start` to `stop`, exclusive, and the id of its topic."""

    partition: TopicPartition
    start: int
    stop: int
    topic_id: str = NO_TOPIC_ID

    @property
    def length(self) -> int:
        return self.stop - self.start


def bounds_of(store: Store, topics: Iterable[str]) -> dict[TopicPartition, Bounds]:
    """Return the bounds of all partitions of topics, in order. Raises `TopicNotFound` for a missing topic."""
    return {
        TopicPartition(topic.name, part.partition): Bounds(part.log_start_offset, part.high_watermark, topic.topic_id)
        for topic in map(store.describe_topic, topics)
        for part in topic.partitions
    }


def find_bounds(store: Store, choice: Choice) -> dict[TopicPartition, Bounds]:
    """Return the bounds of the chosen partitions, in order.

    Raises `TopicNotFound` for a missing topic or partition; a pattern may match nothing.
    """
    if choice.topics:
        return bounds_of(store, choice.topics)
    if choice.partitions:
        bounds = bounds_of(store, sorted({at.topic for at in choice.partitions}))
        for at in choice.partitions:
            if at not in bounds:
                numbers = [str(other.partition) for other in bounds if other.topic == at.topic]
                listed = ", ".join(numbers[:10]) + (f" and {len(numbers) - 10} more" if len(numbers) > 10 else "")
                raise TopicNotFound(f"topic {at.topic!r} has no partition {at.partition}; it has {listed}")
        return {at: bounds[at] for at in choice.partitions}
    pattern = re.compile(choice.pattern or ".*")
    bounds = {}
    for name in store.topics():
        if pattern.fullmatch(name):
            with contextlib.suppress(TopicNotFound):  # deleted since its name was listed
                bounds |= bounds_of(store, [name])
    return bounds


def full_ranges(bounds: Mapping[TopicPartition, Bounds]) -> list[Range]:
    """Return the whole readable range of each partition."""
    return [Range(at, here.log_start_offset, here.high_watermark, here.topic_id) for at, here in bounds.items()]


def start_offsets(
    store: Store, bounds: Mapping[TopicPartition, Bounds], options: ReadOptions, *, clock: Clock | None = None
) -> dict[TopicPartition, int]:
    """Return the start offset of each partition. An explicit offset is returned even if it was deleted."""
    # A query for the last minutes may find no record in them.
    strategy = options.time_strategy or ("latest" if isinstance(options.start, Ago) else "error")
    return _resolve(store, bounds, options.start, unnamed=options.unnamed_start, strategy=strategy, clock=clock)


def end_offsets(
    store: Store, bounds: Mapping[TopicPartition, Bounds], options: ReadOptions, *, clock: Clock | None = None
) -> dict[TopicPartition, int]:
    """Return the end offset of each partition, exclusive; none for a stream without an end."""
    if options.end is None:
        return {}
    return _resolve(store, bounds, options.end, unnamed=Latest(), strategy="latest", clock=clock)


def _resolve(
    store: Store,
    bounds: Mapping[TopicPartition, Bounds],
    point: Point,
    *,
    unnamed: Point,
    strategy: Strategy,
    clock: Clock | None,
) -> dict[TopicPartition, int]:
    if isinstance(point, Ago):
        point = AtTime(point.option, max(0, (clock or SystemClock()).now_ms() - point.span_ms))
    named: Iterable[TopicPartition] = bounds
    if isinstance(point, AtOffsets | AtTimes):
        named = point.offsets if isinstance(point, AtOffsets) else point.times_ms
    for at in named:
        if at not in bounds:
            read = counted(len(bounds), "partition")
            raise InvalidConfig(f"option {point.option} names {at}, which is not among the {read} of this read")
    return {at: _offset_of(store, point if at in named else unnamed, at, here, strategy) for at, here in bounds.items()}


def _offset_of(store: Store, point: Point, at: TopicPartition, here: Bounds, strategy: Strategy) -> int:
    match point:
        case Earliest():
            return here.log_start_offset
        case LastOffsets(count=count):
            return max(here.log_start_offset, here.high_watermark - count)
        case AtOffsets(offsets=given):
            return {EARLIEST_MARK: here.log_start_offset, LATEST_MARK: here.high_watermark}.get(given[at], given[at])
    timestamp_ms = time_of(point, at)
    offset = None if timestamp_ms is None else offset_at_time(store, at, here, timestamp_ms)
    if offset is None and timestamp_ms is not None and strategy == "error":
        raise InvalidConfig(
            f"option {point.option}: no record of {at} has timestamp {_moment(timestamp_ms)} or later; set an earlier "
            "one, or startingOffsetsByTimestampStrategy=latest to start such a partition at its end"
        )
    return here.high_watermark if offset is None else offset


def time_of(point: Point | None, at: TopicPartition) -> int | None:
    """Return the timestamp that a point has for a partition, or None."""
    match point:
        case AtTime(timestamp_ms=timestamp_ms):
            return timestamp_ms
        case AtTimes(times_ms=times_ms):
            return times_ms.get(at)
    return None


def offset_at_time(store: Store, at: TopicPartition, here: Bounds, timestamp_ms: int) -> int | None:
    """Return the offset of the first record with this timestamp or a later one, or None if it is not in the bounds."""
    offset = find_offset_at_time(store.log(at.topic, at.partition), timestamp_ms)
    return offset if offset is not None and offset < here.high_watermark else None


def _moment(timestamp_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return f"{timestamp_ms} ({moment.isoformat(timespec='milliseconds')})"


def batch_ranges(store: Store, options: ReadOptions, *, clock: Clock | None = None) -> list[Range]:
    """Return the ranges that a batch reads, in order, without empty ones."""
    bounds = find_bounds(store, options.choice)
    starts = start_offsets(store, bounds, options, clock=clock)
    ends = end_offsets(store, bounds, options, clock=clock)
    report = partial(report_loss, fail=options.fail_on_data_loss)
    ranges = []
    for at, here in bounds.items():
        start, stop = starts[at], ends[at]
        if start > stop:
            raise InvalidConfig(
                f"[RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] {at} would be read from offset {start} to {stop}; "
                "set a start that is not after the end"
            )
        ranges.append(kept_range(Range(at, start, stop, here.topic_id), here, report=report))
    return [part for part in ranges if part.length > 0]


def key_ranges(store: Store, ranges: Iterable[Range], keys: Sequence[bytes]) -> list[Range]:
    """Return a range of one offset for the latest record of each key in each range, in order."""
    latest: list[Range] = []
    for part in ranges:
        log = store.log(part.partition.topic, part.partition.partition)
        offsets: set[int] = set()
        for key in keys:
            try:
                record = log.latest_for_key(key, start=part.start, end=part.stop)
            except OffsetOutOfRange:
                # The start was deleted meanwhile: search the rest.
                record = log.latest_for_key(key, start=log.log_start_offset, end=part.stop)
            if record is not None:
                offsets.add(record.offset)
        latest += [part._replace(start=offset, stop=offset + 1) for offset in sorted(offsets)]
    return latest


Report: TypeAlias = Callable[[str, str, int | str], None]
"""Handles a loss, given its condition, a message, and its extent: a number of offsets, or a text."""


def report_loss(condition: str, message: str, extent: int | str, *, fail: bool) -> None:
    """Raise `DataLoss`, or log a warning with the number of lost offsets."""
    if isinstance(extent, int):
        extent = f"{extent} offset{'s are' if extent != 1 else ' is'}"
    fact = f"{message}; {extent} missing"
    if fail:
        raise DataLoss(
            condition,
            f"{fact}. Set failOnDataLoss=false to read the rest, or start at earliest (a stream also needs a new "
            "checkpointLocation)",
        )
    logger.warning("[DATA_LOSS.%s] %s; skipped because failOnDataLoss is false", condition, fact)


def kept_range(wanted: Range, here: Bounds, *, report: Report) -> Range:
    """Return the part of a range that is within bounds, and report the rest as lost."""
    at, start, stop, _ = wanted
    if start < here.log_start_offset and start < stop:
        gone = min(stop, here.log_start_offset)
        report(
            "START_OFFSET_RESET",
            f"{at} should be read from offset {start}, but its log starts at {here.log_start_offset}",
            gone - start,
        )
        start = gone
    if stop > here.high_watermark and start < stop:
        report(
            "COULD_NOT_READ_OFFSET_RANGE",
            f"{at} should be read up to offset {stop}, but its high watermark is {here.high_watermark}",
            stop - max(start, here.high_watermark),
        )
        stop = max(start, here.high_watermark)
    return wanted._replace(start=start, stop=max(start, stop))
