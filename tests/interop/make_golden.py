"""Create the golden batches in `golden/`, each with its expected content.

Run from the repository's root, only to add a writer or a case: existing files are not changed.

    python tests/interop/make_golden.py

Needs the `dev` extra, and the packages lz4 and zstandard for kafka-python. It does not import seeklog, as nothing here
may depend on the code under test.

    <writer>-<case>-<codec>.bin    raw batches, one after the other
    <writer>-<case>-<codec>.json   "writer": name and version
                                   "batches": the header fields of each batch
                                   "records": base64 of key and value, headers, timestamp and offset of each
                                   "generated": instead of "records", the rule that generates them

Writers: aiokafka's and kafka-python's record layers; librdkafka through its mock broker, which stores batches
unchanged; and this script ("kafka") for batches that only a broker or its log cleaner writes, field by field as in
Kafka's DefaultRecordBatch. Expected records are those given to the writer, never those read back.
"""

from __future__ import annotations

import base64
import gzip
import json
import struct
import sys
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
import cramjam
import kafka
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from confluent_kafka import Producer
from fastcrc import crc32
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

sys.path.insert(0, str(Path(__file__).parent))
from mock_broker import TIMEOUT_S, MockBroker

GOLDEN = Path(__file__).parent / "golden"
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40

Header = tuple[str, bytes | None]


