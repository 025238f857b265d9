"""Topics whose creation fails or is killed, and concurrent changes."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from log.workbench import FailingFiles, QuickFiles, TickingClock
from seeklog import Store, names
from seeklog.clock import SystemClock
from seeklog.errors import DiskFull, LogLocked, NotAccessible, SeeklogError, TopicExists
from seeklog.topics import topics as topics_module
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


# ---------------------------------------------------------------- failing creations


@pytest.mark.parametrize(
    ("error", "raised"), [(OSError(errno.ENOSPC, "full"), DiskFull), (OSError(errno.EIO, "broken"), NotAccessible)]
)
def test_topic_whose_creation_failed_does_not_exist(root: Path, error: OSError, raised: type[SeeklogError]) -> None:
    files = FailingFiles("make_directory", "orders-2", error=error)
    with open_store(root, files=files) as store:
        store.create_topic("payments", partitions=1)
        before = snapshot(root)
        files.fails = True
        with pytest.raises(raised) as caught:
            store.create_topic("orders", partitions=4)
        assert caught.value.__cause__ is error
        assert store.topics() == ["payments"]
        assert snapshot(root) == before

        files.fails = False
        assert len(store.create_topic("orders", partitions=4).partitions) == 4


def test_failed_addition_adds_no_partitions(root: Path) -> None:
    files = FailingFiles("make_directory", "orders-3", error=OSError(errno.ENOSPC, "full"))
    with open_store(root, files=files) as store:
        store.create_topic("orders", partitions=2)
        append(store, "orders", [b"kept"], partition=1)
        before = snapshot(root)
        files.fails = True
        with pytest.raises(DiskFull):
            store.add_partitions("orders", partitions=5)
        assert snapshot(root) == before
        files.fails = False

        assert len(store.add_partitions("orders", partitions=5).partitions) == 5
        assert read(store, "orders", 1) == [b"kept"]


def test_interrupted_creation_can_be_repeated(root: Path) -> None:
    """Ctrl-C in a notebook, or a killed process: the note in the catalog must not wait for a reopen."""
    files = FailingFiles("make_directory", "orders-2", error=KeyboardInterrupt())
    with open_store(root, files=files) as store:
        files.fails = True
        with pytest.raises(KeyboardInterrupt):
            store.create_topic("orders", partitions=4)
        files.fails = False

        assert store.topics() == []
        assert len(store.create_topic("orders", partitions=4).partitions) == 4


def test_interrupted_addition_of_partitions_can_be_repeated(root: Path) -> None:
    files = FailingFiles("make_directory", "orders-2", error=KeyboardInterrupt())
    with open_store(root, files=files) as store:
        store.create_topic("orders", partitions=1)
        files.fails = True
        with pytest.raises(KeyboardInterrupt):
            store.add_partitions("orders", partitions=4)
        files.fails = False

        assert len(store.add_partitions("orders", partitions=4).partitions) == 4


class Killed(BaseException):
    """Ends a process, as far as its files are concerned."""


class UnsyncedCatalog(QuickFiles):
    """A disk that cannot sync the root once the catalog has a complete topic. It writes no other catalog after that."""

    is_on = False
    has_failed = False

    def rename(self, source: str, target: str) -> None:
        if self.has_failed and target.endswith(names.TOPICS):
            raise Killed
        super().rename(source, target)

    def sync_directory(self, path: str) -> None:
        catalog = Path(path, names.TOPICS)
        if self.is_on and not self.has_failed and catalog.exists() and b'"change"' not in catalog.read_bytes():
            self.has_failed = True
            raise OSError(errno.EIO, "broken")
        super().sync_directory(path)


@pytest.mark.id("catalog-sync-fails")
@pytest.mark.parametrize("grows", [False, True])
def test_topic_complete_on_disk_is_not_undone_after_failed_sync(root: Path, grows: bool) -> None:
    """Goal: an undo by the copy in memory would remove directories that the catalog on disk has."""
    files = UnsyncedCatalog()
    with open_store(root) as store:
        store.create_topic("orders" if grows else "payments", partitions=1)
    store = open_store(root, files=files)
    make = store.add_partitions if grows else store.create_topic
    files.is_on = True
    with pytest.raises((NotAccessible, Killed)):
        make("orders", partitions=3)
    assert files.has_failed

    with open_store(root) as store:
        assert len(store.describe_topic("orders").partitions) == 3
        append(store, "orders", [b"a"], partition=2)
        assert read(store, "orders", 2) == [b"a"]


@pytest.mark.parametrize("grows", [False, True])
def test_interrupted_change_is_undone_by_next_open(root: Path, grows: bool) -> None:
    files = FailingFiles("make_directory", "orders-2", error=KeyboardInterrupt())
    with open_store(root, files=files) as store:
        if grows:
            store.create_topic("orders", partitions=1)
        before = partition_directories(root)
        files.fails = True
        with pytest.raises(KeyboardInterrupt):
            store.add_partitions("orders", partitions=4) if grows else store.create_topic("orders", partitions=4)
        assert partition_directories(root) != before
    files.fails = False

    with open_store(root, read_only=True) as store:
        assert store.topics() == (["orders"] if grows else [])
    with open_store(root) as store:
        assert store.topics() == (["orders"] if grows else [])
        assert partition_directories(root) == before
        assert strangers(root) == []
        make = store.add_partitions if grows else store.create_topic
        assert len(make("orders", partitions=4).partitions) == 4


# ---------------------------------------------------------------- concurrent changes


def test_change_waits_for_another_then_names_its_process(store: Store, root: Path) -> None:
    store.close()
    with open_store(root, clock=TickingClock(1.0)) as again, Holder(root / names.TOPICS_LOCK) as holder:
        before = snapshot(root)
        with pytest.raises(LogLocked) as caught:
            again.create_topic("orders")
        assert caught.value.owner_pid == holder.pid
        assert snapshot(root) == before
        assert again.topics() == ["payments"]  # reading needs no lock
        holder.let_go()
        again.create_topic("orders", partitions=1)


def test_concurrent_topic_changes_all_succeed(root: Path) -> None:
    # They wait for each other on the real clock.
    first, second = (open_store(root, clock=SystemClock()) for _ in range(2))
    with first, second, ThreadPoolExecutor(4) as pool:

        def live(number: int) -> None:
            store = (first, second)[number % 2]
            store.create_topic(f"topic{number}", partitions=2)
            store.alter_topic(f"topic{number}", {"retention.ms": number})
            if number % 3 == 0:
                store.delete_topic(f"topic{number}")

        list(pool.map(live, range(18)))

        expected = sorted(f"topic{number}" for number in range(18) if number % 3)
        assert first.topics() == second.topics() == expected
        for name in expected:
            assert second.describe_topic(name).configured == {"retention.ms": int(name[5:])}
        assert strangers(root) == []


def test_of_many_concurrent_creations_one_succeeds(root: Path) -> None:
    # They wait for each other on the real clock.
    first, second = (open_store(root, clock=SystemClock()) for _ in range(2))
    with first, second, ThreadPoolExecutor(4) as pool:

        def make(number: int) -> bool:
            try:
                (first, second)[number % 2].create_topic("one", partitions=1 + number)
            except TopicExists:
                return False
            return True

        made = list(pool.map(make, range(8)))

        assert made.count(True) == 1
        assert len(second.describe_topic("one").partitions) == 1 + made.index(True)
        assert len(partition_directories(root)) == 1 + made.index(True)


def test_creation_interrupted_at_last_write_leaves_no_directory_after_retry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk was full: a partial topic is removed at once, not by the next open."""
    calls = 0
    write = topics_module.write_catalog

    def write_once(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(errno.ENOSPC, "full")
        write(*arguments)

    with open_store(tmp_path) as store:
        monkeypatch.setattr(topics_module, "write_catalog", write_once)
        with pytest.raises(DiskFull):
            store.create_topic("orders", partitions=2)
        store.create_topic("orders", partitions=2)
        assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["orders-0", "orders-1"]
