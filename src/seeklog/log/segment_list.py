"""The segments of a log that is written: sealed ones, rolled ones that wait for their seal, and the active one."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from seeklog import names
from seeklog.files import is_full
from seeklog.log.active import ActiveSegment
from seeklog.log.segment import Segment, Shared
from seeklog.log.side.transaction_index import trim_aborted
from seeklog.log.view import View
from seeklog.record.segment_state import SegmentState

logger = logging.getLogger("seeklog")


class SegmentList:
    """What the writer has on disk. Methods that change the list are called under the log's lock.

    Readers take `view` without a lock: it is replaced, never changed.
    """

    __slots__ = ("_files", "active", "has_new_names", "rolled", "shared", "view")

    def __init__(self, shared: Shared, sealed: Sequence[Segment], active: ActiveSegment) -> None:
        self.shared = shared
        self._files = shared.files
        self.active = active
        self.rolled: list[ActiveSegment] = []
        """Segments that are neither synced nor sealed yet."""
        self.has_new_names = False
        """Whether the directory must be synced before the names of new segments are durable."""
        self.view = View([*sealed, active])

    def roll(self, base_offset: int) -> ActiveSegment:
        """Start a new segment. The old one is synced and sealed later."""
        old = self.active
        old.state.finish_times()
        old.write_indexes()
        self.active = new = ActiveSegment.create(self.shared, base_offset)
        self.rolled.append(old)
        self.has_new_names = True
        self.view = self.view.with_last(new)
        return new

    def seal(self, rolled: Sequence[ActiveSegment], *, now_ms: int) -> list[tuple[ActiveSegment, Segment]]:
        """Write the seals of segments that are synced. A full disk puts that off; an open would redo it."""
        sealed = []
        for segment in rolled:
            try:
                sealed.append((segment, segment.seal_up(sealed_at_ms=now_ms)))
            except OSError as error:
                if not is_full(error):
                    raise
                logger.warning("%s: sealing waits for room on the disk: %s", segment.path, error)
        return sealed

    def take_sealed(self, sealed: Sequence[tuple[ActiveSegment, Segment]]) -> None:
        """Put sealed segments in the place of those that were rolled."""
        for old, new in sealed:
            self.view = self.view.with_merged([old], new)
            self.rolled.remove(old)

    def cut(self, place: int, kept: SegmentState) -> None:
        """Make the segment at `place`, cut to what is kept of it, the active one."""
        segments, directory = self.view.segments, self.shared.directory
        for segment in reversed(segments[place + 1 :]):
            # One at a time, the last first: at every moment what is there has no hole.
            self.remove_files(segment)
            self._files.sync_directory(directory)
        target = segments[place]
        if not isinstance(target, ActiveSegment):
            target.release()
            target.read_unproved()
            self.shared.remove(target.base_offset, names.SEAL, names.KEY_INDEX)
            target = ActiveSegment.reopen(target)
        target.truncate(kept)
        trim_aborted(self.shared, target.base_offset, end=kept.next_offset)
        self._files.sync_directory(directory)
        self.rolled = [old for old in self.rolled if old in segments[:place]]
        for old in segments[:place]:
            if isinstance(old, ActiveSegment):
                old.sync()
        self.active = target
        self.view = View([*segments[:place], target])

    def drop(self, doomed: Sequence[Segment]) -> None:
        """Delete the first segments. The caller syncs the directory."""
        self.view = View(self.view.segments[len(doomed) :])
        self.rolled = [segment for segment in self.rolled if segment not in doomed]
        for segment in doomed:
            try:
                self.remove_files(segment)
            except OSError as error:
                # The start offset already says that they are gone; the next open removes them.
                logger.warning("%s: not deleted yet: %s", segment.path, error)

    def remove_files(self, segment: Segment) -> None:
        """Take a segment's name away first, then its files; readers that hold it open read on."""
        segment.release()
        self._files.rename(segment.path, segment.path + names.DELETED)
        self.shared.remove(segment.base_offset, names.LOG + names.DELETED, *names.BESIDE_LOG)

    def close_files(self) -> None:
        """Release every file; a reader that is still at one keeps it open until it is done."""
        self.shared.clear()
        for segment in (*self.rolled, self.active):
            segment.close_files()
