"""The buffering writer: records go in one by one, batches go to the log.

`append` returns a future at once. A thread of the writer's own takes what has gathered, when a batch is full or
the oldest record has lingered, and appends it; with `flush="batch"` all batches that are ready share one sync.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

from seeklog.errors import DiskFull, LogClosed, LogFailed, RecordTooLarge, SeeklogError, UsageError
from seeklog.record.kernel import HEADER_SIZE, Record, record_bound
from seeklog.storage.partition import Partition

logger = logging.getLogger("seeklog")


class Delivery:
    """The fate of one batch; its futures share it."""

    __slots__ = ("_callbacks", "_done", "_lock", "errors", "offsets")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done: threading.Event | None = None
        self._callbacks: list[Callable[[], object]] | None = []
        self.offsets: Sequence[int] = ()
        self.errors: Mapping[int, SeeklogError] = {}

    @property
    def is_done(self) -> bool:
        return self._callbacks is None

    def finish(self, offsets: Sequence[int], errors: Mapping[int, SeeklogError]) -> None:
        """Settle every future of the batch and run their callbacks in this thread.

        `errors` has the places of the records that failed.
        """
        with self._lock:
            self.offsets, self.errors = offsets, errors
            callbacks, self._callbacks = self._callbacks, None
            if self._done is not None:
                self._done.set()
        for callback in callbacks or ():
            try:
                callback()
            except Exception:
                logger.exception("a callback of an append failed")

    def wait(self, timeout: float | None) -> None:
        with self._lock:
            if self._callbacks is None:
                return
            if self._done is None:
                self._done = threading.Event()
        if not self._done.wait(timeout):
            raise TimeoutError("the record was not written in time")

    def when_done(self, callback: Callable[[], object]) -> None:
        with self._lock:
            if self._callbacks is not None:
                self._callbacks.append(callback)
                return
        callback()


class AppendFuture:
    """The offset that one record will have."""

    __slots__ = ("_delivery", "_place")

    def __init__(self, delivery: Delivery, place: int) -> None:
        self._delivery = delivery
        self._place = place

    def done(self) -> bool:
        """Tell whether the record was written or has failed."""
        return self._delivery.is_done

    def result(self, timeout: float | None = None) -> int:
        """Return the record's offset, waiting for it; raises what the append raised, or `TimeoutError`."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._delivery.offsets[self._place]

    def exception(self, timeout: float | None = None) -> SeeklogError | None:
        """Return what the append raised, or None, waiting for it."""
        self._delivery.wait(timeout)
        return self._delivery.errors.get(self._place)

    def add_done_callback(self, callback: Callable[[AppendFuture], object]) -> None:
        """Call `callback(future)` when it is settled: in the writer's thread, or here if it already is."""
        self._delivery.when_done(lambda: callback(self))


class _Gathering:
    """A batch that is being filled."""

    __slots__ = ("deadline", "delivery", "records", "size")

    def __init__(self, deadline: float) -> None:
        self.records: list[Record] = []
        self.size = HEADER_SIZE
        self.deadline = deadline
        self.delivery = Delivery()


