"""Consumers of one group in one process: they share the partitions when members join, leave, or fall silent."""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from log.workbench import FakeClock, QuickFiles
from open_files import path_of
from seeklog import Consumer, Record, Store, TopicPartition
from seeklog.errors import CommitRefused, LogClosed, LogFailed, NoOffset
from seeklog.files import Buffer
from seeklog.groups.records import GroupState, Member, encode_group, encode_group_key
from seeklog.names import CONSUMER_OFFSETS, MEMBER
from store.workbench import append, open_store

PARTITIONS = 6
RECORDS = 50
EVERYTHING = frozenset(TopicPartition("events", number) for number in range(PARTITIONS))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


class FailingFiles(QuickFiles):
    """A disk whose next sync of a group's records fails on demand; they are written by then."""

    def __init__(self) -> None:
        self.fails = False

    def sync(self, handle: int) -> None:
        if self.fails and CONSUMER_OFFSETS in path_of(handle):
            self.fails = False
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(handle)


@pytest.fixture
def files() -> FailingFiles:
    return FailingFiles()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock, files: FailingFiles) -> Iterator[Store]:
    with open_store(tmp_path / "store", clock=clock, files=files) as store:
        store.create_topic("events", partitions=PARTITIONS)
        for partition in range(PARTITIONS):
            append(store, "events", [b"value"] * RECORDS, partition=partition)
        yield store


def join(store: Store, **words: Any) -> Consumer:
    return store.consumer(["events"], **{"group": "group", "auto_offset_reset": "earliest", **words})


def beat(clock: FakeClock, *consumers: Consumer, rounds: int = 4) -> None:
    """Let all members take part until each has seen the changes of the others, without returning records."""
    for _ in range(rounds):
        clock.advance(200)
        for consumer in consumers:
            consumer._participate()


def kill(consumer: Consumer) -> None:
    """End a consumer like a kill: its lock is released, its record stays, and nothing is committed."""
    assert consumer._membership is not None
    assert consumer._membership._lock is not None
    consumer._membership._lock.close()
    consumer._membership = None
    consumer._auto_commits = False


def member_files(store: Store) -> list[Path]:
    return sorted(store.path.glob(f"*/{MEMBER}*"))


def sizes(*consumers: Consumer) -> list[int]:
    """Return how many partitions each member has. Together they are all, and none is shared."""
    assert sum(len(consumer.assignment) for consumer in consumers) == PARTITIONS
    assert frozenset().union(*(consumer.assignment for consumer in consumers)) == EVERYTHING
    return sorted(len(consumer.assignment) for consumer in consumers)


# ---------------------------------------------------------------- joining and leaving


def test_one_member_reads_everything(store: Store) -> None:
    with join(store) as alone:
        assert alone.assignment == EVERYTHING
        assert alone.member_id is not None


def test_two_and_three_members_share_partitions(store: Store, clock: FakeClock) -> None:
    with join(store) as first, join(store) as second:
        assert second.assignment == frozenset()  # no partition is free until the first member releases some
        beat(clock, first, second)
        assert sizes(first, second) == [3, 3]
        with join(store) as third:
            beat(clock, first, second, third)
            assert sizes(first, second, third) == [2, 2, 2]
        beat(clock, first, second)
        assert sizes(first, second) == [3, 3]


def test_more_members_than_partitions_leave_some_idle(store: Store, clock: FakeClock) -> None:
    members = [join(store) for _ in range(8)]
    beat(clock, *members, rounds=6)
    assert sizes(*members) == [0, 0, 1, 1, 1, 1, 1, 1]
    busy = next(member for member in members if member.assignment)
    idle = [member for member in members if member is not busy]
    busy.close()
    beat(clock, *idle)
    assert sizes(*idle) == [0, 1, 1, 1, 1, 1, 1]


def test_partitions_of_leaving_member_move_at_next_heartbeat(store: Store, clock: FakeClock) -> None:
    with join(store) as first:
        with join(store) as second:
            beat(clock, first, second)
        beat(clock, first, rounds=1)
        assert first.assignment == EVERYTHING


def test_nothing_happens_between_heartbeats(store: Store, clock: FakeClock) -> None:
    with join(store, heartbeat_interval_ms=1000) as first:
        first.poll(max_records=1)
        with join(store):
            clock.advance(999)
            first.poll(max_records=1)
            assert first.assignment == EVERYTHING
            clock.advance(1)
            first.poll(max_records=1)
            assert len(first.assignment) == 3


