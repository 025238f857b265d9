"""Groups of a store: names, members, lag, resetting offsets, and deleting groups."""

from __future__ import annotations

import contextlib
import errno
import logging
import signal
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import seeklog
from log.workbench import START_MS, FakeClock, offsets
from seeklog import Record, Store, TopicPartition
from seeklog.errors import (
    CommitRefused,
    GroupInUse,
    GroupNotFound,
    InvalidName,
    LogClosed,
    LogFailed,
    OffsetOutOfRange,
    SeeklogError,
    TopicNotFound,
    UsageError,
)
from seeklog.groups.groups import OFFSETS_PARTITIONS, java_hash
from seeklog.groups.records import (
    CommittedOffset,
    GroupState,
    Member,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)
from seeklog.names import CONSUMER_OFFSETS
from store.producing import LosingFiles
from store.workbench import append, open_store, send, snapshot

ZERO, ONE, TWO = (TopicPartition("events", number) for number in range(3))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    """A store with a topic of three partitions of 10, 20 and 30 records, a second apart."""
    with open_store(tmp_path / "store", clock=clock) as store:
        store.create_topic("events", partitions=3)
        for partition in range(3):
            for offset in range(10 * (partition + 1)):
                with store._table.writing(TopicPartition("events", partition)) as log:
                    log.append(b"value", timestamp_ms=START_MS + offset * 1000)
        yield store


def commit(store: Store, group: str, committed: dict[TopicPartition, int]) -> None:
    """Commit for a group without joining it."""
    with store.consumer(group=group, enable_auto_commit=False) as consumer:
        consumer.commit(committed)


def put(store: Store, group: str, *records: Record) -> None:
    """Append records to the partition of `__consumer_offsets` that holds a group."""
    with store._table.borrow(store._groups.partition_of(group), wait_s=0) as log:
        log.append_many(list(records))


def log_bytes(store: Store) -> dict[str, bytes | str]:
    return {name: data for name, data in snapshot(store.path).items() if name.endswith(".log")}


# ---------------------------------------------------------------- queries


def test_listing_groups_does_not_create_offsets_topic(store: Store) -> None:
    before = snapshot(store.path)
    assert store.groups() == []
    with pytest.raises(GroupNotFound, match="none yet"):
        store.describe_group("group")
    assert snapshot(store.path) == before


def test_groups_are_listed_in_order(store: Store) -> None:
    names = ["zebra", "alpha", "Beta", "gamma-1", "ü", "a.b_c", "世界", "x" * 1024]
    for name in names:
        commit(store, name, {ZERO: 1})
    assert store.groups() == sorted(names)


def test_group_is_in_partition_that_kafka_chooses(store: Store) -> None:
    for name in ("fraud", "my-group", "polygenelubricants", "ü🔑"):
        commit(store, name, {ZERO: 1})
        partition = TopicPartition(CONSUMER_OFFSETS, java_hash(name) % OFFSETS_PARTITIONS)
        keys = [record.key for record in store.log(*partition).scan()]
        assert encode_offset_key(name, ZERO) in keys
    described = store.describe_topic(CONSUMER_OFFSETS)
    assert len(described.partitions) == OFFSETS_PARTITIONS
    assert described.config.cleanup_policy == "compact"
    assert store.topics() == ["events"]


def test_a_group_is_described_with_its_offsets_and_members(store: Store) -> None:
    commit(store, "group", {TWO: 30, ZERO: 4})
    with store.consumer(["events"], group="group", client_id="reader", max_poll_interval_ms=7000) as consumer:
        described = store.describe_group("group")
        (member,) = described.members
        assert described.name == "group"
        assert described.generation == 1
        assert list(described.offsets.items()) == [(ZERO, 4), (TWO, 30)]
        assert member.member_id == consumer.member_id
        assert member.member_id.startswith("reader-")
        assert (member.client_id, member.rebalance_timeout_ms, member.session_timeout_ms) == ("reader", 7000, 6000)
        assert member.topics == {"events"}
        assert member.assignment == consumer.assignment == {ZERO, ONE, TWO}
    assert store.describe_group("group").members == ()


