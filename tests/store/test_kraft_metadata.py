"""The records of a cluster's metadata, compared with those that brokers have written.

`golden_kraft/bootstrap-<version>.checkpoint` are what `StorageTool format` of these versions wrote.
`golden_kraft/cluster-metadata-<version>.log` is the first segment of `__cluster_metadata-0` of a broker that a store
was handed over to, kept from `test_store_returns_with_the_brokers_changes_and_goes_back` in
`tests/interop/test_handover_to_a_broker.py`: topics were created, deleted and recreated, a partition was added, a
setting changed, and the broker started twice.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Final

import pytest

from crash.sim import Disk, SimFiles
from seeklog.errors import CorruptionError, FormatError, SeeklogError, UsageError
from seeklog.record.batch import decode_records, split_batches
from seeklog.topics.kraft.cluster import Cluster, read_cluster
from seeklog.topics.kraft.metadata import (
    BROKER_RESOURCE,
    ConfigRecord,
    FeatureLevel,
    PartitionChange,
    PartitionRecord,
    RemoveTopic,
    TopicRecord,
    Transaction,
    Written,
    decode_metadata,
    encode_metadata,
    encode_uuid,
)
from seeklog.topics.kraft.settings import topic_settings
from seeklog.topics.kraft.snapshot import decode_snapshot, encode_bootstrap, encode_snapshot, feature_records

GOLDEN: Final = Path(__file__).parent / "golden_kraft"
ID: Final = "5JdNGzCmQmupZbKTTsDZjQ"
OTHER_ID: Final = "c2Vla2xvZy1nb2xkZW4tMA"
VERSIONS: Final = ("4.3.1", "4.1.2")
SEED: Final = 20261118
RECORDS: Final[tuple[Written, ...]] = (
    FeatureLevel(name="metadata.version", level=30),
    TopicRecord(name="payments", topic_id=ID),
    PartitionRecord(
        partition=2,
        topic_id=ID,
        replicas=(1, 2, 300),
        isr=(2,),
        leader=2,
        leader_epoch=7,
        partition_epoch=9,
        directories=(OTHER_ID,) * 3,
    ),
    ConfigRecord(resource_name="payments", name="retention.ms", value="-1"),
    # Longer than a varint of one byte can express.
    ConfigRecord(resource_name="payments", name="a" * 200, value=None),
)


def bootstrap(version: str) -> bytes:
    return (GOLDEN / f"bootstrap-{version}.checkpoint").read_bytes()


@pytest.mark.parametrize("version", VERSIONS)
def test_bootstrap_matches_that_of_storage_tool(version: str) -> None:
    theirs = bootstrap(version)
    records = decode_snapshot(theirs, path="bootstrap.checkpoint")
    assert records == feature_records(version.rpartition(".")[0])

    ours = encode_bootstrap(feature_records(version.rpartition(".")[0]), now_ms=1)

    for their_batch, our_batch in zip(split_batches(theirs), split_batches(ours), strict=True):
        # The CRC and the two times differ; the time of the tool's first batch does not.
        assert our_batch.raw[:17] == their_batch.raw[:17]
        assert our_batch.raw[21:27] == their_batch.raw[21:27]
        assert our_batch.raw[43:] == their_batch.raw[43:]
    first = next(split_batches(theirs))
    again = encode_bootstrap(feature_records(version.rpartition(".")[0]), now_ms=first.header.max_timestamp_ms)
    assert again.startswith(first.raw)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_metadata_records_round_trip(record: Written) -> None:
    assert decode_metadata(encode_metadata(record)) == record


def test_bytes_of_topic_and_setting_records() -> None:
    topic_id = bytes(range(16))
    text = "AAECAwQFBgcICQoLDA0ODw"
    assert encode_metadata(TopicRecord(name="ab", topic_id=text)) == b"\x01\x02\x00\x03ab" + topic_id + b"\x00"
    config = ConfigRecord(resource_name="ab", name="c", value=None)
    assert encode_metadata(config) == b"\x01\x04\x00\x02\x03ab\x02c\x00\x00"


def test_partition_change_is_in_tagged_fields() -> None:
    head = b"\x01\x05\x00" + struct.pack(">i", 3) + encode_uuid(ID)
    leader = b"\x01\x04" + struct.pack(">i", -1)
    replicas = b"\x02\x09\x03" + struct.pack(">ii", 1, 2)
    unknown = b"\x09\x01\xff"

    assert decode_metadata(head + b"\x00") == PartitionChange(partition=3, topic_id=ID)
    assert decode_metadata(head + b"\x03" + leader + replicas + unknown) == PartitionChange(
        partition=3, topic_id=ID, leader=-1, replicas=(1, 2)
    )


def test_records_of_other_kinds_are_skipped() -> None:
    register_broker = 27
    assert decode_metadata(bytes([1, register_broker, 3, 0xFF, 0xFF])) is None


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_record_truncated_anywhere_is_refused(record: Written) -> None:
    whole = encode_metadata(record)
    for size in range(len(whole)):
        with pytest.raises(CorruptionError):
            decode_metadata(whole[:size])
    with pytest.raises(CorruptionError, match="follows the end"):
        decode_metadata(whole + b"\x00")


def test_changed_bytes_raise_only_seeklog_errors() -> None:
    chance = random.Random(SEED)
    for record in RECORDS:
        whole = encode_metadata(record)
        for _ in range(400):
            garbled = bytearray(whole)
            for _ in range(chance.randint(1, 3)):
                garbled[chance.randrange(len(garbled))] = chance.randrange(256)
            try:
                decode_metadata(bytes(garbled))
            except SeeklogError:
                continue


@pytest.mark.parametrize("data", [b"\x02\x02\x00", b"\x01\x02\x01", b"\x01\x03\x03"])
def test_unknown_version_of_metadata_record_is_refused(data: bytes) -> None:
    with pytest.raises(FormatError, match="version"):
        decode_metadata(data)


@pytest.mark.parametrize("text", ["", "short", "5JdNGzCmQmupZbKTTsDZj+", "5JdNGzCmQmupZbKTTsDZjR", "é" * 22])
def test_invalid_topic_id_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="22 characters"):
        encode_uuid(text)


def test_snapshot_of_many_records_has_several_batches() -> None:
    records = [TopicRecord(name=f"topic-{number}", topic_id=ID) for number in range(2500)]

    data = encode_bootstrap(records, now_ms=1)

    headers = [batch.header for batch in split_batches(data)]
    assert [header.record_count for header in headers] == [1, 1000, 1000, 500, 1]
    assert [header.base_offset for header in headers] == [0, 1, 1001, 2001, 2501]
    assert decode_snapshot(data, path="x") == records


def test_snapshot_truncated_or_damaged_anywhere_is_refused() -> None:
    whole = bootstrap("4.3.1")
    for size in range(len(whole)):
        with pytest.raises(CorruptionError, match="x"):
            decode_snapshot(whole[:size], path="x")
    footer = len(whole) - 75
    # The footer is a batch whose CRC is not checked, because nothing in it is read.
    for position in range(79, footer):
        garbled = bytearray(whole)
        garbled[position] ^= 1
        try:
            found = decode_snapshot(bytes(garbled), path="x")
        except CorruptionError:
            continue
        # Base offset and leader epoch are not covered by the CRC.
        assert found == feature_records("4.3")


def test_metadata_written_by_broker_are_read() -> None:
    files = SimFiles(Disk.of({"/data/__cluster_metadata-0/00000000000000000000.log": cluster_log()}))

    topics = read_cluster(files, "/data").topics

    assert {name: len(topic.partitions) for name, topic in topics.items()} == {
        "__consumer_offsets": 4,
        "empty": 2,
        "made-there": 2,
        "many": 1,
        "payments": 4,
        "trimmed": 1,
    }
    assert topics["payments"].config == {
        "retention.ms": "86400000000",
        "segment.bytes": "1048576",
        "compression.type": "lz4",
        "flush.ms": "1000",
    }
    assert topics["made-there"].config == {"cleanup.policy": "compact"}
    assert topics["many"].config == {}
    assert {partition.replicas for topic in topics.values() for partition in topic.partitions.values()} == {(1,)}
    # Handed over with 1; no leader and one again when the broker started, and the same when it stopped and started.
    # Its leader-epoch-checkpoint had the same epochs.
    assert topics["payments"].partitions[0].leader_epoch == 5


def test_snapshot_replaces_records_before_it() -> None:
    log = cluster_log()
    records = [decode_metadata(each.value or b"") for each in decode_records(log)]
    cluster = Cluster()
    written: list[Written] = []
    for record in records:
        if record is not None and not isinstance(record, Transaction):
            cluster.apply(record)
    for topic in cluster.topics.values():
        written.append(TopicRecord(name=topic.name, topic_id=topic.topic_id))
        written += [
            PartitionRecord(
                partition=number,
                topic_id=topic.topic_id,
                replicas=each.replicas,
                isr=each.replicas,
                leader=1,
                leader_epoch=each.leader_epoch,
            )
            for number, each in topic.partitions.items()
        ]
        written += [
            ConfigRecord(resource_name=topic.name, name=word, value=value) for word, value in topic.config.items()
        ]
    written += [
        ConfigRecord(resource_type=BROKER_RESOURCE, resource_name=broker, name=word, value=value)
        for broker, config in cluster.brokers.items()
        for word, value in config.items()
    ]
    end = list(split_batches(log))[-1].next_offset
    directory = "/data/__cluster_metadata-0"
    files = SimFiles(
        Disk.of(
            {
                f"{directory}/00000000000000000000.log": log,
                f"{directory}/{3:020d}-0000000001.checkpoint": b"an older one, which is not read",
                f"{directory}/{end:020d}-0000000001.checkpoint": encode_snapshot(
                    [encode_metadata(record) for record in written], now_ms=1
                ),
            }
        )
    )

    assert read_cluster(files, "/data") == cluster


def test_deleting_topic_deletes_its_settings() -> None:
    cluster = Cluster()
    cluster.apply(TopicRecord(name="t", topic_id=ID))
    cluster.apply(ConfigRecord(resource_name="t", name="retention.ms", value="1"))
    cluster.apply(RemoveTopic(topic_id=ID))
    cluster.apply(TopicRecord(name="t", topic_id=OTHER_ID))
    assert cluster.topics["t"].config == {}
    with pytest.raises(CorruptionError, match="does not create"):
        cluster.apply(PartitionChange(partition=0, topic_id=OTHER_ID, leader=1))
    with pytest.raises(CorruptionError, match="does not create"):
        cluster.apply(PartitionChange(partition=0, topic_id=ID, leader=1))


def test_topic_has_settings_of_its_own_then_of_its_broker_then_of_all_brokers() -> None:
    cluster = Cluster()
    cluster.apply(TopicRecord(name="t", topic_id=ID))
    for resource_type, resource, name, value in (
        (BROKER_RESOURCE, "", "log.retention.ms", "1"),
        (BROKER_RESOURCE, "", "log.segment.bytes", "2"),
        (BROKER_RESOURCE, "", "log.cleanup.policy", "compact"),
        (BROKER_RESOURCE, "7", "log.retention.ms", "3"),
        (BROKER_RESOURCE, "7", "log.segment.bytes", "4"),
        (BROKER_RESOURCE, "8", "log.segment.bytes", "5"),
        (BROKER_RESOURCE, "7", "min.insync.replicas", "2"),
        (2, "t", "retention.ms", "6"),
        (8, "t", "retention.ms", "9"),
    ):
        cluster.apply(ConfigRecord(resource_type=resource_type, resource_name=resource, name=name, value=value))

    assert cluster.config_of("t", node_id="7") == {
        "retention.ms": "6",
        "segment.bytes": "4",
        "cleanup.policy": "compact",
    }
    cluster.apply(ConfigRecord(resource_name="t", name="retention.ms", value=None))
    assert cluster.config_of("t", node_id="7")["retention.ms"] == "3"
    assert cluster.config_of("t", node_id="1")["retention.ms"] == "1"


def test_finest_unit_of_brokers_retention_counts() -> None:
    assert topic_settings({"log.retention.hours": "2"}) == {"retention.ms": "7200000"}
    assert topic_settings({"log.retention.minutes": "3", "log.retention.hours": "2"}) == {"retention.ms": "180000"}
    assert topic_settings({"log.retention.ms": "-1", "log.retention.hours": "2"}) == {"retention.ms": "-1"}
    assert topic_settings({"log.retention.hours": "-1"}) == {"retention.ms": "-1"}
    assert topic_settings({"log.roll.hours": "1"}) == {"segment.ms": "3600000"}


def cluster_log() -> bytes:
    return (GOLDEN / "cluster-metadata-4.3.1.log").read_bytes()
