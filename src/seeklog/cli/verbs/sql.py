"""`seeklog sql`."""

from __future__ import annotations

from functools import partial

import click

from seeklog.cli import options, selection
from seeklog.cli.app import verb
from seeklog.cli.opening import open_to_read
from seeklog.cli.selection import Ranges
from seeklog.cli.show.rows import Column, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.errors import TopicNotFound, UsageError


@verb
@options.directory
@click.argument("query", metavar="QUERY")
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Only these as tables; by default all.")
@selection.ranges
@options.utc
@options.rows
def sql(
    terminal: Terminal,
    directory: str,
    query: str,
    topics: tuple[str, ...],
    ranges: Ranges,
    utc: bool,
    row_format: str | None,
) -> None:
    """Query topics with DuckDB: each is a table of its name, with the columns of Spark's Kafka source.

    Columns: key, value, topic, partition, offset, timestamp, timestampType, headers. Key and value are BLOBs:
    text(value) is the text and field(value, '$.id') a field of its JSON. A name with a dash, or that is a keyword,
    stands in double quotes, also "offset". What WHERE says of offset, partition and timestamp is pushed down: the
    rest is not read (-v tells what was). Nothing is written, and no other file is opened.
    """
    from seeklog.store.sql import import_duckdb, query_rows, shown

    if not query.strip().strip(";"):
        raise UsageError("there is no query; write, for example: select count(*) from orders")
    duckdb = import_duckdb()
    from seeklog.store.dataset import TopicDataset

    ranges.check(utc=utc)
    with open_to_read(directory) as store:
        there = store.topics(internal=True)
        for topic in topics:
            if topic not in there:
                store.describe_topic(topic)  # refuses it, and names the nearest
                raise TopicNotFound(f"there is no topic {topic!r} in {directory}")
        tables = {topic: TopicDataset(topic, partial(ranges.find, store, topic, utc=utc)) for topic in topics or there}
        with query_rows(duckdb, query, tables, utc=utc) as (found, rows):
            columns = [Column(name, shown=shown, is_right=is_number) for name, is_number in found]
            write_rows(terminal, columns, rows, row_format=row_format)
        for topic, table in tables.items():
            for read in table.reads:
                terminal.detail(
                    f"read {topic}-{read.partition}: {read.rows:,} records, offsets [{read.start:,}, {read.stop:,})"
                )
