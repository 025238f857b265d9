"""The open logs: few files for many partitions, borrowed logs, and logs whose topic is changed or deleted."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from log.workbench import PATIENCE_S, FailingFiles, TickingClock, open_log, value_of, values, wait_until
from seeklog import Log, Store, TopicPartition, names
from seeklog.clock import SystemClock
from seeklog.errors import LogClosed, LogFailed, LogLocked, NotALog, SeeklogError, TopicNotFound, UsageError
from seeklog.topics import open_logs
from seeklog.topics.catalog import encode_catalog
from store.workbench import Holder, append, open_file_count, open_store, read, send, snapshot

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    with open_store(root) as store:
        store.create_topic("t", partitions=2)
        yield store


# ---------------------------------------------------------------- few open files

PARTITIONS = 60
MOST = 16
# Beyond the limit: the broker's lock, and the partition being opened or closed, with up to two files.
ROOM = 8


def test_writing_many_partitions_in_turn_keeps_few_files_open(root: Path) -> None:
    with open_store(root, max_open_files=MOST) as store:
        store.create_topic("t", partitions=PARTITIONS)
        before = open_file_count()
        most = 0
        for number in range(4 * PARTITIONS):
            append(store, "t", [value_of(number)], partition=number % PARTITIONS)
            most = max(most, open_file_count())
        assert most - before <= MOST + ROOM

        for partition in range(PARTITIONS):
            assert read(store, "t", partition) == [value_of(partition + turn * PARTITIONS) for turn in range(4)]
            most = max(most, open_file_count())
        assert most - before <= MOST + ROOM
    with open_store(root) as store:
        assert [read(store, "t", partition)[0] for partition in range(PARTITIONS)] == list(map(value_of, range(60)))


def test_producer_over_many_partitions_keeps_few_files_open(root: Path) -> None:
    with open_store(root, max_open_files=MOST) as store:
        store.create_topic("t", partitions=PARTITIONS)
        before = open_file_count()
        most = 0
        with store.producer(linger_ms=0) as producer:
            for number in range(3 * PARTITIONS):
                producer.send("t", value_of(number), partition=number % PARTITIONS)
                if number % 10 == 0:
                    producer.flush()
                    most = max(most, open_file_count())
        assert most - before <= MOST + ROOM
        assert sum(len(read(store, "t", partition)) for partition in range(PARTITIONS)) == 3 * PARTITIONS


@pytest.mark.parametrize("read_only", [False, True])
def test_readers_of_many_partitions_and_segments_keep_few_files_open(root: Path, read_only: bool) -> None:
    with open_store(root, segment_bytes=200) as store:
        store.create_topic("t", partitions=20)
        for number in range(100):
            append(store, "t", [value_of(number)], partition=number % 20)

    with open_store(root, max_open_files=MOST, read_only=read_only) as store:
        before = open_file_count()
        most = 0
        for partition in [*range(20), *range(20)]:
            assert len(read(store, "t", partition)) == 5
            most = max(most, open_file_count())
        assert most - before <= MOST + ROOM


def test_indexes_count_as_open_files(root: Path) -> None:
    """Python's map of a file keeps a descriptor of it."""
    with open_store(root, segment_bytes=600, index_interval_bytes=0) as store:
        store.create_topic("t", partitions=10)
        for number in range(300):
            append(store, "t", [value_of(number)], partition=number % 10)

    with open_store(root, max_open_files=MOST, read_only=True) as store:
        before = open_file_count()
        for partition in range(10):
            log = store.log("t", partition)
            for offset in range(30):
                assert next(log.read(offset, max_records=1)).offset == offset
            assert open_file_count() - before <= MOST


def test_closing_store_closes_every_file(root: Path) -> None:
    gc.collect()  # other tests may have left garbage
    before = open_file_count()
    with open_store(root, max_open_files=MOST) as store:
        store.create_topic("t", partitions=10)
        for partition in range(10):
            append(store, "t", [b"x"], partition=partition)
            read(store, "t", partition)

    assert open_file_count() == before


