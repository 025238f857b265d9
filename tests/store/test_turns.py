"""Partitions that several processes write: they take turns, and none of them hears of locks."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import seeklog
from crash.store_recorder import TurnsClock
from faults.children import Child
from log.workbench import PATIENCE_S, FailingFiles, FakeClock, wait_until
from seeklog import names
from seeklog.errors import LogFailed, LogLocked, UsageError
from seeklog.files import OsFiles, is_awaited, take_in_turn, take_lock
from seeklog.names import TopicPartition
from seeklog.store import Store
from store.workbench import Holder, append, open_store, read

T0 = TopicPartition("t", 0)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def pair(root: Path) -> Iterator[tuple[Store, Store]]:
    """Two stores on one directory, like those of two processes, with one topic."""
    clock = TurnsClock()
    with open_store(root, clock=clock) as first:
        first.create_topic("t", partitions=2)
        with open_store(root, clock=clock) as second:
            clock.stores += [first, second]
            yield first, second


def send(store: Store, *values: bytes, **options: object) -> list[int]:
    """Send records with a producer of a store; return their offsets."""
    with store.producer(linger_ms=0, **options) as producer:
        return [producer.send("t", value, partition=0).result(PATIENCE_S).offset for value in values]


def is_held(root: Path) -> bool:
    return OsFiles().is_locked(f"{root}/t-0/{names.LOCK}")


# ---------------------------------------------------------------- turns


@pytest.mark.id("producers-take-turns")
def test_producers_of_two_stores_write_one_partition(pair: tuple[Store, Store]) -> None:
    for number in range(10):
        assert send(pair[number % 2], b"%d" % number) == [number]

    for store in pair:
        assert read(store, "t") == [b"%d" % number for number in range(10)]


@pytest.mark.id("partition-is-kept-alone")
def test_partition_stays_locked_until_another_process_waits_for_it(pair: tuple[Store, Store], root: Path) -> None:
    """Goal: a process that is alone pays nothing for turns."""
    first, second = pair
    send(first, b"0")
    first._table.end_idle_turns()
    assert is_held(root)
    assert not (root / "t-0" / names.WAITING).exists()

    send(second, b"1")
    send(first, b"2")
    assert not is_held(root)
    assert not is_awaited(OsFiles(), f"{root}/t-0/{names.WAITING}")


@pytest.mark.parametrize("flush", ["os", "interval", "batch"])
def test_records_of_both_stores_are_there_after_they_close(tmp_path: Path, flush: str) -> None:
    clock = TurnsClock()
    with open_store(tmp_path, clock=clock, flush=flush) as first, open_store(tmp_path, clock=clock) as second:
        first.create_topic("t", partitions=1, config={"flush": flush, "segment.bytes": 2000})
        clock.stores += [first, second]
        for number in range(30):
            send((first, second)[number % 2], b"%0200d" % number)
    with open_store(tmp_path) as store:
        assert read(store, "t") == [b"%0200d" % number for number in range(30)]
        assert store.describe_topic("t").partitions[0].segment_count > 2


def test_append_fails_if_no_turn_comes_in_time(root: Path) -> None:
    clock = FakeClock()
    with open_store(root, clock=clock) as store:
        store.create_topic("t", partitions=1)
        with Holder(root / "t-0" / names.LOCK) as holder, store.producer(linger_ms=0, lock_timeout=3) as producer:
            began = clock.seconds
            error = producer.send("t", b"x").exception(PATIENCE_S)
            assert isinstance(error, LogLocked)
            assert error.owner_pid == holder.pid
            assert 3 <= clock.seconds - began < 3.1
            # A holder that takes no turns must not delay the other partitions again and again.
            began = clock.seconds
            assert isinstance(producer.send("t", b"x").exception(PATIENCE_S), LogLocked)
            assert clock.seconds - began < 1
        assert send(store, b"y") == [0]


def test_lock_timeout_must_be_a_time(pair: tuple[Store, Store]) -> None:
    with pytest.raises(UsageError, match="lock_timeout"):
        pair[0].producer(lock_timeout=-1)


def test_partition_is_not_returned_during_an_append(pair: tuple[Store, Store], root: Path) -> None:
    first, second = pair
    send(first, b"0")
    send(second, b"1")
    with first._table.writing(T0) as log:
        first._table.end_idle_turns()
        first._table.end_turn(T0, has_more=False)
        log.append(b"2")
        assert is_held(root)
    first._table.end_idle_turns()
    assert not is_held(root)


def test_turn_lasts_while_batches_are_ready_and_nobody_waits(pair: tuple[Store, Store], root: Path) -> None:
    first, second = pair
    send(first, b"0")
    send(second, b"1")
    append(first, "t", [b"2"])
    first._table.end_turn(T0, has_more=True)
    assert is_held(root)
    first._table.end_turn(T0, has_more=False)
    assert not is_held(root)


# ---------------------------------------------------------------- around a shared partition


@pytest.mark.id("shared-partition-is-read-from-disk")
def test_reader_of_shared_partition_sees_records_of_other_stores(pair: tuple[Store, Store]) -> None:
    first, second = pair
    with first.consumer(["t"], auto_offset_reset="earliest") as consumer:
        for number in range(6):
            send(pair[number % 2], b"%d" % number)
            assert [record.value for record in consumer.poll(PATIENCE_S * 1000)] == [b"%d" % number]
            assert first.log("t", 0).log_end_offset == number + 1
            assert second.log("t", 0).log_end_offset == number + 1


def test_opening_a_reader_does_not_recover_a_partition_that_is_written_in_turns(
    pair: tuple[Store, Store], root: Path
) -> None:
    """Goal: a recovery would make all writers open the log again."""
    for number in range(4):
        send(pair[number % 2], b"%d" % number)
    opens = [store.metrics()["log"]["opens"] for store in pair]
    with open_store(root) as third:
        assert len(read(third, "t")) == 4
    for number in range(4):
        send(pair[number % 2], b"%d" % number)
    assert [store.metrics()["log"]["opens"] for store in pair] == opens


@pytest.mark.id("flush-of-shared-partition")
def test_flush_syncs_records_of_returned_partition(pair: tuple[Store, Store]) -> None:
    first, _second = pair
    for number in range(4):
        send(pair[number % 2], b"%d" % number)
    log = first._table.writing_log(T0)
    assert log is not None
    assert log.is_returned
    first._table.flush(T0)
    assert log.recovery_point == log.log_end_offset


def test_commit_beside_turns_covers_synced_records(pair: tuple[Store, Store]) -> None:
    first, _second = pair
    for number in range(3):
        send(pair[number % 2], b"%d" % number)
    with first.consumer(["t"], group="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        assert len(consumer.poll()) == 3
        consumer.commit()
    log = first._table.writing_log(T0)
    assert log is not None
    assert log.recovery_point == 3


def test_maintenance_of_one_store_retains_what_all_have_appended(pair: tuple[Store, Store]) -> None:
    first, second = pair
    first.alter_topic("t", {"segment.bytes": 500, "retention.bytes": 1000})
    for number in range(40):
        send(pair[number % 2], b"%0100d" % number)
    assert second.maintain() > 0
    start = second.log("t", 0).log_start_offset
    assert start > 0
    assert send(first, b"more") == [40]
    assert first.log("t", 0).log_start_offset == start
    assert len(read(first, "t")) == 41 - start


def test_compaction_by_one_store_keeps_last_values_of_all(pair: tuple[Store, Store]) -> None:
    first, second = pair
    first.alter_topic("t", {"cleanup.policy": "compact", "segment.bytes": 500})
    second._topics.refresh()
    for number in range(40):
        store = pair[number % 2]
        append(store, "t", [b"%0100d" % number], key=b"%d" % (number % 4))
        store._table.end_turn(T0, has_more=False)
    second.compact("t")
    append(first, "t", [b"last"], key=b"0")
    first._table.end_turn(T0, has_more=False)
    latest = {record.key: record.value for record in first.log("t", 0).scan()}
    assert latest == {b"0": b"last"} | {b"%d" % (number % 4): b"%0100d" % number for number in (37, 38, 39)}
    assert first.log("t", 0).log_end_offset == 41


def test_topic_altered_by_another_store_is_followed_before_next_turn(pair: tuple[Store, Store]) -> None:
    first, second = pair
    send(first, b"0")
    send(second, b"1")
    second.alter_topic("t", {"segment.bytes": 300})
    for number in range(10):
        send(pair[number % 2], b"%0100d" % number)
    assert first.describe_topic("t").partitions[0].segment_count > 3


def test_topic_of_returned_partition_can_be_deleted_by_another_store(pair: tuple[Store, Store]) -> None:
    first, second = pair
    for number in range(3):
        send(pair[number % 2], b"%d" % number)
    second.delete_topic("t")
    second.create_topic("t", partitions=1)
    assert send(first, b"new") == [0]
    assert send(second, b"newer") == [1]


def test_store_that_closes_does_not_make_others_reopen_partition(pair: tuple[Store, Store], root: Path) -> None:
    first, second = pair
    for number in range(4):
        send(pair[number % 2], b"%d" % number)
    second.close()
    opens = first.metrics()["log"]["opens"]
    assert send(first, b"4") == [4]
    assert first.metrics()["log"]["opens"] == opens


def test_failed_log_of_one_store_is_recovered_by_the_other(root: Path) -> None:
    clock = TurnsClock()
    files = FailingFiles("sync", "/t-0/")
    with open_store(root, clock=clock) as first, open_store(root, clock=clock, files=files) as second:
        first.create_topic("t", partitions=1, config={"flush": "batch"})
        clock.stores += [first, second]
        for number in range(4):
            send((first, second)[number % 2], b"%d" % number)
        files.fails = True
        with pytest.raises(LogFailed):
            send(second, b"lost?")
        files.fails = False
        assert send(first, b"4") in ([4], [5])
        values = read(first, "t")
        assert values[:4] == [b"0", b"1", b"2", b"3"]
        assert values[-1] == b"4"
        assert send(second, b"5") == [len(values)]


@pytest.mark.id("idempotent-in-turn")
def test_numbered_producers_of_two_stores_append_each_record_once(pair: tuple[Store, Store]) -> None:
    producers = [store.producer(name=f"p{number}", linger_ms=0) for number, store in enumerate(pair)]
    for number in range(20):
        producers[number % 2].send("t", b"%d" % number, partition=0).result(PATIENCE_S)
    for producer in producers:
        assert producer.written(T0) == 10
        producer.close()
    assert read(pair[0], "t") == [b"%d" % number for number in range(20)]
    # Its successor fences it, although the other store has the partition open, too.
    with pair[1].producer(name="p0", resume=True, linger_ms=0) as resumed:
        assert resumed.written(T0) == 10
        assert resumed.send("t", b"20", partition=0).result(PATIENCE_S).offset == 20


# ---------------------------------------------------------------- the queue


@pytest.mark.id("turns-go-round")
def test_waiting_process_gets_lock_before_the_one_that_had_it(tmp_path: Path) -> None:
    files, lock, queue = OsFiles(), str(tmp_path / names.LOCK), str(tmp_path / names.WAITING)
    order: list[str] = []
    had_turn = threading.Event()
    clock = FakeClock()

    def wait() -> None:
        from seeklog.clock import SystemClock

        take_in_turn(files, queue, lambda: take_lock(files, lock), clock=SystemClock(), wait_s=PATIENCE_S)
        order.append("waiter")
        had_turn.set()

    held = take_lock(files, lock)
    with ThreadPoolExecutor(1) as other:
        waiting = other.submit(wait)
        wait_until(lambda: is_awaited(files, queue), "the other thread waits")
        held.close()

        class Watching(FakeClock):
            def sleep(self, seconds: float) -> None:
                super().sleep(seconds)
                had_turn.wait(PATIENCE_S)

        clock = Watching()
        take_in_turn(files, queue, lambda: take_lock(files, lock), clock=clock, wait_s=PATIENCE_S, had_last_turn=True)
        order.append("first")
        waiting.result(PATIENCE_S)
    assert order == ["waiter", "first"]


def test_wait_without_room_for_the_queue_still_ends(tmp_path: Path) -> None:
    class NoRoom(OsFiles):
        def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
            if path.endswith(names.WAITING):
                raise OSError(28, "No space left on device", path)
            return super().open(path, write=write, create=create)

    attempts = 0

    def attempt() -> str:
        nonlocal attempts
        attempts += 1
        if attempts < 5:
            raise LogLocked("t-0", 1)
        return "mine"

    queue = str(tmp_path / names.WAITING)
    assert take_in_turn(NoRoom(), queue, attempt, clock=FakeClock(), wait_s=10) == "mine"


# ---------------------------------------------------------------- processes


def produce(root: Path, name: str, *, count: int) -> Callable[[Callable[[str], None]], None]:
    def act(report: Callable[[str], None]) -> None:
        with seeklog.open(root) as store, store.producer(linger_ms=1) as producer:
            for number in range(count):
                future = producer.send("t", b"%s %d" % (name.encode(), number), partition=0)
                if number % 50 == 49:
                    report(f"{future.result(PATIENCE_S).offset}")

    return act


@pytest.mark.id("turns-of-processes")
def test_three_processes_produce_to_one_partition(root: Path) -> None:
    with open_store(root) as store:
        store.create_topic("t", partitions=1, config={"segment.bytes": 20_000})
    children = [Child(produce(root, name, count=1000)) for name in "abc"]
    for child in children:
        assert not [line for line in child.rest() if line.startswith("error")]
        assert child.wait() == 0
    with open_store(root) as store:
        values = [value or b"" for value in read(store, "t")]
    assert Counter(value[:1] for value in values) == {b"a": 1000, b"b": 1000, b"c": 1000}
    for name in (b"a", b"b", b"c"):
        assert [value for value in values if value.startswith(name)] == [b"%s %d" % (name, n) for n in range(1000)]


def test_forked_child_of_a_process_that_takes_turns_opens_its_own_store(pair: tuple[Store, Store], root: Path) -> None:
    for number in range(3):
        send(pair[number % 2], b"%d" % number)

    def act(report: Callable[[str], None]) -> None:
        with open_store(root) as own:
            report(f"{send(own, b'from the child')}")

    child = Child(act)
    assert child.rest() == ["[3]"]
    assert child.wait() == 0
    assert send(pair[0], b"4") == [4]
