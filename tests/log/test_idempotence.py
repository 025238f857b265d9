"""Producers that number their records: each batch is written once, through rolls, reopens, crashes and truncations."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crash.faulty import FaultyFiles
from log.workbench import (
    BATCH_BYTES,
    START_MS,
    CountingFiles,
    FailingFiles,
    FakeClock,
    PathFiles,
    QuickFiles,
    contents,
    crashed_copy,
    fill,
    open_log,
    segment_bases,
    value_of,
    values,
)
from seeklog import Log, ProducerSequence, Record, names
from seeklog.errors import DiskFull, DuplicateSequence, LogFailed, OutOfOrderSequence, ProducerFenced, UsageError
from seeklog.log.side.checkpoint import read_checkpoint, write_checkpoint
from seeklog.log.side.producer_snapshot import decode_snapshot
from seeklog.record.batch import encode_batch

DAY_MS = 24 * 3600 * 1000
# A header and two records: three batches in a segment.
SEGMENT = {"segment_bytes": 300}


def sequence_at(sequence: int, *, producer_id: int = 7, epoch: int = 0) -> ProducerSequence:
    return ProducerSequence(producer_id=producer_id, epoch=epoch, sequence=sequence)


def records(sequence: int, count: int = 2) -> list[Record]:
    return [Record(value_of(number), timestamp_ms=START_MS) for number in range(sequence, sequence + count)]


def append(log: Log, sequence: int, count: int = 2, *, producer_id: int = 7, epoch: int = 0) -> range:
    """Append records whose values contain their sequences."""
    return log.append_many(
        records(sequence, count), producer=sequence_at(sequence, producer_id=producer_id, epoch=epoch)
    )


def raw_of(sequence: int, count: int = 2, *, producer_id: int = 7, epoch: int = 0, **settings: Any) -> bytes:
    return encode_batch(
        records(sequence, count), producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **settings
    )


def snapshots(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.snapshot"))


class Watching(PathFiles):
    """The real disk, which records the suffixes of the files that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def read_file(self, path: str) -> bytes:
        self.seen.add(Path(path).suffix)
        return super().read_file(path)

    def read(self, handle: int, size: int, position: int) -> bytes:
        self.seen.add(Path(self._paths[handle]).suffix)
        return super().read(handle, size, position)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log") as log:
        yield log


# Appending


@pytest.mark.id("producer-repeats-a-batch")
@pytest.mark.parametrize("codec", ["none", "zstd"])
@pytest.mark.parametrize("flush", ["os", "batch"])
def test_repeated_batch_is_written_once_and_gets_old_offsets(tmp_path: Path, codec: str, flush: str) -> None:
    with open_log(tmp_path, compression_type=codec, flush=flush) as log:
        log.append(b"somebody else's")
        assert append(log, 0) == range(1, 3)
        log.append(b"somebody else's")
        assert append(log, 2) == range(4, 6)
        before = contents(tmp_path)

        assert append(log, 0) == range(1, 3)
        assert append(log, 2) == range(4, 6)
        assert log.append_batches(raw_of(2)) == range(4, 6)
        assert contents(tmp_path) == before
        assert log.log_end_offset == 6
        assert append(log, 4) == range(6, 8)


def test_single_records_are_numbered(log: Log) -> None:
    assert log.append(b"a", producer=sequence_at(0)) == 0
    assert log.append(b"a", producer=sequence_at(0)) == 0
    assert log.append(b"b", producer=sequence_at(1), key=b"k", timestamp_ms=5) == 1
    assert [(record.key, record.value) for record in log.scan()] == [(None, b"a"), (b"k", b"b")]


def test_batch_header_contains_producer(log: Log) -> None:
    append(log, 5, producer_id=2**62, epoch=3)
    (batch,) = log.read_batches(0)
    header = batch.header
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (2**62, 3, 5)


