from __future__ import annotations

import csv
from pathlib import Path

import pytest

import seeklog
from crash.faulty import FaultyFiles
from crash.sim import Detail, Disk, SimFiles
from handover.workbench import CLUSTER_ID, TOPICS, UNLIMITED, fill, make_cluster, rows_in, state_of
from log.workbench import FakeClock
from seeklog import names
from seeklog.errors import CorruptBatch, HandoverRefused, LogLocked, NotAccessible, SeeklogError
from seeklog.files import OsFiles
from seeklog.handover.into import Target, _lower_epochs_in, hand_over_into, lower_epochs, plan_into
from seeklog.handover.plan import LocalStore
from seeklog.log.side.root_offsets import RootOffsets
from seeklog.record.batch import split_batches
from store.workbench import open_store

IDS = {"payments": "5JdNGzCmQmupZbKTTsDZjQ", "customers": "LzjCN9ITT6GiARMut4Wxgg", "empty": "CCIijd9qQoapWzIlhPqdXg"}
ALL = {name: (IDS[name], count) for name, (count, _) in TOPICS.items()}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    fill(tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    make_cluster(tmp_path / "data", ALL)
    return tmp_path / "data"


def into(root: Path, data: Path) -> object:
    return hand_over_into(LocalStore(str(root)), Target(str(data)))


def test_records_are_copied_under_topic_ids_of_cluster(root: Path, data: Path) -> None:
    before, rows = state_of(root), rows_in(root)

    into(root, data)

    with seeklog.open(data, read_only=True) as store:
        assert {name: store.describe_topic(name).topic_id for name in store.topics()} == IDS
    assert rows_in(data) == rows
    assert not [path for path in data.rglob("*") if path.name.endswith((".seal", ".keyindex", names.TEMPORARY))]
    assert not list(data.rglob("seeklog-*"))
    after = state_of(root)
    assert set(after) - set(before) == {names.GROUP_OFFSETS}
    assert {name: after[name] for name in before} == before


def test_epochs_above_those_of_cluster_are_lowered_only_in_copy(root: Path, data: Path) -> None:
    into(root, data)

    assert (data / "payments-0" / names.LEADER_EPOCHS).read_text() == "0\n2\n0 0\n2 9\n"
    assert (root / "payments-0" / names.LEADER_EPOCHS).read_text() == "0\n2\n0 0\n6 9\n"
    for home, newest in ((data, 2), (root, 6)):
        logs = sorted((home / "payments-0").glob("*.log"))
        assert len(logs) > 1
        epochs = [batch.header.leader_epoch for log in logs for batch in split_batches(log.read_bytes())]
        assert sorted(set(epochs)) == [0, newest]


@pytest.mark.parametrize("cluster_epoch", [6, 7])
def test_epochs_reached_by_cluster_stay(root: Path, tmp_path: Path, cluster_epoch: int) -> None:
    data = tmp_path / "later"
    make_cluster(data, ALL, leader_epoch=cluster_epoch)

    into(root, data)

    for log in sorted((data / "payments-0").glob("*.log")):
        assert log.read_bytes() == (root / "payments-0" / log.name).read_bytes()
    assert (data / "payments-0" / names.LEADER_EPOCHS).read_text() == "0\n2\n0 0\n6 9\n"


def test_checkpoints_are_merged_and_clean_shutdown_file_removed(root: Path, data: Path) -> None:
    (data / names.RECOVERY_POINTS).write_text("0\n2\nothers 0 42\npayments 0 0\n")
    (data / names.LOG_START_OFFSETS).write_text("0\n1\nothers 0 7\n")

    into(root, data)

    offsets = RootOffsets.read(OsFiles(), str(data))
    assert {str(each): end for each, end in offsets.recovery_points.items()} == {
        "others-0": 42,
        "payments-0": 12,
        "payments-1": 12,
        "customers-0": 12,
        "empty-0": 0,
    }
    starts = {str(each): start for each, start in offsets.log_start_offsets.items()}
    assert (starts["others-0"], starts["payments-0"]) == (7, 3)
    assert not (data / names.CLEAN_SHUTDOWN).exists()
    assert (data / names.META_PROPERTIES).exists()


def test_group_offsets_are_written_for_tool_of_kafka(root: Path, data: Path) -> None:
    done = hand_over_into(LocalStore(str(root)), Target(str(data), bootstrap="127.0.0.1:9093"))

    with (root / names.GROUP_OFFSETS).open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["a, b", "payments", "0", "5"],
        ["a, b", "payments", "1", "9"],
        ["fraud", "payments", "0", "5"],
        ["fraud", "payments", "1", "9"],
    ]
    assert done.reset_command() == (
        "bin/kafka-consumer-groups.sh --bootstrap-server 127.0.0.1:9093 --reset-offsets --group 'a, b' --group fraud "
        f"--from-file {root}/{names.GROUP_OFFSETS} --execute"
    )


