"""Group commit: appenders that wait for a sync at the same time share one."""

from __future__ import annotations

import threading
from collections.abc import Callable


class _Waiter:
    """A thread that waits, asleep at a lock of its own: waking it contends with nobody."""

    __slots__ = ("end", "gate", "is_durable")

    def __init__(self, end: int) -> None:
        self.end = end
        self.is_durable = False
        self.gate = threading.Lock()
        self.gate.acquire()


class GroupCommit:
    """Lets one of the waiting threads sync for all of them.

    `sync` makes everything appended before the call durable and returns the offset below which that is so.
    """

    def __init__(self, sync: Callable[[], int]) -> None:
        self._sync = sync
        self._lock = threading.Lock()
        self._waiters: list[_Waiter] = []
        self._is_syncing = False
        self._durable = -1
        self._truncations = 0

    def wait_for(self, end: int) -> None:
        """Return once every record below `end`, which this thread has appended, is durable.

        If the sync fails, the next thread that waited for it tries its own, and so each gets its own error.
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
        # This thread leads: nobody was syncing, or the last leader has woken it to go on.
        durable = -1
        truncations = self._truncations
        try:
            durable = self._sync()
        finally:
            self._hand_on(durable, truncations)

    def _hand_on(self, durable: int, truncations: int) -> None:
        """Wake everybody who is served, and one who is not to lead the next sync."""
        with self._lock:
            if truncations != self._truncations:
                durable = -1  # it speaks of offsets that other records have got since: nobody is served by it
            self._durable = max(self._durable, durable)
            served = [waiter for waiter in self._waiters if waiter.end <= durable]
            self._waiters = [waiter for waiter in self._waiters if waiter.end > durable]
            heir = self._waiters.pop(0) if self._waiters else None
            self._is_syncing = heir is not None
        for waiter in served:
            waiter.is_durable = True
            waiter.gate.release()
        if heir is not None:
            heir.gate.release()

    def forget(self) -> None:
        """Start over after offsets were given back by a truncation."""
        with self._lock:
            self._truncations += 1
            self._durable = -1
