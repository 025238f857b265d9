"""Transactions: records staged for many partitions are appended to all logs exactly once, whatever happens."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import seeklog
from crash.sim import Disk, SimFiles
from log.workbench import FakeClock, QuickFiles
from seeklog import Log, LogConfig, LogReader, Record, Store, TopicPartition, names
from seeklog.errors import (
    CorruptBatch,
    CorruptionError,
    InvalidRecord,
    LogLocked,
    NotAccessible,
    TopicNotFound,
    UsageError,
)
from seeklog.files import take_lock
from seeklog.log.transaction import (
    Part,
    Transaction,
    decode_transaction,
    encode_transaction,
    read_transaction,
    write_transaction,
)
from seeklog.record.batch import encode_batch
from seeklog.store import transactions_of
from seeklog.topics import transactions
from seeklog.topics.transactions import Staged, Transactions
from store.workbench import Holder, open_store, send

APP = "spark-query-1"


class DyingFiles(QuickFiles):
    """The disk of a process that is killed before its nth change, or right after the change of a given name."""

    def __init__(self, die_at: int = 1 << 30) -> None:
        super().__init__()
        self.left = die_at
        self.die_after = ""

    def _count(self) -> None:
        self.left -= 1
        if self.left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self, handle, data, position):  # type: ignore[no-untyped-def]
        self._count()
        super().write(handle, data, position)

    def rename(self, source: str, target: str) -> None:
        self._count()
        super().rename(source, target)
        if self.die_after and self.die_after in target:
            os.kill(os.getpid(), signal.SIGKILL)

    def remove(self, path: str) -> None:
        self._count()
        super().remove(path)


def stage(store: Store, partition: int, values: list[bytes], *, app: str = APP, topic: str = "alerts") -> Staged:
    """Stage a batch for each value."""
    stager = transactions_of(store).stager(app, TopicPartition(topic, partition))
    for value in values:
        stager.add(encode_batch([Record(value, timestamp_ms=5)]), record_count=1)
    return Staged(topic, store.describe_topic(topic).topic_id, partition, stager.finish())


@pytest.mark.id("transaction-overtakes-producer")
def test_commit_finishes_although_producer_had_begun_to_append(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: a transaction never begins after records that a power loss can remove."""
    files = SimFiles(Disk.of({}, directories=["/data"]))
    with seeklog.open("/data/store", files=files, clock=FakeClock(), background=False) as store:
        store.create_topic("alerts", partitions=1)
        staged = [stage(store, 0, [b"staged"])]
        lost: list[Disk] = []
        find_parts, write = Transactions._parts, transactions.write_transaction

        def late(self: Transactions, staged: list[Staged], logs: dict[TopicPartition, Log]) -> Iterator[Part]:
            # It had the log before the commit acquired its lock.
            for log in logs.values():
                log.append_many([Record(b"late")])
            return find_parts(self, staged, logs)

        def write_and_lose_power(*words: Any) -> None:
            write(*words)
            lost.append(files.durable_disk())

        monkeypatch.setattr(Transactions, "_parts", late)
        monkeypatch.setattr(transactions, "write_transaction", write_and_lose_power)
        transactions_of(store).commit(APP, 0, staged)
    with seeklog.open("/data/store", files=SimFiles(lost[0]), clock=FakeClock(), background=False) as store:
        send(store, "alerts", [b"next"])
        assert values_of(store, 0) == [b"late", b"staged", b"next"]


def values_of(store: Store, partition: int, topic: str = "alerts") -> list[bytes | None]:
    return [record.value for record in store.log(topic, partition).scan()]


