"""`seeklog completion`."""

from __future__ import annotations

import os

import click
from click.shell_completion import get_completion_class

from seeklog.cli import completing
from seeklog.cli.app import app, verb
from seeklog.cli.show.terminal import Terminal
from seeklog.errors import UsageError

_INSTALL = {
    "bash": "echo 'eval \"$(seeklog completion bash)\"' >> ~/.bashrc",
    "zsh": "echo 'eval \"$(seeklog completion zsh)\"' >> ~/.zshrc",
    "fish": "seeklog completion fish > ~/.config/fish/completions/seeklog.fish",
}


@verb
@click.argument("shell", metavar="[SHELL]", required=False, type=click.Choice(completing.SHELLS))
def completion(terminal: Terminal, shell: str | None) -> None:
    """Print the completion script for bash, zsh or fish.

    It completes commands, options, directories, topics and groups. Without the argument SHELL, the environment variable
    SHELL is used. Requires bash 4.4 or newer.
    """
    chosen = shell or os.path.basename(os.environ.get("SHELL", ""))
    if chosen not in completing.SHELLS:
        raise UsageError(f"unknown shell; pass {', '.join(completing.SHELLS[:-1])} or {completing.SHELLS[-1]}")
    kind = get_completion_class(chosen)
    assert kind is not None
    complete = kind(app, {}, "seeklog", completing.VARIABLE)
    # Not `source()`, which starts bash to check its version.
    terminal.write(complete.source_template % complete.source_vars())
    if terminal.shows_tables:
        terminal.say(f"to load it in every new shell, run: {_INSTALL[chosen]}")
