"""Kills of the pipeline: the final result is the same as without kills."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from payments_oracle import Result, read_batches
from payments_place import MAX_OFFSETS_PER_TRIGGER, RULES, Place

pytestmark = pytest.mark.skipif(not Path("/proc").exists(), reason="finds processes in /proc; run on Linux")

PATIENCE_S = 900
SEED = int(os.environ.get("SEEKLOG_KILL_SEED", "4"))

Moment = Callable[[Place], bool]


@pytest.fixture(scope="module")
def expected(undisturbed: Place) -> Result:
    assert len(read_batches(undisturbed.checkpoint("windows"))) > 4
    result = undisturbed.result()
    assert min(map(len, (result.payments, result.windows, result.dead_letters, result.alerts))) > 2
    return result


# ---------------------------------------------------------------- moments to kill at


def transaction_is_open(place: Place) -> bool:
    return any(b'"committing"' in _read(path) for path in place.store.glob("seeklog-transaction-*"))


def rows_are_staged(topic: str) -> Moment:
    return lambda place: any((place.store / f"{topic}-0").glob("seeklog-staged-*"))


def batch_is_planned(query: str, batch: int) -> Moment:
    return lambda place: (place.checkpoint(query) / "offsets" / str(batch)).exists()


def batch_is_committed(query: str, batch: int) -> Moment:
    return lambda place: (place.checkpoint(query) / "commits" / str(batch)).exists()


def state_is_written(query: str, batch: int) -> Moment:
    return lambda place: (place.checkpoint(query) / "state" / "0" / "0" / f"{batch + 1}.delta").exists()


def part_is_begun(table: str, batch: int) -> Moment:
    return lambda place: (place.output / table / f"batch={batch}" / "_temporary").exists()


def part_is_written(table: str, batch: int) -> Moment:
    """The batch is in the table but not in the checkpoint; alerts of windows are not written yet."""
    return lambda place: (place.output / table / f"batch={batch}" / "_SUCCESS").exists()


def transaction_is_done(query: str, batch: int) -> Moment:
    """The batch is in the topic but not in the checkpoint."""
    line = f'"version": {batch}, "state": "done"'.encode()

    def holds(place: Place) -> bool:
        return any(
            line in text and (query == "windows") == (b"payments-alerts" in text)
            for text in map(_read, place.store.glob("seeklog-transaction-*"))
        )

    return holds


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


SOME: list[Moment] = [part_is_written("merchant_windows", 2)]
EVERY: list[Moment] = [
    batch_is_planned("dead_letters", 0),
    batch_is_planned("windows", 0),
    part_is_begun("payments", 0),
    rows_are_staged("payments-dead-letters"),
    transaction_is_open,
    transaction_is_done("dead_letters", 0),
    state_is_written("payments", 0),
    part_is_written("payments", 0),
    batch_is_committed("payments", 0),
    state_is_written("windows", 1),
    part_is_begun("merchant_windows", 1),
    part_is_written("merchant_windows", 1),
    transaction_is_done("windows", 1),
    batch_is_committed("windows", 1),
    transaction_is_done("dead_letters", 2),
    part_is_written("payments", 2),
    rows_are_staged("payments-alerts"),
    transaction_is_open,
    transaction_is_done("windows", 3),
    batch_is_committed("windows", 3),
    part_is_written("payments", 4),
    batch_is_committed("dead_letters", 4),
    # The last batch, after which no window closes.
    batch_is_committed("windows", 5),
]


# ---------------------------------------------------------------- the child


class Child:
    """A run of the pipeline in separate processes."""

    def __init__(self, place: Place, environment: dict[str, str]) -> None:
        self._log = (place.output.parent / "child.log").open("ab")
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "pipelines.payments", "run", place.store, place.output, "--no-summary"),
                *("--max-offsets-per-trigger", str(MAX_OFFSETS_PER_TRIGGER)),
                *("--many-payments", str(RULES.many_payments)),
            ],
            # It runs for seconds, so fast compilation matters most.
            env={**environment, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"},
            start_new_session=True,
            stdout=self._log,
            stderr=self._log,
        )

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        self._log.close()

    def await_moment(self, holds: Callable[[], bool]) -> bool:
        """Wait until the moment comes or the child ends; return whether it still runs."""
        deadline = time.monotonic() + PATIENCE_S
        while self.process.poll() is None and time.monotonic() < deadline:
            if holds():
                return True
            time.sleep(0.001)
        assert self.process.poll() is not None, f"the pipeline did nothing more for {PATIENCE_S} s"
        return False

    def kill(self) -> None:
        """Kill both halves of the driver, Python and Java. The workers notice and end."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def kill_only(self, name: str) -> None:
        """Kill one half of the driver, and wait until the other ends."""
        for pid in _members(self.process.pid):
            if name == _name(pid):
                os.kill(pid, signal.SIGKILL)
                break
        deadline = time.monotonic() + PATIENCE_S
        while any(_name(pid) == "java" for pid in _members(self.process.pid)) and time.monotonic() < deadline:
            self.process.poll()
            time.sleep(0.01)
        self.process.wait(PATIENCE_S)


