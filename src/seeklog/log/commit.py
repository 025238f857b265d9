"""Group commit: appenders that wait for a sync at the same time share one."""

from __future__ import annotations

import threading
from collections.abc import Callable


class _Waiter:
    """A thread that sleeps on its own lock, so that waking it causes no contention."""

    __slots__ = ("end", "gate", "is_durable")

    def __init__(self, end: int) -> None:
        self.end = end
        self.is_durable = False
        self.gate = threading.Lock()
        self.gate.acquire()


class GroupCommit:
    """Lets one of the waiting threads sync for all of them.

    `sync` makes everything appended before the call durable and returns the offset up to which it did, exclusive.
    """

    def __init__(self, sync: Callable[[], int]) -> None:
        self._sync = sync
        self._lock = threading.Lock()
        self._waiters: list[_Waiter] = []
        self._is_syncing = False
        self._durable = -1
        self._truncations = 0

    def wait_for(self, end: int) -> None:
        """Return once every record below `end`, which this thread appended, is durable.

        If the sync fails, each waiting thread tries a sync itself, one after the other, and gets its own error.
        """
        waiter = None
        with self._lock:
            if end <= self._durable:
                return
            if self._is_syncing:
                waiter = _Waiter(end)
                self._waiters.append(waiter)
            else:
                self._is_syncing = True
        if waiter is not None:
            waiter.gate.acquire()
            if waiter.is_durable:
                return
        # This thread leads: no sync was running, or the previous leader has woken it.
        durable = -1
        truncations = self._truncations
        try:
            durable = self._sync()
        finally:
            self._pass_lead(durable, truncations)

    def _pass_lead(self, durable: int, truncations: int) -> None:
        """Wake the threads whose records are durable, and one other to lead the next sync."""
        with self._lock:
            if truncations != self._truncations:
                durable = -1  # the offsets belong to other records since the truncation
            self._durable = max(self._durable, durable)
            served = [waiter for waiter in self._waiters if waiter.end <= durable]
            self._waiters = [waiter for waiter in self._waiters if waiter.end > durable]
            leader = self._waiters.pop(0) if self._waiters else None
            self._is_syncing = leader is not None
        for waiter in served:
            waiter.is_durable = True
            waiter.gate.release()
        if leader is not None:
            leader.gate.release()

    def forget(self) -> None:
        """Start over after a truncation: its offsets go to new records."""
        with self._lock:
            self._truncations += 1
            self._durable = -1