@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.describe_group("frauds"),
        lambda store: store.lag("frauds"),
        lambda store: store.reset_offsets("frauds", "events", to=0),
        lambda store: store.delete_group("frauds"),
    ],
    ids=["describe", "lag", "reset", "delete"],
)
def test_missing_group_is_reported_with_nearest_name(store: Store, ask: Any) -> None:
    for name in ("billing", "fraud", "search"):
        commit(store, name, {ZERO: 1})
    before = snapshot(store.path)
    with pytest.raises(GroupNotFound, match="did you mean 'fraud'"):
        ask(store)
    assert snapshot(store.path) == before


def test_existing_groups_are_listed_if_no_name_is_near(store: Store) -> None:
    commit(store, "billing", {ZERO: 1})
    with pytest.raises(GroupNotFound, match="it has billing"):
        store.describe_group("zzz")


def test_reset_of_an_unknown_group_names_the_call_that_creates_one(store: Store) -> None:
    with pytest.raises(GroupNotFound, match=r"it has none yet\. To begin a new group at chosen offsets, call commit_"):
        store.reset_offsets("never", ZERO.topic, to="earliest")


def test_groups_are_read_in_a_store_that_is_open_read_only(store: Store) -> None:
    commit(store, "group", {ZERO: 4})
    with open_store(store.path, read_only=True) as reader:
        assert reader.groups() == ["group"]
        assert [lag.lag for lag in reader.lag("group")] == [6]
        commit(store, "group", {ZERO: 7})
        assert reader.describe_group("group").offsets == {ZERO: 7}
        for change in (
            lambda: reader.reset_offsets("group", "events", to=0),
            lambda: reader.delete_group("group"),
            lambda: reader.commit_offsets("group", {ZERO: 1}),
        ):
            with pytest.raises(UsageError, match="read-only"):
                change()


def test_two_stores_of_one_directory_see_each_other_s_groups(store: Store) -> None:
    with open_store(store.path) as other:
        for number in range(10):
            commit(store, "one", {ZERO: number})
            commit(other, "one", {ONE: number})
            commit(other, "two", {ZERO: number})
            for each in (store, other):
                assert each.describe_group("one").offsets == {ZERO: number, ONE: number}
                assert each.describe_group("two").offsets == {ZERO: number}
                assert each.groups() == ["one", "two"]


# ---------------------------------------------------------------- lag


def test_lag_counts_from_the_commit_to_the_end(store: Store) -> None:
    commit(store, "group", {ZERO: 4, TWO: 30})
    facts = [(lag.topic, lag.partition, lag.committed, lag.high_watermark, lag.lag) for lag in store.lag("group")]
    assert facts == [("events", 0, 4, 10, 6), ("events", 2, 30, 30, 0)]
    assert all(lag.member_id is None for lag in store.lag("group"))


def test_lag_includes_assigned_partitions_without_commit(store: Store) -> None:
    commit(store, "group", {ZERO: 4})
    with store.consumer(["events"], group="group") as consumer:
        facts = [(lag.partition, lag.committed, lag.lag, lag.member_id) for lag in store.lag("group")]
    assert facts == [
        (0, 4, 6, consumer.member_id),
        (1, None, 20, consumer.member_id),
        (2, None, 30, consumer.member_id),
    ]


def test_lag_counts_only_retained_offsets(store: Store) -> None:
    commit(store, "group", {ZERO: 2})
    with store._table.writing(ZERO) as log:
        log.delete_before(6)
    (lag,) = store.lag("group")
    assert (lag.committed, lag.log_start_offset, lag.lag) == (2, 6, 4)


def test_lag_is_never_negative(store: Store) -> None:
    """A commit may be after the end of a log that was truncated since."""
    commit(store, "group", {ZERO: 10})
    with store._table.writing(ZERO) as log:
        log.truncate_to(5)
    assert [lag.lag for lag in store.lag("group")] == [0]


def test_lag_omits_partitions_that_are_elsewhere(store: Store) -> None:
    commit(store, "group", {ZERO: 1})
    put(
        store,
        "group",
        *(
            Record(encode_offset(CommittedOffset(offset=5)), key=encode_offset_key("group", partition))
            for partition in (TopicPartition("elsewhere", 0), TopicPartition("events", 9))
        ),
    )
    assert [(lag.topic, lag.partition) for lag in store.lag("group")] == [("events", 0)]


