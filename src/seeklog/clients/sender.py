"""Gathers records into batches and appends them to logs in a thread.

A lane leads to one log and fills at most one batch at a time. A batch leaves when it is full or when its first record
has lingered. The batches of a lane are appended in the order in which they were begun. One thread serves all lanes of a
sender: batches of a lane that are ready together are appended in one write, and with `flush="batch"` they share one
sync. The futures of a batch share one `Delivery`. What happens to a record before its batch leaves is in `gathering`.

A sender is open until it has a refusal: it was closed, or its thread ended with an error. Then every batch that is not
written has failed with that error, so no caller waits for a thread that does not exist.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

from seeklog.arguments import check_whole_number
from seeklog.clients.gathering import Delivery, Gatherer, Gathering, Lane
from seeklog.clock import Clock, check_wait_ms
from seeklog.errors import DiskFull, InvalidRecord, LogClosed, LogFailed, RecordTooLarge, SeeklogError, UsageError
from seeklog.metrics import Family, ProducerSection
from seeklog.record.growing import GrowingBatch

logger = logging.getLogger("seeklog")

# Larger writes are not faster, and a failed one fails all of its records.
MAX_WRITE_BYTES: Final = 1 << 20

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

    def append(self, batches: Sequence[GrowingBatch]) -> tuple[range, Unsynced | None]:
        """Append the first batches in one write without syncing.

        Return the offsets of their records, which tell how many batches were taken, and the log if it must be synced.
        An error is that of the first batch alone, unless it is a failed write.
        """
        ...

    def sync(self, log: Unsynced, *, end: int) -> None:
        """Make what was appended to a log below offset `end` durable."""
        ...

    def end_turn(self, *, has_more: bool) -> None:
        """Let other processes append. `has_more`: other batches are ready, maybe for this log. Raises nothing."""
        ...


class _Part(NamedTuple):
    """Records that were appended at once: a whole batch, unless it was too large and had to be split."""

    offsets: Sequence[int]
    unsynced: Unsynced | None = None
    error: SeeklogError | None = None


def _failed(count: int, error: SeeklogError) -> _Part:
    return _Part([-1] * count, error=error)


class Sender(Gatherer):
    """Gathers records into batches and appends them. Any thread may call any method."""

    def __init__(self, clock: Clock, *, linger_ms: float, buffer_bytes: int, family: Family[ProducerSection]) -> None:
        super().__init__(clock.monotonic, linger_s=linger_ms / 1000, buffer_bytes=buffer_bytes)
        self._clock = clock
        self._family = family
        self.metrics = family.new()
        """Changed by the thread and, for waiting callers, under the lock."""
        self._room = threading.Condition(self._lock)
        self._progress = threading.Condition(self._lock)
        self._failed: list[Delivery] = []
        self._flush_requests = 0
        self._at_progress: list[Callable[[], object]] = []
        self._thread = threading.Thread(target=self._run, name="seeklog-sender", daemon=True)
        self._thread.start()
        _open_senders.add(self)

    def _wait_for_room(self, lane: Lane, size: int, limit: int) -> None:
        if threading.current_thread() is self._thread:
            return  # a callback that sends runs in this thread, and no other thread would make room
        began = self._clock.monotonic()
        while self.buffered + size > limit and self.buffered:
            if lane.failure is not None or self._refusal is not None:
                return
            self._room.wait()
        self.metrics.wait_seconds.observe(self._clock.monotonic() - began)

    def flush(self) -> None:
        """Send what has gathered and wait until all of it is written or has failed."""
        if threading.current_thread() is self._thread:
            raise UsageError("a callback cannot flush: it runs in the thread that does the flush")
        awaited = self.begin_flush()
        with self._lock:
            try:
                while not self.is_flushed(awaited):
                    self._progress.wait()
            finally:
                self.end_flush()

    def begin_flush(self) -> Collection[Gathering]:
        """Send what has gathered without waiting for more. Return it. The caller calls `end_flush`."""
        with self._lock:
            self._flush_requests += 1
            self._ready.notify()
            return set(self._outstanding)

    def is_flushed(self, awaited: Collection[Gathering]) -> bool:
        """Return whether all of these batches are written or have failed."""
        with self._lock:
            return self._outstanding.isdisjoint(awaited)

    def end_flush(self) -> None:
        with self._lock:
            self._flush_requests -= 1

    def at_progress(self, callback: Callable[[], object]) -> None:
        """Call `callback` once, in the sender's thread, when the next batches are written or have failed."""
        with self._lock:
            self._at_progress.append(callback)

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
            batch.delivery.abandon(self._refusal, batch.batch.count)
        self._outstanding = set()

    def _run(self) -> None:
        sending: list[Gathering] = []
        try:
            while sending := self._take():
                self._send(sending)
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
            section.buffered_bytes, section.buffer_bytes = self.buffered, self.buffer_bytes
        return section

    def _finish(self, batches: Collection[Gathering]) -> None:
        """Make the room of batches free, and wake the callers that wait for it or for their end."""
        with self._lock:
            self._outstanding.difference_update(batches)
            self.release(batches)
            self._room.notify_all()
            self._progress.notify_all()
            callbacks, self._at_progress = self._at_progress, []
        for callback in callbacks:
            callback()

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
                    self._complete(batch, [_failed(batch.batch.count, failure)])
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
        by_lane: dict[Lane, list[Gathering]] = {}
        for batch in batches:
            by_lane.setdefault(batch.lane, []).append(batch)
        sent: list[tuple[Gathering, list[_Part]]] = []
        for lane, gathered in by_lane.items():
            done: list[Gathering] = []
            for batch, parts in zip(gathered, self._append_all(lane, gathered), strict=True):
                if any(part.unsynced is not None for part in parts):
                    sent.append((batch, parts))
                else:
                    self._complete(batch, parts)
                    done.append(batch)
            # Callers that wait for room go on while the other lanes are appended.
            self._finish(done)
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
        self._finish([batch for batch, _ in sent])

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
        self.metrics.records_sent += batch.batch.count - len(errors)
        if errors:
            if not self._failed:
                # Log the first failure until a caller asks: the caller may never check the futures.
                logger.warning("%s: records failed (%d): %s", batch.lane.name, len(errors), next(iter(errors.values())))
            with self._lock:
                self._failed.append(batch.delivery)
        batch.delivery.finish(offsets, errors)

    def _append_all(self, lane: Lane, gathered: Sequence[Gathering]) -> Iterator[list[_Part]]:
        """Append the batches of a lane, several in one write. Return the parts of each."""
        at = 0
        while at < len(gathered):
            size = 0
            group: list[GrowingBatch] = []
            for gathering in gathered[at:]:
                size += gathering.batch.size
                if group and size > MAX_WRITE_BYTES:
                    break
                group.append(gathering.batch)
            yield from self._append(lane, group)
            at += len(group)

    def _append(self, lane: Lane, batches: Sequence[GrowingBatch]) -> Iterator[list[_Part]]:
        """Append batches. One that turns out too large is split, so that a record that is too large fails alone.

        So is one with an invalid record.
        """
        at, together = 0, len(batches)
        while at < len(batches):
            group = batches[at : at + together]
            try:
                if lane.failure is not None:
                    raise lane.failure
                offsets, unsynced = lane.destination.append(group)
                taken = 0
                while taken < len(offsets):
                    count = batches[at].count
                    yield [_Part(offsets[taken : taken + count], unsynced)]
                    taken += count
                    at += 1
                continue
            except (RecordTooLarge, InvalidRecord) as error:
                # It is the error of the first batch; nothing was written.
                group = group[:1]
                if group[0].count > 1:
                    yield [part for parts in self._append(lane, group[0].split()) for part in parts]
                    at += 1
                    continue
                failure: SeeklogError = error
            except DiskFull as error:
                if len(group) > 1:
                    together = 1  # the first ones may find room
                    continue
                failure = self._failure(lane, error)
            except Exception as error:
                failure = self._failure(lane, error)
            yield from ([_failed(batch.count, failure)] for batch in group)
            at += len(group)

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
