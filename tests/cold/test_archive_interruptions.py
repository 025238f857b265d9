"""Archivings that fail, are killed, or run at the same time."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import seeklog
from cold.workbench import CountingDepot, archive_to, check_same, fill, sealed_end
from log.workbench import Meanwhile, QuickFiles
from seeklog import Store, names
from seeklog.errors import ArchiveMismatch, NotAccessible, NotALog
from seeklog.files.depot import DirectoryDepot
from store.workbench import snapshot


@pytest.mark.id("archive-fails-at-any-file")
def test_archiving_that_failed_at_any_file_is_completed_by_next(store: Store, root: Path, tmp_path: Path) -> None:
    """Goal: whatever was copied, the manifest names only complete files, and no complete file is copied twice."""
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


def test_partial_file_left_by_kill_is_rewritten(store: Store, tmp_path: Path) -> None:
    """Goal: file systems behind a URL may show a file while it grows."""
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
def test_different_file_with_name_of_segment_is_not_overwritten(store: Store, tmp_path: Path, data: bytes) -> None:
    archive = tmp_path / "archive"
    with pytest.raises(NotAccessible, match="went away"):
        archive_to(CountingDepot(archive, fail_at=2), store)
    log = archive / "orders-0" / f"{0:020d}.log"
    log.write_bytes(data)
    with pytest.raises(ArchiveMismatch, match="differs from the source"):
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
    """Archive in a process that is killed after a number of file parts. Return how it ended."""
    arguments = [sys.executable, "-c", CHILD, str(parts), str(root), str(archive)]
    return subprocess.run(arguments, check=False).returncode


@pytest.mark.id("archive-killed")
def test_killed_archiving_is_completed_by_next(store: Store, root: Path, tmp_path: Path) -> None:
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
def test_kill_during_archiving_leaves_previous_archive(store: Store, root: Path, tmp_path: Path) -> None:
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
def test_overtaken_attempt_does_not_write_into_new_file(twice: DirectoryDepot) -> None:
    def late() -> Iterator[bytes]:
        yield b"late"
        twice.put("orders-0/x.log", [b"in time, and read back"])
        yield b"and goes on"
        raise OSError(5, "killed at last")

    with pytest.raises(OSError, match="killed at last"):
        twice.put("orders-0/x.log", late())
    assert b"".join(twice.read("orders-0/x.log")) == b"in time, and read back"
    assert os.listdir(f"{twice.location}/orders-0") == ["x.log"]


def test_finished_attempt_does_not_remove_file_of_another(twice: DirectoryDepot) -> None:
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


def test_rename_during_directory_listing_is_not_an_error(tmp_path: Path) -> None:
    files = Meanwhile()
    (tmp_path / "orders-0").mkdir()
    for name in ("a.log", "b.log.tmp"):
        (tmp_path / "orders-0" / name).write_bytes(b"abc")
    files.before("file_size", "a.log", lambda: (tmp_path / "orders-0/b.log.tmp").rename(tmp_path / "orders-0/b.log"))

    assert DirectoryDepot(str(tmp_path), files=files).sizes("orders-0")["a.log"] == 3
    assert files.is_over


def test_new_file_does_not_replace_existing_one(twice: DirectoryDepot) -> None:
    twice.put("orders-0/x.log", [b"first"], is_new=True)
    with pytest.raises(FileExistsError):
        twice.put("orders-0/x.log", [b"other"], is_new=True)
    assert snapshot(Path(twice.location, "orders-0")) == {"x.log": b"first"}


@pytest.mark.id("archive-leftovers")
def test_leftovers_of_killed_attempts_are_removed_and_others_stay(store: Store, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    store.archive(archive)
    before = snapshot(archive)
    for left in (archive / names.ARCHIVE, archive / "orders-0" / f"{0:020d}.log"):
        Path(names.temporary_name(str(left), "0123456789abcdef" * 2)).write_bytes(b"half")
    (archive / "orders-0" / "mine.tmp").write_bytes(b"mine")
    store.archive(archive)
    assert snapshot(archive) == {**before, "orders-0/mine.tmp": b"mine"}
