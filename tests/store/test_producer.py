"""The producer: the partitions of records, the results of futures, and refused inputs."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import seeklog
from log.workbench import PATIENCE_S, START_MS, CountingFiles, FakeClock, GatedFiles, wait_until
from seeklog import Record
from seeklog.clients import RecordMetadata, SendFuture
from seeklog.errors import InvalidName, InvalidRecord, LogClosed, RecordTooLarge, TopicNotFound, UsageError
from seeklog.record.key_hash import murmur2, partition_of
from seeklog.store import Store
from store.producing import NEVER_MS, flush_expecting
from store.workbench import open_store, read

kafka_partitioner = pytest.importorskip("kafka.partitioner.default", reason="needs kafka-python")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store") as store:
        store.create_topic("events", partitions=4)
        yield store


def records_of(store: Store, topic: str, partition: int) -> list[Record]:
    return list(store.log(topic, partition).scan())


def batch_counts(store: Store, topic: str, partition: int = 0) -> list[int]:
    return [batch.record_count for batch in store.log(topic, partition).read_batches(0)]


# ---------------------------------------------------------------- partitions of keys


@pytest.mark.parametrize("length", range(65))
def test_keys_of_every_length_hash_as_in_kafka_python(length: int) -> None:
    draw = random.Random(length)
    keys = [draw.randbytes(length) for _ in range(60)] + [bytes(length), b"\xff" * length, b"\x80" * length]

    assert [murmur2(key) for key in keys] == [kafka_partitioner.murmur2(key) for key in keys]


class OneTopic:
    """The part of a cluster that kafka-python's partitioner uses."""

    def __init__(self, count: int) -> None:
        self._count = count

    def topics(self) -> set[str]:
        return {"events"}

    def partitions_for_topic(self, _topic: str) -> set[int]:
        return set(range(self._count))

    available_partitions_for_topic = partitions_for_topic


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 50, 64, 1000, 10_000])
def test_key_maps_to_same_partition_as_in_kafka_python(count: int) -> None:
    draw = random.Random(count)
    partitioner = kafka_partitioner.DefaultPartitioner()
    keys = [draw.randbytes(draw.randrange(40)) for _ in range(200)]

    theirs = [partitioner.partition("events", None, key, None, None, OneTopic(count)) for key in keys]

    assert [partition_of(key, count) for key in keys] == theirs


@pytest.mark.id("partition-by-key")
def test_producer_sends_every_key_to_same_partition_as_kafka_python(store: Store) -> None:
    draw = random.Random(3)
    keys = [draw.randbytes(size % 33) for size in range(500)]
    with store.producer() as producer:
        futures = [producer.send("events", b"value", key=key) for key in keys]

    expected = [(kafka_partitioner.murmur2(key) & 0x7FFFFFFF) % 4 for key in keys]
    assert [future.partition for future in futures] == expected
    for partition in range(4):
        mine = [key for key, where in zip(keys, expected, strict=True) if where == partition]
        assert [record.key for record in records_of(store, "events", partition)] == mine


def test_empty_key_is_a_key(store: Store) -> None:
    with store.producer(batch_bytes=1) as producer:
        partitions = {producer.send("events", b"value", key=b"").partition for _ in range(20)}

    assert partitions == {(kafka_partitioner.murmur2(b"") & 0x7FFFFFFF) % 4}


def test_explicit_partition_overrides_key(store: Store) -> None:
    with store.producer() as producer:
        for partition in range(4):
            assert producer.send("events", b"value", key=b"same", partition=partition).partition == partition

    assert [len(records_of(store, "events", partition)) for partition in range(4)] == [1, 1, 1, 1]


def test_custom_partitioner_gets_key_and_partition_count(store: Store) -> None:
    asked: list[tuple[bytes, int]] = []

    def first_byte(key: bytes, count: int) -> int:
        asked.append((key, count))
        return key[0] % count

    with store.producer(partitioner=first_byte) as producer:
        partitions = [producer.send("events", b"value", key=bytes([number])).partition for number in range(8)]

    assert partitions == [0, 1, 2, 3, 0, 1, 2, 3]
    assert asked == [(bytes([number]), 4) for number in range(8)]


