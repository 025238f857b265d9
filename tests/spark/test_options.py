"""Wrong, unknown, missing, and contradicting options are refused with a one-line error that names them."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("pyspark")

from seeklog.errors import InvalidConfig, InvalidName
from seeklog.names import TopicPartition
from seeklog.spark.option_map import OptionMap, store_path
from seeklog.spark.read.bounds import Ago, AtOffsets, AtTime, AtTimes, Earliest, LastOffsets, Latest
from seeklog.spark.read.options import (
    COLUMNS,
    Choice,
    ReadOptions,
    parse_columns,
    parse_read_options,
    parse_stream_options,
    parse_table_options,
    wants_table,
)

NOW_S = int(time.time())
BASE = {"path": "/store", "subscribe": "orders"}
AT = TopicPartition


def read(**options: str) -> ReadOptions:
    return parse_read_options({**BASE, **options})


def stream(**options: str) -> ReadOptions:
    return parse_stream_options({**BASE, **options})


# ---------------------------------------------------------------- defaults


def test_a_batch_has_the_defaults_of_sparks_kafka_source() -> None:
    options = read()

    assert (options.start, options.end) == (Earliest(), Latest())
    assert options.choice == Choice(topics=("orders",))
    assert options.columns == COLUMNS[:-1]
    assert options.fail_on_data_loss
    assert (options.min_partitions, options.max_records_per_partition, options.time_strategy) == (None, None, None)


def test_a_stream_has_the_defaults_of_sparks_kafka_source() -> None:
    options = stream()

    assert (options.start, options.end) == (Latest(), None)
    assert options.max_trigger_delay_ms == 15 * 60 * 1000
    assert (options.max_offsets_per_trigger, options.min_offsets_per_trigger, options.group_id) == (None, None, None)
    assert options.fail_on_data_loss


def test_option_names_are_case_insensitive() -> None:
    options = parse_read_options({"PATH": "/store", "subscribepattern": "a.*", "INCLUDEHEADERS": "TRUE"})

    assert options.columns == COLUMNS
    assert options.choice == Choice(pattern="a.*")


# ---------------------------------------------------------------- good values


@pytest.mark.parametrize(
    ("settings", "point"),
    [
        ({"startingOffsets": "earliest"}, Earliest("startingOffsets")),
        ({"startingOffsets": "EARLIEST"}, Earliest("startingOffsets")),
        ({"startingOffsets": "-100"}, LastOffsets("startingOffsets", 100)),
        ({"startingOffsets": "-1"}, LastOffsets("startingOffsets", 1)),
        ({"startingOffsets": "-10 minutes"}, Ago("startingOffsets", 600_000)),
        ({"startingOffsets": "- 2h"}, Ago("startingOffsets", 7_200_000)),
        ({"startingTimestamp": "-1 day"}, Ago("startingTimestamp", 86_400_000)),
        (
            {"startingOffsets": '{"orders": {"0": 23, "1": -2}}'},
            AtOffsets("startingOffsets", {AT("orders", 0): 23, AT("orders", 1): -2}),
        ),
        ({"startingTimestamp": "1700000000000"}, AtTime("startingTimestamp", 1_700_000_000_000)),
        ({"startingTimestamp": "2023-11-14T22:13:20Z"}, AtTime("startingTimestamp", 1_700_000_000_000)),
        ({"startingTimestamp": "2023-11-14T22:13:20"}, AtTime("startingTimestamp", 1_700_000_000_000)),
        ({"startingTimestamp": "2023-11-14T23:13:20.005+01:00"}, AtTime("startingTimestamp", 1_700_000_000_005)),
        ({"startingTimestamp": "1970-01-02"}, AtTime("startingTimestamp", 86_400_000)),
        (
            {"startingOffsetsByTimestamp": '{"orders": {"0": 5, "1": "1970-01-01T00:00:01Z"}}'},
            AtTimes("startingOffsetsByTimestamp", {AT("orders", 0): 5, AT("orders", 1): 1000}),
        ),
        (
            {"startingTimestamp": "5", "startingOffsetsByTimestamp": '{"orders": {"0": 6}}', "startingOffsets": "-7"},
            AtTime("startingTimestamp", 5),
        ),
        (
            {"startingOffsetsByTimestamp": '{"orders": {"0": 6}}', "startingOffsets": "-7"},
            AtTimes("startingOffsetsByTimestamp", {AT("orders", 0): 6}),
        ),
    ],
)  # fmt: skip
def test_start_has_many_forms(settings: dict[str, str], point: object) -> None:
    assert read(**settings).start == point
    assert stream(**settings).start == point


@pytest.mark.parametrize(
    ("settings", "point"),
    [
        ({"endingOffsets": "latest"}, Latest("endingOffsets")),
        ({"endingOffsets": "-5"}, LastOffsets("endingOffsets", 5)),
        ({"endingOffsets": '{"orders": {"0": -1}}'}, AtOffsets("endingOffsets", {AT("orders", 0): -1})),
        ({"endingTimestamp": "7", "endingOffsets": "latest"}, AtTime("endingTimestamp", 7)),
        (
            {"endingOffsetsByTimestamp": '{"orders": {"2": 9}}'},
            AtTimes("endingOffsetsByTimestamp", {AT("orders", 2): 9}),
        ),
    ],
)  # fmt: skip
def test_end_has_the_forms_of_a_start_for_streams_too(settings: dict[str, str], point: object) -> None:
    assert read(**settings).end == point
    assert stream(**settings).end == point


def test_stream_may_start_at_the_end() -> None:
    assert stream(startingOffsets="latest").start == Latest("startingOffsets")
    assert stream(startingOffsets='{"orders": {"0": -1}}').start == AtOffsets("startingOffsets", {AT("orders", 0): -1})


@pytest.mark.parametrize(
    ("settings", "choice"),
    [
        ({"subscribe": " orders , refunds "}, Choice(topics=("orders", "refunds"))),
        ({"subscribe": "refunds,orders"}, Choice(topics=("orders", "refunds"))),
        ({"subscribePattern": "o.*"}, Choice(pattern="o.*")),
        ({"assign": '{"b": [1, 0], "a": [3]}'}, Choice(partitions=(AT("a", 3), AT("b", 0), AT("b", 1)))),
    ],
)
def test_partitions_are_chosen_in_three_ways(settings: dict[str, str], choice: Choice) -> None:
    assert parse_read_options({"path": "/store", **settings}).choice == choice


@pytest.mark.parametrize(
    ("settings", "columns"),
    [
        ({}, COLUMNS[:-1]),
        ({"includeHeaders": "true"}, COLUMNS),
        ({"columns": "value, offset"}, ("value", "offset")),
        ({"columns": "TIMESTAMPTYPE,headers"}, ("timestampType", "headers")),
        ({"columns": "headers", "includeHeaders": "true"}, ("headers",)),
    ],
)
def test_columns_have_the_requested_order(settings: dict[str, str], columns: tuple[str, ...]) -> None:
    assert read(**settings).columns == columns
    assert stream(**settings).columns == columns
    assert parse_columns({**BASE, **settings, "maxOffsetsPerTrigger": "5", "startingOffsets": "latest"}) == columns


@pytest.mark.parametrize(
    ("text", "amount"), [("1024", 1024), ("64k", 64 << 10), ("2 MB", 2 << 20), ("1g", 1 << 30), ("1TB", 1 << 40)]
)
def test_amounts_of_bytes_have_units(text: str, amount: int) -> None:
    assert stream(maxBytesPerTrigger=text).max_bytes_per_trigger == amount
    assert read(splitBytes=text).split_bytes == amount


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("500ms", 500), ("30s", 30_000), ("15 minutes", 900_000), ("2H", 7_200_000)]
)
def test_time_spans_have_units(text: str, milliseconds: int) -> None:
    assert stream(minOffsetsPerTrigger="5", maxTriggerDelay=text).max_trigger_delay_ms == milliseconds


def test_group_may_be_set_by_kafkas_option() -> None:
    assert stream(groupId="g").group_id == "g"
    assert stream(**{"kafka.group.id": "g"}).group_id == "g"
    assert stream(**{"kafka.group.id": "g"}, groupId="g").group_id == "g"


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ("/a b/c", "/a b/c"),
        ("relative/store", "relative/store"),
        ("file:/a b/c", "/a b/c"),
        ("file:///a/b", "/a/b"),
        ("FILE://localhost/a", "/a"),
        ("file:/100%/a?b#c", "/100%/a?b#c"),
        ("/with:colon", "/with:colon"),
        ("c:lon", "c:lon"),
    ],
)
def test_file_url_is_a_path(given: str, path: str) -> None:
    assert store_path(OptionMap({"path": given}, known=["path"])) == path


def test_storage_options_of_a_url_are_not_in_repr() -> None:
    settings = {"path": "s3://bucket/store", "storageOptions": '{"key": "k", "secret": "hunter2"}'}
    for options in (read(**settings), stream(**settings), parse_table_options({**settings, "table": "offsets"})):
        assert options.path == "s3://bucket/store"
        assert options.storage_options == {"key": "k", "secret": "hunter2"}
        assert "hunter2" not in repr(options)


def test_storage_options_are_not_in_errors() -> None:
    with pytest.raises(InvalidConfig) as caught:
        read(path="s3://bucket/store", storageOptions='{"secret": "hunter2"')
    assert "hunter2" not in str(caught.value)


def test_stream_from_a_url_cannot_have_a_group() -> None:
    with pytest.raises(InvalidConfig, match="groupId commits offsets"):
        stream(path="s3://bucket/store", groupId="g")


# ---------------------------------------------------------------- wrong values

WRONG_IN_BOTH = [
    # What to read.
    ({"path": ""}, "option path is"),
    ({"storageOptions": '{"key": "k"}'}, 'option storageOptions needs a URL, and option path is "/store"'),
    ({"path": "s3://bucket/store", "storageOptions": "{"}, "option storageOptions must be a JSON object such as"),
    ({"path": "s3://bucket/store", "storageOptions": "[1]"}, "option storageOptions must be a JSON object such as"),
    ({"path": "file://host/store"}, "file://host/store"),
    ({"subscribe": "a,,b"}, "option subscribe is \"a,,b\", but must be comma-separated names"),
    ({"subscribe": "a,b,a"}, "a occurs 2 times"),
    ({"subscribe": "  "}, "option subscribe is \"  \", but must be a text that is not blank"),
    ({"assign": '{"a": [0]}'}, "options assign and subscribe both select what to read; set one of them"),
    ({"subscribePattern": "a"}, "options subscribe and subscribePattern both select what to read"),
    # Where to start and to end.
    ({"startingOffsets": "first"}, 'option startingOffsets is "first", but must be earliest, latest, JSON such as'),
    ({"startingOffsets": "5"}, 'option startingOffsets is "5"'),
    ({"startingOffsets": "-5 parsecs"}, "a minus and a time span"),
    ({"startingOffsets": "{"}, "JSON such as"),
    ({"startingOffsets": '{"orders": 5}'}, "option startingOffsets, topic orders is 5"),
    ({"startingOffsets": '{"orders": {"x": 5}}'}, "a partition number"),
    ({"startingOffsets": '{"orders": {"01": 5}}'}, "a partition number"),
    ({"startingOffsets": '{"orders": {"0": 5, "0": 6}}'}, "JSON such as"),
    ({"startingOffsets": '{"orders": {"0": -3}}'}, "option startingOffsets of orders-0 is -3"),
    ({"startingOffsets": '{"orders": {"0": true}}'}, "option startingOffsets of orders-0 is True"),
    ({"startingOffsets": '{"orders": {"0": "5"}}'}, 'option startingOffsets of orders-0 is "5"'),
    ({"startingOffsets": '{"orders": {"0": 9223372036854775808}}'}, "option startingOffsets of orders-0"),
    ({"endingOffsets": "earliest"}, "option endingOffsets is earliest, and a read that ends at the log's start"),
    ({"endingOffsets": '{"orders": {"0": -2}}'}, "option endingOffsets of orders-0 is -2, but must be an offset, -1"),
    ({"startingTimestamp": "yesterday"}, "milliseconds since 1970, or an ISO timestamp"),
    ({"startingTimestamp": str(NOW_S)}, "Z in seconds. Multiply it by 1000, or write it as an ISO timestamp"),
    ({"endingOffsetsByTimestamp": f'{{"orders": {{"0": {NOW_S}000000}}}}'}, "Z in microseconds. Divide it by 1000"),
    ({"startingTimestamp": "1960-01-01"}, "milliseconds since 1970"),
    ({"startingTimestamp": "-5"}, "a minus and a time span"),
    ({"endingTimestamp": "2026-13-01"}, "option endingTimestamp"),
    ({"startingOffsetsByTimestamp": '{"orders": {"0": "soon"}}'}, "startingOffsetsByTimestamp of orders-0"),
    ({"startingOffsetsByTimestamp": "[]"}, "option startingOffsetsByTimestamp is [], but must be JSON such as"),
    ({"startingOffsetsByTimestampStrategy": "earliest"}, 'is "earliest", but must be error or latest'),
    # How much at a time.
    ({"minPartitions": "0"}, 'option minPartitions is "0", but must be a whole number from 1'),
    ({"minPartitions": "many"}, 'option minPartitions is "many"'),
    ({"minPartitions": "1_000"}, "option minPartitions"),
    ({"minPartitions": "99999999999"}, "option minPartitions"),
    ({"maxRecordsPerPartition": "-1"}, "option maxRecordsPerPartition"),
    ({"splitBytes": "12 parsecs"}, "an amount of bytes"),
    ({"splitBytes": "5"}, "an amount of bytes of at least 1024"),
    # Which columns.
    ({"includeHeaders": "yes"}, 'option includeHeaders is "yes", but must be true or false'),
    ({"columns": "offset,colour"}, "colour is not one of them"),
    ({"columns": "offset,Offset"}, "each name once"),
    ({"columns": "offset", "includeHeaders": "true"}, "columns lacks headers"),
    ({"columns": "headers", "includeHeaders": "false"}, "columns has headers"),
    ({"failOnDataLoss": "1"}, "option failOnDataLoss"),
    # Unknown options, and those of a broker.
    ({"startingOffset": "earliest"}, "unknown option startingoffset; did you mean startingOffsets?"),
    ({"xyzzy": "1"}, "unknown option xyzzy; known options: "),
    ({"topic": "orders"}, "option topic has no effect here: it selects the topic of a write; use subscribe"),
    ({"kafka.bootstrap.servers": "h:9092"}, "set path to the store's directory"),
    ({"kafka.security.protocol": "SSL"}, "it configures a Kafka client"),
    ({"kafkaConsumer.pollTimeoutMs": "1"}, "option kafkaConsumer.pollTimeoutMs has no effect here"),
    ({"fetchOffset.numRetries": "1"}, "offsets are read from files"),
    ({"fetchOffset.retryIntervalMs": "1"}, "offsets are read from files"),
    ({"groupIdPrefix": "x"}, "use groupId"),
]  # fmt: skip


@pytest.mark.parametrize("parse", [parse_read_options, parse_stream_options], ids=["batch", "stream"])
@pytest.mark.parametrize(("settings", "message"), WRONG_IN_BOTH, ids=[message for _, message in WRONG_IN_BOTH])
def test_invalid_option_error_is_one_line(parse: object, settings: dict[str, str], message: str) -> None:
    assert callable(parse)
    with pytest.raises(InvalidConfig) as caught:
        parse({**BASE, **settings})

    text = str(caught.value)
    assert message in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "a"}, "option path is missing"),
        ({}, "option path is missing"),
        ({"path": "/store"}, "set one of the options assign, subscribe and subscribePattern"),
        ({"path": "/store", "assign": "{}"}, "with at least one partition"),
        ({"path": "/store", "assign": "[]"}, "with at least one partition"),
        ({"path": "/store", "assign": '{"a": 0}'}, "a list of partitions"),
        ({"path": "/store", "assign": '{"a": [0, 0]}'}, "a list with each partition once"),
        ({"path": "/store", "assign": '{"a": [-1]}'}, "a partition number"),
        ({"path": "/store", "assign": '{"a/b": [1]}'}, "assign, topic a/b"),
        ({"path": "/store", "subscribePattern": "a("}, 'subscribePattern is "a(", not a regular expression'),
    ],
)
def test_partitions_to_read_must_be_selected(options: dict[str, str], message: str) -> None:
    for parse in (parse_read_options, parse_stream_options):
        with pytest.raises(InvalidConfig) as caught:
            parse(options)
        assert message in str(caught.value)


def test_invalid_topic_name_is_refused() -> None:
    with pytest.raises(InvalidName):
        read(subscribe="orders/0")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"startingOffsets": "latest"}, "option startingOffsets is latest, and a batch that starts at the end"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "a batch cannot start at -1"),
        ({"maxOffsetsPerTrigger": "5"}, "option maxOffsetsPerTrigger has no effect here: it applies to streams only"),
        ({"minOffsetsPerTrigger": "5"}, "it applies to streams only"),
        ({"maxTriggerDelay": "5s"}, "it applies to streams only"),
        ({"maxBytesPerTrigger": "5m"}, "it applies to streams only"),
        ({"groupId": "g"}, "it applies to streams only"),
        ({"kafka.group.id": "g"}, "it applies to streams only"),
    ],
)
def test_batch_refuses_options_of_streams(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        read(**settings)
    assert message in str(caught.value)
    if "startingOffsets" not in settings and "maxTriggerDelay" not in settings:
        stream(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger is 6, more than"),
        ({"maxOffsetsPerTrigger": "0"}, "option maxOffsetsPerTrigger"),
        ({"maxTriggerDelay": "5s"}, "how long minOffsetsPerTrigger may wait"),
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "soon"}, "a time span, such as 500ms"),
        ({"maxBytesPerTrigger": "0"}, "option maxBytesPerTrigger"),
        ({"groupId": "a", "kafka.group.id": "b"}, 'name two groups, "a" and "b"'),
        ({"table": "offsets"}, "a metadata table cannot be streamed"),
    ],
)
def test_contradicting_stream_options_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        stream(**settings)
    assert message in str(caught.value)


# ---------------------------------------------------------------- metadata tables


def test_table_needs_no_topic() -> None:
    options = parse_table_options({"path": "/store", "table": "SEGMENTS"})

    assert (options.path, options.table, options.choice) == ("/store", "segments", Choice())
    assert parse_table_options({**BASE, "table": "groups"}).choice == Choice(topics=("orders",))


def test_table_records_is_a_plain_read() -> None:
    assert not wants_table({**BASE, "table": "records"})
    assert read(table="records").columns == COLUMNS[:-1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"table": "segment"}, 'option table is "segment", but must be records or segments or batches'),
        ({"table": "offsets", "startingOffsets": "earliest"}, "option startingOffsets has no effect"),
        ({"table": "offsets", "maxOffsetsPerTrigger": "4"}, "a metadata table has no records"),
        ({"table": "offsets", "colums": "a"}, "unknown option colums"),
    ],
)  # fmt: skip
def test_table_refuses_options_of_records(settings: dict[str, str], message: str) -> None:
    assert wants_table(settings)
    with pytest.raises(InvalidConfig) as caught:
        parse_table_options({**BASE, **settings})
    assert message in str(caught.value)


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(InvalidConfig) as caught:
        read(startingOffsets="x" * 5000 + "\n")
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)
