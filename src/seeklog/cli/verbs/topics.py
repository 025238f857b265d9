"""Verbs about topics: `seeklog ls`, `create`, `config` and `delete`."""

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
from seeklog.config import TOPIC_SETTINGS, LogConfig, canonical_setting
from seeklog.errors import CorruptionError, OffsetOutOfRange, TopicNotFound, UsageError
from seeklog.files import OsFiles

if TYPE_CHECKING:
    from seeklog.store import Store
    from seeklog.topics.description import TopicDescription

SUMMARY = (count_column("records"), size_column("size_bytes", "size"), Column("oldest"), Column("newest"))
LISTED = (Column("topic"), Column("partitions", is_right=True), *SUMMARY)


@verb
@options.directory
@click.option("--all", "-a", "internal", is_flag=True, help="Also Kafka's own topics, such as __consumer_offsets.")
@options.utc
@options.rows
def ls(terminal: Terminal, directory: str, internal: bool, utc: bool, row_format: str | None) -> int | None:
    """List the topics of a store: partitions, records, size, and the times of the oldest and the newest record.

    Where damage hides a time, that is left out and told at the end, and it exits with 3.
    """
    damages: list[CorruptionError] = []
    with open_to_read(directory) as store:
        rows = _listed(store, directory, internal, utc, damages)
        write_rows(terminal, LISTED, rows, row_format=row_format)
    for name in [] if names.is_url(directory) else sorted(OsFiles().list(directory)):
        kind = names.parse_leftover_directory(name)
        if kind is not None:
            terminal.say(f"{neutral(name)} is not listed: {_REASONS[kind]}")
    for damage in damages:
        terminal.tell(f"seeklog: {neutral(line(damage))}")
    return Exit.DAMAGE if damages else None


# How often a topic is looked at that a broker changes meanwhile.
MAX_ATTEMPTS = 5
# Why a broker keeps a partition under another name.
_REASONS = {
    "stray": "a broker set it aside, because its cluster does not know the topic",
    "future": "it is a broker's unfinished copy of a partition that moves to another disk",
}


def _listed(
    store: Store, directory: str, internal: bool, utc: bool, damages: list[CorruptionError]
) -> Iterator[dict[str, Any]]:
    for name in store.topics(internal=internal):
        for attempt in range(1, MAX_ATTEMPTS + 1):
            try:
                yield _listed_row(store, directory, name, utc, damages)
            except TopicNotFound:
                pass  # a broker, or another process, has deleted it since the topics were listed
            except (OffsetOutOfRange, FileNotFoundError):
                # What was looked at has been deleted meanwhile.
                if attempt < MAX_ATTEMPTS:
                    continue
                raise
            break


def _listed_row(store: Store, directory: str, name: str, utc: bool, damages: list[CorruptionError]) -> dict[str, Any]:
    description = store.describe_topic(name)
    firsts: list[Any] = []
    lasts: list[Any] = []
    try:
        for each in description.partitions:
            log = store.log(name, each.partition)
            firsts += [record.timestamp_ms for record in itertools.islice(log.scan(), 1)]
            lasts += [record.timestamp_ms for record in itertools.islice(log.scan_reverse(), 1)]
    except CorruptionError as error:
        damages.append(error)
        firsts, lasts = [], []
    return {
        "topic": name,
        "partitions": len(description.partitions),
        "records": _record_count(directory, description),
        "size_bytes": description.size_bytes,
        "oldest": amounts.moment(min(firsts, default=None), utc=utc),
        "newest": amounts.moment(max(lasts, default=None), utc=utc),
    }


def _record_count(directory: str, description: TopicDescription) -> int:
    """Return how many records a topic has: as many as offsets, unless compaction has dropped some."""
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
    # Whole segments are counted, also where the log starts in the midst of one.
    return min(offsets, counted)


# ---------------------------------------------------------------- create


@verb
@options.directory
@options.topic
@click.option("--partitions", "-p", type=click.IntRange(1), default=1, show_default=True, help="How many.")
@click.option("--set", "words", multiple=True, metavar="WORD=VALUE", help="A word of its configuration, Kafka's.")
@click.option("--if-not-exists", "is_lenient", is_flag=True, help="Do nothing if the topic is there.")
def create(
    terminal: Terminal, directory: str, topic: str, partitions: int, words: tuple[str, ...], is_lenient: bool
) -> None:
    """Make a topic, and the store if DIR is not there. The topic is there whole and durable, or not at all."""
    config = options.parse_config(words)
    # Before the store is made: a refusal leaves nothing behind.
    names.check_topic_name(topic)
    names.check_not_internal(topic)
    LogConfig.from_mapping(config)
    with open_to_write(directory, create=True) as store:
        if is_lenient and topic in store.topics():
            terminal.say(f"{topic} is there already")
            return
        made = store.create_topic(topic, partitions=partitions, config=config)
    terminal.say(f"made {topic} with {amounts.counted(len(made.partitions), 'partition')} in {directory}")


