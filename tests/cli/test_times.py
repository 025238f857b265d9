from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from seeklog.cli.times import Point, parse_point, parse_time_ms
from seeklog.errors import UsageError

NOON_MS = 1_767_268_800_000  # 2026-01-01T12:00:00Z
MINUTE_MS = 60_000


class Noon:
    def now_ms(self) -> int:
        return NOON_MS

    def monotonic(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("now", NOON_MS),
        ("today", NOON_MS - 720 * MINUTE_MS),
        ("yesterday", NOON_MS - 2160 * MINUTE_MS),
        ("-15m", NOON_MS - 15 * MINUTE_MS),
        ("-2h", NOON_MS - 120 * MINUTE_MS),
        ("1767268800000", NOON_MS),
        ("0", 0),
        ("2026-01-01T12:00", NOON_MS),
        ("2026-01-01T12:00:00.250", NOON_MS + 250),
        ("2026-01-01T13:00+01:00", NOON_MS),
        ("2026-01-01", NOON_MS - 720 * MINUTE_MS),
        ("20260101", NOON_MS - 720 * MINUTE_MS),
    ],
)
def test_times_are_parsed(text: str, milliseconds: int) -> None:
    assert parse_time_ms(text, utc=True, clock=Noon()) == milliseconds


@pytest.mark.parametrize("text", ["", "noon", "-15", "-15x", "1969-12-31", "2026-13-01", "99999999999999999999"])
def test_invalid_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_time_ms(text, utc=True, clock=Noon())


@pytest.mark.parametrize(("text", "unit"), [("1767268800", "seconds"), ("1767268800000000000", "nanoseconds")])
def test_time_in_another_unit_is_refused(text: str, unit: str) -> None:
    with pytest.raises(UsageError, match=rf"@{text} is .* in milliseconds, but 2026-01-01T12:00:00Z in {unit}\."):
        parse_time_ms(text, utc=True, clock=Noon())


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize("text", ["0001-01-01", "9999-12-31T23:59:59"])
def test_local_time_at_the_edge_of_the_calendar_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="out of range"):
        parse_time_ms(text, utc=False, clock=Noon())


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("12", Point("offset", 12)),
        ("-12", Point("before_end", 12)),
        ("start", Point("start")),
        ("end", Point("end")),
        ("@now", Point("time", NOON_MS)),
    ],
)
def test_points_are_parsed(text: str, found: Point) -> None:
    assert parse_point(text, utc=True, clock=Noon()) == found


@pytest.mark.parametrize("text", ["", "-", "--1", "1.5", "begin", "9223372036854775808", "0x10"])
def test_invalid_point_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_point(text, utc=True, clock=Noon())
