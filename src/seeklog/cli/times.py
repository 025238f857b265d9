"""Points in a log and moments in time, as users write them.

1234            an offset                   start, end      the start or the end of the log
-100            100 before the end          @TIME           the first record at or after a time
@2026-01-02T03:04, @2026-01-02              local time, or UTC with --utc, unless a zone is given
@-15m, @-2h, @-7d                           15 minutes, 2 hours, 7 days ago
@today, @yesterday, @now                    midnight of that day, or the current time
@1700000000000                              milliseconds since 1970
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

from seeklog.clock import Clock, SystemClock, UnitCheck
from seeklog.config import INT64_MAX, parse_span_ms
from seeklog.errors import OffsetOutOfRange, UsageError

if TYPE_CHECKING:
    from seeklog.log import LogReader

_WHOLE: Final = re.compile(r"\d{1,19}\Z", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAYS_AGO: Final = {"today": 0, "yesterday": 1}


def parse_time_ms(text: str, *, utc: bool, clock: Clock | None = None) -> int:
    """Return the moment that the text after `@` names, in milliseconds since 1970."""
    now_ms = (clock or SystemClock()).now_ms()
    text = text.strip()
    if text.lower() == "now":
        return now_ms
    if text.lower() in _DAYS_AGO:
        now = _EPOCH + timedelta(milliseconds=now_ms)
        # A datetime without a zone is local, which gives the right midnight on days with a clock change.
        today = now.date() if utc else now.astimezone().date()
        day = today - timedelta(days=_DAYS_AGO[text.lower()])
        return _since_1970(datetime(day.year, day.month, day.day, tzinfo=UTC if utc else None))
    if text.startswith("-") and (span := parse_span_ms(text[1:])) is not None:
        return max(0, now_ms - span)
    if _WHOLE.match(text) and len(text) != len("20260102") and int(text) <= INT64_MAX:
        mistake = UnitCheck(now_ms).mistake(int(text))
        if mistake is not None:
            raise UsageError(f"@{text} {mistake}, or write @2026-01-02T03:04")
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"@{text} is not a time; write @2026-01-02T03:04, @-15m, @today or @1700000000000 (milliseconds)"
        ) from None
    if moment.tzinfo is None and utc:
        moment = moment.replace(tzinfo=UTC)
    milliseconds = _since_1970(moment)
    if milliseconds < 0:
        raise UsageError(f"@{text} is before 1970; a record has no earlier time")
    return milliseconds


def _since_1970(moment: datetime) -> int:
    try:
        return (moment.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)
    except (OverflowError, ValueError, OSError):
        raise UsageError(f"{moment} is out of range") from None


@dataclass(frozen=True, slots=True)
class Point:
    """A point in any log; `offset_in` resolves it in one."""

    kind: Literal["offset", "before_end", "start", "end", "time"]
    number: int = 0

    def offset_in(self, log: LogReader) -> int:
        """Return the offset of this point in a log, clamped to the start and the end of the log.

        Raises `OffsetOutOfRange` if the point is an offset outside the log.
        """
        start, end = log.log_start_offset, log.high_watermark
        if self.kind == "start":
            return start
        if self.kind == "end":
            return end
        if self.kind == "before_end":
            return max(start, end - self.number)
        if self.kind == "time":
            from seeklog.log import find_offset_at_time  # on use, for a quick start of the command line

            found = find_offset_at_time(log, self.number)
            return end if found is None else found
        if not start <= self.number <= end:
            raise OffsetOutOfRange(self.number, log_start_offset=start, log_end_offset=end)
        return self.number


def parse_point(text: str, *, utc: bool, clock: Clock | None = None) -> Point:
    """Parse OFFSET, -N, start, end or @TIME."""
    text = text.strip()
    if text.startswith("@"):
        return Point("time", parse_time_ms(text[1:], utc=utc, clock=clock))
    if text.lower() in ("start", "beginning", "earliest"):
        return Point("start")
    if text.lower() in ("end", "latest"):
        return Point("end")
    is_before_end = text.startswith("-")
    digits = text[1:] if is_before_end else text
    if _WHOLE.match(digits) and int(digits) <= INT64_MAX:
        return Point("before_end" if is_before_end else "offset", int(digits))
    raise UsageError(f"{text!r} is not a point in a log; write an offset, -N, start, end or @TIME, such as @-15m")
