"""Another directory at the path of an open store, such as a backup: the store changes nothing in it."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from log.workbench import FakeClock
from seeklog import Consumer, Producer, Record, Store, TopicPartition
from seeklog.errors import LogFailed, SeeklogError, TopicNotFound
from seeklog.names import LOCK, RECOVERY_POINTS
from seeklog.record.batch import encode_batch
from seeklog.store import transactions_of
from seeklog.topics.transactions import Staged
from store.workbench import Snapshot, append, open_store, read, snapshot

ZERO = TopicPartition("events", 0)
DAY_MS = 24 * 3600 * 1000


@dataclass
class Swapped:
    """A store whose directory was moved away, with its backup in its place."""

    store: Store
    producer: Producer
    consumer: Consumer
    staged: list[Staged]
    clock: FakeClock
    path: Path
    backup: Snapshot

    def check(self) -> None:
        """Check that the backup is what it was."""
        assert snapshot(self.path) == self.backup


def fill(store: Store) -> Staged:
    """Make a store that has something to do in every way: to retain, to compact, to commit, to finish."""
    store.create_topic("events", partitions=2, config={"retention.ms": DAY_MS, "segment.bytes": 500})
    store.create_topic("compacted", partitions=1, config={"cleanup.policy": "compact", "segment.bytes": 500})
    for number in range(30):
        append(store, "events", [b"%d" % number])
        append(store, "compacted", [b"%d" % number], key=b"%d" % (number % 2))
    store.commit_offsets("g", {ZERO: 5})
    store.producer(name="loader").close()
    stager = transactions_of(store).stager("app", TopicPartition("events", 1))
    stager.add(encode_batch([Record(b"staged", timestamp_ms=5)]), record_count=1)
    topic_id = store.describe_topic("events").topic_id
    return Staged("events", topic_id, 1, stager.finish())


@pytest.fixture
def swapped(tmp_path: Path) -> Iterator[Swapped]:
    path, clock = tmp_path / "store", FakeClock()
    store = open_store(path, clock=clock)
    staged = fill(store)
    producer = store.producer(linger_ms=10_000)
    consumer = store.consumer(["events"], group="members", auto_offset_reset="earliest", enable_auto_commit=False)
    consumer.poll()
    for partition in range(2):
        store._table.flush(TopicPartition("events", partition))
    shutil.copytree(path, tmp_path / "backup")
    path.rename(tmp_path / "old")
    (tmp_path / "backup").rename(path)
    clock.advance(10 * DAY_MS)
    yield Swapped(store, producer, consumer, [staged], clock, path, snapshot(path))
    with contextlib.suppress(LogFailed):
        store.close()


def send(swapped: Swapped) -> None:
    sent = swapped.producer.send("events", b"new", partition=0)
    try:
        swapped.producer.flush()
    finally:
        assert sent.exception() is not None


def send_elsewhere(swapped: Swapped) -> None:
    """Open a log that this store has not written yet."""
    append(swapped.store, "events", [b"new"], partition=1)


def borrow(swapped: Swapped) -> None:
    with swapped.store.writer("events", 1) as log:
        log.append(b"new")


def create_topic(swapped: Swapped) -> None:
    swapped.store.create_topic("new")


def alter_topic(swapped: Swapped) -> None:
    swapped.store.alter_topic("events", {"retention.ms": 5})


def add_partitions(swapped: Swapped) -> None:
    swapped.store.add_partitions("events", partitions=5)


def delete_topic(swapped: Swapped) -> None:
    swapped.store.delete_topic("compacted")


def commit_offsets(swapped: Swapped) -> None:
    swapped.store.commit_offsets("g", {ZERO: 7})


def commit_of_a_member(swapped: Swapped) -> None:
    swapped.consumer.commit()


def join_a_group(swapped: Swapped) -> None:
    swapped.store.consumer(["events"], group="others").poll()


def commit_a_transaction(swapped: Swapped) -> None:
    transactions_of(swapped.store).commit("app", 1, swapped.staged)


def stage(swapped: Swapped) -> None:
    transactions_of(swapped.store).stager("app", ZERO).add(
        encode_batch([Record(b"staged", timestamp_ms=5)]), record_count=1
    )


def claim_a_name(swapped: Swapped) -> None:
    swapped.store.producer(name="loader")


def maintain(swapped: Swapped) -> None:
    swapped.store.maintain()


def retain_alone(swapped: Swapped) -> None:
    swapped.store._upkeep.roll_and_retain()


def write_root_offsets(swapped: Swapped) -> None:
    swapped.store._upkeep.write_root_offsets()


def compact(swapped: Swapped) -> None:
    swapped.store.compact("compacted")


CHANGES = [
    send,
    send_elsewhere,
    borrow,
    create_topic,
    alter_topic,
    add_partitions,
    delete_topic,
    commit_offsets,
    commit_of_a_member,
    join_a_group,
    commit_a_transaction,
    stage,
    claim_a_name,
    maintain,
    retain_alone,
    write_root_offsets,
    compact,
]


@pytest.mark.id("swapped-store")
@pytest.mark.parametrize("change", CHANGES)
def test_store_changes_nothing_in_another_directory_at_its_path(
    swapped: Swapped, change: Callable[[Swapped], None]
) -> None:
    with pytest.raises(LogFailed, match=r"was replaced while this process was using it.*; find out who"):
        change(swapped)
    swapped.check()


def test_closing_a_swapped_store_changes_nothing(swapped: Swapped) -> None:
    with pytest.raises(LogFailed):
        swapped.store.close()
    swapped.check()


def test_records_of_a_swapped_store_can_still_be_read(swapped: Swapped) -> None:
    assert read(swapped.store, "events") == [b"%d" % number for number in range(30)]
    swapped.check()


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_appears_where_a_removed_store_was(swapped: Swapped, change: Callable[[Swapped], None]) -> None:
    shutil.rmtree(swapped.path)
    with pytest.raises(SeeklogError):
        change(swapped)
    assert not swapped.path.exists()


def test_store_continues_when_its_directory_is_put_back(swapped: Swapped) -> None:
    with pytest.raises(LogFailed):
        create_topic(swapped)
    swapped.path.rename(swapped.path.with_name("backup"))
    swapped.path.with_name("old").rename(swapped.path)

    create_topic(swapped)
    swapped.store.commit_offsets("g", {ZERO: 7})
    append(swapped.store, "events", [b"new"])
    assert read(swapped.store, "events")[-1] == b"new"


def test_partition_that_was_removed_is_not_written(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_store(tmp_path, clock=clock) as store:
        store.create_topic("events", partitions=2)
        append(store, "events", [b"x"])
        shutil.rmtree(tmp_path / "events-0")
        clock.advance(1000)

        with pytest.raises(LogFailed, match="events-0 was moved or removed"):
            append(store, "events", [b"y"])
        with pytest.raises(SeeklogError, match="there is no log at"):
            append(store, "events", [b"y"])
        append(store, "events", [b"z"], partition=1)
        assert not (tmp_path / "events-0").exists()


def test_root_offsets_leave_out_a_partition_without_its_lock(tmp_path: Path) -> None:
    """Another process may have written it since, and knows better."""
    clock = FakeClock()
    with open_store(tmp_path, clock=clock) as store:
        store.create_topic("events", partitions=1)
        append(store, "events", [b"x"] * 10)
        store.maintain()
        before = (tmp_path / RECOVERY_POINTS).read_bytes()
        with store.writer("events", 0) as log:
            log.truncate_to(4)
        (tmp_path / "events-0" / LOCK).unlink()
        clock.advance(1)
        with pytest.raises(LogFailed):
            append(store, "events", [b"y"])
        store._upkeep.write_root_offsets()
    assert (tmp_path / RECOVERY_POINTS).read_bytes() == before


def test_deleted_topic_is_reported_as_deleted(tmp_path: Path) -> None:
    """Its directories are renamed under their locks, by this process or another."""
    with open_store(tmp_path) as store, open_store(tmp_path) as other:
        store.create_topic("events", partitions=1)
        append(store, "events", [b"x"])
        store.commit_offsets("g", {ZERO: 1})
        store._table.drop("events")
        other.delete_topic("events")
        with pytest.raises(TopicNotFound):
            append(store, "events", [b"y"])
