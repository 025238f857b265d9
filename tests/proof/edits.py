"""Edits of the source that survive a move: each names a function and, in Python, an old and a new piece of code in it.

    Edit("publish", "files.sync(...)")                     removes the call
    Edit("decide", "end < start", "end <= start")          replaces an expression
    Edit("close", "with self._lock:\\n    ...", "...")       runs the block without the lock

A function is named by its name alone, or by `Class.name`, in any file. `old` and `new` are compared and written as
syntax trees, so layout and comments do not count. `...` in `old` matches any expression, all further arguments, or all
further statements of a block; in `new` it stands for the matched code, in order. Exactly one place in all functions of
that name must match, or the edit fails.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

from proof.table import ROOT

SOURCE: Final = ROOT / "src"

_NOT_COMPARED: Final = ("ctx", "kind", "type_comment", "type_params")


class EditFailed(Exception):
    """An edit matches no place, or more than one."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One change inside one function."""

    function: str
    """The name, or `Class.name`."""
    old: str
    """An expression, or statements."""
    new: str = "pass"


@dataclass(frozen=True, slots=True)
class Place:
    """The place of an edit: the nodes to replace, and the code that each `...` matched."""

    nodes: Sequence[ast.AST]
    held: Sequence[Sequence[ast.AST]]


Texts: TypeAlias = Mapping[str, str]
"""Files by their path below the source."""


def edited(edits: Iterable[Edit], *, source: Path = SOURCE) -> dict[str, str]:
    """Return the changed text of the files that edits change. A later edit sees the result of an earlier one."""
    changed: dict[str, str] = {}
    for edit in edits:
        path, place = _place_of(edit, {**_texts(source), **changed})
        text = changed.get(path) or _texts(source)[path]
        changed[path] = _replaced(text, place, edit)
        _tree(changed[path])  # raises if it is no longer Python
    return changed


def is_interpreted(path: str, *, source: Path = SOURCE) -> bool:
    """Return whether a module is compiled, so that an edit only takes effect interpreted."""
    return "\nimport cython\n" in _texts(source)[path]


@cache
def _texts(source: Path) -> Texts:
    return {path.relative_to(source).as_posix(): path.read_text() for path in sorted(source.rglob("*.py"))}


def _place_of(edit: Edit, texts: Texts) -> tuple[str, Place]:
    places = [
        (path, place)
        for path, text in texts.items()
        for function in _functions(text, edit.function)
        for place in _places(function, edit)
    ]
    if len(places) != 1:
        where = ", ".join(sorted({path for path, _ in places}))
        raise EditFailed(f"{len(places)} places in functions named {edit.function} match {edit.old!r} {where}".rstrip())
    return places[0]


def _functions(text: str, name: str) -> Iterator[ast.FunctionDef]:
    """Yield the functions of a file with this name, without the functions inside them."""
    bare = name.rpartition(".")[2]
    if f"def {bare}(" not in text:
        return
    waiting: list[tuple[str, ast.AST]] = [("", _tree(text))]
    while waiting:
        around, node = waiting.pop()
        for child in ast.iter_child_nodes(node):
            named = f"{around}.{child.name}" if isinstance(child, (ast.FunctionDef, ast.ClassDef)) else around
            if isinstance(child, ast.FunctionDef) and f".{named}".endswith(f".{name}"):
                yield child
            else:
                waiting.append((named, child))


@cache
def _tree(text: str) -> ast.Module:
    return ast.parse(text)


def _places(function: ast.FunctionDef, edit: Edit) -> Iterator[Place]:
    old, new = _parsed(edit.old), _parsed(edit.new)
    if _is_expression(old) and _is_expression(new):
        for node in ast.walk(function):
            held: list[Sequence[ast.AST]] = []
            if isinstance(node, ast.expr) and _matches(old[0].value, node, held):  # type: ignore[attr-defined]
                yield Place([node], held)
        return
    for block in _blocks(function):
        for start in range(len(block) - len(old) + 1):
            held = []
            run = block[start : start + len(old)]
            if all(_matches(one, node, held) for one, node in zip(old, run, strict=True)):
                yield Place(run, held)


