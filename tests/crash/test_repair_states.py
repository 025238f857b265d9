"""Power lost, or a kill, while a damaged log is repaired: the next repair ends where the first would have."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from crash.recorder import FakeClock
from crash.sim import Detail, Disk, SimFiles
from faults.children import KillingFiles
from seeklog import Log, LogConfig, names
from seeklog.files import Files
from seeklog.storage.finding import Severity
from seeklog.storage.inspection import inspect_partition
from seeklog.storage.repair import repair

if TYPE_CHECKING:
    from collections.abc import Callable

PATH: Final = "/data/orders-0"
CONFIG: Final = LogConfig(segment_bytes=700, index_interval_bytes=100, retention_ms=-1)
DETAIL: Final = Detail(prefixes=2, sectors=2, omissions=6, samples=2)
RECORDS: Final = 16
# So many states and more there are in each case; fewer would mean that nobody watches.
STATES_LEAST: Final = 40


def append_all(path: str, files: Files) -> dict[int, bytes]:
    with Log(path, config=CONFIG, files=files, clock=FakeClock(), background=False) as log:
        for number in range(RECORDS):
            log.append(b"value %02d" % number, key=b"key")
        return {record.offset: record.value or b"" for record in log.scan()}


def read_all(path: str, files: Files) -> dict[int, bytes]:
    with Log(path, config=CONFIG, files=files, clock=FakeClock(), background=False) as log:
        assert log.log_end_offset == RECORDS
        return {record.offset: record.value or b"" for record in log.scan()}


def mend(path: str, files: Files, *, from_torn: bool = False) -> None:
    repair(path, config=CONFIG, files=files, clock=FakeClock(), from_torn=from_torn)


def log_paths(disk: Disk) -> list[str]:
    return sorted(path for path in disk.files if path.endswith(names.LOG))


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def damage_inside(disk: Disk) -> Disk:
    path = log_paths(disk)[1]
    return disk.with_file(path, flipped(disk.files[path], 150))


def damage_everywhere(disk: Disk) -> Disk:
    for path in log_paths(disk):
        disk = disk.with_file(path, flipped(disk.files[path], 70))
    return disk


def lose_the_end(disk: Disk) -> Disk:
    path = log_paths(disk)[-1]
    return disk.with_file(path, disk.files[path][:-30])


def lose_a_segment(disk: Disk) -> Disk:
    return disk.with_file(log_paths(disk)[1], None)


def change_an_epoch(disk: Disk) -> Disk:
    path = log_paths(disk)[0]
    return disk.with_file(path, flipped(disk.files[path], 15))


def damage_the_checkpoint(disk: Disk) -> Disk:
    path = f"{PATH}/{names.CHECKPOINT}"
    return disk.with_file(path, flipped(disk.files[path], 30))


def errors(files: Files) -> list[str]:
    found = inspect_partition(PATH, config=CONFIG, files=files)
    return [f"{each.kind} {each.path} {each.detail}" for each in found if each.severity is not Severity.NOTE]


@pytest.mark.parametrize(
    "damage",
    [
        damage_inside,
        damage_everywhere,
        lose_the_end,
        lose_a_segment,
        change_an_epoch,
        damage_the_checkpoint,
    ],
)
def test_a_repair_that_a_crash_interrupts_is_done_by_the_next(damage: Callable[[Disk], Disk]) -> None:
    files = SimFiles(Disk.of({}, directories=["/data"]))
    values = append_all(PATH, files)
    before = damage(files.disk())
    files = SimFiles(before)
    seen: dict[bytes, Disk] = {}

    def watch(sim: SimFiles) -> None:
        for _, disk in sim.crash_states(DETAIL):
            seen.setdefault(disk.digest(), disk)
        seen.setdefault(sim.disk().digest(), sim.disk())

    files.on_boundary = watch
    mend(PATH, files)
    files.on_boundary = None
    expected = read_all(PATH, files)
    assert expected.items() <= values.items()
    assert len(seen) >= STATES_LEAST, len(seen)
    kept = {path: data for path, data in files.disk().files.items() if path.endswith(names.DAMAGED)}
    for disk in seen.values():
        left = SimFiles(disk)
        mend(PATH, left)
        assert errors(left) == []
        assert read_all(PATH, left) == expected
        assert {path: data for path, data in left.disk().files.items() if path.endswith(names.DAMAGED)} == kept


@pytest.mark.parametrize("is_before", [True, False])
def test_a_repair_that_is_killed_at_any_change_is_done_by_the_next(tmp_path: Path, is_before: bool) -> None:
    source = tmp_path / "whole"
    values = append_all(str(source), KillingFiles(kill_at=-1, is_before=True))
    for path in sorted(source.glob("*.log"))[1:]:
        path.write_bytes(flipped(path.read_bytes(), 70))
    expected: dict[int, bytes] | None = None
    for number in range(1, 10_000):
        path = tmp_path / f"log-{number}"
        shutil.copytree(source, path)
        child = os.fork()
        if child == 0:
            mend(str(path), KillingFiles(kill_at=number, is_before=is_before))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        files = KillingFiles(kill_at=-1, is_before=True)
        mend(str(path), files)
        found = read_all(str(path), files)
        assert found.items() <= values.items()
        assert expected in (None, found), number
        expected = found
        shutil.rmtree(path)
        if os.WIFEXITED(status):
            assert number > 20  # a repair of two segments takes more changes than that
            return
    raise AssertionError("it is never done")
