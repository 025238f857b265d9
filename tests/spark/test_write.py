"""Writing a DataFrame to topics: partitions, columns, transactions, and refused writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

import seeklog
from seeklog import Record, Store, names
from seeklog.record.batch import Batch
from seeklog.record.key_hash import partition_of
from seeklog.spark.read.schema import RECORD_SCHEMA
from seeklog.spark.write.sink import batch_writer
from store.workbench import Holder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with seeklog.open(tmp_path / "store") as store:
        store.create_topic("alerts", partitions=3)
        store.create_topic("audit", partitions=2, config={"compression.type": "zstd"})
    return tmp_path / "store"


@pytest.fixture
def numbers(spark: SparkSession) -> DataFrame:
    """Keys and values of a thousand rows, in four tasks."""
    return spark.range(0, 1000, 1, 4).selectExpr("cast(id % 50 as string) key", "cast(id as string) value")


def write(frame: DataFrame, root: Path, **options: str) -> None:
    frame.write.format("seeklog").mode("append").option("path", str(root)).options(**options).save()


def records(root: Path, topic: str = "alerts") -> list[list[Record]]:
    with seeklog.open(root, read_only=True) as store:
        return [list(store.log(topic, each.partition).scan()) for each in store.describe_topic(topic).partitions]


def staged(root: Path) -> list[str]:
    return [path.name for path in root.glob(f"*/{names.STAGED}*")]


def test_rows_get_kafkas_partitions_and_keep_their_order(numbers: DataFrame, root: Path) -> None:
    write(numbers, root, topic="alerts")

    found = records(root)
    assert sum(map(len, found)) == 1000
    for partition, log in enumerate(found):
        for record in log:
            assert record.key is not None
            assert partition_of(record.key, 3) == partition
        values = [int(record.value or b"-1") for record in log]
        assert values == sorted(values), "tasks are appended one after the other, each in its own order"
    assert staged(root) == []
    assert not list(root.glob(f"{names.TRANSACTION}*"))


def test_every_column_of_a_record_is_written(spark: SparkSession, root: Path) -> None:
    rows = [
        (b"k", b"v", 2, 1_700_000_000_123, [("a", b"1"), ("a", None)]),
        (None, b"", 0, 1_700_000_000_124, []),
        (b"", None, 1, 1_700_000_000_125, None),
    ]
    frame = spark.createDataFrame(
        rows, "key binary, value binary, partition int, ms long, headers array<struct<key:string,value:binary>>"
    ).selectExpr("key", "value", "partition", "timestamp_millis(ms) as timestamp", "headers")
    write(frame.coalesce(1), root, topic="alerts")

    found = records(root)
    assert [[(r.key, r.value, r.timestamp_ms, r.headers) for r in log] for log in found] == [
        [(None, b"", 1_700_000_000_124, ())],
        [(b"", None, 1_700_000_000_125, ())],
        [(b"k", b"v", 1_700_000_000_123, (("a", b"1"), ("a", None)))],
    ]


def test_row_without_timestamp_gets_the_current_time(spark: SparkSession, root: Path) -> None:
    before_ms = int(spark.sql("select unix_millis(current_timestamp())").first()[0])  # type: ignore[index]
    write(spark.sql("select 'v' as value, cast(null as timestamp) as timestamp"), root, topic="alerts")
    (record,) = [record for log in records(root) for record in log]
    assert record.timestamp_ms >= before_ms


def test_topic_column_is_used_unless_option_topic_is_set(spark: SparkSession, root: Path) -> None:
    frame = spark.range(0, 100, 1, 2).selectExpr(
        "cast(id as string) value", "if(id % 3 = 0, 'alerts', 'audit') topic", "cast(id % 2 as int) partition"
    )
    write(frame, root)
    assert sorted(int(r.value or b"") for log in records(root) for r in log) == list(range(0, 100, 3))
    assert sorted(int(r.value or b"") for log in records(root, "audit") for r in log) == [
        n for n in range(100) if n % 3
    ]
    write(frame, root, topic="audit")
    assert sum(map(len, records(root, "audit"))) == 66 + 100


def test_rows_without_key_rotate_partitions_by_arrow_batch(spark: SparkSession, root: Path) -> None:
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    try:
        write(spark.range(0, 60, 1, 1).selectExpr("cast(id as string) value"), root, topic="alerts")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    found = [[int(r.value or b"") for r in log] for log in records(root)]
    assert found == [[*range(n, n + 10), *range(n + 30, n + 40)] for n in (0, 10, 20)]


def test_compression_is_that_of_the_option_or_the_topic(numbers: DataFrame, root: Path) -> None:
    write(numbers, root, topic="audit")
    write(numbers, root, topic="alerts", compression="lz4")
    write(numbers, root, topic="alerts")
    with seeklog.open(root, read_only=True) as store:
        codecs = {
            topic: [batch.codec for n in range(2) for batch in batches(store, topic, n)]
            for topic in ("alerts", "audit")
        }
    assert set(codecs["audit"]) == {"zstd"}
    assert set(codecs["alerts"]) == {"lz4", "none"}


def batches(store: Store, topic: str, partition: int) -> Iterator[Batch]:
    return store.log(topic, partition).read_batches(0, max_bytes=1 << 30)


def test_batches_have_about_batch_bytes(spark: SparkSession, root: Path) -> None:
    frame = spark.range(0, 2000, 1, 1).selectExpr("repeat('x', 90) value", "0 as partition")
    write(frame, root, topic="alerts", batchBytes="4k")
    with seeklog.open(root, read_only=True) as store:
        sizes = [batch.header.size for batch in batches(store, "alerts", 0)]
    assert max(sizes) <= 4096
    assert len([size for size in sizes if size > 3500]) > 40


def test_write_with_transaction_id_happens_once(numbers: DataFrame, root: Path) -> None:
    once = {"topic": "alerts", "txnAppId": "nightly"}
    write(numbers, root, **once, txnVersion="7")
    write(numbers, root, **once, txnVersion="7")
    write(numbers, root, **once, txnVersion="6")
    assert sum(map(len, records(root))) == 1000
    write(numbers, root, **once, txnVersion="8")
    assert sum(map(len, records(root))) == 2000
    assert staged(root) == []


def test_one_transaction_id_writes_several_topics_once_each(numbers: DataFrame, root: Path) -> None:
    """Goal: foreachBatch may write a batch to two topics, as to two tables, under one id."""
    once = {"txnAppId": "nightly", "txnVersion": "7"}
    for _ in range(2):
        write(numbers, root, topic="alerts", **once)
        write(numbers, root, topic="audit", **once)
        write(numbers.limit(5).selectExpr("*", "'audit' topic"), root, **once)

    assert sum(map(len, records(root))) == 1000
    assert sum(map(len, records(root, "audit"))) == 1005


def test_foreach_batch_with_transaction_id_writes_once(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(3):
        (tmp_path / "in" / f"{number}.json").write_text(f'{{"value": "{number}"}}\n')

    def twice(frame: DataFrame, batch_id: int) -> None:
        for _ in range(2):
            write(frame, root, topic="alerts", txnAppId="each", txnVersion=str(batch_id))

    stream = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).json(str(tmp_path / "in"))
    query = stream.writeStream.foreachBatch(twice).option("checkpointLocation", str(tmp_path / "cp"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert sorted(r.value or b"" for log in records(root) for r in log) == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        ("select 'v' as value", {"topic": "alarms"}, "TopicNotFound: .*did you mean 'alerts'"),
        ("select 'v' as value, cast(null as string) as topic", {}, r"InvalidRecord: \[NULL_TOPIC_IN_DATA\] row 0"),
        (
            "select 'v' as value, 7 as partition",
            {"topic": "alerts"},
            "InvalidRecord: topic alerts: column partition has 7, .* 0 to 2; drop the column",
        ),
        (
            "select 'v' as value, -1 as partition",
            {"topic": "alerts"},
            "InvalidRecord: topic alerts: column partition has -1",
        ),
        (
            "select repeat('x', 2000000) as value",
            {"topic": "alerts"},
            "RecordTooLarge: topic alerts: row 0: .*1,048,588",
        ),
        ("select 1 as value", {"topic": "alerts"}, "UsageError: column value is int, but must be binary or string"),
        ("select 'v' as value", {"topic": "__consumer_offsets"}, "UsageError: __consumer_offsets is Kafka's own"),
        ("select 'v' as value", {"topci": "alerts"}, "InvalidConfig: unknown option topci; did you mean topic"),
        (
            "select 'v' as value, array(named_struct('key', cast(null as string), 'value', X'00')) as headers",
            {"topic": "alerts"},
            "InvalidRecord: topic alerts: .*row 0",
        ),
    ],
)
def test_failed_write_raises_one_line_and_leaves_nothing(
    spark: SparkSession, root: Path, query: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message):
        write(spark.sql(query), root, **options)
    assert records(root) == [[], [], []]
    assert staged(root) == []


def test_write_to_missing_store_is_refused(numbers: DataFrame, tmp_path: Path) -> None:
    with pytest.raises(AnalysisException, match="NotALog: there is no store at"):
        write(numbers, tmp_path / "nothing", topic="alerts")
    assert not (tmp_path / "nothing").exists()


def test_missing_topic_is_refused_before_any_task(numbers: DataFrame, root: Path) -> None:
    for frame in (numbers, numbers.limit(0)):
        with pytest.raises(AnalysisException, match="TopicNotFound: there is no topic 'alarms'"):
            write(frame, root, topic="alarms")


def test_failed_cleanup_does_not_hide_the_job_error(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Spark discards the error of a job if its abort fails too."""
    writer = batch_writer({"path": str(root), "topic": "alerts"}, RECORD_SCHEMA, overwrite=False)
    root.rename(root.with_name("elsewhere"))

    writer.abort([])

    assert "remain for a day: there is no store at" in caplog.text


