"""The byte positions of a log's offsets, as exact as its indexes, for cutting a range of offsets into parts."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from seeklog.log.pinned import offset_index
from seeklog.log.view import View


@dataclass(frozen=True, slots=True)
class Layout:
    """An index is opened only if a position inside its segment is asked for."""

    view: View
    starts: list[int] = field(init=False)
    """The number of bytes before each segment."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "starts", [0, *accumulate(segment.size for segment in self.view.segments)])

    def size(self, start: int, stop: int) -> int:
        """Return the approximate size of a range of offsets in bytes."""
        return max(0, self.position(stop) - self.position(start))

    def cut(self, start: int, stop: int, *, target: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of a range: [start, stop) of each. They have equal size, about `target` bytes."""
        size, begin = self.size(start, stop), self.position(start)
        count = max(1, round(size / target))
        for number in range(1, count):
            edge = self.boundary(begin + size * number // count, slack=target // 8)
            if start < edge < stop:
                yield start, edge
                start = edge
        yield start, stop

    def position(self, offset: int) -> int:
        """Return the number of bytes before an offset, too low by at most an index interval."""
        number = self.view.find(offset)
        segment = self.view.segments[number]
        if offset <= segment.base_offset:
            return self.starts[number]
        if offset >= segment.next_offset:
            return self.starts[number] + segment.size
        return self.starts[number] + min(segment.size, offset_index(segment).lookup(offset).position)

    def boundary(self, position: int, *, slack: int) -> int:
        """Return the base offset of a batch near a position; prefer an end of the segment within `slack` bytes."""
        number = min(bisect_right(self.starts, position), len(self.view.segments)) - 1
        segment = self.view.segments[number]
        inside = position - self.starts[number]
        if inside <= min(slack, segment.size // 2):
            return segment.base_offset
        if segment.size - inside <= slack:
            return segment.next_offset
        # The batch after the last indexed batch before the position.
        offsets = offset_index(segment)
        entry = bisect_left(range(len(offsets)), inside, key=lambda entry: offsets[entry].position)
        if entry == 0:
            return segment.base_offset if 2 * inside <= segment.size else segment.next_offset
        return min(max(offsets[entry - 1].offset + 1, segment.base_offset), segment.next_offset)

    def boundary_after(self, offset: int) -> int:
        """Return the next batch boundary above an offset that the index has."""
        segment = self.view.segments[self.view.find(offset)]
        offsets = offset_index(segment)
        entry = offsets.floor(offset - 1) + 1
        after = offsets[entry].offset + 1 if entry < len(offsets) else segment.next_offset
        return max(after, offset + 1)
