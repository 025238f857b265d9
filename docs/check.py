"""Check the documentation against the tree. Run by `make check`; prints one line for each fault.

- every relative link of every page leads to a file and, with `#heading`, to a heading in it;
- every path in backticks under src/, tests/, bench/, docs/ or examples/ exists, and so does every test named
  `tests/….py::test_…`;
- every row of docs/lineage.md names a test, or says that it is later work;
- every block marked `python` runs. The blocks of one page share their names and run in order, in one
  process, in an empty directory.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent

FENCE = re.compile(r"^( *)(```+)(\S*)[^\n]*\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
PATH = re.compile(r"`((?:src|tests|bench|docs|examples)/[\w./-]+)(?:::(\w+(?:::\w+)?))?`")
TEST = re.compile(r"`tests/[\w./-]+\.py::\w+")

# A page that waits for something it will never get must not hang the check. Those that start Spark take half a minute.
PAGE_SECONDS = 300


def pages() -> list[Path]:
    """Return every page: those in the root and those under docs/."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def prose_of(text: str) -> str:
    """Return a page without its fenced blocks, line for line."""
    return FENCE.sub(lambda block: "\n" * block[0].count("\n"), text)


def line_of(text: str, position: int) -> int:
    """Return the number of the line that a position is in, from 1."""
    return text.count("\n", 0, position) + 1


@cache
def anchors_of(path: Path) -> frozenset[str]:
    """Return the anchors of a page's headings, made as GitHub makes them."""
    headings = HEADING.findall(prose_of(path.read_text()))
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return the functions of a Python file, and the methods of its classes as Class::method."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            names.add(node.name)
            names.update(f"{node.name}::{each.name}" for each in node.body if isinstance(each, ast.FunctionDef))
    return frozenset(names)


def check_links(page: Path, prose: str) -> Iterator[str]:
    for link in LINK.finditer(prose):
        target, _, anchor = link[1].partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        path = (page.parent / target).resolve() if target else page
        if not path.exists():
            yield f"{line_of(prose, link.start())}: no file for the link {link[1]}"
        elif anchor and anchor not in anchors_of(path):
            yield f"{line_of(prose, link.start())}: no heading for the link {link[1]}"


def check_paths(prose: str) -> Iterator[str]:
    for match in PATH.finditer(prose):
        path, name = ROOT / match[1], match[2]
        if not path.exists():
            yield f"{line_of(prose, match.start())}: no file {match[1]}"
        elif name and name not in names_in(path):
            yield f"{line_of(prose, match.start())}: no {name} in {match[1]}"


def check_lineage_rows(prose: str) -> Iterator[str]:
    for number, line in enumerate(prose.splitlines(), 1):
        is_row = line.startswith("|") and not line.startswith(("|---", "| asks "))
        if is_row and "later" not in line.split("|")[-2] and not TEST.search(line):
            yield f"{number}: this row names no test and is not later work"


def program_of(text: str) -> str:
    """Return a page's Python blocks, each on its own lines, so that a traceback points into the page."""
    program = ""
    for block in FENCE.finditer(text):
        if block[3] == "python":
            first_line = line_of(text, block.start(4))
            program += "\n" * (first_line - 1 - program.count("\n")) + block[4]
    return program


def run_blocks(page: Path, text: str) -> Iterator[str]:
    program = program_of(text)
    if not program:
        return
    name = str(page.relative_to(ROOT))
    runner = f"exec(compile({program!r}, {name!r}, 'exec'), {{'__name__': '__main__'}})"
    with tempfile.TemporaryDirectory() as directory:
        try:
            done = subprocess.run(
                [sys.executable, "-c", runner],
                cwd=directory,
                capture_output=True,
                text=True,
                timeout=PAGE_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            yield f"its Python blocks took more than {PAGE_SECONDS} s"
            return
    if done.returncode != 0:
        yield f"its Python blocks failed:\n{done.stderr.rstrip()}"


def main() -> int:
    wrong = 0
    for page in pages():
        text = page.read_text()
        prose = prose_of(text)
        findings = [*check_links(page, prose), *check_paths(prose), *run_blocks(page, text)]
        if page == ROOT / "docs" / "lineage.md":
            findings += check_lineage_rows(prose)
        for finding in findings:
            print(f"{page.relative_to(ROOT)}:{finding}", file=sys.stderr)
        wrong += len(findings)
    print(f"docs: {len(pages())} pages, {wrong} wrong" if wrong else f"docs: {len(pages())} pages, all in order")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
