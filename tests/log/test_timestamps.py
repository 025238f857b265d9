"""Timestamps that a log refuses: other units taken for milliseconds, and times beyond a topic's limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from log.workbench import START_MS, FakeClock, open_log
from seeklog import Log, LogWriter, Record
from seeklog.errors import InvalidRecord
from seeklog.record.batch import encode_batch

NOW_S = START_MS // 1000
YEAR_S = 365 * 86_400
HOUR_MS = 3_600_000
BEFORE = "message.timestamp.before.max.ms"
AFTER = "message.timestamp.after.max.ms"


def write_buffered(log: Log, timestamp_ms: int) -> None:
    with LogWriter(log, linger_ms=0) as writer:
        writer.append(b"v", timestamp_ms=timestamp_ms).result()


DOORS: dict[str, Callable[[Log, int], object]] = {
    "append": lambda log, at: log.append(b"v", timestamp_ms=at),
    "append_many": lambda log, at: log.append_many([Record(b"first"), Record(b"v", timestamp_ms=at)]),
    "a writer": write_buffered,
}
doors = pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
compressions = pytest.mark.parametrize("compression_type", ["none", "gzip"])


# ---------------------------------------------------------------- other units

UNITS = {"seconds": (1, "Multiply it by 1000"), "microseconds": (10**6, "Divide it by 1000")}
UNITS["nanoseconds"] = (10**9, "Divide it by 1000000")


@doors
@compressions
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("years", [-10, -9, 0, 9, 10])
def test_other_units_are_refused_where_milliseconds_belong(
    tmp_path: Path, door: Callable[[Log, int], object], compression_type: str, years: int, unit: str
) -> None:
    per_second, cure = UNITS[unit]
    seconds = NOW_S + years * YEAR_S
    with open_log(tmp_path, compression_type=compression_type) as log:
        with pytest.raises(
            InvalidRecord, match=rf"timestamp_ms {seconds * per_second}, .* in {unit}\. {cure}; nothing"
        ):
            door(log, seconds * per_second)

        assert log.log_end_offset == 0
        door(log, seconds * 1000)
        assert log.last().timestamp_ms == seconds * 1000


OTHERS = [-1, 0, 5, START_MS, 2**63 - 1] + [
    (NOW_S + years * YEAR_S) * per_second for years in (-11, 11) for per_second, _ in UNITS.values()
]


@doors
@pytest.mark.parametrize("timestamp_ms", OTHERS)
def test_other_timestamps_of_any_age_are_accepted(
    tmp_path: Path, door: Callable[[Log, int], object], timestamp_ms: int
) -> None:
    with open_log(tmp_path) as log:
        door(log, timestamp_ms)
        assert log.last().timestamp_ms == timestamp_ms


def test_refusal_of_seconds_names_record_and_both_readings(tmp_path: Path) -> None:
    with open_log(tmp_path) as log, pytest.raises(InvalidRecord) as caught:
        log.append_many([Record(b""), Record(b""), Record(b"", timestamp_ms=1_700_000_000)])

    assert str(caught.value) == (
        f"{tmp_path}: record 2 has timestamp_ms 1700000000, which is 1970-01-20T16:13:20Z in milliseconds, but "
        "2023-11-14T22:13:20Z in seconds. Multiply it by 1000; nothing was written"
    )


def test_refusal_of_nanoseconds_names_a_year_that_no_calendar_has(tmp_path: Path) -> None:
    with open_log(tmp_path) as log, pytest.raises(InvalidRecord) as caught:
        log.append(b"", timestamp_ms=1_700_000_000_123_456_789)

    assert str(caught.value) == (
        f"{tmp_path}: the record has timestamp_ms 1700000000123456789, which is the year 53872825 in milliseconds, but "
        "2023-11-14T22:13:20Z in nanoseconds. Divide it by 1000000; nothing was written"
    )


def test_first_record_in_another_unit_is_named(tmp_path: Path) -> None:
    stamps = (START_MS, NOW_S * 10**9, NOW_S, NOW_S * 10**6)
    with open_log(tmp_path) as log, pytest.raises(InvalidRecord, match=f"record 1 has timestamp_ms {NOW_S}000000000,"):
        log.append_many([Record(b"", timestamp_ms=timestamp_ms) for timestamp_ms in stamps])


def test_raw_batches_may_have_stamps_that_look_like_other_units(tmp_path: Path) -> None:
    """They come from another log, which has these stamps already."""
    with open_log(tmp_path) as log:
        for timestamp_ms in (NOW_S, NOW_S * 10**6, NOW_S * 10**9):
            log.append_batches(encode_batch([Record(b"v", timestamp_ms=timestamp_ms)]))
            assert log.last().timestamp_ms == timestamp_ms


@doors
@pytest.mark.parametrize("unit", UNITS)
def test_log_append_time_replaces_stamps_in_other_units(
    tmp_path: Path, door: Callable[[Log, int], object], unit: str
) -> None:
    with open_log(tmp_path, message_timestamp_type="LogAppendTime") as log:
        door(log, NOW_S * UNITS[unit][0])
        assert log.last().timestamp_ms == START_MS


@pytest.mark.parametrize("now_ms", [0, 86_400_000, 9 * YEAR_S * 1000])
def test_clock_that_was_never_set_refuses_no_timestamp(tmp_path: Path, now_ms: int) -> None:
    with open_log(tmp_path, clock=FakeClock(now_ms)) as log:
        for timestamp_ms in (0, 5, now_ms // 1000, now_ms, now_ms * 1000, now_ms * 10**6):
            log.append(b"v", timestamp_ms=timestamp_ms)
            log.append_many([Record(b"v", timestamp_ms=timestamp_ms), Record(b"v")])


# ---------------------------------------------------------------- limits


def raw(log: Log, timestamp_ms: int) -> None:
    batch = encode_batch([Record(b"first", timestamp_ms=START_MS), Record(b"v", timestamp_ms=timestamp_ms)])
    log.append_batches(batch)


limited_doors = pytest.mark.parametrize("door", [*DOORS.values(), raw], ids=[*DOORS, "raw batches"])


@limited_doors
@compressions
@pytest.mark.parametrize(
    ("settings", "accepted", "refused", "words"),
    [
        (
            {"message_timestamp_before_max_ms": HOUR_MS},
            -HOUR_MS,
            -HOUR_MS - 1,
            f"3600001 ms before the clock, and {BEFORE}",
        ),
        ({"message_timestamp_after_max_ms": HOUR_MS}, HOUR_MS, HOUR_MS + 1, f"3600001 ms after the clock, and {AFTER}"),
        ({"message_timestamp_before_max_ms": 0}, 0, -1, f"1 ms before the clock, and {BEFORE} is 0"),
        ({"message_timestamp_after_max_ms": 0}, 0, 1, f"1 ms after the clock, and {AFTER} is 0"),
    ],
)
def test_timestamp_beyond_limit_is_refused(
    tmp_path: Path,
    door: Callable[[Log, int], object],
    compression_type: str,
    settings: dict[str, Any],
    accepted: int,
    refused: int,
    words: str,
) -> None:
    with open_log(tmp_path, compression_type=compression_type, **settings) as log:
        door(log, START_MS + accepted)
        end = log.log_end_offset

        with pytest.raises(InvalidRecord, match=f"timestamp_ms {START_MS + refused}, {words}"):
            door(log, START_MS + refused)

        assert log.log_end_offset == end


@limited_doors
def test_record_without_timestamp_has_no_limit(tmp_path: Path, door: Callable[[Log, int], object]) -> None:
    settings = {"message_timestamp_before_max_ms": HOUR_MS, "message_timestamp_after_max_ms": HOUR_MS}
    with open_log(tmp_path, **settings) as log:
        door(log, -1)
        assert log.last().timestamp_ms == -1


@limited_doors
def test_log_append_time_has_no_limits(tmp_path: Path, door: Callable[[Log, int], object]) -> None:
    settings = {"message_timestamp_before_max_ms": HOUR_MS, "message_timestamp_type": "LogAppendTime"}
    with open_log(tmp_path, **settings) as log:
        door(log, START_MS - 2 * HOUR_MS)
        assert log.last().timestamp_ms == START_MS


def test_index_of_refused_record_counts_over_all_raw_batches(tmp_path: Path) -> None:
    batches = [[START_MS] * 3, [START_MS, START_MS - HOUR_MS, START_MS]]
    joined = b"".join(encode_batch([Record(b"", timestamp_ms=at) for at in batch]) for batch in batches)
    with (
        open_log(tmp_path, message_timestamp_before_max_ms=5) as log,
        pytest.raises(InvalidRecord, match="record 4 has timestamp_ms"),
    ):
        log.append_batches(joined)


def test_limits_follow_the_clock(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, message_timestamp_before_max_ms=HOUR_MS) as log:
        log.append(b"v", timestamp_ms=START_MS)
        clock.advance(HOUR_MS + 1)
        with pytest.raises(InvalidRecord, match=BEFORE):
            log.append(b"v", timestamp_ms=START_MS)


def test_timestamps_of_any_age_are_accepted_without_limits(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        for timestamp_ms in (1, START_MS - 50 * YEAR_S * 1000, START_MS + 50 * YEAR_S * 1000):
            raw(log, timestamp_ms)
            log.append(b"v", timestamp_ms=timestamp_ms)
