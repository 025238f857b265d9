"""The key index of one sealed segment: the offset of each key's last record.

`%020d.keyindex`, big-endian:

     0  magic         4 bytes "SLKI"         32  log_crc       uint32  of the whole .log file
     4  version       int16   1              36  block_count   uint32  of the filter
     6  reserved      int16   0              40  key_count     int64
     8  base_offset   int64                  48  filter        32 bytes a block
    16  next_offset   int64                   …  hashes        uint64 each, in increasing order
    24  size          int64   of the .log     …  last_offsets  uint32 each, less the base offset
                                              …  page_crcs     uint32 each, of every 4 KiB of all before them
                                              …  crc           uint32  of everything before it

A hash is the first half of the 128-bit SipHash-2-4 of the key under a fixed secret. The filter is Parquet's split block
Bloom filter of the hashes. Keys with the same hash have one entry each, the newer first. The page CRCs prove parts of
the file to a reader that does not read all of it (`keys.ranges`).

The index is only advice. It is valid if its offsets, size and CRC equal those in the segment's seal; a missing, damaged
or stale index is rebuilt from the log. An entry is a hint: a lookup compares the key of the record.
"""

from __future__ import annotations

import contextlib
import logging
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from seeklog import names
from seeklog.config import INT64_MAX
from seeklog.errors import CorruptionError, counted
from seeklog.files import Buffer, Files, replace_file
from seeklog.log.segment import SCAN_CHUNK, Segment, check_fits
from seeklog.log.side.seal import Content, Seal
from seeklog.record.crc import crc32c
from seeklog.record.key_table import FILTER_BLOCK_SIZE, KeyEntries, KeyTable, filter_block_count

logger = logging.getLogger("seeklog")

MAGIC = b"SLKI"
VERSION = 1
_HEAD = struct.Struct(">4shhqqqIIq")
_CRC = struct.Struct(">I")
HEAD_SIZE: Final = _HEAD.size
HASH_SIZE: Final = 8
OFFSET_SIZE: Final = 4
# The unit of proof: the size of a disk page, so that a lookup by ranges reads little more than it needs.
PAGE_SIZE: Final = 4096
# The problem of a whole key index that does not match its segment.
STALE = "it belongs to another state of the segment"


class Layout(NamedTuple):
    """The positions of the parts of a key index, computed from its head."""

    block_count: int
    key_count: int

    @property
    def hashes_at(self) -> int:
        return HEAD_SIZE + FILTER_BLOCK_SIZE * self.block_count

    @property
    def offsets_at(self) -> int:
        return self.hashes_at + HASH_SIZE * self.key_count

    @property
    def page_crcs_at(self) -> int:
        return self.offsets_at + OFFSET_SIZE * self.key_count

    @property
    def page_crcs_size(self) -> int:
        return _CRC.size * -(-self.page_crcs_at // PAGE_SIZE)

    @property
    def size(self) -> int:
        return self.page_crcs_at + self.page_crcs_size + _CRC.size


def encode_key_index(table: KeyTable, seal: Seal) -> bytes:
    """Return the key index of a sealed segment, built from the keys in `table`."""
    head = _HEAD.pack(MAGIC, VERSION, 0, *seal.content, filter_block_count(table.count), table.count)
    return with_crcs(bytes(table.encode(head)))


def with_crcs(body: bytes) -> bytes:
    """Return a key index with the CRCs of its pages and of the whole file appended."""
    with memoryview(body) as view:
        pages = [_CRC.pack(crc32c(view[at : at + PAGE_SIZE])) for at in range(0, len(body), PAGE_SIZE)]
    proved = body + b"".join(pages)
    return proved + _CRC.pack(crc32c(proved))


def read_head(data: Buffer, size: int, seal: Seal) -> Layout | str:
    """Return the layout of a key index of `size` bytes from its head, or why it does not match the sealed segment."""
    if size < HEAD_SIZE + FILTER_BLOCK_SIZE + _CRC.size or len(data) < HEAD_SIZE:
        return f"{counted(size, 'byte is', 'bytes are')} not a key index"
    magic, version, _, *belongs_to, block_count, key_count = _HEAD.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        return "it does not start like a key index of this version"
    if Content(*belongs_to) != seal.content:
        return STALE
    layout = Layout(block_count, key_count)
    return layout if key_count >= 0 and block_count >= 1 and layout.size == size else "its size does not match its head"


def open_key_index(data: Buffer, seal: Seal, *, is_proved: bool = False) -> KeyEntries | str:
    """Return the entries if `data` is the whole key index of the sealed segment, else the problem.

    With `is_proved`, the caller has checked the CRC before.
    """
    size = len(data)
    layout = read_head(data, size, seal)
    if isinstance(layout, str):
        return layout
    if not is_proved:
        with memoryview(data) as view:
            if crc32c(view[: size - _CRC.size]) != _CRC.unpack_from(data, size - _CRC.size)[0]:
                return "it fails its CRC"
    return KeyEntries(data, head_size=HEAD_SIZE, blocks=layout.block_count, count=layout.key_count)


def collect_keys(segment: Segment, *, limit: int, between: Callable[[], None] | None = None) -> KeyTable:
    """Return the last offset of each key in a whole segment, after checking every batch.

    `between` is called after each chunk, some milliseconds apart.
    """
    table = KeyTable(segment.base_offset)
    position = 0
    while position < segment.size:
        taken = add_keys(table, segment, position, stop=INT64_MAX, limit=limit)
        position += taken
        if not taken:
            break  # the segment was cut during the read
        if between is not None:
            between()
    return table


def add_keys(table: KeyTable, segment: Segment, position: int, *, stop: int, limit: int) -> int:
    """Add the keys of the batches at `position` that end below `stop`; return the size of these batches.

    Reads at most one chunk. Returns 0 if there is no such batch.
    """
    wanted = SCAN_CHUNK
    while True:
        data = segment.read(wanted, position)
        if not data:
            return 0
        try:
            taken = table.add(data, position, segment.contiguous, stop, limit)
        except CorruptionError as error:
            raise segment.located(error) from error
        if taken or len(data) < 12 or len(data) >= (size := check_fits(data, position=position, segment=segment)):
            return taken
        wanted = size


def key_index_name(base_offset: int) -> str:
    return names.segment_name(base_offset, names.KEY_INDEX)


def write_key_index(files: Files, directory: str, base_offset: int, data: bytes) -> bool:
    """Replace the key index of a segment; return whether it was written. A failure leaves no temporary file."""
    name = key_index_name(base_offset)
    try:
        replace_file(files, directory, name, data)
    except OSError as error:
        logger.warning("%s/%s: the key index was not written: %s", directory, name, error)
        with contextlib.suppress(OSError):
            files.remove(f"{directory}/{name}{names.TEMPORARY}")
        return False
    return True
