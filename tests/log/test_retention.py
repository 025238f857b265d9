"""Retention: which segments may be deleted, as a decision over facts, and in a log with a clock that jumps."""

from __future__ import annotations

import errno
import logging
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
from seeklog.log.clean.retention import SegmentFacts, expired_segments
from seeklog.record.batch import encode_batch

DAY_MS = 24 * 3600 * 1000


def facts(next_offset: int, *, size: int = 100, max_timestamp_ms: int = 0, sealed_at_ms: int = 0) -> SegmentFacts:
    return SegmentFacts(next_offset, size, max_timestamp_ms, sealed_at_ms)


def expired_count(sealed: list[SegmentFacts], **options: Any) -> int:
    return len(expired_segments(sealed, **options))


# ---------------------------------------------------------------- the decision


@pytest.mark.parametrize(
    ("retention_bytes", "expired"),
    [(-1, 0), (0, 3), (50, 3), (51, 2), (150, 2), (151, 1), (250, 1), (251, 0), (350, 0)],
)
def test_size_retention_keeps_at_least_retention_bytes(retention_bytes: int, expired: int) -> None:
    """Three sealed segments of 100 bytes and an active one of 50, which is never deleted."""
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
def test_time_retention_deletes_segment_with_old_newest_record(now_ms: int, expired: int) -> None:
    sealed = [facts(10 * n, max_timestamp_ms=100 * n, sealed_at_ms=10**6) for n in (1, 2, 3)]

    assert (
        expired_count(sealed, active_size=50, high_watermark=35, now_ms=now_ms, config=config_of(retention_ms=1000))
        == expired
    )


def test_retention_ms_of_zero_deletes_everything_past() -> None:
    sealed = [facts(10 * n, max_timestamp_ms=100 * n, sealed_at_ms=10**6) for n in (1, 2, 3)]
    config = config_of(retention_ms=0)

    assert expired_count(sealed, active_size=50, high_watermark=35, now_ms=200, config=config) == 1


def test_decision_names_setting_that_asks_for_each_segment() -> None:
    """Age counts first. Size is that of the log with the segment."""
    sealed = [facts(10, max_timestamp_ms=1), facts(20, max_timestamp_ms=8000), facts(30, max_timestamp_ms=9000)]

    expired = expired_segments(
        sealed,
        active_size=50,
        high_watermark=35,
        now_ms=9000,
        config=config_of(retention_ms=5000, retention_bytes=200),
    )

    assert [(each.facts.next_offset, each.setting, each.limit, each.found) for each in expired] == [
        (10, "retention.ms", 5000, 8999)
    ]
    (large,) = expired_segments(
        sealed, active_size=50, high_watermark=35, now_ms=9000, config=config_of(retention_bytes=250)
    )
    assert (large.setting, large.limit, large.found) == ("retention.bytes", 250, 350)


def test_segment_that_must_stay_keeps_all_after_it() -> None:
    """Only the oldest are deleted, or the log would have a gap."""
    sealed = [facts(10, max_timestamp_ms=9000, sealed_at_ms=9000), facts(20), facts(30)]

    assert (
        expired_count(sealed, active_size=50, high_watermark=35, now_ms=9500, config=config_of(retention_ms=1000)) == 0
    )


@pytest.mark.parametrize(("high_watermark", "expired"), [(0, 0), (9, 0), (10, 1), (29, 2), (30, 3)])
def test_nothing_at_or_above_the_high_watermark_is_deleted(high_watermark: int, expired: int) -> None:
    sealed = [facts(10), facts(20), facts(30)]

    assert (
        expired_count(
            sealed, active_size=50, high_watermark=high_watermark, now_ms=0, config=config_of(retention_bytes=0)
        )
        == expired
    )


@pytest.mark.id("retention-future-record")
def test_record_from_the_future_counts_from_its_segments_sealing() -> None:
    future = facts(10, max_timestamp_ms=START_MS + 1000 * DAY_MS, sealed_at_ms=START_MS)

    for now_ms, expired in ((START_MS + DAY_MS, 0), (START_MS + DAY_MS + 1, 1)):
        assert (
            expired_count(
                [future], active_size=0, high_watermark=10, now_ms=now_ms, config=config_of(retention_ms=DAY_MS)
            )
            == expired
        )