def test_members_with_different_topics_share_common_topics(store: Store, clock: FakeClock) -> None:
    store.create_topic("others", partitions=2)
    with (
        join(store) as first,
        store.consumer(["events", "others"], group="group") as second,
        store.consumer(["others"], group="group") as third,
    ):
        beat(clock, first, second, third, rounds=6)
        together = [*first.assignment, *second.assignment, *third.assignment]
        assert len(together) == len(set(together)) == PARTITIONS + 2
        assert {tp.topic for tp in first.assignment} == {"events"}
        assert {tp.topic for tp in third.assignment} == {"others"}


def test_members_of_different_groups_do_not_share(store: Store) -> None:
    with join(store, group="one") as one, join(store, group="two") as two:
        assert one.assignment == two.assignment == EVERYTHING


def test_consumer_with_assigned_partitions_is_not_a_member(store: Store) -> None:
    with store.consumer(group="group", enable_auto_commit=False) as free, join(store) as member:
        free.assign([("events", 0)])
        assert free.member_id is None
        assert len(store.describe_group("group").members) == 1
        assert member.assignment == EVERYTHING


def test_generation_grows_with_every_change_only(store: Store, clock: FakeClock) -> None:
    with join(store) as first, join(store) as second:
        beat(clock, first, second)
        generation = store.describe_group("group").generation
        beat(clock, first, second, rounds=10)
        assert store.describe_group("group").generation == generation
    assert store.describe_group("group").generation == generation + 2


# ---------------------------------------------------------------- moved partitions


def test_every_record_is_returned_once_while_members_come_and_go(store: Store, clock: FakeClock) -> None:
    """With orderly members and automatic commits there are no duplicates: released partitions were committed."""
    draw = random.Random(2)
    members = [join(store)]
    seen: list[tuple[int, int]] = []
    for _ in range(4000):
        clock.advance(50)
        member = draw.choice(members)
        seen += [(record.partition, record.offset) for record in member.poll(max_records=draw.randrange(1, 4))]
        event = draw.random()
        if event < 0.03 and len(members) < 5:
            members.append(join(store))
        elif event < 0.05 and len(members) > 1:
            members.remove(member)
            member.close()
        if len(seen) >= PARTITIONS * RECORDS:
            break
    for member in members:
        member.close()

    assert sorted(seen) == [(partition, offset) for partition in range(PARTITIONS) for offset in range(RECORDS)]


def test_moved_partition_continues_at_its_committed_offset(store: Store, clock: FakeClock) -> None:
    with join(store) as first:
        while first.position(("events", 5)) < 7:
            first.poll(max_records=1)
        handed_out = {tp: first.position(tp) for tp in EVERYTHING}
        with join(store) as second:
            beat(clock, first, second)
            assert {tp: second.position(tp) for tp in second.assignment} == {
                tp: handed_out[tp] for tp in second.assignment
            }


def test_listeners_get_added_and_revoked_partitions(store: Store, clock: FakeClock) -> None:
    told: list[tuple[str, frozenset[TopicPartition]]] = []

    def listener(what: str) -> Callable[[frozenset[TopicPartition]], None]:
        return lambda partitions: told.append((what, partitions))

    first = join(store, on_assign=listener("+first"), on_revoke=listener("-first"))
    second = join(store, on_assign=listener("+second"), on_revoke=listener("-second"))
    beat(clock, first, second)
    moved = second.assignment
    assert told == [("+first", EVERYTHING), ("-first", moved), ("+second", moved)]
    first.close()
    beat(clock, second)
    assert told[3:] == [("-first", EVERYTHING - moved), ("+second", EVERYTHING - moved)]


def test_listener_may_commit_partitions_about_to_be_revoked(store: Store, clock: FakeClock) -> None:
    def commit(partitions: frozenset[TopicPartition]) -> None:
        first.commit({partition: first.position(partition) for partition in partitions})

    first = join(store, on_revoke=commit, enable_auto_commit=False)
    while len(first.poll()):
        pass
    with join(store, enable_auto_commit=False) as second:
        beat(clock, first, second)
        assert len(second.assignment) == 3
        assert {second.position(tp) for tp in second.assignment} == {RECORDS}
    first.close()


