"""Consumers that deserialize: their records, and records that cannot be deserialized."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cases import for_each
from log.workbench import GatedFiles, TickingClock
from seeklog import Record, Store, TopicPartition, serializers
from seeklog.clients import ConsumerRecord, DeserializingConsumer
from seeklog.errors import DeserializationError, DiskFull, LogLocked, TopicNotFound, UsageError
from store.workbench import Holder, open_store

EARLIEST: dict[str, Any] = {"auto_offset_reset": "earliest"}
ZERO = TopicPartition("orders", 0)
BAD = b"{"


def good(number: int) -> bytes:
    return json.dumps({"id": number}).encode()


def put(store: Store, *values: bytes | None, topic: str = "orders", partition: int = 0, **fields: Any) -> None:
    with store.writer(topic, partition) as log:
        log.append_many([Record(value, **fields) for value in values])


def read_all(consumer: DeserializingConsumer) -> list[Any]:
    found: list[Any] = []
    while records := consumer.poll():
        found += [record.value for record in records]
    return found


def poll_often(consumer: DeserializingConsumer, times: int) -> None:
    for _ in range(times):
        consumer.poll()


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    with open_store(root, clock=TickingClock()) as store:
        store.create_topic("orders", partitions=1)
        yield store


# ---------------------------------------------------------------- records


def test_values_and_keys_are_deserialized(store: Store) -> None:
    put(store, good(1), key="Zoë".encode(), headers=[("trace", b"7f")], timestamp_ms=5)
    with store.consumer(["orders"], key=str, value=json, **EARLIEST) as consumer:
        (record,) = consumer.poll()
    assert isinstance(record, ConsumerRecord)
    assert (record.key, record.value) == ("Zoë", {"id": 1})
    assert (record.topic, record.partition, record.offset) == ("orders", 0, 0)
    assert (record.timestamp_ms, record.headers) == (5, (("trace", b"7f"),))
    assert (record.record.key, record.record.value) == ("Zoë".encode(), good(1))
    assert repr(record) == (
        "ConsumerRecord(topic='orders', partition=0, offset=0, timestamp_ms=5, key='Zoë', value={'id': 1})"
    )


def test_field_without_a_deserializer_keeps_its_bytes(store: Store) -> None:
    put(store, good(1), key=b"\xff")
    with store.consumer(["orders"], value=json, **EARLIEST) as consumer:
        assert consumer.poll()[0].key == b"\xff"
    with store.consumer(["orders"], key=bytes.hex, **EARLIEST) as consumer:
        (record,) = consumer.poll()
        assert (record.key, record.value) == ("ff", good(1))


def test_missing_key_and_tombstone_stay_none_without_a_call(store: Store) -> None:
    put(store, None)

    def refuse(data: bytes) -> None:
        raise AssertionError(data)

    with store.consumer(["orders"], key=refuse, value=refuse, **EARLIEST) as consumer:
        (record,) = consumer.poll()
        assert (record.key, record.value) == (None, None)


@for_each("max_records", [1, 2, 3, 7, 100])
def test_polls_and_iteration_return_every_record_once_and_in_order(tmp_path: Path, max_records: int) -> None:
    with open_store(tmp_path / str(max_records), clock=TickingClock()) as store:
        store.create_topic("orders", partitions=3)
        for partition in range(3):
            put(store, *(good(100 * partition + number) for number in range(10)), partition=partition)
        everything = sorted(100 * partition + number for partition in range(3) for number in range(10))
        with store.consumer(["orders"], value=json, max_poll_records=max_records, **EARLIEST) as consumer:
            polled = [value["id"] for value in read_all(consumer)]
        assert sorted(polled) == everything
        for partition in range(3):
            mine = [number for number in polled if number // 100 == partition]
            assert mine == sorted(mine)
        with store.consumer(
            ["orders"], value=json, max_poll_records=max_records, consumer_timeout_ms=0, **EARLIEST
        ) as consumer:
            assert sorted(record.value["id"] for record in consumer) == everything


def test_iteration_that_stops_in_a_chunk_continues_there(store: Store) -> None:
    put(store, *map(good, range(20)))
    with store.consumer(["orders"], value=json, consumer_timeout_ms=0, **EARLIEST) as consumer:
        for record in consumer:
            if record.value["id"] == 6:
                break
        assert consumer.position(ZERO) == 7
        assert [record.value["id"] for record in consumer] == list(range(7, 20))


def test_consumer_without_deserializers_is_the_plain_one(store: Store) -> None:
    put(store, good(1))
    with store.consumer(["orders"], **EARLIEST) as consumer:
        assert isinstance(consumer.poll()[0], Record)
        assert not isinstance(consumer, DeserializingConsumer)


@for_each("words", [{"on_error": "skip"}, {"dead_letter_topic": "orders"}])
def test_handling_of_errors_needs_a_deserializer(tmp_path: Path, words: dict[str, Any]) -> None:
    with open_store(tmp_path) as store, pytest.raises(UsageError, match="are for deserializers; pass key or value"):
        store.consumer([], **words)


# ---------------------------------------------------------------- errors


def test_error_names_the_record_and_the_cause(store: Store) -> None:
    put(store, good(0), BAD)
    with store.consumer(["orders"], value=json, **EARLIEST) as consumer:
        assert [record.offset for record in consumer.poll()] == [0]
        with pytest.raises(DeserializationError) as caught:
            consumer.poll()
    error = caught.value
    assert (error.topic, error.partition, error.offset, error.field) == ("orders", 0, 1, "value")
    assert error.record.value == BAD
    assert isinstance(error.__cause__, json.JSONDecodeError)
    assert str(error) == (
        "orders-0, offset 1: json.loads cannot deserialize the value: JSONDecodeError: Expecting property name "
        "enclosed in double quotes: line 1 column 2 (char 1). Seek to offset 2 to skip the record, or pass on_error or "
        "dead_letter_topic to the consumer"
    )


def test_key_that_cannot_be_deserialized_is_named(store: Store) -> None:
    put(store, good(0), key=b"\xff")
    with store.consumer(["orders"], key=str, value=json, **EARLIEST) as consumer:
        with pytest.raises(DeserializationError, match="cannot deserialize the key: UnicodeDecodeError") as caught:
            consumer.poll()
        assert caught.value.field == "key"


@pytest.mark.id("bad-record-stays")
def test_consumer_stays_at_a_record_that_it_raised_for(root: Path) -> None:
    with open_store(root, clock=TickingClock()) as store:
        store.create_topic("orders", partitions=1)
        put(store, good(0), good(1), BAD, good(3))
        with store.consumer(["orders"], group="g", value=json, **EARLIEST) as consumer:
            assert len(consumer.poll()) == 2
            for _ in range(3):
                with pytest.raises(DeserializationError, match="offset 2"):
                    consumer.poll()
                assert consumer.position(ZERO) == 2
            consumer.commit()
    with open_store(root, clock=TickingClock()) as store:
        assert store.describe_group("g").committed[ZERO].offset == 2
        with store.consumer(["orders"], group="g", value=json, **EARLIEST) as consumer:
            with pytest.raises(DeserializationError) as caught:
                consumer.poll()
            error = caught.value
            consumer.seek((error.topic, error.partition), offset=error.offset + 1)
            assert read_all(consumer) == [{"id": 3}]


def test_iteration_raises_when_it_reaches_the_record(store: Store) -> None:
    put(store, good(0), good(1), BAD, good(3))
    seen: list[int] = []
    with store.consumer(["orders"], value=json, consumer_timeout_ms=0, **EARLIEST) as consumer:
        with pytest.raises(DeserializationError, match="offset 2"):
            seen.extend(record.offset for record in consumer)
        assert seen == [0, 1]
        consumer.seek(ZERO, offset=3)
        assert [record.offset for record in consumer] == [3]


def test_bad_record_does_not_hide_records_of_other_partitions(root: Path) -> None:
    with open_store(root, clock=TickingClock()) as store:
        store.create_topic("orders", partitions=3)
        for partition in range(3):
            put(store, *([good(partition)] * 5), partition=partition)
        put(store, BAD, good(9), partition=1)
        with store.consumer(["orders"], value=json, max_poll_records=2, **EARLIEST) as consumer:
            seen, met = 0, []
            for _ in range(40):
                try:
                    seen += len(consumer.poll())
                except DeserializationError as error:
                    met.append((error.partition, error.offset))
            assert seen == 15
            assert len(met) > 3
            assert set(met) == {(1, 5)}


def test_error_is_met_although_other_partitions_always_have_records(root: Path) -> None:
    with open_store(root, clock=TickingClock()) as store:
        store.create_topic("orders", partitions=2)
        put(store, *map(good, range(400)))
        put(store, BAD, partition=1)
        with (
            store.consumer(["orders"], value=json, max_poll_records=2, **EARLIEST) as consumer,
            pytest.raises(DeserializationError),
        ):
            poll_often(consumer, 10)


@for_each("interrupt", [KeyboardInterrupt, SystemExit])
def test_interrupted_deserializer_loses_no_record(tmp_path: Path, interrupt: type[BaseException]) -> None:
    calls = 0

    def load(data: bytes) -> Any:
        nonlocal calls
        calls += 1
        if calls == 7:
            raise interrupt
        return json.loads(data)

    with open_store(tmp_path / interrupt.__name__, clock=TickingClock()) as store:
        store.create_topic("orders", partitions=2)
        for partition in range(2):
            put(store, *(good(10 * partition + number) for number in range(5)), partition=partition)
        with store.consumer(["orders"], value=load, **EARLIEST) as consumer:
            with pytest.raises(interrupt):
                consumer.poll()
            assert sorted(value["id"] for value in read_all(consumer)) == [*range(5), *range(10, 15)]


def test_deserializer_that_fails_once_loses_no_record(store: Store) -> None:
    put(store, *map(good, range(5)))
    failures = [2, 3]

    def load(data: bytes) -> Any:
        value = json.loads(data)
        if failures and value["id"] == failures[0]:
            failures.pop(0)
            raise ConnectionError("the registry is away")
        return value

    with store.consumer(["orders"], value=load, **EARLIEST) as consumer:
        seen: list[int] = []
        for _ in range(10):
            with contextlib.suppress(DeserializationError):
                seen += [record.value["id"] for record in consumer.poll()]
        assert seen == list(range(5))


# ---------------------------------------------------------------- skipping


def test_skipped_records_are_logged_and_passed(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    put(store, BAD, good(1), BAD, BAD, good(4), BAD)
    with (
        caplog.at_level(logging.WARNING, "seeklog"),
        store.consumer(["orders"], group="g", value=json, on_error="skip", **EARLIEST) as consumer,
    ):
        assert read_all(consumer) == [{"id": 1}, {"id": 4}]
        assert consumer.position(ZERO) == 6
        counted = consumer.metrics()
        assert (counted["records_consumed"], counted["records_failed"], counted["dead_letters"]) == (2, 4, 0)
        consumer.commit()
    assert store.describe_group("g").committed[ZERO].offset == 6
    assert [message.split(":")[1] for message in caplog.messages if "skipped" in message] == [
        f" orders-0, offset {offset}" for offset in (0, 2, 3, 5)
    ]


def test_topic_of_bad_records_alone_is_passed_by_iteration(store: Store) -> None:
    put(store, *([BAD] * 2000))
    with store.consumer(["orders"], value=json, on_error="skip", consumer_timeout_ms=0, **EARLIEST) as consumer:
        assert list(consumer) == []
        assert consumer.position(ZERO) == 2000


def test_handler_gets_each_error_once_and_skips_the_record(store: Store) -> None:
    put(store, good(0), BAD, good(2), BAD)
    errors: list[DeserializationError] = []
    with store.consumer(["orders"], value=json, on_error=errors.append, **EARLIEST) as consumer:
        assert read_all(consumer) == [{"id": 0}, {"id": 2}]
    assert [(error.offset, error.record.value) for error in errors] == [(1, BAD), (3, BAD)]


def test_handler_that_raises_keeps_the_consumer_at_the_record(store: Store) -> None:
    put(store, BAD, BAD, good(2))
    met: list[int] = []

    def handle(error: DeserializationError) -> None:
        met.append(error.offset)
        if error.offset == 1 and met.count(1) < 3:
            raise RuntimeError("not yet")

    with store.consumer(["orders"], value=json, on_error=handle, **EARLIEST) as consumer:
        for _ in range(2):
            with pytest.raises(RuntimeError):
                consumer.poll()
            assert consumer.position(ZERO) == 1
        assert read_all(consumer) == [{"id": 2}]
    assert met == [0, 1, 1, 1]


@for_each("wrong", ["ignore", None, 3])
def test_unknown_way_of_handling_errors_is_refused(tmp_path: Path, wrong: Any) -> None:
    with open_store(tmp_path) as store, pytest.raises(UsageError, match='on_error must be "raise", "skip" or a call'):
        store.consumer([], value=json, on_error=wrong)


# ---------------------------------------------------------------- dead letters


@pytest.fixture
def letters(store: Store) -> Callable[[], list[Record]]:
    store.create_topic("bad", partitions=2)

    def read() -> list[Record]:
        return [record for number in range(2) for record in store.log("bad", number).scan()]

    return read


@pytest.mark.id("dead-letter-headers")
def test_dead_letter_is_the_record_with_the_headers_of_kafka_connect(
    store: Store, letters: Callable[[], list[Record]]
) -> None:
    put(store, good(0))
    put(store, BAD, key=b"anna", headers=[("trace", b"7f"), ("empty", None)], timestamp_ms=1234)
    with store.consumer(
        ["orders"], group="billing", value=json, dead_letter_topic="bad", client_id="worker", **EARLIEST
    ) as consumer:
        assert read_all(consumer) == [{"id": 0}]
        member = consumer.member_id
    (letter,) = letters()
    assert (letter.key, letter.value, letter.timestamp_ms) == (b"anna", BAD, 1234)
    assert letter.headers[:2] == (("trace", b"7f"), ("empty", None))
    context = dict(letter.headers[2:])
    trace = context.pop("__connect.errors.exception.stacktrace")
    assert context == {
        "__connect.errors.topic": b"orders",
        "__connect.errors.partition": b"0",
        "__connect.errors.offset": b"1",
        "__connect.errors.connector.name": b"billing",
        "__connect.errors.task.id": str(member).encode(),
        "__connect.errors.stage": b"VALUE_CONVERTER",
        "__connect.errors.class.name": b"json.loads",
        "__connect.errors.exception.class.name": b"json.decoder.JSONDecodeError",
        "__connect.errors.exception.message": (
            b"Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
        ),
    }
    assert trace is not None
    assert trace.startswith(b"Traceback")
    assert trace.rstrip().endswith(b"line 1 column 2 (char 1)")


def test_dead_letter_of_a_key_names_the_stage(store: Store, letters: Callable[[], list[Record]]) -> None:
    put(store, good(0), key=b"\xff")
    with store.consumer(["orders"], key=str, value=json, dead_letter_topic="bad", **EARLIEST) as consumer:
        assert read_all(consumer) == []
    headers = dict(letters()[0].headers)
    assert headers["__connect.errors.stage"] == b"KEY_CONVERTER"
    assert headers["__connect.errors.connector.name"] == b"seeklog"
    assert headers["__connect.errors.task.id"] == b"0"


def test_dead_letter_that_fails_again_keeps_its_first_origin(store: Store, letters: Callable[[], list[Record]]) -> None:
    put(store, BAD)
    store.create_topic("worse", partitions=1)
    for source, target in (("orders", "bad"), ("bad", "worse")):
        with store.consumer([source], value=json, dead_letter_topic=target, **EARLIEST) as consumer:
            assert read_all(consumer) == []
    (letter,) = store.log("worse", 0).scan()
    assert [value for name, value in letter.headers if name == "__connect.errors.topic"] == [b"orders"]


@pytest.mark.id("dead-letters-are-complete")
def test_every_bad_record_is_a_dead_letter_once_and_every_other_is_returned(
    store: Store, letters: Callable[[], list[Record]]
) -> None:
    values = [BAD if number % 7 in (0, 3, 4) else good(number) for number in range(2000)]
    put(store, *values)
    with store.consumer(["orders"], group="g", value=json, dead_letter_topic="bad", **EARLIEST) as consumer:
        assert [value["id"] for value in read_all(consumer)] == [
            number for number in range(2000) if values[number] != BAD
        ]
        consumer.commit()
        counted = consumer.metrics()
    origins = sorted(int(dict(letter.headers)["__connect.errors.offset"] or b"") for letter in letters())
    assert origins == [number for number in range(2000) if values[number] == BAD]
    assert counted["dead_letters"] == counted["records_failed"] == len(origins)


def test_run_of_dead_letters_shares_a_sync(store: Store, letters: Callable[[], list[Record]]) -> None:
    put(store, *([BAD] * 500))
    before = store.metrics()["log"]["flush_seconds"]["count"]
    with store.consumer(["orders"], value=json, dead_letter_topic="bad", **EARLIEST) as consumer:
        assert read_all(consumer) == []
    assert len(letters()) == 500
    # One for each partition of the topic, and what opening a log syncs.
    assert store.metrics()["log"]["flush_seconds"]["count"] - before <= 4


def test_failed_dead_letter_keeps_the_consumer_at_the_record(root: Path) -> None:
    files = GatedFiles()
    with open_store(root, files=files, clock=TickingClock()) as store:
        store.create_topic("orders", partitions=1)
        store.create_topic("bad", partitions=1)
        put(store, BAD, good(1))
        put(store, b"opens the log", topic="bad")
        with store.consumer(["orders"], value=json, dead_letter_topic="bad", **EARLIEST) as consumer:
            files.write_errors["bad-0"] = errno.ENOSPC
            for _ in range(2):
                with pytest.raises(DiskFull):
                    consumer.poll()
                assert consumer.position(ZERO) == 0
            files.write_errors.clear()
            assert read_all(consumer) == [{"id": 1}]
        assert len(list(store.log("bad", 0).scan())) == 2


def test_dead_letters_of_a_partition_that_another_process_writes_are_refused(root: Path) -> None:
    with open_store(root, clock=TickingClock()) as store:
        store.create_topic("orders", partitions=1)
        store.create_topic("bad", partitions=1)
        put(store, BAD)
        put(store, b"x", topic="bad")
        with (
            store.consumer(["orders"], value=json, dead_letter_topic="bad", **EARLIEST) as consumer,
            Holder(root / "bad-0" / ".lock"),
        ):
            with pytest.raises(LogLocked):
                consumer.poll()
            assert consumer.position(ZERO) == 0


def test_dead_letters_may_share_a_partition_with_a_producer_of_this_process(
    store: Store, letters: Callable[[], list[Record]]
) -> None:
    put(store, BAD)
    with store.producer(linger_ms=0) as producer:
        for number in range(2):
            producer.send("bad", b"x", partition=number).result(60)
        with store.consumer(["orders"], value=json, dead_letter_topic="bad", **EARLIEST) as consumer:
            assert read_all(consumer) == []
        producer.send("bad", b"y", partition=0).result(60)
    assert len(letters()) == 4


def test_topic_of_dead_letters_must_exist_and_be_another_one(store: Store) -> None:
    with pytest.raises(TopicNotFound):
        store.consumer(["orders"], value=json, dead_letter_topic="missing")
    with pytest.raises(UsageError, match="orders has the dead letters of this consumer"):
        store.consumer(["orders"], value=json, dead_letter_topic="orders")
    with store.consumer(value=json, dead_letter_topic="orders") as consumer, pytest.raises(UsageError):
        consumer.assign([ZERO])
    with pytest.raises(UsageError, match="not both"):
        store.consumer(["orders"], value=json, dead_letter_topic="orders", on_error="skip")
    with pytest.raises(UsageError):
        store.consumer(["orders"], value=json, dead_letter_topic="__consumer_offsets")


def test_read_only_store_keeps_no_dead_letters(root: Path) -> None:
    with open_store(root) as store:
        store.create_topic("orders", partitions=1)
        store.create_topic("bad", partitions=1)
        put(store, BAD, good(1))
    with open_store(root, read_only=True) as store:
        with pytest.raises(UsageError, match="dead letters cannot be written; pass on_error"):
            store.consumer(["orders"], value=json, dead_letter_topic="bad")
        with store.consumer(["orders"], value=json, on_error="skip", **EARLIEST) as consumer:
            assert read_all(consumer) == [{"id": 1}]


# ---------------------------------------------------------------- groups


def test_commits_cover_skipped_records_and_no_others(root: Path) -> None:
    """Goal: whenever a consumer stops, its group continues at the first record that was not returned or handled."""
    values = [BAD if number in (3, 4, 8) else good(number) for number in range(10)]
    with open_store(root, clock=TickingClock()) as store:
        store.create_topic("orders", partitions=1)
        put(store, *values)
        seen: list[int] = []
        for _ in range(30):
            with store.consumer(
                ["orders"], group="g", value=json, on_error="skip", max_poll_records=1, **EARLIEST
            ) as consumer:
                seen += [record.value["id"] for record in consumer.poll()]
        assert seen == [number for number in range(10) if values[number] != BAD]


def test_msgpack_and_text_travel_through_a_topic(store: Store) -> None:
    pytest.importorskip("msgpack")
    dump = serializers.msgpack.dumps
    put(store, dump({"id": 1}), key=b"k")  # type: ignore[arg-type]
    with store.consumer(["orders"], key=serializers.text, value=serializers.msgpack, **EARLIEST) as consumer:
        (record,) = consumer.poll()
        assert (record.key, record.value) == ("k", {"id": 1})
