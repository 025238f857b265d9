"""`seeklog truncate`."""

from __future__ import annotations

import contextlib

import click

from seeklog import names
from seeklog.cli import opening
from seeklog.cli.app import verb
from seeklog.cli.consent import consent_options
from seeklog.cli.housekeeping import REMOVED, removal_row, told
from seeklog.cli.partitions import chosen, offsets_at, partitions_option
from seeklog.cli.show.rows import formats, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.cli.times import parse_place, utc_option
from seeklog.errors import UsageError
from seeklog.names import TopicPartition

_PLACE = "an offset, -N, start, end or @TIME"


@verb
@opening.directory
@opening.topic
@click.option("--before", "before", metavar="PLACE", help=f"Delete what lies before {_PLACE}.")
@click.option("--to", "to", metavar="PLACE", help="Cut the log there: the batch that holds it and all behind it go.")
@partitions_option
@consent_options
@utc_option
@formats
def truncate(
    terminal: Terminal,
    directory: str,
    topic: str,
    before: str | None,
    to: str | None,
    partitions: tuple[int, ...],
    is_dry: bool,
    is_agreed: bool,
    utc: bool,
    row_format: str | None,
    as_json: bool,
) -> None:
    """Delete the oldest records of a topic, or cut off the newest.

    Shows what goes, and asks. With --before the records are gone at once, and the bytes of segments that lie wholly
    before the place. With --to the log ends there, and the next record gets that offset again: groups and copies that
    have read further do not notice. All partitions are done, or none if another process writes one.
    """
    names.check_not_internal(topic)
    if (before is None) == (to is None):
        raise UsageError("say either --before or --to")
    wanted = parse_place(before or to or "", utc=utc)
    opening.check_can_be_written(directory)
    with opening.open_to_read(directory) as store:
        found = offsets_at(store, topic, chosen(store, topic, partitions), wanted)
        plans = {}
        for number, offset in found.items():
            log = store.log(topic, number)
            plan = log.plan_delete_before(offset) if to is None else log.plan_truncate_to(offset)
            if not plan.is_empty:
                plans[TopicPartition(topic, number)] = plan
    rows = [removal_row(partition, plan) for partition, plan in plans.items()]
    write_rows(terminal, REMOVED, rows, row_format=row_format, as_json=as_json)
    if is_dry or not plans:
        terminal.say(f"would delete {told(plans)}" if plans else "there is nothing to delete")
        return
    terminal.confirm(f"Delete {told(plans)}?", is_agreed=is_agreed)
    with opening.open_to_write(directory) as store, contextlib.ExitStack() as held:
        logs = {each: held.enter_context(store.writer(each.topic, each.partition)) for each in plans}
        for partition, log in logs.items():
            if to is None:
                log.delete_before(found[partition.partition])
            else:
                log.truncate_to(found[partition.partition])
    terminal.say(f"deleted {told(plans)}")