def _blocks(function: ast.FunctionDef) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(function):
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield value


@cache
def _parsed(text: str) -> list[ast.stmt]:
    return ast.parse(textwrap.dedent(text)).body


def _is_expression(statements: Sequence[ast.stmt]) -> bool:
    return len(statements) == 1 and isinstance(statements[0], ast.Expr)


def _is_hole(node: object) -> bool:
    if isinstance(node, ast.Expr):
        node = node.value
    return isinstance(node, ast.Constant) and node.value is ...


def _takes_any(call: ast.Call) -> bool:
    """Return whether `...` matches all further arguments of a call, including keywords."""
    return bool(call.args) and _is_hole(call.args[-1]) and not call.keywords


def _matches(old: Any, node: Any, held: list[Sequence[ast.AST]]) -> bool:
    """Return whether a tree looks like `old`, and record the code that each `...` matches."""
    if isinstance(old, list):
        return isinstance(node, list) and _lists_match(old, node, held)
    if not isinstance(old, ast.AST):
        return type(old) is type(node) and bool(old == node)
    if _is_hole(old):
        held.append([node])
        return True
    if type(old) is not type(node):
        return False
    if isinstance(old, ast.Call) and isinstance(node, ast.Call) and _takes_any(old):
        rest = len(old.args) - 1
        found = _matches(old.func, node.func, held) and _matches(old.args[:-1], node.args[:rest], held)
        held.append([*node.args[rest:], *node.keywords])
        return found
    fields = [field for field in old._fields if field not in _NOT_COMPARED]
    return all(_matches(getattr(old, field), getattr(node, field), held) for field in fields)


def _lists_match(old: list[Any], nodes: list[Any], held: list[Sequence[ast.AST]]) -> bool:
    if old and _is_hole(old[-1]):
        rest = len(old) - 1
        if len(nodes) < rest or not _lists_match(old[:-1], nodes[:rest], held):
            return False
        held.append(nodes[rest:])
        return True
    return len(old) == len(nodes) and all(_matches(one, node, held) for one, node in zip(old, nodes, strict=True))


class _Filled(ast.NodeTransformer):
    """Replaces each `...` by the recorded code, in order."""

    def __init__(self, held: Iterable[Sequence[ast.AST]]) -> None:
        self._held = iter(held)

    def visit_Constant(self, node: ast.Constant) -> Any:
        return self._next() if _is_hole(node) else node

    def visit_Expr(self, node: ast.Expr) -> Any:
        if not _is_hole(node):
            return self.generic_visit(node)
        held = self._next()
        return ast.Expr(held) if isinstance(held, ast.expr) else held

    def visit_Call(self, node: ast.Call) -> Any:
        self.generic_visit(node)
        # The code that matched all further arguments is now among the positional ones.
        node.keywords[:0] = [one for one in node.args if isinstance(one, ast.keyword)]
        node.args = [one for one in node.args if not isinstance(one, ast.keyword)]
        return node

    def _next(self) -> Any:
        held = [deepcopy(one) for one in next(self._held)]
        return held[0] if len(held) == 1 else held


def _replaced(text: str, place: Place, edit: Edit) -> str:
    """Return a file with new text in one place and all other bytes unchanged."""
    first: Any = place.nodes[0]
    last: Any = place.nodes[-1]
    data = text.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    start = starts[first.lineno - 1] + first.col_offset
    end = starts[last.end_lineno - 1] + last.end_col_offset
    filled = _Filled(place.held).visit(ast.Module(deepcopy(_parsed(edit.new)), []))
    written = ast.unparse(filled) or "pass"
    assert written != "\n".join(ast.unparse(node) for node in place.nodes), f"{edit} changes nothing"
    if isinstance(first, ast.expr):
        written = f"({written})"
    indentation = " " * first.col_offset
    return (data[:start] + written.replace("\n", f"\n{indentation}").encode() + data[end:]).decode()
