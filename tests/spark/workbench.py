"""Helpers of the data source tests: stores with known records, and errors that come through the JVM."""

from __future__ import annotations

import re
import shutil
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from log.workbench import START_MS
from seeklog import Record, Store, TopicPartition
from seeklog.errors import SeeklogError
from store.workbench import open_store

GOLDEN = Path(__file__).parents[1] / "interop" / "golden" / "broker"
BROKERS = sorted(path.name.removesuffix(".tar.gz") for path in GOLDEN.glob("*.tar.gz"))


class RowOffset(NamedTuple):
    """The offset of a row, with its topic and partition."""

    topic: str
    partition: int
    offset: int


def append(
    store: Store,
    topic: str,
    records: Iterable[Record],
    *,
    partition: int = 0,
    batch_records: int = 0,
) -> None:
    """Append records to a partition as one batch, or as batches of a size."""
    records = list(records)
    step = batch_records or max(1, len(records))
    with store._table.writing(TopicPartition(topic, partition)) as log:
        for first in range(0, len(records), step):
            log.append_many(records[first : first + step])


def numbered(count: int, *, first: int = 0, size: int = 10) -> list[Record]:
    """Return numbered records, a second apart; keys repeat every seven."""
    return [
        Record(
            b"%0*d" % (size, number),
            key=b"key-%d" % (number % 7),
            headers=[("number", b"%d" % number)] if number % 3 == 0 else (),
            timestamp_ms=START_MS + 1000 * number,
        )
        for number in range(first, first + count)
    ]


def make_store(path: Path, counts: dict[str, list[int]], *, batch_records: int = 10, **settings: Any) -> Path:
    """Create a store with topics and numbers of records in their partitions, and close it."""
    with open_store(path, **settings) as store:
        for topic, partitions in counts.items():
            store.create_topic(topic, partitions=len(partitions))
            for partition, count in enumerate(partitions):
                append(store, topic, numbered(count), partition=partition, batch_records=batch_records)
    return path


def unpack_broker(name: str, target: Path) -> Path:
    """Return a real broker's data directory, unpacked."""
    with tarfile.open(GOLDEN / f"{name}.tar.gz") as archive:
        archive.extractall(target, filter="data")
    return target / name


def load(spark: SparkSession, path: Path | str, **options: object) -> DataFrame:
    """Return a DataFrame over a store with Spark options."""
    texts = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    return spark.read.format("seeklog").option("path", str(path)).options(**texts).load()


def row_offsets(frame: DataFrame) -> list[RowOffset]:
    """Return the topics, partitions, and offsets of the rows, in order."""
    return sorted(RowOffset(*row) for row in frame.select("topic", "partition", "offset").collect())


def everything(path: Path, topic: str) -> list[RowOffset]:
    """Return the same for all records of a topic, read by the engine."""
    with open_store(path, read_only=True) as store:
        return [
            RowOffset(topic, one.partition, record.offset)
            for one in store.describe_topic(topic).partitions
            for record in store.log(topic, one.partition).scan()
        ]


def message_of(call: Callable[[], object], kind: type[SeeklogError]) -> str:
    """Return the one-line message of a seeklog error that came through the JVM, after checking its class."""
    with pytest.raises(Exception) as caught:
        call()
    found = re.search(rf"seeklog\.errors\.{kind.__name__}: (.*)$", str(caught.value), re.MULTILINE)
    assert found is not None, f"no {kind.__name__} in: {caught.value}"
    return found[1]


def copy_store(path: Path, target: Path) -> Path:
    return Path(shutil.copytree(path, target))
