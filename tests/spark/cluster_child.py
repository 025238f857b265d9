"""A driver with two executor processes, run by test_cluster.py: prints its results as JSON.

    python cluster_child.py all|speculation <master> <store> <work directory>

Executors share only the file system with the driver. They get the paths of the packages as an option.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

PLACES = ("topic", "partition", "offset")


def session(master: str, **settings: str) -> SparkSession:
    builder = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.executor.memory", "512m")
        # The checks are short, so fast compilation matters most.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.executor.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.executorEnv.PYTHONPATH", os.environ["PYTHONPATH"])
    )
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("OFF")
    return made


def executor_of(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Count rows by the working directory of an executor, which identifies it."""
    rows = sum([batch.num_rows for batch in batches])
    yield pa.RecordBatch.from_pydict({"executor": [os.getcwd()], "rows": [rows]})


class Attempts:
    """Leaves a file for each attempt of the second task after its last row, and then makes the attempt fail or wait.

    Either the first attempt fails, or two attempts wait for each other.
    """

    def __init__(self, work: Path, *, fails: bool) -> None:
        self._work = work
        self._fails = fails

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        task, attempt = context.partitionId(), context.attemptNumber()
        yield from batches
        (self._work / f"attempt-{task}-{attempt}").touch()
        if task == 1 and self._fails and attempt == 0:
            raise RuntimeError("this attempt fails")
        if task == 1 and not self._fails:
            # The first attempt waits for the other one.
            self._wait_for(self._work / f"attempt-1-{1 - attempt}")

    @staticmethod
    def _wait_for(path: Path) -> None:
        # Limited, so that the test fails instead of hanging without a second attempt.
        for _ in range(3000):
            if path.exists():
                return
            time.sleep(0.1)

    def seen(self) -> list[str]:
        return sorted(path.name.removeprefix("attempt-") for path in self._work.glob("attempt-*"))


class Checks:
    """The checks on the cluster, each with its result."""

    def __init__(self, spark: SparkSession, store: str, work: Path) -> None:
        self._spark = spark
        self._store = store
        self._work = work

    def _load(self, **options: str) -> DataFrame:
        return self._spark.read.format("seeklog").option("path", self._store).options(**options).load()

    def _stream(self, **options: str) -> DataFrame:
        reader = self._spark.readStream.format("seeklog").option("path", self._store)
        return reader.option("startingOffsets", "earliest").options(**options).load()

    def batch_read(self) -> dict[str, Any]:
        frame = self._load(subscribe="orders", minPartitions="6")
        executors = frame.mapInArrow(executor_of, "executor string, rows long").collect()
        return {
            "executors": len({row["executor"] for row in executors}),
            "tasks": len(executors),
            "rows": sorted(list(row) for row in frame.select(*PLACES).collect()),
        }

    def stream_read(self) -> dict[str, Any]:
        batches: list[list[list[Any]]] = []
        query = (
            self._stream(subscribe="orders", maxOffsetsPerTrigger="100", minPartitions="4")
            .select(*PLACES)
            .writeStream.foreachBatch(lambda frame, _: batches.append([list(row) for row in frame.collect()]))
            .option("checkpointLocation", str(self._work / "read"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return {"batches": len(batches), "rows": sorted(row for batch in batches for row in batch)}

    def batch_write(self) -> dict[str, Any]:
        rows = self._spark.range(0, 2000, 1, 4).selectExpr("cast(id as string) key", "cast(id as string) value")
        rows.write.format("seeklog").mode("append").option("path", self._store).option("topic", "written").save()
        return self._values("written")

    def retried_write(self) -> dict[str, Any]:
        return self._disturbed_write(Attempts(self._work, fails=True))

    def speculative_write(self) -> dict[str, Any]:
        return self._disturbed_write(Attempts(self._work, fails=False))

    def _disturbed_write(self, attempts: Attempts) -> dict[str, Any]:
        rows = self._spark.range(0, 2000, 1, 4).selectExpr("cast(id as string) key", "cast(id as string) value")
        rows = rows.mapInArrow(attempts, "key string, value string")
        rows.write.format("seeklog").mode("append").option("path", self._store).option("topic", "retried").save()
        return self._values("retried") | {"attempts": attempts.seen()}

    def stream_write(self) -> dict[str, Any]:
        for _ in range(2):
            query = (
                self._stream(subscribe="orders", maxOffsetsPerTrigger="150", columns="key,value")
                .writeStream.format("seeklog")
                .option("path", self._store)
                .option("topic", "copied")
                .option("checkpointLocation", str(self._work / "copy"))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        return self._values("copied")

    def _values(self, topic: str) -> dict[str, Any]:
        rows = self._load(subscribe=topic, columns="value,partition").collect()
        return {
            "values": sorted(int(row["value"]) for row in rows),
            "partitions": len({row["partition"] for row in rows}),
        }


SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
}


def main(what: str, master: str, store: str, work: str) -> None:
    spark = session(master, **(SPECULATION if what == "speculation" else {}))
    try:
        checks = Checks(spark, store, Path(work))
        steps: list[Callable[[], dict[str, Any]]] = [
            checks.batch_read,
            checks.stream_read,
            checks.batch_write,
            checks.retried_write,
            checks.stream_write,
        ]
        for step in [checks.speculative_write] if what == "speculation" else steps:
            print("found", json.dumps({step.__name__: step()}), flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
