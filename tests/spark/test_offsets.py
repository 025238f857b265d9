"""The start and end offsets of a read in each partition, as in Spark's Kafka source."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from log.workbench import START_MS, FakeClock
from seeklog import Record, Store
from seeklog.errors import DataLoss, InvalidConfig, TopicNotFound
from seeklog.names import TopicPartition
from seeklog.spark.read.offsets import (
    Bounds,
    Range,
    batch_ranges,
    end_offsets,
    find_bounds,
    kept_range,
    report_loss,
    start_offsets,
)
from seeklog.spark.read.options import Choice, parse_read_options, parse_stream_options
from seeklog.spark.read.position import decode_offsets, encode_offsets
from spark.workbench import append, make_store, numbered
from store.workbench import open_store

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Topic a with 100 and 50 records, a second apart; b with 10; and an empty one."""
    return make_store(tmp_path_factory.mktemp("offsets") / "store", {"a": [100, 50], "b": [10], "empty": [0]})


@pytest.fixture(scope="module")
def store(path: Path) -> Iterator[Store]:
    with open_store(path, read_only=True) as store:
        yield store


def ranges(store: Store, clock: FakeClock | None = None, **settings: str) -> dict[TopicPartition, tuple[int, int]]:
    options = parse_read_options({"path": str(store.path), "subscribe": "a", **settings})
    return {one.partition: (one.start, one.stop) for one in batch_ranges(store, options, clock=clock)}


# ---------------------------------------------------------------- Kafka's JSON


def test_offsets_are_written_as_kafka_writes_them_in_order() -> None:
    encoded = encode_offsets({TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3})

    assert json.dumps(encoded) == '{"a": {"0": 3}, "b": {"9": 2, "10": 1}}'
    assert encode_offsets({}) == {}


def test_encoded_offsets_decode_to_the_same() -> None:
    offsets = {TopicPartition("t", number): number * 7 for number in range(12)}

    assert decode_offsets(json.loads(json.dumps(encode_offsets(offsets)))) == offsets


# ---------------------------------------------------------------- bounds


@pytest.mark.parametrize(
    ("choice", "found"),
    [
        (Choice(topics=("a",)), [A0, A1]),
        (Choice(topics=("a", "b")), [A0, A1, B0]),
        (Choice(partitions=(A1, B0)), [A1, B0]),
        (Choice(pattern="[ab]"), [A0, A1, B0]),
        (Choice(pattern="a|nothing"), [A0, A1]),
        (Choice(pattern="nothing.*"), []),
        (Choice(pattern="e"), []),  # the whole name must match
        (Choice(), [A0, A1, B0, TopicPartition("empty", 0)]),
    ],
)
def test_partitions_are_found_in_order(store: Store, choice: Choice, found: list[TopicPartition]) -> None:
    assert list(find_bounds(store, choice)) == found


def test_bounds_are_the_readable_offsets(store: Store) -> None:
    bounds = find_bounds(store, Choice(topics=("a",)))

    assert bounds[A0][:2] == (0, 100)
    assert bounds[A1][:2] == (0, 50)
    assert bounds[A0].topic_id == store.describe_topic("a").topic_id


@pytest.mark.parametrize("choice", [Choice(topics=("a", "none")), Choice(partitions=(TopicPartition("none", 0),))])
def test_named_topic_must_exist(store: Store, choice: Choice) -> None:
    with pytest.raises(TopicNotFound, match="none"):
        find_bounds(store, choice)


def test_named_partition_must_exist(store: Store) -> None:
    with pytest.raises(TopicNotFound, match="topic 'a' has no partition 2; it has 0, 1"):
        find_bounds(store, Choice(partitions=(TopicPartition("a", 2),)))


