"""The results of the proof: one row for each part, as a table and as JSON.

Each full run of a part leaves its row in build/proof, which is not in git. Publishing replaces the rows of these parts
in docs/proof.md and keeps the published rows of the others: each row names the commit that ran, and what has changed
since then.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from proof.targets import TARGETS

if TYPE_CHECKING:
    from proof.staleness import Age

ROOT: Final = Path(__file__).resolve().parents[2]
BUILD: Final = ROOT / "build" / "proof"
DOCS: Final = ROOT / "docs"
BEGIN: Final = (
    "<!-- The table of the last proof. `python tests/proof --publish` writes it; do not edit it by hand. -->\n"
)
END: Final = "<!-- The end of that table. -->\n"
CHANGED: Final = ", changed"
"""Follows the commit if the code that was tried differs from it."""


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one part."""

    target: int
    name: str
    title: str
    size: str
    seed: int
    cases: int
    violations: int
    samples: list[str]
    notes: list[str]
    peers: dict[str, str]
    seconds: float
    commit: str
    missing: str = ""
    """Why it was not run, if it was not."""


AgeOf: TypeAlias = "Callable[[Row], Age]"
"""Says what has changed since a row was made."""


def load(names: Iterable[str], *, directory: Path = BUILD) -> list[Row]:
    """Return the rows of the parts that were run, in the order of the targets."""
    files = [_file_of(name, directory) for name in names]
    rows = [Row(**json.loads(file.read_text())) for file in files if file.exists()]
    return sorted(rows, key=lambda row: (row.target, row.name))


def record(row: Row, *, directory: Path = BUILD) -> None:
    """Replace the row of a part. A part that could not be run here keeps its earlier result."""
    file = _file_of(row.name, directory)
    if row.missing and file.exists() and not json.loads(file.read_text())["missing"]:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    _write(file, json.dumps(asdict(row), indent=1, ensure_ascii=False) + "\n")


def write_table(names: Iterable[str], *, age: AgeOf, directory: Path = BUILD) -> None:
    """Write all rows so far as a table and as JSON, next to the rows."""
    rows = load(names, directory=directory)
    left_out = sorted({*names} - {row.name for row in rows if not row.missing})
    rest = f"\nNot run yet: {', '.join(f'`{name}`' for name in left_out)}.\n" if left_out else ""
    directory.mkdir(parents=True, exist_ok=True)
    _write(directory / "table.md", as_markdown(rows, age=age) + rest)
    _write(directory / "proof.json", as_json(rows))


def latest(titles: Mapping[str, str], *, age: AgeOf, directory: Path = BUILD, docs: Path = DOCS) -> list[Row]:
    """Return the row of each part that was ever run.

    It is the one in build/proof, or the published one if that part was not run there or only the published row is
    current: build/proof may have rows of an older sitting.
    """
    published = {row["name"]: Row(**row) for row in json.loads((docs / "proof.json").read_text())["rows"]}
    built = {row.name: row for row in load(titles, directory=directory)}
    rows = []
    for name, title in titles.items():
        known = [row for row in (built.get(name), published.get(name)) if row is not None]
        if known:
            # The first of the best: the built one, if both are current or none is.
            rows.append(replace(min(known, key=lambda row: (bool(row.missing), not age(row).is_current)), title=title))
    return sorted(rows, key=lambda row: (row.target, row.name))


def objections(titles: Mapping[str, str], rows: Iterable[Row]) -> Iterator[str]:
    """Yield each reason why these rows must not be published, as one line."""
    rows = list(rows)
    left_out = sorted({*titles} - {row.name for row in rows})
    if left_out:
        yield f"never run: {', '.join(left_out)}"
    for row in rows:
        if row.missing:
            yield f"{row.name} was not run: {row.missing}"
        elif row.violations:
            yield f"{row.name} found {row.violations:,} violations"
        elif row.commit.endswith(CHANGED):
            yield f"{row.name} was run on changes that are not in a commit: {row.commit}"


def publish(rows: list[Row], *, age: AgeOf, docs: Path = DOCS) -> None:
    """Write the rows to docs/proof.json and the table into docs/proof.md."""
    page = docs / "proof.md"
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} lacks the lines around the table: {BEGIN.strip()} and {END.strip()}")
    page.write_text(f"{before}{begin}\n{as_markdown(rows, age=age)}\n{end}{after}")
    (docs / "proof.json").write_text(as_json(rows))


def as_json(rows: list[Row]) -> str:
    return json.dumps({"rows": [asdict(row) for row in rows]}, indent=1, ensure_ascii=False) + "\n"


def _file_of(name: str, directory: Path) -> Path:
    return directory / "rows" / f"{name}.json"


def _write(path: Path, text: str) -> None:
    """Replace a file by rename: parts run by hand at the same time write the same table."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)


def as_markdown(rows: list[Row], *, age: AgeOf) -> str:
    """Return the rows as a Markdown table. A stale row says after its commit what has changed."""
    lines = ["| target | what was done | cases | violations | seconds | at |", "|---|---|---:|---:|---:|---|"]
    named = 0
    for row in rows:
        target = f"**{row.target}. {TARGETS[row.target]}**" if row.target != named else ""
        named = row.target
        words = "; ".join([row.title, *row.notes])
        words += "".join(f"<br>{peer}: {what}" for peer, what in row.peers.items())
        if row.missing:
            counts = f"not run: {row.missing} | | |"
        else:
            counts = f"{row.cases:,} | {row.violations:,} | {row.seconds:,.0f} |"
        at = ", ".join(filter(None, [row.commit, age(row).mark]))
        lines.append(f"| {target} | {_escaped(words)} | {counts} {at} |")
    ran = [row for row in rows if not row.missing]
    cases, violations = sum(row.cases for row in ran), sum(row.violations for row in ran)
    current = f"{sum(age(row).is_current for row in ran)} of {len(rows)} rows are current"
    lines.append(f"| **all** | | {cases:,} | {violations:,} | {sum(row.seconds for row in ran):,.0f} | {current} |")
    return "\n".join(lines) + "\n"


def as_line(row: Row) -> str:
    """Return a row for the terminal."""
    if row.missing:
        return f"{row.target:>3}  {row.title[:64]:<64}  not run: {row.missing}"
    return f"{row.target:>3}  {row.title[:64]:<64}{row.cases:>12,}{row.violations:>12,}{row.seconds:>10.1f}"


HEADING: Final = f"{'':>3}  {'what was done':<64}{'cases':>12}{'violations':>12}{'seconds':>10}"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
