"""Which segments retention may delete: a pure decision over facts, oldest segment first.

Kafka's rules: by size, whole segments go while what is left still holds `retention_bytes`; by time, a segment
goes when its newest record is older than `retention_ms`. The active segment, and anything at or above the
high watermark, never goes. One thing is ours: a record stamped in the future would keep its segment for ever,
so no segment counts as newer than the moment at which it was sealed. If that moment is in the future itself, the
clock has been set back since: then it counts as no newer than the segment after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from seeklog.config import LogConfig
from seeklog.record.segment_state import SegmentState


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """What retention needs to know of a sealed segment."""

    next_offset: int
    size: int
    max_timestamp_ms: int
    sealed_at_ms: int

    @property
    def newest_ms(self) -> int:
        """When its newest record is from, by its own word; when it was sealed, if none has a time."""
        return self.max_timestamp_ms if self.max_timestamp_ms >= 0 else self.sealed_at_ms


def expired_count(
    sealed: Sequence[SegmentFacts], *, active_size: int, high_watermark: int, now_ms: int, config: LogConfig
) -> int:
    """Return how many of the oldest sealed segments may be deleted."""
    if not config.deletes:
        return 0
    excess = active_size + sum(facts.size for facts in sealed) - config.retention_bytes
    count = 0
    for facts, newest_ms in zip(sealed, _newest_ms(sealed, now_ms), strict=True):
        too_large = config.retention_bytes >= 0 and excess >= facts.size
        too_old = config.retention_ms >= 0 and now_ms - newest_ms > config.retention_ms
        if facts.next_offset > high_watermark or not (too_large or too_old):
            break
        excess -= facts.size
        count += 1
    return count


def _newest_ms(sealed: Sequence[SegmentFacts], now_ms: int) -> list[int]:
    """Return for each segment the time that its newest record counts with."""
    newest: list[int] = []
    following_ms: int | None = None
    for facts in reversed(sealed):
        sealed_at_ms = facts.sealed_at_ms
        if sealed_at_ms > now_ms and following_ms is not None:
            sealed_at_ms = following_ms
        following_ms = sealed_at_ms
        # The seal speaks for what claims to come from the future. It does not speak for the rest: the clock may have
        # stood in the past when it was made.
        newest.append(facts.newest_ms if facts.newest_ms <= now_ms else min(facts.newest_ms, sealed_at_ms))
    newest.reverse()
    return newest


def is_roll_due(state: SegmentState, *, now_ms: int, config: LogConfig) -> bool:
    """Tell whether a segment that may see no more appends rolls: it spans `segment_ms`, or is all too old."""
    if not state.size or state.max_timestamp < 0:
        return False  # it has no record, or none with a time
    has_expired = config.deletes and 0 <= config.retention_ms < now_ms - state.max_timestamp
    return has_expired or now_ms - state.first_timestamp > config.roll_ms
