"""Following a log: waiting for records from this process and from others, and how a follow ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.children import Child
from log.workbench import (
    BATCH_BYTES,
    PATIENCE_S,
    FailingFiles,
    Follower,
    fill,
    make_log,
    offsets,
    open_log,
    open_reader,
    wait_until,
)
from record.batches import Row as HandMade
from record.batches import Sketch, batch_of
from seeklog import Log, LogConfig
from seeklog.clock import SystemClock
from seeklog.errors import LogFailed


@pytest.mark.parametrize("flush", ["os", "batch"])
def test_follow_waits_for_new_records(tmp_path: Path, flush: str) -> None:
    with open_log(tmp_path, flush=flush) as log:
        fill(log, 3)
        follower = Follower(log, 1, count=6)
        for _ in range(4):
            fill(log, 1)

        assert follower.has_ended()
        assert follower.found == [1, 2, 3, 4, 5, 6]


def test_sync_wakes_follower_when_watermark_follows_sync(tmp_path: Path) -> None:
    rounds = 50
    seen: list[bytes | None] = []
    has_come = threading.Event()

    def follow() -> None:
        for record in log.follow(0, timeout_ms=10_000):
            seen.append(record.value)
            has_come.set()
            if len(seen) == rounds:
                return

    with Log(tmp_path / "log", config=LogConfig(flush="batch")) as log:
        follower = threading.Thread(target=follow)
        follower.start()
        for number in range(rounds):
            # The follower waits already, or will in a moment: there is nothing else for it to read.
            log.append(b"%d" % number)
            assert has_come.wait(PATIENCE_S)
            has_come.clear()
        follower.join()
    assert seen == [b"%d" % number for number in range(rounds)]


def test_follow_without_offset_starts_at_next_record(log: Log) -> None:
    fill(log, 3)
    follower = Follower(log, None, count=1)
    fill(log, 1)

    assert follower.has_ended()
    assert follower.found == [3]


@pytest.mark.parametrize("read_only", [False, True])
def test_follow_waits_for_given_timeout(log: Log, read_only: bool) -> None:
    fill(log, 2)
    with open_reader(log.path, clock=SystemClock()) as reader:
        follower = Follower(reader if read_only else log, 0, count=3, timeout_ms=1000 * PATIENCE_S)
        wait_until(lambda: len(follower.found) == 2, "the first records")
        fill(log, 1)

        assert follower.has_ended()
        assert follower.found == [0, 1, 2]


def test_follow_ends_when_nothing_arrives_in_time(filled: Log) -> None:
    assert offsets(filled.follow(30, timeout_ms=1)) == [30, 31, 32]


@pytest.mark.parametrize("read_only", [False, True])
def test_follow_ends_when_log_is_closed(tmp_path: Path, read_only: bool) -> None:
    make_log(tmp_path, 2)
    log = open_log(tmp_path, clock=SystemClock(), read_only=read_only)
    follower = Follower(log, 0)
    wait_until(lambda: len(follower.found) == 2, "the first records")

    log.close()

    assert follower.has_ended()
    assert follower.error is None


def test_follow_ends_when_log_has_failed(tmp_path: Path) -> None:
    """No more records will come, so it must neither wait forever nor poll without a pause."""

    files = FailingFiles("sync")
    log = open_log(tmp_path, files=files)
    fill(log, 2)
    follower = Follower(log, 0)
    wait_until(lambda: len(follower.found) == 2, "the first records")
    files.fails = True
    with pytest.raises(LogFailed):
        log.flush()

    assert follower.has_ended()
    log.close()


def test_follow_skips_offsets_without_record(log: Log) -> None:
    log.append(b"a")
    log.append_batches(batch_of(b"", last_delta=9, record_count=0))
    log.append_batches(Sketch((HandMade(b"\0\0\0\0\0\0", b"\0\0\0\1"),), attributes=0x30).encode())
    log.append(b"b")

    assert offsets(log.follow(0, timeout_ms=1)) == [0, 12]


def test_follow_stops_at_high_watermark(tmp_path: Path) -> None:
    with open_log(tmp_path, high_watermark="manual") as log:
        fill(log, 5)
        log.advance_high_watermark(2)
        assert offsets(log.follow(0, timeout_ms=1)) == [0, 1]
        follower = Follower(log, 2, count=2)
        log.advance_high_watermark(4)

        assert follower.has_ended()
        assert follower.found == [2, 3]


@pytest.mark.parametrize("flush", ["os", "batch"])
def test_follow_works_across_processes(tmp_path: Path, flush: str) -> None:
    path = tmp_path / "log"
    with open_log(path, flush=flush, segment_bytes=3 * BATCH_BYTES) as log:
        fill(log, 2)

        def follow(report: Callable[[str], None]) -> None:
            with open_reader(path, clock=SystemClock()) as reader:
                report("open")
                for record in reader.follow(0):
                    report(f"{record.offset}")
                    if record.offset == 9:
                        return

        child = Child(follow)
        assert child.line() == "open"
        assert [child.line(), child.line()] == ["0", "1"]
        fill(log, 8)

        assert child.rest() == [str(n) for n in range(2, 10)]
        assert child.wait() == 0