@pytest.mark.id("retention-unset-clock")
def test_segment_sealed_before_the_clock_was_set_counts_by_its_records() -> None:
    """Goal: a machine that booted in 1970 and then set its clock deletes no fresh records."""
    fresh = facts(10, max_timestamp_ms=START_MS, sealed_at_ms=60_000)
    options: dict[str, Any] = {"active_size": 0, "high_watermark": 10, "config": config_of(retention_ms=DAY_MS)}

    assert expired_count([fresh], now_ms=START_MS + DAY_MS, **options) == 0
    assert expired_count([fresh], now_ms=START_MS + DAY_MS + 1, **options) == 1


@pytest.mark.parametrize("is_stamped", [True, False])
def test_segment_sealed_in_the_future_counts_like_the_next_one(is_stamped: bool) -> None:
    """Goal: a wrong clock that was corrected neither keeps records for years nor deletes any too early."""
    years_ms = START_MS + 1000 * DAY_MS
    sealed = [
        facts(10, max_timestamp_ms=years_ms if is_stamped else -1, sealed_at_ms=years_ms),
        facts(20, max_timestamp_ms=years_ms if is_stamped else -1, sealed_at_ms=years_ms + 5),
        facts(30, max_timestamp_ms=START_MS, sealed_at_ms=START_MS),
    ]
    options: dict[str, Any] = {"active_size": 0, "high_watermark": 30, "config": config_of(retention_ms=DAY_MS)}

    assert expired_count(sealed, now_ms=START_MS + DAY_MS, **options) == 0
    assert expired_count(sealed, now_ms=START_MS + DAY_MS + 1, **options) == 3
    # With no segment after them, only their own times count.
    assert expired_count(sealed[:2], now_ms=START_MS + 2 * DAY_MS, **options) == 0


def test_segment_without_timestamps_counts_from_its_sealing() -> None:
    assert facts(10, max_timestamp_ms=-1, sealed_at_ms=500).newest_ms == 500


def test_size_or_time_alone_suffices() -> None:
    sealed = [facts(10, max_timestamp_ms=0), facts(20, max_timestamp_ms=10**9, sealed_at_ms=10**9)]
    config = config_of(retention_ms=1000, retention_bytes=60)

    # The first is too old; without it 150 bytes are left, which is 90 too many, and the second has 100.
    assert expired_count(sealed, active_size=50, high_watermark=20, now_ms=10**9, config=config) == 1


# ---------------------------------------------------------------- in a log


def test_size_retention_deletes_the_oldest_segments(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=3 * BATCH_BYTES, retention_bytes=4 * BATCH_BYTES) as log:
        fill(log, 11)

        assert log.retain() == 2

        # The rest, 3 and 2 batches, is the smallest that still contains four.
        assert segment_bases(tmp_path) == [6, 9]
        assert log.log_start_offset == 6
        assert offsets(log.scan()) == list(range(6, 11))
        assert log.retain() == 0


def test_time_retention_deletes_segments_with_old_newest_records(tmp_path: Path) -> None:
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


def test_active_segment_is_never_deleted(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, retention_ms=1, retention_bytes=0) as log:
        fill(log, 5)
        clock.advance(1000 * DAY_MS)

        assert log.retain() == 0
        assert offsets(log.scan()) == list(range(5))


def test_nothing_is_deleted_without_size_or_time(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, segment_bytes=BATCH_BYTES, retention_ms=-1, retention_bytes=-1) as log:
        fill(log, 5)
        clock.advance(10_000 * DAY_MS)

        assert log.retain() == 0


def test_record_from_the_future_does_not_keep_its_segment_forever(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, segment_bytes=BATCH_BYTES, retention_ms=DAY_MS) as log:
        log.append(b"0123456789", timestamp_ms=START_MS + 1000 * DAY_MS)
        log.append(b"0123456789", timestamp_ms=START_MS)
        log.flush()  # seals the first segment at the current time
        clock.advance(DAY_MS + 1)

        assert log.retain() == 1
        assert log.log_start_offset == 1


