"""Processes of the exactly-once tests, started as `python children.py <what> <store> ...`.

A child reports by lines on its standard output. Some wait for a line on their standard input before each round, so that
several of them begin it together.
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
from seeklog.store import open_store
from seeklog.topics.transactions import Staged

if TYPE_CHECKING:
    import pyarrow

SOURCE: Final = "numbers"
SINK: Final = "copied"
PARTITIONS: Final = 3
# How many records a batch of the stream has.
BATCH_RECORDS: Final = 30


# ---------------------------------------------------------------- drivers of a streaming query


class FirstAttemptFails:
    """Lets the first attempt of a task of one batch fail when it has given away all of its rows, and leaves a file."""

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
    """Copy one topic to another until there is nothing more, as a query that knows its place by its checkpoint.

    A query that fails is started again in the same session, so often as `starts` says. In the batch `fails_in`, if it
    is not negative, the first attempts of all tasks fail.
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
    """Return the rows that a version of an application has for a partition."""
    key = f"{app} {partition}".encode()
    return [(key, f"{app} {version} {number}".encode()) for number in range(3 + (version + partition) % 3)]


def stage(store: Store, app: str, version: int) -> list[Staged]:
    """Stage a version as two tasks do that write to the same partitions, each one half of the rows."""
    topic_id = store.describe_topic(SINK).topic_id
    staged = []
    for task in range(2):
        for partition in range(PARTITIONS):
            rows = rows_of_version(app, version, partition)
            rows = rows[: len(rows) // 2] if task == 0 else rows[len(rows) // 2 :]
            stager = store.transactions.stager(app, TopicPartition(SINK, partition))
            stager.add(
                encode_batch([Record(value, key=key, timestamp_ms=version) for key, value in rows]),
                record_count=len(rows),
            )
            staged.append(Staged(SINK, topic_id, partition, stager.finish()))
    return staged


def rounds(count: str) -> Iterator[int]:
    """Begin each round when a line comes in."""
    print("ready", flush=True)
    for number in range(int(count)):
        if not sys.stdin.readline():
            return
        yield number


def commit_in_rounds(path: str, app: str, count: str) -> None:
    """Commit each version once; report whether that has added it. What somebody discarded meanwhile is staged anew."""
    with open_store(path, background=False) as store:
        for version in rounds(count):
            while True:
                try:
                    added = store.transactions.commit(app, version, stage(store, app, version))
                except NotAccessible:
                    print("discarded", version, flush=True)
                    continue
                print("committed", version, int(added), flush=True)
                break


def discard_in_rounds(path: str, app: str, count: str) -> None:
    """Do what a driver does whose jobs fail: remove what the application has staged, some times in each round."""
    with open_store(path, read_only=True, background=False) as store:
        for version in rounds(count):
            for _ in range(10):
                store.transactions.discard(app)
            print("committed", version, 0, flush=True)


def commit_many(path: str, app: str, count: str, checkpoint: str) -> None:
    """Commit versions one after the other, each in a store that is opened for it, as Spark's sink does.

    The checkpoint holds the version to begin with: one that was begun and perhaps committed before a kill.
    """
    noted = Path(checkpoint)
    first = int(noted.read_text()) if noted.exists() else 0
    for version in range(first, int(count)):
        with open_store(path, background=False) as store:
            staged = stage(store, app, version)
        with open_store(path, background=False) as store:
            added = store.transactions.commit(app, version, staged)
        assert added or version == first
        renamed = noted.with_suffix(".new")
        renamed.write_text(str(version + 1))
        renamed.replace(noted)
    print("ended", flush=True)


def produce_many(path: str, partition: str, count: str) -> None:
    """Send rounds of records with a producer that is closed after each; report how often the partition was locked."""
    app, locked = "plain", 0
    for version in range(int(count)):
        rows = rows_of_version(app, version, int(partition))
        while rows:
            # They linger until all are there, so that they go in one batch: all or none of them.
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
    what, *words = sys.argv[1:]
    {
        "stream": stream,
        "commit_in_rounds": commit_in_rounds,
        "discard_in_rounds": discard_in_rounds,
        "commit_many": commit_many,
        "produce_many": produce_many,
    }[what](*words)
