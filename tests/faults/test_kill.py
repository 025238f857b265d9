"""SIGKILL of a real process on real files: every acknowledged record survives, whatever the flush policy."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

import pytest

from crash.recorder import read_everything
from faults.children import (
    Child,
    KillingFiles,
    acknowledged_end,
    append_and_report,
    append_by_writer_and_report,
    can_strace,
    kill_config,
    run_under_strace,
    value_at,
)
from seeklog import Log

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

POLICIES = ["os", "interval", "batch"]
# About 40 over the three policies; SEEKLOG_KILLS=10000 is reliability target 6.
KILLS_PER_POLICY = -(-int(os.environ.get("SEEKLOG_KILLS", "40")) // len(POLICIES))
KILLS_PER_LOG = 10  # then a fresh directory, so that reading it all stays quick
SEED = 1
COUNT = 60  # some 40 kB of records: two rolls
# Every call by which the door changes a file.
SYSTEM_CALLS = ["pwrite64", "fdatasync", "fsync", "ftruncate", "rename", "unlink", "mkdir"]

needs_strace = pytest.mark.skipif(not can_strace(), reason="strace is missing or may not inject here")


def check_survivors(path: Path, flush: str, *, acknowledged: int, under_way: int = 1) -> int:
    """Open the log as its next writer would; return its end. So many appends may have been under way."""
    with Log(path, config=kill_config(flush)) as log:
        values = [record.value for record in read_everything(log)]
        assert len(values) == log.log_end_offset
        assert len(values) >= acknowledged, f"{acknowledged - len(values)} acknowledged records are lost"
        assert len(values) <= acknowledged + under_way
        assert values == [value_at(offset) for offset in range(len(values))]
        return log.log_end_offset


@pytest.mark.parametrize("flush", POLICIES)
def test_every_acknowledged_record_survives_a_kill_at_a_random_moment(flush: str, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    print(f"flush={flush}: {KILLS_PER_POLICY} kills, seed {SEED}")
    acknowledged = 0
    for number in range(KILLS_PER_POLICY):
        path = tmp_path / f"log-{number // KILLS_PER_LOG}"
        if number % KILLS_PER_LOG == 0:
            acknowledged = 0
        child = Child(appender(path, flush, count=10**6))
        lines = [child.line() for _ in range(chance.randrange(0, 60))]
        # A random moment, up to a few appends long: there is no condition to wait on.
        time.sleep(chance.random() * 0.002)
        child.kill()
        lines += child.rest()
        assert child.wait() == -9, lines
        acknowledged = check_survivors(path, flush, acknowledged=max(acknowledged, acknowledged_end(lines)))


@pytest.mark.parametrize("flush", POLICIES)
def test_every_record_whose_future_was_done_survives_a_kill(flush: str, tmp_path: Path) -> None:
    """Goal: the buffering writer, whose batches share a sync, acknowledges nothing too early."""
    chance = random.Random(SEED)
    acknowledged = 0
    for number in range(KILLS_PER_POLICY):
        path = tmp_path / f"log-{number // KILLS_PER_LOG}"
        if number % KILLS_PER_LOG == 0:
            acknowledged = 0
        count = 10**5
        child = Child(lambda report: append_by_writer_and_report(path, flush, report, count=count))  # noqa: B023
        lines = [child.line() for _ in range(chance.randrange(0, 60))]
        time.sleep(chance.random() * 0.002)
        child.kill()
        lines += child.rest()
        assert child.wait() == -9, lines
        acknowledged = max(acknowledged, acknowledged_end(lines))
        acknowledged = check_survivors(path, flush, acknowledged=acknowledged, under_way=count)


@pytest.mark.parametrize("flush", POLICIES)
def test_every_acknowledged_record_survives_a_kill_around_every_change(flush: str, tmp_path: Path) -> None:
    """Goal: exhaustive. The process dies before, and in another run after, each change to the disk."""
    # A step coprime to the changes per append and per roll, so that the short run meets each kind.
    step = 1 if "SEEKLOG_KILLS" in os.environ else 7
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
    check_survivors(path, flush, acknowledged=acknowledged_end(lines))
    return exit_code == -9


def appender(
    path: Path, flush: str, *, count: int, files: KillingFiles | None = None
) -> Callable[[Callable[[str], None]], None]:
    return lambda report: append_and_report(path, flush, report, count=count, files=files)


@needs_strace
@pytest.mark.parametrize("flush", POLICIES)
@pytest.mark.parametrize("call", ["pwrite64", "fdatasync", "rename"])
def test_every_acknowledged_record_survives_a_kill_at_a_system_call(call: str, flush: str, tmp_path: Path) -> None:
    """Goal: the same from outside, by a sample: the kill comes inside the call, whichever thread makes it."""
    for number in (1, 2, 9):
        kill_at_system_call(tmp_path / f"{number}", flush, call, number)


@needs_strace
@pytest.mark.slow
@pytest.mark.parametrize("flush", POLICIES)
@pytest.mark.parametrize("call", SYSTEM_CALLS)
def test_every_acknowledged_record_survives_a_kill_at_every_system_call(call: str, flush: str, tmp_path: Path) -> None:
    number = 1
    while kill_at_system_call(tmp_path / f"{number}", flush, call, number):
        number += 1
    print(f"flush={flush}: killed at {number - 1} calls of {call}")


def kill_at_system_call(path: Path, flush: str, call: str, number: int) -> bool:
    """Kill a child inside its nth such call; tell whether it made that many."""
    exit_code, lines = run_under_strace(f"{call}:signal=SIGKILL:when={number}", path, flush, count=COUNT)
    acknowledged = acknowledged_end(lines)
    assert exit_code != 0 or acknowledged == COUNT, lines
    check_survivors(path, flush, acknowledged=acknowledged)
    return exit_code != 0
