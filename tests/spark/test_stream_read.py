"""Streams: their start and end, new partitions, restarts, and the consumer group that shows their lag."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window
from pyspark.sql.streaming.datasource import ReadAllAvailable

import seeklog
from log.workbench import START_MS, FakeClock, open_log
from seeklog import TopicPartition
from seeklog.errors import (
    GroupInUse,
    InvalidConfig,
    LogLocked,
    NotALog,
    TopicNotFound,
    UsageError,
)
from seeklog.names import CONSUMER_OFFSETS, LOCK
from seeklog.spark.read.position import Position
from spark.streams import Collected, Driven, span, spark_options
from spark.workbench import (
    BROKERS,
    RowOffset,
    append,
    everything,
    make_store,
    message_of,
    numbered,
    row_offsets,
    unpack_broker,
)
from store.workbench import Holder, open_store

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)
FIRST = "2023-11-14T22:13:20"  # START_MS, the time of record 0; the others follow a second apart


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A topic of two partitions with 20 and 10 records, and another one."""
    return make_store(tmp_path / "store", {"orders": [20, 10], "returns": [4]})


def add(path: Path, topic: str, count: int, *, partition: int = 0, first: int = 0) -> None:
    with open_store(path) as store:
        append(store, topic, numbered(count, first=first), partition=partition)


# ---------------------------------------------------------------- where a stream begins


def test_stream_reads_from_the_end_by_default(path: Path) -> None:
    stream = Driven(path, subscribe="orders")
    assert stream.step() == [], "Spark makes a first batch of nothing, and with it the checkpoint"
    add(path, "orders", 3)
    assert stream.rest() == span("orders", 0, 20, 23)


@pytest.mark.parametrize(
    ("options", "starts"),
    [
        ({"startingOffsets": "earliest"}, (0, 0)),
        ({"startingOffsets": "latest"}, (20, 10)),
        ({"startingOffsets": '{"orders": {"0": 4, "1": -2}}'}, (4, 0)),
        ({"startingOffsets": '{"orders": {"0": -1, "1": 3}}'}, (20, 3)),
        # Kafka's source would refuse this: partitions that are not named have the default.
        ({"startingOffsets": '{"orders": {"1": 3}}'}, (20, 3)),
        ({"startingOffsets": "-3"}, (17, 7)),
        ({"startingOffsets": "-15"}, (5, 0)),
        # The clock is 20 seconds after record 0, so -5 seconds is record 15, which only one partition has.
        ({"startingOffsets": "-5 seconds"}, (15, 10)),
        ({"startingTimestamp": f"{FIRST}Z"}, (0, 0)),
        ({"startingTimestamp": "2023-11-14T23:13:25+01:00"}, (5, 5)),
        ({"startingTimestamp": START_MS + 8500}, (9, 9)),
        ({"startingTimestamp": "-12s"}, (8, 8)),
        ({"startingOffsetsByTimestamp": json.dumps({"orders": {"0": START_MS + 2000, "1": f"{FIRST}.500Z"}})}, (2, 1)),
    ],
    ids=str,
)
def test_stream_starts_at_the_given_point(path: Path, options: dict[str, object], starts: tuple[int, int]) -> None:
    stream = Driven(path, clock=FakeClock(START_MS + 20_000), subscribe="orders", **options)
    assert Position.decode(stream.reader.initialOffset()).offsets == dict(zip((ZERO, ONE), starts, strict=True))
    assert stream.rest() == [*span("orders", 0, starts[0], 20), *span("orders", 1, starts[1], 10)]


def test_start_is_resolved_once(path: Path) -> None:
    stream = Driven(path, subscribe="orders")
    first = stream.reader.initialOffset()
    add(path, "orders", 3)
    assert stream.reader.initialOffset() == first


@pytest.mark.parametrize("start", ["latest", "-5", "-5 seconds", "earliest"])
def test_repeated_first_batch_has_the_same_start(path: Path, start: str) -> None:
    clock = FakeClock(START_MS + 20_000)
    stream = Driven(path, clock=clock, subscribe="orders", startingOffsets=start)
    began = Position.decode(stream.reader.initialOffset()).offsets
    add(path, "orders", 2, first=20)
    assert stream.plan()

    # The process dies. At the next start there are more records, and time has passed.
    add(path, "orders", 30, first=22)
    clock.advance(60_000)
    stream.start()

    assert stream.run() == [*span("orders", 0, began[ZERO], 22), *span("orders", 1, began[ONE], 10)]
    assert stream.rest() == span("orders", 0, 22, 52)


