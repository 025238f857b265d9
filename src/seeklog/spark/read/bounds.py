"""Where a read begins and ends, as options say it. Nothing here knows a log: `offsets` finds the numbers.

earliest, latest             the ends of each partition
{"orders": {"0": 23}}        offsets, of all or of some partitions; -2 is earliest, -1 latest
-100                         the place of the last 100 offsets of each partition
-10 minutes                  the first record that is not older than that
2026-05-01T12:00:00Z         the first record stamped then or later; or milliseconds since 1970
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from seeklog.config import parse_span_ms
from seeklog.errors import InvalidConfig
from seeklog.names import TopicPartition, is_topic_name
from seeklog.spark.option_map import INT64_MAX, Words, parse_json, timestamp_ms, wrong

LATEST_MARK: Final = -1
EARLIEST_MARK: Final = -2
OFFSETS_SHAPE: Final = '{"topic": {"0": 23, "1": -2}}'
TIMES_SHAPE: Final = '{"topic": {"0": 1767225600000, "1": "2026-01-01T00:00:00Z"}}'
ASSIGN_SHAPE: Final = '{"topic": [0, 1]}'
_LAST: Final = re.compile(r"-\s*(\d{1,18})\Z", re.ASCII)
_AGO: Final = re.compile(r"-\s*(\d.*)\Z", re.ASCII)
_PARTITION: Final = re.compile(r"(0|[1-9]\d{0,9})\Z", re.ASCII)

Side: TypeAlias = Literal["starting", "ending"]


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first offset that is kept."""

    option: str = ""


@dataclass(frozen=True, slots=True)
class Latest:
    """The high watermark."""

    option: str = ""


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for each of these partitions, or one of the two marks; the others have the default."""

    option: str
    offsets: Mapping[TopicPartition, int] = field(hash=False)


@dataclass(frozen=True, slots=True)
class LastOffsets:
    """So many offsets before the high watermark of each partition."""

    option: str
    count: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record of each partition that is stamped then or later."""

    option: str
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The same with a time for each of these partitions; the others have the default."""

    option: str
    times_ms: Mapping[TopicPartition, int] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Ago:
    """The first record of each partition that is not older than so long."""

    option: str
    span_ms: int


Place: TypeAlias = Earliest | Latest | AtOffsets | LastOffsets | AtTime | AtTimes | Ago


def parse_place(words: Words, side: Side) -> Place | None:
    """Return where a read begins or ends, or None if no option says so.

    As in Spark's Kafka source the time for all partitions counts before the times of some, and those before offsets.
    """
    timestamp_word, times_word, offsets_word = f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"
    moment = words.text(timestamp_word)
    if moment is not None:
        span_ms = _parse_ago(timestamp_word, moment)
        if span_ms is not None:
            return Ago(timestamp_word, span_ms)
        return AtTime(timestamp_word, timestamp_ms(timestamp_word, moment))
    times = words.json(times_word, shape=TIMES_SHAPE)
    if times is not None:
        found = _by_partition(times_word, times, shape=TIMES_SHAPE)
        return AtTimes(times_word, {at: timestamp_ms(f"{times_word} of {at}", value) for at, value in found.items()})
    value = words.text(offsets_word)
    return None if value is None else _parse_offsets(offsets_word, value, side)


def _parse_offsets(option: str, value: str, side: Side) -> Place:
    if value.lower() == "earliest" and side == "starting":
        return Earliest(option)
    if value.lower() == "latest":
        return Latest(option)
    if value.startswith("{"):
        return AtOffsets(option, parse_offsets_option(option, value, side))
    last = _LAST.match(value)
    if last is not None:
        return LastOffsets(option, int(last[1]))
    span_ms = _parse_ago(option, value)
    if span_ms is not None:
        return Ago(option, span_ms)
    if value.lower() == "earliest":
        raise InvalidConfig(f"option {option} is earliest, and a read that ends where the log begins has no record")
    words = "latest" if side == "ending" else "earliest, latest"
    raise wrong(option, value, f"{words}, JSON such as {OFFSETS_SHAPE}, -100 (offsets) or -10 minutes")


def _parse_ago(option: str, value: str) -> int | None:
    match = _AGO.match(value)
    if match is None:
        return None
    span_ms = parse_span_ms(match[1])
    if span_ms is None:
        raise wrong(option, value, "a time span after its minus, such as -10 minutes or -2h")
    return span_ms


def parse_offsets_option(option: str, value: str, side: Side) -> dict[TopicPartition, int]:
    """Return the offsets of an option's JSON, its marks as they are."""
    least = EARLIEST_MARK if side == "starting" else LATEST_MARK
    offsets: dict[TopicPartition, int] = {}
    for at, offset in _by_partition(
        option, parse_json(option, value, shape=OFFSETS_SHAPE), shape=OFFSETS_SHAPE
    ).items():
        if not isinstance(offset, int) or isinstance(offset, bool) or not least <= offset <= INT64_MAX:
            marks = "-2 (earliest) or -1 (latest)" if side == "starting" else "-1 (latest)"
            raise wrong(f"{option} of {at}", offset, f"an offset, {marks}")
        offsets[at] = offset
    return offsets


def _by_partition(option: str, value: object, *, shape: str) -> dict[TopicPartition, object]:
    """Return {partition: value} of Kafka's nested JSON."""
    found: dict[TopicPartition, object] = {}
    if not isinstance(value, dict):
        raise wrong(option, value, f"JSON such as {shape}")
    for topic, inner in value.items():
        if not isinstance(inner, dict) or not is_topic_name(topic):
            raise wrong(f"{option}, topic {topic}", inner, f"partitions with a value each, as in {shape}")
        for number, one in inner.items():
            found[TopicPartition(topic, _partition(option, topic, number))] = one
    return found


def parse_assign(words: Words) -> tuple[TopicPartition, ...] | None:
    """Return the partitions that `assign` names, in order, or None if it was not given."""
    value = words.json("assign", shape=ASSIGN_SHAPE)
    if value is None:
        return None
    found: list[TopicPartition] = []
    for topic, numbers in value.items() if isinstance(value, dict) else ():
        if not isinstance(numbers, list) or not is_topic_name(topic):
            raise wrong(f"assign, topic {topic}", numbers, f"a list of partitions, as in {ASSIGN_SHAPE}")
        found.extend(TopicPartition(topic, _partition("assign", topic, number)) for number in numbers)
    if not found:
        raise wrong("assign", value, f"JSON such as {ASSIGN_SHAPE}, with one partition at least")
    if len(set(found)) != len(found):
        raise wrong("assign", value, "each partition once")
    return tuple(sorted(found))


def _partition(option: str, topic: str, number: object) -> int:
    if isinstance(number, bool) or not _PARTITION.match(str(number)) or int(str(number)) >= 2**31:
        raise wrong(f"{option}, topic {topic}", number, "a partition's number")
    return int(str(number))
