"""`seeklog verify`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from seeklog.cli.app import verb
from seeklog.cli.exits import Exit
from seeklog.cli.show import amounts
from seeklog.cli.show.neutral import neutral
from seeklog.cli.show.rows import Column, formats, write_rows
from seeklog.cli.show.terminal import Terminal

if TYPE_CHECKING:
    from seeklog.cli.targets import Target
    from seeklog.log.check import Finding, Inspection, Plan

COLUMNS = tuple(
    Column(name)
    for name in ("severity", "kind", "topic", "partition", "file", "position", "offset", "detail", "meaning", "next")
)
# How often a partition is checked whose files a broker replaces meanwhile.
MAX_ATTEMPTS = 5
_COLORS = {"error": "31", "warning": "33", "note": "2"}


@verb
@click.argument("directory", metavar="DIR|PARTITION|FILE…", nargs=-1, required=True)
@click.option("--deep", is_flag=True, help="Also read every record and every producer snapshot.")
@formats
def verify(
    terminal: Terminal, directory: tuple[str, ...], deep: bool, row_format: str | None, as_json: bool
) -> int | None:
    """Check every batch, index entry, seal and promise of a log's files. Nothing is changed, nothing locked.

    DIR is a store, a broker's data directory, an archive or its URL, or the directory of one partition; topics and
    partitions behind it choose among its own. A file is checked with the others of its segment.

    Exits with 3 if anything is damaged: each finding names the file and, if it is known, the byte, what it
    means and what to do next.
    """
    from seeklog.cli.targets import find_targets

    targets = find_targets(directory)
    plans = [_plan(target) for target in targets]
    rows: list[dict[str, Any]] = []
    inspections: list[Inspection] = []
    total = sum(subject.size for plan in plans for subject in plan.subjects)
    with terminal.progress("checking", total=total * (2 if deep else 1), unit="bytes") as shown:
        for target, plan in zip(targets, plans, strict=True):
            found, inspected = _check_settled(target, plan, is_deep=deep, advance=shown.advance)
            inspections += inspected
            rows += [_row(target, finding) for finding in found]
        seconds = shown.seconds
    as_text = row_format == "table" or (row_format is None and not as_json and terminal.shows_tables)
    if as_text:
        for row in rows:
            terminal.write(_block(row, colors=terminal.has_colors))
    else:
        write_rows(terminal, COLUMNS, rows, row_format=row_format, as_json=as_json)
    terminal.say(_summary(targets, inspections, rows, seconds))
    return Exit.DAMAGE if any(row["severity"] == "error" for row in rows) else None


def _plan(target: Target, *, attempts: int = MAX_ATTEMPTS) -> Plan:
    from seeklog.log.check import Finding, Kind, Plan, Severity, plan_inspection
    from seeklog.topics.scope import still_has

    place = target.place
    try:
        plan = plan_inspection(place.directory, config=place.config, inherited=place.inherited, files=target.files)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        if missing and target.root is not None and not still_has(target.root, place, target.files):
            return Plan(directory=place.directory, checkpoint=None, subjects=())
        if missing and attempts > 1:
            return _plan(target, attempts=attempts - 1)  # a broker may be creating it again
        detail = "the directory of the partition is missing" if missing else f"it cannot be read: {error}"
        finding = Finding(kind=Kind.UNREADABLE, severity=Severity.ERROR, path=place.directory, detail=detail)
        return Plan(directory=place.directory, checkpoint=place.inherited, subjects=(), findings=(finding,))
    if target.segment is None:
        return plan
    subjects = tuple(subject for subject in plan.subjects if subject.base_offset == target.segment)
    return Plan(directory=plan.directory, checkpoint=plan.checkpoint, subjects=subjects)


def _check_settled(
    target: Target, plan: Plan, *, is_deep: bool, advance: Callable[[int], None]
) -> tuple[list[Finding], list[Inspection]]:
    """Check a partition; again, where a broker that runs replaces files meanwhile."""
    from seeklog.log.check import has_changed

    found, inspected = _check(target, plan, is_deep=is_deep, advance=advance)
    for _ in range(MAX_ATTEMPTS - 1):
        if not has_changed(found):
            break
        found, inspected = _check(target, _plan(target), is_deep=is_deep, advance=advance)
    return found, inspected


def _check(
    target: Target, plan: Plan, *, is_deep: bool, advance: Callable[[int], None]
) -> tuple[list[Finding], list[Inspection]]:
    from seeklog.log.check import conclude, inspect_records, inspect_segment, inspect_snapshots

    inspected = []
    for subject in plan.subjects:
        inspection = inspect_segment(subject, files=target.files)
        advance(subject.size)
        if is_deep and not inspection.is_gone:
            inspection.findings += inspect_records(subject, files=target.files, advance=advance)
        inspected.append(inspection)
    found = conclude(plan, inspected, files=target.files)
    if is_deep and target.segment is None:
        found += inspect_snapshots(plan, files=target.files)
    return found, inspected


def _row(target: Target, finding: Finding) -> dict[str, Any]:
    from seeklog.cli.show.remedies import meaning, next_step

    place = f"{target.root} {target.name}" if target.root is not None else target.place.directory
    return {
        "severity": finding.severity.value,
        "kind": finding.kind.value,
        "topic": target.place.topic,
        "partition": target.place.partition,
        "segment": finding.segment,
        "file": finding.path,
        "position": finding.position,
        "offset": finding.offset,
        "detail": finding.detail,
        "meaning": meaning(finding),
        "next": next_step(finding, place=place),
    }


def _block(row: dict[str, Any], *, colors: bool) -> str:
    """Return a finding as a person reads it: where and what, what it means, what next."""
    where = row["file"]
    if row["position"] is not None:
        where += f", byte {amounts.count(row['position'])}"
    if row["offset"] is not None:
        where += f", offset {amounts.count(row['offset'])}"
    word = row["severity"].ljust(7)
    word = f"\x1b[{_COLORS[row['severity']]}m{word}\x1b[0m" if colors else word
    lines = list(_lines(row))
    return f"{word}  {neutral(where)}\n" + "".join(f"         {neutral(line)}\n" for line in lines) + "\n"


def _lines(row: dict[str, Any]) -> Iterator[str]:
    yield f"{row['kind']}: {row['detail']}"
    yield f"{row['meaning']}"
    if row["next"]:
        yield f"next: {row['next']}"


def _summary(targets: list[Target], inspections: list[Inspection], rows: list[dict[str, Any]], seconds: float) -> str:
    severities = Counter(row["severity"] for row in rows)
    found = ", ".join(
        f"{severities[word]} {word}{'s' if severities[word] > 1 else ''}"
        for word in ("error", "warning", "note")
        if severities[word]
    )
    size = sum(inspection.size for inspection in inspections)
    counts = (
        (len(targets), "partition"),
        (len(inspections), "segment"),
        (sum(each.batch_count for each in inspections), "batch"),
        (sum(each.record_count for each in inspections), "record"),
    )
    done = ", ".join(f"{count:,} {_plural(word, count)}" for count, word in counts)
    rate = f", {amounts.size(size / seconds)}/s" if size and seconds > 0.01 else ""
    return f"checked {done}, {amounts.size(size)} in {amounts.span(seconds)}{rate}: {found or 'all is well'}"


def _plural(word: str, count: int) -> str:
    if count == 1:
        return word
    return f"{word}es" if word.endswith("ch") else f"{word}s"
