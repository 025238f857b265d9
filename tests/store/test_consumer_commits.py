"""A consumer's commits for its group, explicit and automatic, and where the group continues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from log.workbench import START_MS, FakeClock, offsets
from seeklog import Store, TopicPartition
from seeklog.errors import CommitRefused, OffsetOutOfRange, SeeklogError, TopicNotFound, UsageError
from store.consuming import ALL, EARLIEST, GROUP, ZERO, drain, open_events, places
from store.workbench import open_store, send, snapshot


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    with open_events(tmp_path / "store", clock=clock) as store:
        yield store


def test_group_continues_at_its_commit(store: Store) -> None:
    with store.consumer(["events"], enable_auto_commit=False, **GROUP) as consumer:
        first = consumer.poll(max_records=25)
        consumer.commit()
        consumer.poll()
    with store.consumer(["events"], **GROUP) as consumer:
        second = drain(consumer)

    assert sorted(places([*first, *second])) == sorted(ALL)


def test_committed_offsets_survive_reopen(tmp_path: Path) -> None:
    for round_ in range(4):
        with open_store(tmp_path / "store") as store:
            if not round_:
                store.create_topic("events", partitions=1)
                send(store, "events", [b"%d" % number for number in range(40)])
            with store.consumer(["events"], **GROUP) as consumer:
                assert offsets(consumer.poll(max_records=10)) == list(range(10 * round_, 10 * round_ + 10))


def test_commit_accepts_offsets_and_metadata(store: Store) -> None:
    with store.consumer(enable_auto_commit=False, **GROUP) as consumer:
        consumer.assign([ZERO])
        consumer.commit({ZERO: 4, TopicPartition("events", 1): (20, "the end ✓")})
        assert [consumer.committed(("events", partition)) for partition in range(3)] == [4, 20, None]
        assert consumer.position(("events", 0)) == 0
    found = store._groups.find("group").offsets
    assert (found[ZERO].metadata, found[TopicPartition("events", 1)].metadata) == ("", "the end ✓")
    assert found[ZERO].commit_timestamp_ms == START_MS
    assert store.describe_group("group").offsets == {ZERO: 4, TopicPartition("events", 1): 20}


@pytest.mark.parametrize(
    ("offset", "error"),
    [
        (11, OffsetOutOfRange),
        (2**63, OffsetOutOfRange),
        (-1, OffsetOutOfRange),
        ("1", UsageError),
        (1.0, UsageError),
        (True, UsageError),
        (None, UsageError),
        ((1, "x" * 4097), UsageError),
        ((1, "ä" * 2049), UsageError),
        ((None, "text"), UsageError),
    ],
    ids=repr,
)
def test_invalid_commit_is_refused_and_changes_nothing(store: Store, offset: Any, error: type[SeeklogError]) -> None:
    with store.consumer(enable_auto_commit=False, **GROUP) as consumer:
        consumer.assign([ZERO])
        consumer.commit({ZERO: 3, TopicPartition("events", 1): 3})
        before = snapshot(store.path, locks=False)
        with pytest.raises(error):
            consumer.commit({TopicPartition("events", 1): 5, ZERO: offset})
        assert snapshot(store.path, locks=False) == before
        assert consumer.committed(("events", 1)) == 3


@pytest.mark.parametrize("value", [(1, b"bytes"), (1, None), (1, "\ud800"), (1, "a", "b"), (1,), ()], ids=repr)
def test_invalid_metadata_is_refused(store: Store, value: Any) -> None:
    with store.consumer(enable_auto_commit=False, **GROUP) as consumer:
        consumer.assign([ZERO])
        with pytest.raises(UsageError):
            consumer.commit({ZERO: value})


def test_commit_for_missing_partition_is_refused(store: Store) -> None:
    with store.consumer(**GROUP) as consumer:
        for wrong in (("events", 3), ("other", 0)):
            with pytest.raises(TopicNotFound):
                consumer.commit({TopicPartition(*wrong): 0})
        with pytest.raises(UsageError, match="number of a partition"):
            consumer.commit({("events", "0"): 0})  # type: ignore[dict-item]
    assert store.groups() == []


def test_member_commits_only_for_its_own_partitions(store: Store) -> None:
    store.create_topic("others", partitions=1)
    with store.consumer(["events"], enable_auto_commit=False, **GROUP) as consumer:
        with pytest.raises(CommitRefused, match="others-0"):
            consumer.commit({ZERO: 1, TopicPartition("others", 0): 0})
        assert consumer.committed(("events", 0)) is None


def test_commit_needs_group(store: Store) -> None:
    with store.consumer(["events"], **EARLIEST) as consumer:
        for ask in (consumer.commit, lambda: consumer.committed(("events", 0))):
            with pytest.raises(UsageError, match="needs a group"):
                ask()
    assert store.topics(internal=True) == ["events"]


def test_automatic_commit_waits_for_its_interval(store: Store, clock: FakeClock) -> None:
    with store.consumer(auto_commit_interval_ms=1000, **GROUP) as consumer:
        consumer.assign([ZERO])
        consumer.poll(max_records=3)
        consumer.poll(max_records=3)
        assert consumer.committed(("events", 0)) is None
        clock.advance(999)
        consumer.poll(max_records=1)
        assert consumer.committed(("events", 0)) is None
        clock.advance(1)
        consumer.poll(max_records=1)
        # The records of this poll do not count as processed yet.
        assert consumer.committed(("events", 0)) == 7
        clock.advance(1000)
        consumer.poll(max_records=1)
        assert consumer.committed(("events", 0)) == 8
    assert store.describe_group("group").offsets == {ZERO: 9}


def test_next_automatic_commit_covers_failed_one(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    with store.consumer(auto_commit_interval_ms=1000, **GROUP) as consumer:
        consumer.assign([ZERO])
        consumer.poll(max_records=3)
        with store.consumer(["events"], **GROUP):  # a group with members takes no commit of a non-member
            clock.advance(1000)
            assert offsets(consumer.poll(max_records=2)) == [3, 4]
            assert "automatic commit failed" in caplog.text
        clock.advance(1000)
        consumer.poll(max_records=1)
        assert consumer.committed(("events", 0)) == 5


def test_without_automatic_commits_nothing_is_committed(store: Store, clock: FakeClock) -> None:
    with store.consumer(["events"], enable_auto_commit=False, **GROUP) as consumer:
        drain(consumer)
        clock.advance(10**7)
        consumer.poll()
    assert store.describe_group("group").offsets == {}


def test_close_commits_returned_records(store: Store) -> None:
    with store.consumer(**GROUP) as consumer:
        consumer.assign([ZERO])
        consumer.poll(max_records=4)
    assert store.describe_group("group").offsets == {ZERO: 4}


def test_close_in_iteration_commits_returned_records(store: Store) -> None:
    with store.consumer(consumer_timeout_ms=0, **GROUP) as consumer:
        consumer.assign([ZERO])
        for record in consumer:
            if record.offset == 6:
                break
    assert store.describe_group("group").offsets == {ZERO: 7}


@pytest.mark.parametrize("way", ["poll", "iteration"])
def test_record_whose_processing_failed_is_read_again(store: Store, way: str) -> None:
    def deal_with_some() -> None:
        with store.consumer(consumer_timeout_ms=0, **GROUP) as consumer:
            consumer.assign([ZERO])
            for record in consumer if way == "iteration" else consumer.poll():
                1 / (5 - record.offset)

    with pytest.raises(ZeroDivisionError):
        deal_with_some()
    with store.consumer(**GROUP) as consumer:
        consumer.assign([ZERO])
        assert offsets(consumer.poll()) == list(range(10))
