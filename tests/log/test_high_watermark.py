"""The high watermark: what it follows, what readers see below it, and how it is advanced manually."""

from __future__ import annotations

from pathlib import Path

import pytest

from log.workbench import BATCH_BYTES, FailingFiles, fill, offsets, open_log
from record.batches import CODECS
from seeklog import Log, Record
from seeklog.errors import OffsetOutOfRange, SeeklogError, UsageError
from seeklog.record.codec import CODEC_NAMES

by_codec = pytest.mark.parametrize("codec", [CODEC_NAMES[codec] for codec in CODECS])


@pytest.mark.id("high-watermark-follows-write")
@pytest.mark.parametrize("flush", ["os", "interval"])
def test_high_watermark_follows_write(tmp_path: Path, flush: str) -> None:
    with open_log(tmp_path, flush=flush) as log:
        fill(log, 3)

        assert (log.high_watermark, log.recovery_point) == (3, 0)


@pytest.mark.id("flush-batch-high-watermark")
def test_high_watermark_follows_sync_with_flush_batch(tmp_path: Path) -> None:
    files = FailingFiles("sync")
    log = open_log(tmp_path, flush="batch", files=files)
    fill(log, 3)
    assert log.high_watermark == log.recovery_point == 3
    files.fails = True
    with pytest.raises(SeeklogError):
        log.append(b"never acknowledged")

    assert (log.high_watermark, log.recovery_point, log.log_end_offset) == (3, 3, 4)
    assert offsets(log.read(0)) == [0, 1, 2]
    log.close()


@pytest.mark.id("read-up-to-high-watermark")
def test_reads_stop_at_high_watermark_unless_uncommitted(tmp_path: Path) -> None:
    with open_log(tmp_path, high_watermark="manual") as log:
        fill(log, 5)
        assert list(log.read(0)) == list(log.scan()) == list(log.scan_reverse()) == []
        log.advance_high_watermark(3)

        assert offsets(log.read(0)) == offsets(log.scan()) == [0, 1, 2]
        assert log.scan_arrow().read_all().num_rows == 3
        assert [batch.base_offset for batch in log.read_batches(0)] == [0, 1, 2]
        assert sum(each.size for each in log.read_ranges(0)) == 3 * BATCH_BYTES
        assert list(log.read(4)) == []
        assert offsets(log.read_uncommitted(0)) == [0, 1, 2, 3, 4]
        assert [batch.base_offset for batch in log.read_batches(3, uncommitted=True)] == [3, 4]
        assert sum(each.size for each in log.read_ranges(0, uncommitted=True)) == 5 * BATCH_BYTES


@by_codec
def test_high_watermark_may_be_inside_batch(tmp_path: Path, codec: str) -> None:
    with open_log(tmp_path, high_watermark="manual", compression_type=codec) as log:
        log.append_many([Record(b"v")] * 10)
        log.advance_high_watermark(4)

        assert offsets(log.read(2)) == [2, 3]
        assert offsets(log.scan_reverse()) == [3, 2, 1, 0]
        assert log.scan_arrow().read_all().num_rows == 4
        assert list(log.read_batches(0)) == []


def test_high_watermark_never_moves_back(tmp_path: Path) -> None:
    with open_log(tmp_path, high_watermark="manual") as log:
        fill(log, 5)
        log.advance_high_watermark(3)
        log.advance_high_watermark(2)
        log.advance_high_watermark(-1)

        assert log.high_watermark == 3


def test_high_watermark_cannot_pass_log_end_offset(tmp_path: Path) -> None:
    with open_log(tmp_path, high_watermark="manual") as log:
        fill(log, 5)
        log.advance_high_watermark(5)
        with pytest.raises(OffsetOutOfRange, match="high watermark 6"):
            log.advance_high_watermark(6)

        assert log.high_watermark == 5


def test_automatic_high_watermark_cannot_be_advanced_manually(log: Log) -> None:
    with pytest.raises(UsageError, match="manual"):
        log.advance_high_watermark(0)


def test_manual_high_watermark_survives_clean_close(tmp_path: Path) -> None:
    with open_log(tmp_path, high_watermark="manual") as log:
        fill(log, 5)
        log.advance_high_watermark(3)

    with open_log(tmp_path, high_watermark="manual") as log:
        assert (log.high_watermark, log.log_end_offset) == (3, 5)
    with open_log(tmp_path) as log:
        assert log.high_watermark == 5
