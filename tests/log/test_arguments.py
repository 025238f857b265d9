"""Arguments of readers: offsets and limits are ints, times are ints or datetimes with a zone."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from log.workbench import START_MS, contents, open_log, values
from seeklog import Log, Record
from seeklog.clock import SystemClock, as_milliseconds
from seeklog.errors import UsageError
from seeklog.record.batch import encode_batch

NOT_INTS = [1.5, math.nan, math.inf, "1", True, None]
MORNING = datetime(2026, 1, 1, 6, tzinfo=UTC)
MORNING_MS = int(MORNING.timestamp() * 1000)

WITH_OFFSET: dict[str, Callable[[Log, Any], Any]] = {
    "read": lambda log, offset: list(log.read(offset)),
    "read_uncommitted": lambda log, offset: list(log.read_uncommitted(offset)),
    "read_batches": lambda log, offset: list(log.read_batches(offset)),
    "read_ranges": lambda log, offset: log.read_ranges(offset),
    "seek": lambda log, offset: log.seek(offset),
    "truncate_to": lambda log, offset: log.truncate_to(offset),
    "delete_before": lambda log, offset: log.delete_before(offset),
    "plan_truncate_to": lambda log, offset: log.plan_truncate_to(offset),
    "plan_delete_before": lambda log, offset: log.plan_delete_before(offset),
}
# None means the start or the end of the log.
WITH_BOUND: dict[str, Callable[[Log, Any], Any]] = {
    "scan from": lambda log, offset: list(log.scan(offset)),
    "scan to": lambda log, offset: list(log.scan(0, offset)),
    "scan_chunks": lambda log, offset: list(log.scan_chunks(offset)),
    "scan_reverse": lambda log, offset: list(log.scan_reverse(0, offset)),
    "follow": lambda log, offset: next(log.follow(offset, timeout_ms=0), None),
    "latest_for_key": lambda log, offset: log.latest_for_key(b"k", start=offset),
}
WITH_LIMIT: dict[str, Callable[[Log, Any], Any]] = {
    "max_records": lambda log, limit: list(log.read(0, max_records=limit)),
    "max_bytes": lambda log, limit: list(log.read(0, max_bytes=limit)),
    "max_records of read_uncommitted": lambda log, limit: list(log.read_uncommitted(0, max_records=limit)),
    "max_bytes of read_batches": lambda log, limit: list(log.read_batches(0, max_bytes=limit)),
    "max_bytes of read_ranges": lambda log, limit: log.read_ranges(0, max_bytes=limit),
}


class Whole:
    """A whole number that is not an int, as numpy and pandas have them."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __index__(self) -> int:
        return self._number


@pytest.fixture
def log(tmp_path: Path) -> Any:
    with open_log(tmp_path) as made:
        for number in range(4):
            made.append(b"%d" % number, key=b"k", timestamp_ms=MORNING_MS + number)
        yield made


@pytest.mark.parametrize("wrong", NOT_INTS, ids=repr)
@pytest.mark.parametrize("name", WITH_OFFSET)
def test_offset_that_is_not_an_int_is_refused(log: Log, tmp_path: Path, name: str, wrong: Any) -> None:
    before = contents(tmp_path)

    with pytest.raises(UsageError, match=f"must be a whole number.*, not {wrong!r}"):
        WITH_OFFSET[name](log, wrong)

    assert contents(tmp_path) == before


@pytest.mark.parametrize("wrong", NOT_INTS[:-1], ids=repr)
@pytest.mark.parametrize("name", WITH_BOUND)
def test_bound_that_is_not_an_int_is_refused(log: Log, name: str, wrong: Any) -> None:
    with pytest.raises(UsageError, match=f"must be a whole number.*, not {wrong!r}"):
        WITH_BOUND[name](log, wrong)


@pytest.mark.parametrize("wrong", [*NOT_INTS, 0], ids=repr)
@pytest.mark.parametrize("name", WITH_LIMIT)
def test_limit_that_is_not_a_positive_int_is_refused(log: Log, name: str, wrong: Any) -> None:
    with pytest.raises(UsageError, match=rf"{name.split()[0]} must be a whole number of at least 1, not {wrong!r}"):
        WITH_LIMIT[name](log, wrong)


