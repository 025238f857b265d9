"""`seeklog verify`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

from seeklog.cli import options
from seeklog.cli.app import verb
from seeklog.cli.exits import Exit
from seeklog.cli.show import amounts
from seeklog.cli.show.neutral import neutral
from seeklog.cli.show.remedies import meaning, next_step
from seeklog.cli.show.rows import Column, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.cli.targets import Target, find_targets
from seeklog.log.check import (
    Finding,
    Inspection,
    Kind,
    Plan,
    Severity,
    conclude,
    has_changed,
    inspect_records,
    inspect_segment,
    inspect_snapshots,
    plan_inspection,
)
from seeklog.topics.scope import still_has

COLUMNS = tuple(
    Column(name)
    for name in ("severity", "kind", "topic", "partition", "file", "position", "offset", "detail", "meaning", "next")
)
# Attempts to check a partition whose files a broker keeps replacing.
MAX_ATTEMPTS = 5
_COLORS = {"error": "31", "warning": "33", "note": "2"}


@verb
@click.argument("directory", metavar="DIR|PARTITION|FILE…", nargs=-1, required=True)
@options.storage
@click.option("--deep", is_flag=True, help="Also decode every record and every producer snapshot.")
@options.rows
def verify(terminal: Terminal, directory: tuple[str, ...], deep: bool) -> int | None:
    """Check every batch, index entry, seal and checkpoint of a log. Takes no lock and changes nothing.

    DIR is a store, a broker's data directory, an archive or its URL, or the directory of one partition. Names after a
    store select topics or partitions in it. A file is checked together with the other files of its segment.

    If anything is damaged, the exit code is 3. Each finding names the file and, if known, the byte, and says
    what the damage means and what to do next.
    """
    targets = find_targets(directory)
    plans = [_plan(target) for target in targets]
    rows: list[dict[str, Any]] = []
    inspections: list[Inspection] = []
    total = sum(task.size for plan in plans for task in plan.tasks) * (2 if deep else 1)
    bar = terminal.progress("checking", total=total, unit="bytes", stopped=lambda: _count(rows))
    try:
        with bar:
            for target, plan in zip(targets, plans, strict=True):
                found, inspected = _check_settled(target, plan, is_deep=deep, advance=bar.advance)
                inspections += inspected
                rows += [_row(target, finding) for finding in found]
            seconds = bar.seconds
    except KeyboardInterrupt:
        _write(terminal, rows)  # what was found so far
        raise
    _write(terminal, rows)
    terminal.say(_summary(targets, inspections, rows, seconds))
    return Exit.DAMAGE if any(row["severity"] == "error" for row in rows) else None


def _write(terminal: Terminal, rows: list[dict[str, Any]]) -> None:
    if terminal.row_format != "table":
        write_rows(terminal, COLUMNS, rows)
        return
    for row in rows:
        terminal.write(_block(row, colors=terminal.has_colors))


def _count(rows: list[dict[str, Any]]) -> str:
    severities = Counter(row["severity"] for row in rows)
    found = [amounts.counted(severities[name], name) for name in ("error", "warning", "note") if severities[name]]
    return ", ".join(found) or "no damage"


def _plan(target: Target, *, attempts: int = MAX_ATTEMPTS) -> Plan:
    location = target.location
    try:
        plan = plan_inspection(
            location.directory, config=location.config, inherited=location.inherited, files=target.files
        )
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        if missing and target.root is not None and not still_has(target.root, location, target.files):
            return Plan(directory=location.directory, checkpoint=None, tasks=())
        if missing and attempts > 1:
            return _plan(target, attempts=attempts - 1)  # a broker may be recreating it
        detail = "the directory of the partition is missing" if missing else f"cannot be read: {error}"
        finding = Finding(kind=Kind.UNREADABLE, severity=Severity.ERROR, path=location.directory, detail=detail)
        return Plan(directory=location.directory, checkpoint=location.inherited, tasks=(), findings=(finding,))
    if target.segment is None:
        return plan
    tasks = tuple(task for task in plan.tasks if task.base_offset == target.segment)
    return replace(plan, tasks=tasks, findings=())


def _check_settled(
    target: Target, plan: Plan, *, is_deep: bool, advance: Callable[[int], None]
) -> tuple[list[Finding], list[Inspection]]:
    """Check a partition, and check it again if a running broker replaced files meanwhile."""
    found, inspected = _check(target, plan, is_deep=is_deep, advance=advance)
    for _ in range(MAX_ATTEMPTS - 1):
        if not has_changed(found):
            break
        found, inspected = _check(target, _plan(target), is_deep=is_deep, advance=advance)
    return found, inspected


def _check(
    target: Target, plan: Plan, *, is_deep: bool, advance: Callable[[int], None]
) -> tuple[list[Finding], list[Inspection]]:
    inspected = []
    for task in plan.tasks:
        inspection = inspect_segment(task, files=target.files)
        advance(task.size)
        if is_deep and not inspection.is_gone:
            inspection.findings += inspect_records(task, files=target.files, advance=advance)
        inspected.append(inspection)
    found = conclude(plan, inspected, files=target.files)
    if is_deep and target.segment is None:
        found += inspect_snapshots(plan, files=target.files)
    return found, inspected


def _row(target: Target, finding: Finding) -> dict[str, Any]:
    where = f"{target.root} {target.name}" if target.root is not None else target.location.directory
    return {
        "severity": finding.severity.value,
        "kind": finding.kind.value,
        "topic": target.location.topic,
        "partition": target.location.partition,
        "segment": finding.segment,
        "file": finding.path,
        "position": finding.position,
        "offset": finding.offset,
        "detail": finding.detail,
        "meaning": meaning(finding),
        "next": next_step(finding, where=where),
    }


def _block(row: dict[str, Any], *, colors: bool) -> str:
    """Return a finding as text: where it is, what is wrong, what that means, and what to do next."""
    where = row["file"]
    if row["position"] is not None:
        where += f", byte {amounts.count(row['position'])}"
    if row["offset"] is not None:
        where += f", offset {amounts.count(row['offset'])}"
    severity = row["severity"].ljust(7)
    severity = f"\x1b[{_COLORS[row['severity']]}m{severity}\x1b[0m" if colors else severity
    lines = [f"{row['kind']}: {row['detail']}", row["meaning"]]
    if row["next"]:
        lines.append(f"next: {row['next']}")
    return f"{severity}  {neutral(where)}\n" + "".join(f"         {neutral(line)}\n" for line in lines) + "\n"


def _summary(targets: list[Target], inspections: list[Inspection], rows: list[dict[str, Any]], seconds: float) -> str:
    size = sum(inspection.size for inspection in inspections)
    done = (
        amounts.counted(len(targets), "partition"),
        amounts.counted(len(inspections), "segment"),
        amounts.counted(sum(inspection.batch_count for inspection in inspections), "batch", "batches"),
        amounts.counted(sum(inspection.record_count for inspection in inspections), "record"),
    )
    rate = f", {amounts.size(size / seconds)}/s" if size and seconds > 0.01 else ""
    return f"checked {', '.join(done)}, {amounts.size(size)} in {amounts.span(seconds)}{rate}: {_count(rows)}"
