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
@options.location
@click.argument("query", metavar="QUERY")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    metavar="TOPIC",
    help="Only this topic as a table. Repeatable. Default: all topics.",
)
@selection.ranges
@options.utc
@options.rows
def sql(terminal: Terminal, directory: str, query: str, topics: tuple[str, ...], ranges: Ranges) -> None:
    """Query topics with DuckDB. Each topic is a table with the columns of Spark's Kafka source.

    The columns are key, value, topic, partition, offset, timestamp, timestampType and headers. Key and value are
    BLOBs: text(value) is the text, field(value, '$.id') a field of the JSON. Put names that contain a dash or are
    keywords, such as "offset", in double quotes. Conditions on offset, partition and timestamp are pushed down, so
    other records are not read; -v lists the ranges that were read. The query cannot write, and cannot open other files.
    """
    from seeklog.store.sql import import_duckdb, query_rows, shown

    if not query.strip().strip(";"):
        raise UsageError("the query is empty; write, for example: select count(*) from orders")
    duckdb = import_duckdb()
    from seeklog.store.dataset import TopicDataset

    ranges.check(utc=terminal.utc)
    with open_to_read(directory) as store:
        existing = store.topics(internal=True)
        for topic in topics:
            if topic not in existing:
                store.describe_topic(topic)  # raises TopicNotFound with a suggestion
                raise TopicNotFound(f"there is no topic {topic!r} in {directory}")
        tables = {
            topic: TopicDataset(topic, partial(ranges.find, store, topic, utc=terminal.utc))
            for topic in topics or existing
        }
        with query_rows(duckdb, query, tables, utc=terminal.utc) as (found, rows):
            columns = [Column(name, shown=shown, is_right=is_number) for name, is_number in found]
            write_rows(terminal, columns, rows)
        for topic, table in tables.items():
            for read in table.reads:
                terminal.detail(
                    f"read {topic}-{read.partition}: {read.rows:,} records, offsets [{read.start:,}, {read.stop:,})"
                )
