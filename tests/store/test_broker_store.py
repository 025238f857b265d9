"""A Kafka broker's data directory as a store: read without a change, adopted, and locked against a running broker.

The partitions are made by `interop.test_broker_directory`, byte by byte and without seeklog's code.
"""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

from interop.test_broker_directory import SEGMENT_BYTES, TOPIC_ID, Broker, Row, encode_batch, make_broker, rows_of
from log.workbench import FailingFiles, FakeClock, QuickFiles
from seeklog import Store, TopicPartition, names
from seeklog.errors import InvalidName, LogLocked, LostRecords, SeeklogError, TopicNotFound, UsageError
from seeklog.log.side.root_offsets import RootOffsets
from seeklog.topics.layout import ADOPTED_CONFIG
from store.workbench import Holder, append, open_store, partition_directories, read, send, snapshot

YEAR_MS = 365 * 24 * 3600 * 1000
GOING = f"gone-0.{'0123456789abcdef' * 2}-delete"
FUTURE = f"orders-1.{'0123456789abcdef' * 2}-future"


def checkpoint(offsets: dict[tuple[str, int], int]) -> str:
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    return "\n".join(["0", str(len(lines)), *lines, ""])


class Directory:
    """A broker's data directory: orders-1 and orders-3 with records, empty-0, and a partition being deleted."""

    def __init__(self, root: Path, *, stop: str = "clean", start: int = 0, recovery_point: int | None = None) -> None:
        self.root = root
        root.mkdir()
        self.brokers: dict[int, Broker] = {}
        for number in (1, 3):
            self.brokers[number] = broker = make_broker("4.x")
            broker.write(root / f"orders-{number}", stop=stop)
        self.end = broker.next_offset
        point = self.end if recovery_point is None else recovery_point
        self.start = start
        empty = root / "empty-0"
        empty.mkdir()
        for suffix in (".log", ".index", ".timeindex"):
            (empty / f"{0:020d}{suffix}").touch()
        (root / GOING).mkdir()
        (root / GOING / f"{0:020d}.log").write_bytes(b"old")
        (root / "meta.properties").write_text("#\nversion=1\nnode.id=1\ncluster.id=x\n")
        (root / names.LOCK).touch()
        (root / "cleaner-offset-checkpoint").write_text(checkpoint({}))
        partitions = [("orders", 1), ("orders", 3)]
        (root / names.RECOVERY_POINTS).write_text(checkpoint({("empty", 0): 0} | dict.fromkeys(partitions, point)))
        # A broker has a line here only for a start that is not the first segment's.
        (root / names.LOG_START_OFFSETS).write_text(checkpoint({("orders", 1): start} if start else {}))
        (root / names.HIGH_WATERMARKS).write_text(checkpoint({("empty", 0): 0} | dict.fromkeys(partitions, self.end)))
        if stop == "clean":
            (root / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')

    def rows(self, number: int) -> list[Row]:
        start = self.start if number == 1 else 0
        return [row for row in self.brokers[number].rows if row.offset >= start]

    def active(self, number: int) -> Path:
        return self.root / f"orders-{number}" / f"{self.brokers[number].segments[-1].base_offset:020d}.log"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "kafka-logs"


def open_brokers(root: Path, **words: Any) -> Store:
    return open_store(root, segment_bytes=SEGMENT_BYTES, **words)


def rows(store: Store, number: int) -> list[Row]:
    return rows_of(store.log("orders", number).scan())


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize("stop", ["clean", "crash"])
@pytest.mark.parametrize("start", [0, 37])
def test_reading_broker_directory_changes_no_byte(root: Path, stop: str, start: int) -> None:
    made = Directory(root, stop=stop, start=start)
    before = snapshot(root)

    with open_brokers(root, read_only=True) as store:
        assert store.topics() == ["empty", "orders"]
        assert [each.partition for each in store.describe_topic("orders").partitions] == [1, 3]
        for number in (1, 3):
            assert rows(store, number) == made.rows(number)
        assert store.log("orders", 1).log_start_offset == start
        assert read(store, "empty") == []
        assert store.describe_topic("orders").topic_id == TOPIC_ID

    assert snapshot(root) == before


@pytest.mark.parametrize("number", [0, 2, 4])
def test_partitions_on_other_brokers_are_not_listed(root: Path, number: int) -> None:
    Directory(root)

    with open_brokers(root, read_only=True) as store, pytest.raises(TopicNotFound, match="only 1, 3"):
        store.log("orders", number)


def test_topic_without_id_has_same_id_at_every_read(root: Path) -> None:
    """Brokers before 2.8 assigned no ids. An id that changed at every read would make clients start over."""
    Directory(root)
    with open_brokers(root, read_only=True) as store:
        store.topics()
        version = store._topics.version
        assert store.describe_topic("empty").topic_id == store.describe_topic("empty").topic_id
        assert store._topics.version == version


def test_reading_beside_running_broker_is_allowed(root: Path) -> None:
    made = Directory(root, stop="crash")
    with Holder(root / names.LOCK, "broker") as broker:
        assert broker.got_it
        before = snapshot(root)
        with open_brokers(root, read_only=True) as store:
            assert rows(store, 1) == made.rows(1)
        assert snapshot(root) == before


# ---------------------------------------------------------------- adopting


@pytest.mark.parametrize("stop", ["clean", "crash"])
def test_writer_adopts_topics_of_broker(root: Path, stop: str) -> None:
    made = Directory(root, stop=stop)
    for _ in range(2):
        with open_brokers(root, retention_ms=1000) as store:
            assert store.topics() == ["empty", "orders"]
            orders = store.describe_topic("orders")
            assert orders.topic_id == TOPIC_ID
            assert [each.partition for each in orders.partitions] == [1, 3]
            assert dict(orders.configured) == ADOPTED_CONFIG
            for number in (1, 3):
                assert rows(store, number) == made.rows(number)
    assert (root / "meta.properties").exists()
    assert GOING not in partition_directories(root)


def test_adopted_topic_without_id_keeps_placeholder_id(root: Path) -> None:
    Directory(root)
    with open_brokers(root) as store:
        topic_id = store.describe_topic("empty").topic_id
        assert len(topic_id) == 22
    with open_brokers(root) as store:
        assert store.describe_topic("empty").topic_id == topic_id


def test_records_of_broker_are_not_deleted_by_age_by_default(root: Path) -> None:
    made = Directory(root)
    clock = FakeClock()
    clock.advance(10 * YEAR_MS)
    with open_brokers(root, clock=clock, retention_ms=1000) as store:
        store.maintain()
        assert rows(store, 1) == made.rows(1)

        store.alter_topic("orders", {"retention.ms": None})
        assert store.maintain() > 0
        assert rows(store, 1) == []
        assert store.log("orders", 1).log_end_offset == made.end


def test_appends_continue_at_end_of_broker_log(root: Path) -> None:
    made = Directory(root)
    with open_brokers(root) as store:
        send(store, "orders", [b"new"], partition=3)
        append(store, "empty", [b"first"])
    with open_brokers(root) as store:
        assert [row.value for row in rows(store, 3)] == [row.value for row in made.rows(3)] + [b"new"]
        assert store.log("orders", 3).last().offset == made.end
        assert read(store, "empty") == [b"first"]
        assert rows(store, 1) == made.rows(1)


def test_keys_are_spread_over_all_partitions_of_topic_not_only_local_ones(root: Path) -> None:
    """The topic has four partitions, two of them here: keys of the others must not go to these."""
    Directory(root)
    went, elsewhere = set(), 0
    with open_brokers(root) as store, store.producer(linger_ms=0) as producer:
        for number in range(40):
            try:
                went.add(producer.send("orders", b"x", key=b"key %d" % number).partition)
            except TopicNotFound:
                elsewhere += 1
        assert went == {1, 3}
        assert elsewhere


def test_new_partitions_follow_highest_number(root: Path) -> None:
    Directory(root)
    with open_brokers(root) as store:
        grown = store.add_partitions("orders", partitions=6)

        assert [each.partition for each in grown.partitions] == [1, 3, 4, 5]
        assert (root / "orders-5" / "partition.metadata").read_text().endswith(TOPIC_ID)


def test_topic_of_broker_can_be_deleted(root: Path) -> None:
    Directory(root)
    with open_brokers(root) as store:
        store.delete_topic("orders")

        assert store.topics() == ["empty"]
        assert partition_directories(root) == ["empty-0"]


def test_other_directories_are_left_unchanged(root: Path) -> None:
    Directory(root)
    (root / FUTURE).mkdir()
    (root / FUTURE / f"{0:020d}.log").write_bytes(b"half")
    (root / "stray-0").mkdir()  # a directory without a log: a broker died after creating it
    with open_brokers(root) as store:
        assert store.topics() == ["empty", "orders"]

    assert (root / FUTURE / f"{0:020d}.log").read_bytes() == b"half"
    assert (root / "stray-0").is_dir()
    assert (root / "cleaner-offset-checkpoint").exists()


def test_topics_created_by_broker_later_are_adopted_by_next_open(root: Path) -> None:
    Directory(root)
    with open_brokers(root):
        pass
    make_broker("3.x").write(root / "later-2", stop="clean")

    with open_brokers(root, read_only=True) as store:
        assert store.topics() == ["empty", "later", "orders"]
    with open_brokers(root) as store:
        assert store.topics() == ["empty", "later", "orders"]
        assert [each.partition for each in store.describe_topic("later").partitions] == [2]


@pytest.mark.parametrize("damage", ["lost its log", "cannot be read"])
def test_topic_with_damaged_directory_stays_in_catalog(root: Path, damage: str) -> None:
    """A broker renames the directories of a topic that it deletes. This directory has kept its name."""
    Directory(root)
    with open_brokers(root) as store:
        store.alter_topic("empty", {"retention.ms": 1234})
    files = FailingFiles("list", "/empty-0", error=errno.EACCES)
    files.fails = damage == "cannot be read"
    if not files.fails:
        (root / "empty-0" / f"{0:020d}.log").unlink()

    with open_brokers(root, read_only=True, files=files) as store:
        assert store.topics() == ["empty", "orders"]
    with open_brokers(root, files=files) as store:
        assert store.topics() == ["empty", "orders"]
        assert store.topic("empty").config.retention_ms == 1234
        with pytest.raises(SeeklogError):
            append(store, "empty", [b"x"])


def test_reader_keeps_uncataloged_topics_when_catalog_changes(root: Path) -> None:
    Directory(root)
    with open_brokers(root) as store:
        make_broker("3.x").write(root / "later-2", stop="clean")
        with open_brokers(root, read_only=True) as reader:
            assert reader.topics() == ["empty", "later", "orders"]
            store.create_topic("new", partitions=1)

            assert reader.topics() == ["empty", "later", "new", "orders"]


def test_directory_named_like_partition_without_log_is_ignored(root: Path) -> None:
    Directory(root)
    with open_brokers(root) as store, pytest.raises(InvalidName):
        store.describe_topic("../orders")


# ---------------------------------------------------------------- the checkpoints in the root


def test_log_start_offset_noted_by_broker_is_kept(root: Path) -> None:
    """`kafka-delete-records` raised it inside a segment, which no other file shows."""
    made = Directory(root, start=37)
    for _ in range(2):
        with open_brokers(root) as store:
            assert store.log("orders", 1).log_start_offset == 37
            assert rows(store, 1) == made.rows(1)
            assert store.log("orders", 3).log_start_offset == 0
            append(store, "orders", [b"new"], partition=1)
            made.brokers[1].rows += [rows(store, 1)[-1]]
    assert RootOffsets.read(QuickFiles(), str(root)).log_start_offsets[TopicPartition("orders", 1)] == 37


def test_log_start_offset_beyond_segments_hides_them(root: Path) -> None:
    """The broker raised the start and died before it deleted the segments below."""
    made = Directory(root, stop="crash")
    start = made.brokers[1].segments[2].base_offset + 1
    (root / names.LOG_START_OFFSETS).write_text(checkpoint({("orders", 1): start}))
    expected = [row for row in made.brokers[1].rows if row.offset >= start]

    with open_brokers(root, read_only=True) as store:
        assert rows(store, 1) == expected
    with open_brokers(root) as store:
        append(store, "orders", [b"x"], partition=1)
        assert store.log("orders", 1).log_start_offset == start
        assert rows(store, 1)[:-1] == expected


@pytest.mark.parametrize("damage", ["flip", "cut"])
def test_damage_below_recovery_point_of_broker_is_refused(root: Path, damage: str) -> None:
    made = Directory(root)
    path = made.active(1)
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data if damage == "flip" else data[:-10])
    before = snapshot(root / "orders-1", locks=False)

    with open_brokers(root) as store:
        with pytest.raises(LostRecords):
            append(store, "orders", [b"x"], partition=1)
        assert snapshot(root / "orders-1", locks=False) == before
        # The other partitions can be opened.
        append(store, "orders", [b"x"], partition=3)
        assert rows(store, 3)[:-1] == made.rows(3)


