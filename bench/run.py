"""Measure seeklog and its peers; print a table and write it as JSON."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

if not __package__:  # run as a file: make `bench` importable
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from bench.figures import (
    append,
    compaction,
    durable,
    groups,
    keys,
    lake,
    metrics,
    producing,
    read,
    recovery,
    scan,
    spark,
    startup,
    store,
    topics,
    turns,
    waiting,
    wire,
)
from bench.figures import open as opening
from bench.machine import facts
from bench.measure import Bench
from bench.row import Row, table
from bench.scale import FULL, QUICK

FAMILIES = {
    "append": append.measure,
    "durable": durable.measure,
    "read": read.measure,
    "scan": scan.measure,
    "recovery": recovery.measure,
    "open": opening.measure,
    "startup": startup.measure,
    "producing": producing.measure,
    "store": store.measure,
    "groups": groups.measure,
    "turns": turns.measure,
    "topics": topics.measure,
    "waiting": waiting.measure,
    "metrics": metrics.measure,
    "keys": keys.measure,
    "compaction": compaction.measure,
    "spark": spark.measure,
    "lake": lake.measure,
    "wire": wire.measure,
}
RESULTS = Path(__file__).parent / "results"
# Half a core. Under a higher load few turns of the durable and the threaded rows are undisturbed.
BUSY_LOAD = 0.5


def parse_arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small counts, under a minute: shows that everything runs")
    parser.add_argument(
        "--only",
        action="extend",
        nargs="+",
        default=[],
        metavar="NAME",
        help=f"measure only these families, separated by spaces or commas: {', '.join(FAMILIES)}",
    )
    parser.add_argument("--large", action="store_true", help="also read from a log of 100 M records (18 GB)")
    parser.add_argument("--dir", type=Path, default=RESULTS, help="the directory for logs while they are measured")
    parser.add_argument("--json", type=Path, default=RESULTS / "latest.json", help="the file for the result")
    arguments = parser.parse_args(words)
    arguments.only = list(dict.fromkeys(name for word in arguments.only for name in word.split(",") if name))
    unknown = [name for name in arguments.only if name not in FAMILIES]
    if unknown:
        parser.error(f"unknown family {', '.join(unknown)}; choose from {', '.join(FAMILIES)}")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    root = arguments.dir.resolve() / f"data-{os.getpid()}"
    bench = Bench(root=root, scale=QUICK if arguments.quick else FULL, large=arguments.large)
    load = os.getloadavg()[0]
    machine = facts()
    started = perf_counter()
    rows: list[Row] = []
    try:
        for name in arguments.only or FAMILIES:
            print(f"{name} ...", flush=True)
            family_started = perf_counter()
            for row in FAMILIES[name](bench):
                rows.append(row)
                print("  " + " | ".join(cell for cell in row.cells() if cell), flush=True)
            print(f"  {perf_counter() - family_started:.0f} s", flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    print(f"\n{table(rows)}\n")
    for row in rows:
        if row.note:
            print(f"{row.work}: {row.note}")
    with_target = [row for row in rows if row.reached is not None]
    print(f"{sum(row.reached is True for row in with_target)} of {len(with_target)} targets reached.")
    if load > BUSY_LOAD:
        print(f"The machine was busy at the start (load {load:.1f}): run it again on a quiet machine.")
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    result = {
        "machine": machine,
        "quick": arguments.quick,
        "seconds": round(perf_counter() - started, 1),
        "rows": [row.as_json() for row in rows],
    }
    arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
