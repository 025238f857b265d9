"""Archives: sealed segments copied byte for byte, again and again, interrupted, refused, and read like a store."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest

import seeklog
from cold.s3_server import BUCKET, S3Server
from interop.broker_directories import NAMES, expected_rows, rows
from interop.test_real_broker import unpacked
from interop.test_real_broker_store import partitions_of
from log.workbench import START_MS, FakeClock, Meanwhile, QuickFiles, segment_bases
from seeklog import Record, Store, TopicPartition, names
from seeklog.archive.archiving import archive as archive_source
from seeklog.archive.archiving import begin_archive, finish_archive
from seeklog.archive.copying import copy_segment
from seeklog.archive.manifest import Manifest, decode_manifest, encode_manifest
from seeklog.archive.planning import Rules, plan_archive
from seeklog.errors import (
    ArchiveMismatch,
    CorruptionError,
    LostRecords,
    NotAccessible,
    NotALog,
    TopicNotFound,
    UsageError,
)
from seeklog.files.depot import DirectoryDepot, open_depot
from seeklog.files.readahead import FIRST_BYTES
from seeklog.log.check.finding import Severity
from seeklog.log.check.inspection import inspect_partition
from seeklog.topics.description import Archived
from store.workbench import append, open_store, read, snapshot

__all__ = ["unpacked"]  # the fixture

SEGMENT_BYTES = 23_000


def value_of(number: int) -> bytes:
    return b"%0100d" % number


def fill(store: Store, count: int, *, topic: str = "orders", partition: int = 0) -> None:
    """Append batches of ten records, a second apart: about 20 of them are a segment. Then seal what was rolled."""
    with store._table.writing(TopicPartition(topic, partition)) as log:
        for first in range(log.log_end_offset, log.log_end_offset + count, 10):
            log.append_many(
                [Record(value_of(one), key=b"", timestamp_ms=START_MS + one * 1000) for one in range(first, first + 10)]
            )
        log.flush()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    """A store with a topic of two partitions, of which the first has records in five segments or six."""
    with open_store(root, segment_bytes=SEGMENT_BYTES) as store:
        store.create_topic("orders", partitions=2, config={"retention.ms": 3_600_000})
        fill(store, 1_000)
        append(store, "orders", [b"alone"], partition=1)
        yield store


def sealed_end(root: Path, partition: str = "orders-0") -> int:
    return segment_bases(root / partition)[-1]


def manifest_of(archive: Path) -> Manifest:
    return decode_manifest((archive / names.ARCHIVE).read_bytes(), path="")


def check_same(cold: Store, store: Store, *, topic: str = "orders", partition: int = 0) -> None:
    """Goal: the archive holds just the records below the source's last segment."""
    theirs, ours = store.log(topic, partition), cold.log(topic, partition)
    end = sealed_end(store.path, f"{topic}-{partition}")
    assert ours.high_watermark == ours.log_end_offset == end
    assert list(ours.scan()) == list(theirs.scan(ours.log_start_offset, end))


# ---------------------------------------------------------------- what is copied


