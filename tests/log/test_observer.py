"""A log opened read-only next to its writer: it sees appends, rolls, deletes, truncations, crashes and recoveries,
up to the published watermark, and changes nothing on disk.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from log.workbench import (
    BATCH_BYTES,
    FIRST_LOG,
    START_MS,
    CountingFiles,
    FailingFiles,
    FakeClock,
    Meanwhile,
    QuickFiles,
    ReadCountingFiles,
    contents,
    crashed_copy,
    fill,
    make_log,
    offsets,
    open_log,
    open_reader,
    value_of,
    values,
    wait_until,
)
from record.batches import Row, Sketch
from seeklog import Log, Record, names
from seeklog.clock import SystemClock
from seeklog.config import INT64_MAX
from seeklog.errors import CorruptionError, LogClosed, LogFailed, NotALog, OffsetOutOfRange, TopicNotFound
from seeklog.log.observer import Observer
from seeklog.log.segment import SCAN_CHUNK

SMALL: dict[str, Any] = {"segment_bytes": 5 * BATCH_BYTES, "index_interval_bytes": 100}


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "log", **SMALL) as log:
        yield log


@pytest.fixture
def reader(writer: Log) -> Iterator[Log]:
    with open_reader(writer.path, clock=SystemClock(), **SMALL) as log:
        yield log


def catch_up(reader: Log, writer: Log) -> None:
    """Let the reader check the log until it sees everything."""
    wait_until(lambda: reader.log_end_offset == writer.log_end_offset, "the reader")
    assert offsets(reader.scan()) == offsets(writer.scan())


def assert_same(reader: Log, writer: Log) -> None:
    """The reader gives the same answers as the writer."""
    assert reader.log_start_offset == writer.log_start_offset
    assert reader.high_watermark == writer.high_watermark
    records = list(writer.scan())
    assert list(reader.scan()) == records
    assert list(reader.scan_reverse()) == records[::-1]
    assert reader.scan_arrow(columns=["offset"]).read_all()["offset"].to_pylist() == offsets(records)
    for record in records:
        assert list(reader.read(record.offset, max_records=1)) == [record]
        assert reader.seek(record.offset).position == writer.seek(record.offset).position
        assert reader.offset_at_time(record.timestamp_ms) == writer.offset_at_time(record.timestamp_ms)
    assert [batch.raw for batch in reader.read_batches(reader.log_start_offset)] == [
        batch.raw for batch in writer.read_batches(writer.log_start_offset)
    ]


# ---------------------------------------------------------------- visibility


def test_reader_sees_each_append(reader: Log, writer: Log) -> None:
    for number in range(23):
        fill(writer, 1)

        assert reader.log_end_offset == reader.high_watermark == number + 1
        assert values(reader.read(number)) == [value_of(number)]
    assert_same(reader, writer)


def test_reader_sees_records_from_before_its_opening(writer: Log) -> None:
    fill(writer, 23)

    with open_reader(writer.path, **SMALL) as reader:
        assert_same(reader, writer)


@pytest.mark.parametrize("first", [0, 1, 4, 5, 6])
@pytest.mark.parametrize("count", [1, 4, 5, 6, 11, 33])
def test_one_check_shows_all_acknowledged_records(reader: Log, writer: Log, first: int, count: int) -> None:
    """However many segments were rolled since its last check."""
    fill(writer, first)
    assert offsets(reader.scan()) == list(range(first))
    fill(writer, count)

    assert offsets(reader.scan()) == list(range(first + count))


def test_reader_sees_many_appends_and_rolls(reader: Log, writer: Log) -> None:
    fill(writer, 33)
    catch_up(reader, writer)

    assert_same(reader, writer)


def test_reader_sees_segments_being_sealed(reader: Log, writer: Log) -> None:
    for _ in range(4):
        fill(writer, 7)
        list(reader.scan())
        writer.flush()

        assert_same(reader, writer)


@pytest.mark.parametrize("offset", range(1, 24))
def test_reader_sees_a_delete(reader: Log, writer: Log, offset: int) -> None:
    fill(writer, 23)
    catch_up(reader, writer)
    writer.delete_before(offset)

    assert_same(reader, writer)
    with pytest.raises(OffsetOutOfRange, match=f"offset {offset - 1}"):
        reader.read(offset - 1)


@pytest.mark.parametrize("offset", range(23))
def test_reader_sees_a_truncation(reader: Log, writer: Log, offset: int) -> None:
    fill(writer, 23)
    catch_up(reader, writer)
    writer.truncate_to(offset)

    assert reader.log_end_offset == offset
    assert_same(reader, writer)


@pytest.mark.parametrize("offset", [0, 3, 5, 12, 20, 22])
@pytest.mark.parametrize("size", [10, 20, 3])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 30])
def test_reader_that_missed_a_truncation_sees_later_records(
    reader: Log, writer: Log, offset: int, size: int, count: int
) -> None:
    """The file may have grown past its old size before the next check, so sizes alone do not reveal the cut."""
    fill(writer, 23)
    catch_up(reader, writer)
    writer.truncate_to(offset)
    for _ in range(count):
        writer.append(b"n" * size)

    assert reader.log_end_offset == writer.log_end_offset
    assert_same(reader, writer)


def test_following_reader_continues_after_a_truncation(reader: Log, writer: Log) -> None:
    """It has read up to 8; the log is cut back to 6 and grows past 8 with other records."""
    fill(writer, 8)
    catch_up(reader, writer)
    follow = reader.follow(0, timeout_ms=1)
    assert offsets(follow) == list(range(8))
    writer.truncate_to(6)
    for _ in range(5):
        writer.append(b"a longer value than the one that was there before")

    assert offsets(reader.follow(8, timeout_ms=1)) == [8, 9, 10]


def test_reader_sees_a_recreated_log(reader: Log, writer: Log) -> None:
    fill(writer, 12)
    catch_up(reader, writer)
    writer.truncate_to(0)
    writer.append(b"first")

    assert_same(reader, writer)


def test_reader_survives_close_and_reopen_of_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "log"
    make_log(path, 7, **SMALL)
    with open_reader(path, **SMALL) as reader:
        for count in (7, 14, 21):
            assert offsets(reader.scan()) == list(range(count))
            assert reader.recovery_point == count
            with open_log(path, **SMALL) as writer:
                fill(writer, 7)
                assert_same(reader, writer)


def test_reader_trusts_the_indexes_of_a_clean_close(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make_log(tmp_path, 23, **SMALL)

    with caplog.at_level(logging.WARNING, "seeklog"), open_reader(tmp_path, **SMALL) as reader:
        for offset in range(23):
            assert offsets(reader.read(offset, max_records=1)) == [offset]
            assert reader.offset_at_time(START_MS + offset * 1000) == offset

    assert caplog.records == []


def test_reader_uses_the_state_saved_by_a_clean_close(tmp_path: Path) -> None:
    make_log(tmp_path, 3000)
    files = ReadCountingFiles()
    with open_reader(tmp_path, files=files) as reader:
        assert reader.log_end_offset == 3000

    assert files.read_bytes < 20 * BATCH_BYTES


def test_reader_sees_a_batch_larger_than_its_chunk(tmp_path: Path) -> None:
    """Both before recovery, which reads chunks of the same size, and after it."""
    large = 3 * SCAN_CHUNK
    settings = {"max_message_bytes": 2 * large, "segment_bytes": 16 << 20}
    with open_log(tmp_path / "writer", **settings) as log:
        log.append(bytes(large))
        log.append(b"small")
        path = crashed_copy(tmp_path / "writer", tmp_path / "log")

    with open_reader(path, **settings) as reader:
        assert [len(value or b"") for value in values(reader.scan())] == [large, 5]
        with open_log(path, **settings) as writer:
            assert not writer.recovery.clean
            writer.append(bytes(large))
            assert reader.log_end_offset == 3
            assert_same(reader, writer)


def test_batch_too_far_for_an_index_entry_ends_the_visible_log(tmp_path: Path) -> None:
    """Goal: a broker's directory may have gaps, but a segment spans at most 2**31 offsets."""
    batches = [Sketch([Row()], base_offset=base).encode() for base in (0, 7, 2**31 - 1, 2**31, 2**40)]
    for count, seen in enumerate([[], [0], [0, 7], [0, 7, 2**31 - 1], [0, 7, 2**31 - 1], [0, 7, 2**31 - 1]]):
        path = tmp_path / f"{count}"
        path.mkdir()
        (path / FIRST_LOG).write_bytes(b"".join(batches[:count]))
        with open_reader(path) as reader:
            assert offsets(reader.scan()) == seen
            assert reader.log_end_offset == (seen[-1] + 1 if seen else 0)


