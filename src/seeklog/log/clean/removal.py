"""Plans for retention, `delete_before` and `truncate_to`. `Partition` carries them out.

The plans are pure functions of the segments at one moment, whether the log is open for writing or not, so the same
code reports what would be removed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from seeklog.config import LogConfig
from seeklog.log import reading
from seeklog.log.active import ActiveSegment
from seeklog.log.clean.retention import SegmentFacts, expired_segments, is_roll_due
from seeklog.log.segment import Segment
from seeklog.log.view import View
from seeklog.record.segment_state import SegmentState


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """Removed records: those in [first_offset, next_offset)."""

    first_offset: int
    next_offset: int
    segment_count: int
    """Segments removed as a whole. `delete_before` keeps the segment that contains the new start."""
    size_bytes: int
    """The bytes removed from `.log` files."""
    causes: tuple[str, ...] = ()
    """The settings that ask for it, such as `retention.ms=1000`. Empty unless retention removes the records."""

    @property
    def is_empty(self) -> bool:
        return self.first_offset >= self.next_offset


def segments_below(segments: Sequence[Segment], offset: int) -> list[Segment]:
    """Return the segments wholly below an offset; never the last."""
    return [segment for segment, following in pairwise(segments) if following.base_offset <= offset]


def plan_delete(view: View, *, log_start_offset: int, offset: int) -> Removal:
    """Return what is removed if the log start offset is raised to `offset`."""
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
    """Return what is removed if the log is rolled, if that is due, and then retained."""
    sealed = [_facts(segment, following.base_offset, now_ms) for segment, following in pairwise(view.segments)]
    last = view.last
    state = last.state if isinstance(last, ActiveSegment) else last.scan_all()
    active_size = state.size
    if is_roll_due(state, now_ms=now_ms, config=config):
        sealed.append(SegmentFacts(state.next_offset, state.size, state.max_timestamp, now_ms))
        active_size = 0
    expired = expired_segments(
        sealed, active_size=active_size, high_watermark=high_watermark, now_ms=now_ms, config=config
    )
    return Removal(
        first_offset=log_start_offset,
        next_offset=max(log_start_offset, expired[-1].facts.next_offset) if expired else log_start_offset,
        segment_count=len(expired),
        size_bytes=sum(each.facts.size for each in expired),
        causes=tuple(dict.fromkeys(each.cause for each in expired)),
    )


def sealed_facts(view: View) -> list[SegmentFacts]:
    """Return the facts that retention needs about the sealed segments of a log open for writing."""
    facts = []
    for segment, following in pairwise(view.segments):
        if segment.seal is None:
            break
        facts.append(_facts(segment, following.base_offset, segment.seal.sealed_at_ms))
    return facts


def _facts(segment: Segment, next_offset: int, now_ms: int) -> SegmentFacts:
    """Return the facts of a segment. An unsealed one counts as sealed now, as opening for writing would do."""
    newest = segment.max_timestamp_ms()
    sealed_at_ms = now_ms if segment.seal is None else segment.seal.sealed_at_ms
    newest = segment.scan_all().max_timestamp if newest is None else newest
    return SegmentFacts(next_offset, segment.size, newest, sealed_at_ms)


@dataclass(frozen=True, slots=True)
class Cut:
    """The position of a cut: the index of its segment in the view, and the state of the kept part of the segment."""

    index: int
    kept: SegmentState

    @property
    def end(self) -> int:
        """The new end of the log. If compaction left a gap before the cut, the log ends before the gap."""
        return self.kept.next_offset


def find_cut(view: View, offset: int) -> Cut:
    """Return a cut before the batch that contains `offset`, after checking the kept part of its segment."""
    location = reading.seek(view, offset)
    index = view.find(location.segment)
    return Cut(index, view.segments[index].scan_to(location.position))


def plan_truncation(view: View, *, log_end_offset: int, offset: int) -> Removal:
    """Return what is removed if the log is cut before the batch that contains `offset`."""
    if offset >= log_end_offset:
        return Removal(first_offset=log_end_offset, next_offset=log_end_offset, segment_count=0, size_bytes=0)
    cut = find_cut(view, offset)
    gone = view.segments[cut.index + 1 :]
    return Removal(
        first_offset=cut.end,
        next_offset=log_end_offset,
        segment_count=len(gone),
        size_bytes=view.segments[cut.index].size - cut.kept.size + sum(segment.size for segment in gone),
    )
