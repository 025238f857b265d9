"""Workloads of transactions whose crash states are explored.

They are in the same table as those of `store_workloads`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from crash.store_workloads import workload
from seeklog import names
from seeklog.log.staging import STALE_MS
from seeklog.store import transactions_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from crash.store_recorder import StoreRecorder

APP: Final = "query"
# So many or more has a commit to two partitions, with the staging before it.
BOUNDARIES: Final = 60
Counts = dict[tuple[str, int], tuple[int, ...]]
# The numbers of records in one and in two files per partition.
TWO_PARTITIONS: Final[Counts] = {("orders", 0): (2,), ("orders", 1): (1, 2)}
TWO_TOPICS: Final[Counts] = {("orders", 1): (2, 1), ("payments", 0): (3,)}


def with_topics(on: StoreRecorder, *, flush: str = "os") -> None:
    """Create two topics with records, some of them durable, and a committed transaction."""
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

    Every other kill is right after the rename of the transaction, as committing or done, which is not durable then.
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


# Commits interrupted only by power losses.


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
    """The committing store has the logs open for writing; their last records are above the recovery point."""
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
    """The log sets timestamps, so an appended batch has another CRC than the staged one."""
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
    """Like that of a batch job without an id: complete or not at all."""
    with on.unobserved():
        with_topics(on)
    on.transact("job-1", 0, TWO_PARTITIONS, keep=False)
    on.transact("job-2", 0, {("orders", 1): (1,)}, keep=False)
    on.close()


@workload("an empty transaction")
def empty_transaction(on: StoreRecorder) -> None:
    with on.unobserved():
        with_topics(on)
    assert transactions_of(on.store).commit("other", 7, [])
    assert not transactions_of(on.store).commit("other", 7, [])
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


# Interrupted commits, and the commits that finish them. Power may be lost at each operation.


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
    """Another process opens one of the partitions and appends a record."""
    kill_commit(on)
    on.append_through_log("orders", on.chance.randrange(2), b"somebody's own")
    on.open()
    commit(on)
    on.close()


@workload("a transaction after a kill, finished by a commit of another")
def finished_by_another_commit(on: StoreRecorder) -> None:
    """Another application has committed before, and commits to one of the partitions."""
    kill_commit(on)
    on.open(finishes=False)
    on.transact("other", 3, {("orders", 1): (1,)})
    commit(on)
    on.close()


@workload("a transaction after a kill, finished by the next")
def finished_by_the_next(on: StoreRecorder) -> None:
    kill_commit(on)
    on.open(finishes=False)
    if transactions_of(on.store).last_version(APP) == 1:
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
    """The part of the other topic is finished; the name can be used for a new topic."""
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
    """Its staged files are removed, except those of a committed and interrupted transaction."""
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
    """Files staged a day ago are removed; those of a committed transaction stay until they are appended."""
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
    """Kill a commit at a boundary, and open the store two days later."""
    with on.unobserved():
        on.open()
        transaction = on.transaction(APP, 1, TWO_PARTITIONS)
        staged = transaction.stage(on.store)
        on.kill_during(partial(on.commit_staged, transaction, staged), at=on.chance.randrange(1, 40))
        on.clock.advance(2 * STALE_MS)


@workload("recovery of a recovery, a transaction")
def recovery_of_a_transaction(on: StoreRecorder) -> None:
    """Lose power in the commit, then at the first boundary of the open, the second of the next open, and so on."""
    kill_commit(on, loses_power=True)
    for at in range(1, 60):
        if not on.lose_power_during(on.open, at=at):
            break
    on.open()
    commit(on)
    on.close()


@workload("any transactions")
def any_transactions(on: StoreRecorder) -> None:
    """Commits, sends, and kills in random order."""
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
        # A restarted driver repeats its last batch before the next one.
        on.transact(app, versions[app], counts)
        versions[app] += 1
    on.close()
