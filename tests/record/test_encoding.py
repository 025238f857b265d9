"""Records encoded to batches: the kernel's bytes equal those of batches built by hand, field for field."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

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
    field_of,
    header_bytes,
    read_all,
    seal,
    with_field,
)
from seeklog.errors import CorruptBatch, FormatError, InvalidRecord, RecordTooLarge, UnsupportedMagic
from seeklog.record.batch_header import check_batches
from seeklog.record.codec import CODEC_NAMES, decompress
from seeklog.record.decode import check_keyed
from seeklog.record.encode import encode_headers, encode_one, encode_records, record_bound, stamp, stamp_append_time
from seeklog.record.record import Record, make_record

NO_PRODUCER = (-1, -1, -1)
LOG_APPEND_TIME = 0x08
NOW = T + 1000
# Lengths at which a varint takes one byte more: 2**(7 n - 1), because zigzag doubles them.
VARINT_EDGES = sorted({edge + step for n in (1, 2, 3) for edge in [2 ** (7 * n - 1)] for step in (-1, 0, 1)} | {0})


def encode(records: list[Record], *, now_ms: int = NOW, base_offset: int = 0, attributes: int = 0) -> bytes:
    return encode_records(records, now_ms, base_offset, 0, attributes, NO_PRODUCER)


def records_of(rows: tuple[Row, ...]) -> list[Record]:
    """The rows as a caller passes them: without offsets."""
    return [
        Record(
            row.value,
            key=row.key,
            headers=tuple((key.decode("utf-8", "surrogateescape"), value) for key, value in row.headers),
            timestamp_ms=row.timestamp_ms,
        )
        for row in rows
    ]


def consecutive(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    return tuple(Row(r.value, r.key, r.headers, r.timestamp_ms, delta) for delta, r in enumerate(rows))


def assert_encodes(rows: tuple[Row, ...]) -> None:
    expected = Sketch(consecutive(rows)).encode()
    assert encode(records_of(rows)) == expected
    assert read_all(expected) == Sketch(consecutive(rows)).records()


# ---------------------------------------------------------------- bytes


def test_batch_equals_batch_built_by_hand() -> None:
    assert_encodes(SMALL_ROWS)


@pytest.mark.parametrize("size", VARINT_EDGES)
def test_value_with_length_of_any_size_is_encoded(size: int) -> None:
    assert_encodes((Row(bytes(size)), Row(b"next")))


@pytest.mark.parametrize("size", VARINT_EDGES)
def test_key_with_length_of_any_size_is_encoded(size: int) -> None:
    assert_encodes((Row(b"v", bytes(size)), Row(b"next")))


@pytest.mark.parametrize("size", VARINT_EDGES)
def test_header_with_length_of_any_size_is_encoded(size: int) -> None:
    assert_encodes((Row(b"v", None, ((b"h" * size, bytes(size)),)), Row(b"next")))


@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65])
def test_any_number_of_headers_is_encoded(count: int) -> None:
    """64 headers are the first whose count takes two bytes."""
    assert_encodes((Row(b"v", None, ((b"h", b"1"),) * count),))


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 300])
def test_any_number_of_records_is_encoded(count: int) -> None:
    """The 65th record is the first whose offset takes two bytes."""
    assert_encodes(tuple(Row(b"%d" % number) for number in range(count)))


@for_each("bits", range(63))
@for_each("step", [-1, 0, 1])
def test_timestamp_delta_of_any_length_is_encoded(bits: int, step: int) -> None:
    """Forward and back: 2**62 is the largest delta in both directions."""
    delta = 2**bits + step
    if not 0 <= delta <= 2**62:
        return
    assert_encodes((Row(timestamp_ms=0), Row(timestamp_ms=delta)))
    assert_encodes((Row(timestamp_ms=delta), Row(timestamp_ms=0)))


@pytest.mark.parametrize("timestamps", [(-1, INT64_MAX), (INT64_MAX, -1)])
def test_widest_span_of_timestamps_round_trips(timestamps: tuple[int, int]) -> None:
    """The difference needs 65 bits; Java's arithmetic, and so the format, wraps around."""
    raw = encode([Record(b"", timestamp_ms=timestamp) for timestamp in timestamps])

    assert [record.timestamp_ms for record in read_all(raw)] == list(timestamps)
    assert field_of(raw, "max_timestamp") == INT64_MAX


