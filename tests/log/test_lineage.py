"""The requirements of the five documents behind seeklog, row by row. docs/lineage.md maps every row to its test.

The documents: S0 a sparse offset index, S1 the offset index of `distributedlog`, S2 a single-partition log in Python,
S3 a commit log in Go, S4 the storage layer of mlog. Rows that another suite tests better are not repeated here.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import threading
from pathlib import Path

import pytest

from log.workbench import value_of
from seeklog import Log, LogConfig, LogReader, Record
from seeklog.clients.log_writer import LogWriter
from seeklog.errors import CorruptBatch, LogClosed, NotALog, OffsetOutOfRange, RecordTooLarge, SeeklogError
from seeklog.files import Buffer, OsFiles
from seeklog.log.check import rebuild_index, recover_or_rebuild, validate_index
from seeklog.log.index import OFFSET_ENTRY, OffsetIndex
from seeklog.record.batch import encode_batch

STAMP_MS = 1_700_000_000_000
# A batch header (61) and a record of ten bytes: seven one-byte fields and the value.
BATCH_BYTES = 61 + 7 + 10
FIRST_LOG = "00000000000000000000.log"
FIRST_INDEX = "00000000000000000000.index"


class WatchedFiles(OsFiles):
    """The real disk, which counts reads, writes and syncs."""

    def __init__(self) -> None:
        self.writes: list[int] = []
        self.reads: list[int] = []
        self.syncs = 0

    def write(self, handle: int, data: Buffer, position: int) -> None:
        self.writes.append(len(data))
        super().write(handle, data, position)

    def read(self, handle: int, size: int, position: int) -> bytes:
        data = super().read(handle, size, position)
        self.reads.append(len(data))
        return data

    def sync(self, handle: int) -> None:
        self.syncs += 1
        super().sync(handle)


def fill(log: Log, count: int, *, start: int = 0) -> None:
    """Append `count` one-record batches of BATCH_BYTES, a second apart."""
    for number in range(start, start + count):
        log.append(value_of(number), timestamp_ms=STAMP_MS + number * 1000)


def make_log(path: Path, count: int, *, config: LogConfig | None = None) -> None:
    with Log(path, config=config or LogConfig(flush="os")) as log:
        fill(log, count)


def offset_entries(path: Path) -> list[tuple[int, int]]:
    return list(struct.iter_unpack(">ii", path.read_bytes()))


def segment_files(path: Path, suffix: str = ".log") -> list[Path]:
    return sorted(path.glob(f"*{suffix}"))


# ---------------------------------------------------------------- S0: a sparse offset index


@pytest.mark.id("s0-interval-of-records")
def test_s0_record_interval_indexes_every_nth_record(tmp_path: Path) -> None:
    """By bytes alone there would be no entry: 40 batches of 78 bytes are below 4096."""
    make_log(tmp_path, 40, config=LogConfig(flush="os", index_interval_records=4))

    entries = offset_entries(tmp_path / FIRST_INDEX)

    assert entries == [(offset, offset * BATCH_BYTES) for offset in range(4, 40, 4)]


@pytest.mark.id("s0-index-never-stale")
def test_s0_index_is_updated_by_every_append(tmp_path: Path) -> None:
    """After each append, before any close, every offset is found within one interval."""
    with Log(tmp_path, config=LogConfig(flush="os", index_interval_bytes=2 * BATCH_BYTES)) as log:
        for number in range(60):
            fill(log, 1, start=number)
            assert log.seek(number).scanned_bytes <= 4 * BATCH_BYTES


@pytest.mark.id("s0-seek-scans-one-interval")
@pytest.mark.parametrize("interval", [0, 1, 500, 4096])
def test_s0_seek_scans_at_most_one_interval(tmp_path: Path, interval: int) -> None:
    with Log(tmp_path, config=LogConfig(flush="os", index_interval_bytes=interval)) as log:
        fill(log, 300)
        for offset in range(300):
            found = log.seek(offset)

            assert found.segment == 0
            assert found.position == offset * BATCH_BYTES
            # An entry names the first batch that starts after more than an interval. So a seek scans the interval,
            # the batch that crossed it, and the wanted one.
            assert found.scanned_bytes <= interval + 2 * BATCH_BYTES


@pytest.mark.id("s0-first-and-last")
def test_s0_first_and_last_offset_are_found(tmp_path: Path) -> None:
    with Log(tmp_path, config=LogConfig(flush="os")) as log:
        fill(log, 100)

        assert next(log.read(0)).value == value_of(0)
        assert log.seek(0).position == 0
        assert next(log.read(99)).value == value_of(99)
        assert log.seek(99).position == 99 * BATCH_BYTES


@pytest.mark.id("s0-beyond-the-tail")
@pytest.mark.parametrize("offset", [-1, 100, 101, 2**62])
def test_s0_offset_beyond_tail_is_refused_before_index_is_read(tmp_path: Path, offset: int) -> None:
    files = WatchedFiles()
    with Log(tmp_path, config=LogConfig(flush="os"), files=files) as log:
        fill(log, 100)
        files.reads.clear()

        with pytest.raises(OffsetOutOfRange) as caught:
            log.seek(offset)

    assert (caught.value.offset, caught.value.log_start_offset, caught.value.log_end_offset) == (
        offset,
        0,
        100,
    )
    assert "0 to 99" in str(caught.value)
    assert files.reads == []


@pytest.mark.id("s0-empty-log")
@pytest.mark.parametrize("offset", [0, 1, -1])
def test_s0_seek_in_empty_log_is_refused(tmp_path: Path, offset: int) -> None:
    with Log(tmp_path) as log, pytest.raises(OffsetOutOfRange, match="empty"):
        log.seek(offset)


@pytest.mark.id("s0-index-per-segment")
def test_s0_every_segment_has_its_own_index(tmp_path: Path) -> None:
    config = LogConfig(flush="os", segment_bytes=10 * BATCH_BYTES, index_interval_bytes=0)
    make_log(tmp_path, 35, config=config)

    for path in segment_files(tmp_path):
        base, count = int(path.stem), path.stat().st_size // BATCH_BYTES
        # With an interval of 0 every batch but the first has an entry, relative to its own segment.
        assert offset_entries(path.with_suffix(".index")) == [(n, n * BATCH_BYTES) for n in range(1, count)]
        assert base % 10 == 0


def open_in_this_process(path: Path) -> int:
    """Count the open files and maps of this process below a directory."""
    handles = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the listing's own file descriptor
            handles.append(str(link.readlink()))
    maps = Path("/proc/self/maps").read_text().splitlines()
    return sum(str(path) in line for line in [*handles, *maps])


@pytest.mark.id("s0-old-indexes-released")
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="counts open files in /proc; run on Linux")
def test_s0_old_indexes_are_released_when_many_segments_are_read(tmp_path: Path) -> None:
    make_log(tmp_path, 300, config=LogConfig(flush="os", segment_bytes=3 * BATCH_BYTES))

    with LogReader(tmp_path, config=LogConfig(max_open_segments=4)) as log:
        before = open_in_this_process(tmp_path)
        for offset in range(300):
            assert next(log.read(offset, max_records=1)).offset == offset
        # Three files each: the log and its two indexes.
        assert open_in_this_process(tmp_path) - before <= 4 * 3


# ---------------------------------------------------------------- S1: the offset index of distributedlog


@pytest.mark.id("s1-index-size")
def test_s1_index_takes_a_fifth_of_a_percent_of_its_log(tmp_path: Path) -> None:
    """8 bytes for 4096 of log are 0.195 %. Batches of 16 KB would need even less."""
    with Log(tmp_path, config=LogConfig(flush="os")) as log:
        for _ in range(100):
            log.append_many([Record(bytes(90), timestamp_ms=STAMP_MS)] * 40)
            log.append(bytes(10), timestamp_ms=STAMP_MS)

    log_size = (tmp_path / FIRST_LOG).stat().st_size
    index_size = (tmp_path / FIRST_INDEX).stat().st_size

    assert log_size > 400_000
    assert 0 < index_size / log_size <= 8 / 4096


@pytest.mark.id("s1-what-is-mapped")
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads maps from /proc; run on Linux")
def test_s1_only_key_indexes_are_mapped_and_only_for_reading(tmp_path: Path) -> None:
    """A broker truncates logs and indexes in place, and a read beyond the end of a map kills the process."""
    config = LogConfig(flush="os", segment_bytes=10 * BATCH_BYTES, index_interval_bytes=0)
    with Log(tmp_path, config=config) as log:
        fill(log, 35)
        log.flush()
        for offset in range(35):
            next(log.read(offset, max_records=1))
        log.latest_for_key(b"nobody has this key")
        maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if str(tmp_path) in line]

    assert {Path(fields[-1]).name for fields in maps} == {f"{base:020d}.keyindex" for base in (0, 10, 20)}
    assert all(fields[1].startswith("r--") for fields in maps)


@pytest.mark.id("s1-late-entry-checked")
def test_s1_entry_far_after_first_ten_is_checked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The document's `validate_index` checks ten entries. Here the 51st is wrong, and reads are right."""
    make_log(tmp_path, 200, config=LogConfig(flush="os", index_interval_bytes=0))
    index = bytearray((tmp_path / FIRST_INDEX).read_bytes())
    struct.pack_into(">i", index, 50 * 8 + 4, 7)
    (tmp_path / FIRST_INDEX).write_bytes(index)

    with caplog.at_level(logging.DEBUG, logger="seeklog"), LogReader(tmp_path) as log:
        for offset in range(200):
            assert next(log.read(offset)).value == value_of(offset)

    assert any(record.name.startswith("seeklog") and "index" in record.message for record in caplog.records)


