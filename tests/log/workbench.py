"""Helpers for the tests of the log: clocks, disks that count or fail, and functions that read a directory."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from seeklog import Log, LogConfig, LogReader, Record
from seeklog.clock import Clock
from seeklog.files import Buffer, Files, FileStatus, OsFiles
from seeklog.names import LOCK

START_MS = 1_700_000_000_000
HEADER_BYTES = 61
# A batch header (61) and one record of ten bytes: seven one-byte fields and the value.
BATCH_BYTES = HEADER_BYTES + 7 + 10
FIRST_LOG = f"{0:020d}.log"
SEVEN_SEGMENTS: dict[str, Any] = {"segment_bytes": 5 * BATCH_BYTES, "index_interval_bytes": 100}
"""With these settings 33 records from `fill` make seven segments: 0-4, 5-9, ..., 30-32."""
# A wait for another thread or process fails after this time.
PATIENCE_S = 60.0


class FakeClock:
    """A clock that moves only on request. Its wall clock may jump while its monotonic time does not."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.wall_ms = now_ms
        self.seconds = 0.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def advance(self, ms: int) -> None:
        self.wall_ms += ms
        self.seconds += ms / 1000

    def jump_to(self, now_ms: int) -> None:
        self.wall_ms = now_ms


class TickingClock(FakeClock):
    """A clock that advances whenever it is read, so that no wait takes long."""

    def __init__(self, step_s: float = 0.25) -> None:
        super().__init__()
        self._step_s = step_s

    def monotonic(self) -> float:
        self.seconds += self._step_s
        return self.seconds


class QuickFiles(OsFiles):
    """The real disk without syncs. No test here loses power, and a crash of the process loses nothing."""

    def sync(self, handle: int) -> None:
        pass

    def sync_directory(self, path: str) -> None:
        pass


class PathFiles(QuickFiles):
    """The real disk, which knows the path of every open file."""

    def __init__(self) -> None:
        self._paths: dict[int, str] = {}

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        handle = super().open(path, write=write, create=create)
        self._paths[handle] = path
        return handle


class CountingFiles(PathFiles):
    """The real disk with a diary: (operation, file name) of every write, sync, truncation, rename and removal."""

    def __init__(self) -> None:
        super().__init__()
        self.diary: list[tuple[str, str]] = []

    def write(self, handle: int, data: Buffer, position: int) -> None:
        self.diary.append(("write", os.path.basename(self._paths[handle])))
        super().write(handle, data, position)

    def truncate(self, handle: int, size: int) -> None:
        self.diary.append(("truncate", os.path.basename(self._paths[handle])))
        super().truncate(handle, size)

    def sync(self, handle: int) -> None:
        self.diary.append(("sync", os.path.basename(self._paths[handle])))

    def sync_directory(self, path: str) -> None:
        self.diary.append(("sync", "directory"))

    def rename(self, source: str, target: str) -> None:
        self.diary.append(("rename", os.path.basename(target)))
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self.diary.append(("remove", os.path.basename(path)))
        super().remove(path)

    def count(self, operation: str, suffix: str = ".log") -> int:
        """Return how often files with this suffix were written, synced, ..."""
        return sum(done == operation and name.endswith(suffix) for done, name in list(self.diary))


class ReadCountingFiles(QuickFiles):
    """The real disk, which counts the bytes that are read."""

    read_bytes = 0

    def read(self, handle: int, size: int, position: int) -> bytes:
        data = super().read(handle, size, position)
        self.read_bytes += len(data)
        return data


class GatedFiles(CountingFiles):
    """A disk that makes writes to logs wait at a closed gate, and fails their writes and syncs if an error is set.

    `gated` and the keys of the errors are parts of the log's path. An empty string matches every path.
    """

    def __init__(self, gated: str = "") -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Semaphore(0)
        self.write_errors: dict[str, int] = {}
        self.sync_errors: dict[str, int] = {}
        self._gated = gated

    def write(self, handle: int, data: Buffer, position: int) -> None:
        path = self._paths[handle]
        if self._gated in path and path.endswith(".log"):
            self.waiting.release()
            assert self.gate.wait(PATIENCE_S)
        self._fail(self.write_errors, path)
        super().write(handle, data, position)

    def sync(self, handle: int) -> None:
        self._fail(self.sync_errors, self._paths[handle])
        super().sync(handle)

    def _fail(self, errors: dict[str, int], path: str) -> None:
        for part, error in errors.items():
            if part in path and path.endswith(".log"):
                raise OSError(error, os.strerror(error))


