"""The thread that syncs logs after an interval, seals what was rolled, and does jobs on a schedule.

A lone log has one of its own; the logs of a store share one. A log notifies its `Watch` that records wait; the thread
syncs it when its interval is over. The thread refers to logs and to the objects of jobs weakly: what is dropped without
being closed can go.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import weakref
from collections.abc import Callable
from typing import Protocol

from seeklog.clock import Clock
from seeklog.config import LogConfig
from seeklog.errors import LogClosed, SeeklogError

logger = logging.getLogger("seeklog")


class Tended(Protocol):
    """A log as its background thread sees it."""

    directory: str

    def tend(self) -> None:
        """Sync what was appended and seal what was rolled."""
        ...


def _run_guarded(work: Callable[[], object], failed: str) -> None:
    """Do a piece of work and log what it raises: the rest that this thread has to do must still be done."""
    try:
        work()
    except LogClosed:
        return
    except (SeeklogError, OSError) as error:
        logger.error("%s: %s", failed, error)
    except Exception:
        logger.exception("%s", failed)


class Watch:
    """One log that is synced in the background."""

    __slots__ = ("_interval", "_is_waiting", "_log", "maintenance")

    def __init__(self, maintenance: Maintenance, log: Tended, config: LogConfig) -> None:
        self.maintenance = maintenance
        self._log: weakref.ref[Tended] | None = weakref.ref(log)
        self._interval = config.flush_interval_ms / 1000 if config.flush == "interval" else 0.0
        self._is_waiting = False

    def appended(self) -> None:
        """Note that records wait for a sync on the interval. Called under the log's lock for every append."""
        if not self._is_waiting:
            self._is_waiting = True
            self.maintenance.schedule(self, self._interval)

    def rolled(self) -> None:
        """Note that a segment waits for its seal. Called under the log's lock."""
        self.maintenance.schedule(self, 0.0)

    def stop(self) -> None:
        """Release the log. A sync that runs holds the log's own lock, which its close waits for."""
        self._log = None

    def run(self) -> None:
        """Sync the log, if it is still there. If that fails, the log has noted it, and the next append raises."""
        self._is_waiting = False
        log = self._log() if self._log is not None else None
        if log is not None:
            _run_guarded(log.tend, f"{log.directory}: the background sync failed")


class Job:
    """Something that is done every so often. The object whose method it is may go away."""

    def __init__(self, method: Callable[[], object], interval_s: float) -> None:
        self._method = weakref.WeakMethod(method)
        self.interval_s = interval_s

    def run(self) -> None:
        method = self._method()
        if method is not None:
            _run_guarded(method, "maintenance failed")


class Maintenance:
    """A thread and what it has to do. Any thread may call anything."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: list[tuple[float, int, Watch | Job]] = []
        self._numbers = itertools.count()
        self._wake = threading.Condition()
        self._is_stopping = False
        self._thread: threading.Thread | None = None

    def watch(self, log: Tended, config: LogConfig) -> Watch:
        """Return what a log notifies when it wants to be synced."""
        return Watch(self, log, config)

    def every(self, interval_s: float, method: Callable[[], object]) -> None:
        """Call a method at intervals, the first time after one."""
        self.schedule(Job(method, interval_s), interval_s)

    def schedule(self, task: Watch | Job, after_s: float) -> None:
        """Have a task done; a log calls this with its lock held."""
        with self._wake:
            if self._is_stopping:
                return
            due = self._clock.monotonic() + after_s
            heapq.heappush(self._due, (due, next(self._numbers), task))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="seeklog-maintenance", daemon=True)
                self._thread.start()
            elif self._due[0][0] == due:
                self._wake.notify()

    def _run(self) -> None:
        while True:
            task = self._next()
            if task is None:
                return
            task.run()
            if isinstance(task, Job):
                self.schedule(task, task.interval_s)

    def _next(self) -> Watch | Job | None:
        with self._wake:
            while not self._is_stopping:
                if not self._due:
                    self._wake.wait()
                    continue
                left = self._due[0][0] - self._clock.monotonic()
                if left <= 0:
                    return heapq.heappop(self._due)[2]
                self._wake.wait(left)
            return None

    def abandon(self) -> None:
        """Forget everything in a forked child, which has no thread."""
        self._wake = threading.Condition()
        self._is_stopping, self._thread, self._due = True, None, []

    def end(self) -> None:
        """Let the thread end by itself. Nothing is scheduled any more."""
        with self._wake:
            self._is_stopping = True
            self._wake.notify_all()

    def stop(self) -> None:
        """End the thread; what it is doing is finished first."""
        self.end()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
