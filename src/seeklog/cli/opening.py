"""Opens the store of a command."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from seeklog import names
from seeklog.cli import storage_option
from seeklog.errors import NotALog, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from seeklog.store import Store


def open_to_read(path: str) -> Store:
    """Open a store, an archive or a broker's directory for reading; nothing on disk changes."""
    return _open(path, read_only=True, background=False, storage_options=storage_option.of(path))


def open_to_copy(path: str, *, target: str) -> Store:
    """Open a store to copy it to a target. The storage options are for each of the two that is a URL."""
    storage_option.of(path, target)  # raises if neither is a URL
    return _open(path, read_only=True, background=False, storage_options=storage_option.of_url(path))


def open_to_plan(path: str) -> Store:
    """Open a store for reading, before the user is asked whether to change it. A URL is refused."""
    check_can_be_written(path)
    return open_to_read(path)


def open_to_write(
    path: str, *, create: bool = False, background: bool = False, config: Mapping[str, str] | None = None
) -> Store:
    """Open a store for writing; `create` it if missing, and sync it in the `background` while it is open.

    `config` has defaults for topics that do not set them.
    """
    check_can_be_written(path)
    if not create and not os.path.isdir(path):
        raise _no_store(path)
    return _open(path, background=background, config=config)


def check_can_be_written(path: str) -> None:
    """Refuse a URL, because archives are read-only."""
    names.check_location(path)
    if names.is_url(path):
        raise UsageError(f"{path} is a URL, and URLs are read-only; name a directory")


def _open(path: str, **options: Any) -> Store:
    from seeklog.store import open_store

    try:
        return open_store(path, **options)
    except NotALog:
        # Say what the path is instead, if that is known.
        if names.is_url(path):
            raise
        if not os.path.exists(path):
            raise _no_store(path) from None
        parent, name = os.path.split(os.path.abspath(path))
        found = names.parse_partition_name(name)
        if os.path.isdir(path) and found is not None and any(name.endswith(names.LOG) for name in os.listdir(path)):
            raise NotALog(f"{path} is partition {found.partition} of {found.topic}; name its store: {parent}") from None
        raise


def _no_store(path: str) -> NotALog:
    return NotALog(f"there is no store at {path}; create one with: seeklog create {path} TOPIC")
