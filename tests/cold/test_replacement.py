"""Replacing archived segments: only a compaction of the same records may replace them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import seeklog
from cold.workbench import SEGMENT_BYTES, CountingDepot, archive_to, check_same, manifest_of
from log.workbench import START_MS, segment_bases
from seeklog import Record, Store, TopicPartition, names
from seeklog.archive.archiving import finish_archive
from seeklog.archive.copying import copy_segment
from seeklog.archive.planning import Rules, plan_archive
from seeklog.archive.replacement import records_in
from seeklog.errors import ArchiveMismatch, CorruptBatch, CorruptionError
from seeklog.log.check import repair
from seeklog.store import archive_source
from store.workbench import open_store, snapshot

PARTITION = TopicPartition("orders", 0)
# Each key occurs about three times in the first archive, so that compaction removes records of most batches.
KEYS = 300


def fill(store: Store, count: int, *, word: bytes = b"first") -> None:
    """Append batches of ten records; a segment has about twenty batches."""
    with store._table.writing(PARTITION) as log:
        for first in range(log.log_end_offset, log.log_end_offset + count, 10):
            log.append_many(
                [
                    Record(b"%s%0100d" % (word, one), key=b"%d" % (one % KEYS), timestamp_ms=START_MS + one)
                    for one in range(first, first + 10)
                ]
            )
        log.flush()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def store(root: Path, archive: Path) -> Iterator[Store]:
    """A store with a compacted topic that was archived before its first compaction."""
    with open_store(root, segment_bytes=SEGMENT_BYTES) as store:
        store.create_topic("orders", partitions=1, config={"cleanup.policy": "compact"})
        fill(store, 1_000)
        store.archive(archive)
        yield store


def offsets_in(archive: Path) -> list[int]:
    with seeklog.open(archive, read_only=True) as cold:
        return [record.offset for record in cold.log("orders", 0).scan()]


def refused(store: Store, archive: Path, match: str, error: type[Exception] = ArchiveMismatch) -> None:
    """Goal: the archive is unchanged."""
    before = snapshot(archive)
    with pytest.raises(error, match=match):
        store.archive(archive)
    assert snapshot(archive) == before


def test_compacted_segments_replace_archived_ones(store: Store, archive: Path) -> None:
    there = len(offsets_in(archive))
    for _ in range(3):
        store.compact("orders")
        store.archive(archive)
        with seeklog.open(archive, read_only=True) as cold:
            check_same(cold, store)
        fill(store, 600)
    assert len(offsets_in(archive)) < there


# ---------------------------------------------------------------- repaired segments


def rotten(root: Path) -> tuple[Path, int]:
    """Change a byte of a record in the second segment. Return its log, and its base offset."""
    base_offset = segment_bases(root / "orders-0")[1]
    path = root / "orders-0" / names.segment_name(base_offset, names.LOG)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x40
    path.write_bytes(data)
    return path, base_offset


@pytest.fixture
def repaired(store: Store, root: Path) -> range:
    """The offsets that a repair has given up in a segment that is complete in the archive."""
    store.close()
    rotten(root)
    (loss,) = repair(root / "orders-0").losses
    return range(loss.first_offset, loss.next_offset)


@pytest.mark.id("archive-of-a-repaired-log")
def test_repaired_segment_does_not_replace_complete_one(repaired: range, root: Path, archive: Path) -> None:
    with open_store(root, segment_bytes=SEGMENT_BYTES) as store:
        refused(store, archive, f"holds offset {repaired[0]}, which a repair of the source has given up")
        fill(store, 600)
        refused(store, archive, "may be the last copy")
        store.compact("orders")
        refused(store, archive, "Copy the segment back from there")
    assert set(repaired) <= set(offsets_in(archive))


def test_repaired_segment_does_not_replace_one_with_lost_side_file(repaired: range, root: Path, archive: Path) -> None:
    (archive / "orders-0" / names.segment_name(segment_bases(root / "orders-0")[1], names.TIME_INDEX)).unlink()
    before = snapshot(archive)
    with (
        open_store(root, segment_bytes=SEGMENT_BYTES) as store,
        pytest.raises(ArchiveMismatch, match="may be the last copy"),
    ):
        store.archive(archive, repair=True)
    assert snapshot(archive) == before


def test_lost_offsets_reused_after_truncation_are_not_a_loss(repaired: range, root: Path, tmp_path: Path) -> None:
    """Goal: records removed by compaction of the new log were not given up by the repair of the old one."""
    with open_store(root, segment_bytes=SEGMENT_BYTES) as store:
        with store._table.writing(PARTITION) as log:
            log.truncate_to(0)
        fill(store, 1_000, word=b"second")
        for _ in range(2):
            store.archive(tmp_path / "later")
            with seeklog.open(tmp_path / "later", read_only=True) as cold:
                check_same(cold, store)
            store.compact("orders")


def test_segment_copied_back_from_archive_is_not_a_loss(repaired: range, root: Path, archive: Path) -> None:
    base_offset = segment_bases(root / "orders-0")[1]
    for path in (archive / "orders-0").glob(f"{base_offset:020d}.*"):
        shutil.copy(path, root / "orders-0" / path.name)
    (root / "orders-0" / names.LOSSES).unlink()
    with open_store(root, segment_bytes=SEGMENT_BYTES) as store:
        assert store.archive(archive).copied_segments == 0
        store.compact("orders")
        store.archive(archive)
        with seeklog.open(archive, read_only=True) as cold:
            check_same(cold, store)


def test_archive_without_lost_offsets_continues(repaired: range, root: Path, tmp_path: Path) -> None:
    with open_store(root, segment_bytes=SEGMENT_BYTES) as store:
        store.archive(tmp_path / "later")
        store.compact("orders")
        store.archive(tmp_path / "later")
        with seeklog.open(tmp_path / "later", read_only=True) as cold:
            check_same(cold, store)
    assert not set(repaired).intersection(offsets_in(tmp_path / "later"))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda data: data.replace(b"lost ", b"kept "), "the list of lost offsets fails its CRC"),
        (
            lambda _: seeklog.record.framed.encode_framed("seeklog-losses 1", ["lost some"]),
            "does not name lost offsets",
        ),
    ],
)
def test_damaged_list_of_lost_offsets_is_not_taken_as_empty(
    repaired: range, root: Path, archive: Path, change: object, told: str
) -> None:
    path = root / "orders-0" / names.LOSSES
    path.write_bytes(change(path.read_bytes()))  # type: ignore[operator]
    with open_store(root, segment_bytes=SEGMENT_BYTES) as store:
        refused(store, archive, told, CorruptionError)


# ---------------------------------------------------------------- truncated logs


@pytest.mark.parametrize("is_compacted", [False, True])
def test_compacted_log_truncated_and_rewritten_is_refused(
    store: Store, root: Path, archive: Path, is_compacted: bool
) -> None:
    with store._table.writing(PARTITION) as log:
        log.truncate_to(segment_bases(root / "orders-0")[2])
    # So few that compaction leaves some of them below the archive's end.
    fill(store, 800, word=b"other")
    if is_compacted:
        store.compact("orders")
    refused(store, archive, "inside another segment|and compaction changes no records")


@pytest.mark.id("archive-other-content")
def test_different_records_at_same_offsets_are_refused(store: Store, root: Path, archive: Path) -> None:
    """Goal: values of the same size make segments with the same offsets; only the records differ."""
    with store._table.writing(PARTITION) as log:
        log.truncate_to(segment_bases(root / "orders-0")[2])
    fill(store, 1_000, word=b"FIRST")
    assert segment_bases(root / "orders-0")[: len(segment_bases(archive / "orders-0"))] == segment_bases(
        archive / "orders-0"
    )
    refused(store, archive, "differs from the source's, and compaction changes no records")


@pytest.mark.id("archive-segment-inside-another")
def test_segment_that_begins_inside_archived_one_is_refused(store: Store, root: Path, archive: Path) -> None:
    """Goal: no manifest names overlapping segments, which no reader could open."""
    last = segment_bases(root / "orders-0")[-1]
    with store._table.writing(PARTITION) as log:
        log.truncate_to(last - 50)
    fill(store, 100, word=b"longer" * 10)
    fill(store, 1_000)
    begun = next(base for base in segment_bases(root / "orders-0") if base >= last - 50)
    assert begun < last
    with store._table.writing(PARTITION) as log:
        log.delete_before(begun)
    refused(store, archive, f"holds offset {begun} inside another segment")


@pytest.mark.id("archive-manifest-unreadable")
def test_unreadable_manifest_is_not_written(store: Store, archive: Path) -> None:
    fill(store, 600)
    depot, rules = CountingDepot(archive), Rules()
    plan = plan_archive(archive_source(store), depot, rules)
    entries = [copy_segment(copy, store._files, depot, rules) for copy in plan.copies]
    depot.puts.clear()
    before = snapshot(archive)
    with pytest.raises(CorruptionError, match="segments overlap"):
        finish_archive(plan, [replace(one, next_offset=10**6) for one in entries], depot)
    assert depot.puts == depot.removed == []
    assert snapshot(archive) == before


def test_side_file_missing_at_source_does_not_break_manifest(store: Store, root: Path, archive: Path) -> None:
    (root / "orders-0" / names.PARTITION_METADATA).unlink()
    store.archive(archive)
    with seeklog.open(archive, read_only=True) as cold:
        check_same(cold, store)
    assert manifest_of(archive).replaced == ()


# ---------------------------------------------------------------- comparisons


@pytest.mark.parametrize(
    ("position", "told", "error"),
    [
        (5_000, "stored CRC", CorruptBatch),
        # The leader epoch of the first batch, which no batch's CRC covers.
        (15, "and the manifest has", CorruptionError),
    ],
)
def test_damaged_archived_segment_proves_nothing(
    store: Store, archive: Path, position: int, told: str, error: type[Exception]
) -> None:
    path = archive / "orders-0" / f"{0:020d}.log"
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    store.compact("orders")
    refused(store, archive, f"{path.name}.*{told}", error)


def test_batches_are_found_in_parts_of_any_size(store: Store, root: Path) -> None:
    log = (root / "orders-0" / f"{0:020d}.log").read_bytes()
    for size in (1, 1_000, len(log)):
        parts = (log[at : at + size] for at in range(0, len(log), size))
        assert [record.offset for record in records_in(parts, limit=len(log))] == list(
            range(segment_bases(root / "orders-0")[1])
        )


def test_segment_lost_in_archive_is_replaced_by_compacted_one(store: Store, archive: Path) -> None:
    """Goal: an archive is repaired from the segments that exist; those that it still has are compared nevertheless."""
    store.compact("orders")
    (archive / "orders-0" / f"{0:020d}.log").unlink()
    refused(store, archive, "is missing; archive with repair=True", CorruptionError)
    store.archive(archive, repair=True)
    with seeklog.open(archive, read_only=True) as cold:
        check_same(cold, store)


def test_segment_compacted_during_comparison_is_planned_again(store: Store, root: Path, archive: Path) -> None:
    class Compacting(CountingDepot):
        def read(self, path: str) -> Iterator[bytes]:
            if path.endswith(names.LOG) and not self.puts:
                self.puts.append("compacted")
                fill(store, 600)
                store.compact("orders")
            yield from super().read(path)

    store.compact("orders")
    with seeklog.open(root, read_only=True) as onlooker:
        archive_to(Compacting(archive), onlooker)
        with seeklog.open(archive, read_only=True) as cold:
            check_same(cold, store)
    assert manifest_of(archive).replaced