def test_reader_knows_where_offsets_become_contiguous(tmp_path: Path) -> None:
    make_log(tmp_path, 7, **SMALL)
    with open_reader(tmp_path, **SMALL) as reader:
        assert reader._source.contiguous_from == 0
    # Without a checkpoint it is a broker's; a writer of seeklog guarantees only its own batches.
    (tmp_path / names.CHECKPOINT).unlink()
    with open_reader(tmp_path, **SMALL) as reader:
        assert reader._source.contiguous_from == INT64_MAX
        with open_log(tmp_path, **SMALL) as writer:
            fill(writer, 3)
            assert reader.log_end_offset == 10
            assert writer._source.contiguous_from == reader._source.contiguous_from == 7


# ---------------------------------------------------------------- a writer that does not wait


class Restless(QuickFiles):
    """A disk on which a writer starts the next segment whenever the reader opens one."""

    writer: Log | None = None

    def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
        if self.writer is not None and path.endswith(names.LOG):
            fill(self.writer, 5)
        return super().open(path, write=write, create=create)


def test_reader_follows_a_rolling_writer_a_bounded_number_of_times(tmp_path: Path) -> None:
    files = Restless()
    with (
        open_log(tmp_path, **SMALL) as writer,
        open_reader(tmp_path, files=files, **SMALL) as reader,
    ):
        fill(writer, 5)
        files.writer = writer
        seen = reader.log_end_offset
        files.writer = None

        assert 0 < seen < writer.log_end_offset
        assert offsets(reader.scan(end=seen)) == list(range(seen))
        catch_up(reader, writer)


