"""The only access to the operating system's files. `OsFiles` is the real disk; tests supply others.

Files are created with mode 0640, directories with 0750. Symbolic links are never followed in the last component of a
path; methods that change anything also refuse one as the parent, which is the partition directory. Only regular files
are opened. `write` writes all bytes or raises.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import stat
import struct
import sys
from collections.abc import Iterator
from os import pread, pwrite
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, NoReturn, Protocol, TypeAlias

from seeklog.errors import UsageError
from seeklog.names import check_location, is_url

if TYPE_CHECKING:
    from seeklog.files.watch import DirectoryWatch

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap.mmap
Kind: TypeAlias = Literal["file", "directory", "link", "other"]

FILE_MODE = 0o640
DIRECTORY_MODE = 0o750
# Room for a process id, a token and a note. Padding lets each text overwrite the previous one.
LOCK_TEXT_SIZE = 128
# What F_FULLFSYNC raises on a file system that does not know it, such as a network mount.
_NO_FULL_SYNC = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL})


class FileStatus(NamedTuple):
    """The size of a file, and its identity: its name may refer to another file a moment later."""

    size: int
    identity: tuple[int, int]
    """Device and inode."""


class Files(Protocol):
    """The operations that storage needs from a disk. Paths are strings; an open file is an int handle.

    Every method raises `OSError` and nothing else. The caller must not close a handle during another call on it.
    """

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        """Open a file; with `create`, create it if it does not exist."""
        ...

    def close(self, handle: int) -> None: ...

    def read(self, handle: int, size: int, position: int) -> bytes:
        """Return up to `size` bytes at `position`; fewer only at the end of the file."""
        ...

    def write(self, handle: int, data: Buffer, position: int) -> None:
        """Write all of `data` at `position`."""
        ...

    def size(self, handle: int) -> int: ...

    def truncate(self, handle: int, size: int) -> None: ...

    def sync(self, handle: int) -> None:
        """Make the file's bytes and size durable."""
        ...

    def map(self, path: str) -> Buffer:
        """Return the whole file as a read-only buffer. Use it only for files that no program truncates in place.

        Reading past the end of a truncated mapping kills the process (SIGBUS). A broker preallocates and trims its
        index files and truncates its logs, so only key indexes, which brokers ignore, are mapped.
        """
        ...

    def read_file(self, path: str) -> bytes:
        """Return the content of a small file."""
        ...

    def list(self, directory: str) -> list[str]:
        """Return the names in a directory, in arbitrary order."""
        ...

    def kinds(self, directory: str) -> dict[str, Kind]:
        """Return the kind of each name in a directory; links are not followed."""
        ...

    def kind(self, path: str) -> Kind:
        """Return the kind of the file at a path; a link is not followed."""
        ...

    def file_size(self, path: str) -> int:
        """Return the size of the regular file at a path; raise for a link or a directory."""
        ...

    def status(self, path: str) -> FileStatus:
        """Return the size and identity of the regular file at a path; raise for a link or a directory."""
        ...

    def status_of(self, handle: int) -> FileStatus:
        """Return the size and identity of an open file."""
        ...

    def identity(self, path: str) -> tuple[int, int]:
        """Return the device and inode of the file or directory at a path; a link is not followed."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename `source` to `target`, replacing an existing file."""
        ...

    def remove(self, path: str) -> None: ...

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, unless it exists."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""
        ...

    def lock(self, handle: int, path: str, owner: str) -> str:
        """Lock a lock file that is open for writing, write `owner` into it, and return its previous content.

        Does not wait. Raises `BlockingIOError` if the lock is held, and `FileNotFoundError` if the path has been
        removed or refers to another file. The lock is released when the handle is closed or its process ends.
        """
        ...

    def unlock(self, handle: int, note: str) -> None:
        """Write `note` into a lock file and release it. The handle stays open, to lock it again."""
        ...

    def is_locked(self, path: str) -> bool:
        """Return whether any process, including this one, holds the lock. Nothing is written."""
        ...

    def lock_out_broker(self, path: str) -> int:
        """Take a shared lock on the file that a Kafka broker locks exclusively; return the handle.

        Raises `BlockingIOError` if a broker holds it. No broker can start while the handle is open.
        """
        ...

    def lock_as_broker(self, path: str) -> int:
        """Lock the same file exclusively, as a Kafka broker does; return the handle.

        Raises `BlockingIOError` if a broker or an open store holds it. Neither can start while the handle is open.
        """
        ...

    def has_broker(self, path: str) -> bool:
        """Return whether a running Kafka broker holds its lock. Nothing is written."""
        ...

    def watch(self) -> DirectoryWatch | None:
        """Return a watch over directories, or None if nothing on this disk changes."""
        ...


