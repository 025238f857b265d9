"""Group commit: threads that wait for a sync at the same time share one."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from log.workbench import PATIENCE_S, CountingFiles, QuickFiles, open_log, values, wait_until
from seeklog import Record
from seeklog.errors import LogFailed
from seeklog.log.commit import GroupCommit


class Disk:
    """A disk whose sync waits until it is released, and covers only the appends from before its start."""

    def __init__(self) -> None:
        self.end = 0
        self.syncs = 0
        self.started = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.error: Exception | None = None

    def sync(self) -> int:
        covered = self.end
        self.syncs += 1
        self.started.release()
        assert self.go.acquire(timeout=PATIENCE_S)
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return covered


def test_one_wait_syncs_once() -> None:
    disk = Disk()
    commit = GroupCommit(disk.sync)
    disk.end = 5
    disk.go.release()

    commit.wait_for(5)

    assert disk.syncs == 1


def test_durable_records_are_not_synced_again() -> None:
    disk = Disk()
    commit = GroupCommit(disk.sync)
    disk.end = 5
    disk.go.release()
    commit.wait_for(5)

    commit.wait_for(3)
    commit.wait_for(5)

    assert disk.syncs == 1


@pytest.mark.id("group-commit-shares-syncs")
def test_threads_waiting_during_sync_share_next_sync() -> None:
    disk = Disk()
    commit = GroupCommit(disk.sync)
    with ThreadPoolExecutor(9) as pool:
        disk.end = 1
        first = pool.submit(commit.wait_for, 1)
        assert disk.started.acquire(timeout=PATIENCE_S)
        disk.end = 9
        others = [pool.submit(commit.wait_for, end) for end in range(2, 10)]
        disk.go.release()
        first.result(PATIENCE_S)
        assert disk.started.acquire(timeout=PATIENCE_S)
        assert not any(other.done() for other in others), "the first sync covers only the first record"
        disk.go.release()
        for other in others:
            other.result(PATIENCE_S)

    assert disk.syncs == 2


def test_after_failed_sync_each_waiter_tries_its_own() -> None:
    disk = Disk()
    commit = GroupCommit(disk.sync)
    with ThreadPoolExecutor(2) as pool:
        disk.end, disk.error = 2, OSError("no")
        first = pool.submit(commit.wait_for, 1)
        assert disk.started.acquire(timeout=PATIENCE_S)
        second = pool.submit(commit.wait_for, 2)
        disk.go.release(2)

        assert isinstance(first.exception(PATIENCE_S), OSError)
        assert second.exception(PATIENCE_S) is None
    assert disk.syncs == 2


def test_truncated_offsets_must_become_durable_again() -> None:
    disk = Disk()
    commit = GroupCommit(disk.sync)
    disk.end = 5
    disk.go.release(2)
    commit.wait_for(5)

    commit.forget()
    commit.wait_for(3)

    assert disk.syncs == 2


# ---------------------------------------------------------------- in a log


class GatedFiles(CountingFiles):
    """A disk whose syncs of the log wait at a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = 0
        self.fails = False

    def sync(self, handle: int) -> None:
        if self._paths[handle].endswith(".log"):
            self.waiting += 1
            assert self.gate.wait(PATIENCE_S)
            if self.fails:
                raise OSError(5, "Input/output error")
        super().sync(handle)


@pytest.mark.parametrize("threads", [8, 32])
def test_one_sync_acknowledges_many_appends(tmp_path: Path, threads: int) -> None:
    files = GatedFiles()
    with open_log(tmp_path, files=files, flush="batch") as log:
        files.gate.clear()
        before = files.count("sync")
        with ThreadPoolExecutor(threads) as pool:
            appends = [pool.submit(log.append, b"%d" % n) for n in range(threads)]
            # All records are written. One thread syncs, and no append is acknowledged yet.
            wait_until(lambda: log.log_end_offset == threads, "the appends")
            assert not any(append.done() for append in appends)
            assert log.high_watermark == log.recovery_point == 0
            files.gate.set()
            offsets = sorted(append.result(PATIENCE_S) for append in appends)

        # The running sync, one for all appends made meanwhile, and a third for an append between the two.
        assert files.count("sync") - before <= 3
        assert offsets == list(range(threads))
        assert log.high_watermark == log.recovery_point == threads
        assert sorted(value or b"" for value in values(log.scan())) == sorted(b"%d" % n for n in range(threads))


def test_failed_sync_fails_every_waiting_append(tmp_path: Path) -> None:
    files = GatedFiles()
    log = open_log(tmp_path, files=files, flush="batch")
    files.gate.clear()
    files.fails = True
    with ThreadPoolExecutor(8) as pool:
        appends = [pool.submit(log.append, b"%d" % n) for n in range(8)]
        wait_until(lambda: log.log_end_offset == 8, "the appends")
        files.gate.set()
        errors = [append.exception(PATIENCE_S) for append in appends]
    log.close()

    assert all(isinstance(error, LogFailed) for error in errors)


def test_sync_overtaken_by_truncation_acknowledges_nothing(tmp_path: Path) -> None:
    """The next append gets one of the truncated offsets, and needs its own sync."""
    files = CountingFiles()
    with open_log(tmp_path, files=files, flush="batch") as log:
        for _ in range(10):
            log.append(b"v")
        commit = log._partition.commit
        sync = commit._sync

        def sync_then_truncate() -> int:
            end = sync()
            commit._sync = sync
            log.truncate_to(5)
            return end

        commit._sync = sync_then_truncate
        log.append(b"v")
        log.append(b"v")

        assert log.log_end_offset == log.recovery_point == 6


@pytest.mark.id("append-during-sync")
def test_append_during_sync_is_not_yet_durable_or_visible(tmp_path: Path) -> None:
    class AppendsMeanwhile(QuickFiles):
        is_due = False

        def sync(self, handle: int) -> None:
            if self.is_due:
                self.is_due = False
                log.append_many([Record(b"meanwhile")], wait=False)

    files = AppendsMeanwhile()
    with open_log(tmp_path, files=files, flush="batch") as log:
        files.is_due = True
        log.append(b"synced")
        assert (log.recovery_point, log.high_watermark, log.log_end_offset) == (1, 1, 2)
