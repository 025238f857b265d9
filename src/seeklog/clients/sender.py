"""Gathers records into batches and appends them to logs in a thread.

A lane leads to one log and fills at most one batch at a time. A batch leaves when it is full or when its first record
has lingered. The batches of a lane are appended in the order in which they were begun. One thread serves all lanes of a
sender. With `flush="batch"`, batches that are ready together share one sync per log. The futures of a batch share one
`Delivery`.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, Self, TypeVar

from seeklog.clock import Clock
from seeklog.errors import InvalidRecord, LogClosed, LogFailed, RecordTooLarge, SeeklogError, UsageError
from seeklog.record.layout import HEADER_SIZE
from seeklog.record.record import Record

logger = logging.getLogger("seeklog")

_open_senders: weakref.WeakSet[Sender] = weakref.WeakSet()


class Destination(Protocol):
    """The log at the end of a lane."""

    @property
    def syncs_each(self) -> bool:
        """Whether a batch counts as written only after a sync."""
        ...

    def append_records(self, records: list[Record]) -> Sequence[int]:
        """Append records as one batch without syncing. Return their offsets."""
        ...

    def flush(self) -> None:
        """Sync what was appended."""
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
            except Exception:
                logger.exception("a callback of an append failed")

    def wait(self, timeout: float | None) -> None:
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

    __slots__ = ("batch_bytes", "destination", "failure", "gathering")

    def __init__(self, destination: Destination, *, batch_bytes: int) -> None:
        self.destination = destination
        self.batch_bytes = batch_bytes
        self.gathering: Gathering | None = None
        self.failure: SeeklogError | None = None
        """The error that stopped the log. The lane accepts no more records."""


class Sender:
    """Gathers records into batches and appends them. Any thread may call any method."""

    def __init__(self, clock: Clock, *, linger_ms: float, buffer_bytes: int) -> None:
        if linger_ms < 0 or buffer_bytes < 1:
            raise UsageError("linger_ms must be at least 0 and buffer_bytes at least 1")
        self._clock = clock
        self._linger = linger_ms / 1000
        self._buffer_bytes = buffer_bytes
        self._buffered = 0
        self._lock = threading.Lock()
        self._ready = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._progress = threading.Condition(self._lock)
        # Ordered by the time they were begun, and so by deadline. Some are full and in `_full` as well.
        self._begun: deque[Gathering] = deque()
        self._full: deque[Gathering] = deque()
        self._outstanding: set[Gathering] = set()
        self._failed: list[Delivery] = []
        self._flush_requests = 0
        self._is_closed = False
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
            if self._is_closed:
                raise LogClosed("the writer is closed")
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
        while self._buffered + size > self._buffer_bytes and self._buffered:
            if lane.failure is not None or self._is_closed:
                return
            self._room.wait()

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

    def end(self) -> None:
        """Close without waiting: the thread sends the rest, then ends. For owners that were dropped unclosed."""
        with self._lock:
            self._is_closed = True
            self._ready.notify()
            self._room.notify_all()

    def close(self) -> None:
        """Send what has gathered and wait for the thread to end. Closing twice has no effect."""
        if not self._is_closed:
            self.flush()
        self.end()
        self._thread.join()

    def abandon(self) -> None:
        """Forget everything in a forked child, which has no thread. The parent sends the records."""
        self._lock = threading.Lock()
        self._ready = self._room = self._progress = threading.Condition(self._lock)
        self._is_closed = True
        self._outstanding = set()

    def _run(self) -> None:
        while True:
            batches = self._take()
            if not batches:
                return
            self._send(batches)
            with self._lock:
                self._outstanding.difference_update(batches)
                self._buffered -= sum(batch.size - HEADER_SIZE for batch in batches)
                self._room.notify_all()
                self._progress.notify_all()
            del batches

    def _take(self) -> list[Gathering]:
        """Wait for batches that are full or have lingered. Return none after the sender was closed."""
        with self._lock:
            while True:
                batches = list(self._full)
                self._full.clear()
                left = self._take_lingered(batches)
                if batches or (self._is_closed and left is None):
                    return batches
                self._ready.wait(left)

    def _take_lingered(self, batches: list[Gathering]) -> float | None:
        """Move due batches to `batches`. Return the seconds until the next one is due, or None."""
        is_flushing = self._flush_requests > 0 or self._is_closed
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
        sent: list[tuple[Gathering, Sequence[int], dict[int, SeeklogError]]] = []
        to_sync: dict[int, Lane] = {}
        for batch in batches:
            errors: dict[int, SeeklogError] = {}
            offsets = self._append(batch.lane, batch.records, 0, errors)
            sent.append((batch, offsets, errors))
            if batch.lane.destination.syncs_each and len(errors) < len(offsets):
                to_sync[id(batch.lane)] = batch.lane
        for lane in to_sync.values():
            try:
                lane.destination.flush()
            except Exception as error:
                # Neither this batch nor a later one can be known to be durable.
                failure = error if isinstance(error, SeeklogError) else LogFailed(f"the writer stopped: {error!r}")
                lane.failure = failure
                sent = [
                    (batch, offsets, dict.fromkeys(range(len(offsets)), failure) if batch.lane is lane else errors)
                    for batch, offsets, errors in sent
                ]
        for batch, offsets, errors in sent:
            if errors:
                if not self._failed:
                    # Log the first failure until a caller asks: the caller may never check the futures.
                    logger.warning("records were not written: %s", next(iter(errors.values())))
                with self._lock:
                    self._failed.append(batch.delivery)
            batch.delivery.finish(offsets, errors)

    def _append(self, lane: Lane, records: list[Record], first: int, errors: dict[int, SeeklogError]) -> Sequence[int]:
        """Append records that begin at index `first` of their batch. Return their offsets, or -1 for those in `errors`.

        A batch that turns out too large, or to hold an invalid record, is split, so that such a record fails alone.
        """
        try:
            if lane.failure is not None:
                raise lane.failure
            return lane.destination.append_records(records)
        except (RecordTooLarge, InvalidRecord) as error:
            if len(records) > 1:
                half = len(records) // 2
                return [
                    *self._append(lane, records[:half], first, errors),
                    *self._append(lane, records[half:], first + half, errors),
                ]
            failure: SeeklogError = error
        except (LogFailed, LogClosed) as error:
            failure = lane.failure = error
        except SeeklogError as error:
            # These records failed, but the next may succeed: the disk was full, or another process held the lock.
            failure = error
        except Exception as error:
            failure = lane.failure = LogFailed(f"the writer stopped: {error!r}")
        errors.update(dict.fromkeys(range(first, first + len(records)), failure))
        return [-1] * len(records)


def _close_all() -> None:
    """At exit, write the remaining records of senders that were not closed."""
    for sender in list(_open_senders):
        sender.close()


atexit.register(_close_all)


def _abandon_all() -> None:
    for sender in list(_open_senders):
        sender.abandon()


os.register_at_fork(after_in_child=_abandon_all)
