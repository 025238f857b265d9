"""The buffering writer of one log: `append` returns a future at once, batches go to the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType

from seeklog.errors import SeeklogError, UsageError
from seeklog.record.kernel import Record, record_bound
from seeklog.storage.partition import Partition
from seeklog.storage.sender import Delivery, Lane, Sender


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


class _WholeLog:
    """A partition as the one destination of a writer."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self.syncs_each = partition.config.flush == "batch"
        self.flush = partition.flush

    def append_records(self, records: list[Record]) -> range:
        return self._partition.append_records(records, wait=False)


class LogWriter:
    """Gathers records into batches. Any thread may append; close it, or use it as a context manager."""

    def __init__(self, log: Partition, *, batch_bytes: int, linger_ms: float, buffer_bytes: int) -> None:
        if batch_bytes < 1 or buffer_bytes < batch_bytes:
            raise UsageError("batch_bytes >= 1 and buffer_bytes >= batch_bytes must hold")
        log.check_usable()
        self._now_ms = log.clock.now_ms
        largest = min(batch_bytes, log.config.max_message_bytes, log.config.segment_bytes)
        self._lane = Lane(_WholeLog(log), batch_bytes=largest)
        self._sender = Sender(log.clock, linger_ms=linger_ms, buffer_bytes=buffer_bytes)
        self._put = self._sender.put

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
        record = Record(value, key=key, headers=headers, timestamp_ms=timestamp_ms)
        return AppendFuture(*self._put(self._lane, record, record_bound(record)))

    def flush(self) -> None:
        """Send what has gathered and wait until all of it is written; errors are in the futures."""
        self._sender.flush()

    def close(self) -> None:
        """Send what has gathered and end the thread. Raises the error that stopped the log, if one did."""
        self._sender.close()
        if self._lane.failure is not None:
            raise self._lane.failure
