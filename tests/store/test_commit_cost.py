"""The cost of a group's commit: calls, system calls, and bytes on disk."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from log.workbench import CountingFiles
from seeklog import Consumer, Store, TopicPartition
from seeklog.errors import OffsetOutOfRange
from seeklog.groups.groups import ROLL_RECORDS
from seeklog.log import take_snapshot
from seeklog.names import CONSUMER_OFFSETS
from store.workbench import append, open_store

MAX_CALLS = 130
ZERO = TopicPartition("events", 0)


class OpenCountingFiles(CountingFiles):
    """A diary that records opens, too."""

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        self.diary.append(("open", path))
        return super().open(path, write=write, create=create)


@pytest.fixture
def files() -> OpenCountingFiles:
    return OpenCountingFiles()


@pytest.fixture
def store(tmp_path: Path, files: OpenCountingFiles) -> Iterator[Store]:
    with open_store(tmp_path / "store", files=files, flush="os") as store:
        store.create_topic("events", partitions=2)
        for partition in range(2):
            append(store, "events", [b"x"] * 10, partition=partition)
            store._table.flush(TopicPartition("events", partition))
        yield store


@pytest.fixture
def consumer(store: Store) -> Iterator[Consumer]:
    with store.consumer(["events"], group="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.poll()
        consumer.commit()
        yield consumer


def calls_of(action: Callable[[], object]) -> int:
    """Count calls of Python functions."""
    count = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.id("commit-calls")
def test_commit_takes_at_most_130_calls(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.create_topic("events", partitions=1)
        append(store, "events", [b"x"] * 10)
        with store.consumer(["events"], group="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
            consumer.poll()
            for offset in (7, 3):
                consumer.seek(ZERO, offset=offset)
                calls = calls_of(consumer.commit)
            assert calls <= MAX_CALLS
            assert store.lag("g")[0].committed == 3


@pytest.mark.id("commit-syncs")
def test_commit_opens_no_files_and_syncs_once(consumer: Consumer, files: OpenCountingFiles) -> None:
    before = len(files.diary)
    for _ in range(10):
        consumer.commit()

    what = [what for what, _ in files.diary[before:]]
    assert "open" not in what
    assert what.count("sync") == 10


def test_commit_syncs_each_partition_with_unsynced_records(
    store: Store, consumer: Consumer, files: OpenCountingFiles
) -> None:
    for partition in range(2):
        append(store, "events", [b"x"], partition=partition)
    consumer.poll()
    before = len(files.diary)
    consumer.commit()

    synced = [name for what, name in files.diary[before:] if what == "sync" and name.endswith(".log")]
    assert len(synced) == 3
    assert all(store.log("events", partition).recovery_point == 11 for partition in range(2))


def test_commits_are_compacted_regularly(store: Store, tmp_path: Path) -> None:
    """Goal: neither the bytes on disk nor what an open reads grow with the number of commits."""
    for number in range(4 * ROLL_RECORDS):
        store.commit_offsets("g", {ZERO: number % 10})
        if not number % ROLL_RECORDS:
            log = store.log(CONSUMER_OFFSETS, store._groups.partition_of("g").partition)
            assert log.size_bytes < 2 * ROLL_RECORDS * 200
            assert len(take_snapshot(log).view.segments) <= 4
    assert store.lag("g")[0].committed == (4 * ROLL_RECORDS - 1) % 10


def test_commit_is_durable_after_compaction_without_disk_space(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    from seeklog import Log
    from seeklog.errors import DiskFull

    def is_full(log: Log) -> None:
        raise DiskFull("no room for another file")

    store.commit_offsets("g", {ZERO: 1})
    monkeypatch.setattr("seeklog.groups.groups.ROLL_RECORDS", 2)
    monkeypatch.setattr("seeklog.groups.groups.ROLL_FACTOR", 1)
    monkeypatch.setattr(Log, "roll", is_full)
    for offset in (2, 3, 4):
        store.commit_offsets("g", {ZERO: offset})
    assert store.lag("g")[0].committed == 4


def test_two_stores_that_commit_in_turn_see_each_others_commits(store: Store, tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as other:
        for number in range(20):
            (store, other)[number % 2].commit_offsets(f"g{number % 3}", {ZERO: number % 10})
        for each in (store, other):
            assert [each.lag(f"g{group}")[0].committed for group in range(3)] == [8, 9, 7]


def test_commit_of_many_partitions_looks_at_no_log_again(tmp_path: Path) -> None:
    """Goal: a member commits what it has read. A look took a millisecond, so a thousand partitions took a second."""
    count = 200
    with open_store(tmp_path / "store") as store:
        store.create_topic("many", partitions=count)
        for number in range(count):
            append(store, "many", [b"x"], partition=number)
    with (
        open_store(tmp_path / "store") as store,
        store.consumer(["many"], group="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer,
    ):
        seen = 0
        while seen < count:
            seen += len(consumer.poll())
        consumer.commit()
        assert calls_of(consumer.commit) < 50 * count
        assert sum(lag.committed or 0 for lag in store.lag("g")) == count
        with pytest.raises(OffsetOutOfRange):
            consumer.commit({TopicPartition("many", 7): 2})
        append(store, "many", [b"x"], partition=7)
        consumer.commit({TopicPartition("many", 7): 2})


def test_commit_for_recreated_topic_is_checked_in_new_log(tmp_path: Path) -> None:
    """Goal: the last look at the log of the old topic says nothing about the new one."""
    with open_store(tmp_path / "store") as store, open_store(tmp_path / "store") as other:
        store.create_topic("events", partitions=1)
        append(store, "events", [b"x"] * 10)
        store.commit_offsets("g", {ZERO: 10})
        store.delete_topic("events")
        other.create_topic("events", partitions=1)
        with pytest.raises(OffsetOutOfRange):
            store.commit_offsets("g", {ZERO: 5})


def test_segment_of_commits_holds_several_commits_of_many_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a roll and a compaction take several syncs, which a commit should not pay for."""
    monkeypatch.setattr("seeklog.groups.groups.ROLL_RECORDS", 20)
    with open_store(tmp_path / "store") as store:
        store.create_topic("many", partitions=10)
        offsets = {TopicPartition("many", number): 0 for number in range(10)}
        for _ in range(9):
            store.commit_offsets("g", offsets)
        log = store.log(CONSUMER_OFFSETS, store._groups.partition_of("g").partition)
        assert log.segment_count == 1
        for _ in range(2):
            store.commit_offsets("g", offsets)
        assert store.log(CONSUMER_OFFSETS, store._groups.partition_of("g").partition).segment_count > 1
