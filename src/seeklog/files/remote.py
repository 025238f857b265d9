"""Files at a URL, read through fsspec: an object store, a web server, another machine. Nothing is ever written.

`RemoteFiles` is the reading half of `Files`. Answers are cached: a directory is listed once and a small file fetched
once, so an open store shows the state at its opening. A `.log` is read in ranges (`readahead`), never whole. Timeouts
and retries are the backend's; set them in `storage_options`.

Every failure of a backend is raised as an `OSError` with the URL, as the operating system would raise it.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any, Final

from seeklog import names
from seeklog.errors import MissingExtra, UsageError, import_failed
from seeklog.files.local import Buffer, Files, FileStatus, Kind, ReadOnlyFiles
from seeklog.files.readahead import ReadAhead

# Kafka limits an index to 10 MB by default.
MAX_MAPPED_BYTES: Final = 256 << 20
# Checkpoints, seals and metadata are cached; readers fetch larger files only once anyway.
MAX_SMALL_BYTES: Final = 64 << 10
MAX_SMALL_FILES: Final = 4096
# The request size for a file of unknown size. Most files are smaller and need one request.
CHUNK: Final = 16 << 20
# The size of a file that a listing does not give, as on a web server.
_UNKNOWN: Final = -1
_EXTRAS: Final[Mapping[str, str]] = {"s3": "s3", "s3a": "s3"}
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_PASSWORD: Final = re.compile(r"[^/]*://[^/@]*:[^/@]*@")
# Errors that a backend may raise without an errno, with the errno that `OSError` needs.
_PLAIN: Final = {
    FileNotFoundError: errno.ENOENT,
    NotADirectoryError: errno.ENOTDIR,
    FileExistsError: errno.EEXIST,
}
_ADVICE: Final = "check the URL, the credentials and endpoint in storage_options, and the network"


def open_filesystem(url: str, storage_options: Mapping[str, Any]) -> tuple[Any, str]:
    """Return fsspec's file system for a URL, and the path within it. Nothing is contacted yet."""
    match = _SCHEME.match(url)
    if match is None or not names.is_url(url):
        raise UsageError(f"{url!r} is not a URL such as s3://bucket/path")
    scheme = match[0].lower()
    if _PASSWORD.match(url):
        raise UsageError("the URL contains a password, which errors and plans would show; pass it in storage_options")
    try:
        import fsspec
    except ImportError as error:
        missing = f'{scheme}:// needs fsspec: pip install "seeklog[{_EXTRAS.get(scheme, "remote")}]"'
        raise import_failed(error, "fsspec", missing=missing) from error
    try:
        # Listings are cached here while a store is open; the backend's cache would outlive it.
        system, root = fsspec.core.url_to_fs(url, **{"use_listings_cache": False, **storage_options})
    except ImportError as error:
        how = f'pip install "seeklog[{_EXTRAS[scheme]}]"' if scheme in _EXTRAS else one_line(error)
        missing = f"{scheme}:// needs another package: {how}"
        # fsspec raises its own error from the cause, if it knows one.
        if not isinstance(error.__cause__, ImportError) or isinstance(error.__cause__, ModuleNotFoundError):
            raise MissingExtra(missing) from error
        raise import_failed(error, error.__cause__.name or scheme, missing=missing) from error
    except ValueError as error:
        advice = f"correct the URL, or install the package of fsspec that adds {scheme}://"
        raise UsageError(f"{url} cannot be opened: {one_line(error)}; {advice}") from error
    except TypeError as error:
        advice = f"pass those that the package of fsspec for {scheme}:// takes"
        raise UsageError(f"the storage_options do not fit {scheme}://: {one_line(error)}; {advice}") from error
    return system, str(root).rstrip("/")


def one_line(error: BaseException) -> str:
    """Return an error's message on one line."""
    return " ".join(str(error).split()) or type(error).__name__


