from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import seeklog
from crash.sim import Detail, Disk, SimFiles
from handover.workbench import UNLIMITED, fill, rows_in, state_of
from log.workbench import FakeClock
from seeklog import LogConfig, names
from seeklog.errors import HandoverRefused, LogLocked, NotALog, UsageError
from seeklog.files import OsFiles
from seeklog.handover.in_place import (
    LATEST_VERSION,
    Broker,
    hand_over_in_place,
    plan_in_place,
)
from seeklog.handover.plan import LocalStore
from seeklog.handover.properties import Listener, server_properties
from seeklog.log.side.root_offsets import RootOffsets
from seeklog.topics.kraft.cluster import read_meta_properties
from seeklog.topics.kraft.metadata import ConfigRecord, FeatureLevel, PartitionRecord, TopicRecord
from seeklog.topics.kraft.settings import from_kafka, to_kafka
from seeklog.topics.kraft.snapshot import decode_snapshot, feature_records
from store.workbench import open_store

BROKER = Broker()
CLOCK = FakeClock()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    fill(tmp_path / "store")
    return tmp_path / "store"


def records_of(root: Path) -> list[object]:
    return list(decode_snapshot((root / names.BOOTSTRAP).read_bytes(), path=names.BOOTSTRAP))


def test_cluster_starts_with_topics_of_store(root: Path) -> None:
    hand_over_in_place(LocalStore(str(root)), broker=BROKER)

    properties = read_meta_properties(OsFiles(), str(root))
    assert properties["version"] == "1"
    assert properties["node.id"] == "1"
    assert len(properties["cluster.id"]) == len(properties["directory.id"]) == 22
    records = records_of(root)
    with seeklog.open(root, read_only=True, background=False) as store:
        ids = {name: store.describe_topic(name).topic_id for name in store.topics(internal=True)}
    assert {record.name: record.topic_id for record in records if isinstance(record, TopicRecord)} == ids
    features = [record for record in records if isinstance(record, FeatureLevel)]
    assert features == feature_records(LATEST_VERSION)
    partitions = [record for record in records if isinstance(record, PartitionRecord)]
    assert {each.directories for each in partitions} == {(properties["directory.id"],)}
    assert {(each.replicas, each.isr, each.leader) for each in partitions} == {((1,), (1,), 1)}
    named = {topic_id: name for name, topic_id in ids.items()}
    assert {(named[each.topic_id], each.partition): each.leader_epoch for each in partitions} == {
        ("payments", 0): 7,
        ("payments", 1): 7,
        ("customers", 0): 1,
        # It has no epoch yet: the broker's is the first.
        ("empty", 0): 1,
        **{(names.CONSUMER_OFFSETS, number): 1 for number in range(4)},
    }


def test_every_setting_that_differs_from_kafka_default_is_handed_over(root: Path) -> None:
    hand_over_in_place(LocalStore(str(root)), broker=BROKER)

    settings: dict[str, dict[str, str | None]] = {}
    for record in records_of(root):
        if isinstance(record, ConfigRecord):
            assert record.resource_type == 2
            settings.setdefault(record.resource_name, {})[record.name] = record.value
    assert settings == {
        "payments": {
            **UNLIMITED,
            "segment.bytes": "1048576",
            "compression.type": "gzip",
            "flush.ms": "1000",
        },
        "customers": {"cleanup.policy": "compact", **UNLIMITED},
        "empty": {"flush.messages": "1", **UNLIMITED},
        names.CONSUMER_OFFSETS: {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "104857600",
        },
    }


def test_root_checkpoints_have_every_partition(root: Path) -> None:
    hand_over_in_place(LocalStore(str(root)), broker=BROKER)

    offsets = RootOffsets.read(OsFiles(), str(root))
    ends = {"payments-0": 12, "payments-1": 12, "customers-0": 12, "empty-0": 0}
    found = {str(partition): end for partition, end in offsets.recovery_points.items()}
    assert {name: found[name] for name in ends} == ends
    assert {str(partition): start for partition, start in offsets.log_start_offsets.items() if start} == {
        "payments-0": 3
    }
    assert offsets.high_watermarks == offsets.recovery_points
    assert len(found) == 8
    assert not (root / names.CLEAN_SHUTDOWN).exists()


def test_records_stay_unchanged_and_store_still_opens(root: Path) -> None:
    rows = rows_in(root)
    before = {name for name in state_of(root) if name.endswith(".log")}

    hand_over_in_place(LocalStore(str(root)), broker=BROKER)

    assert rows_in(root) == rows
    assert {name for name in state_of(root) if name.endswith(".log")} == before
    with open_store(root) as store:
        assert store.groups() == ["a, b", "fraud"]


def test_plan_changes_nothing_and_names_every_step(root: Path) -> None:
    before = state_of(root)

    steps = list(plan_in_place(LocalStore(str(root)), broker=BROKER).steps())

    assert state_of(root) == before
    lines = {(step.action, step.topic, step.setting, step.file) for step in steps}
    assert {
        ("hand over", "payments", None, None),
        ("set", "payments", "retention.ms", None),
        ("leave out", "payments", "key.index", None),
        ("write", None, None, "meta.properties"),
        ("write", None, None, "bootstrap.checkpoint"),
    } <= lines
    (raised,) = [step for step in steps if step.topic == "payments" and step.setting == "segment.bytes"]
    assert (raised.value, raised.detail) == ("1048576", "raised from 600, the minimum of a broker")


