"""A disk that fails, files that vanish, and bytes that a writer changed during a read."""

from __future__ import annotations

import errno
import gc
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from log.workbench import (
    BATCH_BYTES,
    HEADER_BYTES,
    START_MS,
    FailingFiles,
    Meanwhile,
    PathFiles,
    QuickFiles,
    fill,
    offsets,
    open_log,
    open_reader,
    value_of,
    values,
)
from record.batches import Row, Sketch, with_field
from seeklog import Log
from seeklog.errors import CorruptBatch, CorruptionError, LogFailed, LostRecords, NotAccessible, OffsetOutOfRange
from seeklog.files import Buffer
from seeklog.log import reading

RECORDS = 10
SETTINGS = {"segment_bytes": 3 * BATCH_BYTES, "index_interval_bytes": 0, "max_open_segments": 2}


class TrapFiles(PathFiles):
    """A disk whose reads of logs, from a position on, run an action while `trap` is set."""

    def __init__(self, trap: Callable[[bytes], bytes] | None = None, *, start: int = 0) -> None:
        super().__init__()
        self.trap = trap
        self._start = start

    def read(self, handle: int, size: int, position: int) -> bytes:
        data = super().read(handle, size, position)
        if self.trap is None or position < self._start or not self._paths[handle].endswith(".log"):
            return data
        return self.trap(data)


def no_answer(_: bytes) -> bytes:
    raise OSError(errno.EIO, "on purpose")


@pytest.fixture
def files() -> TrapFiles:
    return TrapFiles()


@pytest.fixture(params=["writer", "reader"])
def log(request: pytest.FixtureRequest, tmp_path: Path, files: TrapFiles) -> Iterator[Log]:
    """A log of ten records in segments of three, opened for reading or for writing."""
    with open_log(tmp_path, **SETTINGS) as log:
        fill(log, RECORDS)
    with open_log(tmp_path, files=files, read_only=request.param == "reader", **SETTINGS) as log:
        yield log


WAYS: dict[str, Callable[[Log], object]] = {
    "read": lambda log: list(log.read(1)),
    "read of one": lambda log: list(log.read(1, max_records=1)),
    "read of the uncommitted": lambda log: list(log.read_uncommitted(1)),
    "scan": lambda log: list(log.scan(1)),
    "scan backwards": lambda log: list(log.scan_reverse()),
    "search by time": lambda log: log.offset_at_time(START_MS + 1000),
    "search by key": lambda log: log.latest_for_key(b"key"),
    "seek": lambda log: log.seek(1),
    "batches": lambda log: list(log.read_batches(1)),
}


@pytest.mark.parametrize("way", WAYS)
def test_unreadable_disk_raises_an_error_of_seeklog(log: Log, files: TrapFiles, way: str) -> None:
    files.trap = no_answer
    with pytest.raises(NotAccessible, match="on purpose"):
        WAYS[way](log)
    files.trap = None
    WAYS[way](log)


@pytest.mark.parametrize("way", [way for way in WAYS if way != "search by key"])
def test_vanished_file_is_reported_as_lost(log: Log, tmp_path: Path, way: str) -> None:
    log.seek(RECORDS - 1)  # so that the first file is not among the open ones
    log.seek(4)
    (tmp_path / f"{0:020d}.log").unlink()
    with pytest.raises((LostRecords, OffsetOutOfRange)):
        WAYS[way](log)


def test_bytes_that_change_during_a_read_are_read_again(tmp_path: Path, files: TrapFiles) -> None:
    """Goal: a reader cannot lock out a writer that cuts and extends the log; damage that stays is reported."""
    with open_log(tmp_path, **SETTINGS) as log:
        fill(log, RECORDS)
    with open_reader(tmp_path, files=files, **SETTINGS) as log:

        def once(data: bytes) -> bytes:
            files.trap = None
            return data[:70] + b"\xff" + data[71:]

        for way in (log.read, log.read_uncommitted):
            files.trap = once
            assert next(way(1)).value == value_of(1)
        files.trap = lambda data: data[:70] + b"\xff" + data[71:]
        for way in (log.read, log.read_uncommitted):
            with pytest.raises(CorruptionError, match="CRC"):
                way(1)


def test_reader_gets_records_appended_since_its_last_check(tmp_path: Path) -> None:
    with open_log(tmp_path, **SETTINGS) as log, open_reader(tmp_path, **SETTINGS) as reader:
        for number in range(RECORDS):
            assert list(reader.read(number)) == []
            fill(log, 1)
            assert values(reader.read(number)) == [value_of(number)]


# ---------------------------------------------------------------- in the process of the writer


def long_log(path: Path, files: Meanwhile, *, count: int = 2000) -> Log:
    """Return a log whose one segment is read in two chunks: 2,000 batches of 78 bytes are 156 KB."""
    log = open_log(path, files=files, index_interval_bytes=1 << 20)
    fill(log, count)
    return log


