"""The segments of a log that are not sealed: the active one, and rolled ones that wait for their sync and seal."""

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


class UnsealedSegments:
    """The segments that the writer has open. Methods that change them run under the log's lock."""

    def __init__(self, shared: Shared, active: ActiveSegment) -> None:
        self._shared = shared
        self._files = shared.files
        self.active = active
        self.rolled: list[ActiveSegment] = []
        self.has_new_names = False
        """Whether the directory must be synced before the names of new segments are durable."""

    @property
    def open_file_count(self) -> int:
        return sum(segment.loaded.handle is not None for segment in (*self.rolled, self.active))

    def roll(self, view: View, base_offset: int) -> View:
        """Start a new segment. The old one is synced and sealed later."""
        old = self.active
        old.state.finish_times()
        old.write_indexes()
        self.active = ActiveSegment.create(self._shared, base_offset)
        self.rolled.append(old)
        self.has_new_names = True
        return view.with_last(self.active)

    def seal(self, rolled: Sequence[ActiveSegment], *, now_ms: int) -> list[tuple[ActiveSegment, Segment]]:
        """Write the seals of synced segments. On a full disk they wait."""
        sealed = []
        for segment in rolled:
            try:
                sealed.append((segment, segment.seal_up(sealed_at_ms=now_ms)))
            except OSError as error:
                if not is_full(error):
                    raise
                logger.warning("%s: cannot be sealed until the disk has room: %s", segment.path, error)
        return sealed

    def release_sealed(self, view: View, sealed: Sequence[tuple[ActiveSegment, Segment]]) -> View:
        for old, new in sealed:
            view = view.with_merged([old], new)
            self.rolled.remove(old)
        return view

    def cut(self, view: View, index: int, kept: SegmentState) -> View:
        """Make the segment at index `index` the active one, cut to `kept`. Return the new view."""
        segments, directory = view.segments, self._shared.directory
        for segment in reversed(segments[index + 1 :]):
            # One at a time, the last first: at every moment the log on disk has no hole.
            self.remove_files(segment)
            self._files.sync_directory(directory)
        target = segments[index]
        if not isinstance(target, ActiveSegment):
            target.release()
            target.read_unproved()
            self._shared.remove(target.base_offset, names.SEAL, names.KEY_INDEX)
            target = ActiveSegment.reopen(target)
        target.truncate(kept)
        trim_aborted(self._shared, target.base_offset, end=kept.next_offset)
        self._files.sync_directory(directory)
        self.rolled = [old for old in self.rolled if old in segments[:index]]
        for old in segments[:index]:
            if isinstance(old, ActiveSegment):
                old.sync()
        self.active = target
        return View([*segments[:index], target])

    def forget(self, doomed: Sequence[Segment]) -> None:
        self.rolled = [segment for segment in self.rolled if segment not in doomed]

    def remove_files(self, segment: Segment) -> None:
        """Rename a segment's log file, then remove its files. Readers that have it open continue to read."""
        segment.release()
        self._files.rename(segment.path, segment.path + names.DELETED)
        self._shared.remove(segment.base_offset, names.LOG + names.DELETED, *names.BESIDE_LOG)

    def close_files(self) -> None:
        """Release every file. A reader that uses one keeps it open until it is done."""
        self._shared.clear()
        for segment in (*self.rolled, self.active):
            segment.close_files()
