"""The codec of Kafka's messages: what a server reads and writes most, and the largest things it writes."""

from __future__ import annotations

import importlib
import io
import os
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka.protocol.consumer import FetchRequest as TheirFetchRequest  # type: ignore[import-untyped]
from kafka.protocol.metadata import MetadataResponse as TheirMetadataResponse  # type: ignore[import-untyped]
from kafka.protocol.producer import ProduceRequest as TheirProduceRequest  # type: ignore[import-untyped]
from kio.serial import entity_reader, entity_writer

from bench.measure import Bench, Stopwatch, best_of
from bench.row import Row, Unit
from seeklog.wire import messages
from seeklog.wire.codec import Struct, decode, encode, encode_parts
from seeklog.wire.table import schema_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOPIC_ID = bytes(range(16))
BATCH_SIZE = 16_384
# Enough for a turn of some milliseconds.
BYTES_A_TURN = 200_000


class Case(NamedTuple):
    """A message, and the classes of the peers for it."""

    work: str
    message: Struct
    version: int
    kio: str
    kafka_python: Any


def measure(bench: Bench) -> Iterator[Row]:
    for case in (
        Case("Produce v9, 1 x 16 KB", _produce(1, topic="orders"), 9, "produce.v9.request", TheirProduceRequest),
        Case("Produce v13, 10 x 16 KB", _produce(10), 13, "produce.v13.request", TheirProduceRequest),
        Case("Fetch v17, 100 partitions", _fetch(), 17, "fetch.v17.request", TheirFetchRequest),
        Case("Metadata v12, 100 topics x 4", _metadata(), 12, "metadata.v12.response", TheirMetadataResponse),
    ):
        yield from _rows(bench, case)


def _rows(bench: Bench, case: Case) -> Iterator[Row]:
    schema = schema_in(type(case.message), case.version)
    encoded = encode(schema, case.message)
    kio_class = getattr(importlib.import_module(f"kio.schema.{case.kio}"), type(case.message).__name__)
    read, write = entity_reader(kio_class), entity_writer(kio_class)
    theirs, _ = read(encoded, 0)
    container = case.kafka_python.decode(encoded, version=case.version)
    container._header = None  # which it sets in no decoded message, and reads in `encode`
    ways = {
        "encoded": {
            "seeklog": lambda: encode_parts(schema, case.message),
            "kio": lambda: write(io.BytesIO(), theirs),
            "kafka-python": lambda: container.encode(version=case.version),
        },
        "decoded": {
            "seeklog": lambda: decode(schema, encoded),
            "kio": lambda: read(encoded, 0),
            "kafka-python": lambda: case.kafka_python.decode(encoded, version=case.version),
        },
    }
    for what, trials in ways.items():
        rates = best_of(
            bench.scale.short_turns // 5, {name: partial(_rate, one, encoded) for name, one in trials.items()}
        )
        peer = max(("kio", "kafka-python"), key=rates.__getitem__)
        yield Row(
            work=f"{case.work}, {what}",
            figure=1e6 / rates["seeklog"],
            unit=Unit.MICROSECONDS,
            peer=peer,
            peer_figure=1e6 / rates[peer],
            target=1,
        )


def _rate(call: Callable[[], object], encoded: bytes) -> float:
    count = max(BYTES_A_TURN // len(encoded), 20)
    watch = Stopwatch()
    with watch:
        for _ in range(count):
            call()
    return count / watch.seconds


def _produce(partitions: int, *, topic: str = "") -> Struct:
    of_topic = messages.ProduceRequest.TopicProduceData
    return messages.ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            of_topic(
                name=topic,
                topic_id=TOPIC_ID,
                partition_data=[
                    of_topic.PartitionProduceData(index=index, records=os.urandom(BATCH_SIZE))
                    for index in range(partitions)
                ],
            )
        ],
    )


def _fetch() -> Struct:
    of_topic = messages.FetchRequest.FetchTopic
    partitions = [
        of_topic.FetchPartition(partition=index, fetch_offset=1000 * index, partition_max_bytes=1 << 20)
        for index in range(100)
    ]
    return messages.FetchRequest(max_wait_ms=500, topics=[of_topic(topic_id=TOPIC_ID, partitions=partitions)])


def _metadata() -> Struct:
    of_topic = messages.MetadataResponse.MetadataResponseTopic
    partitions = [
        of_topic.MetadataResponsePartition(
            partition_index=index, leader_id=1, leader_epoch=3, replica_nodes=[1], isr_nodes=[1]
        )
        for index in range(4)
    ]
    broker = messages.MetadataResponse.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=9092)
    return messages.MetadataResponse(
        brokers=[broker],
        cluster_id="seeklog",
        controller_id=1,
        topics=[of_topic(name=f"topic-{number}", topic_id=TOPIC_ID, partitions=partitions) for number in range(100)],
    )
