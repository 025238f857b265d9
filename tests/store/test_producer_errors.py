"""A producer whose records fail: reporting errors, continuing, and failed syncs."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from log.workbench import PATIENCE_S, START_MS, GatedFiles, TickingClock
from seeklog import Producer
from seeklog.clients import SendFuture, sender
from seeklog.errors import DiskFull, InvalidRecord, LogFailed, SeeklogError, TopicNotFound
from seeklog.record.growing import GrowingBatch
from seeklog.store import Store
from store.producing import NEVER_MS, LosingFiles, flush_expecting
from store.workbench import open_store, read


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store") as store:
        store.create_topic("events", partitions=4)
        yield store


def full_disk(tmp_path: Path) -> tuple[Store, GatedFiles]:
    files = GatedFiles()
    store = open_store(tmp_path / "store", files=files)
    store.create_topic("events", partitions=2)
    return store, files


@pytest.mark.parametrize("end", ["flush", "close"])
def test_unchecked_error_is_raised_by_flush_or_close(tmp_path: Path, end: str) -> None:
    store, files = full_disk(tmp_path)
    with store:
        producer = store.producer(linger_ms=NEVER_MS)
        files.write_errors["/events-0/"] = errno.ENOSPC
        producer.send("events", b"value", partition=0)
        with pytest.raises(DiskFull):
            getattr(producer, end)()
        producer.close()  # reported once


@pytest.mark.parametrize("end", ["flush", "close"])
@pytest.mark.parametrize("how", ["exception", "result", "callback"])
def test_checked_error_is_not_raised_again(tmp_path: Path, how: str, end: str) -> None:
    store, files = full_disk(tmp_path)
    with store, store.producer(linger_ms=0) as producer:
        files.write_errors["/events-0/"] = errno.ENOSPC
        future = producer.send("events", b"value", partition=0)
        if how == "callback":
            future.add_done_callback(lambda _: None)
        elif how == "result":
            with pytest.raises(DiskFull):
                future.result(PATIENCE_S)
        else:
            assert isinstance(future.exception(PATIENCE_S), DiskFull)
        getattr(producer, end)()


def test_unchecked_error_is_raised_although_its_neighbour_was_checked(tmp_path: Path) -> None:
    store, files = full_disk(tmp_path)
    with store:
        producer = store.producer(linger_ms=NEVER_MS)
        files.write_errors["/events-0/"] = errno.ENOSPC
        asked, _ = (producer.send("events", b"value", partition=0) for _ in range(2))
        asked.add_done_callback(lambda _: None)
        with pytest.raises(DiskFull):
            producer.flush()
        producer.close()


def test_producer_continues_after_full_disk(tmp_path: Path) -> None:
    store, files = full_disk(tmp_path)
    with store, store.producer(linger_ms=0) as producer:
        assert producer.send("events", b"one", partition=0).result(PATIENCE_S).offset == 0
        files.write_errors["/events-0/"] = errno.ENOSPC
        lost = producer.send("events", b"lost", partition=0)
        other = producer.send("events", b"other", partition=1)
        assert isinstance(lost.exception(PATIENCE_S), DiskFull)
        assert other.result(PATIENCE_S).offset == 0
        files.write_errors.clear()
        assert producer.send("events", b"two", partition=0).result(PATIENCE_S).offset == 1
        assert read(store, "events") == [b"one", b"two"]


def test_failed_write_fails_only_its_batch(tmp_path: Path) -> None:
    store, files = full_disk(tmp_path)
    with store:
        producer = store.producer(linger_ms=0)
        assert producer.send("events", b"one", partition=0).result(PATIENCE_S).offset == 0
        files.write_errors["/events-0/"] = errno.EIO
        assert isinstance(producer.send("events", b"lost", partition=0).exception(PATIENCE_S), LogFailed)
        files.write_errors.clear()
        assert producer.send("events", b"two", partition=0).result(PATIENCE_S).offset == 1
        assert producer.send("events", b"other", partition=1).result(PATIENCE_S).offset == 0
        producer.close()
        assert read(store, "events", 0) == [b"one", b"two"]
        assert read(store, "events", 1) == [b"other"]


def test_failed_sync_fails_every_record_it_covers(tmp_path: Path) -> None:
    files = GatedFiles()
    store = open_store(tmp_path / "store", files=files, flush="batch")
    store.create_topic("events", partitions=2)
    producer = store.producer(linger_ms=NEVER_MS)
    for partition in range(2):
        producer.send("events", b"before", partition=partition)
    producer.flush()
    files.sync_errors["/events-0/"] = errno.EIO
    lost = [producer.send("events", b"lost", partition=0) for _ in range(3)]
    kept = [producer.send("events", b"kept", partition=1) for _ in range(3)]
    flush_expecting(producer, LogFailed)

    assert all(isinstance(future.exception(PATIENCE_S), LogFailed) for future in lost)
    assert [future.result(PATIENCE_S).offset for future in kept] == [1, 2, 3]
    files.sync_errors.clear()
    after = producer.send("events", b"after", partition=0)
    producer.close()
    assert after.exception(0) is None
    store.close()


@pytest.mark.id("ack-after-reopen")
@pytest.mark.parametrize("way", ["flush", "close"])
def test_sync_of_reopened_log_does_not_acknowledge_earlier_record(tmp_path: Path, way: str) -> None:
    """Another thread's sync failed between a producer's append and its own sync, which found another log, cut by
    recovery. The record was acknowledged, and the next one got its offset.
    """
    files = LosingFiles()
    files.synced = {}
    with open_store(tmp_path, files=files, flush="batch") as store:
        store.create_topic("t", partitions=1)
        with store.producer(linger_ms=0) as producer:
            assert producer.send("t", b"first").result().offset == 0
            (lane,) = producer._lanes.values()
            append = lane.destination.append

            def append_and_lose(batches: Sequence[GrowingBatch]) -> Any:
                offsets = append(batches)
                files.sync_errors["/t-0/"] = errno.EIO
                with pytest.raises(LogFailed):
                    getattr(store._table.open_writers()[0], way)()
                return offsets

            lane.destination.append = append_and_lose
            assert isinstance(producer.send("t", b"second").exception(PATIENCE_S), LogFailed)
        assert read(store, "t") == [b"first"]


def between_two_batches(store: Store, producer: Producer, do: Callable[[], object]) -> list[SendFuture]:
    """Send two batches in one round and two writes, and call `do` after the append of the first."""
    append = store._table.append

    def append_and_do(*arguments: Any, **options: Any) -> Any:
        store._table.append = append  # type: ignore[method-assign]
        appended = append(*arguments, **options)
        do()
        return appended

    store._table.append = append_and_do  # type: ignore[method-assign]
    futures = [producer.send("t", letter * 150) for letter in (b"y", b"z")]
    with pytest.MonkeyPatch.context() as patched, contextlib.suppress(LogFailed):
        patched.setattr(sender, "MAX_WRITE_BYTES", 1)
        producer.flush()
    return futures


@pytest.mark.id("ack-after-reopen-later-batch")
def test_sync_of_later_batch_in_reopened_log_does_not_acknowledge_it(tmp_path: Path) -> None:
    """Both were acknowledged with the same offset."""
    files = LosingFiles()
    files.synced = {}
    with open_store(tmp_path, files=files, flush="batch") as store:
        store.create_topic("t", partitions=1)
        producer = store.producer(linger_ms=NEVER_MS, batch_bytes=200)
        producer.send("t", b"x" * 150)
        producer.flush()

        def lose() -> None:
            files.sync_errors["/t-0/"] = errno.EIO
            with pytest.raises(LogFailed):
                store._table.open_writers()[0].flush()

        first, _ = between_two_batches(store, producer, lose)
        assert isinstance(first.exception(PATIENCE_S), LogFailed)
        with contextlib.suppress(LogFailed):
            producer.close()
        assert b"y" * 150 not in read(store, "t")


def test_producer_continues_when_topic_is_altered_between_batches(tmp_path: Path) -> None:
    """One of them is synced and the other is not: the policy had changed in between."""
    with open_store(tmp_path, flush="batch") as store:
        store.create_topic("t", partitions=1)
        with store.producer(linger_ms=NEVER_MS, batch_bytes=200) as producer:
            futures = between_two_batches(store, producer, lambda: store.alter_topic("t", {"flush": "interval"}))
            assert [future.result(PATIENCE_S).offset for future in futures] == [0, 1]
            producer.send("t", b"more")
        assert len(read(store, "t")) == 3


def test_record_is_acknowledged_if_close_synced_its_log(tmp_path: Path) -> None:
    with open_store(tmp_path, flush="batch") as store:
        store.create_topic("t", partitions=1)
        with store.producer(linger_ms=0) as producer:
            producer.send("t", b"first").result()
            (lane,) = producer._lanes.values()
            append = lane.destination.append

            def append_and_close(batches: Sequence[GrowingBatch]) -> Any:
                offsets = append(batches)
                store._table.drop("t")
                return offsets

            lane.destination.append = append_and_close
            assert producer.send("t", b"second").result().offset == 1
        assert read(store, "t") == [b"first", b"second"]


def test_producer_continues_after_topic_was_recreated(store: Store) -> None:
    with store.producer(linger_ms=NEVER_MS) as producer:
        lost = producer.send("events", b"lost", partition=0)
        store.delete_topic("events")
        assert isinstance(exception_after_flush(producer, lost), TopicNotFound)
        store.create_topic("events", partitions=1)
        kept = producer.send("events", b"kept", partition=0)
        assert exception_after_flush(producer, kept) is None
        assert read(store, "events") == [b"kept"]


def exception_after_flush(producer: Producer, future: SendFuture) -> SeeklogError | None:
    future.add_done_callback(lambda _: None)  # so that flush raises nothing
    producer.flush()
    return future.exception(PATIENCE_S)


# ---------------------------------------------------------------- timestamps


def test_seconds_for_milliseconds_raise_in_send(store: Store) -> None:
    with store.producer(linger_ms=NEVER_MS) as producer:
        producer.send("events", b"before", partition=0)
        with pytest.raises(InvalidRecord, match=r"topic 'events': the record has timestamp_ms 1700000000, .* by 1000"):
            producer.send("events", b"wrong", partition=0, timestamp_ms=START_MS // 1000)
        producer.send("events", b"after", partition=0, timestamp_ms=START_MS)

    assert read(store, "events", 0) == [b"before", b"after"]


def test_timestamp_beyond_limit_of_topic_raises_in_send(store: Store) -> None:
    store.alter_topic("events", {"message.timestamp.before.max.ms": 1000})
    with store.producer(linger_ms=NEVER_MS) as producer:
        producer.send("events", b"young", partition=0, timestamp_ms=START_MS - 1000)
        with pytest.raises(InvalidRecord, match=r"message\.timestamp\.before\.max\.ms is 1000"):
            producer.send("events", b"old", partition=0, timestamp_ms=START_MS - 1001)

    assert read(store, "events", 0) == [b"young"]


@pytest.mark.parametrize("idempotence", [False, True])
def test_record_that_grows_too_old_in_the_buffer_fails_alone(tmp_path: Path, idempotence: bool) -> None:
    clock = TickingClock()
    with open_store(tmp_path / "store", clock=clock) as store:
        store.create_topic("events", partitions=1, config={"message.timestamp.before.max.ms": 1000})
        producer = store.producer(linger_ms=NEVER_MS, idempotence=idempotence)
        stamps = [START_MS, START_MS - 1000, START_MS]
        futures = [producer.send("events", b"%d" % at, timestamp_ms=at) for at in stamps]
        clock.jump_to(START_MS + 1)

        with pytest.raises(InvalidRecord):
            producer.flush()

        assert isinstance(futures[1].exception(PATIENCE_S), InvalidRecord)
        assert [futures[number].result(PATIENCE_S).offset for number in (0, 2)] == [0, 1]
        producer.send("events", b"next")
        producer.close()
        assert len(read(store, "events")) == 3


def test_retry_refused_for_its_age_stores_no_record_twice(tmp_path: Path) -> None:
    """The first attempt writes the batch and fails to sync it. Before the second, a record becomes too old."""
    clock = TickingClock()

    class StumblingFiles(GatedFiles):
        def sync(self, handle: int) -> None:
            try:
                super().sync(handle)
            except OSError:
                self.sync_errors.clear()
                clock.jump_to(START_MS + 1)
                raise

    files = StumblingFiles()
    with open_store(tmp_path / "store", clock=clock, files=files) as store:
        config = {"flush": "batch", "message.timestamp.before.max.ms": 1000}
        store.create_topic("events", partitions=1, config=config)
        with store.writer("events", 0):
            pass  # the first open of a partition syncs it, too
        producer = store.producer(linger_ms=NEVER_MS, idempotence=True)
        futures = [producer.send("events", b"%d" % age, timestamp_ms=START_MS - age) for age in (1000, 0)]
        files.sync_errors["/events-0/"] = errno.EIO

        flush_expecting(producer, LogFailed)

        assert all(isinstance(future.exception(PATIENCE_S), LogFailed) for future in futures)
        assert read(store, "events") == [b"1000", b"0"]
