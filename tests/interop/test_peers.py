"""Other programs read what seeklog writes: aiokafka's compiled reader, kafka-python's, and librdkafka's consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from seeklog import Log, Record
from seeklog.record.batch import encode_batch, split_batches
from seeklog.record.codec import CODEC_IDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .mock_broker import MockBroker

for needed in ("aiokafka.record._crecords", "kafka.codec", "confluent_kafka"):
    pytest.importorskip(needed)

import confluent_kafka  # noqa: E402  # after the look whether it is here
from aiokafka.record import _crecords as aiokafka_records  # noqa: E402

from interop.peer_readers import (  # noqa: E402
    CONSUME_SECONDS,
    NUMBERED,
    SHAPES,
    Facts,
    T,
    aiokafka_reads,
    expected_facts,
    kafka_python_reads,
    lacks_library,
    librdkafka_reads,
    write_segments,
)

codecs = pytest.mark.parametrize("codec", CODEC_IDS)

python_readers = pytest.mark.parametrize("reader", [aiokafka_reads, kafka_python_reads])


def skip_without_library(reader: Callable[[bytes], list[Facts]], codec: str) -> None:
    if lacks_library(reader, codec):
        pytest.skip(f"kafka-python lacks the library it needs for {codec}")


@pytest.fixture(scope="module")
def broker() -> Iterator[MockBroker]:
    from .mock_broker import MockBroker

    with MockBroker() as broker:
        yield broker


# Batches


@codecs
@python_readers
def test_python_clients_read_a_batch(reader: Callable[[bytes], list[Facts]], codec: str) -> None:
    skip_without_library(reader, codec)
    raw = encode_batch(SHAPES, codec=CODEC_IDS[codec], base_offset=1000)

    assert reader(raw) == expected_facts(SHAPES, base_offset=1000)


@codecs
def test_librdkafka_reads_a_batch(broker: MockBroker, codec: str) -> None:
    raw = encode_batch(SHAPES, codec=CODEC_IDS[codec])

    found = librdkafka_reads(broker, f"batch-{codec}", raw, record_count=len(SHAPES))

    assert found == expected_facts(SHAPES)


@codecs
@pytest.mark.parametrize("count", [1, 2, 3000])
def test_all_clients_read_batches_of_any_count(broker: MockBroker, codec: str, count: int) -> None:
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
def test_other_clients_find_the_producer_fields(batch_class: Any) -> None:
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


@codecs
@python_readers
def test_python_clients_read_segment_files(reader: Callable[[bytes], list[Facts]], codec: str, tmp_path: Path) -> None:
    skip_without_library(reader, codec)

    assert reader(write_segments(tmp_path / "peers-0", codec)) == expected_facts(NUMBERED)


@codecs
def test_librdkafka_reads_segment_files(broker: MockBroker, codec: str, tmp_path: Path) -> None:
    raw = write_segments(tmp_path / "peers-0", codec)

    found = librdkafka_reads(broker, f"segments-{codec}", raw, record_count=len(NUMBERED))

    assert found == expected_facts(NUMBERED)


@codecs
def test_batches_of_librdkafka_pass_through_a_log_unchanged(broker: MockBroker, codec: str, tmp_path: Path) -> None:
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
