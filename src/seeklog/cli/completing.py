"""What the Tab key completes: verbs, options, directories, and the topics and groups of the store that is named.

A shell runs `seeklog` with a variable in its environment and reads the words that may follow. Nobody looks at errors
then, so whatever goes wrong completes nothing.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from seeklog.store import Store

VARIABLE: Final = "_SEEKLOG_COMPLETE"
SHELLS: Final = ("bash", "zsh", "fish")


def is_asked() -> bool:
    """Tell whether a shell has started this process, to learn which words may follow."""
    return bool(os.environ.get(VARIABLE))


def complete(command: click.Command) -> int:
    """Write the words that may follow, as the shell has asked for them."""
    from click.shell_completion import shell_complete

    logging.getLogger("seeklog").disabled = True
    try:
        return shell_complete(command, {}, "seeklog", VARIABLE, os.environ[VARIABLE])
    except Exception:
        return 1


def directories(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Let the shell complete a directory."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]


def topics(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the topics of the store that stands before."""
    return _in_store(context, incomplete, lambda store: store.topics(internal=incomplete.startswith("_")))


def groups(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the groups of the store that stands before."""
    return _in_store(context, incomplete, lambda store: store.groups())


def _in_store(context: click.Context, incomplete: str, find: Callable[[Store], list[str]]) -> list[str]:
    from seeklog.cli import opening

    path: Any = context.params.get("directory")
    if not isinstance(path, str):
        return []
    try:
        with opening.open_to_read(os.path.expanduser(path)) as store:
            return [name for name in find(store) if name.startswith(incomplete)]
    except Exception:
        return []
