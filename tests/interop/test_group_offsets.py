"""Committed offsets in both directions: kafka-python and aiokafka decode what seeklog commits, and seeklog reads what
they encode and what real brokers have written.

Neither library has the records of `__consumer_offsets`, so their schemas are built here from Kafka's message
definitions with the libraries' types. Batches, subscriptions, and assignments are decoded by the libraries' classes.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from log.workbench import START_MS, FakeClock, QuickFiles
from seeklog import Consumer, LogConfig, Record, Store, TopicPartition
from seeklog.names import CONSUMER_OFFSETS
from seeklog.store import open_store

kafka_types = pytest.importorskip("kafka.protocol.old.types", reason="needs kafka-python")
kafka_records = pytest.importorskip("kafka.record.memory_records")
kafka_protocol = pytest.importorskip("kafka.protocol.old.consumer_protocol")
kafka_metadata = pytest.importorskip("kafka.protocol.consumer.metadata")
aiokafka_types = pytest.importorskip("aiokafka.protocol.types", reason="needs aiokafka")
aiokafka_records = pytest.importorskip("aiokafka.record.memory_records")
aiokafka_protocol = pytest.importorskip("aiokafka.coordinator.protocol")

ZERO, ONE, TWO = (TopicPartition("events", number) for number in range(3))
BROKERS = Path(__file__).parent / "golden" / "broker"


class Peer(NamedTuple):
    """A library: its types, its batch reader, and its consumer protocol."""

    types: Any
    memory_records: Any
    subscription: Any
    assignment: Any

    def schema(self, *fields: tuple[str, Any]) -> Any:
        return self.types.Schema(*fields)

    @property
    def text(self) -> Any:
        return self.types.String("utf-8")

    @property
    def offset_key(self) -> Any:
        """OffsetCommitKey, version 1."""
        return self.schema(
            ("version", self.types.Int16),
            ("group", self.text),
            ("topic", self.text),
            ("partition", self.types.Int32),
        )

    @property
    def offset_value(self) -> Any:
        """OffsetCommitValue, version 3."""
        return self.schema(
            ("version", self.types.Int16),
            ("offset", self.types.Int64),
            ("leader_epoch", self.types.Int32),
            ("metadata", self.text),
            ("commit_timestamp", self.types.Int64),
        )

    @property
    def group_key(self) -> Any:
        """GroupMetadataKey, version 2."""
        return self.schema(("version", self.types.Int16), ("group", self.text))

    @property
    def group_value(self) -> Any:
        """GroupMetadataValue, version 3."""
        return self.schema(
            ("version", self.types.Int16),
            ("protocol_type", self.text),
            ("generation", self.types.Int32),
            ("protocol", self.text),
            ("leader", self.text),
            ("state_timestamp", self.types.Int64),
            (
                "members",
                self.types.Array(
                    ("member_id", self.text),
                    ("group_instance_id", self.text),
                    ("client_id", self.text),
                    ("client_host", self.text),
                    ("rebalance_timeout", self.types.Int32),
                    ("session_timeout", self.types.Int32),
                    ("subscription", self.types.Bytes),
                    ("assignment", self.types.Bytes),
                ),
            ),
        )


PEERS = {
    "kafka-python": Peer(
        kafka_types,
        kafka_records.MemoryRecords,
        kafka_protocol.ConsumerProtocolMemberMetadata_v0,
        kafka_protocol.ConsumerProtocolMemberAssignment_v0,
    ),
    "aiokafka": Peer(
        aiokafka_types,
        aiokafka_records.MemoryRecords,
        aiokafka_protocol.ConsumerProtocolMemberMetadata,
        aiokafka_protocol.ConsumerProtocolMemberAssignment,
    ),
}
peers = pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS)


def decoded(schema: Any, data: bytes) -> tuple[Any, ...]:
    """Decode bytes, all of which the schema must use."""
    stream = BytesIO(data)
    fields: tuple[Any, ...] = schema.decode(stream)
    assert stream.read() == b""
    return fields


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    clock = FakeClock()
    config = LogConfig(flush="os", retention_ms=-1)
    with open_store(tmp_path / "store", config=config, files=QuickFiles(), clock=clock, background=False) as store:
        store.create_topic("events", partitions=3)
        with store.producer() as producer:
            for partition in range(3):
                for _ in range(50):
                    producer.send("events", b"value", partition=partition)
        yield store


def raw_records(peer: Peer, store: Store) -> list[tuple[bytes, bytes | None]]:
    """Return all keys and values of `__consumer_offsets`, read from the files by the peer."""
    found = []
    for directory in sorted(store.path.glob(f"{CONSUMER_OFFSETS}-*")):
        for path in sorted(directory.glob("*.log")):
            batches = peer.memory_records(path.read_bytes())
            while batches.has_next():
                batch = batches.next_batch()
                assert batch.validate_crc()
                found += [
                    (bytes(record.key), None if record.value is None else bytes(record.value)) for record in batch
                ]
    return found


def records_of(peer: Peer, store: Store) -> list[tuple[tuple[Any, ...], tuple[Any, ...] | None]]:
    """Return keys and values decoded by the peer's schemas."""
    found = []
    for key, value in raw_records(peer, store):
        is_group = key[:2] == b"\0\2"
        value_schema = peer.group_value if is_group else peer.offset_value
        found.append(
            (
                decoded(peer.group_key if is_group else peer.offset_key, key),
                None if value is None else decoded(value_schema, value),
            )
        )
    return found