def test_write_modes_other_than_append_are_refused(numbers: DataFrame, root: Path) -> None:
    writer = numbers.write.format("seeklog").option("path", str(root)).option("topic", "alerts")
    with pytest.raises(Exception, match="can only be appended to"):
        writer.mode("overwrite").save()
    with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        writer.mode("errorifexists").save()


def test_locked_partition_is_reported_with_pid_and_nothing_is_written(numbers: DataFrame, root: Path) -> None:
    with Holder(root / "alerts-1" / names.LOCK) as holder:
        message = f"LogLocked: .*alerts-1 is open for writing in process {holder.pid}; .*close the producer"
        with pytest.raises(Exception, match=message):
            write(numbers, root, topic="alerts", lockTimeout="100ms")
    assert records(root) == [[], [], []]
    assert staged(root) == []
    write(numbers, root, topic="alerts")
    assert sum(map(len, records(root))) == 1000


def test_failed_job_writes_nothing_and_next_job_cleans_up(spark: SparkSession, root: Path) -> None:
    """Goal: rows staged by finished, failed, and killed tasks are never written."""
    once = {"topic": "alerts", "txnAppId": "nightly", "txnVersion": "1"}
    rows = spark.range(0, 500, 1, 5)
    with pytest.raises(Exception, match="too bad"):
        write(
            rows.select(expr("if(id = 400, raise_error('too bad'), cast(id as string))").alias("value")), root, **once
        )
    assert records(root) == [[], [], []]
    write(rows.selectExpr("cast(id as string) value"), root, **once)
    assert sum(map(len, records(root))) == 500
    assert staged(root) == []


