"""Workloads of a store whose crash states are explored.

Each workload is a function of a `StoreRecorder`. Its preparation runs unobserved, because another workload covers it.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from unittest import mock

import pytest

from crash.faulty import FaultyFiles
from crash.sim import Disk, Rename, Write
from crash.store_recorder import NEW_STORE, ROOT
from seeklog import names
from seeklog.errors import InvalidConfig, TopicExists, TopicNotFound, UsageError
from seeklog.files import Buffer

if TYPE_CHECKING:
    from collections.abc import Callable

    from crash.store_recorder import StoreRecorder


@dataclass(frozen=True, slots=True)
class StoreWorkload:
    """A name and an action."""

    name: str
    run: Callable[[StoreRecorder], None]
    disk: Disk


CATALOG_CHANGE: Final = re.compile(rb"[0-9a-f]{8}:[0-9a-f]{8}:")
STORE_WORKLOADS: Final[dict[str, StoreWorkload]] = {}


def workload(
    name: str, *, disk: Disk = NEW_STORE
) -> Callable[[Callable[[StoreRecorder], None]], Callable[[StoreRecorder], None]]:
    """Add a function to the table of workloads."""

    def enter(run: Callable[[StoreRecorder], None]) -> Callable[[StoreRecorder], None]:
        STORE_WORKLOADS[f"store: {name}"] = StoreWorkload(f"store: {name}", run, disk)
        return run

    return enter


# Topics.


@workload("create")
@workload("create with parents", disk=Disk.of({}))
def create_store(on: StoreRecorder) -> None:
    on.open()
    on.create_topic("orders")
    on.close()
    on.open()
    on.close()


@workload("create after a kill", disk=Disk.of({}))
def create_store_after_a_kill(on: StoreRecorder) -> None:
    """A killed creation leaves names that are visible but not durable, which the next creation finds."""
    for at in range(1, on.chance.choice((2, 3, 10))):
        on.kill_during(on.open, at=at)
    on.open()
    on.create_topic("orders")
    on.close()


@workload("create_topic of three partitions")
def create_topic_of_three(on: StoreRecorder) -> None:
    with on.unobserved():
        on.open()
    on.create_topic("orders", partitions=3, retention_bytes=5000, flush="batch")
    on.close()


@workload("create_topic beside another")
def create_topic_beside_another(on: StoreRecorder) -> None:
    """The records of the existing topic are above its recovery point, and its writers are open."""
    with on.unobserved():
        on.open()
        on.create_topic("payments", partitions=2)
        on.send("payments", 2, 3)
    on.create_topic("orders", partitions=2)
    on.send("orders", 1)
    on.close()


@workload("create_topic refused")
def create_topic_refused(on: StoreRecorder) -> None:
    with on.unobserved():
        on.open()
        on.create_topic("payments")
        on.send("payments", 2)
    with pytest.raises(TopicExists):
        on.store.create_topic("payments", partitions=3)
    with pytest.raises(InvalidConfig):
        on.store.create_topic("orders", config={"retention.hours": 1})
    with pytest.raises(UsageError):
        on.store.create_topic("orders", partitions=0)
    with pytest.raises(UsageError):
        on.store.add_partitions("payments", partitions=1)
    with pytest.raises(TopicNotFound):
        on.store.delete_topic("orders")
    with pytest.raises(TopicNotFound):
        on.store.alter_topic("orders", {"retention.ms": 1})
    on.close()


@workload("add_partitions")
def add_partitions(on: StoreRecorder) -> None:
    with on.unobserved():
        on.open()
        on.create_topic("orders", retention_bytes=100_000)
        on.send("orders", 3)
    on.add_partitions("orders", 3)
    on.send("orders", 1, 1, 1)
    on.close()


@workload("alter_topic")
def alter_topic(on: StoreRecorder) -> None:
    with on.unobserved():
        on.open()
        on.create_topic("orders", partitions=2, retention_bytes=100_000, flush="os")
        on.create_topic("payments")
        on.send("orders", 2, 2)
    on.alter_topic("orders", flush="batch", retention_bytes=50_000)
    on.send("orders", 1, 1)
    on.alter_topic("orders", retention_bytes=None, segment_bytes=2000)
    on.close()


@workload("delete_topic, empty")
def delete_empty_topic(on: StoreRecorder) -> None:
    with on.unobserved():
        on.open()
        on.create_topic("orders", partitions=2)
        on.create_topic("payments")
    on.delete_topic("orders")
    on.close()


@workload("delete_topic with records")
def delete_topic_with_records(on: StoreRecorder) -> None:
    """Some of the records are durable before; those of the other topic do not change."""
    with on.unobserved():
        on.open()
        on.create_topic("orders", partitions=2)
        on.create_topic("payments", flush="batch")
        on.send("orders", 3, 2, size=500)
        on.send("payments", 2)
        on.close()
        on.open()
        on.send("orders", 1, 1)
    on.delete_topic("orders")
    on.send("payments", 1)
    on.close()


@workload("delete_topic with offsets")
def delete_topic_with_offsets(on: StoreRecorder) -> None:
    """Two groups have committed offsets of it, one of them also of another topic."""
    with on.unobserved():
        on.open()
        on.create_topic("orders", partitions=2)
        on.create_topic("payments")
        on.send("orders", 3, 2)
        on.send("payments", 2)
        on.commit("fraud", {("orders", 0): 2, ("orders", 1): 1, ("payments", 0): 1})
        on.commit("billing", {("orders", 0): 1})
        on.maintain()
    on.delete_topic("orders")
    on.close()


class FullDisk(FaultyFiles):
    """A disk without a free block: only the blocks of existing files can be written."""

    __slots__ = ()

    def write(self, handle: int, data: Buffer, position: int) -> None:
        if position + len(data) <= self.inner.size(handle):
            self.inner.write(handle, data, position)
        else:
            FaultyFiles.write(self, handle, data, position)


def fill_disk(on: StoreRecorder) -> None:
    """Let no file grow until the records of "orders" are removed. Call it before the store is opened."""

    disk = on.sim

    def is_full() -> bool:
        return is_filling and any(
            file_name.endswith(names.LOG)
            for name in disk.list(ROOT)
            if name.startswith("orders-")
            for file_name in disk.list(f"{ROOT}/{name}")
        )

    is_filling = False
    full = FullDisk(disk, methods={"write"}, error=errno.ENOSPC, fail_at=1, lasting=True, is_on=is_full)
    on.door = lambda files: full if files is disk else files
    on.open()
    on.create_topic("orders", partitions=3)
    on.create_topic("payments", flush="batch")
    on.send("orders", 3, 2, 1, size=500)
    on.send("payments", 2)
    on.commit("fraud", {("orders", 0): 2, ("orders", 1): 1, ("payments", 0): 1})
    on.maintain()
    is_filling = True


@workload("delete_topic on a full disk")
def delete_topic_on_full_disk(on: StoreRecorder) -> None:
    """The catalog has room for the deletion, but the groups have none for tombstones until the records are gone."""
    with on.unobserved():
        fill_disk(on)
    on.delete_topic("orders")
    on.send("payments", 1)
    on.close()


@workload("delete_topic on a full disk after a kill")
def delete_topic_on_full_disk_after_a_kill(on: StoreRecorder) -> None:
    """Power may be lost at each boundary of the open that finishes it."""
    with on.unobserved():
        fill_disk(on)
    on.kill_during(lambda: on.delete_topic("orders"), at=on.chance.randrange(1, 40))
    on.open()
    on.close()


@workload("delete_topic and create it again")
def delete_and_create_again(on: StoreRecorder) -> None:
    with on.unobserved():
        on.open()
        on.create_topic("orders", partitions=2, flush="batch")
        on.send("orders", 3, 2)
        on.commit("fraud", {("orders", 0): 2})
    on.delete_topic("orders")
    on.create_topic("orders", partitions=1)
    on.send("orders", 2)
    on.close()


def kill_during(
    on: StoreRecorder, prepare: Callable[[StoreRecorder], None], action: Callable[[StoreRecorder], None]
) -> None:
    """Prepare unobserved, and kill the process at a boundary of the action.

    Every other time that is right after a change was written to the catalog, which is not durable then.
    """
    count, named = boundaries_of(on, prepare, action)
    at = on.chance.choice(named) if named and on.chance.random() < 0.5 else on.chance.randrange(1, count + 1)
    with on.unobserved():
        prepare(on)
        on.kill_during(lambda: action(on), at=at)


def boundaries_of(
    on: StoreRecorder, prepare: Callable[[StoreRecorder], None], action: Callable[[StoreRecorder], None]
) -> tuple[int, list[int]]:
    """Return the number of boundaries of an action, and those right after a change was written to the catalog."""
    named: list[int] = []

    def watch(rehearsal: StoreRecorder) -> None:
        last = rehearsal.sim.pending[-1] if rehearsal.sim.pending else None
        is_renamed = isinstance(last, Rename) and last.target == names.TOPICS
        if is_renamed or (isinstance(last, Write) and CATALOG_CHANGE.match(last.data)):
            named.append(rehearsal.boundaries + 1 - before)

    rehearsal = on.twin(watch)
    before = 0
    prepare(rehearsal)
    named.clear()
    before = rehearsal.boundaries
    action(rehearsal)
    return rehearsal.boundaries - before, named


@workload("create_topic after a kill")
def create_topic_after_a_kill(on: StoreRecorder) -> None:
    """The state found by the open is promised from then on, and so are records sent to it."""

    def prepare(on: StoreRecorder) -> None:
        on.open()

    kill_during(on, prepare, lambda on: on.create_topic("orders", flush="batch"))
    on.open()
    if on.promise.topics["orders"][-1] is not None:
        on.send("orders", 2)
    on.close()


@workload("add_partitions after a kill")
def add_partitions_after_a_kill(on: StoreRecorder) -> None:
    def prepare(on: StoreRecorder) -> None:
        on.open()
        on.create_topic("orders", flush="batch")
        on.send("orders", 2)

    kill_during(on, prepare, lambda on: on.add_partitions("orders", 2))
    on.open()
    on.send("orders", *([1] * len(on.topic("orders").logs)))
    on.close()


@workload("alter_topic after a kill")
def alter_topic_after_a_kill(on: StoreRecorder) -> None:
    def prepare(on: StoreRecorder) -> None:
        on.open()
        on.create_topic("orders", flush="batch", retention_bytes=10**6)

    kill_during(on, prepare, lambda on: on.alter_topic("orders", retention_bytes=10**7, segment_bytes=2000))
    on.open()
    on.send("orders", 1)
    on.close()


@workload("delete_topic after a kill")
def delete_after_a_kill(on: StoreRecorder) -> None:
    """Power may be lost at each boundary of the open that finishes it."""

    def prepare(on: StoreRecorder) -> None:
        on.open()
        on.create_topic("orders", partitions=2)
        on.send("orders", 2, 2)
        on.commit("fraud", {("orders", 0): 2})
        on.close()
        on.open()

    kill_during(on, prepare, lambda on: on.delete_topic("orders"))
    on.open()
    on.close()


@workload("a commit after a kill")
def commit_after_a_kill(on: StoreRecorder) -> None:
    def prepare(on: StoreRecorder) -> None:
        on.open()
        on.create_topic("orders", flush="batch")
        on.send("orders", 3)
        on.commit("fraud", {("orders", 0): 1})

    kill_during(on, prepare, lambda on: on.commit("fraud", {("orders", 0): 2}))
    on.open()
    on.commit("billing", {("orders", 0): 3})
    on.close()


# Groups.


@workload("the first commit")
def first_commit(on: StoreRecorder) -> None:
    """The first commit creates `__consumer_offsets`."""
    with on.unobserved():
        on.open()
        on.create_topic("orders", partitions=2, flush="batch")
        on.send("orders", 2, 1)
    on.commit("fraud", {("orders", 0): 1})
    on.close()


@workload("commits")
def commits(on: StoreRecorder) -> None:
    """Commits of several groups, some of which share a partition: all offsets of a group or none."""
    with on.unobserved():
        on.open()
        on.create_topic("orders", partitions=2)
        on.send("orders", 5, 5)
        on.maintain()
        on.commit("fraud", {("orders", 0): 1})
    on.commit("fraud", {("orders", 0): 2, ("orders", 1): 3})
    on.commit("billing", {("orders", 1): 5})
    on.commit("fraud", {("orders", 0): 5})
    on.kill()
    on.open()
    on.commit("billing", {("orders", 1): 2})
    on.close()


@workload("two stores commit in turn")
def commits_of_two(on: StoreRecorder) -> None:
    """Each store keeps the log open, and reads what the other has appended."""
    with on.unobserved():
        on.open()
        on.create_topic("orders", partitions=2)
        on.send("orders", 5, 5)
        on.maintain()
        other = on.open_another()
        on.commit("fraud", {("orders", 0): 1})
        on.commit("fraud", {("orders", 0): 2}, by=other)
    on.commit("fraud", {("orders", 1): 3})
    on.commit("fraud", {("orders", 0): 4}, by=other)
    on.commit("fraud", {("orders", 0): 5})
    other.close()
    on.commit("fraud", {("orders", 1): 4})
    on.kill()
    on.open()
    on.commit("fraud", {("orders", 1): 5})
    on.close()


@workload("commits that are compacted as they come")
def compacted_commits(on: StoreRecorder) -> None:
    with on.unobserved():
        on.open()
        on.create_topic("orders", partitions=2)
        on.send("orders", 5, 5)
        on.maintain()
        on.commit("fraud", {("orders", 0): 1})
    with mock.patch.multiple("seeklog.groups.groups", ROLL_RECORDS=3, ROLL_FACTOR=1):
        for offset in range(1, 5):
            on.commit("fraud", {("orders", 0): offset, ("orders", 1): offset})
    on.commit("billing", {("orders", 0): 5})
    on.close()


@workload("a consumer joins and leaves")
def join_and_leave(on: StoreRecorder) -> None:
    with on.unobserved():
        on.open()
        on.create_topic("orders", partitions=2)
        on.send("orders", 3, 3)
        on.maintain()
        on.commit("fraud", {("orders", 0): 1})
    consumer = on.join("fraud", ["orders"])
    assert on.poll("fraud", consumer) > 0
    on.commit_of("fraud", consumer)
    on.leave("fraud", consumer)
    on.close()


@workload("two consumers, one killed")
def two_consumers(on: StoreRecorder) -> None:
    """They share the partitions; after the kill a third consumer has all of them, from the committed offsets."""
    with on.unobserved():
        on.open()
        on.create_topic("orders", partitions=2)
        on.send("orders", 3, 3)
        on.maintain()
        first = on.join("fraud", ["orders"])
    second = on.join("fraud", ["orders"])
    for _ in range(3):
        for consumer in (first, second):
            on.clock.advance(1000)
            on.poll("fraud", consumer)
    on.commit_of("fraud", second)
    on.kill()
    on.open()
    third = on.join("fraud", ["orders"])
    assert len(third.assignment) == 2
    on.poll("fraud", third)
    on.leave("fraud", third)
    on.close()


@workload("reset_offsets and delete_group")
def reset_and_delete_group(on: StoreRecorder) -> None:
    with on.unobserved():
        on.open()
        on.create_topic("orders", partitions=2)
        on.send("orders", 3, 3)
        on.maintain()
        on.commit("fraud", {("orders", 0): 1})
        on.commit("billing", {("orders", 0): 3})
    on.reset_offsets("fraud", "orders", 2)
    on.delete_group("fraud")
    on.commit("fraud", {("orders", 1): 1})
    on.close()


# Records.


def send_to_several(on: StoreRecorder, flush: str) -> None:
    with on.unobserved():
        on.open()
        on.create_topic("payments", flush="batch")
        on.create_topic("orders", partitions=3, flush=flush)
        on.send("payments", 1)
    on.send("orders", 3, 2, 1)
    on.send("payments", 1)
    on.clock.advance(1500)
    on.send("orders", 0, 4, 1, size=900)
    on.maintain()
    on.send("orders", 1, 1, 1)
    on.close()


@workload("sends, flush=batch")
def sends_batch(on: StoreRecorder) -> None:
    send_to_several(on, "batch")


@workload("sends, flush=os")
def sends_os(on: StoreRecorder) -> None:
    send_to_several(on, "os")


@workload("sends, flush=interval")
def sends_interval(on: StoreRecorder) -> None:
    send_to_several(on, "interval")


def send_in_turn(on: StoreRecorder, flush: str) -> None:
    """Two stores write the same partitions: each appends, rolls and retains what the other has appended."""
    with on.unobserved():
        on.open()
        on.create_topic("orders", partitions=2, flush=flush, segment_bytes=2000, retention_bytes=6000)
        on.send("orders", 1, 1)
        other = on.open_another()
        on.send("orders", 1, 1, by=other)
    on.send("orders", 1)
    on.send("orders", 2, 1, by=other)
    on.clock.advance(1500)
    on.store.maintain()
    on.send("orders", 2, size=900)
    on.send("orders", 3, size=900, by=other)
    other.maintain()
    on.send("orders", 1, 1)
    other.close()
    on.send("orders", 1)
    on.close()


@workload("two stores send in turn, flush=batch")
def send_in_turn_batch(on: StoreRecorder) -> None:
    send_in_turn(on, "batch")


@workload("two stores send in turn, flush=os")
def send_in_turn_os(on: StoreRecorder) -> None:
    send_in_turn(on, "os")


@workload("two stores send in turn, flush=interval")
def send_in_turn_interval(on: StoreRecorder) -> None:
    send_in_turn(on, "interval")


@workload("two stores send in turn, one killed")
def send_in_turn_and_kill(on: StoreRecorder) -> None:
    """The killed one has the lock, or has returned it with records that are not synced."""
    with on.unobserved():
        on.open()
        on.create_topic("orders", partitions=2, flush=on.chance.choice(("batch", "os", "interval")))
        on.send("orders", 2, 2)
        other = on.open_another()
        on.send("orders", 1, by=other)
        on.send("orders", 1)
    on.send("orders", 2, 1, by=other)
    on.kill_another(other)
    on.send("orders", 1, 1)
    other = on.open_another()
    on.send("orders", 1, 1, by=other)
    on.send("orders", 1)
    on.kill_another(other)
    on.maintain()
    on.send("orders", 1)
    on.close()


@workload("a transaction beside another store's producer")
def transaction_beside_a_producer(on: StoreRecorder) -> None:
    with on.unobserved():
        on.open()
        on.create_topic("orders", partitions=2, flush="interval")
        other = on.open_another()
        for by in (other, on.store, other):
            on.send("orders", 1, 1, by=by)
    on.transact("app", 1, {("orders", 0): [2], ("orders", 1): [1, 1]})
    on.send("orders", 1, 1, by=other)
    on.transact("app", 2, {("orders", 0): [1]})
    on.send("orders", 1)
    other.close()
    on.close()


@workload("maintain with retention")
def maintain_with_retention(on: StoreRecorder) -> None:
    with on.unobserved():
        on.open()
        on.create_topic("orders", partitions=2, retention_ms=5000, flush="batch")
        on.create_topic("payments", retention_bytes=1500)
        on.create_topic("audit")
        for _ in range(8):
            on.send("orders", 1, 1, size=600)
            on.send("payments", 1, size=900)
            on.send("audit", 1, size=600)
            on.clock.advance(1000)
    on.maintain()
    on.send("orders", 1, 1)
    on.clock.advance(60_000)
    on.maintain()
    on.close()


@workload("reopen")
def reopen_again_and_again(on: StoreRecorder) -> None:
    """The store is closed or killed after each round, and the next open reads the root's checkpoints."""
    with on.unobserved():
        on.open()
        on.create_topic("orders", partitions=2)
        on.create_topic("payments", flush="batch")
    for _ in range(3):
        on.send("orders", 1, 2)
        on.send("payments", 1)
        if on.chance.random() < 0.5:
            on.kill()
        else:
            on.close()
        on.open()
    on.close()


