"""Hand a store that seeklog wrote, its groups included, to a real Kafka broker and back.

Not part of the tests: it needs a broker's jars, see `kafka_jars.py`. Takes two and a half minutes.

    python tests/interop/check_store_takeover.py [VERSION]

It runs twice: once with orderly shutdowns, so that the broker trusts the files; once with SIGKILL for the store, a
member of a group, and the broker.

1. seeklog fills a store: records with keys and headers, a topic with deleted records, groups that commit, a deleted
   group, and a group whose member is killed and so remains in the group's record.
2. A broker creates the same topics, which gives them their ids, and stops. The store's partitions replace the empty
   ones, except for `partition.metadata`.
3. The broker starts. Clients must read every record, every committed offset with its metadata, every group, and the
   killed member. Consumers continue in the groups and commit; the cleaner compacts seeklog's segments of
   `__consumer_offsets`. Four producers send the keys that seeklog's sent, which must go to the same partitions.
4. The broker stops. Its directory is opened as a store, with no manual step: it must have the same records and the
   broker's offsets. Consumers continue and commit, and a producer appends.
5. The broker starts again and must read all of that.
"""

from __future__ import annotations

import asyncio
import functools
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import aiokafka
import aiokafka.admin
import kafka
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

sys.path.insert(0, str(Path(__file__).parents[1]))
import seeklog
from interop.check_takeover import Row
from interop.kafka_jars import VERSIONS, Jars, find_jars
from interop.make_broker_golden import TIMEOUT_S, T, config, create_topics, read_all, some_records, wait_until
from interop.real_broker import RealBroker
from seeklog import Log, LogConfig, Store
from seeklog.errors import GroupNotFound, LogLocked
from seeklog.groups.groups import OFFSETS_PARTITIONS, java_hash
from seeklog.groups.records import OffsetKey, decode_key, decode_offset
from seeklog.names import TopicPartition as Place
from seeklog.names import parse_partition_name

CONFIG: Final = LogConfig(segment_bytes=4096, index_interval_bytes=300, segment_index_bytes=600, retention_ms=-1)
# Seven, because a power of two would hide a partitioner that is wrong in the upper bits.
COUNTS: Final = {"payments": 4, "audit": 1, "trimmed": 1, "keys": 7}
CODECS: Final = {"audit": "lz4"}
# The broker's minimum for a session, which is how long it waits for the killed member.
POLL_INTERVAL_MS: Final = 6000
STILL_STARTING: Final = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)
# Its hash is negative and computed from UTF-16 units, two of them for one character. Any other computation gives
# another of the four partitions.
UNUSUAL: Final = "prüfung-空-😀-1"
# The broker's checkpoints of all partitions; a partition that moves takes its lines along.
ROOT_CHECKPOINTS: Final = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
)

Offsets = dict[str, tuple[int, str]]
"""By the partition's name: an offset and its metadata."""


