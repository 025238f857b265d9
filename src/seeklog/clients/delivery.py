"""The outcome of one batch, shared by the futures of its records."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

from seeklog.clock import check_timeout_s
from seeklog.errors import SeeklogError

logger = logging.getLogger("seeklog")


class Delivery:
    """The outcome of one batch. It is done with one assignment; an event exists only while a caller waits for it."""

    __slots__ = ("_callbacks", "_done", "_lock", "errors", "observed", "offsets")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._done: threading.Event | None = None
        self._callbacks: list[Callable[[], object]] | None = []
        self.observed: set[int] = set()
        """Indexes of the records whose outcome a caller has asked for."""
        self.offsets: Sequence[int] = ()
        self.errors: Mapping[int, SeeklogError] = {}

    @property
    def is_done(self) -> bool:
        return self._callbacks is None

    def finish(self, offsets: Sequence[int], errors: Mapping[int, SeeklogError]) -> None:
        """Complete the futures of the batch and run their callbacks in this thread.

        `errors` maps the indexes of failed records to their errors.
        """
        with self._lock:
            self.offsets, self.errors = offsets, errors
            callbacks, self._callbacks = self._callbacks, None
            if self._done is not None:
                self._done.set()
        for callback in callbacks or ():
            try:
                callback()
            except BaseException:  # even `sys.exit`: it must not end the thread that serves all other records
                logger.exception("a callback of an append failed")

    def abandon(self, error: SeeklogError, count: int) -> None:
        """Fail every record in a forked child, without its callbacks. A thread of the parent may hold the lock."""
        self._lock = threading.Lock()
        self._callbacks = None
        self.errors = dict.fromkeys(range(count), error)

    def wait(self, timeout: float | None) -> None:
        timeout = check_timeout_s("timeout", timeout)
        with self._lock:
            if self._callbacks is None:
                return
            if self._done is None:
                self._done = threading.Event()
        if not self._done.wait(timeout):
            raise TimeoutError("the record was not written in time; wait again, or pass a longer timeout")

    def when_done(self, callback: Callable[[], object]) -> None:
        with self._lock:
            if self._callbacks is not None:
                self._callbacks.append(callback)
                return
        callback()
