"""Batches decoded to Arrow columns: the same rows as records, only the requested columns, and bounded room."""

from __future__ import annotations

import itertools

import pytest

from cases import for_each
from record.batches import (
    CODECS,
    HEADER_SIZE,
    INT64_MAX,
    LIMIT,
    SMALL,
    SMALL_ROWS,
    Row,
    Sketch,
    T,
    batch_of,
    read_all,
    seal,
    with_field,
)
from record.columns import ALL, make, read_columns, rows_of
from seeklog.errors import CorruptBatch, FormatError, UnsupportedMagic
from seeklog.record.codec import CODEC_NAMES
from seeklog.record.columns import Columns

by_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: CODEC_NAMES[codec])


def test_every_column_of_a_small_batch_is_right() -> None:
    columns = make()
    raw = SMALL.encode()

    assert columns.add(raw, 0, 0, 40, True, 0, 1000) == (len(raw), 44, False)
    assert rows_of(columns) == {
        "key": [b"k0", b"", None],
        "value": [b"v0", None, b""],
        "offset": [40, 41, 43],
        "timestamp": [T, T + 5, T - 3],
        "headers": [(("trace", b"1"), ("none", None)), (), (("", b""),)],
        "timestampType": [0, 0, 0],
    }


@pytest.mark.parametrize(
    "names", [subset for size in range(1, len(ALL) + 1) for subset in itertools.combinations(ALL, size)], ids="+".join
)
def test_only_requested_columns_are_built(names: tuple[str, ...]) -> None:
    columns, everything = make(names), make()
    for some in (columns, everything):
        some.add(SMALL.encode(), 0, 0, 40, True, 0, 1000)

    table = rows_of(columns)

    assert set(table) == set(names)
    assert table == {name: rows for name, rows in rows_of(everything).items() if name in names}


@by_codec
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 63, 64, 65, 200])
def test_nulls_are_marked_at_every_count(codec: int, count: int) -> None:
    """Eight rows share a byte of the validity bits."""
    rows = tuple(Row(None if n % 3 else b"v%d" % n, None if n % 2 else b"", delta=n) for n in range(count))
    raw = Sketch(rows, codec=codec, fields={"last_delta": max(count - 1, 0)}).encode()

    _, _, records = read_columns(raw)

    assert records == read_all(raw)


def test_column_without_nulls_has_no_validity_bits() -> None:
    columns = make(("key", "value"))
    columns.add(Sketch((Row(b"v", None),)).encode(), 0, 0, 0, True, 0, 10)

    buffers = columns.finish()

    assert buffers["value"][2] is None
    assert buffers["key"][1:3] == (1, bytearray(1))


def test_no_columns_have_no_rows() -> None:
    assert rows_of(make()) == {name: [] for name in ALL}


@pytest.mark.parametrize("scale", [1, 1000])
def test_timestamps_are_scaled_to_the_requested_unit(scale: int) -> None:
    columns = make(("timestamp",), scale=scale)
    columns.add(SMALL.encode(), 0, 0, 40, True, 0, 1000)

    assert rows_of(columns)["timestamp"] == [T * scale, (T + 5) * scale, (T - 3) * scale]


def test_timestamp_too_large_for_its_unit_is_refused() -> None:
    largest = INT64_MAX // 1000

    for timestamp, fits in ((largest, True), (largest + 1, False)):
        columns = make(("timestamp",), scale=1000)
        raw = Sketch((Row(timestamp_ms=timestamp),)).encode()
        if fits:
            columns.add(raw, 0, 0, 0, True, 0, 10)
            assert rows_of(columns)["timestamp"] == [timestamp * 1000]
        else:
            with pytest.raises(CorruptBatch, match="out of bounds"):
                columns.add(raw, 0, 0, 0, True, 0, 10)


@by_codec
def test_each_row_has_its_timestamp_type(codec: int) -> None:
    """Other attribute bits do not matter: transactional, delete horizon, codec."""
    attributes = (0x00, 0x08, 0x10, 0x18, 0x48, 0x40)
    raw = b"".join(
        Sketch((Row(delta=0), Row(delta=1)), 2 * batch, codec, bits).encode() for batch, bits in enumerate(attributes)
    )
    columns = make()

    columns.add(raw, 0, 0, 0, True, 1, 11)

    assert rows_of(columns)["timestampType"] == [0, 1, 1, 0, 0, 1, 1, 1, 1, 0]


# ---------------------------------------------------------------- room


@by_codec
def test_whole_batches_are_taken_while_their_rows_fit(codec: int) -> None:
    raws = [Sketch(tuple(Row(delta=n) for n in range(4)), 4 * batch, codec).encode() for batch in range(3)]
    columns = make(rows=9)

    taken = columns.add(b"".join(raws), 0, 0, 0, True, 0, 100)

    assert taken == (len(raws[0] + raws[1]), 8, True)
    assert columns.rows == 8


@by_codec
def test_whole_batches_are_taken_while_their_bytes_fit(codec: int) -> None:
    """Each record has eight bytes of framing, so two batches have 216 bytes."""
    raws = [Sketch((Row(bytes(100)),), batch, codec).encode() for batch in range(3)]
    columns = make(data_bytes=250)

    taken = columns.add(b"".join(raws), 0, 0, 0, True, 0, 100)

    assert taken == (len(raws[0] + raws[1]), 2, True)