@dataclass
class Facts:
    """What was written and must be read."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    groups: dict[str, Offsets] = field(default_factory=dict)
    member_id: str = ""
    """Of the member that was killed; it had all partitions of payments."""

    def commit(self, group: str, offsets: Mapping[Place, int | tuple[int, str]]) -> None:
        for partition, value in offsets.items():
            committed = value if isinstance(value, tuple) else (value, "")
            self.groups.setdefault(group, {})[str(partition)] = committed


# What seeklog writes


def all_keys() -> list[bytes]:
    """Keys of every length up to 40, with bytes below and above 0x80."""
    return [
        bytes((size * 37 + turn * 91 + at * 53) % 256 for at in range(size)) for turn in range(5) for size in range(41)
    ]


def send(facts: Facts, store: Store, topic: str, records: Iterable[Mapping[str, Any]]) -> None:
    with store.producer(linger_ms=1, batch_bytes=700) as producer:
        sent = [
            (
                record,
                producer.send(
                    topic,
                    record["value"],
                    key=record["key"],
                    headers=record.get("headers", ()),
                    timestamp_ms=record["timestamp"],
                ),
            )
            for record in records
        ]
        producer.flush()
    for record, future in sent:
        where = future.result()
        headers = tuple(record.get("headers", ()))
        row = Row(where.offset, record["timestamp"], record["key"], record["value"], headers)
        facts.rows.setdefault(f"{topic}-{where.partition}", []).append(row)


def fill_topics(facts: Facts, root: Path) -> None:
    with seeklog.open(root, config=CONFIG) as store:
        for topic, count in COUNTS.items():
            settings = {"compression.type": CODECS[topic]} if topic in CODECS else {}
            store.create_topic(topic, partitions=count, config=settings)
        store.create_topic("short-lived", partitions=1)
        send(facts, store, "payments", some_records(0, 1200))
        send(facts, store, "audit", some_records(1200, 100))
        send(facts, store, "trimmed", some_records(1300, 150))
        send(facts, store, "short-lived", some_records(0, 3))
        keyed = [{"key": key, "value": b"seeklog", "timestamp": T} for key in all_keys()]
        send(facts, store, "keys", keyed)
        assert all(store.describe_topic(topic).partitions[0].segment_count > 1 for topic in ("payments", "trimmed"))
    with Log(root / "trimmed-0", config=CONFIG) as log:
        log.delete_before(77)
    del facts.rows["trimmed-0"][:77]
    del facts.rows["short-lived-0"]


def fill_groups(facts: Facts, store: Store) -> None:
    with store.consumer(
        ["payments"], group="fraud", auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        for _ in range(3):
            consumer.poll(1000, max_records=20)
            positions = {place: consumer.position(place) for place in consumer.assignment}
            consumer.commit()
        facts.commit("fraud", positions)
        checked = {Place("payments", 2): (7, "checked by rule 7")}
        consumer.commit(checked)
        facts.commit("fraud", checked)

    # Two members share the partitions and commit when they close.
    settings: dict[str, Any] = {"group": "reports", "auto_offset_reset": "earliest", "heartbeat_interval_ms": 1}
    with (
        store.consumer(["payments", "audit"], **settings) as one,
        store.consumer(["payments", "audit"], **settings) as other,
    ):
        while min(len(one.assignment), len(other.assignment)) < 2:
            one.poll(10, max_records=5)
            other.poll(10, max_records=5)
        facts.commit("reports", {place: each.position(place) for each in (one, other) for place in each.assignment})

    with store.consumer(group="simple", enable_auto_commit=False) as consumer:
        consumer.assign([("payments", 0), ("payments", 1), ("audit", 0), ("short-lived", 0)])
        by_hand = {
            Place("payments", 0): 0,
            Place("payments", 1): (5, "m" * 4096),
            Place("audit", 0): (100, "geprüft 空 😀"),
        }
        consumer.commit(by_hand)
        consumer.commit({Place("short-lived", 0): 2})
        facts.commit("simple", by_hand)
    store.delete_topic("short-lived")

    for group in (UNUSUAL, "gone"):
        with store.consumer(["payments"], group=group, auto_offset_reset="earliest") as consumer:
            consumer.poll(1000, max_records=30)
            facts.commit(group, {place: consumer.position(place) for place in consumer.assignment})
    store.delete_group("gone")
    del facts.groups["gone"]


def fill(root: Path, path: Path, *, clean: bool) -> None:
    """Fill a store, write its facts to a file, and close it or exit without a close."""
    facts = Facts()
    fill_topics(facts, root)
    store = seeklog.open(root, config=CONFIG)
    fill_groups(facts, store)
    send(facts, store, "trimmed", some_records(1450, 5))
    store.maintain()  # writes the new start of "trimmed" to the root's checkpoint
    send(facts, store, "payments", some_records(1455, 50))
    path.write_bytes(pickle.dumps(facts))
    if not clean:
        os.kill(os.getpid(), signal.SIGKILL)
    store.close()


def consume_until_killed(root: Path, pipe: Connection) -> None:
    """Join a group, commit, report it, and wait to be killed."""
    store = seeklog.open(root, config=CONFIG)
    consumer = store.consumer(
        ["payments"],
        group="left",
        auto_offset_reset="earliest",
        max_poll_interval_ms=POLL_INTERVAL_MS,
        client_id="left-behind",
    )
    consumer.poll(1000, max_records=25)
    consumer.commit()
    pipe.send((consumer.member_id, {place: consumer.position(place) for place in consumer.assignment}))
    signal.pause()


def make_store(root: Path, work: Path, *, clean: bool) -> Facts:
    processes = multiprocessing.get_context("spawn")
    path = work / "facts"
    filling = processes.Process(target=fill, args=(root, path), kwargs={"clean": clean})
    filling.start()
    filling.join()
    assert filling.exitcode == (0 if clean else -signal.SIGKILL), filling.exitcode
    facts: Facts = pickle.loads(path.read_bytes())
    ours, theirs = processes.Pipe()
    member = processes.Process(target=consume_until_killed, args=(root, theirs))
    member.start()
    try:
        assert ours.poll(TIMEOUT_S)
        facts.member_id, committed = ours.recv()
    finally:
        member.kill()
        member.join()
    facts.commit("left", committed)
    return facts


# Handing over


def partitions_in(root: Path) -> list[Path]:
    return sorted(path for path in root.iterdir() if path.is_dir() and parse_partition_name(path.name))


def hand_over(root: Path, data: Path) -> None:
    """Replace a broker's partitions with those of a store, keeping the broker's topic ids."""
    moved = partitions_in(root)
    for source in moved:
        target = data / source.name
        metadata = (target / "partition.metadata").read_bytes()
        shutil.rmtree(target)
        shutil.copytree(source, target)
        (target / "partition.metadata").write_bytes(metadata)
    for name in ROOT_CHECKPOINTS:
        lines = {line.rpartition(" ")[0]: line for path in (data, root) for line in lines_of(path / name)}
        (data / name).write_text("\n".join(["0", str(len(lines)), *lines.values(), ""]))


def lines_of(checkpoint: Path) -> list[str]:
    return checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []


def make_topics(broker: RealBroker) -> None:
    create_topics(broker, {topic: (count, {}) for topic, count in COUNTS.items()})
    with_group = Consumer(config(broker, group_id="first", enable_auto_commit=False))
    with_group.commit(offsets=[TopicPartition("audit", 0, 0)], asynchronous=False)  # creates __consumer_offsets
    with_group.close()
    # Rolls seeklog's segments at the broker's first append, so that the cleaner compacts them.
    settings = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"}
    changes = [
        ConfigEntry(word, value, incremental_operation=AlterConfigOpType.SET) for word, value in settings.items()
    ]
    admin = AdminClient(config(broker))
    resource = ConfigResource(ConfigResource.Type.TOPIC, "__consumer_offsets", incremental_configs=changes)
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S)


# What the broker's clients see


def read_rows(broker: RealBroker, place: str) -> list[Row]:
    topic, number = place.rsplit("-", 1)
    return [
        Row(m.offset(), m.timestamp()[1], m.key(), m.value(), tuple(m.headers() or ()))
        for m in read_all(broker, topic, int(number))
    ]


def check_records(broker: RealBroker, facts: Facts) -> None:
    for place, rows in facts.rows.items():
        assert read_rows(broker, place) == rows, place
    reader = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap, consumer_timeout_ms=20_000)
    places = [kafka.TopicPartition(topic, number) for topic, count in COUNTS.items() for number in range(count)]
    starts, ends = reader.beginning_offsets(places), reader.end_offsets(places)
    for place in places:
        rows = facts.rows[f"{place.topic}-{place.partition}"]
        assert (starts[place], ends[place]) == (rows[0].offset, rows[-1].offset + 1), place
    reader.assign(places)
    reader.seek_to_beginning(*places)
    found: dict[str, list[Row]] = {name: [] for name in facts.rows}
    for _ in range(sum(map(len, facts.rows.values()))):
        m = next(reader)
        row = Row(m.offset, m.timestamp, m.key, m.value, tuple(m.headers))
        found[f"{m.topic}-{m.partition}"].append(row)
    reader.close()
    assert found == facts.rows


def check_groups(broker: RealBroker, facts: Facts) -> None:
    admin = AdminClient(config(broker))
    listed = admin.list_consumer_groups().result(TIMEOUT_S)
    assert not listed.errors
    assert {group.group_id for group in listed.valid} == set(facts.groups)
    for group in [*facts.groups, "gone"]:
        (answer,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        # Without the metadata, which librdkafka does not terminate and the binding reads past its end.
        found = {
            f"{committed.topic}-{committed.partition}": committed.offset
            for committed in answer.result(TIMEOUT_S).topic_partitions
        }
        assert found == {place: offset for place, (offset, _) in facts.groups.get(group, {}).items()}, group

    python = kafka.KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    assert {group["group_id"] for group in python.list_groups()} == set(facts.groups)
    found_by_python = python.list_group_offsets([*facts.groups, "gone"])
    python.close()
    found_by_aiokafka = asyncio.run(offsets_by_aiokafka(broker, [*facts.groups, "gone"]))
    for by_client in (found_by_python, found_by_aiokafka):
        for group, offsets in by_client.items():
            committed = {f"{place.topic}-{place.partition}": (at.offset, at.metadata) for place, at in offsets.items()}
            assert committed == facts.groups.get(group, {}), (group, committed)


async def offsets_by_aiokafka(broker: RealBroker, groups: Iterable[str]) -> dict[str, Any]:
    admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        return {group: await admin.list_consumer_group_offsets(group) for group in groups}
    finally:
        await admin.close()


def describe(broker: RealBroker, groups: Iterable[str]) -> dict[str, Any]:
    """Describe groups once the broker has loaded them."""
    admin = AdminClient(config(broker))
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            answers = admin.describe_consumer_groups(list(groups))
            return {group: answer.result(TIMEOUT_S) for group, answer in answers.items()}
        except KafkaException as error:
            if error.args[0].code() not in STILL_STARTING or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def check_members(broker: RealBroker, facts: Facts) -> None:
    """Check that only the killed member is still in its group."""
    for group, found in describe(broker, facts.groups).items():
        if group != "left":
            assert (found.state.name, found.members) == ("EMPTY", []), (group, found.state)
            continue
        assert found.state.name == "STABLE"
        assert found.partition_assignor == "cooperative-sticky"
        (member,) = found.members
        assert (member.member_id, member.client_id) == (facts.member_id, "left-behind")
        assigned = sorted((place.topic, place.partition) for place in member.assignment.topic_partitions)
        assert assigned == [("payments", number) for number in range(4)]


# Going on


def go_on_with_librdkafka(broker: RealBroker, facts: Facts, group: str, **settings: Any) -> Consumer:
    """Continue consuming in the group and commit with metadata. Return the consumer, still in its group."""
    # Small fetches, to read from every partition soon.
    base = {"auto_offset_reset": "error", "enable_auto_commit": False, "max_partition_fetch_bytes": 1000}
    reader = Consumer(config(broker, group_id=group, **base, **settings))
    reader.subscribe(["payments"])
    positions: dict[str, int] = {}
    begun = time.monotonic()
    while len(positions) < COUNTS["payments"]:
        m = reader.poll(TIMEOUT_S)
        assert m is not None, f"group {group!r}: nothing to read"
        assert m.error() is None, (group, m.error())
        place = f"{m.topic()}-{m.partition()}"
        next_row = next(
            row for row in facts.rows[place] if row.offset >= positions.get(place, facts.groups[group][place][0])
        )
        assert (m.offset(), m.key(), m.value()) == (next_row.offset, next_row.key, next_row.value), (group, place)
        positions[place] = m.offset() + 1
    took_s = time.monotonic() - begun
    offsets = [TopicPartition(*split(place), offset, metadata=f"at {offset}") for place, offset in positions.items()]
    reader.commit(offsets=offsets, asynchronous=False)
    # The binding counts the NUL at the end of a C string as part of it.
    facts.groups[group] |= {place: (offset, f"at {offset}\0") for place, offset in positions.items()}
    print(f"  {group!r} went on {settings or ''} in {took_s:.1f} s: {positions}")
    return reader


def split(place: str) -> tuple[str, int]:
    topic, number = place.rsplit("-", 1)
    return topic, int(number)


def go_on_with_kafka_python(broker: RealBroker, facts: Facts, group: str, *, count: int) -> None:
    reader = kafka.KafkaConsumer(
        "payments",
        "audit",
        bootstrap_servers=broker.bootstrap,
        group_id=group,
        auto_offset_reset="none",
        enable_auto_commit=False,
        consumer_timeout_ms=20_000,
    )
    positions = {place: offset for place, (offset, _) in facts.groups[group].items()}
    for _ in range(count):
        m = next(reader)
        place = f"{m.topic}-{m.partition}"
        assert m.offset == positions[place], (group, place)
        positions[place] += 1
    # The iterator's position is past the records read, so the offsets are explicit.
    reader.commit(
        {kafka.TopicPartition(*split(p)): kafka.OffsetAndMetadata(offset, "py", -1) for p, offset in positions.items()}
    )
    reader.close()
    facts.groups[group] = {place: (offset, "py") for place, offset in positions.items()}


def go_on_with_seeklog(store: Store, facts: Facts, group: str) -> None:
    with store.consumer(
        ["payments"], group=group, auto_offset_reset="error", enable_auto_commit=False, consumer_timeout_ms=0
    ) as consumer:
        mine = {place: offset for place, (offset, _) in facts.groups[group].items() if place.startswith("payments")}
        assert {str(place): consumer.position(place) for place in consumer.assignment} == mine, group
        found: dict[str, list[Row]] = {}
        for r in consumer:
            row = Row(r.offset, r.timestamp_ms, r.key, r.value, tuple(r.headers))
            found.setdefault(f"{r.topic}-{r.partition}", []).append(row)
        for place, offset in mine.items():
            assert found.get(place, []) == [row for row in facts.rows[place] if row.offset >= offset], (group, place)
        ends = {place: consumer.position(place) for place in sorted(consumer.assignment)}
        commits = {place: (offset, "read to the end") for place, offset in ends.items()}
        consumer.commit(commits)
        facts.commit(group, commits)
    assert sum(lag.lag for lag in store.lag(group) if lag.topic == "payments") == 0


# Keys

JAVA_PRODUCER: Final = """
import java.util.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Send {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
                var input = new Scanner(System.in)) {
            while (input.hasNextLine()) {
                byte[] key = HexFormat.of().parseHex(input.nextLine());
                producer.send(new ProducerRecord<>("keys", key, "java".getBytes())).get();
            }
        }
    }
}
"""


def send_keys_with_java(broker: RealBroker, work: Path) -> None:
    source = work / "Send.java"
    source.write_text(JAVA_PRODUCER)
    command = broker.java(str(source), broker.bootstrap)
    keys = "".join(f"{key.hex()}\n" for key in all_keys())
    subprocess.run(command, check=True, input=keys, text=True, stderr=subprocess.DEVNULL, timeout=120)


async def send_keys_with_aiokafka(broker: RealBroker) -> None:
    async with aiokafka.AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer:
        for key in all_keys():
            await producer.send("keys", b"aiokafka", key=key)


def check_keys(broker: RealBroker, facts: Facts, work: Path) -> None:
    """Send the same keys with other partitioners, which must choose the partitions of seeklog's producer."""
    producer = Producer(config(broker, partitioner="murmur2_random"))
    for key in all_keys():
        producer.produce("keys", b"librdkafka", key=key)
    assert producer.flush(TIMEOUT_S) == 0
    python = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap)
    for key in all_keys():
        python.send("keys", b"kafka-python", key=key)
    python.close()
    asyncio.run(send_keys_with_aiokafka(broker))
    send_keys_with_java(broker, work)
    places = {f"keys-{number}" for number in range(COUNTS["keys"])}
    facts.rows |= {place: read_rows(broker, place) for place in places}
    where: dict[bytes | None, dict[bytes | None, set[str]]] = {}
    for place in places:
        for row in facts.rows[place]:
            where.setdefault(row.value, {}).setdefault(row.key, set()).add(place)
    assert set(where) == {b"seeklog", b"librdkafka", b"kafka-python", b"aiokafka", b"java"}
    for producer_name, found in where.items():
        assert found == where[b"seeklog"], producer_name
    assert set().union(*where[b"seeklog"].values()) == places


