"""Produce, Fetch and ListOffsets, as raw requests and as what the store holds afterwards."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import seeklog
from seeklog.record.batch import encode_batch, split_batches
from seeklog.record.record import Record
from seeklog.wire import messages
from seeklog.wire.api_key import ApiKey
from seeklog.wire.error_code import ErrorCode
from server.serving import RawClient, Served, serving

T = 1_700_000_000_000
TOPIC = messages.FetchRequest.FetchTopic


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path / "store") as running:
        yield running


@pytest.fixture
def client(served: Served) -> Iterator[RawClient]:
    with RawClient(served.bootstrap_servers) as connected:
        yield connected


def create(client: RawClient, topic: str, *, partitions: int = 1, **config: str) -> Any:
    of_topic = messages.CreateTopicsRequest.CreatableTopic
    settings = [
        of_topic.CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in config.items()
    ]
    asked = of_topic(name=topic, num_partitions=partitions, replication_factor=-1, configs=settings)
    response = client.ask(ApiKey.CREATE_TOPICS, 7, messages.CreateTopicsRequest(topics=[asked], timeout_ms=1000))
    (created,) = response.topics
    return created


def produce(client: RawClient, topic: str, records: bytes, *, partition: int = 0, acks: int = -1) -> Any:
    of_topic = messages.ProduceRequest.TopicProduceData
    data = of_topic.PartitionProduceData(index=partition, records=records)
    asked = messages.ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[of_topic(name=topic, partition_data=[data])]
    )
    return client.ask(ApiKey.PRODUCE, 9, asked).responses[0].partition_responses[0]


def batch(*values: bytes, key: bytes | None = b"k") -> bytes:
    return encode_batch([Record(value, key=key, timestamp_ms=T + number) for number, value in enumerate(values)])


def fetch(client: RawClient, topic: str, offset: int, **options: Any) -> Any:
    partition = TOPIC.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=options.pop("partition_max_bytes", 1 << 20)
    )
    asked = messages.FetchRequest(topics=[TOPIC(topic=topic, partitions=[partition])], **{"max_wait_ms": 0, **options})
    return client.ask(ApiKey.FETCH, 11, asked).responses[0].partitions[0]


def list_offset(client: RawClient, topic: str, timestamp: int) -> tuple[int, int, int]:
    of_topic = messages.ListOffsetsRequest.ListOffsetsTopic
    partition = of_topic.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    asked = messages.ListOffsetsRequest(replica_id=-1, topics=[of_topic(name=topic, partitions=[partition])])
    found = client.ask(ApiKey.LIST_OFFSETS, 11, asked).topics[0].partitions[0]
    return found.error_code, found.timestamp, found.offset


@pytest.mark.parametrize("flush", ["os", "interval", "batch"])
@pytest.mark.parametrize("acks", [1, -1])
def test_produced_batches_are_in_the_files_and_come_back_unchanged(
    served: Served, client: RawClient, tmp_path: Path, flush: str, acks: int
) -> None:
    create(client, "orders", flush=flush)
    answers = [produce(client, "orders", batch(b"a", b"b"), acks=acks) for _ in range(3)]

    assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 0), (0, 2), (0, 4)]
    found = fetch(client, "orders", 3)
    assert (found.error_code, found.high_watermark, found.log_start_offset) == (0, 6, 0)
    assert [one.base_offset for one in split_batches(bytes(found.records))] == [2, 4]
    with seeklog.open(tmp_path / "store", read_only=True) as beside:
        assert [record.value for record in beside.log("orders", 0).scan()] == [b"a", b"b"] * 3


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (b"", ErrorCode.CORRUPT_MESSAGE),
        (b"x" * 40, ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a")[:-1], ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a")[:-1] + b"!", ErrorCode.CORRUPT_MESSAGE),
        (batch(b"a")[:16] + b"\x01" + batch(b"a")[17:], ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (batch(bytes(2_000_000)), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=["nothing", "too-short", "cut", "wrong-crc", "magic-1", "too-large"],
)
def test_batch_that_is_not_whole_is_refused(client: RawClient, records: bytes, error: ErrorCode) -> None:
    create(client, "orders")

    answer = produce(client, "orders", records)

    assert (answer.error_code, answer.base_offset) == (error, -1)
    assert produce(client, "orders", batch(b"good")).base_offset == 0


def test_record_without_a_key_is_refused_on_a_compacted_topic(client: RawClient) -> None:
    create(client, "latest", cleanup_policy="compact")

    assert produce(client, "latest", batch(b"a", key=None)).error_code == ErrorCode.INVALID_RECORD
    assert produce(client, "latest", batch(b"a")).error_code == ErrorCode.NONE


@pytest.mark.parametrize(("topic", "partition"), [("missing", 0), ("orders", 9), ("no/name", 0)])
def test_unknown_partition_is_answered_as_such(client: RawClient, topic: str, partition: int) -> None:
    create(client, "orders")

    answer = produce(client, topic, batch(b"a"), partition=partition)

    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_unknown_acks_are_refused(client: RawClient) -> None:
    create(client, "orders")

    assert produce(client, "orders", batch(b"a"), acks=2).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert list_offset(client, "orders", -1) == (0, -1, 0)


def test_fetch_waits_for_records_and_returns_at_once_when_they_come(served: Served, client: RawClient) -> None:
    create(client, "orders")
    produce(client, "orders", batch(b"a"))

    def produce_later() -> None:
        with RawClient(served.bootstrap_servers) as other:
            produce(other, "orders", batch(b"b"))

    waiting = threading.Timer(0.2, produce_later)
    waiting.start()
    found = fetch(client, "orders", 1, max_wait_ms=60_000, min_bytes=1)
    waiting.join()

    assert [one.base_offset for one in split_batches(bytes(found.records))] == [1]


def test_fetch_ends_at_its_deadline(client: RawClient) -> None:
    create(client, "orders")
    began = time.monotonic()

    found = fetch(client, "orders", 0, max_wait_ms=100, min_bytes=1)

    assert (found.error_code, found.records) == (0, b"")
    assert time.monotonic() - began >= 0.1


@pytest.mark.parametrize("offset", [-1, 3, 2**40])
def test_fetch_outside_the_log_is_out_of_range(client: RawClient, offset: int) -> None:
    create(client, "orders")
    produce(client, "orders", batch(b"a", b"b"))

    found = fetch(client, "orders", offset, max_wait_ms=60_000, min_bytes=1)

    assert (found.error_code, found.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, 2)


def test_first_batch_is_sent_whole_however_small_the_limits(client: RawClient) -> None:
    create(client, "orders")
    produce(client, "orders", batch(bytes(5000)))
    produce(client, "orders", batch(b"b"))

    found = fetch(client, "orders", 0, partition_max_bytes=1, max_bytes=1)

    assert len(found.records) > 5000
    assert [one.base_offset for one in split_batches(bytes(found.records))] == [0]


def test_offsets_are_listed_by_time_and_by_name(client: RawClient) -> None:
    create(client, "orders")
    for _ in range(2):
        produce(client, "orders", batch(b"a", b"b", b"c"))

    assert list_offset(client, "orders", -1) == (0, -1, 6)
    assert list_offset(client, "orders", -2) == (0, -1, 0)
    assert list_offset(client, "orders", -3) == (0, T + 2, 2)
    assert list_offset(client, "orders", T + 1) == (0, T + 1, 1)
    assert list_offset(client, "orders", T + 3) == (0, -1, -1)
    assert list_offset(client, "missing", -1)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_records_are_deleted_before_an_offset(client: RawClient) -> None:
    create(client, "orders")
    produce(client, "orders", batch(b"a", b"b", b"c"))
    of_topic = messages.DeleteRecordsRequest.DeleteRecordsTopic

    def delete(offset: int) -> tuple[int, int]:
        partition = of_topic.DeleteRecordsPartition(partition_index=0, offset=offset)
        asked = messages.DeleteRecordsRequest(topics=[of_topic(name="orders", partitions=[partition])])
        found = client.ask(ApiKey.DELETE_RECORDS, 2, asked).topics[0].partitions[0]
        return found.error_code, found.low_watermark

    assert delete(2) == (0, 2)
    assert delete(9) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(-1) == (0, 3)
    assert list_offset(client, "orders", -2) == (0, -1, 3)


def test_topics_are_created_described_grown_and_deleted(client: RawClient) -> None:
    created = create(client, "orders", partitions=2)
    assert (created.error_code, created.num_partitions) == (0, 2)
    assert create(client, "orders").error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert create(client, "a/b").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert create(client, "other", cleanup_policy="burn").error_code == ErrorCode.INVALID_CONFIG
    assert create(client, "none", partitions=0).error_code == ErrorCode.INVALID_PARTITIONS

    grow = messages.CreatePartitionsRequest.CreatePartitionsTopic
    for count, error in ((2, ErrorCode.INVALID_PARTITIONS), (3, ErrorCode.NONE)):
        asked = messages.CreatePartitionsRequest(topics=[grow(name="orders", count=count)], timeout_ms=1000)
        assert client.ask(ApiKey.CREATE_PARTITIONS, 3, asked).results[0].error_code == error

    described = client.ask(ApiKey.METADATA, 12, messages.MetadataRequest(topics=None)).topics
    assert [(one.name, one.topic_id, len(one.partitions)) for one in described] == [("orders", created.topic_id, 3)]

    by_id = messages.DeleteTopicsRequest.DeleteTopicState(topic_id=created.topic_id)
    asked = messages.DeleteTopicsRequest(topics=[by_id], timeout_ms=1000)
    assert [one.error_code for one in client.ask(ApiKey.DELETE_TOPICS, 6, asked).responses] == [ErrorCode.NONE]
    assert [one.error_code for one in client.ask(ApiKey.DELETE_TOPICS, 6, asked).responses] == [
        ErrorCode.UNKNOWN_TOPIC_ID
    ]


def test_partitions_are_described_a_page_at_a_time(client: RawClient) -> None:
    for name in ("a", "b"):
        create(client, name, partitions=3)
    found, cursor = [], None
    while True:
        asked = messages.DescribeTopicPartitionsRequest(response_partition_limit=2, cursor=cursor)
        response = client.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, asked)
        found += [(topic.name, one.partition_index) for topic in response.topics for one in topic.partitions]
        if response.next_cursor is None:
            break
        following = response.next_cursor
        cursor = messages.DescribeTopicPartitionsRequest.Cursor(
            topic_name=following.topic_name, partition_index=following.partition_index
        )
    assert found == [(name, number) for name in ("a", "b") for number in range(3)]


def test_idempotent_batch_that_is_sent_again_keeps_its_offset(client: RawClient) -> None:
    create(client, "orders")
    asked = messages.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    producer = client.ask(ApiKey.INIT_PRODUCER_ID, 4, asked)
    assert (producer.error_code, producer.producer_epoch) == (0, 0)

    def numbered(sequence: int) -> bytes:
        return encode_batch(
            [Record(b"x", timestamp_ms=T)],
            producer_id=producer.producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )

    assert [produce(client, "orders", numbered(sequence)).base_offset for sequence in (0, 1, 1, 0)] == [0, 1, 1, 0]
    assert produce(client, "orders", numbered(5)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
