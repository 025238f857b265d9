"""`python tests/proof`: every part in full, the table of what came of it, as text, as JSON and in the docs."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from proof.part import PARTS, Missing, Part, Run, load_parts
from proof.table import HEADING, ROOT, Row, as_line, load, merge, save


def main() -> int:
    """Run the parts that are asked for; fail if any promise was broken."""
    parts = load_parts()
    parser = argparse.ArgumentParser(description="The proof: all harm that is done to seeklog, and what came of it.")
    parser.add_argument("only", nargs="*", metavar="part", help="a name, or the number of a target (default: all)")
    parser.add_argument("--size", choices=["short", "full"], default="full")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="parts at a time (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="print the parts")
    parser.add_argument("--keep", action="store_true", help="leave docs/proof.json and the page as they are")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    wanted = [one for one in parts if not arguments.only or {one.name, str(one.target)} & {*arguments.only}]
    if arguments.list:
        for one in wanted:
            print(f"{one.target:>3}  {one.name:<40} {one.title}")
        return 0
    unknown = {*arguments.only} - {one.name for one in parts} - {str(one.target) for one in parts}
    if unknown:
        parser.error(f"no such part or target: {', '.join(sorted(unknown))}; --list prints those that there are")
    if arguments.child:
        arguments.child.write_text(json.dumps(asdict(run_here(wanted[0], size=arguments.size, seed=arguments.seed))))
        return 0

    print(HEADING)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        rows = []
        for row in pool.map(lambda one: run_apart(one, size=arguments.size, seed=arguments.seed), wanted):
            rows.append(row)
            print(as_line(row), flush=True)
            for sample in row.samples:
                print(f"       {sample}")
    if arguments.size == "full" and not arguments.keep:
        save(merge(load(), rows, names=PARTS), names=PARTS)
    return 1 if any(row.violations for row in rows) else 0


def run_apart(one: Part, *, size: str, seed: int) -> Row:
    """Run a part in a process of its own: what it does to memory, signals and limits stays there."""
    with tempfile.TemporaryDirectory() as scratch:
        answer = Path(scratch) / "row.json"
        command = [sys.executable, str(Path(__file__).parent), one.name, "--size", size, "--seed", str(seed)]
        started = time.perf_counter()
        child = subprocess.run([*command, "--child", str(answer)], capture_output=True, text=True, check=False)
        if answer.exists():
            return Row(**json.loads(answer.read_text()))
        last = (child.stderr.strip().splitlines() or ["nothing was said"])[-1]
        what = f"the part itself died, exit code {child.returncode}: {last}"
        return _row(one, Run(size, seed, Path(scratch), violations=1, samples=[what]), time.perf_counter() - started)


def run_here(one: Part, *, size: str, seed: int) -> Row:
    """Run a part in this process."""
    scratch = Path(tempfile.mkdtemp(prefix="seeklog-proof-"))
    run = Run(size, seed, scratch)
    started = time.perf_counter()
    missing = ""
    try:
        one.work(run)
    except Missing as error:
        missing = str(error)
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(scratch)
    return _row(one, run, time.perf_counter() - started, missing=missing)


def _row(one: Part, run: Run, seconds: float, *, missing: str = "") -> Row:
    return Row(
        target=one.target,
        name=one.name,
        title=one.title,
        size=run.size,
        seed=run.seed,
        cases=run.cases,
        violations=run.violations,
        samples=run.samples,
        notes=run.notes,
        peers=run.peers,
        seconds=round(seconds, 1),
        commit=_commit(),
        missing=missing,
    )


def _commit() -> str:
    """Return which commit is tried, and whether anything in its code was changed since."""
    commit = _git("rev-parse", "--short", "HEAD")
    return f"{commit}, changed" if _git("status", "--porcelain", "--", "src", "tests") else commit


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