class Expected(NamedTuple):
    """The expected record of a batch with base offset 0."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


T = 1_700_000_000_000
ZEROS = bytes(40)  # something to compress, or kafka-python falls back to no codec
SHAPES = [
    Expected(0, T, b"key", b"value" + ZEROS),
    Expected(1, T + 5, None, b"null key"),
    Expected(2, T + 4, b"", b"empty key"),
    Expected(3, T - 1000, b"null value", None),
    Expected(4, T, b"empty value", b""),
    Expected(5, T + 86_400_000, None, None),
    Expected(6, T, b"", b""),
    Expected(7, T, b"headers", b"v", (("a", b"1"), ("a", b"2"), ("b", b""), ("c", None), ("", b"no name"))),
    Expected(8, T, b"unicode", "Grüße, 世界".encode(), (("schlüssel-鍵-🔑", "wert-値".encode()),)),
    Expected(9, T, bytes(range(256)), bytes(range(255, -1, -1)) + ZEROS),
    # A length of 64 takes one varint byte more than one of 63.
    Expected(10, T, b"k" * 64, b"v" * 64),
    Expected(11, T, b"k" * 63, b"v" * 63),
]

# Over 128 KiB of records, to have several blocks in every framing. Without a codec a few are enough.
MANY = {
    "count": 400,
    "key": "customer-{n:05d}",
    "value": "order {n:06d} was shipped to " + "the same address " * 18,
}
FEW = MANY | {"count": 20}


def generate(rule: dict[str, Any]) -> list[Expected]:
    """Return the records of a rule. The tests repeat these lines."""
    return [
        Expected(n, T + n, rule["key"].format(n=n).encode(), rule["value"].format(n=n).encode())
        for n in range(rule["count"])
    ]


# Output


def read_headers(raw: bytes) -> list[dict[str, int]]:
    names = ["base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta"]
    names += ["base_timestamp_ms", "max_timestamp_ms", "producer_id", "producer_epoch", "base_sequence"]
    names += ["record_count"]
    headers, position = [], 0
    while position < len(raw):
        header = dict(zip(names, struct.unpack_from(">qiibIhiqqqhii", raw, position), strict=True))
        assert header["magic"] == 2
        body = raw[position + 21 : position + 12 + header["length"]]
        assert crc32.iscsi(body) == header["crc"]
        position += 12 + header["length"]
        headers.append(header)
    assert position == len(raw)
    return headers


def coded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def write(name: str, raw: bytes, records: list[Expected], *, writer: str, rule: dict[str, Any] | None) -> None:
    path = GOLDEN / f"{name}.bin"
    if path.exists():
        print("kept   ", path.name)
        return
    description: dict[str, Any] = {"writer": writer, "batches": read_headers(raw)}
    # A writer leaves a batch uncompressed if compression gains nothing.
    assert all(CODECS[name.rsplit("-")[-1]] == batch["attributes"] & 7 for batch in description["batches"])
    if rule:
        description["generated"] = rule | {"timestamp_ms": T}
    else:
        description["records"] = [
            {
                "offset": record.offset,
                "timestamp_ms": record.timestamp_ms,
                "key": coded(record.key),
                "value": coded(record.value),
                "headers": [[name, coded(value)] for name, value in record.headers],
            }
            for record in records
        ]
    path.write_bytes(raw)
    path.with_suffix(".json").write_text(
        json.dumps(description, separators=(",", ":")).replace('{"offset"', '\n{"offset"') + "\n"
    )
    print("written", path.name, len(raw))


# The record layers of the two Python clients


def build(builder_class: Any, records: list[Expected], *, codec: int, transactional: bool = False) -> bytes:
    producer = (4000, 7, 123) if transactional else (-1, -1, -1)
    builder = builder_class(2, codec, transactional, *producer, 16 << 20)
    for record in records:
        assert builder.append(record.offset, record.timestamp_ms, record.key, record.value, list(record.headers))
    return bytes(builder.build())


def make_record_layers() -> None:
    layers = {
        "aiokafka": (AiokafkaBuilder, f"aiokafka {aiokafka.__version__}"),
        "kafkapython": (KafkaPythonBuilder, f"kafka-python {kafka.__version__}"),
    }
    for name, (builder, writer) in layers.items():
        for codec, number in CODECS.items():
            rule = FEW if codec == "none" else MANY
            write(
                f"{name}-shapes-{codec}",
                build(builder, SHAPES, codec=number),
                SHAPES,
                writer=writer,
                rule=None,
            )
            raw = build(builder, generate(rule), codec=number)
            write(f"{name}-many-{codec}", raw, [], writer=writer, rule=rule)
            short = SHAPES[:3]
            raw = build(builder, short, codec=number, transactional=True)
            write(f"{name}-transactional-{codec}", raw, short, writer=writer, rule=None)


# librdkafka


def send(broker: MockBroker, topic: str, records: list[Expected], producer: Producer) -> bytes:
    for record in records:
        producer.produce(
            topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            timestamp=record.timestamp_ms,
            partition=0,
        )
    assert producer.flush(TIMEOUT_S) == 0
    return broker.fetch_all(topic, end_offset=records[-1].offset + 1)


def make_librdkafka() -> None:
    writer = f"librdkafka {confluent_kafka.libversion()[0]}"
    with MockBroker() as broker:
        for codec in CODECS:
            rule = FEW if codec == "none" else MANY
            for case, records in (("shapes", SHAPES), ("many", generate(rule))):
                topic = f"{case}-{codec}"
                broker.create_topic(topic)
                producer = Producer(broker.client_config(compression_type=codec, linger_ms=500, batch_size=1_000_000))
                raw = send(broker, topic, records, producer)
                write(f"librdkafka-{topic}", raw, records, writer=writer, rule=rule if case == "many" else None)

            topic = f"idempotent-{codec}"
            broker.create_topic(topic)
            producer = Producer(broker.client_config(compression_type=codec, enable_idempotence=True, linger_ms=500))
            # Two batches, so that the second has a sequence other than 0.
            first, second = SHAPES[:4], SHAPES[4:]
            send(broker, topic, first, producer)
            raw = send(broker, topic, second, producer)
            write(f"librdkafka-{topic}", raw, first + second, writer=writer, rule=None)

            topic = f"transactional-{codec}"
            broker.create_topic(topic)
            producer = Producer(broker.client_config(compression_type=codec, transactional_id=topic, linger_ms=500))
            producer.init_transactions(TIMEOUT_S)
            producer.begin_transaction()
            raw = send(broker, topic, SHAPES[:3], producer)
            producer.commit_transaction(TIMEOUT_S)
            write(f"librdkafka-{topic}", raw, SHAPES[:3], writer=writer, rule=None)


# What a broker and its cleaner write


def varint(value: int) -> bytes:
    value = value << 1 ^ value >> 63
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encode_record(record: Expected, *, base_timestamp_ms: int) -> bytes:
    body = b"\0" + varint(record.timestamp_ms - base_timestamp_ms) + varint(record.offset)
    body += sized(record.key) + sized(record.value) + varint(len(record.headers))
    for name, value in record.headers:
        body += sized(name.encode()) + sized(value)
    return varint(len(body)) + body


def encode_batch(
    records: list[Expected],
    *,
    attributes: int = 0,
    last_offset_delta: int | None = None,
    base_timestamp_ms: int | None = None,
    max_timestamp_ms: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    leader_epoch: int = 5,
) -> bytes:
    if base_timestamp_ms is None:
        base_timestamp_ms = records[0].timestamp_ms
    if max_timestamp_ms is None:
        max_timestamp_ms = max(record.timestamp_ms for record in records)
    if last_offset_delta is None:
        last_offset_delta = records[-1].offset
    body = b"".join(encode_record(record, base_timestamp_ms=base_timestamp_ms) for record in records)
    if attributes & 7:
        body = COMPRESS[attributes & 7](body)
    checked = struct.pack(
        ">hiqqqhii",
        attributes,
        last_offset_delta,
        base_timestamp_ms,
        max_timestamp_ms,
        *producer,
        len(records),
    )
    checked += body
    return struct.pack(">qiibI", 0, len(checked) + 9, leader_epoch, 2, crc32.iscsi(checked)) + checked


def java_zstd(data: bytes) -> bytes:
    """Compress as Java's stream, which does not know the size in advance and omits it from the frame."""
    compressor = cramjam.zstd.Compressor(level=3)
    compressor.compress(data)
    return bytes(compressor.flush()) + bytes(compressor.finish())


