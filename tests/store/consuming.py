"""Tools for tests of consumers: a topic of three partitions, and a summary of the returned records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from log.workbench import START_MS, FakeClock
from seeklog import Consumer, Record, Store, TopicPartition
from store.workbench import open_store

EARLIEST: dict[str, Any] = {"auto_offset_reset": "earliest"}
GROUP: dict[str, Any] = {"group": "group", "auto_offset_reset": "earliest"}
ZERO = TopicPartition("events", 0)


def open_events(path: Path, *, clock: FakeClock) -> Store:
    """Open a store with a topic of three partitions, which hold 10, 20 and 30 records a second apart."""
    store = open_store(path, clock=clock)
    store.create_topic("events", partitions=3)
    for partition in range(3):
        fill(store, partition, 10 * (partition + 1))
    return store


def fill(store: Store, partition: int, count: int) -> None:
    """Append records whose values name partition and offset, in batches of one to four, a second apart."""
    start = store.log("events", partition).log_end_offset
    for first in range(start, start + count, 4):
        with store._table.writing(TopicPartition("events", partition)) as log:
            log.append_many(
                [
                    Record(b"%d/%d" % (partition, offset), timestamp_ms=START_MS + offset * 1000)
                    for offset in range(first, min(first + 4, start + count))
                ]
            )


def drain(consumer: Consumer, **words: Any) -> list[Record]:
    """Poll until there are no more records."""
    records: list[Record] = []
    while polled := consumer.poll(**words):
        records += polled
    return records


def places(records: list[Record]) -> list[tuple[str | None, int, int]]:
    return [(record.topic, record.partition, record.offset) for record in records]


ALL = {("events", partition, offset) for partition in range(3) for offset in range(10 * (partition + 1))}


def check_order(records: list[Record]) -> None:
    for partition in range(3):
        mine = [record.offset for record in records if record.partition == partition]
        assert mine == sorted(mine)
