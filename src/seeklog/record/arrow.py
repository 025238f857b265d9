"""Decoded columns as Arrow record batches, without copying. Needs the `arrow` extra.

key        binary, null where the record has none      timestamp       timestamp[ms or us, UTC], not null
value      binary, null for a tombstone                headers         list<struct<key: string, value: binary>>
offset     int64, not null                             timestampType   int32, not null: 0 CreateTime, 1 LogAppendTime

`timestampType`, named as in Spark, is built only on request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from seeklog.errors import UsageError, import_failed
from seeklog.record.columns import filled_lists

if TYPE_CHECKING:
    import pyarrow

COLUMNS: Final = ("key", "value", "offset", "timestamp", "headers")
ALL_COLUMNS: Final = (*COLUMNS, "timestampType")
TimestampUnit = Literal["ms", "us"]
TIMESTAMP_SCALES: Final = {"ms": 1, "us": 1000}

_Bytes = tuple[int, int, Any, Any, Any]


def import_pyarrow() -> Any:
    """Return pyarrow, or raise `MissingExtra`."""
    try:
        import pyarrow
    except ImportError as error:
        missing = 'Arrow columns need pyarrow: pip install "seeklog[arrow]"'
        raise import_failed(error, "pyarrow", missing=missing) from error
    return pyarrow


def check_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the requested columns, or raise `UsageError` for an unknown or repeated name."""
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    for name in names:
        if name not in ALL_COLUMNS:
            raise UsageError(f"there is no column {name!r}; the columns are {', '.join(ALL_COLUMNS)}")
    if not names or len(set(names)) != len(names):
        raise UsageError("name at least one column, and each only once")
    return names


def schema(columns: Sequence[str], *, timestamp_unit: TimestampUnit = "ms") -> pyarrow.Schema:
    """Return the Arrow schema of the columns, in the requested order."""
    pa = import_pyarrow()
    if timestamp_unit not in TIMESTAMP_SCALES:
        raise UsageError(f'timestamp_unit must be "ms" or "us", not {timestamp_unit!r}')
    fields = {
        "key": pa.field("key", pa.binary()),
        "value": pa.field("value", pa.binary()),
        "offset": pa.field("offset", pa.int64(), nullable=False),
        "timestamp": pa.field("timestamp", pa.timestamp(timestamp_unit, "UTC"), nullable=False),
        "headers": pa.field("headers", _header_list(pa)),
        "timestampType": pa.field("timestampType", pa.int32(), nullable=False),
    }
    return pa.schema([fields[name] for name in columns])


def _header_list(pa: Any) -> Any:
    return pa.list_(pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]))


def record_batch(
    columns: dict[str, Any], rows: int, schema: pyarrow.Schema, *, headers_null: bool = False
) -> pyarrow.RecordBatch:
    """Return finished columns as one Arrow batch of `schema`.

    The schema must have the types of `schema()`. The caller chooses nullability at any depth, the item names of lists
    and the metadata. With `headers_null`, a record without headers gets null instead of an empty list, as in Spark's
    Kafka source.
    """
    pa = import_pyarrow()
    binary = pa.binary()
    arrays = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        buffers = columns[name]
        if name in ("key", "value"):
            arrays.append(_binary(pa, buffers, binary))
        elif name == "headers":
            arrays.append(_headers(pa, buffers, rows, kind, headers_null))
        else:
            arrays.append(pa.Array.from_buffers(kind, rows, [None, buffers], 0))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _binary(pa: Any, buffers: _Bytes, kind: Any) -> Any:
    rows, null_count, valid, ends, data = buffers
    return pa.Array.from_buffers(kind, rows, [valid, ends, data], null_count)


def _headers(pa: Any, buffers: tuple[Any, _Bytes, _Bytes], rows: int, kind: Any, empty_is_null: bool) -> Any:
    ends, keys, values = buffers
    key_array = _binary(pa, keys, pa.string())
    if not memoryview(keys[4]).tobytes().isascii():
        # Header keys are text in Arrow and Spark, so bytes that are not UTF-8 are replaced.
        texts = [key.decode("utf-8", "replace") for key in _binary(pa, keys, pa.binary()).to_pylist()]
        key_array = pa.array(texts, pa.string())
    pairs = pa.StructArray.from_arrays([key_array, _binary(pa, values, pa.binary())], fields=list(kind.value_type))
    null_count, bits = filled_lists(ends, rows) if empty_is_null else (0, bytearray())
    valid = pa.py_buffer(bits) if null_count else None
    return pa.ListArray.from_buffers(kind, rows, [valid, ends], null_count, 0, [pairs])