def test_log_with_later_start_leaves_no_empty_first_segment(tmp_path: Path) -> None:
    fill(tmp_path / "store", with_groups=False)
    with open_store(tmp_path / "store") as store, store.writer("payments", 1) as log:
        log.delete_before(11)
        assert log._source.view.bases[0] > 0
        first = log._source.view.bases[0]
    make_cluster(tmp_path / "data", ALL)

    into(tmp_path / "store", tmp_path / "data")

    bases = sorted(int(path.stem) for path in (tmp_path / "data" / "payments-1").glob("*.log"))
    assert bases[0] == first
    assert rows_in(tmp_path / "data") == rows_in(tmp_path / "store")


def test_plan_changes_nothing_and_matches_handover(root: Path, data: Path) -> None:
    before, there = state_of(root), state_of(data)

    plan = plan_into(LocalStore(str(root)), Target(str(data)))

    assert (state_of(root), state_of(data)) == (before, there)
    assert plan.cluster_id == CLUSTER_ID
    steps = [(step.action, step.topic, step.partition) for step in plan.steps()]
    assert ("copy", "payments", 0) in steps
    assert ("differs", "payments", None) in steps
    (lowered,) = {
        step.detail.partition(", ")[2]
        for step in plan.steps()
        if step.topic == "payments" and step.detail and step.action == "copy"
    }
    assert lowered == "leader epochs above 2 lowered to it"


# ---------------------------------------------------------------- refusals


def test_missing_topics_are_named_with_command_to_create_them(root: Path, tmp_path: Path) -> None:
    make_cluster(tmp_path / "data", {"empty": ALL["empty"]})
    there = state_of(tmp_path / "data")

    plan = plan_into(LocalStore(str(root)), Target(str(tmp_path / "data")))

    create = "bin/kafka-topics.sh --bootstrap-server 127.0.0.1:9092 --create"
    unlimited = " --config ".join(f"{setting}={value}" for setting, value in UNLIMITED.items())
    settings = " --config ".join((unlimited, "segment.bytes=1048576", "compression.type=gzip", "flush.ms=1000"))
    compact = f"cleanup.policy=compact --config {unlimited}"
    assert plan.create_commands() == [
        f"{create} --topic customers --partitions 1 --replication-factor 1 --config {compact}",
        f"{create} --topic payments --partitions 2 --replication-factor 1 --config {settings}",
    ]
    with pytest.raises(HandoverRefused, match="no topic 'customers', and 1 more is missing"):
        into(root, tmp_path / "data")
    assert state_of(tmp_path / "data") == there


@pytest.mark.id("handover-refuses-replicas")
@pytest.mark.parametrize(
    ("replicas", "count", "message"),
    [
        ((1, 2), 2, "has 2 replicas in the cluster"),
        ((2,), 2, "is on node 2, and .* belongs to node 1"),
        ((1,), 3, "3 partitions in the cluster and 2 in the store"),
    ],
)
def test_topic_with_wrong_replicas_or_partitions_is_refused(
    root: Path, tmp_path: Path, replicas: tuple[int, ...], count: int, message: str
) -> None:
    data = tmp_path / "data"
    make_cluster(data, ALL | {"payments": (IDS["payments"], count)}, replicas=replicas)
    there = state_of(data)
    with pytest.raises(HandoverRefused, match=message):
        into(root, data)
    assert state_of(data) == there


def test_partition_with_records_is_refused(root: Path, data: Path) -> None:
    with seeklog.open(root, read_only=True) as store:
        (batch,) = store.log("customers", 0).read_batches(0, max_bytes=1)
    (data / "payments-1" / f"{0:020d}.log").write_bytes(batch.raw)
    there = state_of(data)
    with pytest.raises(HandoverRefused, match="payments-1 is not empty"):
        into(root, data)
    assert state_of(data) == there


def test_directory_of_deleted_topic_of_same_name_is_refused(root: Path, data: Path) -> None:
    (data / "payments-1" / names.PARTITION_METADATA).write_text("version: 0\ntopic_id: LzjCN9ITT6GiARMut4Wxgg")
    with pytest.raises(HandoverRefused, match="the directory was deleted"):
        into(root, data)


def test_partition_in_another_log_directory_is_refused(root: Path, data: Path, tmp_path: Path) -> None:
    (data / "payments-1").rename(tmp_path / "payments-1")
    with pytest.raises(HandoverRefused, match=r"keeps it in another of its log\.dirs"):
        into(root, data)


def test_cluster_without_metadata_is_refused_unless_they_are_named(root: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "controller").mkdir()
    (data / "__cluster_metadata-0").rename(tmp_path / "controller" / "__cluster_metadata-0")
    with pytest.raises(HandoverRefused, match="--metadata"):
        into(root, data)

    plan = plan_into(LocalStore(str(root)), Target(str(data), metadata_dir=str(tmp_path / "controller")))

    assert len(plan.copies) == 4


def test_directory_without_broker_is_refused(root: Path, tmp_path: Path) -> None:
    with pytest.raises(HandoverRefused, match="not a broker's data directory"):
        into(root, tmp_path)
    with pytest.raises(HandoverRefused, match="into itself"):
        into(root, root)


