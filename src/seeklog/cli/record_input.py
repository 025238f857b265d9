"""The input of `append` as text: lines, JSON lines as printed by `cat`, or CSV with column names in the first row.

The columns of CSV are key, value, timestamp, partition, headers (JSON, as in `cat --format csv`), encoding (see
`record_output`) and header.NAME, in any order. The columns topic and offset of `cat` are ignored. An empty cell is an
empty value, and no key, timestamp or header.
"""

from __future__ import annotations

import base64
import csv
import functools
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from io import BufferedReader
from typing import Final

from seeklog.cli.columns import Columns, header_name
from seeklog.cli.show.record_json import (
    FIELDS,
    Draft,
    Headers,
    decode_headers,
    decode_line,
    decode_partition,
    decode_timestamp,
)
from seeklog.errors import InvalidRecord, SeeklogError, counted

CHUNK_BYTES: Final = 1 << 18
# Bounds memory if the input has no delimiter.
MAX_LINE_BYTES: Final = 1 << 28
_CSV_COLUMNS: Final = ("key", "value", "timestamp", "partition", "headers", "encoding", "topic", "offset")
_ENCODINGS: Final = frozenset({"key:base64", "value:base64", "key:null", "value:null"})

_JSON_LIST: Final = "a JSON list over several lines; write one object on each line, as: jq -c '.[]'"
NOT_TEXT: Final = "a NUL byte, so this is not text; to append the bytes of each line as they are, pass --format lines"

Numbered = tuple[int, Draft]


class BadRecord(SeeklogError):
    """A line or a row that is not a record. Records before it have been appended, none after it."""

    def __init__(self, number: int | None, reason: str, *, unit: str = "line", column: str | None = None) -> None:
        super().__init__(reason)
        self.file: str | None = None
        self._number, self._reason, self._unit, self._column = number, reason, unit, column

    def __str__(self) -> str:
        number = None if self._number is None else f"{self._unit} {self._number:,}"
        column = None if self._column is None else f"column {self._column[:40]}"
        where = ", ".join(filter(None, (self.file, number, column)))
        return f"{where}: {self._reason}" if where else self._reason


def read_chunks(stream: BufferedReader, *, read: Callable[[int], object]) -> Iterator[bytes]:
    """Yield the data of a stream as it arrives, and pass the number of bytes to `read`."""
    while chunk := stream.read1(CHUNK_BYTES):
        read(len(chunk))
        yield chunk