def test_record_from_the_past_ages_only_sealed_segments(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, segment_bytes=BATCH_BYTES, retention_ms=DAY_MS) as log:
        log.append(b"0123456789", timestamp_ms=0)
        log.append(b"0123456789", timestamp_ms=0)

        assert log.retain() == 1
        assert offsets(log.scan()) == [1]


def test_batch_emptied_by_compaction_keeps_its_time(tmp_path: Path) -> None:
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


def test_clock_that_jumps_back_deletes_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, segment_bytes=BATCH_BYTES, retention_ms=DAY_MS) as log:
        fill(log, 5)
        clock.jump_to(0)

        assert log.retain() == 0


def test_retention_waits_for_the_high_watermark(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"segment_bytes": BATCH_BYTES, "retention_bytes": 0, "high_watermark": "manual"}
    with open_log(tmp_path, **settings) as log:
        fill(log, 5)

        assert log.retain() == 0
        log.advance_high_watermark(2)
        assert log.retain() == 2
        assert log.log_start_offset == 2


@pytest.mark.id("retention-below-start")
def test_segment_below_the_start_is_deleted_regardless_of_retention(tmp_path: Path) -> None:
    """It was active when the start was raised past its last record, and has been rolled since."""
    with open_log(tmp_path, segment_bytes=2 * BATCH_BYTES) as log:
        fill(log, 2)
        log.delete_before(2)
        assert segment_bases(tmp_path) == [0]
        fill(log, 1)
        assert segment_bases(tmp_path) == [0, 2]

        assert log.retain() == 1
        assert segment_bases(tmp_path) == [2]
        assert (log.log_start_offset, offsets(log.scan())) == (2, [2])


def test_unsealed_segment_keeps_all_after_it_until_there_is_room(tmp_path: Path) -> None:
    """Goal: the time of sealing decides how long it is kept, and is not known yet."""
    files = FailingFiles("write", ".seal", error=errno.ENOSPC)
    settings = {"segment_bytes": 5 * BATCH_BYTES, "retention_bytes": 1}
    with open_log(tmp_path, files=files, **settings) as log:
        fill(log, 8)
        log.flush()
        files.fails = True
        fill(log, 10)

        assert log.retain() == 1
        assert segment_bases(tmp_path) == [5, 10, 15]
        files.fails = False
        assert log.retain() == 2
        assert offsets(log.scan()) == [15, 16, 17]


def test_deleted_segments_stay_deleted_after_a_reopen(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=BATCH_BYTES, retention_bytes=0) as log:
        fill(log, 5)
        log.retain()

    with open_log(tmp_path) as log:
        assert (log.log_start_offset, offsets(log.scan())) == (4, [4])
    assert {path.name.split(".")[0] for path in tmp_path.glob("0*")} == {f"{4:020d}"}


def test_reader_finishes_a_segment_deleted_during_the_read(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=3 * BATCH_BYTES, retention_bytes=0) as log:
        fill(log, 7)
        scan = log.scan()
        first = next(scan)
        log.retain()

        assert first.offset == 0
        assert offsets(scan)[:2] == [1, 2]


# ---------------------------------------------------------------- cleanup policies


@pytest.mark.parametrize(("cleanup_policy", "expired"), [("delete", 3), ("compact,delete", 3), ("compact", 0)])
def test_only_a_delete_policy_deletes(cleanup_policy: str, expired: int) -> None:
    sealed = [facts(10), facts(20), facts(30)]
    config = config_of(cleanup_policy=cleanup_policy, retention_ms=1000, retention_bytes=0)

    assert config.deletes == bool(expired)
    assert expired_count(sealed, active_size=50, high_watermark=35, now_ms=10**9, config=config) == expired


