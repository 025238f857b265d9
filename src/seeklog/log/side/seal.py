"""The seal of a segment: facts that prove its files, written once when it stops growing.

`%020d.seal` has 80 bytes, big-endian; 88 after a compaction; more if the segment may have gaps:

     0  magic          4 bytes "SLSL"          40  batch_count       int64
     4  version        int16   1               48  max_timestamp_ms  int64   -1: none
     6  flags          int16   1: contiguous   56  sealed_at_ms      int64
     8  base_offset    int64                   64  log_crc           uint32  of the whole .log file
    16  next_offset    int64                   68  offset_index_crc  uint32  of the whole .index file
    24  size           int64   of the .log     72  time_index_crc    uint32  of the whole .timeindex file
    32  record_count   int64                   76  crc               uint32  of the 76 bytes before it

Version 2 has, at byte 76, the offset below which compaction has seen every record of the segment (int64), and the CRC
of all bytes before it at byte 84. Version 3 is for a segment with gaps. Its head continues with

    84  page_size      int32                   92  crc               uint32  of the 92 bytes before it
    88  table_crc      uint32  of the table

and is followed by the table, the checksums of the log's pages (see `pages`). Opening a log reads only the heads.

The seal proves the other files: an index whose CRC differs from the seal is rebuilt, and a log shorter than its seal
says has lost records. `contiguous` means that no offset is missing between the batches, so a reader may treat a gap as
damage. A seal whose head fails its own CRC counts as missing. A damaged table is rebuilt from the log, like an index.
"""

from __future__ import annotations

import struct
from dataclasses import astuple, dataclass
from typing import NamedTuple

from seeklog import names
from seeklog.files import Files, Handle, ReadOnlyFiles, replace_file
from seeklog.log.side.pages import MAX_PAGE_SIZE, Pages
from seeklog.record.crc import crc32c

MAGIC = b"SLSL"
VERSION = 1
COMPACTED_VERSION = 2
PAGED_VERSION = 3
CONTIGUOUS = 0x01
_BODY = struct.Struct(">4shhqqqqqqqIII")
_CLEAN = struct.Struct(">q")
_PAGES = struct.Struct(">iI")
_CRC = struct.Struct(">I")
SIZE = _BODY.size + _CRC.size
COMPACTED_SIZE = SIZE + _CLEAN.size
HEAD_SIZE = COMPACTED_SIZE + _PAGES.size
_SIZES = {VERSION: SIZE, COMPACTED_VERSION: COMPACTED_SIZE, PAGED_VERSION: HEAD_SIZE}


class Content(NamedTuple):
    """The identity of a sealed segment's content."""

    base_offset: int
    next_offset: int
    size: int
    log_crc: int


@dataclass(frozen=True, slots=True)
class Seal:
    """The facts about a sealed segment."""

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
    pages: Pages | None = None
    """The proof of the page checksums after the head; None if there are none."""

    @property
    def content(self) -> Content:
        return Content(self.base_offset, self.next_offset, self.size, self.log_crc)


def encode_seal(seal: Seal, table: bytes = b"") -> bytes:
    """Return the bytes of a seal file: the head, then the table of page checksums."""
    return encode_head(seal) + (table if seal.pages is not None else b"")


def encode_head(seal: Seal) -> bytes:
    """Return the bytes of a seal without its table."""
    *fields, contiguous, clean_offset, pages = astuple(seal)
    version = PAGED_VERSION if pages is not None else COMPACTED_VERSION if clean_offset else VERSION
    body = _BODY.pack(MAGIC, version, CONTIGUOUS if contiguous else 0, *fields)
    if version != VERSION:
        body += _CLEAN.pack(clean_offset)
    if pages is not None:
        body += _PAGES.pack(*pages)
    return body + _CRC.pack(crc32c(body))


def decode_seal(data: bytes) -> Seal | None:
    """Return the seal in the bytes, or None if they are not a whole seal. The table is ignored."""
    if len(data) < SIZE:
        return None
    magic, version, flags, *fields = _BODY.unpack_from(data)
    if version == PAGED_VERSION:
        data = data[:HEAD_SIZE]
    if magic != MAGIC or len(data) != _SIZES.get(version) or _CRC.unpack(data[-4:])[0] != crc32c(data[:-4]):
        return None
    clean_offset = _CLEAN.unpack_from(data, _BODY.size)[0] if version != VERSION else 0
    pages = None
    if version == PAGED_VERSION:
        pages = Pages(*_PAGES.unpack_from(data, _BODY.size + _CLEAN.size))
        if not 0 < pages.page_size <= MAX_PAGE_SIZE:
            return None
    fields = [*fields, bool(flags & CONTIGUOUS), clean_offset, pages]
    return Seal(*fields)


def read_seal(files: Files, directory: str, base_offset: int) -> Seal | None:
    """Return a segment's seal without its table, or None if the seal is missing, damaged or another segment's."""
    path = _path(directory, base_offset)
    try:
        # An archive's manifest contains the head. Other remote stores fetch the file whole: a request costs more
        # than the table.
        data = files.read_file(path) if isinstance(files, ReadOnlyFiles) else _read_head(files, path)
    except FileNotFoundError:
        return None
    seal = decode_seal(data)
    return seal if seal is not None and seal.base_offset == base_offset else None


def _read_head(files: Files, path: str) -> bytes:
    handle = Handle(files, path)
    return files.read(handle.number, HEAD_SIZE, 0)


def read_table(files: Files, directory: str, base_offset: int, pages: Pages) -> bytes | None:
    """Return a segment's table of page checksums, or None if it is missing or fails the CRC in `pages`."""
    try:
        handle = Handle(files, _path(directory, base_offset))
    except FileNotFoundError:
        return None
    table = files.read(handle.number, max(0, files.size(handle.number) - HEAD_SIZE), HEAD_SIZE)
    return table if crc32c(table) == pages.table_crc else None


def write_seal(files: Files, directory: str, seal: Seal, table: bytes = b"") -> None:
    """Write a segment's seal. The caller syncs the directory."""
    replace_file(files, directory, names.segment_name(seal.base_offset, names.SEAL), encode_seal(seal, table))


def _path(directory: str, base_offset: int) -> str:
    """Return the path of a segment's seal."""
    return f"{directory}/{names.segment_name(base_offset, names.SEAL)}"
