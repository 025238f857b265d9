"""Rows of Arrow arrays encoded as batches: exactly the bytes of the same records, for any slices."""

from __future__ import annotations

import itertools
import mmap
import random
import struct
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from record.batches import CODECS, INT64_MAX, T
from seeklog.errors import FormatError, InvalidRecord, RecordTooLarge, UsageError
from seeklog.record import rows
from seeklog.record.arrow_rows import ArrowBytes, ArrowHeaders, ArrowInts, ArrowRows, group_rows, partitions_of
from seeklog.record.batch import decode_records, encode_batch, read_header
from seeklog.record.codec import CODEC_NAMES
from seeklog.record.key_hash import partition_of
from seeklog.record.layout import HEADER_SIZE
from seeklog.record.record import Record

pa = pytest.importorskip("pyarrow")

NOW = T + 1000
HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.list_(HEADER)
MICROS = pa.timestamp("us", "UTC")
MILLIS = pa.timestamp("ms", "UTC")
# A value of each type for the ends of a sliced array: it must never be read.
STRANGERS = {pa.binary(): b"stranger", HEADERS: [{"key": "stranger", "value": b"x"}] * 3}
by_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: CODEC_NAMES[codec])

Headers = list[tuple[str, bytes | None]] | None
Fields = tuple[bytes | None, bytes | None, int | None, Headers]


def sliced(values: list[Any], kind: Any, *, before: int, after: int = 2) -> Any:
    """Return an array of the values that is the middle of a longer one."""
    stranger = STRANGERS.get(kind, 77)
    whole = pa.array([stranger] * before + values + [stranger] * after, kind)
    part = whole.slice(before, len(values))
    assert part.offset == before
    return part


def columns_of(table: list[Fields], *, before: int = 0, unit: Any = MICROS) -> ArrowRows:
    keys, values, times, headers = ([row[n] for row in table] for n in range(4))
    pairs = [None if some is None else [{"key": key, "value": value} for key, value in some] for some in headers]
    return rows.record_rows(
        key=sliced(keys, pa.binary(), before=before),
        value=sliced(values, pa.binary(), before=before + 1),
        timestamp=sliced(times, unit, before=before + 2),
        headers=sliced(pairs, HEADERS, before=before + 3),
    )


