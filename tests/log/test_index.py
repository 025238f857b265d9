"""Both indexes: their own verbs, and what a log writes into them by Kafka's rule."""

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
    """Entries for every third offset, ten bytes of log each: (103, 30), (106, 60), ..."""
    return OffsetIndex(
        base_offset, b"".join(OFFSET_ENTRY.pack(3 * number, 30 * number) for number in range(1, count + 1))
    )


def time_index(count: int, base_offset: int = 100) -> TimeIndex:
    entries = (TIME_ENTRY.pack(START_MS + 10 * number, 3 * number) for number in range(1, count + 1))
    return TimeIndex(base_offset, b"".join(entries))


# ---------------------------------------------------------------- the offset index


def test_an_empty_offset_index_leads_to_the_start_of_the_segment() -> None:
    index = OffsetIndex(100, b"")

    assert (len(index), list(index)) == (0, [])
    assert index.lookup(100) == index.lookup(10**9) == OffsetEntry(100, 0)


@pytest.mark.parametrize("count", range(8))
def test_a_lookup_gives_the_last_entry_at_or_below_the_offset(count: int) -> None:
    index = offset_index(count)

    for offset in range(95, 130):
        below = [entry for entry in index if entry.offset <= offset]
        assert index.lookup(offset) == (below[-1] if below else OffsetEntry(100, 0))
        assert index.floor(offset) == len(below) - 1


def test_offset_entries_are_kafkas_bytes() -> None:
    assert bytes(offset_index(2).table) == struct.pack(">iiii", 3, 30, 6, 60)


def test_an_entry_is_found_by_its_number() -> None:
    assert offset_index(5)[4] == OffsetEntry(115, 150)
    assert time_index(5)[4] == TimeEntry(START_MS + 50, 115)


@pytest.mark.parametrize("number", [-1, 5, 100])
def test_an_entry_that_is_not_there_is_an_index_error(number: int) -> None:
    with pytest.raises(IndexError):
        offset_index(5)[number]
    with pytest.raises(IndexError):
        time_index(5)[number]


def test_the_largest_fields_are_found() -> None:
    index = OffsetIndex(100, OFFSET_ENTRY.pack(INT32_MAX, INT32_MAX))

    assert index.lookup(2**40) == OffsetEntry(100 + INT32_MAX, INT32_MAX)


# ---------------------------------------------------------------- the time index


def test_an_empty_time_index_knows_no_time() -> None:
    index = TimeIndex(100, b"")

    assert (len(index), list(index), index.lookup(START_MS)) == (0, [], None)


@pytest.mark.parametrize("count", range(6))
def test_a_lookup_by_time_gives_the_last_entry_at_or_before_it(count: int) -> None:
    index = time_index(count)

    for time_ms in range(START_MS - 5, START_MS + 75):
        before = [entry for entry in index if entry.timestamp_ms <= time_ms]
        assert index.lookup(time_ms) == (before[-1] if before else None)


def test_time_entries_are_kafkas_bytes() -> None:
    assert bytes(time_index(2).table) == struct.pack(">qiqi", START_MS + 10, 3, START_MS + 20, 6)


# ---------------------------------------------------------------- what a broker is still writing


def test_an_entry_that_a_broker_has_written_half_of_is_left_out(tmp_path: Path) -> None:
    """Its first field is there, and behind it the zeros of the room that the broker has made."""
    path = tmp_path / "index"
    for entry, table, half in (
        (OFFSET_ENTRY, bytes(offset_index(2).table), struct.pack(">i", 9)),
        (TIME_ENTRY, bytes(time_index(2).table), struct.pack(">q", START_MS + 30)),
    ):
        path.write_bytes(table + half + bytes(100))
        assert read_entries(QuickFiles(), str(path), entry) == table


def test_a_first_time_entry_may_name_the_first_offset(tmp_path: Path) -> None:
    path = tmp_path / "index"
    path.write_bytes(TIME_ENTRY.pack(START_MS, 0) + bytes(100))

    assert read_entries(QuickFiles(), str(path), TIME_ENTRY) == TIME_ENTRY.pack(START_MS, 0)


# ---------------------------------------------------------------- Kafka's rule, in the files of a log


