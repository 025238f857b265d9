"""A segment's batches, scanned to the end of the file with a new start behind every damage.

Recovery stops at the first damage, because nothing behind it may be believed. This scan is for those who want to know
how much there is: it says what is wrong at each place, and goes on with the next whole batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from seeklog.config import INT32_MAX, INT64_MAX
from seeklog.errors import CorruptionError, UnsupportedMagic
from seeklog.log.check.finding import Kind
from seeklog.log.segment import SCAN_CHUNK, Segment, whole_batch_size
from seeklog.log.side.pages import PageSums
from seeklog.record.batch import BatchHeader, read_header
from seeklog.record.crc import crc32c
from seeklog.record.layout import HEADER_SIZE
from seeklog.record.saved_state import SavedState
from seeklog.record.segment_state import SegmentState

# More damages of one segment are not told one by one: whoever has a hundred knows what to do.
DAMAGES_MOST = 100
# How often a segment is read over, at most, to find out which of the places where a batch may begin is one. Bytes that
# claim to be large batches, one behind the other, would otherwise be checked each to its end.
EFFORT_MOST = 16
# A batch begins with base offset (8), length (4) and leader epoch (4); then comes the magic, which is 2.
_MAGIC_AT = 16
_MAGIC = b"\x02"
_CRC_COVERS_FROM = 21


@dataclass(slots=True, kw_only=True)
class Damage:
    """A place where a scan could not go on, and where it went on."""

    kind: Kind
    position: int
    offset: int
    """The offset that should have come there."""
    reason: str
    batches_before: int
    records_before: int
    resumed_at: int | None = None
    """The position of the next whole batch; None: there is none."""
    resumed_offset: int | None = None
    is_blank: bool = False
    """Whether nothing but zeros follows."""


class Salvage:
    """The scan of one segment: its damages, and the state that all of its whole batches add up to.

    `new_state` gives the state of an empty segment. From `contiguous_from` on, a gap between batches is a damage.
    `end_offset` is the offset behind the last batch, where it is known from elsewhere.
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
        """Whether there were too many damages to go on to the end, or too many places to look at."""
        self._effort = EFFORT_MOST * segment.size
        self._new_state = new_state
        self.state = new_state(segment.base_offset)
        while True:
            self._scan(contiguous_from)
            if self.state.problem is None and self.state.size >= segment.size:
                return
            damage = self._damage_at(self.state)
            self.damages.append(damage)
            if damage.resumed_at is None or damage.resumed_offset is None or self.is_given_up:
                return
            if len(self.damages) == DAMAGES_MOST:
                self.is_given_up = True
                return
            self.state = self._resumed(damage.resumed_at, damage.resumed_offset)

    def _scan(self, contiguous_from: int) -> None:
        """Pass the bytes through the state: to the end, to damage, or to where the file ends before it should."""
        state, segment = self.state, self.segment
        wanted = SCAN_CHUNK
        while state.size < segment.size and state.problem is None:
            data = segment.read(wanted, state.size)
            taken = state.scan(data, contiguous_from)
            if taken:
                wanted = SCAN_CHUNK
                if self._sums is not None:
                    self._sums.add(data, taken)
            elif state.size + len(data) >= segment.size or len(data) < wanted:
                return
            else:
                wanted = whole_batch_size(data)

    def _resumed(self, position: int, next_offset: int) -> SegmentState:
        """Return the state with which the scan goes on at another place; counts and tables go on, too."""
        saved = SavedState(*self.state.save())._replace(next_offset=next_offset, size=position)
        resumed = self._new_state(saved.base_offset)
        resumed.restore(tuple(saved), bytes(self.state.offset_table), bytes(self.state.time_table))
        return resumed

    # ------------------------------------------------------------ what is wrong

    def _damage_at(self, state: SegmentState) -> Damage:
        position = state.size
        damage = Damage(
            kind=Kind.HEADER,
            position=position,
            offset=state.next_offset,
            reason=str(state.problem.reason) if state.problem is not None else "",
            batches_before=state.batch_count,
            records_before=state.record_count,
        )
        header = self._header_at(position)
        if state.problem is None:
            damage.kind = Kind.TRUNCATED
            damage.reason = f"the last {self.segment.size - position} bytes are no whole batch"
        elif isinstance(state.problem, UnsupportedMagic):
            damage.kind = Kind.FORMAT
        elif header is not None and self._is_whole(position, header):
            self._explain_offsets(damage, header)
            return damage
        elif header is not None and self._has_wrong_crc(position, header):
            damage.kind = Kind.CRC
        self._resume_behind(damage, header)
        return damage

    def _explain_offsets(self, damage: Damage, header: BatchHeader) -> None:
        """Say what is wrong about a whole batch: its own offsets, or those of others."""
        behind = damage.position + header.size
        offset_behind = damage.offset + header.last_offset_delta + 1
        if self._goes_on(behind, offset_behind):
            damage.kind = Kind.OFFSET
            damage.reason = f"base offset {header.base_offset}, but the batches around it leave {damage.offset} to it"
            damage.resumed_at, damage.resumed_offset = behind, offset_behind
            return
        if header.base_offset > damage.offset:
            damage.kind = Kind.GAP
            damage.reason = f"offsets {damage.offset} to {header.base_offset - 1} are missing before the batch"
        else:
            damage.kind = Kind.OVERLAP
            damage.reason = f"base offset {header.base_offset}, but the batch before ends with {damage.offset - 1}"
        damage.resumed_at, damage.resumed_offset = damage.position, header.base_offset

    def _goes_on(self, position: int, offset: int) -> bool:
        """Tell whether what follows at `position` is the batch that begins with `offset`, or the end before it."""
        if position >= self.segment.size:
            return offset == self._end_offset
        following = self._header_at(position)
        return following is not None and following.base_offset == offset and self._is_whole(position, following)

    def _resume_behind(self, damage: Damage, header: BatchHeader | None) -> None:
        """Find the next whole batch: where the damaged one claims to end, or anywhere behind its beginning."""
        claimed = [damage.position + header.size] if header is not None else []
        for position in (*claimed, *self._candidates(damage.position + 1)):
            found = self._header_at(position)
            if found is None:
                continue
            self._effort -= found.size
            if self._effort < 0:
                self.is_given_up = True
                return
            if self._is_whole(position, found):
                damage.resumed_at, damage.resumed_offset = position, found.base_offset
                # A log that ended here would have nothing behind.
                damage.kind = Kind.HEADER if damage.kind is Kind.TRUNCATED else damage.kind
                return
        damage.is_blank = self._is_blank_from(damage.position)

    # ------------------------------------------------------------ looking at bytes

    def _header_at(self, position: int) -> BatchHeader | None:
        """Return the header of the batch that begins at `position` and ends in the file, or None."""
        try:
            header = read_header(self.segment.read(HEADER_SIZE, position))
        except CorruptionError:
            return None
        return header if header.size <= self.segment.size - position else None

    def _is_whole(self, position: int, header: BatchHeader) -> bool:
        """Tell whether a batch passes every check but that of what came before it."""
        data = self.segment.read(header.size, position)
        return self._new_state(self.segment.base_offset).scan(data, INT64_MAX) == header.size

    def _has_wrong_crc(self, position: int, header: BatchHeader) -> bool:
        return crc32c(self.segment.read(header.size, position)[_CRC_COVERS_FROM:]) != header.crc

    def _candidates(self, start: int) -> Iterator[int]:
        """Yield where a batch may begin: a magic byte, and before it an offset and a length that can be."""
        lowest, highest = self.segment.base_offset, self.segment.base_offset + INT32_MAX
        for at in range(start, self.segment.size, SCAN_CHUNK):
            data = self.segment.read(SCAN_CHUNK + _MAGIC_AT, at)
            hit = data.find(_MAGIC, _MAGIC_AT)
            while hit >= 0:
                begin = hit - _MAGIC_AT
                base_offset = int.from_bytes(data[begin : begin + 8], "big", signed=True)
                length = int.from_bytes(data[begin + 8 : begin + 12], "big", signed=True)
                if lowest <= base_offset <= highest and 0 < length <= self.segment.size - at - begin:
                    yield at + begin
                hit = data.find(_MAGIC, hit + 1)

    def _is_blank_from(self, start: int) -> bool:
        for at in range(start, self.segment.size, SCAN_CHUNK):
            if self.segment.read(SCAN_CHUNK, at).strip(b"\0"):
                return False
        return True

    # ------------------------------------------------------------ asking

    def has_read(self, position: int) -> bool:
        """Tell whether a batch that starts at `position` would have been seen."""
        return not any(
            damage.position <= position < self._end(damage, self.segment.size, damage.resumed_at)
            for damage in self.damages
        )

    def has_read_offset(self, offset: int) -> bool:
        """Tell whether a batch with this offset would have been seen."""
        return not any(
            damage.offset <= offset < self._end(damage, INT64_MAX, damage.resumed_offset) for damage in self.damages
        )

    def _end(self, damage: Damage, end: int, resumed: int | None) -> int:
        is_last = damage is self.damages[-1]
        return end if resumed is None or (is_last and self.is_given_up) else resumed