def records_of(table: list[Fields], *, scale: int = 1000) -> list[Record]:
    return [
        Record(value, key=key, headers=tuple(headers or ()), timestamp_ms=None if time is None else time // scale)
        for key, value, time, headers in table
    ]


def by_hand(records: list[Record], *, codec: int, batch_bytes: int) -> list[tuple[bytes, int]]:
    """The batches of records, ended where the next record would not fit."""
    batches: list[list[Record]] = []
    for record in records:
        if batches and len(encode_batch([*batches[-1], record], now_ms=NOW)) <= batch_bytes:
            batches[-1].append(record)
        else:
            batches.append([record])
    return [(encode_batch(batch, now_ms=NOW, codec=codec), len(batch)) for batch in batches]


def encoded(columns: ArrowRows, **options: Any) -> list[tuple[bytes, int]]:
    return list(rows.encode_rows(columns, **{"now_ms": NOW, **options}))


# ---------------------------------------------------------------- the same bytes

some_bytes = st.none() | st.binary(max_size=70)
# From the millisecond before 1970, which is a record's "no timestamp", up to the largest that Spark can hold.
some_times = st.none() | st.integers(-1000, INT64_MAX) | st.integers(1000 * T, 1000 * T + 10**7)
some_headers = st.none() | st.lists(st.tuples(st.text(max_size=5), some_bytes), max_size=3)
tables = st.lists(st.tuples(some_bytes, some_bytes, some_times, some_headers), max_size=20)


@given(
    table=tables,
    codec=st.sampled_from(CODECS),
    batch_bytes=st.integers(1, 600),
    before=st.integers(0, 9),
)
def test_batches_equal_those_of_the_same_records(table: Any, codec: int, batch_bytes: int, before: int) -> None:
    assert encoded(columns_of(table, before=before), codec=codec, batch_bytes=batch_bytes) == by_hand(
        records_of(table), codec=codec, batch_bytes=batch_bytes
    )


@given(table=tables, choice=st.data(), batch_bytes=st.integers(1, 600), wide=st.booleans())
def test_selected_rows_have_the_order_of_the_selection(table: Any, choice: Any, batch_bytes: int, wide: bool) -> None:
    numbers = choice.draw(st.lists(st.integers(0, len(table) - 1), max_size=12)) if table else []
    selection = sliced(numbers, pa.int64() if wide else pa.int32(), before=3)

    assert encoded(columns_of(table, before=1), rows=selection, batch_bytes=batch_bytes) == by_hand(
        records_of([table[number] for number in numbers]), codec=0, batch_bytes=batch_bytes
    )


EVERY_FIELD: list[Fields] = [
    (key, value, time, headers)
    for key in (None, b"", b"k")
    for value in (None, b"", b"v" * 63, b"v" * 64)
    for time in (None, -1000, -1, 0, 999, 1000 * T - 1, 1000 * T, INT64_MAX)
    for headers in (None, [], [("", None)], [("h", b""), ("ü", b"x" * 64)])
]


@by_codec
@pytest.mark.parametrize("before", [0, 1, 8])
def test_every_combination_of_fields_gives_the_same_bytes(codec: int, before: int) -> None:
    """Alone in a batch, and all of them together, so that deltas and numbers have every size."""
    columns, records = columns_of(EVERY_FIELD, before=before), records_of(EVERY_FIELD)

    assert encoded(columns, codec=codec, batch_bytes=1 << 20) == by_hand(records, codec=codec, batch_bytes=1 << 20)
    assert encoded(columns, codec=codec, batch_bytes=1) == by_hand(records, codec=codec, batch_bytes=1)


@pytest.mark.parametrize("present", list(itertools.product([False, True], repeat=4))[1:])
def test_columns_may_be_missing(present: tuple[bool, ...]) -> None:
    table: list[Fields] = [(b"k%d" % n, b"v", 1000 * (T + n), [("h", b"1")]) for n in range(9)]
    names = ("key", "value", "timestamp", "headers")
    kinds = (pa.binary(), pa.binary(), MICROS, HEADERS)
    lists = [[row[n] for row in table] for n in range(3)] + [[[{"key": "h", "value": b"1"}]] * 9]
    some = {
        name: sliced(column, kind, before=2)
        for name, column, kind, is_there in zip(names, lists, kinds, present, strict=True)
        if is_there
    }
    shown = [tuple(field if there else None for field, there in zip(row, present, strict=True)) for row in table]

    assert encoded(rows.record_rows(**some)) == [(encode_batch(records_of(shown), now_ms=NOW), 9)]


@pytest.mark.parametrize("kind", ["binary", "string", "large_binary", "large_string"])
def test_text_and_large_types_are_read_as_bytes(kind: str) -> None:
    texts = ["", "k", None, "ü" * 40]
    array = pa.array(["stranger", *texts], getattr(pa, kind)()).slice(1)
    record = [None if text is None else text.encode() for text in texts]

    batches = encoded(rows.record_rows(key=array, value=array))

    assert batches == [(encode_batch([Record(some, key=some) for some in record], now_ms=NOW), 4)]


def test_large_lists_of_headers_are_read() -> None:
    large = pa.large_list(pa.struct([pa.field("value", pa.large_binary()), pa.field("key", pa.large_string())]))
    array = pa.array([[], [{"key": "a", "value": b"1"}, {"key": "b", "value": None}], None], large).slice(1)

    batches = encoded(rows.record_rows(headers=array))

    assert batches == [(encode_batch([Record(None, headers=(("a", b"1"), ("b", None))), Record(None)], now_ms=NOW), 2)]


def test_headers_are_right_if_every_layer_is_a_slice() -> None:
    """The keys, the values, the structs and the lists each start at another position in their buffers."""
    keys = pa.array(["x", "x", "x", "a", "b", "c", "x"]).slice(2)
    values = pa.array([b"y", b"y", b"y", b"1", None, b"3", b"y"], pa.binary()).slice(2)
    nulls = pa.array([True, False, False, False, True])
    pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADER), mask=nulls).slice(1)
    lists = pa.ListArray.from_arrays(pa.array([0, 0, 2, 2, 3], pa.int32()), pairs).slice(1)

    batches = encoded(rows.record_rows(headers=lists))

    expected = [Record(None, headers=some) for some in ((("a", b"1"), ("b", None)), (), (("c", b"3"),))]
    assert batches == [(encode_batch(expected, now_ms=NOW), 3)]