@pytest.fixture(params=["directory", "file", "memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3")
        return f"s3://{BUCKET}/reads", server.options
    if request.param == "memory":
        return request.getfixturevalue("memory"), {}
    path = tmp_path / "deep" / "archive"
    return f"file://{path}" if request.param == "file" else str(path), {}


def open_cold(place: tuple[str, dict[str, Any]]) -> Store:
    return seeklog.open(place[0], storage_options=place[1] or None, read_only=True)


def test_an_archive_reads_as_the_sealed_part_of_its_store(store: Store, place: tuple[str, dict[str, Any]]) -> None:
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


def test_the_files_are_copied_byte_for_byte(store: Store, root: Path, tmp_path: Path) -> None:
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


def test_an_archive_is_a_kafka_directory_too(store: Store, tmp_path: Path) -> None:
    """Goal: without its manifest it is what a broker could start on, and opens for writing."""
    store.archive(tmp_path / "archive")
    (tmp_path / "archive" / names.ARCHIVE).unlink()
    end = sealed_end(store.path)
    with open_store(tmp_path / "archive", segment_bytes=SEGMENT_BYTES) as restored:
        assert read(restored, "orders") == [value_of(number) for number in range(end)]
        assert append(restored, "orders", [b"more"]) == range(end, end + 1)


def test_an_archive_is_not_opened_for_writing(store: Store, tmp_path: Path) -> None:
    store.archive(tmp_path / "archive")
    before = snapshot(tmp_path / "archive")
    with pytest.raises(UsageError, match="is an archive"):
        seeklog.open(tmp_path / "archive")
    assert snapshot(tmp_path / "archive") == before


def test_an_archive_of_an_archive_is_the_same(store: Store, tmp_path: Path) -> None:
    store.archive(tmp_path / "first")
    with seeklog.open(tmp_path / "first", read_only=True) as cold:
        cold.archive(tmp_path / "second")
    assert snapshot(tmp_path / "second") == snapshot(tmp_path / "first")


def test_an_inspection_of_an_archive_finds_nothing_wrong(store: Store, tmp_path: Path) -> None:
    store.archive(tmp_path / "archive")
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        assert inspect_partition(f"{cold.location}/orders-0", files=cold._files) == []
        path = next((tmp_path / "archive" / "orders-0").glob("*.log"))
        data = bytearray(path.read_bytes())
        data[500] ^= 1
        path.write_bytes(data)
        assert inspect_partition(f"{cold.location}/orders-0", files=cold._files) != []


@pytest.mark.parametrize("name", NAMES)
def test_what_a_broker_wrote_is_archived_and_reads_the_same(unpacked: Path, name: str, tmp_path: Path) -> None:
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
                assert log.high_watermark == segment_bases(unpacked / name / f"{topic}-{number}")[-1] or got
        # An archive of an archive is how one is restored: though a broker sealed nothing, all of it is final.
        assert cold.archive(tmp_path / "again").copied_segments == done.copied_segments
        with seeklog.open(tmp_path / "again", read_only=True) as again:
            for topic in cold.topics():
                for number in (one.partition for one in cold.describe_topic(topic).partitions):
                    assert list(again.log(topic, number).scan()) == list(cold.log(topic, number).scan())
                    assert again.log(topic, number).high_watermark == cold.log(topic, number).high_watermark
    assert partitions_of(name)


def test_only_the_topics_that_are_asked_for_are_archived(store: Store, tmp_path: Path) -> None:
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


# ---------------------------------------------------------------- again


class CountingDepot(DirectoryDepot):
    """A directory with a diary of what was put there and removed."""

    def __init__(self, path: Path, *, fail_at: int = -1) -> None:
        super().__init__(str(path), files=QuickFiles())
        self.puts: list[str] = []
        self.removed: list[str] = []
        self.fail_at = fail_at

    def put(self, path: str, parts: Iterable[bytes], *, is_new: bool = False) -> None:
        if len(self.puts) == self.fail_at:
            raise OSError(5, "the network went away", path)
        self.puts.append(path)
        super().put(path, parts)

    def remove(self, path: str) -> None:
        self.removed.append(path)
        super().remove(path)


def archive_to(depot: CountingDepot, store: Store, **rules: Any) -> Archived:
    return archive_source(store.archivable(), depot, Rules(**rules))


def test_a_second_archiving_copies_what_has_come_since(store: Store, tmp_path: Path) -> None:
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


def test_nothing_new_copies_nothing(store: Store, tmp_path: Path) -> None:
    store.archive(tmp_path / "archive")
    before = snapshot(tmp_path / "archive")
    assert store.archive(tmp_path / "archive").copied_segments == 0
    assert snapshot(tmp_path / "archive") == before


def test_an_archive_keeps_what_retention_deletes(store: Store, tmp_path: Path) -> None:
    store.archive(tmp_path / "archive")
    with store._table.writing(TopicPartition("orders", 0)) as log:
        log.delete_before(500)
    fill(store, 500)
    store.archive(tmp_path / "archive")
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        assert [record.offset for record in cold.log("orders", 0).scan()] == list(range(sealed_end(store.path)))


def test_a_start_inside_of_the_first_segment_is_kept(store: Store, tmp_path: Path) -> None:
    with store._table.writing(TopicPartition("orders", 0)) as log:
        log.delete_before(55)
    store.archive(tmp_path / "archive")
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        assert cold.log("orders", 0).log_start_offset == 55


def test_offsets_that_were_deleted_before_they_were_archived_are_refused_or_allowed(
    store: Store, tmp_path: Path
) -> None:
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


def test_a_segment_that_retention_takes_while_it_is_copied_is_passed_over(store: Store, tmp_path: Path) -> None:
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


def test_a_store_that_another_process_writes_is_archived(store: Store, root: Path, tmp_path: Path) -> None:
    with seeklog.open(root, read_only=True) as onlooker:
        onlooker.archive(tmp_path / "archive")
        with seeklog.open(tmp_path / "archive", read_only=True) as cold:
            check_same(cold, onlooker)


# ---------------------------------------------------------------- compaction


def compacted(root: Path, *, keep: int) -> None:
    """Do to a closed topic what compaction does: one segment in the place of the first two, with some of their records.

    Its records are those whose offsets `keep` divides.
    """
    directory = root / "orders-0"
    first, second, third = segment_bases(directory)[:3]
    with seeklog.LogReader(directory) as log:
        kept = [batch for batch in log.read_batches(first, max_bytes=10**9) if batch.header.base_offset < third]
    data = b"".join(bytes(batch.raw) for number, batch in enumerate(kept) if number % keep == 0)
    for base in (first, second):
        for path in directory.glob(f"{base:020d}.*"):
            path.unlink()
    (directory / f"{first:020d}.log").write_bytes(data)
    (directory / names.CHECKPOINT).unlink()
    for path in directory.glob("*.seal"):
        path.unlink()
    with open_store(root, segment_bytes=SEGMENT_BYTES) as store, store._table.writing(TopicPartition("orders", 0)):
        pass


@pytest.fixture
def compact_root(root: Path) -> Path:
    with open_store(root, segment_bytes=SEGMENT_BYTES) as store:
        store.create_topic("orders", partitions=1, config={"cleanup.policy": "compact"})
        fill(store, 1_000)
    return root


def test_a_segment_that_compaction_replaced_is_stored_beside_the_old_one_until_the_next_time(
    compact_root: Path, tmp_path: Path
) -> None:
    """Goal: who opened the archive before still reads all of it; who opens it after reads what the source has."""
    archive = tmp_path / "archive"
    with open_store(compact_root, segment_bytes=SEGMENT_BYTES) as store:
        store.archive(archive)
    original = {path.name: path.read_bytes() for path in (archive / "orders-0").glob("*.log")}
    with seeklog.open(archive, read_only=True) as early:
        first = list(early.log("orders", 0).scan())
    with seeklog.open(archive, read_only=True) as early:
        compacted(compact_root, keep=2)
        with open_store(compact_root, segment_bytes=SEGMENT_BYTES) as store:
            done = store.archive(archive)
            assert done.copied_segments >= 1
            assert list(early.log("orders", 0).scan()) == first
            with seeklog.open(archive, read_only=True) as late:
                check_same(late, store)
            assert all((archive / "orders-0" / name).read_bytes() == data for name, data in original.items())
        compacted(compact_root, keep=3)
        with open_store(compact_root, segment_bytes=SEGMENT_BYTES) as store:
            assert store.archive(archive).removed_files > 0
            with seeklog.open(archive, read_only=True) as late:
                check_same(late, store)
                found = inspect_partition(f"{late.location}/orders-0", files=late._files)
                assert [one for one in found if one.severity is not Severity.NOTE] == []
    assert not (archive / "orders-0" / f"{0:020d}.log").exists()
    named = set(manifest_of(archive).paths()) | set(manifest_of(archive).replaced)
    assert {f"orders-0/{name}" for name in os.listdir(archive / "orders-0")} == named


@pytest.mark.id("archive-beside-compaction")
def test_a_segment_that_is_compacted_while_it_is_copied_is_looked_at_again(compact_root: Path, tmp_path: Path) -> None:
    """Goal: the index of the new segment is no damage of the old one's, also for who cannot make it again.

    The archiver knows another distance between entries than the writer had.
    """
    with (
        open_store(compact_root, segment_bytes=SEGMENT_BYTES) as writer,
        open_store(compact_root, read_only=True, index_interval_bytes=10_000) as onlooker,
    ):

        class Compacting(CountingDepot):
            def put(self, path: str, parts: Iterable[bytes], *, is_new: bool = False) -> None:
                super().put(path, parts, is_new=is_new)
                if path.endswith(f"{0:020d}.log"):
                    writer.compact("orders")

        archive_to(Compacting(tmp_path / "archive"), onlooker)
        with seeklog.open(tmp_path / "archive", read_only=True) as cold:
            assert cold.log("orders", 0).last() is not None
            check_same(cold, writer)


class PatientClock(FakeClock):
    """A clock that stands still: whoever waits by it waits until what is waited for has happened."""

    def __init__(self) -> None:
        super().__init__()
        self.has_slept = threading.Event()

    def sleep(self, seconds: float) -> None:
        self.has_slept.set()


@pytest.mark.id("archive-waits-for-a-swap")
def test_what_is_archived_while_compaction_swaps_a_segment_waits_for_it(compact_root: Path, tmp_path: Path) -> None:
    """Goal: neither is a part of the log archived, nor is an archive that is ahead of that part taken for another's."""
    archive = tmp_path / "archive"
    disk = Meanwhile()
    clock, was_there = PatientClock(), []
    with (
        open_store(compact_root, segment_bytes=SEGMENT_BYTES, files=disk) as writer,
        open_store(compact_root, read_only=True, clock=clock) as onlooker,
        ThreadPoolExecutor(1) as threads,
    ):
        onlooker.archive(archive)
        under_way = []

        def archive_now() -> None:
            was_there.extend(path.name for path in (compact_root / "orders-0").glob("*.log.swap"))
            under_way.append(threads.submit(onlooker.archive, archive))
            assert clock.has_slept.wait(60)

        disk.before("rename", f"{0:020d}.log", archive_now)
        writer.compact("orders")
        assert was_there == [f"{0:020d}.log.swap"]
        under_way[0].result(60)
        with seeklog.open(archive, read_only=True) as cold:
            check_same(cold, writer)


@pytest.mark.id("archive-finishes-compaction")
def test_a_compaction_that_a_crash_ended_is_finished_by_a_writer_when_it_archives(
    compact_root: Path, tmp_path: Path
) -> None:
    archive, partition = tmp_path / "archive", compact_root / "orders-0"
    with open_store(compact_root, read_only=True) as onlooker:
        onlooker.archive(archive)
    disk, dead = Meanwhile(), tmp_path / "dead"
    disk.before("rename", f"{0:020d}.log", lambda: shutil.copytree(compact_root, dead))
    with open_store(compact_root, segment_bytes=SEGMENT_BYTES, files=disk) as writer:
        writer.compact("orders")
    shutil.rmtree(compact_root)
    dead.rename(compact_root)
    assert [path.name for path in partition.glob("*.log.swap")] == [f"{0:020d}.log.swap"]
    before = snapshot(archive)
    with open_store(compact_root, read_only=True) as onlooker:
        with pytest.raises(NotAccessible, match=r"\.log\.swap is being put in the place of others.*a writer open"):
            onlooker.archive(archive)
        assert snapshot(archive) == before
    with open_store(compact_root, segment_bytes=SEGMENT_BYTES, background=False) as store:
        store.archive(archive)
        with seeklog.open(archive, read_only=True) as cold:
            check_same(cold, store)


def test_where_a_crash_took_a_seal_what_stands_before_it_is_archived(store: Store, root: Path, tmp_path: Path) -> None:
    second = segment_bases(root / "orders-0")[1]
    (root / "orders-0" / names.segment_name(second, names.SEAL)).unlink()
    store.archive(tmp_path / "archive")
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        assert [record.offset for record in cold.log("orders", 0).scan()] == list(range(second))


@pytest.mark.parametrize("is_compacted", [False, True])
def test_where_a_seal_is_gone_an_archive_neither_shrinks_nor_gets_a_part_of_a_compacted_log(
    store: Store, root: Path, tmp_path: Path, is_compacted: bool
) -> None:
    if is_compacted:
        store.alter_topic("orders", {"cleanup.policy": "compact"})
    else:
        store.archive(tmp_path / "archive")
    (root / "orders-0" / names.segment_name(segment_bases(root / "orders-0")[1], names.SEAL)).unlink()
    before = snapshot(tmp_path / "archive") if not is_compacted else {}
    with pytest.raises(NotAccessible, match="has lost its seal"):
        store.archive(tmp_path / "archive")
    assert not before or snapshot(tmp_path / "archive") == before


# ---------------------------------------------------------------- what is refused


def test_a_topic_made_anew_under_its_name_is_refused(store: Store, tmp_path: Path) -> None:
    store.archive(tmp_path / "archive")
    store.delete_topic("orders")
    store.create_topic("orders", partitions=2)
    fill(store, 1_000)
    before = snapshot(tmp_path / "archive")
    with pytest.raises(ArchiveMismatch, match="recreated"):
        store.archive(tmp_path / "archive")
    assert snapshot(tmp_path / "archive") == before


@pytest.mark.id("archive-of-a-recreated-topic")
def test_a_topic_made_anew_while_it_is_archived_is_refused(store: Store, root: Path, tmp_path: Path) -> None:
    """Goal: no archive holds partitions of two topics, or of one under the other's id."""
    store.create_topic("first", partitions=1)
    fill(store, 1_000, topic="first")
    store.close()
    anew: list[str] = []

    def make_anew(copied: int, total: int) -> None:
        if not anew:
            with open_store(root, segment_bytes=SEGMENT_BYTES) as other:
                other.delete_topic("orders")
                other.create_topic("orders", partitions=2)
                for _ in range(200):
                    append(other, "orders", [b"new" * 30] * 10)
                anew.append(other.describe_topic("orders").topic_id)

    with open_store(root, read_only=True) as reader:
        with pytest.raises(ArchiveMismatch, match="recreated while it was archived"):
            reader.archive(tmp_path / "archive", progress=make_anew)
        reader._topics.refresh()
        reader.archive(tmp_path / "archive")
    assert manifest_of(tmp_path / "archive").topics["orders"].topic_id == anew[0]


@pytest.mark.id("archive-of-a-rewritten-log")
def test_a_log_that_was_cut_and_written_otherwise_is_refused(store: Store, tmp_path: Path) -> None:
    store.archive(tmp_path / "archive")
    before = snapshot(tmp_path / "archive")
    with store._table.writing(TopicPartition("orders", 0)) as log:
        log.truncate_to(500)
    with pytest.raises(ArchiveMismatch, match="its log was cut"):
        store.archive(tmp_path / "archive")
    with store._table.writing(TopicPartition("orders", 0)) as log:
        for number in range(500, 1500, 10):
            log.append_many([Record(b"other %094d" % number, timestamp_ms=START_MS)] * 10)
        log.flush()
    with pytest.raises(ArchiveMismatch, match=r"is not the one that the source has|inside of another segment"):
        store.archive(tmp_path / "archive")
    assert snapshot(tmp_path / "archive") == before


def test_a_place_that_holds_other_things_is_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    with pytest.raises(ArchiveMismatch, match=r"no archive and not empty: it holds 'letter\.txt'"):
        store.archive(tmp_path / "home")
    with pytest.raises(UsageError, match="lies in the store itself"):
        store.archive(store.path / "archive")
    with open_store(tmp_path / "other") as other:
        other.create_topic("t")
    with pytest.raises(ArchiveMismatch, match="not empty"):
        store.archive(tmp_path / "other")
    assert os.listdir(tmp_path / "home") == ["letter.txt"]


def test_an_unknown_way_to_verify_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="verify is one of"):
        store.archive(tmp_path / "archive", verify="not at all")  # type: ignore[arg-type]
    assert not (tmp_path / "archive").exists()


