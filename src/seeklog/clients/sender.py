"""Batches on their way to logs: records go in one by one, a thread appends what has gathered.

A lane leads to one log. It has at most one batch that is being filled; a batch leaves when it is full, or when its
first record has lingered. Batches of one lane are appended in the order in which they were begun. The thread
belongs to the sender and serves all of its lanes; with `flush="batch"` all batches that are ready share one sync a
log. Futures of a batch share one `Delivery`.
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
from seeklog.errors import LogClosed, LogFailed, RecordTooLarge, SeeklogError, UsageError
from seeklog.record.layout import HEADER_SIZE
from seeklog.record.record import Record

logger = logging.getLogger("seeklog")

_open_senders: weakref.WeakSet[Sender] = weakref.WeakSet()


class Destination(Protocol):
    """Where a lane leads."""

    @property
    def syncs_each(self) -> bool:
        """Whether a batch counts as written only when it is synced."""
        ...

    def append_records(self, records: list[Record]) -> Sequence[int]:
        """Append records as one batch, not yet synced; return their offsets."""
        ...

    def flush(self) -> None:
        """Sync what was appended."""
        ...


class Delivery:
    """The fate of one batch; its futures share it."""

    __slots__ = ("_callbacks", "_done", "_lock", "errors", "observed", "offsets")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done: threading.Event | None = None
        self._callbacks: list[Callable[[], object]] | None = []
        self.observed: set[int] = set()
        """The places of the records whose fate somebody has asked for."""
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


class Future:
    """The fate of one record."""

    __slots__ = ("_delivery", "_lane", "_place")

    def __init__(self, lane: Lane, delivery: Delivery, place: int) -> None:
        self._lane = lane
        self._delivery = delivery
        self._place = place

    def done(self) -> bool:
        """Tell whether the record was written or has failed."""
        return self._delivery.is_done

    def exception(self, timeout: float | None = None) -> SeeklogError | None:
        """Return what went wrong, or None, waiting for it; `TimeoutError` is raised."""
        self._delivery.observed.add(self._place)
        self._delivery.wait(timeout)
        return self._delivery.errors.get(self._place)

    def _offset(self, timeout: float | None) -> int:
        error = self.exception(timeout)
        if error is not None:
            raise error
        return self._delivery.offsets[self._place]

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call `callback(future)` when it is settled: in the sender's thread, or here if it already is."""
        self._delivery.observed.add(self._place)
        self._delivery.when_done(lambda: callback(self))


AnyFuture = TypeVar("AnyFuture", bound=Future)


class Gathering:
    """A batch that is being filled, or that waits for its turn."""

    __slots__ = ("deadline", "delivery", "lane", "records", "size")

    def __init__(self, lane: Lane, deadline: float) -> None:
        self.lane = lane
        self.records: list[Record] = []
        self.size = HEADER_SIZE
        self.deadline = deadline
        self.delivery = Delivery()


class Lane:
    """The way to one log."""

    __slots__ = ("batch_bytes", "destination", "failure", "gathering")

    def __init__(self, destination: Destination, *, batch_bytes: int) -> None:
        self.destination = destination
        self.batch_bytes = batch_bytes
        self.gathering: Gathering | None = None
        self.failure: SeeklogError | None = None
        """What stopped the log: no record goes this way any more."""