@pytest.mark.parametrize("is_own", [True, False])
def test_scan_continues_in_segment_that_a_truncation_made_the_last(tmp_path: Path, is_own: bool) -> None:
    """The segment at 5 is about to be opened, when the first segment already holds these offsets."""
    files = Meanwhile()
    settings = {**SMALL, "max_open_segments": 2}
    with open_log(tmp_path, files=files, **settings) as writer:
        fill(writer, 12)
        writer.flush()
        with open_reader(tmp_path, files=files, **settings) as other:
            scan_over_a_truncation(writer if is_own else other, writer, files)
            assert_same(other, writer)


def scan_over_a_truncation(reader: Log, writer: Log, files: Meanwhile) -> None:

    def rewrite() -> None:
        writer.truncate_to(2)
        writer.append_many([Record(b"n", timestamp_ms=START_MS)] * 3)
        writer.append_many([Record(b"n", timestamp_ms=START_MS)] * 4)
        assert writer.segment_count == 1

    assert reader.log_end_offset == 12
    files.before("open", f"{5:020d}.log", rewrite)

    assert offsets(reader.scan()) == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert files.is_over


def test_rewritten_segment_of_the_same_size_is_not_damage(tmp_path: Path) -> None:
    """Its indexes are lost, so they are rebuilt from a log whose CRC differs from the seal that was read."""
    files = Meanwhile()
    with (
        open_log(tmp_path, **SMALL) as writer,
        open_reader(tmp_path, files=files, **SMALL) as reader,
    ):
        fill(writer, 7)
        writer.flush()

        def rewrite() -> None:
            writer.truncate_to(0)
            fill(writer, 7, start=100)
            writer.flush()
            for path in tmp_path.glob(f"{0:020d}.*index"):
                path.unlink()

        assert reader.log_end_offset == 7
        files.before("read_file", f"{0:020d}.index", rewrite)

        assert values(reader.read(3, max_records=1)) == [value_of(103)]
        assert files.is_over


