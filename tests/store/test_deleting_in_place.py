"""Deleting topics whose directories cannot be renamed.

Those are on a full disk, or in a lower layer of overlayfs: in the image of a container.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

import seeklog
from crash.faulty import FaultyFiles
from faults.small_disks import CannotMount, overlay
from log.workbench import FailingFiles, QuickFiles, TickingClock
from seeklog import Store, TopicPartition, names
from seeklog.errors import NotAccessible, SeeklogError
from store.workbench import append, open_store, partition_directories, read, strangers


class LowerLayer(FailingFiles):
    """The real disk, on which the directories of a topic cannot be renamed."""

    def __init__(self, error: int = errno.EXDEV) -> None:
        super().__init__("rename", "-delete", error=error)
        self.fails = True


def fill(root: Path, files: QuickFiles | None = None) -> Store:
    store = open_store(root, files=files, segment_bytes=1000)
    store.create_topic("orders", partitions=3)
    store.create_topic("payments", partitions=1)
    for partition in range(3):
        for _ in range(4):
            append(store, "orders", [bytes(400)], partition=partition)
    append(store, "payments", [b"kept"])
    store.commit_offsets("fraud", {TopicPartition("orders", 0): 1})
    return store


def check_deleted(store: Store, root: Path) -> None:
    assert store.topics() == ["payments"]
    assert [name for name in partition_directories(root) if name.startswith("orders")] == []
    assert strangers(root) == []
    assert read(store, "payments") == [b"kept"]


@pytest.mark.parametrize("error", [errno.EXDEV, errno.ENOSPC, errno.EDQUOT], ids=errno.errorcode.get)
def test_topic_is_deleted_whose_directories_cannot_be_renamed(root: Path, error: int) -> None:
    """On a full disk, a longer name may need a new block for the root."""
    with fill(root, LowerLayer(error)) as store:
        store.delete_topic("orders")
        check_deleted(store, root)
        assert store.groups() == []
        store.create_topic("orders", partitions=1)
        assert read(store, "orders") == []
    with open_store(root) as store:
        assert store.topics() == ["orders", "payments"]


def test_other_error_of_a_rename_is_raised(root: Path) -> None:
    files = LowerLayer(errno.EIO)
    with fill(root, files) as store:
        with pytest.raises(NotAccessible, match="'orders' is deleted, but its files are not all removed"):
            store.delete_topic("orders")
        assert "orders-0" in partition_directories(root)


class Killed(BaseException):
    """Ends a process, as far as its files are concerned."""


@pytest.mark.id("deletion-in-place-killed")
@pytest.mark.parametrize("steps", range(0, 30, 3))
def test_deletion_in_place_that_a_kill_interrupted_is_finished_by_the_next_open(root: Path, steps: int) -> None:
    done: list[str] = []

    class Killing(FaultyFiles):
        def _check(self, method: str, path: str) -> None:
            if method in ("remove", "remove_directory") and "/orders-" in path:
                if len(done) == steps:
                    raise Killed
                done.append(path)
            super()._check(method, path)

    fill(root).close()
    store = open_store(root, files=Killing(LowerLayer()))
    with pytest.raises(Killed):
        store.delete_topic("orders")
    assert [name for name in partition_directories(root) if name.startswith("orders")] != []

    with open_store(root, read_only=True) as reader:
        assert reader.topics() == ["payments"]
    with open_store(root, files=LowerLayer()) as again:
        check_deleted(again, root)


def test_file_that_cannot_be_removed_in_place_does_not_bring_the_topic_back(root: Path) -> None:
    """Goal: a directory with a partition's name is never left behind without a note in the catalog."""
    files = FaultyFiles(LowerLayer(), methods={"remove"}, only=names.LOG)
    with fill(root) as store:
        pass
    with open_store(root, files=files) as store:
        files.fail_at = files.calls + 2
        with pytest.raises(NotAccessible, match="the next change of a topic, or the next open, removes the rest"):
            store.delete_topic("orders")
        assert store.topics() == ["payments"]
        assert [name for name in partition_directories(root) if name.startswith("orders")] != []
        store.create_topic("orders", partitions=1)
        assert read(store, "orders") == []
    with open_store(root) as store:
        assert store.topics() == ["orders", "payments"]


def test_creation_that_fails_is_undone_in_place(root: Path) -> None:
    class Full(LowerLayer):
        def make_directory(self, path: str) -> None:
            if path.endswith("orders-2"):
                raise OSError(errno.EIO, "broken", path)
            super().make_directory(path)

    with open_store(root, files=Full()) as store:
        with pytest.raises(NotAccessible):
            store.create_topic("orders", partitions=4)
        assert partition_directories(root) == []
        assert store.topics() == []
    with open_store(root) as store:
        assert store.topics() == []


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("read_only", [False, True])
def test_reader_of_a_topic_that_is_deleted_in_place_gets_no_wrong_answer(
    root: Path, read_only: bool, is_reversed: bool
) -> None:
    """Goal: whatever file is removed first, as the file system lists them."""
    seen: list[object] = []

    class Looking(FaultyFiles):
        def _check(self, method: str, path: str) -> None:
            super()._check(method, path)
            if method == "remove" and "/orders-" in path:
                seen.append(outcome(lambda: read(other, "orders", 1)))

        def list(self, path: str) -> list[str]:
            return sorted(super().list(path), reverse=is_reversed)

    fill(root).close()
    with open_store(root, files=Looking(LowerLayer())) as store, open_store(root, read_only=read_only) as other:
        assert read(other, "orders", 1) == [bytes(400)] * 4
        store.delete_topic("orders")
    assert len(seen) > 10
    assert {each for each in seen if isinstance(each, str)} <= {"TopicNotFound"}


def outcome(call: Callable[[], list[bytes | None]]) -> object:
    try:
        values = call()
    except SeeklogError as error:
        return type(error).__name__
    assert values == [bytes(400)] * 4
    return values


@pytest.mark.id("delete-on-overlayfs")
def test_topic_of_a_lower_layer_is_deleted(tmp_path: Path) -> None:
    """Goal: this is every image with data in it. Lower layers are never changed."""
    lower = tmp_path / "lower"
    fill(lower / "store").close()
    before = sorted(path.relative_to(lower) for path in lower.rglob("*"))
    try:
        with overlay(tmp_path / "merged", lower=lower) as merged:
            root = merged / "store"
            with seeklog.open(root, background=False, clock=TickingClock()) as store:
                store.delete_topic("orders")
                check_deleted(store, root)
                store.create_topic("orders", partitions=2)
                append(store, "orders", [b"new"], partition=1)
            with seeklog.open(root, background=False) as store:
                assert store.topics() == ["orders", "payments"]
                assert read(store, "orders", 1) == [b"new"]
                store.delete_topic("orders")
                check_deleted(store, root)
    except CannotMount:
        pytest.skip("may not mount an overlay here")
    assert sorted(path.relative_to(lower) for path in lower.rglob("*")) == before