@by_codec
@pytest.mark.parametrize(("rows", "data_bytes"), [(1, 10_000), (1000, 1), (1, 1)])
def test_empty_columns_take_one_batch_however_large(codec: int, rows: int, data_bytes: int) -> None:
    sketch = Sketch(tuple(Row(bytes(50), b"key", ((b"h", b"1"),), delta=n) for n in range(100)), codec=codec)
    columns = make(rows=rows, data_bytes=data_bytes)
    raw = sketch.encode()

    assert columns.add(raw, 0, 0, 0, True, 0, 1000) == (len(raw), 100, False)
    table = rows_of(columns)
    assert table["value"] == [bytes(50)] * 100
    assert table["key"] == [b"key"] * 100
    assert table["headers"] == [(("h", b"1"),)] * 100


def test_control_batch_and_empty_batch_take_no_room() -> None:
    control = Sketch((Row(),), 0, attributes=0x20).encode()
    empty = batch_of(b"", base_offset=1, last_delta=0, record_count=0)
    columns = make(rows=1)

    raw = control + empty + Sketch((Row(b"v"),), 2).encode()

    assert columns.add(raw, 0, 0, 0, True, 0, 10) == (len(raw), 3, False)
    assert rows_of(columns)["offset"] == [2]


def test_columns_grow_past_their_first_guess() -> None:
    """Keys are expected to be short: 16 bytes a row."""
    rows = tuple(Row(b"", bytes(1000), delta=n) for n in range(100))
    columns = make(rows=100, data_bytes=200_000)
    columns.add(Sketch(rows).encode(), 0, 0, 0, True, 0, 1000)

    assert rows_of(columns)["key"] == [bytes(1000)] * 100


# ---------------------------------------------------------------- windows and damage


@for_each("start", range(39, 46))
@for_each("stop", range(39, 46))
@by_codec
def test_every_offset_range_returns_its_rows(start: int, stop: int, codec: int) -> None:
    raw = Sketch(SMALL_ROWS, base_offset=40, codec=codec).encode()

    _, _, records = read_columns(raw, next_offset=40, contiguous=True, start=start, stop=stop)

    assert records == [record for record in SMALL.records() if start <= record.offset < stop]


@for_each("size", range(len(SMALL.encode()) + 1))
def test_columns_stop_before_incomplete_batch(size: int) -> None:
    raw = SMALL.encode()
    whole = size == len(raw)

    end, next_offset, records = read_columns(raw[:size], next_offset=40)

    assert (end, next_offset, len(records)) == ((len(raw), 44, 3) if whole else (0, 40, 0))


@by_codec
def test_bomb_is_refused_with_its_position(codec: int) -> None:
    if codec == 0:
        return  # nothing expands
    raw = Sketch((Row(bytes(100_000)),), codec=codec).encode()

    with pytest.raises(FormatError) as caught:
        make(limit=99_999).add(raw, 0, 700, 0, True, 0, 10)

    assert caught.value.position == 700


@pytest.mark.parametrize("magic", [0, 1])
def test_older_format_is_refused_by_name(magic: int) -> None:
    with pytest.raises(UnsupportedMagic, match=f"magic {magic}"):
        make().add(with_field(SMALL.encode(), "magic", magic), 0, 0, 40, True, 0, 1000)


@pytest.mark.parametrize(
    ("next_offset", "contiguous"), [(41, False), (41, True), (39, True)], ids=["back", "back exactly", "gap"]
)
def test_offsets_out_of_sequence_are_damage(next_offset: int, contiguous: bool) -> None:
    with pytest.raises(CorruptBatch, match=f"base offset 40, expected {next_offset}"):
        make().add(SMALL.encode(), 0, 0, next_offset, contiguous, 0, 1000)


@by_codec
def test_bytes_after_last_record_are_damage(codec: int) -> None:
    raw = batch_of(SMALL.body() + b"x", codec=codec, record_count=3, last_delta=3)

    with pytest.raises(CorruptBatch, match="left over"):
        make().add(raw, 0, 0, 0, True, 0, 1000)


def test_impossible_record_count_costs_no_memory() -> None:
    """2**31 - 1 rows would be 24 GB of columns; the smallest record takes seven bytes."""
    raw = seal(with_field(with_field(SMALL.encode(), "record_count", 2**31 - 1), "last_delta", 2**31 - 1))

    with pytest.raises(CorruptBatch, match="cannot fit"):
        make(rows=1, data_bytes=1).add(raw, 0, 0, 40, True, 0, INT64_MAX)


def test_limit_applies_to_expanded_size() -> None:
    raw = Sketch((Row(bytes(LIMIT - 100)),), codec=4).encode()

    assert len(read_columns(raw)[2]) == 1


def test_columns_take_as_many_batches_as_fit() -> None:
    """Goal: not one more, so that the result stays within the request, and not one less."""
    raw = Sketch((Row(b"a value of some bytes", b"key", (), T, 0),)).encode()
    stream = b"".join(with_field(raw, "base_offset", number) for number in range(9))
    body = len(raw) - HEADER_SIZE
    for room in range(body, 8 * body, 3):
        columns = Columns(["value"], rows=100, data_bytes=room, limit=LIMIT, timestamp_scale=1)
        taken = room // body

        assert columns.add(stream, 0, 0, 0, True, 0, INT64_MAX) == (taken * len(raw), taken, True)
        assert columns.rows == taken
