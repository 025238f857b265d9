"""The seal of a segment: what its files hold, written once when it stops growing.

`%020d.seal` is 80 bytes, big-endian, or 88 where compaction has been:

     0  magic          4 bytes "SLSL"          40  batch_count       int64
     4  version        int16   1               48  max_timestamp_ms  int64   -1: none
     6  flags          int16   1: contiguous   56  sealed_at_ms      int64
     8  base_offset    int64                   64  log_crc           uint32  of the whole .log file
    16  next_offset    int64                   68  offset_index_crc  uint32  of the whole .index file
    24  size           int64   of the .log     72  time_index_crc    uint32  of the whole .timeindex file
    32  record_count   int64                   76  crc               uint32  of the 76 bytes before it

In version 2 the offset below which compaction has seen every record of the segment stands at byte 76, an int64, and
the CRC of all before it at byte 84.

The seal proves the other files: an index whose CRC is not the one in the seal is rebuilt, a log that is
shorter than its seal lost records. `contiguous` says that no offset is missing between its batches, so
that a reader may take a gap for damage. A seal that fails its own CRC counts as missing.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass

from seeklog import names
from seeklog.files import Files
from seeklog.record.kernel import crc32c
from seeklog.storage.checkpoint import replace_file

MAGIC = b"SLSL"
VERSION = 1
COMPACTED_VERSION = 2
CONTIGUOUS = 0x01
_BODY = struct.Struct(">4shhqqqqqqqIII")
_CLEAN = struct.Struct(">q")
_CRC = struct.Struct(">I")
SIZE = _BODY.size + _CRC.size
COMPACTED_SIZE = SIZE + _CLEAN.size


@dataclass(frozen=True, slots=True)
class Seal:
    """What a sealed segment holds."""

    base_offset: int
    next_offset: int
    size: int
    record_count: int
    batch_count: int
    max_timestamp_ms: int
    sealed_at_ms: int
    log_crc: int
    offset_index_crc: int
    time_index_crc: int
    contiguous: bool
    clean_offset: int = 0
    """Compaction has seen every record of the segment below this offset; 0: none."""


def encode_seal(seal: Seal) -> bytes:
    """Return the bytes of a seal file."""
    *fields, contiguous, clean_offset = astuple(seal)
    version = COMPACTED_VERSION if clean_offset else VERSION
    body = _BODY.pack(MAGIC, version, CONTIGUOUS if contiguous else 0, *fields)
    if clean_offset:
        body += _CLEAN.pack(clean_offset)
    return body + _CRC.pack(crc32c(body))


def decode_seal(data: bytes) -> Seal | None:
    """Return the seal that the bytes hold, or None if they are no whole seal."""
    if len(data) not in (SIZE, COMPACTED_SIZE) or _CRC.unpack_from(data, len(data) - 4)[0] != crc32c(data[:-4]):
        return None
    magic, version, flags, *fields = _BODY.unpack_from(data)
    if magic != MAGIC or version != (VERSION if len(data) == SIZE else COMPACTED_VERSION):
        return None
    clean_offset = _CLEAN.unpack_from(data, _BODY.size)[0] if version == COMPACTED_VERSION else 0
    fields = [*fields, bool(flags & CONTIGUOUS), clean_offset]
    return Seal(*fields)


def read_seal(files: Files, directory: str, base_offset: int) -> Seal | None:
    """Return a segment's seal, or None if it has none that is whole and its own."""
    try:
        data = files.read_file(f"{directory}/{names.segment_name(base_offset, names.SEAL)}")
    except FileNotFoundError:
        return None
    seal = decode_seal(data)
    return seal if seal is not None and seal.base_offset == base_offset else None


def write_seal(files: Files, directory: str, seal: Seal) -> None:
    """Write a segment's seal. The caller syncs the directory."""
    replace_file(files, directory, names.segment_name(seal.base_offset, names.SEAL), encode_seal(seal))