def test_running_broker_is_refused(root: Path, data: Path) -> None:
    files = OsFiles()
    lock = files.lock_as_broker(f"{data}/.lock")
    try:
        with pytest.raises(LogLocked, match="stop it"):
            plan_into(LocalStore(str(root)), Target(str(data)))
        with pytest.raises(LogLocked, match="stop it"):
            into(root, data)
    finally:
        files.close(lock)


def test_damage_is_refused_if_epochs_must_be_lowered(root: Path, data: Path) -> None:
    log = sorted((root / "payments-0").glob("*.log"))[0]
    damaged = bytearray(log.read_bytes())
    damaged[8:12] = (7).to_bytes(4, "big")
    log.write_bytes(damaged)
    with pytest.raises(CorruptBatch, match="claims 19 bytes"):
        into(root, data)


# ---------------------------------------------------------------- repeated runs


def test_finished_copy_is_not_repeated(root: Path, data: Path) -> None:
    into(root, data)
    there = state_of(data)

    plan = plan_into(LocalStore(str(root)), Target(str(data)))

    assert [copy.is_there for copy in plan.copies if copy.source.partition.topic != "empty"] == [True] * 3
    into(root, data)
    assert state_of(data) == there


@pytest.mark.id("handover-copy-fails")
@pytest.mark.parametrize("method", ["write", "sync", "rename", "sync_directory"])
def test_copy_that_fails_anywhere_is_finished_by_next_run(tmp_path: Path, method: str) -> None:
    fill(tmp_path / "store")
    rows = rows_in(tmp_path / "store")
    attempts = 0
    for fail_at in range(1, 200, 7):
        data = tmp_path / f"data-{fail_at}"
        make_cluster(data, ALL)
        files = FaultyFiles(OsFiles(), methods={method}, fail_at=fail_at)
        try:
            hand_over_into(LocalStore(str(tmp_path / "store"), files=files), Target(str(data)))
        except (NotAccessible, SeeklogError):
            attempts += 1
            into(tmp_path / "store", data)
            assert rows_in(data) == rows
        else:
            break
    assert attempts


@pytest.mark.id("handover-copy-crash")
@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_crash_at_any_change_is_finished_by_next_run(tmp_path: Path, stride: int) -> None:
    """Goal: after a power loss at any time the store is unchanged, and the next run completes the copy."""
    fill(tmp_path / "store", with_groups=False)
    make_cluster(tmp_path / "data", ALL)
    rows = rows_in(tmp_path / "store")
    on_disk = {f"/{name}": data for name, data in state_of(tmp_path).items()}
    files = SimFiles(Disk.of(on_disk))
    states: dict[bytes, Disk] = {}

    def keep(sim: SimFiles) -> None:
        for _, disk in sim.crash_states(Detail(prefixes=2, sectors=1, omissions=4, samples=1)):
            states[disk.digest()] = disk

    files.on_boundary = keep
    hand_over_into(LocalStore("/store", files=files, clock=FakeClock()), Target("/data"))
    files.on_boundary = None

    assert len(states) > 100
    for disk in list(states.values())[::stride]:
        after = SimFiles(disk)
        assert rows_in("/store", after) == rows
        hand_over_into(LocalStore("/store", files=after, clock=FakeClock()), Target("/data"))
        assert rows_in("/data", after) == rows
        starts = RootOffsets.read(after, "/data").log_start_offsets
        assert {str(each): start for each, start in starts.items() if start} == {"payments-0": 3}


# ---------------------------------------------------------------- leader epochs


def test_lowered_epochs_merge_into_first_of_them() -> None:
    entries = [(0, 3), (2, 5), (6, 9), (7, 9), (9, 12)]
    assert lower_epochs(entries, 9) == entries
    assert lower_epochs(entries, 8) == [(0, 3), (2, 5), (6, 9), (7, 9), (8, 12)]
    assert lower_epochs(entries, 6) == [(0, 3), (2, 5), (6, 9)]
    assert lower_epochs(entries, 4) == [(0, 3), (2, 5), (4, 9)]
    assert lower_epochs(entries, 2) == [(0, 3), (2, 5)]
    assert lower_epochs(entries, 0) == [(0, 3)]
    assert lower_epochs([], 0) == []


def test_chunk_that_ends_inside_batch_is_lowered_up_to_it(root: Path) -> None:
    whole = b"".join(log.read_bytes() for log in sorted((root / "payments-1").glob("*.log")))
    batches = list(split_batches(whole))
    assert len(batches) > 1
    for size in range(len(whole) + 1):
        data = bytearray(whole[:size])
        end = _lower_epochs_in(data, 1, path="x", origin=0)
        expected = 0
        for batch in batches:
            if expected + len(batch.raw) > size:
                break
            expected += len(batch.raw)
        assert end == expected
        assert all(batch.header.leader_epoch <= 1 for batch in split_batches(bytes(data[:end])))
        assert data[end:] == whole[end:size]
