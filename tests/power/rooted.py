"""A directory of a real file system as the disk of a recorder of `tests/crash`."""

from __future__ import annotations

import errno
import itertools
import os
import posixpath
from typing import TYPE_CHECKING, Any, Final

from crash.recorder import PowerLoss
from crash.sim import HANDLE_FIRST, Directory, Disk, File, Rename
from seeklog.files import OsFiles

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection

# The methods of Files with a handle, and those with one or two paths.
BY_HANDLE: Final = ("read", "size", "status_of", "write", "truncate", "sync", "unlock")
BY_PATH: Final = {
    "map": 1,
    "read_file": 1,
    "list": 1,
    "kinds": 1,
    "kind": 1,
    "file_size": 1,
    "status": 1,
    "identity": 1,
    "watch": 0,
    "has_broker": 1,
    "is_locked": 1,
    "rename": 2,
    "remove": 1,
    "make_directory": 1,
    "remove_directory": 1,
    "sync_directory": 1,
    "open": 1,
    "lock_out_broker": 1,
    "lock_as_broker": 1,
}
WRITTEN_BACK: Final = 0.3
GIVING_HANDLES: Final = {"open", "lock_out_broker", "lock_as_broker"}
CHANGES: Final = {
    *("write", "truncate", "sync", "rename", "remove"),
    *("make_directory", "remove_directory", "sync_directory", "lock", "unlock"),
}


class RootedFiles:
    """The real disk below a root, with the methods that a recorder needs of a simulated disk.

    A kill closes the handles and ignores later calls. Power cannot be lost here in the middle of a workload, because
    the states after a power loss come from the tape. If a workload loses power, the process is killed instead.

    An operating system may write back pages at any time. `restlessness` makes it do so after about every third write:
    the pages of that file are then on their way to the disk without a flush.
    """

    def __init__(self, root: str, *, without: Collection[str] = (), restlessness: random.Random | None = None) -> None:
        self._root = root
        self._restlessness = restlessness
        self._inner = OsFiles()
        self._without = frozenset(without)
        # Unique numbers, because an object of a killed process may close its handle much later.
        self._numbers = itertools.count(HANDLE_FIRST)
        self._handles: dict[int, int] = {}
        self._is_dead = False
        self.on_boundary: Callable[[RootedFiles], None] | None = None
        self.pending: list[Rename] = []
        """The last operation, if it was a renaming: workloads kill a process at one."""

    def __call__(self, disk: Disk | RootedFiles) -> RootedFiles:
        """Return this disk itself, as the initial disk of a recorder and as the disk after a crash."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> RootedFiles:
        # A recorder keeps the disk of the moment when it kills a process.
        self._is_dead = True
        return self

    def process_crash(self) -> None:
        for descriptor in self._handles.values():
            os.close(descriptor)
        self._handles = {}
        self._is_dead = False

    def crash_states(self, detail: object) -> list[tuple[str, RootedFiles]]:
        return [("a kill", self)]

    def close(self, handle: int) -> None:
        if handle in self._handles:  # otherwise a handle of a dead process
            os.close(self._handles.pop(handle))

    def lock(self, handle: int, path: str, owner: str) -> Any:
        return self._ask("lock", [self._real(handle), self._root + path, owner], (handle, path, owner), {})

    def _real(self, handle: int) -> int:
        if handle not in self._handles:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._handles[handle]

    def _ask(self, name: str, real: list[Any], asked: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if self._is_dead:
            raise PowerLoss
        result = None if name in self._without else getattr(self._inner, name)(*real, **keywords)
        if name == "write" and self._restlessness is not None and self._restlessness.random() < WRITTEN_BACK:
            os.posix_fadvise(real[0], 0, 0, os.POSIX_FADV_DONTNEED)  # starts the write-back without waiting
        if name in GIVING_HANDLES:
            handle = next(self._numbers)
            self._handles[handle] = result
            result = handle
        if name in CHANGES or keywords.get("create"):
            self.pending = [_renaming(*asked)] if name == "rename" else []
            if self.on_boundary is not None:
                self.on_boundary(self)
        return result


def _by_handle(name: str) -> Callable[..., Any]:
    def ask(self: RootedFiles, handle: int, *rest: Any) -> Any:
        return self._ask(name, [self._real(handle), *rest], (handle, *rest), {})

    return ask


def _by_path(name: str, count: int) -> Callable[..., Any]:
    def ask(self: RootedFiles, *asked: Any, **keywords: Any) -> Any:
        return self._ask(name, [*(self._root + path for path in asked[:count]), *asked[count:]], asked, keywords)

    return ask


for _name in BY_HANDLE:
    setattr(RootedFiles, _name, _by_handle(_name))
for _name, _count in BY_PATH.items():
    setattr(RootedFiles, _name, _by_path(_name, _count))


def _renaming(source: str, target: str) -> Rename:
    nowhere, nothing = Directory(0, modified_ms=0), File(0, b"", modified_ms=0)
    return Rename(nowhere, posixpath.basename(source), posixpath.basename(target), nothing)


def read_disk(root: str) -> Disk:
    """Return all files below a root, with the paths of the simulated disk."""
    files: dict[str, bytes] = {}
    directories = []
    for directory, _, found in os.walk(root):
        inside = directory.removeprefix(root) or "/"
        directories.append(inside)
        for name in found:
            with open(f"{directory}/{name}", "rb") as file:
                files[posixpath.join(inside, name)] = file.read()
    return Disk.of(files, directories=directories)
