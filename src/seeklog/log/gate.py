"""The state that decides whether a log accepts appends, and the wait for new records."""

from __future__ import annotations

import threading
from collections.abc import Callable

from seeklog.errors import DiskFull, LogClosed, LogFailed, SeeklogError
from seeklog.files import Displaced, is_full
from seeklog.metrics import LogSection


class Gate:
    """Refuses every append once the log is closed, or a write or a sync failed. Any thread may call any method."""

    __slots__ = ("_arrived", "_directory", "_metrics", "has_failed", "refusal", "waiting")

    def __init__(self, directory: str, metrics: LogSection) -> None:
        self._directory = directory
        self._metrics = metrics
        self._arrived = threading.Condition(threading.Lock())
        self.waiting = 0
        self.refusal: SeeklogError | None = None
        """What an append raises; None while the log accepts appends."""
        self.has_failed = False
        """Whether a write or a sync failed. It stays true after the log is closed."""

    @property
    def is_closed(self) -> bool:
        return isinstance(self.refusal, LogClosed)

    def close(self, reason: str = "is closed; open it again") -> None:
        self.refusal = LogClosed(f"{self._directory} {reason}")

    def check(self) -> None:
        if self.refusal is not None:
            raise type(self.refusal)(*self.refusal.args) from self.refusal.__cause__

    def fail(self, action: str, error: OSError, *, outcome: str = "") -> LogFailed:
        """Refuse every append, because the bytes on disk are unknown. Return the error to raise.

        `outcome` says what is known of the records that were being appended.
        """
        advice = error.ADVICE if isinstance(error, Displaced) else "reopen the log to recover"
        failure = LogFailed(f"{self._directory}: {action} failed ({error}); {outcome}{advice}")
        failure.__cause__ = error
        self.refusal = failure
        self.has_failed = True
        with self._arrived:
            self._metrics.failures += 1
            self._arrived.notify_all()
        return failure

    def refuse_change(self, subject: str, error: OSError) -> SeeklogError:
        """Return the error for a file that could not be replaced. A full disk does not fail the log."""
        if is_full(error):
            return DiskFull(f"{self._directory}: no room for {subject}; nothing was changed")
        return self.fail(f"writing {subject}", error)

    def wait(self, condition: Callable[[], bool], timeout: float | None) -> None:
        """Wait until `condition` returns true, the log is closed or fails, or `timeout` seconds have passed."""
        with self._arrived:
            self.waiting += 1
            try:
                self._arrived.wait_for(lambda: condition() or self.refusal is not None, timeout)
            finally:
                self.waiting -= 1

    def wake(self) -> None:
        with self._arrived:
            self._arrived.notify_all()
