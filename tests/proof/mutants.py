"""Mutants: small changes to the source, one at a time, that some test should notice. cosmic-ray defines the changes.

Changes that no run can or should notice are left out: annotations, code under `TYPE_CHECKING`, the figures in log
messages, and in the kernel everything that only exists compiled (`cython.compiled`, Cython's decorators).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from proof.edits import SOURCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

PACKAGES: Final = ("seeklog/record", "seeklog/log")
# These replace and insert names from a configuration.
_NEED_ARGUMENTS: Final = ("VariableReplacer", "VariableInserter")
# No operator changes these, which are most nodes of a tree.
_INERT: Final = ("name", "string", "newline", "endmarker", "fstring_string", "fstring_start", "fstring_end", "trailer")
_MARKS: Final = frozenset("()[]{},:.=;")
# A star here is an operator, not an unpacking or the mark of keyword-only arguments.
_OPERATIONS: Final = ("term", "power", "factor")


@dataclass(frozen=True, slots=True, order=True)
class Mutant:
    """One change: one occurrence of an operator in a file."""

    path: str
    """Below `src`."""
    line: int
    column: int
    operator: str
    occurrence: int
    """The number of the place in the file, of all places that the operator can change."""
    function: str
    """The function or class around it; empty in the module itself."""
    text: str
    """The line, without its indentation."""
    twin: int
    """The number of the place among those that look the same: line, column and operator."""

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column} {self.operator} #{self.occurrence}: {self.text}"


def all_mutants(modules: Sequence[str] | None = None) -> list[Mutant]:
    """Return every mutant of the two packages, or of the given modules, in order."""
    if modules is None:
        assert all((SOURCE / package).is_dir() for package in PACKAGES), "a package is gone"
        files = [file for package in PACKAGES for file in sorted((SOURCE / package).rglob("*.py"))]
    else:
        files = [SOURCE / module for module in modules]
    return [mutant for file in files for mutant in _mutants_of(file)]


def shuffled(mutants: Sequence[Mutant], *, seed: int) -> list[Mutant]:
    """Return the mutants in random order, the same for the same seed.

    The content of a mutant decides its place, not its position in the code. So a change elsewhere, or a moved file,
    leaves the other mutants in a sample, which is the beginning of this list.
    """

    def place(mutant: Mutant) -> bytes:
        words = (seed, mutant.function, mutant.operator, mutant.text, mutant.column, mutant.twin)
        return hashlib.sha256(repr(words).encode()).digest()

    return sorted(mutants, key=place)


def mutated(mutant: Mutant) -> str:
    """Return the changed source of a mutant's file. A few mutants are not valid Python."""
    from cosmic_ray.mutating import mutate_code

    changed = mutate_code((SOURCE / mutant.path).read_text(), _operators()[mutant.operator], mutant.occurrence)
    assert changed is not None, f"{mutant}: no such place"
    return str(changed)


def changed_line(mutant: Mutant) -> str:
    """Return the first line that differs in the mutant, without its indentation."""
    before, after = (SOURCE / mutant.path).read_text().splitlines(), mutated(mutant).splitlines()
    return next((new.strip() for old, new in zip(before, after, strict=False) if old != new), "")


@lru_cache(maxsize=1)
def _operators() -> dict[str, Any]:
    import cosmic_ray.plugins

    names = [name for name in cosmic_ray.plugins.operator_names() if not name.endswith(_NEED_ARGUMENTS)]
    return {name.partition("/")[2]: cosmic_ray.plugins.get_operator(name)() for name in names}


def _mutants_of(file: Path) -> Iterator[Mutant]:
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.ast.ast_query import ASTQuery

    source = file.read_text()
    lines = source.splitlines()
    path = file.relative_to(SOURCE).as_posix()
    nodes = [node for node in ast_nodes(get_ast(source)) if not _is_inert(node)]
    pointless: dict[int, bool] = {}
    found = []
    twins: Counter[tuple[str, str, int]] = Counter()
    for name, operator in _operators().items():
        occurrence = 0
        for node in nodes:
            for (line, column), _ in operator.mutation_positions(node):
                if id(node) not in pointless:
                    pointless[id(node)] = _is_pointless(node, lines[line - 1])
                if not pointless[id(node)]:
                    text = lines[line - 1].strip()
                    alike = (name, text, column)
                    around = ASTQuery(node).get_definition_name() or ""
                    found.append(Mutant(path, line, column, name, occurrence, around, text, twins[alike]))
                    twins[alike] += 1
                occurrence += 1
    yield from sorted(found)


def _is_inert(node: Any) -> bool:
    return node.type in _INERT or (node.type == "operator" and node.value in _MARKS)


def _is_pointless(node: Any, line: str) -> bool:
    """Return whether no run can notice a change at this node: see the docstring of this module."""
    if re.match(r"\s*@cython\.|\s*\w+: TypeAlias = ", line):
        return True
    if node.type == "operator" and node.value in ("*", "**") and node.parent.type not in _OPERATIONS:
        return True
    child, parent = node, node.parent
    while parent is not None:
        if parent.type in ("param", "funcdef", "tfpdef") and _annotation_of(parent) is child:
            return True
        if parent.type == "atom_expr" and parent.children[0].get_code().strip() == "logger":
            return True
        if parent.type == "annassign" and child is parent.children[1]:
            return True
        if parent.type == "if_stmt" and child in parent.children[1:4] and _is_for_others(parent.children[1]):
            return True
        child, parent = parent, parent.parent
    return bool(node.type == "if_stmt" and _is_for_others(node.children[1]))


def _annotation_of(node: Any) -> Any:
    return node.children[-1] if node.type == "tfpdef" else node.annotation


def _is_for_others(condition: Any) -> bool:
    """Return whether the code under a condition is for the type checker or the compiler."""
    return condition.get_code().strip() in ("TYPE_CHECKING", "cython.compiled", "not cython.compiled")
