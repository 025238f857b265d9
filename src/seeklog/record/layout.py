"""The field positions of a record batch, and the limits of the format.

A batch is a 61-byte header and its records, all big-endian:

     0  base_offset     int64       27  base_timestamp   int64
     8  batch_length    int32       35  max_timestamp    int64
    12  leader_epoch    int32       43  producer_id      int64
    16  magic           int8 = 2    51  producer_epoch   int16
    17  crc             uint32      53  base_sequence    int32
    21  attributes      int16       57  record_count     int32
    23  last_delta      int32       61  records

The CRC-32C covers byte 21 to the end, so base_offset and leader_epoch can be set without computing it again.

`layout.pxd` holds the same numbers for the compiled modules; the tests compare the two.
"""

from __future__ import annotations

from typing import Final

BASE_OFFSET: Final = 0
BATCH_LENGTH: Final = 8
LEADER_EPOCH: Final = 12
MAGIC: Final = 16
CRC: Final = 17
ATTRIBUTES: Final = 21
# The codec and all known flags are in the second byte.
ATTRIBUTES_LOW: Final = 22
LAST_OFFSET_DELTA: Final = 23
BASE_TIMESTAMP: Final = 27
MAX_TIMESTAMP: Final = 35
PRODUCER_ID: Final = 43
PRODUCER_EPOCH: Final = 51
BASE_SEQUENCE: Final = 53
RECORD_COUNT: Final = 57
HEADER_SIZE: Final = 61

MAGIC_V2: Final = 2
CODEC_MAX: Final = 4

# `batch_length` counts the bytes after itself.
PREFIX_SIZE: Final = 12
BATCH_LENGTH_MIN: Final = 49
# The smallest length of a batch or, before version 2, of a message.
OLD_LENGTH_MIN: Final = 14
# The fields up to and including the magic: with fewer bytes the format is unknown.
MAGIC_END: Final = 17
# The smallest record: seven one-byte fields (length, attributes, two deltas, two lengths, header count).
RECORD_SIZE_MIN: Final = 7

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
TRANSACTIONAL_OR_CONTROL: Final = 0x30
DELETE_HORIZON: Final = 0x40

NO_TIMESTAMP: Final = -1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

# How many records a `RecordCursor` parses at a time.
GROUP: Final = 32


class Place:
    """The positions of one record within the body of its batch; `layout.pxd` documents the fields."""

    __slots__ = (
        "end",
        "headers_at",
        "key_at",
        "key_size",
        "offset",
        "offset_at",
        "start",
        "timestamp_ms",
        "value_at",
        "value_size",
    )


def new_places() -> list[Place]:
    """Return what is a C array in the compiled module."""
    return [Place() for _ in range(GROUP)]
