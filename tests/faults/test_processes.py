"""One writer, any number of readers: locks, forks, and a history that must be free of torn reads and gaps."""

from __future__ import annotations

import gc
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from crash.recorder import read_everything
from faults.children import Child, kill_config, value_at
from log.workbench import FakeClock
from open_files import open_paths
from seeklog import Log, LogConfig, LogReader
from seeklog.errors import LogClosed, LogLocked, OffsetOutOfRange

if TYPE_CHECKING:
    from collections.abc import Callable

CONFIG = LogConfig(flush="os", segment_bytes=2000)
# Long enough for a hundred rolls; `make proof` reads for a minute.
READING_SECONDS = 3.0


@pytest.mark.id("second-writer-here")
def test_second_writer_in_same_process_is_refused_at_once(tmp_path: Path) -> None:
    clock = FakeClock()
    with Log(tmp_path / "log", config=CONFIG), pytest.raises(LogLocked) as refusal:
        Log(tmp_path / "log", config=CONFIG, clock=clock)

    assert clock.seconds == 0, "it has waited"
    assert refusal.value.owner_pid == os.getpid()


@pytest.mark.id("second-writer-elsewhere")
def test_second_writer_in_another_process_gets_pid_of_first(tmp_path: Path) -> None:
    path = tmp_path / "log"

    def hold(report: Callable[[str], None]) -> None:
        with Log(path, config=CONFIG):
            report("open")
            threading.Event().wait()

    child = Child(hold)
    assert child.line() == "open"
    clock = FakeClock()
    with pytest.raises(LogLocked) as refusal:
        Log(path, config=CONFIG, clock=clock)
    child.kill()
    child.wait()

    assert clock.seconds == 0, "it has waited"
    assert refusal.value.owner_pid == child.pid
    assert str(child.pid) in str(refusal.value)
    # The lock was released with its process.
    with Log(path, config=CONFIG) as log:
        assert log.append(b"value") == 0


@pytest.mark.id("lock-free-after-close")
def test_lock_is_free_after_close(tmp_path: Path) -> None:
    for _ in range(3):
        with Log(tmp_path / "log", config=CONFIG) as log:
            log.append(b"value")


def test_closed_log_holds_no_file_open(tmp_path: Path) -> None:
    """Goal: a thousand logs opened and closed in turn need no more files than one."""
    gc.collect()  # files left open by other tests do not count
    before = open_paths()
    log = Log(tmp_path / "log", config=CONFIG)
    for _ in range(50):
        log.append(b"value" * 20)
    reader = LogReader(tmp_path / "log", config=CONFIG)
    assert len(list(reader.scan())) == 50

    log.close()
    reader.close()

    assert open_paths() == before


@pytest.mark.id("forked-child-cannot-append")
def test_forked_child_cannot_append_and_parent_continues(tmp_path: Path) -> None:
    with Log(tmp_path / "log", config=CONFIG) as log:
        log.append(b"before")

        def try_to_append(report: Callable[[str], None]) -> None:
            for attempt in (lambda: log.append(b"from the child"), log.flush):
                with pytest.raises(LogClosed):
                    attempt()
            log.close()
            report("refused")

        child = Child(try_to_append)
        assert child.rest() == ["refused"]
        assert child.wait() == 0
        assert log.append(b"after") == 1
        # The child's close did not release the lock.
        with pytest.raises(LogLocked):
            Log(tmp_path / "log", config=CONFIG)
        assert [record.value for record in log.scan()] == [b"before", b"after"]


def test_forked_child_closes_log_while_background_thread_held_lock(tmp_path: Path) -> None:
    """Goal: a lock held at the fork is never released in the child, where its holder does not exist."""
    with Log(tmp_path / "log", config=replace(CONFIG, flush="interval")) as log:
        log.append(b"before")

        def close(report: Callable[[str], None]) -> None:
            log.close()
            report("closed")

        assert log._maintenance is not None
        with log._maintenance._wake:
            child = Child(close)
        try:
            assert child.line() == "closed"
        finally:
            child.kill()
            child.wait()


def test_forked_child_does_not_keep_lock_after_writer_closed(tmp_path: Path) -> None:
    """Goal: a child shares the lock's open file; it must not keep a log locked that its parent has closed."""
    log = Log(tmp_path / "log", config=CONFIG)

    def wait_for_ever(report: Callable[[str], None]) -> None:
        report("running")
        threading.Event().wait()

    child = Child(wait_for_ever)
    assert child.line() == "running"
    log.close()
    try:
        with Log(tmp_path / "log", config=CONFIG) as again:
            assert again.append(b"value") == 0
    finally:
        child.kill()
        child.wait()