def test_damage_above_recovery_point_of_broker_is_cut_and_kept(root: Path) -> None:
    made = Directory(root, stop="crash", recovery_point=100)
    path = made.active(1)
    whole = path.read_bytes()
    torn = encode_batch([Row(made.end, 1, b"key", b"never finished")], leader_epoch=9)[:-5]
    path.write_bytes(whole + torn)

    with open_brokers(root) as store:
        append(store, "orders", [b"goes on"], partition=1)
        assert [row.value for row in rows(store, 1)] == [row.value for row in made.rows(1)] + [b"goes on"]
    (evidence,) = (root / "orders-1").glob("*.torn")
    assert evidence.read_bytes() == torn


def test_reader_ignores_torn_tail(root: Path) -> None:
    made = Directory(root, stop="crash", recovery_point=100)
    path = made.active(1)
    path.write_bytes(path.read_bytes() + b"torn")
    before = snapshot(root)

    with open_brokers(root, read_only=True) as store:
        assert rows(store, 1) == made.rows(1)
    assert snapshot(root) == before


def test_appends_are_written_to_checkpoints_of_broker(root: Path) -> None:
    made = Directory(root)
    with open_brokers(root) as store:
        append(store, "orders", [b"x"] * 3, partition=1)
    offsets = RootOffsets.read(QuickFiles(), str(root))

    assert offsets.recovery_points == {
        TopicPartition("empty", 0): 0,
        TopicPartition("orders", 1): made.end + 3,
        TopicPartition("orders", 3): made.end,
    }
    assert offsets.high_watermarks == offsets.recovery_points