# Crashes after a crash.


def lose_power_again_and_again(on: StoreRecorder) -> None:
    """Lose power at the first boundary of the open, then at the second boundary of the next open, and so on."""
    for at in range(1, 60):
        if not on.lose_power_during(on.open, at=at):
            break
    on.open()
    on.close()


@workload("recovery of a recovery, create_topic")
def recovery_of_create(on: StoreRecorder) -> None:
    with on.unobserved():
        on.open()
        on.create_topic("payments", flush="batch")
        on.send("payments", 2)
    on.lose_power_during(lambda: on.create_topic("orders", partitions=2), at=on.chance.randrange(5, 90))
    lose_power_again_and_again(on)


@workload("recovery of a recovery, add_partitions")
def recovery_of_grow(on: StoreRecorder) -> None:
    with on.unobserved():
        on.open()
        on.create_topic("orders", flush="batch")
        on.send("orders", 2)
    on.lose_power_during(lambda: on.add_partitions("orders", 3), at=on.chance.randrange(5, 90))
    lose_power_again_and_again(on)


@workload("recovery of a recovery, delete_topic")
def recovery_of_delete(on: StoreRecorder) -> None:
    with on.unobserved():
        on.open()
        on.create_topic("orders", partitions=2, flush="batch")
        on.create_topic("payments", flush="batch")
        on.send("orders", 2, 1)
        on.send("payments", 1)
        on.commit("fraud", {("orders", 0): 1, ("payments", 0): 1})
    on.lose_power_during(lambda: on.delete_topic("orders"), at=on.chance.randrange(5, 50))
    lose_power_again_and_again(on)