@contextlib.contextmanager
def as_os_errors(path: str) -> Iterator[None]:
    """Raise a backend's errors as the `OSError` that a disk would raise."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError, FileExistsError) as error:
        number = next(number for kind, number in _PLAIN.items() if isinstance(error, kind))
        raise OSError(number, os.strerror(number), path) from error
    except OSError as error:
        number = errno.EACCES if isinstance(error, PermissionError) else error.errno or errno.EIO
        raise OSError(number, f"{one_line(error)}; {_ADVICE}", path) from error
    except Exception as error:
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise OSError(errno.EIO, f"{reason}; {_ADVICE}", path) from error


def is_remote(files: Files) -> bool:
    """Return whether files are at a URL, where a request costs as much as many bytes."""
    return isinstance(getattr(files, "inner", files), RemoteFiles)


class RemoteFiles(ReadOnlyFiles):
    """The files below a URL, for reading. Thread-safe; a forked child opens its own connection."""

    def __init__(self, url: str, *, storage_options: Mapping[str, Any] | None = None) -> None:
        self.url = url
        self._storage_options = dict(storage_options or {})
        self._connected_in = -1
        self._connect()
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._opened: dict[int, str] = {}
        self._listings: dict[str, dict[str, tuple[Kind, int]]] = {}
        self._small: dict[str, bytes] = {}
        self._ahead = ReadAhead(self._fetch)

    def __repr__(self) -> str:
        return f"<RemoteFiles {self.url}>"

    def _connect(self) -> None:
        self._system, self._root = open_filesystem(self.url, self._storage_options)
        self._connected_in = os.getpid()

    def _ask(self, path: str) -> tuple[Any, str]:
        """Return the file system, and its name for a path below the URL."""
        if self._connected_in != os.getpid():
            # A forked child has none of the parent's threads and must not use its connections.
            self._lock = threading.Lock()
            self._ahead = ReadAhead(self._fetch)
            self._connect()
        if path != self.url and not path.startswith(f"{self.url}/"):
            raise OSError(errno.EXDEV, f"the path is not below {self.url}", path)
        return self._system, self._root + path[len(self.url) :]

    def know(self, directory: str, sizes: Mapping[str, int]) -> None:
        """Use known file names and sizes for a directory instead of listing it."""
        with self._lock:
            self._listings[directory] = {name: ("file", size) for name, size in sizes.items()}

    def _fetch(self, path: str, start: int, stop: int) -> bytes:
        system, remote_path = self._ask(path)
        with as_os_errors(path):
            data: bytes = system.cat_file(remote_path, start=start, end=stop)
        if len(data) > stop - start:
            # Some web servers ignore the range and return the whole file.
            raise OSError(errno.ENOTSUP, "the server does not serve ranges of files", path)
        return data

    # ------------------------------------------------------------ open files

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        if write or create:
            self.refuse(path)
        self._check_listed(path)
        number = next(self._numbers)
        self._opened[number] = path
        return number

    def close(self, handle: int) -> None:
        self._opened.pop(handle, None)

    def read(self, handle: int, size: int, position: int) -> bytes:
        path = self._opened[handle]
        return self._ahead.read(path, size, position, file_size=self._listed_size(path))

    def size(self, handle: int) -> int:
        return self.file_size(self._opened[handle])

    def map(self, path: str) -> Buffer:
        size = self._listed_size(path)
        if size is not None and size > MAX_MAPPED_BYTES:
            raise OSError(errno.EFBIG, f"the index has {size:,} bytes, too many to fetch whole", path)
        return self._whole(path)

    def read_file(self, path: str) -> bytes:
        data = self._small.get(path)
        if data is None:
            data = self._whole(path)
            if len(data) <= MAX_SMALL_BYTES:
                with self._lock:
                    if len(self._small) >= MAX_SMALL_FILES:
                        self._small.clear()
                    self._small[path] = data
        return data

    def _whole(self, path: str) -> bytes:
        self._check_listed(path)
        size = self._listed_size(path)
        if size is not None:
            return self._fetch(path, 0, size) if size else b""
        parts = [self._fetch(path, 0, CHUNK)]
        while len(parts[-1]) == CHUNK and sum(map(len, parts)) < self._size_of(path):
            parts.append(self._fetch(path, len(parts) * CHUNK, (len(parts) + 1) * CHUNK))
        return b"".join(parts)

    # ------------------------------------------------------------ names

    def list(self, directory: str) -> list[str]:
        return list(self._listing(directory))

    def kinds(self, directory: str) -> dict[str, Kind]:
        return {name: kind for name, (kind, _) in self._listing(directory).items()}

    def kind(self, path: str) -> Kind:
        directory, _, name = path.rpartition("/")
        if path == self.url or directory not in self._listings:
            system, remote_path = self._ask(path)
            with as_os_errors(path):
                return _kind_of(system.info(remote_path))
        self._check_listed(path)
        return self._listings[directory][name][0]

    def file_size(self, path: str) -> int:
        self._check_listed(path)
        size = self._listed_size(path)
        return self._size_of(path) if size is None else size

    def status(self, path: str) -> FileStatus:
        # The content at a URL is assumed not to change, so a name identifies one file.
        return FileStatus(self.file_size(path), (0, 0))

    def status_of(self, handle: int) -> FileStatus:
        return self.status(self._opened[handle])

    def _size_of(self, path: str) -> int:
        system, remote_path = self._ask(path)
        with as_os_errors(path):
            info = system.info(remote_path)
            if _kind_of(info) != "file":
                raise OSError(errno.EINVAL, "not a regular file", path)
            return int(info["size"])

    def _listing(self, directory: str) -> dict[str, tuple[Kind, int]]:
        listing = self._listings.get(directory)
        if listing is None:
            system, remote_path = self._ask(directory)
            with as_os_errors(directory):
                entries = system.ls(remote_path or "/", detail=True)
            listing = {}
            for entry in entries:
                name = str(entry["name"]).rstrip("/")
                if name == remote_path and _kind_of(entry) == "file" and entry.get("size"):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), directory)
                # Some stores mark a directory with an empty object of the same name.
                if name != remote_path:
                    size = entry.get("size")
                    listing[name.rpartition("/")[2]] = (_kind_of(entry), _UNKNOWN if size is None else int(size))
            with self._lock:
                self._listings[directory] = listing
        return listing

    def _check_listed(self, path: str) -> None:
        """Raise `FileNotFoundError` if the directory was listed without this name. Otherwise the read will find out."""
        directory, _, name = path.rpartition("/")
        if name not in self._listings.get(directory, {name: None}):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    def _listed_size(self, path: str) -> int | None:
        directory, _, name = path.rpartition("/")
        kind, size = self._listings.get(directory, {}).get(name, (None, 0))
        return size if kind == "file" and size != _UNKNOWN else None


def _kind_of(info: Mapping[str, Any]) -> Kind:
    if info.get("islink"):
        return "link"
    kind = info.get("type")
    return "directory" if kind == "directory" else "file" if kind == "file" else "other"
