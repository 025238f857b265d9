"""Segments: when a log starts a new one, and how a segment treats its own index files."""

from __future__ import annotations

import logging
import struct
import threading
from pathlib import Path
from typing import Any

import pytest

from log.workbench import (
    BATCH_BYTES,
    START_MS,
    FakeClock,
    Meanwhile,
    QuickFiles,
    config_of,
    contents,
    crashed_copy,
    fill,
    make_log,
    offset_entries,
    offsets,
    open_log,
    open_reader,
    segment_bases,
    time_entries,
    values,
)
from record.batches import INT32_MAX, Sketch, T, batch_of
from record.batches import Row as HandMade
from seeklog import Record
from seeklog.errors import CorruptBatch, LogFailed, RecordTooLarge
from seeklog.log.check.finding import Kind
from seeklog.log.check.inspection import inspect_partition
from seeklog.record.batch import encode_batch

SECOND_MS = 1000


def spanning(count: int) -> bytes:
    """An empty batch that spans `count` offsets, as compaction leaves it."""
    return batch_of(b"", last_delta=count - 1, record_count=0)


# ---------------------------------------------------------------- rolls


@pytest.mark.parametrize("room", [0, 1, BATCH_BYTES - 1])
def test_segment_rolls_before_growing_past_its_size(tmp_path: Path, room: int) -> None:
    """A segment that is exactly full is not past its size."""
    make_log(tmp_path, 10, segment_bytes=3 * BATCH_BYTES + room)

    assert segment_bases(tmp_path) == [0, 3, 6, 9]


def test_batch_as_large_as_a_segment_fills_it(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=BATCH_BYTES) as log:
        fill(log, 3)

    assert segment_bases(tmp_path) == [0, 1, 2]


def test_batch_larger_than_a_segment_is_refused_without_a_roll(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=BATCH_BYTES) as log:
        fill(log, 1)
        before = contents(tmp_path)
        with pytest.raises(RecordTooLarge, match=r"segment\.bytes is 78"):
            log.append(b"01234567890")

        assert contents(tmp_path) == before
        assert log.append(b"0123456789") == 1


def test_new_segment_is_named_after_the_first_offset_in_it(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=1000, initial_offset=2**40) as log:
        log.append_many([Record(bytes(100))] * 8)
        log.append_many([Record(bytes(100))] * 8)

    assert segment_bases(tmp_path) == [2**40, 2**40 + 8]


@pytest.mark.parametrize(("step", "bases"), [(SECOND_MS, [0]), (SECOND_MS + 1, [0, 2])])
def test_segment_rolls_when_timestamps_span_more_than_segment_ms(tmp_path: Path, step: int, bases: list[int]) -> None:
    with open_log(tmp_path, segment_ms=SECOND_MS) as log:
        log.append(b"", timestamp_ms=START_MS)
        log.append(b"", timestamp_ms=START_MS - 10**6)
        log.append(b"", timestamp_ms=START_MS + step)

    assert segment_bases(tmp_path) == bases


def test_time_of_a_segment_counts_from_its_first_batch_after_a_reopen(tmp_path: Path) -> None:
    for step, bases in ((0, [0]), (900, [0]), (1000, [0]), (1001, [0, 3])):
        with open_log(tmp_path, segment_ms=SECOND_MS) as log:
            log.append(b"", timestamp_ms=START_MS + step)
        assert segment_bases(tmp_path) == bases


def test_append_time_rolls_by_the_clock_of_the_log(tmp_path: Path) -> None:
    clock = FakeClock()
    settings: dict[str, Any] = {"segment_ms": SECOND_MS, "message_timestamp_type": "LogAppendTime"}
    with open_log(tmp_path, clock=clock, **settings) as log:
        for number in range(5):
            log.append(b"", timestamp_ms=START_MS + number * 10**6)
        assert segment_bases(tmp_path) == [0]
        clock.advance(SECOND_MS + 1)
        log.append(b"", timestamp_ms=START_MS)

        assert segment_bases(tmp_path) == [0, 5]


