"""Check what the words claim about the tree: modules, packages and files that they name exist.

- a module or attribute in backticks, such as `seeklog.log.side`, can be imported;
- the tree in docs/design/README.md shows the packages of src/seeklog, all of them and no others;
- the modules that a package's docstring names in backticks are in that package;
- a file that a comment or docstring names, such as docs/check.py, exists.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "seeklog"
DESIGN = ROOT / "docs" / "design" / "README.md"

DOTTED = re.compile(r"`(seeklog(?:\.\w+)+)(?<!\.toml)(?:\(.*?\))?`")
# A line of the tree: indented by two for a room and by four for one inside it.
DRAWN = re.compile(r"^( {2}| {4})(\w+)/", re.MULTILINE)
WORD = re.compile(r"`([a-z]\w*)/?`(?! extra)")
FILE = re.compile(r"(?<![\w/.-])(?:src|tests|docs|bench|examples)/[\w/-]+(?:\.\w+)?")


@cache
def exists(dotted: str) -> bool:
    """Return whether a dotted name is a module or an attribute of one."""
    parts = dotted.split(".")
    for size in range(len(parts), 0, -1):
        try:
            found: object = import_module(".".join(parts[:size]))
        except ModuleNotFoundError:
            continue
        for name in parts[size:]:
            if not hasattr(found, name):
                return name in getattr(found, "__annotations__", {})
            found = getattr(found, name)
        return True
    return False


def check_names(prose: str) -> Iterator[str]:
    """Yield the line and the name of each module or attribute that a page names and that does not exist."""
    for match in DOTTED.finditer(prose):
        if not exists(match[1]):
            yield f"{prose.count(chr(10), 0, match.start()) + 1}: no module or attribute {match[1]}"


def rooms() -> set[str]:
    """Return the packages of src/seeklog and the packages inside those, as paths."""
    return {path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("__init__.py")} - {"."}


def drawn_rooms(text: str) -> set[str]:
    """Return the packages that the tree of the design page shows."""
    tree = text.partition("```text\nsrc/seeklog/\n")[2].partition("```")[0]
    drawn, outer = set(), ""
    for indent, name in DRAWN.findall(tree):
        outer = name if len(indent) == 2 else outer
        drawn.add(name if len(indent) == 2 else f"{outer}/{name}")
    return drawn


def check_tree() -> Iterator[str]:
    """Yield each package that the tree lacks, and each that it shows although it does not exist."""
    drawn = drawn_rooms(DESIGN.read_text())
    for room in sorted(rooms() ^ drawn):
        fault = "is not in the tree" if room not in drawn else "is in the tree and does not exist"
        yield f"{DESIGN.relative_to(ROOT)}: {room}/ {fault}"


def check_packages() -> Iterator[str]:
    """Yield each word in backticks of a package's docstring that is neither a module in it nor a name of it."""
    for room in sorted(rooms()):
        path = SOURCE / room / "__init__.py"
        tree = ast.parse(path.read_text())
        inside = {other.stem for other in path.parent.iterdir()}
        inside |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        inside |= {
            alias.asname or alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        for name in WORD.findall(ast.get_docstring(tree) or ""):
            if name not in inside:
                yield f"{path.relative_to(ROOT)}: its docstring names `{name}`, which is not in the package"


def check_sources() -> Iterator[str]:
    """Yield each file or module that a module under src/ or tests/ names and that does not exist."""
    for path in sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]):
        text = path.read_text()
        for number, line in enumerate(text.splitlines(), 1):
            for match in FILE.finditer(line):
                if not (ROOT / match[0]).exists() and not [*ROOT.glob(f"{match[0]}*")]:
                    yield f"{path.relative_to(ROOT)}:{number}: no file {match[0]}"
        for fault in check_names(text):
            yield f"{path.relative_to(ROOT)}:{fault}"


def check() -> Iterator[str]:
    """Yield every false claim of the design page's tree, of packages, and of modules and tests."""
    yield from check_tree()
    yield from check_packages()
    yield from check_sources()
