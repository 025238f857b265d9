"""Gathers records into batches and appends them to logs in a thread.

A lane leads to one log and fills at most one batch at a time. A batch leaves when it is full or when its first record
has lingered. The batches of a lane are appended in the order in which they were begun. One thread serves all lanes of a
sender. With `flush="batch"`, batches that are ready together share one sync per log. The futures of a batch share one
`Delivery`.

A sender is open until it has a refusal: it was closed, or its thread ended with an error. Then every batch that is not
written has failed with that error, so no caller waits for a thread that does not exist.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from seeklog.arguments import check_whole_number
from seeklog.clock import Clock, check_timeout_s, check_wait_ms
from seeklog.errors import InvalidRecord, LogClosed, LogFailed, RecordTooLarge, SeeklogError, UsageError
from seeklog.metrics import Family, ProducerSection
from seeklog.record.layout import HEADER_SIZE
from seeklog.record.record import Record

logger = logging.getLogger("seeklog")

_open_senders: weakref.WeakSet[Sender] = weakref.WeakSet()


def check_batching(*, batch_bytes: int, linger_ms: float, buffer_bytes: int) -> None:
    """Raise `UsageError` unless a sender can work with these numbers."""
    check_whole_number("batch_bytes", batch_bytes, minimum=1)
    check_wait_ms("linger_ms", linger_ms)
    if check_whole_number("buffer_bytes", buffer_bytes, minimum=1) < batch_bytes:
        raise UsageError(f"buffer_bytes must be at least batch_bytes, {batch_bytes:,}, not {buffer_bytes:,}")


class Unsynced(Protocol):
    """A log with records that count as written only after a sync."""

    def flush(self) -> None: ...


class Destination(Protocol):
    """What is at the end of a lane: a log, or a partition whose log is opened when it is needed."""

    @property
    def reopens(self) -> bool:
        """Whether the next append opens the log again if it has failed. Otherwise the failure is final."""
        ...

    def append_records(self, records: list[Record]) -> tuple[range, Unsynced | None]:
        """Append records as one batch without syncing. Return their offsets, and the log if it must be synced."""
        ...

    def sync(self, log: Unsynced, *, end: int) -> None:
        """Make what was appended to a log below offset `end` durable."""
        ...

    def end_turn(self, *, has_more: bool) -> None:
        """Let other processes append. `has_more`: other batches are ready, maybe for this log. Raises nothing."""
        ...


class Delivery:
    """The outcome of one batch, shared by its futures."""

    __slots__ = ("_callbacks", "_done", "_lock", "errors", "observed", "offsets")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done: threading.Event | None = None
        self._callbacks: list[Callable[[], object]] | None = []
        self.observed: set[int] = set()
        """Indexes of the records whose outcome a caller has asked for."""
        self.offsets: Sequence[int] = ()
        self.errors: Mapping[int, SeeklogError] = {}

    @property
    def is_done(self) -> bool:
        return self._callbacks is None

    def finish(self, offsets: Sequence[int], errors: Mapping[int, SeeklogError]) -> None:
        """Complete the futures of the batch and run their callbacks in this thread.

        `errors` maps the indexes of failed records to their errors.
        """
        with self._lock:
            self.offsets, self.errors = offsets, errors
            callbacks, self._callbacks = self._callbacks, None
            if self._done is not None:
                self._done.set()
        for callback in callbacks or ():
            try:
                callback()
            except BaseException:  # even `sys.exit`: it must not end the thread that serves all other records
                logger.exception("a callback of an append failed")

    def abandon(self, error: SeeklogError, count: int) -> None:
        """Fail every record in a forked child, without its callbacks. A thread of the parent may hold the lock."""
        self._lock = threading.Lock()
        self._callbacks = None
        self.errors = dict.fromkeys(range(count), error)

    def wait(self, timeout: float | None) -> None:
        timeout = check_timeout_s("timeout", timeout)
        with self._lock:
            if self._callbacks is None:
                return
            if self._done is None:
                self._done = threading.Event()
        if not self._done.wait(timeout):
            raise TimeoutError("the record was not written in time; wait again, or pass a longer timeout")

    def when_done(self, callback: Callable[[], object]) -> None:
        with self._lock:
            if self._callbacks is not None:
                self._callbacks.append(callback)
                return
        callback()


class Future:
    """The outcome of one record."""

    __slots__ = ("_delivery", "_index", "_lane")

    def __init__(self, lane: Lane, delivery: Delivery, index: int) -> None:
        self._lane = lane
        self._delivery = delivery
        self._index = index

    def done(self) -> bool:
        """Return whether the record was written or has failed."""
        return self._delivery.is_done

    def exception(self, timeout: float | None = None) -> SeeklogError | None:
        """Return the error, or None if the record is written. Waits up to `timeout` seconds, then `TimeoutError`."""
        self._delivery.observed.add(self._index)
        self._delivery.wait(timeout)
        return self._delivery.errors.get(self._index)

    def _offset(self, timeout: float | None) -> int:
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._delivery.offsets[self._index]

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call `callback(future)` when it is done: in the sender's thread, or immediately if it is done already."""
        self._delivery.observed.add(self._index)
        self._delivery.when_done(lambda: callback(self))