# ---------------------------------------------------------------- a running broker


def test_store_is_not_opened_for_writing_while_broker_runs(root: Path) -> None:
    Directory(root)
    with Holder(root / names.LOCK, "broker") as broker:
        assert broker.got_it
        with pytest.raises(LogLocked, match="in a Kafka broker"):
            open_brokers(root)
    with open_brokers(root) as store:
        assert store.topics() == ["empty", "orders"]


@pytest.mark.id("broker-directory-untouched")
def test_directory_of_running_broker_is_not_touched(root: Path) -> None:
    Directory(root)
    before = snapshot(root)
    with Holder(root / names.LOCK, "broker"):
        with pytest.raises(LogLocked):
            open_brokers(root)
        assert snapshot(root) == before


@pytest.mark.id("broker-kept-out")
def test_broker_cannot_start_while_store_is_open_for_writing(root: Path) -> None:
    Directory(root)
    first, second = open_brokers(root), open_brokers(root)
    for store in (first, second):
        with Holder(root / names.LOCK, "broker") as broker:
            assert not broker.got_it
        store.close()

    with Holder(root / names.LOCK, "broker") as broker:
        assert broker.got_it


def test_reader_does_not_prevent_broker_from_starting(root: Path) -> None:
    Directory(root)
    with open_brokers(root, read_only=True), Holder(root / names.LOCK, "broker") as broker:
        assert broker.got_it


def test_lock_file_of_broker_keeps_its_bytes(root: Path) -> None:
    Directory(root)
    with open_brokers(root):
        assert (root / names.LOCK).read_bytes() == b""


def test_failed_open_releases_lock_of_broker(root: Path) -> None:
    Directory(root)
    (root / "orders-1").rename(root / "elsewhere")
    (root / "orders-1").symlink_to(root / "elsewhere")
    with pytest.raises(Exception, match="symbolic link"):
        open_brokers(root)

    with Holder(root / names.LOCK, "broker") as broker:
        assert broker.got_it


def test_cluster_metadata_log_is_neither_written_nor_maintained(root: Path) -> None:
    Directory(root)
    shutil.copytree(root / "orders-1", root / "__cluster_metadata-0")
    before = snapshot(root / "__cluster_metadata-0")

    with open_brokers(root) as store:
        with pytest.raises(UsageError, match="Kafka's own"), store.producer() as producer:
            producer.send("__cluster_metadata", b"x")
        store.maintain()

    assert snapshot(root / "__cluster_metadata-0") == before
