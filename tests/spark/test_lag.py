"""The lag of queries, computed by a listener from their progress, with the metrics of Spark's Kafka source."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from log.workbench import wait_until
from seeklog import TopicPartition
from seeklog.spark import LagListener, QueryLag
from seeklog.spark.read.lag import lag_of
from spark.streams import SOURCES, Collected
from spark.workbench import make_store


def progress(*sources: dict[str, Any]) -> StreamingQueryProgress:
    """Return a query's progress as Spark Connect sends it."""
    shared = {"description": "", "numInputRows": 0, "inputRowsPerSecond": 0.0, "processedRowsPerSecond": 0.0}
    return StreamingQueryProgress.fromJson(
        {
            "id": "00000000-0000-0000-0000-000000000001",
            "runId": "00000000-0000-0000-0000-000000000002",
            "name": "nightly",
            "timestamp": "2026-01-01T00:00:00.000Z",
            "batchId": 7,
            "batchDuration": 1,
            "stateOperators": [],
            "sources": [{**shared, "startOffset": None, **source} for source in sources],
            "sink": {"description": "", "numOutputRows": 0},
        }
    )


def source(end: dict[str, Any], latest: dict[str, Any]) -> dict[str, Any]:
    return {"endOffset": {"#ids": {"t": "id"}, **end}, "latestOffset": {"#ids": {"t": "id"}, **latest}}


def test_lag_is_counted_by_partition_and_summarised_as_in_spark() -> None:
    lag = lag_of(progress(source({"t": {"0": 10, "1": 4}}, {"t": {"0": 10, "1": 9, "2": 1}})))

    assert lag is not None
    assert (lag.query_id[-1], lag.run_id[-1], lag.name, lag.batch_id) == ("1", "2", "nightly", 7)
    assert lag.offsets_behind == {
        TopicPartition("t", 0): 0,
        TopicPartition("t", 1): 5,
        TopicPartition("t", 2): 1,  # found, but not read yet
    }
    assert lag.metrics == {
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 5,
        "avgOffsetsBehindLatest": 2.0,
    }


def test_lag_covers_all_sources_of_a_query() -> None:
    lag = lag_of(
        progress(
            source({"t": {"0": 3}}, {"t": {"0": 10}}),
            {"endOffset": {"other": {"0": 1}}, "latestOffset": {"other": {"0": 1000}}},
            {"endOffset": 5, "latestOffset": 500},
            source({"t": {"0": 8}, "u": {"0": 1}}, {"t": {"0": 10}, "u": {"0": 1}}),
        )
    )
    assert lag is not None
    assert lag.offsets_behind == {TopicPartition("t", 0): 7, TopicPartition("u", 0): 0}, "the slower one counts"


@pytest.mark.parametrize(
    "other",
    [
        {"endOffset": 5, "latestOffset": 5},
        {"endOffset": {"t": {"0": 1}}, "latestOffset": {"t": {"0": 1}}},
        {"endOffset": None, "latestOffset": None},
    ],
    ids=str,
)
def test_queries_of_other_sources_have_no_lag(other: dict[str, Any]) -> None:
    assert lag_of(progress(other)) is None
    assert lag_of(progress()) is None


def test_query_without_partitions_has_no_lag() -> None:
    lag = lag_of(progress({"endOffset": {"#ids": {}}, "latestOffset": {"#ids": {}}}))
    assert lag is not None
    assert lag.metrics == {"minOffsetsBehindLatest": 0, "maxOffsetsBehindLatest": 0, "avgOffsetsBehindLatest": 0.0}


def test_listener_is_called_for_every_batch(spark: SparkSession, tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"orders": [20, 10]})
    lags: list[QueryLag] = []
    listener = LagListener(lags.append)
    spark.streams.addListener(listener)
    try:
        collected = Collected(
            spark,
            path,
            tmp_path / "checkpoint",
            subscribe="orders",
            startingOffsets="earliest",
            maxOffsetsPerTrigger=15,
        )
        query = collected.available()
        elsewhere = spark.readStream.format("rate").load().writeStream.format("noop").start()
        elsewhere.stop()
        wait_until(lambda: len(lags) == 2, "two batches reported to the listener")
    finally:
        spark.streams.removeListener(listener)

    assert [lag.metrics["maxOffsetsBehindLatest"] for lag in lags] == [10, 0]
    assert [lag.metrics["avgOffsetsBehindLatest"] for lag in lags] == [7.5, 0.0]
    assert listener.last == {query.id: lags[-1]}


_CONNECT = """
import json, sys
from pyspark.sql import SparkSession
from seeklog.spark import LagListener
path, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    import threading
    lags, both = [], threading.Event()
    def note(lag):
        lags.append(lag.metrics["maxOffsetsBehindLatest"])
        if len(lags) == 2:
            both.set()
    listener = LagListener(note)
    spark.streams.addListener(listener)
    query = (
        spark.readStream.format("seeklog").option("path", path).option("subscribe", "orders")
        .option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 15).load()
        .writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    both.wait(60)
    spark.streams.removeListener(listener)
    print("lags", json.dumps([lags, list(listener.last) == [query.id]]), flush=True)
finally:
    spark.stop()
"""


@pytest.mark.slow
@pytest.mark.usefixtures("connect_alone")
def test_listener_in_spark_connect_is_called_for_every_batch(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    path = make_store(tmp_path / "store", {"orders": [20, 10]})
    environment = {**os.environ, "PYTHONPATH": str(SOURCES), "PYSPARK_PYTHON": sys.executable}
    for word in ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        environment.pop(word, None)
    child = subprocess.run(
        [sys.executable, "-c", _CONNECT, str(path), str(tmp_path / "checkpoint")],
        env=environment,
        cwd=tmp_path,  # the server leaves files there
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    lines = [line for line in child.stdout.splitlines() if line.startswith("lags ")]
    assert lines, child.stderr
    assert json.loads(lines[0].removeprefix("lags ")) == [[10, 0], True]
