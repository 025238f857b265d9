"""Archives of logs that are compacted before, during and after the copy."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import seeklog
from cold.workbench import SEGMENT_BYTES, CountingDepot, archive_to, check_same, fill, manifest_of
from log.workbench import FakeClock, Meanwhile, segment_bases
from seeklog import Store, TopicPartition, names
from seeklog.errors import NotAccessible
from seeklog.log.check.finding import Severity
from seeklog.log.check.inspection import inspect_partition
from store.workbench import open_store, snapshot


def compacted(root: Path, *, keep: int) -> None:
    """Do what compaction does to a closed topic: replace the first two segments by one with some of their records.

    It has the records whose offsets `keep` divides.
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


def test_compacted_segment_is_stored_beside_old_one_until_next_archiving(compact_root: Path, tmp_path: Path) -> None:
    """Goal: readers that opened the archive before can still read all of it; later ones read the source's records."""
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
def test_segment_compacted_during_copy_is_planned_again(compact_root: Path, tmp_path: Path) -> None:
    """Goal: the index of the new segment does not count as damage of the old one, even where it cannot be rebuilt.

    The archiver has another distance between entries than the writer had.
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
    """A stopped clock: a wait by it has no time limit."""

    def __init__(self) -> None:
        super().__init__()
        self.has_slept = threading.Event()

    def sleep(self, seconds: float) -> None:
        self.has_slept.set()


@pytest.mark.id("archive-waits-for-a-swap")
def test_archiving_waits_for_compaction_to_swap_segment(compact_root: Path, tmp_path: Path) -> None:
    """Goal: a part of the log is not archived, and an archive ahead of that part is not taken for another log's."""
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
def test_writable_store_finishes_interrupted_compaction_before_archiving(compact_root: Path, tmp_path: Path) -> None:
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
        with pytest.raises(NotAccessible, match=r"\.log\.swap is being swapped in by compaction.*open the partition"):
            onlooker.archive(archive)
        assert snapshot(archive) == before
    with open_store(compact_root, segment_bytes=SEGMENT_BYTES, background=False) as store:
        store.archive(archive)
        with seeklog.open(archive, read_only=True) as cold:
            check_same(cold, store)


def test_segments_before_lost_seal_are_archived(store: Store, root: Path, tmp_path: Path) -> None:
    second = segment_bases(root / "orders-0")[1]
    (root / "orders-0" / names.segment_name(second, names.SEAL)).unlink()
    store.archive(tmp_path / "archive")
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        assert [record.offset for record in cold.log("orders", 0).scan()] == list(range(second))


@pytest.mark.parametrize("is_compacted", [False, True])
def test_lost_seal_neither_shrinks_archive_nor_splits_compacted_log(
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