def test_batch_that_crosses_a_readers_old_end_is_not_damage(tmp_path: Path) -> None:
    """Between a check and a read, the log is cut back to 1, and a larger batch replaces two."""
    make_log(tmp_path, 3)
    (tmp_path / names.CHECKPOINT).unlink()  # a broker's log, which may have gaps
    files = Meanwhile()
    with open_log(tmp_path) as writer, open_reader(tmp_path, files=files) as reader:

        def rewrite() -> None:
            writer.truncate_to(1)
            writer.append_many([Record(b"new", timestamp_ms=START_MS)] * 10)

        assert reader.log_end_offset == 3
        files.before("read", names.LOG, rewrite)

        assert [(record.offset, record.value) for record in reader.read(1)] == [(1, b"new"), (2, b"new")]
        assert files.is_over
        assert_same(reader, writer)


# ---------------------------------------------------------------- a log that is cut between two reads of one call

FAR: Any = {"index_interval_bytes": 1 << 20, "segment_bytes": 1 << 20}
"""An interval without index entries, so that finding an offset takes more than one read."""
# Batches of 1 KiB: more than the largest chunk, 96 KiB, is on both sides of it.
MANY = 400


@pytest.fixture
def many(tmp_path: Path) -> Iterator[tuple[Log, Log, Meanwhile]]:
    """A writer of many records, a reader next to it, and its disk."""
    files = Meanwhile()
    with open_log(tmp_path, **FAR) as writer, open_reader(tmp_path, files=files, **FAR) as reader:
        write_many(writer, MANY, size=1000)
        assert reader.log_end_offset == MANY
        yield writer, reader, files


def write_many(writer: Log, end: int, *, size: int) -> None:
    for number in range(writer.log_end_offset, end):
        writer.append(bytes(size), timestamp_ms=START_MS + number * 1000)


def before_the_second_read(files: Meanwhile, do: Callable[[], object]) -> None:
    files.before("read", FIRST_LOG, lambda: files.before("read", FIRST_LOG, do))


WAYS: dict[str, Callable[[Log], Any]] = {
    "scan": lambda log: offsets(log.scan(end=300)),
    "read_batches": lambda log: [batch.base_offset for batch in log.read_batches(0, max_bytes=1 << 30)][:300],
    "seek": lambda log: log.seek(299).position,
    "offset_at_time": lambda log: log.offset_at_time(START_MS + 299 * 1000),
}


@pytest.mark.parametrize("way", WAYS)
def test_call_continues_when_the_log_is_rewritten_between_its_reads(many: tuple[Log, Log, Meanwhile], way: str) -> None:
    """Goal: bytes that start in the middle of a new batch are not damage."""
    writer, reader, files = many

    def rewrite() -> None:
        writer.truncate_to(2)
        write_many(writer, 320, size=1100)

    before_the_second_read(files, rewrite)

    assert WAYS[way](reader) == WAYS[way](writer)
    assert files.is_over


def test_scan_past_a_cut_is_out_of_range(many: tuple[Log, Log, Meanwhile]) -> None:
    writer, reader, files = many
    before_the_second_read(files, lambda: writer.truncate_to(2))

    with pytest.raises(OffsetOutOfRange) as caught:
        list(reader.scan())
    assert caught.value.log_end_offset == 2


def test_time_entry_into_a_new_batch_is_looked_up_again(tmp_path: Path) -> None:
    files = Meanwhile()
    with open_log(tmp_path, index_interval_bytes=4096) as writer:
        write_many(writer, 30, size=1000)
    with open_log(tmp_path) as writer, open_reader(tmp_path, files=files) as reader:

        def rewrite() -> None:
            writer.truncate_to(2)
            write_many(writer, 27, size=1100)

        # Just before the batch named by the entry is read.
        before_the_second_read(files, rewrite)

        assert reader.offset_at_time(START_MS + 20 * 1000) == 20
        assert files.is_over


def test_time_lookup_is_repeated_after_the_start_was_raised(tmp_path: Path) -> None:
    files = Meanwhile()
    with open_log(tmp_path, **SMALL) as writer, open_reader(tmp_path, files=files, **SMALL) as reader:
        fill(writer, 12)
        assert reader.log_end_offset == 12
        files.before("open", FIRST_LOG, lambda: writer.delete_before(5))

        assert reader.offset_at_time(START_MS) == 5
        assert files.is_over


