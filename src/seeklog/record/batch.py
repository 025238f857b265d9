"""Record batches, the unit in which packages exchange records.

A batch is raw v2 bytes (see `layout`) with a parsed header. Appending, serving and copying move batches without
decoding them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from seeklog.errors import CorruptBatch, counted
from seeklog.record import batch_header, decode, encode
from seeklog.record.codec import CODEC_NAMES
from seeklog.record.layout import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    TRANSACTIONAL,
)
from seeklog.record.record import Record

DECOMPRESSED_LIMIT = 16 << 20


class BatchHeader(NamedTuple):
    """The fields of a batch header, in the order of the bytes."""

    base_offset: int
    size: int
    leader_epoch: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> str:
        """The codec's name, or `unknown(n)`."""
        number = self.attributes & CODEC_MASK
        return CODEC_NAMES.get(number, f"unknown({number})")

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which compaction may drop the batch's tombstones, or None if it is not set."""
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON else None


@dataclass(frozen=True, slots=True)
class Batch:
    """The raw bytes of a batch, with its parsed header."""

    header: BatchHeader
    raw: bytes

    @property
    def base_offset(self) -> int:
        return self.header.base_offset

    @property
    def last_offset(self) -> int:
        return self.header.last_offset

    @property
    def next_offset(self) -> int:
        return self.header.next_offset

    @property
    def record_count(self) -> int:
        return self.header.record_count

    @property
    def codec(self) -> str:
        return self.header.codec

    @property
    def max_timestamp_ms(self) -> int:
        return self.header.max_timestamp_ms

    def records(self, *, limit: int = DECOMPRESSED_LIMIT) -> list[Record]:
        """Return the batch's records after checking its CRC; a control batch has none."""
        return decode_records(self.raw, limit=limit)


def encode_batch(
    records: Sequence[Record],
    *,
    now_ms: int = NO_TIMESTAMP,
    base_offset: int = 0,
    leader_epoch: int = 0,
    codec: int = 0,
    log_append_time: bool = False,
    transactional: bool = False,
    control: bool = False,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """Return one batch of `records`. Those without a timestamp get `now_ms`."""
    attributes = codec
    attributes |= LOG_APPEND_TIME if log_append_time else 0
    attributes |= TRANSACTIONAL if transactional else 0
    attributes |= CONTROL if control else 0
    producer = (producer_id, producer_epoch, base_sequence)
    return encode.encode_records(list(records), now_ms, base_offset, leader_epoch, attributes, producer)


def read_header(raw: bytes, position: int = 0) -> BatchHeader:
    """Return the header of the batch at `position`, without checking its CRC."""
    return BatchHeader(*batch_header.read_header(raw, position, 0))


def split_batches(raw: bytes, *, origin: int = 0) -> Iterator[Batch]:
    """Yield the whole batches in `raw`, without checking their CRCs."""
    position = 0
    while len(raw) - position >= HEADER_SIZE:
        header = BatchHeader(*batch_header.read_header(raw, position, origin))
        if header.size > len(raw) - position:
            return
        yield Batch(header, raw[position : position + header.size])
        position += header.size


def decode_records(raw: bytes, *, limit: int = DECOMPRESSED_LIMIT) -> list[Record]:
    """Return the records of all batches in `raw`, after checking every CRC. Control batches have none."""
    records: list[Record] = []
    end, _, _ = decode.read_records(raw, 0, 0, 0, False, 0, 2**63 - 1, 2**62, 2**62, 2**62, limit, records)
    if end != len(raw):
        raise CorruptBatch(
            f"the bytes end in the middle of a batch, {counted(len(raw) - end, 'byte')} in", position=end
        )
    return records