@pytest.mark.id("s1-every-entry-checked")
def test_s1_validation_checks_every_entry(tmp_path: Path) -> None:
    """Each entry in turn points one batch too far; the last one points past the end of the log."""
    make_log(tmp_path, 100, config=LogConfig(flush="os", index_interval_bytes=0))
    index = tmp_path / FIRST_INDEX
    whole = index.read_bytes()
    assert validate_index(tmp_path / FIRST_LOG) == []

    for number in range(len(whole) // 8):
        wrong = bytearray(whole)
        struct.pack_into(">i", wrong, number * 8 + 4, (number + 2) * BATCH_BYTES)
        index.write_bytes(wrong)
        assert number in [problem.entry for problem in validate_index(tmp_path / FIRST_LOG)]


@pytest.mark.id("s1-index-rebuilt")
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "empty", "torn", "foreign"])
def test_s1_recovered_or_rebuilt_index_has_its_old_bytes(tmp_path: Path, damage: str, suffix: str) -> None:
    config = LogConfig(flush="os", segment_bytes=100 * BATCH_BYTES, index_interval_bytes=500)
    make_log(tmp_path, 150, config=config)
    segment = tmp_path / FIRST_LOG
    index = segment.with_suffix(suffix)
    whole = index.read_bytes()
    if damage == "missing":
        index.unlink()
    else:
        last = segment_files(tmp_path, suffix)[-1].read_bytes()
        index.write_bytes({"empty": b"", "torn": whole[:-3], "foreign": last * 2}[damage])

    rebuild = rebuild_index if damage == "empty" else recover_or_rebuild
    indexes = rebuild(segment, config=config)

    assert index.read_bytes() == whole
    assert validate_index(segment) == []
    assert indexes.offsets.lookup(99).position <= 99 * BATCH_BYTES


