"""Archive locations: a directory or a URL. Where possible, a file gets its name only when it is complete.

In a directory, a file is written under a unique temporary name, synced and renamed, so a retried task never collides
with a first attempt that ends late. The next archive run removes temporary files left by a crash. An object store
shows only complete objects. Other file systems behind a URL may show part of a file after a crash: the archive
run compares every file it finds with its source, and names only checked files in the manifest.

If two processes archive to one location at once, one of them fails. A directory is locked for the whole run. On S3,
writes are conditional (`If-Match`, `If-None-Match`); elsewhere, the file is compared before and after the write.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple, Protocol

from seeklog import names
from seeklog.files.durable import read_parts, sync_ancestors, write_parts
from seeklog.files.local import Files, OsFiles, absolute
from seeklog.files.lock import take_lock
from seeklog.files.remote import as_os_errors, open_filesystem

# The size of an upload part and of a read. S3 accepts at most 10,000 parts of at least 5 MiB.
PART: Final = 8 << 20
# File systems without directories: creating one there might create a bucket.
_BUCKETS: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "cos", "obs"})
# File systems with conditional writes.
_CONDITIONAL: Final = frozenset({"s3", "s3a"})
# Their answers when a condition fails or two writes collide.
_REFUSALS: Final = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict"})


class Version(NamedTuple):
    """A small file at the time it was read."""

    data: bytes
    tag: str | None
    """The file system's identifier of this version, or None if it has none."""


class Depot(Protocol):
    """Files by their paths below one location. Every method raises `OSError` and nothing else."""

    @property
    def location(self) -> str:
        """The directory or URL."""
        ...

    def sizes(self, directory: str) -> dict[str, int]:
        """Return the size of each file by name, -1 for anything else; an empty dict if the directory is missing."""
        ...

    def read(self, path: str) -> Iterator[bytes]:
        """Yield a file's bytes in parts."""
        ...

    def put(self, path: str, parts: Iterable[bytes], *, is_new: bool = False) -> None:
        """Write a file, replacing an existing one. Durable on return.

        With `is_new`, raise `FileExistsError` and leave an existing file alone, if the location can detect it.
        """
        ...

    def version(self, path: str) -> Version | None:
        """Return a small file, or None if it is missing."""
        ...

    def swap(self, path: str, data: bytes, *, over: Version | None) -> Version:
        """Replace exactly the version `over` of a small file. Raise `FileExistsError` if another version is there."""
        ...

    def locked(self) -> AbstractContextManager[None]:
        """Lock the location, if it supports locks. Raise `LogLocked` if another process holds the lock."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file, if it exists."""
        ...


def open_depot(target: str, *, storage_options: Mapping[str, Any] | None = None, files: Files | None = None) -> Depot:
    """Return the depot at a path or a URL. Nothing is created or contacted yet."""
    location = absolute(target)
    if not names.is_url(location):
        return DirectoryDepot(location, files=files or OsFiles())
    system, root = open_filesystem(location, storage_options or {})
    if "file" in _protocols(system):
        return DirectoryDepot(root, files=files or OsFiles())
    return RemoteDepot(location, system, root)


