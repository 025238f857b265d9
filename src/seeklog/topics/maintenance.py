"""The thread of a store that syncs, rolls, retains and writes checkpoints, so that no log needs one of its own.

A log tells its `Watch` that records wait; the thread syncs it when its interval is over. Jobs run at intervals of
their own. The thread refers to the store weakly: one that was dropped without being closed can go.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import weakref
from collections.abc import Callable

from seeklog.clock import Clock
from seeklog.config import LogConfig
from seeklog.errors import LogClosed, SeeklogError
from seeklog.log import Flushes

logger = logging.getLogger("seeklog")


class Watch:
    """One log that is synced in the background."""

    __slots__ = ("_interval", "_is_waiting", "_log", "_maintenance")

    def __init__(self, maintenance: Maintenance, log: Flushes, config: LogConfig) -> None:
        self._maintenance = maintenance
        self._log: weakref.ref[Flushes] | None = weakref.ref(log)
        self._interval = config.flush_interval_ms / 1000 if config.flush == "interval" else 0.0
        self._is_waiting = False

    def appended(self) -> None:
        """Records wait for a sync on the interval. Called for every append: quick when the thread knows."""
        if not self._is_waiting:
            self._is_waiting = True
            self._maintenance.schedule(self, self._interval)

    def rolled(self) -> None:
        """A segment waits for its seal."""
        self._maintenance.schedule(self, 0.0)

    def stop(self) -> None:
        """Let the log go. A sync that runs holds the log's own lock, which its close waits for."""
        self._log = None

    def sync(self) -> None:
        """Sync the log, if it is still there."""
        self._is_waiting = False
        log = self._log() if self._log is not None else None
        if log is None:
            return
        try:
            log.flush()
        except LogClosed:
            return
        except SeeklogError as error:
            # The log has noted it; the next append raises. There is nothing left to do here.
            logger.error("%s: the background sync failed: %s", log.directory, error)
        except Exception:
            # Whatever it is, the other logs of this thread must still be synced.
            logger.exception("%s: the background sync failed", log.directory)


class Job:
    """Something that is done every so often. The object whose method it is may go away."""

    def __init__(self, method: Callable[[], object], interval_s: float) -> None:
        self._method = weakref.WeakMethod(method)
        self.interval_s = interval_s

    def sync(self) -> None:
        method = self._method()
        if method is None:
            return
        try:
            method()
        except LogClosed:
            return
        except (SeeklogError, OSError) as error:
            logger.error("maintenance failed: %s", error)
        except Exception:
            logger.exception("maintenance failed")


class Maintenance:
    """A thread and what it has to do. Any thread may call anything."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: list[tuple[float, int, Watch | Job]] = []
        self._numbers = itertools.count()
        self._wake = threading.Condition()
        self._is_stopping = False
        self._thread: threading.Thread | None = None

    def watch(self, log: Flushes, config: LogConfig) -> Watch:
        """Return what a log tells that it wants to be synced."""
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
            task.sync()
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
