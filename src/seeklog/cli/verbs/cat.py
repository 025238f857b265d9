"""`seeklog cat`."""

from __future__ import annotations

import click

from seeklog.cli import opening, selection
from seeklog.cli.app import verb
from seeklog.cli.show.record_output import format_options, make_writer, write_all
from seeklog.cli.show.terminal import Terminal
from seeklog.cli.times import utc_option


@verb
@opening.directory
@opening.topic
@selection.range_options
@click.option("-n", "limit", type=click.IntRange(0), metavar="N", help="Not more than so many records.")
@click.option("--by-time", is_flag=True, help="Merge the partitions by the times of the records.")
@selection.filter_options
@format_options
@utc_option
def cat(
    terminal: Terminal,
    directory: str,
    topic: str,
    partitions: tuple[int, ...],
    starts: tuple[str, ...],
    stops: tuple[str, ...],
    limit: int | None,
    by_time: bool,
    key: str | None,
    greps: tuple[str, ...],
    headers: tuple[str, ...],
    wheres: tuple[str, ...],
    record_format: str | None,
    as_json: bool,
    template: str | None,
    utc: bool,
) -> None:
    """Read records: all of a topic, or a range, or those that match.

    Partitions come one after the other, each in the order of its offsets. All filters must hold. --where compares key,
    value, offset, partition, timestamp and headers.NAME, and looks into JSON: value.items[0].id >= 7 and not key like
    'x%'. JSON lines are lossless: append --json writes the same records.
    """
    wanted = selection.compile_filter(key=key, greps=greps, headers=headers, wheres=wheres, utc=utc)
    with opening.open_to_read(directory) as store:
        ranges = selection.find_ranges(store, topic, partitions=partitions, starts=starts, stops=stops, utc=utc)
        writer = make_writer(
            terminal,
            record_format=record_format,
            as_json=as_json,
            template=template,
            utc=utc,
            partitions=len(ranges),
        )
        write_all(terminal, writer, selection.scan(ranges, wanted=wanted, limit=limit, by_time=by_time))
