"""A store handed over to real brokers and taken back, as docs/kafka.md describes.

`kafka_jars.py` finds the brokers' jars; without them these tests skip.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic

import seeklog
from handover.workbench import UNLIMITED
from interop.kafka_jars import VERSIONS, Jars, jars_or_skip
from interop.real_broker import RealBroker, retry_until_ready
from seeklog.cli.app import run
from seeklog.files import OsFiles
from seeklog.handover.into import Target, plan_into
from seeklog.handover.plan import LocalStore
from seeklog.log.side.epochs import LeaderEpochs
from seeklog.topics.kraft.cluster import read_cluster

TIMEOUT_S: Final = 30.0
# Of `trimmed`: inside a segment, so that only the checkpoint has the log start offset.
DELETED: Final = 77
TOPICS: Final[dict[str, tuple[int, dict[str, Any]]]] = {
    "payments": (4, {"retention.ms": -1, "segment.bytes": 4096, "compression.type": "lz4"}),
    "customers": (2, {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.1}),
    "trimmed": (1, {"retention.ms": -1, "flush": "batch", "max.message.bytes": 2_000_000}),
    "empty": (1, {"message.timestamp.type": "LogAppendTime"}),
    "many": (12, {}),
}
# What a broker is given of that; every topic with the default flush has flush.ms.
SETTINGS: Final = {
    "payments": {
        **UNLIMITED,
        "segment.bytes": "1048576",
        "compression.type": "lz4",
        "flush.ms": "1000",
    },
    "customers": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "flush.ms": "1000", **UNLIMITED},
    "trimmed": {**UNLIMITED, "flush.messages": "1", "max.message.bytes": "2000000"},
    "empty": {"message.timestamp.type": "LogAppendTime", "flush.ms": "1000", **UNLIMITED},
    "many": {"flush.ms": "1000", **UNLIMITED},
    "__consumer_offsets": {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    },
}
Rows = dict[str, list[tuple[int, bytes | None, bytes | None]]]


class HandedOver(RealBroker):
    """A broker with the `server.properties` that the command printed."""

    def __init__(self, jars: Jars, work: Path, root: Path) -> None:
        super().__init__(jars, work, data=root)
        self.properties_path = work / "printed.properties"

    def take_printed(self) -> None:
        """Use only the printed lines."""
        self._properties = self.properties_path


@pytest.fixture(params=[VERSIONS[0], *(pytest.param(version, marks=pytest.mark.slow) for version in VERSIONS[1:])])
def jars(request: pytest.FixtureRequest) -> Jars:
    return jars_or_skip(request.param)


def fill(root: Path) -> None:
    """Create a store with keys, a compacted topic, a raised log start offset, and groups."""
    with seeklog.open(root, background=False) as store:
        for name, (count, config) in TOPICS.items():
            store.create_topic(name, partitions=count, config=config)
        with store.producer(batch_bytes=700) as producer:
            for number in range(1200):
                key = b"k%d" % (number % 50)
                producer.send("payments", b"v%d" % number, key=key, headers=[("source", b"seeklog")])
            for topic, count in (("customers", 300), ("many", 300), ("trimmed", 150)):
                for number in range(count):
                    producer.send(topic, b"%s-%d" % (topic.encode(), number), key=b"k%d" % (number % 50))
        with store.writer("trimmed", 0) as log:
            log.delete_before(DELETED)
        for group in ("fraud", "reports, daily"):
            settings: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
            with store.consumer(["payments"], group=group, **settings) as consumer:
                consumer.poll(1000, max_records=200)
                consumer.commit()


def rows_in(root: Path) -> Rows:
    with seeklog.open(root, read_only=True) as store:
        return {
            f"{topic}-{number}": [(r.offset, r.key, r.value) for r in store.log(topic, number).scan()]
            for topic in store.topics()
            for number in store.topic(topic).partitions
        }


def offsets_in(root: Path, group: str) -> dict[str, int]:
    with seeklog.open(root, read_only=True) as store:
        return {str(place): offset for place, offset in store.describe_group(group).offsets.items()}


def rows_of(broker: RealBroker, places: list[str]) -> Rows:
    """Read partitions from their log start offsets."""
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "tests", "log_level": 0, "enable.auto.commit": False}
    consumer = Consumer(settings)
    rows: Rows = {}
    try:
        for place in places:
            topic, _, number = place.rpartition("-")
            partition = TopicPartition(topic, int(number))
            low, high = retry_until_ready(
                lambda partition=partition: consumer.get_watermark_offsets(partition, TIMEOUT_S)
            )
            consumer.assign([TopicPartition(topic, int(number), low)])
            rows[place] = []
            while low < high:
                message = consumer.poll(TIMEOUT_S)
                assert message is not None, place
                assert message.error() is None, (place, message.error())
                rows[place].append((message.offset(), message.key(), message.value()))
                low = message.offset() + 1
    finally:
        consumer.close()
    return rows


def group_offsets(broker: RealBroker, group: str) -> dict[str, int]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    asked = [ConsumerGroupTopicPartitions(group)]
    found = retry_until_ready(lambda: admin.list_consumer_group_offsets(asked)[group].result(TIMEOUT_S))
    return {f"{each.topic}-{each.partition}": each.offset for each in found.topic_partitions}


def settings_of(broker: RealBroker, topic: str) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    entries = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    return {name: entry.value for name, entry in entries.items() if entry.source == 1}


def seeklog_says(capfd: pytest.CaptureFixture[str], *settings: object) -> tuple[int, str, str]:
    capfd.readouterr()
    code = run([str(word) for word in settings])
    out, err = capfd.readouterr()
    return code, out, err


@pytest.fixture
def root(tmp_path: Path) -> Path:
    fill(tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def broker(jars: Jars, tmp_path: Path, root: Path) -> Iterator[HandedOver]:
    work = tmp_path / "work"
    work.mkdir()
    made = HandedOver(jars, work, root)
    yield made
    made.kill()


def hand_over(broker: HandedOver, capfd: pytest.CaptureFixture[str]) -> None:
    version = broker.version.rpartition(".")[0]
    code, _, printed = seeklog_says(
        capfd,
        *("handover", broker.data, "--to-kafka", "--yes", "--kafka-version", version),
        *("--listener", broker.bootstrap, "--properties", broker.properties_path),
    )
    assert code == 0, printed
    broker.take_printed()


def stray(root: Path) -> list[str]:
    return [name for name in os.listdir(root) if "stray" in name]


@pytest.mark.id("handover-broker-starts")
def test_broker_that_starts_on_a_store_has_all_of_it(
    broker: HandedOver, root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = rows_in(root)
    committed = {group: offsets_in(root, group) for group in ("fraud", "reports, daily")}
    directories = {name for name in os.listdir(root) if (root / name).is_dir()}
    hand_over(broker, capfd)

    broker.start()

    assert rows_of(broker, list(rows)) == rows
    assert rows["trimmed-0"][0][0] == DELETED
    assert {group: group_offsets(broker, group) for group in committed} == committed
    assert {topic: settings_of(broker, topic) for topic in SETTINGS} == SETTINGS
    assert {name for name in os.listdir(root) if (root / name).is_dir()} == {*directories, "__cluster_metadata-0"}
    broker.stop()
    broker.start()
    assert rows_of(broker, ["payments-0"])["payments-0"] == rows["payments-0"]
    assert stray(root) == []


def test_store_returns_with_the_brokers_changes_and_goes_back(
    broker: HandedOver, root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hand_over(broker, capfd)
    broker.start()
    change_in_the_broker(broker)
    broker.stop()

    code, out, _ = seeklog_says(capfd, "handover", root, "--from-kafka", "--format", "csv")
    assert code == 0
    reported = {tuple(line.split(",")[:3]) for line in out.splitlines()}
    assert {
        ("appended", "payments", "1"),
        ("deleted", "trimmed", "0"),
        ("new topic", "made-there", ""),
        ("new partition", "empty", "1"),
        ("deleted topic", "customers", ""),
        ("recreated topic", "many", ""),
        ("set", "payments", ""),
    } <= reported
    code, _, printed = seeklog_says(capfd, "handover", root, "--from-kafka", "--yes")
    assert code == 0, printed

    with seeklog.open(root, background=False) as store:
        assert store.topics() == ["empty", "made-there", "many", "payments", "trimmed"]
        assert store.topic("payments").config.retention_ms == 86_400_000_000
        assert store.topic("payments").config.segment_bytes == 4096
        assert store.topic("made-there").config.cleanup_policy == "compact"
        assert store.topic("many").partitions == (0,)
        assert store.topic("empty").partitions == (0, 1)
        assert store.log("trimmed", 0).log_start_offset == 100
        for topic in ("payments", "made-there", "many", "empty"):
            with store.writer(topic, 0) as log:
                log.append(b"after", key=b"k")
        rows = {
            f"{topic}-{number}": [(r.offset, r.key, r.value) for r in store.log(topic, number).scan()]
            for topic in store.topics()
            for number in store.topic(topic).partitions
        }
        assert [value for _, _, value in rows["payments-1"]][-1] == b"there"
    code, _, printed = seeklog_says(capfd, "handover", root, "--to-kafka", "--yes")
    assert (code, "Start its broker again" in printed) == (1, True), printed

    broker.start()

    assert rows_of(broker, list(rows)) == rows
    assert stray(root) == []


def change_in_the_broker(broker: RealBroker) -> None:
    """Change the topics as an administrator may."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    wait(admin.delete_topics(["customers", "many"]))
    time.sleep(1)  # the broker removes the directories later
    again = [NewTopic("many", 1, 1), NewTopic("made-there", 2, 1, config={"cleanup.policy": "compact"})]
    wait(admin.create_topics(again))
    wait(admin.create_partitions([NewPartitions("empty", 2)]))
    retry_until_ready(lambda: wait(admin.delete_records([TopicPartition("trimmed", 0, 100)])))
    entry = ConfigEntry("retention.ms", "86400000000", incremental_operation=AlterConfigOpType.SET)
    wait(
        admin.incremental_alter_configs(
            [ConfigResource(ConfigResource.Type.TOPIC, "payments", incremental_configs=[entry])]
        )
    )
    for topic, partition in (("payments", 1), ("made-there", 0), ("many", 0), ("empty", 1)):
        producer.produce(topic, b"there", key=b"k", partition=partition)
    assert producer.flush(TIMEOUT_S) == 0