def test_batch_without_timestamp_does_not_roll_by_time(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_ms=1) as log:
        for timestamp in (-1, START_MS, -1, START_MS + 10**6):
            log.append(b"", timestamp_ms=timestamp)

    assert segment_bases(tmp_path) == [0]


@pytest.mark.parametrize("limit", [24, 31, 32, 40, 80, 100])
def test_segment_rolls_when_its_offset_index_is_full(tmp_path: Path, limit: int) -> None:
    """Without timestamps, so that only offset entries count."""
    with open_log(tmp_path, index_interval_bytes=0, segment_index_bytes=limit) as log:
        for _ in range(40):
            log.append(b"", timestamp_ms=-1)

    bases = segment_bases(tmp_path)
    assert len(bases) > 1
    for base in bases[:-1]:
        # As many entries as fit, each for one batch; the first batch has none.
        assert len(offset_entries(tmp_path, base)) == limit // 8
    assert bases[1] == limit // 8 + 1


@pytest.mark.parametrize("limit", [24, 35, 36, 60, 100, 120])
def test_segment_rolls_when_its_time_index_is_full(tmp_path: Path, limit: int) -> None:
    """An entry has twelve bytes, so it is full before the offset index; the roll's own entry must still fit."""
    make_log(tmp_path, 60, index_interval_bytes=0, segment_index_bytes=limit)

    for base in segment_bases(tmp_path)[:-1]:
        assert limit - 24 < len(time_entries(tmp_path, base)) * 12 <= limit


@pytest.mark.parametrize(
    ("taken", "bases"),
    [(INT32_MAX - 1, [0]), (INT32_MAX, [0]), (INT32_MAX + 1, [0, INT32_MAX + 1])],
)
def test_segment_rolls_before_relative_offset_exceeds_31_bits(tmp_path: Path, taken: int, bases: list[int]) -> None:
    """The record after `taken` offsets has that relative offset; Kafka still accepts 2**31 - 1."""
    with open_log(tmp_path, index_interval_bytes=0) as log:
        log.append_batches(spanning(taken))
        assert log.append(b"v") == taken

        assert segment_bases(tmp_path) == bases
        assert values(log.read(taken)) == [b"v"]
        assert values(log.scan()) == [b"v"]


def test_batches_too_many_for_one_segments_offsets_are_not_lost(tmp_path: Path) -> None:
    """Three times 2**31 offsets in one call are either spread over segments, or refused."""
    path = tmp_path / "log"
    raw = spanning(2**31) * 3
    with open_log(path, index_interval_bytes=0) as log:
        try:
            log.append_batches(raw)
        except RecordTooLarge:
            assert log.log_end_offset == 0
        end = log.log_end_offset
        crashed = crashed_copy(path, tmp_path / "crashed")

    with open_log(crashed) as log:
        assert log.log_end_offset == end
        assert log.recovery.cut_bytes == 0
    for base in segment_bases(path):
        assert all(relative >= 0 for relative, _ in offset_entries(path, base))


def test_batches_of_one_call_go_to_one_segment(tmp_path: Path) -> None:
    """Each may be as large as max.message.bytes; the error for all together names segment.bytes."""
    raw = encode_batch([Record(b"0123456789", timestamp_ms=T)])
    with open_log(tmp_path, segment_bytes=4 * BATCH_BYTES, max_message_bytes=BATCH_BYTES) as log:
        log.append_batches(raw * 3)
        log.append_batches(raw * 3)
        with pytest.raises(RecordTooLarge, match=r"segment\.bytes"):
            log.append_batches(raw * 5)

    assert segment_bases(tmp_path) == [0, 3]


# ---------------------------------------------------------------- indexes of sealed segments


SETTINGS: dict[str, Any] = {"segment_bytes": 10 * BATCH_BYTES, "index_interval_bytes": 0}


@pytest.fixture
def sealed_log(tmp_path: Path) -> Path:
    """Two sealed segments of ten records and an active one of five, closed cleanly."""
    make_log(tmp_path / "log", 25, **SETTINGS)
    return tmp_path / "log"