class Sender:
    """Gathers records into batches and appends them. Any thread may call anything."""

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
        # In the order in which they were begun, which is that of their deadlines; some have become full since.
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
        """Take a record, which takes `size` bytes at most, into a batch; waits while the buffer is full."""
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
            return  # a callback that sends: nobody else would make room
        while self._buffered + size > self._buffer_bytes and self._buffered:
            if lane.failure is not None or self._is_closed:
                return
            self._room.wait()

    def flush(self) -> None:
        """Send what has gathered and wait until all of it is written or has failed."""
        if threading.current_thread() is self._thread:
            raise UsageError("a callback cannot wait for a flush: it runs in the thread that would do it")
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
        """Return an error of a record that nobody has asked for, and forget it and the others."""
        with self._lock:
            failed, self._failed = self._failed, []
        for delivery in failed:
            for place, error in delivery.errors.items():
                if place not in delivery.observed:
                    return error
        return None

    def end(self) -> None:
        """Let the thread send what has gathered and end by itself: for a front that was dropped unclosed."""
        with self._lock:
            self._is_closed = True
            self._ready.notify()
            self._room.notify_all()

    def close(self) -> None:
        """Send what has gathered and end the thread. Closing twice is nothing."""
        if not self._is_closed:
            self.flush()
        self.end()
        self._thread.join()

    def abandon(self) -> None:
        """Forget everything in a forked child, which has no thread: the parent sends."""
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
        """Wait for batches that are full or have lingered long enough; nothing when closed."""
        with self._lock:
            while True:
                batches = list(self._full)
                self._full.clear()
                left = self._take_lingered(batches)
                if batches or (self._is_closed and left is None):
                    return batches
                self._ready.wait(left)

    def _take_lingered(self, batches: list[Gathering]) -> float | None:
        """Move batches that are due to `batches`; return the seconds until the next one is, or None."""
        everything = self._flush_requests > 0 or self._is_closed
        while self._begun:
            gathering = self._begun[0]
            lane = gathering.lane
            if lane.gathering is gathering:
                left = gathering.deadline - self._clock.monotonic()
                if left > 0 and not everything:
                    return left
                lane.gathering = None
                batches.append(gathering)
            self._begun.popleft()
        return None

    def _send(self, batches: list[Gathering]) -> None:
        """Append batches one by one, sync once a log that promises it, then settle the futures."""
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
                # What was appended is not known to be durable, and neither is what would follow.
                failure = error if isinstance(error, SeeklogError) else LogFailed(f"the writer stopped: {error!r}")
                lane.failure = failure
                sent = [
                    (batch, offsets, dict.fromkeys(range(len(offsets)), failure) if batch.lane is lane else errors)
                    for batch, offsets, errors in sent
                ]
        for batch, offsets, errors in sent:
            if errors:
                if not self._failed:
                    # Said once until somebody asks: the caller may never look at the futures.
                    logger.warning("records were not written: %s", next(iter(errors.values())))
                with self._lock:
                    self._failed.append(batch.delivery)
            batch.delivery.finish(offsets, errors)

    def _append(self, lane: Lane, records: list[Record], place: int, errors: dict[int, SeeklogError]) -> Sequence[int]:
        """Append records that stand at `place` in their batch; return their offsets, -1 where in `errors`.

        A batch that turns out too large is split; a record that is too large by itself fails alone.
        """
        try:
            if lane.failure is not None:
                raise lane.failure
            return lane.destination.append_records(records)
        except RecordTooLarge as error:
            if len(records) > 1:
                half = len(records) // 2
                return [
                    *self._append(lane, records[:half], place, errors),
                    *self._append(lane, records[half:], place + half, errors),
                ]
            failure: SeeklogError = error
        except (LogFailed, LogClosed) as error:
            failure = lane.failure = error
        except SeeklogError as error:
            # These records are lost to the caller, but the next may go well: a full disk, a log that another locks.
            failure = error
        except Exception as error:
            failure = lane.failure = LogFailed(f"the writer stopped: {error!r}")
        errors.update(dict.fromkeys(range(place, place + len(records)), failure))
        return [-1] * len(records)


def _send_the_rest() -> None:
    """At the end of the program: what was given to a writer that nobody closed is written all the same."""
    for sender in list(_open_senders):
        sender.close()


atexit.register(_send_the_rest)


def _abandon_all() -> None:
    for sender in list(_open_senders):
        sender.abandon()


os.register_at_fork(after_in_child=_abandon_all)
