"""What lies between two positions of a stream, held against what the store has: what can be read, and what is gone.

The conditions are those of Spark's Kafka source. What a loss leads to is the caller's to say: `fail_on`, `warn_of`
or `pass_over` it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from seeklog.errors import DataLoss
from seeklog.names import TopicPartition
from seeklog.spark.read.offsets import Bounds, Range
from seeklog.spark.read.position import Position

logger = logging.getLogger("seeklog")

_NAMED_MOST: Final = 5


class Loss(NamedTuple):
    """Records that a stream was to read and will not."""

    condition: str
    message: str
    extent: str
    """How much it is, counted."""


Report: TypeAlias = Callable[[Loss], None]


def fail_on(loss: Loss) -> None:
    """End the query."""
    raise DataLoss(
        loss.condition,
        f"{loss.message}; {loss.extent} missing. Set failOnDataLoss=false to go on with what is there, or start over "
        "with a new checkpointLocation",
    )


def warn_of(loss: Loss) -> None:
    """Say it in one line and go on."""
    logger.warning(
        "[DATA_LOSS.%s] %s; %s missing, and the stream goes on because failOnDataLoss is false",
        loss.condition,
        loss.message,
        loss.extent,
    )


def pass_over(loss: Loss) -> None:
    """Say nothing: whoever plans the batch does."""


def ranges_between(
    start: Position, end: Position, bounds: Mapping[TopicPartition, Bounds], *, report: Report
) -> list[Range]:
    """Return what can be read between two positions, one range for each partition that has any, in order.

    A partition that `start` does not have is new, and begins where its log does. One that `end` does not have, or
    whose topic is another one by now, is gone.
    """
    ranges: list[Range] = []
    gone: dict[str, list[TopicPartition]] = {}
    remade: dict[str, list[TopicPartition]] = {}
    for at in sorted({*start.offsets, *end.offsets}):
        here, first, stop = bounds.get(at), start.offsets.get(at), end.offsets.get(at)
        if stop is None or here is None or end.is_other_topic(at, here.topic_id):
            gone.setdefault(at.topic, []).append(at)
            continue
        if first is None:
            first = _first_of_new(at, here, report)
        elif start.is_other_topic(at, end.topic_ids.get(at.topic)):
            remade.setdefault(at.topic, []).append(at)
            first = here.log_start_offset
        elif first > stop:
            report(
                Loss(
                    "PARTITION_OFFSET_CHANGED",
                    f"{at} was read up to offset {first}, but its records end at {stop} now",
                    _offsets(first - stop),
                )
            )
        first, stop = _kept(at, first, stop, here, report)
        if first < stop:
            ranges.append(Range(at, first, stop))
    for topic, partitions in gone.items():
        report(Loss("PARTITIONS_DELETED", *_deleted(topic, partitions, start, "deleted, or are no longer read")))
    for topic, partitions in remade.items():
        report(Loss("PARTITIONS_DELETED", *_deleted(topic, partitions, start, "deleted and made anew")))
    return ranges


def _first_of_new(at: TopicPartition, here: Bounds, report: Report) -> int:
    if here.log_start_offset > 0:
        report(
            Loss(
                "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
                f"{at} is new to the stream, but its records begin at offset {here.log_start_offset} by now",
                _offsets(here.log_start_offset),
            )
        )
    return here.log_start_offset


def _kept(at: TopicPartition, first: int, stop: int, here: Bounds, report: Report) -> tuple[int, int]:
    if first < here.log_start_offset and first < stop:
        report(
            Loss(
                "START_OFFSET_RESET",
                f"{at} was to be read on from offset {first}, but its records begin at {here.log_start_offset} by now",
                _offsets(min(stop, here.log_start_offset) - first),
            )
        )
        first = here.log_start_offset
    if stop > here.high_watermark and first < stop:
        report(
            Loss(
                "COULD_NOT_READ_OFFSET_RANGE",
                f"{at} was to be read up to offset {stop}, but its high watermark is {here.high_watermark} now",
                _offsets(stop - max(first, here.high_watermark)),
            )
        )
        stop = here.high_watermark
    return first, stop


def _deleted(topic: str, partitions: list[TopicPartition], start: Position, what: str) -> tuple[str, str]:
    named = ", ".join(f"{at} (read up to offset {start.offsets.get(at, 0)})" for at in partitions[:_NAMED_MOST])
    others = f" and {len(partitions) - _NAMED_MOST} more" if len(partitions) > _NAMED_MOST else ""
    count = len(partitions)
    return (
        f"partitions of topic {topic} were {what}: {named}{others}",
        f"what came after in {count} partition{'s is' if count != 1 else ' is'}",
    )


def _offsets(count: int) -> str:
    return f"{count} offsets are" if count != 1 else "1 offset is"
