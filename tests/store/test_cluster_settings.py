"""A broker's directory as a store: topics have the settings of their cluster where these are known, or keep all."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Final

import pytest

import seeklog
from handover.workbench import make_cluster, write_metadata
from log.workbench import START_MS, QuickFiles, TickingClock
from seeklog import Record, Store
from seeklog.record.batch import encode_batch
from seeklog.topics.catalog import new_topic_id
from seeklog.topics.kraft import cluster
from seeklog.topics.kraft.metadata import ConfigRecord, PartitionRecord, TopicRecord, Written
from seeklog.topics.layout import ADOPTED_CONFIG
from store.workbench import read

DAY_MS: Final = 86_400_000
ID: Final = "5JdNGzCmQmupZbKTTsDZjQ"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "kafka-logs"


def open_plain(root: Path, *, clock: TickingClock | None = None, **words: Any) -> Store:
    return seeklog.open(root, clock=clock or TickingClock(), files=QuickFiles(), background=False, **words)


def own_settings(root: Path, topic: str = "orders", **words: Any) -> dict[str, Any]:
    with open_plain(root, **words) as store:
        return dict(store.topic(topic).configured)


def fill(store: Store, topic: str, *, age_ms: int) -> None:
    with store.writer(topic, 0) as log:
        log.append_many([Record(b"%d" % number, key=b"k", timestamp_ms=START_MS - age_ms) for number in range(5)])


def as_broker_left(root: Path, config: dict[str, str], *, topic_id: str = ID) -> None:
    """Act like a broker that ran, changed the settings of `orders`, and stopped."""
    partition = PartitionRecord(partition=0, topic_id=topic_id, replicas=(1,), isr=(1,), leader=1, leader_epoch=2)
    records: list[Written] = [TopicRecord(name="orders", topic_id=topic_id), partition]
    records += [ConfigRecord(resource_name="orders", name=name, value=value) for name, value in config.items()]
    write_metadata(root, records)
    (root / CLEAN_SHUTDOWN).write_text('{"version":0,"brokerEpoch":8}')


# ---------------------------------------------------------------- topics that are found


def test_found_topic_has_settings_of_its_cluster(data: Path) -> None:
    config = {
        "cleanup.policy": "compact,delete",
        "retention.ms": str(DAY_MS),
        "retention.bytes": "1000000",
        "segment.bytes": "2097152",
        "min.insync.replicas": "1",
    }
    make_cluster(data, {"orders": (ID, 1)}, config={"orders": config})
    expected = {
        "cleanup.policy": "compact,delete",
        "retention.ms": DAY_MS,
        "retention.bytes": 1_000_000,
        "segment.bytes": 2_097_152,
    }

    assert own_settings(data, read_only=True) == expected
    assert own_settings(data) == expected
    assert own_settings(data, read_only=True) == expected


def test_found_topic_has_default_retention_of_its_brokers(data: Path) -> None:
    brokers = {"": {"log.retention.ms": "1000", "log.retention.bytes": "77"}, "1": {"log.retention.ms": "2000"}}
    make_cluster(
        data, {"orders": (ID, 1), "kept": (new_topic_id(), 1)}, config={"kept": {"retention.ms": "-1"}}, brokers=brokers
    )

    assert own_settings(data) == {**ADOPTED_CONFIG, "retention.ms": 2000, "retention.bytes": 77}
    assert own_settings(data, "kept") == {**ADOPTED_CONFIG, "retention.ms": -1, "retention.bytes": 77}


def test_found_topic_is_retained_as_its_cluster_says(data: Path, caplog: pytest.LogCaptureFixture) -> None:
    topics = {"orders": (ID, 1), "unknown": (new_topic_id(), 1)}
    make_cluster(data, topics, config={"orders": {"retention.ms": str(DAY_MS)}})
    with open_plain(data) as store:
        for topic in topics:
            fill(store, topic, age_ms=2 * DAY_MS)
        with caplog.at_level(logging.INFO, "seeklog"):
            assert store.maintain() == 1
        assert (len(read(store, "orders")), len(read(store, "unknown"))) == (0, 5)

    assert f"retention.ms={DAY_MS} of topic orders" in caplog.text


@pytest.mark.id("unknown-settings-delete-nothing")
def test_found_topic_of_unknown_settings_keeps_everything(data: Path) -> None:
    """No default of a process deletes its records either."""
    make_cluster(data, {"orders": (ID, 1)})
    defaults = {"retention.ms": 1, "retention.bytes": 0, "cleanup.policy": "compact"}
    with open_plain(data, config=defaults) as store:
        fill(store, "orders", age_ms=3650 * DAY_MS)
        with store.writer("orders", 0) as log:
            log.roll()

        assert store.maintain() == 0

        assert len(read(store, "orders")) == 5
        assert store.topic("orders").configured == ADOPTED_CONFIG


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("00000000000000000000.log", encode_batch([Record(b"\x02\x00\x00")], now_ms=1)),  # of a later format
        ("00000000000000000009-0000000001.checkpoint", b"not a snapshot"),
    ],
)
def test_unreadable_metadata_delete_nothing(
    data: Path, file: str, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    make_cluster(data, {"orders": (ID, 1)}, config={"orders": {"retention.ms": "1"}})
    (data / "__cluster_metadata-0" / file).write_bytes(content)

    assert own_settings(data) == ADOPTED_CONFIG

    assert "the settings of the cluster's topics cannot be read" in caplog.text


def test_retention_without_known_policy_is_not_taken(data: Path) -> None:
    make_cluster(data, {"orders": (ID, 1)}, config={"orders": {"cleanup.policy": "", "retention.ms": "1"}})

    assert own_settings(data) == ADOPTED_CONFIG


def test_settings_of_topic_with_another_id_are_not_taken(data: Path) -> None:
    make_cluster(data, {"orders": (ID, 1)})
    as_broker_left(data, {"retention.ms": "1"}, topic_id=new_topic_id())

    assert own_settings(data) == ADOPTED_CONFIG


def test_reader_beside_broker_reads_metadata_once(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_cluster(data, {"orders": (ID, 1)}, config={"orders": {"retention.ms": "5"}})
    calls = []
    read_cluster = cluster.read_cluster
    monkeypatch.setattr(cluster, "read_cluster", lambda *given: calls.append(given) or read_cluster(*given))
    clock = TickingClock()
    with open_plain(data, clock=clock, read_only=True) as store:
        for _ in range(5):
            clock.advance(1000)
            assert store.topic("orders").config.retention_ms == 5

    assert len(calls) == 1


# ---------------------------------------------------------------- topics that are in the catalog


@pytest.mark.id("cluster-settings-are-taken")
def test_settings_changed_in_cluster_are_taken_after_broker_stopped(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_cluster(data, {"orders": (ID, 1)}, config={"orders": {"retention.ms": str(DAY_MS)}})
    with open_plain(data) as store:
        store.alter_topic("orders", {"key.index": "none"})
        fill(store, "orders", age_ms=2 * DAY_MS)
    as_broker_left(data, {"retention.ms": "-1"})

    assert own_settings(data, read_only=True)["retention.ms"] == -1
    with open_plain(data) as store:
        assert store.maintain() == 0
        assert len(read(store, "orders")) == 5
        assert store.topic("orders").configured == {**ADOPTED_CONFIG, "key.index": "none"}
    assert "topic 'orders' has taken {'retention.ms': -1} from its cluster" in caplog.text
    assert not (data / CLEAN_SHUTDOWN).exists()


def test_setting_made_here_stays_while_no_broker_ran(data: Path) -> None:
    make_cluster(data, {"orders": (ID, 1)}, config={"orders": {"retention.ms": "1000"}})
    with open_plain(data) as store:
        store.alter_topic("orders", {"retention.ms": -1})

    assert own_settings(data)["retention.ms"] == -1
    assert own_settings(data, read_only=True)["retention.ms"] == -1


def test_setting_made_here_stays_where_cluster_has_none(data: Path) -> None:
    make_cluster(data, {"orders": (ID, 1)})
    with open_plain(data) as store:
        store.alter_topic("orders", {"retention.ms": 5000})
    as_broker_left(data, {"max.message.bytes": "100"})

    settings = own_settings(data)
    assert (settings["retention.ms"], settings["max.message.bytes"]) == (5000, 100)


def test_topic_recreated_by_broker_has_its_new_settings(data: Path) -> None:
    make_cluster(data, {"orders": (ID, 1)}, config={"orders": {"retention.ms": "1000"}})
    open_plain(data).close()
    other = new_topic_id()
    (data / "orders-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {other}")
    as_broker_left(data, {"retention.bytes": "5"}, topic_id=other)
    (data / CLEAN_SHUTDOWN).unlink()

    assert own_settings(data) == {**ADOPTED_CONFIG, "retention.bytes": 5}
