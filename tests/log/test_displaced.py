"""A log whose lock file or directory an operator removes or exchanges: its writer stops, and harms nobody else's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from log.test_inspection import inspect
from log.workbench import (
    BATCH_BYTES,
    CountingFiles,
    FakeClock,
    contents,
    open_log,
    open_reader,
    value_of,
    values,
)
from seeklog import Log, LogReader, Record
from seeklog.clock import SystemClock
from seeklog.errors import LogFailed
from seeklog.names import LOCK

COUNT = 50
WORDS = {"segment_bytes": 6 * BATCH_BYTES, "index_interval_bytes": 0, "cleanup_policy": "compact,delete"}


def add(log: Log, name: str, count: int) -> None:
    for number in range(count):
        log.append(b"%s %d" % (name.encode(), number), key=b"%d" % (number % 5))


def append(log: Log) -> None:
    log.append(b"first", key=b"k")


def append_many(log: Log) -> None:
    log.append_many([Record(b"first", key=b"k")] * 3)


def truncate(log: Log) -> None:
    log.truncate_to(2)


def delete(log: Log) -> None:
    log.delete_before(4)


def compact(log: Log) -> None:
    log.compact()


def roll(log: Log) -> None:
    log.roll()


def begin_epoch(log: Log) -> None:
    log.begin_epoch(7)


CHANGES = [append, append_many, truncate, delete, compact, roll, begin_epoch]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def first(path: Path, clock: FakeClock) -> Log:
    """The writer whose lock is removed. It has sealed segments and synced records."""
    log = open_log(path, clock=clock, **WORDS)
    add(log, "first", 15)
    log.flush()
    clock.advance(1)
    return log


def second_writer(path: Path) -> list[bytes | None]:
    """Write as another process would, and return what the log then holds."""
    with open_log(path, **WORDS) as log:
        add(log, "second", COUNT)
        log.flush()
        return values(log.scan())


def check_unharmed(path: Path, expected: list[bytes | None]) -> None:
    assert inspect(path) == []
    with LogReader(path) as log:
        assert values(log.scan()) == expected
        assert sum(value is not None and value.startswith(b"second") for value in expected) == COUNT


_SECOND = """
import sys
from seeklog import Log, LogConfig

with Log(sys.argv[1], config=LogConfig(segment_bytes=468, index_interval_bytes=0, flush="batch")) as log:
    for number in range(50):
        log.append(b"second %d" % number)
