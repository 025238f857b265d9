"""Where a command writes: data to stdout, messages to stderr, and a question to the user who sits there."""

from __future__ import annotations

import logging
import os
import shutil
import sys

from seeklog.cli.exits import Declined, in_a_line
from seeklog.cli.show.neutral import neutral
from seeklog.cli.show.progress import Progress
from seeklog.errors import UsageError


class Terminal:
    """The streams of the process, and how much the user wants to hear."""

    def __init__(self) -> None:
        self.is_quiet = False
        self.is_verbose = False
        self.is_plain = False
        self._is_stopped = False

    @property
    def shows_tables(self) -> bool:
        """Whether a person reads the data: stdout is a terminal."""
        return sys.stdout.isatty()

    @property
    def has_colors(self) -> bool:
        """Whether data may be coloured; see https://no-color.org."""
        return not self.is_plain and not os.environ.get("NO_COLOR") and self.shows_tables

    def bold(self, text: str) -> str:
        return f"\x1b[1m{text}\x1b[0m" if self.has_colors else text

    @property
    def width(self) -> int:
        return shutil.get_terminal_size((100, 24)).columns

    def write(self, text: str) -> None:
        """Write data, as it is."""
        sys.stdout.write(text)

    def write_bytes(self, data: bytes) -> None:
        """Write data, as it is, after what was written as text."""
        sys.stdout.flush()
        sys.stdout.buffer.write(data)

    def flush(self) -> None:
        """Let a reader of stdout have what was written."""
        sys.stdout.flush()

    def say(self, text: str) -> None:
        """Report what was done, unless the user wants quiet."""
        if not self.is_quiet:
            self.tell(text)

    def detail(self, text: str) -> None:
        """Report a detail, if the user wants that."""
        if self.is_verbose:
            self.tell(text)

    def tell(self, text: str) -> None:
        """Report what the user must see: an error, or what was asked for."""
        try:
            # What was written before stands before it.
            sys.stdout.flush()
            print(text, file=sys.stderr, flush=True)
        except (BrokenPipeError, ValueError):
            pass  # nobody listens

    def stopped(self, text: str = "") -> None:
        """Report what Ctrl-C has stopped, below the ^C that stands on a terminal then."""
        if not self._is_stopped and sys.stderr.isatty():
            self.tell("")
        self._is_stopped = True
        if text:
            self.say(text)

    def confirm(self, question: str, *, is_agreed: bool) -> None:
        """Ask before something is destroyed, unless the user has agreed to it; raise `Declined` if they do not."""
        if is_agreed:
            return
        if not sys.stdin.isatty():
            raise UsageError(
                f"{question} Cannot ask, stdin is not a terminal. Pass --yes, or --dry-run to see what would be done"
            )
        sys.stdout.flush()
        sys.stderr.write(f"{neutral(question)} [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise Declined("nothing was changed")

    def progress(self, doing: str, *, total: int | None = None, unit: str = "records") -> Progress:
        """Return a bar on stderr for a long work: it shows on a terminal only, and only after half a second."""
        return Progress(doing, total=total, unit=unit, is_shown=sys.stderr.isatty() and not self.is_quiet)

    def log_handler(self) -> logging.Handler:
        """Return a handler that shows each warning of the engine as a line."""
        return _WarningHandler(self)


class _WarningHandler(logging.Handler):
    def __init__(self, terminal: Terminal) -> None:
        super().__init__(logging.WARNING)
        self._terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        self._terminal.say(f"seeklog: {neutral(in_a_line(record.getMessage()))}")
