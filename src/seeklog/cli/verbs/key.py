"""`seeklog key`."""

from __future__ import annotations

import base64
import binascii
from typing import Literal

import click

from seeklog.cli import opening
from seeklog.cli.app import verb
from seeklog.cli.exits import NothingFound
from seeklog.cli.show.neutral import neutral_bytes
from seeklog.cli.show.record_output import format_options, make_writer, write_all
from seeklog.cli.show.terminal import Terminal
from seeklog.cli.times import utc_option
from seeklog.errors import UsageError


@verb
@opening.directory
@opening.topic
@click.argument("key", metavar="KEY")
@click.option("--base64", "is_base64", is_flag=True, help="KEY is base64, for one that is no text.")
@click.option("--hex", "is_hex", is_flag=True, help="KEY is hexadecimal.")
@click.option(
    "--partition",
    "-p",
    metavar="N|all",
    help="Look there; by default where Kafka's partitioner puts the key.",
)
@format_options
@utc_option
def key(
    terminal: Terminal,
    directory: str,
    topic: str,
    key: str,
    is_base64: bool,
    is_hex: bool,
    partition: str | None,
    record_format: str | None,
    as_json: bool,
    template: str | None,
    utc: bool,
) -> None:
    """Read the newest record that has a key, through the key indexes.

    A record without a value is a tombstone: the key was deleted. It is shown, and told. With --partition all, as after
    partitions were added, the latest time wins. A key that no record has is exit code 4.
    """
    wanted = _parse_key(key, is_base64=is_base64, is_hex=is_hex)
    where = _parse_partition(partition)
    writer = make_writer(
        terminal, record_format=record_format, as_json=as_json, template=template, utc=utc, partitions=2
    )
    with opening.open_to_read(directory) as store:
        found = store.topic(topic).latest(wanted, partition=where)
        shown = neutral_bytes(wanted)
        if found is None:
            hint = "" if partition == "all" else "; --partition all looks in every partition"
            raise NothingFound(f'no record of {topic} has the key "{shown}"{hint}')
        write_all(terminal, writer, [[found]])
        if found.value is None:
            terminal.say(f'"{shown}" was deleted: its newest record is a tombstone')


def _parse_key(text: str, *, is_base64: bool, is_hex: bool) -> bytes:
    if is_base64 and is_hex:
        raise UsageError("--base64 and --hex are two ways to write a key: take one")
    try:
        if is_base64:
            return base64.b64decode(text, validate=True)
        return bytes.fromhex(text) if is_hex else text.encode("utf-8", "surrogateescape")
    except (binascii.Error, ValueError):
        raise UsageError(f"{text!r} is not {'base64' if is_base64 else 'hexadecimal'}") from None


def _parse_partition(text: str | None) -> int | Literal["all"] | None:
    if text is None or text == "all":
        return None if text is None else "all"
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UsageError(f"--partition {text!r} is neither a number nor all")
    return int(text)
