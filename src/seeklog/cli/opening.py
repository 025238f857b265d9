"""Opening what a verb works on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from seeklog import names
from seeklog.cli import completing
from seeklog.errors import NotALog, SeeklogError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from seeklog.store import Store


def directory(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the argument DIR."""
    return click.argument("directory", metavar="DIR", shell_complete=completing.directories)(function)


def topic(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the argument TOPIC."""
    return click.argument("topic", metavar="TOPIC", shell_complete=completing.topics)(function)


def optional_topic(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the argument TOPIC, which may be left out."""
    return click.argument("topic", metavar="[TOPIC]", required=False, shell_complete=completing.topics)(function)


def group(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the argument GROUP."""
    return click.argument("group", metavar="GROUP", shell_complete=completing.groups)(function)


def optional_group(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the argument GROUP, which may be left out."""
    return click.argument("group", metavar="[GROUP]", required=False, shell_complete=completing.groups)(function)


def open_to_read(path: str) -> Store:
    """Open a store, an archive or a broker's directory to read; nothing on disk changes."""
    from seeklog.store import open_store

    try:
        return open_store(path, read_only=True, background=False)
    except SeeklogError as error:
        _explain(path, error)
        raise


def check_can_be_written(path: str) -> None:
    """Refuse an archive before anybody is asked anything."""
    if names.is_url(path):
        raise UsageError(f"{path} is a URL, which is only read; name a directory")


def open_to_write(
    path: str, *, create: bool = False, background: bool = False, config: Mapping[str, str] | None = None
) -> Store:
    """Open a store to write; with `create` it may be made, with `background` it is synced while it is open.

    `config` holds for topics that say nothing else.
    """
    from seeklog.store import open_store

    check_can_be_written(path)
    if not create and not os.path.isdir(path):
        raise NotALog(f"there is no store at {path}; make one with: seeklog create {path} TOPIC")
    try:
        return open_store(path, background=background, config=config)
    except SeeklogError as error:
        _explain(path, error)
        raise


def _explain(path: str, error: SeeklogError) -> None:
    """Say what the path is instead, where that can be told."""
    if not isinstance(error, NotALog) or names.is_url(path):
        return
    if not os.path.exists(path):
        raise NotALog(f"there is no store at {path}; make one with: seeklog create {path} TOPIC") from None
    found = names.parse_partition_name(os.path.basename(os.path.abspath(path)))
    if os.path.isdir(path) and found is not None and any(name.endswith(names.LOG) for name in os.listdir(path)):
        parent = os.path.dirname(os.path.abspath(path))
        raise NotALog(f"{path} is partition {found.partition} of {found.topic}; name its store: {parent}") from None
