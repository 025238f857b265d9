"""The options of a read: of a batch, of a stream, and of a metadata table.

Names and defaults are those of Spark's Kafka source. Options that do not apply and options that contradict each other
are refused by name.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from seeklog.errors import InvalidConfig
from seeklog.names import TopicPartition, check_topic_name, is_url
from seeklog.spark.option_map import OptionMap, shown, storage_options, store_path, wrong
from seeklog.spark.read.bounds import LATEST_MARK, AtOffsets, Earliest, Latest, Point, parse_assign, parse_point
from seeklog.store import Store, open_store

# The columns of Spark's Kafka source in its order; headers needs includeHeaders.
COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
TABLE_NAMES: Final = ("records", "segments", "batches", "offsets", "groups")
MAX_TRIGGER_DELAY_MS: Final = 15 * 60 * 1000
KEYS_SHAPE: Final = 'a JSON list of keys: ["anna", "bob"], or {"base64": "AP8="} for a binary key'

Strategy = Literal["error", "latest"]

_TABLE_OPTIONS: Final = ("path", "storageOptions", "table", "assign", "subscribe", "subscribePattern")
_SHARED: Final = (
    *_TABLE_OPTIONS,
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
)
_BATCH_ONLY: Final = ("key", "keys")
_STREAM_ONLY: Final = (
    "groupId",
    "kafka.group.id",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
)
OPTIONS: Final = (*_SHARED, *_STREAM_ONLY, *_BATCH_ONLY)
_REFUSED: Final = {"topic": "it selects the topic of a write; use subscribe to read"}
_REFUSED_IN_BATCH: Final = {
    **_REFUSED,
    **dict.fromkeys(_STREAM_ONLY, "it applies to streams only; remove it, or use readStream"),
}
_REFUSED_IN_STREAM: Final = {
    **_REFUSED,
    **dict.fromkeys(_BATCH_ONLY, "it applies to spark.read only: a stream cannot follow the latest record of a key"),
}
_REFUSED_IN_TABLE: Final = {
    **dict.fromkeys(OPTIONS, "a metadata table has no records; remove option table to read records"),
    **_REFUSED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The partitions to read, given in one of three ways; all topics if none is set."""

    partitions: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    pattern: str = ""


@dataclass(frozen=True, kw_only=True)
class Source:
    """The store and the partitions to read."""

    path: str
    storage_options: Mapping[str, Any] = field(repr=False)
    choice: Choice

    def open(self) -> Store:
        """Open the store for reading."""
        return open_store(self.path, read_only=True, background=False, storage_options=self.storage_options)


@dataclass(frozen=True, kw_only=True)
class TableOptions(Source):
    """The options of a metadata table."""

    table: str


@dataclass(frozen=True, kw_only=True)
class ReadOptions(Source):
    """The options of `spark.read` and `spark.readStream`."""

    start: Point
    end: Point | None
    """None for a stream without an end."""
    unnamed_start: Point
    """The start of partitions that `start` does not name."""
    time_strategy: Strategy | None
    """What to do if no record is as late as `start`; None for the default."""
    columns: tuple[str, ...]
    min_partitions: int | None
    max_records_per_partition: int | None
    split_bytes: int | None
    fail_on_data_loss: bool
    # Batches only.
    keys: tuple[bytes, ...] = ()
    """Read only the latest record of each of these keys; all records if empty."""
    # Streams only.
    group_id: str | None = None
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = MAX_TRIGGER_DELAY_MS
    max_bytes_per_trigger: int | None = None

    @property
    def split_limits(self) -> dict[str, Any]:
        """The arguments of `plan_splits`."""
        return {
            "split_bytes": self.split_bytes,
            "min_partitions": self.min_partitions,
            "max_records": self.max_records_per_partition,
            "fail_on_data_loss": self.fail_on_data_loss,
        }