@pytest.mark.parametrize("key", [None, b"", b"k"])
@pytest.mark.parametrize("value", [None, b"", b"v"])
@pytest.mark.parametrize("header_value", [None, b"", b"h"])
def test_null_and_empty_are_distinct(key: bytes | None, value: bytes | None, header_value: bytes | None) -> None:
    assert_encodes((Row(value, key, ((b"h", header_value),)),))


@pytest.mark.parametrize("key", [b"\xff", b"ok\x80", b"\xed\xa0\x80", b"\xc3\x28", bytes(range(256))])
def test_header_key_that_is_not_utf8_round_trips(key: bytes) -> None:
    raw = Sketch((Row(b"v", None, ((key, b"1"),)),)).encode()

    (record,) = read_all(raw)

    assert record.headers[0][0].encode("utf-8", "surrogateescape") == key
    assert encode([record]) == raw


def test_header_key_outside_ascii_is_utf8() -> None:
    raw = encode([Record(b"v", headers=[("schlüssel", b"1")], timestamp_ms=T)])

    assert raw == Sketch((Row(b"v", None, (("schlüssel".encode(), b"1"),)),)).encode()


# ---------------------------------------------------------------- codecs


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: CODEC_NAMES[codec])
def test_codec_covers_only_the_records(codec: int) -> None:
    rows = consecutive(SMALL_ROWS * 50)

    raw = encode(records_of(rows), attributes=codec)

    plain = Sketch(rows).encode()
    assert decompress(codec, raw[HEADER_SIZE:], limit=LIMIT) == plain[HEADER_SIZE:]
    assert seal(raw) == raw
    for name in ("base_offset", "magic", "last_delta", "base_timestamp", "max_timestamp", "record_count"):
        assert field_of(raw, name) == field_of(plain, name)
    assert field_of(raw, "attributes") == codec
    assert field_of(raw, "batch_length") == len(raw) - 12


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: CODEC_NAMES[codec])
def test_records_round_trip_through_every_codec(codec: int) -> None:
    chance = random.Random(20)
    rows = tuple(Row(chance.randbytes(chance.randrange(300)), b"%d" % number) for number in range(200))

    records = read_all(encode(records_of(rows), attributes=codec))

    assert [(r.key, r.value) for r in records] == [(row.key, row.value) for row in rows]


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codec_unknown_to_kafka_is_refused(codec: int) -> None:
    with pytest.raises((FormatError, ValueError), match=f"codec {codec}"):
        encode([Record(b"v")], attributes=codec)


# ---------------------------------------------------------------- header fields


@pytest.mark.id("batch-header-fields")
def test_every_header_field_is_at_its_position() -> None:
    attributes = 0x10 | 0x20
    raw = encode_records(
        records_of(SMALL_ROWS), NOW, 2**62 + 1, 2**31 - 2, attributes, (2**62 + 3, 2**15 - 4, 2**31 - 5)
    )

    assert (
        raw
        == Sketch(
            consecutive(SMALL_ROWS),
            base_offset=2**62 + 1,
            attributes=attributes,
            fields={
                "leader_epoch": 2**31 - 2,
                "producer_id": 2**62 + 3,
                "producer_epoch": 2**15 - 4,
                "base_sequence": 2**31 - 5,
            },
        ).encode()
    )


def test_base_timestamp_is_the_first_and_maximum_is_anywhere() -> None:
    raw = encode([Record(b"", timestamp_ms=timestamp) for timestamp in (T, T + 9, T - 9)])

    assert field_of(raw, "base_timestamp") == T
    assert field_of(raw, "max_timestamp") == T + 9


def test_records_without_timestamp_get_the_time_of_the_clock() -> None:
    raw = encode([Record(b""), Record(b"", timestamp_ms=T), Record(b"")])

    assert [record.timestamp_ms for record in read_all(raw)] == [NOW, T, NOW]


def test_batch_without_record_times_has_no_time() -> None:
    raw = encode([Record(b"", timestamp_ms=-1)] * 2)

    assert field_of(raw, "max_timestamp") == -1
    assert [record.timestamp_ms for record in read_all(raw)] == [-1, -1]


