"""Streams whose records were deleted before they were read: the stream fails, or continues and counts them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from seeklog import Store, TopicPartition
from seeklog.errors import DataLoss, InvalidConfig, TopicNotFound
from seeklog.spark.read import stream as stream_module
from seeklog.spark.read.plan import Split
from spark.streams import Collected, Driven, span
from spark.workbench import RowOffset, append, make_store, message_of, numbered
from store.workbench import open_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two topics: one of two partitions with 20 and 5 records, and one that is not changed."""
    # Logs are cut between batches, so each record is a batch.
    return make_store(tmp_path / "store", {"orders": [20, 5], "quiet": [3]}, batch_records=1)


def delete_before(store: Store, offset: int, *, partition: int = 0) -> None:
    with store._table.writing(TopicPartition("orders", partition)) as log:
        log.delete_before(offset)


def truncate_to(store: Store, offset: int) -> None:
    with store._table.writing(TopicPartition("orders", 0)) as log:
        log.truncate_to(offset)


# ---------------------------------------------------------------- what happens to a topic that was read to its end


def lose_to_retention(store: Store) -> None:
    append(store, "orders", numbered(20))
    delete_before(store, 30)


def lose_everything_to_retention(store: Store) -> None:
    append(store, "orders", numbered(20))
    delete_before(store, 40)


def cut(store: Store) -> None:
    truncate_to(store, 12)


def cut_and_grow(store: Store) -> None:
    truncate_to(store, 12)
    append(store, "orders", numbered(3))


def delete(store: Store) -> None:
    store.delete_topic("orders")


def recreate(store: Store) -> None:
    store.delete_topic("orders")
    store.create_topic("orders", partitions=2)
    append(store, "orders", numbered(4))


def recreate_longer(store: Store) -> None:
    store.delete_topic("orders")
    store.create_topic("orders", partitions=2)
    append(store, "orders", numbered(50))


def recreate_smaller(store: Store) -> None:
    store.delete_topic("orders")
    store.create_topic("orders", partitions=1)
    append(store, "orders", numbered(2))


def add_a_partition_too_late(store: Store) -> None:
    store.add_partitions("orders", partitions=3)
    append(store, "orders", numbered(10), partition=2)
    delete_before(store, 4, partition=2)


class Case(NamedTuple):
    """A loss: its cause, condition, error message, and warning, and the records that are read afterwards."""

    happens: Callable[[Store], None]
    condition: str
    says: str
    counts: str
    then: list[RowOffset]


CASES = [
    Case(
        lose_to_retention,
        "START_OFFSET_RESET",
        "orders-0 should be read from offset 20, but its log starts at 30",
        "10 offsets are missing",
        span("orders", 0, 30, 40),
    ),
    Case(
        lose_everything_to_retention,
        "START_OFFSET_RESET",
        "orders-0 should be read from offset 20, but its log starts at 40",
        "20 offsets are missing",
        [],
    ),
    Case(
        cut,
        "PARTITION_OFFSET_CHANGED",
        "orders-0 was read up to offset 20, but its log ends at 12",
        "8 offsets are missing",
        [],
    ),
    Case(
        cut_and_grow,
        "PARTITION_OFFSET_CHANGED",
        "orders-0 was read up to offset 20, but its log ends at 15",
        "5 offsets are missing",
        [],
    ),
    Case(
        delete,
        "PARTITIONS_DELETED",
        "partitions of topic orders were deleted, or are no longer read: orders-0 (read up to offset 20), "
        "orders-1 (read up to offset 5)",
        "later records of 2 partitions are missing",
        [],
    ),
    Case(
        recreate,
        "PARTITIONS_DELETED",
        "partitions of topic orders were deleted and recreated: orders-0 (read up to offset 20), "
        "orders-1 (read up to offset 5)",
        "later records of 2 partitions are missing",
        span("orders", 0, 0, 4),
    ),
    Case(
        recreate_longer,
        "PARTITIONS_DELETED",
        "partitions of topic orders were deleted and recreated: orders-0 (read up to offset 20), "
        "orders-1 (read up to offset 5)",
        "later records of 2 partitions are missing",
        span("orders", 0, 0, 50),
    ),
    Case(
        recreate_smaller,
        "PARTITIONS_DELETED",
        "partitions of topic orders were deleted, or are no longer read: orders-1 (read up to offset 5)",
        "later records of 1 partition are missing",
        span("orders", 0, 0, 2),
    ),
    Case(
        add_a_partition_too_late,
        "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
        "orders-2 is new to the stream, but its log starts at offset 4",
        "4 offsets are missing",
        span("orders", 2, 4, 10),
    ),
]
cases = pytest.mark.parametrize("case", CASES, ids=[case.happens.__name__ for case in CASES])
whenever = pytest.mark.parametrize("restarts", [False, True], ids=["within a run", "across a restart"])


