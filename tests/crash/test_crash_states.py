"""After any crash, every promised record is there, in order, and nothing is invented."""

from __future__ import annotations

import os

import pytest

from crash.explore import explore
from crash.workloads import WORKLOADS

# A few hundred states of each workload: some 20 seconds on one core for all of them.
STATES_PER_WORKLOAD = 250
# Reliability target 1; SEEKLOG_CRASH_STATES overrides the number over all workloads.
STATES_FULL = 100_000
SEED = 1


def states_per_workload(default: int) -> int:
    asked = os.environ.get("SEEKLOG_CRASH_STATES")
    return -(-int(asked) // len(WORKLOADS)) if asked else default


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_crash_at_any_boundary_keeps_every_promise(name: str) -> None:
    """Goal: no state that power loss or a kill may leave breaks what a returned call has promised."""
    tally = explore(WORKLOADS[name], states=states_per_workload(STATES_PER_WORKLOAD), seed=SEED)

    print(f"{tally.workload}: {tally.states:,} states at {tally.boundaries:,} boundaries, seed {tally.seed}")
    assert tally.violations == []
    assert tally.states >= 2 * tally.boundaries > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_hundred_thousand_crash_states_keep_every_promise(name: str) -> None:
    """Goal: the same, with each byte prefix and sector subset that the bounds of the simulator allow."""
    tally = explore(WORKLOADS[name], states=states_per_workload(STATES_FULL // len(WORKLOADS)), seed=SEED)

    print(f"{tally.workload}: {tally.states:,} states at {tally.boundaries:,} boundaries, seed {tally.seed}")
    assert tally.violations == []


def test_there_are_at_least_twelve_workloads() -> None:
    assert len(WORKLOADS) >= 12
