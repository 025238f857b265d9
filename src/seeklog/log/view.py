"""The segments of a log at one moment, in order. A view never changes: a roll or a delete makes a new one.

So readers need no lock. Each works with the view it took, and a file that a newer view dropped stays readable while a
handle refers to it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise

from seeklog.log.segment import Segment


class View:
    __slots__ = ("__weakref__", "bases", "segments")

    def __init__(self, segments: Iterable[Segment]) -> None:
        self.segments = tuple(segments)
        self.bases = [segment.base_offset for segment in self.segments]

    def find(self, offset: int) -> int:
        """Return the index of the segment that holds `offset`: the last one that starts at or below it."""
        index = bisect_right(self.bases, offset)
        return index - 1 if index else 0

    @property
    def last(self) -> Segment:
        return self.segments[-1]

    def with_last(self, segment: Segment) -> View:
        return View((*self.segments, segment))

    def with_merged(self, old: Sequence[Segment], new: Segment) -> View:
        """Return a view in which `new` replaces the adjacent segments in `old`."""
        return View(new if segment is old[0] else segment for segment in self.segments if segment not in old[1:])


def mark_gaps(segments: Sequence[Segment], gaps: Iterable[tuple[int, int]]) -> None:
    """End segments early where an archive declares that the offsets after them are missing."""
    first_missing = {after: first for first, after in gaps}
    for segment, following in pairwise(segments):
        first = first_missing.get(following.base_offset)
        if first is not None:
            segment.end_before(first)
