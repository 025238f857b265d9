"""What is committed to a store in transactions while the disk watches for every way to break it.

These are workloads of a store like those of `store_workloads`, and stand in the same table.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from crash.store_workloads import workload
from seeklog import names
from seeklog.log.staging import STALE_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from crash.store_recorder import StoreRecorder

APP: Final = "query"
# So many or more has a commit to two partitions, with the staging before it.
BOUNDARIES: Final = 60
Counts = dict[tuple[str, int], tuple[int, ...]]
# One and two files to a partition: so many records in each.
TWO_PARTITIONS: Final[Counts] = {("orders", 0): (2,), ("orders", 1): (1, 2)}
TWO_TOPICS: Final[Counts] = {("orders", 1): (2, 1), ("payments", 0): (3,)}


def with_topics(on: StoreRecorder, *, flush: str = "os") -> None:
    """Two topics with records, some of which are durable, and a transaction that is done."""
    on.open()
    on.create_topic("orders", partitions=2, flush=flush)
    on.create_topic("payments", flush=flush)
    on.transact(APP, 0, {("orders", 0): (1,)})
    on.send("orders", 1, 2)
    on.maintain()


def commit(
    on: StoreRecorder, version: int = 1, counts: Mapping[tuple[str, int], Sequence[int]] = TWO_PARTITIONS
) -> None:
    on.transact(APP, version, counts)


def kill_commit(
    on: StoreRecorder,
    *,
    prepare: Callable[[StoreRecorder], None] = with_topics,
    counts: Counts = TWO_PARTITIONS,
    loses_power: bool = False,
) -> None:
    """Prepare unobserved, and kill the process, or lose power, at a boundary of a commit.

    Every other kill comes when the transaction has its name, as committing or done, but the name is not durable.
    """
    with on.unobserved():
        prepare(on)
        act = partial(commit, on, counts=counts)
        if loses_power:
            on.lose_power_during(act, at=on.chance.randrange(1, BOUNDARIES))
        elif on.chance.random() < 0.5:
            on.kill_when(act, names.transaction_name(names.app_key(APP)), times=on.chance.choice((1, 2)))
        else:
            on.kill_during(act, at=on.chance.randrange(1, BOUNDARIES))


# Commits that nobody interrupts but the power.


def commit_twice(on: StoreRecorder, flush: str) -> None:
    with on.unobserved():
        with_topics(on, flush=flush)
    commit(on)
    commit(on, 2, {("orders", 1): (1,)})
    on.close()


@workload("a transaction, flush=os")
def transaction_os(on: StoreRecorder) -> None:
    commit_twice(on, "os")


@workload("a transaction, flush=interval")
def transaction_interval(on: StoreRecorder) -> None:
    commit_twice(on, "interval")


@workload("a transaction, flush=batch")
def transaction_batch(on: StoreRecorder) -> None:
    commit_twice(on, "batch")


@workload("a transaction over two topics")
def transaction_over_two_topics(on: StoreRecorder) -> None:
    with on.unobserved():
        with_topics(on)
        on.close()
        on.open()
    commit(on, counts=TWO_TOPICS)
    on.close()


@workload("a transaction behind records that are not synced")
def transaction_behind_unsynced_records(on: StoreRecorder) -> None:
    """The store that commits has the logs open for writing; their last records are above the recovery point."""
    with on.unobserved():
        with_topics(on)
        on.send("orders", 2, 1)
    commit(on)
    on.send("orders", 1, 1)
    commit(on, 2)
    on.close()


@workload("a transaction behind records of a killed process")
def transaction_behind_killed_records(on: StoreRecorder) -> None:
    with on.unobserved():
        with_topics(on)
        on.send("orders", 2, 1)
        on.kill()
        on.open()
    commit(on)
    on.close()


@workload("a transaction that rolls")
def transaction_that_rolls(on: StoreRecorder) -> None:
    """Each partition's part spans segments; the batches of one chunk do not fit in one."""
    with on.unobserved():
        on.open()
        on.create_topic("orders", partitions=2, segment_bytes=400, max_message_bytes=400)
        on.create_topic("payments")
        on.transact(APP, 0, {("orders", 0): (3,)})
    commit(on, counts={("orders", 0): (5, 4), ("orders", 1): (6,)})
    on.close()


@workload("a transaction, LogAppendTime")
def transaction_with_append_time(on: StoreRecorder) -> None:
    """The log stamps its own time, so a batch that was appended has another CRC than the one that was staged."""
    with on.unobserved():
        append_time(on)
    commit(on)
    on.close()


def append_time(on: StoreRecorder) -> None:
    on.open()
    on.create_topic("orders", partitions=2, message_timestamp_type="LogAppendTime")
    on.create_topic("payments")
    on.transact(APP, 0, {("orders", 1): (1,)})


@workload("a transaction that is not remembered")
def transaction_not_remembered(on: StoreRecorder) -> None:
    """Such as one of a batch job without an id: whole or not at all, too."""
    with on.unobserved():
        with_topics(on)
    on.transact("job-1", 0, TWO_PARTITIONS, keep=False)
    on.transact("job-2", 0, {("orders", 1): (1,)}, keep=False)
    on.close()


@workload("an empty transaction")
def empty_transaction(on: StoreRecorder) -> None:
    with on.unobserved():
        with_topics(on)
    assert on.store.transactions.commit("other", 7, [])
    assert not on.store.transactions.commit("other", 7, [])
    commit(on)
    on.close()


@workload("transactions of two applications")
def transactions_of_two_applications(on: StoreRecorder) -> None:
    with on.unobserved():
        with_topics(on)
    on.transact("first", 4, TWO_PARTITIONS)
    on.transact("second", 9, {("orders", 1): (1,), ("orders", 0): (1, 1)})
    assert not on.transact("first", 4, TWO_PARTITIONS)
    on.close()


