"""Retention: which segments may go, as a decision over facts, and in a log with a clock that jumps."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from log.workbench import (
    BATCH_BYTES,
    START_MS,
    FailingFiles,
    FakeClock,
    config_of,
    fill,
    offsets,
    open_log,
    segment_bases,
)
from record.batches import batch_of
from seeklog import Record
from seeklog.errors import LogClosed
from seeklog.log.clean.retention import SegmentFacts, expired_count
from seeklog.record.batch import encode_batch

DAY_MS = 24 * 3600 * 1000


def facts(next_offset: int, *, size: int = 100, max_timestamp_ms: int = 0, sealed_at_ms: int = 0) -> SegmentFacts:
    return SegmentFacts(next_offset, size, max_timestamp_ms, sealed_at_ms)


# ---------------------------------------------------------------- the decision


@pytest.mark.parametrize(
    ("retention_bytes", "expired"),
    [(-1, 0), (0, 3), (50, 3), (51, 2), (150, 2), (151, 1), (250, 1), (251, 0), (350, 0)],
)
def test_by_size_segments_go_while_what_is_left_still_holds_the_size(retention_bytes: int, expired: int) -> None:
    """Three sealed segments of 100 bytes and an active one of 50, which never goes."""
    sealed = [facts(10), facts(20), facts(30)]

    assert (
        expired_count(
            sealed,
            active_size=50,
            high_watermark=35,
            now_ms=0,
            config=config_of(retention_bytes=retention_bytes),
        )
        == expired
    )


@pytest.mark.parametrize(("now_ms", "expired"), [(0, 0), (1100, 0), (1101, 1), (1200, 1), (1201, 2), (9999, 3)])
def test_by_time_a_segment_goes_when_its_newest_record_is_older(now_ms: int, expired: int) -> None:
    sealed = [facts(10 * n, max_timestamp_ms=100 * n, sealed_at_ms=10**6) for n in (1, 2, 3)]

    assert (
        expired_count(sealed, active_size=50, high_watermark=35, now_ms=now_ms, config=config_of(retention_ms=1000))
        == expired
    )


def test_a_time_of_zero_keeps_only_what_is_not_past() -> None:
    sealed = [facts(10 * n, max_timestamp_ms=100 * n, sealed_at_ms=10**6) for n in (1, 2, 3)]
    config = config_of(retention_ms=0)

    assert expired_count(sealed, active_size=50, high_watermark=35, now_ms=200, config=config) == 1


def test_a_segment_that_must_stay_keeps_all_behind_it() -> None:
    """Only the oldest go, or the log would have a hole."""
    sealed = [facts(10, max_timestamp_ms=9000, sealed_at_ms=9000), facts(20), facts(30)]

    assert (
        expired_count(sealed, active_size=50, high_watermark=35, now_ms=9500, config=config_of(retention_ms=1000)) == 0
    )


@pytest.mark.parametrize(("high_watermark", "expired"), [(0, 0), (9, 0), (10, 1), (29, 2), (30, 3)])
def test_nothing_at_or_above_the_high_watermark_goes(high_watermark: int, expired: int) -> None:
    sealed = [facts(10), facts(20), facts(30)]

    assert (
        expired_count(
            sealed, active_size=50, high_watermark=high_watermark, now_ms=0, config=config_of(retention_bytes=0)
        )
        == expired
    )


@pytest.mark.id("retention-future-record")
def test_a_record_from_the_future_counts_from_when_its_segment_was_sealed() -> None:
    future = facts(10, max_timestamp_ms=START_MS + 1000 * DAY_MS, sealed_at_ms=START_MS)

    for now_ms, expired in ((START_MS + DAY_MS, 0), (START_MS + DAY_MS + 1, 1)):
        assert (
            expired_count(
                [future], active_size=0, high_watermark=10, now_ms=now_ms, config=config_of(retention_ms=DAY_MS)
            )
            == expired
        )


@pytest.mark.id("retention-unset-clock")
def test_a_segment_that_was_sealed_before_the_clock_was_set_counts_with_its_records() -> None:
    """Goal: a machine that booted in 1970 and then learnt the time deletes no fresh records."""
    fresh = facts(10, max_timestamp_ms=START_MS, sealed_at_ms=60_000)
    words: dict[str, Any] = {"active_size": 0, "high_watermark": 10, "config": config_of(retention_ms=DAY_MS)}

    assert expired_count([fresh], now_ms=START_MS + DAY_MS, **words) == 0
    assert expired_count([fresh], now_ms=START_MS + DAY_MS + 1, **words) == 1


@pytest.mark.parametrize("is_stamped", [True, False])
def test_a_segment_that_was_sealed_in_the_future_counts_with_the_one_behind_it(is_stamped: bool) -> None:
    """Goal: a clock that went wrong and was set right does not keep records for years, nor take any before its time."""
    years_ms = START_MS + 1000 * DAY_MS
    sealed = [
        facts(10, max_timestamp_ms=years_ms if is_stamped else -1, sealed_at_ms=years_ms),
        facts(20, max_timestamp_ms=years_ms if is_stamped else -1, sealed_at_ms=years_ms + 5),
        facts(30, max_timestamp_ms=START_MS, sealed_at_ms=START_MS),
    ]
    words: dict[str, Any] = {"active_size": 0, "high_watermark": 30, "config": config_of(retention_ms=DAY_MS)}

    assert expired_count(sealed, now_ms=START_MS + DAY_MS, **words) == 0
    assert expired_count(sealed, now_ms=START_MS + DAY_MS + 1, **words) == 3
    # While there is none behind them, only they can tell.
    assert expired_count(sealed[:2], now_ms=START_MS + 2 * DAY_MS, **words) == 0


def test_a_segment_without_times_counts_from_when_it_was_sealed() -> None:
    assert facts(10, max_timestamp_ms=-1, sealed_at_ms=500).newest_ms == 500


def test_size_and_time_each_suffice() -> None:
    sealed = [facts(10, max_timestamp_ms=0), facts(20, max_timestamp_ms=10**9, sealed_at_ms=10**9)]
    config = config_of(retention_ms=1000, retention_bytes=60)

    # The first is too old; without it 150 bytes are left, which is 90 too many, and the second has 100.
    assert expired_count(sealed, active_size=50, high_watermark=20, now_ms=10**9, config=config) == 1


# ---------------------------------------------------------------- in a log


def test_by_size_the_oldest_segments_are_deleted(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=3 * BATCH_BYTES, retention_bytes=4 * BATCH_BYTES) as log:
        fill(log, 11)

        assert log.retain() == 2

        # What is left, 3 and 2 batches, is the least that still holds four.
        assert segment_bases(tmp_path) == [6, 9]
        assert log.log_start_offset == 6
        assert offsets(log.scan()) == list(range(6, 11))
        assert log.retain() == 0


def test_by_time_segments_whose_newest_record_is_too_old_are_deleted(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, segment_bytes=3 * BATCH_BYTES, retention_ms=DAY_MS) as log:
        for _ in range(8):
            log.append(b"0123456789")
            clock.advance(DAY_MS // 4)

        # Segments 0-2 and 3-5 and the active 6-7. It is day 2; offset 2 is of day 0.5, offset 5 of day 1.25.
        assert log.retain() == 1
        assert log.log_start_offset == 3
        clock.advance(DAY_MS // 4)
        assert log.retain() == 0
        clock.advance(1)
        assert log.retain() == 1
        assert segment_bases(tmp_path) == [6]


def test_the_active_segment_is_never_deleted(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, retention_ms=1, retention_bytes=0) as log:
        fill(log, 5)
        clock.advance(1000 * DAY_MS)

        assert log.retain() == 0
        assert offsets(log.scan()) == list(range(5))


def test_with_neither_size_nor_time_nothing_is_deleted(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, segment_bytes=BATCH_BYTES, retention_ms=-1, retention_bytes=-1) as log:
        fill(log, 5)
        clock.advance(10_000 * DAY_MS)

        assert log.retain() == 0


def test_a_record_from_the_future_does_not_keep_its_segment_for_ever(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, segment_bytes=BATCH_BYTES, retention_ms=DAY_MS) as log:
        log.append(b"0123456789", timestamp_ms=START_MS + 1000 * DAY_MS)
        log.append(b"0123456789", timestamp_ms=START_MS)
        log.flush()  # the first segment is sealed at the time it is now
        clock.advance(DAY_MS + 1)

        assert log.retain() == 1
        assert log.log_start_offset == 1


def test_a_record_from_the_past_makes_its_segment_old_but_not_the_active_one(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, segment_bytes=BATCH_BYTES, retention_ms=DAY_MS) as log:
        log.append(b"0123456789", timestamp_ms=0)
        log.append(b"0123456789", timestamp_ms=0)

        assert log.retain() == 1
        assert offsets(log.scan()) == [1]


def test_a_batch_that_compaction_has_emptied_counts_with_the_time_that_it_had(tmp_path: Path) -> None:
    clock = FakeClock()
    old = encode_batch([Record(b"old", timestamp_ms=START_MS - 3 * DAY_MS)])
    raw = old + batch_of(b"", record_count=0, max_timestamp=START_MS)
    with open_log(tmp_path, clock=clock, segment_bytes=len(raw), retention_ms=DAY_MS) as log:
        log.append_batches(raw)
        log.append(b"new")

        assert log.retain() == 0
        clock.advance(DAY_MS + 1)
        assert log.retain() == 1
        assert log.log_start_offset == 2


def test_a_clock_that_jumps_back_deletes_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, segment_bytes=BATCH_BYTES, retention_ms=DAY_MS) as log:
        fill(log, 5)
        clock.jump_to(0)

        assert log.retain() == 0


def test_retention_waits_for_the_high_watermark(tmp_path: Path) -> None:
    words: dict[str, Any] = {"segment_bytes": BATCH_BYTES, "retention_bytes": 0, "high_watermark": "manual"}
    with open_log(tmp_path, **words) as log:
        fill(log, 5)

        assert log.retain() == 0
        log.advance_high_watermark(2)
        assert log.retain() == 2
        assert log.log_start_offset == 2


@pytest.mark.id("retention-below-start")
def test_a_segment_that_came_to_lie_below_the_start_goes_whatever_retention_says(tmp_path: Path) -> None:
    """It was the active one when the start was raised behind its last record, and has been rolled since."""
    with open_log(tmp_path, segment_bytes=2 * BATCH_BYTES) as log:
        fill(log, 2)
        log.delete_before(2)
        assert segment_bases(tmp_path) == [0]
        fill(log, 1)
        assert segment_bases(tmp_path) == [0, 2]

        assert log.retain() == 1
        assert segment_bases(tmp_path) == [2]
        assert (log.log_start_offset, offsets(log.scan())) == (2, [2])


def test_a_segment_that_could_not_be_sealed_keeps_all_behind_it_until_there_is_room(tmp_path: Path) -> None:
    """Goal: when it was sealed decides how long it is kept, and nobody knows that yet."""
    files = FailingFiles("write", ".seal", error=errno.ENOSPC)
    words = {"segment_bytes": 5 * BATCH_BYTES, "retention_bytes": 1}
    with open_log(tmp_path, files=files, **words) as log:
        fill(log, 8)
        log.flush()
        files.fails = True
        fill(log, 10)

        assert log.retain() == 1
        assert segment_bases(tmp_path) == [5, 10, 15]
        files.fails = False
        assert log.retain() == 2
        assert offsets(log.scan()) == [15, 16, 17]


def test_what_retention_deleted_stays_deleted_after_a_reopen(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=BATCH_BYTES, retention_bytes=0) as log:
        fill(log, 5)
        log.retain()

    with open_log(tmp_path) as log:
        assert (log.log_start_offset, offsets(log.scan())) == (4, [4])
    assert {path.name.split(".")[0] for path in tmp_path.glob("0*")} == {f"{4:020d}"}


def test_a_reader_reads_on_in_a_segment_that_is_deleted_under_it(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=3 * BATCH_BYTES, retention_bytes=0) as log:
        fill(log, 7)
        scan = log.scan()
        first = next(scan)
        log.retain()

        assert first.offset == 0
        assert offsets(scan)[:2] == [1, 2]


# ---------------------------------------------------------------- what becomes of old records


@pytest.mark.parametrize(("cleanup_policy", "expired"), [("delete", 3), ("compact,delete", 3), ("compact", 0)])
def test_only_a_policy_that_deletes_deletes(cleanup_policy: str, expired: int) -> None:
    sealed = [facts(10), facts(20), facts(30)]
    config = config_of(cleanup_policy=cleanup_policy, retention_ms=1000, retention_bytes=0)

    assert config.deletes == bool(expired)
    assert expired_count(sealed, active_size=50, high_watermark=35, now_ms=10**9, config=config) == expired


def test_a_log_that_is_compacted_keeps_its_old_segments(tmp_path: Path) -> None:
    clock = FakeClock()
    words: dict[str, Any] = {"segment_bytes": BATCH_BYTES, "retention_ms": 1, "retention_bytes": 0}
    with open_log(tmp_path, clock=clock, cleanup_policy="compact", **words) as log:
        for number in range(5):
            log.append(b"", key=b"%d" % number, timestamp_ms=START_MS)
        clock.advance(1000 * DAY_MS)

        assert (log.roll_if_due(), log.retain()) == (True, 0)
        assert offsets(log.scan()) == list(range(5))


# ---------------------------------------------------------------- rolling without an append


def test_a_segment_is_rolled_when_it_has_spanned_segment_ms(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, segment_ms=1000) as log:
        log.append(b"first")
        clock.advance(600)
        log.append(b"second")
        clock.advance(400)
        assert not log.roll_if_due()
        clock.advance(1)
        assert log.roll_if_due()

        assert segment_bases(tmp_path) == [0, 2]
        assert offsets(log.scan()) == [0, 1]
        assert log.append(b"third") == 2


def test_an_empty_segment_is_never_rolled(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, segment_ms=1, retention_ms=1) as log:
        clock.advance(1000 * DAY_MS)
        assert not log.roll_if_due()
        log.append(b"x")
        clock.advance(1000 * DAY_MS)
        assert [log.roll_if_due() for _ in range(3)] == [True, False, False]
        assert segment_bases(tmp_path) == [0, 1]


def test_a_segment_whose_newest_record_has_expired_is_rolled_and_can_go(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, retention_ms=DAY_MS) as log:
        log.append(b"old")
        clock.advance(DAY_MS // 2)
        log.append(b"newer")
        clock.advance(DAY_MS)
        # The first record is a day and a half old, the newest exactly a day.
        assert not log.roll_if_due()
        clock.advance(1)
        assert log.roll_if_due()
        assert log.retain() == 1

        assert (log.log_start_offset, log.log_end_offset) == (2, 2)
        assert segment_bases(tmp_path) == [2]


@pytest.mark.parametrize("words", [{"retention_ms": -1}, {"retention_ms": 1000, "cleanup_policy": "compact"}], ids=str)
def test_without_deletion_by_time_age_alone_rolls_nothing(tmp_path: Path, words: dict[str, Any]) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, segment_ms=10_000 * DAY_MS, **words) as log:
        log.append(b"", key=b"k")
        clock.advance(1000 * DAY_MS)

        assert not log.roll_if_due()


def test_records_without_a_time_are_not_rolled_by_time(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, segment_ms=1, retention_ms=1) as log:
        log.append(b"x", timestamp_ms=-1)
        clock.advance(1000 * DAY_MS)

        assert not log.roll_if_due()


def test_a_clock_that_jumps_back_rolls_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, segment_ms=1, retention_ms=1) as log:
        log.append(b"x")
        clock.jump_to(0)

        assert not log.roll_if_due()


def test_a_time_of_zero_rolls_what_is_past(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, retention_ms=0) as log:
        log.append(b"x")
        assert not log.roll_if_due()
        clock.advance(1)
        assert log.roll_if_due()


def test_what_was_rolled_is_rolled_after_a_reopen(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, segment_ms=1000) as log:
        log.append(b"x")
        clock.advance(1001)
        log.roll_if_due()
    with open_log(tmp_path, clock=clock, segment_ms=1000) as log:
        assert log.recovery.clean
        assert (log.segment_count, log.log_end_offset) == (2, 1)
        assert not log.roll_if_due()
        assert log.append(b"y") == 1


def test_a_log_remembers_over_a_reopen_when_its_last_segment_began(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, segment_ms=1000) as log:
        log.append(b"x")
    clock.advance(1001)
    with open_log(tmp_path, clock=clock, segment_ms=1000) as log:
        assert log.roll_if_due()


def test_a_closed_log_rolls_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, segment_ms=1) as log:
        log.append(b"x")
        clock.advance(1000)
    with pytest.raises(LogClosed):
        log.roll_if_due()
    assert segment_bases(tmp_path) == [0]
