"""What retention, `delete_before` and `truncate_to` take away: decided here, and carried out by `Partition`.

Everything is a function of the segments of one moment, be the log open to write or not, and changes nothing. So the
code that decides what goes can also report what would go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from seeklog.config import LogConfig
from seeklog.log import reading
from seeklog.log.active import ActiveSegment
from seeklog.log.clean.retention import SegmentFacts, expired_count, is_roll_due
from seeklog.log.segment import Segment
from seeklog.log.view import View
from seeklog.record.segment_state import SegmentState


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Records that go: those in [first_offset, next_offset)."""

    first_offset: int
    next_offset: int
    segment_count: int
    """Segments that go whole. `delete_before` leaves the one that the new start lies in as it is."""
    size_bytes: int
    """What the `.log` files lose."""

    @property
    def is_empty(self) -> bool:
        return self.first_offset >= self.next_offset


def segments_below(segments: Sequence[Segment], offset: int) -> list[Segment]:
    """Return the segments that lie wholly below an offset; never the last."""
    return [segment for segment, following in pairwise(segments) if following.base_offset <= offset]


def plan_delete(view: View, *, log_start_offset: int, offset: int) -> Removal:
    """Say what goes when the start of the log is raised to `offset`."""
    if offset <= log_start_offset:
        return Removal(first_offset=log_start_offset, next_offset=log_start_offset, segment_count=0, size_bytes=0)
    doomed = segments_below(view.segments, offset)
    return Removal(
        first_offset=log_start_offset,
        next_offset=offset,
        segment_count=len(doomed),
        size_bytes=sum(segment.size for segment in doomed),
    )


def plan_retention(
    view: View, *, log_start_offset: int, high_watermark: int, now_ms: int, config: LogConfig
) -> Removal:
    """Say what goes when a log is rolled, if that is due, and retained by now."""
    sealed = [_facts(segment, following.base_offset, now_ms) for segment, following in pairwise(view.segments)]
    last = view.last
    state = last.state if isinstance(last, ActiveSegment) else last.scan_all()
    active_size = state.size
    if is_roll_due(state, now_ms=now_ms, config=config):
        sealed.append(SegmentFacts(state.next_offset, state.size, state.max_timestamp, now_ms))
        active_size = 0
    count = expired_count(sealed, active_size=active_size, high_watermark=high_watermark, now_ms=now_ms, config=config)
    doomed = sealed[:count]
    return Removal(
        first_offset=log_start_offset,
        next_offset=max(log_start_offset, doomed[-1].next_offset) if doomed else log_start_offset,
        segment_count=count,
        size_bytes=sum(facts.size for facts in doomed),
    )


def sealed_facts(view: View) -> list[SegmentFacts]:
    """Return what retention must know of the segments of a log that is written: those that are sealed by now."""
    facts = []
    for segment, following in pairwise(view.segments):
        if segment.seal is None:
            break
        facts.append(_facts(segment, following.base_offset, segment.seal.sealed_at_ms))
    return facts


def _facts(segment: Segment, next_offset: int, now_ms: int) -> SegmentFacts:
    """Return the facts of a segment; one without a seal is sealed now, as an open to write would do it."""
    newest = segment.max_timestamp_ms()
    sealed_at_ms = now_ms if segment.seal is None else segment.seal.sealed_at_ms
    newest = segment.scan_all().max_timestamp if newest is None else newest
    return SegmentFacts(next_offset, segment.size, newest, sealed_at_ms)


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a log is cut: in which segment of its view, and what the bytes before that add up to."""

    place: int
    kept: SegmentState

    @property
    def end(self) -> int:
        """The new end of the log: where compaction has left a hole before the batch, it ends with what is there."""
        return self.kept.next_offset


def find_cut(view: View, offset: int) -> Cut:
    """Return where the batch that holds `offset` begins, having checked all that is kept of its segment."""
    found = reading.seek(view, offset)
    place = view.find(found.segment)
    return Cut(place, view.segments[place].scan_to(found.position))


def plan_truncation(view: View, *, log_end_offset: int, offset: int) -> Removal:
    """Say what goes when the log is cut before the batch that holds `offset`."""
    if offset >= log_end_offset:
        return Removal(first_offset=log_end_offset, next_offset=log_end_offset, segment_count=0, size_bytes=0)
    cut = find_cut(view, offset)
    gone = view.segments[cut.place + 1 :]
    return Removal(
        first_offset=cut.end,
        next_offset=log_end_offset,
        segment_count=len(gone),
        size_bytes=view.segments[cut.place].size - cut.kept.size + sum(segment.size for segment in gone),
    )