def test_damage_at_the_source_is_named_and_not_archived(store: Store, root: Path, tmp_path: Path) -> None:
    path = root / "orders-0" / f"{segment_bases(root / 'orders-0')[1]:020d}.log"
    data = bytearray(path.read_bytes())
    data[1_000] ^= 4
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match=path.name):
        store.archive(tmp_path / "archive")
    with pytest.raises(NotALog, match="only been begun"):
        seeklog.open(tmp_path / "archive", read_only=True)
    data[1_000] ^= 4
    path.write_bytes(data)
    store.archive(tmp_path / "archive")
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        check_same(cold, store)


def test_a_damaged_index_at_the_source_is_made_anew_in_the_archive(store: Store, root: Path, tmp_path: Path) -> None:
    path = root / "orders-0" / f"{0:020d}.index"
    whole = path.read_bytes()
    path.write_bytes(whole[:-8] + b"\xff" * 8)
    store.archive(tmp_path / "archive")
    assert (tmp_path / "archive" / "orders-0" / path.name).read_bytes() == whole


def test_a_copy_that_arrives_damaged_is_noticed(store: Store, tmp_path: Path) -> None:
    class Flipping(CountingDepot):
        def put(self, path: str, parts: Iterable[bytes], *, is_new: bool = False) -> None:
            super().put(path, parts)
            if path.endswith(".timeindex"):
                file = Path(self.location, path)
                file.write_bytes(file.read_bytes()[:-1] + b"\x55")

    with pytest.raises(CorruptionError, match=r"timeindex: what was copied there has the CRC"):
        archive_to(Flipping(tmp_path / "archive"), store)
    with pytest.raises(NotALog):
        seeklog.open(tmp_path / "archive", read_only=True)
    archive_to(Flipping(tmp_path / "other"), store, verify="size")
    # It has not kept the name of the good one, which the next archiving puts there.
    store.archive(tmp_path / "archive")
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        check_same(cold, store)


