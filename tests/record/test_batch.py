"""`BatchHeader` and `Batch`, which packages exchange."""

from __future__ import annotations

from typing import Any

import pytest

from cases import for_each
from record.batches import CODECS, LIMIT, SMALL, SMALL_ROWS, Row, Sketch, T, batch_of, field_of, with_field
from seeklog.errors import CorruptBatch, FormatError, UnsupportedMagic
from seeklog.record.batch import (
    Batch,
    BatchHeader,
    decode_records,
    encode_batch,
    read_header,
    split_batches,
)
from seeklog.record.codec import CODEC_NAMES
from seeklog.record.record import Record

RAW = SMALL.encode()


def test_header_has_the_fields_of_the_bytes() -> None:
    fields = {"leader_epoch": 7, "producer_id": 5, "producer_epoch": 6, "base_sequence": 8, "last_delta": 9}
    raw = Sketch(SMALL_ROWS, base_offset=40, attributes=0x10, fields=fields).encode()

    assert read_header(raw) == BatchHeader(
        base_offset=40,
        size=len(raw),
        leader_epoch=7,
        crc=field_of(raw, "crc"),
        attributes=0x10,
        last_offset_delta=9,
        base_timestamp_ms=T,
        max_timestamp_ms=T + 5,
        producer_id=5,
        producer_epoch=6,
        base_sequence=8,
        record_count=3,
    )


def test_header_is_read_at_any_position() -> None:
    assert read_header(b"xyz" + RAW, 3) == read_header(RAW)


def test_last_offset_is_inclusive_and_next_offset_exclusive() -> None:
    header = read_header(RAW)

    assert (header.base_offset, header.last_offset, header.next_offset) == (40, 43, 44)


@pytest.mark.parametrize(
    ("attributes", "name"),
    [(0, "none"), (1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd"), (5, "unknown(5)"), (7, "unknown(7)")],
)
def test_codec_has_its_name(attributes: int, name: str) -> None:
    header = read_header(batch_of(b"", attributes=attributes))

    assert header.codec == name


BITS = {"is_log_append_time": 0x08, "is_transactional": 0x10, "is_control": 0x20}


@for_each("attributes", range(0, 0x80, 8))
def test_every_attribute_bit_has_its_name(attributes: int) -> None:
    header = read_header(batch_of(b"", attributes=attributes))

    assert {name: getattr(header, name) for name in BITS} == {
        name: bool(attributes & bit) for name, bit in BITS.items()
    }
    assert header.delete_horizon_ms == (T if attributes & 0x40 else None)


@pytest.mark.parametrize(
    ("options", "attributes"),
    [
        ({}, 0),
        ({"log_append_time": True}, 0x08),
        ({"transactional": True}, 0x10),
        ({"control": True}, 0x20),
        ({"codec": 4, "transactional": True, "control": True}, 0x34),
    ],
)
def test_requested_bits_are_set(options: dict[str, Any], attributes: int) -> None:
    header = read_header(encode_batch([Record(b"v")], **options))

    assert header.attributes == attributes


def test_encoded_batch_equals_batch_built_by_hand() -> None:
    records = [Record(r.value, key=r.key, headers=r.headers, timestamp_ms=r.timestamp_ms) for r in SMALL.records()]
    rows = tuple(Row(r.value, r.key, r.headers, r.timestamp_ms, delta) for delta, r in enumerate(SMALL_ROWS))
    fields = {"leader_epoch": 3, "producer_id": 4, "producer_epoch": 5, "base_sequence": 6}

    raw = encode_batch(records, base_offset=9, leader_epoch=3, producer_id=4, producer_epoch=5, base_sequence=6)

    assert raw == Sketch(rows, base_offset=9, fields=fields).encode()


def test_records_without_timestamp_have_none_without_a_clock() -> None:
    (record,) = decode_records(encode_batch([Record(b"v")]))

    assert record.timestamp_ms == -1


def test_batch_takes_its_numbers_from_its_header() -> None:
    (batch,) = split_batches(RAW)

    assert batch == Batch(read_header(RAW), RAW)
    assert (batch.base_offset, batch.last_offset, batch.next_offset) == (40, 43, 44)
    assert (batch.record_count, batch.codec, batch.max_timestamp_ms) == (3, "none", T + 5)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: CODEC_NAMES[codec])
def test_batch_returns_its_records(codec: int) -> None:
    (batch,) = split_batches(Sketch(SMALL_ROWS, base_offset=40, codec=codec).encode())

    assert batch.records() == SMALL.records()


def test_batch_checks_its_crc_before_returning_records() -> None:
    (batch,) = split_batches(with_field(RAW, "max_timestamp", 0))

    with pytest.raises(CorruptBatch, match="CRC"):
        batch.records()


def test_batch_does_not_expand_past_the_limit() -> None:
    (batch,) = split_batches(Sketch((Row(bytes(10_000)),), codec=4).encode())

    assert len(batch.records(limit=20_000)) == 1
    with pytest.raises(FormatError):
        batch.records(limit=9_999)


@for_each("size", range(2 * len(RAW)))
def test_splitting_yields_whole_batches_and_ignores_the_rest(size: int) -> None:
    assert [batch.raw for batch in split_batches((RAW * 2)[:size])] == [RAW] * (size // len(RAW))


def test_splitting_error_names_position_of_invalid_batch() -> None:
    batches = split_batches(RAW + with_field(RAW, "magic", 1), origin=1000)

    assert next(batches).raw == RAW
    with pytest.raises(UnsupportedMagic) as caught:
        next(batches)
    assert caught.value.position == 1000 + len(RAW)


def test_decoding_reads_all_batches() -> None:
    second = Sketch((Row(b"next"),), base_offset=44)

    assert decode_records(RAW + second.encode(), limit=LIMIT) == SMALL.records() + second.records()
    assert decode_records(b"") == []


@for_each("size", range(1, len(RAW)))
def test_decoding_incomplete_batch_is_an_error(size: int) -> None:
    with pytest.raises(CorruptBatch) as caught:
        decode_records(RAW + with_field(RAW, "base_offset", 44)[:size])

    assert caught.value.position == len(RAW)


def test_decoding_refuses_decreasing_offsets() -> None:
    with pytest.raises(CorruptBatch, match="base offset 40, expected 44"):
        decode_records(RAW + RAW)
