"""Both indexes: their operations, and the entries that a log writes by Kafka's rule."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from log.workbench import (
    BATCH_BYTES,
    START_MS,
    QuickFiles,
    fill,
    make_log,
    offset_entries,
    open_log,
    segment_bases,
    time_entries,
)
from seeklog import Record
from seeklog.log.index import OFFSET_ENTRY, TIME_ENTRY, OffsetEntry, OffsetIndex, TimeEntry, TimeIndex, read_entries

INT32_MAX = 2**31 - 1


def offset_index(count: int, base_offset: int = 100) -> OffsetIndex:
    """Return entries for every third offset, ten bytes of log each: (103, 30), (106, 60), ..."""
    return OffsetIndex(
        base_offset, b"".join(OFFSET_ENTRY.pack(3 * number, 30 * number) for number in range(1, count + 1))
    )


def time_index(count: int, base_offset: int = 100) -> TimeIndex:
    entries = (TIME_ENTRY.pack(START_MS + 10 * number, 3 * number) for number in range(1, count + 1))
    return TimeIndex(base_offset, b"".join(entries))


# ---------------------------------------------------------------- the offset index


def test_lookup_in_empty_offset_index_gives_start_of_segment() -> None:
    index = OffsetIndex(100, b"")

    assert (len(index), list(index)) == (0, [])
    assert index.lookup(100) == index.lookup(10**9) == OffsetEntry(100, 0)


@pytest.mark.parametrize("count", range(8))
def test_lookup_gives_last_entry_at_or_below_offset(count: int) -> None:
    index = offset_index(count)

    for offset in range(95, 130):
        below = [entry for entry in index if entry.offset <= offset]
        assert index.lookup(offset) == (below[-1] if below else OffsetEntry(100, 0))
        assert index.floor(offset) == len(below) - 1


def test_offset_entries_have_kafka_format() -> None:
    assert bytes(offset_index(2).table) == struct.pack(">iiii", 3, 30, 6, 60)


def test_entry_is_found_by_its_number() -> None:
    assert offset_index(5)[4] == OffsetEntry(115, 150)
    assert time_index(5)[4] == TimeEntry(START_MS + 50, 115)


@pytest.mark.parametrize("number", [-1, 5, 100])
def test_number_out_of_range_raises_index_error(number: int) -> None:
    with pytest.raises(IndexError):
        offset_index(5)[number]
    with pytest.raises(IndexError):
        time_index(5)[number]


def test_largest_field_values_are_found() -> None:
    index = OffsetIndex(100, OFFSET_ENTRY.pack(INT32_MAX, INT32_MAX))

    assert index.lookup(2**40) == OffsetEntry(100 + INT32_MAX, INT32_MAX)


# ---------------------------------------------------------------- the time index


def test_empty_time_index_finds_nothing() -> None:
    index = TimeIndex(100, b"")

    assert (len(index), list(index), index.lookup(START_MS)) == (0, [], None)


@pytest.mark.parametrize("count", range(6))
def test_lookup_by_time_gives_last_entry_at_or_before_it(count: int) -> None:
    index = time_index(count)

    for time_ms in range(START_MS - 5, START_MS + 75):
        before = [entry for entry in index if entry.timestamp_ms <= time_ms]
        assert index.lookup(time_ms) == (before[-1] if before else None)


def test_time_entries_have_kafka_format() -> None:
    assert bytes(time_index(2).table) == struct.pack(">qiqi", START_MS + 10, 3, START_MS + 20, 6)


# ---------------------------------------------------------------- files that a broker is writing


def test_entry_half_written_by_broker_is_left_out(tmp_path: Path) -> None:
    """Its first field is written, followed by the zeros that the broker has preallocated."""
    path = tmp_path / "index"
    for entry, table, half in (
        (OFFSET_ENTRY, bytes(offset_index(2).table), struct.pack(">i", 9)),
        (TIME_ENTRY, bytes(time_index(2).table), struct.pack(">q", START_MS + 30)),
    ):
        path.write_bytes(table + half + bytes(100))
        assert read_entries(QuickFiles(), str(path), entry) == table


def test_first_time_entry_may_name_first_offset(tmp_path: Path) -> None:
    path = tmp_path / "index"
    path.write_bytes(TIME_ENTRY.pack(START_MS, 0) + bytes(100))

    assert read_entries(QuickFiles(), str(path), TIME_ENTRY) == TIME_ENTRY.pack(START_MS, 0)


# ---------------------------------------------------------------- Kafka's rule, in the files of a log


@pytest.mark.parametrize(("interval", "indexed"), [(2 * BATCH_BYTES - 1, 2), (2 * BATCH_BYTES, 3)])
def test_entry_is_written_after_more_than_one_interval(tmp_path: Path, interval: int, indexed: int) -> None:
    """Two batches have exactly 2 * BATCH_BYTES, which is not more than the interval."""
    make_log(tmp_path, 20, index_interval_bytes=interval)

    assert offset_entries(tmp_path) == [(n, n * BATCH_BYTES) for n in range(indexed, 20, indexed)]


def test_first_batch_of_every_segment_has_no_entry(tmp_path: Path) -> None:
    make_log(tmp_path, 9, index_interval_bytes=0, segment_bytes=3 * BATCH_BYTES)

    assert segment_bases(tmp_path) == [0, 3, 6]
    for base in (0, 3, 6):
        assert offset_entries(tmp_path, base) == [(1, BATCH_BYTES), (2, 2 * BATCH_BYTES)]


@pytest.mark.id("index-entries")
def test_entry_holds_last_offset_and_position_of_its_batch(tmp_path: Path) -> None:
    with open_log(tmp_path, index_interval_bytes=0, initial_offset=5000) as log:
        log.append_many([Record(b"")] * 4)
        size = (tmp_path / f"{5000:020d}.log").stat().st_size
        log.append_many([Record(b"")] * 6)

    assert offset_entries(tmp_path, 5000) == [(9, size)]


@pytest.mark.parametrize("every", [1, 3, 10])
def test_record_interval_writes_entries_by_count(tmp_path: Path, every: int) -> None:
    """By bytes alone there would be no entry: 40 batches are below 4096."""
    make_log(tmp_path, 40, index_interval_records=every)

    assert offset_entries(tmp_path) == [(n, n * BATCH_BYTES) for n in range(every, 40, every)]


def test_record_interval_counts_records_not_batches(tmp_path: Path) -> None:
    with open_log(tmp_path, index_interval_records=10) as log:
        for _ in range(6):
            log.append_many([Record(b"")] * 5)

    # After two batches ten records have passed, so the third and the fifth are indexed.
    assert [offset for offset, _ in offset_entries(tmp_path)] == [14, 24]


def test_time_entry_is_written_only_if_largest_timestamp_grew(tmp_path: Path) -> None:
    with open_log(tmp_path, index_interval_bytes=0) as log:
        for step in (0, 50, 40, 50, 60):
            log.append(b"", timestamp_ms=START_MS + step)

    assert len(offset_entries(tmp_path)) == 4
    assert time_entries(tmp_path) == [(START_MS + 50, 1), (START_MS + 60, 4)]


def test_time_entry_names_batch_with_largest_timestamp(tmp_path: Path) -> None:
    """It is written together with a later batch's offset entry, but has the time of this batch."""
    with open_log(tmp_path, index_interval_records=3) as log:
        for step in (0, 70, 10, 20):
            log.append(b"", timestamp_ms=START_MS + step)

    assert [offset for offset, _ in offset_entries(tmp_path)] == [3]
    assert time_entries(tmp_path) == [(START_MS + 70, 1)]


def test_largest_timestamp_is_in_time_index_after_close(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        for step in (0, 70, 10):
            log.append(b"", timestamp_ms=START_MS + step)
        assert time_entries(tmp_path) == []

    assert time_entries(tmp_path) == [(START_MS + 70, 1)]


def test_largest_timestamp_is_in_time_index_after_roll(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=3 * BATCH_BYTES) as log:
        fill(log, 4)

        assert time_entries(tmp_path) == [(START_MS + 2000, 2)]
        assert segment_bases(tmp_path) == [0, 3]


def test_clean_close_does_not_change_later_index_entries(tmp_path: Path) -> None:
    """Bytes and records since the last entry are remembered. The time entry of the close stays."""
    make_log(tmp_path / "one", 50, index_interval_bytes=7 * BATCH_BYTES)
    for _ in range(10):
        with open_log(tmp_path / "many", index_interval_bytes=7 * BATCH_BYTES) as log:
            fill(log, 5)

    assert offset_entries(tmp_path / "many") == offset_entries(tmp_path / "one")


def test_log_without_records_has_no_entries(tmp_path: Path) -> None:
    make_log(tmp_path, 0)

    assert offset_entries(tmp_path) == time_entries(tmp_path) == []
