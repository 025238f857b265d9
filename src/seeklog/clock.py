"""The only access to time, so that tests can supply the clock; and moments that callers pass."""

from __future__ import annotations

import threading
from time import monotonic, sleep, time_ns
from typing import TYPE_CHECKING, Final, Protocol

from seeklog.arguments import check_number
from seeklog.errors import UsageError

if TYPE_CHECKING:
    from datetime import datetime

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


def as_milliseconds(moment: int | datetime) -> int:
    """Return a moment in milliseconds since 1970, rounded up: the first millisecond at or after it.

    Raises `UsageError` for a datetime without a time zone, and for other types.
    """
    if isinstance(moment, int) and not isinstance(moment, bool):
        return moment
    from datetime import UTC, datetime, timedelta  # on use: the import takes a millisecond

    if not isinstance(moment, datetime):
        raise UsageError(
            "a time must be an int, milliseconds since 1970, or a datetime with a time zone, "
            f"not {moment!r}; pass datetime(…, tzinfo=UTC)"
        )
    if moment.utcoffset() is None:
        raise UsageError(
            f"{moment} has no time zone: pass datetime(…, tzinfo=UTC), or for local time datetime(…).astimezone()"
        )
    return -((datetime(1970, 1, 1, tzinfo=UTC) - moment) // timedelta(milliseconds=1))


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