@pytest.mark.id("s1-index-behind-its-log")
def test_s1_index_that_lags_its_log_is_completed(tmp_path: Path) -> None:
    make_log(tmp_path, 200, config=LogConfig(flush="os", index_interval_bytes=0))
    whole = (tmp_path / FIRST_INDEX).read_bytes()
    (tmp_path / FIRST_INDEX).write_bytes(whole[: 20 * 8])

    with Log(tmp_path, config=LogConfig(flush="os", index_interval_bytes=0)) as log:
        assert [record.value for record in log.read(150, max_records=3)] == [value_of(n) for n in range(150, 153)]


@pytest.mark.id("s1-offset-at-time")
@pytest.mark.parametrize("batch_records", [1, 7])
def test_s1_offset_at_time_equals_linear_search(tmp_path: Path, batch_records: int) -> None:
    """Timestamps jump back and forth by up to 50 ms, as with several producers."""
    stamps = [STAMP_MS + number * 10 + (number * 37 % 11 - 5) * 10 for number in range(400)]
    config = LogConfig(flush="os", segment_bytes=40 * BATCH_BYTES, index_interval_bytes=200)
    with Log(tmp_path, config=config) as log:
        records = [Record(value_of(number), timestamp_ms=stamp) for number, stamp in enumerate(stamps)]
        for first in range(0, len(records), batch_records):
            log.append_many(records[first : first + batch_records])

        for sought in range(min(stamps) - 1, max(stamps) + 2):
            expected = next((offset for offset, stamp in enumerate(stamps) if stamp >= sought), None)
            assert log.offset_at_time(sought) == expected


