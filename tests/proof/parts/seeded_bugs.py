"""Target 23: the tests of a target must find the seeded bugs that break it."""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING, Any

from proof.arena import Arena
from proof.edits import SOURCE
from proof.part import Run, part
from proof.seeded_bugs import BUGS, Bug

if TYPE_CHECKING:
    from collections.abc import Sequence

# All tests of a bug that none of them finds run to the end.
MAX_SECONDS = 240
# Some shrink a failing case before they report it.
SECONDS_EACH = 20.0
# A bug that raises one of these does not run at all: a test that fails by it has found nothing.
STUMBLES = ("import failed", "ImportError", "NameError", "SyntaxError", "UnboundLocalError")


class Skipped(Exception):
    """All tests of a bug are skipped on this machine. The message says why."""


@part(
    23,
    "Plant a bug; the tests must find it",
    covers=("archive", "clients", "log", "store"),
    uses=(
        "tests/conftest.py",
        "tests/crash",
        "tests/faults",
        "tests/interop",
        "tests/log",
        "tests/record",
        "tests/store",
    ),
)
def seeded_bugs(run: Run) -> None:
    bugs = [bug for bug in BUGS if bug.quick] if run.is_short else list(BUGS)
    copy = run.scratch / "src"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    arena = Arena(copy)
    try:
        for interpreted in (False, True):
            some = [bug for bug in bugs if bug.interpreted == interpreted]
            tests = list(dict.fromkeys(test for bug in some for test in bug.tests))
            sound = try_all(arena, tests, interpreted=interpreted)
            if sound["failed"]:
                run.violation(f"{sound['failed']} fails without any bug: {sound['why']}")
                return
        for bug in bugs:
            try:
                what = judge(arena, bug)
            except Skipped as reason:
                run.note(f"not tried because its tests are skipped: {bug.breaks} ({reason})")
                continue
            run.case()
            if what:
                run.violation(what)
    finally:
        arena.close()
    run.note(f"{len({bug.target for bug in bugs})} targets")


def judge(arena: Arena, bug: Bug) -> str:
    """Return what is wrong with the tests that should find a bug, or an empty text. Raises `Skipped`."""
    seeded = bug.seeded()
    with contextlib.ExitStack() as changes:
        for path, text in seeded.items():
            changes.enter_context(arena.changed(path, text))
        found = try_all(arena, bug.tests, interpreted=bug.interpreted)
    if not found["run"]:
        return f"target {bug.target}, {bug.breaks}: no such case: {', '.join(bug.found_by)}"
    if not found["failed"] and len(found["skipped"]) == found["run"]:
        raise Skipped(found["skipped"][0])
    if not found["failed"]:
        return f"target {bug.target}, {bug.breaks}: no test fails ({', '.join(seeded)})"
    if found["why"].startswith(STUMBLES):
        return f"target {bug.target}, {bug.breaks}: {found['failed']} does not run: {found['why']}"
    return ""


def try_all(arena: Arena, tests: Sequence[str], *, interpreted: bool) -> dict[str, Any]:
    if not tests:
        return {"failed": ""}
    return arena.try_tests([(test, SECONDS_EACH) for test in tests], interpreted=interpreted, seconds=MAX_SECONDS)