def test_equal_positions_have_equal_json(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"orders": [1] * 12, "a.b-c_D": [1]})
    stream = Driven(path, subscribePattern=".*", startingOffsets="earliest")
    assert len(stream.rest()) == 13
    text = stream.wal[-1]
    assert list(json.loads(text)) == ["#began", "#ids", "a.b-c_D", "orders"]
    assert list(json.loads(text)["orders"]) == [str(number) for number in range(12)]
    again = json.dumps(stream.reader.latestOffset(json.loads(text), ReadAllAvailable()))
    assert again == text
    assert Position.decode(json.loads(text)).encode() == json.loads(text)


def test_metadata_table_cannot_be_streamed(path: Path) -> None:
    with pytest.raises(InvalidConfig, match="a metadata table cannot be streamed"):
        Driven(path, table="segments")


# ---------------------------------------------------------------- what a stream discovers


def test_new_partitions_are_read_from_their_start(path: Path) -> None:
    stream = Driven(path, subscribe="orders")
    stream.step()
    with open_store(path) as store:
        store.add_partitions("orders", partitions=4)
        append(store, "orders", numbered(5), partition=3)
    assert stream.rest() == span("orders", 3, 0, 5)
    add(path, "orders", 2, partition=2)
    assert stream.rest() == span("orders", 2, 0, 2)


def test_limit_includes_new_partitions(path: Path) -> None:
    stream = Driven(path, subscribe="orders", maxOffsetsPerTrigger=10)
    stream.step()
    with open_store(path) as store:
        store.add_partitions("orders", partitions=3)
        append(store, "orders", numbered(15), partition=2)
        append(store, "orders", numbered(5))
    assert stream.step() == [*span("orders", 0, 20, 22), *span("orders", 2, 0, 7)]
    assert len(stream.rest()) == 11


def test_pattern_finds_new_topics(path: Path) -> None:
    stream = Driven(path, subscribePattern="ord.*|stock-[0-9]")
    stream.step()
    with open_store(path) as store:
        for topic in ("stock-1", "stock-x", "orders-eu"):
            store.create_topic(topic, partitions=1)
            append(store, topic, numbered(2))
    assert stream.rest() == [*span("orders-eu", 0, 0, 2), *span("stock-1", 0, 0, 2)]


def test_a_pattern_may_match_nothing_at_first(path: Path) -> None:
    stream = Driven(path, subscribePattern="stock.*", startingOffsets="latest")
    assert stream.rest() == []
    with open_store(path) as store:
        store.create_topic("stock", partitions=1)
        append(store, "stock", numbered(2))
    assert stream.rest() == span("stock", 0, 0, 2)


def test_named_internal_topics_are_streamed(path: Path) -> None:
    with open_store(path) as store:
        store.commit_offsets("nightly", {ZERO: 3})
    assert len(Driven(path, subscribe=CONSUMER_OFFSETS, startingOffsets="earliest").rest()) == 1
    assert CONSUMER_OFFSETS not in {
        place.topic for place in Driven(path, subscribePattern=".*", startingOffsets="earliest").rest()
    }


def test_assigned_partitions_are_fixed(path: Path) -> None:
    stream = Driven(path, assign='{"orders": [1], "returns": [0]}', startingOffsets="earliest")
    with open_store(path) as store:
        store.add_partitions("orders", partitions=3)
        append(store, "orders", numbered(5), partition=2)
    assert stream.rest() == [*span("orders", 1, 0, 10), *span("returns", 0, 0, 4)]


def test_topic_added_to_options_is_read_from_its_start(path: Path) -> None:
    stream = Driven(path, subscribe="orders")
    stream.step()
    stream.start(subscribe="orders,returns")
    assert stream.rest() == span("returns", 0, 0, 4)


def test_nothing_is_read_past_the_high_watermark(path: Path) -> None:
    stream = Driven(path, subscribe="orders", startingOffsets="latest")
    stream.step()
    with open_log(path / "orders-0", high_watermark="manual") as log:
        log.append_many(numbered(10))
        assert stream.rest() == []
        log.advance_high_watermark(24)
        assert stream.rest() == span("orders", 0, 20, 24)
        assert stream.reader.reportLatestOffset()["orders"]["0"] == 24  # type: ignore[index]
        log.advance_high_watermark(30)
        assert stream.rest() == span("orders", 0, 24, 30)