def staged_files(root: Path) -> list[str]:
    return sorted(path.name for path in root.glob(f"*/{names.STAGED}*"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    with open_store(tmp_path / "store") as store:
        store.create_topic("alerts", partitions=3)
        send(store, "alerts", [b"before"])
    return tmp_path / "store"


def test_staged_records_are_read_only_after_commit(root: Path) -> None:
    with open_store(root) as store:
        staged = [stage(store, 0, [b"a", b"b"]), stage(store, 2, [b"c"])]
        assert values_of(store, 0) == [b"before"]

        assert transactions_of(store).commit(APP, 0, staged)

        assert values_of(store, 0) == [b"before", b"a", b"b"]
        assert values_of(store, 2) == [b"c"]
        assert staged_files(root) == []
        assert transactions_of(store).last_version(APP) == 0


def test_files_of_one_partition_are_appended_in_given_order(root: Path) -> None:
    with open_store(root) as store:
        staged = [stage(store, 1, [b"1", b"2"]), stage(store, 1, [b"3"]), stage(store, 1, [b"4"])]
        transactions_of(store).commit(APP, 0, staged)
        assert values_of(store, 1) == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("version", [0, 6, 7])
def test_committed_or_older_version_is_not_appended_again(root: Path, version: int) -> None:
    with open_store(root) as store:
        transactions_of(store).commit(APP, 7, [stage(store, 0, [b"a"])])

        assert not transactions_of(store).commit(APP, version, [stage(store, 0, [b"a"]), stage(store, 1, [b"b"])])

        assert values_of(store, 0) == [b"before", b"a"]
        assert values_of(store, 1) == []
        assert staged_files(root) == []
        assert transactions_of(store).last_version(APP) == 7


def test_applications_have_separate_versions(root: Path) -> None:
    with open_store(root) as store:
        transactions_of(store).commit(APP, 7, [stage(store, 0, [b"a"])])
        assert transactions_of(store).commit("other", 0, [stage(store, 0, [b"b"], app="other")])
        assert values_of(store, 0) == [b"before", b"a", b"b"]


def recreate(store: Store, topic: str = "alerts") -> None:
    store.delete_topic(topic)
    store.create_topic(topic, partitions=2)


@pytest.mark.id("transaction-recreated-topic-again")
def test_recreated_topic_gets_versions_committed_to_its_predecessor(root: Path) -> None:
    """Goal: a version counts for the topic that it was committed to, and only for that one."""
    with open_store(root) as store:
        transactions_of(store).commit(APP, 7, [stage(store, 0, [b"a"])])
        transactions_of(store).commit(APP, 8, [])  # it wrote nothing, so version 7 still has the last topic
        recreate(store)

        assert transactions_of(store).commit(APP, 6, [stage(store, 1, [b"6"])])
        assert transactions_of(store).commit(APP, 7, [stage(store, 0, [b"7"])])
        assert not transactions_of(store).commit(APP, 7, [stage(store, 0, [b"7"])])
        assert values_of(store, 0) == [b"7"]
        assert values_of(store, 1) == [b"6"]


@pytest.mark.id("transaction-some-topics-recreated")
def test_version_is_refused_if_only_some_topics_were_recreated(root: Path) -> None:
    """Goal: neither is a topic's part silently skipped, nor does another topic get its part twice."""
    with open_store(root) as store:
        store.create_topic("audit", partitions=1)
        transactions_of(store).commit(APP, 6, [stage(store, 0, [b"6"], topic="audit")])
        transactions_of(store).commit(APP, 7, [stage(store, 0, [b"7"])])
        recreate(store)

        for staged in ([stage(store, 0, [b"7"])], [stage(store, 0, [b"7"]), stage(store, 0, [b"7"], topic="audit")]):
            with pytest.raises(UsageError, match=r"alerts, recreated .* audit may have"):
                transactions_of(store).commit(APP, 7, staged)
        assert transactions_of(store).last_version(APP) == 7
        assert not transactions_of(store).commit(APP, 6, [stage(store, 0, [b"6"], topic="audit")])

        assert transactions_of(store).commit(APP, 8, [stage(store, 0, [b"8"]), stage(store, 0, [b"8"], topic="audit")])
        assert values_of(store, 0) == [b"8"]
        assert values_of(store, 0, topic="audit") == [b"6", b"8"]


def test_version_of_empty_transaction_is_stored(root: Path) -> None:
    with open_store(root) as store:
        assert transactions_of(store).commit(APP, 3, [])
        assert not transactions_of(store).commit(APP, 3, [stage(store, 0, [b"a"])])
        assert values_of(store, 0) == [b"before"]


def test_application_that_commits_once_leaves_no_files(root: Path) -> None:
    with open_store(root) as store:
        transactions_of(store).commit("job", 0, [stage(store, 0, [b"a"], app="job")], keep=False)
        assert transactions_of(store).last_version("job") is None
    assert not list(root.glob(f"{names.TRANSACTION}*"))


Values = tuple[int, list[bytes]]


def commit_in_child(
    root: Path, version: int, parts: list[Values], *, die_at: int = 1 << 30, die_after: str = "", topic: str = "alerts"
) -> bool:
    """Stage and commit in a separate process that is killed on the way. Return whether it was killed."""
    child = os.fork()
    if child == 0:
        files = DyingFiles()
        store = open_store(root, files=files)
        staged = [stage(store, number, values, topic=topic) for number, values in parts]
        files.left, files.die_after = die_at, die_after
        transactions_of(store).commit(APP, version, staged)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def interrupted_after_intent(root: Path, parts: list[Values], *, version: int = 1) -> None:
    """Leave a transaction whose intent is durable and of which nothing is appended."""
    assert commit_in_child(root, version, parts, die_after=names.TRANSACTION)


@pytest.mark.id("transaction-killed")
@pytest.mark.parametrize("opened_by", ["the same commit", "a writer of one partition", "a store"])
def test_kill_at_any_change_of_commit_leaves_all_or_nothing_once(root: Path, opened_by: str) -> None:
    """Goal: the first open after a kill finishes the committed transaction, and a repeated commit adds nothing."""
    version = 0
    is_killed = True
    while is_killed:
        version += 1
        with open_store(root, read_only=True) as store:
            before = [values_of(store, n) for n in range(3)]
        added = [[b"%d.%d" % (version, n), b"%d.%d again" % (version, n)] for n in range(3)]
        is_killed = commit_in_child(root, version, list(enumerate(added)), die_at=version)

        transaction = read_transaction(QuickFiles(), str(root), names.app_key(APP))
        was_committed = transaction is not None and transaction.version == version
        interloper: list[bytes] = []
        if opened_by == "a writer of one partition":
            interloper = [b"interloper"]
            with Log(root / "alerts-1") as log:
                log.append(b"interloper", timestamp_ms=6)
        elif opened_by == "a store":
            open_store(root).close()
        with open_store(root) as store:
            again = [stage(store, n, added[n]) for n in range(3)]
            assert transactions_of(store).commit(APP, version, again) is not was_committed
            for n in range(3):
                other = interloper if n == 1 else []
                order = [*added[n], *other] if was_committed else [*other, *added[n]]
                assert values_of(store, n) == [*before[n], *order], (version, n)
        assert staged_files(root) == []
    assert version > 25, "a commit to three partitions changes more than that"


def test_part_is_appended_after_records_of_broker(root: Path) -> None:
    """Goal: offsets alone do not show that a part is appended; the batches at them do."""
    interrupted_after_intent(root, [(0, [b"a", b"b"])])
    log_file = root / "alerts-0" / names.segment_name(0, names.LOG)
    foreign = encode_batch([Record(b"foreign", timestamp_ms=5)] * 2, base_offset=1)
    with log_file.open("ab") as file:
        file.write(foreign)

    with open_store(root) as store:
        assert values_of(store, 0) == [b"before", b"foreign", b"foreign", b"a", b"b"]
        assert not transactions_of(store).commit(APP, 1, [])


def test_log_with_append_time_recognizes_appended_batches(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.create_topic("alerts", partitions=2, config={"message.timestamp.type": "LogAppendTime"})
    version = 0
    is_killed = True
    while is_killed:
        version += 1
        is_killed = commit_in_child(tmp_path, version, [(n, [b"%d" % version]) for n in range(2)], die_at=version)
        with open_store(tmp_path) as store:
            transactions_of(store).commit(APP, version, [stage(store, n, [b"%d" % version]) for n in range(2)])
            assert values_of(store, 0) == values_of(store, 1) == [b"%d" % n for n in range(1, version + 1)]


def test_committed_part_is_appended_although_limits_were_lowered(root: Path) -> None:
    interrupted_after_intent(root, [(1, [b"x" * 5000])])
    with open_store(root, background=False, read_only=True) as store:
        assert values_of(store, 1) == []
    with Log(root / "alerts-1", config=LogConfig(max_message_bytes=1000, segment_bytes=2000)) as log:
        assert [record.value for record in log.scan()] == [b"x" * 5000]


def test_part_of_deleted_topic_does_not_block_others(root: Path) -> None:
    with open_store(root) as store:
        store.create_topic("doomed", partitions=1)
        doomed, alerts = stage(store, 0, [b"b"], topic="doomed"), stage(store, 0, [b"a"])
        parts = (
            Part("alerts-0", alerts.topic_id, 1, (alerts.file,)),
            Part("doomed-0", doomed.topic_id, 0, (doomed.file,)),
        )
        write_transaction(QuickFiles(), str(root), Transaction(APP, 1, "committing", parts))
        store.delete_topic("doomed")

        assert not transactions_of(store).commit(APP, 1, [])
        assert values_of(store, 0) == [b"before", b"a"]
        assert staged_files(root) == []


@pytest.mark.id("transaction-topic-recreated-elsewhere")
def test_part_for_topic_recreated_by_another_process_is_not_skipped(root: Path) -> None:
    """Goal: finishing uses the catalog on disk, not a copy from before the topic was created."""
    with open_store(root) as store:
        store.create_topic("audit", partitions=1)
        with open_store(root) as other:
            other.delete_topic("audit")
            other.create_topic("audit", partitions=1)
        assert commit_in_child(root, 1, [(0, [b"a", b"b"])], die_after=names.TRANSACTION, topic="audit")

        assert not transactions_of(store).commit(APP, 1, [])
        assert values_of(store, 0, topic="audit") == [b"a", b"b"]


def test_commit_to_topic_recreated_by_another_process_succeeds(root: Path) -> None:
    with open_store(root) as store, open_store(root) as other:
        other.delete_topic("alerts")
        other.create_topic("alerts", partitions=1)
        assert transactions_of(store).commit(APP, 0, [stage(other, 0, [b"a"])])
        assert values_of(store, 0) == [b"a"]


def test_records_staged_before_topic_was_recreated_are_refused(root: Path) -> None:
    with open_store(root) as store:
        staged = [dataclasses.replace(stage(store, 0, [b"a"]), topic_id="another")]
        with pytest.raises(TopicNotFound, match="deleted and recreated"):
            transactions_of(store).commit(APP, 0, staged)
        assert values_of(store, 0) == [b"before"]
        assert transactions_of(store).last_version(APP) is None


@pytest.mark.id("transaction-topic-now-compacted")
@pytest.mark.parametrize("by", ["this process", "another"])
def test_records_without_key_are_refused_if_topic_compacts_since_staging(root: Path, by: str) -> None:
    with open_store(root) as store, open_store(root) as other:
        staged = [stage(store, 0, [b"a"]), stage(store, 1, [b"b"])]
        (store if by == "this process" else other).alter_topic("alerts", {"cleanup.policy": "compact"})

        with pytest.raises(InvalidRecord, match=r"alerts-0 is compacted: .* no key; nothing was committed"):
            transactions_of(store).commit(APP, 0, staged)
        assert values_of(store, 0) == [b"before"]
        assert transactions_of(store).last_version(APP) is None

        keyed = transactions_of(store).stager(APP, TopicPartition("alerts", 1))
        keyed.add(encode_batch([Record(b"c", key=b"key")]), record_count=1)
        assert transactions_of(store).commit(APP, 0, [dataclasses.replace(staged[1], file=keyed.finish())])
        assert values_of(store, 1) == [b"c"]


def test_missing_or_short_staged_file_fails_commit_without_change(root: Path) -> None:
    with open_store(root) as store:
        gone, short = stage(store, 0, [b"a"]), stage(store, 1, [b"b"])
        (root / "alerts-0" / gone.file.name).unlink()
        os.truncate(root / "alerts-1" / short.file.name, 10)
        with pytest.raises(NotAccessible, match="is missing"):
            transactions_of(store).commit(APP, 0, [gone])
        with pytest.raises(NotAccessible, match="has 10 bytes"):
            transactions_of(store).commit(APP, 0, [short])
        assert values_of(store, 0) == [b"before"]
        assert transactions_of(store).last_version(APP) is None


def test_staged_file_damaged_after_commit_is_reported_and_not_appended(root: Path) -> None:
    interrupted_after_intent(root, [(0, [b"a", b"b"])])
    path = root / "alerts-0" / staged_files(root)[0]
    data = bytearray(path.read_bytes())
    data[3] ^= 1  # in the base offset, which a batch's own CRC does not cover
    path.write_bytes(data)

    with pytest.raises(CorruptBatch, match=path.name):
        Log(root / "alerts-0")
    with LogReader(root / "alerts-0") as log:
        assert [record.value for record in log.scan()] == [b"before"]
    path.unlink()
    with Log(root / "alerts-0") as log:
        assert [record.value for record in log.scan()] == [b"before"]


def test_commit_to_locked_partition_fails_with_pid_of_writer(root: Path) -> None:
    with Holder(root / "alerts-1" / names.LOCK) as holder, open_store(root) as store:
        staged = [stage(store, 0, [b"a"]), stage(store, 1, [b"b"])]
        with pytest.raises(LogLocked, match=f"process {holder.pid}"):
            transactions_of(store).commit(APP, 0, staged, wait_s=0)
        assert values_of(store, 0) == [b"before"]
        assert transactions_of(store).last_version(APP) is None
        assert len(staged_files(root)) == 2


def test_commit_removes_lost_attempts_and_old_files_of_others(root: Path) -> None:
    clock = FakeClock()
    with open_store(root, clock=clock) as store:
        stage(store, 0, [b"lost"])
        other = stage(store, 0, [b"other"], app="other")
        transactions_of(store).commit(APP, 0, [stage(store, 0, [b"a"])])
        assert staged_files(root) == [other.file.name]
    clock.advance(25 * 3600 * 1000)
    Log(root / "alerts-0", clock=clock).close()
    assert staged_files(root) == []


def test_files_of_committed_transaction_are_not_discarded(root: Path) -> None:
    interrupted_after_intent(root, [(0, [b"a"])])
    transaction = read_transaction(QuickFiles(), str(root), names.app_key(APP))
    assert transaction is not None
    part = transaction.parts[0]
    with open_store(root, read_only=True) as reading:
        transactions_of(reading).discard(APP)
        assert staged_files(root) == [part.files[0].name]
    with open_store(root) as store:
        stage(store, 1, [b"b"])
        others = stage(store, 2, [b"c"], app="other")
        transactions_of(store).discard(APP)
        assert staged_files(root) == [others.file.name]
        assert values_of(store, 0) == [b"before", b"a"]


def test_two_drivers_of_one_application_cannot_commit_at_once(root: Path) -> None:
    with open_store(root) as store, open_store(root) as zombie:
        staged = [stage(store, 0, [b"a"])]
        path = f"{root}/{names.transaction_name(names.app_key(APP))}{names.LOCK}"
        lock = take_lock(zombie._files, path, owner="4711")
        with pytest.raises(LogLocked, match="4711"):
            transactions_of(store).commit(APP, 0, staged, wait_s=0)
        lock.close()
        assert transactions_of(store).commit(APP, 0, staged)


def test_commit_needs_writable_store_and_valid_version(root: Path) -> None:
    with open_store(root, read_only=True) as store, pytest.raises(UsageError, match="read-only"):
        transactions_of(store).commit(APP, 0, [])
    with open_store(root) as store, pytest.raises(UsageError, match="version must be a whole number"):
        transactions_of(store).commit(APP, -1, [])


def test_transaction_file_round_trips_and_every_flipped_bit_is_detected(root: Path) -> None:
    with open_store(root) as store:
        staged = stage(store, 0, [b"a"])
    transaction = Transaction("app é", 3, "committing", (Part("alerts-0", "id", 7, (staged.file,)),))
    data = encode_transaction(transaction)
    assert decode_transaction(data, path="x") == transaction
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptionError):
            decode_transaction(bytes(damaged), path="x")


def test_one_time_job_leaves_no_files_when_another_process_finishes_it(root: Path) -> None:
    with open_store(root) as store:
        staged = stage(store, 0, [b"a"], app="job")
        part = Part("alerts-0", staged.topic_id, 1, (staged.file,))
        write_transaction(QuickFiles(), str(root), Transaction("job", 0, "committing", (part,), is_kept=False))
    with open_store(root) as store:
        assert values_of(store, 0) == [b"before", b"a"]
    assert not list(root.glob(f"{names.TRANSACTION}*"))
