"""Hand directories that seeklog wrote to a real Kafka broker and back, and compare what both read.

Not part of the tests: it needs a broker's jars, see `kafka_jars.py`. Takes about a minute.

    python tests/interop/check_takeover.py [VERSION]

For each topic, with a broker after a clean shutdown (which trusts the indexes) and after an unclean one (which
rebuilds them):

1. The broker creates the topic and stops. seeklog writes a partition that replaces the empty one, keeping only
   `partition.metadata` with the topic id.
2. The broker starts. Three clients read everything; one of them also starts at many offsets, looks up the offsets of
   many times, and appends.
3. The broker stops. seeklog opens the directory with no manual step, reads everything, and appends. The broker and its
   clients must read that too.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
import kafka
from confluent_kafka import Producer

sys.path.insert(0, str(Path(__file__).parents[1]))
from interop.kafka_jars import VERSIONS, Jars, find_jars
from interop.make_broker_golden import T, config, create_topics, read_all, send, some_records
from interop.real_broker import RealBroker
from seeklog import Log, LogConfig, LogReader, Record

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    **{f"taken-{codec}": (1, {}) for codec in CODECS},
    "taken-mixed": (1, {}),
    "taken-append-time": (1, {"message.timestamp.type": "LogAppendTime"}),
    "taken-started-late": (1, {}),
}


class Row(NamedTuple):
    """The expected record."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def log_config(topic: str, **settings: Any) -> LogConfig:
    return LogConfig(
        segment_bytes=4096,
        index_interval_bytes=300,
        segment_index_bytes=600,
        retention_ms=-1,
        message_timestamp_type="LogAppendTime" if topic == "taken-append-time" else "CreateTime",
        initial_offset=5_000_000_000 if topic == "taken-started-late" else 0,
        **settings,
    )


def write_topic(directory: Path, topic: str) -> list[Row]:
    """Replace an empty partition with one written by seeklog; return its records."""
    for path in directory.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    codec = topic.removeprefix("taken-")
    codecs = CODECS if codec == "mixed" else (codec if codec in CODECS else "none",)
    number = 0
    for turn in range(10):
        with Log(directory, config=log_config(topic, compression_type=codecs[turn % len(codecs)])) as log:
            for count in (1, 5, 12):
                log.append_many(as_record(record) for record in some_records(number, count))
                number += count
            log.append(b"alone", key=b"k", timestamp_ms=T + number * 1000)
            number += 1
            # Hardly compressible, so that every codec fills several segments.
            log.append(b"".join(uuid.uuid4().bytes for _ in range(40)), timestamp_ms=T + number * 1000)
            number += 1
    assert len(list(directory.glob("*.log"))) > 2
    return read_with_seeklog(directory)


def as_record(settings: dict[str, Any]) -> Record:
    return Record(
        settings["value"], key=settings["key"], headers=settings.get("headers", ()), timestamp_ms=settings["timestamp"]
    )


def read_with_seeklog(directory: Path) -> list[Row]:
    with LogReader(directory) as log:
        return [Row(r.offset, r.timestamp_ms, r.key, r.value, tuple(r.headers)) for r in log.scan()]


def read_with_librdkafka(broker: RealBroker, topic: str) -> list[Row]:
    return [
        Row(m.offset(), m.timestamp()[1], m.key(), m.value(), tuple(m.headers() or ()))
        for m in read_all(broker, topic, 0)
    ]


def read_with_kafka_python(broker: RealBroker, topic: str, count: int) -> list[Row]:
    reader = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap, consumer_timeout_ms=20_000)
    place = kafka.TopicPartition(topic, 0)
    reader.assign([place])
    reader.seek_to_beginning(place)
    rows = []
    for message in reader:
        headers = tuple((name, value) for name, value in message.headers)
        rows.append(Row(message.offset, message.timestamp, message.key, message.value, headers))
        if len(rows) == count:
            break
    reader.close()
    return rows


async def read_with_aiokafka(broker: RealBroker, topic: str, count: int) -> list[Row]:
    async with aiokafka.AIOKafkaConsumer(bootstrap_servers=broker.bootstrap) as reader:
        place = aiokafka.TopicPartition(topic, 0)
        reader.assign([place])
        await reader.seek_to_beginning(place)
        rows = []
        for _ in range(count):
            message = await reader.getone()
            rows.append(Row(message.offset, message.timestamp, message.key, message.value, tuple(message.headers)))
        return rows


def check_clients(broker: RealBroker, topic: str, rows: list[Row]) -> None:
    assert read_with_librdkafka(broker, topic) == rows, topic
    assert read_with_kafka_python(broker, topic, len(rows)) == rows, topic
    assert asyncio.run(read_with_aiokafka(broker, topic, len(rows))) == rows, topic
    check_lookups(broker, topic, rows)


def check_lookups(broker: RealBroker, topic: str, rows: list[Row]) -> None:
    """Read from many offsets and look up many times, which uses the indexes."""
    reader = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap, consumer_timeout_ms=20_000)
    place = kafka.TopicPartition(topic, 0)
    reader.assign([place])
    assert reader.beginning_offsets([place]) == {place: rows[0].offset}, topic
    assert reader.end_offsets([place]) == {place: rows[-1].offset + 1}, topic
    for row in rows[::7]:
        reader.seek(place, row.offset)
        assert next(reader).offset == row.offset, topic
    for time_ms in {row.timestamp_ms + more for row in rows[::7] for more in (-1, 0, 1)}:
        found = reader.offsets_for_times({place: time_ms})[place]
        first = next((row.offset for row in rows if row.timestamp_ms >= time_ms), None)
        assert (found.offset if found else None) == first, (topic, time_ms)
    reader.close()


def check(jars: Jars, work: Path, *, clean: bool) -> None:
    broker = RealBroker(jars, work)
    broker.format()
    try:
        broker.start()
        create_topics(broker, TOPICS)
        broker.stop()
        rows = {topic: write_topic(broker.data / f"{topic}-0", topic) for topic in TOPICS}
        if not clean:
            (broker.data / ".kafka_cleanshutdown").unlink()
        broker.start()
        for topic in TOPICS:
            check_clients(broker, topic, rows[topic])
            producer = Producer(config(broker, linger_ms=50))
            for first in range(0, 60, 6):
                send(producer, topic, some_records(first, 6))
            appended = read_with_librdkafka(broker, topic)
            assert len(appended) == len(rows[topic]) + 60
            assert appended[: len(rows[topic])] == rows[topic]
            rows[topic] = appended
        print("read by three clients, and appended to:", {topic: len(found) for topic, found in rows.items()})
        (broker.stop if clean else broker.kill)()
        for topic in TOPICS:
            directory = broker.data / f"{topic}-0"
            with Log(directory, config=log_config(topic)) as log:
                assert log.recovery.cut_bytes == 0
                log.append_many([Record(b"back again", key=b"%d" % n) for n in range(20)])
            back = read_with_seeklog(directory)
            assert back[:-20] == rows[topic], topic
            rows[topic] = back
        broker.start()
        for topic in TOPICS:
            check_clients(broker, topic, rows[topic])
        broker.stop()
    finally:
        broker.kill()
    print(f"kafka {broker.version}, {'clean' if clean else 'recovered'}: all equal, there and back")


def main() -> None:
    jars = find_jars(*sys.argv[1:] or VERSIONS[:1])
    for clean in (True, False):
        work = Path(tempfile.mkdtemp(prefix="takeover-"))
        check(jars, work, clean=clean)
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