def test_insert_into_writes_to_the_tables_topic_or_another(spark: SparkSession, root: Path) -> None:
    spark.sql(f"create table alerts_table using seeklog options (path '{root}', subscribe 'alerts')")
    try:
        columns = "X'6b', cast('v' as binary), null, 1, null, null, null"
        spark.sql(f"insert into alerts_table select {columns}")
        assert [(r.key, r.value) for r in records(root)[1]] == [(b"k", b"v")]
        assert spark.table("alerts_table").count() == 1
        spark.sql(f"insert into alerts_table with (topic = 'audit') select {columns}")
        assert [(r.key, r.value) for r in records(root, "audit")[1]] == [(b"k", b"v")]
        spark.sql("insert into alerts_table (value) values (cast('w' as binary))")
        assert spark.table("alerts_table").count() == 2
        frame = spark.table("alerts_table").limit(1)
        frame.writeTo("alerts_table").option("path", str(root)).option("topic", "alerts").append()
        assert spark.table("alerts_table").count() == 3
        with pytest.raises(Exception, match=r"InvalidConfig: options path and topic are missing\. Spark does not pass"):
            spark.createDataFrame(frame.collect(), RECORD_SCHEMA[:7]).writeTo("alerts_table").append()
        with pytest.raises(
            Exception, match=r"CREATE TABLE \.\.\. AS SELECT: use writeTo.*, or INSERT INTO an existing table"
        ):
            spark.sql(f"create table made using seeklog options (path '{root}', topic 'alerts') as select 'v' as value")
        assert not spark.catalog.tableExists("made")
    finally:
        spark.sql("drop table alerts_table")


def test_insert_into_table_of_many_topics_needs_topic_column(spark: SparkSession, root: Path) -> None:
    spark.sql(f"create table all_topics using seeklog options (path '{root}', subscribe 'alerts,audit')")
    try:
        row = "X'6b', cast('v' as binary), {}, 1, null, null, null"
        spark.sql("insert into all_topics select " + row.format("'audit'"))
        assert len(records(root, "audit")[1]) == 1
        with pytest.raises(Exception, match="NULL_TOPIC_IN_DATA"):
            spark.sql("insert into all_topics select " + row.format("null"))
    finally:
        spark.sql("drop table all_topics")
