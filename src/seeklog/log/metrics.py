"""What the writers of one partition have done.

Appends are not counted one by one: the state of a segment counts its batches, records and bytes for the indexes and the
seal. A log only notes which state grows, and what was appended before it. So the count costs an append nothing.

The partition's `lock` guards the followed segment and the rolls, its `sync_lock` syncs and deletions. Any thread may
read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from seeklog.metrics import CompactionSection, LogSection, RetentionSection
from seeklog.record.segment_state import SegmentState


class _Appended(NamedTuple):
    """The numbers appended so far, less those of the state that grows."""

    records: int = 0
    batches: int = 0
    bytes: int = 0
    state: SegmentState | None = None

    def settled(self) -> _Appended:
        """Return the numbers up to now."""
        state = self.state
        return self if state is None else self._plus(state.record_count, state.batch_count, state.size)

    def _plus(self, records: int, batches: int, size: int) -> _Appended:
        return _Appended(self.records + records, self.batches + batches, self.bytes + size)

    def from_now_on(self, state: SegmentState) -> _Appended:
        return self._plus(-state.record_count, -state.batch_count, -state.size)._replace(state=state)


class LogMetrics:
    """The numbers of one partition. A store keeps them while it opens and closes the log."""

    __slots__ = ("_appended", "compaction", "log", "retention")

    def __init__(self) -> None:
        self.log = LogSection()
        self.retention = RetentionSection()
        self.compaction = CompactionSection()
        self._appended = _Appended()

    def follow(self, state: SegmentState | None) -> None:
        """Count what a segment gains from now on, or nothing. The segment followed so far must not grow meanwhile."""
        now = self._appended.settled()
        self._appended = now if state is None else now.from_now_on(state)

    def add(self, other: LogMetrics) -> None:
        """Add the numbers of another partition."""
        self.log.add(other.log)
        self.retention.add(other.retention)
        self.compaction.add(other.compaction)
        added = other._appended.settled()
        self._appended = self._appended._plus(added.records, added.batches, added.bytes)

    def as_dict(self) -> dict[str, Any]:
        appended = self._appended.settled()
        counted = {"records_in": appended.records, "batches_in": appended.batches, "bytes_in": appended.bytes}
        return {
            "log": self.log.as_dict() | counted,
            "retention": self.retention.as_dict(),
            "compaction": self.compaction.as_dict(),
        }
