"""The only access to time, so that tests can supply the clock; and moments that callers pass."""

from __future__ import annotations

import threading
from time import monotonic, sleep, time_ns
from typing import TYPE_CHECKING, Final, Protocol

from seeklog.arguments import check_number
from seeklog.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

_INT64_MAX: Final = 2**63 - 1
_TEN_YEARS_S: Final = 10 * 365 * 86_400
_S_PER_YEAR: Final = 31_556_952
# What callers take for milliseconds: a unit, how many of it are a second, and the cure.
_OTHER_UNITS: Final = (
    ("seconds", 1, "Multiply it by 1000"),
    ("microseconds", 1_000_000, "Divide it by 1000"),
    ("nanoseconds", 1_000_000_000, "Divide it by 1000000"),
)

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


def as_milliseconds(moment: int | datetime, *, clock: Clock) -> int:
    """Return a moment in milliseconds since 1970, rounded up: the first millisecond at or after it.

    Raises `UsageError` for an int in another unit, for a datetime without a time zone, and for other types.
    """
    if isinstance(moment, int) and not isinstance(moment, bool):
        mistake = UnitCheck(clock.now_ms()).mistake(moment)
        if mistake is not None:
            raise UsageError(f"the time {moment} {mistake}, or pass a datetime with a time zone")
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


class UnitCheck:
    """Recognizes a time in seconds, microseconds or nanoseconds that was passed as milliseconds.

    That is a number which in such a unit lies within ten years of now. As milliseconds it would lie in January 1970, or
    tens of thousands of years ahead.
    """

    __slots__ = ("_first_s", "_last_s", "first_ms", "last_ms")

    def __init__(self, now_ms: int) -> None:
        now_s = now_ms // 1000
        self._first_s, self._last_s = now_s - _TEN_YEARS_S, now_s + _TEN_YEARS_S
        self.first_ms, self.last_ms = self._last_s + 1, min(self._first_s * 1_000_000 - 1, _INT64_MAX)
        """No number from the first to the last of these is mistaken."""
        if self._first_s <= 0:
            # A clock that was never set: seconds and milliseconds look alike.
            self._first_s, self._last_s = 0, -1
            self.first_ms, self.last_ms = 0, _INT64_MAX

    def mistake(self, number: int) -> str | None:
        """Return what a mistaken number is in both units, and what to do; None for any other."""
        for unit, per_second, cure in _OTHER_UNITS:
            if self._first_s * per_second <= number <= self._last_s * per_second:
                as_given, as_meant = _moment(number // 1000), _moment(number // per_second)
                return f"is {as_given} in milliseconds, but {as_meant} in {unit}. {cure}"
        return None


def _moment(seconds: int) -> str:
    from datetime import UTC, datetime  # on use: the import takes a millisecond

    try:
        return datetime.fromtimestamp(seconds, tz=UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):  # after the year 9999
        return f"the year {1970 + seconds // _S_PER_YEAR}"


class SystemClock:
    """The clocks of the machine."""

    def now_ms(self) -> int:
        return time_ns() // 1_000_000

    def monotonic(self) -> float:
        return monotonic()

    def sleep(self, seconds: float) -> None:
        sleep(seconds)


def nanoseconds_of(clock: Clock) -> Callable[[], int] | None:
    """Return what `now_ms` of the machine's clock divides, for compiled callers, which divide faster.

    None for other clocks.
    """
    return time_ns if type(clock) is SystemClock else None


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