def test_internal_topics_are_read_only_by_name(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.create_topic("a", partitions=1)
        append(store, "a", numbered(1))
        with store.consumer(["a"], group="g", auto_offset_reset="earliest") as consumer:
            consumer.poll(1000)
            consumer.commit()
        assert {at.topic for at in find_bounds(store, Choice(pattern=".*"))} == {"a"}
        assert {at.topic for at in find_bounds(store, Choice(topics=("__consumer_offsets",)))} == {"__consumer_offsets"}


# ---------------------------------------------------------------- a batch's range


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {A0: (0, 100), A1: (0, 50)}),
        ({"startingOffsets": "-30"}, {A0: (70, 100), A1: (20, 50)}),
        ({"startingOffsets": "-70"}, {A0: (30, 100), A1: (0, 50)}),
        ({"endingOffsets": "-30"}, {A0: (0, 70), A1: (0, 20)}),
        ({"startingOffsets": "-30", "endingOffsets": "-20"}, {A0: (70, 80), A1: (20, 30)}),
        # Partitions that are not named have the default.
        *(
            ({f"{side}Offsets{how}": none}, {A0: (0, 100), A1: (0, 50)})
            for side in ("starting", "ending")
            for how in ("", "ByTimestamp")
            for none in ("{}", '{"a": {}}')
        ),
        ({"startingOffsets": '{"a": {"0": 23}}'}, {A0: (23, 100), A1: (0, 50)}),
        ({"startingOffsets": '{"a": {"0": -2, "1": 49}}'}, {A0: (0, 100), A1: (49, 50)}),
        ({"endingOffsets": '{"a": {"0": 5}}'}, {A0: (0, 5), A1: (0, 50)}),
        ({"endingOffsets": '{"a": {"0": -1, "1": 0}}'}, {A0: (0, 100)}),
        # A start at the end is an empty range, which is left out.
        ({"startingOffsets": '{"a": {"0": 100}}'}, {A1: (0, 50)}),
        ({"startingTimestamp": str(START_MS + 20_000)}, {A0: (20, 100), A1: (20, 50)}),
        ({"startingTimestamp": str(START_MS + 19_001)}, {A0: (20, 100), A1: (20, 50)}),
        # An end by time is the first record that is not before it.
        ({"endingTimestamp": str(START_MS + 20_000)}, {A0: (0, 20), A1: (0, 20)}),
        ({"endingTimestamp": str(START_MS + 20_001)}, {A0: (0, 21), A1: (0, 21)}),
        ({"endingTimestamp": str(START_MS + 70_000)}, {A0: (0, 70), A1: (0, 50)}),
        (
            {"startingTimestamp": str(START_MS + 10_000), "endingTimestamp": str(START_MS + 20_000)},
            {A0: (10, 20), A1: (10, 20)},
        ),
        (
            {"startingOffsetsByTimestamp": json.dumps({"a": {"1": START_MS + 40_000}})},
            {A0: (0, 100), A1: (40, 50)},
        ),
        (
            {"endingOffsetsByTimestamp": json.dumps({"a": {"1": START_MS + 40_000}})},
            {A0: (0, 100), A1: (0, 40)},
        ),
        (
            {"startingTimestamp": str(START_MS + 70_000), "startingOffsetsByTimestampStrategy": "latest"},
            {A0: (70, 100)},
        ),
    ],
)
def test_batch_reads_from_start_to_end(
    store: Store, settings: dict[str, str], expected: dict[TopicPartition, tuple[int, int]]
) -> None:
    assert ranges(store, **settings) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # The clock is 100 seconds after the first record.
        ({"startingOffsets": "-30s"}, {A0: (70, 100)}),
        ({"startingTimestamp": "-80 seconds"}, {A0: (20, 100), A1: (20, 50)}),
        ({"startingTimestamp": "-1 week"}, {A0: (0, 100), A1: (0, 50)}),
        ({"endingOffsets": "-80s"}, {A0: (0, 20), A1: (0, 20)}),
        ({"startingOffsets": "-1ms"}, {}),
    ],
)
def test_a_relative_time_counts_back_from_now(
    store: Store, settings: dict[str, str], expected: dict[TopicPartition, tuple[int, int]]
) -> None:
    assert ranges(store, clock=FakeClock(START_MS + 100_000), **settings) == expected


def test_start_after_the_last_timestamp_is_refused(store: Store) -> None:
    with pytest.raises(InvalidConfig) as caught:
        ranges(store, startingTimestamp=str(START_MS + 70_000))

    assert str(caught.value) == (
        f"option startingTimestamp: no record of a-1 has timestamp {START_MS + 70_000} (2023-11-14T22:14:30.000+00:00) "
        "or later; set an earlier one, or startingOffsetsByTimestampStrategy=latest to start such a partition at its "
        "end"
    )


def test_relative_start_is_strict_only_on_request(store: Store) -> None:
    with pytest.raises(InvalidConfig, match="no record of a-1"):
        ranges(
            store,
            clock=FakeClock(START_MS + 100_000),
            startingTimestamp="-30s",
            startingOffsetsByTimestampStrategy="error",
        )


@pytest.mark.parametrize(
    "settings",
    [
        {"startingOffsets": '{"a": {"0": 50}}', "endingOffsets": '{"a": {"0": 40}}'},
        {"startingOffsets": '{"a": {"0": 101}}'},
        {"startingOffsets": "-10", "endingOffsets": "-20"},
        {"startingTimestamp": str(START_MS + 30_000), "endingTimestamp": str(START_MS + 20_000)},
    ],
)
def test_start_after_end_is_refused(store: Store, settings: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig, match=r"\[RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET\] a-0 "):
        ranges(store, **settings)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("startingOffsets", '{"b": {"0": 1}}'),
        ("endingOffsets", '{"a": {"2": 1}}'),
        ("startingOffsetsByTimestamp", '{"a": {"7": 1}}'),
    ],
)
def test_offsets_of_partitions_that_are_not_read_are_refused(store: Store, option: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=rf"option {option} names [ab]-\d, which is not among the 2 partitions"):
        ranges(store, **{option: value})


def test_an_empty_topic_has_nothing_to_read(store: Store) -> None:
    options = parse_read_options({"path": str(store.path), "subscribe": "empty"})

    assert batch_ranges(store, options) == []


