"""The options of a read, checked: what a batch and a stream share, and what only one of them knows.

Names and defaults are those of Spark's Kafka source. What only a stream can use is refused for a batch by name, and
so is everything that contradicts something else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from seeklog.errors import InvalidConfig
from seeklog.names import TopicPartition, check_topic_name, is_url
from seeklog.spark.option_map import Words, shown, source_path, storage_options, wrong
from seeklog.spark.read.bounds import LATEST_MARK, AtOffsets, Earliest, Latest, Place, parse_assign, parse_place
from seeklog.spark.read.keys import KEY_WORDS, NOT_FOR_STREAMS, parse_keys

# Kafka's columns in Kafka's order; headers come with includeHeaders.
COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
TABLES: Final = ("records", "segments", "batches", "offsets", "groups")
# About a second's work of one task in two: below this Spark's cost of a task shows, above it a retry costs more.
SPLIT_BYTES: Final = 128 << 20
MAX_TRIGGER_DELAY_MS: Final = 15 * 60 * 1000

Strategy = Literal["error", "latest"]

_SHARED: Final = (
    "path",
    "storageOptions",
    "assign",
    "subscribe",
    "subscribePattern",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "minPartitions",
    "maxRecordsPerPartition",
    "splitBytes",
    "includeHeaders",
    "columns",
    "failOnDataLoss",
    "table",
)
_STREAM_ONLY: Final = (
    "groupId",
    "kafka.group.id",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
)
_TABLE_WORDS: Final = ("path", "storageOptions", "table", "assign", "subscribe", "subscribePattern")
OPTIONS: Final = (*_SHARED, *_STREAM_ONLY, *KEY_WORDS)
_REFUSED: Final[Mapping[str, str]] = {"topic": "it says where rows are written to; use subscribe to read"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which partitions are read. Of the three ways one is given; all topics if none is."""

    partitions: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str = ""


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """What a batch and a stream share."""

    path: str
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    choice: Choice
    start: Place
    end: Place | None
    """None for a stream that goes on for ever."""
    unnamed_start: Place
    """Where partitions begin that `start` does not name."""
    time_strategy: Strategy | None
    """What to do where no record is as late as the start asks: None if nobody has said so."""
    columns: tuple[str, ...]
    min_partitions: int | None
    max_records_per_partition: int | None
    split_bytes: int | None
    fail_on_data_loss: bool


@dataclass(frozen=True, kw_only=True)
class ReadOptions(SourceOptions):
    """The options of `spark.read`."""

    keys: tuple[bytes, ...] = ()
    """Whose latest records alone are read; none: all records are."""


@dataclass(frozen=True, kw_only=True)
class StreamOptions(SourceOptions):
    """The options of `spark.readStream`."""

    group_id: str | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    max_bytes_per_trigger: int | None


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """The options of a metadata table."""

    path: str
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    table: str
    choice: Choice