def test_too_small_limit_on_open_files_is_refused(root: Path) -> None:
    with pytest.raises(UsageError, match="at least 8"):
        open_store(root, max_open_files=7)
    assert not root.exists()


def test_store_never_returns_closed_log(root: Path) -> None:
    """Goal: whichever logs were closed for room, `store.log` returns one that reads."""
    with open_store(root, max_open_files=8) as store:
        store.create_topic("t", partitions=10)
        for number in range(100):
            append(store, "t", [value_of(number)], partition=number % 10)
            for partition in ((number * 7) % 10, number % 10):
                assert values(store.log("t", partition).scan()) == [
                    value_of(each) for each in range(partition, number + 1, 10)
                ]


class ClosingEntry(open_logs._Entry):
    """An entry whose writer is closed by another thread after it was looked at once."""

    looks = 0

    @property
    def writer(self) -> Log | None:  # type: ignore[override]
        self.looks += 1
        return self.log if self.looks == 1 else None

    @writer.setter
    def writer(self, log: Log | None) -> None:
        pass


def test_reader_looks_once_at_a_writer_that_is_being_closed(tmp_path: Path) -> None:
    entry = ClosingEntry(T0)
    with open_log(tmp_path) as log:
        entry.log = log
        assert entry.open_log() is log.reader


def test_concurrent_readers_and_writers_over_few_files_lose_nothing(root: Path) -> None:
    with open_store(root, max_open_files=8, clock=SystemClock()) as store, ThreadPoolExecutor(4) as pool:
        store.create_topic("t", partitions=8)

        def write(partition: int) -> None:
            for number in range(20):
                append(store, "t", [value_of(number)], partition=partition)

        def look(partition: int) -> None:
            for _ in range(20):
                while True:
                    try:
                        seen = read(store, "t", partition)
                        break
                    except LogClosed:
                        continue  # closed between the two calls: ask again
                assert seen == list(map(value_of, range(len(seen))))

        jobs = [pool.submit(job, partition) for partition in range(8) for job in (write, look)]
        for job in jobs:
            job.result()
        assert all(read(store, "t", partition) == list(map(value_of, range(20))) for partition in range(8))


