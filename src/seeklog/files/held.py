"""`Files` for the process that holds a directory's lock: it changes nothing by path once the path leads elsewhere.

A lock is on a file and not on the file's name, and a path leads to whatever is there now. An operator may remove a lock
file, or move a directory away and put a backup in its place. A writer that went on by path would then change files that
another process writes, or the backup. So before each change by path, the holder compares the directory and its lock
file with those that it opened.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

from seeklog.files.local import Files
from seeklog.files.lock import Lock


class Displaced(OSError):
    """The path of a held directory, or of its lock file, leads to something else or to nothing."""

    ADVICE: Final = "find out who changed that, then open it again"

    def __init__(self, path: str, what: str) -> None:
        super().__init__(errno.ESTALE, f"{what} while this process was using it", path)

    def __str__(self) -> str:
        return f"{self.filename} {self.strerror}"


class HeldFiles:
    """The files of a held directory. What changes a name, or opens a file to write, checks the path first.

    With a `lock`, its file must be in place, too. `on_displaced` is called before `Displaced` is raised. The caller
    keeps a file in the directory open. So no inode that is compared is reused, and identities are unique.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        *,
        lock: Lock | None = None,
        on_displaced: Callable[[Displaced], object] = lambda error: None,
    ) -> None:
        self._files = files
        self._identity = files.identity
        self._held = [(directory, files.identity(directory))]
        if lock is not None:
            self._held.append((lock.path, files.status_of(lock.number).identity))
        self._on_displaced = on_displaced
        # These only read, or change a file that is open already. Without a wrapper they cost nothing more.
        self.close = files.close
        self.read = files.read
        self.write = files.write
        self.size = files.size
        self.truncate = files.truncate
        self.sync = files.sync
        self.map = files.map
        self.read_file = files.read_file
        self.list = files.list
        self.kinds = files.kinds
        self.kind = files.kind
        self.file_size = files.file_size
        self.status = files.status
        self.status_of = files.status_of
        self.identity = files.identity
        self.lock = files.lock
        self.unlock = files.unlock
        self.is_locked = files.is_locked
        self.lock_out_broker = files.lock_out_broker
        self.lock_as_broker = files.lock_as_broker
        self.has_broker = files.has_broker
        self.watch = files.watch

    def check(self) -> None:
        """Raise `Displaced` unless the paths still lead to the directory and to its lock file."""
        for path, identity in self._held:
            try:
                now = self._identity(path)
            except (FileNotFoundError, NotADirectoryError):
                now = None
            if now != identity:
                error = Displaced(path, "was moved or removed" if now is None else "was replaced")
                self._on_displaced(error)
                raise error

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        if write:
            self.check()
        return self._files.open(path, write=write, create=create)

    def rename(self, source: str, target: str) -> None:
        self.check()
        self._files.rename(source, target)

    def remove(self, path: str) -> None:
        self.check()
        self._files.remove(path)

    def make_directory(self, path: str) -> None:
        self.check()
        self._files.make_directory(path)

    def remove_directory(self, path: str) -> None:
        self.check()
        self._files.remove_directory(path)

    def sync_directory(self, path: str) -> None:
        self.check()
        self._files.sync_directory(path)
