"""Lists of rows: a table on a terminal, JSON lines in a pipe."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from seeklog.cli.show import amounts
from seeklog.cli.show.neutral import neutral, neutral_json
from seeklog.cli.show.terminal import Terminal

# Characters of CSV.
_QUOTED: Final = re.compile('[,"\r\n]')
FORMATS = ("table", "jsonl", "json", "csv")


def _as_text(value: Any) -> str:
    return "" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name in JSON, its title in a table if that differs, and how a table shows a value."""

    name: str
    title: str = ""
    shown: Callable[[Any], str] = _as_text
    is_right: bool = False


def count_column(name: str, title: str = "") -> Column:
    return Column(name, title, shown=amounts.count, is_right=True)


def size_column(name: str, title: str = "") -> Column:
    return Column(name, title, shown=amounts.size, is_right=True)


# The first columns of a row about a partition.
PARTITION = (Column("topic"), Column("partition", is_right=True))


def write_rows(terminal: Terminal, columns: Sequence[Column], rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows of JSON values in the format of `terminal`; a table shows only values with a column."""
    if terminal.row_format == "table":
        _write_table(terminal, columns, rows)
    elif terminal.row_format == "jsonl":
        for row in rows:
            terminal.write(json_line(row) + "\n")
    elif terminal.row_format == "json":
        text = json.dumps(list(rows), ensure_ascii=False, indent=2)
        terminal.write("\n".join(map(neutral_json, text.split("\n"))) + "\n")
    else:
        terminal.write(csv_text([[column.name for column in columns]]))
        for row in rows:
            terminal.write(csv_text([[_csv_cell(row.get(column.name)) for column in columns]]))


def json_line(row: Mapping[str, Any]) -> str:
    """Return a row as one line of JSON, safe to print on a terminal."""
    return neutral_json(json.dumps(row, ensure_ascii=False, separators=(", ", ": ")))


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Return rows as lines of CSV."""
    return "".join([(",".join(map(_csv_field, row)) or '""') + "\n" for row in rows])


def _csv_field(value: Any) -> str:
    # Python's writer does not quote a lone carriage return, which its reader then refuses.
    text = "" if value is None else str(value)
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text


def _csv_cell(value: Any) -> Any:
    return neutral_json(json.dumps(value, ensure_ascii=False)) if isinstance(value, dict | list) else value


def _write_table(terminal: Terminal, columns: Sequence[Column], rows: Iterable[Mapping[str, Any]]) -> None:
    titles = [(column.title or column.name).upper() for column in columns]
    lines = [titles, *([neutral(column.shown(row.get(column.name))) for column in columns] for row in rows)]
    widths = [max(map(cell_width, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        cells = zip(line, widths, columns, strict=True)
        text = "  ".join(padded(cell, width, is_right=column.is_right) for cell, width, column in cells).rstrip()
        terminal.write((terminal.bold(text) if line is titles else text) + "\n")


def padded(text: str, width: int, *, is_right: bool) -> str:
    """Pad text with spaces to a width in terminal cells, on the left if `is_right`."""
    room = " " * (width - cell_width(text))
    return room + text if is_right else text + room


def cell_width(text: str) -> int:
    """Return the width of text in terminal cells; some characters take two cells, some none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