# ---------------------------------------------------------------- resetting


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ({"to": "earliest"}, {ZERO: 3, ONE: 0, TWO: 0}),
        ({"to": "latest"}, {ZERO: 10, ONE: 20, TWO: 30}),
        ({"to": 7}, {ZERO: 7, ONE: 7, TWO: 7}),
        ({"to": 0, "partitions": [1]}, {ONE: 0}),
        ({"to": 20, "partitions": {1, 2}}, {ONE: 20, TWO: 20}),
        ({"to_time_ms": START_MS + 14_001}, {ZERO: 10, ONE: 15, TWO: 15}),
        ({"to_time_ms": 0, "partitions": (0,)}, {ZERO: 3}),
        ({"to": "latest", "partitions": []}, {}),
    ],
    ids=repr,
)
def test_offsets_are_reset_and_read_from(
    store: Store, words: dict[str, Any], expected: dict[TopicPartition, int]
) -> None:
    with store._table.writing(ZERO) as log:
        log.delete_before(3)
    before = {ZERO: 5, ONE: 5, TWO: 5}
    commit(store, "group", before)

    assert store.reset_offsets("group", "events", **words) == expected
    assert store.describe_group("group").offsets == before | expected
    with store.consumer(["events"], group="group") as consumer:
        assert {tp: consumer.position(tp) for tp in (ZERO, ONE, TWO)} == before | expected


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ({}, UsageError),
        ({"to": 1, "to_time_ms": 1}, UsageError),
        ({"to": "first"}, UsageError),
        ({"to": True}, UsageError),
        ({"to": -1}, OffsetOutOfRange),
        ({"to": 11}, OffsetOutOfRange),
        ({"to": 1, "partitions": [3]}, TopicNotFound),
        ({"to": 1, "partitions": [0, -1]}, TopicNotFound),
    ],
    ids=repr,
)
def test_invalid_reset_is_refused_and_changes_nothing(
    store: Store, words: dict[str, Any], error: type[SeeklogError]
) -> None:
    commit(store, "group", {ZERO: 5})
    before = snapshot(store.path, locks=False)
    with pytest.raises(error):
        store.reset_offsets("group", "events", **words)
    assert snapshot(store.path, locks=False) == before


def test_committing_offsets_creates_group(store: Store) -> None:
    store.commit_offsets("nightly", {ZERO: 4, TWO: 30})
    store.commit_offsets("nightly", {ZERO: 7})

    assert store.describe_group("nightly").offsets == {ZERO: 7, TWO: 30}
    assert [(one.partition, one.lag) for one in store.lag("nightly")] == [(0, 3), (2, 0)]
    with pytest.raises(OffsetOutOfRange):
        store.commit_offsets("nightly", {ZERO: 11})
    with store.consumer(["events"], group="nightly") as consumer:
        assert consumer.position(ZERO) == 7


@pytest.mark.parametrize("to", [1.5, b"latest", [1]], ids=repr)
def test_reset_to_invalid_offset_is_refused(store: Store, to: Any) -> None:
    commit(store, "group", {ZERO: 5})
    with pytest.raises(UsageError):
        store.reset_offsets("group", "events", to=to)
    assert store.describe_group("group").offsets == {ZERO: 5}


def test_reset_of_unknown_topic_is_refused(store: Store) -> None:
    commit(store, "group", {ZERO: 5})
    with pytest.raises(TopicNotFound, match="did you mean 'events'"):
        store.reset_offsets("group", "event", to=0)


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.reset_offsets("group", "events", to=0),
        lambda store: store.delete_group("group"),
        lambda store: commit(store, "group", {ZERO: 0}),
        lambda store: store.commit_offsets("group", {ZERO: 0}),
    ],
    ids=["reset", "delete", "commit of a stranger", "commit from outside"],
)
def test_group_with_active_members_is_not_changed(store: Store, change: Any) -> None:
    commit(store, "group", {ZERO: 5})
    with store.consumer(["events"], group="group", enable_auto_commit=False):
        before = log_bytes(store)
        with pytest.raises(GroupInUse):
            change(store)
        assert log_bytes(store) == before
    change(store)


