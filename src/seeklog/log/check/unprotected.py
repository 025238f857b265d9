"""Leader epochs, and base offsets among gaps, that were changed on disk: what neither a CRC nor neighbours check.

A seal, or a clean close, has the CRC of the whole file. So a guess at what an epoch was, that of the batches around
it, can be proved. Where there are gaps the seal also has that of each page: every offset that the batches around leave
to one can be tried there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from seeklog.config import INT64_MAX
from seeklog.errors import CorruptionError
from seeklog.log.headers import scan_headers
from seeklog.log.segment import SCAN_CHUNK, Segment
from seeklog.log.side.pages import wrong_page
from seeklog.log.side.seal import Seal, read_table
from seeklog.record.crc import crc32c

EPOCH_AT: Final = 12
_EPOCH_SIZE: Final = 4
_OFFSET_SIZE: Final = 8
# Each costs a microsecond or two.
_GUESSES_MOST: Final = 200_000


@dataclass(frozen=True, slots=True)
class ChangedEpoch:
    """A batch whose leader epoch is not what was written."""

    batch_position: int
    found: int
    epoch: int

    @property
    def right(self) -> bytes:
        """What should stand there."""
        return self.epoch.to_bytes(_EPOCH_SIZE, "big", signed=True)

    @property
    def position(self) -> int:
        """The first byte that differs."""
        wrong = self.found.to_bytes(_EPOCH_SIZE, "big", signed=True)
        at = next(number for number in range(_EPOCH_SIZE) if wrong[number] != self.right[number])
        return self.batch_position + EPOCH_AT + at


def changed_epochs(segment: Segment, *, crc: int) -> list[ChangedEpoch]:
    """Return the epochs that were changed, if putting them right gives the file the CRC `crc`; else none."""
    try:
        headers = [(at, header.leader_epoch) for at, header in scan_headers(segment, segment.base_offset, INT64_MAX)]
    except CorruptionError:
        return []
    guesses = []
    for number, (position, epoch) in enumerate(headers):
        around = {headers[near][1] for near in (number - 1, number + 1) if 0 <= near < len(headers)}
        if len(around) == 1 and epoch not in around:
            guesses.append(ChangedEpoch(position, epoch, around.pop()))
    # An outlier makes its neighbours at the ends of the file look like ones, too: each alone, then all.
    for chosen in (*([guess] for guess in guesses[:8]), guesses):
        if chosen and _crc_with(segment, [(each.batch_position + EPOCH_AT, each.right) for each in chosen]) == crc:
            return chosen
    return []


@dataclass(frozen=True, slots=True)
class ChangedOffset:
    """A batch whose base offset is not what was written."""

    batch_position: int
    found: int
    base_offset: int

    @property
    def right(self) -> bytes:
        """What should stand there."""
        return self.base_offset.to_bytes(_OFFSET_SIZE, "big", signed=True)


def changed_offsets(segment: Segment, seal: Seal) -> list[ChangedOffset]:
    """Return the base offsets that were changed among gaps, if putting them right gives what was sealed; else none.

    The segment is read as it is (`Segment.read_unproved`), and each of its batches is whole and behind the one before.
    """
    shared, pages = segment.shared, seal.pages
    table = read_table(shared.files, shared.directory, segment.base_offset, pages) if pages is not None else None
    if pages is None or table is None or segment.size != seal.size:
        return []
    batches = list(scan_headers(segment, segment.base_offset, INT64_MAX))
    found: list[ChangedOffset] = []
    guesses = _GUESSES_MOST
    for start in range(0, segment.size, pages.page_size):
        page = segment.read(pages.page_size, start)
        if wrong_page(table, pages, page, start) is None:
            continue
        for number, (position, header) in enumerate(batches):
            if not start - _OFFSET_SIZE < position < start + len(page):
                continue
            low = batches[number - 1][1].next_offset if number else segment.base_offset
            high = batches[number + 1][1].base_offset if number + 1 < len(batches) else seal.next_offset
            lawful = range(low, high - header.last_offset_delta)[:guesses]
            guesses -= len(lawful)
            found += (
                ChangedOffset(position, header.base_offset, offset)
                for offset in lawful
                if wrong_page(table, pages, _with_offset(page, position - start, offset), start) is None
            )
    # One that lies across two pages is found in both.
    found = list(dict.fromkeys(found))
    places = [(each.batch_position, each.right) for each in found]
    return found if found and _crc_with(segment, places) == seal.log_crc else []


def _with_offset(page: bytes, at: int, offset: int) -> bytes:
    """Return a page with another base offset at `at`, as much of it as lies in the page."""
    right = offset.to_bytes(_OFFSET_SIZE, "big", signed=True)
    inside = right[max(0, -at) : len(page) - at]
    begin = max(0, at)
    return page[:begin] + inside + page[begin + len(inside) :]


def _crc_with(segment: Segment, places: list[tuple[int, bytes]]) -> int:
    """Return the CRC of a segment's file with other bytes at some places."""
    value = 0
    for at in range(0, segment.size, SCAN_CHUNK):
        data = bytearray(segment.read(SCAN_CHUNK, at))
        for position, right in places:
            for number, byte in enumerate(right):
                place = position + number - at
                if 0 <= place < len(data):
                    data[place] = byte
        value = crc32c(bytes(data), value)
    return value
