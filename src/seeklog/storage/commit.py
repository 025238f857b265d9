"""Group commit: appenders that wait for a sync at the same time share one."""

from __future__ import annotations

import threading
from collections.abc import Callable


class GroupCommit:
    """Lets one of the waiting threads sync for all of them.

    `sync` makes everything appended before the call durable and returns the offset below which that is so.
    """

    def __init__(self, sync: Callable[[], int]) -> None:
        self._sync = sync
        self._condition = threading.Condition(threading.Lock())
        self._durable = -1
        self._busy = False

    def wait_for(self, end: int) -> None:
        """Return once every record below `end`, which this thread has appended, is durable.

        If the sync fails, each thread that waited for it tries its own, and gets its own error.
        """
        with self._condition:
            while self._busy:
                if self._durable >= end:
                    return
                self._condition.wait()
            if self._durable >= end:
                return
            self._busy = True
        durable = -1
        try:
            durable = self._sync()
        finally:
            with self._condition:
                self._busy = False
                self._durable = max(self._durable, durable)
                self._condition.notify_all()

    def forget(self) -> None:
        """Start over after offsets were given back by a truncation."""
        with self._condition:
            self._durable = -1
