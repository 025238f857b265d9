"""Kinds of wrong indexes: no answer changes, and the index is rebuilt once, with one warning."""

from __future__ import annotations

import errno
import functools
import os
import struct
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from crash.faulty import FaultyFiles
from crash.recorder import PATH
from crash.sim import Disk, SimFiles
from faults.damage import difference, warnings_heard
from faults.disks import CONFIG, Answers, ask, files_with, make_disk, open_on
from log.workbench import FakeClock
from seeklog import Log, LogReader, Record, names
from seeklog.errors import NotAccessible, SeeklogError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from seeklog.files import Files

ENTRY_SIZES: Final = {names.OFFSET_INDEX: 8, names.TIME_INDEX: 12, names.KEY_INDEX: 8}
SUFFIXES: Final = tuple(ENTRY_SIZES)
# Twelve batches per segment, each indexed except the first: enough entries for order to matter.
INDEXED: Final = replace(CONFIG, segment_bytes=1400, index_interval_bytes=50, key_index="seal")
SEALED, ACTIVE = 0, -1


def fill(log: Log, clock: FakeClock) -> None:
    for number in range(36):
        clock.advance(10)
        # Every other key occurs once, so that a lookup must search earlier segments.
        key = f"key {number % 5 if number % 2 else number + 100}".encode()
        log.append_many([Record(f"value {number}".encode() * 3, key=key, timestamp_ms=clock.now_ms())])


@functools.cache
def healthy() -> Disk:
    disk = make_disk(lambda log, _: log.make_key_indexes(), config=INDEXED, start=make_disk(fill, config=INDEXED))
    assert len(files_with(disk, names.LOG)) >= 3
    assert all(
        len(disk.files[path]) >= 4 * ENTRY_SIZES[suffix] for suffix in SUFFIXES for path in _first_two(suffix, disk)
    )
    return disk


def _first_two(suffix: str, disk: Disk) -> list[str]:
    return files_with(disk, suffix)[:2]


@functools.cache
def expected(*, read_only: bool) -> Answers:
    with open_on(SimFiles(healthy()), config=INDEXED, read_only=read_only) as log:
        return ask(log)


# ------------------------------------------------------------ the ways


