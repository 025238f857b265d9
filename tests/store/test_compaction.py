"""Compaction of a store's topics: by hand, in maintenance, and of the topic that groups keep their offsets in."""

from __future__ import annotations

from pathlib import Path

import pytest

from seeklog import TopicPartition
from seeklog.errors import InvalidRecord, UsageError
from store.workbench import append, open_store, read


def test_a_topic_keeps_the_latest_record_of_each_key(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", segment_bytes=300) as store:
        store.create_topic("latest", partitions=2, config={"cleanup.policy": "compact"})
        store.create_topic("all", partitions=1)
        for number in range(30):
            append(store, "latest", [b"%d" % number], key=b"k")
            append(store, "all", [b"%d" % number], key=b"k")
        done = store.compact()

        assert set(done) == {TopicPartition("latest", 0), TopicPartition("latest", 1)}
        assert done[TopicPartition("latest", 0)].removed_records > 20
        assert read(store, "latest")[-1] == b"29"
        assert len(read(store, "all")) == 30
        with pytest.raises(UsageError, match='its cleanup_policy is "delete"'):
            store.compact("all")


def test_maintenance_compacts_what_is_due(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", segment_bytes=300) as store:
        store.create_topic("latest", partitions=1, config={"cleanup.policy": "compact"})
        for number in range(30):
            append(store, "latest", [b"%d" % number], key=b"k")
        store.maintain()
        assert len(read(store, "latest")) < 10


def test_a_producer_refuses_a_record_without_key(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.create_topic("latest", partitions=1, config={"cleanup.policy": "compact"})
        with store.producer() as producer, pytest.raises(InvalidRecord, match="needs a key"):
            producer.send("latest", b"v")
        assert read(store, "latest") == []


def test_groups_read_the_same_after_their_topic_was_compacted(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.create_topic("t", partitions=2)
        for number in range(40):
            append(store, "t", [b"%d" % number], partition=number % 2)
        for group in range(3):
            with store.consumer(["t"], group=f"group {group}", auto_offset_reset="earliest") as consumer:
                while consumer.poll(timeout_ms=0, max_records=1):
                    consumer.commit()
        for partition in range(len(store.describe_topic("__consumer_offsets").partitions)):
            # Its segments are of 100 MiB: what was committed is in the one that compaction leaves alone.
            with store.hold("__consumer_offsets", partition) as log:
                writer = log._writing
                assert writer is not None
                if log.log_end_offset:
                    with writer._lock:
                        writer.roll()
        before = {group: store.lag(group) for group in store.groups()}
        done = store.compact("__consumer_offsets")
        assert sum(each.removed_records for each in done.values()) > 20
        assert len(before) == 3
        assert {group: store.lag(group) for group in store.groups()} == before
    with open_store(tmp_path / "store") as store:
        assert {group: store.lag(group) for group in store.groups()} == before
