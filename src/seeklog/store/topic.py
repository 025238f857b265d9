"""A topic as a whole: its partitions, and ranges of them."""

from __future__ import annotations

from dataclasses import dataclass

from seeklog.log import Log


@dataclass(frozen=True, slots=True)
class Range:
    """The records of one partition in [start, stop)."""

    partition: int
    log: Log
    start: int
    stop: int
