"""The input of `append`: lines, JSON lines as printed by `cat`, or CSV with column names in the first row.

The columns of CSV are key, value, timestamp, partition, headers (JSON, as in `cat --format csv`) and header.NAME, in
any order. The columns topic and offset of `cat` are ignored. An empty cell is an empty value, and no key, timestamp or
header.
"""

from __future__ import annotations

import csv
import difflib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import BufferedReader
from typing import Final

from seeklog.cli.show.record_json import Draft, Headers, decode_headers, decode_line, decode_partition, decode_timestamp
from seeklog.errors import InvalidRecord, SeeklogError

CHUNK_BYTES: Final = 1 << 18
# Bounds memory if the input has no delimiter.
MAX_LINE_BYTES: Final = 1 << 28
_CSV_COLUMNS: Final = ("key", "value", "timestamp", "partition", "headers", "topic", "offset")
_HEADER: Final = "header."

Numbered = tuple[int, Draft]


class BadLine(SeeklogError):
    """A line that is not a record. Records before it have been appended, none after it."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"line {number}: {reason}")


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
                raise BadLine(number + 1, f"longer than {MAX_LINE_BYTES:,} bytes; pass the --delimiter of the input")
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

    def read_lines(self, lines: Iterable[tuple[int, bytes]]) -> Iterator[Numbered]:
        """Yield a record for each line. A line without the separator is a value without a key."""
        key, separator, empty_is_null, headers = self.key, self.key_separator, self.empty_is_null, self.headers
        for number, line in lines:
            value: bytes | None = line
            if separator is not None:
                before, match, after = line.partition(separator)
                key, value = (before, after) if match else (None, line)
            if empty_is_null:
                value = value or None
                key = key or None
            yield number, Draft(value, key, headers)

    def read_json(self, lines: Iterable[tuple[int, bytes]]) -> Iterator[Numbered]:
        """Yield the records in lines of JSON; skip empty lines."""
        for number, line in lines:
            if not line or line.isspace():
                continue
            try:
                draft = decode_line(line)
            except InvalidRecord as error:
                raise BadLine(number, str(error)) from None
            yield number, self._completed(draft)

    def read_csv(self, chunks: Iterable[bytes]) -> Iterator[Numbered]:
        """Yield the records in rows of CSV, whose first row names the columns."""
        csv.field_size_limit(MAX_LINE_BYTES)
        rows = csv.reader(_text_lines(chunks), strict=True)
        try:
            first = next(rows, None)
            if first is None:
                return
            names = [name.strip() for name in first]
            _check_columns(names)
            for row in rows:
                if len(row) not in (0, len(names)):
                    raise InvalidRecord(f"{len(row)} cells, but the first row names {len(names)} columns")
                if row:
                    yield rows.line_num, self._completed(_csv_draft(dict(zip(names, row, strict=True))))
        except (InvalidRecord, csv.Error) as error:
            raise BadLine(max(1, rows.line_num), str(error)) from None

    def _completed(self, draft: Draft) -> Draft:
        if self.empty_is_null and draft.value == b"":
            draft = draft._replace(value=None)
        return draft._replace(headers=draft.headers + self.headers) if self.headers else draft


def _text_lines(chunks: Iterable[bytes]) -> Iterator[str]:
    for number, line in split_lines(chunks, delimiter=b"\n"):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise BadLine(number, f"byte {error.start} is not UTF-8; use --json with base64 for binary data") from None
        yield text + "\n"


def _check_columns(names: list[str]) -> None:
    for name in names:
        if name not in _CSV_COLUMNS and not (name.startswith(_HEADER) and name != _HEADER):
            nearest = difflib.get_close_matches(name, _CSV_COLUMNS, n=1)
            hint = f"did you mean {nearest[0]}?" if nearest else f"known: {', '.join(_CSV_COLUMNS)} and header.NAME"
            raise InvalidRecord(f"unknown column {name[:40]!r} in the first row; {hint}")
    if len(set(names)) != len(names):
        raise InvalidRecord("the first row names a column twice")
    if "value" not in names:
        raise InvalidRecord("the first row names no column value")


def _csv_draft(cells: dict[str, str]) -> Draft:
    headers: Headers = ()
    if cells.get("headers"):
        try:
            headers = decode_headers(json.loads(cells["headers"]))
        except (ValueError, RecursionError):
            raise InvalidRecord("headers is not JSON") from None
    headers += tuple(
        (name.removeprefix(_HEADER), cell.encode()) for name, cell in cells.items() if name.startswith(_HEADER) and cell
    )
    return Draft(
        value=cells["value"].encode(),
        key=cells["key"].encode() if cells.get("key") else None,
        headers=headers,
        timestamp_ms=decode_timestamp(cells.get("timestamp") or None),
        partition=decode_partition(cells.get("partition") or None),
    )
