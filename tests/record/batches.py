"""Record batches built by hand, without the kernel: the format spelt out in plain Python.

The tests compare the kernel with these bytes in both directions. `seal` computes the CRC of bytes that a test damaged
on purpose, so that the checks behind the CRC find the damage.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fastcrc.crc32 import iscsi

from seeklog.record import decode
from seeklog.record.codec import CODEC_IDS, compress
from seeklog.record.record import Record

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = 61
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
T = 1_700_000_000_000
CODECS = tuple(CODEC_IDS.values())
LIMIT = 1 << 20
# A segment that never rolls, with Kafka's interval between index entries.
RULES = {
    "interval_bytes": 4096,
    "interval_records": 0,
    "segment_bytes": INT32_MAX,
    "segment_ms": INT64_MAX,
    "segment_index_bytes": INT32_MAX,
}
IS_COMPILED = not str(decode.__file__).endswith(".py")

# The position and type of each header field: name -> (byte, struct code).
FIELDS: Mapping[str, tuple[int, str]] = {
    "base_offset": (0, "q"),
    "batch_length": (8, "i"),
    "leader_epoch": (12, "i"),
    "magic": (16, "b"),
    "crc": (17, "I"),
    "attributes": (21, "h"),
    "last_delta": (23, "i"),
    "base_timestamp": (27, "q"),
    "max_timestamp": (35, "q"),
    "producer_id": (43, "q"),
    "producer_epoch": (51, "h"),
    "base_sequence": (53, "i"),
    "record_count": (57, "i"),
}


def varint(value: int) -> bytes:
    """Return a zigzag varint: seven bits per byte, lowest first; the high bit means that more follow."""
    rest = value * 2 if value >= 0 else -value * 2 - 1
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def sized(data: bytes | None) -> bytes:
    """Return the length of `data`, then `data`; only -1 for None."""
    return varint(-1) if data is None else varint(len(data)) + data


def record_body(
    *,
    attributes: int = 0,
    timestamp_delta: bytes | int = 0,
    offset_delta: bytes | int = 0,
    key: bytes = varint(-1),
    value: bytes = varint(-1),
    headers: bytes = varint(0),
) -> bytes:
    """Return a record without its length. Every part may be given as raw bytes, including invalid ones."""
    parts = [timestamp_delta, offset_delta]
    return b"".join(
        [bytes([attributes]), *(varint(p) if isinstance(p, int) else p for p in parts), key, value, headers]
    )


def header_bytes(headers: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    return varint(len(headers)) + b"".join(sized(key) + sized(value) for key, value in headers)


@dataclass(frozen=True, slots=True)
class Row:
    """A record to encode in a batch."""

    value: bytes | None = b"v"
    key: bytes | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    timestamp_ms: int = T
    delta: int = 0

    def record(self, base_offset: int, *, timestamp_ms: int | None = None) -> Record:
        """Return the record that the kernel must decode."""
        return Record(
            self.value,
            key=self.key,
            headers=tuple((key.decode("utf-8", "surrogateescape"), value) for key, value in self.headers),
            timestamp_ms=self.timestamp_ms if timestamp_ms is None else timestamp_ms,
            offset=base_offset + self.delta,
        )


@dataclass(frozen=True, slots=True)
class Sketch:
    """A batch to encode: rows, and header fields that may contradict them."""

    rows: Sequence[Row] = ()
    base_offset: int = 0
    codec: int = 0
    attributes: int = 0
    fields: Mapping[str, int] = field(default_factory=dict)

    @property
    def base_timestamp(self) -> int:
        return self.fields.get("base_timestamp", self.rows[0].timestamp_ms if self.rows else T)

    def body(self) -> bytes:
        out = []
        for row in self.rows:
            body = record_body(
                timestamp_delta=row.timestamp_ms - self.base_timestamp,
                offset_delta=row.delta,
                key=sized(row.key),
                value=sized(row.value),
                headers=header_bytes(row.headers),
            )
            out.append(varint(len(body)) + body)
        return b"".join(out)

    def encode(self) -> bytes:
        return batch_of(
            self.body(),
            codec=self.codec,
            attributes=self.attributes,
            **{
                "base_offset": self.base_offset,
                "last_delta": max((row.delta for row in self.rows), default=0),
                "base_timestamp": self.base_timestamp,
                "max_timestamp": max((row.timestamp_ms for row in self.rows), default=T),
                "record_count": len(self.rows),
                **self.fields,
            },
        )

    def records(self) -> list[Record]:
        return [row.record(self.base_offset) for row in self.rows]


def batch_of(body: bytes, *, codec: int = 0, attributes: int = 0, **fields: int) -> bytes:
    """Return a batch around any bytes as its records, with a valid CRC."""
    packed = compress(codec, body) if codec else body
    values = {
        "base_offset": 0,
        "batch_length": HEADER_SIZE - 12 + len(packed),
        "leader_epoch": 0,
        "magic": 2,
        "crc": 0,
        "attributes": attributes | codec,
        "last_delta": 0,
        "base_timestamp": T,
        "max_timestamp": T,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "record_count": 1,
        **fields,
    }
    return seal(HEADER.pack(*(values[name] for name in FIELDS)) + packed)


def one_record(body: bytes, *, codec: int = 0) -> bytes:
    """Return a batch of one record, given without its length."""
    return batch_of(varint(len(body)) + body, codec=codec)


def seal(raw: bytes) -> bytes:
    """Return a batch with the CRC of its bytes."""
    return raw[:17] + struct.pack(">I", iscsi(raw[21:])) + raw[21:]


def with_field(raw: bytes, name: str, value: int) -> bytes:
    """Return a batch with one header field replaced and the CRC unchanged."""
    at, code = FIELDS[name]
    changed = bytearray(raw)
    struct.pack_into(f">{code}", changed, at, value)
    return bytes(changed)


def field_of(raw: bytes, name: str) -> int:
    at, code = FIELDS[name]
    (value,) = struct.unpack_from(f">{code}", raw, at)
    assert isinstance(value, int)
    return value


def flips(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (bit, bytes) with each single bit of `raw` flipped."""
    for bit in range(8 * len(raw)):
        flipped = bytearray(raw)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        yield bit, bytes(flipped)


def read_all(raw: bytes, *, limit: int = LIMIT) -> list[Record]:
    """Return every record that the kernel decodes from whole batches, from any offset."""
    records: list[Record] = []
    decode.read_records(raw, 0, 0, -(2**63), False, -(2**63), INT64_MAX, 2**62, 2**62, 2**62, limit, records)
    return records


# A small batch with all features of a record, for tests that try each of its bytes or bits.
SMALL_ROWS = (
    Row(b"v0", b"k0", ((b"trace", b"1"), (b"none", None)), T, 0),
    Row(None, b"", (), T + 5, 1),
    Row(b"", None, ((b"", b""),), T - 3, 3),
)
SMALL = Sketch(SMALL_ROWS, base_offset=40)
