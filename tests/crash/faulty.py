"""A disk that fails: `FaultyFiles` wraps any disk and fails at the nth call of the chosen methods."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crash.sim import SimFiles, os_error
from seeklog.files import Buffer, Files, FileStatus, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


@dataclass(slots=True)
class FaultyFiles:
    """A disk that fails at the nth call of the chosen methods, and from then on if `lasting`.

    `create` is an `open` that creates a file.

    A write on a full disk may write a prefix of `prefix` bytes first. A failed sync on a simulated disk loses the
    file's dirty pages, as on Linux.
    """

    inner: Files
    methods: Collection[str] = ("sync",)
    fail_at: int = 0
    """The first call that fails, from 1; 0: none, only count."""
    error: int = errno.EIO
    prefix: int = 0
    lasting: bool = False
    only: str = ""
    """Count and fail only calls on paths that end so."""
    is_on: Callable[[], bool] = lambda: True
    """Asked at each call whether it counts."""
    calls: int = 0
    failures: int = 0
    failed_method: str = ""
    failed_path: str = ""
    """What the last call that failed was about."""
    _paths: dict[int, str] = field(default_factory=dict)

    @property
    def handles(self) -> Collection[int]:
        """The handles that are open through this object, now and at any later time."""
        return self._paths.keys()

    def heal(self) -> None:
        """Stop failing."""
        self.fail_at = 0

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        self._check("open", path)
        if create and self._is_new(path):
            self._check("create", path)
        handle = self.inner.open(path, write=write, create=create)
        self._paths[handle] = path
        return handle

    def close(self, handle: int) -> None:
        self.inner.close(handle)
        self._paths.pop(handle, None)

    def read(self, handle: int, size: int, position: int) -> bytes:
        self._check("read", self._paths[handle])
        return self.inner.read(handle, size, position)

    def write(self, handle: int, data: Buffer, position: int) -> None:
        if self._fails("write", self._paths[handle]):
            if self.prefix:
                self.inner.write(handle, bytes(data)[: self.prefix], position)
            raise os_error(self.error, self._paths[handle])
        self.inner.write(handle, data, position)

    def size(self, handle: int) -> int:
        return self.inner.size(handle)

    def truncate(self, handle: int, size: int) -> None:
        self._check("truncate", self._paths[handle])
        self.inner.truncate(handle, size)

    def sync(self, handle: int) -> None:
        if self._fails("sync", self._paths[handle]):
            inner = self.inner
            while isinstance(inner, FaultyFiles):
                inner = inner.inner
            if isinstance(inner, SimFiles):
                inner.fail_sync(handle)
            raise os_error(self.error, self._paths[handle])
        self.inner.sync(handle)

    def map(self, path: str) -> Buffer:
        self._check("map", path)
        return self.inner.map(path)

    def read_file(self, path: str) -> bytes:
        self._check("read_file", path)
        return self.inner.read_file(path)

    def list(self, directory: str) -> list[str]:
        self._check("list", directory)
        return self.inner.list(directory)

    def kinds(self, directory: str) -> dict[str, Kind]:
        self._check("kinds", directory)
        return self.inner.kinds(directory)

    def kind(self, path: str) -> Kind:
        self._check("kind", path)
        return self.inner.kind(path)

    def file_size(self, path: str) -> int:
        self._check("file_size", path)
        return self.inner.file_size(path)

    def status(self, path: str) -> FileStatus:
        self._check("status", path)
        return self.inner.status(path)

    def status_of(self, handle: int) -> FileStatus:
        return self.inner.status_of(handle)

    def identity(self, path: str) -> tuple[int, int]:
        self._check("identity", path)
        return self.inner.identity(path)

    def rename(self, source: str, target: str) -> None:
        self._check("rename", target)
        self.inner.rename(source, target)

    def remove(self, path: str) -> None:
        self._check("remove", path)
        self.inner.remove(path)

    def make_directory(self, path: str) -> None:
        self._check("make_directory", path)
        self.inner.make_directory(path)

    def remove_directory(self, path: str) -> None:
        self._check("remove_directory", path)
        self.inner.remove_directory(path)

    def sync_directory(self, path: str) -> None:
        self._check("sync_directory", path)
        self.inner.sync_directory(path)

    def lock(self, handle: int, path: str, owner: str) -> str:
        self._check("lock", path)
        return self.inner.lock(handle, path, owner)

    def unlock(self, handle: int, note: str) -> None:
        self._check("unlock", self._paths[handle])
        self.inner.unlock(handle, note)

    def is_locked(self, path: str) -> bool:
        self._check("is_locked", path)
        return self.inner.is_locked(path)

    def lock_out_broker(self, path: str) -> int:
        self._check("lock_out_broker", path)
        handle = self.inner.lock_out_broker(path)
        self._paths[handle] = path
        return handle

    def has_broker(self, path: str) -> bool:
        self._check("has_broker", path)
        return self.inner.has_broker(path)

    def watch(self) -> None:
        return None

    def lock_as_broker(self, path: str) -> int:
        self._check("lock_as_broker", path)
        handle = self.inner.lock_as_broker(path)
        self._paths[handle] = path
        return handle

    def _is_new(self, path: str) -> bool:
        try:
            self.inner.file_size(path)
        except FileNotFoundError:
            return True
        return False

    def _check(self, method: str, path: str) -> None:
        if self._fails(method, path):
            raise os_error(self.error, path)

    def _fails(self, method: str, path: str) -> bool:
        if method not in self.methods or not path.endswith(self.only) or not self.is_on():
            return False
        self.calls += 1
        failing = self.calls == self.fail_at or (self.lasting and 0 < self.fail_at <= self.calls)
        if failing:
            self.failures += 1
            self.failed_method = method
            self.failed_path = path
        return failing
