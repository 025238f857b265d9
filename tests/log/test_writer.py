"""The buffering writer: batches by size and by linger, futures, back-pressure, and errors that reach the caller."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from log.workbench import (
    HEADER_BYTES,
    PATIENCE_S,
    START_MS,
    CountingFiles,
    FakeClock,
    GatedFiles,
    contents,
    offsets,
    open_log,
    values,
    wait_until,
)
from seeklog import Log, Record
from seeklog.clients.log_writer import LogWriter
from seeklog.errors import DiskFull, InvalidRecord, LogClosed, LogFailed, RecordTooLarge, UsageError
from seeklog.files import Buffer
from seeklog.record.encode import record_bound

NEVER_MS = 10**9


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log") as log:
        yield log


def batch_counts(log: Log) -> list[int]:
    return [batch.record_count for batch in log.read_batches(0)]


# ---------------------------------------------------------------- when a batch is sent


def test_records_gather_until_a_batch_is_full(log: Log) -> None:
    """The bound of a record of 900 bytes is 926, so a batch of 2,000 has room for two."""
    with LogWriter(log, batch_bytes=2000, linger_ms=NEVER_MS) as writer:
        futures = [writer.append(bytes(900)) for _ in range(5)]
        for future in futures[:4]:
            future.result(PATIENCE_S)

        assert not futures[4].done()
        assert log.log_end_offset == 4
    assert batch_counts(log) == [2, 2, 1]
    assert [future.result(0) for future in futures] == [0, 1, 2, 3, 4]


def test_partial_batch_is_sent_after_linger(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock) as log, LogWriter(log, linger_ms=50) as writer:
        first = writer.append(b"a")
        clock.advance(49)
        second = writer.append(b"b")
        assert not first.done()
        clock.advance(1)

        assert [first.result(PATIENCE_S), second.result(PATIENCE_S)] == [0, 1]
        assert batch_counts(log) == [2]


def test_record_is_sent_at_once_without_linger(log: Log) -> None:
    with LogWriter(log, linger_ms=0) as writer:
        for expected in range(3):
            assert writer.append(b"v").result(PATIENCE_S) == expected

    assert batch_counts(log) == [1, 1, 1]


def test_flush_sends_buffered_records_and_waits_for_them(log: Log) -> None:
    with LogWriter(log, linger_ms=NEVER_MS) as writer:
        futures = [writer.append(b"%d" % n) for n in range(3)]
        assert log.log_end_offset == 0
        writer.flush()

        assert all(future.done() for future in futures)
        assert values(log.scan()) == [b"0", b"1", b"2"]
        writer.flush()


def test_close_sends_buffered_records(log: Log) -> None:
    writer = LogWriter(log, linger_ms=NEVER_MS)
    future = writer.append(b"v")
    writer.close()
    writer.close()

    assert future.result(0) == 0
    assert log.append(b"the log is still open") == 1


def test_records_of_one_thread_keep_their_order(log: Log) -> None:
    with LogWriter(log, batch_bytes=500, linger_ms=0) as writer:
        futures = [writer.append(b"%d" % n) for n in range(500)]

    assert [future.result(0) for future in futures] == list(range(500))
    assert values(log.scan()) == [b"%d" % n for n in range(500)]


def test_many_threads_may_append(log: Log) -> None:
    def append(name: int) -> list[int]:
        return [future.result(PATIENCE_S) for future in [writer.append(b"%d %d" % (name, n)) for n in range(50)]]

    with LogWriter(log, batch_bytes=300, linger_ms=0) as writer, ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(append, range(8)))

    found = values(log.scan())
    assert sorted(offset for each in taken for offset in each) == list(range(400))
    for name, each in enumerate(taken):
        assert [found[offset] for offset in each] == [b"%d %d" % (name, n) for n in range(50)]
        assert each == sorted(each)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batches_are_compressed_by_the_config_of_the_log(tmp_path: Path, codec: str) -> None:
    with open_log(tmp_path, compression_type=codec) as log:
        with LogWriter(log, linger_ms=NEVER_MS) as writer:
            writer.append(b"v", key=b"k", headers=[("h", None)], timestamp_ms=5)
            writer.append(None)

        assert list(log.scan()) == [
            Record(b"v", key=b"k", headers=[("h", None)], timestamp_ms=5, offset=0),
            Record(None, timestamp_ms=START_MS, offset=1),
        ]
        assert [batch.codec for batch in log.read_batches(0)] == [codec]


def test_record_is_stamped_at_append_not_at_write(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock) as log:
        with LogWriter(log, linger_ms=NEVER_MS) as writer:
            writer.append(b"a")
            clock.advance(30)
            writer.append(b"b")
            clock.advance(30)

        assert [record.timestamp_ms for record in log.scan()] == [START_MS, START_MS + 30]


# ---------------------------------------------------------------- sizes


def test_record_larger_than_a_batch_is_sent_alone(log: Log) -> None:
    with LogWriter(log, batch_bytes=100, linger_ms=NEVER_MS) as writer:
        for size in (10, 5000, 10):
            writer.append(bytes(size))

    assert batch_counts(log) == [1, 1, 1]


def test_batch_never_exceeds_max_message_bytes(tmp_path: Path) -> None:
    with open_log(tmp_path, max_message_bytes=400, segment_bytes=300) as log:
        with LogWriter(log, batch_bytes=10**6, linger_ms=NEVER_MS) as writer:
            futures = [writer.append(bytes(50)) for _ in range(20)]

        assert [future.result(0) for future in futures] == list(range(20))
        assert all(batch.header.size <= 300 for batch in log.read_batches(0))


def test_too_large_record_fails_alone(tmp_path: Path) -> None:
    """No batch has room for it, so it gets its own."""
    with open_log(tmp_path, max_message_bytes=1000) as log:
        with LogWriter(log, batch_bytes=1000, linger_ms=NEVER_MS) as writer:
            futures = [writer.append(bytes(size)) for size in (10, 20, 2000, 30)]

        assert isinstance(futures[2].exception(0), RecordTooLarge)
        with pytest.raises(RecordTooLarge):
            futures[2].result(0)
        assert [futures[n].result(0) for n in (0, 1, 3)] == [0, 1, 2]
        assert [len(value or b"") for value in values(log.scan())] == [10, 20, 30]


def test_batch_too_large_after_compression_is_split(tmp_path: Path) -> None:
    """Random bytes do not shrink: gzip adds some to every 16 KiB, more than the bound of a record exceeds its size."""
    largest = 200_000
    size = (largest - HEADER_BYTES) // 2 - (record_bound(Record(bytes(largest // 2))) - largest // 2)
    with open_log(tmp_path, max_message_bytes=largest, compression_type="gzip") as log:
        with LogWriter(log, batch_bytes=largest, linger_ms=NEVER_MS) as writer:
            assert 2 * record_bound(Record(bytes(size))) + HEADER_BYTES <= largest  # two are put in one batch
            futures = [writer.append(os.urandom(size)) for _ in range(6)]

        assert [future.result(0) for future in futures] == list(range(6))
        assert batch_counts(log) == [1] * 6
        assert all(2 * batch.header.size > largest for batch in log.read_batches(0))


# ---------------------------------------------------------------- futures


def test_future_reports_when_it_is_done(tmp_path: Path) -> None:
    with open_log(tmp_path) as log, LogWriter(log, linger_ms=NEVER_MS) as writer:
        future = writer.append(b"v")

        assert not future.done()
        with pytest.raises(TimeoutError):
            future.result(0.001)
        with pytest.raises(TimeoutError):
            future.exception(0.001)
        writer.flush()
        assert future.done()
        assert future.exception(0) is None


def test_many_threads_may_wait_for_one_future(log: Log) -> None:
    with LogWriter(log, linger_ms=NEVER_MS) as writer, ThreadPoolExecutor(8) as pool:
        future = writer.append(b"v")
        waiting = [pool.submit(future.result, PATIENCE_S) for _ in range(8)]
        writer.flush()

        assert [future.result(PATIENCE_S) for future in waiting] == [0] * 8


def test_callback_is_called_once_with_its_future(log: Log) -> None:
    called: list[int] = []
    with LogWriter(log, linger_ms=NEVER_MS) as writer:
        futures = [writer.append(b"v") for _ in range(3)]
        for future in futures:
            future.add_done_callback(lambda done: called.append(done.result(0)))
        assert called == []

    assert called == [0, 1, 2]
    futures[1].add_done_callback(lambda done: called.append(100 + done.result(0)))
    assert called == [0, 1, 2, 101]


def test_failing_callback_is_logged(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    called: list[int] = []
    with LogWriter(log, linger_ms=NEVER_MS) as writer:
        futures = [writer.append(b"v") for _ in range(2)]
        futures[0].add_done_callback(lambda done: 1 / 0)
        futures[1].add_done_callback(lambda done: called.append(1))
        writer.flush()
        again = writer.append(b"v")

    assert (called, again.result(0)) == ([1], 2)
    assert any("callback" in record.message for record in caplog.records)


def test_callback_may_append(log: Log) -> None:
    chained: list[Any] = []
    with LogWriter(log, linger_ms=0) as writer:
        writer.append(b"first").add_done_callback(lambda done: chained.append(writer.append(b"second")))
        wait_until(lambda: bool(chained), "the callback")

        assert chained[0].result(PATIENCE_S) == 1


# ---------------------------------------------------------------- refusals at append


@pytest.mark.parametrize(
    "settings",
    [
        {"value": "text"},
        {"value": b"", "key": 5},
        {"value": b"", "headers": [("h", "text")]},
        {"value": b"", "timestamp_ms": -2},
    ],
    ids=repr,
)
def test_invalid_record_is_refused_at_append(log: Log, settings: dict[str, Any]) -> None:
    with LogWriter(log, linger_ms=NEVER_MS) as writer:
        good = writer.append(b"good")
        with pytest.raises(InvalidRecord):
            writer.append(**settings)

    assert good.result(0) == 0
    assert values(log.scan()) == [b"good"]


@pytest.mark.parametrize(
    "settings", [{"batch_bytes": 0}, {"linger_ms": -1}, {"batch_bytes": 100, "buffer_bytes": 99}], ids=repr
)
def test_invalid_writer_settings_are_refused(log: Log, settings: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        LogWriter(log, **settings)


def test_closed_writer_refuses_records(log: Log) -> None:
    writer = LogWriter(log)
    writer.close()

    with pytest.raises(LogClosed, match="writer is closed"):
        writer.append(b"v")


# ---------------------------------------------------------------- back-pressure


def test_append_waits_while_the_buffer_is_full(tmp_path: Path) -> None:
    files = GatedFiles()
    with open_log(tmp_path, files=files) as log, ThreadPoolExecutor(1) as pool:
        writer = LogWriter(log, batch_bytes=1000, linger_ms=0, buffer_bytes=3000)
        files.gate.clear()
        # 926 bytes each: three fill the buffer, whether they are being written or waiting.
        futures = [writer.append(bytes(900)) for _ in range(3)]
        assert files.waiting.acquire(timeout=PATIENCE_S)
        blocked = pool.submit(writer.append, bytes(900))
        with pytest.raises(TimeoutError):
            blocked.result(0.05)
        files.gate.set()

        assert blocked.result(PATIENCE_S).result(PATIENCE_S) == 3
        assert [future.result(PATIENCE_S) for future in futures] == [0, 1, 2]
        writer.close()


def test_record_larger_than_the_buffer_is_accepted_when_it_is_empty(log: Log) -> None:
    with LogWriter(log, batch_bytes=100, linger_ms=0, buffer_bytes=100) as writer:
        assert [writer.append(bytes(500)).result(PATIENCE_S) for _ in range(3)] == [0, 1, 2]


class LateRoom(threading.Condition):
    """Lets a thread that waited for room continue only after an event."""

    def __init__(self, lock: Any, event: threading.Event) -> None:
        super().__init__(lock)
        self.event = event
        self.entered = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.entered.set()
        notified = super().wait(timeout)
        self.release()
        assert self.event.wait(PATIENCE_S)
        self.acquire()
        return notified


def test_append_waiting_for_room_is_refused_on_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its record must not be left with a thread that has ended: the future would never be resolved."""
    files, closed = GatedFiles(), threading.Event()
    with open_log(tmp_path, files=files) as log, ThreadPoolExecutor(1) as pool:
        writer = LogWriter(log, batch_bytes=1000, linger_ms=0, buffer_bytes=1000)
        room = LateRoom(writer._sender._lock, closed)
        monkeypatch.setattr(writer._sender, "_room", room)
        files.gate.clear()
        writer.append(bytes(900))
        blocked = pool.submit(writer.append, bytes(900))
        assert room.entered.wait(PATIENCE_S)
        files.gate.set()
        writer.close()
        closed.set()

        assert isinstance(blocked.exception(PATIENCE_S), LogClosed)


