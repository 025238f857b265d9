"""Compaction of one log: which records stay, which segments are left alone, and when compaction is due."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from log.compacting import DAY_MS, MORE, active_base, churn, everything, latest, open_compacted, put
from log.workbench import START_MS, FakeClock, contents, open_log, segment_bases
from seeklog import LogConfig, Record
from seeklog.clients.log_writer import LogWriter
from seeklog.errors import InvalidConfig, InvalidRecord, UsageError
from seeklog.log.clean.compaction import SegmentFacts, assess, can_join
from seeklog.record.batch import encode_batch
from seeklog.record.segment_state import SegmentState

# ---------------------------------------------------------------- records that stay


@pytest.mark.id("compaction-keeps-latest")
@pytest.mark.parametrize("codec", MORE)
def test_latest_record_of_each_key_keeps_its_offset(tmp_path: Path, codec: str) -> None:
    with open_compacted(tmp_path, compression_type=codec) as log:
        churn(log, 200)
        before = everything(log)
        done = log.compact()
        expected = latest(before, below=active_base(tmp_path))

        assert everything(log) == expected
        assert list(log.scan_reverse()) == expected[::-1]
        assert log.scan_arrow(columns=["offset"]).read_all()["offset"].to_pylist() == [each.offset for each in expected]
        assert (done.records_before - done.records_after) == len(before) - len(expected)
        assert done.segments_after == 1
        assert done.rounds == 1
        assert done.bytes_after < done.bytes_before
        assert done.first_dirty_offset == active_base(tmp_path)
        for record in expected:
            assert list(log.read(record.offset, max_records=1)) == [record]
            assert log.offset_at_time(START_MS) == expected[0].offset
        assert (log.log_start_offset, log.log_end_offset) == (0, len(before))
    with open_compacted(tmp_path) as log:
        assert log.recovery.clean
        assert everything(log) == expected


@pytest.mark.parametrize("seed", range(12))
def test_compacted_log_equals_dict_for_any_workload(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    clock = FakeClock()
    settings = {
        "compression_type": chance.choice(MORE),
        "segment_bytes": chance.choice([400, 900, 5000]),
        "message_timestamp_type": chance.choice(["CreateTime", "LogAppendTime"]),
    }
    buffer_bytes = chance.choice([20 * 20, 1 << 20])
    values: dict[bytes | None, bytes | None] = {}
    log = open_compacted(tmp_path, clock=clock, **settings)
    for step in range(12):
        churn(log, chance.randrange(60), keys=chance.choice([3, 14]), seed=chance.randrange(10**6), tombstones=0.2)
        before = everything(log)
        log.compact(buffer_bytes=buffer_bytes)
        after = everything(log)
        assert set(after) <= set(before)
        values = {record.key: record.value for record in before}
        kept = {record.key: record.value for record in after}
        assert {key: value for key, value in values.items() if value is not None} == {
            key: value for key, value in kept.items() if value is not None
        }
        clock.advance(chance.choice([0, DAY_MS // 2, 2 * DAY_MS]))
        if step % 4 == 3:
            log.close()
            log = open_compacted(tmp_path, clock=clock, **settings)
            assert everything(log) == after
    log.close()


def test_more_keys_than_buffer_holds_take_more_rounds(tmp_path: Path) -> None:
    with open_compacted(tmp_path) as log:
        for _ in range(2):
            for number in range(100):
                put(log, f"key {number}", b"value")
        before = everything(log)
        done = log.compact(buffer_bytes=25 * 20)

        assert done.rounds > 5
        assert everything(log) == latest(before, below=active_base(tmp_path))
        assert done.first_dirty_offset == active_base(tmp_path)


def test_segment_with_more_keys_than_buffer_holds_is_compacted_in_parts(tmp_path: Path) -> None:
    with open_compacted(tmp_path, segment_bytes=50_000) as log:
        for _ in range(3):
            for number in range(150):
                put(log, f"key {number}", b"value")
        log.append(bytes(49_000), key=b"the rest")
        before = everything(log)
        assert len(segment_bases(tmp_path)) == 2
        done = log.compact(buffer_bytes=100 * 20)

        assert done.rounds > 3
        assert everything(log) == latest(before, below=active_base(tmp_path))


def test_batch_with_more_keys_than_buffer_holds_is_refused(tmp_path: Path) -> None:
    with open_compacted(tmp_path, segment_bytes=5000) as log:
        log.append_many([Record(b"v", key=b"%d" % number) for number in range(50)])
        log.append(bytes(4500), key=b"roll")
        log.flush()
        before = contents(tmp_path)
        with pytest.raises(UsageError, match="offset 0 has more keys than fit in a buffer of 400 bytes; pass a larger"):
            log.compact(buffer_bytes=400)
        assert contents(tmp_path) == before
        with pytest.raises(UsageError, match="at least"):
            log.compact(buffer_bytes=39)


def test_repeated_compaction_changes_no_file(tmp_path: Path) -> None:
    with open_compacted(tmp_path) as log:
        churn(log, 300)
        log.compact()
        log.compact()  # merges segments that became small enough when they were copied
        before = contents(tmp_path)
        done = log.compact()

        assert contents(tmp_path) == before
        assert done.removed_records == 0


def test_tombstones_are_removed_after_their_delete_horizon(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_compacted(tmp_path, clock=clock, delete_retention_ms=DAY_MS) as log:
        put(log, "a", b"old")
        put(log, "a", None)
        put(log, "b", b"kept")
        log.append(bytes(600), key=b"roll")
        log.append(bytes(600), key=b"roll again")
        log.compact()
        assert [(record.key, record.value) for record in everything(log)][:2] == [(b"a", None), (b"b", b"kept")]
        clock.advance(DAY_MS - 1)
        log.compact()
        assert everything(log)[0].value is None
        clock.advance(1)
        log.compact()
        assert everything(log)[0].key == b"b"
        # The record has the timestamp of its append. The delete horizon in the header is not a record's time.
        assert everything(log)[0].timestamp_ms == START_MS


def test_clock_that_jumps_back_keeps_tombstones_longer(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_compacted(tmp_path, clock=clock) as log:
        put(log, "a", None)
        log.append(bytes(600), key=b"roll")
        clock.jump_to(START_MS + 100 * DAY_MS)
        log.compact()
        clock.jump_to(START_MS)
        log.compact()
        clock.advance(50 * DAY_MS)
        log.compact()
        assert everything(log)[0].value is None


def test_old_records_without_key_are_removed_and_counted(tmp_path: Path) -> None:
    with open_log(tmp_path, segment_bytes=300) as log:
        for _ in range(10):
            log.append(b"no key")
    with open_compacted(tmp_path) as log:
        log.append(bytes(600), key=b"roll")
        done = log.compact()
        assert done.keyless_records > 0
        assert [record for record in everything(log) if record.offset < active_base(tmp_path)] == []
        assert log.log_start_offset == 0


def test_last_batch_of_producer_keeps_at_least_its_header(tmp_path: Path) -> None:
    with open_compacted(tmp_path) as log:
        for sequence in range(2):
            one = [Record(b"v", key=b"a", timestamp_ms=START_MS)]
            log.append_batches(encode_batch(one, producer_id=9, producer_epoch=0, base_sequence=sequence))
        for _ in range(20):
            put(log, "a", b"value")
        log.compact()
        batches = list(log.read_batches(0))
        assert (batches[0].base_offset, batches[0].record_count) == (1, 0)
        assert batches[0].header.base_sequence == 1


# ---------------------------------------------------------------- segments that are left alone


def test_active_segment_and_records_above_watermark_are_not_compacted(tmp_path: Path) -> None:
    with open_compacted(tmp_path, high_watermark="manual") as log:
        churn(log, 200)
        bases = segment_bases(tmp_path)
        log.advance_high_watermark(bases[3] + 1)
        before = list(log.read_uncommitted(0, max_records=1000))
        done = log.compact()
        assert done.first_dirty_offset == bases[3]
        assert list(log.read_uncommitted(0, max_records=1000)) == latest(before, below=bases[3])


def test_compact_is_refused_without_compact_policy(tmp_path: Path) -> None:
    with open_log(tmp_path) as log, pytest.raises(UsageError, match=r'its cleanup\.policy is "delete"; set it to'):
        log.compact()


@pytest.mark.id("compaction-needs-keys")
@pytest.mark.parametrize("codec", MORE)
def test_every_kind_of_append_refuses_record_without_key(tmp_path: Path, codec: str) -> None:
    with open_compacted(tmp_path, compression_type=codec) as log:
        put(log, "a", b"v")
        log.flush()
        before = contents(tmp_path)
        keyed, keyless = Record(b"v", key=b""), Record(b"v")
        with pytest.raises(InvalidRecord, match="is compacted: a record needs a key; nothing was written"):
            log.append(b"v")
        with pytest.raises(InvalidRecord, match="needs a key"):
            log.append_many([keyed, keyless])
        with pytest.raises(InvalidRecord, match="record 1 of the batch at byte 0 has no key; nothing was written"):
            log.append_batches(encode_batch([keyed, keyless], now_ms=START_MS, codec=MORE.index(codec)))
        with LogWriter(log) as writer, pytest.raises(InvalidRecord, match="needs a key"):
            writer.append(b"v")
        assert contents(tmp_path) == before
        assert log.append_many([keyed]) == range(1, 2)


# ---------------------------------------------------------------- decisions


def facts(base: int, end: int, **settings: Any) -> SegmentFacts:
    return replace(SegmentFacts(base, end, 100, end - base, base, START_MS, START_MS), **settings)


@pytest.mark.parametrize(
    ("sealed", "settings", "expected"),
    [
        ([], {}, (500, 500, 0, 0, 0)),
        ([facts(0, 10), facts(10, 20)], {}, (0, 20, 0, 200, 0)),
        ([facts(0, 10, clean_offset=10), facts(10, 20)], {}, (10, 20, 100, 100, 0)),
        ([facts(0, 10, clean_offset=10), facts(10, 20, clean_offset=15)], {}, (15, 20, 100, 100, 0)),
        # If a seal is lost, everything after it is dirty: a tombstone must not go before the records that it deletes.
        ([facts(0, 10), facts(10, 20, clean_offset=20)], {}, (0, 20, 0, 200, 0)),
        ([facts(0, 10), facts(10, 600)], {}, (0, 10, 0, 100, 0)),
        ([facts(0, 10, max_timestamp_ms=0), facts(10, 20)], {"min_compaction_lag_ms": 5}, (0, 10, 0, 100, 0)),
        ([facts(0, 10)], {"max_compaction_lag_ms": 3}, (0, 10, 0, 100, 1)),
        ([facts(0, 10)], {"max_compaction_lag_ms": 4}, (0, 10, 0, 100, 0)),
        ([facts(0, 10, first_timestamp_ms=2**62)], {"max_compaction_lag_ms": 3}, (0, 10, 0, 100, 0)),
        ([facts(0, 10, first_timestamp_ms=-1)], {"max_compaction_lag_ms": 3}, (0, 10, 0, 100, 0)),
    ],
)
def test_choice_of_segments_to_compact(
    sealed: list[SegmentFacts], settings: dict[str, Any], expected: tuple[int, ...]
) -> None:
    found = assess(sealed, stop_offset=500, now_ms=START_MS + 4, config=LogConfig(**settings))
    assert (
        found.first_dirty_offset,
        found.first_uncleanable_offset,
        found.clean_bytes,
        found.dirty_bytes,
        found.overdue_ms,
    ) == expected


def test_compaction_is_due_above_dirty_ratio_or_with_overdue_record() -> None:
    half = [facts(0, 10, clean_offset=10), facts(10, 20)]
    for settings, is_due in (
        ({}, False),
        ({"min_cleanable_dirty_ratio": 0.49}, True),
        ({"max_compaction_lag_ms": 1}, True),
    ):
        config = LogConfig(**settings)
        assert assess(half, stop_offset=20, now_ms=START_MS + 4, config=config).is_due(config) is is_due
    config = LogConfig(min_cleanable_dirty_ratio=0)
    assert not assess(half[:1], stop_offset=20, now_ms=START_MS, config=config).is_due(config)


@pytest.mark.parametrize(
    ("settings", "can"),
    [
        ({}, True),
        ({"size": 1000 - 148}, True),
        ({"size": 1000 - 147}, False),
        ({"offset_index_size": 92}, True),
        ({"offset_index_size": 93}, False),
        ({"time_index_size": 88}, True),
        ({"time_index_size": 89}, False),
        ({"next_offset": 5 + 2**31}, True),
        ({"next_offset": 6 + 2**31}, False),
    ],
)
def test_segments_are_merged_within_limits_of_one_segment(settings: dict[str, Any], can: bool) -> None:
    config = LogConfig(segment_bytes=1000, segment_index_bytes=100)
    state = SegmentState(
        5, interval_bytes=0, interval_records=1, segment_bytes=1000, segment_ms=1, segment_index_bytes=100
    )
    # Two batches of 74 bytes, the second one indexed.
    for offset in (5, 6):
        state.append(encode_batch([Record(b"123456", key=b"", timestamp_ms=START_MS + offset)], base_offset=offset))
    assert (state.size, len(state.offset_table), len(state.time_table)) == (148, 8, 12)
    assert can_join(state, facts(6, 7, **settings), config) is can


def test_compact_if_due_waits_for_dirty_ratio(tmp_path: Path) -> None:
    with open_compacted(tmp_path) as log:
        churn(log, 100)
        assert log.compact_if_due().rounds == 1
        assert log.compact_if_due().rounds == 0


def test_overdue_record_rolls_active_segment_and_is_compacted(tmp_path: Path) -> None:
    clock = FakeClock()
    settings = {"max_compaction_lag_ms": 1000, "min_cleanable_dirty_ratio": 1.0, "segment_bytes": 5000}
    with open_compacted(tmp_path, clock=clock, **settings) as log:
        put(log, "a", b"1")
        put(log, "a", b"2")
        clock.advance(1001)
        assert log.roll_if_due()
        assert log.compact_if_due().removed_records == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"min_cleanable_dirty_ratio": 1.5},
        {"min_cleanable_dirty_ratio": "half"},
        {"min_cleanable_dirty_ratio": True},
        {"min_compaction_lag_ms": 5, "max_compaction_lag_ms": 4},
        {"max_compaction_lag_ms": 0},
        {"delete_retention_ms": -1},
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig):
        LogConfig.from_mapping(settings)


def test_kafka_settings_may_be_text() -> None:
    config = LogConfig.from_mapping({"min.cleanable.dirty.ratio": "0.25", "delete.retention.ms": "1"})
    assert (config.min_cleanable_dirty_ratio, config.delete_retention_ms) == (0.25, 1)
