"""What an archive refuses: other topics, other logs, damage, and invalid manifests."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import seeklog
from cold.workbench import SEGMENT_BYTES, CountingDepot, archive_to, check_same, fill, manifest_of
from log.workbench import START_MS, segment_bases
from seeklog import Record, Store, TopicPartition, names
from seeklog.archive.archiving import begin_archive, finish_archive
from seeklog.archive.copying import copy_segment
from seeklog.archive.manifest import Manifest, decode_manifest, encode_manifest
from seeklog.archive.planning import Rules, plan_archive
from seeklog.errors import ArchiveMismatch, CorruptionError, LostRecords, NotALog, UsageError
from seeklog.store import archive_source
from store.workbench import append, open_store, snapshot

# ---------------------------------------------------------------- mismatches and damage


def test_recreated_topic_is_refused(store: Store, tmp_path: Path) -> None:
    store.archive(tmp_path / "archive")
    store.delete_topic("orders")
    store.create_topic("orders", partitions=2)
    fill(store, 1_000)
    before = snapshot(tmp_path / "archive")
    with pytest.raises(ArchiveMismatch, match="recreated"):
        store.archive(tmp_path / "archive")
    assert snapshot(tmp_path / "archive") == before


@pytest.mark.id("archive-of-a-recreated-topic")
def test_topic_recreated_during_archiving_is_refused(store: Store, root: Path, tmp_path: Path) -> None:
    """Goal: no archive holds partitions of two topics, or of one topic under the id of another."""
    store.create_topic("first", partitions=1)
    fill(store, 1_000, topic="first")
    store.close()
    recreated: list[str] = []

    def recreate(copied: int, total: int) -> None:
        if not recreated:
            with open_store(root, segment_bytes=SEGMENT_BYTES) as other:
                other.delete_topic("orders")
                other.create_topic("orders", partitions=2)
                for _ in range(200):
                    append(other, "orders", [b"new" * 30] * 10)
                recreated.append(other.describe_topic("orders").topic_id)

    with open_store(root, read_only=True) as reader:
        with pytest.raises(ArchiveMismatch, match="recreated during archiving"):
            reader.archive(tmp_path / "archive", progress=recreate)
        reader._topics.refresh()
        reader.archive(tmp_path / "archive")
    assert manifest_of(tmp_path / "archive").topics["orders"].topic_id == recreated[0]


@pytest.mark.id("archive-of-a-rewritten-log")
def test_log_truncated_and_rewritten_is_refused(store: Store, tmp_path: Path) -> None:
    store.archive(tmp_path / "archive")
    before = snapshot(tmp_path / "archive")
    with store._table.writing(TopicPartition("orders", 0)) as log:
        log.truncate_to(500)
    with pytest.raises(ArchiveMismatch, match="log was truncated"):
        store.archive(tmp_path / "archive")
    with store._table.writing(TopicPartition("orders", 0)) as log:
        for number in range(500, 1500, 10):
            log.append_many([Record(b"other %094d" % number, timestamp_ms=START_MS)] * 10)
        log.flush()
    with pytest.raises(ArchiveMismatch, match=r"differs from the source's|inside another segment"):
        store.archive(tmp_path / "archive")
    assert snapshot(tmp_path / "archive") == before


def test_location_with_other_files_is_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    with pytest.raises(ArchiveMismatch, match=r"not an archive and not empty: it holds 'letter\.txt'"):
        store.archive(tmp_path / "home")
    with pytest.raises(UsageError, match="is inside the store"):
        store.archive(store.path / "archive")
    with open_store(tmp_path / "other") as other:
        other.create_topic("t")
    with pytest.raises(ArchiveMismatch, match="not empty"):
        store.archive(tmp_path / "other")
    assert os.listdir(tmp_path / "home") == ["letter.txt"]


def test_unknown_verify_option_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="verify must be one of"):
        store.archive(tmp_path / "archive", verify="not at all")  # type: ignore[arg-type]
    assert not (tmp_path / "archive").exists()


def test_damage_at_source_is_reported_and_not_archived(store: Store, root: Path, tmp_path: Path) -> None:
    path = root / "orders-0" / f"{segment_bases(root / 'orders-0')[1]:020d}.log"
    data = bytearray(path.read_bytes())
    data[1_000] ^= 4
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match=path.name):
        store.archive(tmp_path / "archive")
    with pytest.raises(NotALog, match="incomplete archive"):
        seeklog.open(tmp_path / "archive", read_only=True)
    data[1_000] ^= 4
    path.write_bytes(data)
    store.archive(tmp_path / "archive")
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        check_same(cold, store)


def test_damaged_index_at_source_is_rebuilt_in_archive(store: Store, root: Path, tmp_path: Path) -> None:
    path = root / "orders-0" / f"{0:020d}.index"
    whole = path.read_bytes()
    path.write_bytes(whole[:-8] + b"\xff" * 8)
    store.archive(tmp_path / "archive")
    assert (tmp_path / "archive" / "orders-0" / path.name).read_bytes() == whole


def test_damaged_copy_is_detected(store: Store, tmp_path: Path) -> None:
    class Flipping(CountingDepot):
        def put(self, path: str, parts: Iterable[bytes], *, is_new: bool = False) -> None:
            super().put(path, parts)
            if path.endswith(".timeindex"):
                file = Path(self.location, path)
                file.write_bytes(file.read_bytes()[:-1] + b"\x55")

    with pytest.raises(CorruptionError, match=r"timeindex: the copy has the CRC"):
        archive_to(Flipping(tmp_path / "archive"), store)
    with pytest.raises(NotALog):
        seeklog.open(tmp_path / "archive", read_only=True)
    archive_to(Flipping(tmp_path / "other"), store, verify="size")
    # The damaged copy is removed, so that the next archiving can write a good one.
    store.archive(tmp_path / "archive")
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        check_same(cold, store)


@pytest.mark.id("archive-files-missing")
def test_missing_files_of_manifest_are_refused_or_copied_again(store: Store, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    store.archive(archive)
    whole = snapshot(archive)
    gone, short = sorted((archive / "orders-0").glob("*.log"))[:2]
    gone.unlink()
    short.write_bytes(short.read_bytes()[:-5])
    before = snapshot(archive)
    with pytest.raises(CorruptionError, match=f"{gone.name}.*is missing; archive with repair=True"):
        store.archive(archive)
    assert snapshot(archive) == before
    with seeklog.open(archive, read_only=True) as cold:
        with pytest.raises(LostRecords, match="is missing"):
            list(cold.log("orders", 0).scan())
        with pytest.raises(LostRecords, match="ends after"):
            list(cold.log("orders", 0).scan(segment_bases(store.path / "orders-0")[1]))
    store.archive(archive, repair=True)
    assert snapshot(archive) == whole


def test_repair_cannot_restore_segments_missing_at_source(store: Store, tmp_path: Path) -> None:
    store.archive(tmp_path / "archive")
    (tmp_path / "archive" / "orders-0" / f"{0:020d}.log").unlink()
    with store._table.writing(TopicPartition("orders", 0)) as log:
        log.delete_before(500)
    with pytest.raises(CorruptionError, match="is missing"):
        store.archive(tmp_path / "archive", repair=True)


def test_concurrent_archivings_keep_work_of_each_other(store: Store, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    depot = CountingDepot(archive)
    rules = Rules()
    plan = plan_archive(archive_source(store), depot, rules)
    plan = begin_archive(plan, depot)
    entries = [copy_segment(copy, store._files, depot, rules) for copy in plan.copies]
    store.archive(archive)
    with pytest.raises(ArchiveMismatch, match="another process has archived"):
        finish_archive(plan, entries, depot)
    with seeklog.open(archive, read_only=True) as cold:
        check_same(cold, store)


# ---------------------------------------------------------------- invalid manifests


def test_every_changed_byte_of_manifest_is_detected(store: Store, tmp_path: Path) -> None:
    """Goal: a flipped bit is an error, or changes no record that is read."""
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
    """Return a function that changes a manifest's content and updates its CRC."""

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
        (lambda document: {**document, "version": 3}, "version 3"),
        (lambda document: {**document, "format": "zip"}, "format"),
        (lambda document: {**document, "crc32c": "00000000"}, "fails its CRC"),
        (lambda document: [document], "does not parse"),
        (_signed(lambda content: content["topics"][0].update(topic="../up")), "cannot name a topic"),
        (_signed(lambda content: content["topics"][0].update(config={"no.such.word": 1})), "no.such.word"),
        (_signed(lambda content: _segment(content).update(stem="../../etc/passwd")), "does not name the segment"),
        (_signed(lambda content: _segment(content).update(base_offset=-1)), "not a whole number"),
        (_signed(lambda content: _segment(content).update(next_offset=10**6)), "segments overlap"),
        (_signed(lambda content: _segment(content)["files"].pop(".log")), "are not a segment's files"),
        (
            _signed(lambda content: _segment(content)["files"].update({"/../x": {"size": 1, "crc32c": "0"}})),
            "not a segment's files",
        ),
        (_signed(lambda content: content.update(replaced=["../../x.log"])), "is not a file of a segment"),
        (
            _signed(lambda content: content["topics"][0]["partitions"][0].update(files={"x": {"size": 1}})),
            "is not a file of a partition",
        ),
        (_signed(lambda content: content.pop("topics")), "topics"),
    ],
)
def test_invalid_manifest_is_refused_by_readers_and_archivers(
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


def test_partition_without_archived_segment_is_empty_in_archive(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.create_topic("orders", partitions=1)
        assert store.archive(tmp_path / "archive").copied_segments == 0
    with seeklog.open(tmp_path / "archive", read_only=True) as cold:
        (partition,) = cold.describe_topic("orders").partitions
        assert (partition.log_start_offset, partition.log_end_offset) == (0, 0)
        assert list(cold.log("orders", 0).scan()) == []
    assert encode_manifest(Manifest()) != encode_manifest(Manifest(is_complete=False))