@pytest.mark.parametrize("name", WITH_LIMIT)
def test_limit_that_is_too_large_is_refused_with_its_maximum(log: Log, name: str) -> None:
    with pytest.raises(UsageError, match=f"must be a whole number from 1 to {2**63 - 1:,}, not {2**63}"):
        WITH_LIMIT[name](log, 2**63)


@pytest.mark.parametrize("wrong", [math.nan, -1, "1", True], ids=repr)
def test_timeout_of_follow_that_is_not_a_time_is_refused(log: Log, wrong: Any) -> None:
    with pytest.raises(UsageError, match=rf"timeout_ms must be a number from 0 to .*, not {wrong!r}; pass None to"):
        log.follow(0, timeout_ms=wrong)


def test_whole_numbers_of_other_types_are_offsets(log: Log) -> None:
    one: Any = Whole(1)
    assert [record.offset for record in log.read(one, max_records=one)] == [1]
    assert values(log.scan(one, Whole(3))) == [b"1", b"2"]  # type: ignore[arg-type]
    assert log.seek(one).segment == 0


# ---------------------------------------------------------------- times


@pytest.mark.parametrize(
    ("moment", "offset"),
    [
        (MORNING, 0),
        (MORNING.astimezone(timezone(timedelta(hours=5, minutes=30))), 0),
        (MORNING + timedelta(milliseconds=1), 1),
        # The record at 1 ms is before this time.
        (MORNING + timedelta(milliseconds=1, microseconds=1), 2),
        (MORNING + timedelta(days=1), None),
        (MORNING_MS + 3, 3),
    ],
    ids=str,
)
def test_offset_at_time_takes_a_datetime(log: Log, moment: datetime, offset: int | None) -> None:
    assert log.offset_at_time(moment) == offset


def test_datetime_without_a_zone_is_refused_with_both_cures(log: Log) -> None:
    with pytest.raises(UsageError, match=r"2026-01-01 06:00:00 has no time zone: pass .*tzinfo=UTC.* or .*astimezone"):
        log.offset_at_time(MORNING.replace(tzinfo=None))


@pytest.mark.parametrize("wrong", [1.5, math.nan, "2026-01-01", date(2026, 1, 1), True, None], ids=repr)
def test_time_of_another_type_is_refused(log: Log, wrong: Any) -> None:
    with pytest.raises(UsageError, match=r"a time must be an int, milliseconds since 1970, or a datetime .*, not"):
        log.offset_at_time(wrong)


@pytest.mark.parametrize(
    ("unit", "per_second", "cure"), [("seconds", 1, 1000), ("microseconds", 10**6, 1000), ("nanoseconds", 10**9, 10**6)]
)
def test_time_in_another_unit_is_refused(log: Log, unit: str, per_second: int, cure: int) -> None:
    given = START_MS // 1000 * per_second
    verb = "Multiply" if unit == "seconds" else "Divide"
    with pytest.raises(UsageError) as caught:
        log.offset_at_time(given)
    assert str(caught.value).startswith(f"the time {given} is ")
    assert str(caught.value).endswith(
        f"in milliseconds, but 2023-11-14T22:13:20Z in {unit}. {verb} it by {cure}, or pass a datetime with a time zone"
    )


def test_datetime_is_never_taken_for_another_unit(tmp_path: Path) -> None:
    """As milliseconds, this one looks like seconds."""
    with open_log(tmp_path) as log:
        log.append_batches(encode_batch([Record(b"v", timestamp_ms=START_MS // 1000)]))
        assert log.offset_at_time(datetime(1970, 1, 20, tzinfo=UTC)) == 0


def test_milliseconds_of_a_datetime_are_exact() -> None:
    """A float would lose microseconds of far times."""
    far = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)

    assert as_milliseconds(far, clock=SystemClock()) == 253_402_300_799_999
    assert as_milliseconds(datetime(1969, 12, 31, 23, 59, 59, 999_500, tzinfo=UTC), clock=SystemClock()) == 0
