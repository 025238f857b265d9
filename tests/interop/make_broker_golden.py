"""Create the golden data directories of real Kafka brokers, with what clients read from them.

Run from the repository's root, only to add a version or a case; `kafka_jars.py` finds the jars of a version. Takes a
minute. It does not import seeklog, as nothing here may depend on the code under test.

    python tests/interop/make_broker_golden.py [VERSION]

    golden/broker/kafka-<version>-clean.tar.gz     the data directory after an orderly shutdown
    golden/broker/kafka-<version>-killed.tar.gz    another one, after SIGKILL: preallocated indexes, stale
                                                   checkpoints, a member in its group, an open transaction
    golden/broker/kafka-<version>-<stop>.json      what clients read just before

    "partitions": {"<topic>-<partition>": {
        "log_start_offset", "high_watermark", "last_stable_offset"
        "records": [offset, timestamp, "create" or "append", key, value, headers] of each, uncommitted ones too
        "committed": the offsets read with read_committed, if these are not all
        "times": [timestamp, the broker's offset for it, or null]}}
    "groups": {"<group>": {"<topic>-<partition>": [committed offset, metadata]}}

Keys and values are base64. Those longer than LONGEST bytes are given as size and SHA-256, except in internal topics.

    plain        two partitions, several segments; null and empty keys and values, headers, times that go back
    append-time  message.timestamp.type=LogAppendTime
    gzip snappy lz4 zstd    compressed by the broker itself, in Java
    mixed        batches of three clients and all codecs, as they were sent
    compacted    cleaned: gaps, and tombstones with a delete horizon
    emptied      cleaned, with batches without records that keep a producer's state
    deleted      DeleteRecords: into the middle of a segment, and up to the end
    txn          committed and aborted transactions, and an open one in the killed directory
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import shutil
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiokafka
import confluent_kafka
import kafka
from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

sys.path.insert(0, str(Path(__file__).parents[1]))
from interop.kafka_jars import VERSIONS, Jars, find_jars
from interop.real_broker import RealBroker

GOLDEN = Path(__file__).parent / "golden" / "broker"
TIMEOUT_S = 30.0
LONGEST = 100
T = 1_700_000_000_000
CODECS = ("gzip", "snappy", "lz4", "zstd")
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "plain": (2, {}),
    "append-time": (1, {"message.timestamp.type": "LogAppendTime"}),
    # Snappy compresses the largest batch to 7 KB.
    **{codec: (1, {"compression.type": codec, "segment.bytes": "12000"}) for codec in CODECS},
    "mixed": (1, {}),
    "compacted": (1, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}),
    "emptied": (
        1,
        {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "0",
            "compression.type": "lz4",
        },
    ),
    "deleted": (2, {}),
    "txn": (1, {}),
}


# Clients


def config(broker: RealBroker, **settings: Any) -> dict[str, Any]:
    """Return the configuration of a client; underscores stand for dots."""
    base = {"bootstrap.servers": broker.bootstrap, "log_level": 2}
    return base | {word.replace("_", "."): value for word, value in settings.items()}


def wait_until(is_true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_true():
        assert time.monotonic() < deadline, f"waited in vain: {what}"
        time.sleep(0.2)


@contextmanager
def consumer(broker: RealBroker, **settings: Any) -> Iterator[Consumer]:
    settings = {"group_id": "reader", "enable_auto_commit": False, "auto_offset_reset": "earliest"} | settings
    opened = Consumer(config(broker, **settings))
    try:
        yield opened
    finally:
        opened.close()


def create_topics(broker: RealBroker, topics: dict[str, tuple[int, dict[str, str]]]) -> None:
    # Brokers from 4.0 on refuse segments below 1 MiB without this internal setting.
    word = "segment.bytes" if broker.version.startswith("3.") else "internal.segment.bytes"
    small = {"segment.bytes": "4096", "index.interval.bytes": "300", "segment.index.bytes": "600"}
    new = []
    for name, (count, settings) in topics.items():
        settings = small | settings
        settings[word] = settings.pop("segment.bytes")
        new.append(NewTopic(name, count, 1, config=settings))
    admin = AdminClient(config(broker))
    for created in admin.create_topics(new).values():
        created.result(TIMEOUT_S)


def send(producer: Producer, topic: str, records: list[dict[str, Any]], *, partition: int = 0) -> None:
    """Send records and wait: one batch, if the producer lingers long enough."""
    errors: list[Any] = []
    for record in records:
        producer.produce(topic, partition=partition, on_delivery=lambda error, _: errors.append(error), **record)
    assert producer.flush(TIMEOUT_S) == 0
    assert errors == [None] * len(records), errors


def read_all(broker: RealBroker, topic: str, partition: int, *, isolation: str = "read_uncommitted") -> list[Any]:
    """Read a partition from its start to its end."""
    with consumer(broker, enable_partition_eof=True, isolation_level=isolation, check_crcs=True) as reader:
        reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
        messages = []
        while True:
            message = reader.poll(TIMEOUT_S)
            assert message is not None, f"{topic}-{partition} does not end"
            if message.error() is None:
                messages.append(message)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                return messages
            else:
                raise AssertionError(message.error())


# What is written


def some_records(first: int, count: int) -> list[dict[str, Any]]:
    """Records of every shape, by their number."""
    records = []
    for n in range(first, first + count):
        record: dict[str, Any] = {
            "key": (None, b"", b"customer-%d" % (n % 9), bytes([n % 256, 0xFF]))[n % 4],
            "value": (b"order %d " % n + b"." * (n % 50), None, b"", b"{}")[0 if n % 5 else n // 5 % 4],
            # Clocks of producers go back and forth.
            "timestamp": T + n * 1000 - n % 3 * 2500,
        }
        if n % 6 == 0:
            record["headers"] = [("trace", b"%08x" % n), ("trace", None), ("leer-空", b"")]
        records.append(record)
    return records


def fill_plain(broker: RealBroker) -> None:
    producer = Producer(config(broker, linger_ms=50))
    for partition in (0, 1):
        first = 0
        for count in [1, 7, 3, 20, 2, 11] * 4:
            send(producer, "plain", some_records(first, count), partition=partition)
            first += count
    for first in range(0, 60, 4):
        send(producer, "append-time", some_records(first, 4))


def fill_codecs(broker: RealBroker) -> None:
    producer = Producer(config(broker, linger_ms=500, batch_size=1_000_000))
    for codec in CODECS:
        send(producer, codec, some_records(0, 12))
        # Over 128 KiB: several blocks in every framing.
        large = [{"key": b"%d" % n, "value": b"order %06d " % n * 600, "timestamp": T + n} for n in range(20)]
        send(producer, codec, large)
        for first in range(12, 60, 6):
            send(producer, codec, some_records(first, 6))


def fill_mixed(broker: RealBroker) -> None:
    for codec in ("none", *CODECS):
        records = [{"key": b"k", "value": b"the same again " * 20, "timestamp": T + n} for n in range(5)]
        send(Producer(config(broker, linger_ms=50, compression_type=codec)), "mixed", records)
        name = None if codec == "none" else codec
        python = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap, compression_type=name, linger_ms=50)
        for record in records:
            python.send("mixed", record["value"], key=record["key"], timestamp_ms=record["timestamp"])
        python.close()
        asyncio.run(send_with_aiokafka(broker, name, records))


async def send_with_aiokafka(broker: RealBroker, codec: str | None, records: list[dict[str, Any]]) -> None:
    async with aiokafka.AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap, compression_type=codec, linger_ms=50
    ) as producer:
        for record in records:
            await producer.send("mixed", record["value"], key=record["key"], timestamp_ms=record["timestamp"])


def fill_compacted(broker: RealBroker) -> None:
    plain = Producer(config(broker, linger_ms=50))
    for first in range(0, 240, 8):
        records = [
            {
                "key": b"customer-%d" % (n % 23),
                "value": None if n % 23 in (3, 7) and n > 150 else b"balance %d " % n + b"." * 60,
                "timestamp": T + n * 1000,
            }
            for n in range(first, first + 8)
        ]
        send(plain, "compacted", records)
        producer = Producer(config(broker, linger_ms=50, enable_idempotence=True))
        for record in records:
            # Few keys, each deleted at the end, so that whole batches lose their records.
            record["key"] = b"device-%d" % (first % 24 // 8)
            record["value"] = None if first >= 150 else record["value"]
        send(producer, "emptied", records[:5])
    # The active segment is never cleaned; this record rolls a new one.
    for topic in ("compacted", "emptied"):
        for n in range(3):
            send(plain, topic, [{"key": b"last", "value": b"%d" % n * 3000, "timestamp": T + 300_000 + n}])
        total = 240 if topic == "compacted" else 150

        def is_cleaned(topic: str = topic, total: int = total) -> bool:
            before = read_all(broker, topic, 0)
            time.sleep(2)  # ten rounds of the cleaner
            return len(before) < total // 2 and len(before) == len(read_all(broker, topic, 0))

        wait_until(is_cleaned, f"the cleaner's work on {topic}")


def fill_deleted(broker: RealBroker) -> None:
    producer = Producer(config(broker, linger_ms=50))
    for partition in (0, 1):
        for first in range(0, 120, 5):
            send(producer, "deleted", some_records(first, 5), partition=partition)
    admin = AdminClient(config(broker))
    requests = [TopicPartition("deleted", 0, 77), TopicPartition("deleted", 1, 120)]
    for deleted in admin.delete_records(requests).values():
        deleted.result(TIMEOUT_S)
    wait_until(
        lambda: (
            all(any((broker.data / f"deleted-{n}").glob("*.deleted")) for n in (0, 1))
            and all(len(list((broker.data / f"deleted-{n}").glob("*.log"))) == 1 for n in (0, 1))
        ),
        "the deletion of segments",
    )


def fill_txn(broker: RealBroker) -> Producer:
    producer = Producer(config(broker, linger_ms=50, transactional_id="payments"))
    other = Producer(config(broker, linger_ms=50))
    producer.init_transactions(TIMEOUT_S)
    for number in range(12):
        producer.begin_transaction()
        send(producer, "txn", some_records(number * 10, 4))
        send(other, "txn", some_records(number * 10 + 4, 2))
        send(producer, "txn", some_records(number * 10 + 6, 4))
        if number % 3 == 1:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    return producer


# Groups


def consume(reader: Consumer, count: int) -> None:
    reader.subscribe(["plain"])
    seen = 0
    while seen < count:
        message = reader.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None
        seen += 1


def commit(reader: Consumer, *offsets: TopicPartition) -> None:
    reader.commit(offsets=list(offsets), asynchronous=False)


def fill_groups(broker: RealBroker) -> Consumer:
    """Create groups that join, commit, leave, and are deleted. Return a consumer that is still in its group."""
    with consumer(broker, group_id="gone") as reader:
        consume(reader, 5)
        commit(reader, TopicPartition("plain", 0, 5))
    admin = AdminClient(config(broker))  # kept in a variable: it must live until the answer arrives
    admin.delete_consumer_groups(["gone"])["gone"].result(TIMEOUT_S)
    if not broker.version.startswith("3."):
        with consumer(broker, group_id="next", group_protocol="consumer") as reader:
            consume(reader, 5)
            commit(reader, TopicPartition("plain", 1, 3))
    with consumer(broker, group_id="simple") as reader:
        # A group without members, which only has offsets.
        commit(reader, TopicPartition("txn", 0, 17))
    with consumer(broker, group_id="fraud", client_id="first") as reader:
        consume(reader, 30)
        commit(reader, TopicPartition("plain", 0, 10), TopicPartition("plain", 1, 20))
        commit(reader, TopicPartition("plain", 0, 12, metadata="checked by rule 7"))
    stays = Consumer(config(broker, group_id="fraud", client_id="second", enable_auto_commit=False))
    consume(stays, 1)
    commit(stays, TopicPartition("plain", 1, 25))
    return stays


def committed_offsets(broker: RealBroker) -> dict[str, Any]:
    everything = [TopicPartition(topic, n) for topic, (count, _) in TOPICS.items() for n in range(count)]
    groups = {}
    for group in ("fraud", "simple", "next", "gone"):
        with consumer(broker, group_id=group) as reader:
            found = reader.committed(everything, TIMEOUT_S)
        groups[group] = {f"{t.topic}-{t.partition}": [t.offset, t.metadata or ""] for t in found if t.offset >= 0}
    return groups


# Descriptions


def encoded(data: bytes | None, *, whole: bool = False) -> Any:
    if data is None:
        return None
    if len(data) > LONGEST and not whole:
        return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    return base64.b64encode(data).decode()


def describe_partition(broker: RealBroker, topic: str, partition: int) -> dict[str, Any]:
    place = TopicPartition(topic, partition)
    whole = topic.startswith("__")
    with consumer(broker, isolation_level="read_uncommitted") as reader:
        start, high_watermark = reader.get_watermark_offsets(place, TIMEOUT_S)
    with consumer(broker, isolation_level="read_committed") as reader:
        _, last_stable_offset = reader.get_watermark_offsets(place, TIMEOUT_S)
    messages = read_all(broker, topic, partition)
    committed = [message.offset() for message in read_all(broker, topic, partition, isolation="read_committed")]
    description: dict[str, Any] = {
        "log_start_offset": start,
        "high_watermark": high_watermark,
        "last_stable_offset": last_stable_offset,
        "records": [
            [
                message.offset(),
                message.timestamp()[1],
                "append" if message.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME else "create",
                encoded(message.key(), whole=whole),
                encoded(message.value(), whole=whole),
                [[name, encoded(value)] for name, value in message.headers() or ()],
            ]
            for message in messages
        ],
        "times": find_times(broker, topic, partition, sorted({message.timestamp()[1] for message in messages})),
    }
    if committed != [message.offset() for message in messages]:
        description["committed"] = committed
    return description


def find_times(broker: RealBroker, topic: str, partition: int, times: list[int]) -> list[list[int | None]]:
    """Look up offsets at the broker for some of the times, and for the times just before and after them."""
    asked = sorted({time_ms + more for time_ms in [*times[::7], *times[-1:]] for more in (-1, 0, 1)})
    answers: list[list[int | None]] = []
    with consumer(broker) as reader:
        for time_ms in asked:
            (found,) = reader.offsets_for_times([TopicPartition(topic, partition, time_ms)], TIMEOUT_S)
            answers.append([time_ms, found.offset if found.offset >= 0 else None])
    return answers


def describe(broker: RealBroker, stop: str) -> dict[str, Any]:
    topics = AdminClient(config(broker)).list_topics(timeout=TIMEOUT_S).topics
    partitions = {
        f"{name}-{partition}": describe_partition(broker, name, partition)
        for name, topic in sorted(topics.items())
        for partition in sorted(topic.partitions)
    }
    return {
        "broker": f"kafka {broker.version}",
        "stop": stop,
        "clients": {
            "librdkafka": confluent_kafka.libversion()[0],
            "kafka-python": kafka.__version__,
            "aiokafka": aiokafka.__version__,
        },
        "groups": committed_offsets(broker),
        "partitions": partitions,
    }


def write(broker: RealBroker, description: dict[str, Any], name: str) -> None:
    GOLDEN.mkdir(parents=True, exist_ok=True)
    text = json.dumps(description, ensure_ascii=False, separators=(",", ":"))
    for opening in ('"partitions"', '"log_start_offset"', '"times"', '"committed"'):
        text = text.replace(opening, "\n" + opening)
    (GOLDEN / f"{name}.json").write_text(text + "\n")
    with tarfile.open(GOLDEN / f"{name}.tar.gz", "w:gz") as archive:
        archive.add(broker.data, arcname=name, filter=without_owner)


def without_owner(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    # The cluster's metadata log is preallocated at 10 MB and is not a user's topic.
    if "__cluster_metadata" in member.name:
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def make(jars: Jars, stop: str) -> None:
    work = Path(tempfile.mkdtemp(prefix="broker-"))
    broker = RealBroker(jars, work)
    broker.format()
    broker.start()
    try:
        create_topics(broker, TOPICS)
        fill_plain(broker)
        fill_codecs(broker)
        fill_mixed(broker)
        fill_compacted(broker)
        payments = fill_txn(broker)
        member = fill_groups(broker)
        fill_deleted(broker)  # last, as its leftover files are removed after a minute
        if stop == "killed":
            payments.begin_transaction()
            send(payments, "txn", some_records(500, 3))
        else:
            member.close()
        description = describe(broker, stop)
        if stop == "clean":
            broker.stop()
        name = f"kafka-{broker.version}-{stop}"
    finally:
        broker.kill()
    write(broker, description, name)
    shutil.rmtree(work)
    print("written", name)


def main() -> None:
    jars = find_jars(*sys.argv[1:] or VERSIONS[:1])
    for stop in ("clean", "killed"):
        make(jars, stop)


if __name__ == "__main__":
    main()
