"""`seeklog repair`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from seeklog import names
from seeklog.cli.app import verb
from seeklog.cli.consent import consent_options
from seeklog.cli.exits import Exit
from seeklog.cli.show import amounts
from seeklog.cli.show.neutral import neutral
from seeklog.cli.show.rows import Column, formats, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.errors import UsageError

if TYPE_CHECKING:
    from seeklog.cli.targets import Target
    from seeklog.log.check import RepairPlan

COLUMNS = (
    Column("partition"),
    Column("action"),
    Column("file"),
    Column("position", shown=amounts.count, is_right=True),
    Column("size_bytes", "size", shown=amounts.size, is_right=True),
    Column("offsets"),
    Column("detail"),
)


@verb
@click.argument("directory", metavar="DIR [TOPIC|PARTITION]…", nargs=-1, required=True)
@click.option("--from-torn", is_flag=True, help="Bring back whole batches that recovery has cut, if they still fit.")
@click.option("--quarantine", is_flag=True, help="The same as --yes: set damaged bytes aside, without asking.")
@consent_options
@formats
def repair(
    terminal: Terminal,
    directory: tuple[str, ...],
    from_torn: bool,
    quarantine: bool,
    is_agreed: bool,
    is_dry: bool,
    row_format: str | None,
    as_json: bool,
) -> int | None:
    """Set damaged bytes aside, and save what is whole on both sides of them, at its offsets.

    Shows what it would do, and asks. Where nobody can be asked, it does nothing more, unless --yes or --quarantine is
    given. Restore the files from a copy instead, if there is one: what a repair gives up is lost, and readers go on
    over it. The bytes are kept beside the log, in files called .damaged, and seeklog-losses lists what was lost.

    Nothing is guessed: a batch with a damaged header is set aside as a whole. A segment whose batches are whole, and
    which is not the one that was sealed, stays as it is.
    """
    from seeklog.cli.targets import find_targets

    targets = find_targets(directory)
    plans = [(target, _plan(target, from_torn=from_torn)) for target in targets]
    needed = [(target, plan) for target, plan in plans if plan.is_needed]
    rows = [row for target, plan in needed for row in _rows(target, plan)]
    write_rows(terminal, COLUMNS, rows, row_format=row_format, as_json=as_json)
    if not needed:
        terminal.say(f"looked at {len(targets)} partition{'s' if len(targets) != 1 else ''}: nothing is to be mended")
        return None
    is_agreed = is_agreed or quarantine
    if is_dry or not (is_agreed or sys.stdin.isatty()):
        terminal.say(f"{_summary(needed, would=True)}; nothing was changed. Do it with --yes")
        return Exit.DAMAGE
    terminal.confirm(f"{_summary(needed, would=True)}. Do it?", is_agreed=is_agreed)
    done = []
    with terminal.progress("mending", unit="bytes") as shown:
        for target, _ in needed:
            done.append((target, _repair(target, from_torn=from_torn, advance=shown.advance)))
    terminal.say(_summary(done, would=False))
    return None


def _plan(target: Target, *, from_torn: bool) -> RepairPlan:
    from seeklog.files import OsFiles
    from seeklog.log.check import plan_repair

    if not isinstance(target.files, OsFiles):
        raise UsageError(f"{target.place.directory} is in an archive, which is only read; archive it anew instead")
    place = target.place
    return plan_repair(place.directory, config=place.config, inherited=place.inherited, from_torn=from_torn)


def _repair(target: Target, *, from_torn: bool, advance: Any) -> RepairPlan:
    from seeklog.log.check import repair as mend

    place = target.place
    return mend(place.directory, config=place.config, inherited=place.inherited, from_torn=from_torn, advance=advance)


def _rows(target: Target, plan: RepairPlan) -> Iterator[dict[str, Any]]:
    def row(action: str, **more: Any) -> dict[str, Any]:
        blank = {"partition": target.name, "action": action, "file": None, "position": None, "size_bytes": None}
        return blank | {"offsets": None, "detail": None} | more

    if plan.has_damaged_checkpoint:
        detail = "kept as seeklog-checkpoint.damaged; deleted records of the first segment may come back"
        yield row("make anew", file=names.CHECKPOINT, detail=detail)
    for each in plan.quarantines:
        yield row(
            "set aside",
            file=names.segment_name(each.base_offset, names.LOG),
            position=each.start,
            size_bytes=each.stop - each.start,
            detail=each.reason,
        )
    for loss in plan.losses:
        last = loss.next_offset - 1
        offsets = str(last) if last == loss.first_offset else f"{loss.first_offset}-{last}"
        yield row("give up", offsets=offsets, detail=loss.reason)
    for segment in plan.segments:
        kept = sum(stop - start for start, stop in segment.pieces)
        name = names.segment_name(segment.base_offset, names.LOG)
        yield row("write anew", file=name, size_bytes=kept, detail="what is whole, with its indexes and seal")
    for base_offset, reason in plan.resealed.items():
        yield row("make anew", file=names.segment_name(base_offset, names.SEAL), detail=reason)
    if plan.roll_at is not None:
        detail = "an empty segment, so that no offset that was promised is given twice"
        yield row("go on", file=names.segment_name(plan.roll_at, names.LOG), offsets=str(plan.roll_at), detail=detail)
    for returning in plan.returning:
        yield row(
            "bring back",
            file=os.path.basename(returning.path),
            size_bytes=sum(stop - start for start, stop in returning.pieces),
            offsets=f"{returning.base_offset}-{returning.next_offset - 1}",
            detail=f"{returning.record_count} records that recovery had cut",
        )


def _summary(plans: list[tuple[Target, RepairPlan]], *, would: bool) -> str:
    count = len(plans)
    segments = sum(len(plan.segments) + len(plan.resealed) for _, plan in plans)
    size = amounts.size(sum(plan.quarantined_bytes for _, plan in plans))
    lost = sum(plan.lost_offsets for _, plan in plans)
    back = sum(returning.record_count for _, plan in plans for returning in plan.returning)
    parts = [f"{'would mend' if would else 'mended'} {neutral(', '.join(target.name for target, _ in plans[:3]))}"]
    parts[0] += f" and {count - 3} more" if count > 3 else ""
    parts.append(f"{segments} segment{'s' if segments != 1 else ''} made anew, {size} set aside")
    parts.append(f"{lost} offset{'s' if lost != 1 else ''} given up")
    if back:
        parts.append(f"{back} records brought back")
    return ": ".join([parts[0], ", ".join(parts[1:])])
