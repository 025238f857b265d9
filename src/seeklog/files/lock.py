"""Lock files: taken, held, and waited for while another process holds them for a moment."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import TypeVar

from seeklog.clock import Clock
from seeklog.errors import LogLocked
from seeklog.files.local import Files

Taken = TypeVar("Taken")

# What others do with a partition for a moment takes some milliseconds; who holds one longer writes it.
SHORT_WAIT_S = 1.0
MIN_PAUSE_S = 0.001
MAX_PAUSE_S = 0.02

_held_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


class Lock:
    """A lock file that is held. It goes with the object, too, and a forked child lets its copy go.

    Otherwise a log that was dropped without being closed, or a child that lives on, would keep others out.
    """

    __slots__ = ("__weakref__", "_files", "number")

    def __init__(self, files: Files, number: int) -> None:
        self._files = files
        self.number = number
        _held_locks.add(self)

    @property
    def is_held(self) -> bool:
        return self.number >= 0

    def close(self) -> None:
        """Let others have it. Closing twice is nothing."""
        number, self.number = self.number, -1
        if number >= 0:
            self._files.close(number)

    def __del__(self) -> None:
        self.close()


def take_lock(files: Files, lock: str, *, what: str = "", advice: str = "") -> Lock:
    """Take a lock file, or raise `LogLocked` that says who holds `what`, or else the lock."""
    try:
        return Lock(files, files.lock(lock, str(os.getpid())))
    except BlockingIOError:
        try:
            owner_pid = int(files.read_file(lock))
        except (OSError, ValueError):
            owner_pid = None
        raise LogLocked(what or lock, owner_pid, advice=advice) from None


def retry_while_locked(clock: Clock, wait_s: float, attempt: Callable[[], Taken]) -> Taken:
    """Call `attempt` until it no longer raises `LogLocked`, or the time is over: then that is raised."""
    give_up = clock.monotonic() + wait_s
    pause = MIN_PAUSE_S
    while True:
        try:
            return attempt()
        except LogLocked:
            if clock.monotonic() >= give_up:
                raise
        clock.sleep(pause)
        pause = min(2 * pause, MAX_PAUSE_S)


def _let_go_of_locks() -> None:
    for lock in list(_held_locks):
        lock.close()


os.register_at_fork(after_in_child=_let_go_of_locks)
