"""Transactions on a disk that loses power: cases that were wrong once, or easily are."""

from __future__ import annotations

import contextlib
import random
from typing import TYPE_CHECKING, Any, Final

import pytest

import crash.transaction_workloads  # enters its workloads  # noqa: F401
from crash.faulty import FaultyFiles
from crash.recorder import PowerLoss
from crash.sim import SimFiles
from crash.store_explore import StoreExplorer
from crash.store_recorder import ROOT, StoreRecorder, look_at_topics, open_store, reopen_store
from crash.store_workloads import STORE_WORKLOADS
from crash.test_store_crash_states import NoPartitionSync, NoRootSync, NoSync
from seeklog import Log, Record, names
from seeklog.errors import DiskFull, LogLocked, SeeklogError
from seeklog.log import transaction as storage_transaction
from seeklog.log.partition import Partition
from seeklog.log.transaction import Part, Transaction
from seeklog.record.batch import encode_batch
from seeklog.store import transactions_of
from seeklog.topics import transactions as topics_transactions
from seeklog.topics.transactions import Transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from crash.transaction_promise import TransactionPromise

APP: Final = "query"
COUNTS: Final = {("orders", 0): (2,), ("orders", 1): (1, 2)}
INTENT: Final = names.transaction_name(names.app_key(APP))


@pytest.fixture
def on() -> StoreRecorder:
    recorder = StoreRecorder(chance=random.Random(1))
    recorder.open()
    recorder.create_topic("orders", partitions=2)
    recorder.transact(APP, 0, {("orders", 0): (1,)})
    return recorder


def interrupt(on: StoreRecorder) -> TransactionPromise:
    """Kill the committing process right after the rename of the transaction, which is not durable."""
    on.kill_when(lambda: on.transact(APP, 1, COUNTS), INTENT)
    return on.promise.transactions[-1]


def judge(on: StoreRecorder, *disks: Any) -> None:
    """Open each disk and commit the last transaction again: all of it exists once."""
    for disk in disks:
        outcome = reopen_store(disk, now_ms=on.clock.now_ms(), transactions=on.promise.transactions)
        assert not on.promise.violations(outcome, is_power_loss=True)


@pytest.mark.id("transaction-intent-first")
def test_transaction_is_durable_before_its_first_append(on: StoreRecorder) -> None:
    """Goal: a power loss after a finished part must not undo the transaction, which Spark would repeat."""
    transaction = interrupt(on)
    Log(f"{ROOT}/orders-1", files=on.sim, clock=on.clock, background=False).close()

    judge(on, on.sim.durable_disk(), on.sim.disk())
    with open_store(SimFiles(on.sim.durable_disk())) as store:
        assert not list(transaction.violations(look_at_topics(store), must_be_there=True))


def test_refused_version_stays_refused(on: StoreRecorder) -> None:
    """Goal: a committed transaction survives a power loss, even without records."""
    transactions = transactions_of(on.store)
    on.kill_when(lambda: transactions.commit(APP, 1, []), INTENT)
    # Of a store that was open before, because an open syncs the root.
    transactions._files = on.sim
    assert not transactions.commit(APP, 1, [])

    with open_store(SimFiles(on.sim.durable_disk())) as store:
        assert transactions_of(store).last_version(APP) == 1


def test_commit_stopped_by_full_disk_continues_with_open_logs(on: StoreRecorder) -> None:
    """Goal: a store that has the partitions open loses nothing when it commits again."""
    on.files = faulty = FaultyFiles(on.sim, methods=("write",), error=28, only=".log")
    on.open()
    on.send("orders", 1, 1)
    faulty.calls, faulty.fail_at = 0, 2  # the first partition has its part, the second has not
    with pytest.raises(DiskFull):
        on.transact(APP, 1, COUNTS)
    faulty.heal()

    assert not on.transact(APP, 1, COUNTS)
    on.close()
    judge(on, on.sim.durable_disk())


