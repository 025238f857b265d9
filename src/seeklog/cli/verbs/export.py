"""`seeklog export`."""

from __future__ import annotations

import os

import click

from seeklog.cli import options, selection
from seeklog.cli.app import verb
from seeklog.cli.opening import open_to_read
from seeklog.cli.selection import Ranges
from seeklog.cli.show import amounts
from seeklog.cli.show.exporting import FORMATS, export_parquet, export_text
from seeklog.cli.show.outfile import whole_file
from seeklog.cli.show.terminal import Terminal
from seeklog.errors import UsageError
from seeklog.record.arrow import import_pyarrow


@verb
@options.directory
@options.topic
@click.option("--output", "-o", "path", required=True, metavar="FILE", help="Where to write; its ending is the format.")
@click.option("--parquet", "chosen", flag_value="parquet", help="As Parquet, whatever the ending.")
@click.option("--csv", "chosen", flag_value="csv", help="As CSV.")
@click.option("--jsonl", "chosen", flag_value="jsonl", help="As JSON lines, which append --json takes.")
@selection.ranges
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@options.utc
def export(
    terminal: Terminal,
    directory: str,
    topic: str,
    path: str,
    chosen: str | None,
    ranges: Ranges,
    force: bool,
    utc: bool,
) -> None:
    """Write the records of a topic, or a range of them, to a file: Parquet, CSV or JSON lines.

    The file is there whole or not at all. Parquet has the columns of Spark's Kafka source: key, value, topic,
    partition, offset, timestamp, timestampType, headers. JSON lines lose nothing; CSV does not tell null from empty.
    """
    chosen = chosen or _by_ending(path)
    if chosen == "parquet":
        import_pyarrow()
    with open_to_read(directory) as store:
        found = ranges.find(store, topic, utc=utc)
        total = sum(max(0, each.stop - each.start) for each in found)
        with (
            terminal.progress(f"exporting {topic}", total=total) as progress,
            whole_file(path, replaces=force) as file,
        ):
            if chosen == "parquet":
                export_parquet(file, found, topic=topic, count=progress.advance)
            else:
                export_text(file, found, chosen=chosen, utc=utc, count=progress.advance)
    size = amounts.size(os.path.getsize(path))
    terminal.say(
        f"wrote {amounts.counted(progress.done, 'record')} of {topic} to {path} "
        f"({size} in {amounts.span(progress.seconds)})"
    )


def _by_ending(path: str) -> str:
    ending = os.path.splitext(path)[1].lower().removeprefix(".")
    chosen = {"pq": "parquet", "ndjson": "jsonl", "json": "jsonl"}.get(ending, ending)
    if chosen not in FORMATS:
        raise UsageError(f"{path} ends neither in .parquet, .csv nor .jsonl; say --parquet, --csv or --jsonl")
    return chosen
