"""The input of `append` from Parquet files, and from Arrow's IPC files and streams.

The columns are those of `arrow_output`, or others that the user names. A key or a value is binary, text, or a type that
JSON can hold, which becomes JSON text. A time is a timestamp, a number of milliseconds, or ISO 8601; without a zone it
is local. One batch of rows is in memory at a time: of Parquet a few thousand, of Arrow as many as its writer chose.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from io import BufferedReader
from itertools import islice
from typing import Any, Final

import pyarrow as pa
from pyarrow import types

from seeklog.cli.arrow_output import HEADER_KEYS
from seeklog.cli.columns import Columns, header_name
from seeklog.cli.formats import ARROW_MAGIC, NAMES
from seeklog.cli.record_input import BadRecord, Numbered
from seeklog.cli.show.record_json import Draft, decode_partition, decode_timestamp
from seeklog.errors import InvalidRecord, counted

KNOWN: Final = ("key", "value", "timestamp", "partition", "headers", HEADER_KEYS, "topic", "offset", "timestampType")
_IGNORED: Final = frozenset({"topic", "offset", "timestampType"})
# What becomes Python values at once.
SLICE_ROWS: Final = 1024
SLICE_BYTES: Final = 16 << 20
# A column is read from the file in pieces of this size.
READ_BYTES: Final = 1 << 20
_PER_SECOND: Final = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH: Final = datetime(1970, 1, 1)
_MILLISECOND: Final = timedelta(milliseconds=1)

Batches = Iterator[Any]
Read = Callable[[int], object]
Decode = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Cells:
    """How a column becomes a field of a record."""

    field: str
    column: str
    values: Callable[[Any], Iterable[Any]]
    """From an Arrow array to Python values."""
    decode: Decode | None = None
    """From one of them to the value of the field; None if it is that. Raises `InvalidRecord`."""


def read_arrow(
    file: BufferedReader, *, form: str, columns: Columns, size: int | None, read: Read
) -> Iterator[Numbered]:
    """Yield the records in a Parquet or Arrow file, and pass the number of bytes to `read`."""
    number = 0
    try:
        schema, batches = _open_parquet(file, size, read) if form == "parquet" else _open_ipc(file, size, read)
        cells = _plan(columns, schema)
        for batch in batches([each.column for each in cells]):
            for start in range(0, batch.num_rows, SLICE_ROWS):
                for draft in _drafts(batch.slice(start, SLICE_ROWS), cells, first=number + 1):
                    number += 1
                    yield number, draft
    except (pa.ArrowException, OSError) as error:
        # Errors of the system have a number.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        where = f"after row {number:,}" if number else "from its beginning"
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadRecord(None, f"{NAMES[form]} that cannot be read {where}: {reason}; write the file again") from error


# ---------------------------------------------------------------- files


def _open_parquet(file: BufferedReader, size: int | None, read: Read) -> tuple[Any, Callable[[list[str]], Batches]]:
    import pyarrow.parquet as pq

    parquet = pq.ParquetFile(file, buffer_size=READ_BYTES, pre_buffer=False)
    share = _Share(size or 0, parquet.metadata.num_rows, read)

    def batches(columns: list[str]) -> Batches:
        for number in range(parquet.num_row_groups):
            group = parquet.metadata.row_group(number)
            row_bytes = max(1, group.total_byte_size // max(1, group.num_rows))
            rows = max(1, min(SLICE_ROWS, SLICE_BYTES // row_bytes))
            for batch in parquet.iter_batches(rows, row_groups=[number], columns=columns, use_threads=False):
                yield batch
                share.add(batch.num_rows)

    return parquet.schema_arrow, batches


def _open_ipc(file: BufferedReader, size: int | None, read: Read) -> tuple[Any, Callable[[list[str]], Batches]]:
    is_file = file.peek(len(ARROW_MAGIC)).startswith(ARROW_MAGIC)
    reader = pa.ipc.open_file(file) if is_file else pa.ipc.open_stream(file)

    def batches(_: list[str]) -> Batches:
        share = _Share(size or 0, reader.num_record_batches, read) if is_file else None
        for batch in _numbered(reader) if is_file else reader:
            # Unlike Parquet, the bytes of the file become columns as they are.
            batch.validate(full=True)
            yield batch
            if share is not None:
                share.add(1)
            else:
                read(batch.nbytes)

    return reader.schema, batches


def _numbered(reader: Any) -> Batches:
    for number in range(reader.num_record_batches):
        yield reader.get_batch(number)


class _Share:
    """Passes on a file's bytes in proportion to its rows or batches."""

    def __init__(self, size: int, total: int, read: Read) -> None:
        self._size, self._total, self._read = size, max(1, total), read
        self._done = 0

    def add(self, amount: int) -> None:
        before = self._size * self._done // self._total
        self._done += amount
        self._read(self._size * self._done // self._total - before)


# ---------------------------------------------------------------- columns


def _plan(columns: Columns, schema: Any) -> list[Cells]:
    """Return how each column is read; raise `BadRecord` for unknown columns and for types that hold no such field."""
    try:
        found = columns.find(schema.names, known=KNOWN)
    except InvalidRecord as error:
        raise BadRecord(None, str(error)) from None
    cells = []
    for field, column in found.items():
        kind = _stored(schema.field(column).type)
        if field not in _IGNORED:
            made = _cells(field, column, kind)
            if made is None:
                raise BadRecord(None, f"a {field} cannot be of type {kind}; {_ADVICE.get(field, _CAST)}", column=column)
            cells.append(made)
    return cells


_CAST: Final = "cast the column to binary, text or a number"
_ADVICE: Final = {
    "timestamp": "cast the column to a timestamp, or to milliseconds since 1970",
    "partition": "cast the column to an integer",
    "headers": "it is a list of structs with a key and a value, both text or binary",
    HEADER_KEYS: "it is a list of binary",
}


def _cells(field: str, column: str, kind: Any) -> Cells | None:
    if field == "timestamp":
        return _time_cells(column, kind)
    if field == "partition":
        return Cells(field, column, _python, decode_partition) if types.is_integer(kind) else None
    if field == "headers":
        return Cells(field, column, _header_values, _headers) if _holds_headers(kind) else None
    if field == HEADER_KEYS:
        return Cells(field, column, _python) if _is_list(kind) and _is_bytes(kind.value_type) else None
    if _is_bytes(kind) or types.is_null(kind):
        return Cells(field, column, _bytes_values)
    return Cells(field, column, _python, _json_text) if _is_json(kind) else None


def _time_cells(column: str, kind: Any) -> Cells | None:
    if types.is_timestamp(kind):
        per_second, is_local = _PER_SECOND[kind.unit], kind.tz is None
        return Cells("timestamp", column, _integers, lambda time: _milliseconds(time, per_second, is_local=is_local))
    if types.is_integer(kind) or _is_text(kind) or types.is_null(kind):
        return Cells("timestamp", column, _python, decode_timestamp)
    return None


def _is_text(kind: Any) -> bool:
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_bytes(kind: Any) -> bool:
    if types.is_dictionary(kind):
        kind = kind.value_type
    is_binary = types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind)
    return bool(is_binary or types.is_fixed_size_binary(kind) or _is_text(kind))


