"""Key lookups in a store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seeklog.errors import TopicNotFound, UsageError
from seeklog.record.key_hash import partition_of
from store.workbench import open_store

KEYS = [b"key-%d" % number for number in range(40)]


def test_key_is_found_in_partition_of_producer(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.create_topic("orders", partitions=4)
        with store.producer() as producer:
            for number, key in enumerate([*KEYS, *KEYS]):
                producer.send("orders", b"%d" % number, key=key)
        for number, key in enumerate(KEYS):
            found = store.topic("orders").latest(key)
            assert found is not None
            assert (found.key, found.value) == (key, b"%d" % (number + len(KEYS)))
            assert (found.topic, found.partition) == ("orders", partition_of(key, 4))
            assert store.topic("orders").contains(key)
        assert store.topic("orders").latest(b"stranger") is None
        assert not store.topic("orders").contains(b"stranger")


def test_key_in_another_partition_is_found_there_or_in_all(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.create_topic("orders", partitions=4)
        home = partition_of(b"k", 4)
        away = (home + 1) % 4
        with store.producer() as producer:
            producer.send("orders", b"home", key=b"k", timestamp_ms=100)
            producer.send("orders", b"newer", key=b"k", partition=away, timestamp_ms=200)
        values = {
            place: record and record.value
            for place in (None, home, away, (home + 2) % 4, "all")
            for record in [store.topic("orders").latest(b"k", partition=place)]  # type: ignore[arg-type]
        }
        assert values == {None: b"home", home: b"home", away: b"newer", (home + 2) % 4: None, "all": b"newer"}


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_producer_and_lookup_take_other_kinds_of_bytes(tmp_path: Path, kind: Callable[[bytes], Any]) -> None:
    with open_store(tmp_path) as store:
        store.create_topic("orders", partitions=4)
        with store.producer() as producer:
            sent = producer.send("orders", kind(b"v"), key=kind(b"k"), headers={"h": kind(b"1")}).result(10)
        topic = store.topic("orders")
        found = topic.latest(kind(b"k"))

        assert found is not None
        assert (found.partition, found.value, found.headers) == (partition_of(b"k", 4), b"v", (("h", b"1"),))
        assert (sent.partition, topic.contains(kind(b"k"))) == (found.partition, True)


def test_missing_partition_or_topic_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.create_topic("orders", partitions=1)
        with pytest.raises(TopicNotFound):
            store.topic("others").latest(b"k")
        with pytest.raises(TopicNotFound):
            store.topic("orders").latest(b"k", partition=7)
        with pytest.raises(UsageError, match="a key must be bytes"):
            store.topic("orders").contains("k")  # type: ignore[arg-type]


def test_maintenance_builds_key_indexes_of_compacted_topics(tmp_path: Path) -> None:
    words = {"segment.bytes": 500, "segment.ms": 10**9}
    with open_store(tmp_path) as store:
        store.create_topic("kept", partitions=1, config={**words, "cleanup.policy": "compact"})
        store.create_topic("asked", partitions=1, config={**words, "key.index": "seal"})
        store.create_topic("plain", partitions=1, config=words)
        with store.producer(batch_bytes=200) as producer:
            for topic in ("kept", "asked", "plain"):
                for number in range(60):
                    producer.send(topic, b"%d" % number, key=b"%d" % (number % 5))
        store.maintain()
        counts = {topic: len(list((tmp_path / f"{topic}-0").glob("*.keyindex"))) for topic in store.topics()}
        assert counts["plain"] == 0
        assert counts["asked"] > 0
        assert counts["kept"] > 0
        with open_store(tmp_path, read_only=True) as reader:
            for topic in counts:
                found = reader.topic(topic).latest(b"3")
                assert found is not None
                assert (found.offset, found.value) == (58, b"58")