"""


@pytest.mark.id("removed-lock")
@pytest.mark.parametrize("flush", ["os", "interval", "batch"])
def test_writer_whose_lock_was_removed_harms_no_second_process(path: Path, flush: str) -> None:
    first = open_log(path, clock=SystemClock(), **WORDS, flush=flush)
    add(first, "first", 15)
    first.flush()
    (path / LOCK).unlink()
    subprocess.run([sys.executable, "-c", _SECOND, str(path)], check=True)
    with LogReader(path) as log:
        expected = values(log.scan())

    with pytest.raises(LogFailed, match=r"\.lock was replaced while this process was using it"):
        append(first)
    with pytest.raises(LogFailed):
        first.flush()
    first.close()
    check_unharmed(path, expected)


@pytest.mark.parametrize("change", CHANGES)
def test_no_change_of_a_writer_without_its_lock_reaches_the_log(
    path: Path, first: Log, change: Callable[[Log], None]
) -> None:
    (path / LOCK).unlink()
    expected = second_writer(path)
    before = contents(path)

    with pytest.raises(LogFailed, match=r"\.lock was replaced"):
        change(first)
    assert first.has_failed
    with pytest.raises(LogFailed):
        append(first)
    first.close()
    assert contents(path) == before
    check_unharmed(path, expected)


@pytest.mark.parametrize("is_written", [False, True])
def test_close_without_the_lock_changes_nothing(
    path: Path, clock: FakeClock, is_written: bool, caplog: pytest.LogCaptureFixture
) -> None:
    first = open_log(path, clock=clock, **WORDS)
    add(first, "first", 15)
    if not is_written:
        first.flush()
    (path / LOCK).unlink()
    expected = second_writer(path)
    before = contents(path)

    if is_written:
        with pytest.raises(LogFailed):
            first.close()
    else:
        first.close()
        assert "closed without a clean marker" in caplog.text
    assert contents(path) == before
    check_unharmed(path, expected)


def remove(path: Path) -> None:
    (path / LOCK).unlink()


def replace(path: Path) -> None:
    (path / "other").write_bytes(b"")
    (path / "other").rename(path / LOCK)


def keep_only_a_hard_link(path: Path) -> None:
    os.link(path / LOCK, path / "elsewhere")
    (path / LOCK).unlink()


def link_symbolically(path: Path) -> None:
    (path / LOCK).rename(path / "elsewhere")
    (path / LOCK).symlink_to("elsewhere")


def move_directory(path: Path) -> None:
    path.rename(path.with_name("moved"))


def swap_directory(path: Path) -> None:
    shutil.copytree(path, path.with_name("backup"))
    path.rename(path.with_name("moved"))
    path.with_name("backup").rename(path)


def swap_for_hard_links(path: Path) -> None:
    """A backup of hard links shares the lock file, but not the directory."""
    shutil.copytree(path, path.with_name("backup"), copy_function=os.link)
    path.rename(path.with_name("moved"))
    path.with_name("backup").rename(path)


def remove_directory(path: Path) -> None:
    shutil.rmtree(path)


def put_a_file_there(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.write_bytes(b"")


EXCHANGES = [
    remove,
    replace,
    keep_only_a_hard_link,
    link_symbolically,
    move_directory,
    swap_directory,
    swap_for_hard_links,
    remove_directory,
    put_a_file_there,
]


def everything(path: Path) -> dict[str, bytes]:
    return {
        str(each.relative_to(path)): each.read_bytes()
        for each in path.rglob("*")
        if each.is_file() and not each.is_symlink()
    }


@pytest.mark.id("displaced-log")
@pytest.mark.parametrize("exchange", EXCHANGES)
@pytest.mark.parametrize("change", [append, truncate, compact, roll, Log.flush, Log.close])
def test_writer_stops_when_its_lock_or_directory_is_exchanged(
    path: Path, first: Log, clock: FakeClock, exchange: Callable[[Path], None], change: Callable[[Log], None]
) -> None:
    append(first)  # not synced yet
    clock.advance(1)
    exchange(path)
    before = everything(path.parent)

    with pytest.raises(LogFailed, match="while this process was using it"):
        change(first)
    first.close()
    assert everything(path.parent) == before


def test_hard_link_to_the_lock_does_no_harm(path: Path, first: Log) -> None:
    os.link(path / LOCK, path.with_name("elsewhere"))
    append(first)
    first.flush()
    first.close()


def test_reads_continue_in_the_files_that_are_open(path: Path, first: Log) -> None:
    expected = values(first.scan())
    assert first.contains_key(b"1")
    remove(path)
    assert values(first.scan()) == expected
    assert first.contains_key(b"1")
    assert not first.contains_key(b"nobody")


def test_log_can_be_opened_again_after_its_lock_was_removed(path: Path, first: Log) -> None:
    remove(path)
    with pytest.raises(LogFailed, match="then open it again"):
        append(first)
    first.close()
    with open_log(path, **WORDS) as log:
        assert log.log_end_offset == 15
        append(log)


def test_appends_check_the_lock_once_in_a_millisecond(path: Path) -> None:
    class Counting(CountingFiles):
        checks = 0

        def identity(self, path: str) -> tuple[int, int]:
            self.checks += 1
            return super().identity(path)

    files, clock = Counting(), FakeClock()
    with open_log(path, files=files, clock=clock) as log:
        log.append(value_of(0))
        files.checks = 0
        for _ in range(100):
            log.append(value_of(0))
        assert files.checks == 0
        for step in (1, -1000):  # the clock may be set back
            clock.wall_ms += step
            log.append(value_of(0))
            assert files.checks == 2
            files.checks = 0


def test_returned_log_of_an_exchanged_directory_is_not_borrowed(path: Path) -> None:
    first = open_log(path, background=False)
    first.append(value_of(0))
    first.give_back()
    swap_directory(path)
    before = everything(path)
    assert not first.borrow()
    first.close()
    assert everything(path) == before
    with open_reader(path) as log:
        assert values(log.scan()) == [value_of(0)]