@pytest.mark.parametrize("name", BROKERS)
def test_broker_directory_is_streamed(name: str, tmp_path: Path) -> None:
    path = unpack_broker(name, tmp_path)
    with open_store(path, read_only=True) as store:
        topics = store.topics()
    stream = Driven(path, subscribePattern=".*", startingOffsets="earliest", maxOffsetsPerTrigger=50)
    assert stream.rest() == sorted(place for topic in topics for place in everything(path, topic))


# ---------------------------------------------------------------- where a stream ends


@pytest.mark.parametrize(
    ("options", "ends"),
    [
        ({"endingOffsets": "latest"}, (20, 10)),
        ({"endingOffsets": '{"orders": {"0": 7, "1": 0}}'}, (7, 0)),
        ({"endingOffsets": '{"orders": {"0": 7}}'}, (7, 10)),
        ({"endingOffsets": "-5"}, (15, 5)),
        ({"endingTimestamp": START_MS + 5000}, (5, 5)),
        # The first record at or after the end may be appended later: record 25 is.
        ({"endingOffsets": '{"orders": {"0": 25, "1": -1}}'}, (25, 10)),
        ({"endingTimestamp": START_MS + 25_000}, (25, 10)),
        ({"endingOffsetsByTimestamp": json.dumps({"orders": {"0": START_MS + 25_000, "1": 0}})}, (25, 0)),
    ],
    ids=str,
)
@pytest.mark.parametrize("step", [1, 10], ids=["one by one", "at once"])
def test_stream_stops_at_its_end(path: Path, options: dict[str, object], ends: tuple[int, int], step: int) -> None:
    stream = Driven(path, subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger=9, **options)
    found = stream.rest()
    for number in range(20, 30, step):
        add(path, "orders", step, first=number)
        found += stream.rest()
    with open_store(path) as store:
        store.add_partitions("orders", partitions=3)
    found += stream.rest()
    assert sorted(found) == [*span("orders", 0, 0, ends[0]), *span("orders", 1, 0, ends[1])]
    assert stream.step() is None


def test_end_before_reached_position_ends_stream(path: Path) -> None:
    stream = Driven(path, subscribe="orders", startingOffsets="earliest")
    stream.rest()
    add(path, "orders", 5)
    stream.start(endingOffsets='{"orders": {"0": 7, "1": 7}}')
    assert stream.rest() == []
    assert stream.offsets == {ZERO: 20, ONE: 10}


def test_partition_created_after_the_end_is_not_read(path: Path) -> None:
    stream = Driven(path, subscribe="orders", startingOffsets="earliest", endingOffsets="latest")
    stream.rest()
    with open_store(path) as store:
        store.add_partitions("orders", partitions=3)
        append(store, "orders", numbered(5), partition=2)
    assert stream.rest() == []


def test_available_now_reads_up_to_its_start(path: Path) -> None:
    stream = Driven(path, subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger=12)
    stream.start(available_now=True)
    first = stream.step() or []
    with open_store(path) as store:
        append(store, "orders", numbered(100))
        store.add_partitions("orders", partitions=3)
        append(store, "orders", numbered(5), partition=2)
    found = [*first, *stream.rest()]
    assert sorted(found) == [*span("orders", 0, 0, 20), *span("orders", 1, 0, 10)]

    stream.start(available_now=True)
    assert stream.rest() == [*span("orders", 0, 20, 120), *span("orders", 2, 0, 5)]


def test_available_now_leaves_recreated_topic_to_next_run(path: Path) -> None:
    stream = Driven(path, subscribe="orders", startingOffsets="earliest", failOnDataLoss=False, maxOffsetsPerTrigger=12)
    stream.start(available_now=True)
    stream.step()
    with open_store(path) as store:
        store.delete_topic("orders")
        store.create_topic("orders", partitions=1)
        append(store, "orders", numbered(5))
    assert stream.rest() == []
    stream.start(available_now=True)
    assert stream.rest() == span("orders", 0, 0, 5)


def test_deletion_after_the_end_of_a_stream_is_not_a_loss(path: Path) -> None:
    stream = Driven(path, subscribe="orders", startingOffsets="earliest", endingOffsets='{"orders": {"0": 7, "1": 7}}')
    assert len(stream.rest()) == 14
    with open_store(path) as store, store._table.writing(ZERO) as log:
        log.delete_before(15)
    assert stream.rest() == []
    assert stream.offsets == {ZERO: 7, ONE: 7}


