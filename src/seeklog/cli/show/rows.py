"""Lists of things, each as the reader wants it: a table before a person, JSON lines in a pipe."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from seeklog.cli.show import amounts
from seeklog.cli.show.neutral import neutral, neutral_json
from seeklog.cli.show.terminal import Terminal

FORMATS = ("table", "jsonl", "json", "csv")


def _as_text(value: Any) -> str:
    return "" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class Column:
    """One column: what it is called in JSON and, if that differs, above the table, and how a table shows it."""

    name: str
    title: str = ""
    shown: Callable[[Any], str] = _as_text
    is_right: bool = False


def count_column(name: str, title: str = "") -> Column:
    return Column(name, title, shown=amounts.count, is_right=True)


def size_column(name: str, title: str = "") -> Column:
    return Column(name, title, shown=amounts.size, is_right=True)


# What a row of a partition begins with.
PARTITION = (Column("topic"), Column("partition", is_right=True))


def write_rows(
    terminal: Terminal,
    columns: Iterable[Column],
    rows: Iterable[Mapping[str, Any]],
    *,
    row_format: str | None,
) -> None:
    """Write rows, whose values are what JSON can say; a table shows those that have a column."""
    chosen = row_format or ("table" if terminal.shows_tables else "jsonl")
    if chosen == "table":
        _write_table(terminal, tuple(columns), rows)
    elif chosen == "jsonl":
        for row in rows:
            terminal.write(json_line(row) + "\n")
    elif chosen == "json":
        terminal.write(neutral_json(json.dumps(list(rows), ensure_ascii=False, indent=2)) + "\n")
    else:
        _write_csv(terminal, tuple(columns), rows)


def json_line(row: Mapping[str, Any]) -> str:
    """Return a row as one line of JSON that does no harm on a terminal."""
    return neutral_json(json.dumps(row, ensure_ascii=False, separators=(", ", ": ")))


def _write_csv(terminal: Terminal, columns: tuple[Column, ...], rows: Iterable[Mapping[str, Any]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.name for column in columns])
    for row in rows:
        writer.writerow([_csv_cell(row.get(column.name)) for column in columns])
        terminal.write(text.getvalue())
        text.seek(0)
        text.truncate()
    terminal.write(text.getvalue())


def _csv_cell(value: Any) -> Any:
    return neutral_json(json.dumps(value, ensure_ascii=False)) if isinstance(value, dict | list) else value


def _write_table(terminal: Terminal, columns: tuple[Column, ...], rows: Iterable[Mapping[str, Any]]) -> None:
    cells = [[neutral(column.shown(row.get(column.name))) for column in columns] for row in rows]
    titles = [(column.title or column.name).upper() for column in columns]
    widths = [max(map(cell_width, (title, *(row[at] for row in cells)))) for at, title in enumerate(titles)]
    for number, line in enumerate((titles, *cells)):
        text = "  ".join(
            _padded(cell, width, is_right=column.is_right)
            for cell, width, column in zip(line, widths, columns, strict=True)
        ).rstrip()
        terminal.write(f"\x1b[1m{text}\x1b[0m\n" if number == 0 and terminal.has_colors else f"{text}\n")


def _padded(text: str, width: int, *, is_right: bool) -> str:
    room = " " * (width - cell_width(text))
    return room + text if is_right else text + room


def cell_width(text: str) -> int:
    """Return how many cells of a terminal a text takes: some characters take two, some none."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)