def test_damage_is_reported_after_a_deletion_overtook_the_reader(reader: Log, writer: Log) -> None:
    fill(writer, 12)
    chunks = reader.scan_chunks()
    assert offsets(next(chunks)) == [0, 1, 2, 3, 4]
    writer.delete_before(5)
    path = writer.path / f"{5:020d}.log"
    data = bytearray(path.read_bytes())
    data[2 * BATCH_BYTES + 70] ^= 1
    path.write_bytes(data)

    with pytest.raises(CorruptionError) as caught:
        list(chunks)
    assert (caught.value.path, caught.value.position) == (str(path), 2 * BATCH_BYTES)


# ---------------------------------------------------------------- crash and recovery of the writer


def test_reader_stops_at_torn_batch_until_it_is_whole(tmp_path: Path) -> None:
    with open_log(tmp_path / "writer", **SMALL) as log:
        fill(log, 3)
        path = crashed_copy(tmp_path / "writer", tmp_path / "log")
        fill(log, 1)
        whole = (tmp_path / "writer" / FIRST_LOG).read_bytes()

    with open_reader(path, **SMALL) as reader:
        for size in range(3 * BATCH_BYTES, 4 * BATCH_BYTES):
            (path / FIRST_LOG).write_bytes(whole[:size])
            assert offsets(reader.scan()) == [0, 1, 2]
            assert reader.log_end_offset == 3
        (path / FIRST_LOG).write_bytes(whole)
        assert offsets(reader.scan()) == [0, 1, 2, 3]


def test_reader_sees_log_after_a_crash_and_after_recovery(tmp_path: Path) -> None:
    """The last batch is torn; recovery cuts it, and the next append takes its offset."""
    with open_log(tmp_path / "writer", **SMALL) as log:
        fill(log, 8)
        path = crashed_copy(tmp_path / "writer", tmp_path / "log")
    last = path / f"{5:020d}.log"
    last.write_bytes(last.read_bytes()[:-1])

    with open_reader(path, **SMALL) as reader:
        assert offsets(reader.scan()) == list(range(7))
        with open_log(path, **SMALL) as writer:
            assert writer.recovery.cut_bytes == BATCH_BYTES - 1
            assert_same(reader, writer)
            writer.append(b"in its place")
            assert_same(reader, writer)
            assert values(reader.read(7)) == [b"in its place"]


def test_reader_of_records_that_recovery_cut_sees_the_cut(tmp_path: Path) -> None:
    """With flush="os" a reader may see records that a power loss removes."""
    clock = FakeClock()
    with open_log(tmp_path / "writer", clock=clock, **SMALL) as log:
        fill(log, 6)
        clock.advance(2000)
        log.flush()
        fill(log, 3)
        path = crashed_copy(tmp_path / "writer", tmp_path / "log")

    with open_reader(path, **SMALL) as reader:
        assert offsets(reader.scan()) == list(range(9))
        last = path / f"{5:020d}.log"
        last.write_bytes(last.read_bytes()[:BATCH_BYTES] + bytes(3 * BATCH_BYTES))  # the content of the disk
        with open_log(path, **SMALL) as writer:
            assert writer.log_end_offset == 6
            assert_same(reader, writer)
            for _ in range(9):
                writer.append(b"another")
            assert_same(reader, writer)


def test_reader_reports_damage_on_read_not_on_open(tmp_path: Path) -> None:
    make_log(tmp_path, 12, **SMALL)
    data = bytearray((tmp_path / FIRST_LOG).read_bytes())
    data[2 * BATCH_BYTES + 70] ^= 1
    (tmp_path / FIRST_LOG).write_bytes(data)

    with open_reader(tmp_path, **SMALL) as reader:
        assert reader.log_end_offset == 12
        assert offsets(reader.scan(5)) == list(range(5, 12))
        with pytest.raises(CorruptionError) as caught:
            list(reader.scan())
    assert (caught.value.path, caught.value.position) == (str(tmp_path / FIRST_LOG), 2 * BATCH_BYTES)


