"""Changes of partition directories, found by looking: where the system does not report them.

A look compares the directory itself, whose time changes with its names, and the two files that are written in place:
the last segment and the watermark. They are opened for it, because a network file system asks its server only then.
"""

from __future__ import annotations

import os
from typing import Final

from seeklog import names
from seeklog.clock import Clock, SystemClock

# What FAT rounds its times to; other file systems are finer. A change within this time of an earlier one may leave the
# same stamp.
GRANULARITY_S: Final = 2.0

Numbers = tuple[int, int, int]
Stamp = tuple[Numbers, ...]


class Polling:
    """A watch that looks at each directory whenever it is asked for changes. One thread uses it."""

    is_polled = True

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._young: dict[str, tuple[Stamp, float]] = {}
        """The stamps of directories that are not watched yet, and when they were first seen."""
        self._watched: dict[str, tuple[list[str], Stamp]] = {}
        """The paths that are compared, and their stamp."""

    @property
    def has_directories(self) -> bool:
        return bool(self._watched or self._young)

    def add(self, directory: str) -> bool:
        """Watch a directory; return False until its stamp is so old that any change from now on gives another."""
        try:
            if os.path.islink(directory):
                raise NotADirectoryError(directory)
            paths = [directory, *(f"{directory}/{name}" for name in _written_in_place(os.listdir(directory)))]
            stamp = _stamp(paths)
        except OSError:
            self._young.pop(directory, None)
            return False
        now = self._clock.monotonic()
        known, since = self._young.get(directory, (None, now))
        if known != stamp:
            self._young[directory] = stamp, now
            return False
        if now - since < GRANULARITY_S:
            return False
        del self._young[directory]
        self._watched[directory] = paths, stamp
        return True

    def forget(self, directory: str) -> None:
        self._young.pop(directory, None)
        self._watched.pop(directory, None)

    def changes(self) -> set[str]:
        changed = {directory for directory, (paths, stamp) in self._watched.items() if not _is_at(paths, stamp)}
        for directory in changed:
            del self._watched[directory]
        return changed

    def wait(self, seconds: float) -> bool:
        """Return False at once: nothing reports a change to wait for."""
        return False

    def wake(self) -> None:
        """Do nothing: no thread waits."""

    def close(self) -> None:
        """Do nothing: no file is open."""


def _written_in_place(found: list[str]) -> list[str]:
    segments = [name for name in found if name.endswith(names.LOG)]
    return [*([max(segments)] if segments else []), *([names.WATERMARK] if names.WATERMARK in found else [])]


def _is_at(paths: list[str], stamp: Stamp) -> bool:
    try:
        return _stamp(paths) == stamp
    except OSError:
        return False


def _stamp(paths: list[str]) -> Stamp:
    """Return numbers that change with the names in a directory, the first path, and with the content of its files."""
    directory, *files = paths
    return (_numbers(os.stat(directory, follow_symlinks=False)), *map(_numbers_of_file, files))


def _numbers_of_file(path: str) -> Numbers:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return _numbers(os.fstat(handle))
    finally:
        os.close(handle)


def _numbers(status: os.stat_result) -> Numbers:
    return status.st_ino, status.st_size, status.st_mtime_ns
