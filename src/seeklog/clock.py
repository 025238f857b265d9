"""The only access to time, so that tests can supply the clock."""

from __future__ import annotations

from time import monotonic, sleep, time_ns
from typing import Protocol


class Clock(Protocol):
    """The operations that seeklog needs from a clock."""

    def now_ms(self) -> int:
        """Return the wall clock in milliseconds since 1970. It may jump forward or backward."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never decrease, for measuring intervals."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block for this many seconds, to wait for another process."""
        ...


class SystemClock:
    """The clocks of the machine."""

    def now_ms(self) -> int:
        return time_ns() // 1_000_000

    def monotonic(self) -> float:
        return monotonic()

    def sleep(self, seconds: float) -> None:
        sleep(seconds)
