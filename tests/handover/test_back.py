from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from handover.workbench import UNLIMITED, as_broker_left_it, fill, lead, rows_in, state_of, write_metadata, write_root
from seeklog import names
from seeklog.errors import HandoverRefused, LogLocked
from seeklog.files import OsFiles
from seeklog.handover.back import BackPlan, plan_back, take_back
from seeklog.handover.in_place import Broker, hand_over_in_place, plan_in_place
from seeklog.handover.plan import LocalStore
from seeklog.topics.catalog import new_topic_id
from seeklog.topics.kraft.metadata import ConfigRecord, PartitionRecord, TopicRecord, Written
from store.workbench import open_store

BROKER = Broker()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A store that was handed over, and that a broker has led."""
    fill(tmp_path / "store")
    hand_over_in_place(LocalStore(str(tmp_path / "store")), broker=BROKER)
    return tmp_path / "store"


def lines(plan: BackPlan) -> set[tuple[str, str | None, int | None, str | None]]:
    return {(step.action, step.topic, step.partition, step.detail) for step in plan.steps if step.setting is None}


def settings(plan: BackPlan) -> set[tuple[str, str | None, str, str | None, str | None]]:
    return {
        (step.action, step.topic, step.setting, step.value, step.detail)
        for step in plan.steps
        if step.setting is not None
    }


def write_cluster(root: Path, config: dict[str, dict[str, str]], *, without: tuple[str, ...] = ()) -> None:
    """Write the metadata of a cluster with the topics of the store, each with these settings."""
    records: list[Written] = []
    with open_store(root, read_only=True) as store:
        for name in store.topics():
            if name not in without:
                described = store.describe_topic(name)
                records.append(TopicRecord(name=name, topic_id=described.topic_id))
                records += [
                    PartitionRecord(
                        partition=number,
                        topic_id=described.topic_id,
                        replicas=(1,),
                        isr=(1,),
                        leader=1,
                        leader_epoch=9,
                    )
                    for number in store.topic(name).partitions
                ]
                records += [
                    ConfigRecord(resource_name=name, name=word, value=value)
                    for word, value in config.get(name, {}).items()
                ]
    write_metadata(root, records)


def test_store_never_used_by_broker_is_refused(tmp_path: Path) -> None:
    fill(tmp_path / "store")
    with pytest.raises(HandoverRefused, match="no broker has used it"):
        plan_back(LocalStore(str(tmp_path / "store")))


def test_store_with_running_broker_is_refused(root: Path) -> None:
    files = OsFiles()
    lock = files.lock_as_broker(f"{root}/.lock")
    try:
        with pytest.raises(LogLocked, match="a Kafka broker; stop it"):
            plan_back(LocalStore(str(root)))
    finally:
        files.close(lock)


def test_broker_that_never_started_changed_nothing(root: Path) -> None:
    assert plan_back(LocalStore(str(root))).steps == ()
    assert plan_back(LocalStore(str(root))).changed == ()


def test_report_changes_nothing_and_names_every_change(root: Path) -> None:
    lead(root, append={"payments-1": [b"a", b"b"]})
    starts = {"payments-0": 6, "payments-1": 0, "customers-0": 0, "empty-0": 0}
    write_root(root, names.LOG_START_OFFSETS, starts)
    first = sorted((root / "payments-0").glob("*.log"))[0]
    assert (first.parent / f"{first.stem}.seal").exists()
    before = state_of(root)

    plan = plan_back(LocalStore(str(root)))

    assert state_of(root) == before
    assert lines(plan) == {
        ("led", None, None, "a broker led 8 partitions, up to leader epoch 7"),
        ("appended", "payments", 1, "offsets 12 to 13"),
        ("deleted", "payments", 0, "offsets 3 to 5"),
    }
    assert len(plan.changed) == 8
    assert not plan.has_metadata


def test_truncated_end_and_compacted_segments_are_reported(root: Path) -> None:
    lead(root)
    logs = sorted((root / "payments-1").glob("*.log"))
    assert len(logs) > 2
    logs[0].write_bytes(logs[0].read_bytes()[:-40])  # the cleaner writes shorter files
    logs[-1].write_bytes(b"")

    found = lines(plan_back(LocalStore(str(root))))

    assert ("compacted", "payments", 1, "1 segment") in found
    (cut,) = [detail for action, _, _, detail in found if action == "cut"]
    assert cut == f"it ends at offset {int(logs[-1].stem)}, and ended at 12 before"


def test_end_is_found_with_and_without_indexes(root: Path) -> None:
    lead(root, append={"payments-1": [b"a"], "payments-0": [b"x"]})
    for index in (root / "payments-1").glob("*.index"):
        index.unlink()
    last = sorted((root / "payments-0").glob("*.index"))[-1]
    last.write_bytes(last.read_bytes() + bytes(800))  # as a broker preallocates it
    log = sorted((root / "payments-0").glob("*.log"))[-1]
    log.write_bytes(log.read_bytes() + b"\x00" * 100)

    found = lines(plan_back(LocalStore(str(root))))

    assert ("appended", "payments", 1, "offsets 12 to 12") in found
    assert ("appended", "payments", 0, "offsets 12 to 12") in found


def test_added_and_deleted_topics_and_partitions_are_followed(root: Path) -> None:
    ids = {name: new_topic_id() for name in ("new", "customers")}
    write_cluster(root, {}, without=("empty",))
    shutil.rmtree(root / "empty-0")
    for name in ("new-0", "payments-2"):
        shutil.copytree(root / "customers-0", root / name)
        as_broker_left_it(root / name)
    as_broker_left_it(root / "customers-0")
    (root / "new-0" / names.PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {ids['new']}")
    payments = (root / "payments-0" / names.PARTITION_METADATA).read_text()
    (root / "payments-2" / names.PARTITION_METADATA).write_text(payments)
    (root / "customers-0" / names.PARTITION_METADATA).write_text(f"version: 0\ntopic_id: {ids['customers']}")

    plan = plan_back(LocalStore(str(root)))

    assert {(action, topic, partition) for action, topic, partition, _ in lines(plan)} == {
        ("deleted topic", "empty", None),
        ("new topic", "new", None),
        ("recreated topic", "customers", None),
        ("new partition", "payments", 2),
    }
    take_back(LocalStore(str(root)))
    with open_store(root) as store:
        assert store.topics() == ["customers", "new", "payments"]
        assert store.describe_topic("customers").topic_id == ids["customers"]
        assert store.describe_topic("new").topic_id == ids["new"]
        assert store.topic("payments").partitions == (0, 1, 2)
        # It is another topic, and the broker's retention for it is unknown: records are not deleted by age.
        assert store.topic("customers").config.cleanup_policy == "delete"
        assert store.topic("customers").config.retention_ms == -1
    assert {step.action for step in plan_back(LocalStore(str(root))).steps} <= {"keep"}


def test_missing_topic_stays_unless_known_to_be_deleted(root: Path) -> None:
    shutil.rmtree(root / "empty-0")
    plan = plan_back(LocalStore(str(root)))
    assert [(step.action, step.topic) for step in plan.steps] == [("missing topic", "empty")]
    assert "empty" in plan.catalog


def test_topic_in_another_log_directory_is_refused(root: Path, tmp_path: Path) -> None:
    write_cluster(root, {})
    os.rename(root / "empty-0", tmp_path / "empty-0")
    with pytest.raises(HandoverRefused, match=r"in another of its log\.dirs"):
        plan_back(LocalStore(str(root)))


def test_settings_of_cluster_replace_those_of_catalog(root: Path) -> None:
    write_cluster(
        root,
        {
            # The settings that were handed over, except for retention.ms, and one that seeklog does not have.
            "payments": {
                **UNLIMITED,
                "retention.ms": "5000",
                "segment.bytes": "1048576",
                "compression.type": "gzip",
                "flush.ms": "1000",
                "min.insync.replicas": "1",
            },
            "customers": {**UNLIMITED, "retention.bytes": "77"},
            "empty": {**UNLIMITED, "flush.messages": "1"},
        },
    )

    plan = plan_back(LocalStore(str(root)))

    assert settings(plan) == {
        ("set", "payments", "retention.ms", "5000", "was -1"),
        ("leave out", "payments", "min.insync.replicas", "1", "seeklog has no such setting"),
        ("set", "customers", "retention.bytes", "77", "was Kafka's default"),
        ("keep", "customers", "cleanup.policy", "compact", "the cluster has no value for it; seeklog's stays"),
    }
    take_back(LocalStore(str(root)))
    with open_store(root) as store:
        assert store.topic("payments").config.retention_ms == 5000
        # The broker had its minimum, and seeklog's value is not raised to it.
        assert store.topic("payments").config.segment_bytes == 600
        assert store.topic("payments").config.key_index == "none"
        assert store.topic("customers").config.cleanup_policy == "compact"
        assert store.topic("customers").config.retention_bytes == 77
        assert store.topic("empty").config.flush == "batch"
    assert {line for line in settings(plan_back(LocalStore(str(root)))) if line[0] == "set"} == set()


def test_records_and_groups_survive_return_from_broker(root: Path) -> None:
    rows = rows_in(root)
    write_cluster(root, {})

    take_back(LocalStore(str(root)))

    assert rows_in(root) == rows
    with open_store(root) as store:
        assert store.groups() == ["a, b", "fraud"]


def test_second_handover_in_place_is_refused(root: Path) -> None:
    write_cluster(root, {})
    with pytest.raises(HandoverRefused, match="Start its broker again; no handover is needed"):
        plan_in_place(LocalStore(str(root)), broker=BROKER)
    with open_store(root) as store:
        store.create_topic("later", partitions=1)
    with pytest.raises(HandoverRefused, match="does not know later: its broker would rename"):
        plan_in_place(LocalStore(str(root)), broker=BROKER)
