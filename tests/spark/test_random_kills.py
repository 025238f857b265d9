"""Drivers of a streaming query that are killed from outside, at any moment: each row is written once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from spark.children import SINK
from spark.killing.sitecustomize import kill_session
from spark.test_exactly_once import PATIENCE_S, Query, reads_proc

ROUNDS = 39
SEED = 23
# More than a driver copies before most of the kills.
BATCHES = 8
# A part of the kills comes while the driver starts.
STARTING = 0.25
START_S = 6.0
COPYING_S = 2.0
TARGETS = ("session", "driver", "jvm")


@reads_proc
@pytest.mark.slow
@pytest.mark.id("spark-random-kills")
def test_drivers_killed_at_random_moments_write_each_row_once(tmp_path: Path) -> None:
    """Goal: a kill of all processes, of the driver while its JVM still commits, or of the JVM, at no chosen step."""
    chance = random.Random(SEED)
    query = Query(tmp_path, batches=0)
    fates: Counter[str] = Counter()
    drivers = []
    try:
        for number in range(ROUNDS):
            query.add(BATCHES)
            target = TARGETS[number % len(TARGETS)]
            before = sink_size(query.root)
            driver = query.start()
            drivers.append(driver)
            if chance.random() < STARTING:
                delay = chance.random() * START_S
            else:
                wait_for_a_batch(query, driver, before)
                delay = chance.random() * COPYING_S
            # A random moment: there is no condition to wait for.
            with suppress(subprocess.TimeoutExpired):
                driver.wait(delay)
            fates[f"{target}, {fate(query, driver, before)}"] += 1
            kill(driver, target)
            query.check_so_far()
        killed = ROUNDS - sum(count for how, count in fates.items() if how.endswith("had ended"))
        for driver in drivers:
            query.end(driver)  # a JVM that lost its driver may still commit
        ended = query.run()
        assert ended.returncode == 0, ended.stdout
    finally:
        for driver in drivers:
            kill_session(driver.pid)
            driver.kill()
            driver.wait()
    query.check_at_the_end()
    print(f"{killed} of {ROUNDS} drivers killed, {len(query.rows):,} rows: {dict(sorted(fates.items()))}")
    assert killed > ROUNDS // 2


def sink_size(root: Path) -> int:
    return sum(path.stat().st_size for path in root.glob(f"{SINK}-*/*.log"))


def wait_for_a_batch(query: Query, driver: subprocess.Popen[str], before: int) -> None:
    """Wait until a driver has appended to the sink, or has ended."""
    pause = threading.Event()
    give_up = time.monotonic() + PATIENCE_S
    while driver.poll() is None and sink_size(query.root) == before:
        assert time.monotonic() < give_up, f"no batch in {PATIENCE_S} seconds"
        pause.wait(0.01)


def fate(query: Query, driver: subprocess.Popen[str], before: int) -> str:
    if driver.poll() is not None:
        return "had ended"
    return "copying" if sink_size(query.root) > before else "starting"


def kill(driver: subprocess.Popen[str], target: str) -> None:
    """Kill a driver with all its processes, alone, or its JVM."""
    if target == "session":
        kill_session(driver.pid)
        driver.kill()
    elif target == "driver":
        driver.kill()
    else:
        for number in javas_of(driver.pid):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)


def javas_of(session: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, ValueError):
                name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
                if name == "java" and int(rest.split()[3]) == session:
                    found.append(int(entry.name))
    return found
