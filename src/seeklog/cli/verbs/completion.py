"""`seeklog completion`."""

from __future__ import annotations

import os

import click
from click.shell_completion import get_completion_class

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
    kind = get_completion_class(chosen)
    assert kind is not None
    made = kind(app, {}, "seeklog", completing.VARIABLE)
    # Not `source()`, which starts a bash first to ask for its version.
    terminal.write(made.source_template % made.source_vars())
    if terminal.shows_tables:
        terminal.say(f"to have it in each new shell: {_WHERE[chosen]}")
