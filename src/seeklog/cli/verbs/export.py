"""`seeklog export`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from io import BufferedWriter
from typing import Final

import click

from seeklog.cli import options, selection
from seeklog.cli.app import verb
from seeklog.cli.arrow_output import write_arrow
from seeklog.cli.formats import ARROW_FORMATS, format_by_ending
from seeklog.cli.opening import open_to_read
from seeklog.cli.selection import Ranges
from seeklog.cli.show import amounts
from seeklog.cli.show.outfile import whole_file
from seeklog.cli.show.record_output import writer_of
from seeklog.cli.show.terminal import Terminal
from seeklog.errors import UsageError
from seeklog.record.arrow import import_pyarrow
from seeklog.store import Range

FORMATS: Final = ("parquet", "csv", "jsonl", "arrow", "arrows")

Count = Callable[[int], object]


@verb
@options.location
@options.topic
@click.option(
    "--output", "-o", "path", required=True, metavar="FILE", help="Output file; its ending chooses the format."
)
@click.option("--format", "chosen", type=click.Choice(FORMATS), help="Default: by the ending of FILE.")
@selection.ranges
@click.option("--force", is_flag=True, help="Replace an existing file.")
@options.utc
def export(
    terminal: Terminal, directory: str, topic: str, path: str, chosen: str | None, ranges: Ranges, force: bool
) -> None:
    """Write the records of a topic, or a range of them, to a Parquet, CSV, JSON lines or Arrow file.

    The file is written completely or not at all, and append reads the same records back from it. Parquet and Arrow have
    the columns of Spark's Kafka source: key, value, topic, partition, offset, timestamp, timestampType, headers. The
    formats arrow and arrows are Arrow's IPC file and stream.
    """
    form = chosen or _by_ending(path)
    if form in ARROW_FORMATS:
        import_pyarrow()
    with open_to_read(directory) as store:
        found = ranges.find(store, topic, utc=terminal.utc)
        total = sum(max(0, part.stop - part.start) for part in found)
        bar = terminal.progress(f"exporting {topic}", total=total, stopped=f"{path} was not written")
        with bar as progress, whole_file(path, replaces=force) as file:
            if form in ARROW_FORMATS:
                write_arrow(file, found, form=form, topic=topic, count=progress.advance)
            else:
                _write_text(file, found, form=form, utc=terminal.utc, count=progress.advance)
    size = amounts.size(os.path.getsize(path))
    terminal.say(
        f"wrote {amounts.counted(progress.done, 'record')} of {topic} to {path} "
        f"({size} in {amounts.span(progress.seconds)})"
    )


def _by_ending(path: str) -> str:
    form = format_by_ending(path)
    if form is None:
        raise UsageError(
            f"unknown format of {path}; name a .parquet, .csv, .jsonl or .arrow file, or pass --format: "
            f"{', '.join(FORMATS)}"
        )
    return form


def _write_text(file: BufferedWriter, ranges: Sequence[Range], *, form: str, utc: bool, count: Count) -> None:
    """Write records as CSV or JSON lines, partition by partition."""
    writer = writer_of(form, utc=utc)
    file.write(writer.head)
    for records in selection.scan(ranges):
        file.write(writer.encode(records))
        count(len(records))
    file.write(writer.tail)