@pytest.mark.id("archive-files-missing")
def test_files_that_the_manifest_names_and_that_are_not_there_are_refused_or_copied_again(
    store: Store, tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    store.archive(archive)
    whole = snapshot(archive)
    gone, short = sorted((archive / "orders-0").glob("*.log"))[:2]
    gone.unlink()
    short.write_bytes(short.read_bytes()[:-5])
    before = snapshot(archive)
    with pytest.raises(CorruptionError, match=f"{gone.name}.*is not there; archive with repair=True"):
        store.archive(archive)
    assert snapshot(archive) == before
    with seeklog.open(archive, read_only=True) as cold:
        with pytest.raises(LostRecords, match="is gone"):
            list(cold.log("orders", 0).scan())
        with pytest.raises(LostRecords, match="ends after"):
            list(cold.log("orders", 0).scan(segment_bases(store.path / "orders-0")[1]))
    store.archive(archive, repair=True)
    assert snapshot(archive) == whole


def test_repair_cannot_bring_back_what_the_source_has_no_more(store: Store, tmp_path: Path) -> None:
    store.archive(tmp_path / "archive")
    (tmp_path / "archive" / "orders-0" / f"{0:020d}.log").unlink()
    with store._table.writing(TopicPartition("orders", 0)) as log:
        log.delete_before(500)
    with pytest.raises(CorruptionError, match="is not there"):
        store.archive(tmp_path / "archive", repair=True)


def test_two_archivings_at_once_do_not_lose_each_others_work(store: Store, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    depot = CountingDepot(archive)
    rules = Rules()
    plan = plan_archive(store.archivable(), depot, rules)
    plan = begin_archive(plan, depot)
    entries = [copy_segment(copy, store._files, depot, rules) for copy in plan.copies]
    store.archive(archive)
    with pytest.raises(ArchiveMismatch, match="somebody else has archived"):
        finish_archive(plan, entries, depot)
    with seeklog.open(archive, read_only=True) as cold:
        check_same(cold, store)


# ---------------------------------------------------------------- a manifest that is not what it should be


def test_every_byte_of_a_manifest_counts(store: Store, tmp_path: Path) -> None:
    """Goal: a flipped bit is an error, or changes nothing that is read."""
    store.archive(tmp_path / "archive")
    path = tmp_path / "archive" / names.ARCHIVE
    whole = path.read_bytes()
    manifest = decode_manifest(whole, path="")
    for position in range(0, len(whole), 7):
        data = bytearray(whole)
        data[position] ^= 1 << (position % 7)
        with contextlib.suppress(CorruptionError):
            assert decode_manifest(bytes(data), path="m") == manifest
    for cut in range(0, len(whole) - 1, 101):
        with pytest.raises(CorruptionError):
            decode_manifest(whole[:cut], path="m")


def _signed(change: Any) -> Any:
    """Return what changes a manifest's content and makes its CRC fit."""

    def changed(document: dict[str, Any]) -> dict[str, Any]:
        change(document["content"])
        text = json.dumps(document["content"], sort_keys=True, separators=(",", ":"))
        return {**document, "crc32c": f"{seeklog.record.crc.crc32c(text.encode()):08x}"}

    return changed


def _segment(content: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = content["topics"][0]["partitions"][0]["segments"][0]
    return found


@pytest.mark.id("archive-manifest-invalid")
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda document: {**document, "version": 2}, "version 2"),
        (lambda document: {**document, "format": "zip"}, "format"),
        (lambda document: {**document, "crc32c": "00000000"}, "fails its CRC"),
        (lambda document: [document], "does not parse"),
        (_signed(lambda content: content["topics"][0].update(topic="../up")), "cannot name a topic"),
        (_signed(lambda content: content["topics"][0].update(config={"no.such.word": 1})), "no.such.word"),
        (_signed(lambda content: _segment(content).update(stem="../../etc/passwd")), "does not name the segment"),
        (_signed(lambda content: _segment(content).update(base_offset=-1)), "no number"),
        (_signed(lambda content: _segment(content).update(next_offset=10**6)), "lie over each other"),
        (_signed(lambda content: _segment(content)["files"].pop(".log")), "not those of one"),
        (
            _signed(lambda content: _segment(content)["files"].update({"/../x": {"size": 1, "crc32c": "0"}})),
            "not those",
        ),
        (_signed(lambda content: content.update(replaced=["../../x.log"])), "no file of a segment"),
        (
            _signed(lambda content: content["topics"][0]["partitions"][0].update(files={"x": {"size": 1}})),
            "no file of a partition",
        ),
        (_signed(lambda content: content.pop("topics")), "topics"),
    ],
)
def test_a_manifest_that_cannot_be_is_refused_by_readers_and_archivers(
    store: Store, tmp_path: Path, change: Any, told: str
) -> None:
    archive = tmp_path / "archive"
    store.archive(archive)
    path = archive / names.ARCHIVE
    path.write_text(json.dumps(change(json.loads(path.read_bytes()))))
    before = snapshot(archive)
    with pytest.raises(CorruptionError, match=told):
        seeklog.open(archive, read_only=True)
    with pytest.raises(CorruptionError, match=told):
        store.archive(archive)
    assert snapshot(archive) == before


