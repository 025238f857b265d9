"""The tests to run on a mutant: those that reach its line, the quickest first."""

from __future__ import annotations

import ast
import json
import os
import re
import threading
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import coverage

from proof.covered import run_covered
from proof.edits import SOURCE
from proof.mutants import Mutant

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# So many cases of a parametrized test run first; the other cases run after all tests have had a turn.
CASES_FIRST: Final = 2


@dataclass(slots=True)
class Covering:
    """The result of running tests under coverage.py."""

    tests: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    lines: dict[str, dict[int, list[int]]] = field(default_factory=dict)
    """By file and line: the tests that reached it."""

    @classmethod
    def measured(cls, suites: Sequence[str], *, interpreted: bool, scratch: Path) -> Covering:
        """Run suites under coverage.py, which sees the kernel only where it is interpreted."""
        scratch.mkdir()
        durations = scratch / "durations.json"
        os.environ["SEEKLOG_DURATIONS"] = str(durations)
        try:
            reached = run_covered(
                suites,
                scratch=scratch / "covered",
                interpreted=interpreted,
                by_test=True,
                options=["-p", "proof.durations"],
            )
        finally:
            del os.environ["SEEKLOG_DURATIONS"]
        data = coverage.CoverageData(str(reached))
        data.read()
        seconds = json.loads(durations.read_text())
        tests = list(seconds)
        numbers = {test: number for number, test in enumerate(tests)}
        lines = {
            Path(file).relative_to(SOURCE).as_posix(): {
                line: [numbers[test] for test in reached if test in numbers]
                for line, reached in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
            if Path(file).is_relative_to(SOURCE)
        }
        return cls(tests, list(seconds.values()), lines)

    def __add__(self, other: Covering) -> Covering:
        """Return the results of two runs together."""
        moved = len(self.tests)
        lines = {path: {line: list(tests) for line, tests in known.items()} for path, known in self.lines.items()}
        for path, known in other.lines.items():
            mine = lines.setdefault(path, {})
            for line, tests in known.items():
                mine.setdefault(line, []).extend(moved + test for test in tests)
        return Covering([*self.tests, *other.tests], [*self.seconds, *other.seconds], lines)

    def tests_of(self, mutant: Mutant) -> list[tuple[str, float]]:
        """Return the tests to run, in order, each with its time."""
        statement, block = _lines_around(mutant.path, mutant.line)
        reached = self._at(mutant.path, statement)
        if _runs_on_import(mutant.path, mutant.line):
            # Tests that use its name, or the code around it, may notice. A test that imports the module again has no
            # advantage.
            reached |= self._where_named(mutant) | self._at(mutant.path, block)
        if not reached:
            reached = self._at(mutant.path, self.lines.get(mutant.path, {})) or set(range(len(self.tests)))
        return self._in_order(reached)

    def _at(self, path: str, lines: Iterable[int]) -> set[int]:
        known = self.lines.get(path, {})
        return {test for line in lines for test in known.get(line, ())}

    def _where_named(self, mutant: Mutant) -> set[int]:
        name = re.match(r"(\w+)\s*(:[^=]+)?=", mutant.text)
        if name is None:
            return set()
        found: set[int] = set()
        for path in self.lines:
            places = [
                number for number, line in enumerate(_lines(path), 1) if re.search(rf"\b{re.escape(name[1])}\b", line)
            ]
            found |= self._at(path, [line for number in places for line in _lines_around(path, number)[0]])
        return found

    def _in_order(self, tests: Iterable[int]) -> list[tuple[str, float]]:
        cases: dict[str, int] = {}
        ranked = []
        for test in sorted(tests, key=lambda number: self.seconds[number]):
            function = self.tests[test].partition("[")[0]
            cases[function] = cases.get(function, 0) + 1
            ranked.append((cases[function] > CASES_FIRST, self.seconds[test], self.tests[test]))
        return [(name, seconds) for _, seconds, name in sorted(ranked)]


_PARSING = threading.Lock()


@cache
def _lines(path: str) -> Sequence[str]:
    return (SOURCE / path).read_text().splitlines()


@cache
def _tree(path: str) -> ast.Module:
    # CPython 3.11 counts the depth of all threads' trees together (python/cpython#106905): two at once can raise
    # SystemError.
    with _PARSING:
        return ast.parse((SOURCE / path).read_text())


@cache
def _spans(path: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the first and last lines of all simple statements and heads, and of all functions and classes."""
    statements, blocks = [], []
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.stmt):
            assert node.end_lineno is not None
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno
            statements.append((node.lineno, max(node.lineno, last)))
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                blocks.append((first, node.end_lineno))
    return statements, blocks


@cache
def _runs_on_import(path: str, line: int) -> bool:
    """Return whether a line is outside all function bodies: a constant, a field, a decorator, a default."""
    functions = (node for node in ast.walk(_tree(path)) if isinstance(node, ast.FunctionDef))
    return not any(node.body[0].lineno <= line <= (node.end_lineno or 0) for node in functions)


@cache
def _lines_around(path: str, line: int) -> tuple[range, range]:
    """Return the lines of the statement at a line, and those of the function or class around it."""
    statements, blocks = _spans(path)
    around = [
        min((span for span in spans if span[0] <= line <= span[1]), key=lambda span: span[1] - span[0], default=None)
        for spans in (statements, blocks)
    ]
    own, block = (range(span[0], span[1] + 1) if span is not None else range(line, line + 1) for span in around)
    return own, block