@pytest.mark.id("producer-refusals")
@pytest.mark.parametrize(
    ("sequence", "epoch", "expected"),
    [(6, 1, OutOfOrderSequence), (1, 1, DuplicateSequence), (0, 0, ProducerFenced), (4, 2, OutOfOrderSequence)],
)
def test_refused_batch_changes_nothing(tmp_path: Path, sequence: int, epoch: int, expected: type[Exception]) -> None:
    with open_log(tmp_path, **SEGMENT) as log:
        append(log, 0, epoch=1)
        append(log, 2, epoch=1)
        append(log, 4, epoch=1, count=1)
        before = contents(tmp_path)
        for again in (
            lambda: append(log, sequence, count=1, epoch=epoch),
            lambda: log.append_batches(raw_of(sequence, 1, epoch=epoch)),
        ):
            with pytest.raises(expected):
                again()
        assert contents(tmp_path) == before
        assert log.log_end_offset == 5


def test_one_append_may_have_batches_of_many_producers(log: Log) -> None:
    raw = raw_of(0) + raw_of(0, 3, producer_id=8) + raw_of(2) + encode_batch(records(0))
    assert log.append_batches(raw) == range(9)
    assert log.next_sequence(7) == sequence_at(4)
    assert log.next_sequence(8) == sequence_at(3, producer_id=8)
    assert log.next_sequence(9) is None
    with pytest.raises(DuplicateSequence):
        log.append_batches(raw)


def test_batch_refused_by_full_disk_may_be_sent_again(tmp_path: Path) -> None:
    files = FaultyFiles(QuickFiles(), methods={"write"}, error=errno.ENOSPC, only=".log")
    with open_log(tmp_path, files=files) as log:
        append(log, 0)
        files.fail_at = files.calls + 1
        with pytest.raises(DiskFull):
            append(log, 2)
        files.heal()
        assert append(log, 2) == range(2, 4)
        assert append(log, 2) == range(2, 4)


def test_batch_that_is_too_large_is_not_remembered(tmp_path: Path) -> None:
    with open_log(tmp_path, max_message_bytes=200) as log:
        with pytest.raises(UsageError, match="200"):
            append(log, 0, count=20)
        assert log.next_sequence(7) is None
        append(log, 0)


def test_append_time_decides_expiration_if_log_stamps_records(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, message_timestamp_type="LogAppendTime") as log:
        clock.advance(5000)
        log.append_batches(raw_of(0))
    assert [entry.timestamp_ms for entry in snapshot_at(tmp_path, 2)] == [START_MS + 5000]


def snapshot_at(directory: Path, offset: int) -> list[Any]:
    entries = decode_snapshot((directory / f"{offset:020d}.snapshot").read_bytes())
    assert entries is not None
    return entries


# Closing, rolling, opening


def test_log_without_producers_neither_writes_nor_reads_snapshots(tmp_path: Path) -> None:
    with open_log(tmp_path, **SEGMENT) as log:
        fill(log, 30)
    assert not snapshots(tmp_path)

    files = Watching()
    with open_log(tmp_path, files=files, **SEGMENT) as log:
        assert log.log_end_offset == 30
    assert not files.seen & {".log", ".snapshot"}


def test_snapshot_is_written_on_roll_and_on_close(tmp_path: Path) -> None:
    with open_log(tmp_path, **SEGMENT) as log:
        for sequence in range(0, 16, 2):
            append(log, sequence)
        log.flush()
        bases = segment_bases(tmp_path)
        assert len(bases) > 2
        assert snapshots(tmp_path) == bases[1:]
        assert snapshot_at(tmp_path, bases[1])[0].last_sequence == bases[1] - 1
    assert snapshots(tmp_path) == [*bases[1:], 16]
    with open_log(tmp_path, **SEGMENT) as log:
        append(log, 16, count=1)
    assert snapshots(tmp_path) == [*segment_bases(tmp_path)[1:], 17], "the snapshot in between is obsolete"


