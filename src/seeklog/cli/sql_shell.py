"""The shell of `seeklog sql`: reads statements from a terminal, and goes on after errors and Ctrl-C."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Final

from seeklog.cli.exits import line
from seeklog.cli.history import History
from seeklog.cli.show.neutral import neutral
from seeklog.cli.show.terminal import Terminal
from seeklog.errors import SeeklogError, UsageError
from seeklog.store import sql_text

PROMPT: Final = "seeklog> "
CONTINUED: Final = "    ...> "
HISTORY: Final = "sql_history"
_HELP: Final = """\
A statement ends with a semicolon and may have several lines. Ctrl-C cancels it, Ctrl-D ends the shell.
.help            this text
.tables          the tables: each topic is one
.schema [TABLE]  the columns of the tables, or of one
.quit            end the shell"""
# No statement is a single word, and other shells take the words without a dot.
_ENDS: Final = (".quit", ".exit", "quit", "exit")
_TABLES: Final = "select table_name as name from information_schema.tables order by 1"
_ALL_COLUMNS: Final = """\
select table_name as "table", column_name as "column", data_type as type
from information_schema.columns order by table_name, ordinal_position"""
_COLUMNS: Final = 'select column_name as "column", column_type as type from (describe {})'

Execute = Callable[[str], object]


class Shell:
    """Reads from the terminal, and passes each statement to `execute`, which prints the result."""

    def __init__(self, terminal: Terminal, execute: Execute) -> None:
        self._terminal = terminal
        self._execute = execute
        self._history = History(HISTORY)

    def run(self) -> None:
        """Read and execute statements until Ctrl-D or .quit."""
        lines: list[str] = []
        while True:
            try:
                typed = input(CONTINUED if lines else PROMPT)
            except EOFError:
                self._terminal.report("")
                return
            except KeyboardInterrupt:
                self._terminal.report("")
                lines = []
                continue
            if not lines and typed.strip().rstrip(";") in _ENDS:
                return
            if not lines and typed.strip().startswith("."):
                self._history.add(typed.strip())
                self._guarded(self._command, typed)
                continue
            lines.append(typed)
            statement = "\n".join(lines)
            if sql_text.is_empty(statement):
                lines = []
            elif sql_text.is_complete(statement):
                lines = []
                self._history.add(" ".join(sql_text.on_one_line(statement).splitlines()))
                self._guarded(self._execute, statement)

    def _guarded(self, execute: Execute, text: str) -> None:
        """Execute text; print the error, or that Ctrl-C cancelled it."""
        try:
            execute(text)
            self._terminal.flush()
        except KeyboardInterrupt:
            self._terminal.report("\ncancelled")
        except (SeeklogError, OSError, MemoryError) as error:
            if self._terminal.is_verbose:
                traceback.print_exception(error)
            self._terminal.report(f"seeklog: {neutral(line(error))}")

    def _command(self, typed: str) -> None:
        name, *arguments = typed.split()
        if name == ".help":
            self._terminal.report(_HELP)
        elif name == ".tables":
            self._execute(_TABLES)
        elif name == ".schema" and len(arguments) < 2:
            table = '"{}"'.format("".join(arguments).strip('";').replace('"', '""'))
            self._execute(_COLUMNS.format(table) if arguments else _ALL_COLUMNS)
        else:
            raise UsageError(f"unknown command {typed.strip()}; .help lists the commands")
