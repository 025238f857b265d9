"""SIGKILL of a real process on real files: every acknowledged record survives, whatever the flush policy."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crash.recorder import read_everything
from faults import children
from faults.children import Child, append_and_report, kill_config, value_at
from seeklog import Log

POLICIES = ["os", "interval", "batch"]
# About 40 over the three policies; SEEKLOG_KILLS=10000 is reliability target 6.
KILLS_PER_POLICY = -(-int(os.environ.get("SEEKLOG_KILLS", "40")) // len(POLICIES))
KILLS_PER_LOG = 10  # then a fresh directory, so that reading it all stays quick
SEED = 1
APPENDS_UNDER_STRACE = 40
# Every call by which the door changes a file, but for those that Python's own start makes by the hundred.
MUTATING = "pwrite64,ftruncate,fdatasync,fsync,rename,renameat,renameat2,unlink,unlinkat,mkdir"
STRACE = shutil.which("strace")


def check_survivors(path: Path, flush: str, *, acknowledged: int) -> int:
    """Open the log as its next writer would; return its end."""
    with Log(path, config=kill_config(flush)) as log:
        values = [record.value for record in read_everything(log)]
        assert len(values) == log.log_end_offset
        assert len(values) >= acknowledged, f"{acknowledged - len(values)} acknowledged records are lost"
        # One append may have been under way.
        assert len(values) <= acknowledged + 1
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
        child = Child(lambda report, path=path: append_and_report(path, flush, report, count=10**6))  # type: ignore[misc]
        for _ in range(chance.randrange(0, 60)):
            child.line()
        # A random moment, up to a few appends long: there is no condition to wait on.
        time.sleep(chance.random() * 0.002)
        child.kill()
        lines = child.rest()
        assert child.wait() == -9
        assert not [line for line in lines if line.startswith("error")], lines
        ends = [int(line.split()[-1]) for line in lines]
        acknowledged = check_survivors(path, flush, acknowledged=max([acknowledged, *ends]))


def strace(*options: str, path: Path, flush: str) -> subprocess.CompletedProcess[str]:
    assert STRACE is not None
    tests = str(Path(__file__).resolve().parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])}
    appender = [sys.executable, children.__file__, str(path), flush, str(APPENDS_UNDER_STRACE)]
    return subprocess.run(
        [STRACE, "--seccomp-bpf", "-f", "-qq", "-o", os.devnull, *options, *appender],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=children.PATIENCE_SECONDS,
    )


def can_strace() -> bool:
    if STRACE is None:
        return False
    return (
        subprocess.run(
            [STRACE, "--seccomp-bpf", "-f", "-qq", "true"], capture_output=True, check=False
        ).returncode
        == 0
    )


needs_strace = pytest.mark.skipif(not can_strace(), reason="strace is missing or may not trace here")


def kill_at_system_call(path: Path, flush: str, number: int) -> bool:
    """Kill a child at its nth call that changes a file; tell whether it made that many."""
    result = strace(
        "-e",
        f"trace={MUTATING}",
        "-e",
        f"inject={MUTATING}:signal=SIGKILL:when={number}",
        path=path,
        flush=flush,
    )
    ends = [int(line.split()[-1]) for line in result.stdout.splitlines(keepends=True) if line.endswith("\n")]
    was_killed = result.returncode != 0
    assert was_killed or len(ends) == APPENDS_UNDER_STRACE + 1, result.stderr
    check_survivors(path, flush, acknowledged=max(ends, default=0))
    return was_killed


@needs_strace
@pytest.mark.parametrize("flush", POLICIES)
def test_every_acknowledged_record_survives_a_kill_at_a_system_call(flush: str, tmp_path: Path) -> None:
    """Goal: a sample over the run, from the first calls of the open to the last of the close."""
    for number in (1, 4, 9, 25, 60):
        kill_at_system_call(tmp_path / f"at-{number}", flush, number)


@needs_strace
@pytest.mark.slow
@pytest.mark.parametrize("flush", POLICIES)
def test_every_acknowledged_record_survives_a_kill_at_every_system_call(flush: str, tmp_path: Path) -> None:
    number = 1
    while kill_at_system_call(tmp_path / f"at-{number}", flush, number):
        number += 1
    print(f"flush={flush}: {number - 1} system calls")
    assert number > APPENDS_UNDER_STRACE