def test_listener_may_seek_in_added_partitions(store: Store, clock: FakeClock) -> None:
    def to_the_middle(partitions: frozenset[TopicPartition]) -> None:
        for partition in partitions:
            consumers[-1].seek(partition, offset=25)

    consumers = [join(store)]
    consumers.append(join(store, on_assign=to_the_middle))
    beat(clock, *consumers)
    assert {consumers[1].position(tp) for tp in consumers[1].assignment} == {25}


def test_iteration_stops_at_revoked_partition(store: Store, clock: FakeClock) -> None:
    with join(store, consumer_timeout_ms=0) as first:
        seen = [(record.partition, record.offset) for _, record in zip(range(60), first, strict=False)]
        with join(store, consumer_timeout_ms=0) as second:
            beat(clock, first, second)
            seen += [(record.partition, record.offset) for record in first]
            seen += [(record.partition, record.offset) for record in second]

    assert sorted(seen) == [(partition, offset) for partition in range(PARTITIONS) for offset in range(RECORDS)]


# ---------------------------------------------------------------- silent and dead members


def test_partitions_of_dead_member_continue_at_its_last_commit(store: Store, clock: FakeClock) -> None:
    first, second = join(store), join(store)
    beat(clock, first, second)
    first.poll(max_records=9)
    lost = {tp: first.committed(tp) for tp in first.assignment}
    kill(first)
    beat(clock, second, rounds=1)

    assert second.assignment == EVERYTHING
    assert {tp: second.position(tp) for tp in lost} == {tp: committed or 0 for tp, committed in lost.items()}
    assert len(store.describe_group("group").members) == 1


def test_silent_member_is_removed_after_max_poll_interval_and_not_before(store: Store, clock: FakeClock) -> None:
    silent, other = join(store, max_poll_interval_ms=10_000), join(store)
    beat(clock, silent, other)
    clock.advance(9800)
    beat(clock, other, rounds=1)  # 10,000 ms after the last poll of the silent one
    assert len(other.assignment) == 3
    beat(clock, other, rounds=1)
    assert other.assignment == EVERYTHING


def silence(store: Store, clock: FakeClock) -> tuple[Consumer, Consumer]:
    """Return a member that was removed after reading ten of each partition, and the one that took over."""
    silent = join(store, max_poll_interval_ms=10_000, enable_auto_commit=False)
    for tp in EVERYTHING:
        silent.seek(tp, offset=10)
    silent.commit()
    silent.poll(max_records=5)
    clock.advance(10_001)
    return silent, join(store, enable_auto_commit=False)


def test_commit_of_removed_member_is_refused(store: Store, clock: FakeClock) -> None:
    silent, other = silence(store, clock)
    assert other.assignment == EVERYTHING
    with pytest.raises(CommitRefused):
        silent.commit()
    assert set(store.describe_group("group").offsets.values()) == {10}


