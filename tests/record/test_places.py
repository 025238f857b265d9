"""Errors give the byte of the damage, in the second or third batch of a read from anywhere in a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from record.batches import INT64_MAX, LIMIT, RULES, Row, Sketch, T, batch_of, field_of, seal, with_field
from seeklog.errors import CorruptionError
from seeklog.record.batch_header import find_time, skip_batches, take_batches
from seeklog.record.codec import GZIP
from seeklog.record.columns import Columns
from seeklog.record.compaction import BatchFilter
from seeklog.record.decode import read_records
from seeklog.record.key_table import KeyTable
from seeklog.record.markers import note_transactions
from seeklog.record.offset_map import OffsetMap
from seeklog.record.segment_state import SegmentState

MANY = 2**62
SECRET = bytes(range(16))
# Sizes with varied bits, so that no wrong sum gives the right result.
SKETCHES = (
    Sketch((Row(b"first", b"a", (), T, 0),), base_offset=40),
    Sketch((Row(b"second value", b"bb", ((b"h", b"1"),), T, 0), Row(None, b"a", (), T + 1, 1)), base_offset=41),
    Sketch((Row(b"third" * 30, b"ccc", (), T + 2, 0),), base_offset=43),
    Sketch((Row(b"last", b"d", (), T + 3, 0),), base_offset=44),
)
BATCHES = [sketch.encode() for sketch in SKETCHES]


def offset_map() -> OffsetMap:
    return OffsetMap(64, base_offset=0, secret=SECRET)


def batch_filter() -> BatchFilter:
    nobody: dict[int, int] = {}
    filters = BatchFilter(
        offset_map(),
        now_ms=T,
        delete_retention_ms=0,
        last_offsets=nobody,
        last_epochs=nobody,
        limit=LIMIT,
        judge=lambda *_: False,
    )
    filters.begin()
    return filters


def columns(names: list[str]) -> Columns:
    return Columns(names, rows=100, data_bytes=10_000, limit=LIMIT, timestamp_scale=1)


def read(data: bytes, at: int, origin: int) -> object:
    return read_records(data, at, origin, 0, False, 0, INT64_MAX, MANY, MANY, MANY, LIMIT, [])


WALKS: dict[str, Callable[[bytes, int, int], object]] = {
    "skip": lambda data, at, origin: skip_batches(data, at, origin, 0, MANY, False),
    "take": lambda data, at, origin: take_batches(data, at, origin, 0, False, MANY, MANY, True, True),
    "find by time": lambda data, at, origin: find_time(data, at, origin, INT64_MAX),
    "read": read,
    "columns": lambda data, at, origin: columns(["key", "value", "offset", "timestamp", "headers"]).add(
        data, at, origin, 0, False, 0, INT64_MAX
    ),
    "note transactions": lambda data, at, origin: note_transactions(
        data, at, origin, INT64_MAX, LIMIT, lambda *_: None
    ),
    "map": lambda data, at, origin: offset_map().add_batches(data, at, origin, 0, LIMIT, lambda *_: False),
    "filter": lambda data, at, origin: batch_filter().add_batches(data, at, origin),
    "keys": lambda data, at, origin: KeyTable(0).add(data[at:], origin + at, False, INT64_MAX, LIMIT),
}


def flipped(raw: bytes) -> bytes:
    return raw[:-2] + bytes([raw[-2] ^ 1]) + raw[-1:]


def with_compressed_damage(raw: bytes) -> bytes:
    """A batch with the same offsets whose body expands to bytes that are not a record."""
    fields = {name: field_of(raw, name) for name in ("base_offset", "last_delta", "record_count")}
    return batch_of(b"\x7f" + bytes(20), codec=GZIP, **fields)


# The damage that every walk must find, and the damage that decoding walks must find.
DAMAGES: dict[str, tuple[Callable[[bytes], bytes], frozenset[str]]] = {
    "magic": (lambda raw: with_field(raw, "magic", 1), frozenset(WALKS)),
    "length": (lambda raw: with_field(raw, "batch_length", 48), frozenset(WALKS)),
    "checksum": (flipped, frozenset(WALKS)),
    "offset": (lambda raw: seal(with_field(raw, "base_offset", -7)), frozenset(WALKS)),
    "last delta": (lambda raw: seal(with_field(raw, "last_delta", -1)), frozenset(WALKS)),
    "count": (
        lambda raw: seal(with_field(raw, "record_count", 1000)),
        frozenset({"read", "columns", "map", "filter", "keys"}),
    ),
    "record": (
        lambda raw: seal(raw[:61] + b"\x7f" + raw[62:]),
        frozenset({"read", "columns", "map", "filter", "keys"}),
    ),
    "record in a compressed body": (with_compressed_damage, frozenset({"read", "columns", "map", "filter", "keys"})),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("walk", WALKS)
def test_damage_is_reported_at_the_start_of_its_batch(walk: str, damage: str) -> None:
    """Goal: whatever was read before it, from this file or in this read."""
    harm, met_by = DAMAGES[damage]
    if walk not in met_by:
        pytest.skip("it does not look there")
    for place in (1, 2):
        data = b"".join(harm(raw) if number == place else raw for number, raw in enumerate(BATCHES))
        begin = len(b"".join(BATCHES[:place]))
        for origin in (0, 1000, 4097, 2**33 + 5):
            for at in (0, len(BATCHES[0])):
                with pytest.raises(CorruptionError) as caught:
                    WALKS[walk](data, at, origin)
                assert caught.value.position == origin + begin


@pytest.mark.parametrize("walk", WALKS)
def test_every_walk_refuses_overlapping_batches(walk: str) -> None:
    overlapping = seal(with_field(BATCHES[2], "base_offset", 42))
    begin = len(b"".join(BATCHES[:2]))

    with pytest.raises(CorruptionError, match="base offset 42, expected 43") as caught:
        WALKS[walk](b"".join([*BATCHES[:2], overlapping]), 0, 1000)
    assert caught.value.position == 1000 + begin


@pytest.mark.parametrize("damage", DAMAGES)
def test_scan_gives_the_position_of_damage_in_the_file(damage: str) -> None:
    """Goal: over several reads, each of which continues where the last ended."""
    harm, _ = DAMAGES[damage]
    for place in (1, 2, 3):
        state: Any = SegmentState(40, **RULES)
        for raw in BATCHES[:place]:
            assert state.scan(raw, 0) == len(raw)
        state.scan(harm(BATCHES[place]), 0)
        if state.problem is None:
            # A scan does not look inside records, but checks their count.
            assert damage.startswith("record")
        else:
            assert state.problem.position == state.size == len(b"".join(BATCHES[:place]))