@pytest.mark.parametrize("answer", [-1, 4, 2**70, 1.5, "1", None], ids=repr)
def test_invalid_result_of_partitioner_is_refused(store: Store, answer: Any) -> None:
    with (
        store.producer(partitioner=lambda _key, _count: answer) as producer,
        pytest.raises(TopicNotFound, match="no partition"),
    ):
        producer.send("events", b"value", key=b"key")

    assert [len(records_of(store, "events", partition)) for partition in range(4)] == [0, 0, 0, 0]


# ---------------------------------------------------------------- partitions of records without a key


def test_records_without_key_stick_to_partition_until_batch_is_full(store: Store) -> None:
    """A record of 400 bytes is bounded by 426, so a batch of 2,000 with its header of 61 holds four."""
    with store.producer(batch_bytes=2000, linger_ms=NEVER_MS) as producer:
        partitions = [producer.send("events", bytes(400)).partition for _ in range(40)]

    batches = [partitions[at : at + 4] for at in range(0, 40, 4)]
    assert all(len(set(batch)) == 1 for batch in batches)
    assert all(batch[0] != following[0] for batch, following in pairwise(batches))
    assert sum(batch_counts(store, "events", partition).count(4) for partition in range(4)) == 10


def test_records_without_key_use_all_partitions_evenly(store: Store) -> None:
    random.seed(11)
    with store.producer(batch_bytes=1, linger_ms=0) as producer:
        used = Counter(producer.send("events", b"value").partition for _ in range(400))

    # Each next partition is drawn from the three others: 100 of 400 each, with a standard deviation of about 7.
    assert sorted(used) == [0, 1, 2, 3]
    assert min(used.values()) > 50


def test_sticky_partition_changes_after_batch_lingered(store: Store) -> None:
    with store.producer(linger_ms=NEVER_MS) as producer:
        partitions = []
        for _ in range(6):
            partitions.append(producer.send("events", b"value").partition)
            producer.flush()

    assert all(one != other for one, other in pairwise(partitions))


def test_single_partition_stays_sticky(store: Store) -> None:
    store.create_topic("single", partitions=1)
    with store.producer(batch_bytes=1) as producer:
        assert {producer.send("single", b"value").partition for _ in range(10)} == {0}


def test_producer_continues_with_added_partitions(store: Store) -> None:
    with store.producer(batch_bytes=1, linger_ms=0) as producer:
        producer.send("events", b"value", key=b"key").result(PATIENCE_S)
        store.add_partitions("events", partitions=9)
        keys = [b"key %d" % number for number in range(60)]
        futures = [producer.send("events", b"value", key=key) for key in keys]

    assert [future.partition for future in futures] == [partition_of(key, 9) for key in keys]


# ---------------------------------------------------------------- refused inputs


@pytest.mark.parametrize("partition", [-1, 4, 2**40], ids=repr)
def test_missing_partition_is_refused(store: Store, partition: int) -> None:
    with store.producer() as producer, pytest.raises(TopicNotFound, match="it has 0, 1, 2, 3"):
        producer.send("events", b"value", partition=partition)


def test_unknown_topic_is_refused_with_nearest_name(store: Store) -> None:
    with store.producer() as producer, pytest.raises(TopicNotFound, match="did you mean 'events'"):
        producer.send("event", b"value")


@pytest.mark.parametrize("topic", ["", "..", "a/b", "a b", "a" * 250], ids=repr)
def test_invalid_topic_name_is_refused(store: Store, topic: str) -> None:
    with store.producer() as producer, pytest.raises(InvalidName):
        producer.send(topic, b"value")


def test_internal_topic_is_refused_by_producer(store: Store) -> None:
    with store.consumer(group="group") as consumer:
        consumer.assign([("events", 0)])
        consumer.commit()
    with store.producer() as producer, pytest.raises(UsageError, match="__consumer_offsets"):
        producer.send("__consumer_offsets", b"value", key=b"key")