class Meanwhile(PathFiles):
    """The real disk, which runs a given function once, before or after a certain call.

    The call is the first one of the given method for a path with the given suffix.
    """

    def __init__(self) -> None:
        super().__init__()
        self._plans: list[tuple[str, str, str, Callable[[], object]]] = []

    def before(self, method: str, suffix: str, do: Callable[[], object]) -> None:
        self._plans.append(("before", method, suffix, do))

    def after(self, method: str, suffix: str, do: Callable[[], object]) -> None:
        self._plans.append(("after", method, suffix, do))

    @property
    def is_over(self) -> bool:
        """Whether every function has run."""
        return not self._plans

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        self._act("before", "open", path)
        handle = super().open(path, write=write, create=create)
        self._act("after", "open", path)
        return handle

    def read(self, handle: int, size: int, position: int) -> bytes:
        path = self._paths[handle]
        self._act("before", "read", path)
        data = super().read(handle, size, position)
        self._act("after", "read", path)
        return data

    def write(self, handle: int, data: Buffer, position: int) -> None:
        self._act("before", "write", self._paths[handle])
        super().write(handle, data, position)

    def truncate(self, handle: int, size: int) -> None:
        super().truncate(handle, size)
        self._act("after", "truncate", self._paths[handle])

    def sync(self, handle: int) -> None:
        self._act("before", "sync", self._paths[handle])

    def list(self, directory: str) -> list[str]:
        self._act("before", "list", directory)
        listing = super().list(directory)
        self._act("after", "list", directory)
        return listing

    def map(self, path: str) -> Buffer:
        self._act("before", "map", path)
        return super().map(path)

    def file_size(self, path: str) -> int:
        self._act("before", "file_size", path)
        return super().file_size(path)

    def status(self, path: str) -> FileStatus:
        self._act("before", "status", path)
        return super().status(path)

    def read_file(self, path: str) -> bytes:
        self._act("before", "read_file", path)
        return super().read_file(path)

    def rename(self, source: str, target: str) -> None:
        self._act("before", "rename", target)
        super().rename(source, target)
        self._act("after", "rename", target)

    def remove(self, path: str) -> None:
        self._act("before", "remove", path)
        super().remove(path)

    def make_directory(self, path: str) -> None:
        self._act("before", "make_directory", path)
        super().make_directory(path)

    def remove_directory(self, path: str) -> None:
        self._act("before", "remove_directory", path)
        super().remove_directory(path)

    def _act(self, when: str, method: str, path: str) -> None:
        for plan in self._plans:
            if plan[:2] == (when, method) and path.endswith(plan[2]):
                self._plans.remove(plan)
                plan[3]()
                return


class FailingFiles(Meanwhile):
    """The real disk, on which calls of one method fail while `fails` is set, for paths that contain `part`."""

    def __init__(self, method: str, part: str = "", *, error: BaseException | int = errno.EIO) -> None:
        super().__init__()
        self.fails = False
        self.part = part
        self.error = error
        self._method = method

    def _act(self, when: str, method: str, path: str) -> None:
        if self.fails and (when, method) == ("before", self._method) and self.part in path:
            raise OSError(self.error, os.strerror(self.error), path) if isinstance(self.error, int) else self.error
        super()._act(when, method, path)


class Follower(threading.Thread):
    """Follows a log in a thread until it has found `count` records. The thread is a daemon, because it may hang."""

    def __init__(self, log: Log, offset: int | None, *, count: int = 10**9, timeout_ms: float | None = None) -> None:
        super().__init__(daemon=True)
        self.records = log.follow(offset, timeout_ms=timeout_ms)
        self.count = count
        self.found: list[int] = []
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            for record in self.records:
                self.found.append(record.offset)
                if len(self.found) == self.count:
                    return
        except BaseException as error:
            self.error = error

    def has_ended(self) -> bool:
        self.join(PATIENCE_S)
        return not self.is_alive()


def config_of(**settings: Any) -> LogConfig:
    return LogConfig(**{"flush": "os", "retention_ms": -1, **settings})


def open_log(
    path: Path,
    *,
    clock: Clock | None = None,
    files: Files | None = None,
    read_only: bool = False,
    background: bool = False,
    **settings: Any,
) -> Any:
    """Open a log that syncs only on request and has no background thread. `settings` override its configuration."""
    if read_only:
        return open_reader(path, clock=clock, files=files, **settings)
    return Log(
        path,
        config=config_of(**settings),
        clock=clock or FakeClock(),
        files=files or QuickFiles(),
        background=background,
    )


def open_reader(path: Path, *, clock: Clock | None = None, files: Files | None = None, **settings: Any) -> LogReader:
    """Open a log for reading. `settings` override its configuration."""
    return LogReader(path, config=config_of(**settings), clock=clock or FakeClock(), files=files or QuickFiles())


def value_of(number: int, *, size: int = 10) -> bytes:
    """Return `size` bytes that spell the number."""
    return b"%0*d" % (size, number)


def fill(log: Log, count: int, *, start: int | None = None) -> None:
    """Append batches of one record and BATCH_BYTES each, a second apart. Their values spell their offsets."""
    first = log.log_end_offset if start is None else start
    for number in range(first, first + count):
        log.append(value_of(number), timestamp_ms=START_MS + number * 1000)


def make_log(path: Path, count: int, **settings: Any) -> None:
    """Create a log of `count` records and close it cleanly."""
    with open_log(path, **settings) as log:
        fill(log, count)


def offsets(records: Iterable[Record]) -> list[int]:
    return [record.offset for record in records]


def values(records: Iterable[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def contents(directory: Path) -> dict[str, bytes]:
    """Return every file's bytes, except those of the lock file, which every open for writing changes."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != LOCK}


def crashed_copy(directory: Path, target: Path) -> Path:
    """Return a copy of the directory as after a crash now: everything is written, nothing is closed."""
    return Path(shutil.copytree(directory, target))


def segment_bases(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def offset_entries(directory: Path, base_offset: int = 0) -> list[tuple[int, ...]]:
    return list(struct.iter_unpack(">ii", (directory / f"{base_offset:020d}.index").read_bytes()))


def time_entries(directory: Path, base_offset: int = 0) -> list[tuple[int, ...]]:
    return list(struct.iter_unpack(">qi", (directory / f"{base_offset:020d}.timeindex").read_bytes()))


def wait_until(condition: Callable[[], bool], event: str) -> None:
    """Wait until another thread makes a condition true."""
    give_up = time.monotonic() + PATIENCE_S
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < give_up, f"waited {PATIENCE_S} seconds for {event}"
        pause.wait(0.001)