def test_an_empty_archive_has_no_topic(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.create_topic("orders", partitions=1)
        assert store.archive(tmp_path / "archive").copied_segments == 0
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        assert cold.describe_topic("orders").partitions == ()
    assert encode_manifest(Manifest()) != encode_manifest(Manifest(is_complete=False))


# ---------------------------------------------------------------- interrupted


@pytest.mark.id("archive-fails-at-any-file")
def test_an_archiving_that_fails_at_any_file_is_completed_by_the_next(store: Store, root: Path, tmp_path: Path) -> None:
    """Goal: whatever was copied, the manifest names only what is whole; nothing whole is copied twice."""
    complete = CountingDepot(tmp_path / "complete")
    archive_to(complete, store)
    for fail_at in range(len(complete.puts)):
        archive = tmp_path / f"archive {fail_at}"
        with pytest.raises(NotAccessible, match="went away"):
            archive_to(CountingDepot(archive, fail_at=fail_at), store)
        if fail_at:
            with pytest.raises(NotALog):
                seeklog.open(archive, read_only=True)
        depot = CountingDepot(archive)
        archive_to(depot, store)
        assert snapshot(archive) == snapshot(tmp_path / "complete")
        segments = [path for path in depot.puts if names.parse_segment_name(path.rpartition("/")[2])]
        assert len(segments) == len(
            [path for path in complete.puts[max(fail_at, 1) :] if ".log" in path or "0." in path]
        )
        shutil.rmtree(archive)


def test_half_a_file_that_a_kill_left_under_its_name_is_written_anew(store: Store, tmp_path: Path) -> None:
    """Goal: as it happens on file systems behind a URL that show a file while it grows."""
    archive = tmp_path / "archive"
    with pytest.raises(NotAccessible, match="went away"):
        archive_to(CountingDepot(archive, fail_at=2), store)
    log = archive / "orders-0" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes()[:777])
    archive_to(CountingDepot(archive), store)
    with seeklog.open(archive, read_only=True) as cold:
        check_same(cold, store)