@pytest.mark.id("reader-asleep-during-merge")
def test_reader_sees_no_loss_after_compaction_merged_later_segments(tmp_path: Path) -> None:
    """Goal: at every step of a swap the segments after its last known one are merged, not lost."""

    class Watched(QuickFiles):
        look: Callable[[], object] | None = None

        def sync_directory(self, path: str) -> None:
            if self.look is not None:
                self.look()

    settings: dict[str, Any] = {"cleanup_policy": "compact", "key_index": "none", **SMALL}
    files = Watched()
    with open_log(tmp_path, files=files, **settings) as log, contextlib.ExitStack() as stack:
        for number in range(4):
            log.append(b"v", key=b"%d" % number)
        log.flush()
        # One reader for each step, each of which knows the segments that followed.
        sleepers = [stack.enter_context(open_reader(tmp_path, **settings)) for _ in range(10)]
        for number in range(20):
            log.append(b"v%d" % number, key=b"%d" % (number % 4))
        log.flush()
        assert log.segment_count > 3
        newest = {key: log.latest_for_key(key) for key in (b"0", b"1", b"2", b"3")}
        steps: list[dict[bytes | None, Record]] = []
        files.look = lambda: steps.append({record.key: record for record in sleepers.pop().scan()})
        log.compact()
        files.look = None

    assert len(steps) > 3
    assert all(step == newest for step in steps)


def test_cut_during_a_readers_second_check_is_not_a_loss(tmp_path: Path) -> None:
    files = Meanwhile()
    with open_log(tmp_path, **SMALL) as log, open_reader(tmp_path, files=files, **SMALL) as reader:
        fill(log, 12)
        log.flush()
        # The reader has reread the checkpoint, but not yet listed the segments after its own.
        files.after("list", tmp_path.name, lambda: log.truncate_to(4))

        assert offsets(reader.scan()) == [0, 1, 2, 3]
        assert files.is_over


@pytest.mark.id("reader-of-a-failed-truncation")
@pytest.mark.parametrize("flush", ["os", "batch"])
def test_reader_of_a_failed_truncation_sees_the_next_writers_appends(tmp_path: Path, flush: str) -> None:
    """It saw the announcement of the cut, but not the cut; at its next check the file is larger than before."""
    readers: list[Log] = []

    def look() -> None:
        readers.append(open_reader(tmp_path))
        assert offsets(readers[0].scan()) == list(range(10))
        files.after("truncate", "", fail)

    def fail() -> None:
        raise OSError(errno.EIO, "Input/output error")

    files = Meanwhile()
    with open_log(tmp_path, files=files, flush=flush) as log:
        fill(log, 10)
        log.flush()
        files.after("rename", names.CHECKPOINT, look)
        with pytest.raises(LogFailed):
            log.truncate_to(5)
    with open_log(tmp_path, flush=flush) as log, readers[0] as reader:
        assert log.log_end_offset == 5
        log.append_many([Record(bytes(200))] * 20)
        assert values(reader.scan()) == values(log.scan())


# ---------------------------------------------------------------- the published watermark


def test_flush_batch_reader_stops_at_synced_records(tmp_path: Path) -> None:
    files = FailingFiles("sync")
    log = open_log(tmp_path, files=files, flush="batch")
    fill(log, 3)
    with open_reader(tmp_path) as reader:
        assert (reader.high_watermark, offsets(reader.scan())) == (3, [0, 1, 2])
        files.fails = True
        with pytest.raises(Exception, match="sync"):
            log.append(b"written, never synced")

        assert (tmp_path / FIRST_LOG).stat().st_size > 3 * BATCH_BYTES
        assert (reader.high_watermark, offsets(reader.scan())) == (3, [0, 1, 2])
    log.close()


@pytest.mark.id("reader-overtaken-by-truncation")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_flush_batch_reader_stops_at_synced_records_after_a_truncation(tmp_path: Path, moment: str) -> None:
    """Goal: no checkpoint or watermark from before a cut covers records appended after it."""
    make_log(tmp_path, 10, flush="batch")
    files = Meanwhile()
    with (
        open_log(tmp_path, flush="batch") as log,
        open_reader(tmp_path, files=files) as reader,
    ):

        def cut_and_append() -> None:
            log.truncate_to(4)
            # Past the end that the reader knew, so that the file size does not reveal the cut.
            log._partition.append_records([Record(bytes(10 * BATCH_BYTES))], wait=False)

        getattr(files, moment)("read", "seeklog-watermark", cut_and_append)

        assert reader.high_watermark == log.high_watermark == 4
        assert files.is_over
        assert offsets(reader.scan()) == [0, 1, 2, 3]
        log.flush()
        assert offsets(reader.scan()) == [0, 1, 2, 3, 4]


