"""`seeklog tail`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from seeklog.cli import opening, selection
from seeklog.cli.app import verb
from seeklog.cli.partitions import partitions_option
from seeklog.cli.selection import Wanted
from seeklog.cli.show.record_output import Writer, format_options_but_f, make_writer, write_all
from seeklog.cli.show.terminal import Terminal
from seeklog.cli.times import utc_option
from seeklog.errors import UsageError

if TYPE_CHECKING:
    from seeklog.record.record import Record
    from seeklog.store import Store

# How long one wait for records takes; Ctrl-C ends it at once.
POLL_MS = 60_000.0
LAST = 10


@verb
@opening.directory
@opening.topic
@click.option("--follow", "-f", "follows", is_flag=True, help="Then wait for more; Ctrl-C ends it.")
@click.option("-n", "limit", type=click.IntRange(0), metavar="N", help=f"How many, all together.  [default: {LAST}]")
@click.option(
    "--from",
    "starts",
    multiple=True,
    metavar="PLACE",
    help="All from there on: OFFSET, -N (before the end), start, end, @TIME; or P:PLACE for partition P alone.",
)
@partitions_option
@selection.filter_options
@format_options_but_f
@utc_option
def tail(
    terminal: Terminal,
    directory: str,
    topic: str,
    follows: bool,
    limit: int | None,
    starts: tuple[str, ...],
    partitions: tuple[int, ...],
    key: str | None,
    greps: tuple[str, ...],
    headers: tuple[str, ...],
    wheres: tuple[str, ...],
    record_format: str | None,
    as_json: bool,
    template: str | None,
    utc: bool,
) -> None:
    """Read the newest records of all partitions by their times, and with -f those that come.

    When Ctrl-C ends it, it tells the command that goes on from there. Filters and formats are those of cat.
    """
    if starts and limit is not None:
        raise UsageError("-n counts from the end, and --from says where to begin: take one")
    if follows and record_format == "json":
        raise UsageError("a list of JSON has an end, and what is followed has none: take --format jsonl")
    wanted = selection.compile_filter(key=key, greps=greps, headers=headers, wheres=wheres, utc=utc)
    with opening.open_to_read(directory) as store:
        ranges = selection.find_ranges(store, topic, partitions=partitions, starts=starts, utc=utc)
        writer = make_writer(
            terminal, record_format=record_format, as_json=as_json, template=template, utc=utc, partitions=len(ranges)
        )
        # Always what Ctrl-C may tell as the way on: all before was written.
        positions = {each.partition: each.start if starts else each.stop for each in ranges}
        try:
            if starts:
                before = selection.scan(ranges, wanted=wanted, by_time=True)
            else:
                newest = selection.last_records(ranges, wanted=wanted, limit=LAST if limit is None else limit)
                before = iter([newest] if newest else [])
            write_all(terminal, writer, before)
            terminal.flush()
            positions.update({each.partition: each.stop for each in ranges})
            if follows:
                _follow(terminal, store, topic, positions=positions, wanted=wanted, writer=writer)
        except KeyboardInterrupt:
            if not follows:
                raise
            words = ["tail", "-f", directory, topic]
            words += [word for number in partitions for word in ("--partition", str(number))]
            for option, values in (("--grep", greps), ("--header", headers), ("--where", wheres)):
                words += [word for value in values for word in (option, value)]
            for option, value in (("--key", key), ("--format", record_format), ("--template", template)):
                words += [option, value] if value is not None else []
            words += ["--json"] if as_json else []
            words += ["--utc"] if utc else []
            terminal.stopped(f"to go on from here: {selection.resume_command(words, positions)}")
            raise


def _follow(
    terminal: Terminal, store: Store, topic: str, *, positions: dict[int, int], wanted: Wanted | None, writer: Writer
) -> None:
    """Write records as they come; `positions` always tell what was written."""
    for records in _arriving(store, topic, positions):
        kept = records if wanted is None else [record for record in records if wanted(record)]
        if kept:
            terminal.write_bytes(writer.encode(kept))
            terminal.flush()
        for record in records:
            positions[record.partition or 0] = record.offset + 1


def _arriving(store: Store, topic: str, positions: dict[int, int]) -> Iterator[list[Record]]:
    with store.consumer() as consumer:
        consumer.assign([(topic, partition) for partition in positions])
        for partition, offset in positions.items():
            consumer.seek((topic, partition), offset=offset)
        while True:
            records = consumer.poll(POLL_MS)
            if records:
                yield records