def test_records_sent_after_a_failed_commit_come_after_it(on: StoreRecorder) -> None:
    on.files = faulty = FaultyFiles(on.sim, methods=("write",), error=28, only=".log")
    on.open()
    on.send("orders", 1, 1)
    faulty.calls, faulty.fail_at = 0, 2
    with pytest.raises(DiskFull):
        on.transact(APP, 1, COUNTS)
    faulty.heal()

    with on.store.producer() as producer:
        producer.send("orders", b"later", partition=1)
    transaction = on.promise.transactions[-1]
    with open_store(SimFiles(on.sim.disk())) as store:
        assert [record.value for record in store.log("orders", 1).scan()][-1] == b"later"
        assert not list(transaction.violations(look_at_topics(store), must_be_there=True))


@pytest.mark.parametrize("time", ["CreateTime", "LogAppendTime"])
def test_append_by_a_broker_does_not_duplicate_a_part(on: StoreRecorder, time: str) -> None:
    """Goal: a part that was appended after a broker's records counts as appended after a kill."""
    on.alter_topic("orders", message_timestamp_type=time)
    transaction = interrupt(on)
    path = f"{ROOT}/orders-1/{names.segment_name(0, names.LOG)}"
    # As large as the first batch that was staged, with as many records: only its bytes are others.
    (first, *_), _ = next((records, place) for place, records in transaction.files if place.partition == 1)
    assert first.value is not None
    foreign = encode_batch(
        [Record(bytes(len(first.value)), key=b"key", timestamp_ms=first.timestamp_ms)],
        log_append_time=time == "LogAppendTime",
        now_ms=on.clock.now_ms(),
    )
    handle = on.sim.open(path, write=True)
    on.sim.write(handle, foreign, on.sim.size(handle))
    on.sim.close(handle)

    with open_store(SimFiles(on.sim.disk()), clock=on.clock) as store:
        config = store.describe_topic("orders").config
    for _ in range(3):
        with contextlib.suppress(PowerLoss), killed_before_staging_is_removed(on.sim):
            Log(f"{ROOT}/orders-1", config=config, files=on.sim, clock=on.clock, background=False)
        on.sim.process_crash()
    with open_store(on.sim, clock=on.clock) as store:
        assert not list(transaction.violations(look_at_topics(store), must_be_there=True))
        assert store.log("orders", 1).log_end_offset == 1 + 3


@contextlib.contextmanager
def killed_before_staging_is_removed(sim: SimFiles) -> Iterator[None]:
    def remove(path: str) -> None:
        if names.STAGED in path:
            raise PowerLoss
        SimFiles.remove(sim, path)

    sim.remove = remove  # type: ignore[method-assign]
    try:
        yield
    finally:
        del sim.remove


class Interrupted:
    """A disk that runs an action before the store first lists a directory."""

    def __init__(self, on: StoreRecorder, happens: Callable[[], None]) -> None:
        self._on = on
        self._happens: Callable[[], None] | None = happens

    def __getattr__(self, name: str) -> Any:
        return getattr(self._on.sim, name)

    def list(self, directory: str) -> list[str]:
        happens, self._happens = self._happens, None
        if happens is not None:
            happens()
        return self._on.sim.list(directory)


def test_failing_job_keeps_files_of_a_concurrent_commit(on: StoreRecorder) -> None:
    """Goal: aborting a job of the same query does not remove the files of a commit."""
    staged = on.transaction(APP, 1, COUNTS)
    staged_files = staged.stage(on.store)

    def commit() -> None:
        with contextlib.suppress(LogLocked, PowerLoss):
            on.kill_when(lambda: on.commit_staged(staged, staged_files), INTENT)

    with open_store(on.sim, read_only=True, clock=on.clock) as reading:
        transactions_of(reading)._files = Interrupted(on, commit)  # type: ignore[assignment]
        transactions_of(reading).discard(APP)

    judge(on, on.sim.disk())


