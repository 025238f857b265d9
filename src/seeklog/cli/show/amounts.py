"""Numbers, sizes and times as text for people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from seeklog.errors import counted

__all__: Final = ["count", "counted", "moment", "size", "span"]

_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")
_SPANS = ((86_400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s"))


def count(value: Any) -> str:
    """Return 1234567 as `1,234,567`."""
    return "" if value is None else f"{value:,}"


def size(value: Any) -> str:
    """Return a number of bytes with three digits and a unit, such as `4.45 KB`; 1 KB is 1024 bytes."""
    if value is None:
        return ""
    amount = float(value)
    for unit in _UNITS:
        if amount < 1000 or unit == _UNITS[-1]:
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.{1 if amount >= 10 else 2}f} {unit}"


def moment(timestamp_ms: int | None, *, utc: bool) -> str | None:
    """Return a timestamp as ISO 8601 with milliseconds and a zone, local or UTC; None for no timestamp."""
    if timestamp_ms is None or timestamp_ms < 0:
        return None
    try:
        at = datetime.fromtimestamp(timestamp_ms // 1000, tz=UTC).replace(microsecond=timestamp_ms % 1000 * 1000)
        at = at if utc else at.astimezone()
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)  # after the year 9999
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def span(seconds: float) -> str:
    """Return a duration: `3 µs`, `1.2 ms`, `4.5 s`, `2 min 3 s`, `5 h 7 min`, `3 d 4 h`."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    large, small, unit, part = next(span for span in _SPANS if seconds >= span[0])
    rest = int(seconds % large // small)
    return f"{int(seconds // large):,} {unit}" + (f" {rest} {part}" if rest else "")