def test_equal_positions_plan_nothing(path: Path) -> None:
    # Spark asks this when a query restarts, with the end of its last batch, which may be that of the first batch.
    stream = Driven(path, subscribe="orders", startingOffsets="earliest")
    stream.step()
    end = json.loads(stream.wal[0])
    assert "#began" in end
    assert list(stream.reader.partitions(end, end)) == []


# ---------------------------------------------------------------- the group that shows how far a stream is


def lags(path: Path, group: str) -> dict[int, int]:
    with open_store(path, read_only=True) as store:
        return {one.partition: one.lag for one in store.lag(group)}


def test_processed_offsets_are_committed_to_the_group(path: Path) -> None:
    stream = Driven(path, subscribe="orders", startingOffsets="earliest", groupId="nightly", maxOffsetsPerTrigger=15)
    assert stream.plan()
    assert lags(path, "nightly") == {0: 20, 1: 10}, "nothing is processed before the first batch is"
    stream.run()
    assert lags(path, "nightly") == {0: 20, 1: 10}, "Spark has not committed the batch yet"
    assert stream.plan()
    assert lags(path, "nightly") == {0: 10, 1: 5}
    stream.run()
    assert stream.step() is None
    assert lags(path, "nightly") == {0: 0, 1: 0}


def test_waiting_stream_commits_once(path: Path) -> None:
    stream = Driven(path, subscribe="orders", startingOffsets="earliest", groupId="nightly")
    stream.rest()

    def committed() -> int:
        with open_store(path, read_only=True) as store:
            return sum(one.high_watermark for one in store.describe_topic(CONSUMER_OFFSETS).partitions)

    before = committed()
    assert [stream.step() for _ in range(5)] == [None] * 5
    assert committed() == before


def test_consumer_of_the_group_continues_after_the_stream(path: Path) -> None:
    Driven(path, subscribe="orders", startingOffsets="earliest", groupId="nightly").rest()
    add(path, "orders", 3)
    with open_store(path) as store, store.consumer(["orders"], group="nightly", consumer_timeout_ms=0) as consumer:
        assert [(record.partition, record.offset) for record in consumer] == [(0, 20), (0, 21), (0, 22)]


def test_group_with_members_is_refused_before_reading(path: Path) -> None:
    with (
        seeklog.open(path) as store,
        store.consumer(["orders"], group="nightly"),
        pytest.raises(GroupInUse, match="set another groupId"),
    ):
        Driven(path, subscribe="orders", groupId="nightly")


def test_group_joined_by_members_later_is_warned_of_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stream = Driven(path, subscribe="orders", startingOffsets="earliest", groupId="nightly", maxOffsetsPerTrigger=3)
    with (
        seeklog.open(path) as store,
        store.consumer(["orders"], group="nightly", enable_auto_commit=False),
        caplog.at_level(logging.WARNING, logger="seeklog"),
    ):
        assert len(stream.rest()) == 30
    assert len([record for record in caplog.records if "nightly" in record.getMessage()]) == 1
    add(path, "orders", 1)
    assert stream.rest() == span("orders", 0, 20, 21)
    assert lags(path, "nightly") == {0: 0, 1: 0}


def test_running_broker_is_read_only_without_a_group(path: Path) -> None:
    with Holder(path / LOCK, "broker") as broker:
        assert broker.got_it
        with pytest.raises(LogLocked, match="a Kafka broker"):
            Driven(path, subscribe="orders", groupId="nightly")
        assert len(Driven(path, subscribe="orders", startingOffsets="earliest").rest()) == 30


def test_missing_store_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(NotALog):
        Driven(tmp_path / "nowhere", subscribe="orders", groupId="nightly")
    assert not (tmp_path / "nowhere").exists()


def test_old_offsets_are_not_committed_for_a_recreated_topic(path: Path) -> None:
    stream = Driven(path, subscribe="orders", startingOffsets="earliest", groupId="nightly", failOnDataLoss=False)
    stream.rest()
    with open_store(path) as store:
        store.delete_topic("orders")
        store.create_topic("orders", partitions=2)
        append(store, "orders", numbered(50))
    stream.start()
    assert stream.plan()
    with open_store(path, read_only=True) as store:
        assert not store.groups() or store.describe_group("nightly").offsets == {}
    stream.run()
    assert stream.step() is None
    assert lags(path, "nightly") == {0: 0, 1: 0}