@pytest.mark.id("reader-overtaken-once")
def test_reader_overtaken_by_compaction_checks_a_bounded_number_of_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a compaction replaces thousands of segments one by one, and readers do not wait for its end."""
    settings: dict[str, Any] = {"cleanup_policy": "compact", "flush": "batch", **SMALL}
    files = Meanwhile()
    with open_log(tmp_path, **settings) as log, open_reader(tmp_path, files=files, **settings) as reader:
        for number in range(12):
            log.append(b"v%d" % number, key=b"%d" % (number % 2))
        loads = 0
        load = Observer._load

        def load_and_count(observer: Observer, **settings: bool) -> None:
            nonlocal loads
            loads += 1
            load(observer, **settings)

        monkeypatch.setattr(Observer, "_load", load_and_count)
        assert reader.high_watermark == 12
        known = loads
        files.after("read", "seeklog-watermark", log.compact)
        log.append(b"more", key=b"0")

        assert reader.high_watermark == 13
        assert files.is_over
        assert loads == known
        assert values(reader.scan()) == values(log.scan())
        assert loads == known + 1


def test_flush_batch_reader_sees_each_record_once_acknowledged(tmp_path: Path) -> None:
    with open_log(tmp_path, flush="batch", **SMALL) as log, open_reader(tmp_path, **SMALL) as reader:
        for number in range(12):
            fill(log, 1)
            assert reader.high_watermark == number + 1
        assert_same(reader, log)


def test_reader_stops_at_a_manual_watermark(tmp_path: Path) -> None:
    with open_log(tmp_path, high_watermark="manual", **SMALL) as log:
        fill(log, 12)
        with open_reader(tmp_path, **SMALL) as reader:
            assert (reader.high_watermark, list(reader.scan())) == (0, [])
            for offset in (1, 4, 5, 9, 12):
                log.advance_high_watermark(offset)
                assert reader.high_watermark == offset
                assert_same(reader, log)


def test_reader_reads_uncommitted_records_to_the_end(tmp_path: Path) -> None:
    with open_log(tmp_path, high_watermark="manual", **SMALL) as log:
        fill(log, 12)
        log.advance_high_watermark(4)
        with open_reader(tmp_path, **SMALL) as reader:
            assert reader.log_end_offset == 12
            assert offsets(reader.read_uncommitted(0)) == list(range(12))
            assert [batch.base_offset for batch in reader.read_batches(3, uncommitted=True)] == list(range(3, 12))


def test_manual_watermark_inside_a_batch_hides_its_other_records(tmp_path: Path) -> None:
    with open_log(tmp_path, high_watermark="manual") as log:
        log.append_many([Record(b"v", timestamp_ms=START_MS)] * 10)
        log.advance_high_watermark(4)
        with open_reader(tmp_path) as reader:
            assert (reader.high_watermark, offsets(reader.scan())) == (4, [0, 1, 2, 3])


def test_manual_watermark_survives_the_close(tmp_path: Path) -> None:
    with open_log(tmp_path, high_watermark="manual") as log:
        fill(log, 5)
        log.advance_high_watermark(3)

    with open_reader(tmp_path) as reader:
        assert (reader.high_watermark, offsets(reader.scan())) == (3, [0, 1, 2])


def test_reader_sees_manual_watermark_move_after_a_reopen(tmp_path: Path) -> None:
    """The checkpoint still describes the clean close; the published watermark is newer."""
    with open_log(tmp_path, high_watermark="manual") as log:
        fill(log, 5)
        log.advance_high_watermark(2)
    with open_log(tmp_path, high_watermark="manual") as log:
        log.advance_high_watermark(4)

        with open_reader(tmp_path) as reader:
            assert (reader.high_watermark, offsets(reader.scan())) == (4, [0, 1, 2, 3])


def test_checkpoint_replaces_a_damaged_published_watermark(tmp_path: Path) -> None:
    with open_log(tmp_path / "writer", high_watermark="manual") as log:
        fill(log, 5)
        log.advance_high_watermark(2)
        log.delete_before(1)  # writes a checkpoint
        log.advance_high_watermark(4)
        path = crashed_copy(tmp_path / "writer", tmp_path / "log")
    (path / names.WATERMARK).write_bytes(bytes(16))

    with open_reader(path) as reader:
        assert (reader.high_watermark, offsets(reader.scan())) == (2, [1])


# ---------------------------------------------------------------- nothing changes


def test_reader_changes_nothing_on_disk(writer: Log) -> None:
    fill(writer, 23)
    writer.delete_before(7)
    before = contents(writer.path)
    files = CountingFiles()

    with open_reader(writer.path, clock=SystemClock(), files=files, **SMALL) as reader:
        assert_same(reader, writer)
        list(reader.follow(7, timeout_ms=1))
        assert reader.last().offset == 22
        assert reader.recovery_point >= 0
        assert reader.leader_epoch == 0

    assert files.diary == []
    assert contents(writer.path) == before


def test_reader_works_in_a_read_only_directory(tmp_path: Path) -> None:
    """As in a snapshot or a read-only mount: every way to write is refused."""

    class ReadOnlyFiles(QuickFiles):
        def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
            assert not write
            assert not create
            return super().open(path)

        def lock(self, handle: int, path: str, owner: str) -> str:
            raise AssertionError("a reader takes no lock")

    make_log(tmp_path, 12, **SMALL)
    with open_reader(tmp_path, files=ReadOnlyFiles(), **SMALL) as reader:
        assert offsets(reader.scan()) == list(range(12))


def test_many_readers_can_be_open_next_to_a_writer(writer: Log) -> None:
    fill(writer, 12)
    readers = [open_reader(writer.path, **SMALL) for _ in range(10)]
    fill(writer, 3)

    for reader in readers:
        assert offsets(reader.scan()) == list(range(15))
        reader.close()


def test_removed_log_is_an_error_of_seeklog(tmp_path: Path) -> None:
    make_log(tmp_path / "log", 3)
    with open_reader(tmp_path / "log") as reader:
        (tmp_path / "log").rename(tmp_path / "moved")

        with pytest.raises((NotALog, CorruptionError, OffsetOutOfRange, LogClosed)):
            list(reader.scan())


def test_log_without_its_segments_is_not_a_log(tmp_path: Path) -> None:
    make_log(tmp_path, 7, **SMALL)
    with open_reader(tmp_path, **SMALL) as reader:
        for path in tmp_path.glob("*.log"):
            path.unlink()

        with pytest.raises(NotALog, match="it holds no segment"):
            list(reader.scan())


def test_segments_listed_but_never_there_are_not_a_log(tmp_path: Path) -> None:
    make_log(tmp_path, 7, **SMALL)
    files = FailingFiles("open", ".log", error=errno.ENOENT)
    with open_reader(tmp_path, files=files, **SMALL) as reader:
        files.fails = True

        with pytest.raises(NotALog, match="no longer"):
            list(reader.scan())


def test_directory_of_a_recreated_topic_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "orders-0"
    make_log(path, 7)
    (path / names.PARTITION_METADATA).write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    with open_reader(path) as reader:
        path.rename(tmp_path / "deleted")
        make_log(path, 7)
        (path / names.PARTITION_METADATA).write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAg\n")

        with pytest.raises(TopicNotFound, match="'orders-0' was deleted and recreated"):
            list(reader.scan())


class LateFiles(QuickFiles):
    """A disk whose first listing after the directory check misses a file that is being created."""

    def __init__(self, missed: str) -> None:
        self.missed = missed
        self.listings = 0

    def list(self, directory: str) -> list[str]:
        self.listings += 1
        return [name for name in super().list(directory) if self.listings != 2 or name != self.missed]


def test_segment_missed_by_a_listing_during_a_roll_is_not_a_gap(tmp_path: Path) -> None:
    """Goal: a reader never skips a segment because it saw the next one first."""
    make_log(tmp_path / "log", 15, **SMALL)
    files = LateFiles(f"{5:020d}.log")

    with open_reader(tmp_path / "log", files=files, **SMALL) as reader:
        assert files.listings > 2
        assert offsets(reader.scan()) == list(range(15))
