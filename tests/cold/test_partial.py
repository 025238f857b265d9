"""Archives that include the segments that are not sealed, up to the recovery point."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import seeklog
from cold.test_archive_compaction import compacted
from cold.workbench import SEGMENT_BYTES, CountingDepot, archive_to, fill, manifest_of, sealed_end
from interop.broker_directories import expected_rows, rows
from interop.test_real_broker import unpacked
from log.workbench import START_MS, segment_bases
from seeklog import Store, TopicPartition, names
from seeklog.archive.manifest import SegmentEntry
from seeklog.errors import ArchiveMismatch, CorruptionError, NotAccessible
from seeklog.log.check.finding import Severity
from seeklog.log.check.inspection import inspect_partition
from seeklog.record.crc import crc32c
from seeklog.record.key_hash import partition_of
from seeklog.topics.description import Archived
from store.workbench import append, open_store, read, snapshot

__all__ = ["unpacked"]  # the fixture


def back_up(store: Store, target: str | Path, **options: Any) -> Archived:
    return store.archive(target, include_active=True, **options)


def append_durably(store: Store, value: bytes) -> None:
    append(store, "orders", [value])
    store._table.flush(TopicPartition("orders", 0))


def segments_of(archive: Path, topic: str = "orders", partition: int = 0) -> tuple[SegmentEntry, ...]:
    return manifest_of(archive).topics[topic].partitions[partition].segments


def offsets(store: Store, partition: int = 0) -> list[int]:
    return [record.offset for record in store.log("orders", partition).scan()]


def files_of(archive: Path) -> set[str]:
    """The files of the archive's first partition that hold segments."""
    return {path.name for path in (archive / "orders-0").iterdir() if path.name[0] == "0"}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


# ---------------------------------------------------------------- contents


