"""When records are synced, and when the recovery point is persisted."""

from __future__ import annotations

from pathlib import Path

import pytest

from log.workbench import BATCH_BYTES, FIRST_LOG, CountingFiles, FakeClock, fill, open_log, wait_until
from seeklog import Log, Record, names
from seeklog.record.batch import encode_batch


def test_flush_os_syncs_only_on_request(tmp_path: Path) -> None:
    files = CountingFiles()
    with open_log(tmp_path, files=files) as log:
        files.diary.clear()
        fill(log, 10)
        assert files.count("sync", "") == 0
        assert log.recovery_point == 0
        log.flush()

        assert log.recovery_point == 10
        assert files.count("sync", FIRST_LOG) == 1


def test_flush_of_durable_log_syncs_nothing(log: Log, tmp_path: Path) -> None:
    files = CountingFiles()
    with open_log(tmp_path / "counted", files=files) as counted:
        fill(counted, 3)
        counted.flush()
        before = files.count("sync", "")
        counted.flush()

        assert files.count("sync", "") == before


@pytest.mark.id("flush-batch-syncs")
def test_flush_batch_syncs_every_append_before_it_returns(tmp_path: Path) -> None:
    files = CountingFiles()
    with open_log(tmp_path, files=files, flush="batch") as log:
        for way in (
            lambda: log.append(b"v"),
            lambda: log.append_many([Record(b"v")] * 3),
            lambda: log.append_batches(encode_batch([Record(b"v")])),
        ):
            before = files.count("sync")
            way()
            assert files.count("sync") == before + 1
            assert log.recovery_point == log.high_watermark == log.log_end_offset


def test_flush_interval_syncs_in_background(tmp_path: Path) -> None:
    with open_log(tmp_path, flush="interval", flush_interval_ms=1, background=True) as log:
        fill(log, 3)

        wait_until(lambda: log.recovery_point == 3, "the background sync")


def test_rolled_segments_are_sealed_in_background(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=BATCH_BYTES, background=True) as log:
        fill(log, 3)

        wait_until(lambda: (tmp_path / f"{1:020d}.seal").exists(), "the seal")
        assert not (tmp_path / f"{2:020d}.seal").exists()


def test_recovery_point_is_persisted_about_once_per_second(tmp_path: Path) -> None:
    clock, files = FakeClock(), CountingFiles()
    with open_log(tmp_path, clock=clock, files=files) as log:
        before = files.count("rename", names.CHECKPOINT)
        for _ in range(20):
            fill(log, 1)
            log.flush()
            clock.advance(100)

        # Two seconds pass.
        assert files.count("rename", names.CHECKPOINT) - before in (1, 2)


def test_roll_syncs_segment_before_seal_and_persists_recovery_point(tmp_path: Path) -> None:
    files = CountingFiles()
    with open_log(tmp_path, files=files, segment_bytes=2 * BATCH_BYTES) as log:
        fill(log, 3)
        files.diary.clear()
        log.flush()

        names_written = [name for operation, name in files.diary if operation == "rename"]
        assert f"{0:020d}.seal" in names_written
        assert names.CHECKPOINT in names_written
        assert files.diary.index(("sync", FIRST_LOG)) < files.diary.index(("rename", f"{0:020d}.seal"))


def test_close_syncs_everything(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    fill(log, 3)
    log.close()
    log.close()

    with open_log(tmp_path) as log:
        assert log.recovery.clean
        assert log.recovery_point == 3
