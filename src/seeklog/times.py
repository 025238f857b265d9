"""Spans of time as people write them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_AMOUNT: Final = re.compile(r"(\d{1,18})\s*([a-zA-Z]*)\Z", re.ASCII)
_MILLISECONDS: Final[Mapping[str, int]] = {
    unit: scale
    for scale, units in (
        (1, "ms millisecond milliseconds"),
        (1000, "s sec second seconds"),
        (60_000, "m min minute minutes"),
        (3_600_000, "h hour hours"),
        (86_400_000, "d day days"),
        (604_800_000, "w week weeks"),
    )
    for unit in units.split()
}
_MOST: Final = 2**63 - 1


def parse_span_ms(value: str) -> int | None:
    """Return a time span such as `15m` or `10 minutes` in milliseconds, or None if it is none."""
    match = _AMOUNT.match(value)
    scale = _MILLISECONDS.get(match[2].lower()) if match else None
    if match is None or scale is None:
        return None
    span = int(match[1]) * scale
    return span if span <= _MOST else None
