"""Targets 1 and 15: power loss between any two operations of a disk. Every possible state is reopened."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import crash.transaction_workloads  # registers its workloads  # noqa: F401
from crash.archive_work import ArchiveRecorder
from crash.explore import Tally, explore
from crash.lake_work import explore_lake
from crash.repair_work import DAMAGES, RepairRecorder
from crash.restore_work import RestoreRecorder
from crash.sim import Detail, Disk, SimFiles
from crash.store_explore import explore_store
from crash.store_workloads import STORE_WORKLOADS
from crash.workloads import WORKLOADS
from proof.part import Run, part
from seeklog.errors import SeeklogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

BRIEF: Final = Detail(prefixes=2, sectors=2, omissions=4, samples=2)


@part(1, "Cut power at any operation of a log on a simulated disk", covers=("log",))
def crash_states_of_a_log(run: Run) -> None:
    explore_all(run, WORKLOADS, lambda name, states: explore(WORKLOADS[name], states=states, seed=run.seed), 70_000)


@part(1, "Cut power at any operation of a store on a simulated disk: topics, groups, transactions", covers=("store",))
def crash_states_of_a_store(run: Run) -> None:
    def explore_one(name: str, states: int) -> Tally:
        return explore_store(STORE_WORKLOADS[name], states=states, seed=run.seed)

    explore_all(run, STORE_WORKLOADS, explore_one, 30_000)


@part(15, "Cut power at any rename, removal and sync of compaction, retention and deletion", covers=("log",))
def crash_states_of_compaction_and_retention(run: Run) -> None:
    words = ("compaction", "retention", "delet")
    names = [name for name in WORKLOADS if any(word in name for word in words)]
    # Different seeds, to explore different states than `crash_states_of_a_log`.
    explore_all(run, names, lambda name, states: explore(WORKLOADS[name], states=states, seed=run.seed + 1_000), 20_000)


@part(1, "Cut power at any operation of a repair", covers=("log",))
def crash_states_of_a_repair(run: Run) -> None:
    for damage in run.choose(DAMAGES, short=1):
        recorder = RepairRecorder(SimFiles, damage)
        states = states_left_by(recorder.sim, recorder.run, run)
        judge(run, states, recorder.promise.violations, f"{damage.__name__}")
    run.note(f"{len(DAMAGES)} kinds of damage")


@part(1, "Cut power at any operation of an archive run", covers=("archive", "store"))
def crash_states_of_an_archiving(run: Run) -> None:
    detail = BRIEF if run.is_short else Detail()
    recorders = (
        ArchiveRecorder(SimFiles),
        ArchiveRecorder(SimFiles, include_active=True),
        RestoreRecorder(SimFiles),
    )
    for recorder in recorders:
        seen: set[bytes] = set()

        def look(sim: SimFiles, recorder: Any = recorder, seen: set[bytes] = seen) -> None:
            # During a run the archive is either the one before it or its own; a restored store is none or whole.
            for label, disk in sim.crash_states(detail):
                if (digest := disk.digest()) in seen:
                    continue
                seen.add(digest)
                run.case()
                for violation in recorder.promise.violations(disk):
                    run.violation(f"{label}, {len(seen)}th state: {violation}")

        recorder.sim.on_boundary = look if not run.is_short else every_nth(look, 20)
        recorder.run()
    run.note("the first run, a run that adds segments, and a run with nothing to add; backups; a restore")


@part(1, "Cut power at any operation of a copy to a lake", covers=("spark.lake",))
def crash_states_of_a_lake(run: Run) -> None:
    try:
        run.case(explore_lake(SimFiles(Disk.of({}, directories=["/lakes"])), step=10 if run.is_short else 1))
    except (SeeklogError, AssertionError) as error:
        run.violation(f"{type(error).__name__}: {error}")


def states_left_by(files: SimFiles, work: Callable[[], object], run: Run) -> dict[bytes, tuple[str, Disk]]:
    """Do some work. Return the disks that a power loss or a kill may leave on the way, each with its cause."""
    states: dict[bytes, tuple[str, Disk]] = {}
    detail = BRIEF if run.is_short else Detail()

    def watch(sim: SimFiles) -> None:
        for label, disk in [*sim.crash_states(detail), ("process crash", sim.disk())]:
            states.setdefault(disk.digest(), (label, disk))

    files.on_boundary = watch
    work()
    files.on_boundary = None
    return states


def judge(run: Run, states: dict[bytes, tuple[str, Disk]], violations: Callable[[Disk], list[str]], where: str) -> None:
    """Count each state and its violations."""
    for number, (label, disk) in enumerate(states.values()):
        run.case()
        for violation in violations(disk):
            run.violation(f"{where}, {number}th state, {label}: {violation}")


def every_nth(look: Callable[[SimFiles], None], step: int) -> Callable[[SimFiles], None]:
    """Check only some boundaries."""
    count = itertools.count()
    return lambda sim: look(sim) if next(count) % step == 0 else None


def explore_all(run: Run, workloads: Iterable[str], explore_one: Callable[[str, int], Tally], full: int) -> None:
    """Check at least `full` states over these workloads, or in a short run a few states of one."""
    names = run.choose(workloads, short=1)
    states = 25 if run.is_short else -(-full // len(names))
    for name in names:
        tally = explore_one(name, states)
        run.case(tally.states)
        for violation in tally.violations:
            run.violation(violation)
    run.note(f"{len(names)} workloads")
