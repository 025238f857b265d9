"""Restored archives: byte for byte what was archived, checked, and never half a store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import seeklog
from cold.test_archive_compaction import compacted
from cold.test_gaps import with_a_gap
from cold.workbench import SEGMENT_BYTES, fill, manifest_of
from log.workbench import QuickFiles, segment_bases
from seeklog import Store, TopicPartition, names
from seeklog.archive.reading import Origin
from seeklog.errors import (
    CorruptionError,
    LogLocked,
    NotALog,
    TopicNotFound,
    UsageError,
)
from seeklog.files import take_lock
from seeklog.log import Part, StagedFile, Transaction, read_transaction, write_transaction
from seeklog.log.check.finding import Severity
from seeklog.log.check.inspection import inspect_partition
from seeklog.store import transactions_of
from seeklog.topics.description import MovedOffset, Restored, RestoredGap
from seeklog.topics.scope import find_partitions
from store.workbench import append, open_store, read, snapshot

AT = TopicPartition("orders", 0)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "archive"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "new" / "restored"


def restore(archive: Path | str, target: Path, **options: Any) -> Restored:
    return seeklog.restore(archive, target, **{"files": QuickFiles(), **options})


def logs_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.glob("*/*.log"))}


def check_undamaged(root: Path) -> None:
    """Goal: every byte of the store passes every check."""
    for path in sorted(path for path in root.iterdir() if path.is_dir()):
        found = inspect_partition(str(path), files=Origin(root=str(root)).files())
        assert [finding for finding in found if finding.severity is not Severity.NOTE] == []


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


# ---------------------------------------------------------------- what comes back


@pytest.mark.id("restore-byte-for-byte")
def test_backup_is_restored_byte_for_byte(
    store: Store, root: Path, target: Path, place: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    url, options = f"{place[0]}-{tmp_path.name}", place[1]
    store.commit_offsets("billing", {AT: 700})
    store.archive(url, include_active=True, storage_options=options or None)
    seen: list[tuple[int, int]] = []
    done = restore(
        url, target, storage_options=options or None, progress=lambda size, total: seen.append((size, total))
    )
    assert logs_of(target) == logs_of(root)
    assert done.records == 1_001 + 1
    assert done.bytes == sum(map(len, logs_of(root).values()))
    assert seen[-1] == (done.bytes, done.bytes)
    assert (done.gaps, done.moved_offsets, done.torn_transactions) == ((), (), ())
    check_undamaged(target)
    with open_store(target) as again:
        assert again.describe_group("billing").committed == store.describe_group("billing").committed
        assert again.topics(internal=True) == store.topics(internal=True)
        before, after = store.describe_topic("orders"), again.describe_topic("orders")
        assert (after.topic_id, after.configured) == (before.topic_id, before.configured)
        assert [part.high_watermark for part in after.partitions] == [1_000, 1]


def test_restored_store_continues_where_archive_ends(store: Store, archive: Path, target: Path) -> None:
    store.archive(archive, include_active=True)
    restore(archive, target)
    with open_store(target, segment_bytes=SEGMENT_BYTES) as again:
        assert again.log("orders", 0).recovery.clean
        assert append(again, "orders", [b"next"]) == range(1_000, 1_001)
        fill(again, 1_000)
        assert again.archive(archive, include_active=True).missing_records == 0
    check_undamaged(target)


def test_sealed_segments_are_restored_without_touching_them(store: Store, archive: Path, target: Path) -> None:
    """Goal: after a plain archive, the next records go to a new segment after the sealed ones."""
    store.archive(archive)
    done = restore(archive, target)
    bases = segment_bases(target / "orders-0")
    assert bases == segment_bases(store.path / "orders-0")
    assert (target / "orders-0" / f"{bases[-1]:020d}.log").read_bytes() == b""
    assert done.records == bases[-1]
    for base in bases[:-1]:
        assert (target / "orders-0" / f"{base:020d}.seal").exists()
    with open_store(target) as again:
        assert append(again, "orders", [b"next"]) == range(bases[-1], bases[-1] + 1)
    check_undamaged(target)


def test_log_start_offset_and_empty_partitions_come_back(store: Store, archive: Path, target: Path) -> None:
    store.create_topic("drained", partitions=3)
    append(store, "drained", [b"x"] * 7, partition=1)
    with store.writer("drained", 1) as log:
        log.delete_before(7)
    with store.writer("orders", 0) as log:
        log.delete_before(333)
    store.archive(archive, include_active=True)
    restore(archive, target)
    with open_store(target) as again:
        assert again.log("orders", 0).log_start_offset == 333
        assert [record.offset for record in again.log("orders", 0).scan()] == list(range(333, 1_000))
        assert again.topic("drained").partitions == (0, 1, 2)
        assert append(again, "drained", [b"next"], partition=1) == range(7, 8)
        assert append(again, "drained", [b"first"], partition=2) == range(1)
    check_undamaged(target)


def test_named_producer_resumes_after_restore(store: Store, archive: Path, target: Path) -> None:
    with store.producer(name="loader", linger_ms=0) as producer:
        for number in range(5):
            producer.send("orders", b"%d" % number, partition=1).result()
    store.archive(archive, include_active=True)
    restore(archive, target)
    with open_store(target) as again, again.producer(name="loader", resume=True) as producer:
        assert producer.written(("orders", 1)) == 5


def test_chosen_topics_are_restored(store: Store, archive: Path, target: Path) -> None:
    store.create_topic("other", partitions=1)
    store.archive(archive, include_active=True)
    done = restore(archive, target, topics=["other"])
    assert done.topics == ("other",)
    with open_store(target) as again:
        assert again.topics(internal=True) == ["other"]
    with pytest.raises(TopicNotFound, match="its topics: orders, other"):
        restore(archive, target.with_name("second"), topics=["nosuch"])


@pytest.mark.id("restore-group-ahead")
def test_committed_offset_beyond_restored_records_is_set_back(store: Store, archive: Path, target: Path) -> None:
    """Goal: records appended after the restore get these offsets, and the group must not skip them."""
    store.archive(archive, include_active=True)
    append(store, "orders", [b"late"] * 10)
    store.commit_offsets("billing", {AT: 1_010, TopicPartition("orders", 1): 1})
    store.archive(archive, topics=["__consumer_offsets"], include_active=True)
    done = restore(archive, target)
    assert done.moved_offsets == (MovedOffset(group="billing", topic="orders", partition=0, was=1_010, now=1_000),)
    with open_store(target) as again:
        committed = again.describe_group("billing").committed
        assert [committed[TopicPartition("orders", number)].offset for number in (0, 1)] == [1_000, 1]


def test_compacted_topic_is_restored_with_usual_names(root: Path, archive: Path, target: Path) -> None:
    with open_store(root, segment_bytes=SEGMENT_BYTES) as store:
        store.create_topic("orders", partitions=1, config={"cleanup.policy": "compact"})
        fill(store, 1_000)
        store.archive(archive, include_active=True)
    compacted(root, keep=3)
    with open_store(root, segment_bytes=SEGMENT_BYTES) as store:
        store.archive(archive, include_active=True)
        restore(archive, target)
        assert logs_of(target) == logs_of(root)
    check_undamaged(target)


def test_declared_gaps_are_reported_and_can_be_written_after(store: Store, archive: Path, target: Path) -> None:
    missing = with_a_gap(store, archive)
    done = restore(archive, target)
    assert done.gaps == (
        RestoredGap(topic="orders", partition=0, first_offset=missing.start, next_offset=missing.stop),
    )
    with seeklog.open(archive, read_only=True) as cold, open_store(target, segment_bytes=SEGMENT_BYTES) as again:
        assert list(again.log("orders", 0).scan()) == list(cold.log("orders", 0).scan())
        fill(again, 500)
    check_undamaged(target)
    with open_store(target, segment_bytes=SEGMENT_BYTES) as again:
        assert missing.start not in {record.offset for record in again.log("orders", 0).scan()}


def test_partial_segment_before_others_is_sealed(store: Store, archive: Path, target: Path) -> None:
    """Goal: records were deleted at the source after the partial copy, so it stays in the archive."""
    store.archive(archive, include_active=True)
    fill(store, 1_000)
    with store.writer("orders", 0) as log:
        log.delete_before(1_900)
    store.archive(archive, include_active=True, allow_gaps=True)
    restore(archive, target)
    with open_store(target) as again:
        assert len(list(again.log("orders", 0).scan())) == 1_000 + 2_000 - segment_bases(store.path / "orders-0")[0]
    check_undamaged(target)


# ---------------------------------------------------------------- transactions


def staged_name(number: int) -> str:
    return names.staged_name(names.app_key("app"), now_ms=0, unique=f"{number:032x}")


def transaction_of(store: Store, state: Any, base_offsets: tuple[int, int]) -> Transaction:
    """A transaction of three records in each partition."""
    topic_id = store.describe_topic("orders").topic_id
    parts = tuple(
        Part(
            partition=f"orders-{number}",
            topic_id=topic_id,
            base_offset=base_offset,
            files=(StagedFile(staged_name(number), 100, 0, 3, (100,)),),
        )
        for number, base_offset in enumerate(base_offsets)
    )
    return Transaction("app", 12, state, parts)


@pytest.mark.parametrize(
    ("state", "base_offsets", "restored", "is_torn"),
    [
        ("done", (997, 0), "done", False),
        ("committing", (997, 0), "done", False),
        ("committing", (1_000, 3), None, False),
        ("committing", (997, 3), "done", True),
    ],
)
def test_interrupted_transaction_is_never_appended_twice(
    store: Store, archive: Path, target: Path, state: str, base_offsets: tuple[int, int], restored: str, is_torn: bool
) -> None:
    """Goal: a transaction of which nothing was archived can be committed again, any other cannot."""
    append(store, "orders", [b"x"] * 2, partition=1)
    write_transaction(QuickFiles(), str(store.path), transaction_of(store, state, base_offsets))
    store.archive(archive, include_active=True)
    done = restore(archive, target)
    found = read_transaction(QuickFiles(), str(target), names.app_key("app"))
    assert (found and found.state) == restored
    assert bool(done.torn_transactions) == is_torn
    with open_store(target) as again:
        assert transactions_of(again).last_version("app") == (12 if restored else None)


# ---------------------------------------------------------------- refusals and interruptions


@pytest.mark.parametrize("name", ["letters.txt", "orders-0", names.TOPICS])
def test_directory_with_other_files_is_refused(store: Store, archive: Path, target: Path, name: str) -> None:
    store.archive(archive)
    target.mkdir(parents=True)
    (target / name).mkdir()
    before = snapshot(target)
    with pytest.raises(UsageError, match="is not empty"):
        restore(archive, target)
    assert snapshot(target) == before


def test_location_without_archive_is_refused(store: Store, root: Path, archive: Path, target: Path) -> None:
    with pytest.raises(NotALog, match="there is no archive at"):
        restore(root, target)
    with pytest.raises(UsageError, match="a store is a directory"):
        seeklog.restore(archive, "s3://bucket/store")
    store.archive(archive)
    with pytest.raises(UsageError, match="contain each other"):
        restore(archive, archive / "inside")
    assert not target.exists()


def test_dry_run_checks_archive_and_writes_nothing(store: Store, archive: Path, target: Path) -> None:
    store.archive(archive, include_active=True)
    done = restore(archive, target, dry_run=True)
    assert done.records == 1_001
    assert not target.exists()
    (archive / "orders-0" / f"{0:020d}.log").unlink()
    with pytest.raises(CorruptionError, match="is missing"):
        restore(archive, target, dry_run=True)


def segment_files(archive: Path) -> Iterator[Path]:
    for segment in manifest_of(archive).topics["orders"].partitions[0].segments:
        for suffix in segment.files:
            yield archive / "orders-0" / f"{segment.stem}{suffix}"


def test_every_damaged_file_is_detected(store: Store, archive: Path, target: Path) -> None:
    store.archive(archive, include_active=True)
    for path in segment_files(archive):
        flip(path, -1)
        restored = path.suffix != ".seal" or "-" not in path.name  # the seal of a partial segment is not needed
        if restored:
            with pytest.raises(CorruptionError, match="and the manifest has"):
                restore(archive, target)
            with pytest.raises(NotALog, match="unfinished restore"):
                open_store(target, read_only=True)
        flip(path, -1)
    restore(archive, target)
    assert logs_of(target) == logs_of(store.path)


@pytest.mark.id("restore-unfinished")
def test_unfinished_restore_is_not_a_store(store: Store, archive: Path, target: Path) -> None:
    store.archive(archive, include_active=True)
    path = next((archive / "orders-1").glob("*.log"))
    flip(path, 70)
    with pytest.raises(CorruptionError):
        restore(archive, target)
    assert (target / "orders-0").is_dir()
    before = snapshot(target)
    for opening in (
        lambda: open_store(target),
        lambda: open_store(target, read_only=True),
        lambda: find_partitions(target, topics=None, config=seeklog.LogConfig(), files=QuickFiles()),
    ):
        with pytest.raises(NotALog, match="unfinished restore"):
            opening()
    assert snapshot(target) == before
    store.create_topic("more", partitions=1)
    store.archive(target.with_name("other"), topics=["more"], include_active=True)
    with pytest.raises(UsageError, match="of other topics"):
        restore(target.with_name("other"), target)
    flip(path, 70)
    restore(archive, target)
    with open_store(target) as again:
        assert read(again, "orders") == read(store, "orders")


def test_continued_restore_keeps_whole_files(store: Store, archive: Path, target: Path) -> None:
    store.archive(archive, include_active=True)
    path = next((archive / "orders-1").glob("*.log"))
    flip(path, 70)
    with pytest.raises(CorruptionError):
        restore(archive, target)
    flip(path, 70)
    kept = {path: path.stat().st_ino for path in (target / "orders-0").glob("*.log")}
    restore(archive, target)
    assert {path: path.stat().st_ino for path in kept} == kept


def test_restore_is_continued_from_a_newer_archive(root: Path, archive: Path, target: Path) -> None:
    """Goal: what the archive has replaced since is removed from the directory."""
    with open_store(root, segment_bytes=SEGMENT_BYTES) as store:
        store.create_topic("orders", partitions=2, config={"cleanup.policy": "compact"})
        fill(store, 1_000)
        fill(store, 100, partition=1)
        store.archive(archive, include_active=True)
    path = next((archive / "orders-1").glob("*.log"))
    flip(path, 70)
    with pytest.raises(CorruptionError):
        restore(archive, target)
    flip(path, 70)
    compacted(root, keep=3)
    with open_store(root, segment_bytes=SEGMENT_BYTES) as store:
        fill(store, 500)
        store.archive(archive, include_active=True)
    restore(archive, target)
    assert logs_of(target) == logs_of(root)
    check_undamaged(target)


def test_second_restore_to_same_directory_is_refused(store: Store, archive: Path, target: Path) -> None:
    store.archive(archive)
    target.mkdir(parents=True)
    lock = take_lock(QuickFiles(), f"{target}/{names.RESTORE_LOCK}")
    with pytest.raises(LogLocked, match="another process is restoring"):
        restore(archive, target)
    lock.close()
    restore(archive, target)
    assert names.RESTORE_LOCK not in {path.name for path in target.iterdir()}


def test_restored_directory_is_not_restored_over(store: Store, archive: Path, target: Path) -> None:
    store.archive(archive)
    restore(archive, target)
    before = snapshot(target)
    with pytest.raises(UsageError, match="is not empty"):
        restore(archive, target)
    assert snapshot(target) == before
