"""`seeklog sql`."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from seeklog import __version__
from seeklog.cli import options, selection
from seeklog.cli.app import verb
from seeklog.cli.opening import open_to_read
from seeklog.cli.selection import Ranges
from seeklog.cli.show.amounts import counted
from seeklog.cli.show.rows import Column, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.errors import TopicNotFound, UsageError

if TYPE_CHECKING:
    from seeklog.store import Store
    from seeklog.store.sql import Session


@verb
@options.location
@click.argument("query", metavar="[QUERY]", required=False)
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
def sql(terminal: Terminal, directory: str, query: str | None, topics: tuple[str, ...], ranges: Ranges) -> None:
    """Query topics with DuckDB. Each topic is a table with the columns of Spark's Kafka source.

    QUERY is one or more statements, separated by semicolons. The result of each is printed; with --format json each
    is a list of its own. Without QUERY, this is a shell on a terminal: .help lists its commands. In a pipe, the query
    is read from stdin.

    The columns are key, value, topic, partition, offset, timestamp, timestampType and headers. Key and value are
    BLOBs: value->>'$.id' is a field of the JSON, text(value) is the text. Put names that contain a dash or are
    keywords, such as "offset", in double quotes. Conditions on offset, partition and timestamp are pushed down, so
    other records are not read; -v lists the ranges that were read. The query cannot write, and cannot open other files.
    """
    from seeklog.store.sql import Session, import_duckdb
    from seeklog.store.sql_text import is_empty

    is_shell = query is None and sys.stdin.isatty() and terminal.shows_tables
    if query is None and not is_shell:
        if sys.stdin.isatty():
            terminal.say("reading the query from the terminal; end with Ctrl-D")
        query = sys.stdin.read()
    if query is not None and is_empty(query):
        raise UsageError(
            "the query is empty; write, for example: select count(*) from orders. "
            "On a terminal, leave it out to start a shell"
        )
    duckdb = import_duckdb()
    ranges.check(utc=terminal.utc)
    with open_to_read(directory) as store, Session(duckdb, utc=terminal.utc) as session:
        offer = partial(_offer, session, store, topics, ranges, directory=directory, utc=terminal.utc)
        offer()
        if query is not None:
            _execute(terminal, session, query)
            return
        from seeklog.cli.sql_shell import Shell

        terminal.say(
            f"seeklog {__version__}, DuckDB {duckdb.__version__}: {counted(len(session.tables), 'topic')} "
            f"in {directory}. End a statement with a semicolon; .help lists the commands"
        )

        def execute(statement: str) -> None:
            offer()
            _execute(terminal, session, statement)

        Shell(terminal, execute).run()


def _offer(
    session: Session, store: Store, topics: tuple[str, ...], ranges: Ranges, *, directory: str, utc: bool
) -> None:
    """Make the topics that exist now the tables of a session."""
    from seeklog.store.dataset import TopicDataset

    existing = store.topics(internal=True)
    for topic in topics:
        if topic not in existing:
            store.describe_topic(topic)  # raises TopicNotFound with a suggestion
            raise TopicNotFound(f"there is no topic {topic!r} in {directory}; seeklog ls {directory} lists the topics")
    session.offer(
        {
            topic: session.tables.get(topic) or TopicDataset(topic, partial(ranges.find, store, topic, utc=utc))
            for topic in topics or existing
        }
    )


def _execute(terminal: Terminal, session: Session, query: str) -> None:
    """Run the statements of a query, and print the result of each. The first error ends it."""
    from seeklog.store.sql import shown

    is_first = True
    for statement in session.statements(query):
        with session.query(statement) as (found, rows):
            columns = [Column(name, shown=shown, is_right=is_number) for name, is_number in found]
            if columns:
                if not is_first and terminal.row_format in ("table", "csv"):
                    terminal.write("\n")
                write_rows(terminal, columns, rows)
                is_first = False
        for topic, table in session.tables.items():
            for read in table.reads:
                records = counted(read.rows, "record")
                terminal.detail(f"read {topic}-{read.partition}: {records}, offsets [{read.start:,}, {read.stop:,})")
