"""From places to offsets: which partitions a read has, where it begins and ends in each, and Kafka's JSON of that.

Every function works on an open store and answers for the moment it is called. The meaning of errors is that of
Spark's Kafka source; `DataLoss` has its words.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from seeklog.clock import Clock, SystemClock
from seeklog.errors import DataLoss, InvalidConfig, TopicNotFound
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
from seeklog.spark.read.options import Choice, ReadOptions, SourceOptions
from seeklog.store import Store
from seeklog.topics.description import TopicDescription

logger = logging.getLogger("seeklog")


class Bounds(NamedTuple):
    """What of a partition can be read: from the log's start to the high watermark, exclusive."""

    log_start_offset: int
    high_watermark: int
    topic_id: str


class Range(NamedTuple):
    """Offsets of one partition, from `start` to `stop`, exclusive."""

    partition: TopicPartition
    start: int
    stop: int


# ---------------------------------------------------------------- Kafka's JSON


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return Kafka's shape, `{"topic": {"0": 5}}`, its keys in order: Spark compares offsets as text."""
    encoded: dict[str, dict[str, int]] = {}
    for at in sorted(offsets):
        encoded.setdefault(at.topic, {})[str(at.partition)] = offsets[at]
    return encoded


def decode_offsets(encoded: Mapping[str, Mapping[str, Any]]) -> dict[TopicPartition, int]:
    """Return the offsets that `encode_offsets` made a shape of."""
    return {
        TopicPartition(topic, int(number)): int(inner[number])
        for topic, inner in sorted(encoded.items())
        for number in sorted(inner, key=int)
    }


# ---------------------------------------------------------------- what there is


def find_bounds(store: Store, choice: Choice) -> dict[TopicPartition, Bounds]:
    """Return the chosen partitions, in order, with what can be read of each.

    A topic or a partition that is named and is not there raises `TopicNotFound`; a pattern may match nothing.
    """
    if choice.partitions:
        topics = sorted({at.topic for at in choice.partitions})
    elif choice.topics:
        topics = list(choice.topics)
    else:
        pattern = re.compile(choice.pattern or ".*")
        topics = [name for name in store.topics() if pattern.fullmatch(name)]
    found: dict[TopicPartition, Bounds] = {}
    for topic in topics:
        try:
            found.update(_bounds_of(store.describe_topic(topic)))
        except TopicNotFound:
            if choice.partitions or choice.topics:
                raise
            continue  # deleted since its name was listed
    if not choice.partitions:
        return found
    for at in choice.partitions:
        if at not in found:
            numbers = [one.partition for one in found if one.topic == at.topic]
            raise TopicNotFound(f"topic {at.topic!r} has no partition {at.partition}; it has {_listed(numbers)}")
    return {at: found[at] for at in choice.partitions}


def _listed(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:10]))
    return shown if len(numbers) <= 10 else f"{shown} and {len(numbers) - 10} more"


def _bounds_of(topic: TopicDescription) -> dict[TopicPartition, Bounds]:
    return {
        TopicPartition(topic.name, one.partition): Bounds(one.log_start_offset, one.high_watermark, topic.topic_id)
        for one in topic.partitions
    }


def latest_offsets(bounds: Mapping[TopicPartition, Bounds]) -> dict[TopicPartition, int]:
    """Return the high watermarks."""
    return {at: one.high_watermark for at, one in bounds.items()}


# ---------------------------------------------------------------- where to begin and to end


def start_offsets(
    store: Store,
    bounds: Mapping[TopicPartition, Bounds],
    options: SourceOptions,
    *,
    clock: Clock | None = None,
) -> dict[TopicPartition, int]:
    """Return where a read begins in each partition. An offset that was given is returned as it is, kept or not."""

    def without_record(place: AtTime | AtTimes | Ago, at: TopicPartition, timestamp_ms: int) -> int:
        # Nobody who asks for the last minutes means that there must be a record in them.
        default = "latest" if isinstance(place, Ago) else "error"
        if (options.time_strategy or default) == "latest":
            return bounds[at].high_watermark
        raise InvalidConfig(
            f"option {place.option}: no record of {at} is stamped at {_moment(timestamp_ms)} or later; give an earlier "
            "time, or startingOffsetsByTimestampStrategy=latest to begin at the end there"
        )

    return _resolve(
        store, bounds, options.start, unnamed=options.unnamed_start, without_record=without_record, clock=clock
    )


