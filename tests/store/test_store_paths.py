"""Paths that are refused as a store, and links and pipes among a store's files."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from seeklog import Store, names
from seeklog.errors import NotALog, SeeklogError
from store.workbench import append, open_store, read, snapshot


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    with open_store(root) as store:
        store.create_topic("payments", partitions=2, config={"retention.ms": 1000})
        append(store, "payments", [b"0", b"1"])
        yield store


# ---------------------------------------------------------------- refused paths


def test_file_is_not_a_store(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")

    for read_only in (False, True):
        for where in (path, path / "below"):
            with pytest.raises(NotALog, match="is a file"):
                open_store(where, read_only=read_only)
    assert path.read_text() == "mine"


@pytest.mark.parametrize("names_there", [["notes.txt"], ["src", ".git"], [".hidden"], ["a-x"], ["seeklog-topics.bak"]])
def test_directory_with_other_files_is_refused_and_not_touched(tmp_path: Path, names_there: list[str]) -> None:
    for name in names_there:
        (tmp_path / name).mkdir()
    before = snapshot(tmp_path)

    for read_only in (False, True):
        with pytest.raises(NotALog, match="holds other files"):
            open_store(tmp_path, read_only=read_only)
    assert snapshot(tmp_path) == before


def test_directory_of_partition_is_not_a_store(store: Store, root: Path) -> None:
    store.close()
    before = snapshot(root)

    for read_only in (False, True):
        with pytest.raises(NotALog, match="directory of one partition"):
            open_store(root / "payments-0", read_only=read_only)
    assert snapshot(root) == before


def test_missing_path_is_refused_and_not_created_for_reader(tmp_path: Path) -> None:
    with pytest.raises(NotALog, match="there is no store"):
        open_store(tmp_path / "missing", read_only=True)

    assert list(tmp_path.iterdir()) == []


def test_empty_directory_becomes_store_only_for_writer(tmp_path: Path) -> None:
    with pytest.raises(NotALog, match="has no topics"):
        open_store(tmp_path, read_only=True)
    assert list(tmp_path.iterdir()) == []

    with open_store(tmp_path):
        pass
    with open_store(tmp_path, read_only=True) as store:
        assert store.topics() == []


def test_writer_creates_missing_parents(tmp_path: Path) -> None:
    with open_store(tmp_path / "a" / "b" / "c") as store:
        assert store.path == tmp_path / "a" / "b" / "c"
        assert store.topics() == []


@pytest.mark.parametrize("left", [[names.TOPICS_LOCK], [names.TOPICS_LOCK, names.TOPICS + ".tmp"], [names.LOCK]])
def test_interrupted_creation_of_store_is_completed(tmp_path: Path, left: list[str]) -> None:
    for name in left:
        (tmp_path / name).write_bytes(b"")

    with open_store(tmp_path) as store:
        assert store.topics() == []


# ---------------------------------------------------------------- links


@pytest.mark.id("root-link-refused")
@pytest.mark.parametrize(
    "name",
    [
        "payments-0",
        "new-0",
        names.TOPICS,
        names.META_PROPERTIES,
        names.RECOVERY_POINTS,
        names.LOG_START_OFFSETS,
        names.HIGH_WATERMARKS,
    ],
)
@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("dangling", [False, True])
def test_link_in_root_is_refused_and_its_target_not_touched(
    store: Store, root: Path, name: str, read_only: bool, dangling: bool
) -> None:
    store.maintain()
    store.close()
    place, target = root / name, root.parent / "elsewhere"
    if place.exists():
        place.rename(target)
    elif name.endswith("-0"):
        target.mkdir()
    else:
        target.write_text("mine")
    if dangling:
        target.rename(root.parent / "moved")
    place.symlink_to(target)
    before = snapshot(root.parent, locks=False)

    with pytest.raises(NotALog, match="symbolic link"):
        open_store(root, read_only=read_only)

    assert snapshot(root.parent, locks=False) == before


@pytest.mark.parametrize("name", [names.TOPICS_LOCK, names.LOCK, names.TOPICS + names.TEMPORARY])
def test_link_in_place_of_lock_is_not_followed(store: Store, root: Path, name: str) -> None:
    store.close()
    target = root.parent / "elsewhere"
    target.write_text("mine")
    (root / name).unlink(missing_ok=True)
    (root / names.TOPICS).unlink()  # so that it is written as a whole
    (root / name).symlink_to(target)

    with pytest.raises(SeeklogError), open_store(root) as again:
        again.create_topic("new", partitions=1)

    assert target.read_text() == "mine"


@pytest.mark.parametrize("name", [f"{0:020d}.log", names.CHECKPOINT, names.LOCK])
def test_link_in_partition_is_not_followed(store: Store, root: Path, name: str) -> None:
    store.close()
    place, target = root / "payments-0" / name, root.parent / "elsewhere"
    place.rename(target)
    place.symlink_to(target)
    before = target.read_bytes()

    with open_store(root) as again:
        with pytest.raises(SeeklogError):
            append(again, "payments", [b"x"])
        if name != names.LOCK:
            with pytest.raises(SeeklogError):
                read(again, "payments")
    assert target.read_bytes() == before


def test_partition_replaced_by_link_while_open_is_refused(store: Store, root: Path) -> None:
    store.close()
    with open_store(root) as again:
        (root / "payments-0").rename(root.parent / "elsewhere")
        (root / "payments-0").symlink_to(root.parent / "elsewhere")
        before = snapshot(root.parent / "elsewhere")

        with pytest.raises(NotALog):
            append(again, "payments", [b"x"])
        with pytest.raises(NotALog):
            read(again, "payments")
        assert snapshot(root.parent / "elsewhere") == before


@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_special_file_in_root_is_refused(store: Store, root: Path, kind: str) -> None:
    store.close()
    (root / names.TOPICS).unlink()
    if kind == "pipe":
        os.mkfifo(root / names.TOPICS)
    else:
        here = os.getcwd()
        os.chdir(root)  # a socket's path may have at most 107 bytes
        try:
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(names.TOPICS)
        finally:
            os.chdir(here)

    for read_only in (False, True):
        with pytest.raises(NotALog, match="not a file or directory"):
            open_store(root, read_only=read_only)