@pytest.mark.id("s1-torn-tail")
def test_s1_append_after_torn_tail_is_readable(tmp_path: Path) -> None:
    """In the document's own code the next append lands after the torn bytes and is never read."""
    make_log(tmp_path, 5)
    with (tmp_path / FIRST_LOG).open("ab") as file:
        file.write(bytes(30))

    with Log(tmp_path) as log:
        offset = log.append(b"after")
    with LogReader(tmp_path) as log:
        assert offset == 5
        assert [record.value for record in log.scan()] == [*(value_of(n) for n in range(5)), b"after"]


@pytest.mark.id("s1-entry-of-zeros")
def test_s1_index_with_first_entry_of_zeros_is_not_empty(tmp_path: Path) -> None:
    """(0, 0) is a valid entry of an older broker: one record, in the first batch of the segment."""
    make_log(tmp_path, 100, config=LogConfig(flush="os", index_interval_bytes=0))
    (tmp_path / FIRST_INDEX).write_bytes(bytes(8) + (tmp_path / FIRST_INDEX).read_bytes())
    for path in tmp_path.glob("seeklog-*"):
        path.unlink()  # as the broker left it

    with LogReader(tmp_path) as log:
        for offset in range(100):
            assert next(log.read(offset)).value == value_of(offset)
        assert log.seek(99).scanned_bytes <= 2 * BATCH_BYTES


@pytest.mark.id("s1-reads-use-the-index")
def test_s1_read_uses_index(tmp_path: Path) -> None:
    """The document's own code never uses it. One record of 10,000 costs a few kilobytes of reading."""
    make_log(tmp_path, 10_000)
    files = WatchedFiles()

    with LogReader(tmp_path, files=files) as log:
        next(log.read(5_000, max_records=1))
        files.reads.clear()
        next(log.read(7_000, max_records=1, max_bytes=4096))

    assert sum(files.reads) < 64 * 1024 < 7_000 * BATCH_BYTES


# ---------------------------------------------------------------- S2: a single-partition log in Python


@pytest.mark.id("s2-segment-names-and-rolls")
def test_s2_segments_have_twenty_digit_names_and_roll_by_size(tmp_path: Path) -> None:
    make_log(tmp_path, 25, config=LogConfig(flush="os", segment_bytes=10 * BATCH_BYTES))

    assert [path.name for path in segment_files(tmp_path)] == [f"{base:020d}.log" for base in (0, 10, 20)]


@pytest.mark.id("s2-only-the-last-is-written")
def test_s2_only_last_segment_is_written(tmp_path: Path) -> None:
    config = LogConfig(flush="os", segment_bytes=10 * BATCH_BYTES)
    make_log(tmp_path, 25, config=config)
    sealed = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in segment_files(tmp_path)[:-1]}

    with Log(tmp_path, config=config) as log:
        fill(log, 20, start=25)

    assert sealed == {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in sealed}