def test_dead_members_do_not_keep_group_active(store: Store) -> None:
    consumer = store.consumer(["events"], group="group", enable_auto_commit=False)
    assert consumer._membership is not None
    assert consumer._membership._lock is not None
    consumer._membership._lock.close()  # what a killed process leaves: its record, without its lock

    assert store.describe_group("group").members == ()
    assert store.reset_offsets("group", "events", to=1, partitions=[0]) == {ZERO: 1}
    store.delete_group("group")


def test_members_of_broker_do_not_keep_group_active(store: Store) -> None:
    commit(store, "group", {ZERO: 5})
    member = Member(
        member_id="consumer-1-0a0a0a0a-0000-4000-8000-000000000000",
        client_id="java",
        client_host="/10.0.0.1",
        rebalance_timeout_ms=300_000,
        session_timeout_ms=45_000,
        topics=frozenset({"events"}),
        assignment=frozenset({ZERO}),
    )
    state = GroupState(generation=9, protocol="range", leader=member.member_id, members={member.member_id: member})
    put(store, "group", Record(encode_group(state), key=encode_group_key("group")))

    assert store.describe_group("group").generation == 9
    assert store.describe_group("group").members == ()
    assert store.reset_offsets("group", "events", to=1, partitions=[0]) == {ZERO: 1}


# ---------------------------------------------------------------- deleting


def test_deleting_group_deletes_its_offsets(store: Store) -> None:
    commit(store, "group", {ZERO: 5, ONE: 6})
    commit(store, "other", {ZERO: 7})
    with store.consumer(["events"], group="group"):
        pass
    store.delete_group("group")

    assert store.groups() == ["other"]
    with open_store(store.path) as again:
        assert again.groups() == ["other"]
        with again.consumer(["events"], group="group", auto_offset_reset="earliest") as consumer:
            assert consumer.position(("events", 0)) == 0
            assert again.describe_group("group").generation == 1


def test_deleting_topic_deletes_its_committed_offsets(store: Store) -> None:
    store.create_topic("others", partitions=1)
    commit(store, "both", {ZERO: 5, TopicPartition("others", 0): 0})
    commit(store, "one", {ZERO: 5})
    store.delete_topic("events")

    assert store.describe_group("both").offsets == {TopicPartition("others", 0): 0}
    assert store.groups() == ["both"]


