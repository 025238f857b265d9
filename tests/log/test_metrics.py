"""What a log counts: appends by the state of its segments, syncs, rolls, deletions, compactions and failures."""

from __future__ import annotations

import errno
import os
import random
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from log.workbench import (
    BATCH_BYTES,
    FailingFiles,
    FakeClock,
    GatedFiles,
    QuickFiles,
    crashed_copy,
    fill,
    make_log,
    open_log,
    segment_bases,
    value_of,
)
from seeklog import Log, LogConfig, ProducerSequence, Record
from seeklog.errors import DiskFull, LogFailed, UsageError
from seeklog.log import LogMetrics


def appended(log: Log) -> tuple[int, int, int]:
    section = log.metrics()["log"]
    return section["records_in"], section["batches_in"], section["bytes_in"]


def log_size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.glob("*.log"))


# ---------------------------------------------------------------- appends


def test_each_way_of_appending_is_counted(tmp_path: Path) -> None:
    with open_log(tmp_path / "source") as source:
        fill(source, 4)
        raw = b"".join(bytes(batch.raw) for batch in source.read_batches(0))
    with open_log(tmp_path / "log") as log:
        log.append(value_of(0))
        assert appended(log) == (1, 1, BATCH_BYTES)
        log.append_many([Record(value_of(number)) for number in range(10)])
        assert appended(log)[:2] == (11, 2)
        log.append_batches(raw)
        assert appended(log)[:2] == (15, 6)
        log.append(b"x", producer=ProducerSequence(producer_id=1, epoch=0, sequence=0))
        assert appended(log)[:2] == (16, 7)
        assert appended(log)[2] == log_size(tmp_path / "log")


def test_repeated_batch_is_not_counted_again(tmp_path: Path) -> None:
    sequence = ProducerSequence(producer_id=1, epoch=0, sequence=0)
    with open_log(tmp_path) as log:
        for _ in range(3):
            log.append_many([Record(b"x")], producer=sequence)
        assert appended(log)[0] == 1


def test_what_was_in_the_log_before_it_was_opened_is_not_counted(tmp_path: Path) -> None:
    make_log(tmp_path, 7)
    with open_log(tmp_path) as log:
        assert appended(log) == (0, 0, 0)
        fill(log, 2)
        assert appended(log) == (2, 2, 2 * BATCH_BYTES)


def test_compressed_bytes_are_counted(tmp_path: Path) -> None:
    with open_log(tmp_path, compression_type="gzip") as log:
        log.append_many([Record(b"x" * 10_000)] * 10)
        assert appended(log)[0] == 10
        assert appended(log)[2] == log_size(tmp_path) < 10_000


def test_appends_are_counted_over_rolls(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=5 * BATCH_BYTES) as log:
        for number in range(1, 34):
            fill(log, 1)
            assert appended(log) == (number, number, number * BATCH_BYTES)
        assert log.metrics()["log"]["rolls"] == len(segment_bases(tmp_path)) - 1 == 6
        log.roll()
        assert appended(log)[0] == 33
        assert log.metrics()["log"]["rolls"] == 7


def test_truncation_lowers_no_counter(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=5 * BATCH_BYTES) as log:
        fill(log, 33)
        for offset in (31, 20, 7, 0):  # inside the last segment, at a boundary, and in sealed ones
            before = appended(log)
            log.truncate_to(offset)
            assert appended(log) == before
            fill(log, 3)
            assert appended(log) == tuple(number + 3 * each for number, each in zip(before, (1, 1, 78), strict=True))


def test_records_of_another_writer_are_not_counted(tmp_path: Path) -> None:
    with open_log(tmp_path) as one:
        fill(one, 2)
        one.give_back()
        with open_log(tmp_path) as other:
            for turn in range(1, 4):
                fill(other, 5)
                other.give_back()
                assert one.borrow()
                fill(one, 1)
                one.give_back()
                assert other.borrow()
                assert appended(one) == (2 + turn, 2 + turn, (2 + turn) * BATCH_BYTES)
                assert appended(other) == (5 * turn, 5 * turn, 5 * turn * BATCH_BYTES)


def test_closed_log_keeps_its_count_and_no_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 3)
    log.close()
    assert appended(log)[0] == 3
    assert log._partition.metrics._appended.state is None


def test_failed_append_is_not_counted(tmp_path: Path) -> None:
    files = GatedFiles()
    with open_log(tmp_path, files=files) as log:
        fill(log, 1)
        files.write_errors[""] = errno.ENOSPC
        with pytest.raises(DiskFull):
            log.append(b"x")
        files.write_errors.clear()
        assert appended(log)[0] == 1
        assert log.metrics()["log"]["full_disk_errors"] == 1
        assert log.metrics()["log"]["failures"] == 0


def test_counters_never_fall_beside_writers(tmp_path: Path) -> None:
    """Goal: a reader without a lock, beside appends, rolls and truncations, sees no counter fall and no lost append."""
    log: Log = open_log(tmp_path, segment_bytes=20 * BATCH_BYTES)
    count, is_over, fallen = 3000, threading.Event(), []

    def watch() -> None:
        last = (0, 0, 0)
        while not is_over.is_set():
            now = appended(log)
            if any(new < old for new, old in zip(now, last, strict=True)):
                fallen.append((last, now))
            last = now

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with log, ThreadPoolExecutor(3) as pool:
            watching = pool.submit(watch)
            rng = random.Random(24)
            for number in range(count):
                log.append(value_of(number))
                if rng.random() < 0.02:
                    log.truncate_to(rng.randint(log.log_start_offset, log.log_end_offset))
            is_over.set()
            watching.result()
            assert appended(log)[:2] == (count, count)
            assert not fallen
    finally:
        is_over.set()
        sys.setswitchinterval(interval)


