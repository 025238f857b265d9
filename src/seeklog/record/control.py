"""Control batches, which a transaction coordinator writes among a partition's records.

A control batch holds one record, which readers never see. Its key is a version (int16) and a type (int16, 0: abort, 1:
commit). The value of these two types is a version (int16) and the epoch of the coordinator that wrote it (int32).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from seeklog.errors import CorruptBatch
from seeklog.record.batch import read_header
from seeklog.record.decode import read_control_record
from seeklog.record.layout import CODEC_MASK, HEADER_SIZE

ABORT: Final = 0
COMMIT: Final = 1
_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")


class EndMarker(NamedTuple):
    """The marker that ends a transaction."""

    is_commit: bool
    coordinator_epoch: int


def decode_end_marker(raw: bytes) -> EndMarker | None:
    """Return the marker in a control batch, or None if it has another type or was emptied by compaction.

    The CRC is not checked.
    """
    header = read_header(raw)
    if not header.is_control or not header.record_count:
        return None
    if header.attributes & CODEC_MASK:
        raise CorruptBatch("a control batch that is compressed", position=0)
    try:
        record = read_control_record(raw, len(raw))
        kind = _KEY.unpack_from(record.key or b"")[1]
        if kind not in (ABORT, COMMIT):
            return None
        return EndMarker(kind == COMMIT, _VALUE.unpack_from(record.value or b"")[1])
    except (CorruptBatch, struct.error) as error:
        reason = error.reason if isinstance(error, CorruptBatch) else error
        raise CorruptBatch(f"a control batch that does not parse: {reason}", position=HEADER_SIZE) from error