class DirectoryDepot:
    """A local directory."""

    def __init__(self, location: str, *, files: Files) -> None:
        self.location = location
        self._files = files
        self._made: set[str] = set()

    def sizes(self, directory: str) -> dict[str, int]:
        path = f"{self.location}/{directory}".rstrip("/")
        try:
            kinds = self._files.kinds(path)
        except FileNotFoundError:
            return {}
        sizes = {}
        for name, kind in kinds.items():
            # Another task may rename its temporary file at the same time.
            with contextlib.suppress(FileNotFoundError):
                sizes[name] = self._files.file_size(f"{path}/{name}") if kind == "file" else -1
        return sizes

    def read(self, path: str) -> Iterator[bytes]:
        return read_parts(self._files, f"{self.location}/{path}", size=PART)

    def put(self, path: str, parts: Iterable[bytes], *, is_new: bool = False) -> None:
        files, target = self._files, f"{self.location}/{path}"
        directory = target.rpartition("/")[0]
        if directory not in self._made:
            self._make(directory)
        temporary = names.temporary_name(target, uuid.uuid4().hex)
        try:
            write_parts(files, temporary, parts)
            if is_new:
                with contextlib.suppress(FileNotFoundError):
                    files.kind(target)
                    raise _exists(target)
            files.rename(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                files.remove(temporary)
            raise
        files.sync_directory(directory)

    def version(self, path: str) -> Version | None:
        try:
            return Version(b"".join(self.read(path)), None)
        except FileNotFoundError:
            return None

    def swap(self, path: str, data: bytes, *, over: Version | None) -> Version:
        # The caller holds the lock, so nothing changes between the comparison and the rename.
        if self.version(path) != over:
            raise _exists(f"{self.location}/{path}")
        self.put(path, [data])
        return Version(data, None)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        self._make(self.location)
        advice = "another process is archiving there; archive again when it has finished"
        lock = take_lock(self._files, f"{self.location}/{names.ARCHIVE_LOCK}", subject=self.location, advice=advice)
        try:
            # The manifest must be durable before files that it does not name are deleted.
            self._files.sync_directory(self.location)
            self._sweep("")
            yield
        finally:
            lock.close()

    def _sweep(self, directory: str) -> None:
        """Remove temporary files left by a crash, in a directory and in the partition directories below it."""
        path = f"{self.location}/{directory}".rstrip("/")
        for name, kind in self._files.kinds(path).items():
            if kind == "file" and names.is_temporary(name):
                self.remove(f"{directory}/{name}".lstrip("/"))
            elif kind == "directory" and not directory and names.parse_partition_name(name) is not None:
                self._sweep(name)

    def _make(self, directory: str) -> None:
        self._files.make_directory(directory)
        self._made.add(directory)
        sync_ancestors(self._files, directory)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._files.remove(f"{self.location}/{path}")


class RemoteDepot:
    """A location at a URL."""

    def __init__(self, location: str, system: Any, root: str) -> None:
        self.location = location
        self._system = system
        self._root = root
        self._has_directories = not _BUCKETS.intersection(_protocols(system))
        self._takes_conditions = bool(_CONDITIONAL.intersection(_protocols(system)))

    def sizes(self, directory: str) -> dict[str, int]:
        remote_path = f"{self._root}/{directory}".rstrip("/")
        try:
            with self._errors(directory):
                entries = self._system.ls(remote_path or "/", detail=True)
        except FileNotFoundError:
            return {}
        sizes = {}
        for entry in entries:
            name = str(entry["name"]).rstrip("/")
            # Some stores mark a directory with an empty object of the same name.
            if name != remote_path:
                sizes[name.rpartition("/")[2]] = int(entry.get("size") or 0) if entry["type"] == "file" else -1
        return sizes

    def read(self, path: str) -> Iterator[bytes]:
        position = 0
        with self._errors(path):
            size = int(self._system.info(f"{self._root}/{path}")["size"])
        while position < size:
            with self._errors(path):
                part = self._system.cat_file(f"{self._root}/{path}", start=position, end=min(position + PART, size))
            if not part:
                return
            position += len(part)
            yield part

    def put(self, path: str, parts: Iterable[bytes], *, is_new: bool = False) -> None:
        remote_path = f"{self._root}/{path}"
        with self._writing(path):
            self._make_parents(remote_path)
            mode = "xb" if is_new and self._takes_conditions else "wb"
            file = self._system.open(remote_path, mode, block_size=PART)
        try:
            for part in parts:
                with self._writing(path):
                    file.write(part)
        except BaseException:
            _give_up(file)
            raise
        try:
            with self._writing(path):
                file.close()
        except OSError as error:
            _give_up(file)
            if _is_refusal(error):
                raise _exists(f"{self.location}/{path}") from error
            raise

    def _errors(self, path: str) -> AbstractContextManager[None]:
        return as_os_errors(f"{self.location}/{path}")

    @contextlib.contextmanager
    def _writing(self, path: str) -> Iterator[None]:
        """Raise a backend's errors as `_errors` does. What a write does not find in a bucket store is the bucket."""
        try:
            with self._errors(path):
                yield
        except FileNotFoundError as error:
            if self._has_directories:
                raise
            bucket = self._root.partition("/")[0]
            how = f", with: aws s3 mb s3://{bucket}" if self._takes_conditions else ""
            reason = (
                f"there is no bucket {bucket!r}, or these credentials do not see it; create it{how}, or correct the "
                "URL, or the credentials and the endpoint in storage_options"
            )
            raise OSError(errno.ENOENT, reason, f"{self.location}/{path}") from error

    def _make_parents(self, remote_path: str) -> None:
        if self._has_directories:
            self._system.makedirs(remote_path.rpartition("/")[0], exist_ok=True)

    def version(self, path: str) -> Version | None:
        try:
            # The tag first: if the file is replaced before it is read, the old tag makes the next swap fail.
            with self._errors(path):
                tag = self._system.info(f"{self._root}/{path}").get("ETag") if self._takes_conditions else None
            return Version(b"".join(self.read(path)), tag)
        except FileNotFoundError:
            return None

    def swap(self, path: str, data: bytes, *, over: Version | None) -> Version:
        before = over and over.data
        if self._content(path) != before:
            raise _exists(f"{self.location}/{path}")
        try:
            self._write_over(path, data, over)
        except OSError:
            # The write may have succeeded, and its retry inside the backend may have been refused.
            if self._content(path) == before != data:
                raise
        written = self.version(path)
        if written is None or written.data != data:
            raise _exists(f"{self.location}/{path}")
        return written

    def _content(self, path: str) -> bytes | None:
        version = self.version(path)
        return version and version.data

    def _write_over(self, path: str, data: bytes, over: Version | None) -> None:
        condition: dict[str, Any] = {"mode": "create"} if over is None else {}
        if self._takes_conditions and over is not None and over.tag is not None:
            condition["IfMatch"] = over.tag
        try:
            with self._writing(path):
                self._make_parents(f"{self._root}/{path}")
                self._system.pipe_file(f"{self._root}/{path}", data, **condition)
        except OSError as error:
            if error.errno != errno.ENOSYS or not condition:
                raise
            # The store implements S3 without conditional writes.
            self.put(path, [data])

    def locked(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._errors(path):
            self._system.rm_file(f"{self._root}/{path}")


def _give_up(file: Any) -> None:
    """Abandon an upload. Closing the file would complete it and give half a file the name of a whole one."""
    with contextlib.suppress(Exception):
        file.discard()
    with contextlib.suppress(Exception):
        file.closed = True


def _exists(path: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


def _is_refusal(error: BaseException | None) -> bool:
    """Return whether the store refused a write because its condition failed."""
    while error is not None:
        answer = getattr(error, "response", None)
        if isinstance(error, FileExistsError):
            return True
        if isinstance(answer, Mapping) and answer.get("Error", {}).get("Code") in _REFUSALS:
            return True
        error = error.__cause__
    return False


def _protocols(system: Any) -> frozenset[str]:
    protocol = system.protocol
    return frozenset((protocol,) if isinstance(protocol, str) else protocol)
