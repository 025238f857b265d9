"""Runs suites under coverage.py and reports the lines and branches that they reached.

pyproject.toml sets what is measured. The kernel is measured where it runs interpreted, because coverage.py sees nothing
of the compiled one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import coverage

from proof.table import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIG: Final = ROOT / "pyproject.toml"


class TestsFailed(Exception):
    """A measured suite has a failing test, so its coverage means nothing."""

    __test__ = False  # pytest takes a name like this one for a suite


@dataclass(frozen=True, slots=True)
class Reached:
    """The lines and branches of one module that the tests reached."""

    module: str
    """Its path below the root of the project."""
    statements: int
    branches: int
    missing_lines: tuple[int, ...]
    missing_branches: tuple[tuple[int, int], ...]
    """From line to line. A target below 0 is the exit of the function that begins there."""


def run_covered(
    suites: Sequence[str],
    *,
    scratch: Path,
    interpreted: bool = True,
    by_test: bool = False,
    processes: int = 2,
    options: Sequence[str] = (),
) -> Path:
    """Run suites under coverage.py and return the data file.

    Suites are directories, files or single tests, from the root of the project; `options` are further options of
    pytest. With `by_test` the data has the node ids of the tests that reached each line as contexts (lines reached in a
    child process have none). Raises `TestsFailed` if a test fails.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    data = scratch / "reached"
    paths = [str(ROOT / "src"), str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "COVERAGE_FILE": str(data),
        "SEEKLOG_PURE": "1" if interpreted else "",
        "SEEKLOG_COVERED_BY_TEST": "1" if by_test else "",
    }
    command = [sys.executable, "-m", "coverage", "run", f"--rcfile={CONFIG}", "-m", "pytest", "-p", "proof.contexts"]
    parallel = ["-n", str(processes), "--dist", "worksteal"] if processes > 1 else ["-p", "no:xdist"]
    child = subprocess.run(
        [*command, "-p", "no:cacheprovider", *parallel, f"--basetemp={scratch / 'tests'}", *options, *suites],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if child.returncode != 0:
        raise TestsFailed("\n".join([*child.stdout.splitlines()[-20:], *child.stderr.splitlines()[-5:]]))
    measured = coverage.Coverage(data_file=str(data), config_file=str(CONFIG))
    measured.combine([str(scratch)], strict=True)
    measured.save()
    return data


def read_reached(*data: Path, scratch: Path) -> list[Reached]:
    """Return what the tests of all runs reached together, module by module."""
    report = scratch / "reached.json"
    measured = coverage.Coverage(data_file=str(scratch / "together"), config_file=str(CONFIG))
    measured.combine([str(path) for path in data], strict=True, keep=True)
    measured.json_report(outfile=str(report))
    files = json.loads(report.read_text())["files"]
    return [
        Reached(
            module=Path(name).resolve().relative_to(ROOT).as_posix(),
            statements=file["summary"]["num_statements"],
            branches=file["summary"]["num_branches"],
            missing_lines=tuple(file["missing_lines"]),
            missing_branches=tuple((start, end) for start, end in file["missing_branches"]),
        )
        for name, file in files.items()
    ]
