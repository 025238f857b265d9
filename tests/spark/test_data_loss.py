"""What a stream does when records that it was to read are gone: it ends and says which, or goes on and counts them."""

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
from spark.workbench import Place, append, make_store, message_of, numbered
from store.workbench import open_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two topics: one of two partitions with 20 and 5 records, and one that nothing happens to."""
    # A cut is made between batches: each record is one.
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
    """What happens, what it is called, what the error says, what the warning counts, and what is read on."""

    happens: Callable[[Store], None]
    condition: str
    says: str
    counts: str
    then: list[Place]


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


def read_up(path: Path, **options: object) -> Driven:
    """Return a stream that has read all there is."""
    stream = Driven(path, subscribe="orders,quiet", startingOffsets="earliest", **options)
    assert len(stream.rest()) == 28
    return stream


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """Tell the warnings that were logged, and forget them."""

    def taken() -> list[str]:
        found = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        caplog.clear()
        return found

    with caplog.at_level(logging.WARNING, logger="seeklog"):
        yield taken


@pytest.mark.id("stream-loss-message")
@whenever
@cases
def test_a_loss_ends_the_stream_with_one_line_that_says_what_where_and_what_to_do(
    path: Path, case: Case, restarts: bool
) -> None:
    stream = read_up(path)
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
        stream.start()  # and it stays so until somebody decides


@whenever
@cases
def test_without_fail_on_data_loss_the_stream_goes_on_from_what_there_is_and_counts(
    path: Path, case: Case, restarts: bool, warnings: Callable[[], list[str]]
) -> None:
    stream = read_up(path, failOnDataLoss=False)
    with open_store(path) as store:
        case.happens(store)
    if restarts:
        stream.start()

    assert stream.rest() == case.then
    told = warnings()
    ours = [
        line for line in told if line.startswith(f"[DATA_LOSS.{case.condition}] {case.says}") and case.counts in line
    ]
    assert len(ours) == 1, told
    assert all("\n" not in line and "failOnDataLoss is false" in line for line in told)

    stream.start()
    assert stream.rest() == []
    assert warnings() == [], "a loss is told once"
    with open_store(path) as store:
        append(store, "quiet", numbered(2))
    assert stream.rest() == span("quiet", 0, 3, 5)
    assert warnings() == []


@whenever
@cases
def test_a_limit_does_not_crawl_through_what_is_gone(path: Path, case: Case, restarts: bool) -> None:
    stream = read_up(path, failOnDataLoss=False, maxOffsetsPerTrigger=1000)
    with open_store(path) as store:
        case.happens(store)
    stream.start(maxOffsetsPerTrigger=5) if restarts else None

    batches = list(stream.batches())
    assert sorted(row for batch in batches for row in batch) == case.then
    assert len(batches) <= len(case.then) + 1


def test_a_deleted_topic_that_comes_back_is_read_from_its_beginning(
    path: Path, warnings: Callable[[], list[str]]
) -> None:
    stream = read_up(path, failOnDataLoss=False)
    with open_store(path) as store:
        store.delete_topic("orders")
        assert stream.rest() == []
        assert len(warnings()) == 1
        store.create_topic("orders", partitions=1)
        append(store, "orders", numbered(30))
    assert stream.rest() == span("orders", 0, 0, 30)
    assert warnings() == []


def test_a_topic_that_is_taken_out_of_the_options_is_not_dropped_in_silence(path: Path) -> None:
    stream = read_up(path)
    stream.start(subscribe="quiet")
    with pytest.raises(DataLoss, match=r"orders were deleted, or are no longer read"):
        stream.rest()
    stream.start(failOnDataLoss=False)
    assert stream.rest() == []


def test_a_topic_that_was_never_there_is_said_to_be_missing_and_not_lost(path: Path) -> None:
    with pytest.raises(TopicNotFound, match="odrers"):
        Driven(path, subscribe="odrers", startingOffsets="earliest").rest()
    stream = read_up(path)
    stream.start(subscribe="orders,quiet,odrers")
    with pytest.raises(TopicNotFound, match="odrers"):
        stream.rest()


def test_a_partition_that_was_never_there_is_said_to_be_missing(path: Path) -> None:
    with pytest.raises(TopicNotFound, match="no partition 7"):
        Driven(path, assign='{"orders": [0, 7]}').rest()


@pytest.mark.parametrize(
    ("given", "condition"),
    [({"0": 3, "1": 0}, "START_OFFSET_RESET"), ({"0": 21, "1": 0}, "PARTITION_OFFSET_CHANGED")],
    ids=str,
)
def test_a_start_that_the_log_does_not_have_is_a_loss(path: Path, given: dict[str, int], condition: str) -> None:
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
    stream = read_up(path, **options)
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
        # The batch was of the old topic. What the new one has comes in the next.
        (recreate_longer, "PARTITIONS_DELETED", []),
    ],
    ids=["retention", "cut", "deleted", "recreated"],
)
def test_a_repeated_batch_is_held_against_what_there_is_by_then(
    path: Path,
    happens: Callable[[Store], None],
    condition: str,
    then: list[Place],
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


def test_only_the_offsets_of_a_repeated_batch_are_counted_as_lost_with_it(
    path: Path, warnings: Callable[[], list[str]]
) -> None:
    stream = crashed(path, failOnDataLoss=False)
    with open_store(path) as store:
        append(store, "orders", numbered(20))
        delete_before(store, 45)
    stream.start()
    assert stream.run() == []
    assert [("10 offsets are missing" in line) for line in warnings()] == [True], "of 20 to 30"
    assert stream.rest() == span("orders", 0, 45, 50)
    assert [("15 offsets are missing" in line) for line in warnings()] == [True], "of 30 to 50"


def test_segments_that_go_while_a_batch_is_read_are_a_loss_in_the_task(path: Path) -> None:
    stream = crashed(path)
    start, end = (json.loads(text) for text in stream.wal[-2:])
    splits = list(stream.reader.partitions(start, end))
    with open_store(path) as store:
        store.delete_topic("orders")
    with pytest.raises(DataLoss, match=re.escape("orders-0 was deleted or recreated since offsets 20 to 29")):
        [batch for split in splits for batch in stream.reader.read(split)]


@pytest.mark.id("stream-recreated-while-planned")
def test_a_topic_that_is_recreated_while_a_batch_is_planned_is_a_loss(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at its bounds and that at its segments."""
    stream = crashed(path)
    start, end = (json.loads(text) for text in stream.wal[-2:])
    plan_splits = stream_module.plan_splits

    def plan_too_late(*words: Any, **options: Any) -> list[Split]:
        monkeypatch.undo()
        with open_store(path) as store:
            recreate_longer(store)
        return plan_splits(*words, **options)

    monkeypatch.setattr(stream_module, "plan_splits", plan_too_late)
    with pytest.raises(DataLoss, match="PARTITIONS_DELETED"):
        stream.reader.partitions(start, end)


