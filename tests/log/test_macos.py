"""The engine without what only Linux has, as on macOS: full syncs, and locks that a broker sees.

These tests remove the names that Python lacks on macOS. They show which calls are made, not what a Mac does with them.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

import seeklog
from log.workbench import open_log
from open_files import path_of
from seeklog import LogConfig
from seeklog.errors import LogFailed, LogLocked
from seeklog.files import OsFiles
from seeklog.files.polling import Polling

FILES = OsFiles()
# macOS's number. No command of Linux has it.
F_FULLFSYNC = 51
ABSENT = {
    os: ("fdatasync", "sched_getaffinity", "posix_fadvise", "posix_fallocate", "memfd_create", "eventfd", "pipe2"),
    fcntl: ("F_OFD_SETLK", "F_OFD_GETLK", "F_OFD_SETLKW"),
}


class Mac:
    """Records the files that were synced in full, and how often a plain fsync was called."""

    def __init__(self) -> None:
        self.synced: list[str] = []
        self.plain_count = 0
        self.error = 0
        """What F_FULLFSYNC raises, or 0."""
        self._fcntl, self._fsync = fcntl.fcntl, os.fsync

    def fcntl(self, handle: int, command: int, argument: Any = 0) -> Any:
        if command != F_FULLFSYNC:
            return self._fcntl(handle, command, argument)
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        self.synced.append(path_of(handle))
        return 0

    def fsync(self, handle: int) -> None:
        self.plain_count += 1
        self._fsync(handle)


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mac]:
    system = Mac()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "darwin")
        for module, names in ABSENT.items():
            for name in names:
                patch.delattr(module, name, raising=False)
        patch.setattr(fcntl, "F_FULLFSYNC", F_FULLFSYNC, raising=False)
        patch.setattr(fcntl, "fcntl", system.fcntl)
        patch.setattr(os, "fsync", system.fsync)
        yield system


def test_store_appends_syncs_and_recovers_without_calls_of_linux(tmp_path: Path, mac: Mac) -> None:
    values = [b"%04d" % number * 250 for number in range(60)]
    with seeklog.open(tmp_path / "data", config=LogConfig(segment_bytes=1 << 14), background=False) as store:
        store.create_topic("orders")
        with store.writer("orders", 0) as log:
            for value in values:
                log.append(value)
            log.flush()
            shutil.copytree(tmp_path / "data", tmp_path / "killed")
    segments = sorted((tmp_path / "killed" / "orders-0").glob("*.log"))
    with segments[-1].open("ab") as torn:
        torn.write(bytes(40))

    with (
        seeklog.open(tmp_path / "killed", background=False) as store,
        store.writer("orders", 0) as recovered,
    ):
        assert [record.value for record in recovered.read(0)] == values
        assert recovered.append(b"goes on") == 60

    assert len(segments) > 2
    assert mac.plain_count == 0
    assert {str(tmp_path / "data/orders-0"), str(tmp_path / "data/orders-0" / segments[-1].name)} <= set(mac.synced)


def test_consumer_polls_for_records_without_inotify(tmp_path: Path, mac: Mac) -> None:
    with seeklog.open(tmp_path / "data", background=False) as store:
        store.create_topic("orders")
        with store.consumer(["orders"]) as consumer, store.producer() as producer:
            assert consumer.poll() == []
            assert isinstance(consumer._turns._watch, Polling)
            producer.send("orders", b"v").result(60)
            assert [record.value for record in consumer.poll(timeout_ms=60_000)] == [b"v"]


@pytest.mark.parametrize("error", [errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL])
def test_file_system_without_full_sync_gets_plain_one(tmp_path: Path, mac: Mac, error: int) -> None:
    mac.error = error
    handle = FILES.open(f"{tmp_path}/file", write=True, create=True)

    FILES.sync(handle)
    FILES.sync_directory(str(tmp_path))

    FILES.close(handle)
    assert mac.plain_count == 2


def test_failed_full_sync_stops_log_without_plain_sync(tmp_path: Path, mac: Mac) -> None:
    """A plain sync could succeed without writing what the full one failed to write."""
    log = open_log(tmp_path / "log", files=FILES)
    log.append(b"x")
    mac.error, mac.plain_count = errno.EIO, 0

    with pytest.raises(LogFailed):
        log.flush()

    assert mac.plain_count == 0
    mac.error = 0


def test_broker_and_store_exclude_each_other_on_macos(tmp_path: Path, mac: Mac) -> None:
    lock = f"{tmp_path}/.lock"
    broker = FILES.lock_as_broker(lock)
    assert FILES.has_broker(lock)
    with pytest.raises(LogLocked):
        seeklog.open(tmp_path)
    FILES.close(broker)
    assert not FILES.has_broker(lock)

    with seeklog.open(tmp_path), seeklog.open(tmp_path):
        assert not FILES.has_broker(lock)
        with pytest.raises(BlockingIOError):
            FILES.lock_as_broker(lock)


def test_lock_against_brokers_survives_another_handle_on_macos(tmp_path: Path, mac: Mac) -> None:
    """A plain fcntl lock would be lost when its process closes any handle of the file."""
    lock = f"{tmp_path}/.lock"
    held = FILES.lock_out_broker(lock)

    FILES.close(FILES.open(lock))
    with pytest.raises(BlockingIOError):
        FILES.lock_as_broker(lock)

    FILES.close(held)


def test_link_to_directory_is_named_where_open_raises_eloop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(tmp_path)

    def refuse(path: str, *_: object) -> NoReturn:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match="is a symbolic link, which is not followed") as caught:
        FILES.remove(f"{tmp_path}/link/file")

    assert caught.value.errno == errno.ELOOP


def test_ancestor_on_read_only_file_system_needs_no_sync(tmp_path: Path) -> None:
    """On macOS the root directory is one, and a full sync of it raises EROFS."""

    class SealedRoot(OsFiles):
        def sync_directory(self, path: str) -> None:
            if path == "/":
                raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
            super().sync_directory(path)

    with open_log(tmp_path / "new" / "log", files=SealedRoot()) as log:
        log.append(b"x")
        log.flush()
        assert log.recovery_point == 1