@pytest.mark.parametrize(("interval", "indexed"), [(2 * BATCH_BYTES - 1, 2), (2 * BATCH_BYTES, 3)])
def test_an_entry_is_written_when_more_than_the_interval_has_passed(
    tmp_path: Path, interval: int, indexed: int
) -> None:
    """Two batches are exactly 2 * BATCH_BYTES: that is not more."""
    make_log(tmp_path, 20, index_interval_bytes=interval)

    assert offset_entries(tmp_path) == [(n, n * BATCH_BYTES) for n in range(indexed, 20, indexed)]


def test_the_first_batch_of_every_segment_has_no_entry(tmp_path: Path) -> None:
    make_log(tmp_path, 9, index_interval_bytes=0, segment_bytes=3 * BATCH_BYTES)

    assert segment_bases(tmp_path) == [0, 3, 6]
    for base in (0, 3, 6):
        assert offset_entries(tmp_path, base) == [(1, BATCH_BYTES), (2, 2 * BATCH_BYTES)]


@pytest.mark.id("index-entries")
def test_an_entry_has_the_last_offset_of_its_batch_and_where_that_batch_starts(tmp_path: Path) -> None:
    with open_log(tmp_path, index_interval_bytes=0, initial_offset=5000) as log:
        log.append_many([Record(b"")] * 4)
        size = (tmp_path / f"{5000:020d}.log").stat().st_size
        log.append_many([Record(b"")] * 6)

    assert offset_entries(tmp_path, 5000) == [(9, size)]


@pytest.mark.parametrize("every", [1, 3, 10])
def test_an_interval_of_records_writes_entries_by_count(tmp_path: Path, every: int) -> None:
    """The bytes alone would give none: 40 batches are below 4096."""
    make_log(tmp_path, 40, index_interval_records=every)

    assert offset_entries(tmp_path) == [(n, n * BATCH_BYTES) for n in range(every, 40, every)]


def test_records_of_large_batches_count_one_by_one(tmp_path: Path) -> None:
    with open_log(tmp_path, index_interval_records=10) as log:
        for _ in range(6):
            log.append_many([Record(b"")] * 5)

    # After two batches ten records have passed, so the third and the fifth are indexed.
    assert [offset for offset, _ in offset_entries(tmp_path)] == [14, 24]


def test_a_time_entry_is_written_only_when_the_largest_timestamp_grew(tmp_path: Path) -> None:
    with open_log(tmp_path, index_interval_bytes=0) as log:
        for step in (0, 50, 40, 50, 60):
            log.append(b"", timestamp_ms=START_MS + step)

    assert len(offset_entries(tmp_path)) == 4
    assert time_entries(tmp_path) == [(START_MS + 50, 1), (START_MS + 60, 4)]


def test_a_time_entry_names_the_batch_that_had_the_largest_timestamp(tmp_path: Path) -> None:
    """It is written with a later batch's offset entry, but it is not that batch's time."""
    with open_log(tmp_path, index_interval_records=3) as log:
        for step in (0, 70, 10, 20):
            log.append(b"", timestamp_ms=START_MS + step)

    assert [offset for offset, _ in offset_entries(tmp_path)] == [3]
    assert time_entries(tmp_path) == [(START_MS + 70, 1)]


def test_the_largest_timestamp_is_in_the_time_index_after_a_close(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        for step in (0, 70, 10):
            log.append(b"", timestamp_ms=START_MS + step)
        assert time_entries(tmp_path) == []

    assert time_entries(tmp_path) == [(START_MS + 70, 1)]


def test_the_largest_timestamp_is_in_the_time_index_after_a_roll(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=3 * BATCH_BYTES) as log:
        fill(log, 4)

        assert time_entries(tmp_path) == [(START_MS + 2000, 2)]
        assert segment_bases(tmp_path) == [0, 3]


def test_entries_go_on_after_a_clean_close_as_if_there_had_been_none(tmp_path: Path) -> None:
    """Bytes and records since the last entry are remembered; the entry of the close itself stays."""
    make_log(tmp_path / "one", 50, index_interval_bytes=7 * BATCH_BYTES)
    for _ in range(10):
        with open_log(tmp_path / "many", index_interval_bytes=7 * BATCH_BYTES) as log:
            fill(log, 5)

    assert offset_entries(tmp_path / "many") == offset_entries(tmp_path / "one")


def test_without_records_there_are_no_entries(tmp_path: Path) -> None:
    make_log(tmp_path, 0)

    assert offset_entries(tmp_path) == time_entries(tmp_path) == []