def test_append_during_a_scan_of_the_tail_is_not_a_loss(tmp_path: Path) -> None:
    """Goal: a segment that has grown since a read started does not look like a truncated file."""
    files = Meanwhile()
    with long_log(tmp_path, files) as log:
        files.after("read", ".log", lambda: files.after("read", ".log", lambda: log.append(b"one more")))

        assert offsets(log.scan()) == list(range(2000))
        assert files.is_over
        assert log.log_end_offset == 2001


@pytest.mark.parametrize("kept", [1400, 1300, 1262, 1261, 1260, 1259, 1258, 1200, 0])
def test_scan_ends_where_the_log_is_cut_during_it(tmp_path: Path, kept: int) -> None:
    """Goal: no deleted record, no error; the first chunk of 96 KiB, read before the cut, has 1,260 batches."""
    files = Meanwhile()
    with long_log(tmp_path, files) as log:
        files.after("read", ".log", lambda: files.before("read", ".log", lambda: log.truncate_to(kept)))

        assert offsets(log.scan()) == list(range(max(kept, 1260)))
        assert files.is_over


# ---------------------------------------------------------------- files that come and go


@pytest.mark.parametrize("has_seal", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_file_missing_at_every_try_is_reported_as_lost(tmp_path: Path, way: str, has_seal: bool) -> None:
    """Goal: a reader tries only as often as the file may have been replaced, and not forever."""
    with open_log(tmp_path, **SETTINGS) as log:
        fill(log, RECORDS)
    if not has_seal:
        (tmp_path / f"{0:020d}.seal").unlink()
    # The disk lists a file that is never there, as if it were replaced again and again.
    files = FailingFiles("open", f"{0:020d}.log", error=errno.ENOENT)
    with open_reader(tmp_path, files=files, **SETTINGS) as log:
        files.fails = True
        with pytest.raises(LostRecords, match="is missing"):
            WAYS[way](log)


WAYS_FROM: dict[str, Callable[[Log, int], object]] = {
    "read": lambda log, offset: list(log.read(offset)),
    "scan": lambda log, offset: list(log.scan(offset)),
    "seek": lambda log, offset: log.seek(offset),
    "batches": lambda log, offset: list(log.read_batches(offset)),
}


@pytest.mark.parametrize("way", WAYS_FROM)
def test_vanished_middle_segment_is_reported_as_lost(log: Log, tmp_path: Path, way: str) -> None:
    """Goal: the segment before it ends before the offset, so nothing has replaced it."""
    log.seek(RECORDS - 1)
    log.seek(0)
    (tmp_path / f"{3:020d}.log").unlink()
    with pytest.raises(LostRecords, match="is missing"):
        WAYS_FROM[way](log, 4)


def test_records_deleted_between_two_tries_are_out_of_range(tmp_path: Path) -> None:
    """Goal: a reader that reads again, because the bytes were changing, does not continue after a gap."""
    files = Meanwhile()
    with open_log(tmp_path, **SETTINGS) as writer:
        fill(writer, RECORDS)
        with open_reader(tmp_path, files=files, **SETTINGS) as reader:
            first = tmp_path / f"{0:020d}.log"
            reader.seek(1)

            def rewrite() -> None:
                data = first.read_bytes()
                first.write_bytes(data[:-1] + b"\xff")
                writer.delete_before(6)

            files.before("read", ".log", rewrite)
            with pytest.raises(OffsetOutOfRange, match="offset 2"):
                reader.read(2)
            assert files.is_over


def test_view_does_not_continue_after_an_earlier_deletion(tmp_path: Path) -> None:
    with open_log(tmp_path, **SETTINGS) as log:
        fill(log, RECORDS)
        log.delete_before(6)

        assert offsets(reading.read_records(log._source.view, 6, RECORDS, 10, 1 << 20, 1 << 20)) == [6, 7, 8, 9]
        with pytest.raises(FileNotFoundError):
            reading.read_records(log._source.view, 5, RECORDS, 10, 1 << 20, 1 << 20)


@pytest.mark.parametrize("is_own", [True, False])
def test_reverse_scan_ends_at_the_current_start(tmp_path: Path, is_own: bool) -> None:
    """Goal: compaction replaces the segments before it, and retention deletes the first; the rest is read."""
    settings = {**SETTINGS, "cleanup_policy": "compact", "segment_bytes": 3 * (BATCH_BYTES + 4)}
    with open_log(tmp_path, **settings) as writer:
        for number in range(12):
            writer.append(value_of(number), key=b"same" if number % 3 == 0 else b"%04d" % number)
        writer.flush()
        with open_reader(tmp_path, **settings) as reader:
            backwards = (writer if is_own else reader).scan_reverse()
            seen = [next(backwards).offset]
            assert writer.compact().removed_records == 2
            assert writer.delete_before(3) == 1

            seen += offsets(backwards)

    # Only the newest records of the one key are left: the last compacted one, and the one not compacted.
    assert seen == [11, 10, 9, 8, 7, 6, 5, 4]


def test_view_of_a_closed_log_reports_a_missing_file(tmp_path: Path) -> None:
    """Goal: a closed log cannot find the file that replaced it."""
    log = open_log(tmp_path, **SETTINGS)
    fill(log, RECORDS)
    log.flush()
    view = log._source.view
    log.close()
    del log
    gc.collect()
    (tmp_path / f"{3:020d}.log").unlink()

    assert offsets(reading.read_records(view, 0, 3, 10, 1 << 20, 1 << 20)) == [0, 1, 2]
    with pytest.raises(FileNotFoundError):
        reading.seek(view, 4)


def test_full_and_unreadable_disk_fails_the_log(tmp_path: Path) -> None:
    """Goal: an append may be refused and repeated only if the file is known to be unchanged."""

    class Unsure(QuickFiles):
        is_full = False

        def write(self, handle: int, data: Buffer, position: int) -> None:
            if self.is_full:
                raise OSError(errno.ENOSPC, "no room")
            super().write(handle, data, position)

        def size(self, handle: int) -> int:
            if self.is_full:
                raise OSError(errno.EIO, "on purpose")
            return super().size(handle)

    files = Unsure()
    with open_log(tmp_path, files=files) as log:
        fill(log, 3)
        files.is_full = True
        with pytest.raises(LogFailed, match="no room"):
            log.append(b"v")
        files.is_full = False
        with pytest.raises(LogFailed):
            log.append(b"v")
    with open_log(tmp_path) as log:
        assert offsets(log.scan()) == [0, 1, 2]


# ---------------------------------------------------------------- index entries that their batches do not prove


@pytest.mark.parametrize("read_only", [True, False])
def test_batch_that_keeps_changing_is_reported_after_an_index_rebuild(tmp_path: Path, read_only: bool) -> None:
    settings = {"index_interval_bytes": 0}
    with open_log(tmp_path, **settings) as log:
        fill(log, RECORDS)
    files = TrapFiles(lambda data: bytes(len(data)), start=1)
    with (
        open_log(tmp_path, files=files, read_only=read_only, **settings) as log,
        pytest.raises(CorruptBatch, match="changes while it is read") as caught,
    ):
        log.read(5)
    assert caught.value.path == str(tmp_path / f"{0:020d}.log")


def test_time_is_found_without_any_provable_index_entry(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Goal: whatever the time index says, all records from the start of the segment on are then checked."""

    def with_other_time(data: bytes) -> bytes:
        return with_field(data, "max_timestamp", START_MS + 10**6) if len(data) == HEADER_BYTES else data

    settings = {"index_interval_bytes": 0}
    with open_log(tmp_path, **settings) as log:
        fill(log, RECORDS)
    with open_log(tmp_path, files=TrapFiles(with_other_time, start=1), **settings) as log:
        for number in range(RECORDS):
            assert log.offset_at_time(START_MS + number * 1000) == number
    assert "a time entry does not name the batch" in caplog.text


@pytest.mark.parametrize("read_only", [True, False])
def test_time_entry_with_an_offset_in_a_gap_is_harmless(tmp_path: Path, read_only: bool) -> None:
    """Goal: in a broker's log a segment may end before the next one starts, and no seal proves its index."""
    held = {0: range(5), 10: range(10, 12)}
    for base, numbers in held.items():
        batches = [Sketch([Row(timestamp_ms=START_MS + n)], base_offset=n).encode() for n in numbers]
        (tmp_path / f"{base:020d}.log").write_bytes(b"".join(batches))
        (tmp_path / f"{base:020d}.index").write_bytes(b"")
        (tmp_path / f"{base:020d}.timeindex").write_bytes(struct.pack(">qi", START_MS + base + 1, 7))

    with open_log(tmp_path, read_only=read_only) as log:
        for number, found in {0: 0, 1: 1, 2: 2, 4: 4, 5: 10, 10: 10, 11: 11, 12: None}.items():
            assert log.offset_at_time(START_MS + number) == found


def test_seek_over_an_invalid_header_gives_its_position(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        fill(log, RECORDS)
        path = tmp_path / f"{0:020d}.log"
        data = bytearray(path.read_bytes())
        data[2 * BATCH_BYTES + 16] = 9  # the magic
        path.write_bytes(data)

        assert log.seek(1).position == BATCH_BYTES
        with pytest.raises(CorruptionError) as caught:
            log.seek(5)
    assert (caught.value.path, caught.value.position) == (str(path), 2 * BATCH_BYTES)
