"""Archives: sealed segments copied byte for byte, repeatedly, and read like a store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

import seeklog
from cold.s3_server import BUCKET, S3Server
from cold.workbench import (
    SEGMENT_BYTES,
    VALUE_BYTES,
    CountingDepot,
    archive_to,
    check_same,
    fill,
    manifest_of,
    sealed_end,
)
from interop.broker_directories import NAMES, expected_rows, rows
from interop.test_real_broker import unpacked
from interop.test_real_broker_store import partitions_of
from log.workbench import START_MS, segment_bases, value_of
from seeklog import Store, TopicPartition, names
from seeklog.errors import ArchiveMismatch, GroupNotFound, NotAccessible, TopicNotFound, UsageError
from seeklog.files.depot import open_depot
from seeklog.files.readahead import FIRST_BYTES
from seeklog.log.check.inspection import inspect_partition
from store.workbench import append, open_store, read, snapshot

__all__ = ["unpacked"]  # the fixture

# ---------------------------------------------------------------- contents


def open_cold(place: tuple[str, dict[str, Any]]) -> Store:
    return seeklog.open(place[0], storage_options=place[1] or None, read_only=True)


def test_archive_reads_as_sealed_part_of_its_store(store: Store, place: tuple[str, dict[str, Any]]) -> None:
    url, options = place
    done = store.archive(url, storage_options=options)
    assert done.copied_segments == len(segment_bases(store.path / "orders-0")) - 1
    assert done.kept_segments == 0
    with open_cold(place) as cold:
        assert cold.topics() == ["orders"]
        described = cold.describe_topic("orders")
        assert described.topic_id == store.describe_topic("orders").topic_id
        assert described.config.retention_ms == 3_600_000
        check_same(cold, store)
        ours, theirs = cold.log("orders", 0), store.log("orders", 0)
        for offset in (0, 123, 477, ours.high_watermark - 1):
            assert list(ours.read(offset, max_records=3)) == list(
                theirs.scan(offset, min(offset + 3, ours.high_watermark))
            )
            assert ours.offset_at_time(START_MS + offset * 1000) == offset
        assert ours.last().offset == ours.high_watermark - 1
        assert list(ours.follow(ours.high_watermark)) == []
        with cold.consumer(["orders"], auto_offset_reset="earliest", consumer_timeout_ms=0) as consumer:
            assert sum(1 for _ in consumer) == ours.high_watermark
        with pytest.raises(UsageError, match="read-only"):
            cold.producer()


def test_files_are_copied_byte_for_byte(store: Store, root: Path, tmp_path: Path) -> None:
    store.archive(tmp_path / "archive")
    end = sealed_end(root)
    copied = snapshot(tmp_path / "archive" / "orders-0")
    expected = {
        name: data
        for name, data in snapshot(root / "orders-0").items()
        if (names.parse_segment_name(name) or (end,))[0] < end or name in ("partition.metadata", names.LEADER_EPOCHS)
    }
    assert copied == expected
    assert {name for name in copied if name.endswith(".seal")}
    manifest = manifest_of(tmp_path / "archive")
    assert {path: file.size for path, file in manifest.paths().items()} == {
        f"orders-0/{name}": len(data) for name, data in copied.items()
    }


def test_archive_is_readable_as_kafka_directory(store: Store, tmp_path: Path) -> None:
    """Goal: without its manifest, a broker could start on it, and it opens for writing."""
    store.archive(tmp_path / "archive")
    (tmp_path / "archive" / names.ARCHIVE).unlink()
    end = sealed_end(store.path)
    with open_store(tmp_path / "archive", segment_bytes=SEGMENT_BYTES) as restored:
        assert read(restored, "orders") == [value_of(number, size=VALUE_BYTES) for number in range(end)]
        assert append(restored, "orders", [b"more"]) == range(end, end + 1)


def test_archive_is_not_opened_for_writing(store: Store, tmp_path: Path) -> None:
    store.archive(tmp_path / "archive")
    before = snapshot(tmp_path / "archive")
    with pytest.raises(UsageError, match="is an archive"):
        seeklog.open(tmp_path / "archive")
    assert snapshot(tmp_path / "archive") == before


def test_archive_of_archive_is_identical(store: Store, tmp_path: Path) -> None:
    store.archive(tmp_path / "first")
    with seeklog.open(tmp_path / "first", read_only=True) as cold:
        cold.archive(tmp_path / "second")
    assert snapshot(tmp_path / "second") == snapshot(tmp_path / "first")


def test_archive_without_a_sealed_group_segment_has_no_groups(store: Store, tmp_path: Path) -> None:
    store.commit_offsets("g", {TopicPartition("orders", 0): 1})
    store.archive(tmp_path / "archive", topics=["orders", names.CONSUMER_OFFSETS])
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        assert cold.groups() == []
        with pytest.raises(GroupNotFound):
            cold.lag("g")


def test_inspection_of_archive_finds_no_damage(store: Store, tmp_path: Path) -> None:
    store.archive(tmp_path / "archive")
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        assert inspect_partition(f"{cold.location}/orders-0", files=cold._files) == []
        path = next((tmp_path / "archive" / "orders-0").glob("*.log"))
        data = bytearray(path.read_bytes())
        data[500] ^= 1
        path.write_bytes(data)
        assert inspect_partition(f"{cold.location}/orders-0", files=cold._files) != []


@pytest.mark.parametrize("name", NAMES)
def test_log_of_broker_is_archived_and_reads_the_same(unpacked: Path, name: str, tmp_path: Path) -> None:
    with seeklog.open(unpacked / name, read_only=True) as store:
        done = store.archive(tmp_path / "archive")
        assert done.copied_segments > 0
        assert store.archive(tmp_path / "archive").copied_segments == 0
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        for topic in cold.topics():
            for number in (one.partition for one in cold.describe_topic(topic).partitions):
                log = cold.log(topic, number)
                expected = expected_rows(name, f"{topic}-{number}")
                got = rows(log.scan(), f"{topic}-{number}")
                assert got == expected[: len(got)]
                active_base = segment_bases(unpacked / name / f"{topic}-{number}")[-1]
                assert log.high_watermark == max(active_base, log.log_start_offset) or got
        # This is how an archive is restored: although a broker sealed no segment, every one of them is final.
        assert cold.archive(tmp_path / "again").copied_segments == done.copied_segments
        with seeklog.open(tmp_path / "again", read_only=True) as again:
            for topic in cold.topics():
                for number in (one.partition for one in cold.describe_topic(topic).partitions):
                    assert list(again.log(topic, number).scan()) == list(cold.log(topic, number).scan())
                    assert again.log(topic, number).high_watermark == cold.log(topic, number).high_watermark
    assert partitions_of(name)


def test_only_given_topics_are_archived(store: Store, tmp_path: Path) -> None:
    store.create_topic("other", partitions=1)
    fill(store, 500, topic="other")
    store.archive(tmp_path / "archive", topics=["other"])
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        assert cold.topics() == ["other"]
    store.archive(tmp_path / "archive", topics=["orders"])
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        assert cold.topics() == ["orders", "other"]
        check_same(cold, store, topic="other")
        check_same(cold, store)
    with pytest.raises(TopicNotFound):
        store.archive(tmp_path / "archive", topics=["nothing"])
    with pytest.raises(UsageError, match="list of names"):
        store.archive(tmp_path / "archive", topics="orders")


# ---------------------------------------------------------------- archiving again


def test_second_archiving_copies_newly_sealed_segments(store: Store, tmp_path: Path) -> None:
    store.archive(tmp_path / "archive")
    there = len(segment_bases(tmp_path / "archive" / "orders-0"))
    fill(store, 600)
    depot = CountingDepot(tmp_path / "archive")
    done = archive_to(depot, store)
    assert done.kept_segments == there
    assert done.copied_segments == len(segment_bases(store.path / "orders-0")) - 1 - there > 0
    old = {f"orders-0/{base:020d}.log" for base in segment_bases(store.path / "orders-0")[:there]}
    assert not old.intersection(depot.puts)
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        check_same(cold, store)


def test_archiving_without_new_segments_copies_nothing(store: Store, tmp_path: Path) -> None:
    store.archive(tmp_path / "archive")
    before = snapshot(tmp_path / "archive")
    assert store.archive(tmp_path / "archive").copied_segments == 0
    assert snapshot(tmp_path / "archive") == before


def test_archive_keeps_segments_deleted_by_retention(store: Store, tmp_path: Path) -> None:
    store.archive(tmp_path / "archive")
    with store._table.writing(TopicPartition("orders", 0)) as log:
        log.delete_before(500)
    fill(store, 500)
    store.archive(tmp_path / "archive")
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        assert [record.offset for record in cold.log("orders", 0).scan()] == list(range(sealed_end(store.path)))


def test_log_start_offset_inside_first_segment_is_kept(store: Store, tmp_path: Path) -> None:
    with store._table.writing(TopicPartition("orders", 0)) as log:
        log.delete_before(55)
    store.archive(tmp_path / "archive")
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        assert cold.log("orders", 0).log_start_offset == 55


def test_gap_before_archiving_is_refused_or_allowed(store: Store, tmp_path: Path) -> None:
    store.archive(tmp_path / "archive")
    end = manifest_of(tmp_path / "archive").topics["orders"].partitions[0].end_offset
    fill(store, 1_000)
    with store._table.writing(TopicPartition("orders", 0)) as log:
        log.delete_before(end + 400)
    before = snapshot(tmp_path / "archive")
    with pytest.raises(ArchiveMismatch, match=f"ends before offset {end}.*allow_gaps"):
        store.archive(tmp_path / "archive")
    assert snapshot(tmp_path / "archive") == before
    store.archive(tmp_path / "archive", allow_gaps=True)
    assert manifest_of(tmp_path / "archive").topics["orders"].partitions[0].gaps == (
        (end, segment_bases(store.path / "orders-0")[0]),
    )


def test_segment_deleted_by_retention_during_copy_is_skipped(store: Store, tmp_path: Path) -> None:
    class Taking(CountingDepot):
        def put(self, path: str, parts: Iterable[bytes], *, is_new: bool = False) -> None:
            super().put(path, parts)
            if path.endswith(f"{0:020d}.log"):
                with store._table.writing(TopicPartition("orders", 0)) as log:
                    log.delete_before(segment_bases(store.path / "orders-0")[2])

    archive_to(Taking(tmp_path / "archive"), store)
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        log = cold.log("orders", 0)
        assert log.log_start_offset == segment_bases(store.path / "orders-0")[0] > 0
        check_same(cold, store)


def test_store_written_by_another_process_is_archived(store: Store, root: Path, tmp_path: Path) -> None:
    with seeklog.open(root, read_only=True) as onlooker:
        onlooker.archive(tmp_path / "archive")
        with seeklog.open(tmp_path / "archive", read_only=True) as cold:
            check_same(cold, onlooker)


# ---------------------------------------------------------------- a bucket


@pytest.mark.id("archive-requests")
def test_reading_one_record_of_archive_takes_four_requests(store: Store, s3: S3Server) -> None:
    """Goal: the manifest, the two indexes of the segment, and the part of the log with the record."""
    url = f"s3://{BUCKET}/four"
    store.archive(url, storage_options=s3.options)
    s3.traffic.clear()
    with seeklog.open(url, storage_options=s3.options) as cold:
        assert next(cold.log("orders", 0).read(543, max_records=1)).value == value_of(543, size=VALUE_BYTES)
    assert [method for method, _ in s3.traffic.requests] == ["GET"] * 4
    assert [path.rpartition(".")[2] for path in s3.traffic.of("GET")] == ["json?", "index?", "timeindex?", "log?"]
    manifest = len(s3.system.cat_file(f"{BUCKET}/four/{names.ARCHIVE}"))
    assert s3.traffic.size < manifest + FIRST_BYTES + 2_000


def test_seeking_to_time_in_archive_takes_no_more_requests(store: Store, s3: S3Server) -> None:
    url = f"s3://{BUCKET}/times"
    store.archive(url, storage_options=s3.options)
    s3.traffic.clear()
    with seeklog.open(url, storage_options=s3.options) as cold:
        assert cold.log("orders", 0).offset_at_time(START_MS + 543_000) == 543
    assert len(s3.traffic.requests) <= 5
    assert len(set(s3.traffic.of("GET", ".log"))) == 1


@pytest.mark.id("archive-bucket-missing")
def test_missing_bucket_is_not_created(store: Store, s3: S3Server) -> None:
    with pytest.raises(NotAccessible, match="s3://no-such-bucket"):
        store.archive("s3://no-such-bucket/archive", storage_options=s3.options)
    assert not s3.system.exists("no-such-bucket")


def test_unreachable_bucket_raises_seeklog_error(store: Store) -> None:
    patient = {"config_kwargs": {"connect_timeout": 1, "read_timeout": 1, "retries": {"max_attempts": 0}}}
    options = {"key": "k", "secret": "hunter2", "endpoint_url": "http://127.0.0.1:9", **patient}
    with pytest.raises(NotAccessible, match=r"cannot be archived to s3://cold/archive.*and the network") as caught:
        store.archive("s3://cold/archive", storage_options=options)
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_interrupted_upload_leaves_no_object(store: Store, s3: S3Server) -> None:
    depot = open_depot(f"s3://{BUCKET}/broken", storage_options=s3.options)

    def breaking() -> Iterator[bytes]:
        yield b"x" * (9 << 20)
        raise OSError(5, "the disk went away")

    with pytest.raises(OSError, match="disk went away"):
        depot.put("orders-0/x.log", breaking())
    assert depot.sizes("orders-0") == {}
    depot.put("orders-0/x.log", iter([b"y" * (9 << 20), b"z"]))
    assert depot.sizes("orders-0") == {"x.log": (9 << 20) + 1}
    assert b"".join(depot.read("orders-0/x.log")) == b"y" * (9 << 20) + b"z"


def test_archive_in_memory_grows(store: Store, memory: str) -> None:
    store.archive(memory)
    fill(store, 500)
    store.archive(memory)
    with seeklog.open(memory) as cold:
        check_same(cold, store)
    system = fsspec.filesystem("memory")
    assert sorted(Path(path).name for path in system.ls(memory, detail=False)) == ["orders-0", names.ARCHIVE]


def test_archive_to_a_missing_bucket_names_it_and_the_cure(s3: S3Server, store: Store) -> None:
    words = r"there is no bucket 'no-such-bucket', .* create it, with: aws s3 mb s3://no-such-bucket, or correct"
    for url in ("s3://no-such-bucket/cold", "s3://no-such-bucket"):
        with pytest.raises(NotAccessible, match=words):
            store.archive(url, storage_options=s3.options)