class LogWriter:
    """Gathers records into batches. Any thread may append; close it, or use it as a context manager."""

    def __init__(self, log: Partition, *, batch_bytes: int, linger_ms: float, buffer_bytes: int) -> None:
        if batch_bytes < 1 or linger_ms < 0 or buffer_bytes < batch_bytes:
            raise UsageError("batch_bytes >= 1, linger_ms >= 0 and buffer_bytes >= batch_bytes must hold")
        log.check_usable()
        self._log = log
        self._clock = log.clock
        self._batch_bytes = min(batch_bytes, log.config.max_message_bytes, log.config.segment_bytes)
        self._linger = linger_ms / 1000
        self._buffer_bytes = buffer_bytes
        self._buffered = 0
        self._lock = threading.Lock()
        self._ready = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._idle = threading.Condition(self._lock)
        self._gathering: _Gathering | None = None
        self._full: deque[_Gathering] = deque()
        self._sending = False
        self._flush_requests = 0
        self._failure: SeeklogError | None = None
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="seeklog-writer", daemon=True)
        self._thread.start()

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
    ) -> AppendFuture:
        """Take a record and return its future; waits while the buffer is full.

        What is wrong with the record itself is raised here; what goes wrong later is in the future.
        """
        if timestamp_ms is None:
            timestamp_ms = self._clock.now_ms()
        record = Record(value, key=key, headers=headers, timestamp_ms=timestamp_ms)
        size = record_bound(record)
        with self._lock:
            if self._is_closed:
                raise LogClosed("the writer is closed")
            while self._buffered + size > self._buffer_bytes and self._buffered and self._failure is None:
                self._room.wait()
            if self._failure is not None:
                raise self._failure
            if self._is_closed:
                raise LogClosed("the writer was closed while this record waited for room")
            gathering = self._gathering
            if gathering is not None and gathering.size + size > self._batch_bytes:
                self._full.append(gathering)
                gathering = None
                self._ready.notify()
            if gathering is None:
                gathering = self._gathering = _Gathering(self._clock.monotonic() + self._linger)
                self._ready.notify()
            gathering.records.append(record)
            gathering.size += size
            self._buffered += size
            return AppendFuture(gathering.delivery, len(gathering.records) - 1)

    def flush(self) -> None:
        """Send what has gathered and wait until all of it is written; errors are in the futures."""
        with self._lock:
            self._flush_requests += 1
            self._ready.notify()
            try:
                while self._full or self._gathering is not None or self._sending:
                    self._idle.wait()
            finally:
                self._flush_requests -= 1

    def close(self) -> None:
        """Send what has gathered and end the thread. Raises the error that stopped the log, if one did."""
        self.flush()
        with self._lock:
            self._is_closed = True
            self._ready.notify()
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        while True:
            batches = self._take()
            if not batches:
                return
            self._send(batches)
            with self._lock:
                self._sending = False
                self._buffered -= sum(batch.size - HEADER_SIZE for batch in batches)
                self._room.notify_all()
                self._idle.notify_all()

    def _take(self) -> list[_Gathering]:
        """Wait for full batches, or for one that has lingered long enough; nothing when closed."""
        with self._lock:
            while True:
                if self._full:
                    batches = list(self._full)
                    self._full.clear()
                    self._sending = True
                    return batches
                gathering = self._gathering
                left = None
                if gathering is not None:
                    left = gathering.deadline - self._clock.monotonic()
                    if left <= 0 or self._flush_requests or self._is_closed:
                        self._gathering = None
                        self._sending = True
                        return [gathering]
                elif self._is_closed:
                    return []
                self._ready.wait(left)

    def _send(self, batches: list[_Gathering]) -> None:
        """Append batches one by one, sync once if the log promises that, then settle the futures."""
        sent = []
        for batch in batches:
            errors: dict[int, SeeklogError] = {}
            sent.append((batch, self._append(batch.records, 0, errors), errors))
        if self._log.config.flush == "batch" and any(len(errors) < len(o) for _, o, errors in sent):
            try:
                self._log.flush()
            except SeeklogError as error:
                self._failure = error
                sent = [(batch, o, dict.fromkeys(range(len(o)), error)) for batch, o, _ in sent]
        for batch, offsets, errors in sent:
            batch.delivery.finish(offsets, errors)

    def _append(self, records: list[Record], place: int, errors: dict[int, SeeklogError]) -> Sequence[int]:
        """Append records that stand at `place` in their batch; return their offsets, -1 where in `errors`.

        A batch that turns out too large is split; a record that is too large by itself fails alone.
        """
        try:
            return self._log.append_records(records, wait=False)
        except RecordTooLarge as error:
            if len(records) > 1:
                half = len(records) // 2
                return [
                    *self._append(records[:half], place, errors),
                    *self._append(records[half:], place + half, errors),
                ]
            failure: SeeklogError = error
        except DiskFull as error:
            failure = error  # these records are lost to the caller, but there may be room for the next
        except SeeklogError as error:
            failure = self._failure = error
        except Exception as error:
            failure = self._failure = LogFailed(f"the writer stopped: {error!r}")
        errors.update(dict.fromkeys(range(place, place + len(records)), failure))
        return [-1] * len(records)
