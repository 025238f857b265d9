"""`seeklog repair`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click

from seeklog import names
from seeklog.cli import options
from seeklog.cli.app import verb
from seeklog.cli.exits import Exit
from seeklog.cli.options import Consent
from seeklog.cli.show import amounts
from seeklog.cli.show.neutral import neutral
from seeklog.cli.show.rows import Column, count_column, size_column, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.cli.targets import Target, find_targets
from seeklog.errors import UsageError
from seeklog.files import OsFiles
from seeklog.log.check import RepairPlan, plan_repair
from seeklog.log.check import repair as repair_partition

LOCATION = (Column("file"), count_column("position"), size_column("size_bytes", "size"), Column("offsets"))
COLUMNS = (Column("partition"), Column("action"), *LOCATION, Column("detail"))


@verb
@click.argument("directory", metavar="DIR [TOPIC|PARTITION]…", nargs=-1, required=True)
@click.option("--from-torn", is_flag=True, help="Restore intact batches that recovery cut off, if they still fit.")
@click.option("--quarantine", is_flag=True, help="Short for --yes.")
@options.consent
@options.rows
def repair(
    terminal: Terminal, directory: tuple[str, ...], from_torn: bool, quarantine: bool, consent: Consent
) -> int | None:
    """Quarantine damaged bytes, and keep the intact records before and after them at their offsets.

    Shows the plan, and asks. Without a terminal to ask on, it only shows the plan, unless --yes is given. If you have a
    copy of the files, restore that instead: a repair gives up the damaged records, and readers skip their offsets. The
    damaged bytes are kept next to the log in .damaged files, and seeklog-losses lists the lost offsets.

    Nothing is guessed: a batch with a damaged header is quarantined whole. If a segment consists of intact batches but
    differs from its seal, its log is kept, and it gets new indexes and a new seal.
    """
    targets = find_targets(directory)
    plans = [(target, _plan(target, from_torn=from_torn)) for target in targets]
    needed = [(target, plan) for target, plan in plans if plan.is_needed]
    rows = [row for target, plan in needed for row in _rows(target, plan)]
    write_rows(terminal, COLUMNS, rows)
    if not needed:
        terminal.say(f"checked {amounts.counted(len(targets), 'partition')}: nothing to repair")
        return None
    agreed = replace(consent, is_agreed=consent.is_agreed or quarantine)
    if not agreed.to_plan(terminal, f"repair {_summary(needed)}"):
        return Exit.DAMAGE
    with terminal.progress("repairing", unit="bytes", stopped="run it again to complete the repair") as shown:
        done = [
            (
                target,
                repair_partition(
                    target.location.directory, from_torn=from_torn, advance=shown.advance, **_known_of(target)
                ),
            )
            for target, _ in needed
        ]
    terminal.say(f"repaired {_summary(done)}")
    return None


def _plan(target: Target, *, from_torn: bool) -> RepairPlan:
    if not isinstance(target.files, OsFiles):
        raise UsageError(
            f"{target.location.directory} is in an archive, which is read-only; archive the partition again instead"
        )
    return plan_repair(target.location.directory, from_torn=from_torn, **_known_of(target))


def _known_of(target: Target) -> dict[str, Any]:
    return {"config": target.location.config, "inherited": target.location.inherited}


def _rows(target: Target, plan: RepairPlan) -> Iterator[dict[str, Any]]:
    blank = dict.fromkeys(column.name for column in COLUMNS) | {"partition": target.name}

    def row(action: str, **more: Any) -> dict[str, Any]:
        return blank | {"action": action} | more

    def log_name(base_offset: int) -> str:
        return names.segment_name(base_offset, names.LOG)

    if plan.has_damaged_checkpoint:
        detail = "kept as seeklog-checkpoint.damaged; deleted records of the first segment may reappear"
        yield row("rebuild", file=names.CHECKPOINT, detail=detail)
    for segment in plan.segments:
        for damage in segment.quarantines:
            name, size = log_name(segment.base_offset), damage.stop - damage.start
            yield row("quarantine", file=name, position=damage.start, size_bytes=size, detail=damage.reason)
    for loss in plan.losses:
        last = loss.next_offset - 1
        offsets = str(last) if last == loss.first_offset else f"{loss.first_offset}-{last}"
        yield row("give up", offsets=offsets, detail=loss.reason)
    for segment in plan.segments:
        kept = sum(stop - start for start, stop in segment.pieces)
        detail = "the intact batches, with indexes and a seal"
        yield row("rewrite", file=log_name(segment.base_offset), size_bytes=kept, detail=detail)
    for base_offset, reason in plan.resealed.items():
        yield row("rebuild", file=names.segment_name(base_offset, names.SEAL), detail=reason)
    if plan.roll_at is not None:
        detail = "an empty segment, so that no acknowledged offset is assigned again"
        yield row("roll", file=log_name(plan.roll_at), offsets=str(plan.roll_at), detail=detail)
    for restored in plan.restored:
        yield row(
            "restore",
            file=os.path.basename(restored.path),
            size_bytes=sum(stop - start for start, stop in restored.pieces),
            offsets=f"{restored.base_offset}-{restored.next_offset - 1}",
            detail=f"{amounts.counted(restored.record_count, 'record')} that recovery cut off",
        )


def _summary(plans: list[tuple[Target, RepairPlan]]) -> str:
    rest = f" and {len(plans) - 3} more" if len(plans) > 3 else ""
    segments = sum(len(plan.segments) + len(plan.resealed) for _, plan in plans)
    size = sum(plan.quarantined_bytes for _, plan in plans)
    lost = sum(plan.lost_offsets for _, plan in plans)
    back = sum(restored.record_count for _, plan in plans for restored in plan.restored)
    parts = [
        f"{amounts.counted(segments, 'segment')} rewritten or resealed",
        f"{amounts.size(size)} quarantined",
        f"{amounts.counted(lost, 'offset')} lost",
    ]
    if back:
        parts.append(f"{amounts.counted(back, 'record')} restored")
    return f"{neutral(', '.join(target.name for target, _ in plans[:3]))}{rest}: {', '.join(parts)}"