def end_offsets(
    store: Store,
    bounds: Mapping[TopicPartition, Bounds],
    options: SourceOptions,
    *,
    clock: Clock | None = None,
) -> dict[TopicPartition, int]:
    """Return where a read ends in each partition, exclusive; a stream without an end has none."""
    if options.end is None:
        return {}

    def without_record(place: AtTime | AtTimes | Ago, at: TopicPartition, timestamp_ms: int) -> int:
        return bounds[at].high_watermark

    return _resolve(store, bounds, options.end, unnamed=Latest(), without_record=without_record, clock=clock)


def _resolve(
    store: Store,
    bounds: Mapping[TopicPartition, Bounds],
    place: Place,
    *,
    unnamed: Place,
    without_record: Callable[[AtTime | AtTimes | Ago, TopicPartition, int], int],
    clock: Clock | None,
) -> dict[TopicPartition, int]:
    named = place.offsets if isinstance(place, AtOffsets) else place.times_ms if isinstance(place, AtTimes) else None
    for at in named or ():
        if at not in bounds:
            raise InvalidConfig(
                f"option {place.option} names {at}, which is not among the {len(bounds)} partitions that are read"
            )
    now_ms = (clock or SystemClock()).now_ms() if isinstance(place, Ago) else 0
    offsets: dict[TopicPartition, int] = {}
    for at, one in bounds.items():
        here = unnamed if named is not None and at not in named else place
        match here:
            case Earliest():
                offsets[at] = one.log_start_offset
            case Latest():
                offsets[at] = one.high_watermark
            case LastOffsets(count=count):
                offsets[at] = max(one.log_start_offset, one.high_watermark - count)
            case AtOffsets(offsets=given):
                marks = {EARLIEST_MARK: one.log_start_offset, LATEST_MARK: one.high_watermark}
                offsets[at] = marks.get(given[at], given[at])
            case AtTime() | AtTimes() | Ago():
                timestamp_ms = _time_of(here, at, now_ms)
                found = store.log(at.topic, at.partition).offset_at_time(timestamp_ms)
                # The log may have grown since: what came behind the bounds does not count.
                is_inside = found is not None and found < one.high_watermark
                offsets[at] = found if found is not None and is_inside else without_record(here, at, timestamp_ms)
    return offsets


def _time_of(place: AtTime | AtTimes | Ago, at: TopicPartition, now_ms: int) -> int:
    match place:
        case AtTime(timestamp_ms=timestamp_ms):
            return timestamp_ms
        case AtTimes(times_ms=times_ms):
            return times_ms[at]
        case Ago(span_ms=span_ms):
            return max(0, now_ms - span_ms)


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
    ranges = []
    for at, one in bounds.items():
        check_order(at, starts[at], ends[at])
        start, stop = kept_range(at, starts[at], ends[at], one, fail_on_data_loss=options.fail_on_data_loss)
        if start < stop:
            ranges.append(Range(at, start, stop))
    return ranges


def check_order(at: TopicPartition, start: int, stop: int) -> None:
    """Refuse a range that ends before it begins."""
    if start > stop:
        raise InvalidConfig(
            f"[RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] {at} would be read from offset {start} to {stop}; "
            "the start must not be behind the end"
        )


def kept_range(
    at: TopicPartition, start: int, stop: int, bounds: Bounds, *, fail_on_data_loss: bool
) -> tuple[int, int]:
    """Return the part of a range that the log has.

    What is missing raises `DataLoss`; without `fail_on_data_loss` it is a warning that says how many offsets it is.
    """
    if start < bounds.log_start_offset and start < stop:
        gone = min(stop, bounds.log_start_offset)
        report_loss(
            "START_OFFSET_RESET",
            f"{at} was to be read from offset {start}, but its records begin at {bounds.log_start_offset}",
            count=gone - start,
            fail=fail_on_data_loss,
        )
        start = gone
    if stop > bounds.high_watermark:
        report_loss(
            "COULD_NOT_READ_OFFSET_RANGE",
            f"{at} was to be read up to offset {stop}, but its high watermark is {bounds.high_watermark}",
            count=stop - max(start, bounds.high_watermark),
            fail=fail_on_data_loss,
        )
        stop = max(start, bounds.high_watermark)
    return start, stop


def report_loss(condition: str, message: str, *, count: int, fail: bool) -> None:
    """Raise `DataLoss`, or log one warning that counts the offsets that are not read."""
    counted = f"{message}; {count} offset{'s are' if count != 1 else ' is'} missing"
    if fail:
        raise DataLoss(condition, f"{counted}. Set failOnDataLoss=false to read what is there, or begin at earliest")
    logger.warning("[DATA_LOSS.%s] %s, and left out because failOnDataLoss is false", condition, counted)