@pytest.mark.id("s2-gaps-are-read")
def test_s2_stored_offsets_allow_gaps(tmp_path: Path) -> None:
    """The offsets in a compacted segment: batches 0-1, 5, 9-10."""
    batches = [
        encode_batch([Record(value_of(n), timestamp_ms=STAMP_MS) for n in span], base_offset=span[0])
        for span in (range(2), range(5, 6), range(9, 11))
    ]
    (tmp_path / FIRST_LOG).write_bytes(b"".join(batches))

    with Log(tmp_path) as log:
        assert [record.offset for record in log.scan()] == [0, 1, 5, 9, 10]
        assert next(log.read(2)).offset == 5
        assert log.append(b"next") == 11


@pytest.mark.id("s2-synced-before-return")
def test_s2_flush_batch_syncs_record_before_append_returns(tmp_path: Path) -> None:
    files = WatchedFiles()
    with Log(tmp_path, config=LogConfig(flush="batch"), files=files, background=False) as log:
        for number in range(5):
            before = files.syncs
            fill(log, 1, start=number)

            assert files.syncs > before
            assert log.recovery_point == number + 1


@pytest.mark.id("s2-reads-across-segments")
def test_s2_reading_streams_across_segments(tmp_path: Path) -> None:
    make_log(tmp_path, 95, config=LogConfig(flush="os", segment_bytes=10 * BATCH_BYTES))

    with LogReader(tmp_path) as log:
        for start in range(95):
            assert [record.offset for record in log.scan(start)] == list(range(start, 95))


@pytest.mark.id("s2-delete-before")
@pytest.mark.parametrize("cutoff", range(26))
def test_s2_delete_before_removes_whole_segments_but_never_active_one(tmp_path: Path, cutoff: int) -> None:
    with Log(tmp_path, config=LogConfig(flush="os", segment_bytes=10 * BATCH_BYTES)) as log:
        fill(log, 25)
        log.delete_before(cutoff)

        kept = [base for base, end in ((0, 10), (10, 20), (20, 25)) if end > cutoff or base == 20]
        assert [int(path.stem) for path in segment_files(tmp_path)] == kept
        assert log.log_start_offset == cutoff
        assert [record.offset for record in log.scan()] == list(range(cutoff, 25))
        assert log.append(b"still written") == 25


@pytest.mark.id("s2-sendfile")
def test_s2_sendfile_sends_bytes_of_log_to_socket(tmp_path: Path) -> None:
    with Log(tmp_path, config=LogConfig(flush="os", segment_bytes=10 * BATCH_BYTES)) as log:
        fill(log, 25)
        sender, receiver = socket.socketpair()
        with sender, receiver:
            for part in log.read_ranges(7, max_bytes=1 << 20):
                assert os.sendfile(sender.fileno(), part.fileno(), part.position, part.size) == part.size
            sender.shutdown(socket.SHUT_WR)
            received = b"".join(iter(lambda: receiver.recv(1 << 16), b""))

    raw = b"".join(path.read_bytes() for path in segment_files(tmp_path))
    assert received == raw[7 * BATCH_BYTES : 7 * BATCH_BYTES + len(received)]
    assert len(received) >= BATCH_BYTES


# ---------------------------------------------------------------- S3: a commit log in Go


@pytest.mark.id("s3-buffering-writer")
def test_s3_records_acknowledged_by_buffering_writer_are_readable(tmp_path: Path) -> None:
    with Log(tmp_path, config=LogConfig(flush="os")) as log, LogWriter(log, linger_ms=1) as writer:
        for number in range(50):
            offset = writer.append(value_of(number)).result(timeout=10)
            assert next(log.read(offset)).value == value_of(number)


@pytest.mark.id("s3-flush-makes-readable")
def test_s3_flush_makes_buffer_of_writer_readable(tmp_path: Path) -> None:
    with Log(tmp_path, config=LogConfig(flush="os")) as log, LogWriter(log, linger_ms=60_000) as writer:
        for number in range(50):
            writer.append(value_of(number))
        writer.flush()

        assert [record.value for record in log.scan()] == [value_of(number) for number in range(50)]


