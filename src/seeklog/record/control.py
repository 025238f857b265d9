"""Control batches: what a transaction coordinator writes among the records of a partition.

A control batch holds one record, and no reader ever sees it. Its key is a version (int16) and a type (int16, 0: abort,
1: commit); the value of those two is a version (int16) and the epoch of the coordinator that has written it (int32).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from seeklog.errors import CorruptBatch
from seeklog.record.batch import read_header
from seeklog.record.layout import CODEC_MASK, CONTROL, HEADER_SIZE

ABORT: Final = 0
COMMIT: Final = 1
_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")


class EndMarker(NamedTuple):
    """The end of a transaction."""

    is_commit: bool
    coordinator_epoch: int


def decode_end_marker(raw: bytes) -> EndMarker | None:
    """Return how a control batch ends a transaction; None if it ends none, or if compaction has emptied it.

    The CRC is not checked.
    """
    header = read_header(raw)
    if not header.attributes & CONTROL or not header.record_count:
        return None
    if header.attributes & CODEC_MASK:
        raise CorruptBatch("a control batch that is compressed", position=0)
    try:
        _, at = _varint(raw, HEADER_SIZE)  # the record's length
        _, at = _varint(raw, at + 1)  # behind its attributes: the timestamp
        _, at = _varint(raw, at)  # the offset
        key, at = _field(raw, at)
        value, at = _field(raw, at)
        kind = _KEY.unpack_from(key)[1]
        if kind not in (ABORT, COMMIT):
            return None
        return EndMarker(kind == COMMIT, _VALUE.unpack_from(value)[1])
    except (IndexError, struct.error) as error:
        raise CorruptBatch(f"a control batch that does not parse: {error}", position=HEADER_SIZE) from error


def _field(raw: bytes, at: int) -> tuple[bytes, int]:
    size, at = _varint(raw, at)
    size = max(0, size)
    if size > len(raw) - at:
        raise IndexError("a field goes past the end of the batch")
    return raw[at : at + size], at + size


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at
        shift += 7
    raise IndexError("a number of more than ten bytes")
