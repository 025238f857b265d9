"""The sources of the project at a commit and in the working tree, compared by the code that runs.

Comments, docstrings, annotations, the layout of the text and imports that only type checkers follow do not count. In
modules that Cython compiles, annotations are code and do count. Data counts by its bytes.
"""

from __future__ import annotations

import ast
import hashlib
import posixpath
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import resolve_name
from pathlib import Path
from typing import Final

FOLDERS: Final = ("src/seeklog", "tests")
CIMPORTS: Final = "cython.cimports."
# Their names mean something only in annotations, or are visible where they are used.
TYPING: Final = frozenset({"__future__", "collections.abc", "typing", "typing_extensions"})
# What an annotation in a class body says to `dataclass`.
FIELD_KINDS: Final = frozenset({"ClassVar", "InitVar", "KW_ONLY"})


@dataclass(frozen=True, slots=True)
class Code:
    """The code of one file: equal if the same code runs."""

    digest: str
    imports: tuple[str, ...] = field(compare=False, default=())
    """The names that it imports, in full. The last part may be a name inside a module."""


@dataclass(frozen=True, slots=True)
class Tree:
    """All files of a commit, or of the working tree."""

    files: Mapping[str, bytes]
    """The contents of each file, by its path below the root of the project."""

    def code(self, path: str) -> Code | None:
        """Return the code of a file, or None if there is no such file."""
        data = self.files.get(path)
        return None if data is None else code_of(data, path)

    def module(self, name: str, *, folder: str) -> str | None:
        """Return the path of a module, or of the module that a name is in; None if it is not in this folder."""
        for each in (name, name.rpartition(".")[0]):
            place = f"{folder}/{each.replace('.', '/')}"
            for path in (f"{place}.py", f"{place}/__init__.py"):
                if each and path in self.files:
                    return path
        return None

    def under(self, place: str) -> set[str]:
        """Return all files of a directory, or the file itself."""
        return {path for path in self.files if path == place or path.startswith(f"{place}/")}

    def reached(self, start: Iterable[str], *, folder: str) -> set[str]:
        """Return these files and all modules of a folder that they import, directly or not."""
        seen: set[str] = set()
        waiting = [*start]
        while waiting:
            path = waiting.pop()
            if path not in seen:
                seen.add(path)
                if (code := self.code(path)) is not None:
                    waiting += self.imported(code, path, folder=folder)
        return seen

    def imported(self, code: Code, path: str, *, folder: str) -> Iterator[str]:
        """Yield the modules of a folder that a file with this code imports, and the declarations beside that file."""
        directory = posixpath.dirname(path)
        package = posixpath.relpath(directory, folder).replace("/", ".")
        for name in code.imports:
            module = self.module(resolve_name(name, package) if name.startswith(".") else name, folder=folder)
            if module is not None:
                yield module
        declarations = f"{path.removesuffix('.py')}.pxd"
        if declarations in self.files:
            yield declarations
            yield from (other for other in self.under(directory) if other.endswith(".h"))


