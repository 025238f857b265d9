"""Topics: creating, describing, altering and deleting them, and bad inputs with their effect on disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from log.workbench import FailingFiles, QuickFiles, fill, open_log
from seeklog import LogConfig, Store, names
from seeklog.errors import InvalidConfig, LogLocked, SeeklogError, TopicExists, TopicNotFound, UsageError
from seeklog.files import Kind
from store.workbench import (
    Holder,
    append,
    open_store,
    partition_directories,
    read,
    snapshot,
    strangers,
)


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    with open_store(root) as store:
        store.create_topic("payments", partitions=2, config={"retention.ms": 1000})
        append(store, "payments", [b"0", b"1"])
        yield store


# ---------------------------------------------------------------- creating


def test_new_topic_has_empty_partitions_and_configuration_of_store(root: Path) -> None:
    with open_store(root, retention_ms=5000) as store:
        made = store.create_topic("orders", partitions=3)

        assert made == store.describe_topic("orders")
        assert (made.name, [each.partition for each in made.partitions]) == ("orders", [0, 1, 2])
        assert all(
            (each.log_start_offset, each.log_end_offset, each.size_bytes) == (0, 0, 0) for each in made.partitions
        )
        assert made.config.retention_ms == 5000
        assert dict(made.configured) == {}


def test_topic_has_one_partition_by_default_as_in_kafka(store: Store) -> None:
    assert len(store.create_topic("orders").partitions) == 1


def test_topic_has_layout_of_broker_on_disk(store: Store, root: Path) -> None:
    topic_id = store.create_topic("orders", partitions=2).topic_id

    for number in range(2):
        directory = root / f"orders-{number}"
        assert (directory / "partition.metadata").read_text() == f"version: 0\ntopic_id: {topic_id}"
        assert (directory / f"{0:020d}.log").read_bytes() == b""
        assert directory.stat().st_mode & 0o777 == 0o750 & ~_umask()
    assert strangers(root) == []


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_recreated_topic_has_new_id(store: Store) -> None:
    first = store.describe_topic("payments").topic_id
    store.delete_topic("payments")

    assert store.create_topic("payments").topic_id != first


def test_settings_accept_dots_underscores_and_numbers_as_text(store: Store) -> None:
    config = {"retention_ms": "60000", "segment.bytes": 1000, "cleanup.policy": "compact", "flush.interval.ms": "5"}
    made = store.create_topic("orders", config=config)

    assert (made.config.retention_ms, made.config.segment_bytes) == (60_000, 1000)
    assert dict(made.configured) == {
        "retention.ms": 60_000,
        "segment.bytes": 1000,
        "cleanup.policy": "compact",
        "flush.interval.ms": 5,
    }


def test_created_topics_exist_after_reopen(store: Store, root: Path) -> None:
    before = store.create_topic("orders", partitions=3, config={"segment.bytes": 1000})
    store.close()

    with open_store(root) as again:
        assert again.describe_topic("orders") == before
        assert again.topics() == ["orders", "payments"]


def test_existing_topic_is_not_created_again(store: Store, root: Path) -> None:
    before = snapshot(root)

    with pytest.raises(TopicExists, match="'payments' exists"):
        store.create_topic("payments", partitions=9)

    assert snapshot(root) == before


def test_topic_created_by_another_process_is_not_created_again(store: Store, root: Path) -> None:
    with open_store(root) as other:
        other.create_topic("orders", partitions=1)
        append(other, "orders", [b"theirs"])

        with pytest.raises(TopicExists):
            store.create_topic("orders")
        assert read(store, "orders") == [b"theirs"]


def test_topic_is_not_created_over_uncataloged_directory(store: Store, root: Path) -> None:
    """It may hold records: of a broker that ran in between, or a copy that a user put there."""
    (root / "orders-1").mkdir()
    (root / "orders-1" / "mine").write_text("keep")
    before = snapshot(root)

    with pytest.raises(TopicExists, match="orders-1 exists"):
        store.create_topic("orders", partitions=2)

    assert snapshot(root) == before


COUNTS: list[Any] = [0, -1, -(2**63), 10_001, 2**31, 2**100, True, False, None, "4", b"4", 4.0, 1.5, [4], float("nan")]


@pytest.mark.parametrize("partitions", COUNTS, ids=repr)
def test_invalid_partition_count_is_refused(store: Store, root: Path, partitions: Any) -> None:
    before = snapshot(root)

    with pytest.raises(UsageError, match="partitions must be a whole number from 1 to 10,000"):
        store.create_topic("orders", partitions=partitions)
    with pytest.raises(UsageError, match="partitions must be a whole number from 1 to 10,000"):
        store.add_partitions("payments", partitions=partitions)

    assert snapshot(root) == before


BAD_WORDS: list[tuple[dict[str, Any], str]] = [
    ({"retention.m": 5}, r"'retention\.m'; did you mean retention\.ms\?"),
    ({"retention_m": 5}, "did you mean retention_ms"),
    ({"retenton.bytes": 5}, r"did you mean retention\.bytes\?"),
    ({"segment.byte": 5}, r"did you mean segment\.bytes\?"),
    ({"max.mesage.bytes": 5}, r"did you mean max\.message\.bytes\?"),
    ({"Retention.Ms": 5}, "unknown setting"),
    ({"": 5}, "unknown setting ''"),
    ({"quite another": 5}, "known settings"),
    ({5: 5}, "unknown setting 5"),
    # These are for a process or a single log, not for a topic.
    ({"initial.offset": 5}, "unknown setting"),
    ({"high.watermark": "manual"}, "unknown setting"),
    ({"max.open.segments": 5}, "unknown setting"),
    ({"retention.ms": "soon"}, r"retention\.ms must be a whole number, not 'soon'"),
    ({"retention.ms": ""}, "whole number"),
    ({"retention.ms": "1.5"}, "whole number"),
    ({"retention.ms": 1.5}, "must be an int, not float"),
    ({"retention.ms": True}, "must be an int, not bool"),
    ({"retention.ms": [5]}, "must be an int, not list"),
    ({"retention.ms": -2}, "between -1 and"),
    ({"retention.ms": str(2**63)}, "between -1 and"),
    ({"segment.bytes": 60}, "between 61 and"),
    ({"segment.bytes": 2**31}, "between 61 and"),
    ({"max.message.bytes": "0"}, "between 62 and"),
    ({"cleanup.policy": "shred"}, "cleanup_policy must be one of delete, compact"),
    ({"cleanup.policy": 5}, "cleanup_policy must be one of"),
    ({"compression.type": "GZIP"}, "compression_type must be one of"),
    ({"flush": "never"}, "flush must be one of os, interval, batch"),
    ({"retention.ms": 5, "segment.bytes": 1}, "segment_bytes must be between"),
]


@pytest.mark.parametrize(("config", "message"), BAD_WORDS, ids=lambda value: str(value)[:40])
def test_invalid_setting_is_refused_by_name(store: Store, root: Path, config: dict[str, Any], message: str) -> None:
    before = snapshot(root)

    with pytest.raises(InvalidConfig, match=message):
        store.create_topic("orders", config=config)
    with pytest.raises(InvalidConfig, match=message):
        store.alter_topic("payments", config)

    assert snapshot(root) == before
    assert dict(store.describe_topic("payments").configured) == {"retention.ms": 1000}


def test_unknown_setting_is_refused_even_for_reset(store: Store, root: Path) -> None:
    before = snapshot(root)

    with pytest.raises(InvalidConfig, match=r"did you mean retention\.ms\?"):
        store.alter_topic("payments", {"retention.mss": None})

    assert snapshot(root) == before


# ---------------------------------------------------------------- queries


def test_error_names_nearest_topic(store: Store) -> None:
    for call in (store.describe_topic, store.delete_topic, lambda name: store.alter_topic(name, {})):
        with pytest.raises(TopicNotFound, match="did you mean 'payments'"):
            call("paymens")


def test_error_lists_topics_without_near_name(store: Store) -> None:
    with pytest.raises(TopicNotFound, match="it has payments"):
        store.describe_topic("zzz")


def test_error_lists_only_some_of_many_topics(root: Path) -> None:
    with open_store(root) as store:
        for number in range(10):
            store.create_topic(f"topic{number}", partitions=1)

        with pytest.raises(TopicNotFound, match=r"it has topic0, .*topic7, \.\.\.$"):
            store.describe_topic("zzz")


def test_error_of_empty_store_says_it_has_no_topics(root: Path) -> None:
    with open_store(root) as store, pytest.raises(TopicNotFound, match="it has none yet"):
        store.log("payments", 0)


@pytest.mark.parametrize("partition", [-1, 2, 2**31])
def test_missing_partition_is_refused_with_list_of_existing_ones(store: Store, partition: int) -> None:
    with pytest.raises(TopicNotFound, match=r"only 0, 1$"):
        store.log("payments", partition)


def test_error_lists_only_some_of_many_partitions(store: Store) -> None:
    store.add_partitions("payments", partitions=20)

    with pytest.raises(TopicNotFound, match=r"only 0, .*, 11, \.\.\.$"):
        store.log("payments", 20)


def test_topics_are_sorted_and_internal_ones_listed_on_request(store: Store) -> None:
    for name in ("zoo", "__secret", "Alpha", "alpha"):
        store.create_topic(name, partitions=1)
    with store.consumer(group="group") as consumer:
        consumer.commit({("payments", 0): 0})

    assert store.topics() == ["Alpha", "__secret", "alpha", "payments", "zoo"]
    assert store.topics(internal=True) == ["Alpha", "__consumer_offsets", "__secret", "alpha", "payments", "zoo"]


def test_description_has_sizes_and_offsets(store: Store) -> None:
    append(store, "payments", [b"x"] * 3, partition=1)
    with store.writer("payments", 1) as log:
        log.delete_before(2)
    found = store.describe_topic("payments")

    assert [(each.log_start_offset, each.high_watermark, each.log_end_offset) for each in found.partitions] == [
        (0, 2, 2),
        (2, 3, 3),
    ]
    assert found.record_count == 3
    assert found.size_bytes == sum(each.size_bytes for each in found.partitions) > 0
    assert [each.segment_count for each in found.partitions] == [1, 1]


# ---------------------------------------------------------------- changing


def test_settings_are_changed_and_reset(store: Store) -> None:
    altered = store.alter_topic("payments", {"segment.bytes": 500, "retention_ms": 7})
    assert (altered.config.segment_bytes, altered.config.retention_ms) == (500, 7)
    assert dict(altered.configured) == {"retention.ms": 7, "segment.bytes": 500}

    altered = store.alter_topic("payments", {"retention.ms": None, "segment_bytes": None, "flush": None})
    assert dict(altered.configured) == {}
    assert altered.config.segment_bytes == LogConfig().segment_bytes


def test_alter_without_settings_changes_nothing(store: Store) -> None:
    before = store.describe_topic("payments")

    assert store.alter_topic("payments", {}) == before


def test_partitions_are_added_after_existing_ones(store: Store) -> None:
    grown = store.add_partitions("payments", partitions=5)

    assert [each.partition for each in grown.partitions] == [0, 1, 2, 3, 4]
    assert read(store, "payments") == [b"0", b"1"]
    append(store, "payments", [b"new"], partition=4)
    assert read(store, "payments", 4) == [b"new"]


@pytest.mark.parametrize("partitions", [1, 2])
def test_topic_never_gets_fewer_partitions(store: Store, root: Path, partitions: int) -> None:
    before = snapshot(root)

    with pytest.raises(UsageError, match="can only be added"):
        store.add_partitions("payments", partitions=partitions)

    assert snapshot(root) == before


def test_partitions_are_not_added_over_existing_directories(store: Store, root: Path) -> None:
    """A broker may have added the partition in between; this call must neither adopt nor remove its records."""
    with open_log(root / "payments-2") as log:
        fill(log, 5)
    before = snapshot(root)

    with pytest.raises(SeeklogError):
        store.add_partitions("payments", partitions=3)

    assert snapshot(root) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.alter_topic("orders", {}),
        lambda store: store.add_partitions("orders", partitions=4),
        lambda store: store.delete_topic("orders"),
    ],
)
def test_missing_topic_is_not_changed(store: Store, root: Path, change: Callable[[Store], object]) -> None:
    before = snapshot(root)

    with pytest.raises(TopicNotFound):
        change(store)

    assert snapshot(root) == before


# ---------------------------------------------------------------- deleting


def test_deleted_topic_leaves_no_files(store: Store, root: Path) -> None:
    store.create_topic("orders", partitions=1)
    store.delete_topic("payments")

    assert store.topics() == ["orders"]
    assert partition_directories(root) == ["orders-0"]
    for call in (store.describe_topic, store.delete_topic, lambda name: store.log(name, 0)):
        with pytest.raises(TopicNotFound):
            call("payments")


def test_recreated_topic_is_empty(store: Store) -> None:
    store.delete_topic("payments")
    store.create_topic("payments", partitions=2)

    assert read(store, "payments") == []
    append(store, "payments", [b"new"])
    assert read(store, "payments") == [b"new"]


def test_topic_written_by_another_process_is_not_deleted(root: Path) -> None:
    with open_store(root) as store:
        store.create_topic("payments", partitions=3)
        append(store, "payments", [b"kept"])
        store.close()
        with open_store(root) as again, Holder(root / "payments-2" / names.LOCK) as holder:
            before = snapshot(root, locks=False)
            with pytest.raises(LogLocked) as caught:
                again.delete_topic("payments")
            assert caught.value.owner_pid == holder.pid
            assert snapshot(root, locks=False) == before
            assert read(again, "payments") == [b"kept"]


@pytest.mark.parametrize("by", ["the next change", "the next open"])
def test_interrupted_deletion_is_finished(root: Path, by: str) -> None:
    files = FailingFiles("rename", "/payments-1.", error=KeyboardInterrupt())
    store = open_store(root, files=files)
    store.create_topic("payments", partitions=3)
    store.create_topic("orders", partitions=1)
    files.fails = True
    with pytest.raises(KeyboardInterrupt):
        store.delete_topic("payments")
    files.fails = False
    # It is deleted for every process, though its directories still exist.
    assert store.topics() == ["orders"]
    with open_store(root, read_only=True) as reader:
        assert reader.topics() == ["orders"]
    with pytest.raises(TopicNotFound):
        append(store, "payments", [b"x"])
    if by == "the next open":
        store.close()
        store = open_store(root)
        assert partition_directories(root) == ["orders-0"]

    store.create_topic("payments", partitions=1)

    assert partition_directories(root) == ["orders-0", "payments-0"]
    assert strangers(root) == []
    append(store, "payments", [b"new"])
    assert read(store, "payments") == [b"new"]
    store.close()


def test_undeletable_directories_are_left_for_next_open(root: Path) -> None:
    files = FailingFiles("remove_directory", error=errno.EBUSY)
    files.fails = True
    with open_store(root, files=files) as store:
        store.create_topic("payments", partitions=1)
        store.delete_topic("payments")
        assert store.topics() == []
        (left,) = partition_directories(root)
        assert names.is_deleted_directory(left)
        files.fails = False
    with open_store(root):
        assert partition_directories(root) == []


# ---------------------------------------------------------------- read-only


def test_read_only_store_changes_nothing(store: Store, root: Path) -> None:
    store.close()
    before = snapshot(root)
    with open_store(root, read_only=True) as reader:
        assert reader.read_only
        assert reader.topics() == ["payments"]
        assert read(reader, "payments") == [b"0", b"1"]
        for call in (
            lambda: reader.create_topic("orders"),
            lambda: reader.alter_topic("payments", {"retention.ms": 5}),
            lambda: reader.add_partitions("payments", partitions=9),
            lambda: reader.delete_topic("payments"),
            lambda: reader.maintain(),
            lambda: reader.producer(),
            lambda: reader.consumer(["payments"], group="g"),
            lambda: append(reader, "payments", [b"x"]),
        ):
            with pytest.raises(UsageError, match="read-only"):
                call()
    assert snapshot(root) == before


def test_read_only_store_sees_changes_of_writer(store: Store, root: Path) -> None:
    with open_store(root, read_only=True) as reader:
        append(store, "payments", [b"2"])
        assert read(reader, "payments") == [b"0", b"1", b"2"]
        store.create_topic("orders", partitions=1)
        assert reader.topics() == ["orders", "payments"]
        store.add_partitions("payments", partitions=3)
        append(store, "payments", [b"new"], partition=2)
        assert read(reader, "payments", 2) == [b"new"]
        store.delete_topic("orders")
        assert reader.topics() == ["payments"]


def test_topic_created_during_read_only_open_is_not_taken_for_a_brokers(store: Store, root: Path) -> None:
    class Meanwhile(QuickFiles):
        """A disk on which another process creates a topic between reads of the catalog and the root."""

        def kinds(self, path: str) -> dict[str, Kind]:
            if not (root / "orders-0").exists():
                store.create_topic("orders", partitions=4, config={"retention.ms": 5})
            return super().kinds(path)

    with open_store(root, files=Meanwhile(), read_only=True) as reader:
        assert reader.topics() == ["orders", "payments"]
        assert reader.describe_topic("orders").configured == {"retention.ms": 5}