def read_to_end(path: Path, **options: object) -> Driven:
    """Return a stream that has read all records."""
    stream = Driven(path, subscribe="orders,quiet", startingOffsets="earliest", **options)
    assert len(stream.rest()) == 28
    return stream


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """Return a function that returns the warnings logged since its last call."""

    def logged() -> list[str]:
        found = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        caplog.clear()
        return found

    with caplog.at_level(logging.WARNING, logger="seeklog"):
        yield logged


@pytest.mark.id("stream-loss-message")
@whenever
@cases
def test_loss_ends_stream_with_one_line_error(path: Path, case: Case, restarts: bool) -> None:
    stream = read_to_end(path)
    with open_store(path) as store:
        case.happens(store)
    if restarts:
        stream.start()

    for _ in range(2):
        with pytest.raises(DataLoss) as caught:
            stream.rest()
        assert caught.value.condition == case.condition
        message = str(caught.value)
        assert message.startswith(f"[DATA_LOSS.{case.condition}] ")
        assert case.says in message
        assert "failOnDataLoss=false" in message
        assert "checkpointLocation" in message
        assert "\n" not in message
        stream.start()  # and stays so until the options change


@whenever
@cases
def test_without_fail_on_data_loss_stream_continues_and_counts(
    path: Path, case: Case, restarts: bool, warnings: Callable[[], list[str]]
) -> None:
    stream = read_to_end(path, failOnDataLoss=False)
    with open_store(path) as store:
        case.happens(store)
    if restarts:
        stream.start()

    assert stream.rest() == case.then
    logged_lines = warnings()
    ours = [
        line
        for line in logged_lines
        if line.startswith(f"[DATA_LOSS.{case.condition}] {case.says}") and case.counts in line
    ]
    assert len(ours) == 1, logged_lines
    assert all("\n" not in line and "failOnDataLoss is false" in line for line in logged_lines)

    stream.start()
    assert stream.rest() == []
    assert warnings() == [], "a loss is reported once"
    with open_store(path) as store:
        append(store, "quiet", numbered(2))
    assert stream.rest() == span("quiet", 0, 3, 5)
    assert warnings() == []


@whenever
@cases
def test_limit_does_not_step_through_deleted_offsets(path: Path, case: Case, restarts: bool) -> None:
    stream = read_to_end(path, failOnDataLoss=False, maxOffsetsPerTrigger=1000)
    with open_store(path) as store:
        case.happens(store)
    stream.start(maxOffsetsPerTrigger=5) if restarts else None

    batches = list(stream.batches())
    assert sorted(row for batch in batches for row in batch) == case.then
    assert len(batches) <= len(case.then) + 1


def test_recreated_topic_is_read_from_its_start(path: Path, warnings: Callable[[], list[str]]) -> None:
    stream = read_to_end(path, failOnDataLoss=False)
    with open_store(path) as store:
        store.delete_topic("orders")
        assert stream.rest() == []
        assert len(warnings()) == 1
        store.create_topic("orders", partitions=1)
        append(store, "orders", numbered(30))
    assert stream.rest() == span("orders", 0, 0, 30)
    assert warnings() == []