def test_append_time_gives_every_record_the_time_of_the_clock() -> None:
    raw = encode([Record(b""), Record(b"", timestamp_ms=T)], attributes=LOG_APPEND_TIME)

    assert field_of(raw, "attributes") == LOG_APPEND_TIME
    assert field_of(raw, "max_timestamp") == field_of(raw, "base_timestamp") == NOW
    assert [record.timestamp_ms for record in read_all(raw)] == [NOW, NOW]


# ---------------------------------------------------------------- one record


@pytest.mark.parametrize("row", [*SMALL_ROWS, Row(bytes(5000), bytes(100)), Row(None)])
@pytest.mark.parametrize("attributes", [0, LOG_APPEND_TIME, 0x10])
@pytest.mark.parametrize("timestamp_ms", [None, T])
def test_one_record_is_encoded_as_a_batch_of_one(row: Row, attributes: int, timestamp_ms: int | None) -> None:
    (record,) = records_of((row,))
    headers = record.headers

    one = encode_one(record.value, record.key, headers, timestamp_ms, NOW, 99, 3, attributes)

    many = encode_records(
        [Record(record.value, key=record.key, headers=headers, timestamp_ms=timestamp_ms)],
        *(NOW, 99, 3, attributes),
        NO_PRODUCER,
    )
    assert one == many


@pytest.mark.parametrize("size", [size for size in VARINT_EDGES if size < 10_000])
@pytest.mark.parametrize("header_count", [0, 1, 64])
def test_bound_of_a_record_holds_and_is_close(size: int, header_count: int) -> None:
    record = Record(bytes(size), key=bytes(size), headers=(("h" * size, bytes(size)),) * header_count)
    taken = len(encode([Record(b"")] * 3 + [record])) - len(encode([Record(b"")] * 3))

    assert taken <= record_bound(record) <= taken + 22


def test_headers_are_encoded_separately() -> None:
    assert encode_headers((("trace", b"1"), ("none", None))) == header_bytes([(b"trace", b"1"), (b"none", None)])


# ---------------------------------------------------------------- other types that hold bytes or pairs


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_bytearray_and_memoryview_are_taken_as_bytes(kind: Callable[[bytes], Any]) -> None:
    plain = encode_one(b"v", b"k", [("h", b"1")], T, NOW, 0, 0, 0)

    assert encode_one(kind(b"v"), kind(b"k"), [("h", kind(b"1"))], T, NOW, 0, 0, 0) == plain
    for record in (
        Record(kind(b"v"), key=kind(b"k"), headers=[("h", kind(b"1"))], timestamp_ms=T),
        make_record(kind(b"v"), kind(b"k"), [("h", kind(b"1"))], T, -1, None),
    ):
        assert encode([record]) == plain


def test_record_keeps_its_bytes_when_the_bytearray_changes() -> None:
    value, header = bytearray(b"v"), bytearray(b"1")
    record = Record(value, key=memoryview(value), headers=[("h", header)])

    value[0] = header[0] = 0

    assert (record.value, record.key, record.headers) == (b"v", b"v", (("h", b"1"),))


def test_memoryview_of_wider_or_scattered_items_is_taken_by_its_bytes() -> None:
    assert Record(memoryview(array("H", [1, 2]))).value == array("H", [1, 2]).tobytes()
    assert Record(memoryview(b"a-b-c")[::2]).value == b"abc"


@pytest.mark.parametrize("headers", [{"a": b"1", "b": None}, MappingProxyType({"a": b"1", "b": None})], ids=repr)
def test_headers_may_be_a_mapping(headers: Any) -> None:
    pairs = (("a", b"1"), ("b", None))

    assert Record(b"v", headers=headers).headers == pairs
    assert make_record(b"v", None, headers, T, -1, None).headers == pairs
    assert encode_one(b"v", None, headers, T, NOW, 0, 0, 0) == encode_one(b"v", None, pairs, T, NOW, 0, 0, 0)


# ---------------------------------------------------------------- refusals

NOT_BYTES = ["text", 5, 1.5, array("B", b"v"), {"id": 1}, ["v"], True]


@pytest.mark.parametrize("wrong", NOT_BYTES, ids=lambda wrong: type(wrong).__name__)
@pytest.mark.parametrize("name", ["value", "key"])
def test_key_or_value_that_is_not_bytes_is_refused_by_name(name: str, wrong: Any) -> None:
    record = Record(**{"value": b"v", name: wrong})

    with pytest.raises(InvalidRecord, match=f"{name} must be bytes or None, not {type(wrong).__name__}"):
        encode([record])
    with pytest.raises(InvalidRecord, match=f"{name} must be bytes or None"):
        encode_one(record.value, record.key, (), None, NOW, 0, 0, 0)
    with pytest.raises(InvalidRecord, match=f"{name} must be bytes or None"):
        record_bound(record)