@pytest.mark.id("archive-foreign-file")
@pytest.mark.parametrize("data", [b"something else", b"x" * 100_000])
def test_another_file_under_a_segments_name_is_not_overwritten(store: Store, tmp_path: Path, data: bytes) -> None:
    archive = tmp_path / "archive"
    with pytest.raises(NotAccessible, match="went away"):
        archive_to(CountingDepot(archive, fail_at=2), store)
    log = archive / "orders-0" / f"{0:020d}.log"
    log.write_bytes(data)
    with pytest.raises(ArchiveMismatch, match="is another file"):
        store.archive(archive)
    assert log.read_bytes() == data


CHILD = """
import os, signal, sys
import seeklog
from seeklog.files import depot

after, root, target = int(sys.argv[1]), sys.argv[2], sys.argv[3]
count = 0
passing = depot.DirectoryDepot.put

def put(self, path, parts, *, is_new=False):
    def dying():
        global count
        for part in parts:
            count += 1
            if count == after:
                os.kill(os.getpid(), signal.SIGKILL)
            yield part
    passing(self, path, dying())

depot.DirectoryDepot.put = put
with seeklog.open(root, read_only=True) as store:
    store.archive(target)
"""


def killed_after(parts: int, root: Path, archive: Path) -> int:
    """Archive in a process that is killed when it has so many parts of files in its hands; return how it ended."""
    arguments = [sys.executable, "-c", CHILD, str(parts), str(root), str(archive)]
    return subprocess.run(arguments, check=False).returncode


