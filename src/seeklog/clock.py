"""The only access to time, so that tests can supply the clock."""

from __future__ import annotations

import threading
from time import monotonic, sleep, time_ns
from typing import Final, Protocol

from seeklog.arguments import check_number

# The longest wait that the threads of this platform accept: 292 years on Linux. A longer one raises `OverflowError` in
# the thread that waits.
MAX_WAIT_S: Final = int(threading.TIMEOUT_MAX)
MAX_WAIT_MS: Final = 1000 * MAX_WAIT_S
_NO_LIMIT: Final = "; pass None to wait without a limit"


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


def check_wait_ms(name: str, value: object) -> float:
    """Return a time to wait in milliseconds, or raise `UsageError`."""
    return check_number(name, value, maximum=MAX_WAIT_MS)


def check_wait_s(name: str, value: object) -> float:
    """Return a time to wait in seconds, or raise `UsageError`."""
    return check_number(name, value, maximum=MAX_WAIT_S)


def timeout_ms_in_s(name: str, value: object) -> float | None:
    """Return a timeout of milliseconds in seconds, None for no limit, or raise `UsageError`."""
    return None if value is None else check_number(name, value, maximum=MAX_WAIT_MS, advice=_NO_LIMIT) / 1000


def check_timeout_s(name: str, value: object) -> float | None:
    """Return a timeout in seconds, None for no limit, or raise `UsageError`."""
    return None if value is None else check_number(name, value, maximum=MAX_WAIT_S, advice=_NO_LIMIT)