# ---------------------------------------------------------------- errors


def test_failed_write_reaches_every_future_and_the_close(tmp_path: Path) -> None:
    files = GatedFiles()
    log = open_log(tmp_path, files=files)
    writer = LogWriter(log, linger_ms=NEVER_MS)
    files.write_errors[""] = errno.EIO
    futures = [writer.append(b"v") for _ in range(3)]

    with pytest.raises(LogFailed):
        writer.close()
    assert all(isinstance(future.exception(0), LogFailed) for future in futures)
    log.close()


def test_append_after_a_failure_raises_it(tmp_path: Path) -> None:
    files = GatedFiles()
    log = open_log(tmp_path, files=files)
    writer = LogWriter(log, linger_ms=0)
    files.write_errors[""] = errno.EIO
    writer.append(b"v").exception(PATIENCE_S)

    with pytest.raises(LogFailed):
        writer.append(b"again")
    with pytest.raises(LogFailed):
        writer.close()
    log.close()


def test_failure_wakes_an_append_waiting_for_room(tmp_path: Path) -> None:
    files = GatedFiles()
    log = open_log(tmp_path, files=files)
    with ThreadPoolExecutor(1) as pool:
        writer = LogWriter(log, batch_bytes=1000, linger_ms=0, buffer_bytes=1000)
        files.gate.clear()
        files.write_errors[""] = errno.EIO
        writer.append(bytes(900))
        assert files.waiting.acquire(timeout=PATIENCE_S)
        blocked = pool.submit(writer.append, bytes(900))
        files.gate.set()

        assert isinstance(blocked.exception(PATIENCE_S), LogFailed)
    with pytest.raises(LogFailed):
        writer.close()
    log.close()