def commit(store: Store, group: str, offsets: dict[TopicPartition, Any]) -> None:
    with store.consumer(group=group, enable_auto_commit=False) as consumer:
        consumer.commit(offsets)


# ---------------------------------------------------------------- what seeklog writes


@peers
def test_other_clients_decode_offsets(store: Store, peer: Peer) -> None:
    commit(store, "fraud", {ZERO: 7, ONE: (50, "checked ✓")})
    commit(store, "ü🔑", {TWO: 0})
    commit(store, "fraud", {ZERO: 8})

    assert sorted(records_of(peer, store)) == sorted(
        [
            ((1, "fraud", "events", 0), (3, 7, 0, "", START_MS)),
            ((1, "fraud", "events", 1), (3, 50, 0, "checked ✓", START_MS)),
            ((1, "ü🔑", "events", 2), (3, 0, 0, "", START_MS)),
            ((1, "fraud", "events", 0), (3, 8, 0, "", START_MS)),
        ]
    )


def members_of(peer: Peer, value: tuple[Any, ...]) -> dict[str, tuple[Any, ...]]:
    return {member[0]: tuple(member) for member in value[6]}


@peers
def test_other_clients_decode_members(store: Store, peer: Peer) -> None:
    clock: Any = store._clock
    consumers: list[Consumer] = [
        store.consumer(["events"], group="fraud", client_id=name, max_poll_interval_ms=6000) for name in ("a", "b")
    ]
    for _ in range(3):
        clock.advance(1000)
        for consumer in consumers:
            consumer.poll()
    key, value = [record for record in records_of(peer, store) if record[0][0] == 2][-1]
    assert value is not None
    described = store.describe_group("fraud")

    assert key == (2, "fraud")
    assert value[:5] == (3, "consumer", described.generation, "cooperative-sticky", value[4])
    assert value[4] in {consumer.member_id for consumer in consumers}
    members = members_of(peer, value)
    assert set(members) == {consumer.member_id for consumer in consumers}
    for consumer, client_id in zip(consumers, "ab", strict=True):
        _, instance, client, host, rebalance_ms, session_ms, subscription, assignment = members[str(consumer.member_id)]
        assert (instance, client, rebalance_ms, session_ms) == (None, client_id, 6000, 6000)
        assert host.startswith("/")
        assert decoded(peer.subscription.SCHEMA, subscription)[:2] == (0, ["events"])
        assigned = peer.assignment.decode(assignment)
        assert {TopicPartition(*each) for each in assigned.partitions()} == consumer.assignment
        assert decoded(peer.assignment.SCHEMA, assignment)[0] == 0


def test_kafka_python_decodes_subscriptions(store: Store) -> None:
    """kafka-python's newer classes are generated from Kafka's own message definitions."""
    peer = PEERS["kafka-python"]
    with store.consumer(["events"], group="fraud") as consumer:
        (_, value) = records_of(peer, store)[-1]
        assert value is not None
        member = members_of(peer, value)[str(consumer.member_id)]

    subscription = kafka_metadata.ConsumerProtocolSubscription.decode(member[6])
    assignment = kafka_metadata.ConsumerProtocolAssignment.decode(member[7])
    assert list(subscription.topics) == ["events"]
    assert {(each.topic, *each.partitions) for each in assignment.assigned_partitions} == {("events", 0, 1, 2)}


@peers
def test_group_without_members_is_empty(store: Store, peer: Peer) -> None:
    with store.consumer(["events"], group="fraud", enable_auto_commit=False):
        pass
    (first, _), (last, value) = records_of(peer, store)
    assert first == last == (2, "fraud")
    assert value == (3, "consumer", 2, None, None, START_MS, [])


