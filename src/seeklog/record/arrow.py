"""Kernel columns as Arrow record batches, without copying them. Needs the `arrow` extra.

key        binary, null where the record has none      timestamp       timestamp[ms or us, UTC], not null
value      binary, null for a tombstone                headers         list<struct<key: string, value: binary>>
offset     int64, not null                             timestampType   int32, not null: 0 CreateTime, 1 LogAppendTime

The last one, which has the name that Spark gives it, is built only where it is asked for by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from seeklog.errors import UsageError

if TYPE_CHECKING:
    import pyarrow

COLUMNS: Final = ("key", "value", "offset", "timestamp", "headers")
ALL_COLUMNS: Final = (*COLUMNS, "timestampType")
TimestampUnit = Literal["ms", "us"]
TIMESTAMP_SCALES: Final = {"ms": 1, "us": 1000}

_Bytes = tuple[int, int, bytearray | None, bytearray, bytearray]


def import_pyarrow() -> Any:
    """Return pyarrow, or say how to get it."""
    try:
        import pyarrow
    except ImportError as error:
        raise UsageError('Arrow columns need pyarrow: pip install "seeklog[arrow]"') from error
    return pyarrow


def check_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """Return the columns asked for, or refuse a name that is none."""
    names = (columns,) if isinstance(columns, str) else tuple(columns)
    for name in names:
        if name not in ALL_COLUMNS:
            raise UsageError(f"no column {name!r}; there are {', '.join(ALL_COLUMNS)}")
    if not names or len(set(names)) != len(names):
        raise UsageError("name each column once, and at least one")
    return names


def schema(columns: Sequence[str], *, timestamp_unit: TimestampUnit = "ms") -> pyarrow.Schema:
    """Return the Arrow schema of the columns, in the order asked for."""
    pa = import_pyarrow()
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


def record_batch(columns: dict[str, Any], rows: int, schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    """Return the kernel's finished columns as one Arrow batch."""
    pa = import_pyarrow()
    arrays = []
    for field in schema:
        buffers = columns[field.name]
        if field.name in ("key", "value"):
            arrays.append(_binary(pa, buffers, pa.binary()))
        elif field.name == "headers":
            arrays.append(_headers(pa, buffers, rows, field.type))
        else:
            arrays.append(pa.Array.from_buffers(field.type, rows, [None, pa.py_buffer(buffers)]))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _binary(pa: Any, buffers: _Bytes, kind: Any) -> Any:
    rows, null_count, valid, ends, data = buffers
    validity = None if valid is None else pa.py_buffer(valid)
    return pa.Array.from_buffers(kind, rows, [validity, pa.py_buffer(ends), pa.py_buffer(data)], null_count)


def _headers(pa: Any, buffers: tuple[bytearray, _Bytes, _Bytes], rows: int, kind: Any) -> Any:
    ends, keys, values = buffers
    key_array = _binary(pa, keys, pa.string())
    if not keys[4].isascii():
        # Header keys are text in Arrow and Spark; bytes that are none must not reach them.
        texts = [key.decode("utf-8", "replace") for key in _binary(pa, keys, pa.binary()).to_pylist()]
        key_array = pa.array(texts, pa.string())
    pairs = pa.StructArray.from_arrays([key_array, _binary(pa, values, pa.binary())], fields=list(kind.value_type))
    return pa.ListArray.from_buffers(kind, rows, [None, pa.py_buffer(ends)], 0, 0, [pairs])