def test_range_has_the_id_of_its_topic(store: Store) -> None:
    """Planning compares the id with that of the segments: the topic may have been recreated meanwhile."""
    options = parse_read_options({"path": str(store.path), "subscribe": "a"})
    ranges = batch_ranges(store, options)

    assert {one.topic_id for one in ranges} == {store.describe_topic("a").topic_id}


# ---------------------------------------------------------------- what is gone, or not there yet


@pytest.fixture
def shortened(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store") as store:
        store.create_topic("a", partitions=1)
        append(store, "a", numbered(100), batch_records=10)
        with store._table.writing(A0) as log:
            log.delete_before(30)
        yield store


def test_start_deleted_by_retention_is_a_counted_loss(shortened: Store) -> None:
    with pytest.raises(DataLoss) as caught:
        ranges(shortened, startingOffsets='{"a": {"0": 10}}')

    assert caught.value.condition == "START_OFFSET_RESET"
    assert str(caught.value) == (
        "[DATA_LOSS.START_OFFSET_RESET] a-0 should be read from offset 10, but its log starts at 30; 20 offsets are "
        "missing. Set failOnDataLoss=false to read the rest, or start at earliest (a stream also needs a new "
        "checkpointLocation)"
    )


def test_without_fail_on_data_loss_start_moves_with_one_warning(
    shortened: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "seeklog"):
        found = ranges(shortened, startingOffsets='{"a": {"0": 10}}', failOnDataLoss="false")

    assert found == {A0: (30, 100)}
    (warning,) = caplog.records
    assert warning.getMessage() == (
        "[DATA_LOSS.START_OFFSET_RESET] a-0 should be read from offset 10, but its log starts at 30; 20 offsets are "
        "missing; skipped because failOnDataLoss is false"
    )


def test_deleted_range_has_no_records(shortened: Store) -> None:
    settings = {"startingOffsets": '{"a": {"0": 10}}', "endingOffsets": '{"a": {"0": 20}}'}

    with pytest.raises(DataLoss, match="10 offsets are missing"):
        ranges(shortened, **settings)
    assert ranges(shortened, **settings, failOnDataLoss="false") == {}


def test_an_earliest_start_loses_nothing(shortened: Store) -> None:
    assert ranges(shortened) == {A0: (30, 100)}
    assert ranges(shortened, startingOffsets='{"a": {"0": -2}}') == {A0: (30, 100)}
    assert ranges(shortened, startingOffsets="-1000") == {A0: (30, 100)}


def test_end_above_high_watermark_is_a_loss(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"endingOffsets": '{"a": {"0": 120}}'}

    with pytest.raises(DataLoss, match=r"COULD_NOT_READ_OFFSET_RANGE\] a-0 .*high watermark is 100; 20 offsets"):
        ranges(store, **settings)
    assert ranges(store, **settings, failOnDataLoss="false") == {A0: (0, 100), A1: (0, 50)}


@pytest.mark.parametrize(
    ("start", "stop", "kept"),
    [(0, 100, (10, 90)), (10, 90, (10, 90)), (0, 5, (5, 5)), (95, 99, (95, 95)), (0, 0, (0, 0)), (90, 90, (90, 90))],
)
def test_kept_range_is_within_range(start: int, stop: int, kept: tuple[int, int]) -> None:
    report = partial(report_loss, fail=False)
    assert kept_range(Range(A0, start, stop), Bounds(10, 90, ""), report=report)[1:3] == kept


# ---------------------------------------------------------------- a stream's ends


def test_stream_starts_at_the_end_by_default(store: Store) -> None:
    bounds = find_bounds(store, Choice(topics=("a",)))
    base = {"path": str(store.path), "subscribe": "a"}

    assert start_offsets(store, bounds, parse_stream_options(base)) == {A0: 100, A1: 50}
    # A partition that the offsets do not name has the default start.
    some = parse_stream_options({**base, "startingOffsets": '{"a": {"0": 7}}'})
    assert start_offsets(store, bounds, some) == {A0: 7, A1: 50}
    assert end_offsets(store, bounds, some) == {}
    ended = parse_stream_options({**base, "endingOffsets": '{"a": {"0": 700}}'})
    assert end_offsets(store, bounds, ended) == {A0: 700, A1: 50}


def test_time_lookup_stays_within_bounds(tmp_path: Path) -> None:
    """Records appended after the bounds were read would give an end above their high watermark."""
    with open_store(tmp_path / "store") as store:
        store.create_topic("a", partitions=1)
        append(store, "a", numbered(10))
        bounds = find_bounds(store, Choice(topics=("a",)))
        append(store, "a", [Record(b"next", timestamp_ms=START_MS), Record(b"late", timestamp_ms=START_MS + 60_000)])
        options = parse_read_options(
            {"path": str(store.path), "subscribe": "a", "endingTimestamp": str(START_MS + 60_000)}
        )

        assert end_offsets(store, bounds, options) == {A0: 10}