def test_automatic_commit_of_removed_member_commits_nothing(
    store: Store, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    silent = join(store, max_poll_interval_ms=10_000)
    silent.poll(max_records=20)
    clock.advance(10_001)
    other = join(store)
    beat(clock, silent, other)

    # The other member committed its positions when it released half of the partitions.
    assert set(store.describe_group("group").offsets.values()) == {0}
    assert "no longer belongs to this member" in caplog.text


def test_removed_member_rejoins_with_its_next_poll(store: Store, clock: FakeClock) -> None:
    silent, other = silence(store, clock)
    before = silent.member_id
    beat(clock, silent, other)
    assert sizes(silent, other) == [3, 3]
    assert silent.member_id == before
    assert len(store.describe_group("group").members) == 2


def test_rejoined_member_continues_at_offsets_committed_meanwhile(store: Store, clock: FakeClock) -> None:
    """Goal: committed offsets never go back, and no record is read again after another member's commit."""
    silent, other = silence(store, clock)
    for tp in EVERYTHING:
        other.seek(tp, offset=40)
    other.commit()
    other.close()
    beat(clock, silent)

    assert silent.assignment == EVERYTHING
    assert {silent.position(tp) for tp in EVERYTHING} == {40}
    silent.commit()
    assert set(store.describe_group("group").offsets.values()) == {40}


def read_on(other: Consumer) -> None:
    """Let the member that took over everything commit up to offset 40, and leave."""
    for tp in other.assignment:
        other.seek(tp, offset=40)
    other.commit()
    other.close()


@pytest.mark.id("member-returns")
def test_rejoined_member_commits_no_positions_from_before(store: Store, clock: FakeClock) -> None:
    """Its automatic commit is always due, and it rejoins before it knows the others' positions."""
    silent = join(store, max_poll_interval_ms=10_000)
    silent.poll(max_records=20)
    clock.advance(10_001)
    read_on(join(store, enable_auto_commit=False))
    beat(clock, silent, rounds=1)

    assert set(store.describe_group("group").offsets.values()) == {40}
    assert {silent.position(tp) for tp in EVERYTHING} == {40}


@pytest.mark.id("member-return-written-late")
def test_member_whose_join_failed_after_write_commits_no_old_positions(
    store: Store, clock: FakeClock, files: FailingFiles
) -> None:
    silent, other = silence(store, clock)
    silent._auto_commits = True
    read_on(other)
    files.fails = True
    with pytest.raises(LogFailed):
        beat(clock, silent, rounds=1)

    with pytest.raises(CommitRefused, match="removed this consumer"):
        silent.commit()
    beat(clock, silent, rounds=1)
    assert {silent.position(tp) for tp in EVERYTHING} == {40}
    silent.close()
    assert set(store.describe_group("group").offsets.values()) == {40}


@pytest.mark.id("member-gave-up-partitions")
def test_partitions_released_by_failed_call_are_not_kept(store: Store, clock: FakeClock, files: FailingFiles) -> None:
    """Goal: partitions that another member has read since do not continue at the old positions."""
    revoked: list[frozenset[TopicPartition]] = []

    def fail(given: frozenset[TopicPartition]) -> None:
        files.fails = not revoked  # after the commit, and before the group's record is written
        revoked.append(given)

    first = join(store, on_revoke=fail)
    first.poll(max_records=20)
    second = join(store, enable_auto_commit=False)
    with pytest.raises(LogFailed):
        beat(clock, first, rounds=1)
    beat(clock, second, rounds=1)
    given = second.assignment
    assert len(given) == 3
    read_on(second)
    # All partitions are free for the first member again, and its last plan had them all.
    beat(clock, first, rounds=1)

    assert first.assignment == EVERYTHING
    assert {first.position(tp) for tp in given} == {40}


@pytest.mark.id("member-reset-stays")
@pytest.mark.parametrize("somebody_came_and_went", [False, True])
def test_reset_is_not_undone_by_removed_member(store: Store, clock: FakeClock, somebody_came_and_went: bool) -> None:
    silent = join(store, max_poll_interval_ms=10_000)
    silent.poll(max_records=20)
    clock.advance(10_001)
    store.reset_offsets("group", "events", to="latest")
    if somebody_came_and_went:
        join(store, enable_auto_commit=False).close()
    beat(clock, silent, rounds=1)

    assert set(store.describe_group("group").offsets.values()) == {RECORDS}
    assert {silent.position(tp) for tp in EVERYTHING} == {RECORDS}


def test_rejoined_member_drops_fetched_records(store: Store, clock: FakeClock) -> None:
    silent, other = silence(store, clock)
    for tp in EVERYTHING:
        other.seek(tp, offset=40)
    other.commit()
    other.close()
    clock.advance(1000)
    polled = silent.poll()

    assert polled
    assert min(record.offset for record in polled) == 40


def test_consumer_that_stops_polling_blocks_nobody(store: Store, clock: FakeClock) -> None:
    members = [join(store, max_poll_interval_ms=1000) for _ in range(4)]
    beat(clock, *members)
    assert sizes(*members) == [1, 1, 2, 2]
    last = members[-1]
    beat(clock, last, rounds=5)
    assert len(last.assignment) < PARTITIONS
    beat(clock, last, rounds=1)
    assert last.assignment == EVERYTHING


# ---------------------------------------------------------------- files


def test_member_file_names_its_process_and_is_removed_with_it(store: Store, clock: FakeClock) -> None:
    first, second = join(store), join(store)
    files = member_files(store)
    assert len(files) == 2
    assert all(int(path.read_text().split()[0]) == os.getpid() for path in files)
    partition = str(store._groups.partition_of("group"))
    assert {path.parent.name for path in files} == {partition}
    second.close()
    assert len(member_files(store)) == 1
    first.close()
    assert member_files(store) == []


def test_files_of_dead_members_are_removed_by_living_ones(store: Store, clock: FakeClock) -> None:
    first, second, third = (join(store) for _ in range(3))
    beat(clock, first, second, third)
    kill(first)
    kill(second)
    assert len(member_files(store)) == 3
    beat(clock, third)
    assert len(member_files(store)) == 1
    third.close()
    assert member_files(store) == []


def test_failed_heartbeat_write_does_not_stop_member(tmp_path: Path, clock: FakeClock) -> None:
    class NoSigns(QuickFiles):
        is_failing = False

        def write(self, handle: int, data: Buffer, position: int) -> None:
            if self.is_failing and MEMBER in path_of(handle):
                raise OSError(5, "no sign")
            super().write(handle, data, position)

    files = NoSigns()
    with open_store(tmp_path / "store", clock=clock, files=files) as store:
        store.create_topic("events", partitions=PARTITIONS)
        member = join(store, max_poll_interval_ms=10_000)
        files.is_failing = True
        for _ in range(5):
            clock.advance(3000)
            assert member.poll() == []
        assert member.assignment == EVERYTHING


def test_member_of_broker_counts_as_dead(store: Store, clock: FakeClock) -> None:
    with join(store):
        pass
    members = {
        name: Member(
            member_id=name,
            client_id="java",
            client_host="/10.0.0.1",
            rebalance_timeout_ms=300_000,
            session_timeout_ms=45_000,
            topics=frozenset({"events"}),
            assignment=assignment,
        )
        for name, assignment in (
            ("consumer-1-not-a-uuid", frozenset({TopicPartition("events", 0)})),
            ("consumer-1-0a0a0a0a-0000-4000-8000-000000000000", frozenset({TopicPartition("events", 1)})),
            ("../../../etc/passwd", frozenset({TopicPartition("events", 2)})),
        )
    }
    state = GroupState(generation=70, protocol="range", leader="consumer-1-not-a-uuid", members=members)
    with store._table.borrow(store._groups.partition_of("group"), wait_s=0) as log:
        log.append_many([Record(encode_group(state), key=encode_group_key("group"))])

    with join(store) as consumer:
        assert consumer.assignment == EVERYTHING
        described = store.describe_group("group")
        assert described.generation == 71
        assert [member.member_id for member in described.members] == [consumer.member_id]


def test_partition_without_start_offset_moves_to_member_that_can_start(store: Store, clock: FakeClock) -> None:
    """A member without a start offset gets a partition; then another joins that can start."""
    with store.consumer(group="group", enable_auto_commit=False) as consumer:
        consumer.commit({TopicPartition("events", number): 0 for number in range(PARTITIONS)})
    strict = join(store, auto_offset_reset="error")
    store.add_partitions("events", partitions=PARTITIONS + 3)
    clock.advance(1000)
    with pytest.raises(NoOffset):
        strict.poll()
    others = [join(store) for _ in range(8)]
    for _ in range(5):
        clock.advance(1000)
        for consumer in (strict, *others):
            with contextlib.suppress(NoOffset):
                consumer.poll()
    held = [partition for consumer in (strict, *others) for partition in consumer.assignment]
    assert len(held) == len(set(held))
    assert sum(len(consumer.assignment) for consumer in others) >= PARTITIONS + 2


def test_forked_child_sends_no_heartbeats_for_its_parent(store: Store, clock: FakeClock) -> None:
    consumer = join(store)
    consumer.poll(max_records=3)
    child = os.fork()
    if not child:
        status = 1
        try:
            clock.advance(1000)
            try:
                consumer.poll()
            except LogClosed:
                status = 0
            consumer.close()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    assert len(member_files(store)) == 1
    assert store.describe_group("group").offsets == {}
    beat(clock, consumer)
    assert consumer.assignment == EVERYTHING


def test_group_whose_record_was_deleted_is_joined_again(store: Store, clock: FakeClock) -> None:
    """A broker's tools may do this while a consumer runs."""
    with join(store) as consumer:
        with store._table.borrow(store._groups.partition_of("group"), wait_s=0) as log:
            log.append_many([Record(None, key=encode_group_key("group"))])
        beat(clock, consumer)
        assert consumer.assignment == EVERYTHING
        assert len(store.describe_group("group").members) == 1
