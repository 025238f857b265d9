"""Checksums of a segment's log, page by page: the proof of what no batch's own CRC covers, wherever a reader begins.

Kafka's CRC leaves out where a batch says that it stands. In a segment without gaps its neighbours prove it; where gaps
are lawful nothing does but the bytes as they were when it was sealed. So the seal of such a segment ends with a
table: the CRC-32C of each page of the `.log` file, a uint32, big-endian; the last page may be short. The head of the
seal has the size of a page, and the CRC-32C of the table.
"""

from __future__ import annotations

import struct
from itertools import zip_longest
from typing import Final, NamedTuple

from seeklog.files import Buffer
from seeklog.record.crc import crc32c

# A point read takes one or two pages. The table is a four-thousandth of the log: 256 KiB for a segment of 1 GiB.
PAGE_SIZE: Final = 16 << 10
# What a seal may say; a reader takes whole pages, and should not take much more than it wants.
MAX_PAGE_SIZE: Final = 1 << 20
SUM_SIZE: Final = 4
_SUM: Final = struct.Struct(">I")


class Pages(NamedTuple):
    """What proves a table of page checksums: all that a reader must know before it has read the table."""

    page_size: int
    table_crc: int

    def around(self, position: int, size: int, *, end: int) -> tuple[int, int]:
        """Return [start, stop) of the whole pages that hold `size` bytes at `position` of a file of `end` bytes."""
        page = self.page_size
        return position // page * page, min(end, -(-(position + size) // page) * page)


class PageSums:
    """The checksums of the pages of a file, whose bytes are added in order."""

    def __init__(self, page_size: int = PAGE_SIZE) -> None:
        self._page_size = page_size
        self._whole = bytearray()
        self._crc = 0
        self._filled = 0

    def add(self, data: Buffer, size: int | None = None) -> None:
        """Take the next bytes of the file: all of `data`, or the first `size` of it."""
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
        """The checksums of all pages, that of one which is not full among them."""
        return bytes(self._whole) + (_SUM.pack(self._crc) if self._filled else b"")

    @property
    def pages(self) -> Pages:
        """What proves the table."""
        return Pages(self._page_size, crc32c(self.table))


def first_difference(table: bytes, other: bytes, *, page_size: int) -> int | None:
    """Return where the first page starts of which two tables have other checksums; None: they are the same."""
    if table == other:
        return None
    pairs = enumerate(zip_longest(_SUM.iter_unpack(table), _SUM.iter_unpack(other)))
    return next(number * page_size for number, (one, another) in pairs if one != another)


def wrong_page(table: bytes, pages: Pages, data: bytes, position: int) -> int | None:
    """Return where the first page starts that is not the one that was sealed; None: all are.

    `data` was read at `position`, where a page starts, and ends with a page.
    """
    page = pages.page_size
    at = position // page * SUM_SIZE
    if len(data) <= page:  # the most frequent, and quicker alone
        return position if table[at : at + SUM_SIZE] != _SUM.pack(crc32c(data)) else None
    with memoryview(data) as view:
        for start in range(0, len(data), page):
            if table[at : at + SUM_SIZE] != _SUM.pack(crc32c(view[start : start + page])):
                return position + start
            at += SUM_SIZE
    return None