def test_compacted_log_keeps_its_old_segments(tmp_path: Path) -> None:
    clock = FakeClock()
    settings: dict[str, Any] = {"segment_bytes": BATCH_BYTES, "retention_ms": 1, "retention_bytes": 0}
    with open_log(tmp_path, clock=clock, cleanup_policy="compact", **settings) as log:
        for number in range(5):
            log.append(b"", key=b"%d" % number, timestamp_ms=START_MS)
        clock.advance(1000 * DAY_MS)

        assert (log.roll_if_due(), log.retain()) == (True, 0)
        assert offsets(log.scan()) == list(range(5))


# ---------------------------------------------------------------- rolling without an append


def test_segment_rolls_after_spanning_segment_ms(tmp_path: Path) -> None:
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


def test_empty_segment_is_never_rolled(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, segment_ms=1, retention_ms=1) as log:
        clock.advance(1000 * DAY_MS)
        assert not log.roll_if_due()
        log.append(b"x")
        clock.advance(1000 * DAY_MS)
        assert [log.roll_if_due() for _ in range(3)] == [True, False, False]
        assert segment_bases(tmp_path) == [0, 1]


def test_expired_active_segment_is_rolled_and_can_be_deleted(tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    "settings", [{"retention_ms": -1}, {"retention_ms": 1000, "cleanup_policy": "compact"}], ids=str
)
def test_age_alone_rolls_nothing_without_time_retention(tmp_path: Path, settings: dict[str, Any]) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, segment_ms=10_000 * DAY_MS, **settings) as log:
        log.append(b"", key=b"k")
        clock.advance(1000 * DAY_MS)

        assert not log.roll_if_due()


def test_records_without_timestamp_are_not_rolled_by_time(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, segment_ms=1, retention_ms=1) as log:
        log.append(b"x", timestamp_ms=-1)
        clock.advance(1000 * DAY_MS)

        assert not log.roll_if_due()


def test_clock_that_jumps_back_rolls_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, segment_ms=1, retention_ms=1) as log:
        log.append(b"x")
        clock.jump_to(0)

        assert not log.roll_if_due()


def test_retention_ms_of_zero_rolls_past_records(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, retention_ms=0) as log:
        log.append(b"x")
        assert not log.roll_if_due()
        clock.advance(1)
        assert log.roll_if_due()


def test_roll_survives_a_reopen(tmp_path: Path) -> None:
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


def test_start_time_of_last_segment_survives_a_reopen(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, segment_ms=1000) as log:
        log.append(b"x")
    clock.advance(1001)
    with open_log(tmp_path, clock=clock, segment_ms=1000) as log:
        assert log.roll_if_due()


# ---------------------------------------------------------------- the report


def test_deletion_is_logged_with_offsets_age_and_setting(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock()
    settings: dict[str, Any] = {"segment_bytes": 3 * BATCH_BYTES, "retention_ms": DAY_MS, "retention_bytes": 234}
    with open_log(tmp_path, clock=clock, **settings) as log:
        fill(log, 9)
        clock.jump_to(START_MS + DAY_MS + 3000)
        with caplog.at_level(logging.INFO, "seeklog"):
            assert log.retain() == 2

    old = "their newest record is 1 day, 0:00:01 old and retention.ms=86400000 of the log"
    large = "the log had 468 bytes and retention.bytes=234 of the log"
    assert caplog.messages == [
        f"{tmp_path}: retention deleted offsets 0 to 2 (234 bytes in 1 segment), because {old}",
        f"{tmp_path}: retention deleted offsets 3 to 5 (234 bytes in 1 segment), because {large}",
    ]


def test_retention_that_deletes_nothing_logs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_log(tmp_path, segment_bytes=3 * BATCH_BYTES, retention_ms=DAY_MS) as log:
        fill(log, 9)
        with caplog.at_level(logging.INFO, "seeklog"):
            assert log.retain() == 0

    assert caplog.messages == []


def test_closed_log_rolls_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_log(tmp_path, clock=clock, segment_ms=1) as log:
        log.append(b"x")
        clock.advance(1000)
    with pytest.raises(LogClosed):
        log.roll_if_due()
    assert segment_bases(tmp_path) == [0]
