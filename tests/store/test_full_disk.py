"""Deleting a topic while the disk is full: deletion makes room, so it must not need any."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import seeklog
from crash.faulty import FaultyFiles
from faults.small_disks import CannotMount, tmpfs
from log.workbench import QuickFiles, TickingClock
from seeklog import Store, TopicPartition, names
from seeklog.errors import DiskFull
from store.workbench import append, open_store, partition_directories, read, strangers


class SmallDisk(QuickFiles):
    """A directory whose files may take `capacity` bytes, counted in blocks of a page as file systems do."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.capacity = 1 << 40

    def used(self) -> int:
        return sum(-(-entry.stat().st_size // 4096) * 4096 for entry in self._root.rglob("*") if entry.is_file())

    def write(self, handle: int, data: seeklog.files.Buffer, position: int) -> None:
        pages = -(-self.size(handle) // 4096)
        added = max(0, -(-(position + len(data)) // 4096) - pages) * 4096
        if added and self.used() + added > self.capacity:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().write(handle, data, position)


@pytest.fixture
def disk(root: Path) -> SmallDisk:
    return SmallDisk(root)


@pytest.fixture
def store(root: Path, disk: SmallDisk) -> Iterator[Store]:
    with open_store(root, files=disk) as store:
        store.create_topic("orders", partitions=3)
        store.create_topic("payments", partitions=1)
        for partition in range(3):
            append(store, "orders", [bytes(20_000)] * 3, partition=partition)
        append(store, "payments", [b"kept"])
        store.commit_offsets("fraud", {TopicPartition("orders", 0): 2, TopicPartition("payments", 0): 1})
        yield store


@pytest.mark.id("delete-on-a-full-disk")
def test_topic_is_deleted_on_a_full_disk(store: Store, disk: SmallDisk, root: Path) -> None:
    disk.capacity = disk.used()
    with pytest.raises(DiskFull):
        append(store, "payments", [bytes(5000)])

    store.delete_topic("orders")

    assert store.topics() == ["payments"]
    assert [name for name in partition_directories(root) if name.startswith("orders")] == []
    assert list(store.describe_group("fraud").committed) == [TopicPartition("payments", 0)]
    assert disk.used() < disk.capacity - 100_000
    append(store, "payments", [bytes(5000)])
    store.create_topic("orders", partitions=1)
    assert read(store, "orders") == []


def test_topic_with_open_writers_and_rolled_segments_is_deleted_on_a_full_disk(root: Path, disk: SmallDisk) -> None:
    with open_store(root, files=disk, segment_bytes=30_000, index_interval_bytes=0, flush="interval") as store:
        store.create_topic("orders", partitions=2)
        for partition in range(2):
            for _ in range(7):
                append(store, "orders", [bytes(9_000)], partition=partition)
        disk.capacity = disk.used()
        store.delete_topic("orders")
        assert store.topics() == []


def test_topic_is_deleted_beside_a_creation_that_the_full_disk_interrupted(root: Path, disk: SmallDisk) -> None:
    with open_store(root, files=disk) as store:
        store.create_topic("orders", partitions=1)
        append(store, "orders", [bytes(90_000)])
        disk.capacity = disk.used() + 3 * 4096
        with pytest.raises(DiskFull):
            store.create_topic("payments", partitions=50)
        disk.capacity = disk.used()
        store.delete_topic("orders")
        assert store.topics() == []
        store.create_topic("payments", partitions=1)


class Killed(BaseException):
    """Ends a process, as far as its files are concerned."""


@pytest.mark.id("deletion-on-a-full-disk-killed")
@pytest.mark.parametrize("renames", range(3))
def test_deletion_that_a_kill_interrupted_is_finished_by_the_next_open(
    root: Path, disk: SmallDisk, renames: int
) -> None:
    """Goal: a note in the catalog deletes the topic, whatever else of it still exists."""
    store = open_store(root, files=disk)
    store.create_topic("orders", partitions=3)
    for partition in range(3):
        append(store, "orders", [bytes(20_000)], partition=partition)
    store.close()
    renamed: list[str] = []

    class Killing(FaultyFiles):
        def rename(self, source: str, target: str) -> None:
            if len(renamed) == renames:
                raise Killed
            super().rename(source, target)
            renamed.append(target)

    killed = Killing(disk)
    store = open_store(root, files=killed)
    disk.capacity = disk.used()
    renamed.clear()
    with pytest.raises(Killed):
        store.delete_topic("orders")
    assert len(renamed) == renames
    disk.capacity = 1 << 40

    with open_store(root, read_only=True) as reader:
        assert reader.topics() == []
    with open_store(root) as again:
        assert again.topics() == []
        assert partition_directories(root) == []
        assert strangers(root) == []
        again.create_topic("orders", partitions=1)


def test_deletion_without_room_even_then_is_finished_when_repeated(root: Path, disk: SmallDisk) -> None:
    files = FaultyFiles(disk, methods={"write"}, error=errno.ENOSPC, lasting=True)
    with open_store(root, files=files) as store:
        store.create_topic("orders", partitions=2)
        files.fail_at = files.calls + 1
        for _ in range(3):
            with pytest.raises(DiskFull):
                store.delete_topic("orders")
        files.heal()
        store.delete_topic("orders")
        assert store.topics() == []
        assert partition_directories(root) == []


def test_topic_is_deleted_on_a_real_full_disk(tmp_path: Path) -> None:
    where = tmp_path / "disk"
    try:
        with tmpfs(where, size="4m"):
            delete_on(where)
    except CannotMount:
        pytest.skip("may not mount a tmpfs here")


def append_for_ever(store: Store) -> None:
    while True:
        append(store, "orders", [bytes(50_000)], partition=1)


def fill(filler: io.FileIO) -> None:
    while True:
        filler.write(bytes(4096))


def delete_on(where: Path) -> None:
    with seeklog.open(where / "store", background=False, clock=TickingClock()) as store:
        store.create_topic("orders", partitions=3)
        store.create_topic("payments", partitions=1)
        store.commit_offsets("fraud", {TopicPartition("orders", 0): 0})
        with pytest.raises(DiskFull):
            append_for_ever(store)
        # As in a partition that a broker has left.
        (where / "store" / "orders-2" / names.LOCK).unlink(missing_ok=True)
        with (where / "filler").open("wb", buffering=0) as filler, pytest.raises(OSError, match="No space"):
            fill(filler)

        store.delete_topic("orders")

        assert store.topics() == ["payments"]
        assert store.groups() == []
        append(store, "payments", [bytes(50_000)])