@pytest.mark.parametrize(
    "words",
    [
        {"value": "text"},
        {"value": 5},
        {"value": {"id": 1}},
        {"value": b"", "key": "text"},
        {"value": b"", "key": 5},
        {"value": b"", "headers": [("name", "text")]},
        {"value": b"", "headers": [(5, b"")]},
        {"value": b"", "timestamp_ms": "now"},
        {"value": b"", "timestamp_ms": 2**63},
    ],
    ids=repr,
)
def test_record_of_wrong_types_is_refused_by_send(store: Store, words: dict[str, Any]) -> None:
    value = words.pop("value")
    with store.producer(linger_ms=0) as producer:
        with pytest.raises(InvalidRecord):
            producer.send("events", value, **words)
        producer.send("events", b"good").result(PATIENCE_S)


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
@pytest.mark.parametrize("words", [{}, {"partition": 0}], ids=["any partition", "explicit partition"])
def test_record_without_key_is_refused_in_compacted_topic(store: Store, policy: str, words: dict[str, int]) -> None:
    store.create_topic("latest", partitions=1, config={"cleanup.policy": policy})
    with store.producer(linger_ms=0) as producer:
        with pytest.raises(InvalidRecord, match="needs a key"):
            producer.send("latest", b"value", **words)
        assert producer.send("latest", b"value", key=b"key", **words).result(PATIENCE_S).offset == 0


