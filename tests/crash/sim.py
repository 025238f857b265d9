"""A disk in memory that may lose power: `SimFiles`.

`SimFiles` keeps the visible state, the durable state, and the list of pending operations between the two:

    write, truncate      of a file's bytes, until `sync` of that file
    link, unlink, rename of a directory's names, until `sync_directory` of that directory

A file and its name are separate: syncing one does not sync the other. So are a directory and its name: its content
moves with its name, and does not exist without it. At power loss any part of the pending operations may have reached
the disk, in any order; `crash_states` enumerates the interesting ones.

The one invariant: an operation is either in the durable state or pending, and the visible state is the durable state
with every pending operation applied, except for bytes lost by a failed sync.
"""

from __future__ import annotations

import copy
import errno
import functools
import gc
import hashlib
import itertools
import os
import posixpath
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from seeklog.files import Buffer, FileStatus, Kind
from seeklog.files.local import LOCK_TEXT_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence


AnyDisk = TypeVar("AnyDisk")
SECTOR_SIZE: Final = 512  # written completely or not at all
GARBAGE: Final = 0xA5  # the old content of a freed block
MODIFIED_MS: Final = 1_700_000_000_000
HANDLE_FIRST: Final = 1_000_000  # above any real descriptor of a test run, so that confusing them fails


class File:
    """The bytes of one file, independent of its names."""

    __slots__ = ("content", "durable", "modified_ms", "number")

    def __init__(self, number: int, content: bytes, *, modified_ms: int) -> None:
        self.number = number
        self.content: bytes | bytearray = content
        self.durable = content
        self.modified_ms = modified_ms


class Directory:
    """The names of one directory."""

    __slots__ = ("durable", "modified_ms", "names", "number")

    def __init__(self, number: int, *, modified_ms: int) -> None:
        self.number = number
        self.names: dict[str, Inode] = {}
        self.durable: dict[str, Inode] = {}
        self.modified_ms = modified_ms


Inode: TypeAlias = File | Directory


@dataclass(frozen=True, slots=True)
class Write:
    file: File
    position: int
    data: bytes

    def __str__(self) -> str:
        return f"write #{self.file.number} {self.position}+{len(self.data)}"


@dataclass(frozen=True, slots=True)
class Truncate:
    file: File
    size: int

    def __str__(self) -> str:
        return f"truncate #{self.file.number} to {self.size}"


@dataclass(frozen=True, slots=True)
class Grow:
    """The size of a write without its bytes: never pending, only the rest of a write at power loss."""

    file: File
    size: int


@dataclass(frozen=True, slots=True)
class Link:
    directory: Directory
    name: str
    inode: Inode

    def __str__(self) -> str:
        return f"link {self.name}"


@dataclass(frozen=True, slots=True)
class Unlink:
    directory: Directory
    name: str

    def __str__(self) -> str:
        return f"unlink {self.name}"


@dataclass(frozen=True, slots=True)
class Rename:
    directory: Directory
    source: str
    target: str
    inode: Inode

    def __str__(self) -> str:
        return f"rename {self.source} to {self.target}"


DataOperation: TypeAlias = Write | Truncate | Grow
NameOperation: TypeAlias = Link | Unlink | Rename
Operation: TypeAlias = DataOperation | NameOperation


@dataclass(frozen=True, slots=True)
class Disk:
    """The content of a disk: directories, and the bytes of each file by path."""

    directories: frozenset[str]
    files: Mapping[str, bytes]

    @classmethod
    def of(cls, files: Mapping[str, bytes], *, directories: Collection[str] = ()) -> Disk:
        """Return a disk with these files and all of their directories."""
        found = {"/"}
        for path in [*directories, *map(posixpath.dirname, files)]:
            while path != "/":
                found.add(path)
                path = posixpath.dirname(path)
        return cls(frozenset(found), dict(files))

    def digest(self) -> bytes:
        """Return a key that two disks share only if they are equal."""
        mixed = hashlib.blake2b(digest_size=16)
        for path in sorted(self.directories):
            mixed.update(f"{path}/\n".encode())
        for path in sorted(self.files):
            data = self.files[path]
            mixed.update(f"{path} {len(data)}\n".encode())
            mixed.update(data)
        return mixed.digest()

    def with_file(self, path: str, data: bytes | None) -> Disk:
        """Return this disk with one file replaced, or removed with None."""
        files = dict(self.files)
        if data is None:
            del files[path]
        else:
            files[path] = data
        return Disk(self.directories, files)