def test_failure_reaches_an_append_that_still_has_no_room(tmp_path: Path) -> None:
    """Records gathered after the failed batch are still buffered; they fail in turn, and none of them is written."""
    files = GatedFiles()
    log = open_log(tmp_path, files=files)
    with ThreadPoolExecutor(1) as pool:
        writer = LogWriter(log, batch_bytes=1000, linger_ms=NEVER_MS, buffer_bytes=2500)
        files.gate.clear()
        files.write_errors[""] = errno.EIO
        writer.append(bytes(900))
        gathers = writer.append(bytes(900))
        assert files.waiting.acquire(timeout=PATIENCE_S)
        blocked = pool.submit(writer.append, bytes(1900))
        wait_until(lambda: bool(writer._sender._room._waiters), "the append to wait for room")  # type: ignore[attr-defined]
        files.gate.set()

        assert isinstance(blocked.exception(PATIENCE_S), LogFailed)
    assert not gathers.done()
    files.write_errors.clear()
    with pytest.raises(LogFailed):
        writer.close()
    assert isinstance(gathers.exception(0), LogFailed)
    assert list(log.scan()) == []
    log.close()


def test_unexpected_error_stops_the_writer_and_is_its_cause(tmp_path: Path) -> None:
    class OutOfMemory(CountingFiles):
        def write(self, handle: int, data: Buffer, position: int) -> None:
            if self._paths[handle].endswith(".log"):
                raise MemoryError("no memory left")
            super().write(handle, data, position)

    with open_log(tmp_path, files=OutOfMemory()) as log:
        writer = LogWriter(log, linger_ms=0)
        future = writer.append(b"v")

        assert isinstance(future.exception(PATIENCE_S), LogFailed)
        with pytest.raises(LogFailed, match="no memory left"):
            writer.append(b"again")
        with pytest.raises(LogFailed, match="no memory left"):
            writer.close()
        assert log.log_end_offset == 0


