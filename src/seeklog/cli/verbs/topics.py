"""The topic commands: `seeklog ls`, `create`, `config` and `delete`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from seeklog import names
from seeklog.cli import options
from seeklog.cli.app import verb
from seeklog.cli.exits import Exit, line
from seeklog.cli.opening import open_to_plan, open_to_read, open_to_write
from seeklog.cli.options import Consent
from seeklog.cli.show import amounts
from seeklog.cli.show.neutral import neutral
from seeklog.cli.show.rows import Column, count_column, size_column, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.config import DEFAULT_PARTITIONS, TOPIC_SETTINGS, LogConfig, canonical_setting
from seeklog.errors import CorruptionError, OffsetOutOfRange, TopicNotFound, UsageError
from seeklog.files import OsFiles

if TYPE_CHECKING:
    from seeklog.store import Store
    from seeklog.topics.description import TopicDescription

LISTED = (
    Column("topic"),
    Column("partitions", is_right=True),
    count_column("records"),
    size_column("size_bytes", "size"),
    Column("first"),
    Column("newest"),
)


@verb
@options.location
@click.option(
    "--all", "-a", "internal", is_flag=True, help="Include Kafka's internal topics, such as __consumer_offsets."
)
@options.utc
@options.rows
def ls(terminal: Terminal, directory: str, internal: bool) -> int | None:
    """List the topics of a store: partitions, records, size, first record and newest timestamp.

    FIRST is the time of the record with the lowest offset; later records may have earlier times. NEWEST is the largest
    timestamp. A time that cannot be read because of damage is left empty; the damage is then reported at the end, and
    the exit code is 3.
    """
    damages: list[CorruptionError] = []
    with open_to_read(directory) as store:
        rows = _listed(store, directory, internal, terminal.utc, damages)
        write_rows(terminal, LISTED, rows)
    for name in [] if names.is_url(directory) else sorted(OsFiles().list(directory)):
        kind = names.parse_leftover_directory(name)
        if kind is not None:
            terminal.say(f"{neutral(name)} is not listed: {_REASONS[kind]}")
    for damage in damages:
        terminal.report(f"seeklog: {neutral(line(damage))}")
    return Exit.DAMAGE if damages else None


# Attempts to read a topic that a broker keeps changing.
MAX_ATTEMPTS = 5
# Why a broker renamed a partition.
_REASONS = {
    "stray": "a broker moved it aside, because its cluster does not know the topic",
    "future": "a broker's unfinished copy of a partition that moves to another disk",
}


def _listed(
    store: Store, directory: str, internal: bool, utc: bool, damages: list[CorruptionError]
) -> Iterator[dict[str, Any]]:
    for name in store.topics(internal=internal):
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                yield _listed_row(store, directory, name, utc, damages)
            except TopicNotFound:
                pass  # deleted since the topics were listed
            except (OffsetOutOfRange, FileNotFoundError):
                # Records or files were deleted during the read.
                if attempt < MAX_ATTEMPTS:
                    continue
                raise
            break


def _listed_row(store: Store, directory: str, name: str, utc: bool, damages: list[CorruptionError]) -> dict[str, Any]:
    description = store.describe_topic(name)
    firsts: list[int] = []
    newest: list[int] = []
    try:
        for partition in description.partitions:
            log = store.log(name, partition.partition)
            firsts += [record.timestamp_ms for record in itertools.islice(log.scan(), 1)]
            if (largest := log.max_timestamp_ms()) is not None:
                newest.append(largest)
    except CorruptionError as error:
        damages.append(error)
        firsts, newest = [], []
    return {
        "topic": name,
        "partitions": len(description.partitions),
        "records": _record_count(directory, description),
        "size_bytes": description.size_bytes,
        "first": amounts.moment(min(firsts, default=None), utc=utc),
        "newest": amounts.moment(max(newest, default=None), utc=utc),
    }


def _record_count(directory: str, description: TopicDescription) -> int:
    """Return the number of records in a topic: its offsets, less those that compaction removed."""
    offsets = description.record_count
    if not offsets or not description.config.compacts:
        return offsets
    from seeklog.cli.targets import find_targets
    from seeklog.log.check import take_portrait

    counted = 0
    for target in find_targets([directory, description.name]):
        where = target.location
        portrait = take_portrait(where.directory, config=where.config, inherited=where.inherited, files=target.files)
        for segment in portrait.segments:
            if segment.record_count is None:
                return offsets
            counted += segment.record_count
    # Segments are counted whole, even if the log starts inside one.
    return min(offsets, counted)


@verb
@options.directory
@options.topic
@click.option(
    "--partitions",
    "-p",
    type=click.IntRange(1),
    metavar="N",
    default=DEFAULT_PARTITIONS,
    show_default=True,
    help="Number of partitions.",
)
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A Kafka topic setting. Repeatable.")
@click.option("--if-not-exists", "is_lenient", is_flag=True, help="Do nothing if the topic exists.")
def create(
    terminal: Terminal, directory: str, topic: str, partitions: int, settings: tuple[str, ...], is_lenient: bool
) -> None:
    """Create a topic, and the store if DIR does not exist. Creation is atomic and durable."""
    config = options.parse_config(settings)
    # Check before creating the store, so that an error leaves nothing on disk.
    names.check_topic_name(topic)
    names.check_not_internal(topic)
    LogConfig.from_mapping(config)
    with open_to_write(directory, create=True) as store:
        if is_lenient and topic in store.topics():
            terminal.say(f"topic {topic} already exists")
            return
        created = store.create_topic(topic, partitions=partitions, config=config)
    terminal.say(f"created topic {topic} with {amounts.counted(len(created.partitions), 'partition')} in {directory}")


SETTINGS = (Column("name", "setting"), Column("value"), Column("source"))


@verb
@options.location
@options.topic
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Change a setting of this topic.")
@click.option("--unset", "unset", multiple=True, metavar="NAME", help="Reset a setting to its default.")
@click.option("--partitions", type=click.IntRange(1), metavar="N", help="Grow the topic to this number of partitions.")
@options.rows
def config(
    terminal: Terminal,
    directory: str,
    topic: str,
    settings: tuple[str, ...],
    unset: tuple[str, ...],
    partitions: int | None,
) -> None:
    """Show or change the configuration of a topic.

    Settings have Kafka's names. Other processes that write to the topic apply a change within two seconds. If you add
    partitions, some keys move: their new records go to a different partition from their old ones.
    """
    changes = _changes(settings, unset)
    if changes or partitions is not None:
        _change(terminal, directory, topic, changes, partitions)
        return
    with open_to_read(directory) as store:
        write_rows(terminal, SETTINGS, _settings(store.describe_topic(topic)))


def _changes(settings: tuple[str, ...], unset: tuple[str, ...]) -> dict[str, str | None]:
    """Return the changed settings in Kafka's spelling; None resets a setting."""
    changes: dict[str, str | None] = {
        canonical_setting(name): value for name, value in options.parse_config(settings).items()
    }
    if len(changes) < len(settings):
        raise UsageError("a setting is given twice, with dots and with underscores")
    for name in unset:
        if canonical_setting(name) in changes:
            raise UsageError(f"--unset {name}: the setting is given twice")
        changes[canonical_setting(name)] = None
    return changes


