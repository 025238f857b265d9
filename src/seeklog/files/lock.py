"""Lock files: taken, held, and waited for while another process holds them for a moment."""

from __future__ import annotations

import os
import uuid
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

    A holder can hand the lock on for a while: `release` leaves a note in the file for whoever takes it next, and
    `retake` returns what the last holder left. A holder that dies leaves no note.
    """

    __slots__ = ("__weakref__", "_files", "_owner", "_path", "left", "number", "token")

    def __init__(self, files: Files, number: int, *, path: str = "", owner: str = "", left: str = "") -> None:
        self._files = files
        self.number = number
        self._path = path
        self._owner = owner
        self.token = ""
        """What tells this holder from others in a note: process ids come again."""
        self.left = left
        """What the file held when the lock was taken: an owner and, if that one released it, its token and note."""
        _held_locks.add(self)

    @property
    def is_held(self) -> bool:
        return self.number >= 0

    def release(self, note: str) -> None:
        """Let others take the lock until `retake`."""
        self.token = self.token or uuid.uuid4().hex
        self._files.unlock(self.number, f"{self._owner} {self.token} {note}")

    def retake(self) -> str:
        """Take the lock again; return what its last holder left, which may have been this one.

        Raises `LogLocked` if another holds it, and `FileNotFoundError` if the file was removed or replaced.
        """
        try:
            self.left = self._files.lock(self.number, self._path, self._owner)
        except BlockingIOError:
            raise LogLocked(self._path, _owner_of(self._files, self._path)) from None
        return self.left

    def close(self) -> None:
        """Let others have it. Closing twice is nothing."""
        number, self.number = self.number, -1
        if number >= 0:
            self._files.close(number)

    def __del__(self) -> None:
        self.close()


def take_lock(files: Files, path: str, *, subject: str = "", owner: str = "", advice: str = "") -> Lock:
    """Take a lock file, or raise `LogLocked` that says who holds `subject`, or else the lock.

    The file says `owner`, by default the process id.
    """
    owner = owner or str(os.getpid())
    number = files.open(path, write=True, create=True)
    try:
        return Lock(files, number, path=path, owner=owner, left=files.lock(number, path, owner))
    except (BlockingIOError, FileNotFoundError):
        files.close(number)
        raise LogLocked(subject or path, _owner_of(files, path), advice=advice) from None
    except BaseException:
        files.close(number)
        raise


def _owner_of(files: Files, path: str) -> int | None:
    """Return the process id that a lock file names."""
    try:
        return int(files.read_file(path).split(maxsplit=1)[0])
    except (OSError, ValueError, IndexError):
        return None


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


def _close_locks() -> None:
    for lock in list(_held_locks):
        lock.close()


os.register_at_fork(after_in_child=_close_locks)
