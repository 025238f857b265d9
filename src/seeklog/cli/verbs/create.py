"""`seeklog create`."""

from __future__ import annotations

import click

from seeklog import names
from seeklog.cli import opening
from seeklog.cli.app import verb
from seeklog.cli.option_types import parse_config
from seeklog.cli.show.terminal import Terminal
from seeklog.config import LogConfig


@verb
@opening.directory
@opening.topic
@click.option("--partitions", "-p", type=click.IntRange(1), default=1, show_default=True, help="How many.")
@click.option("--set", "words", multiple=True, metavar="WORD=VALUE", help="A word of its configuration, Kafka's.")
@click.option("--if-not-exists", "is_lenient", is_flag=True, help="Do nothing if the topic is there.")
def create(
    terminal: Terminal, directory: str, topic: str, partitions: int, words: tuple[str, ...], is_lenient: bool
) -> None:
    """Make a topic, and the store if DIR is not there. The topic is there whole and durable, or not at all."""
    config = parse_config(words)
    # Before the store is made: a refusal leaves nothing behind.
    names.check_topic_name(topic)
    names.check_not_internal(topic)
    LogConfig.from_mapping(config)
    with opening.open_to_write(directory, create=True) as store:
        if is_lenient and topic in store.topics():
            terminal.say(f"{topic} is there already")
            return
        made = store.create_topic(topic, partitions=partitions, config=config)
    count = len(made.partitions)
    terminal.say(f"made {topic} with {count} partition{'s' if count > 1 else ''} in {directory}")
