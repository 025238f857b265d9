"""The output of a command: data to stdout, messages and questions to stderr."""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from seeklog.cli.exits import Declined, in_a_line
from seeklog.cli.show.neutral import neutral
from seeklog.cli.show.progress import Progress
from seeklog.errors import UsageError

if TYPE_CHECKING:
    import click


UNCHANGED: Final = "nothing was changed"


class Terminal:
    """The standard streams, and the options for the output: -q, -v, --no-color, --utc, --format and --json."""

    def __init__(self) -> None:
        self.is_quiet = False
        self.is_verbose = False
        self.is_plain = False
        self.utc = False
        self.format_option: str | None = None
        self.as_json = False
        self._is_stopped = False

    @property
    def shows_tables(self) -> bool:
        """Whether stdout is a terminal."""
        return sys.stdout.isatty()

    @property
    def row_format(self) -> str:
        """The format of lists: by default a table on a terminal, and JSON lines in a pipe."""
        return "jsonl" if self.as_json else self.format_option or ("table" if self.shows_tables else "jsonl")

    @property
    def has_colors(self) -> bool:
        """Whether to colour data; see https://no-color.org."""
        return not self.is_plain and not os.environ.get("NO_COLOR") and self.shows_tables

    def bold(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self.has_colors else text

    @property
    def width(self) -> int:
        return shutil.get_terminal_size((100, 24)).columns

    def write(self, text: str) -> None:
        """Write data to stdout."""
        sys.stdout.write(text)

    def write_bytes(self, data: bytes) -> None:
        """Write binary data to stdout."""
        sys.stdout.flush()
        sys.stdout.buffer.write(data)

    def flush(self) -> None:
        """Flush stdout."""
        sys.stdout.flush()

    def say(self, text: str) -> None:
        """Print a message, unless -q is given."""
        if not self.is_quiet:
            self.report(text)

    def detail(self, text: str) -> None:
        """Print a message if -v is given."""
        if self.is_verbose:
            self.report(text)

    def report(self, text: str) -> None:
        """Print a message even with -q: an error, or a requested answer."""
        try:
            # Keep the order of data and messages.
            sys.stdout.flush()
            print(text, file=sys.stderr, flush=True)
        except (BrokenPipeError, ValueError):
            pass  # stderr is closed

    def stopped(self, text: str = "") -> None:
        """Print a message after Ctrl-C, on the line below the ^C of the terminal."""
        if not self._is_stopped and sys.stderr.isatty():
            self.report("")
        self._is_stopped = True
        if text:
            self.say(text)

    def confirm(self, question: str, *, is_agreed: bool) -> None:
        """Ask the user, unless `is_agreed`; raise `Declined` for any answer but yes."""
        if is_agreed:
            return
        if not sys.stdin.isatty():
            raise UsageError(
                f"{question} Cannot ask, stdin is not a terminal. Pass --yes, or --dry-run to see what would be done"
            )
        sys.stdout.flush()
        sys.stderr.write(f"{neutral(question)} [y/N] ")
        sys.stderr.flush()
        try:
            answer = sys.stdin.readline()
        except KeyboardInterrupt:
            self.stopped(UNCHANGED)
            raise
        if answer.strip().lower() not in ("y", "yes"):
            raise Declined(UNCHANGED)

    def progress(
        self,
        doing: str,
        *,
        total: int | None = None,
        unit: str = "records",
        stopped: str | Callable[[], str] | None = None,
    ) -> Progress:
        """Return a progress bar. It is shown on a terminal only, after half a second.

        With `stopped`, Ctrl-C prints how much was done, and this text: the state that is left, or how to continue.
        """
        is_shown = sys.stderr.isatty() and not self.is_quiet
        return Progress(doing, total=total, unit=unit, is_shown=is_shown, stopped=stopped, report=self.stopped)

    def log_handler(self) -> logging.Handler:
        """Return a handler that prints each warning of the engine as one line."""
        return _WarningHandler(self)


def set_option(context: click.Context, parameter: click.Parameter, value: object) -> None:
    """Pass an option for the output to the `Terminal` instead of the command."""
    if value and isinstance(context.obj, Terminal):
        setattr(context.obj, str(parameter.name), value)


class _WarningHandler(logging.Handler):
    def __init__(self, terminal: Terminal) -> None:
        super().__init__(logging.WARNING)
        self._terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        self._terminal.say(f"seeklog: {neutral(in_a_line(record.getMessage()))}")
