"""The ticks of an axis and their labels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from seeklog.cli.show import amounts

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
_TIME_STEPS: Final = (
    *(factor * 10**power for power in range(3) for factor in (1, 2, 5)),
    *(factor * SECOND for factor in (1, 2, 5, 10, 15, 30)),
    *(factor * MINUTE for factor in (1, 2, 5, 10, 15, 30)),
    *(factor * HOUR for factor in (1, 2, 3, 6, 12)),
    *(factor * DAY for factor in (1, 2, 5, 10, 20, 50, 100, 200, 365, 730, 1825, 3650, 36500)),
)
# About this many ticks fit on an axis.
TICKS: Final = 4
_LAST_MS: Final = 253_370_764_800_000  # the year 9999; later times are drawn there


class Scale(NamedTuple):
    """Maps values to coordinates."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        if self.high == self.low:
            return (self.start + self.end) / 2
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def round_ticks(high: float, *, min_step: float = 0.0) -> list[float]:
    """Return round values from 0 to the first that is at least `high`."""
    if high <= 0:
        return [0.0, 1.0]
    rough = max(high / TICKS, min_step)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    return [step * number for number in range(math.ceil(high / step * 0.999) + 1)]


def count_ticks(high: float) -> list[float]:
    """Return ticks for counts, which are integers."""
    ticks = round_ticks(high, min_step=1.0)
    return ticks if all(tick == int(tick) for tick in ticks) else round_ticks(high, min_step=5.0)


def byte_ticks(high: float) -> list[float]:
    """Return ticks that are round in bytes, KB and so on; 1 KB is 1024 bytes."""
    unit = 1024.0 ** max(0, int(math.log2(max(1.0, high)) // 10))
    return [tick * unit for tick in round_ticks(high / unit)]


def short_count(value: float) -> str:
    """Return a short number: 950, 1.2k, 34M."""
    if 0 < value < 10 and value != int(value):
        return f"{value:.2g}"
    for unit in ("", "k", "M", "G", "T"):
        if abs(value) < 1000 or unit == "T":
            break
        value /= 1000
    return f"{value:.3g}{unit}"


def short_size(size: float) -> str:
    """Return a round number of bytes without decimals: 64 B, 2 KB."""
    figure, _, unit = amounts.size(size).partition(" ")
    return f"{float(figure):g} {unit}" if size else "0"


def time_ticks(first_ms: int, last_ms: int, *, utc: bool) -> Iterator[tuple[int, str]]:
    """Yield round times between two times, with distinct labels."""
    span = max(1, last_ms - first_ms)
    step = next((step for step in _TIME_STEPS if span / step <= TICKS), _TIME_STEPS[-1])
    # Days begin at local midnight.
    offset = _at(first_ms, utc=utc).utcoffset() or timedelta()
    shift = int(offset.total_seconds() * 1000)
    at = -(-(first_ms + shift) // step) * step - shift
    while at <= last_ms:
        yield at, _moment(at, step, utc=utc)
        at += step


def _moment(moment_ms: int, step: int, *, utc: bool) -> str:
    at = _at(moment_ms, utc=utc)
    if step >= DAY:
        return f"{at:%Y-%m-%d}"
    if step >= MINUTE:
        return f"{at:%H:%M}" if (at.hour, at.minute) != (0, 0) else f"{at.day} {at:%b}"
    if step >= SECOND:
        return f"{at:%H:%M:%S}"
    return f"{at:%S}.{moment_ms % 1000:03d}"


def _at(moment_ms: int, *, utc: bool) -> datetime:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=min(max(moment_ms, 0), _LAST_MS))
    return at if utc else at.astimezone()