# Interrupted commits, and the commits that finish them. Power may fail at each operation.


@workload("a transaction after a kill, replayed")
def replayed_after_a_kill(on: StoreRecorder) -> None:
    kill_commit(on)
    on.open()
    commit(on)
    on.close()


@workload("a transaction after a power loss, replayed")
def replayed_after_a_power_loss(on: StoreRecorder) -> None:
    kill_commit(on, loses_power=True)
    on.open()
    commit(on)
    commit(on, 2)
    on.close()


@workload("a transaction after a kill, finished by a log")
def finished_by_a_log(on: StoreRecorder) -> None:
    """Somebody opens one of the partitions by itself and appends a record of his own."""
    kill_commit(on)
    on.append_through_log("orders", on.chance.randrange(2), b"somebody's own")
    on.open()
    commit(on)
    on.close()


@workload("a transaction after a kill, finished by a commit of another")
def finished_by_another_commit(on: StoreRecorder) -> None:
    """Another application was there before, and commits to one of the partitions."""
    kill_commit(on)
    on.open(finishes=False)
    on.transact("other", 3, {("orders", 1): (1,)})
    commit(on)
    on.close()


@workload("a transaction after a kill, finished by the next")
def finished_by_the_next(on: StoreRecorder) -> None:
    kill_commit(on)
    on.open(finishes=False)
    if on.store.transactions.last_version(APP) == 1:
        commit(on, 2, {("orders", 0): (1,)})
    else:
        commit(on)
    on.close()


@workload("a transaction after a kill, LogAppendTime")
def append_time_after_a_kill(on: StoreRecorder) -> None:
    kill_commit(on, prepare=append_time)
    on.append_through_log("orders", on.chance.randrange(2), None)
    on.open()
    commit(on)
    on.close()


@workload("a transaction after a kill, rolling")
def rolling_after_a_kill(on: StoreRecorder) -> None:
    def prepare(on: StoreRecorder) -> None:
        on.open()
        on.create_topic("orders", partitions=2, segment_bytes=400, max_message_bytes=400)
        on.create_topic("payments")

    kill_commit(on, prepare=prepare, counts={("orders", 0): (4, 3), ("orders", 1): (5,)})
    on.open()
    commit(on, counts={("orders", 0): (4, 3), ("orders", 1): (5,)})
    on.close()


@workload("a transaction whose topic is deleted before it is finished")
def deleted_before_it_is_finished(on: StoreRecorder) -> None:
    """What it had for the other topic is finished; the name may be given to a new one."""
    kill_commit(on, counts=TWO_TOPICS)
    on.open(finishes=False)
    on.delete_topic("payments")
    if on.chance.random() < 0.5:
        on.create_topic("payments", partitions=1)
    on.close()
    on.open()
    on.close()


@workload("a failed job is discarded")
def discarded(on: StoreRecorder) -> None:
    """Its staging goes, but for what a transaction names that was committed and interrupted."""
    kill_commit(on)
    on.discard(APP)
    on.open(finishes=False)
    on.transaction("failed", 0, {("orders", 0): (2,)}).stage(on.store)
    on.discard("failed")
    on.discard(APP)
    commit(on)
    on.close()


@workload("stale staging is swept")
def stale_staging(on: StoreRecorder) -> None:
    """What nobody committed for a day goes; what a transaction names stays until it is appended, however old."""
    with on.unobserved():
        with_topics(on)
        on.transaction("lost", 0, {("orders", 0): (2,), ("orders", 1): (1,)}).stage(on.store)
        on.close()
    kill_commit_later(on)
    on.append_through_log("orders", 0, b"somebody's own")
    on.open()
    commit(on)
    on.close()


def kill_commit_later(on: StoreRecorder) -> None:
    """Kill a commit at a boundary, and come back two days later."""
    with on.unobserved():
        on.open()
        transaction = on.transaction(APP, 1, TWO_PARTITIONS)
        staged = transaction.stage(on.store)
        on.kill_during(partial(on.commit_staged, transaction, staged), at=on.chance.randrange(1, 40))
        on.clock.advance(2 * STALE_MS)


@workload("recovery of a recovery, a transaction")
def recovery_of_a_transaction(on: StoreRecorder) -> None:
    """Power is lost in the commit, then at the first boundary of the open, the second of the next one, and so on."""
    kill_commit(on, loses_power=True)
    for at in range(1, 60):
        if not on.lose_power_during(on.open, at=at):
            break
    on.open()
    commit(on)
    on.close()


@workload("any transactions")
def any_transactions(on: StoreRecorder) -> None:
    """Commits, sends and kills in an order drawn by lot."""
    chance = on.chance
    with on.unobserved():
        with_topics(on, flush=chance.choice(("os", "batch")))
    versions = {"first": 0, "second": 0}
    for _ in range(7):
        app = chance.choice(sorted(versions))
        counts = {
            place: tuple(chance.randrange(1, 3) for _ in range(chance.choice((1, 2))))
            for place in chance.sample([("orders", 0), ("orders", 1), ("payments", 0)], chance.choice((1, 2, 3)))
        }
        act = partial(on.transact, app, versions[app], counts)
        fate = chance.random()
        if fate < 0.3:
            on.kill_during(act, at=chance.randrange(1, 70))
        elif fate < 0.6:
            on.lose_power_during(act, at=chance.randrange(1, 70))
        else:
            act()
            if fate < 0.8:
                on.send("orders", 1, 1)
        if not on.is_open:
            if chance.random() < 0.3:
                on.append_through_log("orders", chance.randrange(2), None)
            on.open()
        # A driver that comes back does its last batch again before the next one.
        on.transact(app, versions[app], counts)
        versions[app] += 1
    on.close()
