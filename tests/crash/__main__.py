"""`python tests/crash [--states N] [--workload NAME] [--json FILE]`: the table of crash states."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import crash.transaction_workloads  # after the path is set; enters its workloads  # noqa: F401
from crash.explore import Tally, explore
from crash.store_explore import explore_store
from crash.store_workloads import STORE_WORKLOADS
from crash.workloads import WORKLOADS


def main() -> int:
    """Run the workloads, print a line for each, and fail if a promise was broken."""
    parser = argparse.ArgumentParser(description="Crash states of the workloads of a log and of a store.")
    parser.add_argument("--states", type=int, default=5000, help="over all workloads (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workload", choices=sorted({*WORKLOADS, *STORE_WORKLOADS}), action="append")
    parser.add_argument("--json", type=Path, help="write the tallies to this file")
    arguments = parser.parse_args()

    names = arguments.workload or [*WORKLOADS, *STORE_WORKLOADS]
    tallies: list[Tally] = []
    started = time.perf_counter()
    print(f"seed {arguments.seed}")
    print(f"{'workload':<46}{'boundaries':>11}{'states':>9}{'disks':>9}{'violations':>12}{'seconds':>9}")
    for name in names:
        states = -(-arguments.states // len(names))
        if name in STORE_WORKLOADS:
            tally = explore_store(STORE_WORKLOADS[name], states=states, seed=arguments.seed)
        else:
            tally = explore(WORKLOADS[name], states=states, seed=arguments.seed)
        tallies.append(tally)
        print(_line(tally), flush=True)
        for violation in tally.violations[:3]:
            print(f"    {violation}")
    total = Tally(
        "all",
        arguments.seed,
        boundaries=sum(tally.boundaries for tally in tallies),
        states=sum(tally.states for tally in tallies),
        disks=sum(tally.disks for tally in tallies),
        seconds=round(time.perf_counter() - started, 2),
        violations=[violation for tally in tallies for violation in tally.violations],
    )
    print(_line(total))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(tally) for tally in [*tallies, total]], indent=1) + "\n")
    return 1 if total.violations else 0


def _line(tally: Tally) -> str:
    return (
        f"{tally.workload:<46}{tally.boundaries:>11,}{tally.states:>9,}{tally.disks:>9,}"
        f"{len(tally.violations):>12}{tally.seconds:>9.1f}"
    )


if __name__ == "__main__":
    sys.exit(main())
