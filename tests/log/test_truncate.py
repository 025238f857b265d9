"""Cutting a log at its end (`truncate_to`) and at its start (`delete_before`)."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from crash.faulty import FaultyFiles
from log.workbench import (
    BATCH_BYTES,
    FIRST_LOG,
    SEVEN_SEGMENTS,
    Follower,
    QuickFiles,
    contents,
    crashed_copy,
    fill,
    offsets,
    open_log,
    open_reader,
    segment_bases,
    value_of,
    values,
    wait_until,
)
from seeklog import Log, Record
from seeklog.errors import CorruptionError, LogFailed, OffsetOutOfRange

# ---------------------------------------------------------------- truncate_to


@pytest.mark.parametrize("offset", range(34))
def test_truncate_drops_the_offset_and_all_after_it(filled: Log, offset: int) -> None:
    assert filled.truncate_to(offset) == offset

    assert filled.log_end_offset == filled.high_watermark == offset
    assert filled.recovery_point <= offset
    assert offsets(filled.scan()) == list(range(offset))
    assert filled.append(b"new") == offset
    assert values(filled.read(offset)) == [b"new"]
    assert segment_bases(filled.path)[-1] <= offset


@pytest.mark.parametrize("offset", range(10, 20))
def test_truncate_inside_a_batch_drops_all_of_it(log: Log, offset: int) -> None:
    for _ in range(3):
        log.append_many([Record(b"v")] * 10)

    assert log.truncate_to(offset) == 10
    assert log.log_end_offset == 10


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("offset", [0, 3, 5, 12, 32])
def test_truncation_survives_a_reopen(tmp_path: Path, offset: int, is_clean: bool) -> None:
    path = tmp_path / "log"
    with open_log(path, **SEVEN_SEGMENTS) as log:
        fill(log, 33)
        log.flush()
        log.truncate_to(offset)
        log.append(b"new")
        if not is_clean:
            path = crashed_copy(path, tmp_path / "crashed")

    with open_log(path, **SEVEN_SEGMENTS) as log:
        assert log.recovery.cut_bytes == 0
        assert values(log.scan()) == [*(value_of(n) for n in range(offset)), b"new"]


@pytest.mark.parametrize("place", [0, 2, 4])
def test_truncation_after_damage_is_refused_without_losses(tmp_path: Path, place: int) -> None:
    """The kept part is scanned for its indexes: bit rot found there must not become the new end."""
    with open_log(tmp_path) as log:
        fill(log, 10)
        log.flush()
        data = bytearray((tmp_path / FIRST_LOG).read_bytes())
        data[place * BATCH_BYTES + 70] ^= 1
        (tmp_path / FIRST_LOG).write_bytes(data)
        before = contents(tmp_path)

        with pytest.raises(CorruptionError):
            log.truncate_to(7)

        assert {name: data for name, data in contents(tmp_path).items() if name.startswith("0")} == {
            name: data for name, data in before.items() if name.startswith("0")
        }
        assert log.log_end_offset == 10


def test_truncate_after_a_delete_keeps_the_start_if_possible(filled: Log) -> None:
    filled.delete_before(7)
    filled.truncate_to(12)

    assert (filled.log_start_offset, filled.log_end_offset) == (7, 12)
    assert offsets(filled.scan()) == [7, 8, 9, 10, 11]


@pytest.mark.id("truncation-start-without-room")
def test_truncating_the_first_batch_fails_the_log_if_the_disk_is_full(tmp_path: Path) -> None:
    """The log starts lower than the checkpoint on disk says: a crash would lose records appended there."""
    files = FaultyFiles(QuickFiles(), methods={"write"}, error=errno.ENOSPC, only="seeklog-checkpoint.tmp")
    with open_log(tmp_path, files=files, flush="batch") as log:
        log.append_many([Record(b"v")] * 3)
        log.delete_before(1)
        files.fail_at = files.calls + 2

        with pytest.raises(LogFailed):
            log.truncate_to(1)

        assert files.failures == 1
        with pytest.raises(LogFailed):
            log.append(b"new")

    with open_log(tmp_path) as log:
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)
        assert log.append(b"new") == 0


def test_flush_batch_shows_records_synced_by_a_truncation(tmp_path: Path) -> None:
    """A thread that waits for a sync finds the work done; nothing else would show the record until the next append."""
    with open_log(tmp_path, flush="batch") as log:
        log.append(b"shown")
        log.append_many([Record(b"kept")], wait=False)
        log.append_many([Record(b"cut")], wait=False)
        follower = Follower(log, 1, count=1)
        wait_until(lambda: log._partition.gate.waiting > 0, "a follower")

        log.truncate_to(2)
        assert log.high_watermark == log.recovery_point == 2
        assert follower.has_ended()
        assert follower.found == [1]
        with open_reader(tmp_path) as reader:
            assert values(reader.scan()) == [b"shown", b"kept"]


@pytest.mark.parametrize("offset", [-1, 6, 34, 10**9])
def test_truncate_outside_the_log_is_refused(filled: Log, offset: int) -> None:
    filled.delete_before(7)
    before = contents(filled.path)

    with pytest.raises(OffsetOutOfRange):
        filled.truncate_to(offset)

    assert contents(filled.path) == before


# ---------------------------------------------------------------- delete_before


@pytest.mark.id("delete-before")
@pytest.mark.parametrize("offset", range(34))
def test_delete_raises_the_start_and_drops_whole_segments(filled: Log, offset: int) -> None:
    deleted = filled.delete_before(offset)

    assert deleted == min(offset, 30) // 5
    assert filled.log_start_offset == offset
    assert offsets(filled.scan()) == list(range(offset, 33))
    assert offsets(filled.scan_reverse()) == list(range(32, offset - 1, -1))
    assert segment_bases(filled.path) == list(range(deleted * 5, 31, 5))
    assert filled.append(b"next") == 33


@pytest.mark.parametrize("is_clean", [True, False])
def test_raised_start_survives_a_reopen(tmp_path: Path, is_clean: bool) -> None:
    path = tmp_path / "log"
    with open_log(path, **SEVEN_SEGMENTS) as log:
        fill(log, 33)
        log.delete_before(12)
        if not is_clean:
            path = crashed_copy(path, tmp_path / "crashed")

    with open_log(path, **SEVEN_SEGMENTS) as log:
        assert log.log_start_offset == 12
        assert offsets(log.scan()) == list(range(12, 33))


def test_offsets_below_the_start_are_out_of_range(filled: Log) -> None:
    filled.delete_before(12)

    for call in (
        lambda: filled.read(11),
        lambda: filled.scan(11),
        lambda: filled.scan_reverse(11),
        lambda: filled.scan_arrow(11),
        lambda: filled.read_batches(11),
        lambda: filled.read_ranges(11),
        lambda: filled.seek(11),
        lambda: filled.follow(11),
        lambda: filled.read_uncommitted(11),
    ):
        with pytest.raises(OffsetOutOfRange, match="valid offsets are 12 to 32") as caught:
            call()
        assert (caught.value.offset, caught.value.log_start_offset, caught.value.log_end_offset) == (11, 12, 33)


def test_start_never_decreases(filled: Log) -> None:
    filled.delete_before(12)

    assert filled.delete_before(3) == 0
    assert filled.log_start_offset == 12


@pytest.mark.parametrize("offset", [-1, 34])
def test_delete_outside_the_log_is_refused(filled: Log, offset: int) -> None:
    before = contents(filled.path)

    with pytest.raises(OffsetOutOfRange):
        filled.delete_before(offset)

    assert contents(filled.path) == before


def test_nothing_above_the_high_watermark_is_deleted(tmp_path: Path) -> None:
    with open_log(tmp_path, high_watermark="manual") as log:
        fill(log, 5)
        log.advance_high_watermark(3)
        with pytest.raises(OffsetOutOfRange):
            log.delete_before(4)
        log.delete_before(3)

        assert log.log_start_offset == 3
