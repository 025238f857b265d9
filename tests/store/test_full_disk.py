"""Deleting a topic while the disk is full: deletion makes room, so it must not need any."""

from __future__ import annotations

import errno
import io
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import seeklog
from crash.faulty import FaultyFiles
from faults.small_disks import CannotMount, tmpfs
from fuzz.mutation import seal_frame
from log.workbench import QuickFiles, TickingClock
from seeklog import Store, TopicPartition, names
from seeklog.errors import DiskFull, NotAccessible
from seeklog.topics.catalog import decode_catalog, put
from store.workbench import append, open_store, partition_directories, read, strangers

ENDLESS = 1 << 40


class SmallDisk(QuickFiles):
    """A directory whose files may take `capacity` bytes, counted in blocks of a page as file systems do."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.capacity = ENDLESS

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
    disk.capacity = ENDLESS

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


def alter_for_ever(store: Store) -> None:
    while True:
        store.alter_topic("orders", {"retention.ms": 5})


def test_topic_is_deleted_after_a_change_that_found_no_room(root: Path, disk: SmallDisk) -> None:
    """Goal: a snapshot that could not be written leaves the file to which a deletion is appended."""
    with open_store(root, files=disk) as store:
        store.create_topic("orders", partitions=1)
        append(store, "orders", [bytes(90_000)])
        disk.capacity = disk.used()
        with pytest.raises(DiskFull):
            alter_for_ever(store)
        store.delete_topic("orders")
        assert store.topics() == []


# ---------------------------------------------------------------- with a catalog of release 0.1


def make_catalog_old(root: Path) -> bytes:
    """Rewrite the catalog as release 0.1 wrote it, in format 1. Return its bytes."""
    catalog = decode_catalog((root / names.TOPICS).read_bytes(), path="p")
    lines = [json.dumps(put(replace(topic, unopened=()))) for _, topic in sorted(catalog.items())]
    old = seal_frame(b"seeklog-topics 1\n" + "".join(f"{line}\n" for line in lines).encode())
    (root / names.TOPICS).write_bytes(old)
    return old


@pytest.fixture
def old_root(root: Path, disk: SmallDisk) -> Path:
    """A store of release 0.1 on a disk that is full once it is opened."""
    with open_store(root, files=disk) as store:
        store.create_topic("orders", partitions=2)
        store.create_topic("orders-2", partitions=1)
        for partition in range(2):
            append(store, "orders", [bytes(20_000)], partition=partition)
        append(store, "orders-2", [b"kept"])
        store.commit_offsets("fraud", {TopicPartition("orders", 0): 1})
    make_catalog_old(root)
    return root


def test_topic_of_release_0_1_is_deleted_on_a_full_disk(old_root: Path, disk: SmallDisk) -> None:
    with open_store(old_root, files=disk) as store, open_store(old_root, read_only=True) as reader:
        assert reader.topics() == store.topics() == ["orders", "orders-2"]
        disk.capacity = disk.used()
        with pytest.raises(DiskFull):
            store.alter_topic("orders", {"retention.ms": 5})

        store.delete_topic("orders")

        assert reader.topics() == store.topics() == ["orders-2"]
        assert [name for name in partition_directories(old_root) if name.startswith("orders-")] == ["orders-2-0"]
        assert store.groups() == []
        assert read(store, "orders-2") == [b"kept"]
        store.create_topic("orders", partitions=1)
    assert (old_root / names.TOPICS).read_bytes().startswith(b"seeklog-topics 2 ")


@pytest.mark.parametrize("read_only", [False, True])
def test_deletion_noted_in_an_old_catalog_is_seen_by_other_stores(
    old_root: Path, disk: SmallDisk, read_only: bool
) -> None:
    """Goal: the note changes neither the size nor the inode of the file."""
    seen: list[list[str]] = []

    class Looking(FaultyFiles):
        def rename(self, source: str, target: str) -> None:
            if "orders-" in source and not seen:
                seen.append(other.topics())
            super().rename(source, target)

    with open_store(old_root, files=Looking(disk)) as store, open_store(old_root, read_only=read_only) as other:
        assert other.topics() == ["orders", "orders-2"]
        disk.capacity = disk.used()
        store.delete_topic("orders")
        assert seen == [["orders-2"]]


@pytest.mark.parametrize("steps", range(12))
def test_deletion_from_an_old_catalog_that_a_kill_interrupted_is_finished_by_the_next_open(
    old_root: Path, disk: SmallDisk, steps: int
) -> None:
    """Goal: from the note on, the topic does not exist for anyone."""
    done: list[str] = []

    class Killing(FaultyFiles):
        def _check(self, method: str, path: str) -> None:
            if disk.capacity < ENDLESS and method in ("rename", "remove", "remove_directory"):
                if len(done) == steps:
                    raise Killed
                done.append(method)
            super()._check(method, path)

    store = open_store(old_root, files=Killing(disk))
    disk.capacity = disk.used()
    with pytest.raises(Killed):
        store.delete_topic("orders")
    disk.capacity = ENDLESS

    with open_store(old_root, read_only=True) as reader:
        assert reader.topics() == ["orders-2"]
    with open_store(old_root) as again:
        assert again.topics() == ["orders-2"]
        assert [name for name in partition_directories(old_root) if name.startswith("orders")] == ["orders-2-0"]
        assert strangers(old_root) == []
        assert read(again, "orders-2") == [b"kept"]


def test_deletion_whose_note_in_an_old_catalog_was_not_synced_deletes_nothing(old_root: Path, disk: SmallDisk) -> None:
    before = (old_root / names.TOPICS).read_bytes()
    files = FaultyFiles(disk, only=names.TOPICS)
    with open_store(old_root, files=files) as store:
        disk.capacity = disk.used()
        files.fail_at = files.calls + 1
        with pytest.raises(NotAccessible):
            store.delete_topic("orders")
        assert files.failures == 1
        assert (old_root / names.TOPICS).read_bytes() == before
        assert store.topics() == ["orders", "orders-2"]
        assert read(store, "orders") == [bytes(20_000)]
        store.delete_topic("orders")
        assert store.topics() == ["orders-2"]


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