@pytest.mark.id("reader-takes-no-lock")
def test_reader_opens_at_any_time_without_lock(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with Log(path, config=CONFIG) as log:
        log.append(b"value")
        with (
            LogReader(path, config=CONFIG) as first,
            LogReader(path, config=CONFIG) as second,
        ):
            log.append(b"more")
            for reader in (first, second):
                assert next(iter(reader.read(0))).value == b"value"
    with LogReader(path, config=CONFIG), Log(path, config=CONFIG) as log:
        assert log.append(b"even more") == 2


@pytest.mark.id("reader-after-truncation")
@pytest.mark.parametrize("flush", ["os", "batch"])
@pytest.mark.parametrize("sizes", [[30, 31, 200], [100] * 6, [61] * 9, [5] * 30], ids=len)
def test_open_reader_sees_records_after_truncation(flush: str, sizes: list[int], tmp_path: Path) -> None:
    """Goal: the file may have grown past the reader's position before the next read."""
    path = tmp_path / "log"
    config = LogConfig.from_mapping({"flush": flush, "index_interval_bytes": 100})
    with Log(path, config=config) as log:
        for _ in range(5):
            log.append(b"a" * 60)
        with LogReader(path, config=config) as reader:
            assert len(list(reader.scan())) == 5
            log.truncate_to(3)
            for size in sizes:
                log.append(b"b" * size)

            values = [b"a" * 60] * 3 + [b"b" * size for size in sizes]
            assert reader.log_end_offset == log.log_end_offset
            assert [record.value for record in reader.scan()] == values
            assert [record.value for record in reader.read(0)] == values


def read_until(log: Log, is_over: Callable[[], bool]) -> tuple[int, int]:
    """Read a growing log in order, again and again; return the number of records, and of jumps caused by retention.

    Every record must be the expected one for its offset, and follow the previous one.
    """
    seen = overtaken = 0
    while not is_over():
        offset = log.log_start_offset
        end = log.high_watermark
        while offset < end and not is_over():
            try:
                for record in log.read(offset, max_records=20):
                    assert record.offset == offset, f"a gap: {record.offset} after {offset - 1}"
                    assert record.value == value_at(offset), f"a torn record at {offset}"
                    offset += 1
                    seen += 1
            except OffsetOutOfRange as error:
                if offset >= error.log_start_offset:
                    raise  # only retention may remove an offset
                offset = error.log_start_offset
                overtaken += 1
        assert log.high_watermark >= end, "the high watermark went back"
        time.sleep(0.002)  # threads share the interpreter with the writer, which must get its turn
    return seen, overtaken


@pytest.mark.id("readers-beside-rolls")
@pytest.mark.parametrize("flush", ["os", "batch"])
def test_readers_see_no_torn_batch_or_gap_beside_rolls_and_deletions(flush: str, tmp_path: Path) -> None:
    """Goal: two reader processes and two reader threads beside a writer that appends, rolls and deletes."""
    path = tmp_path / "log"
    config = replace(kill_config(flush), segment_bytes=30_000)
    stop_at = time.monotonic() + READING_SECONDS
    failures: list[BaseException] = []
    counts: list[tuple[int, int]] = []

    def is_over() -> bool:
        return time.monotonic() > stop_at

    with Log(path, config=config) as log:
        log.append(value_at(0))

        def in_process(report: Callable[[str], None]) -> None:
            with LogReader(path, config=config) as reader:
                seen, overtaken = read_until(reader, is_over)
            report(f"{seen} {overtaken}")

        def in_thread() -> None:
            try:
                counts.append(read_until(log, is_over))
            except BaseException as error:
                failures.append(error)

        processes = [Child(in_process) for _ in range(2)]
        threads = [threading.Thread(target=in_thread) for _ in range(2)]
        for thread in threads:
            thread.start()
        while not is_over():
            end = log.log_end_offset
            log.append(value_at(end))
            if end % 100 == 0:
                log.delete_before(max(end - 150, log.log_start_offset))
        for thread in threads:
            thread.join()
        assert failures == []
        for child in processes:
            lines = child.rest()
            assert child.wait() == 0, lines
            seen, overtaken = map(int, lines[0].split())
            counts.append((seen, overtaken))
        appended = log.log_end_offset
        assert [record.value for record in read_everything(log)] == [
            value_at(offset) for offset in range(log.log_start_offset, log.log_end_offset)
        ]
    print(f"flush={flush}: {appended:,} appended, (seen, overtaken) per reader: {counts}")
    assert all(seen > 0 for seen, _ in counts)


@pytest.mark.id("reader-follows-writer")
def test_follower_in_another_process_sees_every_record_once(tmp_path: Path) -> None:
    path = tmp_path / "log"
    config = kill_config("batch")
    count = 300
    with Log(path, config=config) as log:
        log.append(value_at(0))

        def follow(report: Callable[[str], None]) -> None:
            with LogReader(path, config=config) as reader:
                report("open")
                for expected, record in enumerate(reader.follow(0, timeout_ms=10_000)):
                    assert record.offset == expected
                    assert record.value == value_at(expected)
                    if expected == count - 1:
                        break
            report("done")

        child = Child(follow)
        assert child.line() == "open"
        for offset in range(1, count):
            assert log.append(value_at(offset)) == offset
        assert child.rest() == ["done"]
        assert child.wait() == 0
