"""Twelve ways in which an index can be wrong. No answer changes; it is rebuilt once, with one warning."""

from __future__ import annotations

import errno
import logging
import struct
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from crash.sim import FaultyFiles, SimFiles
from faults.disks import CONFIG, ask, ask_disk, files_with, make_disk, open_on
from seeklog import Record, names

if TYPE_CHECKING:
    from collections.abc import Callable

    from crash.recorder import FakeClock
    from crash.sim import Disk
    from seeklog import Log

ENTRY_SIZES = {names.OFFSET_INDEX: 8, names.TIME_INDEX: 12}
# Twelve batches to a segment, each indexed but the first: enough entries for order to matter.
INDEXED = replace(CONFIG, segment_bytes=1400, index_interval_bytes=50)


def fill(log: Log, clock: FakeClock) -> None:
    for number in range(36):
        clock.advance(10)
        log.append_many([Record(f"value {number}".encode() * 3, timestamp_ms=clock.now_ms())])


def entries_of(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def stale(data: bytes, size: int) -> bytes:
    return data[: len(data) // size // 2 * size]


def unsorted(data: bytes, size: int) -> bytes:
    return b"".join(reversed(entries_of(data, size)))


def duplicated(data: bytes, size: int) -> bytes:
    return b"".join(entry * 2 for entry in entries_of(data, size))


def shifted(data: bytes, size: int) -> bytes:
    """Give every entry the place of the one before it."""
    width = size // 2 if size == 8 else 8
    entries = entries_of(data, size)
    return b"".join(
        entry[:width] + other[width:] for entry, other in zip(entries, entries[1:] + entries[:1], strict=True)
    )


def oversized(data: bytes, size: int) -> bytes:
    """Add entries far behind the end of the log."""
    far = struct.pack(">ii", 2**30, 2**30) if size == 8 else struct.pack(">qi", 2**60, 2**30)
    return data + far * 3


DAMAGES: dict[str, Callable[[bytes, int], bytes | None]] = {
    "absent": lambda data, size: None,
    "empty": lambda data, size: b"",
    "torn in an entry": lambda data, size: data[: size * 2 + 3],
    "oversized": oversized,
    "preallocated": lambda data, size: data + bytes(size * 20),
    "stale": stale,
    "zero-filled": lambda data, size: bytes(len(data)),
    "unsorted": unsorted,
    "garbage": lambda data, size: b"\xa5" * len(data),
    "duplicated": duplicated,
    "shifted by an entry": shifted,
}
FROM_ANOTHER_SEGMENT = "from another segment"
# An index that says less, but nothing wrong, is a sparser index: there is nothing to warn of.
MAY_PASS_UNNOTICED = {"stale", "duplicated", "empty"}


def damaged(disk: Disk, *, suffix: str, way: str, which: int) -> tuple[str, Disk]:
    """Return the path of one index of a disk and the disk with it damaged."""
    paths = files_with(disk, suffix)
    path = paths[which]
    if way == FROM_ANOTHER_SEGMENT:
        return path, disk.with_file(path, disk.files[paths[which - 1]])
    return path, disk.with_file(path, DAMAGES[way](disk.files[path], ENTRY_SIZES[suffix]))


@pytest.fixture(scope="module")
def healthy() -> Disk:
    disk = make_disk(fill, config=INDEXED)
    assert len(files_with(disk, names.LOG)) >= 3
    for suffix, size in ENTRY_SIZES.items():
        assert all(len(disk.files[path]) >= size * 4 for path in files_with(disk, suffix)[:2])
    return disk


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("which", [0, -1], ids=["sealed", "active"])
@pytest.mark.parametrize("suffix", ENTRY_SIZES)
@pytest.mark.parametrize("way", [*DAMAGES, FROM_ANOTHER_SEGMENT])
def test_a_wrong_index_changes_no_answer_and_is_warned_of_once(
    healthy: Disk, way: str, suffix: str, which: int, read_only: bool, caplog: pytest.LogCaptureFixture
) -> None:
    expected = ask_disk(healthy, config=INDEXED, read_only=read_only)
    path, disk = damaged(healthy, suffix=suffix, way=way, which=which)
    sim = SimFiles(disk)
    caplog.set_level(logging.WARNING, logger="seeklog")

    with open_on(sim, config=INDEXED, read_only=read_only) as log:
        assert ask(log, expected=expected) == expected
        assert ask(log, expected=expected) == expected

    warnings = [record for record in caplog.records if record.name.split(".")[0] == "seeklog"]
    assert len(warnings) <= 1, [warning.getMessage() for warning in warnings]
    if way not in MAY_PASS_UNNOTICED and disk.files.get(path) != healthy.files[path]:
        assert len(warnings) == 1
        assert path.rpartition("/")[2].split(".")[0] in warnings[0].getMessage()
    if read_only:
        assert not sim.pending
        return

    caplog.clear()
    rebuilt = sim.disk()
    assert ask_disk(rebuilt, config=INDEXED, read_only=False, expected=expected) == expected
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    if warnings:
        assert rebuilt.files[path] == healthy.files[path]


class Forbidden(FaultyFiles):
    """A disk on which one file may not be opened, until another takes its name."""

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if target == self.only:
            self.heal()


@pytest.mark.parametrize("read_only", [True, False])
@pytest.mark.parametrize("which", [0, -1], ids=["sealed", "active"])
@pytest.mark.parametrize("suffix", ENTRY_SIZES)
def test_an_index_that_may_not_be_opened_changes_no_answer(
    healthy: Disk, suffix: str, which: int, read_only: bool
) -> None:
    """Goal: the twelfth way. A reader makes an index of its own in memory, a writer replaces the file."""
    expected = ask_disk(healthy, config=INDEXED, read_only=read_only)
    files = Forbidden(
        SimFiles(healthy),
        methods={"open", "map", "read_file"},
        fail_at=1,
        lasting=True,
        error=errno.EACCES,
        only=files_with(healthy, suffix)[which],
    )

    with open_on(files, config=INDEXED, read_only=read_only) as log:
        assert ask(log, expected=expected) == expected

    assert files.failures > 0


def test_without_any_index_every_answer_is_the_same(healthy: Disk) -> None:
    expected = ask_disk(healthy, config=INDEXED, read_only=True)
    disk = healthy
    for path in files_with(healthy, *ENTRY_SIZES):
        disk = disk.with_file(path, None)

    for read_only in (True, False):
        assert ask_disk(disk, config=INDEXED, read_only=read_only, expected=expected) == expected