def _change(
    terminal: Terminal, directory: str, topic: str, changes: dict[str, str | None], partitions: int | None
) -> None:
    names.check_not_internal(topic)
    with open_to_write(directory) as store:
        described = store.describe_topic(topic)
        count = len(described.partitions)
        if partitions is not None and partitions <= count:
            raise UsageError(
                f"{topic} already has {amounts.counted(count, 'partition')}; --partitions {partitions} must be larger"
            )
        if changes:
            before, after = _by_name(described), _by_name(store.alter_topic(topic, changes))
            for name in changes:
                terminal.say(f"{topic}: {name} is {after[name]}, was {before[name]}")
        if partitions is not None:
            store.add_partitions(topic, partitions=partitions)
            terminal.say(
                f"{topic}: {partitions} partitions, was {count}; new records of a key may go to another partition"
            )


def _by_name(described: TopicDescription) -> dict[str, str]:
    return {row["name"]: f"{row['value']} ({row['source']})" for row in _settings(described)}


def _settings(described: TopicDescription) -> Iterator[dict[str, Any]]:
    own = {canonical_setting(name) for name in described.configured}
    for field in TOPIC_SETTINGS:
        name = canonical_setting(field)
        source = "topic" if name in own else "default"
        yield {"name": name, "value": getattr(described.config, field), "source": source}


@verb
@options.directory
@options.topic
@options.consent
def delete(terminal: Terminal, directory: str, topic: str, consent: Consent) -> None:
    """Delete a topic, all its records, and the offsets that groups have committed for it.

    Asks first. The deletion is atomic. It is refused while another process writes to the topic.
    """
    names.check_not_internal(topic)
    with open_to_plan(directory) as store:
        described = store.describe_topic(topic)
        groups = [
            group
            for group in store.groups()
            if any(partition.topic == topic for partition in store.describe_group(group).committed)
        ]
    summary = (
        f"topic {topic}: {amounts.counted(len(described.partitions), 'partition')}, "
        f"{amounts.counted(described.record_count, 'record')}, {amounts.size(described.size_bytes)}"
    )
    if groups:
        summary += f", and the committed offsets of {', '.join(groups)}"
    if consent.to(terminal, f"delete {summary}", is_answer=True):
        with open_to_write(directory) as store:
            store.delete_topic(topic)
        terminal.say(f"deleted {summary}")
