"""A buffering writer for one log: `append` returns a future immediately, and a thread appends the batches."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from seeklog.clients.gathering import AppendFuture, Lane
from seeklog.clients.sender import Sender, Unsynced, check_batching
from seeklog.log import Log, TimestampRule
from seeklog.metrics import Family, ProducerSection
from seeklog.record import Bytes, Headers
from seeklog.record.growing import GrowingBatch
from seeklog.record.record import Record, make_record


class _WholeLog:
    """A log as the writer's only destination. Its owner has opened it, so nobody else opens it again."""

    reopens = False

    def __init__(self, log: Log) -> None:
        self._log = log
        self._unsynced = log if log.config.flush == "batch" else None

    def append(self, batches: Sequence[GrowingBatch]) -> tuple[range, Log | None]:
        return self._log.append_encoded(batches, wait=False), self._unsynced

    def sync(self, log: Unsynced, *, end: int) -> None:
        log.flush()

    def end_turn(self, *, has_more: bool) -> None:
        """Do nothing: an open log stays locked."""


class LogWriter:
    """Appends records to one log in batches. Any thread may append.

    A batch is written when it has `batch_bytes`, or `linger_ms` after its first record. Use it as a context manager, or
    close it.
    """

    def __init__(
        self, log: Log, *, batch_bytes: int = 16384, linger_ms: float = 5, buffer_bytes: int = 32 << 20
    ) -> None:
        check_batching(batch_bytes=batch_bytes, linger_ms=linger_ms, buffer_bytes=buffer_bytes)
        log.check_usable()
        self._now_ms = log.clock.now_ms
        self._needs_keys, self._check_keys = log.config.compacts, log.check_keys
        self._timestamps = TimestampRule(log.config, log.clock, subject=str(log.path))
        largest = min(batch_bytes, log.config.max_message_bytes, log.config.segment_bytes)
        self._lane = Lane(log.location, _WholeLog(log), batch_bytes=largest)
        self._sender = Sender(log.clock, linger_ms=linger_ms, buffer_bytes=buffer_bytes, family=Family(ProducerSection))
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
        else:
            rule = self._timestamps
            if not isinstance(timestamp_ms, int) or not rule.checked_up_to < timestamp_ms <= rule.accepted_up_to:
                rule.check(None, make_record(None, None, (), timestamp_ms, -1, None).timestamp_ms)
        if key is None and self._needs_keys:
            self._check_keys((Record(value),))
        return self._put(self._lane, value, key, headers, timestamp_ms)

    def metrics(self) -> dict[str, Any]:
        """Return what this writer has counted, with the keys of `Producer.metrics`. Any thread may call this."""
        return self._sender.as_dict()

    def flush(self) -> None:
        """Write what is buffered and wait for it. Errors are in the futures."""
        self._sender.flush()

    def close(self) -> None:
        """Write what is buffered and stop the thread. Raises the error that stopped the log, if there was one."""
        self._sender.close()
        failure = self._lane.failure or self._sender.failure
        if failure is not None:
            raise failure