def entries_of(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def shifted(data: bytes, size: int) -> bytes:
    """Give every entry the position of the previous one."""
    width = size // 2 if size == 8 else 8
    entries = entries_of(data, size)
    return b"".join(
        entry[:width] + other[width:] for entry, other in zip(entries, entries[1:] + entries[:1], strict=True)
    )


def oversized(data: bytes, size: int) -> bytes:
    """Add entries far after the end of the log."""
    far = struct.pack(">ii", 2**30, 2**30) if size == 8 else struct.pack(">qi", 2**60, 2**30)
    return data + far * 3


DAMAGES: Final[dict[str, Callable[[bytes, int], bytes | None]]] = {
    "absent": lambda data, size: None,
    "empty": lambda data, size: b"",
    "torn in an entry": lambda data, size: data[: size * 2 + 3],
    "oversized": oversized,
    "preallocated": lambda data, size: data + bytes(size * 20),
    "stale": lambda data, size: data[: len(data) // size // 2 * size],
    "zero-filled": lambda data, size: bytes(len(data)),
    "unsorted": lambda data, size: b"".join(reversed(entries_of(data, size))),
    "garbage": lambda data, size: b"\xa5" * len(data),
    "duplicated": lambda data, size: b"".join(entry * 2 for entry in entries_of(data, size)),
    "shifted by an entry": shifted,
    "its last entry changed": lambda data, size: data[:-size] + b"\x7f" + data[-size + 1 :],
}
FROM_ANOTHER_SEGMENT: Final = "from another segment"
FORBIDDEN: Final = "not to be opened"
DIRECTORY: Final = "a directory"
WAYS: Final = (*DAMAGES, FROM_ANOTHER_SEGMENT, FORBIDDEN, DIRECTORY)
# An index with fewer correct entries is only sparser, which needs no warning. A missing key index is built by the first
# lookup.
MAY_PASS_UNNOTICED: Final = frozenset({"stale", "duplicated", "empty"})


class Forbidden(FaultyFiles):
    """A disk on which one file cannot be opened until it is replaced."""

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        if target == self.only:
            self.heal()


def damaged(way: str, *, suffix: str, which: int) -> tuple[str, Disk, Files]:
    """Return the path of one index, the disk with the damage, and how to open it."""
    disk = healthy()
    paths = files_with(disk, suffix)
    path = paths[which]
    if way == FORBIDDEN:
        only = {"methods": {"open", "map", "read_file"}, "fail_at": 1, "lasting": True, "error": errno.EACCES}
        return path, disk, Forbidden(SimFiles(disk), only=path, **only)  # type: ignore[arg-type]
    if way == DIRECTORY:
        disk = disk.with_file(path, None)
        disk = Disk(disk.directories | {path}, disk.files)
    elif way == FROM_ANOTHER_SEGMENT:
        disk = disk.with_file(path, disk.files[paths[which - 1]])
    else:
        disk = disk.with_file(path, DAMAGES[way](disk.files[path], ENTRY_SIZES[suffix]))
    return path, disk, SimFiles(disk)


def objection(way: str, *, suffix: str, which: int, read_only: bool) -> str:
    """Damage an index, read everything twice, and once more on a writer's disk; return what is wrong, or nothing."""
    answers = expected(read_only=read_only)
    path, disk, files = damaged(way, suffix=suffix, which=which)
    try:
        with warnings_heard() as heard, open_on(files, config=INDEXED, read_only=read_only) as log:
            for _ in range(2):
                found = ask(log, expected=answers)
                if found != answers:
                    return difference(found, answers)
    except NotAccessible as error:
        # The active segment needs its index files: a name that is taken raises an error.
        is_said = way == DIRECTORY and which == ACTIVE and not read_only and path in str(error)
        return "" if is_said and names_in(files) == names_in(SimFiles(disk)) else f"{error}"
    except (SeeklogError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    is_wrong = disk.files.get(path) != healthy().files[path] or way in (FORBIDDEN, DIRECTORY)
    is_made_late = suffix == names.KEY_INDEX and way == "absent"
    # A writer cannot replace a directory with a file, and raises an error.
    if len(heard) > 1 + (way == DIRECTORY and not read_only):
        return f"{len(heard)} warnings: {heard}"
    if is_wrong and way not in MAY_PASS_UNNOTICED and not is_made_late:
        if not heard:
            return "no warning"
        if os.path.basename(path).split(".")[0] not in heard[0]:
            return f"the warning does not name the segment: {heard[0]}"
    sim = files.inner if isinstance(files, FaultyFiles) else files
    assert isinstance(sim, SimFiles)
    if read_only:
        return f"a look has done {sim.pending[0]}" if sim.pending else ""
    return _after_a_writer(sim.disk(), path, answers, has_warned=bool(heard)) if way != DIRECTORY else ""


def names_in(files: Files) -> set[str]:
    """Return the names in a log's directory except the lock."""
    return {name for name in files.list(PATH) if name != names.LOCK}


def _after_a_writer(disk: Disk, path: str, answers: Answers, *, has_warned: bool) -> str:
    with warnings_heard() as heard, open_on(SimFiles(disk), config=INDEXED) as log:
        found = ask(log, expected=answers)
    if found != answers:
        return f"opened again: {difference(found, answers)}"
    if heard:
        return f"opened again: {heard[0]}"
    if has_warned and disk.files.get(path) != healthy().files[path]:
        return "it was not rebuilt to the same bytes"
    return ""


def open_at(directory: Path, *, read_only: bool) -> LogReader:
    if read_only:
        return LogReader(directory, config=INDEXED, clock=FakeClock())
    return Log(directory, config=INDEXED, clock=FakeClock(), background=False)


def link_objection(scratch: Path, *, suffix: str, which: int, read_only: bool) -> str:
    """Replace an index by a symbolic link on a real disk, to any target."""
    disk, answers = healthy(), expected(read_only=read_only)
    directory = scratch / "orders-0"
    directory.mkdir(parents=True)
    for path, data in disk.files.items():
        (directory / os.path.basename(path)).write_bytes(data)
    victim = scratch / "elsewhere"
    victim.write_bytes(b"somebody else's")
    link = directory / os.path.basename(files_with(disk, suffix)[which])
    link.unlink()
    link.symlink_to(victim)
    assert all(path.startswith(PATH) for path in disk.files)
    try:
        with warnings_heard() as heard, open_at(directory, read_only=read_only) as log:
            found = ask(log, expected=answers)
    except (SeeklogError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    if victim.read_bytes() != b"somebody else's":
        return "what the link points to was changed"
    if found != answers:
        return difference(found, answers)
    return "" if len(heard) == 1 else f"{len(heard)} warnings"