def test_archive_with_active_segments_holds_every_durable_record(
    store: Store, place: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    url, options = f"{place[0]}-{tmp_path.name}", place[1]
    done = back_up(store, url, storage_options=options or None)
    with seeklog.open(url, storage_options=options or None, read_only=True) as cold:
        for partition in (0, 1):
            assert list(cold.log("orders", partition).scan()) == list(store.log("orders", partition).scan())
        assert cold.log("orders", 0).high_watermark == 1_000
        assert cold.log("orders", 0).offset_at_time(START_MS + 999_000) == 999
        assert inspect_partition(f"{cold.location}/orders-0", files=cold._files) == []
    assert done.missing_records == 0


def test_partial_segment_is_a_prefix_with_facts_like_a_sealed_one(store: Store, root: Path, archive: Path) -> None:
    back_up(store, archive)
    *sealed, partial = segments_of(archive)
    assert not any(segment.is_partial for segment in sealed)
    assert partial.is_partial
    data = (root / "orders-0" / f"{partial.base_offset:020d}.log").read_bytes()
    assert partial.stem == f"{partial.base_offset:020d}-{crc32c(data):08x}"
    assert (archive / "orders-0" / f"{partial.stem}.log").read_bytes() == data
    seal = partial.seal()
    assert seal is not None
    assert (seal.size, seal.log_crc, seal.next_offset, seal.contiguous) == (len(data), crc32c(data), 1_000, True)


def test_bytes_above_recovery_point_are_not_archived(root: Path, archive: Path) -> None:
    """Goal: another process writes; what it has not synced is not in the archive, and counts as missing."""
    with open_store(root, flush="os") as writing:
        writing.create_topic("orders", partitions=1)
        fill(writing, 100)
        with writing.writer("orders", 0) as log:
            log.flush()
            log._partition.promises.write(log._partition.checkpoint())
        append(writing, "orders", [b"later"] * 5)
        before = snapshot(root)
        with open_store(root, read_only=True) as beside:
            done = back_up(beside, archive)
        assert snapshot(root) == before
    with seeklog.open(archive, read_only=True) as cold:
        assert offsets(cold) == list(range(100))
    (part,) = done.partitions
    assert (part.archived_end_offset, part.high_watermark, part.missing_records) == (100, 105, 5)


def test_plain_archive_reports_what_is_missing(store: Store, root: Path, archive: Path) -> None:
    done = store.archive(archive)
    end = sealed_end(root)
    first, second = done.partitions
    assert (first.archived_end_offset, first.missing_records) == (end, 1_000 - end)
    assert first.newest_timestamp_ms == START_MS + (end - 1) * 1_000
    assert (second.archived_end_offset, second.missing_records, second.newest_timestamp_ms) == (None, 1, None)
    assert done.missing_records == 1_001 - end


def test_unreadable_tail_does_not_fail_an_archive_of_sealed_segments(store: Store, root: Path, archive: Path) -> None:
    store.close()
    path = root / "orders-0" / f"{sealed_end(root):020d}.log"
    path.write_bytes(path.read_bytes()[:-5])
    with open_store(root, read_only=True) as damaged:
        done = damaged.archive(archive)
    assert [part.missing_records for part in done.partitions] == [None, 1]
    with seeklog.open(archive, read_only=True) as cold:
        assert offsets(cold) == list(range(sealed_end(root)))


def test_backup_holds_committed_offsets_and_producers(store: Store, archive: Path) -> None:
    with store.producer(name="loader", linger_ms=0) as producer:
        producer.send("orders", b"named", partition=1).result()
    at = TopicPartition("orders", 0)
    store.commit_offsets("billing", {at: 700})
    back_up(store, archive)
    with seeklog.open(archive, read_only=True) as cold:
        assert cold.describe_group("billing").committed[at].offset == 700
    assert [name[:17] for name in manifest_of(archive).root] == ["seeklog-producer-"]


def test_empty_partitions_count_in_an_archive(store: Store, archive: Path) -> None:
    """Goal: a key is looked up in the partition that its hash selects among all partitions."""
    store.create_topic("keyed", partitions=8)
    append(store, "keyed", [b"value"], key=b"a", partition=partition_of(b"a", 8))
    back_up(store, archive)
    with seeklog.open(archive, read_only=True) as cold:
        assert cold.topic("keyed").partitions == tuple(range(8))
        found = cold.topic("keyed").latest(b"a")
    assert found is not None
    assert found.value == b"value"


def test_log_of_broker_is_archived_whole(unpacked: Path, archive: Path) -> None:
    """Goal: after a clean stop a broker's recovery points are the ends of its logs, whose batches have gaps."""
    name = "kafka-4.3.1-clean"
    with seeklog.open(unpacked / name, read_only=True) as store:
        back_up(store, archive)
        assert back_up(store, archive).copied_segments == 0
        with seeklog.open(archive, read_only=True) as cold:
            for topic in store.topics():
                for number in store.topic(topic).partitions:
                    got = rows(cold.log(topic, number).scan(), f"{topic}-{number}")
                    assert got == expected_rows(name, f"{topic}-{number}")
                    found = inspect_partition(f"{cold.location}/{topic}-{number}", files=cold._files)
                    assert not [finding for finding in found if finding.severity is Severity.ERROR]


# ---------------------------------------------------------------- later runs


def test_run_without_new_records_copies_nothing(store: Store, archive: Path) -> None:
    back_up(store, archive)
    before = snapshot(archive)
    done = back_up(store, archive)
    assert (done.copied_segments, done.removed_files) == (0, 0)
    assert snapshot(archive) == before


def test_longer_partial_replaces_shorter_one_after_next_run(store: Store, archive: Path) -> None:
    """Goal: a reader that has the archive open keeps its files for one more run; then they are removed."""
    back_up(store, archive)
    old = {f"{segments_of(archive)[-1].stem}{suffix}" for suffix in (".log", ".index", ".timeindex", ".seal")}
    with seeklog.open(archive, read_only=True) as early:
        append(store, "orders", [b"more"])
        back_up(store, archive)
        assert old <= files_of(archive)
        assert offsets(early) == list(range(1_000))
        with seeklog.open(archive, read_only=True) as late:
            assert offsets(late) == list(range(1_001))
    done = back_up(store, archive)
    assert done.removed_files == len(old)
    assert files_of(archive).isdisjoint(old)


def test_sealed_segment_replaces_its_partial_one(store: Store, root: Path, archive: Path) -> None:
    back_up(store, archive)
    partial = segments_of(archive)[-1]
    with store.writer("orders", 0) as log:
        log.roll()
    done = store.archive(archive)
    segment = segments_of(archive)[-1]
    assert (segment.base_offset, segment.is_partial) == (partial.base_offset, False)
    assert segment.stem == f"{segment.base_offset:020d}"
    assert done.copied_segments == 1
    store.archive(archive)
    assert f"{partial.stem}.log" not in files_of(archive)


def test_plain_run_keeps_partial_segments(store: Store, archive: Path) -> None:
    back_up(store, archive)
    append(store, "orders", [b"more"])
    done = store.archive(archive)
    assert done.copied_segments == 0
    with seeklog.open(archive, read_only=True) as cold:
        assert offsets(cold) == list(range(1_000))
    assert done.partitions[0].missing_records == 1


def test_truncated_active_segment_is_refused(store: Store, archive: Path) -> None:
    back_up(store, archive)
    with store.writer("orders", 0) as log:
        log.truncate_to(990)
        for _ in range(30):
            log.append(b"another")
    before = snapshot(archive)
    for include_active in (True, False):
        with pytest.raises(ArchiveMismatch, match="truncated"):
            store.archive(archive, include_active=include_active)
    assert snapshot(archive) == before


def test_records_deleted_after_partial_copy_are_a_gap(store: Store, archive: Path) -> None:
    back_up(store, archive)
    fill(store, 1_000)
    with store.writer("orders", 0) as log:
        log.delete_before(1_900)
    with pytest.raises(ArchiveMismatch, match="deleted before they were archived"):
        back_up(store, archive)
    back_up(store, archive, allow_gaps=True)
    (gap,) = manifest_of(archive).topics["orders"].partitions[0].gaps
    assert gap[0] == 1_000
    with seeklog.open(archive, read_only=True) as cold:
        assert offsets(cold) == [*range(1_000), *range(gap[1], 2_000)]


def test_compaction_of_partial_segment_is_followed(root: Path, archive: Path) -> None:
    with open_store(root, segment_bytes=SEGMENT_BYTES) as store:
        store.create_topic("orders", partitions=1, config={"cleanup.policy": "compact"})
        fill(store, 300)
        back_up(store, archive)
        assert segments_of(archive)[1].is_partial
        fill(store, 700)
    compacted(root, keep=3)
    with open_store(root, segment_bytes=SEGMENT_BYTES) as store:
        back_up(store, archive)
        with seeklog.open(archive, read_only=True) as cold:
            assert list(cold.log("orders", 0).scan()) == list(store.log("orders", 0).scan())
        assert back_up(store, archive).copied_segments == 0


def test_lost_seal_does_not_stop_a_backup(store: Store, root: Path, archive: Path) -> None:
    second = segment_bases(root / "orders-0")[1]
    (root / "orders-0" / names.segment_name(second, names.SEAL)).unlink()
    back_up(store, archive)
    with seeklog.open(archive, read_only=True) as cold:
        assert offsets(cold) == list(range(1_000))


# ---------------------------------------------------------------- interruptions and damage


@pytest.mark.parametrize("fail_at", range(7))
def test_failed_backup_is_completed_and_leaves_no_strays(store: Store, archive: Path, fail_at: int) -> None:
    back_up(store, archive)
    append_durably(store, b"more")
    with pytest.raises(NotAccessible, match="went away"):
        archive_to(CountingDepot(archive, fail_at=fail_at), store, include_active=True)
    append_durably(store, b"and more")
    for _ in range(3):
        archive_to(CountingDepot(archive), store, include_active=True)
    with seeklog.open(archive, read_only=True) as cold:
        assert read(cold, "orders")[-2:] == [b"more", b"and more"]
    named = {path.partition("/")[2] for path in manifest_of(archive).paths() if path.startswith("orders-0/0")}
    assert files_of(archive) == named


def test_interrupted_copy_of_same_bytes_is_used(store: Store, archive: Path, tmp_path: Path) -> None:
    """Goal: a kill before the manifest; the same bytes have the same names, indexes and seals."""
    complete = CountingDepot(tmp_path / "complete")
    archive_to(complete, store, include_active=True)
    depot = CountingDepot(archive, fail_at=len(complete.puts) - 1)
    with pytest.raises(NotAccessible, match="went away"):
        archive_to(depot, store, include_active=True)
    again = CountingDepot(archive)
    archive_to(again, store, include_active=True)
    assert not [path for path in again.puts if path.rpartition("/")[2][0] == "0"]


def test_damage_below_recovery_point_is_reported(store: Store, root: Path, archive: Path) -> None:
    back_up(store, archive)
    before = snapshot(archive)
    append(store, "orders", [b"more"])
    store.close()
    path = root / "orders-0" / f"{sealed_end(root):020d}.log"
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with open_store(root, read_only=True) as damaged, pytest.raises(CorruptionError, match="CRC"):
        back_up(damaged, archive)
    assert snapshot(archive) == before


def test_manifest_of_earlier_version_is_read_and_continued(store: Store, archive: Path, tmp_path: Path) -> None:
    """Goal: fields that version 0.1.0 did not write may be missing."""
    store.archive(archive)
    document = json.loads((archive / names.ARCHIVE).read_bytes())
    content = document["content"]
    del content["root"]
    for topic in content["topics"]:
        del topic["empty"]
        for partition in topic["partitions"]:
            for segment in partition["segments"]:
                del segment["partial"]
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":")).encode("ascii")
    document |= {"version": 1, "crc32c": f"{crc32c(canonical):08x}"}
    (archive / names.ARCHIVE).write_bytes(json.dumps(document).encode("ascii"))
    with seeklog.open(archive, read_only=True) as cold:
        assert len(offsets(cold)) == sealed_end(store.path)
    seeklog.restore(archive, tmp_path / "restored")
    assert back_up(store, archive).missing_records == 0


def test_only_a_manifest_that_needs_it_has_version_2(store: Store, archive: Path, tmp_path: Path) -> None:
    """Goal: 0.1.0 refuses version 2; it would drop what it does not know."""
    back_up(store, archive)
    assert json.loads((archive / names.ARCHIVE).read_bytes())["version"] == 2
    with store.writer("orders", 1) as log:
        log.roll()
    store.archive(tmp_path / "plain")
    assert json.loads((tmp_path / "plain" / names.ARCHIVE).read_bytes())["version"] == 1


def test_archive_of_archive_is_the_same(store: Store, archive: Path, tmp_path: Path) -> None:
    back_up(store, archive)
    shutil.copytree(archive, tmp_path / "moved")
    with seeklog.open(tmp_path / "moved", read_only=True) as cold:
        cold.archive(tmp_path / "second", include_active=True)
        with seeklog.open(tmp_path / "second", read_only=True) as again:
            assert offsets(again) == offsets(cold)
            assert again.topic("orders").partitions == cold.topic("orders").partitions