def test_defaults_of_store_are_handed_over(root: Path) -> None:
    plan = plan_in_place(LocalStore(str(root), config=LogConfig(retention_ms=1000)), broker=BROKER)

    assert {topic.name: topic.settings.values.get("retention.ms") for topic in plan.store.topics} == {
        "payments": "-1",
        "customers": "1000",
        "empty": "1000",
        names.CONSUMER_OFFSETS: None,
    }


def test_unclean_partitions_are_recovered_first(root: Path) -> None:
    (root / "payments-1" / names.CHECKPOINT).unlink()
    (step,) = [each for each in plan_in_place(LocalStore(str(root)), broker=BROKER).steps() if each.action == "recover"]
    assert (step.topic, step.partition) == ("payments", 1)

    hand_over_in_place(LocalStore(str(root)), broker=BROKER)

    assert RootOffsets.read(OsFiles(), str(root)).recovery_points["payments", 1] == 12  # type: ignore[index]


@pytest.mark.parametrize("is_there", [True, False])
def test_partition_that_no_writer_opened_is_opened_first(root: Path, is_there: bool) -> None:
    """A power loss may take its directory. It has no record, so it is created again."""
    with open_store(root) as store:
        made = store.create_topic("new", partitions=1)
    if not is_there:
        shutil.rmtree(root / "new-0")

    hand_over_in_place(LocalStore(str(root)), broker=BROKER)

    assert (root / "new-0" / names.PARTITION_METADATA).read_text() == f"version: 0\ntopic_id: {made.topic_id}"
    assert RootOffsets.read(OsFiles(), str(root)).recovery_points["new", 0] == 0  # type: ignore[index]


# ---------------------------------------------------------------- refusals


def test_open_store_is_refused(root: Path) -> None:
    with open_store(root), pytest.raises(LogLocked, match="stop it there"):
        hand_over_in_place(LocalStore(str(root)), broker=BROKER)
    assert not (root / names.META_PROPERTIES).exists()


def test_partition_open_as_single_log_is_refused(root: Path) -> None:
    import seeklog

    with seeklog.Log(root / "payments-0") as log:
        log.append(b"mine", key=b"k")
        with pytest.raises(LogLocked):
            hand_over_in_place(LocalStore(str(root)), broker=BROKER)
    assert not (root / names.META_PROPERTIES).exists()


def test_prepared_store_is_refused(root: Path) -> None:
    hand_over_in_place(LocalStore(str(root)), broker=BROKER)
    before = state_of(root)

    with pytest.raises(HandoverRefused, match=r"prepared for the cluster .* Start its broker"):
        hand_over_in_place(LocalStore(str(root)), broker=BROKER)
    assert state_of(root) == before

    (root / names.META_PROPERTIES).unlink()
    hand_over_in_place(LocalStore(str(root)), broker=BROKER)


def test_unknown_directory_beside_partitions_is_refused(root: Path) -> None:
    (root / "lost+found").mkdir()
    with pytest.raises(HandoverRefused, match=r"lost\+found is not a partition"):
        plan_in_place(LocalStore(str(root)), broker=BROKER)


def test_topic_with_partition_elsewhere_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "store", with_groups=False)
    root = tmp_path / "broker"
    root.mkdir()
    os.rename(tmp_path / "store" / "payments-1", root / "payments-1")
    with pytest.raises(HandoverRefused, match="partition 0 of topic 'payments'"):
        plan_in_place(LocalStore(str(root)), broker=BROKER)


def test_directory_of_recreated_topic_is_refused(root: Path) -> None:
    (root / "payments-1" / "partition.metadata").write_text("version: 0\ntopic_id: c2Vla2xvZy1nb2xkZW4tMA")
    with pytest.raises(HandoverRefused, match="recreated elsewhere"):
        plan_in_place(LocalStore(str(root)), broker=BROKER)


def test_missing_directory_of_partition_is_refused(root: Path) -> None:
    shutil.rmtree(root / "payments-1")
    with pytest.raises(HandoverRefused, match=r"payments-1 is missing\. Restore it"):
        plan_in_place(LocalStore(str(root)), broker=BROKER)


def test_directory_of_zookeeper_broker_is_refused(root: Path) -> None:
    (root / names.META_PROPERTIES).write_text("version=0\nbroker.id=0\n")
    with pytest.raises(HandoverRefused, match="ZooKeeper"):
        plan_in_place(LocalStore(str(root)), broker=BROKER)


def test_partition_without_metadata_gets_it(root: Path) -> None:
    path = root / "payments-1" / "partition.metadata"
    before = path.read_bytes()
    path.unlink()

    hand_over_in_place(LocalStore(str(root)), broker=BROKER)

    assert path.read_bytes() == before


