"""`spark.read.format("seeklog")`: a batch returns the records of the log, of any writer and during appends."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from interop.broker_directories import description, encoded
from log.workbench import START_MS
from seeklog import Record, TopicPartition
from seeklog.errors import CorruptBatch, DataLoss, InvalidConfig, NotALog, TopicNotFound, UsageError
from seeklog.record.codec import CODEC_IDS
from seeklog.spark.read.schema import RECORD_SCHEMA
from spark.workbench import (
    BROKERS,
    append,
    everything,
    load,
    make_store,
    message_of,
    numbered,
    row_offsets,
    unpack_broker,
)
from store.workbench import open_store

KAFKA_COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Topic a with 300, 200 and 100 records in segments of about 90, and b with 20."""
    counts = {"a": [300, 200, 100], "b": [20]}
    return make_store(tmp_path_factory.mktemp("batch") / "store", counts, segment_bytes=4000)


def collected(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Return the rows in order, as (topic, partition, offset, ms, timestampType, key, value, headers)."""
    rows = frame.select(
        "topic",
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("ms"),
        "timestampType",
        "key",
        "value",
        *(["headers"] if "headers" in frame.columns else []),
    ).collect()
    return sorted(tuple(row) for row in rows)


def as_row(topic: str, partition: int, record: Record, *, kind: int = 0) -> tuple[Any, ...]:
    headers = list(record.headers) or None
    return (topic, partition, record.offset, record.timestamp_ms, kind, record.key, record.value, headers)


# ---------------------------------------------------------------- columns and values


def test_the_columns_are_those_of_sparks_kafka_source(spark: SparkSession, path: Path) -> None:
    frame = load(spark, path, subscribe="a")

    assert frame.columns == KAFKA_COLUMNS
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    assert load(spark, path, subscribe="a", includeHeaders=True).schema == RECORD_SCHEMA


def test_topic_is_read_completely(spark: SparkSession, path: Path) -> None:
    frame = load(spark, path, subscribe="a", includeHeaders=True)

    with open_store(path, read_only=True) as store:
        expected = [as_row("a", number, record) for number in range(3) for record in store.log("a", number).scan()]
    assert collected(frame) == expected


@pytest.mark.parametrize("codec", sorted(CODEC_IDS))
def test_records_of_every_shape_come_through_every_codec(spark: SparkSession, tmp_path: Path, codec: str) -> None:
    shapes = [
        Record(b"plain", key=b"key"),
        Record(b"no key"),
        Record(None, key=b"a tombstone"),
        Record(None),
        Record(b"", key=b""),
        Record(b"\0\xff" * 500, key=b"\xff"),
        Record(b"one header", headers=[("h", b"1")]),
        Record(b"headers", headers=[("ä", None), ("", b""), ("ä", b"again")]),
        Record(b"large" * 50_000),
    ]
    records = [
        Record(one.value, key=one.key, headers=one.headers, timestamp_ms=START_MS + number)
        for number, one in enumerate(shapes)
    ]
    with open_store(tmp_path / "store", compression_type=codec) as store:
        store.create_topic("t", partitions=1)
        append(store, "t", records)
        expected = [as_row("t", 0, record) for record in store.log("t", 0).scan()]

    assert collected(load(spark, tmp_path / "store", subscribe="t", includeHeaders=True)) == expected


def test_timestamp_type_tells_append_time_from_create_time(spark: SparkSession, tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.create_topic("t", partitions=1)
        append(store, "t", [Record(b"created", timestamp_ms=5)])
        store.alter_topic("t", {"message.timestamp.type": "LogAppendTime"})
        append(store, "t", [Record(b"appended", timestamp_ms=5)])

    rows = load(spark, tmp_path / "store", subscribe="t").orderBy("offset").collect()

    # The store's clock stands still.
    assert [(row.timestampType, row.timestamp.replace(tzinfo=UTC)) for row in rows] == [
        (0, EPOCH + timedelta(milliseconds=5)),
        (1, EPOCH + timedelta(milliseconds=START_MS)),
    ]


def test_rows_of_several_arrow_batches_are_in_order(spark: SparkSession, tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"t": [40_000]}, batch_records=1000)

    frame = load(spark, path, subscribe="t", columns="offset,value")

    assert [row.offset for row in frame.collect()] == list(range(40_000))
    assert frame.filter("cast(cast(value as string) as long) <> offset").count() == 0


@pytest.mark.parametrize("columns", ["offset", "value", "topic", "partition,topic", "timestampType", "headers,key"])
def test_only_chosen_columns_are_read(spark: SparkSession, path: Path, columns: str) -> None:
    frame = load(spark, path, subscribe="a", columns=columns)

    assert frame.columns == columns.split(",")
    assert frame.count() == 600
    wanted = load(spark, path, subscribe="a", includeHeaders=True).select(*columns.split(","))
    assert sorted(map(repr, frame.collect())) == sorted(map(repr, wanted.collect()))


@pytest.mark.parametrize(
    "schema",
    [
        "offset long, value binary",
        "value binary",
        "offset long NOT NULL, partition int",
        "headers array<struct<key:string,value:binary>>",
    ],
)
def test_a_users_schema_prunes_columns(spark: SparkSession, path: Path, schema: str) -> None:
    frame = spark.read.format("seeklog").schema(schema).options(path=str(path), subscribe="b").load()

    assert frame.columns == [one.split()[0] for one in schema.split(", ")]
    assert len(frame.collect()) == 20


# ---------------------------------------------------------------- what is read


@pytest.mark.parametrize(
    ("options", "topics"),
    [
        ({"subscribe": "a,b"}, ["a", "b"]),
        ({"subscribePattern": "[a-z]"}, ["a", "b"]),
        ({"subscribePattern": "b+"}, ["b"]),
        ({"subscribePattern": "nothing"}, []),
    ],
)
def test_topics_are_subscribed_to_by_name_and_by_pattern(
    spark: SparkSession, path: Path, options: dict[str, str], topics: list[str]
) -> None:
    assert row_offsets(load(spark, path, **options)) == [place for topic in topics for place in everything(path, topic)]


def test_partitions_are_assigned(spark: SparkSession, path: Path) -> None:
    frame = load(spark, path, assign='{"a": [2], "b": [0]}')

    assert {(place.topic, place.partition) for place in row_offsets(frame)} == {("a", 2), ("b", 0)}
    assert frame.count() == 120


def test_a_range_of_offsets_is_read_exactly(spark: SparkSession, path: Path) -> None:
    frame = load(
        spark,
        path,
        subscribe="a",
        startingOffsets='{"a": {"0": 95, "1": -2, "2": 99}}',
        endingOffsets='{"a": {"0": 203, "1": 1, "2": -1}}',
    )

    assert [(place.partition, place.offset) for place in row_offsets(frame)] == [
        *((0, offset) for offset in range(95, 203)),
        (1, 0),
        (2, 99),
    ]


def test_a_range_of_time_is_read_exactly(spark: SparkSession, path: Path) -> None:
    since = (EPOCH + timedelta(milliseconds=START_MS + 50_500)).isoformat()

    frame = load(spark, path, subscribe="a", startingTimestamp=since, endingTimestamp=START_MS + 60_000)

    assert [(place.partition, place.offset) for place in row_offsets(frame)] == [
        (partition, offset) for partition in range(3) for offset in range(51, 60)
    ]


def test_the_last_offsets_are_read(spark: SparkSession, path: Path) -> None:
    frame = load(spark, path, subscribe="a", startingOffsets="-5")

    assert [(place.partition, place.offset) for place in row_offsets(frame)] == [
        *((0, offset) for offset in range(295, 300)),
        *((1, offset) for offset in range(195, 200)),
        *((2, offset) for offset in range(95, 100)),
    ]


def test_an_empty_topic_is_an_empty_frame(spark: SparkSession, tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"t": [0, 0]})

    assert load(spark, path, subscribe="t").collect() == []
    assert load(spark, path, subscribe="t").count() == 0


@pytest.mark.parametrize(
    ("options", "count"),
    # Segments of 4000 bytes have no index entries, so splits end at segment boundaries.
    [({}, 1), ({"minPartitions": 7}, 7), ({"maxRecordsPerPartition": 100}, 6), ({"splitBytes": "4k"}, 5)],
)
def test_min_partitions_gives_that_many_tasks(
    spark: SparkSession, path: Path, options: dict[str, object], count: int
) -> None:
    frame = load(spark, path, subscribe="a", **options)

    assert frame.rdd.getNumPartitions() == count
    assert row_offsets(frame) == everything(path, "a")


# ---------------------------------------------------------------- one frame, many scans


def test_reused_frame_returns_same_rows(spark: SparkSession, path: Path) -> None:
    """Filter pushdown must stay off: Spark handles it wrongly for a relation that is scanned twice."""
    frame = load(spark, path, subscribe="a")

    assert frame.filter("offset < 10").count() == 30
    assert frame.count() == 600
    assert frame.filter("partition = 1").union(frame).count() == 800
    left, right = frame.filter("offset < 10").alias("left"), frame.filter("offset >= 10").alias("right")
    joined = left.join(right, F.expr("left.partition = right.partition and left.offset + 10 = right.offset"))
    assert joined.count() == 30
    assert frame.filter("offset < 10").unionAll(frame.filter("offset >= 10")).count() == 600


def test_filters_stay_with_spark(spark: SparkSession, path: Path) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = load(spark, path, subscribe="a")
        assert frame.filter("offset < 10").count() == 30
        assert frame.count() == 600
        assert frame.filter("partition = 1").union(frame).count() == 800
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


# ---------------------------------------------------------------- live logs


def test_a_frame_reads_the_same_again_while_the_log_grows(spark: SparkSession, tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"t": [50]})
    frame = load(spark, path, subscribe="t")
    assert frame.count() == 50

    with open_store(path) as store:
        append(store, "t", numbered(25, first=50), batch_records=5)
        assert frame.count() == 50
        assert [place.offset for place in row_offsets(frame)] == list(range(50))
        assert load(spark, path, subscribe="t").count() == 75


def test_records_above_high_watermark_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    with open_store(tmp_path / "store", flush="batch") as store:
        store.create_topic("t", partitions=1)
        append(store, "t", numbered(10))
        with store._table.writing(TopicPartition("t", 0)) as log:
            # Not synced: no reader may see it yet.
            log.append_many(numbered(5, first=10), wait=False)
            assert (log.high_watermark, log.log_end_offset) == (10, 15)

            frame = load(spark, tmp_path / "store", subscribe="t")
            assert frame.count() == 10
            log.flush()
        assert frame.count() == 10
        assert load(spark, tmp_path / "store", subscribe="t").count() == 15


WRITER = """
import sys, threading
import seeklog
from seeklog.config import LogConfig
pause = threading.Event()
with seeklog.open(sys.argv[1], config=LogConfig(flush="os", segment_bytes=30_000, retention_ms=-1)) as store:
    store.create_topic("t", partitions=2)
    with store.producer(linger_ms=0) as producer:
        for number in range(10_000_000):
            producer.send("t", b"%010d" % (number // 2), partition=number % 2)
            if number % 100 == 99:
                producer.flush()
                pause.wait(0.002)  # leaves the machine to Spark
            if number == 5000:
                print("begun", flush=True)
"""


def test_a_log_is_read_while_another_process_writes_it(spark: SparkSession, tmp_path: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "store")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "begun\n"
        counts = [4998]
        for _ in range(3):
            frame = load(spark, tmp_path / "store", subscribe="t", minPartitions=4)
            is_wrong = F.col("value").cast("string").cast("long") != F.col("offset")
            looked = frame.groupBy("partition").agg(
                F.count("*").alias("count"),
                F.countDistinct("offset").alias("offsets"),
                F.max("offset").alias("last"),
                F.count_if(is_wrong).alias("wrong"),
            )
            first, second = looked.orderBy("partition").collect(), looked.orderBy("partition").collect()
            assert first == second
            for row in first:
                assert (row["count"], row.offsets, row.wrong) == (row.last + 1, row.last + 1, 0)
            counts.append(sum(row["count"] for row in first))
        assert counts == sorted(set(counts))  # each count saw more
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.wait()


# ---------------------------------------------------------------- a broker's own directory


@pytest.fixture(scope="module", params=BROKERS)
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    return unpack_broker(request.param, tmp_path_factory.mktemp("broker")), description(request.param)["partitions"]


def test_broker_directory_reads_as_its_clients_read_it(spark: SparkSession, broker: tuple[Path, Any]) -> None:
    """Reads all topics: every codec, transactions with markers, compacted topics with gaps, append times."""
    root, partitions = broker
    topics = sorted({name.rsplit("-", 1)[0] for name in partitions})
    found: dict[str, list[Any]] = {name: [] for name in partitions}
    for topic, number, offset, ms, kind, key, value, headers in collected(
        load(spark, root, subscribe=",".join(topics), includeHeaders=True)
    ):
        whole = topic.startswith("__")
        pairs = [[header.key, encoded(header.value, whole=False)] for header in headers or ()]
        row = [offset, ms, ["create", "append"][kind], encoded(key, whole=whole), encoded(value, whole=whole), pairs]
        found[f"{topic}-{number}"].append(row)

    for name, partition in partitions.items():
        assert found[name] == partition["records"], name


def test_read_may_start_inside_an_offset_gap(spark: SparkSession, broker: tuple[Path, Any]) -> None:
    root, partitions = broker
    offsets = [record[0] for record in partitions["compacted-0"]["records"]]
    hole = next(before + 1 for before, after in pairwise(offsets) if after > before + 1)

    frame = load(
        spark,
        root,
        subscribe="compacted",
        startingOffsets=json.dumps({"compacted": {"0": hole}}),
        minPartitions=3,
    )

    assert [place.offset for place in row_offsets(frame)] == [offset for offset in offsets if offset >= hole]


# ---------------------------------------------------------------- errors, as they come out of the JVM


def test_unknown_option_is_refused_when_frame_is_created(spark: SparkSession, path: Path) -> None:
    message = message_of(lambda: load(spark, path, subscribe="a", startingOffset="earliest"), InvalidConfig)

    assert message == "unknown option startingoffset; did you mean startingOffsets?"


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({}, InvalidConfig, "set one of the options assign, subscribe and subscribePattern"),
        (
            {"subscribe": "a", "startingOffsets": "latest"},
            InvalidConfig,
            "a batch that starts at the end has no records",
        ),
        ({"subscribe": "a", "maxOffsetsPerTrigger": 5}, InvalidConfig, "it applies to streams only"),
        ({"subscribe": "a", "kafka.bootstrap.servers": "h:9092"}, InvalidConfig, "set path to the store's directory"),
        ({"subscribe": "nothing"}, TopicNotFound, "there is no topic 'nothing' in"),
        (
            {"subscribe": "a", "startingOffsets": '{"a": {"0": 500}}'},
            InvalidConfig,
            "a-0 would be read from offset 500",
        ),
        ({"subscribe": "a", "endingOffsets": '{"a": {"0": 500}}'}, DataLoss, "high watermark is 300; 200 offsets"),
    ],
)
def test_planning_error_keeps_its_class_and_message(
    spark: SparkSession, path: Path, options: dict[str, object], kind: type, message: str
) -> None:
    assert message in message_of(lambda: load(spark, path, **options).count(), kind)


def test_error_names_path_that_is_not_a_store(spark: SparkSession, tmp_path: Path, path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    for wrong, message in (
        (tmp_path / "nothing", f"there is no store at {tmp_path}/nothing"),
        (tmp_path / "other", "holds other files, such as 'notes.txt'"),
        (path / "a-0", "is the directory of one partition"),
    ):
        assert message in message_of(lambda wrong=wrong: load(spark, wrong, subscribe="a").count(), NotALog)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("offset int", "column offset of a topic is bigint, not int; read it with its type and cast it afterwards"),
        ("value string", "column value of a topic is binary, not string"),
        ("colour string", "a topic has no column colour; it has key, value, topic, partition, offset"),
        ("headers map<string,binary>", "column headers of a topic is array<struct<key:string,value:binary>>, not map"),
        # Spark would not check for null and read invalid memory.
        ("offset long not null, value binary not null", "column value of a topic may have nulls; remove NOT NULL"),
        ("headers array<struct<key: string not null, value: binary>>", "column headers of a topic may have nulls"),
    ],
)
def test_wrong_schema_error_names_column_and_both_types(
    spark: SparkSession, path: Path, schema: str, message: str
) -> None:
    frame = spark.read.format("seeklog").schema(schema).options(path=str(path), subscribe="a")

    assert message in message_of(lambda: frame.load().count(), UsageError)


def test_contradicting_columns_and_schema_are_refused(spark: SparkSession, path: Path) -> None:
    read = spark.read.format("seeklog").options(path=str(path), subscribe="b", columns="offset")

    assert read.schema("offset long").load().count() == 20
    message = message_of(lambda: read.schema("value binary").load().count(), InvalidConfig)
    assert message.startswith("option columns is offset, but the schema of this read is value; set one of the two")


def test_damage_error_names_file_and_byte(spark: SparkSession, tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"t": [100]}, segment_bytes=4000)
    damaged = path / "t-0" / f"{0:020d}.log"
    data = bytearray(damaged.read_bytes())
    data[100] ^= 1
    damaged.write_bytes(data)

    message = message_of(lambda: load(spark, path, subscribe="t").count(), CorruptBatch)

    assert message.startswith(f"{damaged}, byte 0: stored CRC")


# ---------------------------------------------------------------- what is gone when a task comes to it


@pytest.fixture
def stale_frames(spark: SparkSession, tmp_path: Path) -> dict[str, DataFrame]:
    """Frames over a log of 300 records, planned before retention deleted the segments below offset 150."""
    path = make_store(tmp_path / "store", {"t": [300]}, segment_bytes=4000)
    frames = {}
    for fail in ("true", "false"):
        frames[fail] = load(spark, path, subscribe="t", failOnDataLoss=fail, columns="topic,partition,offset")
        assert frames[fail].count() == 300
    with open_store(path) as store, store._table.writing(TopicPartition("t", 0)) as log:
        log.delete_before(150)
        first_left = log._source.view.bases[0]
    assert 0 < first_left <= 150
    frames["left"] = spark.range(first_left, 300)
    return frames


def test_segment_deleted_after_planning_is_a_loss(stale_frames: dict[str, DataFrame]) -> None:
    message = message_of(lambda: stale_frames["true"].count(), DataLoss)

    assert message.startswith("[DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] t-0: the segment of offsets 0 to ")
    assert "was deleted before it was read" in message


def test_without_fail_on_data_loss_the_rest_is_read(stale_frames: dict[str, DataFrame]) -> None:
    assert [place.offset for place in row_offsets(stale_frames["false"])] == [
        row.id for row in stale_frames["left"].collect()
    ]


def test_topic_recreated_after_planning_is_a_loss(spark: SparkSession, tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"t": [30]})
    strict = load(spark, path, subscribe="t")
    lenient = load(spark, path, subscribe="t", failOnDataLoss=False)
    assert strict.count() == lenient.count() == 30
    with open_store(path) as store:
        store.delete_topic("t")
        store.create_topic("t", partitions=1)
        append(store, "t", numbered(60, first=1000))

    assert "t-0 was deleted or recreated" in message_of(strict.count, DataLoss)
    assert lenient.count() == 0
