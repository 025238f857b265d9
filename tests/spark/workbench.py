"""What the tests of the data source work with: stores with known records, and errors as they come out of the JVM."""

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


class Place(NamedTuple):
    """A row's place in a store."""

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
    """Append records to one partition: as one batch, or as batches of so many."""
    records = list(records)
    step = batch_records or max(1, len(records))
    with store._table.writing(TopicPartition(topic, partition)) as log:
        for first in range(0, len(records), step):
            log.append_many(records[first : first + step])


def numbered(count: int, *, first: int = 0, size: int = 10) -> list[Record]:
    """Return records that tell their number, a second apart; keys repeat every seven."""
    return [
        Record(
            b"%0*d" % (size, number),
            key=b"key-%d" % (number % 7),
            headers=[("number", b"%d" % number)] if number % 3 == 0 else (),
            timestamp_ms=START_MS + 1000 * number,
        )
        for number in range(first, first + count)
    ]


def make_store(path: Path, counts: dict[str, list[int]], *, batch_records: int = 10, **words: Any) -> Path:
    """Make a store with these topics, each with so many numbered records in its partitions, and close it."""
    with open_store(path, **words) as store:
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
    """Return a DataFrame over a store; options are given as Spark's users give them."""
    words = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    return spark.read.format("seeklog").option("path", str(path)).options(**words).load()


def places(frame: DataFrame) -> list[Place]:
    """Return where the rows come from, in order."""
    return sorted(Place(*row) for row in frame.select("topic", "partition", "offset").collect())


def everything(path: Path, topic: str) -> list[Place]:
    """Return where all rows of a topic must come from, by the engine."""
    with open_store(path, read_only=True) as store:
        return [
            Place(topic, one.partition, record.offset)
            for one in store.describe_topic(topic).partitions
            for record in store.log(topic, one.partition).scan()
        ]


def message_of(call: Callable[[], object], kind: type[SeeklogError]) -> str:
    """Return the message of an error of ours that came through the JVM: its class and one line that tells it all."""
    with pytest.raises(Exception) as caught:
        call()
    found = re.search(rf"seeklog\.errors\.{kind.__name__}: (.*)$", str(caught.value), re.MULTILINE)
    assert found is not None, f"no {kind.__name__} in: {caught.value}"
    return found[1]


def copy_store(path: Path, target: Path) -> Path:
    return Path(shutil.copytree(path, target))