def test_lock_on_a_file_removed_while_waiting_does_not_count(on: StoreRecorder) -> None:
    """Goal: a job with a unique id removes its lock file; a process that had opened it must not get the lock."""
    path = f"{ROOT}/{INTENT}{names.LOCK}"
    removed = [True]

    class Removing(SimFiles):
        def lock(self, handle: int, path: str, owner: str) -> str:
            if removed and path.endswith(INTENT + names.LOCK):
                removed.pop()
                self.remove(path)
            return super().lock(handle, path, owner)

    sim = Removing(on.sim.disk())
    with open_store(sim, clock=on.clock) as store:
        with pytest.raises(LogLocked):
            transactions_of(store).commit(APP, 1, [], wait_s=0)
        assert transactions_of(store).commit(APP, 1, [])
        assert sim.kind(path) == "file"


# Stores that leave out a step.


class NoStagedSync(SimFiles):
    """A disk that does not make the bytes of staged files durable."""

    def sync(self, handle: int) -> None:
        if names.STAGED not in self._handle(handle).path:
            super().sync(handle)


class NoTransactionSync(SimFiles):
    """A disk that does not make the bytes of transactions durable."""

    def sync(self, handle: int) -> None:
        if names.TRANSACTION not in self._handle(handle).path:
            super().sync(handle)


@pytest.mark.parametrize(
    ("disk_type", "name"),
    [
        (NoSync, "a transaction, flush=os"),
        (NoStagedSync, "a transaction over two topics"),
        (NoTransactionSync, "a transaction over two topics"),
        (NoRootSync, "a transaction over two topics"),
        (NoPartitionSync, "a transaction over two topics"),
        (NoRootSync, "a transaction after a kill, replayed"),
    ],
)
def test_commit_without_a_sync_is_caught(disk_type: type[SimFiles], name: str) -> None:
    """Goal: the suite can fail. A disk that ignores a call stands for a store that never makes it."""
    assert is_caught(name, disk_type=disk_type)


class FirstViolation(StoreExplorer):
    """Explores until the first violation."""

    @property
    def _has_seen_enough(self) -> bool:
        return bool(self.tally.violations)


def is_caught(name: str, *, seed: int = 1, disk_type: type[SimFiles] = SimFiles) -> bool:
    explorer = FirstViolation(STORE_WORKLOADS[f"store: {name}"], seed=seed, disk_type=disk_type)
    try:
        return bool(explorer.run(60).violations)
    except (SeeklogError, AssertionError):
        return True  # the store's own calls, or the recorder's check of what they return, saw it first


Mutation = contextlib.AbstractContextManager[None]


@contextlib.contextmanager
def replaced(owner: Any, name: str, replacement: Callable[[Any], Any]) -> Iterator[None]:
    """Replace a function with one that gets the original as its argument."""
    before = getattr(owner, name)
    setattr(owner, name, replacement(before))
    try:
        yield
    finally:
        setattr(owner, name, before)


def takes_base_offsets_before_the_sync() -> Mutation:
    return replaced(Log, "flush", lambda _: lambda self: None)


def writes_done_before_the_append() -> Mutation:
    def both(write: Any) -> Any:
        def write_both(files: Any, root: str, transaction: Transaction) -> None:
            write(files, root, transaction)
            storage_transaction.end_transaction(files, root, transaction)

        return write_both

    return replaced(topics_transactions, "write_transaction", both)


@contextlib.contextmanager
def removes_staging_before_the_sync() -> Iterator[None]:
    flush = Partition.flush

    def append_unsynced(append: Any) -> Any:
        def append_part(partition: Partition, part: Part) -> None:
            with replaced(Partition, "flush", lambda _: lambda self: None):
                append(partition, part)

        return append_part

    def close_and_sync(close: Any) -> Any:
        def close_part(partition: Partition, part: Part) -> None:
            close(partition, part)
            flush(partition)

        return close_part

    with (
        replaced(storage_transaction, "append_part", append_unsynced),
        replaced(storage_transaction, "close_part", close_and_sync),
    ):
        yield


