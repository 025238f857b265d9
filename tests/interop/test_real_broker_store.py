"""Data directories of real Kafka brokers opened as stores: topics, log start offsets, groups, appends.

`make_broker_golden.py` creates them; `test_real_broker.py` tests their partitions.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import seeklog
from interop.broker_directories import NAMES, description, expected_rows, facts, rows
from interop.test_real_broker import unpacked
from seeklog import Store, TopicPartition
from seeklog.errors import CommitRefused, GroupNotFound
from seeklog.groups.groups import java_hash
from seeklog.names import parse_partition_name

__all__ = ["unpacked"]  # the fixture

every_broker = pytest.mark.parametrize("name", NAMES)


@pytest.fixture
def root(unpacked: Path, name: str, tmp_path: Path) -> Path:
    """A writable copy of a broker's directory."""
    shutil.copytree(unpacked / name, tmp_path / name)
    return tmp_path / name


def partitions_of(name: str) -> list[TopicPartition]:
    found = [parse_partition_name(partition) for partition in description(name)["partitions"]]
    return [partition for partition in found if partition is not None]


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def check_all_partitions(store: Store, name: str) -> None:
    for partition in partitions_of(name):
        log, described = store.log(*partition), facts(name, str(partition))
        assert log.log_start_offset == described["log_start_offset"], partition
        assert log.high_watermark == described["high_watermark"], partition
        assert rows(log.scan(), str(partition)) == expected_rows(name, str(partition)), partition


@every_broker
def test_reader_of_a_brokers_directory_sees_what_clients_saw(root: Path, name: str) -> None:
    """Goal: the start offsets too, which a partition alone does not know."""
    before = contents(root)
    with seeklog.open(root, read_only=True) as store:
        assert store.topics() == sorted({p.topic for p in partitions_of(name) if not p.topic.startswith("__")})
        check_all_partitions(store, name)
    assert contents(root) == before


@every_broker
def test_brokers_directory_opened_for_writing_keeps_its_records(root: Path, name: str) -> None:
    with seeklog.open(root) as store:
        check_all_partitions(store, name)
        with store.producer() as producer:
            for partition in partitions_of(name):
                if not partition.topic.startswith("__"):
                    future = producer.send(partition.topic, b"ours", key=b"k", partition=partition.partition)
                    assert future.result().offset == facts(name, str(partition))["high_watermark"]
        store.maintain()
    assert not (root / ".kafka_cleanshutdown").exists()
    with seeklog.open(root, read_only=True) as store:
        for partition in partitions_of(name):
            if not partition.topic.startswith("__"):
                *kept, last = store.log(*partition).scan()
                assert last.value == b"ours"
                # Retention deleted nothing, although the records are years old.
                assert rows(kept, str(partition)) == expected_rows(name, str(partition))


@every_broker
def test_committed_offsets_of_a_brokers_groups_are_found(root: Path, name: str) -> None:
    with seeklog.open(root, read_only=True) as store:
        for group, described in description(name)["groups"].items():
            if not described:
                with pytest.raises(GroupNotFound):
                    store.describe_group(group)
                continue
            found = store.describe_group(group)
            assert {str(partition): offset for partition, offset in found.offsets.items()} == {
                partition: offset for partition, (offset, _) in described.items()
            }
            # The processes of its members have ended.
            assert found.members == ()


@every_broker
def test_group_records_are_in_the_partition_that_a_broker_chose(root: Path, name: str) -> None:
    with seeklog.open(root, read_only=True) as store:
        for group in store.groups():
            expected = java_hash(group) % 2
            held = [
                number
                for number in (0, 1)
                if any(
                    group.encode() in (record.key or b"") for record in store.log("__consumer_offsets", number).scan()
                )
            ]
            assert held == [expected]


@every_broker
def test_consumer_continues_where_the_brokers_group_stopped(root: Path, name: str) -> None:
    described = {partition: offset for partition, (offset, _) in description(name)["groups"]["fraud"].items()}
    with seeklog.open(root) as store:
        with store.consumer(["plain"], group="fraud", auto_offset_reset="error", consumer_timeout_ms=0) as consumer:
            assert {f"plain-{number}": consumer.position(("plain", number)) for number in (0, 1)} == described
            assert sum(1 for _ in consumer) == sum(
                facts(name, partition)["high_watermark"] - offset for partition, offset in described.items()
            )
            consumer.commit()
            with pytest.raises(CommitRefused):
                consumer.commit({TopicPartition("txn", 0): 0})
        assert sum(lag.lag for lag in store.lag("fraud")) == 0
