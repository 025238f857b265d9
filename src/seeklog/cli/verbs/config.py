"""`seeklog config`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from seeklog import names
from seeklog.cli import opening
from seeklog.cli.app import verb
from seeklog.cli.option_types import parse_config
from seeklog.cli.show.rows import Column, formats, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.config import TOPIC_WORDS, canonical_word
from seeklog.errors import UsageError

if TYPE_CHECKING:
    from seeklog.topics.description import TopicDescription

COLUMNS = (Column("word"), Column("value"), Column("from"))


@verb
@opening.directory
@opening.topic
@click.option("--set", "words", multiple=True, metavar="WORD=VALUE", help="Set a word for this topic.")
@click.option("--unset", "unset", multiple=True, metavar="WORD", help="Take a word back to the default.")
@click.option("--partitions", type=click.IntRange(1), help="Give the topic more partitions, so many in all.")
@formats
def config(
    terminal: Terminal,
    directory: str,
    topic: str,
    words: tuple[str, ...],
    unset: tuple[str, ...],
    partitions: int | None,
    row_format: str | None,
    as_json: bool,
) -> None:
    """Show the configuration of a topic, or change it.

    The words are Kafka's. Whoever writes the topic in another process learns of a change within a second or two. With
    more partitions a key may be written to another one than before; records that are there stay where they are.
    """
    changes = _changes(words, unset)
    if changes or partitions is not None:
        _change(terminal, directory, topic, changes, partitions)
        return
    with opening.open_to_read(directory) as store:
        write_rows(terminal, COLUMNS, _rows(store.describe_topic(topic)), row_format=row_format, as_json=as_json)


def _changes(words: tuple[str, ...], unset: tuple[str, ...]) -> dict[str, str | None]:
    """Return what is to change, in Kafka's spelling; None takes a word back."""
    changes: dict[str, str | None] = {canonical_word(word): value for word, value in parse_config(words).items()}
    if len(changes) < len(words):
        raise UsageError("a word is set twice, with dots and with underscores")
    for word in unset:
        if canonical_word(word) in changes:
            raise UsageError(f"--unset {word}: it is given twice")
        changes[canonical_word(word)] = None
    return changes


def _change(
    terminal: Terminal, directory: str, topic: str, changes: dict[str, str | None], partitions: int | None
) -> None:
    names.check_not_internal(topic)
    opening.check_can_be_written(directory)
    with opening.open_to_write(directory) as store:
        before = {row["word"]: row for row in _rows(store.describe_topic(topic))}
        count = len(store.describe_topic(topic).partitions)
        if partitions is not None and partitions <= count:
            raise UsageError(f"{topic} has {count} partitions; it can get more, never fewer, so {partitions} cannot be")
        if changes:
            after = {row["word"]: row for row in _rows(store.alter_topic(topic, changes))}
            for word in changes:
                terminal.say(
                    f"{topic}: {word} is {after[word]['value']} ({after[word]['from']}), "
                    f"was {before[word]['value']} ({before[word]['from']})"
                )
        if partitions is not None:
            store.add_partitions(topic, partitions=partitions)
            terminal.say(f"{topic}: {partitions} partitions, were {count}; keys may go to others from here on")


def _rows(described: TopicDescription) -> Iterator[dict[str, Any]]:
    own = {canonical_word(word) for word in described.configured}
    for name in TOPIC_WORDS:
        word = canonical_word(name)
        yield {"word": word, "value": getattr(described.config, name), "from": "topic" if word in own else "default"}