def _is_list(kind: Any) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind))


def _is_json(kind: Any) -> bool:
    if types.is_struct(kind):
        return all(_is_json(part.type) for part in kind)
    if _is_list(kind):
        return _is_json(kind.value_type)
    return _is_text(kind) or any(
        test(kind) for test in (types.is_integer, types.is_floating, types.is_boolean, types.is_null)
    )


def _holds_headers(kind: Any) -> bool:
    if not (_is_list(kind) and types.is_struct(kind.value_type)):
        return False
    parts = {part.name: part.type for part in kind.value_type}
    return set(parts) == {"key", "value"} and all(_is_bytes(part) or types.is_null(part) for part in parts.values())


# ---------------------------------------------------------------- values


def _stored(kind: Any) -> Any:
    """Return the type that holds the data, of an extension type such as JSON or UUID."""
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _python(array: Any) -> list[Any]:
    found: list[Any] = array.to_pylist()
    return found


def _integers(array: Any) -> list[Any]:
    return _python(array.cast(pa.int64()))


def _bytes_values(array: Any) -> list[Any]:
    """Return bytes, also of text, whether it is UTF-8 or not."""
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if types.is_string_view(array.type):
        array = array.cast(pa.string())
    if types.is_string(array.type):
        array = array.cast(pa.binary())
    elif types.is_large_string(array.type):
        array = array.cast(pa.large_binary())
    return _python(array)


