"""Polled directories: what a look notices, and from when on it can be trusted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from log.workbench import FakeClock
from seeklog.files.polling import GRANULARITY_S, Polling

ACTIVE = "00000000000000000007.log"
SEALED = "00000000000000000000.log"
WATERMARK = "seeklog-watermark"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "t-0"
    directory.mkdir()
    for name in (SEALED, ACTIVE, WATERMARK):
        (directory / name).write_bytes(b"old")
    age(directory)
    return directory


def age(directory: Path) -> None:
    """Set all times to the past, so that any change gives another, however coarse the file system's clock is."""
    for path in (*directory.iterdir(), directory):
        os.utime(path, ns=(0, 0))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def watching(clock: FakeClock, directory: Path) -> Polling:
    """Return a watch over the directory."""
    found = Polling(clock)
    assert not found.add(str(directory))
    clock.sleep(GRANULARITY_S)
    assert found.add(str(directory))
    assert found.changes() == set()
    return found


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"new")


CHANGES: dict[str, Callable[[Path], object]] = {
    "append to the last segment": lambda directory: (directory / ACTIVE).open("ab").write(b"new"),
    "overwrite the last segment": lambda directory: overwrite(directory / ACTIVE),
    "publish a watermark": lambda directory: overwrite(directory / WATERMARK),
    "create a segment": lambda directory: (directory / "00000000000000000009.log").touch(),
    "replace the last segment": lambda directory: (directory / SEALED).rename(directory / ACTIVE),
    "remove a segment": lambda directory: (directory / SEALED).unlink(),
    "rename it": lambda directory: directory.rename(directory.parent / "deleted"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_change_of_a_partition_is_noticed_once(watching: Polling, directory: Path, change: str) -> None:
    CHANGES[change](directory)

    assert watching.changes() == {str(directory)}
    assert watching.changes() == set()
    assert not watching.has_directories


def test_directory_is_watched_only_when_its_times_can_tell_every_change(clock: FakeClock, directory: Path) -> None:
    """Goal: where times are coarse, a change soon after another leaves the same stamp."""
    watching = Polling(clock)
    assert not watching.add(str(directory))
    clock.sleep(GRANULARITY_S / 2)
    assert not watching.add(str(directory))
    (directory / "new").touch()
    clock.sleep(GRANULARITY_S / 2)
    assert not watching.add(str(directory))
    clock.sleep(GRANULARITY_S)
    assert watching.add(str(directory))


def test_forgotten_and_missing_directories_are_not_polled(watching: Polling, directory: Path) -> None:
    watching.forget(str(directory))
    watching.forget(str(directory))
    assert not watching.add(str(directory.parent / "missing"))
    assert not watching.has_directories


def test_link_to_a_directory_is_not_polled(directory: Path) -> None:
    link = directory.parent / "link"
    link.symlink_to(directory)
    watching = Polling(FakeClock())
    assert not watching.add(str(link))
    assert not watching.has_directories