@pytest.mark.parametrize(
    "words", [{"batch_bytes": 0}, {"buffer_bytes": 0}, {"linger_ms": -1}, {"batch_bytes": 100, "buffer_bytes": 99}]
)
def test_impossible_producer_is_refused(store: Store, words: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        store.producer(**words)


def test_read_only_store_has_no_producer(store: Store) -> None:
    with (
        seeklog.open(store.path, read_only=True, background=False) as reader,
        pytest.raises(UsageError, match="read-only"),
    ):
        reader.producer()


def test_too_large_record_fails_alone(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", max_message_bytes=1000) as store:
        store.create_topic("events", partitions=1)
        with store.producer(linger_ms=NEVER_MS) as producer:
            futures = [producer.send("events", value) for value in (b"before", bytes(2000), b"after")]
            flush_expecting(producer, RecordTooLarge)

            assert isinstance(futures[1].exception(PATIENCE_S), RecordTooLarge)
            with pytest.raises(RecordTooLarge):
                futures[1].result(PATIENCE_S)
            assert [future.result(PATIENCE_S).offset for future in (futures[0], futures[2])] == [0, 1]
            assert producer.send("events", b"later").partition == 0
        assert read(store, "events") == [b"before", b"after", b"later"]


# ---------------------------------------------------------------- futures and callbacks


def test_future_returns_position_of_its_record(store: Store) -> None:
    with store.producer(linger_ms=0) as producer:
        future = producer.send("events", b"value", partition=2)
        result = future.result(PATIENCE_S)
        assert result == RecordMetadata("events", 2, 0)
        assert (result.topic, result.partition, result.offset) == ("events", 2, 0)
        assert future.exception(PATIENCE_S) is None
        assert producer.send("events", b"value", partition=2).result(PATIENCE_S).offset == 1


def test_record_is_stored_unchanged(store: Store) -> None:
    headers = (("trace", b"1"), ("none", None))
    with store.producer() as producer:
        producer.send("events", None, key=b"tombstone", headers=headers, timestamp_ms=5, partition=1)
        producer.send("events", b"", partition=1)

    first, second = records_of(store, "events", 1)
    assert (first.value, first.key, tuple(first.headers), first.timestamp_ms) == (None, b"tombstone", headers, 5)
    assert (second.value, second.key, tuple(second.headers), second.timestamp_ms) == (b"", None, (), START_MS)


def test_pending_future_is_not_done_and_times_out(store: Store) -> None:
    with store.producer(linger_ms=NEVER_MS) as producer:
        future = producer.send("events", b"value")
        assert not future.done()
        with pytest.raises(TimeoutError):
            future.result(0)
        with pytest.raises(TimeoutError):
            future.exception(0)
        producer.flush()
        assert future.done()


def test_callbacks_run_once_each_in_order_of_records(store: Store) -> None:
    called: list[tuple[int, int]] = []

    def note(place: int) -> Callable[[SendFuture], object]:
        return lambda future: called.append((place, future.result(0).offset))

    with store.producer(batch_bytes=300) as producer:
        for place in range(50):
            producer.send("events", b"value", partition=1).add_done_callback(note(place))

    assert called == [(place, place) for place in range(50)]


def test_callback_added_after_completion_runs_at_once(store: Store) -> None:
    threads: list[threading.Thread] = []
    with store.producer() as producer:
        future = producer.send("events", b"value")
        producer.flush()
        future.add_done_callback(lambda _: threads.append(threading.current_thread()))

    assert threads == [threading.current_thread()]


def test_failing_callback_does_not_stop_others(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    called: list[int] = []
    with store.producer(linger_ms=0) as producer:
        for number in range(3):
            future = producer.send("events", b"value", partition=0)
            future.add_done_callback(lambda _, number=number: called.append(number) or 1 / (number - 1))  # type: ignore[misc]
        producer.flush()
        assert producer.send("events", b"value", partition=0).result(PATIENCE_S).offset == 3

    assert called == [0, 1, 2]
    assert "ZeroDivisionError" in caplog.text


def test_callback_may_send_without_waiting_for_room(store: Store) -> None:
    """Goal: no deadlock, although the buffer is full of records that only this thread can send."""
    sent: list[SendFuture] = []
    with store.producer(batch_bytes=200, buffer_bytes=200, linger_ms=0) as producer:
        future = producer.send("events", bytes(100), partition=0)
        future.add_done_callback(
            lambda _: sent.extend(producer.send("events", bytes(100), partition=1) for _ in range(20))
        )
        wait_until(lambda: len(sent) == 20, "the callback's records")
        assert [one.result(PATIENCE_S).offset for one in sent] == list(range(20))


def test_callback_cannot_flush_or_close(store: Store) -> None:
    errors: list[type[BaseException]] = []

    def try_both(_: SendFuture) -> None:
        for wait in (producer.flush, producer.close):
            try:
                wait()
            except UsageError as error:
                errors.append(type(error))

    with store.producer() as producer:
        producer.send("events", b"value").add_done_callback(try_both)
        producer.flush()

        assert errors == [UsageError, UsageError]
        assert producer.send("events", b"value").partition in range(4)


# ---------------------------------------------------------------- order, threads, syncs


def test_records_keep_order_within_partition(store: Store) -> None:
    draw = random.Random(5)
    expected: dict[int, list[bytes]] = {partition: [] for partition in range(4)}
    with store.producer(batch_bytes=500, linger_ms=0) as producer:
        for number in range(2000):
            value = b"%d" % number + bytes(draw.randrange(100))
            key = draw.choice([None, b"key %d" % draw.randrange(20)])
            expected[producer.send("events", value, key=key).partition].append(value)

    assert {partition: read(store, "events", partition) for partition in range(4)} == expected


def test_any_number_of_threads_may_send(store: Store) -> None:
    def send(thread: int) -> list[tuple[int, int]]:
        draw = random.Random(thread)
        futures = [
            producer.send("events", b"%d %d" % (thread, number), key=draw.choice([None, b"%d" % draw.randrange(9)]))
            for number in range(300)
        ]
        return [(future.partition, future.result(PATIENCE_S).offset) for future in futures]

    with store.producer(batch_bytes=1000, linger_ms=0, buffer_bytes=4000) as producer, ThreadPoolExecutor(6) as pool:
        places = list(pool.map(send, range(6)))

    written = {
        (partition, record.offset): record.value
        for partition in range(4)
        for record in records_of(store, "events", partition)
    }
    sent = {place: b"%d %d" % (thread, number) for thread in range(6) for number, place in enumerate(places[thread])}
    assert written == sent
    for of_thread in places:
        for partition in range(4):
            mine = [offset for where, offset in of_thread if where == partition]
            assert mine == sorted(mine)


def test_send_waits_while_buffer_is_full(tmp_path: Path) -> None:
    files = GatedFiles("/events-0/")
    files.gate.clear()
    with open_store(tmp_path / "store", files=files) as store:
        store.create_topic("events", partitions=1)
        with store.producer(batch_bytes=500, buffer_bytes=1000, linger_ms=0) as producer:
            sent: list[int] = []

            def send() -> None:
                for number in range(20):
                    producer.send("events", bytes(400))
                    sent.append(number)

            thread = threading.Thread(target=send)
            thread.start()
            assert files.waiting.acquire(timeout=PATIENCE_S)
            # Each is bounded by some 425 bytes: two fill the buffer.
            wait_until(lambda: len(sent) == 2, "the sends that there is room for")
            assert not files.gate.is_set()
            assert len(sent) == 2
            files.gate.set()
            thread.join(PATIENCE_S)
            assert len(sent) == 20
        assert len(read(store, "events")) == 20


def test_flush_batch_syncs_all_ready_batches_at_once(tmp_path: Path) -> None:
    files = GatedFiles("/events-0/")
    files.gate.clear()
    with open_store(tmp_path / "store", files=files, flush="batch") as store:
        store.create_topic("events", partitions=1)
        with store.producer(batch_bytes=1, linger_ms=0) as producer:
            first = producer.send("events", b"first")
            assert files.waiting.acquire(timeout=PATIENCE_S)
            files.diary.clear()
            futures = [producer.send("events", b"value") for _ in range(50)]
            files.gate.set()
            assert [future.result(PATIENCE_S).offset for future in (first, *futures)] == list(range(51))

        assert batch_counts(store, "events") == [1] * 51
        # One for the first batch, one for all that waited meanwhile.
        assert files.count("sync") == 2


def test_with_flush_batch_future_is_done_after_sync(tmp_path: Path) -> None:
    files = CountingFiles()
    with open_store(tmp_path / "store", files=files, flush="batch") as store:
        store.create_topic("events", partitions=1)
        with store.producer(linger_ms=0) as producer:
            producer.send("events", b"the first writer syncs what it creates").result(PATIENCE_S)
            for count in range(2, 6):
                files.diary.clear()
                producer.send("events", b"value").result(PATIENCE_S)
                assert files.count("sync") == 1
                assert store.log("events", 0).high_watermark == count


def test_topic_altered_to_flush_batch_is_synced_from_then_on(tmp_path: Path) -> None:
    files = CountingFiles()
    with open_store(tmp_path / "store", files=files, flush="os") as store:
        store.create_topic("events", partitions=1)
        with store.producer(linger_ms=0) as producer:
            producer.send("events", b"one").result(PATIENCE_S)
            store.alter_topic("events", {"flush": "batch"})
            files.diary.clear()
            producer.send("events", b"two").result(PATIENCE_S)

            assert files.count("sync") == 1
            assert read(store, "events") == [b"one", b"two"]


def test_record_is_stamped_by_send(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_store(tmp_path / "store", clock=clock) as store:
        store.create_topic("events", partitions=1)
        with store.producer(linger_ms=NEVER_MS) as producer:
            for _ in range(3):
                producer.send("events", b"value")
                clock.advance(10)

        assert [record.timestamp_ms for record in records_of(store, "events", 0)] == [
            START_MS,
            START_MS + 10,
            START_MS + 20,
        ]


# ---------------------------------------------------------------- closing


def test_close_sends_buffered_records_and_can_be_repeated(store: Store) -> None:
    producer = store.producer(linger_ms=NEVER_MS)
    futures = [producer.send("events", b"value") for _ in range(10)]
    producer.close()
    producer.close()

    assert all(future.done() for future in futures)
    assert sum(len(records_of(store, "events", partition)) for partition in range(4)) == 10


def test_closed_producer_refuses_records(store: Store) -> None:
    producer = store.producer()
    producer.close()
    with pytest.raises(LogClosed):
        producer.send("events", b"value")


def test_closing_store_sends_records_of_its_producers(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store")
    store.create_topic("events", partitions=1)
    producer = store.producer(linger_ms=NEVER_MS)
    future = producer.send("events", b"value")
    store.close()

    assert future.result(0).offset == 0
    with pytest.raises(LogClosed):
        producer.send("events", b"value")


def test_forked_child_cannot_send_and_parent_continues(store: Store) -> None:
    producer = store.producer(linger_ms=NEVER_MS)
    producer.send("events", b"before", partition=0)
    child = os.fork()
    if not child:
        status = 1
        try:
            try:
                producer.send("events", b"child", partition=0)
            except LogClosed:
                status = 0
            producer.close()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    producer.send("events", b"after", partition=0)
    producer.close()

    assert read(store, "events") == [b"before", b"after"]