def test_full_disk_fails_its_records_but_not_the_writer(tmp_path: Path) -> None:
    files = GatedFiles()
    with open_log(tmp_path, files=files) as log, LogWriter(log, linger_ms=0) as writer:
        files.write_errors[""] = errno.ENOSPC
        assert isinstance(writer.append(b"no room").exception(PATIENCE_S), DiskFull)
        files.write_errors.clear()

        assert writer.append(b"room").result(PATIENCE_S) == 0
        assert values(log.scan()) == [b"room"]


def test_closing_the_log_fails_the_records_of_its_writer(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    writer = LogWriter(log, linger_ms=NEVER_MS)
    future = writer.append(b"v")
    log.close()
    before = contents(tmp_path)

    with pytest.raises(LogClosed):
        writer.close()
    assert isinstance(future.exception(0), LogClosed)
    assert contents(tmp_path) == before


# ---------------------------------------------------------------- durability


def test_flush_batch_resolves_a_future_only_after_its_sync(tmp_path: Path) -> None:
    files = GatedFiles()
    seen: list[tuple[int, int]] = []
    with open_log(tmp_path, files=files, flush="batch") as log, LogWriter(log, linger_ms=NEVER_MS) as writer:
        for _ in range(5):
            future = writer.append(b"v")
            future.add_done_callback(lambda done: seen.append((done.result(0), log.recovery_point)))
            writer.flush()

    assert [offset for offset, _ in seen] == [0, 1, 2, 3, 4]
    assert all(recovery_point > offset for offset, recovery_point in seen)


def test_flush_batch_syncs_all_ready_batches_at_once(tmp_path: Path) -> None:
    files = GatedFiles()
    with open_log(tmp_path, files=files, flush="batch") as log:
        with LogWriter(log, batch_bytes=1000, linger_ms=0) as writer:
            files.gate.clear()
            writer.append(bytes(900))
            assert files.waiting.acquire(timeout=PATIENCE_S)
            before = files.count("sync")
            futures = [writer.append(bytes(900)) for _ in range(20)]
            files.gate.set()
            for future in futures:
                future.result(PATIENCE_S)

        # One for the batch in progress, one for the nineteen full ones, one for the last.
        assert files.count("sync") - before <= 3
        assert offsets(log.scan()) == list(range(21))


def test_flush_batch_failed_sync_fails_every_waiting_future(tmp_path: Path) -> None:
    files = GatedFiles()
    log = open_log(tmp_path, files=files, flush="batch")
    writer = LogWriter(log, linger_ms=NEVER_MS)
    files.sync_errors[""] = errno.EIO
    futures = [writer.append(b"v") for _ in range(3)]

    with pytest.raises(LogFailed):
        writer.close()
    assert all(isinstance(future.exception(0), LogFailed) for future in futures)
    assert log.high_watermark == 0
    log.close()


def test_future_does_not_wait_for_a_sync_without_flush_batch(tmp_path: Path) -> None:
    files = GatedFiles()
    with open_log(tmp_path, files=files) as log, LogWriter(log, linger_ms=0) as writer:
        before = files.count("sync")
        writer.append(b"v").result(PATIENCE_S)

        assert files.count("sync") == before
        assert (log.high_watermark, log.recovery_point) == (1, 0)
