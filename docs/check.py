"""Check the documentation against the tree. Run by `make check`; prints a line for each fault.

- every relative link of a page leads to a file and, with `#heading`, to a heading in it;
- every path in backticks under src/, tests/, bench/, docs/ or examples/ exists;
- every `test:…` is the id of one test (tests/ids.py), and no page names a test by its file;
- every row of docs/lineage.md names a test, or says that it is later work;
- every `python` and `console` block runs (docs/blocks.py);
- docs/cli.md, docs/configuration.md and docs/metrics.md match the code (docs/reference.py);
- docs/spark.md names every option;
- every module, package and file that the words name exists (docs/claims.py);
- no text has the phrases that docs/phrases.py refuses.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent))
import blocks  # the four beside this file
import claims
import phrases
import reference
from blocks import FENCE, line_of

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
import ids  # under tests/

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
PATH = re.compile(r"`((?:src|tests|bench|docs|examples)/[\w./-]+)(?:::[\w:]+)?`")
TEST_FILE = re.compile(r"(?:^|/)test_\w+\.py$")
TEST = re.compile(r"`test:([^`]*)`")


def prose_of(text: str) -> str:
    """Return a page without its fenced blocks, line for line."""
    return FENCE.sub(lambda block: "\n" * block[0].count("\n"), text)


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


def run_blocks(page: Path, text: str) -> Iterator[str]:
    failure = blocks.run(text, name=str(page.relative_to(ROOT)))
    if failure:
        yield failure


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
    pages = blocks.pages()
    for page in pages:
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
    print(f"docs: {len(pages)} pages, {wrong} wrong" if wrong else f"docs: {len(pages)} pages, all in order")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
