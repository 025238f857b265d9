"""A buffering writer for one log: `append` returns a future immediately, and a thread appends the batches."""

from __future__ import annotations

import weakref
from types import TracebackType

from seeklog.clients.sender import Future, Lane, Sender
from seeklog.errors import UsageError
from seeklog.log import Log
from seeklog.record import Bytes, Headers
from seeklog.record.encode import record_bound
from seeklog.record.record import Record, make_record


class AppendFuture(Future):
    """The future offset of one record."""

    __slots__ = ()

    def result(self, timeout: float | None = None) -> int:
        """Return the record's offset, waiting up to `timeout` seconds. Raises the append's error, or `TimeoutError`."""
        return self._offset(timeout)


class _WholeLog:
    """A log as the writer's only destination."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.syncs_each = log.config.flush == "batch"
        self.flush = log.flush

    def append_records(self, records: list[Record]) -> range:
        return self._log.append_many(records, wait=False)


class LogWriter:
    """Appends records to one log in batches. Any thread may append.

    A batch is written when it has `batch_bytes`, or `linger_ms` after its first record. Use it as a context manager, or
    close it.
    """

    def __init__(
        self, log: Log, *, batch_bytes: int = 16384, linger_ms: float = 5, buffer_bytes: int = 32 << 20
    ) -> None:
        if batch_bytes < 1 or buffer_bytes < batch_bytes:
            raise UsageError("batch_bytes must be at least 1, and buffer_bytes at least batch_bytes")
        log.check_usable()
        self._now_ms = log.clock.now_ms
        self._check_keys = log.check_keys
        largest = min(batch_bytes, log.config.max_message_bytes, log.config.segment_bytes)
        self._lane = Lane(_WholeLog(log), batch_bytes=largest)
        self._sender = Sender(log.clock, linger_ms=linger_ms, buffer_bytes=buffer_bytes)
        self._put = self._sender.put
        weakref.finalize(self, self._sender.end)

    def __enter__(self) -> LogWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def append(
        self,
        value: Bytes | None,
        *,
        key: Bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> AppendFuture:
        """Buffer a record and return its future. Waits while the buffer is full.

        An invalid record raises here. A later error is in the future.
        """
        if timestamp_ms is None:
            timestamp_ms = self._now_ms()
        record = make_record(value, key, headers, timestamp_ms, -1, None)
        if key is None:
            self._check_keys((record,))
        return self._put(self._lane, record, record_bound(record), AppendFuture)

    def flush(self) -> None:
        """Write what is buffered and wait for it. Errors are in the futures."""
        self._sender.flush()

    def close(self) -> None:
        """Write what is buffered and stop the thread. Raises the error that stopped the log, if there was one."""
        self._sender.close()
        if self._lane.failure is not None:
            raise self._lane.failure
