"""Two archive runs to one location at once: one of them fails, and no file that either has named is lost."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import seeklog
from cold.s3_server import BUCKET, S3Server
from cold.workbench import SEGMENT_BYTES, check_same, fill, manifest_of
from seeklog import Store, names
from seeklog.archive.archiving import archive as archive_to_depot
from seeklog.archive.archiving import begin_archive, exclusive, finish_archive
from seeklog.archive.copying import copy_segment
from seeklog.archive.manifest import Manifest, decode_manifest
from seeklog.archive.planning import Rules, plan_archive
from seeklog.errors import ArchiveMismatch, LogLocked
from seeklog.files.depot import Depot, RemoteDepot, Version, open_depot
from seeklog.store import archive_source
from seeklog.topics.description import Archived
from store.workbench import open_store, snapshot

RULES = Rules()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store", segment_bytes=SEGMENT_BYTES) as store:
        for topic in ("orders", "refunds"):
            store.create_topic(topic, partitions=1)
            fill(store, 600, topic=topic)
        yield store


def archive_topic(store: Store, topic: str, depot: Depot) -> Archived:
    return archive_to_depot(archive_source(store, [topic]), depot, RULES)


# ---------------------------------------------------------------- a directory

ARCHIVER = """
import sys
import seeklog
from seeklog.errors import LogLocked

source, target, topic = sys.argv[1:]
with seeklog.open(source, read_only=True) as store:
    sys.stdin.readline()
    done = 0
    while not done:
        try:
            done = store.archive(target, topics=[topic]).copied_segments
        except LogLocked as error:
            assert str(error.owner_pid) in str(error) and "archive again when it has finished" in str(error), error
            print("locked", flush=True)
