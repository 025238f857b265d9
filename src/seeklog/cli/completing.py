"""Shell completion of commands, options, directories, and the topics and groups of a store.

A shell runs `seeklog` with a variable in its environment and reads the completions from stdout. Errors would appear in
the middle of the user's command line, so any failure yields no completions.
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


def is_requested() -> bool:
    """Return whether a shell started this process for completions."""
    return bool(os.environ.get(VARIABLE))


def complete(command: click.Command) -> int:
    """Print the completions for the shell, and return the exit code."""
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
    """Return the topics of the store on the command line."""
    return _in_store(context, incomplete, lambda store: store.topics(internal=incomplete.startswith("_")))


def groups(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return the groups of the store on the command line."""
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
