"""The key index of a segment at a URL, searched by ranges: a few of its pages are fetched, never the whole file.

Opening it fetches the head and the page CRCs. A lookup fetches the one block of the filter that shows whether the key
can be in the index; then a range of hashes around the expected position of the key's hash, wide enough for all but one
lookup in ten thousand; then the offset. Every page is checked with its CRC.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from math import isqrt

from seeklog.files import Files, Handle
from seeklog.log.keys.index import HASH_SIZE, HEAD_SIZE, OFFSET_SIZE, PAGE_SIZE, Layout, read_head
from seeklog.log.side.seal import Seal
from seeklog.record.crc import crc32c
from seeklog.record.key_table import FILTER_BLOCK_SIZE, KeyEntries

# A smaller index is fetched whole: one long request costs less than five short ones.
MAX_WHOLE_BYTES = 256 << 10


class PageDamaged(Exception):
    """A page fails its CRC."""


class RangedKeys:
    """A key index whose parts are fetched on demand. Thread-safe."""

    def __init__(self, files: Files, handle: Handle, layout: Layout) -> None:
        self._files = files
        self._handle = handle
        self._layout = layout
        size = layout.page_crcs_size
        self._page_crcs = files.read(handle.number, size, layout.page_crcs_at)
        self._check_page(0, files.read(handle.number, min(PAGE_SIZE, layout.page_crcs_at), 0))

    def offsets_of(self, first: int) -> tuple[int, ...]:
        """Return the relative offsets stored for a hash, the newest first.

        Raises `PageDamaged` for a damaged page, and `OSError` if the storage does not answer.
        """
        layout = self._layout
        # The block is chosen by the upper half of the hash, and the bits in it by the lower one.
        block = ((first >> 32) * layout.block_count) >> 32
        at = HEAD_SIZE + FILTER_BLOCK_SIZE * block
        data = self._read(at, at + FILTER_BLOCK_SIZE)
        if not KeyEntries(data, head_size=0, blocks=1, count=0).may_hold(first):
            return ()
        start, count = self._equal_hashes(first)
        if not count:
            return ()
        at = layout.offsets_at + OFFSET_SIZE * start
        return struct.unpack(f">{count}I", self._read(at, at + OFFSET_SIZE * count))

    def _equal_hashes(self, first: int) -> tuple[int, int]:
        """Return the index of the first entry with a hash, and the number of such entries."""
        count = self._layout.key_count
        guess = ((first >> 32) * count) >> 32
        # Hashes are spread evenly: in two of three cases the guess is off by less than half the square root of `count`.
        radius = 2 * isqrt(count) + 8
        while True:
            low, high = max(0, guess - radius), min(count, guess + radius)
            at = self._layout.hashes_at
            hashes = struct.unpack(f">{high - low}Q", self._read(at + HASH_SIZE * low, at + HASH_SIZE * high))
            index = bisect_left(hashes, first)
            end = bisect_right(hashes, first, index)
            if (index > 0 or low == 0) and (end < len(hashes) or high == count):
                return low + index, end - index
            radius *= 4

    def _read(self, start: int, stop: int) -> bytes:
        """Return bytes of the index, after checking the CRCs of their pages."""
        page, next_page = start // PAGE_SIZE, -(-stop // PAGE_SIZE)
        begin, end = page * PAGE_SIZE, min(next_page * PAGE_SIZE, self._layout.page_crcs_at)
        data = self._files.read(self._handle.number, end - begin, begin)
        for number in range(page, next_page):
            self._check_page(number, data[(number - page) * PAGE_SIZE : (number - page + 1) * PAGE_SIZE])
        return data[start - begin : stop - begin]

    def _check_page(self, number: int, data: bytes) -> None:
        stored = self._page_crcs[4 * number : 4 * number + 4]
        if crc32c(data).to_bytes(4, "big") != stored:
            raise PageDamaged(f"its page {number} fails its CRC")


def open_ranged(files: Files, path: str, seal: Seal) -> RangedKeys | str | None:
    """Return a key index to search by ranges, None if it is small enough to fetch whole, else the problem.

    Raises `OSError`, for example if the file is missing.
    """
    size = files.file_size(path)
    if size <= MAX_WHOLE_BYTES:
        return None
    handle = Handle(files, path)
    layout = read_head(files.read(handle.number, HEAD_SIZE, 0), size, seal)
    if isinstance(layout, str):
        return layout
    try:
        return RangedKeys(files, handle, layout)
    except PageDamaged as error:
        return str(error)
