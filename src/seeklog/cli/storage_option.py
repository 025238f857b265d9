"""The option --storage-option: credentials, an endpoint and more for a URL. Its values may be secrets.

It is shared by all commands that take a URL. Its values stay with the running command, and `of` returns them where a
location is opened, so they are in no argument that an error or a log might show.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

import click

from seeklog import names
from seeklog.errors import UsageError

_KEY: Final = "seeklog.storage_options"


def keep(context: click.Context, parameter: click.Parameter, pairs: tuple[str, ...]) -> None:
    """Parse the values, and keep them for the running command."""
    context.meta[_KEY] = parse(pairs)


def parse(pairs: Iterable[str]) -> dict[str, Any]:
    """Return the options for fsspec: text, except for true, false, and JSON in braces or brackets."""
    found: dict[str, Any] = {}
    for text in pairs:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            # Not even the text is shown: it may be a secret without its name.
            raise UsageError("--storage-option takes NAME=VALUE, such as endpoint_url=http://127.0.0.1:9000")
        if name in found:
            raise UsageError(f"--storage-option {name} is given twice")
        is_json = value in ("true", "false") or value[:1] in ("{", "[")
        try:
            found[name] = json.loads(value) if is_json else value
        except ValueError:
            raise UsageError(f"--storage-option {name}: a value in braces or brackets must be JSON") from None
    return found


def of(*locations: str) -> dict[str, Any] | None:
    """Return the options of the running command for these locations, or None. One of them must be a URL."""
    context = click.get_current_context(silent=True)
    found: dict[str, Any] = context.meta.get(_KEY, {}) if context is not None else {}
    if found and not any(map(names.is_url, locations)):
        raise UsageError(f"--storage-option is for a URL, and {locations[0]} is a directory; leave it out")
    return found or None


def of_url(location: str) -> dict[str, Any] | None:
    """Return the options of the running command if this location is a URL."""
    return of(location) if names.is_url(location) else None
