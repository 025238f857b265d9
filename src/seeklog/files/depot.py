"""Where archives are put: a directory, or a place at a URL. A file gets its name when it is whole, where that can be.

In a directory it is written under a temporary name, synced and renamed. That name is nobody else's: a task that is
tried again writes a file of its own, however late the first attempt ends. What a kill leaves is removed by whoever
holds the place next. An object store shows an object when it is complete. Other file systems behind a URL may show half
a file after a kill: whoever archives holds what it finds against what it has, and names in its manifest only what it
has checked.

Of two that archive to one place at once, one is told. A directory is locked for as long as it takes. S3 is asked to
write only over what was read (`If-Match`), or over nothing (`If-None-Match`); elsewhere, what is there is looked at
right before and right after.
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

# A part of an upload, and what is read back at once. S3 takes parts from 5 MiB on, and 10,000 of them.
PART: Final = 8 << 20
# File systems that have no directories to make; asked to make one, they might make a bucket.
_BUCKETS: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "cos", "obs"})
# Those that take conditions for a write.
_CONDITIONAL: Final = frozenset({"s3", "s3a"})
# What they answer where one does not hold, or where two writes were at it at once.
_REFUSALS: Final = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict"})


class Version(NamedTuple):
    """A small file as it was found."""

    data: bytes
    tag: str | None
    """What the store calls this version of it, where it has words for that."""


class Depot(Protocol):
    """Files by their paths below one place. Every method raises `OSError` and nothing else."""

    @property
    def location(self) -> str:
        """The directory or URL."""
        ...

    def sizes(self, directory: str) -> dict[str, int]:
        """Return the names in a directory with the files' sizes, -1 for what is no file; nothing if it is not there."""
        ...

    def read(self, path: str) -> Iterator[bytes]:
        """Yield a file's bytes, a part at a time."""
        ...

    def put(self, path: str, parts: Iterable[bytes], *, is_new: bool = False) -> None:
        """Write a file, durable on return, in the place of one that may have the name.

        With `is_new` there should be none: where the place can tell, `FileExistsError` is raised, and the other stays.
        """
        ...

    def version(self, path: str) -> Version | None:
        """Return a small file as it is, or None if it is not there."""
        ...

    def swap(self, path: str, data: bytes, *, over: Version | None) -> Version:
        """Write a small file in the place of just that version; raise `FileExistsError` if another one is there."""
        ...

    def locked(self) -> AbstractContextManager[None]:
        """Be the only one who changes what is there, if the place can see to that; else raise `LogLocked`."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        ...


def open_depot(target: str, *, storage_options: Mapping[str, Any] | None = None, files: Files | None = None) -> Depot:
    """Return the depot at a path or a URL. Nothing is made and nothing is asked yet."""
    location = absolute(target)
    if not names.is_url(location):
        return DirectoryDepot(location, files=files or OsFiles())
    system, place = open_filesystem(location, storage_options or {})
    if "file" in _protocols(system):
        return DirectoryDepot(place, files=files or OsFiles())
    return RemoteDepot(location, system, place)


class DirectoryDepot:
    """A directory."""

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
            # What another task writes gets its name meanwhile.
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
        # Whoever holds the place is alone with it: between the look and the rename nothing changes.
        if self.version(path) != over:
            raise _exists(f"{self.location}/{path}")
        self.put(path, [data])
        return Version(data, None)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        self._make(self.location)
        advice = "it is being archived to; archive when that has ended"
        lock = take_lock(self._files, f"{self.location}/{names.ARCHIVE_LOCK}", subject=self.location, advice=advice)
        try:
            # The manifest that is seen here may not be durable yet: what it does not name goes only when it is.
            self._files.sync_directory(self.location)
            self._sweep("")
            yield
        finally:
            lock.close()

    def _sweep(self, directory: str) -> None:
        """Remove what a kill has left half written, in a directory and in those of partitions below it."""
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
    """A place at a URL."""

    def __init__(self, location: str, system: Any, place: str) -> None:
        self.location = location
        self._system = system
        self._place = place
        self._has_directories = not _BUCKETS.intersection(_protocols(system))
        self._takes_conditions = bool(_CONDITIONAL.intersection(_protocols(system)))

    def sizes(self, directory: str) -> dict[str, int]:
        place = f"{self._place}/{directory}".rstrip("/")
        try:
            with self._errors(directory):
                entries = self._system.ls(place or "/", detail=True)
        except FileNotFoundError:
            return {}
        found = {}
        for entry in entries:
            name = str(entry["name"]).rstrip("/")
            # Some stores mark a directory by an empty object of its name.
            if name != place:
                found[name.rpartition("/")[2]] = int(entry.get("size") or 0) if entry["type"] == "file" else -1
        return found

    def read(self, path: str) -> Iterator[bytes]:
        position = 0
        with self._errors(path):
            size = int(self._system.info(f"{self._place}/{path}")["size"])
        while position < size:
            with self._errors(path):
                part = self._system.cat_file(f"{self._place}/{path}", start=position, end=min(position + PART, size))
            if not part:
                return
            position += len(part)
            yield part

    def put(self, path: str, parts: Iterable[bytes], *, is_new: bool = False) -> None:
        place = f"{self._place}/{path}"
        with self._errors(path):
            self._make_parents(place)
            mode = "xb" if is_new and self._takes_conditions else "wb"
            file = self._system.open(place, mode, block_size=PART)
        try:
            for part in parts:
                with self._errors(path):
                    file.write(part)
        except BaseException:
            _give_up(file)
            raise
        try:
            with self._errors(path):
                file.close()
        except OSError as error:
            _give_up(file)
            if _is_refusal(error):
                raise _exists(f"{self.location}/{path}") from error
            raise

    def _errors(self, path: str) -> AbstractContextManager[None]:
        return as_os_errors(f"{self.location}/{path}")

    def _make_parents(self, place: str) -> None:
        if self._has_directories:
            self._system.makedirs(place.rpartition("/")[0], exist_ok=True)

    def version(self, path: str) -> Version | None:
        try:
            # The tag first: if the file is replaced before it is read, the tag is not that of what is there.
            with self._errors(path):
                tag = self._system.info(f"{self._place}/{path}").get("ETag") if self._takes_conditions else None
            return Version(b"".join(self.read(path)), tag)
        except FileNotFoundError:
            return None

    def swap(self, path: str, data: bytes, *, over: Version | None) -> Version:
        before = over and over.data
        if self._seen(path) != before:
            raise _exists(f"{self.location}/{path}")
        try:
            self._write_over(path, data, over)
        except OSError:
            # It may have arrived all the same, and be the reason why a second try was refused.
            if self._seen(path) == before != data:
                raise
        found = self.version(path)
        if found is None or found.data != data:
            raise _exists(f"{self.location}/{path}")
        return found

    def _seen(self, path: str) -> bytes | None:
        found = self.version(path)
        return found and found.data

    def _write_over(self, path: str, data: bytes, over: Version | None) -> None:
        condition: dict[str, Any] = {"mode": "create"} if over is None else {}
        if self._takes_conditions and over is not None and over.tag is not None:
            condition["IfMatch"] = over.tag
        try:
            with self._errors(path):
                self._make_parents(f"{self._place}/{path}")
                self._system.pipe_file(f"{self._place}/{path}", data, **condition)
        except OSError as error:
            if error.errno != errno.ENOSYS or not condition:
                raise
            # A store that speaks S3 and knows no conditions.
            self.put(path, [data])

    def locked(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError), self._errors(path):
            self._system.rm_file(f"{self._place}/{path}")


def _give_up(file: Any) -> None:
    """Leave an upload unfinished. Closing it would complete it: half a file would have the name of a whole one."""
    with contextlib.suppress(Exception):
        file.discard()
    with contextlib.suppress(Exception):
        file.closed = True


def _exists(path: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


def _is_refusal(error: BaseException | None) -> bool:
    """Tell whether a store has refused a write because its condition does not hold."""
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
