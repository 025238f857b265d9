"""The options and columns of a write, without Spark: every error is one line."""

from __future__ import annotations

import pytest
from pyspark.sql import types
from pyspark.sql.types import StructField, StructType

from seeklog.errors import InvalidConfig, InvalidName, UsageError
from seeklog.spark.write.options import BATCH_BYTES, parse_write_options
from seeklog.spark.write.sink import batch_writer
from seeklog.spark.write.stage import record_columns

PATH = {"path": "/data/store"}


TYPES = {
    "binary": types.BinaryType(),
    "string": types.StringType(),
    "int": types.IntegerType(),
    "bigint": types.LongType(),
    "timestamp": types.TimestampType(),
    "timestamp_ntz": types.TimestampNTZType(),
    "map<string,binary>": types.MapType(types.StringType(), types.BinaryType()),
    "struct<a:int>": StructType([StructField("a", types.IntegerType())]),
}


def schema(text: str) -> StructType:
    """Return the schema of `name type, name type`; Spark's parser would need a session."""
    pairs = [column.split(" ") for column in text.split(", ")]
    return StructType([StructField(name, TYPES[kind]) for name, kind in pairs])


def test_unset_options_have_defaults() -> None:
    options = parse_write_options({**PATH, "topic": "alerts"}, streaming=False)
    assert (options.path, options.topic, options.compression) == ("/data/store", "alerts", None)
    assert (options.batch_bytes, options.lock_timeout_s, options.txn_app_id) == (BATCH_BYTES, 30.0, None)


def test_options_of_kafkas_producer_are_accepted() -> None:
    options = parse_write_options(
        {**PATH, "kafka.batch.size": "32768", "KAFKA.compression.TYPE": "ZSTD"}, streaming=True
    )
    assert (options.batch_bytes, options.compression) == (32768, "zstd")


def test_options_added_by_spark_are_accepted() -> None:
    parse_write_options({**PATH, "checkpointlocation": "/cp", "queryname": "q"}, streaming=True)


@pytest.mark.parametrize(
    ("options", "streaming", "message"),
    [
        ({}, False, "options path and topic are missing. Spark does not pass"),
        ({"topic": "a"}, False, "option path is missing"),
        ({"path": "s3://bucket/store"}, False, "s3://bucket/store"),
        ({"path": "hdfs://name/store"}, True, "driver and executors see"),
        ({**PATH, "topci": "a"}, False, "did you mean topic"),
        ({**PATH, "txnAppId": "a"}, False, "option txnAppId needs txnVersion"),
        ({**PATH, "txnVersion": "1"}, False, "option txnVersion needs txnAppId"),
        ({**PATH, "txnAppId": "a", "txnVersion": "-1"}, False, "whole number of at least 0"),
        ({**PATH, "txnAppId": "a", "txnVersion": "one"}, False, "txnVersion"),
        ({**PATH, "txnAppId": "a", "txnVersion": "1"}, True, "by query id and batch id"),
        ({**PATH, "checkpointLocation": "/cp"}, False, "only a stream has one"),
        ({**PATH, "compression": "brotli"}, False, "none or gzip or snappy or lz4 or zstd"),
        ({**PATH, "compression": "zstd", "kafka.compression.type": "lz4"}, False, "are the same setting"),
        ({**PATH, "batchBytes": "10"}, False, "at least 512"),
        ({**PATH, "batchBytes": "1m", "kafka.batch.size": "1m"}, False, "are the same setting"),
        ({**PATH, "lockTimeout": "soon"}, False, "time span"),
        ({**PATH, "kafka.bootstrap.servers": "host:9092"}, True, "there is no broker to connect to"),
        ({**PATH, "kafka.acks": "all"}, True, "kafka.acks has no effect here"),
        ({**PATH, "kafka.partitioner.class": "C"}, True, "murmur2"),
        ({**PATH, "subscribe": "a"}, False, "use topic to write"),
        ({**PATH, "includeHeaders": "true"}, True, "column named headers"),
        ({**PATH, "topic": ""}, False, "a text that is not blank"),
    ],
)
def test_invalid_option_error_is_one_line(options: dict[str, str], streaming: bool, message: str) -> None:
    with pytest.raises(InvalidConfig, match=message) as caught:
        parse_write_options(options, streaming=streaming)
    assert "\n" not in str(caught.value)


def test_invalid_topic_is_refused() -> None:
    with pytest.raises(InvalidName, match="a/b"):
        parse_write_options({**PATH, "topic": "a/b"}, streaming=False)


def test_overwrite_is_refused() -> None:
    with pytest.raises(UsageError, match=r'mode\("append"\)'):
        batch_writer({**PATH, "topic": "a"}, schema("value binary"), True)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("key binary", "no column value"),
        ("value int", "column value is int, but must be binary or string; cast it"),
        ("value struct<a:int>", r"column value is struct<a:int>.*to_json"),
        ("value binary, key bigint", "column key is bigint, but must be binary or string"),
        ("value binary, partition bigint", "column partition is bigint, but must be int; cast it to int"),
        ("value binary, topic binary", "column topic is binary, but must be string"),
        ("value binary, timestamp bigint", "column timestamp is bigint, but must be timestamp"),
        ("value binary, timestamp timestamp_ntz", "column timestamp is timestamp_ntz"),
        ("value binary, headers map<string,binary>", "column headers is map<string,binary>, but must be array<struct"),
        ("value binary, value string", "column value twice"),
    ],
)
def test_wrong_column_type_error_names_both_types(columns: str, message: str) -> None:
    options = parse_write_options({**PATH, "topic": "alerts"}, streaming=False)
    with pytest.raises(UsageError, match=message) as caught:
        record_columns(schema(columns), options)
    assert "\n" not in str(caught.value)


def test_topic_must_be_set() -> None:
    with pytest.raises(UsageError, match="set option topic, or add a string column topic"):
        record_columns(schema("value binary"), parse_write_options(PATH, streaming=False))


def test_option_topic_wins_and_other_columns_are_ignored() -> None:
    everything = schema(
        "key string, value binary, topic string, partition int, offset bigint, timestamp timestamp, x int"
    )
    given = record_columns(everything, parse_write_options({**PATH, "topic": "alerts"}, streaming=False))
    assert given == ("key", "value", "partition", "timestamp")
    assert "topic" in record_columns(everything, parse_write_options(PATH, streaming=False))