# What seeklog sees


def check_store(store: Store, facts: Facts) -> None:
    assert store.topics() == sorted(COUNTS)
    for place, rows in facts.rows.items():
        log = store.log(*split(place))
        found = [Row(r.offset, r.timestamp_ms, r.key, r.value, tuple(r.headers)) for r in log.scan()]
        assert found == rows, place
        assert log.log_start_offset == rows[0].offset, place
    assert store.groups() == sorted(facts.groups)
    assert offsets_in(store) == facts.groups
    for group, offsets in facts.groups.items():
        found = store.describe_group(group)
        assert {str(place): offset for place, offset in found.offsets.items()} == {
            place: offset for place, (offset, _) in offsets.items()
        }
        assert found.members == ()
    try:
        store.describe_group("gone")
    except GroupNotFound:
        return
    raise AssertionError("the deleted group is there")


def offsets_in(store: Store) -> dict[str, Offsets]:
    """Return the committed offsets in `__consumer_offsets` with their metadata, which the store does not return."""
    groups: dict[str, Offsets] = {}
    for number in range(OFFSETS_PARTITIONS):
        for record in store.log("__consumer_offsets", number).scan():
            key = decode_key(record.key or b"")
            if isinstance(key, OffsetKey):
                offsets = groups.setdefault(key.group, {})
                if record.value is None:
                    offsets.pop(str(key.partition), None)
                else:
                    committed = decode_offset(record.value)
                    offsets[str(key.partition)] = (committed.offset, committed.metadata)
    return {group: offsets for group, offsets in groups.items() if offsets}