@pytest.mark.id("s3-sparse-index")
def test_s3_index_is_sparse(tmp_path: Path) -> None:
    make_log(tmp_path, 1000)

    entries = offset_entries(tmp_path / FIRST_INDEX)

    # 53 batches of 78 bytes are the first to pass 4096.
    assert [offset for offset, _ in entries] == list(range(53, 1000, 53))


@pytest.mark.id("s3-last")
def test_s3_last_returns_newest_record(tmp_path: Path) -> None:
    with Log(tmp_path, config=LogConfig(flush="os", segment_bytes=10 * BATCH_BYTES)) as log:
        for number in range(25):
            fill(log, 1, start=number)
            assert (log.last().offset, log.last().value) == (number, value_of(number))


@pytest.mark.id("s3-last-of-an-empty-log")
def test_s3_last_of_empty_log_is_refused(tmp_path: Path) -> None:
    with Log(tmp_path) as log, pytest.raises(OffsetOutOfRange):
        log.last()


@pytest.mark.id("s3-no-padding")
def test_s3_close_leaves_index_without_padding(tmp_path: Path) -> None:
    config = LogConfig(flush="os", index_interval_bytes=0)
    make_log(tmp_path, 10, config=config)

    assert (tmp_path / FIRST_INDEX).stat().st_size == 9 * 8
    with Log(tmp_path, config=config) as log:
        assert log.append(value_of(10), timestamp_ms=STAMP_MS) == 10
    assert offset_entries(tmp_path / FIRST_INDEX)[-1] == (10, 10 * BATCH_BYTES)


@pytest.mark.id("s3-broker-padding")
def test_s3_zeros_left_in_index_by_crashed_broker_are_ignored(tmp_path: Path) -> None:
    make_log(tmp_path, 200, config=LogConfig(flush="os", index_interval_bytes=0))
    for suffix in (".index", ".timeindex"):
        path = (tmp_path / FIRST_LOG).with_suffix(suffix)
        path.write_bytes(path.read_bytes() + bytes(24 * 1000))
    for path in tmp_path.glob("seeklog-*"):
        path.unlink()

    with LogReader(tmp_path) as log:
        for offset in range(200):
            assert next(log.read(offset)).value == value_of(offset)
        assert log.offset_at_time(STAMP_MS + 150_000) == 150
    with Log(tmp_path) as log:
        assert log.append(b"next") == 200


@pytest.mark.id("s3-full-index-rolls")
@pytest.mark.parametrize("limit", [24, 240])
def test_s3_full_index_rolls_segment(tmp_path: Path, limit: int) -> None:
    """The time index is full first: its entries take 12 bytes, those of the offset index 8."""
    config = LogConfig(flush="os", segment_index_bytes=limit, index_interval_bytes=0)
    make_log(tmp_path, 100, config=config)

    assert len(segment_files(tmp_path)) > 1
    assert all(path.stat().st_size <= limit for path in segment_files(tmp_path, ".index"))
    assert all(path.stat().st_size <= limit for path in segment_files(tmp_path, ".timeindex"))
    with LogReader(tmp_path) as log:
        assert [record.offset for record in log.scan()] == list(range(100))


@pytest.mark.id("s3-initial-offset")
def test_s3_log_may_start_at_any_offset(tmp_path: Path) -> None:
    with Log(tmp_path, config=LogConfig(initial_offset=84_231)) as log:
        assert (log.log_start_offset, log.log_end_offset) == (84_231, 84_231)
        assert log.append(b"first") == 84_231
    assert [path.name for path in segment_files(tmp_path)] == ["00000000000000084231.log"]
    with Log(tmp_path) as log:
        assert log.append(b"second") == 84_232


# ---------------------------------------------------------------- S4: the storage layer of mlog