class OsFiles:
    """The real disk."""

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        # O_NONBLOCK: opening a pipe in place of the file would block forever.
        flags = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_RDWR if write else os.O_RDONLY)
        if not write:
            handle = os.open(path, flags)
        else:
            with _directory_of(path) as (directory, name):
                handle = os.open(name, flags | os.O_CREAT if create else flags, FILE_MODE, dir_fd=directory)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(errno.EINVAL, "not a regular file", path)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def close(self, handle: int) -> None:
        os.close(handle)

    def read(self, handle: int, size: int, position: int) -> bytes:
        data = pread(handle, size, position)
        if len(data) == size or not data:
            return data
        # The kernel may return fewer bytes in the middle of a file (a signal, the 2 GiB limit): read the rest.
        parts = [data]
        got = len(data)
        while got < size:
            data = pread(handle, size - got, position + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def write(self, handle: int, data: Buffer, position: int) -> None:
        written = pwrite(handle, data, position)
        if written != len(data):
            with memoryview(data) as view:
                while written < len(view):
                    written += pwrite(handle, view[written:], position + written)

    def size(self, handle: int) -> int:
        return os.fstat(handle).st_size

    def truncate(self, handle: int, size: int) -> None:
        os.ftruncate(handle, size)

    def sync(self, handle: int) -> None:
        if sys.platform == "darwin":
            _sync_past_cache(handle)
        else:
            os.fdatasync(handle)

    def map(self, path: str) -> Buffer:
        handle = self.open(path)
        try:
            if os.fstat(handle).st_size == 0:
                return b""  # mmap refuses an empty file
            return mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
        finally:
            os.close(handle)

    def read_file(self, path: str) -> bytes:
        handle = self.open(path)
        try:
            return self.read(handle, os.fstat(handle).st_size, 0)
        finally:
            os.close(handle)

    def list(self, directory: str) -> list[str]:
        return os.listdir(directory)

    def kinds(self, directory: str) -> dict[str, Kind]:
        with os.scandir(directory) as entries:
            return {entry.name: _kind_of_entry(entry) for entry in entries}

    def kind(self, path: str) -> Kind:
        return _kind_of(os.lstat(path).st_mode)

    def file_size(self, path: str) -> int:
        return self.status(path).size

    def status(self, path: str) -> FileStatus:
        status = os.stat(path, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        return FileStatus(status.st_size, (status.st_dev, status.st_ino))

    def status_of(self, handle: int) -> FileStatus:
        status = os.fstat(handle)
        return FileStatus(status.st_size, (status.st_dev, status.st_ino))

    def identity(self, path: str) -> tuple[int, int]:
        status = os.lstat(path)
        return status.st_dev, status.st_ino

    def rename(self, source: str, target: str) -> None:
        with _directory_of(source) as (from_directory, name), _directory_of(target) as (to_directory, new_name):
            os.replace(name, new_name, src_dir_fd=from_directory, dst_dir_fd=to_directory)

    def remove(self, path: str) -> None:
        with _directory_of(path) as (directory, name):
            os.unlink(name, dir_fd=directory)

    def make_directory(self, path: str) -> None:
        try:
            os.makedirs(path, DIRECTORY_MODE)
        except FileExistsError:
            if not os.path.isdir(path):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None

    def remove_directory(self, path: str) -> None:
        with _directory_of(path) as (directory, name):
            os.rmdir(name, dir_fd=directory)

    def sync_directory(self, path: str) -> None:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if sys.platform == "darwin":
                _sync_past_cache(handle)
            else:
                os.fsync(handle)
        finally:
            os.close(handle)

    def lock(self, handle: int, path: str, owner: str) -> str:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            if not _is_at(handle, path):
                # The file or its directory was replaced; another process may hold the lock at this path.
                raise FileNotFoundError(errno.ENOENT, "was removed or replaced", path)
            note = pread(handle, LOCK_TEXT_SIZE, 0).decode("ascii", "replace")
            try:
                pwrite(handle, owner.ljust(LOCK_TEXT_SIZE).encode(), 0)
            except OSError as error:
                # A deletion, which makes room, needs locks too. A new lock file may stay empty: it then names no owner.
                if note or error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
        except BaseException:
            fcntl.flock(handle, fcntl.LOCK_UN)
            raise
        return note

    def unlock(self, handle: int, note: str) -> None:
        pwrite(handle, note.ljust(LOCK_TEXT_SIZE).encode(), 0)
        fcntl.flock(handle, fcntl.LOCK_UN)

    def is_locked(self, path: str) -> bool:
        handle = self.open(path)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
        return False

    def lock_out_broker(self, path: str) -> int:
        return self._lock_broker_file(path, alone=False)

    def lock_as_broker(self, path: str) -> int:
        return self._lock_broker_file(path, alone=True)

    def _lock_broker_file(self, path: str, *, alone: bool) -> int:
        handle = self.open(path, write=True, create=True)
        try:
            if sys.platform == "linux":
                # Java locks with fcntl. Unlike a plain fcntl lock, a lock of the open file description survives
                # when this process closes another handle of the same file.
                kind = fcntl.F_WRLCK if alone else fcntl.F_RDLCK
                fcntl.fcntl(handle, fcntl.F_OFD_SETLK, _lock_of_whole_file(kind))
            else:
                # On macOS and the BSDs, locks of flock and of fcntl exclude each other between processes, and a lock
                # of flock survives in the same way.
                fcntl.flock(handle, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BaseException:
            os.close(handle)
            raise
        return handle

    def has_broker(self, path: str) -> bool:
        if sys.platform != "linux":
            # Only a broker, or a handover in its place, locks this file alone.
            return self.is_locked(path)
        handle = self.open(path)
        try:
            # The kernel returns the conflicting lock, or this one with its type set to "unlocked".
            conflict = fcntl.fcntl(handle, fcntl.F_OFD_GETLK, _lock_of_whole_file(fcntl.F_RDLCK))
            return int(struct.unpack_from("h", conflict)[0]) != fcntl.F_UNLCK
        finally:
            os.close(handle)

    def watch(self) -> DirectoryWatch:
        if sys.platform == "linux":
            with contextlib.suppress(ImportError):  # a Python without ctypes
                from seeklog.files.watch import open_watch  # on use: ctypes takes milliseconds to import

                return open_watch()
        from seeklog.files.polling import Polling

        return Polling()


def _sync_past_cache(handle: int) -> None:
    """Sync on macOS, where fsync leaves the bytes in the drive's own cache, which a power loss empties."""
    if sys.platform != "darwin":
        raise AssertionError("only macOS has F_FULLFSYNC")
    try:
        fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
    except OSError as error:
        if error.errno not in _NO_FULL_SYNC:
            raise
        os.fsync(handle)


def _lock_of_whole_file(kind: int) -> bytes:
    """Return the C structure `flock` for a lock on the whole file: F_RDLCK is shared, F_WRLCK exclusive."""
    return struct.pack("hhqqi", kind, os.SEEK_SET, 0, 0, 0)


def _is_at(handle: int, path: str) -> bool:
    try:
        opened, current = os.fstat(handle), os.stat(path, follow_symlinks=False)
        return (opened.st_ino, opened.st_dev) == (current.st_ino, current.st_dev)
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def _directory_of(path: str) -> Iterator[tuple[int, str]]:
    """Open the directory of a file, and yield (its handle, the file's name).

    Calls relative to the handle act in that directory even if it is renamed. The directory must not be a link:
    anyone able to replace the partition directory could otherwise redirect writes.
    """
    parent, name = os.path.split(path)
    try:
        directory = os.open(parent or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        # What a link raises: ENOTDIR on Linux, ELOOP on macOS.
        if error.errno not in (errno.ENOTDIR, errno.ELOOP) or not os.path.islink(parent):
            raise
        raise OSError(errno.ELOOP, "is a symbolic link, which is not followed here", parent) from None
    try:
        yield directory, name
    except OSError as error:
        if error.filename == name:
            error.filename = path
        raise
    finally:
        os.close(directory)


class Handle:
    """An open file that closes itself when the last reference is dropped.

    It never closes while a reader uses it. The operating system could otherwise reuse the number for another file,
    and the reader would read that file.
    """

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


def reads_plainly(files: Files) -> bool:
    """Return whether a handle is one of the operating system, and a read does no more than its `pread`."""
    return getattr(files.read, "__func__", None) is OsFiles.read


class ReadOnlyFiles:
    """`Files` that refuse every change. Content never changes after it is first read."""

    def refuse(self, path: str) -> NoReturn:
        raise OSError(errno.EROFS, "archives and files at a URL are read-only", path)

    def write(self, handle: int, data: Buffer, position: int) -> None:
        self.refuse(f"handle {handle}")

    def truncate(self, handle: int, size: int) -> None:
        self.refuse(f"handle {handle}")

    def sync(self, handle: int) -> None:
        self.refuse(f"handle {handle}")

    def rename(self, source: str, target: str) -> None:
        self.refuse(source)

    def identity(self, path: str) -> tuple[int, int]:
        self.refuse(path)

    def remove(self, path: str) -> None:
        self.refuse(path)

    def make_directory(self, path: str) -> None:
        self.refuse(path)

    def remove_directory(self, path: str) -> None:
        self.refuse(path)

    def sync_directory(self, path: str) -> None:
        self.refuse(path)

    def lock(self, handle: int, path: str, owner: str) -> str:
        self.refuse(path)

    def unlock(self, handle: int, note: str) -> None:
        self.refuse(f"handle {handle}")

    def is_locked(self, path: str) -> bool:
        """Return False: the lock file was copied with the other files, and no process holds it."""
        return False

    def lock_out_broker(self, path: str) -> int:
        self.refuse(path)

    def has_broker(self, path: str) -> bool:
        """Return False: no broker runs on a copy."""
        return False

    def watch(self) -> DirectoryWatch | None:
        """Return None: nothing changes."""
        return None

    def lock_as_broker(self, path: str) -> int:
        self.refuse(path)


def absolute(path: str, *, follows: bool = True) -> str:
    """Return a path as an absolute path, or a URL without trailing slashes.

    Links in a path that the user gave are resolved once. Paths derived from it contain no links, and links that appear
    there later must not be followed: pass `follows=False` for them.
    """
    if is_url(path):
        return path.rstrip("/")
    check_location(path)
    return os.path.realpath(path) if follows and "\0" not in path else os.path.abspath(path)


def local_path(location: str) -> Path:
    """Return a directory as a `Path`; raise `UsageError` for a URL."""
    if is_url(location):
        raise UsageError(f"{location} is a URL, not a path; use location")
    return Path(location)


def _kind_of_entry(entry: os.DirEntry[str]) -> Kind:
    """Return the kind of an entry, which most file systems return with its name."""
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "directory"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def _kind_of(mode: int) -> Kind:
    if stat.S_ISLNK(mode):
        return "link"
    if stat.S_ISDIR(mode):
        return "directory"
    return "file" if stat.S_ISREG(mode) else "other"