# All of it


def wait_for_cleaner(broker: RealBroker, ends: Mapping[int, int], groups: Iterable[str]) -> None:
    """Wait until seeklog's segments in the partitions of these groups are compacted."""
    numbers = {java_hash(group) % OFFSETS_PARTITIONS for group in groups}

    def is_cleaned() -> bool:
        cleaned = dict(line.rsplit(" ", 1) for line in lines_of(broker.data / "cleaner-offset-checkpoint"))
        return all(int(cleaned.get(f"__consumer_offsets {number}", 0)) >= ends[number] for number in numbers)

    wait_until(is_cleaned, "the cleaner's work on __consumer_offsets")


def check(jars: Jars, work: Path, *, clean: bool) -> None:
    root = work / "store"
    broker = RealBroker(jars, work, properties={"offsets.topic.num.partitions": str(OFFSETS_PARTITIONS)})
    broker.format()
    members: list[Consumer] = []
    try:
        facts = make_store(root, work, clean=clean)
        with seeklog.open(root, read_only=True) as store:
            ends = {n: store.log("__consumer_offsets", n).log_end_offset for n in range(OFFSETS_PARTITIONS)}
        broker.start()
        make_topics(broker)
        broker.stop()
        hand_over(root, broker.data)
        if not clean:
            (broker.data / ".kafka_cleanshutdown").unlink()

        broker.start()
        check_members(broker, facts)  # first, while the session of the killed member lasts
        check_groups(broker, facts)
        go_on = functools.partial(go_on_with_librdkafka, broker, facts)
        members.append(go_on("left", partition_assignment_strategy="cooperative-sticky"))
        check_records(broker, facts)
        print("  the broker has", sum(map(len, facts.rows.values())), "records and", len(facts.groups), "groups")
        members.append(go_on("fraud"))
        go_on_with_kafka_python(broker, facts, "reports", count=50)
        is_old = broker.version.startswith("3.")
        members.append(go_on(UNUSUAL, **({} if is_old else {"group_protocol": "consumer"})))
        check_keys(broker, facts, work)
        check_groups(broker, facts)
        wait_for_cleaner(broker, ends, ("left", "fraud", "reports", UNUSUAL))
        try:
            seeklog.open(broker.data)
            raise AssertionError("a store was opened beside a broker that runs")
        except LogLocked:
            pass
        if not clean:
            broker.kill()  # with members in three groups
        while members:
            members.pop().close()
        broker.stop()

        with seeklog.open(broker.data, config=CONFIG) as store:
            check_store(store, facts)
            for group in ("left", "fraud", "reports", UNUSUAL):
                go_on_with_seeklog(store, facts, group)
            send(facts, store, "payments", some_records(1505, 60))
            send(facts, store, "audit", some_records(1565, 20))
            store.maintain()
            check_store(store, facts)
        with seeklog.open(broker.data, config=CONFIG) as store:
            check_store(store, facts)
        print("  seeklog went on in the groups of the broker")

        broker.start()
        check_records(broker, facts)
        check_groups(broker, facts)
        go_on("fraud").close()
        check_groups(broker, facts)
        broker.stop()
    finally:
        broker.kill()
        for member in members:
            member.close()
    how = "closed in order" if clean else "killed"
    print(f"kafka {broker.version}, {how}: all records, offsets and groups equal, there and back and there")


def main() -> None:
    jars = find_jars(*sys.argv[1:] or VERSIONS[:1])
    for clean in (True, False):
        work = Path(tempfile.mkdtemp(prefix="store-takeover-"))
        check(jars, work, clean=clean)
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