def parse_columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns of the records, for a batch or a stream."""
    return _columns(OptionMap(given, known=OPTIONS, refused=_REFUSED))


def parse_read_options(given: Mapping[str, str]) -> ReadOptions:
    """Return the checked options of a batch."""
    options = OptionMap(given, known=(*_SHARED, *_BATCH_ONLY), refused=_REFUSED_IN_BATCH)
    start = parse_point(options, "starting") or Earliest()
    if isinstance(start, Latest):
        raise InvalidConfig(f"option {start.option} is latest, and a batch that starts at the end has no records")
    for at, offset in start.offsets.items() if isinstance(start, AtOffsets) else ():
        if offset == LATEST_MARK:
            raise wrong(f"{start.option} of {at}", offset, "an offset or -2 (earliest): a batch cannot start at -1")
    return ReadOptions(
        **_shared(options),
        start=start,
        end=parse_point(options, "ending") or Latest(),
        unnamed_start=Earliest(),
        keys=_keys(options),
    )


def parse_stream_options(given: Mapping[str, str]) -> ReadOptions:
    """Return the checked options of a stream."""
    if wants_table(given):
        raise InvalidConfig("option table applies to spark.read only: a metadata table cannot be streamed")
    options = OptionMap(given, known=(*_SHARED, *_STREAM_ONLY), refused=_REFUSED_IN_STREAM)
    minimum, maximum = options.number("minOffsetsPerTrigger"), options.number("maxOffsetsPerTrigger")
    if minimum is not None and maximum is not None and minimum > maximum:
        raise InvalidConfig(
            f"option minOffsetsPerTrigger is {minimum}, more than maxOffsetsPerTrigger, which is {maximum}"
        )
    group, kafka_group = options.text("groupId"), options.text("kafka.group.id")
    if group and kafka_group and group != kafka_group:
        named = f"{shown(group)} and {shown(kafka_group)}"
        raise InvalidConfig(f"options groupId and kafka.group.id name two groups, {named}; set one of them")
    shared = _shared(options)
    if (group or kafka_group) and is_url(shared["path"]):
        raise InvalidConfig("option groupId commits offsets, and a store at a URL is read-only; remove it")
    delay_ms = options.duration_ms("maxTriggerDelay")
    if delay_ms is not None and minimum is None:
        raise InvalidConfig("option maxTriggerDelay limits how long minOffsetsPerTrigger may wait; set that too")
    return ReadOptions(
        **shared,
        start=parse_point(options, "starting") or Latest(),
        end=parse_point(options, "ending"),
        unnamed_start=Latest(),
        group_id=group or kafka_group,
        max_offsets_per_trigger=maximum,
        min_offsets_per_trigger=minimum,
        max_trigger_delay_ms=MAX_TRIGGER_DELAY_MS if delay_ms is None else delay_ms,
        max_bytes_per_trigger=options.size_bytes("maxBytesPerTrigger"),
    )


def wants_table(given: Mapping[str, str]) -> bool:
    """Return whether the options select a metadata table instead of records."""
    values = {name.lower(): value for name, value in given.items()}
    return values.get("table", "records").strip().lower() != "records"


def parse_table_options(given: Mapping[str, str]) -> TableOptions:
    """Return the checked options of a metadata table."""
    options = OptionMap(given, known=_TABLE_OPTIONS, refused=_REFUSED_IN_TABLE)
    return TableOptions(**_source(options), table=options.choice("table", TABLE_NAMES, default=""))


def _source(options: OptionMap) -> dict[str, Any]:
    path = store_path(options, may_be_url=True)
    return {"path": path, "storage_options": storage_options(options, path), "choice": _choice(options)}


def _shared(options: OptionMap) -> dict[str, Any]:
    """Return the options common to batches and streams."""
    source = _source(options)
    if source["choice"] == Choice():
        raise InvalidConfig(
            "nothing is selected to read: set one of the options assign, subscribe and subscribePattern"
        )
    strategy = options.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), default="")
    return {
        **source,
        "time_strategy": strategy or None,
        "columns": _columns(options),
        "min_partitions": options.number("minPartitions", maximum=2**31 - 1),
        "max_records_per_partition": options.number("maxRecordsPerPartition"),
        "split_bytes": options.size_bytes("splitBytes", minimum=1 << 10),
        "fail_on_data_loss": options.flag("failOnDataLoss", default=True),
    }


def _choice(options: OptionMap) -> Choice:
    given = [name for name in ("assign", "subscribe", "subscribePattern") if name in options]
    if len(given) > 1:
        raise InvalidConfig(f"options {' and '.join(given)} both select what to read; set one of them")
    topics = options.names("subscribe") or ()
    for topic in topics:
        check_topic_name(topic)
    pattern = options.text("subscribePattern") or ""
    try:
        re.compile(pattern)
    except re.error as error:
        raise InvalidConfig(f"option subscribePattern is {shown(pattern)}, not a regular expression: {error}") from None
    return Choice(partitions=parse_assign(options) or (), topics=tuple(sorted(topics)), pattern=pattern)


def _columns(options: OptionMap) -> tuple[str, ...]:
    headers = options.flag("includeHeaders", default=False)
    chosen = options.names("columns")
    if chosen is None:
        return COLUMNS if headers else COLUMNS[:-1]
    spelt = {name.lower(): name for name in COLUMNS}
    for name in chosen:
        if name.lower() not in spelt:
            raise wrong("columns", ",".join(chosen), f"names out of {', '.join(COLUMNS)}; {name} is not one of them")
    columns = tuple(spelt[name.lower()] for name in chosen)
    if len(set(columns)) != len(columns):
        raise wrong("columns", ",".join(chosen), "each name once")
    if "includeHeaders" in options and headers != ("headers" in columns):
        raise InvalidConfig(
            f"options columns and includeHeaders contradict each other: columns {'lacks' if headers else 'has'} headers"
        )
    return columns


def _keys(options: OptionMap) -> tuple[bytes, ...]:
    key, several = options.text("key"), options.json("keys", shape=KEYS_SHAPE)
    if key is not None and several is not None:
        raise InvalidConfig("options key and keys both select keys; set one of them")
    if key is not None:
        return (key.encode(),)
    if several is None:
        return ()
    if not isinstance(several, list) or not several:
        raise wrong("keys", options.text("keys"), KEYS_SHAPE)
    return tuple(dict.fromkeys(map(_key, several)))


def _key(given: Any) -> bytes:
    if isinstance(given, str):
        return given.encode("utf-8", "surrogatepass")
    if isinstance(given, dict) and list(given) == ["base64"] and isinstance(given["base64"], str):
        try:
            return base64.b64decode(given["base64"], validate=True)
        except (binascii.Error, ValueError):
            pass
    raise wrong("keys", given, KEYS_SHAPE)
