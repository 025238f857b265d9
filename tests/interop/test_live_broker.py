"""Readers beside a real running broker that appends, rolls, compacts, deletes, and recreates topics.

Needs Maven and Java, see `kafka_jars.py`. `tests/soak` does the same for ten minutes, with restarts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import seeklog
from interop.kafka_jars import VERSIONS, jars_or_skip
from interop.make_broker_golden import TIMEOUT_S, config, wait_until
from interop.real_broker import RealBroker
from log.workbench import FakeClock
from seeklog import Log, LogReader, names
from seeklog.errors import LogLocked, TopicNotFound
from soak.ledger import Ledger
from soak.traffic import PROPERTIES, Readers, Traffic, create, running
from store.workbench import open_store

SECONDS: Final = 15.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBroker]:
    work = tmp_path_factory.mktemp("live")
    broker = RealBroker(jars_or_skip(VERSIONS[0]), work, properties=PROPERTIES)
    broker.format()
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


def produce(broker: RealBroker, topic: str, count: int) -> None:
    producer = Producer(config(broker, linger_ms=5))
    for number in range(count):
        producer.produce(topic, b"%d" % number, key=b"k", partition=0)
    assert producer.flush(TIMEOUT_S) == 0


def values(log: Log) -> list[bytes | None]:
    return [record.value for record in log.scan()]


@pytest.mark.id("live-broker-readers")
def test_readers_beside_a_broker_are_right_without_warnings(broker: RealBroker, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger", create=True)
    traffic = Traffic(broker, ledger)
    readers = Readers(broker.data, tmp_path, tmp_path / "ledger")
    with running(readers):
        traffic.begin()
        try:
            wait_until(lambda: ledger.acked(0) > 0, "the first records")
            readers.start("soak.reader")
            readers.start_verbs()
            give_up = time.monotonic() + SECONDS
            while time.monotonic() < give_up:
                traffic.delete_records()
                traffic.recreate_fleeting()
                readers.look()
        finally:
            traffic.end()
        found = readers.stop()
    assert not traffic.failures, traffic.failures[:3]
    assert not found.faults, found.summary()
    assert found.counts["answers"] > 0
    assert found.counts["verify"] > 0


def test_reader_follows_a_deletion_soon_after_the_brokers_checkpoint(broker: RealBroker) -> None:
    admin = AdminClient(config(broker))
    create(admin, "trimmed", 1)
    produce(broker, "trimmed", 100)
    clock = FakeClock()
    with open_store(broker.data, clock=clock, read_only=True) as store:
        log = store.log("trimmed", 0)
        assert len(values(log)) == 100
        (deleted,) = admin.delete_records([TopicPartition("trimmed", 0, 42)]).values()
        deleted.result(TIMEOUT_S)
        checkpoint = broker.data / names.LOG_START_OFFSETS
        wait_until(lambda: "trimmed 0 42" in checkpoint.read_text().splitlines(), "the broker's checkpoint")
        clock.advance(1000)
        assert log.log_start_offset == 42
        assert values(log) == [b"%d" % number for number in range(42, 100)]


@pytest.mark.id("live-broker-deleted-topic")
def test_deleted_topic_is_not_found_and_recreated_one_is_read(broker: RealBroker) -> None:
    admin = AdminClient(config(broker))
    create(admin, "short-lived", 1)
    produce(broker, "short-lived", 50)
    with seeklog.open(broker.data, read_only=True) as store:
        log = store.log("short-lived", 0)
        assert len(values(log)) == 50
        admin.delete_topics(["short-lived"])["short-lived"].result(TIMEOUT_S)
        wait_until(lambda: not (broker.data / "short-lived-0").exists(), "the deletion")
        with pytest.raises(TopicNotFound):
            values(store.log("short-lived", 0))
        with pytest.raises(TopicNotFound):
            values(log)
        create(admin, "short-lived", 1)
        produce(broker, "short-lived", 3)
        assert values(store.log("short-lived", 0)) == [b"0", b"1", b"2"]


def test_topic_recreated_between_two_calls_is_the_new_one(broker: RealBroker) -> None:
    admin = AdminClient(config(broker))
    create(admin, "recreated", 1)
    produce(broker, "recreated", 50)
    with seeklog.open(broker.data, read_only=True) as store:
        assert len(values(store.log("recreated", 0))) == 50
        admin.delete_topics(["recreated"])["recreated"].result(TIMEOUT_S)
        wait_until(lambda: not (broker.data / "recreated-0").exists(), "the deletion")
        create(admin, "recreated", 1)
        produce(broker, "recreated", 3)
        assert values(store.log("recreated", 0)) == [b"0", b"1", b"2"]


def test_partition_of_a_running_broker_is_not_opened_for_writing(broker: RealBroker) -> None:
    create(AdminClient(config(broker)), "locked", 1)
    produce(broker, "locked", 3)
    directory = broker.data / "locked-0"
    before = {path.name for path in directory.iterdir()}
    with pytest.raises(LogLocked, match="broker"):
        Log(directory)
    with pytest.raises(LogLocked, match="broker"):
        seeklog.open(broker.data)
    assert {path.name for path in directory.iterdir()} == before
    produce(broker, "locked", 1)
    with LogReader(directory) as log:
        assert values(log) == [b"0", b"1", b"2", b"0"]
