"""A part of a log that was pinned in one process, to be read in another that lists no directory and reads no seal.

A pin names the segments that a range of offsets touches, as they were when it was made, and the index entry to start
from. It is small and picklable. What a pin covers never changes on disk: segments only grow, and are deleted whole. The
one exception is compaction, which puts another file in the place of some: whoever meets one lists the directory and
goes on from there, to the same records but for those that compaction has left out.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from typing import NamedTuple

from seeklog import names
from seeklog.config import LogConfig
from seeklog.files import Files, Handle
from seeklog.log.index import OFFSET_ENTRY, OffsetIndex, TimeIndex
from seeklog.log.recovery import list_beside_writer
from seeklog.log.segment import Indexes, Segment, Shared
from seeklog.log.side.pages import Pages
from seeklog.log.side.seal import read_seal
from seeklog.log.view import View


class PinnedSegment(NamedTuple):
    """One segment: all that a reader must know of it before it opens the file."""

    base_offset: int
    next_offset: int
    size: int
    contiguous: bool
    is_exact: bool
    is_final: bool
    """Whether it was sealed: a file of another size is another file."""
    is_growing: bool = False
    """Whether it was the last one, which its writer may be lengthening."""
    precedes_gap: bool = False
    """Whether an archive declares that offsets are missing behind it."""
    pages: Pages | None = None
    """What proves its pages."""


class Pin(NamedTuple):
    """Segments in order, and the entry of the first one's index from which the range is found."""

    segments: tuple[PinnedSegment, ...]
    entry: bytes
    """One entry as it stands in the index file, or nothing: then the first segment is read from its start."""


def make_pin(view: View, start: int, stop: int) -> Pin:
    """Pin the segments of a view that may hold offsets in [start, stop)."""
    first = view.find(start)
    while first + 1 < len(view.segments) and view.segments[first].next_offset <= start:
        first += 1
    # A range that lies in a gap touches none; the segment behind it says so.
    touched = view.segments[first : max(first + 1, bisect_left(view.bases, stop))]
    for one in touched:
        one.fetch_seal()
    entry = _entry_before(touched[0], start)
    return Pin(
        tuple(
            PinnedSegment(
                one.base_offset,
                one.next_offset,
                one.size,
                one.contiguous,
                one.is_exact,
                _is_final(one),
                not one.is_bounded,
                one.precedes_gap,
                one.pages,
            )
            for one in touched
        ),
        entry,
    )


def _is_final(segment: Segment) -> bool:
    # The last one of an archive is sealed, too, though a reader of a log takes it for one that grows.
    return segment.seal is not None or segment.is_compacted()


def offset_index(segment: Segment) -> OffsetIndex:
    """Return a segment's index, an empty one if the segment was deleted meanwhile: whoever reads it will tell."""
    try:
        return segment.indexes.offsets
    except FileNotFoundError:
        return OffsetIndex(segment.base_offset, b"")


def _entry_before(segment: Segment, offset: int) -> bytes:
    if offset <= segment.base_offset:
        return b""
    offsets = offset_index(segment)
    number = offsets.floor(offset)
    return bytes(offsets.table[number * OFFSET_ENTRY.size : (number + 1) * OFFSET_ENTRY.size]) if number >= 0 else b""


class _GivenSegment(Segment):
    """A segment that is taken as a pin has it. Its index is the one entry of the pin."""

    def __init__(self, shared: Shared, pinned: PinnedSegment, entry: bytes) -> None:
        super().__init__(shared, pinned.base_offset, size=pinned.size, next_offset=pinned.next_offset, seal=None)
        self.contiguous = pinned.contiguous
        self.is_exact = pinned.is_exact
        self.precedes_gap = pinned.precedes_gap
        self.pages = pinned.pages
        self._entry = entry
        self._is_final = pinned.is_final
        self._is_growing = pinned.is_growing

    @property
    def is_bounded(self) -> bool:
        return self._is_final

    def _is_own(self, handle: Handle) -> bool:
        if self._is_final or not self._is_growing:
            return self.shared.files.size(handle.number) == self.size
        return not self.is_compacted()

    def is_same_file(self, other: Segment | None) -> bool:
        """By its size: a pin may have been made on another machine, where inodes have other numbers."""
        if other is None:
            return False
        return other.size == self.size or (self._is_growing and other.size > self.size)

    def load_indexes(self) -> Indexes:
        return Indexes(OffsetIndex(self.base_offset, self._entry), TimeIndex(self.base_offset, b""))


def pinned_view(files: Files, directory: str, pin: Pin) -> View:
    """Return the view that a pin was made of. No file is opened until it is read."""
    # A scan goes forward: two open files are the one that is read and the one before it.
    shared = Shared(files, directory, LogConfig(max_open_segments=2), writable=False)
    shared.renew = partial(_listed_view, files, directory)
    return View(_GivenSegment(shared, one, pin.entry if place == 0 else b"") for place, one in enumerate(pin.segments))


def _listed_view(files: Files, directory: str) -> View:
    """Return the segments as the directory has them by now; a reader knows by its offsets where to stop."""
    shared = Shared(files, directory, LogConfig(max_open_segments=2), writable=False)
    _, segments = list_beside_writer(shared)
    for segment in segments[:-1]:
        seal = None if segment.path.endswith(names.SWAP) else read_seal(files, directory, segment.base_offset)
        if seal is not None:
            segment.attach(seal)
    shared.renew = partial(_listed_view, files, directory)
    return View(segments)
