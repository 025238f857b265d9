"""`python tests/proof` runs parts in full and keeps their rows in build/proof; `--publish` writes them into docs/."""

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
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from proof.part import PARTS, Missing, Part, Run, Size, load_parts
from proof.sources import Repository
from proof.staleness import Ages
from proof.table import BUILD, CHANGED, HEADING, ROOT, Row, as_line, latest, objections, publish, record, write_table

CODE: Final = ("src", "tests")


def main() -> int:
    """Run the requested parts. Fail if any promise was broken."""
    parts = load_parts()
    parser = argparse.ArgumentParser(
        description="Do every kind of damage to seeklog and count broken promises. Results are kept in build/proof."
    )
    parser.add_argument(
        "only", nargs="*", metavar="part", help="the name of a part, or the number of a target (default: all)"
    )
    parser.add_argument(
        "--rest",
        action="store_true",
        help="skip parts whose row, in build/proof or docs/, is current and without violations",
    )
    parser.add_argument("--size", choices=["short", "full"], default="full", help="short runs leave no row")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="parts to run at the same time (default: %(default)s)"
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help="print the parts, their rows so far, and what has changed since; run nothing",
    )
    parser.add_argument(
        "--publish", action="store_true", help="write the rows into docs/ if the table is complete; run nothing"
    )
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    unknown = {*arguments.only} - {one.name for one in parts} - {str(one.target) for one in parts}
    if unknown:
        parser.error(f"no such part or target: {', '.join(sorted(unknown))}; --list prints all of them")
    wanted = [one for one in parts if not arguments.only or {one.name, str(one.target)} & {*arguments.only}]
    if arguments.child:
        arguments.child.write_text(json.dumps(asdict(run_here(wanted[0], size=arguments.size, seed=arguments.seed))))
        return 0
    age = Ages(Repository(ROOT), PARTS)
    if arguments.publish:
        if arguments.only:
            parser.error("--publish takes no parts: it publishes the whole table")
        return publish_all(age)
    if arguments.rest or arguments.list:
        rows = {row.name: row for row in latest(titles(), age=age)}
        if arguments.rest:
            wanted = [one for one in wanted if one.name not in rows or must_run(rows[one.name], age)]
        if arguments.list:
            for one in wanted:
                print(f"{one.target:>3}  {one.name:<40}  {state_of(rows.get(one.name), age)}")
            return 0
    return run_all(wanted, size=arguments.size, seed=arguments.seed, jobs=arguments.jobs, age=age)


def titles() -> dict[str, str]:
    return {one.name: one.title for one in PARTS.values()}


def must_run(row: Row, age: Ages) -> bool:
    """Return whether a row does not show that its part holds for the code as it is."""
    return bool(row.missing or row.violations) or not age(row).is_current


def run_all(wanted: list[Part], *, size: Size, seed: int, jobs: int, age: Ages) -> int:
    """Run parts, print their rows, and keep the rows of full runs."""
    if size == "full" and _commit().endswith(CHANGED):
        print("src/ or tests/ differ from the commit: the rows of this run cannot be published", file=sys.stderr)
    print(HEADING)
    found = 0
    with ThreadPoolExecutor(jobs) as pool:
        for row in pool.map(lambda one: run_and_record(one, size=size, seed=seed), wanted):
            found += row.violations
            print(as_line(row), flush=True)
            for sample in row.samples:
                print(f"       {sample}")
    if size == "full":
        write_table(PARTS, age=age)
        print(f"The table of all parts so far is {(BUILD / 'table.md').relative_to(ROOT)}.")
    return 1 if found else 0


def run_and_record(one: Part, *, size: Size, seed: int) -> Row:
    """Run a part, and keep its row at once, in case the run of the others is interrupted."""
    row = run_apart(one, size=size, seed=seed)
    if size == "full":
        record(row)
    return row


def publish_all(age: Ages) -> int:
    """Write the table into docs/ if it is complete and no promise was broken. Stale rows are marked in it."""
    rows = latest(titles(), age=age)
    reasons = list(objections(titles(), rows))
    for reason in reasons:
        print(reason, file=sys.stderr)
    if reasons:
        print("Nothing is published.", file=sys.stderr)
        return 1
    publish(rows, age=age)
    current = sum(age(row).is_current for row in rows)
    print(f"{len(rows)} rows are in docs/proof.json and docs/proof.md. {current} are current, the others are marked.")
    return 0


def state_of(row: Row | None, age: Ages) -> str:
    """Return the latest result of a part, and what has changed since, in a few words."""
    if row is None:
        return "never run"
    if row.missing:
        return f"not run: {row.missing}"
    return f"{row.violations:,} violations, {row.seconds:>6,.0f} s, {row.commit:<16}  {age(row)}"


def run_apart(one: Part, *, size: Size, seed: int) -> Row:
    """Run a part in a separate process, which contains its effects on memory, signals and limits."""
    with tempfile.TemporaryDirectory() as scratch:
        answer = Path(scratch) / "row.json"
        command = [sys.executable, str(Path(__file__).parent), one.name, "--size", size, "--seed", str(seed)]
        started = time.perf_counter()
        commit = _commit()
        child = subprocess.run([*command, "--child", str(answer)], capture_output=True, text=True, check=False)
        if answer.exists():
            return Row(**json.loads(answer.read_text()))
        last = (child.stderr.strip().splitlines() or ["no output"])[-1]
        what = f"the part itself died, exit code {child.returncode}: {last}"
        run = Run(size, seed, Path(scratch), violations=1, samples=[what])
        return _row(one, run, time.perf_counter() - started, commit)


def run_here(one: Part, *, size: Size, seed: int) -> Row:
    """Run a part in this process."""
    scratch = Path(tempfile.mkdtemp(prefix="seeklog-proof-"))
    run = Run(size, seed, scratch)
    commit = _commit()
    started = time.perf_counter()
    missing = ""
    try:
        one.work(run)
    except Missing as error:
        missing = str(error)
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(scratch)
    return _row(one, run, time.perf_counter() - started, commit, missing=missing)


def _row(one: Part, run: Run, seconds: float, commit: str, *, missing: str = "") -> Row:
    """Return the row of a run that began at a commit."""
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
        commit=_marked(commit),
        missing=missing,
    )


def _commit() -> str:
    """Return the commit, marked if src/ or tests/ differ from it."""
    return _marked(_git("rev-parse", "--short", "HEAD"))


def _marked(commit: str) -> str:
    """Return a commit, marked if src/ or tests/ differ from it."""
    if commit.endswith(CHANGED):
        return commit
    differ = _git("diff", "--name-only", commit, "--", *CODE)
    differ += _git("ls-files", "--others", "--exclude-standard", "--", *CODE)
    return f"{commit}{CHANGED}" if differ else commit


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
