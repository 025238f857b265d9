"""Workloads whose disk fails: in a system call of a real process, or in a call to a simulated disk.

For any failure the caller gets a seeklog error, acknowledged records exist, and no change is half done.
"""

from __future__ import annotations

import contextlib
import errno
import logging
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from crash.faulty import FaultyFiles
from crash.recorder import Recorder, open_log
from crash.sim import SimFiles
from faults.dying import SEED, Hearing, after_the_error, run_traced
from seeklog import names
from seeklog.errors import DiskFull, SeeklogError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from crash.sim import Disk
    from faults.dying import Judge
    from faults.works import Work
    from seeklog.files import Files

SYNCS: Final = frozenset({"sync", "sync_directory"})
SYNC_CALLS: Final = ("fdatasync", "fsync")
# The disk is judged this many calls after a failure: its effects show soon, and a clean close would hide them.
CALLS_JUDGED: Final = 4


def fail_system_call(work: Work, root: Path, judge: Judge, *, call: str, number: int, error: str) -> list[str]:
    """Make the nth such call of a real process fail, and return what is wrong with its end and its files."""
    ending = run_traced(work, root, inject=f"{call}:error={error}:when={number}")
    violations = judge.violations(work, ending, root)
    if not ending.injected:
        violations.append("nothing failed")
    elif call in SYNC_CALLS and f"{names.LOG}>" in ending.injected[0] and ending.message == "done":
        # An unsynced side file is rebuilt, or its content follows from other files, as the judge has checked.
        violations.append(f"{ending.injected[0]} was not reported")
    return violations


@contextlib.contextmanager
def hearing() -> Iterator[Hearing]:
    """Collect log messages without printing them."""
    heard = Hearing()
    logger = logging.getLogger("seeklog")
    logger.addFilter(heard)
    try:
        yield heard
    finally:
        logger.removeFilter(heard)


@dataclass(slots=True)
class _Life(FaultyFiles):
    """The disk of one process, whose handles mean nothing to the next process."""

    plan: FaultyFiles = field(kw_only=True)

    def _fails(self, method: str, path: str) -> bool:
        return self.plan._fails(method, path)


@dataclass(slots=True)
class Failing:
    """One run of a workload on a simulated disk that fails at the nth call of some methods."""

    work: Work
    faulty: FaultyFiles
    violations: list[str] = field(default_factory=list)
    on: Any = None
    is_reported: bool = False
    deaths_before: int = 0
    """How often the process had died when the disk failed."""
    calls_judged: set[int] = field(default_factory=set)

    def run(self) -> None:
        """Run the workload and judge the disk: at once, after a power loss, and after a recovery and a power loss.

        If it continues after the failure, crash states between its next calls are judged too.
        """
        with hearing() as heard:
            self._run(heard)

    def _run(self, heard: Hearing) -> None:
        self.on = self.work.begin(SimFiles, SEED)
        self.on.door = self._door
        self.on.observe = partial(self._between_calls, heard)
        self.faulty.is_on = self._is_counted
        try:
            self.work.run(self.on)
            self.is_reported = heard.has_warned
        except SeeklogError as error:
            self.is_reported = True
            self.violations += filter(None, [after_the_error(self.on, error)])
            self._check_error(error)
        except (OSError, AssertionError) as error:
            self.violations.append(f"{type(error).__name__}: {error}")
        if not self.faulty.failures:
            return
        is_of_records = self.faulty.failed_method == "sync" and self.faulty.failed_path.endswith(names.LOG)
        # A process that dies during the call reports nothing.
        has_died = self._deaths() > self.deaths_before
        if is_of_records and not self.is_reported and not has_died:
            self.violations.append("the failure was not reported")
        self.faulty.heal()
        sim = self.on.sim
        sim.on_boundary = None
        self._judge_crashes("")
        if isinstance(self.on, Recorder):
            self._reopen_here(self.on, sim)

    def _between_calls(self, heard: Hearing, on: Any) -> None:
        """Judge the first boundary of each call after the one in which the disk failed."""
        if not self.faulty.failures:
            self.calls_judged = {on.calls}
        elif on.calls not in self.calls_judged and len(self.calls_judged) <= CALLS_JUDGED:
            self.calls_judged.add(on.calls)
            is_reported = heard.has_warned
            self._judge_crashes(f"{len(self.calls_judged) - 1} calls later, ")
            heard.has_warned = is_reported

    def _judge_crashes(self, when: str) -> None:
        sim, promise = self.on.sim, self.work.promise_of(self.on)
        self._judge(f"{when}process crash", promise, sim.disk(), is_power_loss=False)
        # The pages of a failed sync are lost in this disk, though they can be read in the other.
        self._judge(f"{when}power loss", promise, sim.durable_disk(), is_power_loss=True)

    def _is_counted(self) -> bool:
        if not self.faulty.failures:
            self.deaths_before = self._deaths()
        return getattr(self.on, "is_observed", True)

    def _deaths(self) -> int:
        return getattr(self.on, "deaths", 0)

    def _reopen_here(self, on: Recorder, sim: SimFiles) -> None:
        """Open the log on the same machine, where the lost pages can still be read: recovery must write them again."""
        sim.process_crash()
        try:
            open_log(sim, on.config, now_ms=on.clock.now_ms()).close()
        except SeeklogError as error:
            self.violations.append(f"reopened on the same machine: {type(error).__name__}: {error}")
            return
        self._judge("recovery, then power loss", self.work.promise_of(on), sim.durable_disk(), is_power_loss=False)

    def _judge(self, label: str, promise: object, disk: Disk, *, is_power_loss: bool) -> None:
        self.violations += [f"{label}: {what}" for what in self.work.judge(promise, disk, is_power_loss)[:2]]

    def _check_error(self, error: SeeklogError) -> None:
        is_full = self.faulty.error == errno.ENOSPC and self.faulty.failed_method == "write"
        if is_full and self.faulty.failed_path.endswith(names.LOG) and not isinstance(error, DiskFull):
            self.violations.append(f"{type(error).__name__} for a full disk: {error}")

    def _door(self, files: Files) -> Files:
        return _Life(files, error=self.faulty.error, prefix=self.faulty.prefix, plan=self.faulty)


def count_calls(work: Work, methods: frozenset[str]) -> int:
    """Return the number of calls of these methods while a workload is observed."""
    failing = Failing(work, FaultyFiles(SimFiles(), methods=methods))
    failing.run()
    assert not failing.violations, failing.violations
    return failing.faulty.calls


def fail_simulated(
    work: Work, number: int, *, methods: frozenset[str], error: int = errno.EIO, prefix: int = 0, lasting: bool = False
) -> list[str]:
    """Make the nth call fail on a simulated disk, and return what is wrong."""
    faulty = FaultyFiles(SimFiles(), methods=methods, fail_at=number, error=error, prefix=prefix, lasting=lasting)
    failing = Failing(work, faulty)
    failing.run()
    where = f"{faulty.failed_method} {faulty.failed_path}"
    return [f"{where}: {what}" for what in failing.violations]
