"""Helpers of stream tests: queries that collect their rows, and a reader that is called as Spark calls it."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.streaming.query import StreamingQuery

import seeklog
from seeklog import TopicPartition
from seeklog.clock import Clock
from seeklog.spark.read.schema import RECORD_SCHEMA, pick
from seeklog.spark.read.stream import StreamReader
from spark.workbench import RowOffset

COLUMNS = ("topic", "partition", "offset")
# The path of the packages for Python workers.
SOURCES = Path(seeklog.__file__).resolve().parents[1]


def spark_options(path: Path, **options: object) -> dict[str, str]:
    """Return options as Spark passes them: as text, with names in lower case."""
    given = {"path": path, **options}
    return {
        name.lower(): str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()
    }


class Driven:
    """A stream without Spark: makes Spark's calls in their order, with a JSON checkpoint."""

    def __init__(self, path: Path, *, clock: Clock | None = None, **options: object) -> None:
        self._path = path
        self._clock = clock
        self.options: dict[str, object] = options
        self.wal: list[str] = []
        """The ends of the batches that were planned, as they stand in the checkpoint."""
        self.done = 0
        """How many of those were processed."""
        self.start()

    def start(self, *, available_now: bool = False, **options: object) -> None:
        """Start as a new process with the existing checkpoint and changed or added options."""
        self.options |= options
        self.reader = StreamReader(
            spark_options(self._path, **self.options), pick(RECORD_SCHEMA, COLUMNS), clock=self._clock
        )
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        self.limit: ReadLimit = self.reader.getDefaultReadLimit()

    def plan(self) -> bool:
        """Plan the next batch, if there is one."""
        start = self._start()
        end = json.dumps(self.reader.latestOffset(json.loads(start), self.limit))
        if self.wal and end == start:
            return False
        self.wal.append(end)
        return True

    def _start(self) -> str:
        return self.wal[self.done - 1] if self.done else json.dumps(self.reader.initialOffset())

    def run(self) -> list[RowOffset]:
        """Process the planned batch."""
        start, end = json.loads(self._start()), json.loads(self.wal[self.done])
        # Tasks use a copy of another reader.
        task = pickle.loads(
            pickle.dumps(StreamReader(spark_options(self._path, **self.options), pick(RECORD_SCHEMA, COLUMNS)))
        )
        splits = pickle.loads(pickle.dumps(list(self.reader.partitions(start, end))))
        found = [
            RowOffset(*row.values()) for split in splits for batch in task.read(split) for row in batch.to_pylist()
        ]
        self.done += 1
        return found

    def step(self) -> list[RowOffset] | None:
        """Run one batch, or return None without one."""
        if self.done == len(self.wal) and not self.plan():
            return None
        return self.run()

    def batches(self) -> Iterator[list[RowOffset]]:
        """Run all remaining batches."""
        while (found := self.step()) is not None:
            yield found

    def rest(self) -> list[RowOffset]:
        """Return everything read until there is no more."""
        return sorted(place for batch in self.batches() for place in batch)

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The end of the last planned batch."""
        return {
            TopicPartition(topic, int(number)): offset
            for topic, inner in json.loads(self.wal[-1]).items()
            if not topic.startswith("#")
            for number, offset in inner.items()
        }


class Collected:
    """A query that collects the partitions and offsets of its rows in a list, batch by batch."""

    def __init__(self, spark: SparkSession, path: Path, checkpoint: Path, **options: object) -> None:
        self._spark = spark
        self._path = path
        self.checkpoint = checkpoint
        self._options = options
        self.batches: list[list[RowOffset]] = []

    def load(self) -> DataFrame:
        return self._spark.readStream.format("seeklog").options(**spark_options(self._path, **self._options)).load()

    def start(self, frame: DataFrame | None = None, **trigger: Any) -> StreamingQuery:
        """Start the query; without a trigger batches follow each other."""
        writer = (self.load() if frame is None else frame).select(*COLUMNS).writeStream
        writer = writer.option("checkpointLocation", str(self.checkpoint)).foreachBatch(self._collect)
        return (writer.trigger(**trigger) if trigger else writer).start()

    def _collect(self, frame: DataFrame, number: int) -> None:
        self.batches.append(sorted(RowOffset(*row) for row in frame.collect()))

    def available(self, frame: DataFrame | None = None) -> StreamingQuery:
        """Read all available records and return the ended query."""
        query = self.start(frame, availableNow=True)
        query.awaitTermination()
        return query

    @property
    def rows(self) -> list[RowOffset]:
        return sorted(row for batch in self.batches for row in batch)


def span(topic: str, partition: int, start: int, stop: int) -> list[RowOffset]:
    """Return the rows of a range of offsets."""
    return [RowOffset(topic, partition, offset) for offset in range(start, stop)]
