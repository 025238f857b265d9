"""Arguments and options that several commands share. A group of options is passed as one value."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import click

from seeklog.cli import completing, settings, storage_option
from seeklog.cli.show.rows import FORMATS
from seeklog.cli.show.terminal import Terminal, set_option
from seeklog.errors import UsageError

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

directory = click.argument("directory", metavar="DIR", shell_complete=completing.directories)
storage = click.option(
    "--storage-option",
    multiple=True,
    metavar="NAME=VALUE",
    expose_value=False,
    callback=storage_option.keep,
    help="An fsspec option for the URL, such as a credential or an endpoint. Repeatable.",
)


def location(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument DIR, which may be a URL, and the options for it."""
    decorated: Callable[..., Any] = directory(storage(function))
    return decorated


topic = click.argument("topic", metavar="TOPIC", shell_complete=completing.topics)
optional_topic = click.argument("topic", metavar="[TOPIC]", required=False, shell_complete=completing.topics)
group = click.argument("group", metavar="GROUP", shell_complete=completing.groups)
optional_group = click.argument("group", metavar="[GROUP]", required=False, shell_complete=completing.groups)
partitions = click.option(
    "--partition",
    "-p",
    "partitions",
    type=click.IntRange(0),
    metavar="N",
    multiple=True,
    help="Only this partition. Repeatable. Default: all partitions.",
)


terminal_option = functools.partial(click.option, expose_value=False, callback=set_option)
utc = terminal_option("--utc", is_flag=True, default=settings.utc, help="Use UTC instead of local time.")
dry_run = click.option("--dry-run", "is_dry", is_flag=True, help="Show what would be done, and change nothing.")


def together(argument: str, make: Callable[..., Any], *options: Decorator) -> Decorator:
    """Return a decorator that adds options to a command and passes `make(**options)` as one argument."""
    taken = tuple(inspect.signature(make).parameters)

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*arguments: Any, **values: Any) -> Any:
            value = make(**{name: values.pop(name) for name in taken})
            return function(*arguments, **{argument: value}, **values)

        command: Callable[..., Any] = call
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@dataclass(frozen=True, slots=True)
class Consent:
    """The options --dry-run and --yes of a command that changes something."""

    is_dry: bool
    is_agreed: bool

    def to(self, terminal: Terminal, change: str, *, is_answer: bool = False) -> bool:
        """Return whether to make a change, such as `delete topic orders`. A dry run only reports it.

        `is_answer`: the report is the only output of the dry run, so --quiet does not suppress it.
        """
        if self.is_dry:
            (terminal.report if is_answer else terminal.say)(f"would {change}")
            return False
        terminal.confirm(f"{change[0].upper()}{change[1:]}?", is_agreed=self.is_agreed)
        return True

    def to_plan(self, terminal: Terminal, change: str) -> bool:
        """Return the same for a change whose plan was printed. Without a terminal to ask on, only report it."""
        if self.is_dry or not (self.is_agreed or sys.stdin.isatty()):
            terminal.say(f"would {change}; nothing was changed. Pass --yes to do it")
            return False
        terminal.confirm(f"{change[0].upper()}{change[1:]}?", is_agreed=self.is_agreed)
        return True


consent = together(
    "consent",
    Consent,
    dry_run,
    click.option("--yes", "-y", "is_agreed", is_flag=True, help="Do not ask for confirmation."),
)


def formats(*choices: str, default: str = "table") -> Decorator:
    """Return a decorator that adds `--format` and `--json`."""
    help_line = f"Default: {default} on a terminal, jsonl in a pipe."
    format_option = terminal_option("--format", "format_option", type=click.Choice(choices), help=help_line)
    json_option = terminal_option("--json", "as_json", is_flag=True, help="Short for --format jsonl.")
    return lambda function: format_option(json_option(function))


rows = formats(*FORMATS)


def parse_pair(text: str, *, option: str) -> tuple[str, str]:
    """Return the name and the value of `name=value`."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise UsageError(f"{option} {text!r} is not NAME=VALUE")
    return name.strip(), value


def parse_config(pairs: Iterable[str]) -> dict[str, str]:
    """Parse settings such as `retention.ms=1000`; a setting that is given twice is refused."""
    config: dict[str, str] = {}
    for text in pairs:
        name, value = parse_pair(text, option="--set")
        if name in config:
            raise UsageError(f"--set {name} is given twice")
        config[name] = value.strip()
    return config