@pytest.mark.id("s4-append-many")
def test_s4_many_records_are_one_batch_and_one_write(tmp_path: Path) -> None:
    files = WatchedFiles()
    with Log(tmp_path, config=LogConfig(flush="os"), files=files, background=False) as log:
        files.writes.clear()
        offsets = log.append_many([Record(value_of(number)) for number in range(1000)])
        large = [size for size in files.writes if size > 1000]

        assert offsets == range(1000)
        assert large == [(tmp_path / FIRST_LOG).stat().st_size]


@pytest.mark.id("s4-short-write")
def test_s4_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system writes at most seven bytes at a time."""
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: real(fd, bytes(data)[:7], position))
    with Log(tmp_path, config=LogConfig(flush="os")) as log:
        fill(log, 20)

    with LogReader(tmp_path) as log:
        assert [record.value for record in log.scan()] == [value_of(number) for number in range(20)]


@pytest.mark.id("s4-index-operations")
def test_s4_index_appends_finds_floor_and_truncates(tmp_path: Path) -> None:
    table = bytearray()
    index = OffsetIndex(1000, table)
    assert (len(index), index.lookup(1234)) == (0, (1000, 0))
    for number in range(500):
        table += OFFSET_ENTRY.pack(10 + 10 * number, 4096 * (number + 1))

    assert index[len(index) - 1] == (6000, 4096 * 500)
    assert index.lookup(1009) == (1000, 0)
    assert index.lookup(1010) == index.lookup(1019) == (1010, 4096)
    assert index.lookup(10**6) == (6000, 4096 * 500)
    with Log(tmp_path, config=LogConfig(flush="os", index_interval_bytes=1)) as log:
        fill(log, 6)
        before = list(log._source.view.last.indexes.offsets)
        log.truncate_to(4)
        assert len(before) == 5
        assert list(log._source.view.last.indexes.offsets) == [entry for entry in before if entry.offset < 4]


@pytest.mark.id("s4-reads-wait-for-no-writer")
def test_s4_reads_of_active_segment_do_not_wait_for_writer(tmp_path: Path) -> None:
    """A writer is stopped in the middle of its write, and a reader still reads."""
    entered, leave = threading.Event(), threading.Event()

    class HeldFiles(OsFiles):
        held = False

        def write(self, handle: int, data: Buffer, position: int) -> None:
            if self.held and len(data) > 60:
                entered.set()
                assert leave.wait(timeout=30)
            super().write(handle, data, position)

    files = HeldFiles()
    with Log(tmp_path, config=LogConfig(flush="os"), files=files) as log:
        fill(log, 10)
        files.held = True
        writer = threading.Thread(target=fill, args=(log, 1), kwargs={"start": 10})
        writer.start()
        try:
            assert entered.wait(timeout=30)
            read = threading.Thread(target=lambda: seen.extend(log.scan()))
            seen: list[Record] = []
            read.start()
            read.join(timeout=30)

            assert not read.is_alive(), "the reader waits for the writer"
            assert [record.offset for record in seen] == list(range(10))
        finally:
            leave.set()
            writer.join()
        assert log.log_end_offset == 11


@pytest.mark.id("s4-raw-batches")
def test_s4_raw_batches_stream_across_segments_without_decoding(tmp_path: Path) -> None:
    config = LogConfig(flush="os", segment_bytes=10 * BATCH_BYTES)
    with Log(tmp_path / "leader", config=config) as leader:
        fill(leader, 35)
        raw = b"".join(path.read_bytes() for path in segment_files(tmp_path / "leader"))
        for start in range(35):
            streamed = b"".join(batch.raw for batch in leader.read_batches(start, max_bytes=1 << 20))
            assert streamed == raw[start * BATCH_BYTES :]

        with Log(tmp_path / "follower", config=config) as follower:
            for batch in leader.read_batches(0):
                follower.append_batches(batch.raw)
            assert list(follower.scan()) == list(leader.scan())


@pytest.mark.id("s4-ghost-write")
def test_s4_recovery_cuts_ghost_write_from_log_and_index(tmp_path: Path) -> None:
    """A batch with the right shape and the wrong offset, left on the disk from an earlier file."""
    config = LogConfig(flush="os", index_interval_bytes=0)
    make_log(tmp_path, 10, config=config)
    ghost = encode_batch([Record(value_of(3), timestamp_ms=STAMP_MS)], base_offset=3)
    with (tmp_path / FIRST_LOG).open("ab") as file:
        file.write(ghost)
    with (tmp_path / FIRST_INDEX).open("ab") as file:
        file.write(struct.pack(">ii", 10, 10 * BATCH_BYTES))

    with Log(tmp_path, config=config) as log:
        assert log.log_end_offset == 10
        assert (tmp_path / FIRST_LOG).stat().st_size == 10 * BATCH_BYTES
    assert offset_entries(tmp_path / FIRST_INDEX) == [(n, n * BATCH_BYTES) for n in range(1, 10)]


@pytest.mark.id("s4-compacted-log-not-cut")
def test_s4_recovery_does_not_cut_compacted_log(tmp_path: Path) -> None:
    """The document expects each offset to be the last plus one, and would cut at the first gap."""
    raw = b"".join(encode_batch([Record(value_of(n), timestamp_ms=STAMP_MS)], base_offset=n) for n in (0, 1, 7, 8, 30))
    (tmp_path / FIRST_LOG).write_bytes(raw)

    with Log(tmp_path) as log:
        assert log.log_end_offset == 31
        assert [record.offset for record in log.scan()] == [0, 1, 7, 8, 30]
    assert (tmp_path / FIRST_LOG).read_bytes() == raw
    assert not segment_files(tmp_path, ".torn")


@pytest.mark.id("s4-high-watermark-exclusive")
def test_s4_high_watermark_is_exclusive(tmp_path: Path) -> None:
    """In the document a read *at* the watermark succeeds: one record too many."""
    with Log(tmp_path, config=LogConfig(flush="os", high_watermark="manual")) as log:
        fill(log, 10)
        assert (log.high_watermark, log.log_end_offset) == (0, 10)
        for committed in range(1, 11):
            log.advance_high_watermark(committed)

            assert log.high_watermark == committed
            assert [record.offset for record in log.read(0)] == list(range(committed))
            assert [record.offset for record in log.scan()] == list(range(committed))
            assert [record.offset for record in log.read_uncommitted(0)] == list(range(10))


@pytest.mark.id("s4-high-watermark-survives")
def test_s4_high_watermark_survives_restart(tmp_path: Path) -> None:
    config = LogConfig(flush="os", high_watermark="manual")
    with Log(tmp_path, config=config) as log:
        fill(log, 10)
        log.advance_high_watermark(4)

    with Log(tmp_path, config=config) as log:
        assert (log.high_watermark, log.log_end_offset) == (4, 10)


@pytest.mark.id("s4-typed-errors")
def test_s4_every_error_has_type_and_location(tmp_path: Path) -> None:
    config = LogConfig(flush="os", max_message_bytes=200)
    with Log(tmp_path / "log", config=config) as log:
        fill(log, 3)
        with pytest.raises(RecordTooLarge, match="200"):
            log.append(bytes(1000))
        with pytest.raises(OffsetOutOfRange, match="0 to 2"):
            list(log.read(17))
        assert log.log_end_offset == 3
    with pytest.raises(LogClosed):
        log.append(b"late")

    (tmp_path / "file").write_bytes(b"something else")
    with pytest.raises(NotALog, match="file"):
        Log(tmp_path / "file")

    raw = bytearray((tmp_path / "log" / FIRST_LOG).read_bytes())
    raw[BATCH_BYTES + 70] ^= 1
    (tmp_path / "log" / FIRST_LOG).write_bytes(raw)
    with LogReader(tmp_path / "log") as log, pytest.raises(CorruptBatch) as caught:
        list(log.scan())
    assert caught.value.position == BATCH_BYTES
    assert str(caught.value.path).endswith(FIRST_LOG)
    assert isinstance(caught.value, SeeklogError)
