"""An open file, and one that is held as a lock.

A handle is closed when the last reference to it goes, never while a reader holds one: a number that was
closed and given to another file could otherwise be read as if it were the first.
"""

from __future__ import annotations

import os
import weakref

from seeklog.files import Files

_held_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


class Handle:
    """An open file that closes itself when nobody refers to it any more."""

    __slots__ = ("_files", "number")

    def __init__(self, files: Files, path: str, *, write: bool = False, create: bool = False) -> None:
        self._files = files
        self.number = -1
        self.number = files.open(path, write=write, create=create)

    def fileno(self) -> int:
        return self.number

    def __del__(self) -> None:
        if self.number >= 0:
            self._files.close(self.number)


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


def _let_go_of_locks() -> None:
    for lock in list(_held_locks):
        lock.close()


os.register_at_fork(after_in_child=_let_go_of_locks)
