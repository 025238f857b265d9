"""Access to the disk: no link leads out of a directory, and only regular files are opened."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from log.workbench import contents, make_log, open_log
from seeklog import Log, names
from seeklog.errors import InvalidName, LogFailed, LogLocked, NotAccessible
from seeklog.files import OsFiles, take_lock

FILES = OsFiles()
CHANGES: dict[str, Callable[[str], object]] = {
    "make a file": lambda directory: FILES.open(f"{directory}/new", write=True, create=True),
    "write a file": lambda directory: FILES.open(f"{directory}/a", write=True),
    "remove": lambda directory: FILES.remove(f"{directory}/a"),
    "rename": lambda directory: FILES.rename(f"{directory}/a", f"{directory}/b"),
    "remove a directory": lambda directory: FILES.remove_directory(f"{directory}/empty"),
    "lock": lambda directory: take_lock(FILES, f"{directory}/.lock"),
    "lock out": lambda directory: FILES.lock_out_broker(f"{directory}/.lock"),
    "lock alone": lambda directory: FILES.lock_as_broker(f"{directory}/.lock"),
}


@pytest.mark.id("linked-directory-unchanged")
@pytest.mark.parametrize("change", CHANGES)
def test_nothing_is_changed_through_link_to_directory(tmp_path: Path, change: str) -> None:
    outside = tmp_path / "outside"
    (outside / "empty").mkdir(parents=True)
    (outside / "a").write_bytes(b"mine")
    (tmp_path / "payments-0").symlink_to(outside)

    with pytest.raises(OSError, match="symbolic link"):
        CHANGES[change](str(tmp_path / "payments-0"))

    assert sorted(os.listdir(outside)) == ["a", "empty"]
    assert (outside / "a").read_bytes() == b"mine"


@pytest.mark.id("lock-directory-moved")
@pytest.mark.parametrize("is_recreated", [False, True])
def test_lock_in_directory_moved_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_recreated: bool
) -> None:
    """Otherwise a process that waited between the two calls could write a directory with the same name."""
    home = tmp_path / "payments-0"
    home.mkdir()

    def move_and_lock(handle: int, how: int) -> None:
        monkeypatch.undo()
        home.rename(tmp_path / "deleted")
        if is_recreated:
            home.mkdir()
            (home / ".lock").write_bytes(b"another's")
        fcntl.flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", move_and_lock)
    with pytest.raises(LogLocked):
        take_lock(FILES, f"{home}/.lock")

    assert not is_recreated or (home / ".lock").read_bytes() == b"another's"
    assert (tmp_path / "deleted" / ".lock").read_bytes() == b""


def test_error_names_whole_path(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        FILES.remove(f"{tmp_path}/nothing")

    assert caught.value.filename == f"{tmp_path}/nothing"


def test_file_in_place_of_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(NotADirectoryError):
        FILES.remove(f"{tmp_path}/file/a")


@pytest.mark.parametrize("write", [False, True])
def test_pipe_instead_of_file_is_refused_without_waiting(tmp_path: Path, write: bool) -> None:
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(OSError, match="not a regular file"):
        FILES.open(str(tmp_path / "pipe"), write=write)


@pytest.mark.parametrize("name", [f"{0:020d}.log", names.CHECKPOINT, names.LOCK])
def test_open_of_log_with_pipe_among_files_ends(tmp_path: Path, name: str) -> None:
    make_log(tmp_path, 3)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)

    with pytest.raises(NotAccessible, match="not a regular file"):
        open_log(tmp_path)


def test_log_may_be_opened_through_link(tmp_path: Path) -> None:
    """The user decides where the log is."""
    make_log(tmp_path / "log", 3)
    (tmp_path / "link").symlink_to(tmp_path / "log")

    with Log(tmp_path / "link", background=False) as log:
        log.append(b"x")
        assert log.log_end_offset == 4


@pytest.mark.id("log-directory-becomes-link")
def test_log_whose_directory_becomes_link_writes_nothing_through_it(tmp_path: Path) -> None:
    """Goal: the log stops at the next roll, and does not continue elsewhere."""
    outside = tmp_path / "outside"
    make_log(outside, 3)
    with open_log(tmp_path / "log", segment_bytes=200) as log:
        log.append(bytes(100))
        (tmp_path / "log").rename(tmp_path / "moved")
        (tmp_path / "log").symlink_to(outside)
        before = contents(outside)

        with pytest.raises(LogFailed):
            log.append(bytes(100))

    assert contents(outside) == before


def test_application_name_must_be_text() -> None:
    with pytest.raises(InvalidName, match="surrogate"):
        names.app_key("\ud800")
