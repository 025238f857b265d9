"""Check the documentation against the tree. Run by `make check`; prints a line for each fault.

- every relative link of a page leads to a file and, with `#heading`, to a heading in it;
- every path in backticks under src/, tests/, bench/, docs/ or examples/ exists;
- every `test:…` is the id of one test (tests/ids.py), and no page names a test by its file;
- every row of docs/lineage.md names a test, or says that it is later work;
- every `python` block runs. The blocks of a page share their names and run in order, in one process, in an empty
  directory;
- every `console` block runs there, too, in its turn. A shell runs each line after `$ `. The command must succeed unless
  the expected output is an error, and its output must match the lines below it, where `…` matches any text;
- docs/cli.md and docs/configuration.md match the code (docs/reference.py);
- docs/spark.md names every option;
- every module, package and file that the words name exists (docs/claims.py);
- no text has the phrases that docs/phrases.py refuses.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))
import claims  # the three beside this file
import phrases
import reference

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import ids  # under tests/

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent

FENCE = re.compile(r"^( *)(```+)(\S*)[^\n]*\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
PATH = re.compile(r"`((?:src|tests|bench|docs|examples)/[\w./-]+)(?:::[\w:]+)?`")
TEST_FILE = re.compile(r"(?:^|/)test_\w+\.py$")
TEST = re.compile(r"`test:([^`]*)`")

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
        if TEST_FILE.search(match[1]):
            yield f"{line_of(prose, match.start())}: {match[1]} may be renamed; give its test an id and name that"
        elif not (ROOT / match[1]).exists():
            yield f"{line_of(prose, match.start())}: no file {match[1]}"


def check_tests(prose: str) -> Iterator[str]:
    for match in TEST.finditer(prose):
        if match[1] not in ids.named_tests():
            yield f"{line_of(prose, match.start())}: no test has the id {match[1]}"


def check_lineage_rows(prose: str) -> Iterator[str]:
    for number, line in enumerate(prose.splitlines(), 1):
        is_row = line.startswith("|") and not line.startswith(("|---", "| the document asks "))
        if is_row and "later" not in line.split("|")[-2] and not TEST.search(line):
            yield f"{number}: this row names no test and is not later work"


# Runs before the blocks of a page and defines what `console` blocks call.
SHELL = (
    "import fnmatch as _f, subprocess as _s\n"
    "def _shell(command, expected):\n"
    "    done = _s.run(['bash', '-c', command], stdin=_s.DEVNULL, stdout=_s.PIPE, stderr=_s.STDOUT, text=True)\n"
    "    printed = done.stdout.rstrip()\n"
    "    pattern = ''.join(f'[{c}]' if c in '*?[' else c for c in expected.rstrip()).replace('…', '*')\n"
    "    failed = done.returncode != 0 and not expected.startswith('seeklog: ')\n"
    "    if failed or (expected.strip() and not _f.fnmatchcase(printed, pattern)):\n"
    "        raise SystemExit(f'$ {command}\\nprinted:\\n{printed}\\nbut the page shows:\\n{expected}')\n"
)


def program_of(text: str) -> str:
    """Return the blocks of a page as a program, each at its line in the page, so that a traceback points there."""
    program = ""
    for block in FENCE.finditer(text):
        first_line = line_of(text, block.start(4))
        if block[3] == "python":
            program += "\n" * (first_line - 1 - program.count("\n")) + block[4]
        elif block[3] == "console":
            for index, command, expected in commands_of(block[4]):
                program += (
                    "\n" * (first_line + index - 1 - program.count("\n")) + f"_shell({command!r}, {expected!r})\n"
                )
    return program


def commands_of(block: str) -> Iterator[tuple[int, str, str]]:
    """Yield each command of a `console` block with its line, from 0, and its expected output."""
    index, command, expected = 0, "", ""
    for number, line in enumerate(block.splitlines()):
        if line.startswith("$ "):
            if command:
                yield index, command, expected
            index, command, expected = number, line[2:], ""
        else:
            expected += line + "\n"
    if command:
        yield index, command, expected


def run_blocks(page: Path, text: str) -> Iterator[str]:
    program = program_of(text)
    if not program:
        return
    name = str(page.relative_to(ROOT))
    runner = (
        f"names = {{'__name__': '__main__'}}\nexec({SHELL!r}, names)\n"
        f"exec(compile({program!r}, {name!r}, 'exec'), names)"
    )
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory() as tools:
        # The command of this tree, installed or not, without the user's settings.
        command = Path(tools) / "seeklog"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m seeklog.cli "$@"\n')
        command.chmod(0o755)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SEEKLOG_")}
        environment |= {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": tools, "COLUMNS": "110", "TZ": "UTC"}
        try:
            done = subprocess.run(
                [sys.executable, "-c", runner],
                cwd=directory,
                capture_output=True,
                text=True,
                timeout=PAGE_SECONDS,
                check=False,
                env=environment,
            )
        except subprocess.TimeoutExpired:
            yield f"its blocks took more than {PAGE_SECONDS} s"
            return
    if done.returncode != 0:
        yield f"its blocks failed:\n{done.stderr.rstrip()}"


def check_generated() -> Iterator[str]:
    for path, made in reference.pages():
        if path.read_text() != made:
            yield f"{path.relative_to(ROOT)} does not match the code; run: python docs/reference.py"


def check_spark_options() -> Iterator[str]:
    text = (ROOT / "docs" / "spark.md").read_text()
    yield from (f"docs/spark.md does not name the option {name}" for name in spark_options() if f"`{name}`" not in text)


def spark_options() -> list[str]:
    from seeklog.spark.read import options
    from seeklog.spark.write import options as write_options

    return sorted({*options.OPTIONS, *write_options.OPTIONS})


def main() -> int:
    wrong = 0
    for page in pages():
        text = page.read_text()
        prose = prose_of(text)
        findings = [*check_links(page, prose), *check_paths(prose), *check_tests(prose), *claims.check_names(prose)]
        findings += run_blocks(page, text)
        if page == ROOT / "docs" / "lineage.md":
            findings += check_lineage_rows(prose)
        for finding in findings:
            print(f"{page.relative_to(ROOT)}:{finding}", file=sys.stderr)
        wrong += len(findings)
    for finding in (*ids.problems(), *check_generated(), *check_spark_options(), *claims.check(), *phrases.check()):
        print(finding, file=sys.stderr)
        wrong += 1
    print(f"docs: {len(pages())} pages, {wrong} wrong" if wrong else f"docs: {len(pages())} pages, all in order")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