def _members(session: int) -> Iterator[int]:
    """Yield the processes of a session."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            pid = int(entry.name)
            try:
                if os.getsid(pid) == session:
                    yield pid
            except ProcessLookupError:
                continue


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def finish(place: Place, environment: dict[str, str]) -> None:
    with Child(place, environment) as child:
        child.await_moment(lambda: False)
        assert child.process.returncode == 0, (place.output.parent / "child.log").read_text()[-3000:]


def kill_at(moments: Iterable[Moment], place: Place, environment: dict[str, str]) -> int:
    """Run the pipeline once for each moment and kill it then; return the number of kills before its end."""
    kills = 0
    for moment in moments:
        with Child(place, environment) as child:
            kills += child.await_moment(lambda moment=moment: moment(place))  # type: ignore[misc]
    return kills


# ---------------------------------------------------------------- the tests


@pytest.mark.id("pipeline-killed")
def test_killed_pipeline_gives_the_same_result(expected: Result, environment: dict[str, str], tmp_path: Path) -> None:
    place = Place(tmp_path)
    assert kill_at(SOME, place, environment) == len(SOME)
    finish(place, environment)
    assert place.result() == expected


@pytest.mark.slow
def test_pipeline_killed_everywhere_gives_the_same_result(
    expected: Result, environment: dict[str, str], tmp_path: Path
) -> None:
    place = Place(tmp_path)
    assert kill_at(EVERY, place, environment) > 0.8 * len(EVERY)
    finish(place, environment)
    assert place.result() == expected


@pytest.mark.slow
def test_pipeline_killed_at_any_time_gives_the_same_result(
    expected: Result, environment: dict[str, str], tmp_path: Path
) -> None:
    print(f"SEEKLOG_KILL_SEED={SEED}")
    source = random.Random(SEED)
    place = Place(tmp_path)
    for _ in range(12):
        with Child(place, environment) as child:
            # Counted from the first batch: nothing is written before it.
            child.await_moment(lambda: batch_is_planned("windows", 0)(place))
            at = time.monotonic() + source.uniform(0, 20)
            child.await_moment(lambda at=at: time.monotonic() > at)  # type: ignore[misc]
    finish(place, environment)
    assert place.result() == expected


@pytest.mark.slow
@pytest.mark.parametrize("half", ["java", "python"])
def test_pipeline_that_loses_half_its_driver_gives_the_same_result(
    half: str, expected: Result, environment: dict[str, str], tmp_path: Path
) -> None:
    """Goal: the other half does no harm before it notices."""
    place = Place(tmp_path)
    for moment in (part_is_begun("payments", 0), transaction_is_open, part_is_written("merchant_windows", 2)):
        with Child(place, environment) as child:
            if child.await_moment(lambda moment=moment: moment(place)):  # type: ignore[misc]
                child.kill_only(half)
    finish(place, environment)
    assert place.result() == expected
