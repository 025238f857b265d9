"""Changes of directories, as the operating system reports them: inotify, on local file systems of Linux.

A watch reports the first change in a directory after `add`, and then no other until the directory is added again. So a
busy writer causes one event for a reader that has stopped looking, not one for each write.

inotify does not see what other machines write. So it watches a directory only if its file system is known to be local;
the others, and those beyond the user's limit of watches, are polled.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import struct
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Final, Protocol

from seeklog.files.polling import Polling

# <sys/inotify.h>
_MODIFY: Final = 0x2
_MOVED_FROM: Final = 0x40
_MOVED_TO: Final = 0x80
_CREATE: Final = 0x100
_DELETE: Final = 0x200
_DELETE_SELF: Final = 0x400
_MOVE_SELF: Final = 0x800
_OVERFLOW: Final = 0x4000
_ONLY_DIRECTORY: Final = 0x01000000
_NO_LINK: Final = 0x02000000
_ONCE: Final = 0x80000000
_MASK: Final = (
    _MODIFY
    | _MOVED_FROM
    | _MOVED_TO
    | _CREATE
    | _DELETE
    | _DELETE_SELF
    | _MOVE_SELF
    | _ONLY_DIRECTORY
    | _NO_LINK
    | _ONCE
)
# struct inotify_event without its name: watch descriptor, mask, cookie, length of the name.
_EVENT: Final = struct.Struct("iIII")
_READ_SIZE: Final = 1 << 16

# The f_type of file systems that only this machine writes (<linux/magic.h>). Unknown ones may be on a network.
_LOCAL: Final = frozenset(
    {
        0xEF53,  # ext2, ext3, ext4
        0x58465342,  # XFS
        0x9123683E,  # btrfs
        0x01021994,  # tmpfs
        0x858458F6,  # ramfs
        0x794C7630,  # overlayfs
        0xF2F52010,  # F2FS
        0x2FC12FC1,  # ZFS
        0xCA451A4E,  # bcachefs
    }
)
# More than any libc's struct statfs, whose first field is the type, a long.
_STATFS_SIZE: Final = 512


class DirectoryWatch(Protocol):
    """Waits for changes in directories. One thread waits; any thread may wake it or close the watch."""

    @property
    def is_polled(self) -> bool:
        """Whether `changes` must look at some of the directories, because the system does not report their changes."""
        ...

    def add(self, directory: str) -> bool:
        """Report the next change in a directory. Return False if it cannot be watched yet: look, and add it again."""
        ...

    def forget(self, directory: str) -> None:
        """Stop watching a directory."""
        ...

    def changes(self) -> set[str] | None:
        """Return the directories that have changed since the last call; None if any of them may have."""
        ...

    def wait(self, seconds: float) -> bool:
        """Wait for a change, `wake` or the time. Return False at once if the watch is closed or reports nothing."""
        ...

    def wake(self) -> None: ...

    def close(self) -> None: ...


# For type checkers: the rest needs Linux's inotify and eventfd.
assert sys.platform == "linux"

_open_watches: weakref.WeakSet[Inotify] = weakref.WeakSet()


def open_watch() -> DirectoryWatch:
    """Return a watch. It polls if a limit of the user is reached."""
    try:
        return Inotify()
    except (OSError, AttributeError):  # a libc without inotify
        return Polling()


class Inotify:
    """A watch with a queue of events in the kernel.

    `close` may come from another thread, or from a signal handler in the middle of any method here. So the lock is
    reentrant, and the handles are released by `wait` if it is using them.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._lock = threading.RLock()
        self._is_closed = False
        self._is_waiting = False
        self._directories: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._polling = Polling()
        """The directories that inotify cannot watch."""
        self._wake = -1
        self._queue = self._call(self._libc.inotify_init1, os.O_NONBLOCK | os.O_CLOEXEC)
        _open_watches.add(self)
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._ready = select.poll()
        self._ready.register(self._queue, select.POLLIN)
        self._ready.register(self._wake, select.POLLIN)

    @staticmethod
    def _call(function: Callable[..., int], *arguments: object) -> int:
        result = function(*arguments)
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result

    @property
    def is_polled(self) -> bool:
        return self._polling.has_directories

    def add(self, directory: str) -> bool:
        return self._report(directory) or self._polling.add(directory)

    def _report(self, directory: str) -> bool:
        """Let the kernel report the next change in a directory; return whether it can."""
        path = os.fsencode(directory)
        with self._lock:
            try:
                if not self._is_local(path):
                    return False
                number = self._call(self._libc.inotify_add_watch, self._queue, path, ctypes.c_uint32(_MASK))
            except OSError:
                return False
            self._directories[number] = directory
            self._numbers[directory] = number
            return True

    def _is_local(self, path: bytes) -> bool:
        status = ctypes.create_string_buffer(_STATFS_SIZE)
        self._call(self._libc.statfs, path, status)
        return ctypes.c_ulong.from_buffer(status).value & 0xFFFFFFFF in _LOCAL

    def forget(self, directory: str) -> None:
        self._polling.forget(directory)
        with self._lock:
            number = self._numbers.pop(directory, None)
            if number is not None:
                self._directories.pop(number, None)
                self._libc.inotify_rm_watch(self._queue, number)  # fails if the directory or the queue is gone

    def changes(self) -> set[str] | None:
        changed = self._polling.changes()
        with self._lock:
            while True:
                try:
                    data = os.read(self._queue, _READ_SIZE)
                except BlockingIOError:
                    return changed
                except OSError:
                    return None  # closed
                position = 0
                while position < len(data):
                    number, mask, _, name_size = _EVENT.unpack_from(data, position)
                    position += _EVENT.size + name_size
                    if mask & _OVERFLOW:
                        self._directories.clear()
                        self._numbers.clear()
                        return None
                    # A directory's second event says that its watch has ended.
                    directory = self._directories.pop(number, None)
                    if directory is not None:
                        self._numbers.pop(directory, None)
                        changed.add(directory)

    def wait(self, seconds: float) -> bool:
        # In this order: a `close` between the two leaves the handles to this method.
        self._is_waiting = True
        try:
            if self._is_closed:
                return False
            self._ready.poll(seconds * 1000)
            return True
        finally:
            with self._lock:
                self._is_waiting = False
                if self._is_closed:
                    self._release()
                else:
                    with contextlib.suppress(BlockingIOError):  # nobody woke this thread
                        os.eventfd_read(self._wake)

    def wake(self) -> None:
        with self._lock, contextlib.suppress(BlockingIOError):  # woken so often that the counter is full
            if self._wake >= 0:
                os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """End the watch. Closing twice has no effect."""
        with self._lock:
            self._is_closed = True
            self.wake()
            if not self._is_waiting:
                self._release()

    def _release(self) -> None:
        # A released number may soon be another file, so it is forgotten first.
        handles, self._queue, self._wake = (self._queue, self._wake), -1, -1
        for handle in handles:
            if handle >= 0:
                os.close(handle)

    def abandon(self) -> None:
        """End the watch in a forked child, where it would take events from the parent's queue."""
        self._lock = threading.RLock()
        self._is_closed = True
        self._release()

    def __del__(self) -> None:
        if hasattr(self, "_queue"):
            self._release()


def _abandon_all() -> None:
    for watch in list(_open_watches):
        watch.abandon()


os.register_at_fork(after_in_child=_abandon_all)
