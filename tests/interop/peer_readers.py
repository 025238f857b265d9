"""Readers of other programs for seeklog's batches: aiokafka's compiled one, kafka-python's, and librdkafka's."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import confluent_kafka
from aiokafka.record import _crecords as aiokafka_records
from kafka import codec as kafka_codec
from kafka.record import memory_records as kafka_records

from seeklog import Log, LogConfig, Record
from seeklog.record.batch import split_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from .mock_broker import MockBroker

Facts = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

T = 1_700_000_000_000
CONSUME_SECONDS = 20.0  # a bound for a busy machine; it takes well under one

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
    # Over 128 KiB, to have several blocks in every framing and a value length of three varint bytes.
    Record(b"the same again " * 10_000, key=b"k" * 63, timestamp_ms=T),
]


def expected_facts(records: Sequence[Record], *, base_offset: int = 0) -> list[Facts]:
    return [
        (base_offset + n, int(r.timestamp_ms or 0), r.key, r.value, tuple(r.headers)) for n, r in enumerate(records)
    ]


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


def lacks_library(reader: Callable[[bytes], list[Facts]], codec: str) -> bool:
    """Return whether kafka-python lacks the library of a codec here."""
    return reader is kafka_python_reads and codec != "none" and not getattr(kafka_codec, f"has_{codec}")()


def librdkafka_reads(broker: MockBroker, topic: str, raw: bytes, *, record_count: int) -> list[Facts]:
    """Send the batches to the broker unchanged, and return what a consumer reads."""
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


def write_segments(directory: Path, codec: str) -> bytes:
    """Write a log of several segments and return their bytes."""
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
    # Incompressible, so that the log rolls.
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
