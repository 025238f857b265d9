"""Tools for the store's tests: a store without a thread, its bytes, and other processes.

The fake clock, the disk without syncs, and `wait_until` are those of the engine's tests.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import seeklog
from log.workbench import QuickFiles, TickingClock, config_of
from seeklog import Record, Store, TopicPartition, names
from seeklog.clock import Clock
from seeklog.files import Files

# The files that a store's root may hold beside the directories of its partitions.
ROOT_FILES = {
    names.TOPICS,
    names.TOPICS_LOCK,
    names.LOCK,
    names.RECOVERY_POINTS,
    names.LOG_START_OFFSETS,
    names.HIGH_WATERMARKS,
}
PARTITION_DIRECTORY = re.compile(r"[A-Za-z0-9._-]{1,249}-(0|[1-9][0-9]*)\Z")
Snapshot = dict[str, bytes | str]


def open_store(
    path: Path,
    *,
    clock: Clock | None = None,
    files: Files | None = None,
    read_only: bool = False,
    background: bool = False,
    max_open_files: int = 512,
    **words: Any,
) -> Store:
    """Open a store without a thread. `words` are its settings.

    Its wall clock stands still, and its waits end after a few attempts.
    """
    return seeklog.open(
        path,
        config=config_of(**words),
        clock=clock or TickingClock(),
        files=files or QuickFiles(),
        read_only=read_only,
        background=background,
        max_open_files=max_open_files,
    )


def send(
    store: Store, topic: str, values: Iterable[bytes], *, partition: int = 0, timestamp_ms: int | None = None
) -> None:
    """Append records to one partition with a producer, and wait for them."""
    with store.producer(linger_ms=0) as producer:
        for value in values:
            producer.send(topic, value, partition=partition, timestamp_ms=timestamp_ms)


def append(
    store: Store,
    topic: str,
    values: Iterable[bytes],
    *,
    partition: int = 0,
    timestamp_ms: int | None = None,
    key: bytes | None = None,
) -> range:
    """Append records to one partition as one batch, as a producer does but without its thread."""
    with store._table.writing(TopicPartition(topic, partition)) as log:
        return log.append_many([Record(value, key=key, timestamp_ms=timestamp_ms) for value in values])


def read(store: Store, topic: str, partition: int = 0) -> list[bytes | None]:
    """Return the values of every record of one partition."""
    return [record.value for record in store.log(topic, partition).scan()]


def snapshot(root: Path, *, locks: bool = True) -> Snapshot:
    """Return everything under a directory: the bytes of files, and the kind of other entries. Links are not followed.

    Without `locks`, lock files with a writer's pid are left out.
    """
    found: Snapshot = {}
    for directory, directory_names, file_names in os.walk(root):
        for name in (*directory_names, *file_names):
            path = Path(directory, name)
            key = str(path.relative_to(root))
            if path.is_symlink():
                found[key] = f"link to {os.readlink(path)}"
            elif path.is_dir():
                found[key] = "directory"
            elif locks or name not in (names.LOCK, names.WAITING, names.TOPICS_LOCK):
                found[key] = path.read_bytes()
    return found


def strangers(root: Path) -> list[str]:
    """Return names in a store's root that are neither partition directories nor known files."""
    return [
        path.name
        for path in sorted(root.iterdir())
        if not (PARTITION_DIRECTORY.match(path.name) if path.is_dir() else path.name in ROOT_FILES)
    ]


def partition_directories(root: Path) -> list[str]:
    """Return the names of the directories in a store's root."""
    return sorted(path.name for path in root.iterdir() if path.is_dir())


def open_file_count() -> int:
    """Return how many files this process has open."""
    return len(os.listdir("/dev/fd"))


_HOLD = """
import fcntl, os, sys
how, path = sys.argv[1:]
handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o640)
if how == "broker":
    fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
else:
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.ftruncate(handle, 0)
    os.pwrite(handle, str(os.getpid()).encode(), 0)
print("held", flush=True)
sys.stdin.read()
"""


class Holder:
    """Another process that holds a lock file: like a writer of seeklog ("writer") or like Java ("broker").

    `got_it` is whether it got the lock.
    """

    def __init__(self, path: Path, how: str = "writer") -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-E", "-c", _HOLD, how, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.got_it = self._process.stdout.readline() == "held\n"

    @property
    def pid(self) -> int:
        return self._process.pid

    def let_go(self) -> None:
        """End the process, which releases the lock."""
        _, self.complaint = self._process.communicate()

    def __enter__(self) -> Holder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.let_go()
