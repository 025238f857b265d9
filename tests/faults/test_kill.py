"""SIGKILL of a real process on real files: every acknowledged record survives, whatever the flush policy."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from faults.children import (
    Child,
    KillingFiles,
    acknowledged_end,
    append_and_report,
    can_strace,
    kill_at_any_moment,
    run_under_strace,
    survivors_violation,
)
from faults.dying import count_changes, kill_around_changes
from faults.real_disk import RealDisk, Watch, take_disk
from faults.works import WORKS
from seeklog.files import Files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

POLICIES = ["os", "interval", "batch"]
KILLS = 6  # of each policy; the part `random_kills_of_a_log` of the proof does 5,000
SEED = 1
COUNT = 60  # some 40 kB of records: two rolls

needs_strace = pytest.mark.skipif(not can_strace(), reason="strace is missing or may not inject here")


@pytest.mark.id("kill-at-random")
@pytest.mark.parametrize("flush", POLICIES)
def test_every_acknowledged_record_survives_a_kill_at_a_random_moment(flush: str, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    for number in range(KILLS):
        wrong = kill_at_any_moment(tmp_path / "log", flush, chance, way="append")
        assert not wrong, f"kill {number}, seed {SEED}: {wrong}"


@pytest.mark.parametrize("flush", POLICIES)
def test_every_record_with_completed_future_survives_a_kill(flush: str, tmp_path: Path) -> None:
    """Goal: the buffering writer, whose batches share a sync, acknowledges nothing too early."""
    chance = random.Random(SEED)
    for number in range(KILLS):
        wrong = kill_at_any_moment(tmp_path / "log", flush, chance, way="writer")
        assert not wrong, f"kill {number}, seed {SEED}: {wrong}"


@pytest.mark.id("kill-while-sending")
@pytest.mark.parametrize("flush", POLICIES)
def test_sent_records_survive_a_kill_once_and_in_order(flush: str, tmp_path: Path) -> None:
    """Goal: a resumed producer continues where the killed one stopped: nothing is lost that a future confirmed."""
    chance = random.Random(SEED)
    for number in range(KILLS):
        wrong = kill_at_any_moment(tmp_path / "store", flush, chance, way="producer")
        assert not wrong, f"kill {number}, seed {SEED}: {wrong}"


@pytest.mark.id("kill-at-a-change")
@pytest.mark.parametrize("flush", POLICIES)
def test_every_acknowledged_record_survives_a_kill_around_every_change(flush: str, tmp_path: Path) -> None:
    """Goal: exhaustive. The process dies before each change to the disk, and in another run after it."""
    # A step coprime to the changes per append and per roll, so that the short run has each kind.
    step = 11
    kills = 0
    for is_before in (True, False):
        number = 1
        while kill_around_change(tmp_path / f"{is_before}-{number}", flush, number, is_before=is_before):
            kills += 1
            number += step
    print(f"flush={flush}: {kills} kills")
    assert kills > 2 * COUNT / step


def kill_around_change(path: Path, flush: str, number: int, *, is_before: bool) -> bool:
    """Kill a child at its nth change; tell whether it made that many."""
    files = KillingFiles(kill_at=number, is_before=is_before)
    child = Child(appender(path, flush, count=COUNT, files=files))
    lines = child.rest()
    exit_code = child.wait()
    assert exit_code in (0, -9), lines
    assert not survivors_violation(path, flush, acknowledged=acknowledged_end(lines))
    return exit_code == -9


def appender(
    path: Path, flush: str, *, count: int, files: KillingFiles | None = None
) -> Callable[[Callable[[str], None]], None]:
    return lambda report: append_and_report(path, flush, report, count=count, files=files)


@pytest.mark.id("kill-in-a-system-call")
@needs_strace
@pytest.mark.parametrize("flush", POLICIES)
@pytest.mark.parametrize("call", ["pwrite64", "fdatasync", "renameat"])
def test_every_acknowledged_record_survives_a_kill_at_a_system_call(call: str, flush: str, tmp_path: Path) -> None:
    """Goal: the same from outside, by a sample: the kill comes inside the call, in any thread."""
    for number in (2, 9):
        kill_at_system_call(tmp_path / f"{number}", flush, call, number)


def kill_at_system_call(path: Path, flush: str, call: str, number: int) -> bool:
    """Kill a child inside its nth such call; tell whether it made that many."""
    exit_code, lines = run_under_strace(f"{call}:signal=SIGKILL:when={number}", path, flush, count=COUNT)
    acknowledged = acknowledged_end(lines)
    assert exit_code != 0 or acknowledged == COUNT, lines
    assert not survivors_violation(path, flush, acknowledged=acknowledged)
    return exit_code != 0


def test_real_disk_has_each_method_of_files(tmp_path: Path) -> None:
    """Goal: no attribute of a recorder's disk hides a method that the engine calls."""
    disk = RealDisk(root=tmp_path, watch=Watch())

    assert [name for name in vars(Files) if name[0] != "_" and not callable(getattr(disk, name))] == []


def test_workload_dies_before_each_of_its_changes(tmp_path: Path) -> None:
    """Goal: the process goes on after a death, so that one run has all of them."""
    work = WORKS["append, flush=batch"]
    changes = count_changes(work, tmp_path / "work")
    points = [(number, "before") for number in range(1, changes + 1)]
    died = []
    sizes = []
    for number, side, ending in kill_around_changes(work, tmp_path / "work", points):
        died.append((number, side))
        sizes.append(sum(map(len, take_disk(tmp_path / "work").files.values())))
        assert ending.is_killed
        assert ending.promise

    assert died == points
    assert sizes[0] < sizes[-1]
