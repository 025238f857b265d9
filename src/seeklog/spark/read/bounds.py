"""Parses the options for where a read starts and ends. `offsets` resolves them against a log.

earliest, latest             the ends of each partition
{"orders": {"0": 23}}        offsets, of all or of some partitions; -2 is earliest, -1 latest
-100                         the last 100 offsets of each partition
-10 minutes                  the first record that is not older than this
2026-05-01T12:00:00Z         the first record with this timestamp or a later one; or milliseconds since 1970
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from seeklog.config import INT64_MAX, parse_span_ms
from seeklog.errors import InvalidConfig
from seeklog.names import TopicPartition, is_topic_name
from seeklog.spark.option_map import OptionMap, timestamp_ms, wrong

LATEST_MARK: Final = -1
EARLIEST_MARK: Final = -2
OFFSETS_SHAPE: Final = '{"topic": {"0": 23, "1": -2}}'
TIMES_SHAPE: Final = '{"topic": {"0": 1767225600000, "1": "2026-01-01T00:00:00Z"}}'
ASSIGN_SHAPE: Final = '{"topic": [0, 1]}'
_LAST: Final = re.compile(r"-\s*(\d{1,18})\Z", re.ASCII)
_AGO: Final = re.compile(r"-\s*(\d.*)\Z", re.ASCII)
_PARTITION: Final = re.compile(r"(0|[1-9]\d{0,9})\Z", re.ASCII)

Side: TypeAlias = Literal["starting", "ending"]


@dataclass(frozen=True)
class Point:
    """Where a read starts or ends in its partitions, and the option that sets it."""

    option: str = ""


class Earliest(Point):
    """The log start offset."""


class Latest(Point):
    """The high watermark."""


@dataclass(frozen=True)
class AtOffsets(Point):
    """An offset or a mark for each of these partitions; other partitions use the default."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True)
class LastOffsets(Point):
    """`count` offsets before the high watermark of each partition."""

    count: int = 0


@dataclass(frozen=True)
class AtTime(Point):
    """The first record of each partition with this timestamp or a later one."""

    timestamp_ms: int = 0


@dataclass(frozen=True)
class AtTimes(Point):
    """A timestamp for each of these partitions; other partitions use the default."""

    times_ms: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Ago(Point):
    """The first record of each partition that is not older than this."""

    span_ms: int = 0


def parse_point(options: OptionMap, side: Side) -> Point | None:
    """Return where a read starts or ends, or None if no option sets it.

    As in Spark's Kafka source, a timestamp for all partitions overrides timestamps by partition, and those override
    offsets.
    """
    option = f"{side}Timestamp"
    moment = options.text(option)
    if moment is not None:
        span_ms = _parse_ago(option, moment)
        return AtTime(option, timestamp_ms(option, moment)) if span_ms is None else Ago(option, span_ms)
    option = f"{side}OffsetsByTimestamp"
    times = options.json(option, shape=TIMES_SHAPE)
    if times is not None:
        times = _by_partition(option, times, shape=TIMES_SHAPE)
        return AtTimes(option, {at: timestamp_ms(f"{option} of {at}", value) for at, value in times.items()})
    return _parse_offsets(options, f"{side}Offsets", side)


def _parse_offsets(options: OptionMap, option: str, side: Side) -> Point | None:
    value = options.text(option)
    if value is None:
        return None
    if value.lower() == "earliest" and side == "starting":
        return Earliest(option)
    if value.lower() == "latest":
        return Latest(option)
    if value.startswith("{"):
        offsets = _by_partition(option, options.json(option, shape=OFFSETS_SHAPE), shape=OFFSETS_SHAPE)
        return AtOffsets(option, {at: _offset(f"{option} of {at}", offset, side) for at, offset in offsets.items()})
    last = _LAST.match(value)
    if last is not None:
        return LastOffsets(option, int(last[1]))
    span_ms = _parse_ago(option, value)
    if span_ms is not None:
        return Ago(option, span_ms)
    if value.lower() == "earliest":
        raise InvalidConfig(f"option {option} is earliest, and a read that ends at the log's start has no records")
    ends = "latest" if side == "ending" else "earliest, latest"
    raise wrong(option, value, f"{ends}, JSON such as {OFFSETS_SHAPE}, -100 (offsets) or -10 minutes")


def _parse_ago(option: str, value: str) -> int | None:
    match = _AGO.match(value)
    if match is None:
        return None
    span_ms = parse_span_ms(match[1])
    if span_ms is None:
        raise wrong(option, value, "a minus and a time span, such as -10 minutes or -2h")
    return span_ms


def _offset(name: str, offset: object, side: Side) -> int:
    """Check an offset or a mark."""
    minimum = EARLIEST_MARK if side == "starting" else LATEST_MARK
    if not isinstance(offset, int) or isinstance(offset, bool) or not minimum <= offset <= INT64_MAX:
        marks = "-2 (earliest) or -1 (latest)" if side == "starting" else "-1 (latest)"
        raise wrong(name, offset, f"an offset, {marks}")
    return offset


def _by_partition(option: str, value: object, *, shape: str) -> dict[TopicPartition, object]:
    """Return the values of Kafka's nested JSON by partition."""
    values: dict[TopicPartition, object] = {}
    if not isinstance(value, dict):
        raise wrong(option, value, f"JSON such as {shape}")
    for topic, inner in value.items():
        if not isinstance(inner, dict) or not is_topic_name(topic):
            raise wrong(f"{option}, topic {topic}", inner, f"a value for each partition, as in {shape}")
        values |= {TopicPartition(topic, _partition(option, topic, number)): inner[number] for number in inner}
    return values


def parse_assign(options: OptionMap) -> tuple[TopicPartition, ...] | None:
    """Return the partitions in `assign`, in order, or None if it is not set."""
    value = options.json("assign", shape=ASSIGN_SHAPE)
    if value is None:
        return None
    assigned: list[TopicPartition] = []
    for topic, numbers in value.items() if isinstance(value, dict) else ():
        if not isinstance(numbers, list) or not is_topic_name(topic):
            raise wrong(f"assign, topic {topic}", numbers, f"a list of partitions, as in {ASSIGN_SHAPE}")
        assigned.extend(TopicPartition(topic, _partition("assign", topic, number)) for number in numbers)
    if not assigned:
        raise wrong("assign", value, f"JSON such as {ASSIGN_SHAPE}, with at least one partition")
    if len(set(assigned)) != len(assigned):
        raise wrong("assign", value, "a list with each partition once")
    return tuple(sorted(assigned))


def _partition(option: str, topic: str, number: object) -> int:
    if isinstance(number, bool) or not _PARTITION.match(str(number)) or int(str(number)) >= 2**31:
        raise wrong(f"{option}, topic {topic}", number, "a partition number")
    return int(str(number))
