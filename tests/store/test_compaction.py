"""Compaction of a store's topics: on request, in maintenance, and of the topic with the groups' offsets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seeklog import Log, TopicPartition, names
from seeklog.errors import InvalidRecord, SeeklogError, UsageError
from store.workbench import append, open_store, read


def test_compacted_topic_keeps_latest_record_of_each_key(tmp_path: Path) -> None:
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
        with pytest.raises(UsageError, match=r'its cleanup\.policy is "delete"; set it to'):
            store.compact("all")


@pytest.mark.id("compaction-of-an-altered-topic")
@pytest.mark.parametrize("moment", ["before", "while it is opened", "while it is opened, and somebody learns of it"])
def test_stale_policy_does_not_compact_records_written_after_alteration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    root, words = tmp_path / "store", {"segment_bytes": 300}
    with open_store(root, **words) as store, open_store(root, **words) as other:
        store.create_topic("t", partitions=1, config={"cleanup.policy": "compact"})

        def alter() -> None:
            monkeypatch.undo()
            other.alter_topic("t", {"cleanup.policy": "delete"})
            for number in range(30):
                append(other, "t", [b"%d" % number], key=b"k")
            other._table.drop("t")

        if moment == "before":
            alter()
            assert store.compact() == {}
        else:
            opening = store._table._open_to_write

            def alter_and_open(*arguments: Any, **words: Any) -> Log:
                alter()
                log = opening(*arguments, **words)
                if moment.endswith("learns of it"):
                    assert store.topics() == ["t"]
                return log

            monkeypatch.setattr(store._table, "_open_to_write", alter_and_open)
            with pytest.raises(UsageError, match=r'its cleanup\.policy is "delete"; set it to'):
                store.compact()
        assert len(read(store, "t")) == 30


def test_log_is_closed_if_catalog_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_store(tmp_path / "store") as store, open_store(tmp_path / "store") as other:
        store.create_topic("t", partitions=1)
        opening = store._table._open_to_write

        def open_and_damage(*arguments: Any, **words: Any) -> Log:
            (tmp_path / "store" / names.TOPICS).write_bytes(b"{")
            return opening(*arguments, **words)

        monkeypatch.setattr(store._table, "_open_to_write", open_and_damage)
        whole = (tmp_path / "store" / names.TOPICS).read_bytes()
        with pytest.raises(SeeklogError), store._table.borrow(TopicPartition("t", 0), wait_s=0):
            pass
        (tmp_path / "store" / names.TOPICS).write_bytes(whole)
        append(other, "t", [b"not locked"])


def test_borrowed_log_is_released_if_catalog_cannot_be_read(tmp_path: Path) -> None:
    catalog, place = tmp_path / "store" / names.TOPICS, TopicPartition("t", 0)
    with open_store(tmp_path / "store") as store, open_store(tmp_path / "store") as other:
        store.create_topic("t", partitions=1)
        with store._table.borrow(place, wait_s=0, stays_open=True) as log:
            log.append(b"x")
        whole = catalog.read_bytes()
        catalog.write_bytes(b"{")
        with pytest.raises(SeeklogError), store._table.borrow(place, wait_s=0, stays_open=True):
            pass
        catalog.write_bytes(whole)
        append(other, "t", [b"not locked"])


def test_maintenance_compacts_due_partitions(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", segment_bytes=300) as store:
        store.create_topic("latest", partitions=1, config={"cleanup.policy": "compact"})
        for number in range(30):
            append(store, "latest", [b"%d" % number], key=b"k")
        store.maintain()
        assert len(read(store, "latest")) < 10


def test_producer_refuses_record_without_key_in_compacted_topic(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.create_topic("latest", partitions=1, config={"cleanup.policy": "compact"})
        with store.producer() as producer, pytest.raises(InvalidRecord, match="needs a key"):
            producer.send("latest", b"v")
        assert read(store, "latest") == []


def test_groups_are_unchanged_by_compaction_of_their_topic(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.create_topic("t", partitions=2)
        for number in range(40):
            append(store, "t", [b"%d" % number], partition=number % 2)
        for group in range(3):
            with store.consumer(["t"], group=f"group {group}", auto_offset_reset="earliest") as consumer:
                while consumer.poll(timeout_ms=0, max_records=1):
                    consumer.commit()
        for partition in range(len(store.describe_topic("__consumer_offsets").partitions)):
            # Its segments have 100 MiB, so the commits are in the active one, which compaction skips.
            with store.writer("__consumer_offsets", partition) as log:
                writer = log._partition
                if log.log_end_offset:
                    with writer.lock:
                        writer.roll()
        before = {group: store.lag(group) for group in store.groups()}
        done = store.compact("__consumer_offsets")
        assert sum(each.removed_records for each in done.values()) > 20
        assert len(before) == 3
        assert {group: store.lag(group) for group in store.groups()} == before
    with open_store(tmp_path / "store") as store:
        assert {group: store.lag(group) for group in store.groups()} == before