def test_truncated_partition_does_not_stop_other_commits(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"orders": [20, 10]}, batch_records=1)
    stream = Driven(path, subscribe="orders", startingOffsets="earliest", groupId="nightly", failOnDataLoss=False)
    assert stream.plan()
    stream.run()
    with open_store(path) as store, store._table.writing(ZERO) as log:
        log.truncate_to(15)
    assert stream.plan()
    with open_store(path, read_only=True) as store:
        assert store.describe_group("nightly").offsets == {ZERO: 0, ONE: 10}
    stream.run()
    assert stream.step() is None
    assert lags(path, "nightly") == {0: 0, 1: 0}


# ---------------------------------------------------------------- with Spark


@pytest.fixture
def collect(spark: SparkSession, path: Path, tmp_path: Path) -> Callable[..., Collected]:
    """Return queries over the store with a common checkpoint."""

    def made(**options: object) -> Collected:
        chosen = {} if "subscribePattern" in options else {"subscribe": "orders"}
        return Collected(spark, path, tmp_path / "checkpoint", **{**chosen, **options})

    return made


def test_limited_batches_restart_exactly_and_leave_no_lag(collect: Callable[..., Collected], path: Path) -> None:
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 12, "groupId": "nightly"}
    first = collect(**options)
    query = first.available()

    assert [len(batch) for batch in first.batches] == [12, 12, 6]
    assert first.batches[0] == [*span("orders", 0, 0, 8), *span("orders", 1, 0, 4)], "in proportion: 20 to 10"
    assert first.rows == everything(path, "orders")
    assert lags(path, "nightly") == {0: 0, 1: 0}
    progress = json.loads(query.recentProgress[0].json)["sources"][0]
    assert progress["numInputRows"] == 12
    assert progress["endOffset"]["orders"] == {"0": 8, "1": 4}
    assert progress["latestOffset"]["orders"] == {"0": 20, "1": 10}

    add(path, "orders", 5)
    assert lags(path, "nightly") == {0: 5, 1: 0}
    second = collect(**options)
    second.available()
    assert second.rows == span("orders", 0, 20, 25)
    third = collect(**options)
    third.available()
    assert third.batches == []
    assert lags(path, "nightly") == {0: 0, 1: 0}


