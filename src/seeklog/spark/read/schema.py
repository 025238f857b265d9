"""The schemas of records and tables for Spark and Arrow, and the check of a user's schema."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types
from pyspark.sql.types import ArrayType, DataType, StructField, StructType

from seeklog.errors import UsageError
from seeklog.record.arrow import import_pyarrow

if TYPE_CHECKING:
    import pyarrow

_TYPES: Final[dict[str, DataType]] = {
    kind.simpleString(): kind
    for kind in (
        types.BinaryType(),
        types.BooleanType(),
        types.DoubleType(),
        types.IntegerType(),
        types.LongType(),
        types.StringType(),
        types.TimestampType(),
    )
}
# Commas outside of structs.
_BETWEEN_COLUMNS: Final = re.compile(r",\s+(?![^<]*>)")


def parse_schema(columns: str) -> StructType:
    """Return the schema of `name type, name type, …`. Spark's parser would need a session."""
    pairs = (column.split(maxsplit=1) for column in _BETWEEN_COLUMNS.split(columns.strip()))
    return StructType([StructField(name, _parse_type(kind)) for name, kind in pairs])


def _parse_type(kind: str) -> DataType:
    if kind.startswith("array<"):
        return ArrayType(_parse_type(kind[len("array<") : -1]))
    if kind.startswith("struct<"):
        fields = (field.split(": ") for field in kind[len("struct<") : -1].split(", "))
        return StructType([StructField(name, _TYPES[inner]) for name, inner in fields])
    return _TYPES[kind]


RECORD_SCHEMA: Final = parse_schema(
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
# Set in every record. Any other column may have nulls, and Spark does not check a schema that denies them.
NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})


def pick(known: StructType, columns: Sequence[str]) -> StructType:
    """Return the schema of some columns, in the given order."""
    return StructType([known[name] for name in columns])


def check_schema(
    given: StructType, known: StructType, *, subject: str, never_null: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the columns of a user's schema; refuse an unknown column and a wrong type."""
    columns = tuple(given.fieldNames())
    if not columns:
        raise UsageError(f"the schema names no column; {subject} has {', '.join(known.fieldNames())}")
    for field in given.fields:
        if field.name not in known.fieldNames():
            raise UsageError(f"{subject} has no column {field.name}; it has {', '.join(known.fieldNames())}")
        wanted = known[field.name].dataType
        if field.dataType.simpleString() != wanted.simpleString():
            raise UsageError(
                f"column {field.name} of {subject} is {wanted.simpleString()}, not {field.dataType.simpleString()}; "
                "read it with its type and cast it afterwards"
            )
        if field.dataType != wanted or not (field.nullable or field.name in never_null):
            raise UsageError(f"column {field.name} of {subject} may have nulls; remove NOT NULL (nullable=False)")
        if columns.count(field.name) > 1:
            raise UsageError(f"the schema names column {field.name} {columns.count(field.name)} times; name it once")
    return columns


def arrow_schema(schema: StructType) -> pyarrow.Schema:
    """Return the Arrow schema that Spark requires for these columns, nullability included."""
    pa = import_pyarrow()
    return pa.schema([pa.field(field.name, _arrow_type(pa, field.dataType), field.nullable) for field in schema.fields])


def _arrow_type(pa: Any, kind: DataType) -> Any:
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", _arrow_type(pa, kind.elementType), kind.containsNull))
    if isinstance(kind, StructType):
        return pa.struct(list(arrow_schema(kind)))
    return {
        "binary": pa.binary(),
        "string": pa.string(),
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "double": pa.float64(),
        "timestamp": pa.timestamp("us", "UTC"),
    }[kind.simpleString()]
