"""Stores whose copy of the catalog is older than the disk, or that read it while another process appends to it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from log.workbench import QuickFiles
from seeklog import LogConfig, Store, TopicPartition, names
from seeklog.errors import CorruptionError, NotALog, TopicNotFound
from seeklog.topics.scope import find_partitions
from store.workbench import append, open_store, partition_directories, read

USES: list[Callable[[Store], object]] = [
    lambda store: store.log("orders", 0).high_watermark,
    lambda store: append(store, "orders", [b"late"]),
    lambda store: store.writer("orders", 0).__enter__(),
]


@pytest.mark.parametrize("use", USES, ids=["read", "send", "borrow"])
def test_use_of_a_deleted_topic_creates_no_directory(tmp_path: Path, use: Callable[[Store], object]) -> None:
    root = tmp_path / "store"
    with open_store(root) as store, open_store(root) as stale:
        store.create_topic("orders", partitions=1)
        assert stale.topics() == ["orders"]
        store.delete_topic("orders")

        with pytest.raises(TopicNotFound):
            use(stale)

        assert [name for name in partition_directories(root) if name.startswith("orders")] == []
        store.create_topic("orders", partitions=1)
        assert read(stale, "orders") == []


def test_recreated_topic_is_usable_at_once(tmp_path: Path) -> None:
    """Goal: what Kafka's checkpoints said of the deleted topic a moment ago does not count for the new one."""
    root = tmp_path / "store"
    with open_store(root) as store:
        store.create_topic("orders", partitions=1)
        append(store, "orders", [b"old"] * 5)
    with open_store(root) as store:
        store.delete_topic("orders")
        store.create_topic("orders", partitions=1)
        assert store.describe_topic("orders").partitions[0].high_watermark == 0
        append(store, "orders", [b"new"])
        assert read(store, "orders") == [b"new"]


class TornReads(QuickFiles):
    """A disk that once returns a change of the catalog that was appended later, without the one before it."""

    def __init__(self) -> None:
        self.is_torn = False

    def read(self, handle: int, size: int, position: int) -> bytes:
        data = super().read(handle, size, position)
        if self.is_torn and b'"topic":"payments"' in data and b'"topic":"refunds"' in data:
            self.is_torn = False
            return data.replace(b'"topic":"payments"', bytes(18))
        return data


def test_catalog_that_is_read_while_it_is_changed_is_read_again(tmp_path: Path) -> None:
    root, files = tmp_path / "store", TornReads()
    with open_store(root) as store, open_store(root, read_only=True, files=files) as reader:
        store.create_topic("payments", partitions=1)
        store.create_topic("refunds", partitions=1)
        files.is_torn = True
        assert reader.topics() == ["payments", "refunds"]
        assert not files.is_torn


def test_catalog_that_stays_damaged_is_an_error(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root) as store:
        store.create_topic("payments", partitions=1)
        store.create_topic("refunds", partitions=1)
    path = root / names.TOPICS
    path.write_bytes(path.read_bytes().replace(b'"topic":"payments"', b'"topic":"paYments"'))
    with pytest.raises(CorruptionError):
        open_store(root, read_only=True)


def test_opened_partition_of_a_recreated_topic_is_noted(tmp_path: Path) -> None:
    """Goal: a process with an old catalog notes the partition under the id of the topic that it has opened."""
    root = tmp_path / "store"
    with open_store(root) as store, open_store(root) as stale:
        store.create_topic("orders", partitions=1)
        assert read(stale, "orders") == []
        store.delete_topic("orders")
        store.create_topic("orders", partitions=1)
        append(stale, "orders", [b"a"])
    with open_store(root) as store:
        assert not store._topics.is_unopened(TopicPartition("orders", 0))
        assert read(store, "orders") == [b"a"]


def test_partition_without_a_directory_yet_is_archived_and_verified_as_empty(tmp_path: Path) -> None:
    """Goal: a kill right after the catalog's entry of a new topic stops neither backups nor checks of the others."""
    root = tmp_path / "store"
    with open_store(root) as store:
        store.create_topic("orders", partitions=1)
        append(store, "orders", [b"a"])
        store.create_topic("new", partitions=2)
    shutil.rmtree(root / "new-0")

    with open_store(root, read_only=True) as store:
        assert store.archive(tmp_path / "backup", include_active=True).copied_segments == 1
    scope = find_partitions(root, topics=None, config=LogConfig(), files=QuickFiles())
    assert [Path(partition.directory).name for partition in scope.partitions] == ["new-1", "orders-0"]

    shutil.rmtree(root / "orders-0")
    with open_store(root, read_only=True) as store, pytest.raises(NotALog):
        store.archive(tmp_path / "backup", include_active=True)
