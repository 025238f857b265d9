"""Page checksums of a segment's log. They prove the bytes that no batch's CRC covers, wherever a reader starts.

A batch's CRC does not cover its base offset. In a segment without gaps, the neighbouring batches prove it. In a segment
that may have gaps, only a checksum from the time of sealing can. The seal of such a segment therefore ends with a
table: the CRC-32C of each page of the `.log` file, a big-endian uint32; the last page may be short. The head of the
seal contains the page size and the CRC-32C of the table.
"""

from __future__ import annotations

import struct
from itertools import zip_longest
from typing import Final, NamedTuple

from seeklog.files import Buffer
from seeklog.record.crc import crc32c

# A point read needs one or two pages. The table is 1/4096 of the log: 256 KiB for a segment of 1 GiB.
PAGE_SIZE: Final = 16 << 10
# The largest size accepted from a seal: readers read whole pages.
MAX_PAGE_SIZE: Final = 1 << 20
SUM_SIZE: Final = 4
_SUM: Final = struct.Struct(">I")


class Pages(NamedTuple):
    """The size of pages, and the CRC that proves their table before it is used."""

    page_size: int
    table_crc: int

    def around(self, position: int, size: int, *, end: int) -> tuple[int, int]:
        """Return [start, stop) of the whole pages around `size` bytes at `position`, in a file of `end` bytes."""
        page = self.page_size
        return position // page * page, min(end, -(-(position + size) // page) * page)


class PageSums:
    """Computes the page checksums of a file from its bytes in order."""

    def __init__(self, page_size: int = PAGE_SIZE) -> None:
        self._page_size = page_size
        self._whole = bytearray()
        self._crc = 0
        self._filled = 0

    def add(self, data: Buffer, size: int | None = None) -> None:
        """Add the next bytes of the file: all of `data`, or its first `size` bytes."""
        end = len(data) if size is None else size
        with memoryview(data) as view:
            at = 0
            while at < end:
                part = view[at : min(end, at + self._page_size - self._filled)]
                self._crc = crc32c(part, self._crc)
                self._filled += len(part)
                at += len(part)
                if self._filled == self._page_size:
                    self._whole += _SUM.pack(self._crc)
                    self._crc = self._filled = 0

    @property
    def table(self) -> bytes:
        """The checksums of all pages, including an incomplete last one."""
        return bytes(self._whole) + (_SUM.pack(self._crc) if self._filled else b"")

    @property
    def pages(self) -> Pages:
        """The page size and the CRC of the table."""
        return Pages(self._page_size, crc32c(self.table))


def first_difference(table: bytes, other: bytes, *, page_size: int) -> int | None:
    """Return the start of the first page whose checksums differ between two tables, or None if the tables are equal."""
    if table == other:
        return None
    pairs = enumerate(zip_longest(_SUM.iter_unpack(table), _SUM.iter_unpack(other)))
    return next(number * page_size for number, (one, another) in pairs if one != another)


def wrong_page(table: bytes, pages: Pages, data: bytes, position: int) -> int | None:
    """Return the start of the first page that differs from the sealed one, or None.

    `data` was read at `position`, which is the start of a page, and ends with a page.
    """
    page = pages.page_size
    at = position // page * SUM_SIZE
    if len(data) <= page:  # the most frequent case, and faster without the loop
        return position if table[at : at + SUM_SIZE] != _SUM.pack(crc32c(data)) else None
    with memoryview(data) as view:
        for start in range(0, len(data), page):
            if table[at : at + SUM_SIZE] != _SUM.pack(crc32c(view[start : start + page])):
                return position + start
            at += SUM_SIZE
    return None
