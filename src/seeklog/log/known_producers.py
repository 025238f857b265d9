"""The producers that a partition knows, in memory and in its snapshot files.

A snapshot is written where a segment ends and where the log was closed, if there are any producers. So the state at an
offset is that of the newest snapshot not above it, and the batch headers after it. Nothing depends on a
snapshot being there: without it more headers are read. What keeps an open from reading any is the checkpoint, which
says whether there were producers at all.
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
    """Checks and notes batches for the one writer, who holds the partition's lock, and keeps what it knows on disk."""

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
        """Raise unless the batches may be appended; return their offsets if all of them are in the log already."""
        return self.state.check(batches, now_ms=self._now_ms())

    def note(self, batches: Iterable[ProducerBatch]) -> None:
        """Take in batches that were appended."""
        self.state.note(batches, now_ms=self._now_ms())

    def last_offsets(self) -> dict[int, int]:
        """Return, for each producer, the last offset of its last batch: compaction keeps these batches."""
        return self.state.last_offsets(now_ms=self._now_ms())

    def last_epochs(self) -> dict[int, int]:
        """Return the epochs of producers of which only the end of a transaction is known: compaction keeps it."""
        return self.state.last_epochs(now_ms=self._now_ms())

    # ------------------------------------------------------------ what the log says

    def load(self, view: View, *, end: int, none_at: int | None, scanned: Mapping[int, bool]) -> bool:
        """Find the producers known at `end`, where the log ends; return whether snapshots from beyond it were removed.

        `none_at` is an offset at which none was known. `scanned` says of segments, by their base, whether they have
        batches of producers at all.
        """
        skipped = [base for base, has_producers in scanned.items() if not has_producers]
        self.state = self._state_at(view, end=end, none_at=none_at, skipped=skipped)
        return self._snapshots.drop_beyond(end)

    def rebuilt(self, view: View, *, end: int) -> ProducerState:
        """Return the state that holds at an earlier end of the log. Nothing changes."""
        if not self:
            return ProducerState(expiration_ms=self._expiration_ms)
        return self._state_at(view, end=end, none_at=None, skipped=())

    def _state_at(self, view: View, *, end: int, none_at: int | None, skipped: Collection[int]) -> ProducerState:
        state = ProducerState(expiration_ms=self._expiration_ms)
        now_ms = self._now_ms()
        # Also what lies below the start of the log, in its first segment: the batches are still there.
        position = view.bases[0] if none_at is None else none_at
        found = self._snapshots.newest(above=_NOTHING_KNOWN if none_at is None else none_at, not_above=end)
        if found is not None:
            state.restore(found[1], now_ms=now_ms)
            position = found[0]
        for segment in view.segments:
            if segment.next_offset > position and segment.base_offset < end and segment.base_offset not in skipped:
                state.note(_batches_of(segment, position, end), now_ms=now_ms)
        return state

    # ------------------------------------------------------------ what is kept

    def rolled(self, offset: int) -> None:
        """Have a snapshot written of what is known now, where a new segment begins."""
        if self:
            self._due[offset] = encode_snapshot(self.state.entries())

    def take_due(self) -> dict[int, bytes]:
        """Return the snapshots that are to be written, and leave it to the caller."""
        due, self._due = self._due, {}
        return due

    def write(self, due: Mapping[int, bytes]) -> None:
        """Write snapshots. Where there is no room they are left out: the log says the same. The caller syncs."""
        for offset, data in due.items():
            try:
                self._snapshots.write(offset, data)
            except OSError as error:
                if not is_full(error):
                    raise
                logger.warning("%s: no room for a snapshot of producers: %s", self._directory, error)

    def save(self, end: int) -> None:
        """Write a snapshot of what is known where the log is closed."""
        self.state.expire(now_ms=self._now_ms())
        if self and end not in self._snapshots.offsets:
            self.write({end: encode_snapshot(self.state.entries())})

    def keep_at(self, view: View, offset: int, *, end: int) -> bool:
        """Have a snapshot at an offset, before the log is deleted below it; return whether one was written.

        A crash may have prevented the one that a roll asks for, and nothing else would say the same.
        So a full disk is not passed over here. What is known where the log ends needs no look at what lies below.
        """
        if not self or offset in self._snapshots.offsets:
            return False
        entries = (self.state if offset == end else self.rebuilt(view, end=offset)).entries()
        if entries:
            self._snapshots.write(offset, encode_snapshot(entries))
        return bool(entries)

    def tidy(self, view: View, *, end: int) -> None:
        """Remove snapshots that are neither at the beginning of a segment nor the newest."""
        newest = self._snapshots.offsets[-1] if self._snapshots.offsets else _NOTHING_KNOWN
        if self and newest < view.bases[0]:
            # There was no room for one since, and the batches that would say the same are gone.
            self.save(end)
        self._snapshots.keep(view.bases)

    def forget_beyond(self, end: int) -> None:
        """Remove what describes a longer log, before it is cut. The caller syncs."""
        self._due = {offset: data for offset, data in self._due.items() if offset <= end}
        self._snapshots.drop_beyond(end)


def _batches_of(segment: Segment, start: int, end: int) -> Iterable[ProducerBatch]:
    for position, header in scan_headers(segment, start, end):
        if header.producer_id >= 0:
            marker = decode_end_marker(segment.read(header.size, position)) if header.is_control else None
            yield ProducerBatch(header, marker)