# ---------------------------------------------------------------- checkpoints of others


def test_the_checkpoint_of_a_kafka_query_is_read_on_from(path: Path) -> None:
    stream = Driven(path, subscribe="orders")
    stream.wal, stream.done = ['{"orders":{"1":2,"0":15}}'], 1
    assert stream.rest() == [*span("orders", 0, 15, 20), *span("orders", 1, 2, 5)]
    assert "#ids" in json.loads(stream.wal[-1])


@pytest.mark.parametrize("found", ['{"offset": 5}', '{"orders": [1]}', '{"a b": {"0": 1}}', '{"orders": {"x": 1}}'])
def test_the_checkpoint_of_another_source_is_refused(path: Path, found: str) -> None:
    stream = Driven(path, subscribe="orders")
    stream.wal, stream.done = [found], 1
    with pytest.raises(InvalidConfig, match="its own checkpointLocation"):
        stream.rest()


# ---------------------------------------------------------------- as Spark's users see it


def test_a_topic_that_vanishes_under_a_running_query_ends_it_with_the_typed_line(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
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
def test_a_topic_recreated_between_two_runs_is_noticed_though_it_has_grown_past_the_checkpoint(
    spark: SparkSession, path: Path, tmp_path: Path
) -> None:
    collected = Collected(spark, path, tmp_path / "checkpoint", subscribe="orders", startingOffsets="earliest")
    collected.available()
    with open_store(path) as store:
        recreate_longer(store)

    assert "were deleted and recreated" in message_of(collected.available, DataLoss)

    tolerant = Collected(spark, path, tmp_path / "checkpoint", subscribe="orders", failOnDataLoss=False)
    tolerant.available()
    assert tolerant.rows == span("orders", 0, 0, 50)
