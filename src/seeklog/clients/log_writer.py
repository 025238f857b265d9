"""The buffering writer of one log: `append` returns a future at once, batches go to the log."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from types import TracebackType

from seeklog.clients.sender import Future, Lane, Sender
from seeklog.errors import UsageError
from seeklog.log import Log
from seeklog.record.encode import record_bound
from seeklog.record.record import Record, make_record


class AppendFuture(Future):
    """The offset that one record will have."""

    __slots__ = ()

    def result(self, timeout: float | None = None) -> int:
        """Return the record's offset, waiting for it; raises what the append raised, or `TimeoutError`."""
        return self._offset(timeout)


class _WholeLog:
    """A log as the one destination of a writer."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.syncs_each = log.config.flush == "batch"
        self.flush = log.flush

    def append_records(self, records: list[Record]) -> range:
        return self._log.append_many(records, wait=False)


class LogWriter:
    """Gathers records into batches. Any thread may append; close it, or use it as a context manager."""

    def __init__(
        self, log: Log, *, batch_bytes: int = 16384, linger_ms: float = 5, buffer_bytes: int = 32 << 20
    ) -> None:
        if batch_bytes < 1 or buffer_bytes < batch_bytes:
            raise UsageError("batch_bytes >= 1 and buffer_bytes >= batch_bytes must hold")
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
            timestamp_ms = self._now_ms()
        record = make_record(value, key, headers, timestamp_ms, -1, None)
        if key is None:
            self._check_keys((record,))
        return self._put(self._lane, record, record_bound(record), AppendFuture)

    def flush(self) -> None:
        """Send what has gathered and wait until all of it is written; errors are in the futures."""
        self._sender.flush()

    def close(self) -> None:
        """Send what has gathered and end the thread. Raises the error that stopped the log, if one did."""
        self._sender.close()
        if self._lane.failure is not None:
            raise self._lane.failure
