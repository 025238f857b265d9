"""`seeklog export`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from io import BufferedWriter
from typing import Any, Final

import click

from seeklog.cli import options, selection
from seeklog.cli.app import verb
from seeklog.cli.opening import open_to_read
from seeklog.cli.selection import Ranges
from seeklog.cli.show import amounts
from seeklog.cli.show.outfile import whole_file
from seeklog.cli.show.record_output import writer_of
from seeklog.cli.show.terminal import Terminal
from seeklog.errors import UsageError
from seeklog.record.arrow import import_pyarrow
from seeklog.store import Range

FORMATS: Final = ("parquet", "csv", "jsonl")
# A row group is in memory until it is written. Readers of Parquet work best with about a million rows.
GROUP_BYTES: Final = 64 << 20
GROUP_ROWS: Final = 1 << 20

Count = Callable[[int], object]


@verb
@options.location
@options.topic
@click.option(
    "--output", "-o", "path", required=True, metavar="FILE", help="Output file; its extension chooses the format."
)
@click.option("--parquet", "chosen", flag_value="parquet", help="Write Parquet.")
@click.option("--csv", "chosen", flag_value="csv", help="Write CSV.")
@click.option("--jsonl", "chosen", flag_value="jsonl", help="Write JSON lines, which append --json reads.")
@selection.ranges
@click.option("--force", is_flag=True, help="Replace an existing file.")
@options.utc
def export(
    terminal: Terminal, directory: str, topic: str, path: str, chosen: str | None, ranges: Ranges, force: bool
) -> None:
    """Write the records of a topic, or a range of them, to a Parquet, CSV or JSON lines file.

    The file is written completely or not at all. Parquet has the columns of Spark's Kafka source: key, value, topic,
    partition, offset, timestamp, timestampType, headers. JSON lines are lossless; in CSV null and empty look the same.
    """
    chosen = chosen or _by_extension(path)
    if chosen == "parquet":
        import_pyarrow()
    with open_to_read(directory) as store:
        found = ranges.find(store, topic, utc=terminal.utc)
        total = sum(max(0, part.stop - part.start) for part in found)
        with terminal.progress(f"exporting {topic}", total=total) as progress, whole_file(path, replaces=force) as file:
            if chosen == "parquet":
                _write_parquet(file, found, topic=topic, count=progress.advance)
            else:
                _write_text(file, found, chosen=chosen, utc=terminal.utc, count=progress.advance)
    size = amounts.size(os.path.getsize(path))
    terminal.say(
        f"wrote {amounts.counted(progress.done, 'record')} of {topic} to {path} "
        f"({size} in {amounts.span(progress.seconds)})"
    )


def _by_extension(path: str) -> str:
    extension = os.path.splitext(path)[1].lower().removeprefix(".")
    chosen = {"pq": "parquet", "ndjson": "jsonl", "json": "jsonl"}.get(extension, extension)
    if chosen not in FORMATS:
        raise UsageError(
            f"unknown format of {path}; name a .parquet, .csv or .jsonl file, or pass --parquet, --csv or --jsonl"
        )
    return chosen


def _write_text(file: BufferedWriter, ranges: Sequence[Range], *, chosen: str, utc: bool, count: Count) -> None:
    """Write records as CSV or JSON lines, partition by partition."""
    writer = writer_of(chosen, utc=utc)
    file.write(writer.head)
    for records in selection.scan(ranges):
        file.write(writer.encode(records))
        count(len(records))
    file.write(writer.tail)


def _write_parquet(file: BufferedWriter, ranges: Sequence[Range], *, topic: str, count: Count) -> None:
    """Write records as Parquet with the columns of Spark's Kafka source, partition by partition."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from seeklog.store.dataset import TopicDataset

    table = TopicDataset(topic, lambda: ranges)
    group: list[Any] = []
    with pq.ParquetWriter(file, table.schema, compression="zstd") as writer:

        def write_group() -> None:
            if group:
                writer.write_table(pa.Table.from_batches(group), row_group_size=GROUP_ROWS)
                group.clear()

        for batch in table.batches():
            group.append(batch)
            count(batch.num_rows)
            if sum(rows.nbytes for rows in group) >= GROUP_BYTES or sum(map(len, group)) >= GROUP_ROWS:
                write_group()
        write_group()