@pytest.mark.parametrize(
    "header",
    [("h", "text"), ("h", 5), (b"h", b"1"), (5, b"1"), (None, b"1"), "ht", ("h",), ("h", b"1", b"2"), ["h", b"1"], 5],
    ids=repr,
)
def test_header_that_is_not_text_and_bytes_is_refused(header: Any) -> None:
    with pytest.raises(InvalidRecord, match="header"):
        encode([Record(b"v", headers=[header])])
    with pytest.raises(InvalidRecord, match="header"):
        encode_one(b"v", None, [header], None, NOW, 0, 0, 0)


@pytest.mark.parametrize("headers", [5, 1.5, True], ids=repr)
def test_headers_that_are_not_a_sequence_are_refused(headers: Any) -> None:
    with pytest.raises(InvalidRecord, match="headers must be a sequence"):
        Record(b"v", headers=headers)
    with pytest.raises(InvalidRecord, match="headers must be a sequence"):
        encode_one(b"v", None, headers, None, NOW, 0, 0, 0)


@pytest.mark.parametrize(
    ("wrong", "cure"),
    [("text", r"text\.encode\(\)"), ({"id": 1}, r"json\.dumps\(…\)\.encode\(\)"), (array("B", b"v"), r"bytes\(…\)")],
    ids=lambda each: type(each).__name__,
)
def test_refused_value_says_how_to_make_bytes_of_it(wrong: Any, cure: str) -> None:
    with pytest.raises(InvalidRecord, match=f"value must be bytes or None, not {type(wrong).__name__}; pass {cure}"):
        encode_one(wrong, None, (), None, NOW, 0, 0, 0)


def test_refused_timestamp_says_how_to_make_one() -> None:
    with pytest.raises(InvalidRecord, match=r"not datetime; pass milliseconds since 1970, such as int\(time.time"):
        Record(b"v", timestamp_ms=datetime.now(UTC))  # type: ignore[arg-type]


@pytest.mark.parametrize("headers", ["ab", [["a", b"1"]], ["a"], 5], ids=repr)
def test_refused_headers_show_what_headers_look_like(headers: Any) -> None:
    with pytest.raises(InvalidRecord, match=r"pass pairs such as \[\('trace', b'1'\)\], or a dict"):
        encode_one(b"v", None, headers, None, NOW, 0, 0, 0)


def test_header_key_that_cannot_be_written_is_refused() -> None:
    """A lone surrogate is not text, and does not escape a byte either."""
    with pytest.raises(InvalidRecord, match="header"):
        encode([Record(b"v", headers=[("\ud800", b"1")])])


@pytest.mark.parametrize("item", [b"v", None, ("v",), "text"], ids=repr)
def test_item_that_is_not_a_record_is_refused_by_index(item: Any) -> None:
    with pytest.raises(InvalidRecord, match="item 1 is"):
        encode([Record(b"v"), item])


def test_empty_batch_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="at least one record"):
        encode([])


@pytest.mark.parametrize("timestamp_ms", [-2, 2**63, "1", True, 1.0])
def test_single_record_with_a_wrong_timestamp_is_refused(timestamp_ms: Any) -> None:
    with pytest.raises(InvalidRecord, match="timestamp_ms"):
        encode_one(b"v", None, (), timestamp_ms, NOW, 0, 0, 0)


# ---------------------------------------------------------------- batches copied without decoding


def test_stamp_changes_only_offset_and_epoch() -> None:
    first, second = SMALL.encode(), Sketch((Row(delta=6),)).encode()

    stamped = stamp(first + second, 1000, 77)

    # The first batch spans four offsets: its last delta is 3.
    expected = [(first, 1000), (second, 1004)]
    assert stamped == b"".join(
        with_field(with_field(raw, "base_offset", base), "leader_epoch", 77) for raw, base in expected
    )
    assert check_batches(stamped, LIMIT) == (2, 4 + 7)


