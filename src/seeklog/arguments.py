"""The checks of numbers and booleans that callers pass.

An argument is checked where it enters, before anything is read, written or started. The error names the argument, what
it may be, and the value. NaN lies in no range, and infinity in none of these: where no limit makes sense, the argument
takes None.
"""

from __future__ import annotations

import operator
import reprlib
from typing import Final

from seeklog.errors import UsageError

_INT64_MAX: Final = 2**63 - 1
# Twice as many as any number here has, and few enough to print.
MAX_SHOWN_BITS: Final = 128


def check_whole_number(name: str, value: object, *, minimum: int = 0, maximum: int = _INT64_MAX) -> int:
    """Return a whole number within [minimum, maximum], or raise `UsageError`."""
    number = _whole(value)
    if number is None or not minimum <= number <= maximum:
        is_open = maximum == _INT64_MAX and (number is None or number < minimum)
        raise UsageError(
            f"{name} must be a whole number {_range(minimum, None if is_open else maximum)}, not {shown(value)}"
        )
    return number


def check_offset(value: object, *, name: str = "offset") -> int:
    """Return a whole number, or raise `UsageError`. Whether a log has the offset is another question."""
    number = _whole(value)
    if number is None or number.bit_length() > MAX_SHOWN_BITS:
        raise UsageError(f"{name} must be a whole number, not {shown(value)}")
    return number


def check_number(name: str, value: object, *, minimum: float = 0, maximum: float, advice: str = "") -> float:
    """Return a number within [minimum, maximum], or raise `UsageError`."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise UsageError(f"{name} must be a number {_range(minimum, maximum)}, not {shown(value)}{advice}")
    return value


def check_flags(**flags: object) -> None:
    """Raise `UsageError` unless each argument is True or False: the text "false" would count as true."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise UsageError(f"{name} must be True or False, not {shown(value)}")


def _whole(value: object) -> int | None:
    """Return an int, or a number of another type that counts, such as numpy's. A bool counts nothing."""
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def shown(value: object) -> str:
    """Return a value as text for an error message, shortened if it is long."""
    if isinstance(value, int) and value.bit_length() > MAX_SHOWN_BITS:
        return f"an int of {value.bit_length():,} bits"  # Python refuses to print one of some thousand digits
    return reprlib.repr(value)


def _range(minimum: float, maximum: float | None) -> str:
    return f"of at least {minimum:,}" if maximum is None else f"from {minimum:,} to {maximum:,}"