@pytest.mark.id("producer-known-after-open")
def test_clean_open_reads_one_snapshot_and_no_batch(tmp_path: Path) -> None:
    with open_log(tmp_path, **SEGMENT) as log:
        for sequence in range(0, 16, 2):
            append(log, sequence)

    files = Watching()
    with open_log(tmp_path, files=files, **SEGMENT) as log:
        assert log.next_sequence(7) == sequence_at(16)
        assert append(log, 14) == range(14, 16), "the last batch is in the snapshot"
        assert ".log" not in files.seen
        assert ".snapshot" in files.seen


def test_close_without_changes_writes_nothing(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        append(log, 0)
    files = CountingFiles()
    with open_log(tmp_path, files=files) as log:
        assert append(log, 0) == range(2)
    assert not [name for operation, name in files.diary if operation == "rename"]


@pytest.mark.parametrize("rolls", [False, True])
@pytest.mark.parametrize("flushes", [False, True])
def test_producers_are_known_from_batches_after_crash(tmp_path: Path, rolls: bool, flushes: bool) -> None:
    settings = SEGMENT if rolls else {}
    with open_log(tmp_path / "log", **settings) as log:
        for sequence in range(0, 16, 2):
            append(log, sequence)
            append(log, 0, producer_id=100 + sequence)
            if flushes and sequence == 8:
                log.flush()
        left = crashed_copy(tmp_path / "log", tmp_path / "left")
    with open_log(left, **settings) as log:
        assert append(log, 14) == range(28, 30)
        assert append(log, 0, producer_id=114) == range(30, 32)
        assert append(log, 0, producer_id=100) == range(2, 4)
        with pytest.raises(OutOfOrderSequence):
            append(log, 18)
        assert append(log, 16) == range(32, 34)


@pytest.mark.id("producer-snapshot-damaged")
@pytest.mark.parametrize("damage", [b"", b"\0" * 56, b"not a snapshot"], ids=["empty", "zeros", "foreign"])
def test_damaged_snapshot_is_skipped_and_logged_once(
    tmp_path: Path, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with open_log(tmp_path, **SEGMENT) as log:
        for sequence in range(0, 16, 2):
            append(log, sequence)
    for path in tmp_path.glob("*.snapshot"):
        path.write_bytes(damage)
    with caplog.at_level(logging.WARNING), open_log(tmp_path, **SEGMENT) as log:
        assert log.recovery.clean
        assert log.next_sequence(7) == sequence_at(16)
        assert append(log, 8) == range(8, 10), "the batches show more than a snapshot holds"
        append(log, 16)
    caplog.clear()
    with caplog.at_level(logging.WARNING), open_log(tmp_path, **SEGMENT) as log:
        assert log.next_sequence(7) == sequence_at(18)
    assert not caplog.records


@pytest.mark.id("producer-snapshots-lost")
def test_lost_snapshots_are_replaced_by_batches_in_log(tmp_path: Path) -> None:
    with open_log(tmp_path, **SEGMENT) as log:
        for sequence in range(0, 16, 2):
            append(log, sequence)
        fill(log, 9)
    for path in tmp_path.glob("*.snapshot"):
        path.unlink()
    with open_log(tmp_path, **SEGMENT) as log:
        assert append(log, 14) == range(14, 16)


def test_log_is_read_once_if_checkpoint_does_not_mention_producers(tmp_path: Path) -> None:
    """Goal: an earlier seeklog may have appended batches of producers without keeping track."""
    with open_log(tmp_path, **SEGMENT) as log:
        for sequence in range(0, 16, 2):
            append(log, sequence)
    for path in tmp_path.glob("*.snapshot"):
        path.unlink()
    checkpoint = read_checkpoint(QuickFiles(), str(tmp_path))
    assert checkpoint is not None
    assert checkpoint.has_producers
    write_checkpoint(QuickFiles(), str(tmp_path), replace(checkpoint, has_producers=None))
    with open_log(tmp_path, **SEGMENT) as log:
        assert append(log, 14) == range(14, 16)
    known = read_checkpoint(QuickFiles(), str(tmp_path))
    assert known is not None
    assert known.has_producers


def test_idle_producer_and_its_snapshot_expire(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock) as log:
        append(log, 0)
        clock.advance(DAY_MS - 1)
        with pytest.raises(OutOfOrderSequence):
            append(log, 8)
    clock.advance(1)
    with open_log(tmp_path, clock=clock) as log:
        assert log.next_sequence(7) is None
        log.append(b"on")
    checkpoint = read_checkpoint(QuickFiles(), str(tmp_path))
    assert checkpoint is not None
    assert checkpoint.has_producers is False
    with open_log(tmp_path, clock=clock) as log:
        assert append(log, 8) == range(3, 5)


def test_expiration_of_producers_is_configurable(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, producer_id_expiration_ms=1000) as log:
        append(log, 0)
        clock.advance(1000)
        append(log, 8)


# Deleting and truncating


@pytest.mark.parametrize("end", range(0, 16, 2))
def test_truncated_log_knows_producers_as_of_its_new_end(tmp_path: Path, end: int) -> None:
    home = tmp_path / "log"
    with open_log(home, **SEGMENT) as log:
        for sequence in range(0, 16, 2):
            append(log, sequence)
        log.flush()
        assert log.truncate_to(end) == end
        assert log.next_sequence(7) == (sequence_at(end) if end else None)
        assert [offset for offset in snapshots(home) if offset > end] == []
        if end:
            assert append(log, end - 2) == range(end - 2, end)
        assert append(log, end, epoch=1 if end == 0 else 0) == range(end, end + 2)
        left = crashed_copy(home, tmp_path / "left")
    with open_log(left, **SEGMENT) as log:
        assert log.next_sequence(7) == sequence_at(end + 2, epoch=1 if end == 0 else 0)


def test_producers_outlive_their_records(tmp_path: Path) -> None:
    """Goal: retention deletes records, but not the state that prevents their repetition."""
    home = tmp_path / "log"
    with open_log(home, **SEGMENT) as log:
        for sequence in range(0, 8, 2):
            append(log, sequence)
        fill(log, 12)
        log.delete_before(log.log_end_offset)
        assert len(segment_bases(home)) == 1
        assert append(log, 6) == range(6, 8)
        left = crashed_copy(home, tmp_path / "left")
    for directory in (home, left):
        with open_log(directory, **SEGMENT) as log:
            assert append(log, 6) == range(6, 8)
            assert append(log, 8).start >= 20


@pytest.mark.id("producer-known-after-emptying")
@pytest.mark.parametrize("way", ["deleted", "cut"])
def test_producer_is_known_after_log_was_emptied_rolled_and_crashed(tmp_path: Path, way: str) -> None:
    """The segment with the producer's records was the active one when everything was deleted, so nothing was below it.

    After the next roll it is wholly below the log start offset, and recovery drops it unread.
    """
    home = tmp_path / "log"
    with open_log(home, **SEGMENT) as log:
        append(log, 0)
        if way == "deleted":
            log.delete_before(2)
        else:
            append(log, 2)
            log.delete_before(2)
            log.truncate_to(2)
        log.append(bytes(SEGMENT["segment_bytes"] - 100))
        assert segment_bases(home) == [0, 2]
        left = crashed_copy(home, tmp_path / "left")
    with open_log(left, **SEGMENT) as log:
        assert append(log, 0) == range(2)


def test_emptied_log_does_not_roll_without_room_for_snapshot(tmp_path: Path) -> None:
    files = FaultyFiles(QuickFiles(), methods={"write"}, error=errno.ENOSPC, only=".snapshot.tmp")
    with open_log(tmp_path, files=files, **SEGMENT) as log:
        append(log, 0)
        log.delete_before(log.log_end_offset)
        files.fail_at = files.calls + 1
        large = bytes(SEGMENT["segment_bytes"] - 100)

        with pytest.raises(DiskFull):
            log.append(large)

        assert segment_bases(tmp_path) == [0]
        assert log.append(large) == 2
        assert append(log, 0) == range(2)


def test_snapshots_of_deleted_segments_are_removed_except_newest(tmp_path: Path) -> None:
    home = tmp_path / "log"
    files = FaultyFiles(QuickFiles(), methods={"write"}, error=errno.ENOSPC, only=".snapshot.tmp", lasting=True)
    with open_log(home, files=files, **SEGMENT) as log:
        for sequence in range(0, 8, 2):
            append(log, sequence)
        log.flush()
        (first,) = snapshots(home)
        files.fail_at = files.calls + 1
        fill(log, 12)
        log.delete_before(log.log_end_offset)
        assert snapshots(home) == [first]
        assert segment_bases(home)[0] > first
        left = crashed_copy(home, tmp_path / "left")
    with open_log(left, **SEGMENT) as log:
        assert log.next_sequence(7) == sequence_at(first), "the state of the last snapshot that found room"
    with open_log(home, **SEGMENT) as log:
        assert log.next_sequence(7) is not None


def test_batch_may_be_repeated_after_failed_log_is_reopened(tmp_path: Path) -> None:
    """Goal: a producer that does not know whether a batch was written sends it again, and it is in the log once."""
    files = FaultyFiles(QuickFiles(), methods={"sync"}, error=errno.EIO, only=".log")
    with open_log(tmp_path, files=files, flush="batch") as log:
        append(log, 0)
        files.fail_at = files.calls + 1
        with pytest.raises(LogFailed):
            append(log, 2)
    with open_log(tmp_path, flush="batch") as log:
        assert append(log, 2) == range(2, 4)
        assert values(log.scan()) == [value_of(number) for number in range(4)]


def test_last_offsets_of_producers_are_known(log: Log) -> None:
    append(log, 0)
    append(log, 0, producer_id=8)
    append(log, 2)
    assert log._partition.producers.last_offsets() == {7: 5, 8: 3}


def test_nothing_is_deleted_if_producer_snapshot_cannot_be_written(tmp_path: Path) -> None:
    """Goal: if the snapshot of the roll was lost, only the segments to be deleted contain the producer."""
    files = FailingFiles("write", names.SNAPSHOT, error=errno.EIO)
    settings = {"segment_bytes": 3 * BATCH_BYTES}
    with open_log(tmp_path, files=files, **settings) as log:
        log.append_many(records(0, 1), producer=sequence_at(0))
        fill(log, 11)
    for path in tmp_path.glob(f"*{names.SNAPSHOT}"):
        path.unlink()
    with open_log(tmp_path, files=files, **settings) as log:
        files.fails = True
        with pytest.raises(LogFailed, match="writing a snapshot of producers"):
            log.delete_before(8)
        files.fails = False
    with open_log(tmp_path, files=files, **settings) as log:
        assert (log.log_start_offset, log.next_sequence(7)) == (0, sequence_at(1))
        assert log.delete_before(8) == 2
        assert log.next_sequence(7) == sequence_at(1)
    with open_log(tmp_path, files=files, **settings) as log:
        assert log.next_sequence(7) == sequence_at(1)


def test_emptied_log_rolls_without_reading_deleted_records(tmp_path: Path) -> None:
    """Goal: deleted records may be damaged, and the producer state is kept all the same."""
    with open_log(tmp_path / "log", **SEGMENT) as log:
        append(log, 0)
        log.delete_before(2)
        path = tmp_path / "log" / f"{0:020d}.log"
        data = bytearray(path.read_bytes())
        data[16] ^= 4  # the batch's version
        path.write_bytes(data)
        assert log.append(bytes(220)) == 2
        path = crashed_copy(tmp_path / "log", tmp_path / "crashed")
    with open_log(path, **SEGMENT) as log:
        assert append(log, 0) == range(2)