def wait(answers: dict[Any, Any]) -> None:
    for answer in answers.values():
        answer.result(TIMEOUT_S)


def tool(broker: RealBroker, command: str) -> str:
    """Run a printed command with the class of its script."""
    script, *settings = shlex.split(command)
    classes = {
        "bin/kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
        "bin/kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    }
    done = subprocess.run(broker.java(classes[script], *settings), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.id("handover-into-a-cluster")
def test_store_is_copied_into_a_cluster_with_its_epochs(
    jars: Jars, root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with seeklog.open(root, background=False) as store, store.writer("payments", 0) as log:
        for epoch in (5, 9):  # above any that a new cluster has reached
            log.begin_epoch(epoch)
            log.append(b"epoch %d" % epoch, key=b"k")
    rows = rows_in(root)
    committed = {group: offsets_in(root, group) for group in ("fraud", "reports, daily")}
    work = tmp_path / "work"
    work.mkdir()
    broker = RealBroker(jars, work)
    try:
        broker.format()
        broker.start()
        settings = ("handover", root, "--to-kafka", "--into", broker.data, "--listener", broker.bootstrap, "--yes")
        code, _, printed = seeklog_says(capfd, *settings)
        assert (code, "stop it" in printed) == (5, True), printed
        broker.stop()
        code, _, printed = seeklog_says(capfd, *settings)
        assert code == 1, printed
        commands = [line for line in printed.splitlines() if line.startswith("bin/kafka-topics.sh")]
        assert len(commands) == len(TOPICS)
        broker.start()
        for command in commands:
            tool(broker, command)
        broker.stop()

        code, _, printed = seeklog_says(capfd, *settings)
        assert code == 0, printed
        assert all(
            copy.is_there
            for copy in plan_into(LocalStore(str(root)), Target(str(broker.data))).copies
            if copy.size_bytes > 100
        )

        broker.start()
        assert rows_of(broker, list(rows)) == rows
        (reset,) = [line for line in printed.splitlines() if line.startswith("bin/kafka-consumer-groups.sh")]
        tool(broker, reset)
        assert {group: group_offsets(broker, group) for group in committed} == committed
        assert {topic: settings_of(broker, topic) for topic in TOPICS} == {topic: SETTINGS[topic] for topic in TOPICS}
        assert stray(broker.data) == []
        broker.stop()
        reached = read_cluster(OsFiles(), str(broker.data)).topics["payments"].partitions[0].leader_epoch
        epochs = LeaderEpochs.read(OsFiles(), str(broker.data / "payments-0"))
        assert epochs.latest <= reached
        assert epochs.entries[0][0] == 0
    finally:
        broker.kill()
    assert rows_in(root) == rows
