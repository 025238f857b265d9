"""Producers and consumers in separate processes, some of which are killed, and the history they leave."""

from __future__ import annotations

import contextlib
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from log.workbench import wait_until
from seeklog import TopicPartition
from seeklog.groups.records import OffsetKey, decode_key, decode_offset
from seeklog.record.key_hash import partition_of
from seeklog.store import open_store
from store.children import CONFIG, GROUP, TOPIC, Child, Event, value_of

PARTITIONS = 6
MANY = 10**6  # more than a child sends before it has to end


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with open_store(tmp_path / "store", config=CONFIG, background=False) as store:
        store.create_topic(TOPIC, partitions=PARTITIONS)
    return tmp_path / "store"


@pytest.fixture
def start(path: Path) -> Iterator[Callable[..., Child]]:
    """Start children that do not outlive the test."""
    with contextlib.ExitStack() as stack:

        def start(what: str, *arguments: object, name: str = "") -> Child:
            return stack.enter_context(Child(name or what, what, path, *arguments))

        yield start


def written(path: Path) -> dict[int, list[bytes | None]]:
    """Return the values of every partition."""
    with open_store(path, config=CONFIG, read_only=True, background=False) as store:
        return {
            partition: [record.value for record in store.log(TOPIC, partition).scan()]
            for partition in range(PARTITIONS)
        }


def commits(path: Path) -> dict[int, list[int]]:
    """Return every offset committed for a partition, in the order of the log."""
    history: dict[int, list[int]] = defaultdict(list)
    with open_store(path, config=CONFIG, read_only=True, background=False) as store:
        for record in store.log(*store._groups.partition_of(GROUP)).scan():
            key = decode_key(record.key or b"")
            if isinstance(key, OffsetKey) and record.value is not None:
                history[key.partition.partition].append(decode_offset(record.value).offset)
    return history


def got(events: list[Event]) -> dict[int, list[tuple[int, bytes]]]:
    """Return offsets and values by partition, in the order in which they were returned."""
    found: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in range(PARTITIONS)}
    for event in sorted(events, key=lambda event: event.at_ns):
        if event.what == "got":
            partition, offset, value, _ = event.words
            found[int(partition)].append((int(offset), value.encode()))
    return found


def check_history(path: Path, events: list[Event]) -> None:
    """Jepsen's questions: is a record lost, wrong, out of order, or read again after another member committed it?"""
    log = written(path)
    history = got(events)
    for partition in range(PARTITIONS):
        assert all(log[partition][offset] == value for offset, value in history[partition])
        assert {offset for offset, _ in history[partition]} == set(range(len(log[partition])))

    for partition, offsets in commits(path).items():
        assert offsets == sorted(offsets), f"the commits of partition {partition} go back"

    of_consumers = [event for event in events if event.what in ("got", "committed")]
    for name in {event.child for event in of_consumers}:
        others: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for event in of_consumers:
            if event.what == "committed" and event.child != name:
                others[int(event.words[0])].append((event.at_ns, int(event.words[1])))
        for event in of_consumers:
            if event.what == "got" and event.child == name:
                partition, offset, began = (int(event.words[place]) for place in (0, 1, 3))
                # Committed and reported by another member before this one began to poll.
                before = [committed for at_ns, committed in others[partition] if at_ns < began]
                assert max(before, default=0) <= offset, f"{name} got {partition}/{offset} after it was committed"


def all_read(path: Path, consumers: list[Child]) -> Callable[[], bool]:
    expected = {(partition, offset) for partition, values in written(path).items() for offset in range(len(values))}

    def is_so() -> bool:
        seen = {
            (int(event.words[0]), int(event.words[1]))
            for consumer in consumers
            for event in list(consumer.events)
            if event.what == "got"
        }
        return seen >= expected

    return is_so


def events_of(children: list[Child]) -> list[Event]:
    return [event for child in children for event in child.events]


@pytest.mark.id("consumer-killed")
@pytest.mark.parametrize("after", [1, 57, 200], ids=lambda after: f"after {after} records")
def test_other_members_take_over_from_killed_consumer(path: Path, start: Callable[..., Child], after: int) -> None:
    """Goal: every record at least once, commits never go back, and no record again after another member's commit."""
    consumers = [start("consume", 7, name=f"consumer {number}") for number in range(3)]
    for consumer in consumers:
        consumer.wait_for("assigned")
    producer = start("produce", 1500)
    producer.go()
    victim = consumers[1]
    victim.wait_for("got", after)
    victim.kill()
    producer.end()
    wait_until(all_read(path, consumers), "the others to read everything")
    survivors = [consumer for consumer in consumers if consumer is not victim]
    for consumer in survivors:
        consumer.end()

    check_history(path, events_of(consumers))
    with open_store(path, config=CONFIG, background=False) as store:
        assert store.describe_group(GROUP).members == ()
        assert [lag.lag for lag in store.lag(GROUP)] == [0] * PARTITIONS
        # The files of the members are removed, the killed one's too.
        assert list(path.glob("*/seeklog-member-*")) == []