def split_lines(chunks: Iterable[bytes], *, delimiter: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield lines with their numbers, without the delimiter, which may be missing after the last line."""
    rest: list[bytes] = []
    waiting = 0
    number = 0
    for chunk in chunks:
        # A delimiter of several bytes may be split between chunks.
        if len(delimiter) > 1 and rest:
            chunk = b"".join((*rest, chunk))
            rest, waiting = [], 0
        if delimiter not in chunk:
            rest.append(chunk)
            waiting += len(chunk)
            if waiting > MAX_LINE_BYTES:
                raise BadRecord(number + 1, f"longer than {MAX_LINE_BYTES:,} bytes; pass the --delimiter of the input")
            continue
        first, *lines = chunk.split(delimiter)
        number += 1
        yield number, b"".join((*rest, first))
        last = lines.pop()
        for line in lines:
            number += 1
            yield number, line
        rest, waiting = [last], len(last)
    left = b"".join(rest)
    if left:
        yield number + 1, left


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads records from lines, JSON or CSV, and adds the key and the headers that all of them get."""

    key: bytes | None = None
    key_separator: bytes | None = None
    empty_is_null: bool = False
    headers: Headers = ()
    columns: Columns = field(default_factory=Columns)
    delimiter: bytes = b"\n"
    allows_nul: bool = True
    """Whether a line may contain NUL bytes, as binary data does and text does not."""

    def read_lines(self, lines: Iterable[tuple[int, bytes]]) -> Iterator[Numbered]:
        """Yield a record for each line. A line without the separator is a value without a key."""
        key, separator = self.key, self.key_separator
        for number, line in lines:
            if not self.allows_nul and b"\0" in line:
                raise BadRecord(number, NOT_TEXT)
            value: bytes | None = line
            if separator is not None:
                before, match, after = line.partition(separator)
                key, value = (before, after) if match else (None, line)
            if self.empty_is_null:
                key = key or None
            yield number, Draft(value, key)

    def read_json(self, lines: Iterable[tuple[int, bytes]]) -> Iterator[Numbered]:
        """Yield the records in lines of JSON; skip empty lines."""
        pick = functools.partial(self.columns.pick, known=FIELDS) if self.columns.named else None
        for number, line in lines:
            if not line or line.isspace():
                continue
            try:
                draft = decode_line(line, pick=pick)
            except InvalidRecord as error:
                if line.strip() == b"[":
                    raise BadRecord(number, _JSON_LIST) from None
                raise BadRecord(number, str(error)) from None
            yield number, draft

    def read_csv(self, chunks: Iterable[bytes]) -> Iterator[Numbered]:
        """Yield the records in rows of CSV, whose first row names the columns."""
        csv.field_size_limit(MAX_LINE_BYTES)
        rows = csv.reader(_text_lines(chunks), strict=True)
        try:
            first = next(rows, None)
            if first is None:
                return
            names = [name.strip() for name in first]
            table = _Table(self.columns.find(names, known=_CSV_COLUMNS), names)
            for row in rows:
                if len(row) not in (0, len(names)):
                    raise InvalidRecord(
                        f"{counted(len(row), 'cell')}, but the first row names {counted(len(names), 'column')}"
                    )
                if row:
                    yield rows.line_num, table.draft(row, number=rows.line_num)
        except (InvalidRecord, csv.Error) as error:
            raise BadRecord(max(1, rows.line_num), str(error)) from None

    def complete(self, drafts: Iterable[Numbered]) -> Iterable[Numbered]:
        """Return the records with the headers that all of them get, and with null for empty values if asked to."""
        if not (self.headers or self.empty_is_null):
            return drafts
        return ((number, self._completed(draft)) for number, draft in drafts)

    def _completed(self, draft: Draft) -> Draft:
        if self.empty_is_null and draft.value == b"":
            draft = draft._replace(value=None)
        return draft._replace(headers=draft.headers + self.headers)


def _text_lines(chunks: Iterable[bytes]) -> Iterator[str]:
    for number, line in split_lines(chunks, delimiter=b"\n"):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            reason = f"byte {error.start} is not UTF-8; in CSV such data is base64, with value:base64 in encoding"
            raise BadRecord(number, reason) from None
        yield text + "\n"


class _Table:
    """The columns of CSV."""

    def __init__(self, columns: dict[str, str], names: list[str]) -> None:
        self._columns = columns
        self._at = {field: names.index(column) for field, column in columns.items()}
        self._headers = [(name, self._at[field]) for field in columns if (name := header_name(field)) is not None]

    def draft(self, row: list[str], *, number: int) -> Draft:
        cells = {field: row[at] for field, at in self._at.items()}
        here = "encoding"
        try:
            encodings = _encodings(cells.get("encoding"))
            here = "key"
            key = _decoded(cells.get("key") or None, "key", encodings)
            here = "value"
            value = _decoded(cells["value"], "value", encodings)
            here = "headers"
            headers = _csv_headers(cells.get("headers"))
            here = "timestamp"
            timestamp_ms = decode_timestamp(cells.get("timestamp") or None)
            here = "partition"
            partition = decode_partition(cells.get("partition") or None)
        except InvalidRecord as error:
            raise BadRecord(number, str(error), column=self._columns[here]) from None
        for name, at in self._headers:
            if row[at]:
                headers += ((name, row[at].encode()),)
        return Draft(value, key, headers, timestamp_ms, partition)


def _encodings(cell: str | None) -> frozenset[str]:
    if not cell:
        return frozenset()
    found = frozenset(cell.split())
    if not found <= _ENCODINGS:
        raise InvalidRecord(f"{cell[:40]!r} is not among {', '.join(sorted(_ENCODINGS))}")
    return found


def _decoded(cell: str | None, field: str, encodings: frozenset[str]) -> bytes | None:
    """Return the bytes of a cell; None for a key means that the cell is empty."""
    if f"{field}:null" in encodings:
        if cell:
            raise InvalidRecord(f"the encoding says {field}:null, but there is a {field}")
        return None
    if f"{field}:base64" in encodings:
        try:
            return base64.b64decode(cell or "", validate=True)
        except ValueError:
            raise InvalidRecord(f"{(cell or '')[:40]!r} is not base64, as the encoding says") from None
    return None if cell is None else cell.encode()


def _csv_headers(cell: str | None) -> Headers:
    if not cell:
        return ()
    try:
        found = json.loads(cell)
    except (ValueError, RecursionError):
        raise InvalidRecord("headers is not JSON") from None
    return decode_headers(found)