@workload("anything")
def anything(on: StoreRecorder) -> None:
    """Calls in random order, with kills and power losses between and inside them."""
    chance = on.chance
    on.open()
    on.create_topic("audit", partitions=2, flush="batch")
    for _ in range(14):
        there = {name for name, possible in on.promise.topics.items() if possible[-1] is not None}
        absent = [name for name in ("orders", "payments") if name not in there]
        name = chance.choice(sorted(there))
        count = len(on.topic(name).logs)

        def send(name: str = name, count: int = count) -> None:
            on.send(name, *(chance.randrange(3) for _ in range(count)), size=chance.choice((40, 700)))

        calls: list[Callable[[], object]] = [
            send,
            send,
            lambda name=name: on.commit(chance.choice(("fraud", "billing")), {(name, 0): 0}),
            on.maintain,
            lambda name=name: on.alter_topic(name, retention_bytes=chance.randrange(10**6, 10**7)),
        ]
        if count < 3:
            calls.append(lambda name=name, count=count: on.add_partitions(name, count + 1))
        if absent:
            made = chance.choice(absent)
            calls += [lambda made=made: on.create_topic(made, partitions=chance.choice((1, 2)))] * 2
        if name != "audit":
            calls += [lambda name=name: on.delete_topic(name)] * 2
        call = chance.choice(calls)
        fate = chance.random()
        # The producer's thread must not end in the middle of a call.
        if fate < 0.2 and call is not send:
            on.lose_power_during(call, at=chance.randrange(1, 60))
        elif fate < 0.3 and call is not send:
            on.kill_during(call, at=chance.randrange(1, 60))
        elif fate < 0.4:
            call()
            on.close()
        else:
            call()
        if not on.is_open:
            on.open()
    on.close()
