"""The key index of a segment that lies at a URL, looked up by ranges: a few of its pages are fetched, never all of it.

Head and page CRCs are fetched when it is opened. A lookup then asks for the one block of the filter that decides
whether the key may be there at all; for the hashes around the place that the key's hash should have, so many that it
is there but for one time in ten thousand; and for the offset. Every page is proved by its CRC before it is believed.
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

# A smaller one is fetched whole: one request that is longer costs less than five.
MAX_WHOLE_BYTES = 256 << 10


class PageDamaged(Exception):
    """A page is not the one that was written."""


class RangedKeys:
    """A key index of which parts are fetched when they are needed. Any thread may call anything."""

    def __init__(self, files: Files, handle: Handle, layout: Layout) -> None:
        self._files = files
        self._handle = handle
        self._layout = layout
        size = layout.page_crcs_size
        self._page_crcs = files.read(handle.number, size, layout.page_crcs_at)
        self._check_page(0, files.read(handle.number, min(PAGE_SIZE, layout.page_crcs_at), 0))

    def offsets_of(self, first: int) -> tuple[int, ...]:
        """Return the relative offsets that a hash stands for, the newest first.

        Raises `PageDamaged`, and `OSError` where the storage does not answer.
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
        """Return the place of the first entry with a hash, and how many have it."""
        count = self._layout.key_count
        guess = ((first >> 32) * count) >> 32
        # Hashes are spread evenly: a place is less than half a root of all away from the guess two times of three.
        radius = 2 * isqrt(count) + 8
        while True:
            low, high = max(0, guess - radius), min(count, guess + radius)
            at = self._layout.hashes_at
            hashes = struct.unpack(f">{high - low}Q", self._read(at + HASH_SIZE * low, at + HASH_SIZE * high))
            place = bisect_left(hashes, first)
            end = bisect_right(hashes, first, place)
            if (place > 0 or low == 0) and (end < len(hashes) or high == count):
                return low + place, end - place
            radius *= 4

    def _read(self, start: int, stop: int) -> bytes:
        """Return bytes of the index, from pages whose CRCs hold."""
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
    """Return a key index to be looked up by ranges, None if it is small enough to be fetched whole, else what is wrong.

    Raises `OSError`, that it is not there among them.
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