@dataclass(frozen=True, slots=True)
class Detail:
    """The limits of `crash_states`. The defaults are those of the full enumeration."""

    prefixes: int = 4096
    """At most this many byte prefixes of the last write."""
    sectors: int = 9
    """Each subset of the last write's sectors while it has at most this many; 2 to the 9th is 512."""
    omissions: int = 256
    """At most this many times "all but one"."""
    samples: int = 16
    """This many random subsets of the pending operations."""
    seed: int = 0


@dataclass(slots=True)
class _Handle:
    file: File
    path: str
    can_write: bool
    is_lock: bool = False
    locks_out_broker: bool = False
    is_broker: bool = False


class SimFiles:
    """A disk in memory, for one thread.

    `on_boundary` is called after each operation that changes the possible crash states.
    """

    def __init__(self, disk: Disk | None = None, *, modified_ms: int = MODIFIED_MS) -> None:
        self.modified_ms = modified_ms
        self.pending: list[Operation] = []
        self.on_boundary: Callable[[SimFiles], None] | None = None
        self._numbers = itertools.count()
        self._handle_numbers = itertools.count(HANDLE_FIRST)
        self._handles: dict[int, _Handle] = {}
        self._gone: set[int] = set()
        # The engine asks for the same paths again and again. Any change of a name empties it.
        self._found: dict[str, Inode | int] = {}
        """The file or directory at a path, or the number of the error."""
        self.root = Directory(next(self._numbers), modified_ms=modified_ms)
        if disk is not None:
            self._load(disk)

    # The methods of Files.

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        directory, name = self._place(path)
        inode = directory.names.get(name)
        if inode is None:
            if not create:
                raise os_error(errno.ENOENT, path)
            inode = File(next(self._numbers), b"", modified_ms=self.modified_ms)
            self._do(Link(directory, name, inode))
        if isinstance(inode, Directory):
            raise os_error(errno.EISDIR, path)
        return self._give_handle(inode, path, can_write=write)

    def close(self, handle: int) -> None:
        if handle in self._gone:
            return  # handles of a dead process: its objects may still be collected here
        self._handle(handle)
        del self._handles[handle]

    def read(self, handle: int, size: int, position: int) -> bytes:
        if size < 0 or position < 0:
            raise os_error(errno.EINVAL, f"{size} bytes at {position}")
        return bytes(self._handle(handle).file.content[position : position + size])

    def write(self, handle: int, data: Buffer, position: int) -> None:
        file = self._writable(handle).file
        if position < 0:
            raise os_error(errno.EINVAL, f"position {position}")
        if len(data):
            self._do(Write(file, position, bytes(data)))

    def size(self, handle: int) -> int:
        return len(self._handle(handle).file.content)

    def truncate(self, handle: int, size: int) -> None:
        self._do(Truncate(self._writable(handle).file, size))

    def sync(self, handle: int) -> None:
        file = self._handle(handle).file
        mine = [op for op in self.pending if _file_of(op) is file]
        if not mine:
            return
        contents: dict[File, bytearray] = {}
        for op in mine:
            _apply_data(op, contents)  # type: ignore[arg-type]  # only data operations have a file
        file.durable = bytes(contents[file])
        self._settle(mine)

    def map(self, path: str) -> Buffer:
        return self.read_file(path)

    def read_file(self, path: str) -> bytes:
        inode = self._inode(path)
        if isinstance(inode, Directory):
            raise os_error(errno.EISDIR, path)
        return bytes(inode.content)

    def list(self, directory: str) -> list[str]:
        return list(self._directory(directory).names)

    def kinds(self, directory: str) -> dict[str, Kind]:
        return {name: _kind_of(inode) for name, inode in self._directory(directory).names.items()}

    def kind(self, path: str) -> Kind:
        return _kind_of(self._inode(path))

    def file_size(self, path: str) -> int:
        inode = self._inode(path)
        if isinstance(inode, Directory):
            raise os_error(errno.EINVAL, path)
        return len(inode.content)

    def status(self, path: str) -> FileStatus:
        return FileStatus(self.file_size(path), (0, self._inode(path).number))

    def status_of(self, handle: int) -> FileStatus:
        return FileStatus(self.size(handle), (0, self._handle(handle).file.number))

    def identity(self, path: str) -> tuple[int, int]:
        return 0, self._inode(path).number

    def rename(self, source: str, target: str) -> None:
        directory, source_name = self._place(source)
        target_directory, target_name = self._place(target)
        if directory is not target_directory:
            raise os_error(errno.EXDEV, f"{source} to {target}: the simulator renames within a directory only")
        inode = directory.names.get(source_name)
        if inode is None:
            raise os_error(errno.ENOENT, source)
        replaced = directory.names.get(target_name)
        if replaced is not None:
            self._check_replaceable(replaced, by=inode, path=target)
        if replaced is not inode:
            self._do(Rename(directory, source_name, target_name, inode))

    def _check_replaceable(self, replaced: Inode, *, by: Inode, path: str) -> None:
        if isinstance(by, Directory):
            if isinstance(replaced, File):
                raise os_error(errno.ENOTDIR, path)
            if replaced.names and replaced is not by:
                raise os_error(errno.ENOTEMPTY, path)
        elif isinstance(replaced, Directory):
            raise os_error(errno.EISDIR, path)

    def remove(self, path: str) -> None:
        directory, name = self._place(path)
        inode = directory.names.get(name)
        if inode is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(inode, Directory):
            raise os_error(errno.EISDIR, path)
        self._do(Unlink(directory, name))

    def make_directory(self, path: str) -> None:
        directory = self.root
        for name in _parts(path):
            inode = directory.names.get(name)
            if inode is None:
                inode = Directory(next(self._numbers), modified_ms=self.modified_ms)
                self._do(Link(directory, name, inode))
            if isinstance(inode, File):
                raise os_error(errno.ENOTDIR, path)
            directory = inode

    def remove_directory(self, path: str) -> None:
        directory, name = self._place(path)
        inode = directory.names.get(name)
        if inode is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(inode, File):
            raise os_error(errno.ENOTDIR, path)
        if inode.names:
            raise os_error(errno.ENOTEMPTY, path)
        self._do(Unlink(directory, name))

    def sync_directory(self, path: str) -> None:
        directory = self._directory(path)
        mine = [op for op in self.pending if _directory_of(op) is directory]
        names = {directory: directory.durable}
        for op in mine:
            _apply_name(op, names)  # type: ignore[arg-type]  # only name operations have a directory
        self._settle(mine)

    def lock(self, handle: int, path: str, owner: str) -> str:
        mine = self._writable(handle)
        if any(other.is_lock and other.file is mine.file for other in self._handles.values() if other is not mine):
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), path)
        if self._inode(path) is not mine.file:
            raise os_error(errno.ENOENT, path)
        mine.is_lock = True
        # Not an operation: locks mean nothing after a crash, and would double the number of states.
        note, mine.file.content = bytes(mine.file.content).decode(), owner.ljust(LOCK_TEXT_SIZE).encode()
        return note

    def unlock(self, handle: int, note: str) -> None:
        mine = self._writable(handle)
        mine.is_lock, mine.file.content = False, note.ljust(LOCK_TEXT_SIZE).encode()

    def is_locked(self, path: str) -> bool:
        file = self._inode(path)
        return any(other.is_lock and other.file is file for other in self._handles.values())

    def lock_out_broker(self, path: str) -> int:
        # Another kind of lock than `lock`: the two are independent, like those of fcntl and flock.
        return self._lock_broker_file(path, as_broker=False)

    def has_broker(self, path: str) -> bool:
        file = self._inode(path)
        return any(other.is_broker and other.file is file for other in self._handles.values())

    def watch(self) -> None:
        return None

    def lock_as_broker(self, path: str) -> int:
        return self._lock_broker_file(path, as_broker=True)

    def _lock_broker_file(self, path: str, *, as_broker: bool) -> int:
        number = self.open(path, write=True, create=True)
        mine = self._handles[number]
        for other in self._handles.values():
            if other.file is mine.file and (other.is_broker or (as_broker and other.locks_out_broker)):
                del self._handles[number]
                raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), path)
        mine.is_broker, mine.locks_out_broker = as_broker, not as_broker
        return number

    # For tests.

    @property
    def open_handles(self) -> int:
        """The number of open handles."""
        return len(self._handles)

    def disk(self) -> Disk:
        """Return the visible state."""
        return self._seen_disk()

    def durable_disk(self) -> Disk:
        """Return the durable state, without pending operations."""
        return self._disk_after([])

    def process_crash(self, handles: Collection[int] | None = None) -> None:
        """Kill the process only: handles and locks are released, every operation stays visible.

        With `handles`, kill the one of several processes that has these open.
        """
        for handle in list(self._handles if handles is None else handles):
            self._gone.add(handle)
            self._handles.pop(handle)

    def fail_sync(self, handle: int) -> None:
        """Fail a sync like Linux: mark the file's dirty pages clean.

        They can still be read, a later sync has nothing to write, and a power loss removes them unless they are written
        again.
        """
        file = self._handle(handle).file
        self.pending = [op for op in self.pending if _file_of(op) is not file]
        self._at_boundary()

    def crash_states(self, detail: Detail = Detail()) -> Iterator[tuple[str, Disk]]:  # frozen
        """Yield the possible states after a power loss at this moment: a label, and the disk.

        Each disk is yielded once.
        """
        seen: set[bytes] = set()
        for label, operations in _survivors(self.pending, detail):
            disk = self._disk_after(operations)
            digest = disk.digest()
            if digest not in seen:
                seen.add(digest)
                yield label, disk

    # Internals.

    def _load(self, disk: Disk) -> None:
        directories = {"/": self.root}
        for path in sorted(disk.directories - {"/"}):
            made = Directory(next(self._numbers), modified_ms=self.modified_ms)
            parent, name = posixpath.split(path)
            directories[parent].names[name] = directories[parent].durable[name] = made
            directories[path] = made
        for path, data in disk.files.items():
            parent, name = posixpath.split(path)
            file = File(next(self._numbers), data, modified_ms=self.modified_ms)
            directories[parent].names[name] = directories[parent].durable[name] = file

    def _do(self, op: Operation) -> None:
        match op:
            case Write(file, position, data):
                _write(_bytearray_of(file), position, data)
                file.modified_ms = self.modified_ms
            case Truncate(file, size):
                _resize(_bytearray_of(file), size)
                file.modified_ms = self.modified_ms
            case Link(directory) | Unlink(directory) | Rename(directory):
                _apply_name(op, {directory: directory.names})
                self._found.clear()
        self.pending.append(op)
        self._at_boundary()

    def _settle(self, operations: Sequence[Operation]) -> None:
        settled = {id(op) for op in operations}
        self.pending = [op for op in self.pending if id(op) not in settled]
        self._at_boundary()

    def _at_boundary(self) -> None:
        if self.on_boundary is not None:
            self.on_boundary(self)

    def _disk_after(self, operations: Sequence[Operation]) -> Disk:
        contents: dict[File, bytearray] = {}
        names: dict[Directory, dict[str, Inode]] = {}
        for op in operations:
            match op:
                case Write() | Truncate() | Grow():
                    _apply_data(op, contents)
                case Link(directory) | Unlink(directory) | Rename(directory):
                    if directory not in names:
                        names[directory] = dict(directory.durable)
                    _apply_name(op, names)
        return _walk(
            self.root,
            names_of=lambda directory: names.get(directory, directory.durable),
            content_of=lambda file: bytes(contents[file]) if file in contents else file.durable,
        )

    def _seen_disk(self) -> Disk:
        return _walk(
            self.root,
            names_of=lambda directory: directory.names,
            content_of=lambda file: bytes(file.content),
        )

    def _give_handle(self, file: File, path: str, *, can_write: bool) -> int:
        number = next(self._handle_numbers)
        self._handles[number] = _Handle(file, path, can_write)
        return number

    def _handle(self, number: int) -> _Handle:
        try:
            return self._handles[number]
        except KeyError:
            raise os_error(errno.EBADF, f"handle {number}") from None

    def _writable(self, number: int) -> _Handle:
        handle = self._handle(number)
        if not handle.can_write:
            raise os_error(errno.EBADF, f"handle {number} of {handle.path} is open for reading")
        return handle

    def _place(self, path: str) -> tuple[Directory, str]:
        parent, name = _parent_and_name(path)
        return self._directory(parent), name

    def _directory(self, path: str) -> Directory:
        inode = self._inode(path)
        if isinstance(inode, File):
            raise os_error(errno.ENOTDIR, path)
        return inode

    def _inode(self, path: str) -> Inode:
        found = self._found.get(path)
        if found is None:
            found = self._found[path] = self._walk_to(path)
        if isinstance(found, int):
            raise os_error(found, path)
        return found

    def _walk_to(self, path: str) -> Inode | int:
        inode: Inode = self.root
        for name in _parts(path):
            if isinstance(inode, File):
                return errno.ENOTDIR
            if name not in inode.names:
                return errno.ENOENT
            inode = inode.names[name]
        return inode