AnyFuture = TypeVar("AnyFuture", bound=Future)


class Gathering:
    """A batch that is being filled or is waiting to be appended."""

    __slots__ = ("deadline", "delivery", "lane", "records", "size")

    def __init__(self, lane: Lane, deadline: float) -> None:
        self.lane = lane
        self.records: list[Record] = []
        self.size = HEADER_SIZE
        self.deadline = deadline
        self.delivery = Delivery()


class Lane:
    """The queue of batches for one log."""

    __slots__ = ("batch_bytes", "destination", "failure", "gathering", "name")

    def __init__(self, name: str, destination: Destination, *, batch_bytes: int) -> None:
        self.name = name
        self.destination = destination
        self.batch_bytes = batch_bytes
        self.gathering: Gathering | None = None
        self.failure: SeeklogError | None = None
        """The error that stopped the log permanently. The lane accepts no more records."""


class _Part(NamedTuple):
    """Records that were appended at once: a whole batch, unless it was too large and had to be split."""

    offsets: Sequence[int]
    unsynced: Unsynced | None = None
    error: SeeklogError | None = None


class Sender:
    """Gathers records into batches and appends them. Any thread may call any method."""

    def __init__(self, clock: Clock, *, linger_ms: float, buffer_bytes: int, family: Family[ProducerSection]) -> None:
        self._clock = clock
        self._family = family
        self.metrics = family.new()
        """Changed by the thread and, for waiting callers, under the lock."""
        self._linger = linger_ms / 1000
        self._buffer_bytes = buffer_bytes
        self._buffered = 0
        # Reentrant: the garbage collector may call `end` for a dropped owner while this thread holds the lock.
        self._lock = threading.RLock()
        self._ready = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._progress = threading.Condition(self._lock)
        # Ordered by the time they were begun, and so by deadline. Some are full and in `_full` as well.
        self._begun: deque[Gathering] = deque()
        self._full: deque[Gathering] = deque()
        self._outstanding: set[Gathering] = set()
        self._failed: list[Delivery] = []
        self._flush_requests = 0
        self._refusal: SeeklogError | None = None
        """What `put` raises; None while the sender is open."""
        self._thread = threading.Thread(target=self._run, name="seeklog-sender", daemon=True)
        self._thread.start()
        _open_senders.add(self)

    def put(self, lane: Lane, record: Record, size: int, future: type[AnyFuture]) -> AnyFuture:
        """Add a record of at most `size` bytes to a batch. Waits while the buffer is full."""
        with self._lock:
            if self._buffered + size > self._buffer_bytes and self._buffered:
                self._wait_for_room(lane, size)
            if lane.failure is not None:
                raise lane.failure
            if self._refusal is not None:
                raise type(self._refusal)(*self._refusal.args) from self._refusal.__cause__
            gathering = lane.gathering
            if gathering is not None and gathering.size + size > lane.batch_bytes:
                self._full.append(gathering)
                gathering = None
                self._ready.notify()
            if gathering is None:
                gathering = lane.gathering = Gathering(lane, self._clock.monotonic() + self._linger)
                self._begun.append(gathering)
                self._outstanding.add(gathering)
                self._ready.notify()
            records = gathering.records
            records.append(record)
            gathering.size += size
            self._buffered += size
            return future(lane, gathering.delivery, len(records) - 1)

    def _wait_for_room(self, lane: Lane, size: int) -> None:
        if threading.current_thread() is self._thread:
            return  # a callback that sends runs in this thread, and no other thread would make room
        began = self._clock.monotonic()
        while self._buffered + size > self._buffer_bytes and self._buffered:
            if lane.failure is not None or self._refusal is not None:
                return
            self._room.wait()
        self.metrics.wait_seconds.observe(self._clock.monotonic() - began)

    def flush(self) -> None:
        """Send what has gathered and wait until all of it is written or has failed."""
        if threading.current_thread() is self._thread:
            raise UsageError("a callback cannot flush: it runs in the thread that does the flush")
        with self._lock:
            awaited = set(self._outstanding)
            self._flush_requests += 1
            self._ready.notify()
            try:
                while not awaited.isdisjoint(self._outstanding):
                    self._progress.wait()
            finally:
                self._flush_requests -= 1

    def unseen_failure(self) -> SeeklogError | None:
        """Return one error of a record whose future nobody checked, or None. Forgets all errors so far."""
        with self._lock:
            failed, self._failed = self._failed, []
        for delivery in failed:
            for index, error in delivery.errors.items():
                if index not in delivery.observed:
                    return error
        return None

    @property
    def failure(self) -> SeeklogError | None:
        """The error that ended the thread, or None."""
        return self._refusal if isinstance(self._refusal, LogFailed) else None

    def end(self) -> None:
        """Close without waiting: the thread sends the rest, then ends. For owners that were dropped unclosed."""
        with self._lock:
            if self._refusal is None:
                self._refusal = LogClosed("the writer is closed")
            self._ready.notify()
            self._room.notify_all()

    def close(self) -> None:
        """Send what has gathered and wait for the thread to end. Closing twice has no effect."""
        self.flush()
        self.end()
        self._thread.join()

    def abandon(self) -> None:
        """Fail everything in a forked child, which has no thread. The parent sends the records."""
        self._lock = threading.RLock()
        self._ready = self._room = self._progress = threading.Condition(self._lock)
        self._refusal = LogClosed("the writer belongs to the process that this one was forked from")
        for batch in self._outstanding:
            batch.delivery.abandon(self._refusal, len(batch.records))
        self._outstanding = set()

    def _run(self) -> None:
        sending: list[Gathering] = []
        try:
            while sending := self._take():
                self._send(sending)
                self._finish(sending)
                sending = []  # releases the records before the next wait
        except BaseException as error:
            self._end_with(error, sending)
        finally:
            self._family.retire(self.metrics)

    def as_dict(self) -> dict[str, Any]:
        """Return everything that was counted."""
        section = self.gauges()
        section.add(self.metrics)
        return section.as_dict()

    def gauges(self) -> ProducerSection:
        """Return the numbers of the present moment alone."""
        section = ProducerSection()
        if self._refusal is None:
            section.producers = 1
            section.buffered_bytes, section.buffer_bytes = self._buffered, self._buffer_bytes
        return section

    def _finish(self, batches: Iterable[Gathering]) -> None:
        """Make the room of batches free, and wake the callers that wait for it or for their end."""
        with self._lock:
            self._outstanding.difference_update(batches)
            self._buffered -= sum(batch.size - HEADER_SIZE for batch in batches)
            self._room.notify_all()
            self._progress.notify_all()

    def _end_with(self, error: BaseException, sending: Sequence[Gathering]) -> None:
        """Fail every record that is left, because nothing sends it any more, and accept no others."""
        logger.error("the thread that sends records has ended", exc_info=error)
        cause = f"the thread that sends records ended with {error!r}"
        refusal = LogFailed(f"{cause}; create another producer or writer")
        in_doubt = LogFailed(f"{cause}; it is not known whether this record was written")
        refusal.__cause__ = in_doubt.__cause__ = error
        with self._lock:
            self._refusal = refusal
            left = list(self._outstanding)
            self._begun.clear()
            self._full.clear()
        try:
            for batch in left:
                if not batch.delivery.is_done:
                    failure = in_doubt if batch in sending else refusal
                    self._complete(batch, [_Part([-1] * len(batch.records), error=failure)])
        finally:
            self._finish(left)

    def _take(self) -> list[Gathering]:
        """Wait for batches that are full or have lingered. Return none after the sender was closed."""
        with self._lock:
            while True:
                batches = list(self._full)
                self._full.clear()
                left = self._take_lingered(batches)
                if batches or (self._refusal is not None and left is None):
                    return batches
                self._ready.wait(left)

    def _take_lingered(self, batches: list[Gathering]) -> float | None:
        """Move due batches to `batches`. Return the seconds until the next one is due, or None."""
        is_flushing = self._flush_requests > 0 or self._refusal is not None
        while self._begun:
            gathering = self._begun[0]
            lane = gathering.lane
            if lane.gathering is gathering:
                left = gathering.deadline - self._clock.monotonic()
                if left > 0 and not is_flushing:
                    return left
                lane.gathering = None
                batches.append(gathering)
            self._begun.popleft()
        return None

    def _send(self, batches: list[Gathering]) -> None:
        """Append batches one by one, sync each log once if needed, then complete the futures."""
        began = self._clock.monotonic()
        for batch in batches:
            self.metrics.queue_seconds.observe(began - batch.deadline + self._linger)
        sent = [(batch, self._append(batch.lane, batch.records)) for batch in batches]
        unsynced: dict[Unsynced, tuple[Lane, int]] = {}
        for batch, parts in sent:
            for part in parts:
                if part.unsynced is not None:
                    unsynced[part.unsynced] = (batch.lane, part.offsets[-1] + 1)
        failures: dict[Unsynced, SeeklogError] = {}
        for log, (lane, end) in unsynced.items():
            try:
                lane.destination.sync(log, end=end)
            except Exception as error:
                # No record that was appended to this log can be known to be durable.
                failures[log] = self._failure(lane, error)
        self.metrics.append_seconds.observe(self._clock.monotonic() - began)
        has_more = len(self._full) > 0
        for lane in {batch.lane for batch in batches}:
            lane.destination.end_turn(has_more=has_more)
        for batch, parts in sent:
            self._complete(
                batch,
                [part._replace(error=failures[part.unsynced]) if part.unsynced in failures else part for part in parts],
            )

    def _complete(self, batch: Gathering, parts: list[_Part]) -> None:
        """Complete the futures of a batch."""
        offsets = parts[0].offsets if len(parts) == 1 else [offset for part in parts for offset in part.offsets]
        errors: dict[int, SeeklogError] = {}
        first = 0
        for part in parts:
            if part.error is not None:
                errors.update(dict.fromkeys(range(first, first + len(part.offsets)), part.error))
            first += len(part.offsets)
        self.metrics.batches += 1
        self.metrics.record_errors += len(errors)
        self.metrics.records_sent += len(batch.records) - len(errors)
        if errors:
            if not self._failed:
                # Log the first failure until a caller asks: the caller may never check the futures.
                logger.warning("%s: records failed (%d): %s", batch.lane.name, len(errors), next(iter(errors.values())))
            with self._lock:
                self._failed.append(batch.delivery)
        batch.delivery.finish(offsets, errors)

    def _append(self, lane: Lane, records: list[Record]) -> list[_Part]:
        """Append a batch. One that turns out too large is split, so that a record that is too large fails alone.

        So is one with an invalid record.
        """
        try:
            if lane.failure is not None:
                raise lane.failure
            return [_Part(*lane.destination.append_records(records))]
        except (RecordTooLarge, InvalidRecord) as error:
            if len(records) > 1:
                half = len(records) // 2
                return self._append(lane, records[:half]) + self._append(lane, records[half:])
            failure: SeeklogError = error
        except Exception as error:
            failure = self._failure(lane, error)
        return [_Part([-1] * len(records), error=failure)]

    def _failure(self, lane: Lane, error: Exception) -> SeeklogError:
        """Return the error for records that were not written. If it is final for the lane, the lane keeps it.

        After other errors the next records may succeed: the disk was full, or another process held the lock.
        """
        if isinstance(error, SeeklogError):
            failure, is_final = error, isinstance(error, LogFailed | LogClosed)
        else:
            failure, is_final = LogFailed(f"the writer stopped: {error!r}"), True
            failure.__cause__ = error
        if is_final and not lane.destination.reopens:
            lane.failure = failure
        return failure


def _close_all() -> None:
    """At exit, write the remaining records of senders that were not closed."""
    for sender in list(_open_senders):
        sender.close()


atexit.register(_close_all)


def _abandon_all() -> None:
    for sender in list(_open_senders):
        sender.abandon()


os.register_at_fork(after_in_child=_abandon_all)