@peers
def test_deleted_offset_is_a_tombstone(store: Store, peer: Peer) -> None:
    commit(store, "fraud", {ZERO: 7, ONE: 8})
    with store.consumer(["events"], group="fraud", enable_auto_commit=False):
        pass
    store.delete_group("fraud")
    tombstones = [key for key, value in records_of(peer, store) if value is None]
    assert sorted(tombstones) == [(1, "fraud", "events", 0), (1, "fraud", "events", 1), (2, "fraud")]


# ---------------------------------------------------------------- what others write


@peers
def test_offsets_encoded_by_other_clients_are_read(store: Store, peer: Peer) -> None:
    commit(store, "fraud", {ZERO: 1})
    subscription = peer.subscription(0, ["events"], b"")
    assignment = peer.assignment(0, [("events", [0, 2])], b"")
    member = ("x-1", "static", "x", "/10.0.0.1", 60_000, 45_000, subscription.encode(), assignment.encode())
    records = [
        Record(
            peer.offset_value.encode((3, 33, 4, "by others ✓", START_MS)),
            key=peer.offset_key.encode((1, "fraud", "events", 2)),
        ),
        Record(
            peer.group_value.encode((3, "consumer", 17, "range", "x-1", START_MS, [member])),
            key=peer.group_key.encode((2, "fraud")),
        ),
    ]
    with store._table.borrow(store._groups.partition_of("fraud"), wait_s=0) as log:
        log.append_many(records)

    group = store._groups.find("fraud")
    assert (group.offsets[TWO].offset, group.offsets[TWO].metadata) == (33, "by others ✓")
    assert (group.offsets[TWO].leader_epoch, group.offsets[TWO].commit_timestamp_ms) == (4, START_MS)
    assert (group.state.generation, group.state.protocol, group.state.leader) == (17, "range", "x-1")
    found = group.state.members["x-1"]
    assert (found.group_instance_id, found.client_id, found.client_host) == ("static", "x", "/10.0.0.1")
    assert (found.rebalance_timeout_ms, found.session_timeout_ms) == (60_000, 45_000)
    assert (found.topics, found.assignment) == ({"events"}, {ZERO, TWO})


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The data directory of a real broker."""
    with tarfile.open(BROKERS / f"{request.param}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / str(request.param)


real_brokers = pytest.mark.parametrize("broker", sorted(path.stem for path in BROKERS.glob("*.json")), indirect=True)


def described_groups(request: pytest.FixtureRequest) -> dict[str, dict[TopicPartition, int]]:
    """Return what clients read of the broker's groups."""
    (name,) = (value for key, value in request.node.callspec.params.items() if key == "broker")
    groups = json.loads((BROKERS / f"{name}.json").read_text())["groups"]
    return {
        group: {
            TopicPartition(partition.rpartition("-")[0], int(partition.rpartition("-")[2])): offset
            for partition, (offset, _) in offsets.items()
        }
        for group, offsets in groups.items()
        if offsets
    }


@real_brokers
def test_groups_of_a_real_broker_are_read(
    broker: Path, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    with open_store(broker, read_only=True, background=False) as store:
        committed = described_groups(request)
        assert store.groups() == sorted(committed)
        assert {group: dict(store.describe_group(group).offsets) for group in committed} == committed
        assert all(lag.lag >= 0 for group in committed for lag in store.lag(group))
    assert not [record for record in caplog.records if "is skipped" in record.message]


@real_brokers
def test_consumer_continues_a_group_of_a_real_broker(broker: Path, request: pytest.FixtureRequest) -> None:
    """Goal: a consumer of seeklog begins where the broker's stopped, and others read what it commits."""
    committed = described_groups(request)["fraud"]
    config = LogConfig(flush="os", retention_ms=-1)
    with open_store(broker, config=config, files=QuickFiles(), background=False) as store:
        with store.consumer(["plain"], group="fraud", enable_auto_commit=False) as consumer:
            assert {tp: consumer.position(tp) for tp in consumer.assignment} == committed
            records = consumer.poll(max_records=1)
            assert committed[TopicPartition(str(records[0].topic), records[0].partition)] == records[0].offset
            consumer.commit()
        expected = committed | {TopicPartition("plain", records[0].partition): records[0].offset + 1}
        assert store.describe_group("fraud").offsets == expected
    peer = PEERS["kafka-python"]
    with open_store(broker, read_only=True, background=False) as store:
        offsets = {
            TopicPartition(*decoded(peer.offset_key, key)[2:]): decoded(peer.offset_value, value)[1]
            for key, value in raw_records(peer, store)
            # The broker may write version 4; seeklog writes version 3.
            if value is not None and key.startswith(b"\0\1\0\5fraud") and value[:2] == b"\0\3"
        }
        assert offsets.items() >= expected.items()