def test_topic_is_deleted_although_tombstones_exceed_one_batch(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", max_message_bytes=300) as store:
        store.create_topic("events", partitions=20)
        for number in range(20):
            store.commit_offsets("group", {TopicPartition("events", number): 0})
        store.delete_topic("events")

        assert store.groups() == []
        store.create_topic("events", partitions=1)
    with open_store(tmp_path / "store") as store:
        assert store.groups() == []


# ---------------------------------------------------------------- recreated topics


def recreate(store: Store, topic: str, count: int) -> None:
    """Recreate a topic, with other records in its first partition."""
    store.delete_topic(topic)
    store.create_topic(topic, partitions=3)
    append(store, topic, [b"new %d" % number for number in range(count)])


@pytest.mark.id("commit-of-a-recreated-topic")
@pytest.mark.parametrize("count", [5, 30], ids=["shorter", "longer"])
@pytest.mark.parametrize("by", ["this store", "another store"])
def test_offsets_of_deleted_topic_do_not_apply_to_recreated_one(
    store: Store, clock: FakeClock, by: str, count: int
) -> None:
    """A group that kept them would silently skip the first records of the new topic."""
    store.create_topic("others", partitions=1)
    append(store, "others", [b"value"] * 3)
    consumer = store.consumer(["events", "others"], group="group", auto_offset_reset="earliest")
    assert sum(len(consumer.poll()) for _ in range(4)) == 63
    store._table.drop("events")
    with open_store(store.path, clock=clock) as another:
        recreate(store if by == "this store" else another, "events", count)

    with pytest.raises(CommitRefused, match="'events' was deleted and recreated since events-0 was read"):
        consumer.commit({ZERO: 10})
    consumer.close()
    assert store.describe_group("group").offsets == {TopicPartition("others", 0): 3}
    with store.consumer(["events"], group="group", auto_offset_reset="earliest") as consumer:
        assert [record.value for record in consumer.poll()] == [b"new %d" % number for number in range(count)]


@pytest.mark.parametrize("who", ["committed in vain", "looked on"])
def test_commit_that_replaced_lost_one_is_deleted_with_its_topic(store: Store, who: str, tmp_path: Path) -> None:
    """A store that had read the lost commit took the new one for it, and missed it when it deleted the topic."""
    watching: list[Store] = []

    class Losing(LosingFiles):
        def _fail(self, errors: dict[str, int], path: str) -> None:
            if errors and watching:
                watching.pop().groups()
            super()._fail(errors, path)

    files = Losing()
    files.synced = {}
    store.create_topic("others", partitions=1)
    append(store, "others", [b"value"] * 9)
    store._table.drop("events")
    other = TopicPartition("others", 0)
    with open_store(store.path, files=files) as unlucky, open_store(store.path) as onlooker:
        unlucky.commit_offsets("group", {ZERO: 1, other: 1})
        place = unlucky._groups.partition_of("group")
        neighbour = next(name for n in range(99) if unlucky._groups.partition_of(name := f"g{n}") == place)
        files.synced = {str(path): path.stat().st_size for path in store.path.glob("*/*.log")}
        watching.append(onlooker)
        files.sync_errors[str(place)] = errno.EIO
        with pytest.raises(LogFailed):
            unlucky.commit_offsets("group", {other: 7})
        store.commit_offsets(neighbour, {ZERO: 5})
        if who == "committed in vain":
            assert unlucky.describe_group("group").offsets[other] == 1
            assert unlucky.describe_group(neighbour).offsets == {ZERO: 5}
        recreate(unlucky if who == "committed in vain" else onlooker, "events", 30)
    with open_store(store.path) as later:
        assert neighbour not in later.groups()


def test_consumer_commits_again_after_starting_recreated_topic(store: Store, clock: FakeClock) -> None:
    with store.consumer(["events"], group="group", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.poll()
        recreate(store, "events", 30)
        with pytest.raises(CommitRefused):
            consumer.commit()
        clock.advance(5000)
        assert len(consumer.poll()) == 30
        consumer.commit()
    assert store.describe_group("group").offsets == {ZERO: 30, ONE: 0, TWO: 0}


def test_automatic_commit_that_sees_recreated_topic_leaves_its_start(store: Store, clock: FakeClock) -> None:
    with open_store(store.path, clock=clock) as reader:
        consumer = reader.consumer(
            ["events"],
            group="group",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=1000,
            heartbeat_interval_ms=60_000,
        )
        consumer.poll()
        recreate(store, "events", 30)
        clock.advance(2000)
        assert [record.value for record in consumer.poll()] == [b"new %d" % number for number in range(30)]


@pytest.mark.id("commit-overtaken-by-deletion")
@pytest.mark.parametrize("is_recreated", [False, True], ids=["deleted", "recreated"])
@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.commit_offsets("group", {ZERO: 10}),
        lambda store: store.reset_offsets("group", "events", to=10, partitions=[0]),
    ],
    ids=["commit", "reset"],
)
def test_commit_overtaken_by_deletion_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch, change: Any, is_recreated: bool
) -> None:
    """The deletion returns after the commit has checked its offsets, and before it is written."""
    commit(store, "group", {ZERO: 1})
    checked = store._groups._checked

    def check_and_delete(partition: TopicPartition, value: Any) -> CommittedOffset:
        good = checked(partition, value)
        recreate(store, "events", 30)
        if not is_recreated:
            store.delete_topic("events")
        return good

    monkeypatch.setattr(store._groups, "_checked", check_and_delete)
    with pytest.raises(CommitRefused if is_recreated else TopicNotFound):
        change(store)
    assert store.groups() == []


