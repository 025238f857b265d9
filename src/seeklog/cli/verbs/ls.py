"""`seeklog ls`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from seeklog.cli import amounts, place
from seeklog.cli.app import verb
from seeklog.cli.rows import Column, formats, write_rows
from seeklog.cli.terminal import Terminal
from seeklog.cli.times import utc_option

if TYPE_CHECKING:
    from seeklog.store import Store

COLUMNS = (
    Column("topic"),
    Column("partitions", is_right=True),
    Column("records", shown=amounts.count, is_right=True),
    Column("size_bytes", "size", shown=amounts.size, is_right=True),
    Column("oldest"),
    Column("newest"),
)


@verb
@place.directory
@click.option("--all", "-a", "internal", is_flag=True, help="Also Kafka's own topics, such as __consumer_offsets.")
@utc_option
@formats
def ls(terminal: Terminal, directory: str, internal: bool, utc: bool, row_format: str | None, as_json: bool) -> None:
    """List the topics of a store: partitions, records, size, and the times of the oldest and the newest record."""
    with place.open_to_read(directory) as store:
        write_rows(terminal, COLUMNS, _rows(store, internal, utc), row_format=row_format, as_json=as_json)


def _rows(store: Store, internal: bool, utc: bool) -> Iterator[dict[str, Any]]:
    for name in store.topics(internal=internal):
        description = store.describe_topic(name)
        oldest, newest = _times(store, name, [each.partition for each in description.partitions])
        yield {
            "topic": name,
            "partitions": len(description.partitions),
            "records": description.record_count,
            "size_bytes": description.size_bytes,
            "oldest": amounts.moment(oldest, utc=utc),
            "newest": amounts.moment(newest, utc=utc),
        }


def _times(store: Store, topic: str, partitions: list[int]) -> tuple[int | None, int | None]:
    """Return the times of the first and the last records of the partitions."""
    firsts, lasts = [], []
    for partition in partitions:
        log = store.log(topic, partition)
        firsts += [record.timestamp_ms for record in itertools.islice(log.scan(), 1)]
        lasts += [record.timestamp_ms for record in itertools.islice(log.scan_reverse(), 1)]
    return min(firsts, default=None), max(lasts, default=None)
