"""From places to offsets: which partitions a read has, and where it begins and ends in each.

Every function works on an open store and answers for the moment it is called. Errors mean what they mean in Spark's
Kafka source, and `DataLoss` has its conditions.
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
from seeklog.errors import DataLoss, InvalidConfig, OffsetOutOfRange, TopicNotFound
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
    Place,
)
from seeklog.spark.read.options import Choice, ReadOptions, Strategy
from seeklog.store import Store
from seeklog.topics.catalog import NO_TOPIC_ID

logger = logging.getLogger("seeklog")


class Bounds(NamedTuple):
    """What of a partition can be read: from the log's start to the high watermark, exclusive."""

    log_start_offset: int
    high_watermark: int
    topic_id: str


class Range(NamedTuple):
    """Offsets of one partition, from `start` to `stop`, exclusive, and the topic that they were found in."""

    partition: TopicPartition
    start: int
    stop: int
    topic_id: str = NO_TOPIC_ID

    @property
    def length(self) -> int:
        return self.stop - self.start


def bounds_of(store: Store, topics: Iterable[str]) -> dict[TopicPartition, Bounds]:
    """Return what can be read of topics, in order; one that is not there raises `TopicNotFound`."""
    return {
        TopicPartition(topic.name, each.partition): Bounds(each.log_start_offset, each.high_watermark, topic.topic_id)
        for topic in map(store.describe_topic, topics)
        for each in topic.partitions
    }


def find_bounds(store: Store, choice: Choice) -> dict[TopicPartition, Bounds]:
    """Return what can be read of the chosen partitions, in order.

    A topic or a partition that is named and is not there raises `TopicNotFound`; a pattern may match nothing.
    """
    if choice.topics:
        return bounds_of(store, choice.topics)
    if choice.partitions:
        found = bounds_of(store, sorted({at.topic for at in choice.partitions}))
        for at in choice.partitions:
            if at not in found:
                numbers = [str(other.partition) for other in found if other.topic == at.topic]
                listed = ", ".join(numbers[:10]) + (f" and {len(numbers) - 10} more" if len(numbers) > 10 else "")
                raise TopicNotFound(f"topic {at.topic!r} has no partition {at.partition}; it has {listed}")
        return {at: found[at] for at in choice.partitions}
    pattern = re.compile(choice.pattern or ".*")
    found = {}
    for name in store.topics():
        if pattern.fullmatch(name):
            with contextlib.suppress(TopicNotFound):  # deleted since its name was listed
                found |= bounds_of(store, [name])
    return found


def full_ranges(bounds: Mapping[TopicPartition, Bounds]) -> list[Range]:
    """Return all that can be read."""
    return [Range(at, here.log_start_offset, here.high_watermark, here.topic_id) for at, here in bounds.items()]


# ---------------------------------------------------------------- where to begin and to end


def start_offsets(
    store: Store, bounds: Mapping[TopicPartition, Bounds], options: ReadOptions, *, clock: Clock | None = None
) -> dict[TopicPartition, int]:
    """Return where a read begins in each partition. An offset that was given is returned as it is, kept or not."""
    # A query for the last minutes does not demand that there is a record in them.
    strategy = options.time_strategy or ("latest" if isinstance(options.start, Ago) else "error")
    return _resolve(store, bounds, options.start, unnamed=options.unnamed_start, strategy=strategy, clock=clock)


def end_offsets(
    store: Store, bounds: Mapping[TopicPartition, Bounds], options: ReadOptions, *, clock: Clock | None = None
) -> dict[TopicPartition, int]:
    """Return where a read ends in each partition, exclusive; nothing for a stream without an end."""
    if options.end is None:
        return {}
    return _resolve(store, bounds, options.end, unnamed=Latest(), strategy="latest", clock=clock)


def _resolve(
    store: Store,
    bounds: Mapping[TopicPartition, Bounds],
    place: Place,
    *,
    unnamed: Place,
    strategy: Strategy,
    clock: Clock | None,
) -> dict[TopicPartition, int]:
    if isinstance(place, Ago):
        place = AtTime(place.option, max(0, (clock or SystemClock()).now_ms() - place.span_ms))
    named: Iterable[TopicPartition] = bounds
    if isinstance(place, AtOffsets | AtTimes):
        named = place.offsets if isinstance(place, AtOffsets) else place.times_ms
    for at in named:
        if at not in bounds:
            raise InvalidConfig(
                f"option {place.option} names {at}, which is not among the {len(bounds)} partitions that are read"
            )
    return {at: _offset_of(store, place if at in named else unnamed, at, here, strategy) for at, here in bounds.items()}


