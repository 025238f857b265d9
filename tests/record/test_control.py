"""Control batches: how a transaction ended, and batches that are damaged or not markers."""

from __future__ import annotations

import struct

import pytest

from record.batches import Row, Sketch, batch_of, record_body, seal, sized, varint, with_field
from seeklog.errors import CorruptBatch
from seeklog.record.control import EndMarker, decode_end_marker
from seeklog.record.layout import CONTROL, TRANSACTIONAL

KIND = CONTROL | TRANSACTIONAL


def marker(key: bytes, value: bytes | None, *, attributes: int = KIND, codec: int = 0) -> bytes:
    return Sketch([Row(value, key)], attributes=attributes, codec=codec).encode()


@pytest.mark.parametrize(("kind", "is_commit"), [(0, False), (1, True)])
def test_marker_gives_outcome_and_coordinator_epoch(kind: int, is_commit: bool) -> None:
    raw = marker(struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 17))

    assert decode_end_marker(raw) == EndMarker(is_commit, 17)


def test_control_record_of_another_type_is_not_a_marker() -> None:
    """Goal: brokers write other control records, too, such as Raft's change of leader (2)."""
    assert decode_end_marker(marker(struct.pack(">hh", 0, 2), b"")) is None


def test_batch_of_records_and_emptied_marker_are_not_markers() -> None:
    assert decode_end_marker(marker(b"\0\0\0\1", bytes(6), attributes=TRANSACTIONAL)) is None
    assert decode_end_marker(Sketch(attributes=KIND).encode()) is None


@pytest.mark.parametrize("taken", [1, 7])
def test_truncated_marker_is_damage(taken: int) -> None:
    with pytest.raises(CorruptBatch, match="no whole batch with a record"):
        decode_end_marker(marker(b"\0\0\0\1", bytes(6))[:-taken])


def test_compressed_marker_is_damage() -> None:
    with pytest.raises(CorruptBatch, match="compressed"):
        decode_end_marker(marker(b"\0\0\0\1", bytes(6), codec=1))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        record_body(key=sized(b"\0\0\0")),
        record_body(key=varint(-1)),
        record_body(key=sized(b"\0\0\0\1"), value=varint(-1)),
        record_body(key=sized(b"\0\0\0\1"), value=sized(bytes(5))),
        record_body(key=varint(1000)),
        record_body(key=b"\xff" * 11),
        record_body(timestamp_delta=b"\x80" * 200),
    ],
    ids=[
        "nothing",
        "short key",
        "no key",
        "no value",
        "short value",
        "key past the end",
        "eleven bytes",
        "endless number",
    ],
)
def test_marker_that_does_not_parse_is_damage(body: bytes) -> None:
    with pytest.raises(CorruptBatch, match="a control batch that does not parse"):
        decode_end_marker(batch_of(varint(len(body)) + body if body else b"", attributes=KIND))


@pytest.mark.parametrize("record_count", [-1, -(2**31), 2, 2**31 - 1])
def test_marker_with_impossible_count_is_damage(record_count: int) -> None:
    """Goal: trusting the count would mean waiting for records that never come, or for an end that never was."""
    raw = with_field(marker(b"\0\0\0\1", bytes(6)), "record_count", record_count)

    with pytest.raises(CorruptBatch, match="a control batch that does not parse"):
        decode_end_marker(raw)
    with pytest.raises(CorruptBatch):
        decode_end_marker(seal(raw + b"\0\0"))
