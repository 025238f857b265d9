"""The only door to time, so that tests can be the clock."""

from __future__ import annotations

from time import monotonic, sleep, time_ns
from typing import Protocol


class Clock(Protocol):
    """What storage may ask of a clock."""

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since 1970. It may jump, in both directions."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never go back, for intervals."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let time pass, for whoever waits for another process."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_ms(self) -> int:
        return time_ns() // 1_000_000

    def monotonic(self) -> float:
        return monotonic()

    def sleep(self, seconds: float) -> None:
        sleep(seconds)
