"""The command `seeklog`: its subcommands, the options they share, help, and error handling."""

from __future__ import annotations

import difflib
import logging
import os
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import click

import seeklog
from seeklog.cli import completing, settings
from seeklog.cli.catalogue import GROUPS, VERBS
from seeklog.cli.exits import Exit, Interrupted, exit_code, line
from seeklog.cli.show.neutral import neutral
from seeklog.cli.show.terminal import Terminal, set_option
from seeklog.errors import SeeklogError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_CONTEXT = {"help_option_names": ["-h", "--help"]}


class Verb(click.Command):
    """A subcommand. Its help begins with an example, it has the shared options, and a default for DIR."""

    def __init__(self, name: str | None, **settings: Any) -> None:
        super().__init__(name, **{"context_settings": _CONTEXT, **settings})
        self.params += _shared_options()

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"Example: {VERBS[self.name or ''].example}\n\n")
        super().format_help(ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, self._with_directory(ctx, args))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Interrupted from None

    def positionals(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Return the arguments that are not options; none if an option is invalid."""
        options = click.Command(None, params=[param for param in self.params if isinstance(param, click.Option)])
        try:
            return options.make_parser(ctx).parse_args(args=list(args))[1]
        except click.UsageError:
            return []  # reported when the whole command line is parsed

    def _with_directory(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default directory before the other arguments, if DIR is omitted."""
        expected = [param for param in self.params if isinstance(param, click.Argument)]
        preset = settings.directory()
        if preset is None or not expected or expected[0].name != "directory" or "-h" in args or "--help" in args:
            return args
        given = self.positionals(ctx, args)
        is_full = not any(argument.nargs == -1 for argument in expected) and len(given) >= len(expected)
        if is_full or (given and _is_directory(given[0])):
            return args
        return [preset, *args]


def _is_directory(argument: str) -> bool:
    """Return whether an argument is meant as DIR: it contains a slash, unless it is a text of several words."""
    if "/" not in argument:
        return argument in (".", "..")
    return argument.split() == [argument] or os.path.exists(argument)


def _shared_options() -> list[click.Parameter]:
    return [
        click.Option(
            [*spelt, name], is_flag=True, expose_value=False, is_eager=True, callback=set_option, help=help_line
        )
        for spelt, name, help_line in (
            (("-q", "--quiet"), "is_quiet", "Print errors only."),
            (("-v", "--verbose"), "is_verbose", "Print details and tracebacks."),
            (("--no-color",), "is_plain", "Do not use colours."),
        )
    ]


class Verbs(click.Group):
    """The command `seeklog`. A subcommand's module is imported when the subcommand is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = VERBS.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = getattr(import_module(entry.module), entry.name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        # Click would import every subcommand for its help line.
        commands = [
            CompletionItem(entry.name, help=entry.line) for entry in VERBS.values() if entry.name.startswith(incomplete)
        ]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS and not args[0].startswith("-"):
            nearest = difflib.get_close_matches(args[0], VERBS, n=1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            raise click.UsageError(f"unknown command {args[0]}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write("Example: seeklog demo, then seeklog ls demo-data/store\n\n")
        formatter.write_usage(ctx.command_path, "COMMAND [DIR] …")
        formatter.write_paragraph()
        formatter.write_text(
            "A commit log in Kafka's file format. DIR is a store (a directory of topics), a broker's data directory "
            "or the URL of an archive. If DIR is omitted, SEEKLOG_DIR is used. Every command has its own help: -h."
        )
        for heading, entries in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(entry.name, entry.line) for entry in entries])
        click.Command.format_options(self, ctx, formatter)


@click.group(cls=Verbs, context_settings=_CONTEXT, no_args_is_help=True, params=_shared_options())
@click.version_option(seeklog.__version__, "--version", prog_name="seeklog")
def app() -> None:
    pass


def verb(function: Callable[..., Any], *, kind: type[Verb] = Verb) -> Verb:
    """Turn a function into a subcommand. Its first argument is the `Terminal`, its docstring is the help."""
    return click.command(name=function.__name__, cls=kind)(click.pass_obj(function))


def run(arguments: list[str]) -> int:
    """Run a command line and return its exit code. An exception that escapes is a bug."""
    if completing.is_requested():
        return completing.complete(app)
    terminal = Terminal()
    logging.getLogger("seeklog").addHandler(terminal.log_handler())
    try:
        settings.read()  # refuses an invalid file before anything is done
        code = app.main(arguments, prog_name="seeklog", standalone_mode=False, obj=terminal)
    except click.exceptions.NoArgsIsHelpError as error:
        terminal.report(error.format_message())
        return Exit.USAGE
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx is not None else "seeklog"
        text = error.format_message()
        hint = "" if "did you mean" in text else f"; see {command} -h"
        terminal.report(f"seeklog: {neutral(text.rstrip('.'))}{hint}")
        return Exit.USAGE
    except click.ClickException as error:
        terminal.report(f"seeklog: {neutral(error.format_message())}")
        return Exit.FAILED
    except (Interrupted, KeyboardInterrupt):
        terminal.stopped()
        return Exit.INTERRUPTED
    except click.Abort:
        return Exit.INTERRUPTED  # Click has printed a newline
    except (BrokenPipeError, SystemExit):
        return Exit.PIPE_CLOSED  # Click raises SystemExit for a closed pipe
    except (SeeklogError, OSError, MemoryError) as error:
        if terminal.is_verbose:
            traceback.print_exception(error, file=sys.stderr)
        terminal.report(f"seeklog: {neutral(line(error))}")
        return exit_code(error)
    return code if isinstance(code, int) else Exit.OK
