"""Floor searches in index tables: exhaustively, against a search from the front."""

from __future__ import annotations

import itertools
import mmap
import struct
from pathlib import Path

import pytest

from cases import for_each
from record.batches import INT64_MAX
from seeklog.record.index_lookup import entries_around, floor_entry

OFFSETS = struct.Struct(">ii")
TIMES = struct.Struct(">qi")


def table_of(entries: list[tuple[int, int]], entry: struct.Struct) -> bytes:
    return b"".join(entry.pack(*each) for each in entries)


@pytest.mark.parametrize("entry", [OFFSETS, TIMES], ids=["offsets", "times"])
@for_each("count", range(20))
def test_floor_is_the_last_entry_at_or_below_the_target(entry: struct.Struct, count: int) -> None:
    table = table_of([(10 + 3 * number, number) for number in range(count)], entry)

    for target in range(75):
        expected = sum(10 + 3 * number <= target for number in range(count)) - 1
        assert floor_entry(table, entry.size, entry is TIMES, target) == expected


@pytest.mark.parametrize("entry", [OFFSETS, TIMES], ids=["offsets", "times"])
def test_floor_of_equal_entries_is_the_last(entry: struct.Struct) -> None:
    assert floor_entry(table_of([(5, 0), (5, 1), (5, 2), (6, 3)], entry), entry.size, entry is TIMES, 5) == 2


def test_fields_are_signed_and_compared_whole() -> None:
    times = [-(2**63), -1, 0, 2**31, 2**32 - 1, 2**32, INT64_MAX]
    table = table_of([(time, 0) for time in times], TIMES)
    for number, time in enumerate(times):
        assert floor_entry(table, 12, True, time) == number
        assert floor_entry(table, 12, True, max(time - 1, -(2**63))) == max(number - 1, 0 if number == 0 else -1)

    offsets = [-(2**31), -1, 0, 255, 256, 65_535, 65_536, 2**31 - 1]
    table = table_of([(offset, 0) for offset in offsets], OFFSETS)
    for number, offset in enumerate(offsets):
        assert floor_entry(table, 8, False, offset) == number
        assert floor_entry(table, 8, False, offset - 1) == number - 1


@for_each("extra", range(8))
def test_incomplete_last_entry_is_ignored(extra: int) -> None:
    table = table_of([(1, 0), (2, 0)], OFFSETS) + bytes(extra)

    assert floor_entry(table, 8, False, 100) == 1
    assert entries_around(table, 1) == (1, 0, 2, 0)


def test_unsorted_table_gives_some_entry() -> None:
    for order in itertools.permutations([1, 2, 3, 4]):
        table = table_of([(offset, 0) for offset in order], OFFSETS)
        for target in range(6):
            assert -1 <= floor_entry(table, 8, False, target) < 4


def test_any_buffer_is_a_table(tmp_path: Path) -> None:
    table = table_of([(1, 10), (5, 20)], OFFSETS)
    path = tmp_path / "index"
    path.write_bytes(table)

    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        for buffer in (table, bytearray(table), memoryview(table), mapped):
            assert floor_entry(buffer, 8, False, 3) == 0
            assert entries_around(buffer, 3) == (1, 10, 5, 20)


def test_table_may_grow_after_a_search() -> None:
    """The search releases its buffer; otherwise a bytearray could not grow."""
    table = bytearray(table_of([(1, 0)], OFFSETS))
    floor_entry(table, 8, False, 1)
    entries_around(table, 1)

    table += OFFSETS.pack(2, 0)

    assert floor_entry(table, 8, False, 2) == 1


@for_each("count", range(8))
def test_entries_around_an_offset_are_floor_and_next(count: int) -> None:
    entries = [(10 + 3 * number, 100 * number) for number in range(count)]
    table = table_of(entries, OFFSETS)

    for target in range(40):
        below = [entry for entry in entries if entry[0] <= target]
        above = [entry for entry in entries if entry[0] > target]
        floor = below[-1] if below else (-1, 0)
        ahead = above[0] if above else (-1, -1)
        assert entries_around(table, target) == (*floor, *ahead)
