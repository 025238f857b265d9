"""Which segments retention may delete: a pure decision over facts, oldest segment first.

Kafka's rules: by size, a segment is deleted if the rest still has `retention_bytes`; by time, if its newest record is
older than `retention_ms`. The active segment is never deleted, nor a segment that ends above the high watermark. One
rule is seeklog's: a record with a timestamp in the future would keep its segment forever, so no segment counts as newer
than the time it was sealed. If that time is itself in the future, the clock was set back, and the segment counts as no
newer than the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from seeklog.config import LogConfig
from seeklog.record.segment_state import SegmentState


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """The facts about a sealed segment that retention needs."""

    next_offset: int
    size: int
    max_timestamp_ms: int
    sealed_at_ms: int

    @property
    def newest_ms(self) -> int:
        """The timestamp of its newest record, or the time of sealing if no record has a timestamp."""
        return self.max_timestamp_ms if self.max_timestamp_ms >= 0 else self.sealed_at_ms


Setting: TypeAlias = Literal["retention.ms", "retention.bytes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """A segment that may be deleted, and why."""

    facts: SegmentFacts
    setting: Setting
    """The setting that asks for it; `retention.ms` if both do."""
    limit: int
    """The value of the setting."""
    found: int
    """The value above the limit: the age of the newest record, or the size of the log with this segment."""

    @property
    def cause(self) -> str:
        return f"{self.setting}={self.limit}"


def expired_segments(
    sealed: Sequence[SegmentFacts], *, active_size: int, high_watermark: int, now_ms: int, config: LogConfig
) -> list[Expired]:
    """Return the oldest sealed segments that may be deleted."""
    expired: list[Expired] = []
    if not config.deletes:
        return expired
    log_size = active_size + sum(facts.size for facts in sealed)
    for facts, newest_ms in zip(sealed, _newest_ms(sealed, now_ms), strict=True):
        age_ms = now_ms - newest_ms
        too_large = 0 <= config.retention_bytes <= log_size - facts.size
        too_old = 0 <= config.retention_ms < age_ms
        if facts.next_offset > high_watermark or not (too_large or too_old):
            break
        if too_old:
            expired.append(Expired(facts=facts, setting="retention.ms", limit=config.retention_ms, found=age_ms))
        else:
            expired.append(
                Expired(facts=facts, setting="retention.bytes", limit=config.retention_bytes, found=log_size)
            )
        log_size -= facts.size
    return expired


def _newest_ms(sealed: Sequence[SegmentFacts], now_ms: int) -> list[int]:
    """Return the time to use for each segment's newest record."""
    newest: list[int] = []
    following_ms: int | None = None
    for facts in reversed(sealed):
        sealed_at_ms = facts.sealed_at_ms
        if sealed_at_ms > now_ms and following_ms is not None:
            sealed_at_ms = following_ms
        following_ms = sealed_at_ms
        # The time of sealing limits only timestamps in the future. It must not limit others: the clock may have been
        # slow when the segment was sealed.
        newest.append(facts.newest_ms if facts.newest_ms <= now_ms else min(facts.newest_ms, sealed_at_ms))
    newest.reverse()
    return newest


def is_roll_due(state: SegmentState, *, now_ms: int, config: LogConfig) -> bool:
    """Return whether a segment without appends must roll: it spans `segment_ms`, or all its records have expired."""
    if not state.size or state.max_timestamp < 0:
        return False  # no record has a timestamp
    has_expired = config.deletes and 0 <= config.retention_ms < now_ms - state.max_timestamp
    return has_expired or now_ms - state.first_timestamp > config.roll_ms