@pytest.mark.id("commit-elsewhere-forgotten")
def test_deletion_deletes_offsets_that_another_process_is_committing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit has found the topic, and is not written yet, when the deletion reaches the group."""
    commit(store, "another group", {ZERO: 1})
    store._table.drop("events")
    check = store._groups._check_topics
    comes = threading.Event()
    with seeklog.open(store.path, background=False) as another, ThreadPoolExecutor(1) as pool:
        borrow = another._table.borrow

        def announce_and_borrow(partition: TopicPartition, **how: Any) -> Any:
            if partition == store._groups.partition_of("group"):
                comes.set()
            return borrow(partition, **how)

        monkeypatch.setattr(another._table, "borrow", announce_and_borrow)

        def check_and_delete(topic_ids: Any) -> None:
            check(topic_ids)
            if topic_ids:  # the second check, with the group locked
                deletions.append(pool.submit(another.delete_topic, "events"))
                assert comes.wait(10)  # without this wait the deletion might miss the commit below

        deletions: list[Future[None]] = []
        monkeypatch.setattr(store._groups, "_check_topics", check_and_delete)
        store.commit_offsets("group", {ZERO: 10})
        deletions[0].result()
    assert store.groups() == []


@pytest.mark.parametrize("name", ["", " ", "a\tb", "x" * 1025, "ü" * 513, "\ud800", "a\x7f"], ids=repr)
def test_invalid_group_name_is_refused(store: Store, name: str) -> None:
    with pytest.raises(InvalidName):
        commit(store, name, {ZERO: 1})
    assert store.topics(internal=True) == ["events"]


# ---------------------------------------------------------------- damaged and unusual records


@pytest.mark.parametrize(
    "damaged",
    [
        Record(b"\0\3\0\0", key=encode_offset_key("group", ONE)),
        Record(b"\0\x09" + bytes(40), key=encode_offset_key("group", ONE)),
        Record(b"", key=encode_group_key("group")),
        Record(b"\xff" * 50, key=encode_group_key("group")),
        Record(b"value", key=b"\0"),
        Record(b"value", key=b"\0\1\0\xff"),
        Record(b"value", key=b"\0\2\0\2\xff\xff"),
        Record(b"value", key=b""),
    ],
    ids=repr,
)
def test_damaged_record_is_skipped_with_warning(
    store: Store, damaged: Record, caplog: pytest.LogCaptureFixture
) -> None:
    commit(store, "group", {ZERO: 5, ONE: 6})
    with caplog.at_level(logging.WARNING, "seeklog"):
        put(store, "group", damaged)
        commit(store, "group", {TWO: 7})
        assert store.describe_group("group").offsets == {ZERO: 5, ONE: 6, TWO: 7}

    warnings = [record.message for record in caplog.records if "is skipped" in record.message]
    assert len(warnings) == 1
    assert "offset 2" in warnings[0]
    assert str(store._groups.partition_of("group")) in warnings[0]


def test_records_of_unknown_kinds_are_skipped_silently(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    commit(store, "group", {ZERO: 5})
    with caplog.at_level(logging.WARNING, "seeklog"):
        for version in (3, 8, 15):
            put(store, "group", Record(b"value", key=struct.pack(">h", version) + b"\0\5group"))
        assert store.describe_group("group").offsets == {ZERO: 5}
    assert caplog.records == []


def test_tombstones_without_earlier_records_have_no_effect(store: Store) -> None:
    commit(store, "group", {ZERO: 5})
    put(
        store,
        "group",
        Record(None, key=encode_offset_key("nobody", ZERO)),
        Record(None, key=encode_group_key("nobody")),
        Record(None, key=encode_offset_key("group", TWO)),
    )
    assert store.groups() == ["group"]
    assert store.describe_group("group").offsets == {ZERO: 5}


def test_last_record_of_key_counts(store: Store) -> None:
    commit(store, "group", {ZERO: 5})
    put(
        store,
        "group",
        Record(encode_offset(CommittedOffset(offset=8)), key=encode_offset_key("group", ZERO)),
        Record(None, key=encode_offset_key("group", ZERO)),
        Record(encode_offset(CommittedOffset(offset=2)), key=encode_offset_key("group", ZERO)),
    )
    assert store.describe_group("group").offsets == {ZERO: 2}


def test_log_that_lost_its_beginning_is_read_again(store: Store) -> None:
    """A broker's cleaner may move the start of the log past the records already read."""
    commit(store, "group", {ZERO: 5})
    commit(store, "group", {ONE: 6})
    assert store.describe_group("group").offsets == {ZERO: 5, ONE: 6}
    with open_store(store.path) as other:
        commit(other, "group", {TWO: 7})
        with other._table.borrow(other._groups.partition_of("group"), wait_s=0) as log:
            log.delete_before(log.log_end_offset)
    assert store.groups() == []