def test_other_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotALog):
        plan_in_place(LocalStore(str(tmp_path / "nothing")), broker=BROKER)
    with pytest.raises(UsageError, match="a broker needs a directory"):
        plan_in_place(LocalStore("s3://bucket/store"), broker=BROKER)
    with pytest.raises(UsageError, match=r"name one of 4\.0, 4\.1, 4\.2, 4\.3"):
        Broker(kafka_version="3.9")


def test_root_with_comma_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "a,b", with_groups=False)
    with pytest.raises(HandoverRefused, match="comma"):
        plan_in_place(LocalStore(str(tmp_path / "a,b")), broker=BROKER)


# ---------------------------------------------------------------- crashes


@pytest.mark.id("handover-in-place-crash")
def test_crash_at_any_change_leaves_store_that_opens_and_can_be_handed_over() -> None:
    """Goal: a power loss at any time loses no records, and leaves only complete files of a cluster."""
    files = SimFiles()
    fill("/data", files, with_groups=False)
    rows = rows_in("/data", files)
    assert sum(map(len, rows.values())) == 33
    states: dict[bytes, Disk] = {}

    def keep(sim: SimFiles) -> None:
        for _, disk in sim.crash_states(Detail(prefixes=4, sectors=2, omissions=8, samples=2)):
            states[disk.digest()] = disk

    files.on_boundary = keep
    hand_over_in_place(LocalStore("/data", files=files, clock=CLOCK), broker=BROKER)
    files.on_boundary = None

    prepared = 0
    for disk in states.values():
        after = SimFiles(disk)
        kinds = after.kinds("/data")
        if names.META_PROPERTIES in kinds:
            prepared += 1
            properties = read_meta_properties(after, "/data")
            found = decode_snapshot(after.read_file(f"/data/{names.BOOTSTRAP}"), path=names.BOOTSTRAP)
            (directories,) = {each.directories for each in found if isinstance(each, PartitionRecord)}
            assert directories == (properties["directory.id"],)
            assert len(RootOffsets.read(after, "/data").recovery_points) == 4
        else:
            hand_over_in_place(LocalStore("/data", files=after, clock=CLOCK), broker=BROKER)
            assert names.META_PROPERTIES in after.kinds("/data")
        with open_store(Path("/data"), files=after, clock=CLOCK) as store:
            assert store.topics() == ["customers", "empty", "payments"]
        assert rows_in("/data", after) == rows
    assert 0 < prepared < len(states)


# ---------------------------------------------------------------- server.properties, settings


def test_printed_properties_describe_single_broker(root: Path) -> None:
    plan = plan_in_place(LocalStore(str(root)), broker=Broker(node_id=3, listener=Listener("127.0.0.1", 9092)))

    lines = dict(line.split("=", 1) for line in plan.properties())
    assert lines["log.dirs"] == str(root)
    assert lines["node.id"] == "3"
    assert lines["controller.quorum.voters"] == "3@127.0.0.1:9093"
    assert lines["listeners"] == "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert lines["offsets.topic.num.partitions"] == "4"
    assert lines["offsets.topic.replication.factor"] == "1"


def test_path_is_escaped_for_java() -> None:
    lines = server_properties("/dätä\\x/😀", node_id=1, listener=BROKER.listener, offsets_partitions=None)
    assert "log.dirs=/d\\u00e4t\\u00e4\\\\x/\\ud83d\\ude00" in lines
    assert not any(line.startswith("offsets.topic.num.partitions") for line in lines)


@pytest.mark.parametrize("text", ["", "9092", ":9092", "host:", "host:0", "host:65535", "host:x", "a,b:1", "host:٣"])
def test_invalid_listener_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="HOST:PORT"):
        Listener.parse(text)


@pytest.mark.parametrize(
    "config",
    [
        LogConfig(),
        LogConfig(flush="batch", retention_bytes=1 << 40, message_timestamp_type="LogAppendTime"),
        LogConfig(cleanup_policy="compact,delete", min_compaction_lag_ms=5, max_compaction_lag_ms=9),
        LogConfig(compression_type="zstd", flush_interval_ms=77, segment_ms=1, segment_index_bytes=4096),
        LogConfig(retention_ms=7 * 86_400_000, message_timestamp_after_max_ms=3_600_000),  # Kafka's defaults
        LogConfig(delete_retention_ms=0, index_interval_bytes=0, max_message_bytes=100, segment_bytes=2 << 20),
    ],
)
def test_settings_round_trip(config: LogConfig) -> None:
    found, left = from_kafka(to_kafka(config).values)
    assert left == {}
    assert LogConfig().with_settings(found) == config


def test_settings_without_counterpart_are_named() -> None:
    given = {
        "min.insync.replicas": "2",
        "flush.messages": "10",
        "segment.bytes": "17",
        "compression.type": "producer",
        "cleanup.policy": "compact, delete",
    }
    config, left = from_kafka(given)
    assert config == {"compression.type": "none", "cleanup.policy": "compact,delete"}
    assert set(left) == {"min.insync.replicas", "flush.messages", "segment.bytes"}
