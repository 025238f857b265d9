"""Target 1: power is lost between any two operations of the disk; every state that may be left is reopened."""

from __future__ import annotations

from typing import TYPE_CHECKING

import crash.transaction_workloads  # enters its workloads  # noqa: F401
from crash.explore import Tally, explore
from crash.store_explore import explore_store
from crash.store_workloads import STORE_WORKLOADS
from crash.workloads import WORKLOADS
from proof.part import Run, part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@part(1, "power is lost at any operation of a log on a simulated disk")
def crash_states_of_a_log(run: Run) -> None:
    explore_all(run, WORKLOADS, lambda name, states: explore(WORKLOADS[name], states=states, seed=run.seed), 70_000)


@part(1, "power is lost at any operation of a store: topics, groups, transactions of the sink")
def crash_states_of_a_store(run: Run) -> None:
    def explore_one(name: str, states: int) -> Tally:
        return explore_store(STORE_WORKLOADS[name], states=states, seed=run.seed)

    explore_all(run, STORE_WORKLOADS, explore_one, 50_000)


def explore_all(run: Run, workloads: Iterable[str], explore_one: Callable[[str, int], Tally], full: int) -> None:
    """Judge at least `full` states over these workloads, or in a short run a few of two of them."""
    names = run.choose(workloads, short=2)
    states = 25 if run.is_short else -(-full // len(names))
    for name in names:
        tally = explore_one(name, states)
        run.case(tally.states)
        for violation in tally.violations:
            run.violation(violation)
    run.note(f"{len(names)} workloads")