@pytest.mark.id("group-tombstones-compacted")
def test_deletions_hold_after_compaction_removed_their_tombstones(store: Store, clock: FakeClock) -> None:
    """A store that has read the groups, and then not for days, never sees the tombstones."""
    commit(store, "group", {ZERO: 5, ONE: 6})
    commit(store, "other", {ZERO: 7})
    assert store.groups() == ["group", "other"]
    with open_store(store.path, clock=clock) as another:
        another.delete_group("group")
        partition = another._groups.partition_of("group")
        for days in (8, 2):  # more than segment.ms, and than delete.retention.ms
            clock.advance(days * 24 * 3600 * 1000)
            another.maintain()
            another.compact(CONSUMER_OFFSETS)
        assert not [record for record in another.log(*partition).scan() if record.value is None]

    assert store.groups() == ["other"]
    assert store.reset_offsets("other", "events", to=8, partitions=[0]) == {ZERO: 8}


# ---------------------------------------------------------------- concurrency


def test_commits_of_many_threads_all_succeed(store: Store) -> None:
    def commit_all(number: int) -> None:
        for offset in range(8):
            commit(store, f"group-{number % 3}", {TopicPartition("events", number // 3): offset})

    with ThreadPoolExecutor(9) as pool:
        list(pool.map(commit_all, range(9)))

    for number in range(3):
        assert store.describe_group(f"group-{number}").offsets == {ZERO: 7, ONE: 7, TWO: 7}


def test_offsets_stay_exact_over_many_commits(store: Store) -> None:
    with store.consumer(["events"], group="group", auto_offset_reset="earliest") as consumer:
        for expected in range(60):
            assert len(consumer.poll(max_records=1)) == 1
            consumer.commit()
            assert sum(store.describe_group("group").offsets.values()) == expected + 1
    with open_store(store.path) as again:
        assert again.describe_group("group").offsets == {ZERO: 10, ONE: 20, TWO: 30}
        send(store, "events", [b"new"], partition=1)
        with again.consumer(["events"], group="group") as consumer:
            assert offsets(consumer.poll()) == [20]


@contextlib.contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Interrupt an endless loop in the main thread, where pytest runs tests."""

    def ring(_signal: int, _frame: object) -> None:
        raise TimeoutError(f"it did not end within {seconds} seconds")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_closed_store_answers_no_questions_about_groups(tmp_path: Path) -> None:
    """Goal: an answer or an error, but no endless search for an open log."""
    store = open_store(tmp_path / "store")
    store.create_topic("events", partitions=1)
    commit(store, "group", {ZERO: 0})
    assert store.groups() == ["group"]
    store.close()
    with open_store(tmp_path / "store") as other:
        commit(other, "group", {ZERO: 0})
    for ask in (store.groups, lambda: store.describe_group("group"), lambda: store.lag("group")):
        with alarm(1), pytest.raises(LogClosed):
            ask()


@pytest.mark.id("commit-after-records")
def test_records_before_committed_offset_are_durable_before_commit(tmp_path: Path) -> None:
    """Goal: no power loss can give their offsets to other records, which the group would then skip."""
    with open_store(tmp_path / "store", flush="os") as store:
        store.create_topic("events", partitions=1)
        append(store, "events", [b"value"] * 5)
        assert store.log("events", 0).recovery_point == 0

        commit(store, "group", {ZERO: 3})

        assert store.log("events", 0).recovery_point >= 3


def test_offsets_are_committed_for_tuples_as_well(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.create_topic("orders", partitions=1)
        append(store, "orders", [b"a", b"b"])
        store.commit_offsets("g", {("orders", 0): 1})
        assert dict(store.describe_group("g").offsets) == {TopicPartition("orders", 0): 1}
