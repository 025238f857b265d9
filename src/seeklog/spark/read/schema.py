"""Columns as Spark and Arrow know them, and a user's own schema checked against them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from seeklog.errors import UsageError
from seeklog.record.arrow import import_pyarrow

if TYPE_CHECKING:
    import pyarrow

_TYPES: Final[dict[str, DataType]] = {
    kind.simpleString(): kind
    for kind in (
        BinaryType(),
        BooleanType(),
        DoubleType(),
        IntegerType(),
        LongType(),
        StringType(),
        TimestampType(),
    )
}
# Commas that are not inside of a struct.
_BETWEEN_COLUMNS: Final = re.compile(r",\s+(?![^<]*>)")


def parse_schema(columns: str) -> StructType:
    """Return the schema of `name type, name type, …`. Spark's own parser would need a session."""
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
# No record lacks them. Every other column may have nulls, and Spark believes a schema that says there are none.
NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})


def pick(known: StructType, columns: Sequence[str]) -> StructType:
    """Return the schema of some of the known columns, in the order asked for."""
    return StructType([known[name] for name in columns])


def check_schema(
    given: StructType, known: StructType, *, what: str, never_null: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the columns that a user's schema asks for; refuse one that is not there, or is of another type."""
    columns = tuple(given.fieldNames())
    if not columns:
        raise UsageError(f"the schema names no column; {what} has {', '.join(known.fieldNames())}")
    for field in given.fields:
        if field.name not in known.fieldNames():
            raise UsageError(f"{what} has no column {field.name}; it has {', '.join(known.fieldNames())}")
        wanted = known[field.name].dataType
        if field.dataType.simpleString() != wanted.simpleString():
            raise UsageError(
                f"column {field.name} of {what} is {wanted.simpleString()}, not {field.dataType.simpleString()}; "
                "read it as it is and cast it afterwards"
            )
        if field.dataType != wanted or not (field.nullable or field.name in never_null):
            raise UsageError(f"column {field.name} of {what} may have nulls; leave out NOT NULL (nullable=False)")
        if columns.count(field.name) > 1:
            raise UsageError(f"the schema names column {field.name} {columns.count(field.name)} times; once is enough")
    return columns


def arrow_schema(schema: StructType) -> pyarrow.Schema:
    """Return the Arrow schema that Spark demands of batches with these columns, nullability included."""
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
