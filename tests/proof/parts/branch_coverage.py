"""Target 23: tests reach every statement and every branch of record/ and log/."""

from __future__ import annotations

from typing import Final

from proof.covered import Reached, read_reached, run_covered
from proof.part import Run, part

# The kernel is measured interpreted, by its own suite; the packages above it run on the compiled kernel, in a fifth of
# the time. Of the command line, only the modules that show the files of a log.
KERNEL_SUITES: Final = ["tests/record"]
SUITES: Final = [
    *(f"tests/{suite}" for suite in ("log", "crash", "faults", "store", "cold", "interop")),
    *(f"tests/cli/test_{verb}.py" for verb in ("info", "ls", "verify", "repair", "reindex", "report")),
]
WITHOUT_SPARK: Final = ["--ignore=tests/cold/test_spark.py"]

# Small modules and the tests that cover them.
SMALL: Final = {
    "src/seeklog/record/framed.py": "tests/record/test_framed.py",
    "src/seeklog/log/side/seal.py": "tests/log/test_seal.py",
    "src/seeklog/log/side/watermark.py": "tests/log/test_watermark.py",
}


@part(
    23,
    "Require that tests take every branch of `seeklog.record` and `seeklog.log`",
    covers=("log", "record"),
    uses=("tests/conftest.py", *KERNEL_SUITES, *SUITES),
)
def branch_coverage(run: Run) -> None:
    if run.is_short:
        runs = [run_covered([*SMALL.values()], scratch=run.scratch / "small", processes=1)]
    else:
        runs = [
            run_covered(KERNEL_SUITES, scratch=run.scratch / "interpreted"),
            run_covered(SUITES, scratch=run.scratch / "compiled", interpreted=False, options=WITHOUT_SPARK),
        ]
    modules = read_reached(*runs, scratch=run.scratch)
    if run.is_short:
        modules = [reached for reached in modules if reached.module in SMALL]
        assert len(modules) == len(SMALL), "a module in the table does not exist"
    for reached in modules:
        run.case(reached.statements + reached.branches)
        if reached.missing_lines or reached.missing_branches:
            run.violation(f"{reached.module}: {in_words(reached)}")
    statements, branches = sum(one.statements for one in modules), sum(one.branches for one in modules)
    run.note(f"{statements:,} statements, {branches:,} branches of {len(modules)} modules")


def in_words(reached: Reached) -> str:
    """Return the lines and branches that no test reached, as text."""
    lines = ", ".join(str(line) for line in reached.missing_lines)
    # The branches of an unreached line are not listed again.
    branches = ", ".join(
        f"{a}→{b if b > 0 else 'out'}" for a, b in reached.missing_branches if a not in reached.missing_lines
    )
    return "; ".join(
        filter(None, [lines and f"lines {lines} not reached", branches and f"branches {branches} not taken"])
    )