"""


@pytest.mark.id("archive-processes-race")
def test_archivings_of_two_processes_to_directory_are_serialized(store: Store, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", ARCHIVER, str(store.path), str(archive), topic],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for topic in ("orders", "refunds")
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    with seeklog.open(archive, read_only=True) as cold:
        for topic in ("orders", "refunds"):
            check_same(cold, store, topic=topic)


def test_directory_being_archived_to_refuses_second_archiving(store: Store, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    store.archive(archive, topics=["orders"])
    with exclusive(open_depot(str(archive))):
        before = snapshot(archive)
        with pytest.raises(LogLocked, match=r"is open for writing in process.*archive again when it has finished"):
            store.archive(archive)
        assert snapshot(archive) == before
        with seeklog.open(archive, read_only=True) as cold:
            assert cold.topics() == ["orders"]
    store.archive(archive)
    assert sorted(manifest_of(archive).topics) == ["orders", "refunds"]


def test_no_lock_file_is_created_beside_other_files(store: Store, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thing").write_bytes(b"mine")
    with pytest.raises(ArchiveMismatch, match="is not an archive and not empty"):
        store.archive(tmp_path / "other")
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["thing"]


# ---------------------------------------------------------------- a bucket


class Meeting(RemoteDepot):
    """A location where a process about to write the manifest lets another go first."""

    def __init__(self, inner: Depot) -> None:
        assert isinstance(inner, RemoteDepot)
        self.__dict__.update(inner.__dict__)
        self.meet: list[Any] = []

    def _write_over(self, path: str, data: bytes, over: Version | None) -> None:
        # Both have read the manifest by now, and each has made its plan from it.
        while self.meet:
            self.meet.pop()()
        super()._write_over(path, data, over)


@pytest.fixture
def bucket(s3: S3Server, request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return f"s3://{BUCKET}/{request.node.name[:40]}", s3.options


def manifest_in(bucket: tuple[str, dict[str, Any]]) -> Manifest:
    version = open_depot(bucket[0], storage_options=bucket[1]).version(names.ARCHIVE)
    assert version is not None
    return decode_manifest(version.data, path="")


@pytest.mark.id("archive-race-for-the-manifest")
def test_manifest_written_at_last_moment_is_not_replaced(store: Store, bucket: tuple[str, dict[str, Any]]) -> None:
    """Goal: the other one writes its manifest between the last check and the write."""
    url, options = bucket
    fill(store, 300)
    store.archive(url, topics=["orders"], storage_options=options)
    fill(store, 600)
    depot = Meeting(open_depot(url, storage_options=options))
    depot.meet.append(lambda: store.archive(url, topics=["orders"], storage_options=options))
    with pytest.raises(ArchiveMismatch, match=r"another process has archived.*Archive again"):
        archive_topic(store, "refunds", depot)
    assert sorted(manifest_in(bucket).topics) == ["orders"]
    archive_topic(store, "refunds", depot)
    with seeklog.open(url, storage_options=options, read_only=True) as cold:
        for topic in ("orders", "refunds"):
            check_same(cold, store, topic=topic)


def test_of_two_that_start_one_archive_one_gets_error(store: Store, bucket: tuple[str, dict[str, Any]]) -> None:
    url, options = bucket
    depot = Meeting(open_depot(url, storage_options=options))
    depot.meet.append(lambda: store.archive(url, topics=["orders"], storage_options=options))
    with pytest.raises(ArchiveMismatch, match="another process has archived"):
        archive_topic(store, "refunds", depot)
    with seeklog.open(url, storage_options=options, read_only=True) as cold:
        check_same(cold, store)


@pytest.mark.id("archive-threads-race")
def test_concurrent_archivings_to_bucket_lose_nothing(store: Store, bucket: tuple[str, dict[str, Any]]) -> None:
    url, options = bucket
    start = threading.Barrier(2)
    refused: list[str] = []
    failed: list[BaseException] = []

    def archive(topic: str) -> None:
        start.wait()
        try:
            while True:
                try:
                    store.archive(url, topics=[topic], storage_options=options)
                    return
                except ArchiveMismatch as error:
                    refused.append(str(error))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=archive, args=(topic,)) for topic in ("orders", "refunds")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert all("Archive again" in one for one in refused)
    with seeklog.open(url, storage_options=options, read_only=True) as cold:
        for topic in ("orders", "refunds"):
            check_same(cold, store, topic=topic)


@pytest.mark.id("archive-race-for-a-file")
def test_file_written_by_another_process_is_kept(
    store: Store, bucket: tuple[str, dict[str, Any]], s3: S3Server
) -> None:
    """Goal: the same bytes count as the copy; different ones are not overwritten."""
    url, options = bucket
    depot = open_depot(url, storage_options=options)
    plan = plan_archive(archive_source(store, ["orders"]), depot, RULES)
    plan = begin_archive(plan, depot)
    first, second, *rest = plan.copies
    path = f"{url}/orders-0/{first.stem}.log".removeprefix("s3://")
    whole = (store.path / "orders-0" / f"{first.stem}.log").read_bytes()
    s3.system.pipe_file(path, whole)
    entries = [copy_segment(first, store._files, depot, RULES)]
    other = f"{url}/orders-0/{second.stem}.log".removeprefix("s3://")
    s3.system.pipe_file(other, b"other")
    with pytest.raises(ArchiveMismatch, match="just written by another process"):
        copy_segment(second, store._files, depot, RULES)
    assert s3.system.cat_file(other) == b"other"
    s3.system.rm_file(other)
    entries += [copy_segment(copy, store._files, depot, RULES) for copy in (second, *rest)]
    finish_archive(plan, entries, depot)
    with seeklog.open(url, storage_options=options, read_only=True) as cold:
        check_same(cold, store)


def test_write_whose_response_was_lost_counts(store: Store, bucket: tuple[str, dict[str, Any]]) -> None:
    """Goal: a retry meets the condition that its first attempt has changed; the manifest is still its own."""

    class Twice(Meeting):
        def _write_over(self, path: str, data: bytes, over: Version | None) -> None:
            super()._write_over(path, data, over)
            super()._write_over(path, data, over)

    url, options = bucket
    archive_topic(store, "orders", Twice(open_depot(url, storage_options=options)))
    with seeklog.open(url, storage_options=options, read_only=True) as cold:
        check_same(cold, store)


# ---------------------------------------------------------------- without locks and conditions


def test_changed_manifest_is_refused_without_conditional_writes(store: Store, memory: str) -> None:
    store.archive(memory, topics=["orders"])
    depot = open_depot(memory)
    before = depot.version(names.ARCHIVE)
    assert before is not None
    depot.put(names.ARCHIVE, [before.data + b"\n"])
    with pytest.raises(FileExistsError):
        depot.swap(names.ARCHIVE, b"mine", over=before)
    with pytest.raises(FileExistsError):
        depot.swap(names.ARCHIVE, b"mine", over=None)
    assert depot.version(names.ARCHIVE) == (before.data + b"\n", None)
