"""The output of records to stdout or a file.

table   columns for people                csv   text in columns; lossless
jsonl   see `record_json`; lossless       raw   values, each followed by a newline
json    the same, as one list             hex   all bytes of a record, 16 per line

In CSV an empty key is null, an empty value is empty, and bytes are UTF-8. The column `encoding` names the exceptions,
separated by spaces: `key:base64`, `value:base64`, `value:null`. An empty key is an empty cell with `key:base64`.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from seeklog.cli.show import amounts
from seeklog.cli.show.kcat_format import compile_format
from seeklog.cli.show.neutral import neutral, neutral_bytes, printable
from seeklog.cli.show.record_json import line_encoder, moment_encoder
from seeklog.cli.show.rows import cell_width, csv_text, padded
from seeklog.cli.show.terminal import Terminal
from seeklog.errors import UsageError
from seeklog.record.record import Record

FORMATS: Final = ("table", "jsonl", "json", "csv", "raw", "hex")
CSV_COLUMNS: Final = ("partition", "offset", "timestamp", "key", "value", "headers", "encoding")
# The maximum width of every column but the last.
MAX_CELL: Final = 32
# The maximum width of a table that is not printed on a terminal.
MAX_LINE: Final = 500


@dataclass(frozen=True, slots=True)
class Writer:
    """Encodes non-empty lists of records."""

    encode: Callable[[list[Record]], bytes]
    head: bytes = b""
    tail: bytes = b""


def stdout_writer(terminal: Terminal, template: str | None, *, partitions: int) -> Writer:
    """Return a writer for the options --format, --json and --template, safe to print on a terminal."""
    if template is not None and (terminal.format_option is not None or terminal.as_json):
        raise UsageError("a template replaces --format and --json; leave them out")
    if terminal.as_json and terminal.format_option not in (None, "jsonl"):
        raise UsageError(f"--json and --format {terminal.format_option} conflict; pass one of them")
    if template is not None:
        if "%" not in template:
            raise UsageError(f"-t {template!r} names no field of a record, such as %v; topics are arguments: DIR TOPIC")
        return _each(compile_format(template, is_neutral=terminal.shows_tables))
    if terminal.row_format == "table":
        return Writer(_Table(terminal, shows_partition=partitions > 1).encode)
    return writer_of(terminal.row_format, utc=terminal.utc, is_seen=terminal.shows_tables)


def writer_of(chosen: str, *, utc: bool, is_seen: bool = False) -> Writer:
    """Return a writer for a format other than table; `is_seen` makes it safe to print on a terminal."""
    if chosen == "jsonl":
        return _lines(line_encoder(utc=utc))
    if chosen == "json":
        line = line_encoder(utc=utc)
        between = itertools.chain([b"\n"], itertools.repeat(b",\n"))
        return Writer(lambda records: next(between) + ",\n".join(map(line, records)).encode(), b"[", b"\n]\n")
    if chosen == "csv":
        cells = _csv_cells(utc=utc, is_seen=is_seen)
        head = csv_text([CSV_COLUMNS]).encode()
        return Writer(lambda records: csv_text(map(cells, records)).encode("utf-8", "surrogateescape"), head)
    if chosen == "raw":
        if is_seen:
            return _lines(lambda record: neutral_bytes(record.value or b""))
        return _each(lambda record: (record.value or b"") + b"\n")
    return _lines(_hex_encoder(utc=utc))


def write_all(terminal: Terminal, writer: Writer, chunks: Iterable[list[Record]]) -> None:
    """Write the head of the format, all records, and the tail."""
    terminal.write_bytes(writer.head)
    for chunk in chunks:
        terminal.write_bytes(writer.encode(chunk))
    terminal.write_bytes(writer.tail)


def _each(encode: Callable[[Record], bytes]) -> Writer:
    return Writer(lambda records: b"".join(map(encode, records)))


def _lines(line: Callable[[Record], str]) -> Writer:
    return Writer(lambda records: ("\n".join(map(line, records)) + "\n").encode())


def _csv_cells(*, utc: bool, is_seen: bool) -> Callable[[Record], tuple[Any, ...]]:
    moment, line = moment_encoder(utc=utc), line_encoder(utc=utc)

    def cell(name: str, data: bytes) -> tuple[str, str]:
        """Return the text for bytes, and what to add to the column `encoding`."""
        try:
            text = data.decode()
        except UnicodeDecodeError:
            return base64.b64encode(data).decode(), f"{name}:base64"
        return neutral(text) if is_seen else text, ""

    def cells(record: Record) -> tuple[Any, ...]:
        key, key_encoding = ("", "") if record.key is None else cell("key", record.key)
        value, value_encoding = ("", "value:null") if record.value is None else cell("value", record.value)
        if record.key == b"":
            key_encoding = "key:base64"
        return (
            record.partition,
            record.offset,
            moment(record.timestamp_ms) or record.timestamp_ms,
            key,
            value,
            line(record).rpartition('"headers": ')[2][:-1] if record.headers else "",
            f"{key_encoding} {value_encoding}".strip(),
        )

    return cells


def _hex_encoder(*, utc: bool) -> Callable[[Record], str]:
    moment = moment_encoder(utc=utc)

    def block(record: Record) -> str:
        time = moment(record.timestamp_ms) or record.timestamp_ms
        lines = [f"{record.topic}-{record.partition} offset {record.offset}, {time}"]
        lines += _hex_lines("key", record.key)
        lines += _hex_lines("value", record.value)
        for key, value in record.headers:
            lines += _hex_lines(f"header {neutral(key)}", value)
        return "\n".join(lines)

    return block


def _hex_lines(name: str, data: bytes | None) -> list[str]:
    if data is None:
        return [f"  {name}: null"]
    lines = [f"  {name}: {amounts.counted(len(data), 'byte')}"]
    for at in range(0, len(data), 16):
        piece = data[at : at + 16]
        numbers = f"{piece[:8].hex(' ')}  {piece[8:].hex(' ')}"
        lines.append(f"    {at:08x}  {numbers:<48}  |{printable(piece)}|")
    return lines


class _Table:
    """A table. The first records set the widths of the columns; the value takes the rest of the line."""

    def __init__(self, terminal: Terminal, *, shows_partition: bool) -> None:
        self._terminal = terminal
        self._moment = moment_encoder(utc=terminal.utc)
        self._shows_partition = shows_partition
        self._widths: list[int] = []
        self._max_line = terminal.width if terminal.shows_tables else MAX_LINE

    def encode(self, records: list[Record]) -> bytes:
        rows = list(map(self._cells, records))
        head = []
        if not self._widths:
            titles = ["PARTITION"] * self._shows_partition + ["OFFSET", "TIME", "KEY", "HEADERS", "VALUE"]
            self._widths = [min(MAX_CELL, max(map(cell_width, cells))) for cells in zip(titles, *rows, strict=True)]
            head = [self._terminal.bold(self._line(titles))]
        return "".join(f"{line}\n" for line in [*head, *map(self._line, rows)]).encode()

    def _cells(self, record: Record) -> list[str]:
        return [
            *([str(record.partition)] if self._shows_partition else []),
            str(record.offset),
            self._moment(record.timestamp_ms) or str(record.timestamp_ms),
            _shown(record.key),
            ", ".join(f"{neutral(key)}={_shown(value)}" for key, value in record.headers),
            _shown(record.value, max_characters=self._max_line),
        ]

    def _line(self, cells: list[str]) -> str:
        numbers = 1 + self._shows_partition
        text = "  ".join(
            padded(_cut(cell, width), width, is_right=at < numbers)
            for at, (cell, width) in enumerate(zip(cells[:-1], self._widths, strict=False))
        )
        room = max(10, self._max_line - cell_width(text) - 2)
        return f"{text}  {_cut(cells[-1], room)}".rstrip()


def _shown(data: bytes | None, *, max_characters: int = 4 * MAX_CELL) -> str:
    # Decode only as much as fits; a character has at most four bytes.
    return "null" if data is None else neutral_bytes(data[: 4 * max_characters])


def _cut(text: str, width: int) -> str:
    if cell_width(text) <= width:
        return text
    text = text[:width]
    while cell_width(text) > width - 1:
        text = text[:-1]
    return text + "…"
