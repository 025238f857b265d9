"""A range of a log that one process pins and another reads, without listing the directory or reading seals.

A pin names the segments that a range of offsets touches, and the index entry at which to start. It is small and
picklable. What it covers does not change on disk: segments only grow, and are deleted whole. The one exception is
compaction, which replaces files: a reader that meets a replaced file lists the directory and continues there. It sees
the same records, except those that compaction removed.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from typing import NamedTuple

from seeklog import names
from seeklog.config import LogConfig
from seeklog.files import Files, FileStatus, Handle
from seeklog.log.index import OFFSET_ENTRY, OffsetIndex, TimeIndex
from seeklog.log.recovery import list_beside_writer
from seeklog.log.segment import Indexes, Segment, Shared, Trust
from seeklog.log.side.seal import read_seal
from seeklog.log.view import View


class PinnedSegment(NamedTuple):
    """Everything that a reader must know about a segment before it opens the file."""

    base_offset: int
    next_offset: int
    size: int
    trust: Trust
    """What was known of the content, so that the seal is not read again."""
    is_final: bool
    """Whether the segment was sealed. A file of another size is then not this segment's."""
    is_growing: bool = False
    """Whether it was the last segment, which its writer may be extending."""


class Pin(NamedTuple):
    """Segments in order, and the index entry at which reading starts."""

    segments: tuple[PinnedSegment, ...]
    entry: bytes
    """One entry as in the index file, or empty: then the first segment is read from its start."""


def make_pin(view: View, start: int, stop: int) -> Pin:
    """Pin the segments of a view that may hold offsets in [start, stop)."""
    first = view.find(start)
    while first + 1 < len(view.segments) and view.segments[first].next_offset <= start:
        first += 1
    # A range inside a gap touches no segment; the segment after it shows that.
    touched = view.segments[first : max(first + 1, bisect_left(view.bases, stop))]
    for segment in touched:
        segment.fetch_seal()
    return Pin(tuple(map(_pinned, touched)), _entry_before(touched[0], start))


def _pinned(segment: Segment) -> PinnedSegment:
    return PinnedSegment(
        segment.base_offset,
        segment.next_offset,
        segment.size,
        segment.trust,
        # The last segment of an archive is sealed, too, though a reader treats it as one that grows.
        is_final=segment.seal is not None or segment.is_resealed(),
        is_growing=not segment.is_bounded,
    )


def offset_index(segment: Segment) -> OffsetIndex:
    """Return a segment's index. It is empty if the segment was deleted: reading the records then raises."""
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


class _PinBackedSegment(Segment):
    """A segment as a pin describes it. Its index is the one entry in the pin."""

    def __init__(self, shared: Shared, pinned: PinnedSegment, entry: bytes) -> None:
        super().__init__(shared, pinned.base_offset, size=pinned.size, next_offset=pinned.next_offset, seal=None)
        self.trust = pinned.trust
        self._pinned = pinned
        self._entry = entry

    @property
    def is_bounded(self) -> bool:
        return self._pinned.is_final

    def _is_own(self, handle: Handle) -> bool:
        if self._pinned.is_growing and not self._pinned.is_final:
            return not self.is_resealed()
        return self.shared.files.size(handle.number) == self.size

    def is_same_file(self, status: FileStatus | None) -> bool:
        """Compare sizes only: the pin may come from another machine, where inodes have other numbers."""
        return status is not None and (
            status.size == self.size or (self._pinned.is_growing and status.size > self.size)
        )

    def load_indexes(self) -> Indexes:
        return Indexes(OffsetIndex(self.base_offset, self._entry), TimeIndex(self.base_offset, b""))


def pinned_view(files: Files, directory: str, pin: Pin) -> View:
    """Return the pinned view. Files are opened when they are read."""
    shared = _shared(files, directory)
    return View(
        _PinBackedSegment(shared, pinned, pin.entry if index == 0 else b"") for index, pinned in enumerate(pin.segments)
    )


def _listed_view(files: Files, directory: str) -> View:
    """Return the current segments of the directory."""
    shared = _shared(files, directory)
    _, segments = list_beside_writer(shared)
    for segment in segments[:-1]:
        seal = None if segment.path.endswith(names.SWAP) else read_seal(files, directory, segment.base_offset)
        if seal is not None:
            segment.attach(seal)
    return View(segments)


def _shared(files: Files, directory: str) -> Shared:
    # A scan moves forward: it needs the file that it reads and the one before it.
    shared = Shared(files, directory, LogConfig(max_open_segments=2), writable=False)
    shared.renew = partial(_listed_view, files, directory)
    return shared
