"""`jobs.compact`, and writes of rows without key to a compacted topic."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import seeklog
from seeklog import LogConfig
from seeklog.spark import jobs

CONFIG = LogConfig(segment_bytes=300)


def make_store(root: Path) -> None:
    with seeklog.open(root, config=CONFIG, background=False) as store:
        store.create_topic("latest", partitions=2, config={"cleanup.policy": "compact"})
        store.create_topic("all", partitions=1)
        with store.producer() as producer:
            for number in range(60):
                producer.send("latest", b"%d" % number, key=b"k", partition=number % 2)
                producer.flush()


def test_a_task_compacts_each_compacted_partition(spark: SparkSession, tmp_path: Path) -> None:
    make_store(tmp_path / "store")
    rows = jobs.compact(spark, tmp_path / "store", config=CONFIG, progress=False).collect()

    assert [(row.topic, row.partition, row.done) for row in rows] == [
        ("latest", 0, "compacted"),
        ("latest", 1, "compacted"),
    ]
    assert all(row.records_after < row.records_before for row in rows)
    with seeklog.open(tmp_path / "store", read_only=True) as store:
        for partition in (0, 1):
            values = [record.value for record in store.log("latest", partition).scan()]
            assert values[-1] == b"%d" % (58 + partition)
    assert {row.done for row in jobs.compact(spark, tmp_path / "store", config=CONFIG, progress=False).collect()} <= {
        "unchanged",
        "compacted",
    }


def test_partition_open_for_writing_is_reported_as_locked(spark: SparkSession, tmp_path: Path) -> None:
    make_store(tmp_path / "store")
    with seeklog.open(tmp_path / "store", config=CONFIG, background=False) as store, store.writer("latest", 1):
        rows = jobs.compact(spark, tmp_path / "store", config=CONFIG, progress=False).collect()
    assert [row.done for row in rows] == ["compacted", "locked"]


def test_compacted_topic_refuses_rows_without_key(spark: SparkSession, tmp_path: Path) -> None:
    make_store(tmp_path / "store")
    frame = spark.createDataFrame([("k", "1"), (None, "2")], "key string, value string")
    for rows in (frame, frame.select("value")):
        with pytest.raises(
            Exception, match="topic latest: the topic is compacted, and a row has no key; nothing was written"
        ):
            rows.write.format("seeklog").mode("append").option("path", str(tmp_path / "store")).option(
                "topic", "latest"
            ).save()
    with seeklog.open(tmp_path / "store", read_only=True) as store:
        assert sum(store.log("latest", partition).log_end_offset for partition in (0, 1)) == 60
