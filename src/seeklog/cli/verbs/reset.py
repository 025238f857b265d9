"""`seeklog reset`."""

from __future__ import annotations

import click

from seeklog.cli import opening
from seeklog.cli.app import verb
from seeklog.cli.consent import consent_options
from seeklog.cli.partitions import chosen, offsets_at, partitions_option
from seeklog.cli.show import amounts
from seeklog.cli.show.rows import Column, formats, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.cli.times import parse_place, utc_option
from seeklog.cli.verbs.groups import check_idle
from seeklog.names import TopicPartition

COLUMNS = (
    Column("topic"),
    Column("partition", is_right=True),
    Column("old", shown=amounts.count, is_right=True),
    Column("new", shown=amounts.count, is_right=True),
    Column("end", shown=amounts.count, is_right=True),
    Column("lag", shown=amounts.count, is_right=True),
)


@verb
@opening.directory
@opening.group
@opening.topic
@click.option("--to", "to", required=True, metavar="PLACE", help="An offset, -N, start, end or @TIME, such as @-15m.")
@partitions_option
@consent_options
@utc_option
@formats
def reset(
    terminal: Terminal,
    directory: str,
    group: str,
    topic: str,
    to: str,
    partitions: tuple[int, ...],
    is_dry: bool,
    is_agreed: bool,
    utc: bool,
    row_format: str | None,
    as_json: bool,
) -> None:
    """Set where a group reads on in a topic; shows old and new offsets, and asks.

    The place is found in each partition: @-1h is the first record of the last hour, -100 a hundred before the end. The
    members of the group must have stopped.
    """
    wanted = parse_place(to, utc=utc)
    opening.check_can_be_written(directory)
    with opening.open_to_read(directory) as store:
        described = store.describe_group(group)
        check_idle(group, len(described.members))
        new = offsets_at(store, topic, chosen(store, topic, partitions), wanted)
        old = {at.partition: offset for at, offset in described.offsets.items() if at.topic == topic}
        rows = [
            {
                "topic": topic,
                "partition": number,
                "old": old.get(number),
                "new": offset,
                "end": (end := store.log(topic, number).high_watermark),
                "lag": end - offset,
            }
            for number, offset in new.items()
        ]
    write_rows(terminal, COLUMNS, rows, row_format=row_format, as_json=as_json)
    changed = sum(old.get(number) != offset for number, offset in new.items())
    what = f"{group} in {changed} partition{'' if changed == 1 else 's'} of {topic}"
    if is_dry or not changed:
        terminal.say(f"would set {what}" if changed else f"{group} is there already; nothing was changed")
        return
    terminal.confirm(f"Set {what}?", is_agreed=is_agreed)
    with opening.open_to_write(directory) as store:
        store.commit_offsets(group, {TopicPartition(topic, number): offset for number, offset in new.items()})
    terminal.say(f"set {what}")
