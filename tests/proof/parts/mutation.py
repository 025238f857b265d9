"""Target 23: small random changes of the source, which the tests that reach the line must notice."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from proof.arena import Arena
from proof.covering import Covering
from proof.edits import SOURCE, is_interpreted
from proof.equivalent_mutants import reason_for
from proof.mutants import Mutant, all_mutants, changed_line, mutated, shuffled
from proof.part import Run, part
from proof.table import BUILD, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SAMPLE: Final = 300
SCORE_LEAST: Final = 0.9
# The tests: those of the kernel run it interpreted, the others compiled, for speed.
KERNEL_SUITES: Final = ("tests/record", "tests/store/test_producer.py", "tests/log/test_keys.py")
SUITES: Final = (
    "tests/log",
    "tests/store",
    "tests/cold/test_key_ranges.py",
    "tests/faults/test_index_damage.py",
)
# A mutant that no test notices within this time counts as not noticed.
SECONDS_EACH: Final = 30
ARENAS: Final = 2
# The short run: a few mutants of one small module, with its own tests.
SHORT_MODULE: Final = "seeklog/log/side/seal.py"
SHORT_TESTS: Final = "tests/log/test_seal.py"
SHORT_SAMPLE: Final = 4
UNNOTICED: Final = BUILD / "unnoticed-mutants.txt"


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of one mutant."""

    mutant: Mutant
    noticed_by: str
    """The first test that failed, or an empty text."""
    why: str

    @property
    def interpreted(self) -> bool:
        return runs_interpreted(self.mutant)


@part(
    23,
    "Change the source in one small place; the tests must notice",
    covers=("log", "record"),
    uses=("tests/conftest.py", *KERNEL_SUITES, *SUITES),
)
def mutation(run: Run) -> None:
    if run.is_short:
        drawn = valid(shuffled(all_mutants([SHORT_MODULE]), seed=run.seed), SHORT_SAMPLE)
        covering = Covering([SHORT_TESTS], [2.0])
    else:
        drawn = valid(shuffled(all_mutants(), seed=run.seed), SAMPLE)
        covering = Covering.measured(KERNEL_SUITES, interpreted=True, scratch=run.scratch / "kernel")
        covering += Covering.measured(SUITES, interpreted=False, scratch=run.scratch / "others")
    trials = try_mutants(drawn, covering, scratch=run.scratch)
    run.case(len(trials))
    for what in unfounded(trials, covering, scratch=run.scratch):
        run.violation(what)
    survivors = [trial.mutant for trial in trials if not trial.noticed_by]
    unnoticed = [mutant for mutant in survivors if not reason_for(mutant)]
    judged = len(trials) - len(survivors) + len(unnoticed)
    score = 1 - len(unnoticed) / judged
    run.note(
        f"tests noticed {score:.1%} of {judged}; {len(survivors) - len(unnoticed)} equivalent mutants are left out"
    )
    if not run.is_short:
        UNNOTICED.parent.mkdir(parents=True, exist_ok=True)
        UNNOTICED.write_text("".join(f"{mutant}\n    becomes {changed_line(mutant)}\n" for mutant in unnoticed))
        run.note(f"{UNNOTICED.relative_to(ROOT)} lists the others")
    if score < (1 if run.is_short else SCORE_LEAST):
        for mutant in unnoticed:
            run.violation(f"no test notices {mutant}, which becomes {changed_line(mutant)}")


def runs_interpreted(mutant: Mutant) -> bool:
    """Return whether a mutant is tried interpreted: no mutant is compiled."""
    # Where `record` chooses between the two, a run of the compiled one sees half of the choice.
    return is_interpreted(mutant.path) or mutant.path == "seeklog/record/__init__.py"


def valid(mutants: Iterable[Mutant], count: int) -> list[Mutant]:
    """Return the first so many mutants that are valid Python and that a run could notice."""
    chosen: list[Mutant] = []
    for mutant in mutants:
        if len(chosen) == count:
            break
        try:
            compile(mutated(mutant), mutant.path, "exec")
        except SyntaxError:
            continue
        chosen.append(mutant)
    return chosen


def try_mutants(mutants: list[Mutant], covering: Covering, *, scratch: Path) -> list[Trial]:
    """Run the tests that reach each mutant."""
    arenas: SimpleQueue[Arena] = SimpleQueue()
    opened = [Arena(copied(scratch / f"src-{number}")) for number in range(min(ARENAS, len(mutants)))]
    for arena in opened:
        arenas.put(arena)

    def try_one(mutant: Mutant) -> Trial:
        tests = covering.tests_of(mutant)
        text = mutated(mutant)
        arena = arenas.get()
        try:
            with arena.changed(mutant.path, text):
                interpreted = runs_interpreted(mutant)
                answer = arena.try_tests(tests, interpreted=interpreted, seconds=SECONDS_EACH)
            return Trial(mutant, answer["failed"], answer["why"])
        finally:
            arenas.put(arena)

    try:
        with ThreadPoolExecutor(len(opened)) as pool:
            return list(pool.map(try_one, mutants))
    finally:
        for arena in opened:
            arena.close()


def copied(place: Path) -> Path:
    shutil.copytree(SOURCE, place, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    return place


def unfounded(trials: list[Trial], covering: Covering, *, scratch: Path) -> list[str]:
    """Yield the tests that noticed a mutant but also fail without one: they prove nothing."""
    times = dict(zip(covering.tests, covering.seconds, strict=True))
    found = []
    arena = Arena(copied(scratch / "src-sound"))
    try:
        for interpreted in (False, True):
            tests = {trial.noticed_by for trial in trials if trial.interpreted == interpreted} & {*times}
            if tests:
                total = sum(times[test] for test in tests)
                answer = arena.try_tests(
                    [(test, times[test]) for test in sorted(tests)], interpreted=interpreted, seconds=60 + 10 * total
                )
                if answer["failed"]:
                    found.append(f"without any change {answer['failed']} fails: {answer['why']}")
    finally:
        arena.close()
    return found
