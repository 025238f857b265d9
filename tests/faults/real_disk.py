"""The workloads of the simulated disk on real files, with real system calls and kills.

`RealDisk` replaces `SimFiles`, so that a recorder of `tests/crash` can run a workload on it and keep the same promise.
`Watch` is called before and after each change, and may end the process.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from crash.recorder import PowerLoss
from crash.sim import HANDLE_FIRST, Disk, Rename
from seeklog.files import Buffer, Files, FileStatus, Kind, OsFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from crash.sim import Detail

T = TypeVar("T")


class Watch:
    """Called at each change to a real disk, by one thread at a time. This class does nothing."""

    def before(self) -> None:
        """Called before a change."""

    def after(self) -> None:
        """Called after a change."""


class _Process:
    """The open files of a process. A process that counts as dead has none."""

    def __init__(self) -> None:
        self.numbers = itertools.count(HANDLE_FIRST)
        self.handles: dict[int, int] = {}
        self.gone: set[int] = set()

    def die(self, numbers: Collection[int] | None) -> None:
        for number in list(self.handles if numbers is None else numbers):
            self.gone.add(number)
            os.close(self.handles.pop(number))


class RealDisk:
    """A directory of the real disk that acts as `/`.

    Handles are unique numbers, so that an object of a dead process cannot close another file.
    """

    def __init__(self, disk: Disk | None = None, *, root: Path, watch: Watch) -> None:
        self.root = str(root)
        self._watch = watch
        self.on_boundary: Callable[[Any], None] | None = None
        self.pending: list[Rename] = []
        """The last change, if it was a renaming."""
        self._files: Files = OsFiles()
        self._process = _Process()
        self._is_dead = False
        if disk is not None:
            put_disk(disk, root)

    def __deepcopy__(self, memo: object) -> RealDisk:
        """Treat the process as dead in the middle of a call: only the files on disk remain."""
        twin = RealDisk(root=Path(self.root), watch=self._watch)
        twin._process = self._process
        self._is_dead = True
        return twin

    # The methods of Files.

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        if not create:
            return self._give(self._files.open(self._at(path), write=write))
        return self._change(lambda: self._give(self._files.open(self._at(path), write=write, create=True)))

    def close(self, handle: int) -> None:
        if handle in self._process.gone:
            return
        self._files.close(self._process.handles.pop(handle))

    def read(self, handle: int, size: int, position: int) -> bytes:
        return self._files.read(self._real(handle), size, position)

    def write(self, handle: int, data: Buffer, position: int) -> None:
        self._change(lambda: self._files.write(self._real(handle), data, position))

    def size(self, handle: int) -> int:
        return self._files.size(self._real(handle))

    def truncate(self, handle: int, size: int) -> None:
        self._change(lambda: self._files.truncate(self._real(handle), size))

    def sync(self, handle: int) -> None:
        self._change(lambda: self._files.sync(self._real(handle)))

    def map(self, path: str) -> Buffer:
        return self._files.map(self._at(path))

    def read_file(self, path: str) -> bytes:
        return self._files.read_file(self._at(path))

    def list(self, directory: str) -> list[str]:
        return self._files.list(self._at(directory))

    def kinds(self, directory: str) -> dict[str, Kind]:
        return self._files.kinds(self._at(directory))

    def kind(self, path: str) -> Kind:
        return self._files.kind(self._at(path))

    def file_size(self, path: str) -> int:
        return self._files.file_size(self._at(path))

    def status(self, path: str) -> FileStatus:
        return self._files.status(self._at(path))

    def status_of(self, handle: int) -> FileStatus:
        return self._files.status_of(self._real(handle))

    def identity(self, path: str) -> tuple[int, int]:
        return self._files.identity(self._at(path))

    def rename(self, source: str, target: str) -> None:
        names = os.path.basename(source), os.path.basename(target)
        renaming = Rename(None, *names, None)  # type: ignore[arg-type]  # only its names are looked at
        self._change(lambda: self._files.rename(self._at(source), self._at(target)), renaming)

    def remove(self, path: str) -> None:
        self._change(lambda: self._files.remove(self._at(path)))

    def make_directory(self, path: str) -> None:
        self._change(lambda: self._files.make_directory(self._at(path)))

    def remove_directory(self, path: str) -> None:
        self._change(lambda: self._files.remove_directory(self._at(path)))

    def sync_directory(self, path: str) -> None:
        self._change(lambda: self._files.sync_directory(self._at(path)))

    def lock(self, handle: int, path: str, owner: str) -> str:
        return self._change(lambda: self._files.lock(self._real(handle), self._at(path), owner))

    def unlock(self, handle: int, note: str) -> None:
        self._change(lambda: self._files.unlock(self._real(handle), note))

    def is_locked(self, path: str) -> bool:
        return self._files.is_locked(self._at(path))

    def lock_out_broker(self, path: str) -> int:
        return self._change(lambda: self._give(self._files.lock_out_broker(self._at(path))))

    def has_broker(self, path: str) -> bool:
        return self._files.has_broker(self._at(path))

    def watch(self) -> None:
        return None

    def lock_as_broker(self, path: str) -> int:
        return self._change(lambda: self._give(self._files.lock_as_broker(self._at(path))))

    # For recorders.

    def disk(self) -> Disk:
        """Return the visible files."""
        return take_disk(Path(self.root))

    def process_crash(self, handles: Collection[int] | None = None) -> None:
        """Close every handle and lock, as when the process dies, or those of one of several processes."""
        self._process.die(handles)

    def crash_states(self, detail: Detail | None = None) -> Iterator[tuple[str, Disk]]:
        """Yield the state after a kill: a real disk does not lose power here."""
        yield "all", self.disk()

    # Internals.

    def _change(self, act: Callable[[], T], renaming: Rename | None = None) -> T:
        if self._is_dead:
            raise PowerLoss
        self._watch.before()
        result = act()
        self._watch.after()
        self.pending = [renaming] if renaming is not None else []
        if self.on_boundary is not None:
            self.on_boundary(self)
        return result

    def _at(self, path: str) -> str:
        return f"{self.root}{path}"

    def _give(self, handle: int) -> int:
        number = next(self._process.numbers)
        self._process.handles[number] = handle
        return number

    def _real(self, handle: int) -> int:
        try:
            return self._process.handles[handle]
        except KeyError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), f"handle {handle}") from None


def put_disk(disk: Disk, root: Path) -> None:
    """Make a directory have exactly the files of a disk.

    If it already does, only the lock files are recreated, because other processes may hold them. A kill here does not
    count against a log.
    """
    if root.is_dir() and take_disk(root) == disk:
        for path in disk.files:
            if path.endswith("lock"):
                Path(f"{root}{path}").unlink()
                Path(f"{root}{path}").write_bytes(disk.files[path])
        return
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    for directory in sorted(disk.directories - {"/"}):
        Path(f"{root}{directory}").mkdir()
    for path, data in disk.files.items():
        Path(f"{root}{path}").write_bytes(data)


def take_disk(root: Path) -> Disk:
    """Return the files of a directory."""
    top = str(root)
    files, directories = {}, {"/"}
    for where, inner, names in os.walk(top):
        directories |= {f"{where.removeprefix(top)}/{name}" for name in inner}
        for name in names:
            files[f"{where.removeprefix(top)}/{name}"] = Path(where, name).read_bytes()
    return Disk(frozenset(directories), files)


@contextlib.contextmanager
def unplugged(scratch: Path) -> Iterator[Path]:
    """Yield a directory in memory if the machine has one, which survives a killed process like a disk.

    Syncs are free there. Otherwise it is a directory in `scratch`.
    """
    memory = Path("/dev/shm")
    path = Path(tempfile.mkdtemp(prefix="seeklog-", dir=memory if os.access(memory, os.W_OK) else scratch))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