@pytest.mark.id("archive-killed")
def test_an_archiving_that_is_killed_is_completed_by_the_next(store: Store, root: Path, tmp_path: Path) -> None:
    for after in (1, 2, 3, 9, 14):
        archive = tmp_path / f"archive {after}"
        assert killed_after(after, root, archive) == -signal.SIGKILL
        if after > 1:
            with pytest.raises(NotALog):
                seeklog.open(archive, read_only=True)
        store.archive(archive)
        with seeklog.open(archive, read_only=True) as cold:
            check_same(cold, store)
        assert list(archive.rglob("*.tmp")) == []


@pytest.mark.id("archive-growth-killed")
def test_a_kill_while_an_archive_grows_leaves_the_one_that_was(store: Store, root: Path, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    store.archive(archive)
    end = sealed_end(root)
    fill(store, 600)
    assert killed_after(3, root, archive) == -signal.SIGKILL
    with seeklog.open(archive, read_only=True) as cold:
        assert cold.log("orders", 0).high_watermark == end
        assert len(list(cold.log("orders", 0).scan())) == end
    store.archive(archive)
    with seeklog.open(archive, read_only=True) as cold:
        check_same(cold, store)


@pytest.fixture
def twice(tmp_path: Path) -> DirectoryDepot:
    """A directory to which two attempts of one task copy."""
    return DirectoryDepot(str(tmp_path / "archive"), files=QuickFiles())


@pytest.mark.id("archive-attempt-overtaken")
def test_an_attempt_that_another_overtakes_does_not_write_into_its_file(twice: DirectoryDepot) -> None:
    def late() -> Iterator[bytes]:
        yield b"late"
        twice.put("orders-0/x.log", [b"in time, and read back"])
        yield b"and goes on"
        raise OSError(5, "killed at last")

    with pytest.raises(OSError, match="killed at last"):
        twice.put("orders-0/x.log", late())
    assert b"".join(twice.read("orders-0/x.log")) == b"in time, and read back"
    assert os.listdir(f"{twice.location}/orders-0") == ["x.log"]


def test_an_attempt_that_ends_while_another_writes_takes_nothing_away_from_it(twice: DirectoryDepot) -> None:
    def failing() -> Iterator[bytes]:
        yield b"x"
        raise OSError(5, "the network went away")

    def slow() -> Iterator[bytes]:
        yield b"first, "
        with pytest.raises(OSError, match="went away"):
            twice.put("orders-0/x.log", failing())
        yield b"second"

    twice.put("orders-0/x.log", slow())
    assert b"".join(twice.read("orders-0/x.log")) == b"first, second"


def test_a_file_that_gets_its_name_while_a_directory_is_listed_is_no_error(tmp_path: Path) -> None:
    files = Meanwhile()
    (tmp_path / "orders-0").mkdir()
    for name in ("a.log", "b.log.tmp"):
        (tmp_path / "orders-0" / name).write_bytes(b"abc")
    files.before("file_size", "a.log", lambda: (tmp_path / "orders-0/b.log.tmp").rename(tmp_path / "orders-0/b.log"))

    assert DirectoryDepot(str(tmp_path), files=files).sizes("orders-0")["a.log"] == 3
    assert files.is_over


def test_a_new_file_does_not_take_the_place_of_one_that_came_first(twice: DirectoryDepot) -> None:
    twice.put("orders-0/x.log", [b"first"], is_new=True)
    with pytest.raises(FileExistsError):
        twice.put("orders-0/x.log", [b"other"], is_new=True)
    assert snapshot(Path(twice.location, "orders-0")) == {"x.log": b"first"}


@pytest.mark.id("archive-leftovers")
def test_what_killed_attempts_left_is_removed_and_other_names_are_not(store: Store, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    store.archive(archive)
    before = snapshot(archive)
    for left in (archive / names.ARCHIVE, archive / "orders-0" / f"{0:020d}.log"):
        Path(names.temporary_name(str(left), "0123456789abcdef" * 2)).write_bytes(b"half")
    (archive / "orders-0" / "mine.tmp").write_bytes(b"mine")
    store.archive(archive)
    assert snapshot(archive) == {**before, "orders-0/mine.tmp": b"mine"}


# ---------------------------------------------------------------- a bucket


@pytest.mark.id("archive-requests")
def test_one_record_of_an_archive_takes_four_requests(store: Store, s3: S3Server) -> None:
    """Goal: the manifest, the two indexes of the segment, and the part of the log that holds the record."""
    url = f"s3://{BUCKET}/four"
    store.archive(url, storage_options=s3.options)
    s3.traffic.clear()
    with seeklog.open(url, storage_options=s3.options) as cold:
        assert next(cold.log("orders", 0).read(543, max_records=1)).value == value_of(543)
    assert [method for method, _ in s3.traffic.requests] == ["GET"] * 4
    assert [path.rpartition(".")[2] for path in s3.traffic.of("GET")] == ["json?", "index?", "timeindex?", "log?"]
    manifest = len(s3.system.cat_file(f"{BUCKET}/four/{names.ARCHIVE}"))
    assert s3.traffic.size < manifest + FIRST_BYTES + 2_000


def test_a_time_in_an_archive_takes_no_more(store: Store, s3: S3Server) -> None:
    url = f"s3://{BUCKET}/times"
    store.archive(url, storage_options=s3.options)
    s3.traffic.clear()
    with seeklog.open(url, storage_options=s3.options) as cold:
        assert cold.log("orders", 0).offset_at_time(START_MS + 543_000) == 543
    assert len(s3.traffic.requests) <= 5
    assert len(set(s3.traffic.of("GET", ".log"))) == 1


@pytest.mark.id("archive-bucket-missing")
def test_a_bucket_that_is_not_there_is_not_made(store: Store, s3: S3Server) -> None:
    with pytest.raises(NotAccessible, match="s3://no-such-bucket"):
        store.archive("s3://no-such-bucket/archive", storage_options=s3.options)
    assert not s3.system.exists("no-such-bucket")


def test_a_bucket_that_cannot_be_reached_is_our_error(store: Store) -> None:
    patient = {"config_kwargs": {"connect_timeout": 1, "read_timeout": 1, "retries": {"max_attempts": 0}}}
    options = {"key": "k", "secret": "hunter2", "endpoint_url": "http://127.0.0.1:9", **patient}
    with pytest.raises(NotAccessible, match=r"cannot be archived to s3://cold/archive.*and the network") as caught:
        store.archive("s3://cold/archive", storage_options=options)
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_upload_that_breaks_off_shows_no_object(store: Store, s3: S3Server) -> None:
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


def test_an_archive_in_memory_grows_too(store: Store, memory: str) -> None:
    store.archive(memory)
    fill(store, 500)
    store.archive(memory)
    with seeklog.open(memory) as cold:
        check_same(cold, store)
    system = fsspec.filesystem("memory")
    assert sorted(Path(path).name for path in system.ls(memory, detail=False)) == ["orders-0", names.ARCHIVE]
