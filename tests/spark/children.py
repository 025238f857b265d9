"""Processes of the exactly-once tests, started as `python children.py <task> <store> ...`.

A child reports in lines on stdout. Some children wait for a line on stdin before each round, so that they all start it
together.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from seeklog import Record, Store, TopicPartition
from seeklog.errors import LogLocked, NotAccessible
from seeklog.record.batch import encode_batch
from seeklog.store import open_store, transactions_of
from seeklog.topics.transactions import Staged

if TYPE_CHECKING:
    import pyarrow

SOURCE: Final = "numbers"
SINK: Final = "copied"
PARTITIONS: Final = 3
# The number of records in a batch of the stream.
BATCH_RECORDS: Final = 30


# ---------------------------------------------------------------- drivers of a streaming query


class FirstAttemptFails:
    """Makes the first attempt of each task of one batch fail after its last row, and leaves a file."""

    def __init__(self, batch: int, mark: Path) -> None:
        self._batch = batch
        self._mark = mark

    def __call__(self, batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        from pyspark import TaskContext

        yield from batches
        context = TaskContext.get()
        assert context is not None
        if (context.getLocalProperty("streaming.sql.batchId"), context.attemptNumber()) == (str(self._batch), 0):
            self._mark.touch()
            raise RuntimeError("this attempt fails")


def stream(path: str, checkpoint: str, starts: str, fails_in: str) -> None:
    """Copy one topic to another in a query with a checkpoint, until all records are copied.

    A failed query is started again in the same session, up to `starts` times in total. In the batch `fails_in`, unless
    it is negative, the first attempts of all tasks fail.
    """
    from pyspark.errors import StreamingQueryException

    from seeklog.spark import session

    logging = Path(checkpoint).with_name("log4j2.properties")
    logging.write_text("rootLogger.level = off\n")
    config = {
        "spark.driver.extraJavaOptions": f"-XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={logging}",
        "spark.driver.memory": "600m",
    }
    # A task may fail twice before its job does.
    with session("exactly once", master="local[2,3]", config=config) as spark:
        for left in reversed(range(int(starts))):
            rows = (
                spark.readStream.format("seeklog")
                .option("path", path)
                .option("subscribe", SOURCE)
                .option("startingOffsets", "earliest")
                .option("maxOffsetsPerTrigger", BATCH_RECORDS)
                .option("minPartitions", 2)
                .option("columns", "key,value")
                .load()
            )
            if int(fails_in) >= 0:
                mark = Path(checkpoint).with_name("failed attempt")
                rows = rows.mapInArrow(FirstAttemptFails(int(fails_in), mark), "key binary, value binary")
            query = (
                rows.writeStream.format("seeklog")
                .option("path", path)
                .option("topic", SINK)
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            try:
                query.awaitTermination()
            except StreamingQueryException as failure:
                print("failed", str(failure).splitlines()[0], flush=True)
                if not left:
                    raise
            else:
                print("ended", flush=True)
                return


# ---------------------------------------------------------------- committing without Spark


def rows_of_version(app: str, version: int, partition: int) -> list[tuple[bytes, bytes]]:
    """Return the rows of a version of an application for a partition."""
    key = f"{app} {partition}".encode()
    return [(key, f"{app} {version} {number}".encode()) for number in range(3 + (version + partition) % 3)]


def stage(store: Store, app: str, version: int) -> list[Staged]:
    """Stage a version as two tasks that write half of the rows each to the same partitions."""
    topic_id = store.describe_topic(SINK).topic_id
    staged = []
    for task in range(2):
        for partition in range(PARTITIONS):
            rows = rows_of_version(app, version, partition)
            rows = rows[: len(rows) // 2] if task == 0 else rows[len(rows) // 2 :]
            stager = transactions_of(store).stager(app, TopicPartition(SINK, partition))
            stager.add(
                encode_batch([Record(value, key=key, timestamp_ms=version) for key, value in rows]),
                record_count=len(rows),
            )
            staged.append(Staged(SINK, topic_id, partition, stager.finish()))
    return staged


def rounds(count: str) -> Iterator[int]:
    """Start each round when a line arrives."""
    print("ready", flush=True)
    for number in range(int(count)):
        if not sys.stdin.readline():
            return
        yield number


def commit_in_rounds(path: str, app: str, count: str) -> None:
    """Commit each version once and report whether it was appended. Stage again what another process has discarded."""
    with open_store(path, background=False) as store:
        for version in rounds(count):
            while True:
                try:
                    added = transactions_of(store).commit(app, version, stage(store, app, version))
                except NotAccessible:
                    print("discarded", version, flush=True)
                    continue
                print("committed", version, int(added), flush=True)
                break


def discard_in_rounds(path: str, app: str, count: str) -> None:
    """Discard the staged files of the application several times in each round, as the driver of failing jobs does."""
    with open_store(path, read_only=True, background=False) as store:
        for version in rounds(count):
            for _ in range(10):
                transactions_of(store).discard(app)
            print("committed", version, 0, flush=True)


def commit_many(path: str, app: str, count: str, checkpoint: str) -> None:
    """Commit versions one after the other, opening the store for each, as Spark's sink does.

    The checkpoint has the version to start with, which may have been committed before a kill.
    """
    noted = Path(checkpoint)
    first = int(noted.read_text()) if noted.exists() else 0
    for version in range(first, int(count)):
        with open_store(path, background=False) as store:
            staged = stage(store, app, version)
        with open_store(path, background=False) as store:
            added = transactions_of(store).commit(app, version, staged)
        assert added or version == first
        renamed = noted.with_suffix(".new")
        renamed.write_text(str(version + 1))
        renamed.replace(noted)
    print("ended", flush=True)


def produce_many(path: str, partition: str, count: str) -> None:
    """Send rounds of records, closing the producer after each; report how often the partition was locked."""
    app, locked = "plain", 0
    for version in range(int(count)):
        rows = rows_of_version(app, version, int(partition))
        while rows:
            # linger_ms gathers the round in one batch, so that all of it is appended or nothing.
            with open_store(path, background=False) as store, store.producer(linger_ms=10_000) as producer:
                sent = [producer.send(SINK, value, key=key, partition=int(partition)) for key, value in rows]
                with contextlib.suppress(LogLocked):
                    producer.flush()
                failures = [future.exception(timeout=0) for future in sent]
            if any(failures):
                assert all(isinstance(failure, LogLocked) for failure in failures), failures
                locked += 1
            else:
                rows = []
    print("locked", locked, flush=True)
    print("ended", flush=True)


if __name__ == "__main__":
    task, *arguments = sys.argv[1:]
    {
        "stream": stream,
        "commit_in_rounds": commit_in_rounds,
        "discard_in_rounds": discard_in_rounds,
        "commit_many": commit_many,
        "produce_many": produce_many,
    }[task](*arguments)
