"""`seeklog completion`."""

from __future__ import annotations

import os

import click

from seeklog.cli import completing
from seeklog.cli.app import app, verb
from seeklog.cli.show.terminal import Terminal
from seeklog.errors import UsageError

_WHERE = {
    "bash": "echo 'eval \"$(seeklog completion bash)\"' >> ~/.bashrc",
    "zsh": "echo 'eval \"$(seeklog completion zsh)\"' >> ~/.zshrc",
    "fish": "seeklog completion fish > ~/.config/fish/completions/seeklog.fish",
}


@verb
@click.argument("shell", metavar="[SHELL]", required=False, type=click.Choice(completing.SHELLS))
def completion(terminal: Terminal, shell: str | None) -> None:
    """Print the script that makes bash, zsh or fish complete verbs, options, directories, topics and groups with Tab.

    Without SHELL it is for the one in the variable SHELL. Bash must be 4.4 or newer.
    """
    chosen = shell or os.path.basename(os.environ.get("SHELL", ""))
    if chosen not in completing.SHELLS:
        raise UsageError(f"which shell? say {', '.join(completing.SHELLS[:-1])} or {completing.SHELLS[-1]}")
    terminal.write(completing.script(app, chosen))
    if terminal.shows_tables:
        terminal.say(f"to have it in each new shell: {_WHERE[chosen]}")