# ---------------------------------------------------------------- syncs


@dataclass
class SlowFiles(QuickFiles):
    """A disk whose syncs take a second each."""

    clock: FakeClock

    def sync(self, handle: int) -> None:
        self.clock.advance(1000)


def test_each_sync_is_timed(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, files=SlowFiles(clock)) as log:
        log.flush()
        before = log.metrics()["log"]["flush_seconds"]["count"]
        for _ in range(3):
            fill(log, 2)
            log.flush()
            log.flush()  # nothing to sync
        flushes = log.metrics()["log"]["flush_seconds"]
        assert flushes["count"] - before == 3
        assert flushes["max"] == 1.0
        assert flushes["sum"] == flushes["count"]


def test_threads_that_share_a_sync_count_one(tmp_path: Path) -> None:
    files = GatedFiles()
    with open_log(tmp_path, files=files, flush="batch") as log, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: log.append(value_of(number)), range(200)))
        syncs = log.metrics()["log"]["flush_seconds"]["count"]
        assert syncs == files.count("sync") <= 200


def test_failed_sync_is_counted_as_failure(tmp_path: Path) -> None:
    files = GatedFiles()
    log = open_log(tmp_path, files=files)
    fill(log, 1)
    syncs = log.metrics()["log"]["flush_seconds"]["count"]
    files.sync_errors[""] = errno.EIO
    with pytest.raises(LogFailed):
        log.flush()
    with pytest.raises(LogFailed):
        log.append(b"x")  # the same failure, not another one
    assert log.metrics()["log"]["failures"] == 1
    assert log.metrics()["log"]["flush_seconds"]["count"] == syncs
    log.close()


# ---------------------------------------------------------------- opening


def test_clean_opens_count_no_recovery(tmp_path: Path) -> None:
    for _ in range(2):  # a new log, and one that was closed
        with open_log(tmp_path) as log:
            fill(log, 3)
            assert log.metrics()["log"]["opens"] == 1
            assert log.metrics()["log"]["recovery_seconds"]["count"] == 0


def test_recovery_is_timed_and_its_cut_is_counted(tmp_path: Path) -> None:
    with open_log(tmp_path / "log") as log:
        fill(log, 3)
        copy = crashed_copy(tmp_path / "log", tmp_path / "copy")
    path = copy / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-5])
    with open_log(copy) as log:
        section = log.metrics()["log"]
        assert section["recovery_seconds"]["count"] == 1
        assert section["cut_bytes"] == BATCH_BYTES - 5


# ---------------------------------------------------------------- retention and compaction


def test_deleted_segments_are_counted(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=5 * BATCH_BYTES, retention_bytes=10 * BATCH_BYTES) as log:
        fill(log, 33)
        log.flush()
        size = log_size(tmp_path)
        deleted = log.retain()
        counted = log.metrics()["retention"]
        assert counted == {"deleted_segments": deleted, "deleted_bytes": size - log_size(tmp_path)}
        assert deleted > 0
        more = log.delete_before(log.log_end_offset)
        assert log.metrics()["retention"]["deleted_segments"] == deleted + more


def test_compactions_are_counted(tmp_path: Path) -> None:
    with open_log(tmp_path, cleanup_policy="compact") as log:
        for number in range(20):
            log.append(value_of(number), key=b"%d" % (number % 3))
        log.roll()
        log.flush()
        done = log.compact()
        counted = log.metrics()["compaction"]
        assert counted["seconds"]["count"] == 1
        assert (counted["records_before"], counted["records_after"]) == (20, 3)
        assert (counted["bytes_before"], counted["bytes_after"]) == (done.bytes_before, done.bytes_after)

        log.compact_if_due()  # not due
        assert log.metrics()["compaction"] == counted


def test_failed_compaction_is_counted(tmp_path: Path) -> None:
    files = FailingFiles("rename", ".swap")
    with open_log(tmp_path, cleanup_policy="compact", files=files) as log:
        for _ in range(3):
            log.append(b"x", key=b"k")
        log.roll()
        log.flush()
        files.fails = True
        with pytest.raises(LogFailed):
            log.compact()
        assert log.metrics()["compaction"]["failures"] == 1
        assert log.metrics()["compaction"]["seconds"]["count"] == 0
        files.fails = False


def test_refused_compaction_is_not_counted(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        with pytest.raises(UsageError):
            log.compact()
        assert log.metrics()["compaction"]["failures"] == 0


# ---------------------------------------------------------------- sums


def test_sum_of_logs_is_the_sum_of_their_numbers(tmp_path: Path) -> None:
    total = LogMetrics()
    logs = [open_log(tmp_path / str(number)) for number in range(3)]
    for number, log in enumerate(logs):
        fill(log, number + 1)
        total.add(log._partition.metrics)
    assert total.as_dict()["log"]["records_in"] == 6
    assert total.as_dict()["log"]["opens"] == 3
    for log in logs:
        log.close()


def test_open_file_count_is_that_of_the_process(tmp_path: Path) -> None:
    for number, flush in enumerate(("os", "batch")):
        path = tmp_path / str(number)
        with Log(path, config=LogConfig(flush=flush, segment_bytes=5 * BATCH_BYTES), background=False) as log:
            for count in (1, 10, 10):
                fill(log, count)
                assert log.open_file_count == len(open_files_under(path, path.parent / ".lock"))
            log.flush()
            assert log.open_file_count == len(open_files_under(path, path.parent / ".lock"))


def open_files_under(*paths: Path) -> list[str]:
    found = []
    for handle in os.listdir("/dev/fd"):
        try:
            target = os.readlink(f"/dev/fd/{handle}")
        except OSError:
            continue
        found += [target for path in paths if target == str(path) or target.startswith(f"{path}/")]
    return found