def java_snappy(data: bytes) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(data))
    return b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block


def java_lz4(data: bytes) -> bytes:
    compressor = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
    compressor.compress(data)
    return bytes(compressor.finish())


COMPRESS = {1: lambda data: gzip.compress(data, mtime=0), 2: java_snappy, 3: java_lz4, 4: java_zstd}


def control(kind: int, *, coordinator_epoch: int) -> Expected:
    key = struct.pack(">hh", 0, kind)
    return Expected(0, T, key, struct.pack(">hi", 0, coordinator_epoch))


def make_broker() -> None:
    writer = "by hand, after Kafka's DefaultRecordBatch"
    for codec, number in CODECS.items():
        # Log append time: every record has the batch's largest timestamp, whatever its delta says.
        stamp = T + 500_000
        raw = encode_batch(SHAPES, attributes=number | LOG_APPEND_TIME, max_timestamp_ms=stamp)
        stamped = [record._replace(timestamp_ms=stamp) for record in SHAPES]
        write(f"kafka-append-time-{codec}", raw, stamped, writer=writer, rule=None)

        # A cleaned batch keeps its last offset delta, base timestamp, and sequence. The first, the last,
        # and some other records are removed. Offset deltas still count from the base offset.
        gaps = [SHAPES[n] for n in (2, 3, 7, 9)]
        raw = encode_batch(
            gaps,
            attributes=number,
            last_offset_delta=11,
            base_timestamp_ms=SHAPES[0].timestamp_ms,
            producer=(77, 3, 1000),
        )
        write(f"kafka-compacted-{codec}", raw, gaps, writer=writer, rule=None)

        # With a delete horizon the base timestamp is the horizon, and deltas count from it.
        raw = encode_batch(
            gaps, attributes=number | DELETE_HORIZON, last_offset_delta=11, base_timestamp_ms=T + 90_000_000
        )
        write(f"kafka-delete-horizon-{codec}", raw, gaps, writer=writer, rule=None)

    # The cleaner keeps the last batch of a producer without its records, and writes it without a codec:
    # no base timestamp, but the largest one.
    empty = {
        "last_offset_delta": 4,
        "base_timestamp_ms": -1,
        "max_timestamp_ms": T,
        "producer": (77, 3, 1000),
    }
    write("kafka-empty-none", encode_batch([], **empty), [], writer=writer, rule=None)
    raw = encode_batch([], attributes=TRANSACTIONAL, **empty)
    write("kafka-empty-transactional-none", raw, [], writer=writer, rule=None)

    for name, kind in (("abort", 0), ("commit", 1)):
        marker = control(kind, coordinator_epoch=9)
        raw = encode_batch([marker], attributes=TRANSACTIONAL | CONTROL, producer=(77, 3, -1))
        # Readers return records of applications only, not markers.
        write(f"kafka-{name}-none", raw, [], writer=writer, rule=None)

    largest = Expected(0, 2**62, b"k", b"v")
    write("kafka-largest-timestamp-none", encode_batch([largest]), [largest], writer=writer, rule=None)
    none = Expected(0, -1, b"k", b"v")
    write("kafka-no-timestamp-none", encode_batch([none]), [none], writer=writer, rule=None)
    sparse = [Expected(0, T, b"first", b""), Expected(2**31 - 2, T, b"last", b"")]
    write("kafka-largest-delta-none", encode_batch(sparse), sparse, writer=writer, rule=None)


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    make_record_layers()
    make_librdkafka()
    make_broker()


if __name__ == "__main__":
    main()