def copied(disk: AnyDisk) -> AnyDisk:
    """Return an independent copy of a disk with its open handles and pending operations.

    The garbage collector is paused: it could close handles while they are copied.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        return copy.deepcopy(disk)
    finally:
        if was_on:
            gc.enable()


def _survivors(pending: Sequence[Operation], detail: Detail) -> Iterator[tuple[str, Sequence[Operation]]]:
    """Yield the sets of operations, complete or partial, that may survive a power loss."""
    yield "none", []
    if not pending:
        return
    everything = list(pending)
    yield "all", everything
    chance = random.Random(detail.seed)
    names = [op for op in everything if _file_of(op) is None]
    data = [op for op in everything if _file_of(op) is not None]

    if names and data:
        yield "names without data", names
        yield "data without names", data
    if data:
        yield "sizes grown, zeros", [part for op in everything for part in _grown(op)]
        yield "sizes grown, garbage", [part for op in everything for part in _spoiled(op)]

    for index in _bounded(range(len(everything)), detail.omissions, chance):
        yield f"all but [{everything[index]}]", everything[:index] + everything[index + 1 :]
        yield f"up to [{everything[index]}]", everything[: index + 1]
        yield f"from [{everything[index]}] on", everything[index:]

    for file in dict.fromkeys(filter(None, map(_file_of, everything))):
        yield f"all but the bytes of #{file.number}", [op for op in everything if _file_of(op) is not file]
        yield (
            f"names and the bytes of #{file.number}",
            [op for op in everything if _file_of(op) in (None, file)],
        )

    for index, op in enumerate(everything):
        if isinstance(op, Rename):
            both: Operation = Link(op.directory, op.target, op.inode)
            yield f"both names of [{op}]", [*everything[:index], both, *everything[index + 1 :]]
            yield f"both names of [{op}], no data", [both if name is op else name for name in names]

    yield from _parts_of_last_write(everything, detail, chance)

    for number in range(detail.samples):
        likelihood = chance.choice((0.2, 0.5, 0.8))
        yield (
            f"sample {number} of seed {detail.seed}",
            [op for op in everything if chance.random() < likelihood],
        )


def _parts_of_last_write(
    everything: Sequence[Operation], detail: Detail, chance: random.Random
) -> Iterator[tuple[str, Sequence[Operation]]]:
    last = max((index for index, op in enumerate(everything) if isinstance(op, Write)), default=-1)
    if last < 0:
        return
    write = everything[last]
    assert isinstance(write, Write)
    before, after = everything[:last], everything[last + 1 :]
    names = [op for op in everything if _file_of(op) is None]
    full_size = write.position + len(write.data)

    for size in _bounded(range(1, len(write.data)), detail.prefixes, chance):
        yield f"{size} bytes of [{write}]", [*before, replace(write, data=write.data[:size]), *after]

    sectors = _sectors_of(write)
    if len(sectors) > 1:
        masks = range(1, 2 ** len(sectors) - 1) if len(sectors) <= detail.sectors else ()
        for mask in masks or (chance.randrange(1, 2 ** len(sectors) - 1) for _ in range(2**detail.sectors)):
            kept = [sector for bit, sector in enumerate(sectors) if mask >> bit & 1]
            yield f"sectors {mask:#b} of [{write}]", [*before, *kept, *after]
            yield (
                f"size, sectors {mask:#b} of [{write}]",
                [*before, Grow(write.file, full_size), *kept, *after],
            )
            yield f"names, sectors {mask:#b} of [{write}]", [*names, *kept]


def _sectors_of(write: Write) -> list[Write]:
    """Cut a write at sector boundaries."""
    end = write.position + len(write.data)
    first = write.position // SECTOR_SIZE * SECTOR_SIZE
    sectors = []
    for start in range(first, end, SECTOR_SIZE):
        low, high = max(start, write.position), min(start + SECTOR_SIZE, end)
        sectors.append(Write(write.file, low, write.data[low - write.position : high - write.position]))
    return sectors


def _bounded(choices: range, limit: int, chance: random.Random) -> Sequence[int]:
    """Return all choices, or the first, the last, and a random sample between."""
    if len(choices) <= limit:
        return choices
    ends = {choices[0], choices[-1]}
    return sorted(ends | set(chance.sample(choices, max(limit - 2, 0))))


def _grown(op: Operation) -> list[Operation]:
    if isinstance(op, Write):
        return [Grow(op.file, op.position + len(op.data))]
    return [op]


def _spoiled(op: Operation) -> list[Operation]:
    if not isinstance(op, Write):
        return [op]
    # Only a block new to the file can have another file's bytes, not an overwritten one.
    start = max(op.position, len(op.file.durable))
    end = op.position + len(op.data)
    return [Write(op.file, start, bytes([GARBAGE]) * (end - start))] if start < end else []


def _kind_of(inode: Inode) -> Kind:
    return "directory" if isinstance(inode, Directory) else "file"


def _file_of(op: Operation) -> File | None:
    return op.file if isinstance(op, Write | Truncate | Grow) else None


def _directory_of(op: Operation) -> Directory | None:
    return op.directory if isinstance(op, Link | Unlink | Rename) else None


def _apply_data(op: DataOperation, contents: dict[File, bytearray]) -> None:
    content = contents.get(op.file)
    if content is None:
        content = contents[op.file] = bytearray(op.file.durable)
    match op:
        case Write(_, position, data):
            _write(content, position, data)
        case Truncate(_, size):
            _resize(content, size)
        case Grow(_, size):
            _resize(content, max(size, len(content)))


def _apply_name(op: NameOperation, names: Mapping[Directory, dict[str, Inode]]) -> None:
    mine = names[op.directory]
    match op:
        case Link(_, name, inode):
            mine[name] = inode
        case Unlink(_, name):
            mine.pop(name, None)
        case Rename(_, source, target, inode):
            mine.pop(source, None)
            mine[target] = inode


def _write(content: bytearray, position: int, data: bytes) -> None:
    if position > len(content):
        _resize(content, position)
    content[position : position + len(data)] = data


def _resize(content: bytearray, size: int) -> None:
    if size <= len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def _bytearray_of(file: File) -> bytearray:
    # Most files of a crashed disk are only read, so they share the disk's bytes until the first write.
    if isinstance(file.content, bytes):
        file.content = bytearray(file.content)
    return file.content


def _walk(
    root: Directory,
    *,
    names_of: Callable[[Directory], Mapping[str, Inode]],
    content_of: Callable[[File], bytes],
) -> Disk:
    directories = {"/"}
    files: dict[str, bytes] = {}
    waiting: list[tuple[str, Directory]] = [("", root)]
    while waiting:
        path, directory = waiting.pop()
        for name, inode in names_of(directory).items():
            inner = f"{path}/{name}"
            if isinstance(inode, File):
                files[inner] = content_of(inode)
            else:
                directories.add(inner)
                waiting.append((inner, inode))
    return Disk(frozenset(directories), files)


@functools.lru_cache(maxsize=1 << 14)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in posixpath.normpath(path).split("/") if part)


@functools.lru_cache(maxsize=1 << 14)
def _parent_and_name(path: str) -> tuple[str, str]:
    return posixpath.split(posixpath.normpath(path))


def os_error(number: int, what: str) -> OSError:
    return OSError(number, os.strerror(number), what)
