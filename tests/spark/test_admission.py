"""The size of a stream's batches: Kafka's rules for offsets, the same for bytes, and the wait for a minimum."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from log.workbench import FakeClock
from seeklog import TopicPartition as At
from seeklog.spark.read.admission import MAX_IDLE_S, Pace, TriggerDelay, shares, shorter, within
from seeklog.spark.read.offsets import Range
from spark.streams import Driven, span
from spark.workbench import append, everything, make_store, numbered
from store.workbench import open_store

MINUTE_MS = 60_000


# ---------------------------------------------------------------- the arithmetic


@pytest.mark.parametrize(
    ("sizes", "most", "shared"),
    [
        # The example of Spark's test suite: the smallest gets one, the largest its proportion.
        ([101, 11, 1], 10, [8, 1, 1]),
        ([93, 10], 10, [9, 1]),
        ([10, 10], 8, [4, 4]),
        # Rounded down: three thirds of ten are nine.
        ([5, 5, 5], 10, [3, 3, 3]),
        # More partitions than offsets: still one each.
        ([1, 1, 1, 1], 2, [1, 1, 1, 1]),
        ([1000, 1], 1, [1, 1]),
        ([7], 3, [3]),
        # Floating point would give one less.
        ([3, 97], 100, [3, 97]),
        ([2**62, 2**62], 2**63 - 1, [2**62 - 1, 2**62 - 1]),
    ],
    ids=str,
)
def test_amount_is_divided_in_proportion_with_at_least_one_each(sizes: list[int], most: int, shared: list[int]) -> None:
    assert list(shares(dict(enumerate(sizes)), most).values()) == shared


@given(st.lists(st.integers(1, 2**40), max_size=20), st.integers(1, 2**40))
def test_shares_exceed_amount_only_by_minimum_of_small_partitions(sizes: list[int], most: int) -> None:
    shared = shares(dict(enumerate(sizes)), most)
    assert all(share >= 1 for share in shared.values())
    assert sum(shared.values()) <= most + len(sizes)
    assert list(shared) == list(range(len(sizes)))


def test_backlog_within_limit_is_read_completely() -> None:
    backlog = [Range(At("t", 0), 10, 14), Range(At("t", 1), 0, 4)]
    assert within(backlog, 8) == backlog
    assert within(backlog, 1000) == backlog
    assert within([], 5) == []


def test_bytes_are_divided_like_offsets_and_cut_by_log() -> None:
    backlog = [Range(At("t", 0), 0, 300), Range(At("t", 1), 0, 100)]

    limited = within(
        backlog,
        400,
        size_of=lambda one: 10 * (one.stop - one.start),
        cut=lambda one, most: one.start + most // 10,
    )

    assert [(one.start, one.stop) for one in limited] == [(0, 30), (0, 10)]


def test_shorter_of_two_limits_applies_to_each_partition() -> None:
    one, two = At("t", 0), At("t", 1)
    assert shorter([Range(one, 0, 5), Range(two, 0, 9)], [Range(one, 0, 7), Range(two, 0, 3)]) == [
        Range(one, 0, 5),
        Range(two, 0, 3),
    ]


# ---------------------------------------------------------------- waiting for enough


def test_the_first_batch_does_not_wait() -> None:
    assert TriggerDelay(100, delay_ms=MINUTE_MS, clock=FakeClock()).is_over(1)


def test_a_small_backlog_waits_until_it_is_large_enough() -> None:
    delay = TriggerDelay(100, delay_ms=MINUTE_MS, clock=FakeClock())
    delay.is_over(0)
    assert [delay.is_over(count) for count in (0, 1, 99, 100, 99)] == [False, False, False, True, False]


def test_a_small_backlog_waits_no_longer_than_the_delay() -> None:
    clock = FakeClock()
    delay = TriggerDelay(100, delay_ms=MINUTE_MS, clock=clock)
    delay.is_over(0)
    clock.advance(MINUTE_MS - 1)
    assert not delay.is_over(99)
    clock.advance(1)
    assert delay.is_over(1)
    assert not delay.is_over(99), "the delay counts from the last batch"


def test_full_batch_restarts_delay() -> None:
    clock = FakeClock()
    delay = TriggerDelay(100, delay_ms=MINUTE_MS, clock=clock)
    delay.is_over(0)
    clock.advance(MINUTE_MS - 1)
    assert delay.is_over(100)
    clock.advance(MINUTE_MS - 1)
    assert not delay.is_over(1)


def test_jump_of_wall_clock_does_not_change_wait() -> None:
    clock = FakeClock()
    delay = TriggerDelay(100, delay_ms=MINUTE_MS, clock=clock)
    delay.is_over(0)
    clock.jump_to(clock.now_ms() + 10 * MINUTE_MS)
    assert not delay.is_over(1)
    clock.jump_to(0)
    clock.advance(MINUTE_MS)
    assert delay.is_over(1)


# ---------------------------------------------------------------- how often an idle stream looks


def delay_s(pace: Pace, clock: FakeClock) -> float:
    """Return the delay of the next poll."""
    before = clock.monotonic()
    pace.begin()
    return clock.monotonic() - before


def test_idle_stream_polls_a_fifth_of_its_time_and_every_second() -> None:
    clock = FakeClock()
    pace = Pace(clock)
    assert delay_s(pace, clock) == 0
    for took_ms, put_off_s in [(1, 0.004), (100, 0.4), (2000, MAX_IDLE_S), (0, 0)]:
        clock.advance(took_ms)
        pace.end(is_idle=True)
        assert delay_s(pace, clock) == pytest.approx(put_off_s)


def test_stream_with_backlog_polls_at_once() -> None:
    clock = FakeClock()
    pace = Pace(clock)
    pace.begin()
    clock.advance(100)
    pace.end(is_idle=False)
    assert delay_s(pace, clock) == 0


def test_time_between_polls_counts_as_wait() -> None:
    clock = FakeClock()
    pace = Pace(clock)
    pace.begin()
    clock.advance(100)
    pace.end(is_idle=True)
    clock.advance(300)
    assert delay_s(pace, clock) == pytest.approx(0.1)


# ---------------------------------------------------------------- over a store


def test_limited_batches_equal_those_of_sparks_kafka_source(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"t": [101, 11, 1]})
    stream = Driven(path, subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger=10)

    assert list(islice(stream.batches(), 3)) == [
        [*span("t", 0, 0, 8), *span("t", 1, 0, 1), *span("t", 2, 0, 1)],
        [*span("t", 0, 8, 17), *span("t", 1, 1, 2)],
        [*span("t", 0, 17, 26), *span("t", 1, 2, 3)],
    ]
    assert len(stream.rest()) == 101 + 11 + 1 - 10 - 10 - 10


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": 5}, ReadMaxRows(5)),
        ({"maxBytesPerTrigger": "1k"}, ReadMaxBytes(1024)),
        ({"minOffsetsPerTrigger": 5}, ReadMinRows(5)),
        ({"minOffsetsPerTrigger": 5, "maxOffsetsPerTrigger": 7, "maxBytesPerTrigger": 9}, ReadMaxRows(7)),
    ],
    ids=str,
)
def test_spark_gets_the_limit_in_the_options(tmp_path: Path, options: dict[str, object], limit: object) -> None:
    path = make_store(tmp_path / "store", {"t": [1]})
    assert Driven(path, subscribe="t", **options).limit == limit


def test_read_all_available_ignores_limits(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"t": [30]})
    stream = Driven(path, subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger=3, maxBytesPerTrigger=1)
    stream.limit = ReadAllAvailable()
    assert stream.step() == span("t", 0, 0, 30)


def test_byte_limit_reads_whole_batches_and_at_least_one(tmp_path: Path) -> None:
    # Forty records of 1,000 bytes in batches of two: about every other batch is indexed.
    path = tmp_path / "store"
    with open_store(path, index_interval_bytes=1000) as store:
        store.create_topic("t", partitions=1)
        append(store, "t", numbered(40, size=1000), batch_records=2)
    tight = Driven(path, subscribe="t", startingOffsets="earliest", maxBytesPerTrigger=1)
    batches = list(tight.batches())
    assert all(len(batch) >= 2 for batch in batches)
    assert len(batches) > 5
    assert sorted(row for batch in batches for row in batch) == everything(path, "t")

    wide = Driven(path, subscribe="t", startingOffsets="earliest", maxBytesPerTrigger=10_000)
    # Ten thousand bytes are nine of these records, give or take an index entry.
    sizes = [len(batch) for batch in wide.batches()]
    assert sum(sizes) == 40
    assert all(4 <= size <= 12 for size in sizes[:-1])


def test_smaller_of_offset_and_byte_limit_applies(tmp_path: Path) -> None:
    path = tmp_path / "store"
    with open_store(path, index_interval_bytes=1000) as store:
        store.create_topic("t", partitions=1)
        append(store, "t", numbered(10, size=1000), batch_records=1)
        append(store, "t", numbered(1000, size=10), batch_records=1)
    stream = Driven(path, subscribe="t", startingOffsets="earliest", maxBytesPerTrigger=4000, maxOffsetsPerTrigger=20)
    sizes = [len(batch) for batch in stream.batches()]
    assert sizes[0] <= 5, "the first records are large: the bytes count"
    assert max(sizes) == 20, "the others are small: the offsets count"
    assert sum(sizes) == 1010


def test_stream_waits_for_minimum_then_reads_up_to_maximum(tmp_path: Path) -> None:
    clock = FakeClock()
    path = make_store(tmp_path / "store", {"t": [3]})
    stream = Driven(
        path,
        clock=clock,
        subscribe="t",
        startingOffsets="earliest",
        minOffsetsPerTrigger=10,
        maxOffsetsPerTrigger=12,
        maxTriggerDelay="1m",
    )
    assert stream.step() == span("t", 0, 0, 3), "the first batch does not wait"
    with open_store(path) as store:
        append(store, "t", numbered(9))
        assert stream.step() is None
        append(store, "t", numbered(5))
        assert stream.step() == span("t", 0, 3, 15)
        assert stream.step() is None, "two are left"
        clock.advance(MINUTE_MS)
        assert stream.step() == span("t", 0, 15, 17)


def test_available_now_does_not_wait_for_minimum(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"t": [17]})
    stream = Driven(path, subscribe="t", startingOffsets="earliest", minOffsetsPerTrigger=10, maxOffsetsPerTrigger=10)
    stream.start(available_now=True)
    assert [len(batch) for batch in stream.batches()] == [10, 7]


def test_wait_does_not_change_checkpoint(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"t": [3]})
    stream = Driven(path, clock=FakeClock(), subscribe="t", startingOffsets="earliest", minOffsetsPerTrigger=10)
    stream.step()
    start = json.loads(stream.wal[-1])
    with open_store(path) as store:
        append(store, "t", numbered(1))
        store.add_partitions("t", partitions=2)
    assert stream.reader.latestOffset(start, stream.limit) == start


def test_records_beyond_limit_are_reported_as_latest(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"t": [30, 10]})
    stream = Driven(path, subscribe="t", startingOffsets="earliest", maxOffsetsPerTrigger=4)
    stream.step()
    assert stream.offsets == {At("t", 0): 3, At("t", 1): 1}
    latest = stream.reader.reportLatestOffset()
    assert latest is not None
    assert latest["t"] == {"0": 30, "1": 10}