def test_failed_batch_is_repeated_unchanged(collect: Callable[..., Collected], path: Path) -> None:
    failing = collect(startingOffsets="-5")
    tried: list[list[RowOffset]] = []

    def fail(frame: DataFrame, number: int) -> None:
        tried.append(row_offsets(frame))
        raise RuntimeError("the sink is down")

    query = (
        failing.load()
        .writeStream.foreachBatch(fail)
        .option("checkpointLocation", str(failing.checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(Exception, match="the sink is down"):
        query.awaitTermination()
    add(path, "orders", 40)

    again = collect(startingOffsets="-5")
    again.available()

    assert tried == [[*span("orders", 0, 15, 20), *span("orders", 1, 5, 10)]]
    assert again.batches == [*tried, span("orders", 0, 20, 60)]


def test_running_query_finds_new_partitions_and_topics(collect: Callable[..., Collected], path: Path) -> None:
    collected = collect(subscribePattern="orders|stock.*", startingOffsets="latest")
    query = collected.start()
    try:
        query.processAllAvailable()
        with open_store(path) as store:
            store.add_partitions("orders", partitions=3)
            append(store, "orders", numbered(3), partition=2)
            store.create_topic("stock", partitions=1)
            append(store, "stock", numbered(2))
        query.processAllAvailable()
        add(path, "orders", 1)
        query.processAllAvailable()
    finally:
        query.stop()
    assert collected.rows == [*span("orders", 0, 20, 21), *span("orders", 2, 0, 3), *span("stock", 0, 0, 2)]


_WRITE = """
import sys
import seeklog
store = seeklog.open(sys.argv[1], background=False)
for line in sys.stdin:
    with store.producer(linger_ms=0) as producer:
        for number in range(int(line)):
            producer.send("orders", b"live", partition=number % 2)
    print("written", flush=True)
store.close()
"""


def test_stream_follows_another_process_across_a_restart(collect: Callable[..., Collected], path: Path) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITE, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert writer.stdin is not None
    assert writer.stdout is not None
    rows: list[RowOffset] = []
    try:
        for _ in range(2):
            collected = collect(startingOffsets="earliest", maxOffsetsPerTrigger=1000)
            query = collected.start()
            try:
                for _ in range(3):
                    # The writer continues while batches are read.
                    writer.stdin.write("700\n700\n")
                    writer.stdin.flush()
                    assert writer.stdout.readline() == "written\n"
                    query.processAllAvailable()
                    assert writer.stdout.readline() == "written\n"
            finally:
                query.stop()
            rows += collected.rows
    finally:
        writer.communicate()
    rest = collect()
    rest.available()
    assert sorted(rows + rest.rows) == everything(path, "orders")
    assert len(rows + rest.rows) == 30 + 2 * 3 * 1400


def test_streams_of_one_store_can_be_united(spark: SparkSession, collect: Callable[..., Collected], path: Path) -> None:
    collected = collect(startingOffsets="earliest", maxOffsetsPerTrigger=20)
    returns = spark.readStream.format("seeklog").options(
        **spark_options(path, subscribe="returns", startingOffsets="-2")
    )
    first = spark.readStream.format("seeklog").options(
        **spark_options(path, assign='{"orders": [0]}', startingOffsets='{"orders": {"0": 18}}')
    )
    query = collected.available(collected.load().union(returns.load()).union(first.load()))
    assert collected.rows == sorted(
        [*everything(path, "orders"), *span("returns", 0, 2, 4), *span("orders", 0, 18, 20)]
    )
    assert len(query.recentProgress[0].sources) == 3


def test_query_may_run_once_or_to_an_end(collect: Callable[..., Collected], path: Path) -> None:
    ended = collect(startingOffsets="earliest", endingOffsets='{"orders": {"0": 7, "1": 3}}', maxOffsetsPerTrigger=6)
    ended.available()
    assert ended.rows == [*span("orders", 0, 0, 7), *span("orders", 1, 0, 3)]
    once = collect(maxOffsetsPerTrigger=2)
    once.start(once=True).awaitTermination()
    assert once.batches == [[*span("orders", 0, 7, 20), *span("orders", 1, 3, 10)]], "all of it, whatever the limit is"


def test_stream_has_the_columns_of_a_batch(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    def rows(options: dict[str, str], schema: str | None) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        reader = spark.readStream.format("seeklog").options(**options)
        frame = (reader.schema(schema) if schema else reader).load()
        frame.writeStream.foreachBatch(lambda batch, _: found.extend(tuple(row) for row in batch.collect())).trigger(
            availableNow=True
        ).start().awaitTermination()
        return found

    options = spark_options(path, subscribe="returns", startingOffsets="earliest")
    headers = options | {"includeheaders": "true"}
    batch = spark.read.format("seeklog").options(**headers).load()
    assert rows(headers, None) == [tuple(row) for row in batch.collect()]
    assert len(batch.columns) == 8
    assert rows(options | {"columns": "offset,value"}, None) == [(n, b"%010d" % n) for n in range(4)]
    assert rows(options, "value binary, partition int") == [(b"%010d" % n, 0) for n in range(4)]


def test_watermark_advances_and_state_survives_batches(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    found: dict[int, int] = {}
    frame = spark.readStream.format("seeklog").options(
        **spark_options(path, assign='{"orders": [0]}', startingOffsets="earliest", maxOffsetsPerTrigger=7)
    )
    timed = frame.load().withWatermark("timestamp", "1 second")
    counts = timed.groupBy(window("timestamp", "5 seconds")).count().selectExpr("unix_millis(window.start) at", "count")
    counts.writeStream.outputMode("append").foreachBatch(
        lambda batch, _: found.update({row["at"]: row["count"] for row in batch.collect()})
    ).trigger(availableNow=True).option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()
    # Records 0 to 19 are a second apart: the window from 15 on is open when the last record is read.
    assert found == {START_MS + at * 1000: 5 for at in (0, 5, 10)}


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"subscribe": "odrers"}, TopicNotFound, "odrers"),
        ({"maxOffsetsPerTrigger": "many"}, InvalidConfig, "maxOffsetsPerTrigger"),
        ({"startingOffsets": '{"orders": {"9": 1}}'}, InvalidConfig, "orders-9"),
    ],
    ids=str,
)
def test_query_error_is_one_typed_line(
    collect: Callable[..., Collected], options: dict[str, object], kind: type, says: str
) -> None:
    assert says in message_of(lambda: collect(**options).available(), kind)


def test_stream_refuses_wrong_schema(spark: SparkSession, path: Path) -> None:
    frame = spark.readStream.format("seeklog").options(**spark_options(path, subscribe="orders")).schema("value string")
    query = frame.load().writeStream.format("noop").trigger(availableNow=True)
    assert "column value" in message_of(lambda: query.start().awaitTermination(), UsageError)
