"""Records on their way to stdout or to a file, in the format that was asked for.

table   columns for a person              csv   text in columns; null is empty, bytes that are not UTF-8 are escaped
jsonl   see `record_json`; lossless       raw   values, each with a newline behind it
json    the same, as one list             hex   all bytes of a record, sixteen a line
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from seeklog.cli.show.kcat_format import compile_format
from seeklog.cli.show.neutral import neutral, neutral_bytes
from seeklog.cli.show.record_json import Moments, line_encoder
from seeklog.cli.show.rows import cell_width
from seeklog.cli.show.terminal import Terminal
from seeklog.errors import UsageError
from seeklog.record.record import Record

FORMATS: Final = ("table", "jsonl", "json", "csv", "raw", "hex")
CSV_COLUMNS: Final = ("partition", "offset", "timestamp", "key", "value", "headers")
# No column but the last takes more than this of a table, however long a key is.
CELL_MOST: Final = 32
# A value in a table that goes to a file is cut there, too: a table is for eyes.
LINE_MOST: Final = 500


class Writer(Protocol):
    """Turns records into bytes, list by list."""

    def begin(self) -> bytes: ...

    def encode(self, records: list[Record]) -> bytes: ...

    def end(self) -> bytes: ...


def make_writer(
    terminal: Terminal, *, record_format: str | None, as_json: bool, template: str | None, utc: bool, partitions: int
) -> Writer:
    """Return what writes records as the options say; nothing that it writes to a terminal can steer that."""
    if template is not None and (record_format is not None or as_json):
        raise UsageError("a template says all of the format: leave out --format and --json")
    if as_json and record_format not in (None, "jsonl"):
        raise UsageError(f"--json and --format {record_format} are two formats: take one")
    is_seen = terminal.shows_tables
    if template is not None:
        return _Each(compile_format(template, is_neutral=is_seen))
    chosen = "jsonl" if as_json else record_format or ("table" if is_seen else "jsonl")
    if chosen == "table":
        return _Table(terminal, utc=utc, shows_partition=partitions > 1)
    return writer_of(chosen, utc=utc, is_seen=is_seen)


def writer_of(chosen: str, *, utc: bool, is_seen: bool = False) -> Writer:
    """Return what writes a format other than the table; `is_seen` on a terminal."""
    if chosen == "jsonl":
        return _Lines(line_encoder(utc=utc))
    if chosen == "json":
        return _List(line_encoder(utc=utc))
    if chosen == "csv":
        return _Csv(utc=utc, is_seen=is_seen)
    if chosen == "raw":
        return _Each(_raw_seen if is_seen else _raw)
    return _Lines(_hex_encoder(utc=utc))


def write_all(terminal: Terminal, writer: Writer, chunks: Iterable[list[Record]], *, at_once: bool = False) -> int:
    """Write records and return how many; with `at_once` a reader has each list before the next is waited for."""
    terminal.write_bytes(writer.begin())
    count = 0
    for chunk in chunks:
        terminal.write_bytes(writer.encode(chunk))
        count += len(chunk)
        if at_once:
            terminal.flush()
    terminal.write_bytes(writer.end())
    return count


class _Each:
    """Bytes of each record, one behind the other."""

    def __init__(self, encode: Callable[[Record], bytes]) -> None:
        self._encode = encode

    def begin(self) -> bytes:
        return b""

    def encode(self, records: list[Record]) -> bytes:
        return b"".join(map(self._encode, records))

    def end(self) -> bytes:
        return b""


class _Lines(_Each):
    """A line of text, or more, of each record."""

    def __init__(self, line: Callable[[Record], str]) -> None:
        self._line = line

    def encode(self, records: list[Record]) -> bytes:
        return ("\n".join(map(self._line, records)) + "\n").encode()


class _List(_Lines):
    """All records as one list of JSON."""

    _between = b"\n"

    def begin(self) -> bytes:
        return b"["

    def encode(self, records: list[Record]) -> bytes:
        before, self._between = self._between, b",\n"
        return before + ",\n".join(map(self._line, records)).encode()

    def end(self) -> bytes:
        return b"\n]\n"


class _Csv(_Each):
    def __init__(self, *, utc: bool, is_seen: bool) -> None:
        self._moments = Moments(utc=utc)
        self._clean: Callable[[str], str] = neutral if is_seen else str
        self._line = line_encoder(utc=utc)

    def begin(self) -> bytes:
        return (",".join(CSV_COLUMNS) + "\n").encode()

    def encode(self, records: list[Record]) -> bytes:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(map(self._cells, records))
        return text.getvalue().encode("utf-8", "surrogateescape")

    def _cells(self, record: Record) -> tuple[Any, ...]:
        moment = self._moments.text(record.timestamp_ms)
        return (
            record.partition,
            record.offset,
            record.timestamp_ms if moment is None else moment,
            self._text(record.key),
            self._text(record.value),
            self._line(record).rpartition('"headers": ')[2][:-1] if record.headers else "",
        )

    def _text(self, data: bytes | None) -> str | None:
        return None if data is None else self._clean(data.decode("utf-8", "backslashreplace"))


def _raw(record: Record) -> bytes:
    return (record.value or b"") + b"\n"


def _raw_seen(record: Record) -> bytes:
    return neutral_bytes(record.value or b"").encode() + b"\n"


def _hex_encoder(*, utc: bool) -> Callable[[Record], str]:
    moments = Moments(utc=utc)

    def block(record: Record) -> str:
        moment = moments.text(record.timestamp_ms) or record.timestamp_ms
        lines = [f"{record.topic}-{record.partition} offset {record.offset}, {moment}"]
        lines += _hex_lines("key", record.key)
        lines += _hex_lines("value", record.value)
        for key, value in record.headers:
            lines += _hex_lines(f"header {neutral(key)}", value)
        return "\n".join(lines)

    return block


def _hex_lines(name: str, data: bytes | None) -> list[str]:
    if data is None:
        return [f"  {name}: null"]
    lines = [f"  {name}: {len(data):,} byte{'' if len(data) == 1 else 's'}"]
    for at in range(0, len(data), 16):
        piece = data[at : at + 16]
        numbers = f"{piece[:8].hex(' ')}  {piece[8:].hex(' ')}"
        letters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in piece)
        lines.append(f"    {at:08x}  {numbers:<48}  |{letters}|")
    return lines


class _Table(_Each):
    """Columns whose widths the first records give; the value takes what is left of the line."""

    def __init__(self, terminal: Terminal, *, utc: bool, shows_partition: bool) -> None:
        self._terminal = terminal
        self._moments = Moments(utc=utc)
        self._shows_partition = shows_partition
        self._widths: list[int] = []
        self._line_most = terminal.width if terminal.shows_tables else LINE_MOST

    def encode(self, records: list[Record]) -> bytes:
        rows = list(map(self._cells, records))
        head = ""
        if not self._widths:
            titles = ["OFFSET", "TIME", "KEY", "HEADERS", "VALUE"]
            if self._shows_partition:
                titles.insert(0, "PARTITION")
            self._widths = [
                min(CELL_MOST, max(cell_width(row[at]) for row in (titles, *rows))) for at in range(len(titles))
            ]
            head = self._line(titles) + "\n"
            if self._terminal.has_colors:
                head = f"\x1b[1m{head[:-1]}\x1b[0m\n"
        return (head + "".join(f"{self._line(row)}\n" for row in rows)).encode()

    def end(self) -> bytes:
        return b""

    def _cells(self, record: Record) -> list[str]:
        cells = [
            str(record.offset),
            self._moments.text(record.timestamp_ms) or str(record.timestamp_ms),
            _shown(record.key),
            ", ".join(f"{neutral(key)}={_shown(value)}" for key, value in record.headers),
            _shown(record.value, most=self._line_most),
        ]
        return [str(record.partition), *cells] if self._shows_partition else cells

    def _line(self, cells: list[str]) -> str:
        right = 1 + self._shows_partition
        text = "  ".join(
            _fitted(cell, width, is_right=at < right)
            for at, (cell, width) in enumerate(zip(cells[:-1], self._widths, strict=False))
        )
        room = max(10, self._line_most - cell_width(text) - 2)
        return f"{text}  {_cut(cells[-1], room)}".rstrip()


def _shown(data: bytes | None, *, most: int = 4 * CELL_MOST) -> str:
    # Of a long one only what can be seen is decoded; a character has four bytes at most.
    return "null" if data is None else neutral_bytes(data[: 4 * most])


def _fitted(text: str, width: int, *, is_right: bool) -> str:
    text = _cut(text, width)
    room = " " * (width - cell_width(text))
    return room + text if is_right else text + room


def _cut(text: str, width: int) -> str:
    if cell_width(text) <= width:
        return text
    text = text[:width]
    while cell_width(text) > width - 1:
        text = text[:-1]
    return text + "…"
