"""`seeklog retain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seeklog import names
from seeklog.cli import opening
from seeklog.cli.app import verb
from seeklog.cli.consent import consent_options
from seeklog.cli.housekeeping import REMOVED, do_each, partitions_of, removal_row, told
from seeklog.cli.show.rows import formats, write_rows
from seeklog.cli.show.terminal import Terminal

if TYPE_CHECKING:
    from seeklog.log import Log, Removal


@verb
@opening.directory
@opening.optional_topic
@consent_options
@formats
def retain(
    terminal: Terminal,
    directory: str,
    topic: str | None,
    is_dry: bool,
    is_agreed: bool,
    row_format: str | None,
    as_json: bool,
) -> None:
    """Delete what a topic, or each of them, no longer keeps by its retention.ms and retention.bytes.

    Shows what goes, and asks. Whole segments go, the last one too if all of it is too old. A program that has the store
    open does this by itself every five minutes; this is for a store that nobody has open.
    """
    opening.check_can_be_written(directory)
    if topic is not None:
        names.check_not_internal(topic)
    with opening.open_to_read(directory) as store:
        plans = {
            partition: plan
            for partition in partitions_of(store, topic)
            if not (plan := store.log(partition.topic, partition.partition).plan_retention()).is_empty
        }
    rows = [removal_row(partition, plan) for partition, plan in plans.items()]
    write_rows(terminal, REMOVED, rows, row_format=row_format, as_json=as_json)
    if is_dry or not plans:
        terminal.say(f"would delete {told(plans)}" if plans else "nothing is too old or too much")
        return
    terminal.confirm(f"Delete {told(plans)}?", is_agreed=is_agreed)
    with opening.open_to_write(directory) as store:
        done, locked = do_each(terminal, store, plans, _retain)
    terminal.say(f"deleted {told(done)}")
    if locked is not None:
        raise locked


def _retain(log: Log) -> Removal:
    plan = log.plan_retention()
    log.roll_if_due()
    log.retain()
    return plan