def _header_values(array: Any) -> Iterator[list[tuple[bytes | None, bytes | None]]]:
    flat = array.flatten()
    pairs = zip(_bytes_values(flat.field("key")), _bytes_values(flat.field("value")), strict=True)
    for length in array.value_lengths().to_pylist():
        yield list(islice(pairs, length or 0))


def _headers(pairs: list[tuple[bytes | None, bytes | None]]) -> tuple[tuple[str, bytes | None], ...]:
    return tuple([(_key_text(key), value) for key, value in pairs])


def _key_text(key: bytes | None) -> str:
    if key is None:
        raise InvalidRecord("a header has no key")
    return key.decode("utf-8", "surrogateescape")


def _json_text(value: Any) -> bytes | None:
    if value is None:
        return None
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:
        raise InvalidRecord("NaN and infinity have no JSON; cast the column to text") from None


def _milliseconds(time: int | None, per_second: int, *, is_local: bool) -> int | None:
    """Return a timestamp of Arrow in milliseconds since 1970; -1 if the record has none."""
    if time is None:
        return None
    since = time * 1000 // per_second
    if is_local:
        try:
            since = ((_LOCAL_EPOCH + timedelta(milliseconds=since)).astimezone(UTC) - _EPOCH) // _MILLISECOND
        except (OverflowError, ValueError, OSError):
            raise InvalidRecord("the timestamp is after the year 9999 and has no time zone") from None
    elif time * 1000 == -per_second:
        return -1
    if since < 0:
        raise InvalidRecord("the timestamp is before 1970")
    return decode_timestamp(since)


def _column(rows: Any, name: str) -> Any:
    column = rows.column(name)
    return column.storage if isinstance(column.type, pa.BaseExtensionType) else column


def _drafts(rows: Any, cells: list[Cells], *, first: int) -> Iterator[Draft]:
    """Yield the records in a few rows, the first of which has the number `first`."""
    decodes = [(each, each.decode) for each in cells]
    for number, row in enumerate(zip(*[each.values(_column(rows, each.column)) for each in cells], strict=True), first):
        fields: dict[str, Any] = {}
        for (each, decode), value in zip(decodes, row, strict=True):
            try:
                fields[each.field] = value if decode is None else decode(value)
            except InvalidRecord as error:
                raise BadRecord(number, str(error), unit="row", column=each.column) from None
        keys = fields.get(HEADER_KEYS)
        headers = fields.get("headers", ())
        if keys is not None:
            if len(keys) != len(headers) or None in keys:
                reason = f"{counted(len(keys), 'key')} for {counted(len(headers), 'header')}"
                raise BadRecord(number, reason, unit="row", column=HEADER_KEYS)
            headers = tuple([(_key_text(key), value) for key, (_, value) in zip(keys, headers, strict=True)])
        headers += tuple(
            [(name, data) for field, data in fields.items() if (name := header_name(field)) and data is not None]
        )
        yield Draft(fields["value"], fields.get("key"), headers, fields.get("timestamp"), fields.get("partition"))
