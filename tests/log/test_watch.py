"""The watch over directories: the first change of each is reported, once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from log.workbench import PATIENCE_S, wait_until
from seeklog.files import OsFiles, polling, watch
from seeklog.files.polling import Polling

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify is of Linux")


@pytest.fixture
def watching() -> Iterator[watch.DirectoryWatch]:
    found = watch.open_watch()
    assert found is not None
    yield found
    found.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "log"
    directory.mkdir()
    (directory / "file").write_bytes(b"old")
    return directory


def overwrite(directory: Path) -> None:
    with (directory / "file").open("r+b") as file:
        file.write(b"new")


CHANGES: dict[str, Callable[[Path], object]] = {
    "create": lambda directory: (directory / "new").touch(),
    "write": overwrite,
    "truncate": lambda directory: (directory / "file").open("r+b").truncate(1),
    "rename": lambda directory: (directory / "file").rename(directory / "other"),
    "rename into it": lambda directory: (directory.parent / "staged").rename(directory / "file"),
    "remove": lambda directory: (directory / "file").unlink(),
    "rename it": lambda directory: directory.rename(directory.parent / "deleted"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_change_in_a_directory_is_reported(watching: watch.DirectoryWatch, directory: Path, change: str) -> None:
    (directory.parent / "staged").touch()
    assert watching.add(str(directory))
    assert watching.changes() == set()
    CHANGES[change](directory)

    assert watching.wait(PATIENCE_S)
    assert watching.changes() == {str(directory)}


def test_only_the_first_change_is_reported_until_directory_is_added_again(
    watching: watch.DirectoryWatch, directory: Path
) -> None:
    watching.add(str(directory))
    for _ in range(3):
        overwrite(directory)
        (directory / "new").touch()
    assert watching.changes() == {str(directory)}
    overwrite(directory)
    assert watching.changes() == set()
    watching.add(str(directory))
    overwrite(directory)
    assert watching.changes() == {str(directory)}


def test_removed_directory_is_reported(watching: watch.DirectoryWatch, directory: Path) -> None:
    watching.add(str(directory))
    (directory / "file").unlink()
    directory.rmdir()

    assert watching.changes() == {str(directory)}
    assert not watching.add(str(directory))


def test_forgotten_directory_is_not_reported(watching: watch.DirectoryWatch, directory: Path) -> None:
    watching.add(str(directory))
    watching.forget(str(directory))
    watching.forget(str(directory))
    overwrite(directory)

    assert watching.changes() == set()


def test_directory_behind_a_link_is_not_watched(watching: watch.DirectoryWatch, directory: Path) -> None:
    link = directory.parent / "link"
    link.symlink_to(directory)

    assert not watching.add(str(link))


def test_file_system_that_may_be_remote_is_not_watched(
    watching: watch.DirectoryWatch, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: inotify does not see what other machines write, so a reader there must poll."""
    monkeypatch.setattr(watch, "_LOCAL", frozenset())

    assert not watching.add(str(directory))


def test_wake_and_close_end_a_wait(watching: watch.DirectoryWatch) -> None:
    for end in (watching.wake, watching.close):
        thread = threading.Thread(target=watching.wait, args=(PATIENCE_S,))
        thread.start()
        end()
        thread.join(PATIENCE_S / 2)
        assert not thread.is_alive()
    assert not watching.wait(PATIENCE_S)
    assert watching.changes() is None
    assert not watching.add("/")
    watching.wake()
    watching.close()


def test_signal_handler_may_close_the_watch_that_its_thread_waits_for(watching: watch.DirectoryWatch) -> None:
    """Goal: `close` in a handler, which runs in the middle of the wait, neither hangs nor releases handles in use."""
    before = signal.signal(signal.SIGUSR1, lambda *_: watching.close())

    def kill() -> None:
        wait_until(lambda: watching._is_waiting, "the wait")  # type: ignore[attr-defined]
        os.kill(os.getpid(), signal.SIGUSR1)

    try:
        killer = threading.Thread(target=kill)
        killer.start()
        watching.wait(PATIENCE_S)
        killer.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not watching.wait(PATIENCE_S)
    assert watching.changes() is None


def test_watch_polls_beyond_the_limit_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(watch.Inotify, "_call", staticmethod(refuse))
    assert isinstance(watch.open_watch(), Polling)


@pytest.mark.parametrize("missing", ["inotify", "ctypes"])
def test_watch_polls_on_a_system_without_inotify(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    if missing == "inotify":
        monkeypatch.setattr(sys, "platform", "darwin")
    else:
        monkeypatch.setitem(sys.modules, "seeklog.files.watch", None)
    assert isinstance(OsFiles().watch(), Polling)


def test_directory_that_inotify_refuses_is_polled(
    watching: watch.DirectoryWatch, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_LOCAL", frozenset())
    monkeypatch.setattr(polling, "GRANULARITY_S", 0.0)
    assert not watching.is_polled
    assert not watching.add(str(directory))
    assert watching.add(str(directory))
    assert watching.is_polled
    assert watching.changes() == set()
    (directory / "new").touch()
    assert watching.changes() == {str(directory)}
    assert not watching.is_polled