def parse_columns(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns of the records that are read, whether by a batch or by a stream."""
    return _columns(Words(options, known=OPTIONS, refused=_REFUSED))


def parse_read_options(options: Mapping[str, str]) -> ReadOptions:
    """Return a batch's options, checked."""
    stream_only = dict.fromkeys(_STREAM_ONLY, "it is for streams: a batch reads from its start to its end")
    words = Words(options, known=(*_SHARED, *KEY_WORDS), refused={**_REFUSED, **stream_only})
    start = parse_place(words, "starting") or Earliest()
    end = parse_place(words, "ending") or Latest()
    if isinstance(start, Latest):
        raise InvalidConfig(f"option {start.option} is latest, and a batch that begins at the end has no record")
    if isinstance(start, AtOffsets):
        for at, offset in start.offsets.items():
            if offset == LATEST_MARK:
                raise wrong(f"{start.option} of {at}", offset, "an offset or -2 (earliest): a batch cannot begin at -1")
    return ReadOptions(**_shared(words, start=start, end=end, unnamed_start=Earliest()), keys=parse_keys(words))


def parse_stream_options(options: Mapping[str, str]) -> StreamOptions:
    """Return a stream's options, checked."""
    if wants_table(options):
        raise InvalidConfig("option table is for spark.read: a metadata table is no stream")
    words = Words(options, known=(*_SHARED, *_STREAM_ONLY), refused={**_REFUSED, **NOT_FOR_STREAMS})
    least, most = words.number("minOffsetsPerTrigger"), words.number("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise InvalidConfig(f"option minOffsetsPerTrigger is {least}, more than maxOffsetsPerTrigger, which is {most}")
    if _group_id(words) is not None and is_url(source_path(words)):
        raise InvalidConfig("option groupId commits offsets, and what lies at a URL is only read; leave it out")
    delay_ms = words.duration_ms("maxTriggerDelay")
    if delay_ms is not None and least is None:
        raise InvalidConfig("option maxTriggerDelay says how long minOffsetsPerTrigger may wait; give that one, too")
    return StreamOptions(
        **_shared(words, start=parse_place(words, "starting") or Latest(), end=parse_place(words, "ending")),
        group_id=_group_id(words),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=MAX_TRIGGER_DELAY_MS if delay_ms is None else delay_ms,
        max_bytes_per_trigger=words.size_bytes("maxBytesPerTrigger"),
    )


def _shared(words: Words, *, start: Place, end: Place | None, unnamed_start: Place | None = None) -> dict[str, Any]:
    path = source_path(words)
    choice = _choice(words)
    if choice is None:
        raise InvalidConfig("say what to read: one of the options assign, subscribe and subscribePattern is needed")
    strategy = words.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), default="")
    return {
        "path": path,
        "storage_options": storage_options(words, path),
        "choice": choice,
        "start": start,
        "end": end,
        "unnamed_start": unnamed_start or Latest(),
        "time_strategy": strategy or None,
        "columns": _columns(words),
        "min_partitions": words.number("minPartitions", most=2**31 - 1),
        "max_records_per_partition": words.number("maxRecordsPerPartition"),
        "split_bytes": words.size_bytes("splitBytes", least=1 << 10),
        "fail_on_data_loss": words.flag("failOnDataLoss", default=True),
    }


def _choice(words: Words) -> Choice | None:
    given = [name for name in ("assign", "subscribe", "subscribePattern") if name in words]
    if len(given) > 1:
        raise InvalidConfig(f"options {' and '.join(given)} both say what to read; give one of them")
    if not given:
        return None
    partitions = parse_assign(words)
    if partitions is not None:
        return Choice(partitions=partitions)
    topics = words.names("subscribe")
    if topics is not None:
        for topic in topics:
            check_topic_name(topic)
        return Choice(topics=tuple(sorted(topics)))
    pattern = words.text("subscribePattern") or ""
    try:
        re.compile(pattern)
    except re.error as error:
        raise InvalidConfig(f"option subscribePattern is {shown(pattern)}, no regular expression: {error}") from None
    return Choice(pattern=pattern)


def _columns(words: Words) -> tuple[str, ...]:
    headers = words.flag("includeHeaders", default=False)
    chosen = words.names("columns")
    if chosen is None:
        return COLUMNS if headers else COLUMNS[:-1]
    spelt = {name.lower(): name for name in COLUMNS}
    for name in chosen:
        if name.lower() not in spelt:
            raise wrong("columns", ",".join(chosen), f"names out of {', '.join(COLUMNS)}; {name} is none of them")
    columns = tuple(spelt[name.lower()] for name in chosen)
    if len(set(columns)) != len(columns):
        raise wrong("columns", ",".join(chosen), "each name once")
    if "includeHeaders" in words and headers != ("headers" in columns):
        raise InvalidConfig(
            f"options columns and includeHeaders contradict each other: columns {'lacks' if headers else 'has'} headers"
        )
    return columns


def _group_id(words: Words) -> str | None:
    own, kafkas = words.text("groupId"), words.text("kafka.group.id")
    if own is not None and kafkas is not None and own != kafkas:
        raise InvalidConfig(f"options groupId and kafka.group.id name two groups: {shown(own)} and {shown(kafkas)}")
    return own or kafkas


def wants_table(options: Mapping[str, str]) -> bool:
    """Tell whether options ask for a metadata table, and not for records."""
    values = {name.lower(): value for name, value in options.items()}
    return values.get("table", "records").strip().lower() != "records"


def parse_table_options(options: Mapping[str, str]) -> TableOptions:
    """Return the options of a metadata table, checked."""
    others = [name for name in (*_SHARED, *_STREAM_ONLY, *KEY_WORDS) if name not in _TABLE_WORDS]
    no_records = dict.fromkeys(others, "a metadata table has no records; leave out the option table to read those")
    words = Words(options, known=_TABLE_WORDS, refused={**_REFUSED, **no_records})
    path = source_path(words)
    return TableOptions(
        path=path,
        storage_options=storage_options(words, path),
        table=words.choice("table", TABLES, default=""),
        choice=_choice(words) or Choice(),
    )
