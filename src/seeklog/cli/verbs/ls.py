"""`seeklog ls`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from seeklog import names
from seeklog.cli import opening
from seeklog.cli.app import verb
from seeklog.cli.exits import Exit, line
from seeklog.cli.show import amounts
from seeklog.cli.show.neutral import neutral
from seeklog.cli.show.rows import Column, formats, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.cli.times import utc_option
from seeklog.errors import CorruptionError, OffsetOutOfRange, TopicNotFound
from seeklog.files import OsFiles

if TYPE_CHECKING:
    from seeklog.store import Store
    from seeklog.topics.description import TopicDescription

COLUMNS = (
    Column("topic"),
    Column("partitions", is_right=True),
    Column("records", shown=amounts.count, is_right=True),
    Column("size_bytes", "size", shown=amounts.size, is_right=True),
    Column("oldest"),
    Column("newest"),
)


@verb
@opening.directory
@click.option("--all", "-a", "internal", is_flag=True, help="Also Kafka's own topics, such as __consumer_offsets.")
@utc_option
@formats
def ls(
    terminal: Terminal, directory: str, internal: bool, utc: bool, row_format: str | None, as_json: bool
) -> int | None:
    """List the topics of a store: partitions, records, size, and the times of the oldest and the newest record.

    Where damage hides a time, that is left out and told at the end, and it exits with 3.
    """
    damages: list[CorruptionError] = []
    with opening.open_to_read(directory) as store:
        rows = _rows(store, directory, internal, utc, damages)
        write_rows(terminal, COLUMNS, rows, row_format=row_format, as_json=as_json)
    for name, why in _set_aside(directory):
        terminal.say(f"{neutral(name)} is not listed: {why}")
    for damage in damages:
        terminal.tell(f"seeklog: {neutral(line(damage))}")
    return Exit.DAMAGE if damages else None


# How often a topic is looked at that a broker changes meanwhile.
MAX_ATTEMPTS = 5
_REASONS = {
    "stray": "a broker set it aside, because its cluster does not know the topic",
    "future": "it is a broker's unfinished copy of a partition that moves to another disk",
}


def _set_aside(directory: str) -> Iterator[tuple[str, str]]:
    """Yield the directories of partitions that a broker has set aside, and why."""
    if names.is_url(directory):
        return
    for name in sorted(OsFiles().list(directory)):
        kind = names.parse_set_aside_directory(name)
        if kind is not None:
            yield name, _REASONS[kind]


def _rows(
    store: Store, directory: str, internal: bool, utc: bool, damages: list[CorruptionError]
) -> Iterator[dict[str, Any]]:
    for name in store.topics(internal=internal):
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                yield _row(store, directory, name, utc, damages)
            except TopicNotFound:
                pass  # a broker, or another process, has deleted it since the topics were listed
            except (OffsetOutOfRange, FileNotFoundError):
                # What was looked at has been deleted meanwhile.
                if attempt < MAX_ATTEMPTS:
                    continue
                raise
            break


def _row(store: Store, directory: str, name: str, utc: bool, damages: list[CorruptionError]) -> dict[str, Any]:
    description = store.describe_topic(name)
    oldest: int | None = None
    newest: int | None = None
    try:
        oldest, newest = _times(store, name, [each.partition for each in description.partitions])
    except CorruptionError as error:
        damages.append(error)
    return {
        "topic": name,
        "partitions": len(description.partitions),
        "records": _record_count(directory, description),
        "size_bytes": description.size_bytes,
        "oldest": amounts.moment(oldest, utc=utc),
        "newest": amounts.moment(newest, utc=utc),
    }


def _record_count(directory: str, description: TopicDescription) -> int:
    """Return how many records a topic has: as many as offsets, unless compaction has dropped some."""
    offsets = description.record_count
    if not offsets or "compact" not in description.config.cleanup_policy:
        return offsets
    from seeklog.cli.targets import find_targets
    from seeklog.log.check import take_portrait

    counted = 0
    for target in find_targets([directory, description.name]):
        where = target.place
        portrait = take_portrait(where.directory, config=where.config, inherited=where.inherited, files=target.files)
        for segment in portrait.segments:
            if segment.record_count is None:
                return offsets
            counted += segment.record_count
    # Whole segments are counted, also where the log starts in the midst of one.
    return min(offsets, counted)


def _times(store: Store, topic: str, partitions: list[int]) -> tuple[int | None, int | None]:
    """Return the times of the first and the last records of the partitions."""
    firsts, lasts = [], []
    for partition in partitions:
        log = store.log(topic, partition)
        firsts += [record.timestamp_ms for record in itertools.islice(log.scan(), 1)]
        lasts += [record.timestamp_ms for record in itertools.islice(log.scan_reverse(), 1)]
    return min(firsts, default=None), max(lasts, default=None)