def test_topic_removed_from_options_is_reported(path: Path) -> None:
    stream = read_to_end(path)
    stream.start(subscribe="quiet")
    with pytest.raises(DataLoss, match=r"orders were deleted, or are no longer read"):
        stream.rest()
    stream.start(failOnDataLoss=False)
    assert stream.rest() == []


def test_topic_that_never_existed_is_missing_not_lost(path: Path) -> None:
    with pytest.raises(TopicNotFound, match="odrers"):
        Driven(path, subscribe="odrers", startingOffsets="earliest").rest()
    stream = read_to_end(path)
    stream.start(subscribe="orders,quiet,odrers")
    with pytest.raises(TopicNotFound, match="odrers"):
        stream.rest()


def test_partition_that_never_existed_is_missing(path: Path) -> None:
    with pytest.raises(TopicNotFound, match="no partition 7"):
        Driven(path, assign='{"orders": [0, 7]}').rest()


@pytest.mark.parametrize(
    ("given", "condition"),
    [({"0": 3, "1": 0}, "START_OFFSET_RESET"), ({"0": 21, "1": 0}, "PARTITION_OFFSET_CHANGED")],
    ids=str,
)
def test_start_before_log_start_is_a_loss(path: Path, given: dict[str, int], condition: str) -> None:
    with open_store(path) as store:
        delete_before(store, 10)
    options: dict[str, object] = {"subscribe": "orders", "startingOffsets": json.dumps({"orders": given})}
    with pytest.raises(DataLoss) as caught:
        Driven(path, **options).rest()
    assert caught.value.condition == condition

    stream = Driven(path, failOnDataLoss=False, **options)
    first = 10 if condition == "START_OFFSET_RESET" else 20
    assert stream.rest() == [*span("orders", 0, first, 20), *span("orders", 1, 0, 5)]


# ---------------------------------------------------------------- a batch that a crash makes Spark repeat


def crashed(path: Path, **options: object) -> Driven:
    """Return a stream that died while it processed its second batch, orders-0 from 20 to 30."""
    stream = read_to_end(path, **options)
    with open_store(path) as store:
        append(store, "orders", numbered(10), batch_records=1)
    assert stream.plan()
    return stream


@pytest.mark.parametrize(
    ("happens", "condition", "then"),
    [
        (lambda store: delete_before(store, 25), "START_OFFSET_RESET", span("orders", 0, 25, 30)),
        (lambda store: truncate_to(store, 24), "COULD_NOT_READ_OFFSET_RANGE", span("orders", 0, 20, 24)),
        (delete, "PARTITIONS_DELETED", []),
        # The batch is of the old topic; records of the new topic are in the next batch.
        (recreate_longer, "PARTITIONS_DELETED", []),
    ],
    ids=["retention", "cut", "deleted", "recreated"],
)
def test_repeated_batch_is_checked_against_current_log(
    path: Path,
    happens: Callable[[Store], None],
    condition: str,
    then: list[RowOffset],
    warnings: Callable[[], list[str]],
) -> None:
    stream = crashed(path)
    with open_store(path) as store:
        happens(store)
    stream.start()
    with pytest.raises(DataLoss) as caught:
        stream.run()
    assert caught.value.condition == condition

    stream.start(failOnDataLoss=False)
    assert stream.run() == then
    assert any(f"[DATA_LOSS.{condition}]" in line for line in warnings())
    assert stream.rest() == (span("orders", 0, 0, 50) if happens is recreate_longer else [])


