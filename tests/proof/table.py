"""What the proof has found: a table for people, and the same as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proof.targets import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterable

ROOT: Final = Path(__file__).resolve().parents[2]
RESULTS: Final = ROOT / "docs" / "proof.json"
PAGE: Final = ROOT / "docs" / "promises.md"
BEGIN: Final = "<!-- The table of the last `make proof`: written by it, not by hand. -->\n"
END: Final = "<!-- The end of that table. -->\n"


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one part."""

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


def load() -> list[Row]:
    """Return the rows of earlier runs."""
    if not RESULTS.exists():
        return []
    return [Row(**row) for row in json.loads(RESULTS.read_text())["rows"]]


def merge(old: Iterable[Row], new: Iterable[Row], *, names: Iterable[str]) -> list[Row]:
    """Return the rows of the parts that there are, the newer one of each, in order.

    A part that could not be run here does not drop what an earlier run has found.
    """
    rows = {row.name: row for row in old}
    for row in new:
        if not row.missing or row.name not in rows:
            rows[row.name] = row
    there = set(names)
    return sorted((row for row in rows.values() if row.name in there), key=lambda row: (row.target, row.name))


def save(rows: list[Row], *, names: Iterable[str]) -> None:
    """Write the rows as JSON, and the table into the page of promises, with the names of parts that have no row yet."""
    RESULTS.write_text(json.dumps({"rows": [asdict(row) for row in rows]}, indent=1, ensure_ascii=False) + "\n")
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    left_out = sorted({*names} - {row.name for row in rows if not row.missing})
    rest = f"Not run in full yet: {', '.join(f'`{name}`' for name in left_out)}.\n\n" if left_out else ""
    PAGE.write_text(f"{before}{BEGIN}\n{as_markdown(rows)}\n{rest}{END}{after}")


def as_markdown(rows: list[Row]) -> str:
    """Return the rows as a table of a page."""
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
        lines.append(f"| {target} | {_escaped(words)} | {counts} {row.commit} |")
    ran = [row for row in rows if not row.missing]
    cases, violations = sum(row.cases for row in ran), sum(row.violations for row in ran)
    lines.append(f"| **all** | | {cases:,} | {violations:,} | {sum(row.seconds for row in ran):,.0f} | |")
    return "\n".join(lines) + "\n"


def as_line(row: Row) -> str:
    """Return a row for the terminal."""
    if row.missing:
        return f"{row.target:>3}  {row.title[:64]:<64}  not run: {row.missing}"
    return f"{row.target:>3}  {row.title[:64]:<64}{row.cases:>12,}{row.violations:>12,}{row.seconds:>10.1f}"


HEADING: Final = f"{'':>3}  {'what was done':<64}{'cases':>12}{'violations':>12}{'seconds':>10}"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
