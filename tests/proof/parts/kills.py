"""Target 6: a process is killed, at every system call, around every change, at any moment. Returned calls survive."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from faults.children import can_strace, kill_at_any_moment
from faults.dying import (
    SYSTEM_CALLS,
    Judge,
    Telling,
    count_changes,
    count_system_calls,
    kill_around_changes,
    run_child,
    run_traced,
)
from faults.real_disk import unplugged
from faults.works import CHOSEN, FILE_WORKS, LOG_WORKS, STORE_WORKS, WORKS
from proof.part import Missing, Run, part

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from faults.children import Child, Way
    from faults.dying import Side
    from faults.works import Work

POLICIES: Final = ("os", "interval", "batch")
WAYS: Final[tuple[Way, ...]] = ("append", "writer", "producer")
RANDOM_KILLS: Final = 5_000  # of each kind
# Selected by name: the transactions are the longer half of a store's workloads.
TRANSACTION_WORKS: Final = {name: work for name, work in STORE_WORKS.items() if "transaction" in name or "stag" in name}
TOPIC_WORKS: Final = {name: work for name, work in STORE_WORKS.items() if name not in TRANSACTION_WORKS}


@part(6, "Kill a process inside each system call that changes a file: a log", covers=("log",))
def kills_in_system_calls_of_a_log(run: Run) -> None:
    kill_in_system_calls(run, [WORKS[name] for name in CHOSEN if name in LOG_WORKS])


@part(
    6,
    "Kill a process inside each system call that changes a file: topics, groups, transactions, archive, repair",
    covers=("archive", "log", "store"),
)
def kills_in_system_calls_of_a_store(run: Run) -> None:
    kill_in_system_calls(run, [WORKS[name] for name in CHOSEN if name not in LOG_WORKS])


@part(
    6,
    "Kill a process before and after each change that a log, an archive run or a repair makes",
    covers=("archive", "log"),
)
def kills_around_changes_of_a_log(run: Run) -> None:
    kill_around_all_changes(run, (LOG_WORKS | FILE_WORKS).values(), sides=("before", "after"))


@part(6, "Kill a process before each change to topics and groups", covers=("store",))
def kills_around_changes_of_topics(run: Run) -> None:
    kill_around_all_changes(run, TOPIC_WORKS.values(), sides=("before",))


@part(6, "Kill a process before each change of a transaction", covers=("store",))
def kills_around_changes_of_transactions(run: Run) -> None:
    kill_around_all_changes(run, TRANSACTION_WORKS.values(), sides=("before",))


@part(
    6,
    "Kill a process with a log or a producer and all its threads at a random moment, and reopen the log",
    covers=("clients.log_writer", "clients.producer", "log"),
)
def random_kills_of_a_log(run: Run) -> None:
    with unplugged(run.scratch) as scratch:
        for number in range(12 if run.is_short else RANDOM_KILLS):
            flush, way = POLICIES[number % 3], WAYS[number // 3 % 3]
            run.case()
            wrong = kill_at_any_moment(scratch / way, flush, run.chance, way=way)
            if wrong:
                run.violation(f"flush={flush}, {way}, kill {number}: {wrong}")


@part(
    6,
    "Kill a process at a random moment: all workloads of a log, archive or repair, and a fifth of a store's",
    covers=("archive", "log", "store"),
)
def random_kills_of_any_work(run: Run) -> None:
    with unplugged(run.scratch) as scratch:
        kill_any_work(run, scratch)


def kill_any_work(run: Run, scratch: Path) -> None:
    chance, judge, root = run.chance, Judge(), scratch / "work"
    works = [work for name, work in WORKS.items() if name not in STORE_WORKS or chance.random() < 0.2]
    kills = 12 if run.is_short else RANDOM_KILLS
    reached = 0
    for number in range(kills):
        work = works[number % len(works)]
        moment = chance.random() * 0.04  # about the duration of such a workload

        def kill_later(child: Child, moment: float = moment) -> None:
            child.wait_for_line()
            time.sleep(moment)
            child.kill()

        ending = run_child(work, root, Telling(), until=kill_later)
        run.case()
        reached += ending.message == ""
        for violation in judge.violations(work, ending, root):
            run.violation(f"{work.name}, after {moment * 1000:.1f} ms: {violation}")
    run.note(f"{reached:,} of {kills:,} in the middle of a workload")


def kill_in_system_calls(run: Run, works: Iterable[Work]) -> None:
    """Kill each workload inside each of its system calls in turn; the call is not made."""
    if not can_strace():
        raise Missing("strace, and the right to inject: apt-get install strace")
    chosen = run.choose(works, short=2)
    with unplugged(run.scratch) as scratch:
        for work in chosen:
            kill_in_system_calls_of(run, work, scratch / "work")
    run.note(f"{len(chosen)} workloads")


def kill_in_system_calls_of(run: Run, work: Work, root: Path) -> None:
    judge = Judge()
    counts = count_system_calls(work, root, SYSTEM_CALLS[:-1])
    points = [(call, number) for call, count in counts.items() for number in range(1, count + 1)]
    for call, number in run.choose(points, short=6):
        ending = run_traced(work, root, inject=f"{call}:signal=SIGKILL:when={number}")
        run.case()
        where = f"{work.name}, {call} {number}"
        if not ending.is_killed:
            run.violation(f"{where}: it was not killed, but ended with {ending.exit_code}: {ending.message}")
        for violation in judge.violations(work, ending, root):
            run.violation(f"{where}: {violation}")


def kill_around_all_changes(run: Run, works: Iterable[Work], *, sides: tuple[Side, ...]) -> None:
    """Kill each workload before or after each of its changes."""
    chosen = run.choose(works, short=2)
    with unplugged(run.scratch) as scratch:
        for work in chosen:
            kill_around_changes_of(run, work, scratch / "work", sides=sides)
    run.note(f"{len(chosen)} workloads")


def kill_around_changes_of(run: Run, work: Work, root: Path, *, sides: tuple[Side, ...]) -> None:
    judge = Judge()
    changes = count_changes(work, root)
    points = [(number, side) for number in run.choose(range(1, changes + 1), short=6) for side in sides]
    for number, side, ending in kill_around_changes(work, root, points):
        run.case()
        for violation in judge.violations_now(work, ending, root):
            run.violation(f"{work.name}, {side} change {number}: {violation}")