@pytest.mark.parametrize(("unit", "scale"), [(MICROS, 1000), (MILLIS, 1)])
def test_timestamp_is_rounded_down_to_milliseconds(unit: Any, scale: int) -> None:
    times = [-scale, -scale // 2, 0, scale - 1, scale, INT64_MAX - 1, INT64_MAX]

    [(batch, _)] = encoded(columns_of([(None, b"", time, None) for time in times], unit=unit))

    assert [record.timestamp_ms for record in decode_records(batch)] == [time // scale for time in times]
    assert read_header(batch).max_timestamp_ms == INT64_MAX // scale


def test_no_rows_make_no_batch() -> None:
    assert encoded(columns_of([])) == []
    assert encoded(columns_of([(None, b"v", None, None)]), rows=pa.array([], pa.int32())) == []
    assert encoded(rows.record_rows(value=pa.array([], pa.binary()))) == []


def test_columns_of_only_nulls_need_no_bytes() -> None:
    nulls = ArrowBytes(9, offset=0, wide=False, valid=bytes(2), ends=bytes(40), data=None)

    assert encoded(ArrowRows(9, key=nulls, value=nulls)) == [(encode_batch([Record(None)] * 9, now_ms=NOW), 9)]


def test_rows_can_be_read_many_times() -> None:
    columns = columns_of(EVERY_FIELD)

    assert encoded(columns) == encoded(columns)


def test_rows_stay_valid_after_their_arrays_are_released() -> None:
    value = pa.array([b"%05d" % n for n in range(1000)], pa.binary())
    columns = rows.record_rows(value=value)
    del value
    pa.default_memory_pool().release_unused()

    assert [record.value for batch, _ in encoded(columns) for record in decode_records(batch)] == [
        b"%05d" % n for n in range(1000)
    ]


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("peer", ["kafka.record.memory_records", "aiokafka.record._crecords"])
def test_python_clients_of_kafka_read_the_batches(peer: str, codec: int) -> None:
    memory_records = pytest.importorskip(peer).MemoryRecords
    table = [(key, value, time, headers) for key, value, time, headers in EVERY_FIELD if time is None or time >= 0]

    found = []
    for batch, _ in encoded(columns_of(table), codec=codec, batch_bytes=4096):
        batches = memory_records(batch)
        while (some := batches.next_batch()) is not None:
            assert some.validate_crc()
            found += [
                Record(record.value, key=record.key, headers=record.headers, timestamp_ms=record.timestamp)
                for record in some
            ]

    assert found == [
        Record(r.value, key=r.key, headers=r.headers, timestamp_ms=NOW if r.timestamp_ms is None else r.timestamp_ms)
        for r in records_of(table)
    ]


# ---------------------------------------------------------------- sizes


def test_batch_is_filled_to_its_last_byte() -> None:
    table: list[Fields] = [(b"k", bytes(20), None, None)] * 10
    two = len(encode_batch(records_of(table[:2]), now_ms=NOW))

    assert [count for _, count in encoded(columns_of(table), batch_bytes=two)] == [2] * 5
    assert [count for _, count in encoded(columns_of(table), batch_bytes=two - 1)] == [1] * 10
    assert [count for _, count in encoded(columns_of(table), max_batch_bytes=two)] == [2] * 5


@by_codec
def test_record_larger_than_batch_bytes_has_a_batch_to_itself(codec: int) -> None:
    sizes = [10, 10, 5000, 10, 300_000, 300_000, 10]
    table: list[Fields] = [(None, bytes(size), None, None) for size in sizes]

    batches = encoded(columns_of(table), codec=codec, batch_bytes=1000)

    assert [count for _, count in batches] == [2, 1, 1, 1, 1, 1]
    assert [len(record.value or b"") for batch, _ in batches for record in decode_records(batch)] == sizes


def test_batches_larger_than_the_first_buffer_are_whole() -> None:
    table: list[Fields] = [(b"%d" % n, bytes(1000), None, [("h", b"%d" % n)]) for n in range(700)]

    assert encoded(columns_of(table), batch_bytes=1 << 20) == [(encode_batch(records_of(table), now_ms=NOW), 700)]


def test_batch_that_compression_made_too_large_is_split() -> None:
    """Random bytes do not compress: the framing makes them larger."""
    chance = random.Random(2026)
    table: list[Fields] = [(None, chance.randbytes(100), None, None) for _ in range(50)]
    largest = len(encode_batch(records_of(table), now_ms=NOW))

    for codec in CODECS:
        batches = encoded(columns_of(table), codec=codec, batch_bytes=1 << 20, max_batch_bytes=largest)

        assert all(len(batch) <= largest for batch, _ in batches)
        assert [record.value for batch, _ in batches for record in decode_records(batch)] == [row[1] for row in table]


def test_record_too_large_for_any_batch_is_named() -> None:
    table: list[Fields] = [(None, bytes(size), None, None) for size in (10, 10, 1000, 10)]
    columns = columns_of(table)
    size = len(encode_batch(records_of(table[2:3]), now_ms=NOW))

    assert len(encoded(columns, max_batch_bytes=size)) == 1 + 1 + 1
    with pytest.raises(RecordTooLarge, match=rf"row 2: .* {size:,} bytes, and max\.message\.bytes is {size - 1:,}"):
        encoded(columns, max_batch_bytes=size - 1)
    with pytest.raises(RecordTooLarge, match="row 2: "):
        encoded(columns, max_batch_bytes=size - 1, rows=pa.array([0, 1, 2], pa.int64()))


def test_record_that_compresses_but_expands_past_the_limit_is_named() -> None:
    table: list[Fields] = [(None, bytes(size), None, None) for size in (500, 500, 10_000)]
    size = len(encode_batch(records_of(table[2:]), now_ms=NOW)) - HEADER_SIZE

    for codec in CODECS:
        batches = encoded(columns_of(table), codec=codec, limit=size)
        assert [record.value for batch, _ in batches for record in decode_records(batch, limit=size)] == [
            row[1] for row in table
        ]
    for codec in CODECS[1:]:
        with pytest.raises(RecordTooLarge, match=rf"row 2: .* {size:,} bytes.*max\.decompressed\.bytes, {size - 1:,}"):
            encoded(columns_of(table), codec=codec, limit=size - 1)
    assert len(encoded(columns_of(table), limit=size - 1)) == 1, "nothing is decompressed there"


def test_record_past_two_gigabytes_is_refused_before_copying() -> None:
    """A gigabyte of zeros without memory behind them, as key and value, and in two headers."""
    size = 1 << 30
    zeros = mmap.mmap(-1, size)
    one = ArrowBytes(1, offset=0, wide=False, valid=None, ends=struct.pack("=2i", 0, size), data=zeros)
    ends = struct.pack("=2i", 0, 1)
    headers = ArrowHeaders(
        1, offset=0, wide=False, valid=None, ends=ends, pair_offset=0, pair_valid=None, keys=one, values=one
    )

    with pytest.raises(RecordTooLarge, match=r"row 0: .* at most 2 GiB"):
        encoded(ArrowRows(1, key=one, value=one))
    with pytest.raises(RecordTooLarge, match=r"row 0: its headers .* 2 GiB"):
        encoded(ArrowRows(1, headers=headers))


# ---------------------------------------------------------------- refusals


def test_more_rows_than_int32_row_numbers_are_refused() -> None:
    with pytest.raises(UsageError, match=r"2,147,483,648 rows; group at most 2,147,483,647 at once"):
        rows.group_rows(pa.nulls(2**31), count=3)


@pytest.mark.parametrize(("unit", "time"), [(MICROS, -1001), (MICROS, -INT64_MAX - 1), (MILLIS, -2)])
def test_timestamp_before_1970_is_refused_by_its_row(unit: Any, time: int) -> None:
    columns = columns_of([(None, b"", 0, None), (None, b"", time, None)], unit=unit)

    with pytest.raises(InvalidRecord, match=r"row 1: its timestamp, .* before 1970"):
        encoded(columns)


@pytest.mark.parametrize(
    ("pair", "reason"),
    [({"key": None, "value": b""}, "row 1: a header's key is null"), (None, "row 1: a header is null")],
)
def test_invalid_header_is_refused_by_its_row(pair: Any, reason: str) -> None:
    lists = pa.array([[], [{"key": "h", "value": b""}], [{"key": "h", "value": b""}, pair]], HEADERS).slice(1)

    with pytest.raises(InvalidRecord, match=reason):
        encoded(rows.record_rows(headers=lists))


@pytest.mark.parametrize("row", [-1, 2, INT64_MAX])
def test_missing_selected_row_is_named(row: int) -> None:
    columns = columns_of([(None, b"", None, None)] * 2)

    with pytest.raises(InvalidRecord, match=f"row {row} is selected; there are 2"):
        encoded(columns, rows=pa.array([1, row], pa.int64()))


def test_selection_must_be_numbers_without_nulls() -> None:
    columns = columns_of([(None, b"", None, None)])

    with pytest.raises(InvalidRecord, match="row is null"):
        encoded(columns, rows=pa.array([0, None], pa.int32()))
    with pytest.raises(UsageError, match="int32 or int64"):
        encoded(columns, rows=pa.array([0.0]))


@pytest.mark.parametrize(
    ("column", "array"),
    [
        ("key", pa.array([1])),
        ("value", pa.array([b"v"]).dictionary_encode()),
        ("value", pa.array([b"v"], pa.binary(1))),
        ("timestamp", pa.array([1])),
        ("timestamp", pa.array([1], pa.timestamp("ns", "UTC"))),
        ("timestamp", pa.array([1], pa.timestamp("us"))),
        ("headers", pa.array([b"h"])),
        ("headers", pa.array([[b"h"]])),
        ("headers", pa.array([[{"key": "h", "text": b"v"}]])),
        ("headers", pa.array([[{"key": 1, "value": b"v"}]])),
    ],
)
def test_column_of_another_type_is_named_with_the_type_it_must_have(column: str, array: Any) -> None:
    with pytest.raises(UsageError, match=f"the column {column}.* it must be .*cast it first"):
        rows.record_rows(**{column: array})


def test_columns_must_be_arrays_of_equal_length() -> None:
    with pytest.raises(InvalidRecord, match="value has 2 rows, another has 1"):
        rows.record_rows(key=pa.array([b"k"]), value=pa.array([b"v", b"v"]))
    with pytest.raises(UsageError, match="combine the chunks"):
        rows.record_rows(value=pa.chunked_array([[b"v"]]))
    with pytest.raises(UsageError, match="at least one column"):
        rows.record_rows()


@pytest.mark.parametrize(
    "option",
    [{"batch_bytes": 0}, {"max_batch_bytes": 0}, {"limit": 0}, {"now_ms": -2}],
    ids=lambda some: next(iter(some)),
)
def test_impossible_sizes_and_times_are_refused_at_once(option: dict[str, int]) -> None:
    """Not only when the first batch is requested."""
    with pytest.raises(UsageError, match="at least"):
        rows.encode_rows(columns_of([]), **{"now_ms": NOW, **option})


def test_unknown_codec_is_refused_at_once() -> None:
    with pytest.raises(FormatError, match="codec 5"):
        rows.encode_rows(columns_of([]), now_ms=NOW, codec=5)


# ---------------------------------------------------------------- invalid arrays


def test_buffers_that_are_too_short_for_their_rows_are_refused() -> None:
    good: dict[str, Any] = {"offset": 1, "wide": False, "valid": bytes(1), "ends": bytes(20), "data": b""}

    ArrowBytes(3, **good)
    for wrong in (
        {"ends": bytes(19)},
        {"ends": None},
        {"ends": b""},
        {"wide": True},
        {"valid": b""},
        {"offset": 2},
        {"offset": -1},
        {"offset": sys.maxsize},
    ):
        with pytest.raises(InvalidRecord, match="validate the array"):
            ArrowBytes(3, **{**good, **wrong})
    for row_count in (-1, 4, sys.maxsize - 1):
        with pytest.raises(InvalidRecord, match="validate the array"):
            ArrowBytes(row_count, **good)
    with pytest.raises(InvalidRecord, match="validate the array"):
        ArrowInts(3, offset=1, wide=True, valid=None, data=bytes(31))
    with pytest.raises(InvalidRecord, match="validate the array"):
        ArrowInts(3, offset=6, wide=True, valid=bytes(1), data=bytes(100))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("ends", [(-1, 0), (0, 4), (2, 1), (4, 4), (0, -1), (-(2**31), 2**31 - 1)])
def test_bytes_outside_their_buffer_are_refused_by_row(wide: bool, ends: tuple[int, int]) -> None:
    packed = struct.pack("=3q" if wide else "=3i", 0, *ends)
    column = ArrowBytes(2, offset=0, wide=wide, valid=None, ends=packed, data=b"abc")
    pairs: dict[str, Any] = {"valid": None, "pair_offset": 0, "pair_valid": None}
    three = ArrowBytes(3, offset=0, wide=False, valid=None, ends=struct.pack("=4i", 0, 1, 2, 3), data=b"abc")
    lists = ArrowHeaders(2, offset=0, wide=wide, ends=packed, keys=three, values=three, **pairs)
    two = {"offset": 0, "wide": False, "ends": struct.pack("=3i", 0, 0, 2), **pairs}
    good = ArrowBytes(2, offset=0, wide=False, valid=None, ends=struct.pack("=3i", 0, 1, 2), data=b"abc")

    for columns in (
        ArrowRows(2, key=column),
        ArrowRows(2, value=column),
        ArrowRows(2, headers=lists),
        ArrowRows(2, headers=ArrowHeaders(2, keys=column, values=good, **two)),
        ArrowRows(2, headers=ArrowHeaders(2, keys=good, values=column, **two)),
    ):
        with pytest.raises(InvalidRecord, match=r"row [01]: the bytes of its \w+ are outside"):
            encoded(columns)
    with pytest.raises(InvalidRecord, match=r"row [01]: the bytes of its key are outside"):
        partitions_of(column, 3)


def test_header_keys_and_values_must_have_equal_counts() -> None:
    def some(count: int) -> ArrowBytes:
        return ArrowBytes(count, offset=0, wide=False, valid=None, ends=bytes(4 * count + 4), data=b"")

    lists: dict[str, Any] = {"offset": 0, "wide": False, "valid": None, "ends": bytes(8), "pair_offset": 0}
    with pytest.raises(InvalidRecord, match="1 header key and 2 values"):
        ArrowHeaders(1, pair_valid=None, keys=some(1), values=some(2), **lists)
    with pytest.raises(InvalidRecord, match="validate the array"):
        ArrowHeaders(1, pair_valid=b"", keys=some(1), values=some(1), **lists)


def test_positions_outside_the_rows_are_refused() -> None:
    columns = columns_of([(None, b"", None, None)] * 3)

    for start, stop in ((-1, 1), (0, 4), (2, 2), (3, 3), (2, 1)):
        with pytest.raises(InvalidRecord, match="no rows"):
            columns.encode(None, start, stop, NOW, 0, 100, 100)


# ---------------------------------------------------------------- partitions


@pytest.mark.parametrize("count", [1, 2, 3, 12, 1000, 2**31 - 1])
def test_keys_get_the_partitions_of_kafkas_partitioner(count: int) -> None:
    """Keys of every length up to a few words, including null and empty."""
    chance = random.Random(2026)
    keys = [None, b"", *(chance.randbytes(n % 23) for n in range(200))]

    for kind in (pa.binary(), pa.large_binary()):
        array = pa.array([b"stranger", *keys], kind).slice(1)
        found = rows.partitions_of_keys(array, count=count)

        assert found.type == pa.int32()
        assert found.null_count == 0
        assert found.to_pylist() == [-1 if key is None else partition_of(key, count) for key in keys]


def test_text_key_gets_the_partition_of_its_bytes() -> None:
    found = rows.partitions_of_keys(pa.array(["ü", "customer-7"]), count=50)

    assert found.to_pylist() == [partition_of("ü".encode(), 50), partition_of(b"customer-7", 50)]


@pytest.mark.parametrize("count", [0, -1])
def test_topic_without_partitions_is_refused(count: int) -> None:
    """Goal: the kernel divides as C does, so dividing by zero would kill the process."""
    with pytest.raises(ValueError, match=f"{count} partitions"):
        partition_of(b"key", count)


@given(numbers=st.lists(st.integers(0, 6), max_size=40), before=st.integers(0, 9), wide=st.booleans())
def test_rows_are_grouped_in_their_order(numbers: list[int], before: int, wide: bool) -> None:
    array = sliced(numbers, pa.int64() if wide else pa.int32(), before=before)

    groups = rows.group_rows(array, count=7)

    assert [(partition, found.to_pylist()) for partition, found in groups] == [
        (partition, [row for row, number in enumerate(numbers) if number == partition])
        for partition in sorted(set(numbers))
    ]


def test_rows_of_a_topic_of_many_partitions_are_grouped() -> None:
    numbers = [number * 7919 % 5000 for number in range(300)]

    groups = rows.group_rows(pa.array(numbers, pa.int32()), count=5000)

    assert [(partition, found.to_pylist()) for partition, found in groups] == [
        (number, [numbers.index(number)]) for number in sorted(numbers)
    ]


def test_groups_can_be_used_as_selections() -> None:
    table: list[Fields] = [(b"k%d" % (n % 9), b"v%d" % n, None, None) for n in range(100)]
    columns = columns_of(table)
    places = rows.partitions_of_keys(pa.array([row[0] for row in table]), count=4)

    for partition, selection in rows.group_rows(places, count=4):
        expected = [row for row in table if partition_of(row[0] or b"", 4) == partition]
        assert encoded(columns, rows=selection) == [(encode_batch(records_of(expected), now_ms=NOW), len(expected))]


@pytest.mark.parametrize(
    ("numbers", "reason"),
    [
        ([0, 3], "row 1: its partition is 3; the topic has partitions 0 to 2"),
        ([-1], "row 0: its partition is -1; the topic has partitions 0 to 2"),
        ([2, 2, None], "row 2: its partition is null; the topic has partitions 0 to 2"),
    ],
)
@pytest.mark.parametrize("before", [0, 3])
def test_missing_partition_is_refused_by_its_row(numbers: list[Any], reason: str, before: int) -> None:
    with pytest.raises(InvalidRecord, match=reason):
        rows.group_rows(sliced(numbers, pa.int32(), before=before), count=3)


@pytest.mark.parametrize("count", [0, -1, 2**31])
def test_impossible_partition_count_is_refused(count: int) -> None:
    with pytest.raises(UsageError, match="1 to 2,147,483,647 partitions"):
        rows.group_rows(pa.array([0], pa.int32()), count=count)
    with pytest.raises(UsageError, match="1 to 2,147,483,647 partitions"):
        rows.partitions_of_keys(pa.array([b"k"]), count=count)
    with pytest.raises(ValueError, match="partitions"):
        partitions_of(ArrowBytes(0, offset=0, wide=False, valid=None, ends=None, data=None), count)
    with pytest.raises(ValueError, match="partitions"):
        group_rows(ArrowInts(0, offset=0, wide=False, valid=None, data=None), count)
