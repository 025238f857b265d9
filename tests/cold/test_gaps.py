"""Archives with declared gaps, which readers skip as in a compacted log. Other gaps are losses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import seeklog
from cold.s3_server import BUCKET, S3Server
from cold.workbench import SEGMENT_BYTES, fill, manifest_of, sealed_end
from log.workbench import START_MS, segment_bases
from seeklog import Store, TopicPartition, names
from seeklog.archive.manifest import Manifest, PartitionEntry, encode_manifest
from seeklog.errors import ArchiveMismatch, CorruptionError, LostRecords
from seeklog.log.check.finding import Kind, Severity
from seeklog.log.check.inspection import inspect_partition
from seeklog.log.pinned import make_pin
from store.workbench import open_store


def delete_before(store: Store, offset: int) -> None:
    with store._table.writing(TopicPartition("orders", 0)) as log:
        log.delete_before(offset)


def with_a_gap(store: Store, target: str | Path, **options: Any) -> range:
    """Archive, lose some segments to retention, and archive the rest. Return the missing offsets."""
    store.archive(target, **options)
    first = sealed_end(store.path)
    fill(store, 1_000)
    delete_before(store, first + 400)
    store.archive(target, allow_gaps=True, **options)
    return range(first, segment_bases(store.path / "orders-0")[0])


def partition_of(archive: Path) -> PartitionEntry:
    return manifest_of(archive).topics["orders"].partitions[0]


def declare(archive: Path, gaps: Iterable[tuple[int, int]]) -> None:
    """Replace the gaps that the manifest declares."""
    manifest = manifest_of(archive)
    topic = manifest.topics["orders"]
    entry = replace(topic.partitions[0], gaps=tuple(gaps))
    changed = Manifest(topics={"orders": replace(topic, partitions={0: entry})})
    (archive / names.ARCHIVE).write_bytes(encode_manifest(changed))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store", segment_bytes=SEGMENT_BYTES) as store:
        store.create_topic("orders", partitions=1)
        fill(store, 1_000)
        yield store


@pytest.fixture(params=["directory", "memory", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, dict[str, Any]]:
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3")
        return f"s3://{BUCKET}/gaps", {"storage_options": server.options}
    return (request.getfixturevalue("memory") if request.param == "memory" else str(tmp_path / "archive")), {}


@pytest.mark.id("archive-gap-declared")
def test_every_way_of_reading_skips_declared_gap(store: Store, place: tuple[str, dict[str, Any]]) -> None:
    url, options = place
    missing = with_a_gap(store, url, **options)
    assert len(missing) >= 200
    with seeklog.open(url, read_only=True, **options) as cold:
        log = cold.log("orders", 0)
        there = [one for one in range(log.high_watermark) if one not in missing]
        middle = missing[len(missing) // 2]
        after = [one for one in there if one >= middle]
        assert [record.offset for record in log.scan()] == there
        assert [record.offset for record in log.scan_reverse()] == there[::-1]
        assert [record.offset for record in log.scan_reverse(middle)] == after[::-1]
        assert [record.offset for record in log.scan(end=middle)] == [one for one in there if one < middle]
        for inside in (missing[0], middle, missing[-1]):
            assert next(log.read(inside, max_records=1)).offset == missing.stop
            assert next(log.scan(inside)).offset == missing.stop
            assert log.seek(inside).segment == missing.stop
        assert [record.offset for record in log.read(missing[0] - 3, max_records=6)] == [
            *range(missing[0] - 3, missing[0]),
            *range(missing.stop, missing.stop + 3),
        ]
        assert log.offset_at_time(START_MS + middle * 1000) == missing.stop
        arrow = [offset for batch in log.scan_arrow() for offset in batch.column("offset").to_pylist()]
        assert arrow == there
        assert [record.offset for record in log.follow(middle, timeout_ms=0)] == after
        assert sum(len(batch.records()) for batch in log.read_batches(0, max_bytes=1 << 30)) == len(there)
        latest = log.latest_for_key(b"", end=middle)
        assert latest is not None
        assert latest.offset == missing[0] - 1


@pytest.mark.id("archive-hole-undeclared")
def test_undeclared_gap_is_a_loss(store: Store, tmp_path: Path) -> None:
    missing = with_a_gap(store, tmp_path / "archive")
    declare(tmp_path / "archive", [])
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        log = cold.log("orders", 0)
        with pytest.raises(LostRecords, match=f"offsets {missing[0]} to {missing[-1]} are missing"):
            list(log.scan())
        assert next(log.read(missing.stop)).offset == missing.stop
        (found,) = inspect_partition(f"{cold.location}/orders-0", files=cold._files)
        assert (found.kind, found.severity, found.offset) == (Kind.GAP, Severity.ERROR, missing[0])


def test_inspection_notes_declared_gap(store: Store, tmp_path: Path) -> None:
    missing = with_a_gap(store, tmp_path / "archive")
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        found = inspect_partition(f"{cold.location}/orders-0", files=cold._files)
    assert {one.severity for one in found} == {Severity.NOTE}
    assert [one.offset for one in found if "manifest declares" in one.detail] == [missing[0]]


@pytest.mark.parametrize("moved", [(0, -10), (10, 0), (-10, 0), (0, 10)])
def test_declared_gap_must_be_between_two_segments(store: Store, tmp_path: Path, moved: tuple[int, int]) -> None:
    missing = with_a_gap(store, tmp_path / "archive")
    declare(tmp_path / "archive", [(missing.start + moved[0], missing.stop + moved[1])])
    with pytest.raises(CorruptionError, match="not between two segments"):
        seeklog.open(tmp_path / "archive", read_only=True)


def test_declared_gap_stays_and_does_not_stop_next_archiving(store: Store, tmp_path: Path) -> None:
    missing = with_a_gap(store, tmp_path / "archive")
    fill(store, 500)
    assert store.archive(tmp_path / "archive").copied_segments > 0
    assert partition_of(tmp_path / "archive").gaps == ((missing.start, missing.stop),)
    delete_before(store, segment_bases(store.path / "orders-0")[2])
    fill(store, 500)
    assert store.archive(tmp_path / "archive").copied_segments > 0
    again = with_a_gap(store, tmp_path / "archive")
    assert partition_of(tmp_path / "archive").gaps == ((missing.start, missing.stop), (again.start, again.stop))
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        log = cold.log("orders", 0)
        there = [one for one in range(log.high_watermark) if one not in missing and one not in again]
        assert [record.offset for record in log.scan()] == there


def test_archive_of_archive_declares_same_gaps(store: Store, tmp_path: Path) -> None:
    with_a_gap(store, tmp_path / "first")
    with seeklog.open(tmp_path / "first", read_only=True) as cold:
        cold.archive(tmp_path / "second")
    assert manifest_of(tmp_path / "second") == manifest_of(tmp_path / "first")


def test_gap_in_compacted_topic_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", segment_bytes=SEGMENT_BYTES) as store:
        store.create_topic("orders", partitions=1, config={"cleanup.policy": "compact,delete"})
        fill(store, 1_000)
        store.archive(tmp_path / "archive")
        end = sealed_end(store.path)
        fill(store, 1_000)
        delete_before(store, end + 400)
        with pytest.raises(ArchiveMismatch, match=f"ends before offset {end}.*allow_gaps"):
            store.archive(tmp_path / "archive")
        store.archive(tmp_path / "archive", allow_gaps=True)
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        offsets = [record.offset for record in cold.log("orders", 0).scan()]
        ((first, behind),) = partition_of(tmp_path / "archive").gaps
        assert offsets == [one for one in range(cold.log("orders", 0).high_watermark) if not first <= one < behind]


def test_pinned_missing_offsets_name_segment_after_them(store: Store, tmp_path: Path) -> None:
    missing = with_a_gap(store, tmp_path / "archive")
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        view = cold.log("orders", 0)._source.view
        for start in (missing[0], missing[-1]):
            pin = make_pin(view, start, missing.stop)
            assert [one.base_offset for one in pin.segments] == [missing.stop]
        before, *others = make_pin(view, missing[0] - 1, missing.stop + 1).segments
        assert before.next_offset == missing[0]
        assert [one.base_offset for one in others] == [missing.stop]