@pytest.mark.id("group-sharing")
def test_consumers_that_join_and_leave_share_partitions(path: Path, start: Callable[..., Child]) -> None:
    producer = start("produce", 600)
    consumers = []
    for name in ("first", "second", "third"):
        consumers.append(start("consume", 20, name=name))
        # A member reads nothing until the others have released partitions, and then only new records.
        consumers[-1].wait_for("assigned")
        producer.go()
        consumers[-1].wait_for("got", 50)
    first, second, third = consumers
    first.end()
    producer.go()
    producer.end()
    wait_until(all_read(path, [first, second, third]), "everything to be read")
    second.end()
    third.end()

    check_history(path, events_of([first, second, third]))
    assert first.count("revoked") >= 1
    # Orderly members release only what they have committed, so nothing was read twice.
    history = got(events_of([first, second, third]))
    assert all(len(of_partition) == len(set(of_partition)) for of_partition in history.values())


@pytest.mark.id("producer-killed")
@pytest.mark.parametrize("after", [1, 40, 400], ids=lambda after: f"after {after} acknowledged")
def test_consumers_see_all_acknowledged_records_of_killed_producer(
    path: Path, start: Callable[..., Child], after: int
) -> None:
    follower = start("follow")
    member = start("consume", 500)
    follower.wait_for("ready")
    member.wait_for("ready")
    producer = start("produce", MANY)
    producer.go()
    producer.wait_for("acknowledged", after)
    producer.kill()
    # The next writer recovers after the kill. Only then is the end of the log known.
    with open_store(path, config=CONFIG, background=False) as store, store.producer(linger_ms=0) as again:
        for partition in range(PARTITIONS):
            again.send(TOPIC, b"after-the-kill", partition=partition).result()
    wait_until(
        lambda: all(child.count("got") >= sum(map(len, written(path).values())) for child in (follower, member)),
        "both to read everything",
    )
    follower.end()
    member.end()

    log = written(path)
    acknowledged = {
        (int(partition), int(offset)): value_of(int(number))
        for event in producer.events
        if event.what == "acknowledged"
        for number, partition, offset in [event.words]
    }
    assert len(acknowledged) >= after
    assert all(log[partition][offset] == value for (partition, offset), value in acknowledged.items())
    # Of the records sent to a partition a prefix is stored, without gaps.
    for partition, values in log.items():
        numbers = (number for number in itertools.count() if partition_of(value_of(number), PARTITIONS) == partition)
        sent = [value_of(number) for number in itertools.islice(numbers, len(values) - 1)]
        assert values == [*sent, b"after-the-kill"]
    for child in (follower, member):
        for partition, seen in got(child.events).items():
            assert seen == list(enumerate(log[partition])), (child.name, partition)
    check_history(path, member.events)


def test_consumer_follows_writes_of_another_process(path: Path, start: Callable[..., Child]) -> None:
    follower = start("follow")
    follower.wait_for("ready")
    producer = start("produce", 200)
    for round_ in range(1, 6):
        producer.go()
        follower.wait_for("got", 200 * round_)  # while the producer still has the log open
    assert producer.count("end") == 0
    producer.end()
    follower.end()

    log = written(path)
    assert {partition: [value for _, value in seen] for partition, seen in got(follower.events).items()} == log


@pytest.mark.id("group-commits-of-processes")
def test_commits_of_many_processes_to_one_group_all_succeed(path: Path, start: Callable[..., Child]) -> None:
    """Goal: processes that take turns with the lock of one partition overwrite none of each other's commits."""
    count = 25
    with open_store(path, config=CONFIG, background=False) as store, store.producer() as producer:
        for partition in range(PARTITIONS):
            for _ in range(count):
                producer.send(TOPIC, b"value", partition=partition)
    children = [start("commit", partition, count, name=f"committer {partition}") for partition in range(PARTITIONS)]
    for child in children:
        child.wait_for("ready")
    for child in children:
        child.go()
    for child in children:
        child.wait_for("end")

    assert commits(path) == {partition: list(range(1, count + 1)) for partition in range(PARTITIONS)}
    with open_store(path, config=CONFIG, background=False) as store:
        expected = {TopicPartition(TOPIC, partition): count for partition in range(PARTITIONS)}
        assert store.describe_group(GROUP).offsets == expected


@pytest.mark.id("committer-killed")
def test_killed_committer_does_not_block_group(path: Path, start: Callable[..., Child]) -> None:
    """The lock is released with its process, and an unfinished commit is cut off."""
    with open_store(path, config=CONFIG, background=False) as store, store.producer() as producer:
        for partition in range(2):
            for _ in range(2000):
                producer.send(TOPIC, b"value", partition=partition)
    for round_ in range(3):
        victim = start("commit", 0, 2000, name=f"victim {round_}")
        victim.wait_for("ready")
        victim.go()
        victim.wait_for("committed", 5 + 7 * round_)
        victim.kill()
        reported = max(int(event.words[1]) for event in victim.events if event.what == "committed")
        with open_store(path, config=CONFIG, background=False) as store:
            with store.consumer(group=GROUP, enable_auto_commit=False) as consumer:
                consumer.commit({TopicPartition(TOPIC, 1): round_})
                assert (consumer.committed((TOPIC, 0)) or 0) in (reported, reported + 1)
                assert consumer.committed((TOPIC, 1)) == round_
            store.reset_offsets(GROUP, TOPIC, to=0, partitions=[0])
