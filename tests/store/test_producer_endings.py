"""A producer whose thread ends, and one that goes on after its log failed."""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from crash.faulty import FaultyFiles
from log.workbench import PATIENCE_S, FakeClock, GatedFiles, QuickFiles, TickingClock, wait_until
from seeklog import Log, Producer, Store
from seeklog.clients import LogWriter
from seeklog.errors import LogClosed, LogFailed
from store.producing import NEVER_MS
from store.workbench import open_store, read


class DyingClock(FakeClock):
    """A clock that raises in the thread of a sender once it is broken, as code with a defect would."""

    is_broken = False

    def monotonic(self) -> float:
        if self.is_broken and threading.current_thread().name == "seeklog-sender":
            raise ZeroDivisionError("a defect")
        return super().monotonic()


class Ending:
    """A store with a producer whose thread ends on request."""

    def __init__(self, path: Path) -> None:
        self.clock = DyingClock()
        self.files = GatedFiles("/t-0/")
        self.store = open_store(path, clock=self.clock, files=self.files)
        self.store.create_topic("t", partitions=1)

    def producer(self, **words: int) -> Producer:
        return self.store.producer(**{"linger_ms": NEVER_MS, **words})

    def end(self, producer: Producer) -> None:
        """Wake the thread, which then looks at the broken clock."""
        self.clock.is_broken = True
        with producer._sender._lock:
            producer._sender._ready.notify()
        producer._sender._thread.join(PATIENCE_S)


@pytest.fixture
def ending(tmp_path: Path) -> Iterator[Ending]:
    ending = Ending(tmp_path / "store")
    yield ending
    ending.store.close()


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    # Not joined: a thread that is never woken must fail its test instead of stopping all tests.
    pool = ThreadPoolExecutor(4)
    yield pool
    pool.shutdown(wait=False, cancel_futures=True)


# ---------------------------------------------------------------- a thread that ends


@pytest.mark.id("sender-ends")
def test_futures_fail_when_the_sending_thread_ends(ending: Ending) -> None:
    producer = ending.producer()
    futures = [producer.send("t", b"v") for _ in range(3)]
    ending.end(producer)

    errors = [future.exception(PATIENCE_S) for future in futures]
    assert all(isinstance(error, LogFailed) for error in errors)
    assert isinstance(errors[0].__cause__ if errors[0] else None, ZeroDivisionError)
    producer.close()
    assert read(ending.store, "t") == []


def test_flush_is_woken_when_the_sending_thread_ends(ending: Ending, pool: ThreadPoolExecutor) -> None:
    producer = ending.producer()
    producer.send("t", b"v")
    ending.clock.is_broken = True
    flushed = pool.submit(producer.flush)

    assert isinstance(flushed.exception(PATIENCE_S), LogFailed)


def test_close_ends_although_the_sending_thread_has_ended(ending: Ending, pool: ThreadPoolExecutor) -> None:
    producer = ending.producer()
    producer.send("t", b"v")
    ending.end(producer)

    assert isinstance(pool.submit(producer.close).exception(PATIENCE_S), LogFailed)
    assert pool.submit(producer.close).exception(PATIENCE_S) is None


def test_send_that_waits_for_room_is_woken_when_the_thread_ends(ending: Ending, pool: ThreadPoolExecutor) -> None:
    producer = ending.producer(batch_bytes=1000, buffer_bytes=1000)
    first = producer.send("t", bytes(900))
    waiting = pool.submit(producer.send, "t", bytes(900))
    wait_until(lambda: bool(producer._sender._room._waiters), "the send to wait for room")  # type: ignore[attr-defined]
    ending.end(producer)

    assert isinstance(waiting.exception(PATIENCE_S), LogFailed)
    assert isinstance(first.exception(PATIENCE_S), LogFailed)


def test_send_after_the_thread_ended_raises_its_error(ending: Ending) -> None:
    producer = ending.producer()
    producer.send("t", b"v").add_done_callback(lambda _: None)
    ending.end(producer)

    with pytest.raises(LogFailed, match="a defect"):
        producer.send("t", b"v")
    producer.close()


def test_store_closes_although_a_sending_thread_has_ended(ending: Ending, pool: ThreadPoolExecutor) -> None:
    producer = ending.producer()
    producer.send("t", b"v")
    ending.end(producer)

    assert isinstance(pool.submit(ending.store.close).exception(PATIENCE_S), LogFailed)


def test_callback_that_exits_does_not_end_the_thread(ending: Ending) -> None:
    def leave(_: object) -> None:
        raise SystemExit(1)

    with ending.producer(linger_ms=0) as producer:
        producer.send("t", b"one").add_done_callback(leave)
        assert producer.send("t", b"two").result(PATIENCE_S).offset == 1