DAMAGES: dict[str, Any] = {
    "missing": None,
    "empty": lambda data: b"",
    "cut": lambda data: data[:-5],
    "zeros": lambda data: bytes(len(data)),
    "longer": lambda data: data + data[-12:],
    "wrong": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
}


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("way", DAMAGES)
def test_damaged_index_is_rebuilt_identically_and_logged_once(
    sealed_log: Path, suffix: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    index = sealed_log / f"{0:020d}{suffix}"
    whole = index.read_bytes()
    if way == "missing":
        index.unlink()
    else:
        index.write_bytes(DAMAGES[way](whole))

    with caplog.at_level(logging.WARNING, "seeklog"), open_log(sealed_log, **SETTINGS) as log:
        for offset in range(10):
            assert values(log.read(offset, max_records=1)) == [b"%010d" % offset]
            assert log.offset_at_time(START_MS + offset * 1000) == offset

    assert [record.message for record in caplog.records if "rebuilding the indexes" in record.message].__len__() == 1
    assert index.read_bytes() == whole


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_reader_rebuilds_a_damaged_index_for_itself_only(sealed_log: Path, suffix: str) -> None:
    (sealed_log / f"{0:020d}{suffix}").write_bytes(b"nonsense")
    before = contents(sealed_log)

    with open_reader(sealed_log, **SETTINGS) as log:
        assert [log.offset_at_time(START_MS + n * 1000) for n in range(10)] == list(range(10))
        assert offsets(log.read(5, max_records=1)) == [5]

    assert contents(sealed_log) == before


def test_no_more_than_max_open_segments_are_open(sealed_log: Path) -> None:
    class WatchedFiles(QuickFiles):
        def __init__(self) -> None:
            self.open_handles: set[int] = set()

        def open(self, path: str, *, write: bool = False, create: bool = False) -> int:
            handle = super().open(path, write=write, create=create)
            if path.endswith(".log"):
                self.open_handles.add(handle)
            return handle

        def close(self, handle: int) -> None:
            self.open_handles.discard(handle)
            super().close(handle)

    files = WatchedFiles()
    with open_reader(sealed_log, files=files, max_open_segments=1, **SETTINGS) as log:
        for offset in (0, 10, 20, 0, 10, 20):
            assert offsets(log.read(offset, max_records=1)) == [offset]
            # The allowed segment, and the tail, which is watched.
            assert len(files.open_handles) <= 2


# ---------------------------------------------------------------- large batches


@pytest.mark.parametrize("size", [100, 5000, 70_000, 400_000])
def test_every_offset_is_found_among_batches_of_any_size(tmp_path: Path, size: int) -> None:
    """Larger than one read of the point lookup, of the reader and of the scan."""
    with open_log(tmp_path, index_interval_bytes=4096, max_message_bytes=10**6) as log:
        for number in range(6):
            log.append_many([Record(bytes([number]) * (size // 4)) for _ in range(4)])
            log.append(b"small")

        for offset in range(30):
            expected = b"small" if offset % 5 == 4 else bytes([offset // 5]) * (size // 4)
            assert values(log.read(offset, max_records=1)) == [expected]
            assert log.seek(offset).position <= log.seek(min(offset + 1, 29)).position
        assert offsets(log.scan()) == list(range(30))
        assert offsets(log.scan_reverse()) == list(range(29, -1, -1))


def test_batch_with_a_gap_at_its_end_is_followed_by_the_next_offset(tmp_path: Path) -> None:
    sketch = Sketch((HandMade(b"a"), HandMade(b"b", delta=4)), fields={"last_delta": 9})
    with open_log(tmp_path) as log:
        assert log.append_batches(sketch.encode()) == range(10)
        log.append(b"next")

        assert offsets(log.scan()) == [0, 4, 10]
        assert offsets(log.read(5)) == [10]
        assert struct.unpack_from(">q", (tmp_path / f"{0:020d}.log").read_bytes(), len(sketch.encode()))[0] == 10


# ---------------------------------------------------------------- when no index may be written


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("place", [1, 12, 15])
def test_log_that_differs_from_its_seal_gets_no_index(sealed_log: Path, place: int, read_only: bool) -> None:
    """Goal: no CRC of a batch covers its base offset and leader epoch; the seal's does, and is not rewritten."""
    first = sealed_log / f"{0:020d}.log"
    data = bytearray(first.read_bytes())
    data[place] ^= 1
    first.write_bytes(data)
    first.with_suffix(".index").write_bytes(b"")

    with open_log(sealed_log, read_only=read_only, **SETTINGS) as log:
        before = contents(sealed_log)
        with pytest.raises(CorruptBatch) as caught:
            log.seek(1)
        assert contents(sealed_log) == before
    assert caught.value.path == str(first)


def test_index_of_a_segment_being_replaced_is_not_written(tmp_path: Path) -> None:
    """Goal: the side files of the new segment stay those that compaction wrote."""
    files = Meanwhile()
    settings = {"segment_bytes": 5 * BATCH_BYTES, "index_interval_bytes": 100, "cleanup_policy": "compact"}
    with open_log(tmp_path, files=files, **settings) as log:
        for number in range(30):
            log.append(b"%d" % number, key=b"k%d" % (number % 2))
        log.flush()
    (tmp_path / f"{0:020d}.index").write_bytes(b"not an index")
    with open_log(tmp_path, files=files, **settings) as log:
        # The log is read to build the index, and by then another file has replaced it.
        files.after("read", f"{0:020d}.log", log.compact)
        assert list(log.read(0, max_records=1)) == list(log.scan())[:1]
        assert files.is_over
        findings = inspect_partition(str(tmp_path), config=config_of(**settings), files=files)
        assert {finding.kind for finding in findings} == {Kind.GAP}


def test_file_with_the_name_of_the_next_segment_is_not_overwritten(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=3 * BATCH_BYTES) as log:
        fill(log, 3)
        stranger = tmp_path / f"{3:020d}.log"
        stranger.write_bytes(b"who knows")
        with pytest.raises(LogFailed, match="starting a segment"):
            log.append(b"v")

    assert stranger.read_bytes() == b"who knows"


def test_segment_cut_during_an_index_rebuild_leaves_no_seal(
    tmp_path: Path,
) -> None:
    """Goal: a new segment with the same base offset does not get the seal of the old one."""
    files = Meanwhile()
    make_log(tmp_path, 9, segment_bytes=3 * BATCH_BYTES)
    (tmp_path / f"{3:020d}.index").unlink()
    with open_log(tmp_path, files=files, segment_bytes=3 * BATCH_BYTES) as log:

        def cut_and_roll() -> None:
            log.truncate_to(2)
            fill(log, 2)

        segment = log._source.view.segments[1]
        files.after("read", f"{3:020d}.log", cut_and_roll)
        segment.load_indexes()

        assert files.is_over
        assert segment_bases(tmp_path) == [0, 3]
        assert not (tmp_path / f"{3:020d}.seal").exists()
        assert not time_entries(tmp_path, 3)


@pytest.mark.id("seal-replaced-during-cut")
def test_segment_is_not_cut_while_its_seal_is_replaced(tmp_path: Path) -> None:
    """Goal: a thread that found a seal replaces that seal, and not the next segment's with the same number."""
    files = Meanwhile()
    settings = {"segment_bytes": 3 * BATCH_BYTES, "flush": "os"}
    make_log(tmp_path, 12, **settings)
    (tmp_path / f"{3:020d}.index").unlink()
    with open_log(tmp_path, files=files, **settings) as log:

        def cut_and_roll() -> None:
            log.truncate_to(2)
            fill(log, 1)
            log.append(b"short")
            log.append(bytes(3 * BATCH_BYTES - 70))
            log.flush()

        other = threading.Thread(target=cut_and_roll)

        def meet() -> None:
            other.start()
            other.join(0.5)  # it waits for this thread; otherwise it would be done

        files.before("open", f"{3:020d}.index.tmp", meet)
        log._source.view.segments[1].load_indexes()
        other.join()
        assert files.is_over
        assert segment_bases(tmp_path) == [0, 3, 4]
        after = values(log.scan())
    with open_log(tmp_path, **settings) as log:
        assert values(log.scan()) == after