def test_repeated_batch_reports_only_its_own_lost_offsets(path: Path, warnings: Callable[[], list[str]]) -> None:
    stream = crashed(path, failOnDataLoss=False)
    with open_store(path) as store:
        append(store, "orders", numbered(20))
        delete_before(store, 45)
    stream.start()
    assert stream.run() == []
    assert [("10 offsets are missing" in line) for line in warnings()] == [True], "of 20 to 30"
    assert stream.rest() == span("orders", 0, 45, 50)
    assert [("15 offsets are missing" in line) for line in warnings()] == [True], "of 30 to 50"


def test_segment_deleted_while_a_batch_is_read_is_a_loss(path: Path) -> None:
    stream = crashed(path)
    start, end = (json.loads(text) for text in stream.wal[-2:])
    splits = list(stream.reader.partitions(start, end))
    with open_store(path) as store:
        store.delete_topic("orders")
    with pytest.raises(DataLoss, match=re.escape("orders-0 was deleted or recreated since offsets 20 to 29")):
        [batch for split in splits for batch in stream.reader.read(split)]


@pytest.mark.id("stream-recreated-while-planned")
def test_topic_recreated_during_planning_is_a_loss(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic is recreated after its bounds were read and before its segments are listed."""
    stream = crashed(path)
    start, end = (json.loads(text) for text in stream.wal[-2:])
    plan_splits = stream_module.plan_splits

    def plan_after_recreation(*arguments: Any, **options: Any) -> list[Split]:
        monkeypatch.undo()
        with open_store(path) as store:
            recreate_longer(store)
        return plan_splits(*arguments, **options)

    monkeypatch.setattr(stream_module, "plan_splits", plan_after_recreation)
    with pytest.raises(DataLoss, match="PARTITIONS_DELETED"):
        stream.reader.partitions(start, end)


# ---------------------------------------------------------------- checkpoints of others


def test_query_continues_from_checkpoint_of_a_kafka_query(path: Path) -> None:
    stream = Driven(path, subscribe="orders")
    stream.wal, stream.done = ['{"orders":{"1":2,"0":15}}'], 1
    assert stream.rest() == [*span("orders", 0, 15, 20), *span("orders", 1, 2, 5)]
    assert "#ids" in json.loads(stream.wal[-1])


@pytest.mark.parametrize("found", ['{"offset": 5}', '{"orders": [1]}', '{"a b": {"0": 1}}', '{"orders": {"x": 1}}'])
def test_checkpoint_of_another_source_is_refused(path: Path, found: str) -> None:
    stream = Driven(path, subscribe="orders")
    stream.wal, stream.done = [found], 1
    with pytest.raises(InvalidConfig, match="its own checkpointLocation"):
        stream.rest()


# ---------------------------------------------------------------- as Spark's users see it


def test_deleted_topic_ends_running_query_with_typed_error(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    collected = Collected(spark, path, tmp_path / "checkpoint", subscribe="orders", startingOffsets="earliest")
    query = collected.start()
    query.processAllAvailable()
    assert len(collected.rows) == 25
    with open_store(path) as store:
        store.delete_topic("orders")

    message = message_of(query.awaitTermination, DataLoss)

    assert message.startswith("[DATA_LOSS.PARTITIONS_DELETED] partitions of topic orders were deleted")
    assert "orders-0 (read up to offset 20)" in message
    assert isinstance(query.exception(), StreamingQueryException)
    assert "seeklog.errors.DataLoss: [DATA_LOSS.PARTITIONS_DELETED]" in str(query.exception())


@pytest.mark.id("stream-recreated-between-runs")
def test_recreated_topic_longer_than_checkpoint_is_noticed(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    collected = Collected(spark, path, tmp_path / "checkpoint", subscribe="orders", startingOffsets="earliest")
    collected.available()
    with open_store(path) as store:
        recreate_longer(store)

    assert "were deleted and recreated" in message_of(collected.available, DataLoss)

    tolerant = Collected(spark, path, tmp_path / "checkpoint", subscribe="orders", failOnDataLoss=False)
    tolerant.available()
    assert tolerant.rows == span("orders", 0, 0, 50)