def _offset_of(store: Store, place: Place, at: TopicPartition, here: Bounds, strategy: Strategy) -> int:
    match place:
        case Earliest():
            return here.log_start_offset
        case LastOffsets(count=count):
            return max(here.log_start_offset, here.high_watermark - count)
        case AtOffsets(offsets=given):
            return {EARLIEST_MARK: here.log_start_offset, LATEST_MARK: here.high_watermark}.get(given[at], given[at])
    timestamp_ms = time_of(place, at)
    found = None if timestamp_ms is None else offset_at_time(store, at, here, timestamp_ms)
    if found is None and timestamp_ms is not None and strategy == "error":
        raise InvalidConfig(
            f"option {place.option}: no record of {at} is stamped at {_moment(timestamp_ms)} or later; give an earlier "
            "time, or startingOffsetsByTimestampStrategy=latest to begin at the end there"
        )
    return here.high_watermark if found is None else found


def time_of(place: Place | None, at: TopicPartition) -> int | None:
    """Return the time that a place has for a partition, if it has one."""
    match place:
        case AtTime(timestamp_ms=timestamp_ms):
            return timestamp_ms
        case AtTimes(times_ms=times_ms):
            return times_ms.get(at)
    return None


def offset_at_time(store: Store, at: TopicPartition, here: Bounds, timestamp_ms: int) -> int | None:
    """Return the first offset within bounds that is stamped then or later. The log may have grown past them since."""
    found = store.log(at.topic, at.partition).offset_at_time(timestamp_ms)
    return found if found is not None and found < here.high_watermark else None


def _moment(timestamp_ms: int) -> str:
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return f"{timestamp_ms} ({moment.isoformat(timespec='milliseconds')})"


# ---------------------------------------------------------------- a batch


def batch_ranges(store: Store, options: ReadOptions, *, clock: Clock | None = None) -> list[Range]:
    """Return what a batch reads, one range for each partition that has any, in order."""
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
                "the start must not be after the end"
            )
        ranges.append(kept_range(Range(at, start, stop, here.topic_id), here, report=report))
    return [each for each in ranges if each.length > 0]


def key_ranges(store: Store, ranges: Iterable[Range], keys: Sequence[bytes]) -> list[Range]:
    """Return where the latest record of each key stands in each range, in order: ranges of one offset each."""
    found: list[Range] = []
    for each in ranges:
        log = store.log(each.partition.topic, each.partition.partition)
        offsets: set[int] = set()
        for key in keys:
            try:
                record = log.latest_for_key(key, start=each.start, end=each.stop)
            except OffsetOutOfRange:
                # Deleted since the range was found: what is left of it is read.
                record = log.latest_for_key(key, start=log.log_start_offset, end=each.stop)
            if record is not None:
                offsets.add(record.offset)
        found += [each._replace(start=offset, stop=offset + 1) for offset in sorted(offsets)]
    return found


# ---------------------------------------------------------------- losses

Report: TypeAlias = Callable[[str, str, int | str], None]
"""What to do about a loss: its condition, a message, and how many offsets it is or another word for its extent."""


def report_loss(condition: str, message: str, extent: int | str, *, fail: bool) -> None:
    """Raise `DataLoss`, or log one warning that counts what is not read."""
    if isinstance(extent, int):
        extent = f"{extent} offset{'s are' if extent != 1 else ' is'}"
    told = f"{message}; {extent} missing"
    if fail:
        raise DataLoss(
            condition,
            f"{told}. Set failOnDataLoss=false to read what is there, or begin at earliest (a stream: with a new "
            "checkpointLocation)",
        )
    logger.warning("[DATA_LOSS.%s] %s, and left out because failOnDataLoss is false", condition, told)


def kept_range(wanted: Range, here: Bounds, *, report: Report) -> Range:
    """Return the part of a range that the log has, and report what it has not."""
    at, start, stop, _ = wanted
    if start < here.log_start_offset and start < stop:
        gone = min(stop, here.log_start_offset)
        report(
            "START_OFFSET_RESET",
            f"{at} was to be read from offset {start}, but its records begin at {here.log_start_offset}",
            gone - start,
        )
        start = gone
    if stop > here.high_watermark and start < stop:
        report(
            "COULD_NOT_READ_OFFSET_RANGE",
            f"{at} was to be read up to offset {stop}, but its high watermark is {here.high_watermark}",
            stop - max(start, here.high_watermark),
        )
        stop = max(start, here.high_watermark)
    return wanted._replace(start=start, stop=max(start, stop))
