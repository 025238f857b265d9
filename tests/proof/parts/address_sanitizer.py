"""Target 12: the kernel built with AddressSanitizer and UBSan reads damaged batches, and runs its own tests."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Final

from fuzz import sanitized
from proof.part import Missing, Run, part

if TYPE_CHECKING:
    import subprocess

# The suites that exercise the kernel: everything that reads or writes bytes.
TARGETS: Final = ("batch", "key_index", "offset_index", "time_index")
FULL_RUNS: Final = 20_000
SHORT_RUNS: Final = 100


@part(
    12,
    "Run the kernel under AddressSanitizer and UBSan: damaged input, and all tests of `seeklog.record`",
    covers=("record", "log.index", "log.keys.index"),
    uses=("tests/conftest.py", "tests/fuzz/damaging.py", "tests/fuzz/targets", "tests/record"),
)
def address_sanitizer(run: Run) -> None:
    gcc = sanitized.compiler()
    if gcc is None:
        raise Missing("gcc with libasan: apt-get install gcc")
    package = sanitized.build(gcc)
    try:
        for target in TARGETS:
            runs = str(SHORT_RUNS if run.is_short else FULL_RUNS)
            script = f"{sanitized.ROOT}/tests/fuzz/damaging.py"
            done = sanitized.run(gcc, package, [script, target, runs, str(run.seed)])
            judge(run, done, target)
            if done.returncode == 0:
                tally = json.loads(done.stdout)
                run.case(tally["executions"])
                for finding in tally["findings"]:
                    run.violation(finding)
        if not run.is_short:
            # Memory cannot be measured under the sanitizer.
            tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not bomb", f"{sanitized.ROOT}/tests/record"]
            done = sanitized.run(gcc, package, [*tests, f"--rootdir={sanitized.ROOT}"])
            judge(run, done, "tests/record")
            passed = sum(line.count(".") for line in done.stdout.splitlines() if re.match(r"[.sx]+ +\[", line))
            run.case(passed)
            run.note(f"{passed:,} tests")
    finally:
        shutil.rmtree(package)


def judge(run: Run, done: subprocess.CompletedProcess[str], what: str) -> None:
    """Count the report of a sanitizer, or another failure of a process."""
    reports = [line for line in done.stderr.splitlines() if any(word in line for word in sanitized.REPORTS)]
    for report in reports:
        run.violation(f"{what}: {report}")
    if done.returncode and not reports:
        said = (done.stdout + done.stderr).strip().splitlines() or [""]
        run.violation(f"{what}: exit code {done.returncode}: {said[-1]}")
