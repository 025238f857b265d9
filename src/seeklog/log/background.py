"""The background thread: it syncs logs after an interval, seals rolled segments, and runs jobs on a schedule.

A lone log has a thread to itself; the logs of a store share one. A log notifies its `Watch` that records wait for a
sync, and the thread syncs the log when its interval is over. The thread holds weak references only, so a log that is
dropped without being closed can be collected.
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


class WatchedLog(Protocol):
    directory: str

    def do_background_work(self) -> None:
        """Sync appended records and seal rolled segments."""
        ...


def _run_guarded(work: Callable[[], object], failed: str) -> None:
    """Call `work` and log any exception."""
    try:
        work()
    except LogClosed:
        return
    except (SeeklogError, OSError) as error:
        logger.error("%s: %s", failed, error)
    except Exception:
        logger.exception("%s", failed)


class Watch:
    """A log that the background thread syncs."""

    __slots__ = ("_interval", "_is_waiting", "_log", "maintenance")

    def __init__(self, maintenance: Maintenance, log: WatchedLog, config: LogConfig) -> None:
        self.maintenance = maintenance
        self._log: weakref.ref[WatchedLog] | None = weakref.ref(log)
        self._interval = config.flush_interval_ms / 1000 if config.flush == "interval" else 0.0
        self._is_waiting = False

    def appended(self) -> None:
        """Schedule a sync after the interval. Called under the log's lock on every append."""
        if not self._is_waiting:
            self._is_waiting = True
            self.maintenance.schedule(self, self._interval)

    def rolled(self) -> None:
        """Schedule a sync now, for a segment that waits for its seal. Called under the log's lock."""
        self.maintenance.schedule(self, 0.0)

    def stop(self) -> None:
        """Release the log. A running sync holds the log's sync lock, so the log's close waits for it."""
        self._log = None

    def run(self) -> None:
        """Sync the log if it still exists. If the sync fails, the next append raises."""
        self._is_waiting = False
        log = self._log() if self._log is not None else None
        if log is not None:
            _run_guarded(log.do_background_work, f"{log.directory}: the background sync failed")


class Job:
    """A method that is called at intervals, as long as its object exists."""

    def __init__(self, method: Callable[[], object], interval_s: float) -> None:
        self._method = weakref.WeakMethod(method)
        self.interval_s = interval_s

    def run(self) -> None:
        method = self._method()
        if method is not None:
            _run_guarded(method, "maintenance failed")


class Maintenance:
    """The background thread and its schedule. Any thread may call any method."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: list[tuple[float, int, Watch | Job]] = []
        self._numbers = itertools.count()
        self._wake = threading.Condition()
        self._is_stopping = False
        self._thread: threading.Thread | None = None

    def watch(self, log: WatchedLog, config: LogConfig) -> Watch:
        return Watch(self, log, config)

    def every(self, interval_s: float, method: Callable[[], object]) -> None:
        """Call a method at intervals, the first time after one interval."""
        self.schedule(Job(method, interval_s), interval_s)

    def schedule(self, task: Watch | Job, after_s: float) -> None:
        """Run a task after `after_s` seconds. A log calls this with its lock held."""
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
        """Discard the schedule in a forked child, which has no background thread."""
        self._wake = threading.Condition()
        self._is_stopping, self._thread, self._due = True, None, []

    def end(self) -> None:
        """Tell the thread to end, and schedule nothing more."""
        with self._wake:
            self._is_stopping = True
            self._wake.notify_all()

    def stop(self) -> None:
        """End the thread, and wait for the task that it is running."""
        self.end()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