def never_syncs_what_it_appends() -> Mutation:
    return replaced(Partition, "flush", lambda _: lambda self: None)


def finishes_nothing_when_it_opens_a_log() -> Mutation:
    return replaced(storage_transaction, "finish_interrupted", lambda _: lambda partition, listing: None)


def names_one_partition_only() -> Mutation:
    def first_part(write: Any) -> Any:
        def write_first(files: Any, root: str, transaction: Transaction) -> None:
            parts = transaction.parts[:1]
            write(files, root, Transaction(transaction.app, transaction.version, transaction.state, parts))

        return write_first

    return replaced(topics_transactions, "write_transaction", first_part)


def appends_a_part_without_looking_what_is_there() -> Mutation:
    return replaced(storage_transaction, "_candidates", lambda _: lambda partition, part: {})


def looks_at_offsets_alone() -> Mutation:
    """Treats a part as appended if its offsets are used, although a power loss left only some of it."""
    return replaced(storage_transaction, "_take_match", lambda _: lambda found, staged: True)


def forgets_versions() -> Mutation:
    def forget(read: Any) -> Any:
        def read_open(files: Any, root: str, key: str) -> Transaction | None:
            found: Transaction | None = read(files, root, key)
            return found if found is not None and found.is_open else None

        return read_open

    return replaced(topics_transactions, "read_transaction", forget)


def appends_for_a_transaction_that_is_not_durable() -> Mutation:
    class NoRoot:
        def __init__(self, files: Any) -> None:
            self._files = files

        def __getattr__(self, name: str) -> Any:
            return getattr(self._files, name)

        def sync_directory(self, path: str) -> None:
            if path != ROOT:
                self._files.sync_directory(path)

    def without_root(settle: Any) -> Any:
        def settle_without(partition: Partition, listing: list[str]) -> None:
            files, partition.files = partition.files, NoRoot(partition.files)  # type: ignore[assignment]
            try:
                settle(partition, listing)
            finally:
                partition.files = files

        return settle_without

    return replaced(storage_transaction, "finish_interrupted", without_root)


def discards_what_was_committed() -> Mutation:
    def everything(_: Any) -> Any:
        def discard(self: Transactions, app: str) -> None:
            for topic in self._topics.all():
                for number in topic.partitions:
                    self._sweep(app, f"{topic.name}-{number}")

        return discard

    return replaced(Transactions, "discard", everything)


# With these seeds sixty states are enough to find it.
@pytest.mark.parametrize(
    ("mutation", "name", "seed"),
    [
        (takes_base_offsets_before_the_sync, "a transaction behind records that are not synced", 1),
        (writes_done_before_the_append, "a transaction over two topics", 1),
        (writes_done_before_the_append, "a transaction that is not remembered", 1),
        (removes_staging_before_the_sync, "a transaction over two topics", 1),
        (never_syncs_what_it_appends, "a transaction, flush=interval", 1),
        (finishes_nothing_when_it_opens_a_log, "a transaction after a kill, finished by a log", 1),
        (names_one_partition_only, "a transaction over two topics", 1),
        (appends_a_part_without_looking_what_is_there, "a transaction over two topics", 1),
        (appends_a_part_without_looking_what_is_there, "a transaction, LogAppendTime", 1),
        (looks_at_offsets_alone, "a transaction that rolls", 1),
        (forgets_versions, "a transaction after a kill, replayed", 1),
        (appends_for_a_transaction_that_is_not_durable, "a transaction after a kill, finished by a log", 4),
        (discards_what_was_committed, "a failed job is discarded", 1),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_commit_with_other_steps_is_caught(mutation: Callable[[], Mutation], name: str, seed: int) -> None:
    with mutation():
        assert is_caught(name, seed=seed)


def test_mutation_without_effect_is_not_caught() -> None:
    """Goal: the replacement itself does not cause violations."""
    with replaced(storage_transaction, "finish_interrupted", lambda settle: lambda *given: settle(*given)):
        assert not is_caught("a transaction after a kill, finished by a log")
