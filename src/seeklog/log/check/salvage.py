"""Scanning a segment to the end of the file, restarting after each damaged range.

Recovery stops at the first damage, because nothing after it can be trusted. This scan measures the whole damage: it
reports each one and continues with the next whole batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from seeklog.config import INT32_MAX, INT64_MAX
from seeklog.errors import CorruptionError, LostRecords, UnsupportedMagic, counted
from seeklog.log.check.finding import Kind
from seeklog.log.segment import SCAN_CHUNK, Segment, scan_into
from seeklog.log.side.pages import PageSums
from seeklog.record.batch import Batch, BatchHeader, read_header
from seeklog.record.crc import crc32c
from seeklog.record.layout import ATTRIBUTES, HEADER_SIZE, MAGIC
from seeklog.record.saved_state import SavedState
from seeklog.record.segment_state import SegmentState

# The maximum number of damaged ranges reported for one segment.
MAX_DAMAGES = 100
# While the scan tries possible starts of batches, it may reread this many times the segment's size. Bytes that look
# like the starts of many large batches would otherwise each be checked to the claimed end.
MAX_EFFORT = 16
_MAGIC_2 = b"\x02"


@dataclass(slots=True, kw_only=True)
class Damage:
    """A place where the scan could not continue, and where it restarted."""

    kind: Kind
    start: int
    stop: int
    """The position of the next whole batch, or the end of the file. It equals `start` if only offsets are wrong."""
    offset: int
    """The offset expected at `start`."""
    reason: str
    batches_before: int
    records_before: int
    next_offset: int | None = None
    """The offset of the next whole batch, or None."""
    is_blank: bool = False
    """Whether only zeros follow."""


class Salvage:
    """The scan of one segment: its damaged ranges, and the total state of all its whole batches.

    `new_state` returns the state of an empty segment. From `contiguous_from` on, a gap between batches is damage.
    `end_offset` is the offset after the last batch, if known from elsewhere.
    """

    def __init__(
        self,
        segment: Segment,
        contiguous_from: int,
        new_state: Callable[[int], SegmentState],
        *,
        end_offset: int | None = None,
        sums: PageSums | None = None,
    ) -> None:
        self.segment = segment
        self._sums = sums
        self._end_offset = end_offset
        self.damages: list[Damage] = []
        self.is_given_up = False
        """Whether the scan stopped early: too many damaged ranges, or too many possible starts of batches."""
        self._effort = MAX_EFFORT * segment.size
        self._new_state = new_state
        self.state = new_state(segment.base_offset)
        while True:
            self._scan(contiguous_from)
            if self.state.problem is None and self.state.size >= segment.size:
                return
            damage = self._damage_at(self.state)
            self.damages.append(damage)
            if damage.next_offset is None or self.is_given_up:
                return
            if len(self.damages) == MAX_DAMAGES:
                self.is_given_up = True
                return
            self.state = self._resumed(damage.stop, damage.next_offset)

    def _scan(self, contiguous_from: int) -> None:
        """Pass bytes through the state up to the end, to damage, or to where the file ends too early."""
        with contextlib.suppress(LostRecords):
            for _, data, size in scan_into(self.state, self.segment, contiguous_from=contiguous_from):
                if self._sums is not None:
                    self._sums.add(data, size)

    def _resumed(self, position: int, next_offset: int) -> SegmentState:
        """Return the state for continuing at another position, with the counts and tables so far."""
        saved = SavedState(*self.state.save())._replace(next_offset=next_offset, size=position)
        resumed = self._new_state(saved.base_offset)
        resumed.restore(tuple(saved), bytes(self.state.offset_table), bytes(self.state.time_table))
        return resumed

    # ------------------------------------------------------------ what is wrong

    def _damage_at(self, state: SegmentState) -> Damage:
        position = state.size
        damage = Damage(
            kind=Kind.HEADER,
            start=position,
            stop=self.segment.size,
            offset=state.next_offset,
            reason=str(state.problem.reason) if state.problem is not None else "",
            batches_before=state.batch_count,
            records_before=state.record_count,
        )
        header = self._header_at(position)
        if state.problem is None:
            damage.kind = Kind.TRUNCATED
            damage.reason = (
                f"the last {counted(self.segment.size - position, 'byte is', 'bytes are')} not a whole batch"
            )
        elif isinstance(state.problem, UnsupportedMagic):
            damage.kind = Kind.FORMAT
        elif header is not None and self._is_whole(position, header):
            self._explain_offsets(damage, header)
            return damage
        elif header is not None and self._has_wrong_crc(position, header):
            damage.kind = Kind.CRC
        self._resume_after(damage, header)
        return damage

    def _explain_offsets(self, damage: Damage, header: BatchHeader) -> None:
        """Explain the damage of a whole batch: its own offsets are wrong, or its neighbours'."""
        position = damage.start + header.size
        next_offset = damage.offset + header.last_offset_delta + 1
        if self._continues(position, next_offset):
            damage.kind = Kind.OFFSET
            damage.reason = f"base offset {header.base_offset}, but its neighbours leave {damage.offset} to it"
            damage.stop, damage.next_offset = position, next_offset
            return
        if header.base_offset > damage.offset:
            damage.kind = Kind.GAP
            damage.reason = f"offsets {damage.offset} to {header.base_offset - 1} are missing before the batch"
        else:
            damage.kind = Kind.OVERLAP
            damage.reason = f"base offset {header.base_offset}, but the batch before ends with {damage.offset - 1}"
        damage.stop, damage.next_offset = damage.start, header.base_offset

    def _continues(self, position: int, offset: int) -> bool:
        """Return whether a whole batch at `position` starts with `offset`, or the segment ends there."""
        if position >= self.segment.size:
            return offset == self._end_offset
        following = self._header_at(position)
        return following is not None and following.base_offset == offset and self._is_whole(position, following)

    def _resume_after(self, damage: Damage, header: BatchHeader | None) -> None:
        """Find the next whole batch: at the claimed end of the damaged one, or anywhere after its start."""
        claimed = [damage.start + header.size] if header is not None else []
        for position in (*claimed, *self._candidates(damage.start + 1)):
            candidate = self._header_at(position)
            if candidate is None:
                continue
            self._effort -= candidate.size
            if self._effort < 0:
                self.is_given_up = True
                return
            if self._is_whole(position, candidate):
                damage.stop, damage.next_offset = position, candidate.base_offset
                # The damage is not a torn end, because a whole batch follows.
                damage.kind = Kind.HEADER if damage.kind is Kind.TRUNCATED else damage.kind
                return
        damage.is_blank = self._is_blank_from(damage.start)

    # ------------------------------------------------------------ looking at bytes

    def _header_at(self, position: int) -> BatchHeader | None:
        """Return the header of the batch that starts at `position` and ends within the file, or None."""
        try:
            header = read_header(self.segment.read(HEADER_SIZE, position))
        except CorruptionError:
            return None
        return header if header.size <= self.segment.size - position else None

    def _is_whole(self, position: int, header: BatchHeader) -> bool:
        """Return whether a batch passes every check that does not depend on the batches before it."""
        data = self.segment.read(header.size, position)
        return self._new_state(self.segment.base_offset).scan(data, INT64_MAX) == header.size

    def _has_wrong_crc(self, position: int, header: BatchHeader) -> bool:
        return crc32c(self.segment.read(header.size, position)[ATTRIBUTES:]) != header.crc

    def _candidates(self, start: int) -> Iterator[int]:
        """Yield possible starts of batches: a magic byte after a plausible offset and length."""
        lowest, highest = self.segment.base_offset, self.segment.base_offset + INT32_MAX
        for at in range(start, self.segment.size, SCAN_CHUNK):
            data = self.segment.read(SCAN_CHUNK + MAGIC, at)
            hit = data.find(_MAGIC_2, MAGIC)
            while hit >= 0:
                begin = hit - MAGIC
                base_offset = int.from_bytes(data[begin : begin + 8], "big", signed=True)
                length = int.from_bytes(data[begin + 8 : begin + 12], "big", signed=True)
                if lowest <= base_offset <= highest and 0 < length <= self.segment.size - at - begin:
                    yield at + begin
                hit = data.find(_MAGIC_2, hit + 1)

    def _is_blank_from(self, start: int) -> bool:
        chunks = (self.segment.read(SCAN_CHUNK, at) for at in range(start, self.segment.size, SCAN_CHUNK))
        return not any(chunk.strip(b"\0") for chunk in chunks)

    # ------------------------------------------------------------ results

    def parts(self) -> Iterator[tuple[int, int] | Damage]:
        """Yield the parts of the file in order: ranges of whole batches, as [start, stop) in bytes, and damage."""
        position = 0
        for damage in self.damages:
            if damage.start > position:
                yield position, damage.start
            yield damage
            position = damage.stop
        if self.state.size > position:
            yield position, self.state.size

    def batches(self) -> Iterator[tuple[int, Batch]]:
        """Yield (position, batch) of every whole batch."""
        for part in self.parts():
            if not isinstance(part, Damage):
                yield from read_batches(self.segment, *part)

    def has_read(self, position: int) -> bool:
        """Return whether a batch that starts at `position` would have been read."""
        return not any(
            damage.start <= position and (position < damage.stop or self._is_open(damage)) for damage in self.damages
        )

    def has_read_offset(self, offset: int) -> bool:
        """Return whether a batch with this offset would have been read."""
        return not any(
            damage.offset <= offset and (self._is_open(damage) or offset < (damage.next_offset or 0))
            for damage in self.damages
        )

    def _is_open(self, damage: Damage) -> bool:
        """Return whether nothing after the damage was read."""
        return damage.next_offset is None or (damage is self.damages[-1] and self.is_given_up)


def read_batches(segment: Segment, start: int, stop: int) -> Iterator[tuple[int, Batch]]:
    """Yield (position, batch) for batches that are known to be whole."""
    position, origin, data = start, start, b""
    while position < stop:
        at = position - origin
        if len(data) - at < HEADER_SIZE:
            origin, at, data = position, 0, segment.read(SCAN_CHUNK, position)
        header = read_header(data, at)
        if header.size > len(data) - at:
            origin, at, data = position, 0, segment.read(max(SCAN_CHUNK, header.size), position)
        yield position, Batch(header, data[at : at + header.size])
        position += header.size
