"""The producers that a partition knows, in memory and in its snapshot files.

A snapshot is written where a segment ends and on close, if there are any producers. The state at an offset is the
newest snapshot at or below it, plus the batch headers after that snapshot. A snapshot only saves time: without it, more
headers are read. The checkpoint says whether there were any producers; if not, an open reads no headers.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from seeklog.clock import Clock
from seeklog.files import is_full
from seeklog.log.headers import scan_headers
from seeklog.log.producers import ProducerBatch, ProducerState
from seeklog.log.segment import Segment, Shared
from seeklog.log.side.producer_snapshot import Snapshots, encode_snapshot
from seeklog.log.view import View
from seeklog.record.control import decode_end_marker

logger = logging.getLogger("seeklog")

_NOTHING_KNOWN: Final = -1


class KnownProducers:
    """Checks and notes batches for the writer, which holds the partition's lock, and keeps the state on disk."""

    def __init__(self, shared: Shared, clock: Clock, listing: Iterable[str]) -> None:
        self._directory = shared.directory
        self._now_ms = clock.now_ms
        self._expiration_ms = shared.config.producer_id_expiration_ms
        self._snapshots = Snapshots(shared.files, shared.directory, listing)
        self._due: dict[int, bytes] = {}
        self.state = ProducerState(expiration_ms=self._expiration_ms)

    def __bool__(self) -> bool:
        return len(self.state) > 0

    # ------------------------------------------------------------ appending

    def check(self, batches: Sequence[ProducerBatch]) -> range | None:
        """Raise unless the batches may be appended. Return their offsets if all of them are already in the log."""
        return self.state.check(batches, now_ms=self._now_ms())

    def note(self, batches: Iterable[ProducerBatch]) -> None:
        self.state.note(batches, now_ms=self._now_ms())

    def note_in(self, segment: Segment, *, start: int, end: int) -> None:
        """Note the batches of a segment in a range of offsets."""
        self.note(_batches_of(segment, start, end))

    def last_offsets(self) -> dict[int, int]:
        return self.state.last_offsets(now_ms=self._now_ms())

    def last_epochs(self) -> dict[int, int]:
        return self.state.last_epochs(now_ms=self._now_ms())

    # ------------------------------------------------------------ loading

    def load(self, view: View, *, end: int, none_at: int | None, scanned: Mapping[int, bool]) -> bool:
        """Load the producers known at the log end offset `end`. Return whether snapshots above `end` were removed.

        `none_at` is an offset at which no producer was known. `scanned` maps the base offsets of scanned segments to
        whether they contain batches of producers.
        """
        skipped = [base for base, has_producers in scanned.items() if not has_producers]
        self.state = self._state_at(view, end=end, none_at=none_at, skipped=skipped)
        return self._snapshots.drop_beyond(end)

    def rebuilt(self, view: View, *, end: int) -> ProducerState:
        """Return the state at an earlier offset. Nothing changes."""
        if not self:
            return ProducerState(expiration_ms=self._expiration_ms)
        return self._state_at(view, end=end, none_at=None, skipped=())

    def _state_at(self, view: View, *, end: int, none_at: int | None, skipped: Collection[int]) -> ProducerState:
        state = ProducerState(expiration_ms=self._expiration_ms)
        now_ms = self._now_ms()
        # Batches below the log start offset count, too, as long as their segment is there.
        position = view.bases[0] if none_at is None else none_at
        snapshot = self._snapshots.newest(above=_NOTHING_KNOWN if none_at is None else none_at, not_above=end)
        if snapshot is not None:
            state.restore(snapshot[1], now_ms=now_ms)
            position = snapshot[0]
        for segment in view.segments:
            if segment.next_offset > position and segment.base_offset < end and segment.base_offset not in skipped:
                state.note(_batches_of(segment, position, end), now_ms=now_ms)
        return state

    # ------------------------------------------------------------ snapshots

    def rolled(self, offset: int) -> None:
        """Schedule a snapshot of the current state at the base offset of a new segment."""
        if self:
            self._due[offset] = encode_snapshot(self.state.entries())

    def take_due(self) -> dict[int, bytes]:
        """Return the scheduled snapshots, which the caller writes."""
        due, self._due = self._due, {}
        return due

    def write(self, due: Mapping[int, bytes]) -> None:
        """Write snapshots; on a full disk they are skipped, because the log holds the same. The caller syncs."""
        for offset, data in due.items():
            try:
                self._snapshots.write(offset, data)
            except OSError as error:
                if not is_full(error):
                    raise
                logger.warning("%s: no room for a snapshot of producers: %s", self._directory, error)

    def save(self, end: int) -> None:
        self.state.expire(now_ms=self._now_ms())
        if self and end not in self._snapshots.offsets:
            self.write({end: encode_snapshot(self.state.entries())})

    def keep_at(self, view: View, offset: int, *, end: int) -> bool:
        """Ensure a snapshot at an offset before the log is deleted below it. Return whether one was written.

        A crash may have prevented the snapshot that belongs to the roll. After the delete nothing else holds its state,
        so here a full disk is an error. If `offset` is the log end offset, no batch needs to be read.
        """
        if not self or offset in self._snapshots.offsets:
            return False
        entries = (self.state if offset == end else self.rebuilt(view, end=offset)).entries()
        if entries:
            self._snapshots.write(offset, encode_snapshot(entries))
        return bool(entries)

    def tidy(self, view: View, *, end: int) -> None:
        """Remove every snapshot that is not at the start of a segment, except the newest."""
        newest = self._snapshots.offsets[-1] if self._snapshots.offsets else _NOTHING_KNOWN
        if self and newest < view.bases[0]:
            # There has been no room for a snapshot since, and the batches that held the same state are deleted.
            self.save(end)
        self._snapshots.keep(view.bases)

    def forget_beyond(self, end: int) -> None:
        """Remove the snapshots above `end` before the log is truncated. The caller syncs."""
        self._due = {offset: data for offset, data in self._due.items() if offset <= end}
        self._snapshots.drop_beyond(end)


def _batches_of(segment: Segment, start: int, end: int) -> Iterable[ProducerBatch]:
    for position, header in scan_headers(segment, start, end):
        if header.producer_id >= 0:
            marker = decode_end_marker(segment.read(header.size, position)) if header.is_control else None
            yield ProducerBatch(header, marker)
