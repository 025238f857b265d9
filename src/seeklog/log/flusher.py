"""The background thread of a log: syncs on an interval, and seals what was rolled."""

from __future__ import annotations

import logging
import threading
import weakref

from seeklog.config import LogConfig
from seeklog.errors import LogClosed, SeeklogError
from seeklog.log.host import Flushes

logger = logging.getLogger("seeklog")


class Flusher:
    """Starts its thread with the first append; the thread sleeps while there is nothing to do.

    It refers to the log weakly, so a log that was dropped without being closed can go.
    """

    def __init__(self, log: Flushes, config: LogConfig) -> None:
        self._log = weakref.ref(log)
        self._interval = config.flush_interval_ms / 1000 if config.flush == "interval" else None
        self._work = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def appended(self) -> None:
        """Records wait for a sync on the interval. Called for every append: quick when the thread knows."""
        if not self._work.is_set():
            self._wake()

    def rolled(self) -> None:
        """A segment waits for its seal."""
        self._wake()

    def _wake(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="seeklog-flush", daemon=True)
            thread.start()
            # Not before the start: a `stop` in between would join a thread that does not run yet, an error.
            self._thread = thread
        self._work.set()

    def _run(self) -> None:
        while True:
            self._work.wait()
            self._stopping.wait(self._interval or 0)
            # Asked after the clear, which may wipe out the wake-up of a `stop`: that one said so first.
            self._work.clear()
            if self._stopping.is_set():
                return
            log = self._log()
            if log is None:
                return
            try:
                log.flush()
            except LogClosed:
                return
            except SeeklogError as error:
                logger.error("%s: the background sync failed: %s", log.directory, error)
                if log.is_over:
                    return  # the next append raises; there is nothing left to do here
            del log

    def stop(self) -> None:
        """End the thread; a sync that runs is finished first."""
        self._stopping.set()
        self._work.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