# ---------------------------------------------------------------- config


SETTINGS = (Column("word"), Column("value"), Column("from"))


@verb
@options.directory
@options.topic
@click.option("--set", "words", multiple=True, metavar="WORD=VALUE", help="Set a word for this topic.")
@click.option("--unset", "unset", multiple=True, metavar="WORD", help="Take a word back to the default.")
@click.option("--partitions", type=click.IntRange(1), help="Give the topic more partitions, so many in all.")
@options.rows
def config(
    terminal: Terminal,
    directory: str,
    topic: str,
    words: tuple[str, ...],
    unset: tuple[str, ...],
    partitions: int | None,
    row_format: str | None,
) -> None:
    """Show the configuration of a topic, or change it.

    The words are Kafka's. Whoever writes the topic in another process learns of a change within a second or two. With
    more partitions a key may be written to another one than before; records that are there stay where they are.
    """
    changes = _changes(words, unset)
    if changes or partitions is not None:
        _change(terminal, directory, topic, changes, partitions)
        return
    with open_to_read(directory) as store:
        write_rows(terminal, SETTINGS, _settings(store.describe_topic(topic)), row_format=row_format)


def _changes(words: tuple[str, ...], unset: tuple[str, ...]) -> dict[str, str | None]:
    """Return what is to change, in Kafka's spelling; None takes a word back."""
    changes: dict[str, str | None] = {
        canonical_setting(word): value for word, value in options.parse_config(words).items()
    }
    if len(changes) < len(words):
        raise UsageError("a word is set twice, with dots and with underscores")
    for word in unset:
        if canonical_setting(word) in changes:
            raise UsageError(f"--unset {word}: it is given twice")
        changes[canonical_setting(word)] = None
    return changes


def _change(
    terminal: Terminal, directory: str, topic: str, changes: dict[str, str | None], partitions: int | None
) -> None:
    names.check_not_internal(topic)
    with open_to_write(directory) as store:
        described = store.describe_topic(topic)
        count = len(described.partitions)
        if partitions is not None and partitions <= count:
            raise UsageError(f"{topic} has {count} partitions; it can get more, never fewer, so {partitions} cannot be")
        if changes:
            before, after = _told(described), _told(store.alter_topic(topic, changes))
            for word in changes:
                terminal.say(f"{topic}: {word} is {after[word]}, was {before[word]}")
        if partitions is not None:
            store.add_partitions(topic, partitions=partitions)
            terminal.say(f"{topic}: {partitions} partitions, were {count}; keys may go to others from here on")


def _told(described: TopicDescription) -> dict[str, str]:
    return {row["word"]: f"{row['value']} ({row['from']})" for row in _settings(described)}


def _settings(described: TopicDescription) -> Iterator[dict[str, Any]]:
    own = {canonical_setting(word) for word in described.configured}
    for name in TOPIC_SETTINGS:
        word = canonical_setting(name)
        yield {"word": word, "value": getattr(described.config, name), "from": "topic" if word in own else "default"}


# ---------------------------------------------------------------- delete


@verb
@options.directory
@options.topic
@options.consent
def delete(terminal: Terminal, directory: str, topic: str, consent: Consent) -> None:
    """Delete a topic with all of its records, and with what groups have committed for it.

    Asks first. The topic is gone for everybody at once, or it stays whole: so if another process writes to it.
    """
    names.check_not_internal(topic)
    with open_to_plan(directory) as store:
        described = store.describe_topic(topic)
        groups = [
            group
            for group in store.groups()
            if any(partition.topic == topic for partition in store.describe_group(group).committed)
        ]
    what = (
        f"{topic}: {amounts.counted(len(described.partitions), 'partition')}, "
        f"{amounts.count(described.record_count)} records, {amounts.size(described.size_bytes)}"
    )
    if groups:
        what += f", and the offsets of {', '.join(groups)}"
    if consent.to(terminal, f"delete {what}", is_answer=True):
        with open_to_write(directory) as store:
            store.delete_topic(topic)
        terminal.say(f"deleted {what}")