def test_writer_of_a_log_is_closed_although_its_thread_has_ended(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    clock = DyingClock()
    with Log(tmp_path / "log", clock=clock, files=QuickFiles(), background=False) as log:
        writer = LogWriter(log, linger_ms=NEVER_MS)
        future = writer.append(b"v")
        clock.is_broken = True

        assert isinstance(pool.submit(writer.close).exception(PATIENCE_S), LogFailed)
        assert isinstance(future.exception(PATIENCE_S), LogFailed)


def test_dropped_producer_is_collected_while_its_thread_holds_the_lock(ending: Ending) -> None:
    """Goal: `end`, which the garbage collector may call anywhere, does not wait for a lock of its own thread."""
    producer = ending.producer()
    with producer._sender._lock:
        assert producer._sender._lock.acquire(blocking=False), "the collector would wait for ever"
        producer._sender._lock.release()
    producer.close()


def test_future_of_a_forked_child_does_not_wait_for_the_parent(ending: Ending) -> None:
    producer = ending.producer()
    future = producer.send("t", b"v")
    producer._sender.abandon()  # what a child does after the fork

    assert isinstance(future.exception(PATIENCE_S), LogClosed)
    ending.clock.is_broken = True


@pytest.mark.parametrize("idempotence", [False, True])
def test_send_interrupted_when_it_begins_a_batch_writes_no_empty_batch(tmp_path: Path, idempotence: bool) -> None:
    with open_store(tmp_path / "store") as store:
        store.create_topic("t", partitions=2)
        with store.producer(linger_ms=NEVER_MS, idempotence=idempotence) as producer:
            ready = producer._sender._ready
            notify = ready.notify

            def interrupted() -> None:
                notify()
                raise KeyboardInterrupt

            for partition in (0, 1):
                producer.send("t", b"before", partition=partition)
                producer.flush()
                ready.notify = interrupted  # type: ignore[method-assign, assignment]
                with pytest.raises(KeyboardInterrupt):
                    producer.send("t", b"interrupted", partition=partition)
                ready.notify = notify  # type: ignore[method-assign]
                if partition:
                    producer.send("t", b"after", partition=partition)
                producer.flush()
        assert read(store, "t", 0) == [b"before"]
        assert read(store, "t", 1) == [b"before", b"after"]
        assert [batch.record_count for batch in store.log("t", 0).read_batches(0)] == [1]


# ---------------------------------------------------------------- a log that fails


def failing_roll(path: Path, *, error: int = errno.EMFILE) -> tuple[Store, FaultyFiles]:
    """Return a store whose next new segment cannot be created, once."""
    files = FaultyFiles(QuickFiles(), methods={"create"}, error=error, only=".log")
    store = open_store(path, clock=TickingClock(), files=files, segment_bytes=400)
    store.create_topic("t", partitions=1)
    return store, files


@pytest.mark.id("producer-goes-on")
@pytest.mark.parametrize("idempotence", [False, True])
def test_producer_goes_on_after_one_emfile_at_a_roll(tmp_path: Path, idempotence: bool) -> None:
    """Goal: exactly the batch that met the error is missing, and its future says so."""
    store, files = failing_roll(tmp_path / "store")
    values = [b"%d" % number * 250 for number in range(8)]
    with store:
        producer = store.producer(linger_ms=0, idempotence=idempotence)
        files.fail_at = files.calls + 1
        futures = []
        for value in values:
            futures.append(producer.send("t", value))
            futures[-1].exception(PATIENCE_S)

        assert files.failures == 1
        failed = [number for number, future in enumerate(futures) if future.exception(0) is not None]
        assert len(failed) == (0 if idempotence else 1)
        assert all(isinstance(futures[number].exception(0), LogFailed) for number in failed)
        assert read(store, "t") == [value for number, value in enumerate(values) if number not in failed]
        producer.close()  # the future was asked, so nothing is raised again


def test_failed_roll_says_that_nothing_was_written(tmp_path: Path) -> None:
    store, files = failing_roll(tmp_path / "store")
    with store, store.producer(linger_ms=0) as producer:
        producer.send("t", bytes(250)).result(PATIENCE_S)
        files.fail_at = files.calls + 1
        error = producer.send("t", bytes(250)).exception(PATIENCE_S)

    assert error is not None
    assert "nothing was written" in str(error)


def test_flush_reports_the_batch_that_a_failed_log_did_not_take(tmp_path: Path) -> None:
    store, files = failing_roll(tmp_path / "store")
    with store:
        producer = store.producer(linger_ms=0)
        producer.send("t", bytes(250)).result(PATIENCE_S)
        files.fail_at = files.calls + 1
        producer.send("t", b"lost" * 60)
        with pytest.raises(LogFailed):
            producer.flush()
        producer.send("t", b"kept" * 60)
        producer.close()

        assert read(store, "t")[1:] == [b"kept" * 60]


@pytest.mark.parametrize(("method", "flush"), [("write", "os"), ("write", "batch"), ("sync", "batch")])
def test_batch_in_doubt_is_never_sent_again_by_a_plain_producer(tmp_path: Path, method: str, flush: str) -> None:
    """Goal: after a failed write or sync the log may have the batch; whatever it has, it has once."""
    files = FaultyFiles(QuickFiles(), methods={method}, error=errno.EIO, only=".log")
    values = [b"%d" % number for number in range(4)]
    with open_store(tmp_path / "store", clock=TickingClock(), files=files, flush=flush) as store:
        store.create_topic("t", partitions=1)
        producer = store.producer(linger_ms=0)
        producer.send("t", b"before").result(PATIENCE_S)
        files.fail_at = files.calls + 1
        errors = [producer.send("t", value).exception(PATIENCE_S) for value in values]
        producer.close()

        assert [isinstance(error, LogFailed) for error in errors] == [True, False, False, False]
        assert [value for value in read(store, "t") if value != values[0]] == [b"before", *values[1:]]
        assert read(store, "t").count(values[0]) <= 1
