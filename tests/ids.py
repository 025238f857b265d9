"""Stable names of tests: docs and seeded bugs name a test by its id, so a move or a rename does not break them.

    @pytest.mark.id("torn-tail")
    def test_torn_last_batch_is_cut_whole_at_every_byte(cut: int) -> None: ...

`python tests/ids.py torn-tail` prints where that test is, as pytest takes it; without an id it prints all ids, and with
`--check` their faults.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
ID: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class NamedTest:
    """A test that has an id."""

    id: str
    path: str
    """Its file, below the root of the project."""
    name: str
    """The function, with its class if it has one."""

    @property
    def node(self) -> str:
        """Its name for pytest."""
        return f"{self.path}::{self.name}"

    @property
    def sentence(self) -> str:
        """Its name as a sentence."""
        return self.name.rpartition("::")[2].removeprefix("test_").replace("_", " ")


def node_of(name: str) -> str:
    """Return the node id of a test for pytest, from its id, with or without a parametrized case."""
    test, bracket, case = name.partition("[")
    return f"{named_tests()[test].node}{bracket}{case}"


@cache
def named_tests() -> dict[str, NamedTest]:
    """Return the tests that have ids, by id. If two share one, the first counts."""
    tests: dict[str, NamedTest] = {}
    for test in _all_tests():
        tests.setdefault(test.id, test)
    return tests


def problems() -> Iterator[str]:
    """Yield each fault of the ids as one line."""
    seen: dict[str, NamedTest] = {}
    for test in _all_tests():
        if not ID.fullmatch(test.id):
            yield f"{test.node}: the id {test.id!r} is not in lower case with hyphens"
        if test.id in seen:
            yield f"{test.node} has the id {test.id} of {seen[test.id].node}"
        seen.setdefault(test.id, test)


@cache
def _all_tests() -> list[NamedTest]:
    return [test for path in sorted((ROOT / "tests").rglob("test_*.py")) for test in _tests_of(path)]


def _tests_of(path: Path) -> Iterator[NamedTest]:
    text = path.read_text()
    if "mark.id(" not in text:
        return
    place = path.relative_to(ROOT).as_posix()
    for node in ast.parse(text).body:
        is_class = isinstance(node, ast.ClassDef)
        for each in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(each, ast.FunctionDef):
                name = f"{node.name}::{each.name}" if is_class else each.name  # type: ignore[attr-defined]
                yield from (NamedTest(given, place, name) for given in _ids_of(each))


def _ids_of(function: ast.FunctionDef) -> Iterator[str]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.id":
            yield ast.literal_eval(decorator.args[0])


def main() -> int:
    if sys.argv[1:] == ["--check"]:
        found = list(problems())
        for problem in found:
            print(problem, file=sys.stderr)
        return 1 if found else 0
    wanted = sys.argv[1:] or sorted(named_tests())
    unknown = [name for name in wanted if name.partition("[")[0] not in named_tests()]
    if unknown:
        print(f"no test has the id {', '.join(unknown)}; without arguments this prints all ids", file=sys.stderr)
        return 2
    for name in wanted:
        print(node_of(name) if sys.argv[1:] else f"{name:<40} {named_tests()[name].node}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
