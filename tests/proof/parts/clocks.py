"""Target 16: clocks that jump back, jump ahead by years, or stop."""

from __future__ import annotations

import random

from faults.clocks import FAKETIME, run_under_faketime, run_with_jumping_clock
from proof.part import Missing, Run, part

RUNS = 2_500
PROCESS_RUNS = 40


@part(16, "Jump the clock between any two appends; check seek by time, time indexes and retention", covers=("log",))
def jumping_clocks(run: Run) -> None:
    for number in range(15 if run.is_short else RUNS):
        run.case()
        seed = run.seed * 1_000_000 + number
        for violation in run_with_jumping_clock(seed):
            run.violation(f"seed {seed}: {violation}")
    run.note("40 steps each")


@part(16, "Append to one log from processes whose clocks are years apart", covers=("log",))
def clocks_of_processes(run: Run) -> None:
    if FAKETIME is None:
        raise Missing("faketime: apt-get install faketime")
    for number in range(1 if run.is_short else PROCESS_RUNS):
        run.case()
        for violation in run_under_faketime(run.scratch / f"{number}", random.Random(f"{run.seed}, {number}")):
            run.violation(f"run {number}: {violation}")
    run.note("5 processes each, 1999 to 2044")
