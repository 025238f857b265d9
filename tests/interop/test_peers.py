"""What seeklog writes, others read: aiokafka's compiled reader, kafka-python's, and librdkafka's consumer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from seeklog import Log, LogConfig, Record
from seeklog.record.batch import encode_batch, split_batches
from seeklog.record.codec import CODEC_IDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from .mock_broker import MockBroker

aiokafka_records = pytest.importorskip("aiokafka.record._crecords", reason="needs aiokafka, compiled")
kafka_codec = pytest.importorskip("kafka.codec")
kafka_records = pytest.importorskip("kafka.record.memory_records")
confluent_kafka = pytest.importorskip("confluent_kafka")

Facts = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

T = 1_700_000_000_000
CONSUME_SECONDS = 20.0  # a bound for a busy machine; it takes well under one

codecs = pytest.mark.parametrize("codec", CODEC_IDS)

SHAPES = [
    Record(b"value" + bytes(40), key=b"key", timestamp_ms=T),
    Record(b"null key", key=None, timestamp_ms=T + 5),
    Record(b"empty key", key=b"", timestamp_ms=T + 4),
    Record(None, key=b"null value", timestamp_ms=T - 1000),
    Record(b"", key=b"empty value", timestamp_ms=T),
    Record(None, key=None, timestamp_ms=T + 86_400_000),
    Record(
        b"v",
        key=b"headers",
        headers=(("a", b"1"), ("a", b"2"), ("b", b""), ("c", None), ("", b"no name")),
        timestamp_ms=T,
    ),
    Record("Grüße, 世界".encode(), key=b"unicode", headers=(("schlüssel-鍵-🔑", b"\xff\x00"),), timestamp_ms=T),
    Record(bytes(range(256)), key=b"k" * 64, timestamp_ms=T),
    # Over 128 KiB: several blocks in every framing, and a value length of three varint bytes.
    Record(b"the same again " * 10_000, key=b"k" * 63, timestamp_ms=T),
]


def expected_facts(records: Sequence[Record], *, base_offset: int = 0) -> list[Facts]:
    return [
        (base_offset + n, int(r.timestamp_ms or 0), r.key, r.value, tuple(r.headers)) for n, r in enumerate(records)
    ]


# The three readers


def read_with_memory_records(memory_records: Any, raw: bytes) -> Iterator[Facts]:
    records = memory_records(raw)
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        for record in batch:
            headers = tuple((name, None if value is None else bytes(value)) for name, value in record.headers)
            yield record.offset, record.timestamp, record.key, record.value, headers


def aiokafka_reads(raw: bytes) -> list[Facts]:
    return list(read_with_memory_records(aiokafka_records.MemoryRecords, raw))


def kafka_python_reads(raw: bytes) -> list[Facts]:
    return list(read_with_memory_records(kafka_records.MemoryRecords, raw))


python_readers = pytest.mark.parametrize("reader", [aiokafka_reads, kafka_python_reads])


def skip_without_library(reader: Callable[[bytes], list[Facts]], codec: str) -> None:
    if reader is kafka_python_reads and codec != "none" and not getattr(kafka_codec, f"has_{codec}")():
        pytest.skip(f"kafka-python lacks the library it needs for {codec}")


@pytest.fixture(scope="module")
def broker() -> Iterator[MockBroker]:
    from .mock_broker import MockBroker

    with MockBroker() as broker:
        yield broker


def librdkafka_reads(broker: MockBroker, topic: str, raw: bytes, *, record_count: int) -> list[Facts]:
    """Hand the batches to the broker as they are, and return what a consumer gets."""
    broker.create_topic(topic)
    for batch in split_batches(raw):
        assert broker.produce(topic, batch.raw) == batch.base_offset
    consumer = confluent_kafka.Consumer(
        broker.client_config(
            group_id="interop",
            enable_auto_commit=False,
            check_crcs=True,
            isolation_level="read_uncommitted",
            fetch_wait_max_ms=10,
        )
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found: list[Facts] = []
        deadline = time.monotonic() + CONSUME_SECONDS
        while len(found) < record_count and time.monotonic() < deadline:
            for message in consumer.consume(record_count - len(found), timeout=1.0):
                assert message.error() is None, message.error()
                headers = tuple(message.headers() or ())
                found.append((message.offset(), message.timestamp()[1], message.key(), message.value(), headers))
        return found
    finally:
        consumer.close()


# Batches


@codecs
@python_readers
def test_a_batch_is_read_by_the_python_clients(reader: Callable[[bytes], list[Facts]], codec: str) -> None:
    skip_without_library(reader, codec)
    raw = encode_batch(SHAPES, codec=CODEC_IDS[codec], base_offset=1000)

    assert reader(raw) == expected_facts(SHAPES, base_offset=1000)


@codecs
def test_a_batch_is_read_by_librdkafka(broker: MockBroker, codec: str) -> None:
    raw = encode_batch(SHAPES, codec=CODEC_IDS[codec])

    found = librdkafka_reads(broker, f"batch-{codec}", raw, record_count=len(SHAPES))

    assert found == expected_facts(SHAPES)


@codecs
@pytest.mark.parametrize("count", [1, 2, 3000])
def test_batches_of_any_count_are_read_by_everyone(broker: MockBroker, codec: str, count: int) -> None:
    records = [Record(b"value %d" % n, key=b"key %d" % n, timestamp_ms=T + n) for n in range(count)]
    raw = encode_batch(records, codec=CODEC_IDS[codec])

    assert aiokafka_reads(raw) == expected_facts(records)
    found = librdkafka_reads(broker, f"count-{count}-{codec}", raw, record_count=count)
    assert found == expected_facts(records)


@codecs
@python_readers
def test_log_append_time_reaches_the_reader(reader: Callable[[bytes], list[Facts]], codec: str) -> None:
    skip_without_library(reader, codec)
    raw = encode_batch(SHAPES, codec=CODEC_IDS[codec], log_append_time=True, now_ms=T + 999)

    assert {timestamp for _, timestamp, *_ in reader(raw)} == {max_timestamp(raw)}


def test_log_append_time_reaches_librdkafka(broker: MockBroker) -> None:
    raw = encode_batch(SHAPES, log_append_time=True, now_ms=T + 999)

    found = librdkafka_reads(broker, "append-time", raw, record_count=len(SHAPES))

    assert {timestamp for _, timestamp, *_ in found} == {max_timestamp(raw)}


def max_timestamp(raw: bytes) -> int:
    (batch,) = split_batches(raw)
    return batch.max_timestamp_ms


@pytest.mark.parametrize(
    "batch_class",
    [
        pytest.param(aiokafka_records.DefaultRecordBatch, id="aiokafka"),
        pytest.param(pytest.importorskip("kafka.record.default_records").DefaultRecordBatch, id="kafka-python"),
    ],
)
def test_the_producers_fields_are_where_others_look_for_them(batch_class: Any) -> None:
    raw = encode_batch(
        SHAPES[:3],
        base_offset=2**40,
        producer_id=2**50,
        producer_epoch=123,
        base_sequence=2**30,
        transactional=True,
        leader_epoch=77,
    )

    batch = batch_class(bytearray(raw))

    assert batch.base_offset == 2**40
    assert batch.next_offset == 2**40 + 3
    assert batch.producer_id == 2**50
    assert batch.is_transactional
    assert not batch.is_control_batch
    assert batch.first_timestamp == T
    assert batch.max_timestamp == T + 5
    assert (batch.producer_epoch, batch.base_sequence) == (123, 2**30)
    # aiokafka has no name for the leader epoch.
    assert getattr(batch, "leader_epoch", 77) == 77


# Segment files


def write_segments(directory: Path, codec: str) -> bytes:
    """Write a log of several segments and return all their bytes, as a peer would read the files."""
    config = LogConfig(
        compression_type=codec,
        segment_bytes=4096,
        index_interval_bytes=256,
        max_message_bytes=1 << 20,
    )
    with Log(directory, config=config, background=False) as log:
        for start in range(0, 300, 3):
            log.append_many([numbered(n) for n in range(start, start + 3)])
    segments = sorted(directory.glob("*.log"))
    # Compressed to a few bytes, the log would still have to roll.
    assert len(segments) >= 2
    return b"".join(segment.read_bytes() for segment in segments)


def numbered(n: int) -> Record:
    return Record(
        None if n % 7 == 0 else b"value %d " % n + n.to_bytes(4, "big") * 8,
        key=None if n % 5 == 0 else b"key %d" % n,
        headers=(("n", b"%d" % n), ("none", None)) if n % 3 == 0 else (),
        timestamp_ms=T + n * 1000,
    )


NUMBERED = [numbered(n) for n in range(300)]


@codecs
@python_readers
def test_segment_files_are_read_by_the_python_clients(
    reader: Callable[[bytes], list[Facts]], codec: str, tmp_path: Path
) -> None:
    skip_without_library(reader, codec)

    assert reader(write_segments(tmp_path / "peers-0", codec)) == expected_facts(NUMBERED)


@codecs
def test_segment_files_are_read_by_librdkafka(broker: MockBroker, codec: str, tmp_path: Path) -> None:
    raw = write_segments(tmp_path / "peers-0", codec)

    found = librdkafka_reads(broker, f"segments-{codec}", raw, record_count=len(NUMBERED))

    assert found == expected_facts(NUMBERED)


@codecs
def test_what_librdkafka_produces_goes_through_a_log_and_back(broker: MockBroker, codec: str, tmp_path: Path) -> None:
    """Goal: the whole circle, with nobody's bytes decoded on the way."""
    topic, back = f"circle-{codec}", f"circle-back-{codec}"
    broker.create_topic(topic)
    producer = confluent_kafka.Producer(broker.client_config(compression_type=codec, linger_ms=20))
    for record in SHAPES:
        producer.produce(
            topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp=record.timestamp_ms,
            partition=0,
        )
    assert producer.flush(CONSUME_SECONDS) == 0

    with Log(tmp_path / "circle-0", background=False) as log:
        log.append_batches(broker.fetch_all(topic, end_offset=len(SHAPES)))
        raw = b"".join(batch.raw for batch in log.read_batches(0, max_bytes=1 << 24))
        scanned = [(r.offset, r.timestamp_ms, r.key, r.value, tuple(r.headers)) for r in log.scan()]

    assert scanned == expected_facts(SHAPES)
    assert librdkafka_reads(broker, back, raw, record_count=len(SHAPES)) == expected_facts(SHAPES)