def test_index_lookups_over_few_files_give_same_offsets(root: Path) -> None:
    with open_store(root, max_open_files=8, segment_bytes=500, index_interval_bytes=0) as store:
        store.create_topic("t", partitions=3)
        for number in range(90):
            append(store, "t", [value_of(number)], partition=number % 3, timestamp_ms=1000 + number)
        store.maintain()
        for number in range(90):
            log = store.log("t", number % 3)
            assert next(log.read(number // 3, max_records=1)).value == value_of(number)
            assert log.offset_at_time(1000 + number) == number // 3


# ---------------------------------------------------------------- failing closes


def test_failed_close_of_one_partition_does_not_fail_append_to_another(root: Path) -> None:
    files = FailingFiles("sync", "/t-0/")
    store = open_store(root, files=files, max_open_files=8)
    store.create_topic("t", partitions=6)
    append(store, "t", [b"doomed"])
    files.fails = True
    for partition in range(1, 6):
        append(store, "t", [b"x"], partition=partition)
    for partition in range(1, 6):
        assert read(store, "t", partition) == [b"x"]


# ---------------------------------------------------------------- one writer per partition


def test_two_stores_write_different_partitions_and_read_both(store: Store, root: Path) -> None:
    with open_store(root) as other:
        append(store, "t", [b"a"])
        append(other, "t", [b"b"], partition=1)

        for each in (store, other):
            assert (read(each, "t", 0), read(each, "t", 1)) == ([b"a"], [b"b"])


def test_partition_written_by_another_store_is_refused_with_its_pid(store: Store, root: Path) -> None:
    append(store, "t", [b"a"])
    with open_store(root) as other:
        with pytest.raises(LogLocked) as caught:
            append(other, "t", [b"b"])
        assert caught.value.owner_pid == os.getpid()
        assert caught.value.path == str(root / "t-0")
        store.close()
        append(other, "t", [b"b"])
        assert read(other, "t") == [b"a", b"b"]


def test_partition_written_by_another_process_is_refused_with_its_pid(store: Store, root: Path) -> None:
    with Holder(root / "t-0" / names.LOCK) as holder:
        before = snapshot(root, locks=False)
        with pytest.raises(LogLocked) as caught:
            append(store, "t", [b"a"])
        assert caught.value.owner_pid == holder.pid
        with pytest.raises(LogLocked, match=str(holder.pid)):
            send(store, "t", [b"a"])
        assert snapshot(root, locks=False) == before
        append(store, "t", [b"free"], partition=1)
    append(store, "t", [b"a"])
    assert read(store, "t") == [b"a"]


# ---------------------------------------------------------------- borrowing


def test_borrowed_log_is_returned_with_its_appends_durable(store: Store, root: Path) -> None:
    with store._table.borrow(T0, wait_s=0) as log:
        log.append(b"commit")
        with Holder(root / "t-0" / names.LOCK) as holder:
            assert not holder.got_it

    with Holder(root / "t-0" / names.LOCK) as holder:
        assert holder.got_it
    assert store.log("t", 0).recovery_point == 1
    assert read(store, "t") == [b"commit"]


def test_borrowed_log_includes_appends_of_other_stores(store: Store, root: Path) -> None:
    with open_store(root) as other:
        for number in range(6):
            with (store, other)[number % 2]._table.borrow(T0, wait_s=0) as log:
                assert log.append(value_of(number)) == number
        assert read(store, "t") == read(other, "t") == list(map(value_of, range(6)))


def test_borrowing_uses_log_that_is_open_for_writing(store: Store) -> None:
    append(store, "t", [b"a"])
    with store._table.borrow(T0, wait_s=0) as log, store._table.writing(T0) as open_one:
        assert log is open_one
        log.append(b"b")

    assert log.recovery_point == 2
    append(store, "t", [b"c"])
    assert read(store, "t") == [b"a", b"b", b"c"]


def test_borrowing_waits_for_lock_then_is_refused_with_pid(root: Path) -> None:
    clock = TickingClock(0.1)
    with open_store(root, clock=clock) as store:
        store.create_topic("t", partitions=1)
        with Holder(root / "t-0" / names.LOCK) as holder:
            began = clock.seconds
            with pytest.raises(LogLocked) as caught, store._table.borrow(T0, wait_s=1.0):
                pytest.fail("the log was borrowed")
            assert caught.value.owner_pid == holder.pid
            assert clock.seconds - began >= 1.0


def test_borrowing_succeeds_once_lock_is_released(root: Path) -> None:
    class Impatient(TickingClock):
        """Releases the lock after a few attempts, while the borrower waits for it."""

        asked = 0
        holder: Holder | None = None

        def monotonic(self) -> float:
            if self.holder is not None:
                self.asked += 1
                if self.asked == 3:
                    self.holder.let_go()
            return super().monotonic()

    clock = Impatient(0.01)
    with open_store(root, clock=clock) as store:
        store.create_topic("t", partitions=1)
        with Holder(root / "t-0" / names.LOCK) as clock.holder, store._table.borrow(T0, wait_s=60) as log:
            log.append(b"x")
        assert clock.asked >= 3
        assert read(store, "t") == [b"x"]


def test_borrowed_log_is_returned_after_error(store: Store, root: Path) -> None:
    with pytest.raises(KeyError), store._table.borrow(T0, wait_s=0):
        raise KeyError

    with Holder(root / "t-0" / names.LOCK) as holder:
        assert holder.got_it


# ---------------------------------------------------------------- changed and deleted topics


def test_an_altered_topic_is_written_with_its_new_configuration(store: Store) -> None:
    append(store, "t", [b"x" * 50] * 3)
    assert store.log("t", 0).config.segment_bytes == 1 << 30

    store.alter_topic("t", {"segment.bytes": 500})

    for _ in range(5):
        append(store, "t", [b"x" * 50] * 3)
    assert store.log("t", 0).config.segment_bytes == 500
    assert store.describe_topic("t").partitions[0].segment_count > 1
    assert len(read(store, "t")) == 18


def test_append_after_alteration_waits_for_appends_begun_before(store: Store) -> None:
    """Goal: appends in close succession must not keep the log open with a stale configuration forever."""
    found: list[int] = []

    def write() -> None:
        with store._table.writing(T0) as log:
            found.append(log.config.segment_bytes)

    other = threading.Thread(target=write)
    with store._table.writing(T0):
        store.alter_topic("t", {"segment.bytes": 500})
        other.start()
        other.join(0.2)  # it waits; otherwise it would be done by now
    other.join()
    assert found == [500]


def test_borrowing_succeeds_after_failed_close_of_stale_writer(root: Path) -> None:
    files = FailingFiles("sync")
    with open_store(root, files=files) as store, ThreadPoolExecutor(1) as another_thread:
        store.create_topic("t", partitions=1)

        def hold() -> int:
            with store.writer("t", 0, wait_s=2 * PATIENCE_S) as log:
                return log.config.segment_bytes

        writing = contextlib.ExitStack()
        writing.enter_context(store._table.writing(T0)).append(b"value")
        store.alter_topic("t", {"segment.bytes": 500})
        borrowed = another_thread.submit(hold)
        wait_until(lambda: bool(store._table._entries[T0].unpinned._waiters), "somebody waits")
        files.fails = True
        with pytest.raises(LogFailed):
            writing.close()
        files.fails = False
        assert borrowed.result(PATIENCE_S) == 500


def test_closing_store_ends_wait_for_log_without_borrowing_it(root: Path) -> None:
    """Goal: from then on a broker may start, and this process must not write."""
    with ThreadPoolExecutor(1) as another_thread:
        store = open_store(root)
        store.create_topic("t", partitions=1)

        def hold() -> None:
            with store.writer("t", 0, wait_s=2 * PATIENCE_S):
                pass

        with store._table.writing(T0) as log:
            log.append(b"value")
            store.alter_topic("t", {"segment.bytes": 500})
            borrowed = another_thread.submit(hold)
            wait_until(lambda: bool(store._table._entries[T0].unpinned._waiters), "somebody waits")
            store.close()
        with pytest.raises(LogClosed, match="is closed"):
            borrowed.result(PATIENCE_S)


def test_topic_is_dropped_although_it_is_reopened_meanwhile(store: Store) -> None:
    entry = store._table._entry(T0)
    with ThreadPoolExecutor(2) as other_threads:
        with store._table.writing(T0):
            dropped = other_threads.submit(store._table.drop, "t")
            wait_until(lambda: bool(entry.unpinned._waiters), "somebody waits")
            appended = other_threads.submit(append, store, "t", [b"value"])
        appended.result(PATIENCE_S)
        dropped.result(PATIENCE_S)
    assert read(store, "t") == [b"value"]


def test_alteration_reaches_open_producer(store: Store) -> None:
    with store.producer(linger_ms=0) as producer:
        producer.send("t", b"x", partition=0).result()
        store.alter_topic("t", {"segment.bytes": 200})
        for _ in range(5):
            producer.send("t", b"x" * 50, partition=0).result()
        assert store.describe_topic("t").partitions[0].segment_count > 1


def test_alteration_without_change_leaves_writer_open(store: Store) -> None:
    append(store, "t", [b"x"])
    log = store.log("t", 0)

    store.alter_topic("t", {})

    assert store.log("t", 0) is log


def test_alteration_leaves_logs_of_other_topics_open(store: Store) -> None:
    store.create_topic("u", partitions=1)
    append(store, "u", [b"x"])
    log = store.log("u", 0)

    store.alter_topic("t", {"retention.ms": 5})
    store.delete_topic("t")

    assert store.log("u", 0) is log


def test_alteration_by_another_store_is_seen(store: Store, root: Path) -> None:
    append(store, "t", [b"x"])
    with open_store(root) as other:
        other.alter_topic("t", {"segment.bytes": 500})
    store.maintain()
    append(store, "t", [b"x"])

    assert store.log("t", 0).config.segment_bytes == 500


@pytest.mark.parametrize("look", ["topics", "describe", "create"])
def test_alteration_by_another_store_is_seen_by_log_opened_before_refresh(store: Store, root: Path, look: str) -> None:
    append(store, "t", [b"x"])
    with open_store(root) as other:
        other.alter_topic("t", {"segment.bytes": 500})
    {
        "topics": store.topics,
        "describe": lambda: store.describe_topic("t"),
        "create": lambda: store.create_topic("u", partitions=1),
    }[look]()
    store.maintain()
    append(store, "t", [b"x"])

    assert store.log("t", 0).config.segment_bytes == 500


def test_topic_is_deleted_while_its_logs_are_open(store: Store, root: Path) -> None:
    append(store, "t", [b"x"])
    read(store, "t", 1)
    reader = store.log("t", 1)

    store.delete_topic("t")

    assert store.topics() == []
    with pytest.raises(TopicNotFound):
        append(store, "t", [b"x"])
    with pytest.raises(LogClosed):
        list(reader.scan())
    assert not list(root.glob("t-*"))


def test_producer_of_deleted_topic_gets_error(store: Store) -> None:
    with store.producer(linger_ms=0) as producer:
        producer.send("t", b"x", partition=0).result()
        store.delete_topic("t")
        with pytest.raises(TopicNotFound):
            producer.send("t", b"x", partition=0).result()


def test_producer_continues_in_recreated_topic(store: Store) -> None:
    with store.producer(linger_ms=0) as producer:
        producer.send("t", b"old", partition=0).result()
        store.delete_topic("t")
        store.create_topic("t", partitions=2)
        assert producer.send("t", b"new", partition=0).result().offset == 0
    assert read(store, "t") == [b"new"]


def test_topic_under_constant_writes_is_not_deleted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_logs, "DROP_WAIT_S", 0.01)
    with open_store(root) as store:
        store.create_topic("t", partitions=2)
        with store._table.writing(T1) as log:
            with pytest.raises(UsageError, match="t-1 is being written to"):
                store.delete_topic("t")
            log.append(b"x")
        assert read(store, "t", 1) == [b"x"]
        store.delete_topic("t")


def test_deletion_waits_for_append_in_progress(root: Path) -> None:
    store = open_store(root, clock=SystemClock())
    store.create_topic("t", partitions=1)
    started, may_end = threading.Event(), threading.Event()

    def write() -> None:
        with store._table.writing(T0) as log:
            started.set()
            may_end.wait()
            log.append(b"x")

    writer = threading.Thread(target=write)
    writer.start()
    started.wait()
    deleter = threading.Thread(target=store.delete_topic, args=("t",))
    deleter.start()
    wait_until(lambda: store._table._entries[T0].is_stale, "the deletion to have come to the writer")
    may_end.set()
    writer.join()
    deleter.join()

    assert store.topics() == []
    store.close()


@pytest.mark.parametrize("asks", [False, True], ids=["by maintenance", "asked before"])
def test_logs_of_topic_deleted_by_another_store_are_closed(store: Store, root: Path, asks: bool) -> None:
    append(store, "t", [b"x"])
    store.close()
    with open_store(root) as reader, open_store(root) as other:
        assert read(reader, "t") == [b"x"]
        other.delete_topic("t")
        if asks:
            assert reader.topics() == []
        reader.maintain()
        with pytest.raises((TopicNotFound, NotALog)):
            read(reader, "t")


@pytest.mark.parametrize("count", [2, 40], ids=["shorter", "longer"])
def test_topic_recreated_by_another_store_is_read_from_its_start(root: Path, count: int) -> None:
    with open_store(root) as reader, open_store(root) as other:
        other.create_topic("t", partitions=1)
        for number in range(10):
            append(other, "t", [b"old" + value_of(number)])
        assert len(read(reader, "t")) == 10
        other.delete_topic("t")
        other.create_topic("t", partitions=1)
        for number in range(count):
            append(other, "t", [value_of(number)])
        reader.topics()
        reader.maintain()

        assert read(reader, "t") == list(map(value_of, range(count)))


def test_missing_partition_directory_is_reported(root: Path) -> None:
    with open_store(root) as store:
        store.create_topic("t", partitions=1)
        append(store, "t", [b"x"])
    with open_store(root) as store:
        (root / "t-0").rename(root.parent / "elsewhere")

        for call in (lambda: append(store, "t", [b"x"]), lambda: read(store, "t")):
            with pytest.raises(NotALog):
                call()
        assert not (root / "t-0").exists()
        (root.parent / "elsewhere").rename(root / "t-0")
        append(store, "t", [b"y"])
        assert read(store, "t") == [b"x", b"y"]


@pytest.mark.parametrize("open_for", ["reading", "writing"])
def test_log_closed_by_caller_is_reopened(store: Store, open_for: str) -> None:
    """`with store.log(...) as log:` is an easy mistake."""
    if open_for == "writing":
        append(store, "t", [b"x"])
    with store.log("t", 0):
        pass

    append(store, "t", [b"y"])
    assert read(store, "t")[-1] == b"y"


def test_reading_continues_when_partition_is_opened_for_writing(store: Store) -> None:
    assert read(store, "t") == []
    append(store, "t", [b"x"])

    assert read(store, "t") == [b"x"]


def test_records_name_their_topic_and_partition(store: Store, root: Path) -> None:
    append(store, "t", [b"x"], partition=1)
    for log in (store.log("t", 1), open_store(root, read_only=True).log("t", 1)):
        for records in (log.scan(), log.read(0), log.scan_reverse(), [log.last()]):
            assert [(record.topic, record.partition) for record in records] == [("t", 1)]


def test_records_of_single_log_name_no_topic(tmp_path: Path) -> None:
    with open_log(tmp_path / "t-1") as log:
        log.append(b"x")
        assert [(record.topic, record.partition) for record in log.scan()] == [(None, None)]


def test_closed_table_opens_no_logs(store: Store) -> None:
    store.close()

    for call in (lambda: append(store, "t", [b"x"]), lambda: store.log("t", 0)):
        with pytest.raises(LogClosed, match="is closed"):
            call()
    with pytest.raises(SeeklogError), store._table.borrow(T0, wait_s=0):
        pass


def test_borrowed_log_is_returned_although_its_topic_was_deleted(store: Store, root: Path) -> None:
    """Goal: noting offsets for the root's checkpoints does not look up a deleted topic."""
    with store._table.borrow(T0, wait_s=0) as log:
        log.append(b"x")
        (root / names.TOPICS).write_bytes(encode_catalog({}))
        store._topics.refresh()

    assert log.is_closed
    with pytest.raises(TopicNotFound), store._table.borrow(T0, wait_s=0):
        pass


def test_logs_closed_by_callers_do_not_count_as_open(root: Path) -> None:
    """Goal: the limit on open files counts only open ones."""
    with open_store(root, max_open_files=12) as store:
        store.create_topic("t", partitions=8)
        for partition in range(8):
            append(store, "t", [b"x"], partition=partition)
            store.log("t", partition).close()
            read(store, "t", partition)
            assert len(store._table._writers) == len(store._table.open_writers())
