"""Topics whose creation fails or is killed, and concurrent changes."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fuzz.mutation import seal_frame
from log.workbench import FailingFiles, TickingClock, open_log
from seeklog import Store, names
from seeklog.clock import SystemClock
from seeklog.errors import DiskFull, LogLocked, LostRecords, NotAccessible, NotALog, SeeklogError, TopicExists
from seeklog.topics.catalog import Topic, put
from store.workbench import (
    Holder,
    Snapshot,
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


def without_catalog(found: Snapshot) -> Snapshot:
    """Leave out the catalog, to which a change and its undoing are appended."""
    return {name: data for name, data in found.items() if name != names.TOPICS}


# ---------------------------------------------------------------- failing creations


@pytest.mark.parametrize(
    ("error", "raised"), [(OSError(errno.ENOSPC, "full"), DiskFull), (OSError(errno.EIO, "broken"), NotAccessible)]
)
def test_topic_whose_creation_failed_does_not_exist(root: Path, error: OSError, raised: type[SeeklogError]) -> None:
    files = FailingFiles("make_directory", "orders-2", error=error)
    with open_store(root, files=files) as store:
        store.create_topic("payments", partitions=1)
        before = without_catalog(snapshot(root))
        files.fails = True
        with pytest.raises(raised) as caught:
            store.create_topic("orders", partitions=4)
        assert caught.value.__cause__ is error
        assert store.topics() == ["payments"]
        assert without_catalog(snapshot(root)) == before
        with open_store(root, read_only=True) as reader:
            assert reader.topics() == ["payments"]

        files.fails = False
        assert len(store.create_topic("orders", partitions=4).partitions) == 4


def test_failed_addition_adds_no_partitions(root: Path) -> None:
    files = FailingFiles("make_directory", "orders-3", error=OSError(errno.ENOSPC, "full"))
    with open_store(root, files=files) as store:
        store.create_topic("orders", partitions=2)
        append(store, "orders", [b"kept"], partition=1)
        before = without_catalog(snapshot(root))
        files.fails = True
        with pytest.raises(DiskFull):
            store.add_partitions("orders", partitions=5)
        assert without_catalog(snapshot(root)) == before
        with open_store(root, read_only=True) as reader:
            assert len(reader.describe_topic("orders").partitions) == 2
        files.fails = False

        assert len(store.add_partitions("orders", partitions=5).partitions) == 5
        assert read(store, "orders", 1) == [b"kept"]


def test_failed_creation_keeps_records_that_were_appended_meanwhile(root: Path) -> None:
    """The topic exists for other processes from its entry on, and they may be quick."""

    class Meanwhile(FailingFiles):
        def make_directory(self, path: str) -> None:
            if self.fails and path.endswith("orders-2"):
                append(other, "orders", [b"kept"])
                other.close()
            super().make_directory(path)

    files = Meanwhile("make_directory", "orders-2", error=errno.ENOSPC)
    with open_store(root, files=files) as store, open_store(root) as other:
        files.fails = True
        with pytest.raises(DiskFull):
            store.create_topic("orders", partitions=4)
        files.fails = False

        assert read(store, "orders") == [b"kept"]
        assert [read(store, "orders", number) for number in (1, 2, 3)] == [[], [], []]


def test_interrupted_creation_can_be_repeated(root: Path) -> None:
    """Ctrl-C in a notebook: the creation is undone at once."""
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


@pytest.mark.id("catalog-sync-fails")
@pytest.mark.parametrize("fails_lastingly", [False, True])
@pytest.mark.parametrize("grows", [False, True])
def test_change_whose_sync_failed_is_written_again(root: Path, grows: bool, fails_lastingly: bool) -> None:
    """Goal: nothing builds on a change that a power loss may undo. A repeated sync would prove nothing."""
    files = Disks()
    with open_store(root, files=files) as store:
        store.create_topic("orders" if grows else "payments", partitions=1)
        make = store.add_partitions if grows else store.create_topic
        files.failures = 9 if fails_lastingly else 1
        with pytest.raises(NotAccessible):
            make("orders", partitions=3)
        files.failures = 0
        files.replaced.clear()

        if store.topics() == ["payments"] or (grows and len(store.describe_topic("orders").partitions) == 1):
            make("orders", partitions=3)
        else:
            store.alter_topic("orders", {"retention.ms": 5})
        # Replaced when the sync failed, or by the next change.
        assert files.replaced == ([names.TOPICS] if fails_lastingly else [])
        assert len(store.describe_topic("orders").partitions) == 3
        append(store, "orders", [b"a"], partition=2)

    with open_store(root) as store:
        assert read(store, "orders", 2) == [b"a"]


class Disks(FailingFiles):
    """A disk on which the next `failures` syncs fail. It lists the files that were replaced."""

    def __init__(self) -> None:
        super().__init__("sync")
        self.failures = 0
        self.replaced: list[str] = []

    def sync(self, handle: int) -> None:
        self.fails = self.failures > 0
        self.failures -= 1
        super().sync(handle)

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        self.replaced.append(os.path.basename(target))


@pytest.mark.parametrize("grows", [False, True])
def test_change_that_release_0_1_did_not_finish_is_undone(root: Path, grows: bool) -> None:
    """It noted the change in the catalog, and then created the directories."""
    with open_store(root) as store:
        made = store.create_topic("orders", partitions=1)
        append(store, "orders", [b"kept"])
    shutil.copytree(root / "orders-0", root / "orders-1")
    if not grows:
        (root / "orders-0").rename(root / "orders-2")
    noted = Topic(
        name="orders",
        topic_id=made.topic_id,
        partitions=(0,) if grows else (),
        change="grow" if grows else "create",
        partitions_changing=(1, 2),
    )
    body = b"seeklog-topics 1\n" + json.dumps(put(noted)).encode() + b"\n"
    (root / names.TOPICS).write_bytes(seal_frame(body))

    with open_store(root, read_only=True) as store:
        assert store.topics() == (["orders"] if grows else [])
    with open_store(root) as store:
        assert store.topics() == (["orders"] if grows else [])
        assert partition_directories(root) == (["orders-0"] if grows else [])
        assert strangers(root) == []
        make = store.add_partitions if grows else store.create_topic
        assert len(make("orders", partitions=4).partitions) == 4
        assert read(store, "orders") == ([b"kept"] if grows else [])


def test_creation_that_failed_at_catalog_leaves_no_directory(root: Path) -> None:
    files = FailingFiles("write", names.TOPICS, error=errno.ENOSPC)
    with open_store(root, files=files) as store:
        files.fails = True
        with pytest.raises(DiskFull):
            store.create_topic("orders", partitions=2)
        assert partition_directories(root) == []
        files.fails = False

        store.create_topic("orders", partitions=2)
        assert partition_directories(root) == ["orders-0", "orders-1"]


# ---------------------------------------------------------------- partitions that no writer has opened


@pytest.mark.parametrize("left", [[], [names.PARTITION_METADATA], [f"{0:020d}.log"], None], ids=str)
def test_new_topic_is_empty_whatever_a_power_loss_took_from_it(root: Path, left: list[str] | None) -> None:
    with open_store(root) as store:
        made = store.create_topic("orders", partitions=2)
    for path in (root / "orders-1").iterdir():
        if path.name not in (left or ()):
            path.unlink()
    if left is None:
        (root / "orders-1").rmdir()
    before = snapshot(root)

    with open_store(root, read_only=True) as reader:
        assert reader.describe_topic("orders") == made
        assert read(reader, "orders", 1) == []
        assert snapshot(root) == before
        with open_store(root) as store:
            assert store.describe_topic("orders") == made
            append(store, "orders", [b"a"], partition=1)
            assert read(reader, "orders", 1) == read(store, "orders", 1) == [b"a"]
    assert (root / "orders-1" / names.PARTITION_METADATA).read_text() == f"version: 0\ntopic_id: {made.topic_id}"


@pytest.mark.parametrize("is_closed", [False, True])
def test_files_missing_from_an_opened_partition_are_reported(root: Path, is_closed: bool) -> None:
    """Goal: only the files of a partition that never had a record are created again."""
    with open_store(root) as store:
        store.create_topic("orders", partitions=1)
        append(store, "orders", [b"a"])
        if not is_closed:
            store.maintain()
            shutil.copytree(root, root.parent / "copy")  # as a killed process leaves it
    if not is_closed:
        root = root.parent / "copy"
    for path in (root / "orders-0").iterdir():
        path.unlink()

    for read_only in (False, True):
        with open_store(root, read_only=read_only) as store, pytest.raises((NotALog, LostRecords)):
            read(store, "orders")


def test_new_topic_does_not_inherit_offsets_of_a_deleted_one(root: Path) -> None:
    with open_store(root) as store:
        store.create_topic("orders", partitions=1)
        append(store, "orders", [b"a"] * 7)
    with open_store(root) as store:
        store.delete_topic("orders")
        store.create_topic("orders", partitions=1)
        assert read(store, "orders") == []
    with open_log(root / "orders-0") as log:
        assert log.log_start_offset == log.log_end_offset == 0


def test_maintenance_opens_no_partition_without_records(root: Path) -> None:
    with open_store(root) as store:
        store.create_topic("orders", partitions=2)
        append(store, "orders", [b"a"])
        store.maintain()

        assert (root / "orders-0" / names.CHECKPOINT).exists()
        assert not (root / "orders-1" / names.CHECKPOINT).exists()


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