def test_append_time_is_stamped_on_every_batch_with_a_new_crc() -> None:
    raw = SMALL.encode() + Sketch(SMALL_ROWS, base_offset=44, attributes=0x10).encode()

    stamped = stamp_append_time(raw, NOW)

    check_batches(stamped, LIMIT)
    assert [record.timestamp_ms for record in read_all(stamped)] == [NOW] * 6
    assert [record.value for record in read_all(stamped)] == [record.value for record in read_all(raw)]
    stamped = stamped[len(SMALL.encode()) :]
    assert field_of(stamped, "attributes") == 0x10 | LOG_APPEND_TIME
    assert field_of(stamped, "base_timestamp") == T


@pytest.mark.parametrize("size", [1, 11, 60, 61, len(SMALL.encode()) - 1])
def test_incomplete_batch_is_not_stamped(size: int) -> None:
    """Goal: unchecked bytes raise an error, and nothing is written outside the buffer."""
    raw = SMALL.encode()
    for wrong in (raw + raw[:size], raw + bytes(size)):
        with pytest.raises(CorruptBatch, match="no whole batch") as caught:
            stamp(wrong, 0, 0)
        assert caught.value.position == len(raw)
        with pytest.raises(CorruptBatch, match="no whole batch"):
            stamp_append_time(wrong, NOW)
        with pytest.raises(CorruptBatch, match="no whole batch"):
            check_keyed(Sketch([Row(key=b"k")]).encode() + wrong[len(raw) :], LIMIT)


def test_batch_past_two_gigabytes_is_refused_before_copying() -> None:
    """Zeros without memory behind them: nothing reads them."""
    half = bytes(2**30)
    with pytest.raises(RecordTooLarge, match="record 1 takes the batch past 2 GiB"):
        encode_records([Record(half), Record(half)], T, 0, 0, 0, (-1, -1, -1))
    with pytest.raises(RecordTooLarge, match=r"a record of .* bytes; the format holds at most 2 GiB"):
        encode_one(half, half, (), None, T, 0, 0, 0)


def test_batch_check_counts_batches_and_offsets() -> None:
    empty = batch_of(b"", record_count=0, last_delta=9)

    assert check_batches(SMALL.encode() + empty, LIMIT) == (2, 14)
    assert check_batches(b"", LIMIT) == (0, 0)


def test_batch_check_refuses_batch_over_the_limit() -> None:
    raw = SMALL.encode()

    assert check_batches(raw, len(raw))[0] == 1
    with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes"):
        check_batches(raw, len(raw) - 1)


@pytest.mark.parametrize("magic", [0, 1])
def test_batch_check_refuses_older_format_by_name(magic: int) -> None:
    raw = SMALL.encode()

    with pytest.raises(UnsupportedMagic, match=f"magic {magic}") as caught:
        check_batches(raw + with_field(raw, "magic", magic), LIMIT)

    assert caught.value.position == len(raw)


@pytest.mark.id("batch-prefixes")
@for_each("size", range(1, len(SMALL.encode())))
def test_batch_check_refuses_every_prefix(size: int) -> None:
    raw = SMALL.encode()

    with pytest.raises(CorruptBatch) as caught:
        check_batches(raw + raw[:size], LIMIT)

    assert caught.value.position == len(raw)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_batch_check_refuses_unknown_codec(codec: int) -> None:
    with pytest.raises(FormatError, match=f"codec {codec}"):
        check_batches(batch_of(b"", attributes=codec), LIMIT)


# ---------------------------------------------------------------- stamping


def test_consecutive_batches_of_any_size_are_stamped() -> None:
    """Goal: the start of a batch is found from the one before it, at any position."""
    sizes = [*range(1, 30), 200, 3]
    raws = [encode([Record(bytes(size))] * (1 + size % 3)) for size in sizes]

    stamped = stamp(b"".join(raws), 1000, 7)

    at, offset = 0, 1000
    for raw, size in zip(raws, sizes, strict=True):
        batch = stamped[at : at + len(raw)]
        assert (field_of(batch, "base_offset"), field_of(batch, "leader_epoch")) == (offset, 7)
        assert batch[16:] == raw[16:]
        at += len(raw)
        offset += 1 + size % 3
    assert at == len(stamped)


@pytest.mark.parametrize("attributes", [0x0080, 0x0100, 0x1280, 0x7F00])
def test_all_sixteen_bits_of_the_attributes_are_written(attributes: int) -> None:
    assert int.from_bytes(encode([Record(b"value")], attributes=attributes)[21:23], "big") == attributes