class Repository:
    """A clone of the project."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._blobs: dict[bytes, bytes] = {}
        self._trees: dict[str, Tree | None] = {}

    def here(self) -> Tree:
        """Return the working tree, with files that are not committed yet, without those that git ignores."""
        listed = self._git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *FOLDERS)
        names = [name.decode() for name in listed.split(b"\0") if name]
        return Tree({name: (self._root / name).read_bytes() for name in names if (self._root / name).is_file()})

    def at(self, commit: str) -> Tree | None:
        """Return the files of a commit, or None if this clone does not have it."""
        if commit not in self._trees:
            try:
                self._trees[commit] = self._read(commit)
            except (subprocess.CalledProcessError, FileNotFoundError):  # or there is no git
                self._trees[commit] = None
        return self._trees[commit]

    def _read(self, commit: str) -> Tree:
        listed = self._git("ls-tree", "-r", "-z", f"{commit}^{{commit}}", "--", *FOLDERS)
        entries = [entry.split(b"\t", 1) for entry in listed.split(b"\0") if entry]
        blobs = {path.decode(): facts.split()[2] for facts, path in entries}
        # Commits share most of their files.
        new = sorted({*blobs.values()} - {*self._blobs})
        answer = self._git("cat-file", "--batch", given=b"".join(blob + b"\n" for blob in new))
        self._blobs |= zip(new, _contents(answer), strict=True)
        return Tree({path: self._blobs[blob] for path, blob in blobs.items()})

    def _git(self, *words: str, given: bytes = b"") -> bytes:
        command = ["git", "-C", str(self._root), *words]
        return subprocess.run(command, input=given, capture_output=True, check=True).stdout


def _contents(answer: bytes) -> Iterator[bytes]:
    """Split the answer of `git cat-file --batch`: for each file a line that ends with its size, then its bytes."""
    at = 0
    while at < len(answer):
        end = answer.index(b"\n", at)
        size = int(answer[at:end].split()[2])
        yield answer[end + 1 : end + 1 + size]
        at = end + size + 2


@cache
def code_of(data: bytes, path: str) -> Code:
    """Return the code of a file: a module, declarations for Cython, or data."""
    if path.endswith(".py"):
        return _as_code(ast.parse(data))
    if path.endswith(".pxd"):
        lines = (line.partition(b"#")[0].rstrip() for line in data.splitlines())
        data = b"\n".join(line for line in lines if line)
    return Code(hashlib.sha256(data).hexdigest())


@cache
def excerpt(data: bytes, function: str) -> Code | None:
    """Return the code of one function of a module, without its decorators, and of what it uses there."""
    tree = ast.parse(data)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            node.decorator_list = []
            break
    else:
        return None
    used = {function}
    kept: list[ast.stmt] = []
    waiting = tree.body
    while found := [node for node in waiting if (bound := _bound(node)) is None or bound & used]:
        kept += found
        waiting = [node for node in waiting if node not in found]
        used |= {name.id for node in found for name in ast.walk(node) if isinstance(name, ast.Name)}
    tree.body = [node for node in tree.body if node in kept]
    return _as_code(tree)


def _bound(node: ast.stmt) -> set[str] | None:
    """Return the names that a statement only binds, or None if it may have another effect."""
    match node:
        case ast.FunctionDef() | ast.ClassDef():
            return {node.name}
        case ast.Assign() | ast.AnnAssign():
            return {
                name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
            }
        case ast.ImportFrom():
            return {alias.asname or alias.name for alias in node.names}
    return None


def _as_code(tree: ast.Module) -> Code:
    bare = _Bare(is_compiled=any("cython" in _imports_of(node) for node in tree.body)).visit(tree)
    imports = dict.fromkeys(name for node in ast.walk(bare) for name in _imports_of(node))
    return Code(hashlib.sha256(ast.dump(bare).encode()).hexdigest(), tuple(imports))


def _imports_of(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name.removeprefix(CIMPORTS) for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        module = ("." * node.level + (node.module or "")).removeprefix(CIMPORTS)
        return [f"{module}{'' if module.endswith('.') else '.'}{alias.name}" for alias in node.names]
    return []


class _Bare(ast.NodeTransformer):
    """Removes what does not run."""

    def __init__(self, *, is_compiled: bool) -> None:
        self._is_compiled = is_compiled

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        self.generic_visit(node)
        return node.orelse if _last_name(node.test) == "TYPE_CHECKING" else node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | None:
        return None if node.module in TYPING else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        if any(_last_name(each) == "overload" for each in node.decorator_list):
            return None
        if not self._is_compiled:
            node.returns = None
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        if not self._is_compiled:
            node.annotation = None
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        if not self._is_compiled:
            node.body = [_as_field(each) if isinstance(each, ast.AnnAssign) else each for each in node.body]
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        self.generic_visit(node)
        if self._is_compiled:
            return node
        return None if node.value is None else ast.Assign([node.target], node.value)


def _as_field(node: ast.AnnAssign) -> ast.stmt:
    """Return what is code of an annotated name in a class: it may be a field of a dataclass, of some kind."""
    kinds = FIELD_KINDS & {_last_name(each) for each in ast.walk(node.annotation)}
    value = [] if node.value is None else [node.value]
    return ast.Assign([node.target], ast.Tuple([*map(ast.Constant, sorted(kinds)), *value]))


def _last_name(node: ast.AST) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
