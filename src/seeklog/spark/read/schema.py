"""The columns of a read as Spark and Arrow know them, and a user's own schema held against them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
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

HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
RECORD_SCHEMA: Final = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", HEADERS),
    ]
)
# No record lacks them; of all others a read may have nulls, and Spark takes a column's word that it has none.
NEVER_NULL: Final = frozenset({"topic", "partition", "offset", "timestamp", "timestampType"})


def pick(known: StructType, columns: Sequence[str]) -> StructType:
    """Return the schema of some of the known columns, in the order asked for."""
    return StructType([known[name] for name in columns])


def check_schema(
    given: StructType, known: StructType, *, what: str, never_null: Collection[str] = ()
) -> tuple[str, ...]:
    """Return the columns that a user's schema asks for, or refuse one that is not there, or is of another type."""
    columns = tuple(given.fieldNames())
    if not columns:
        raise UsageError(f"the schema names no column; {what} has {', '.join(known.fieldNames())}")
    for field in given.fields:
        if field.name not in known.fieldNames():
            raise UsageError(f"{what} has no column {field.name}; it has {', '.join(known.fieldNames())}")
        wanted = known[field.name].dataType
        if not _is_same(field.dataType, wanted):
            raise UsageError(
                f"column {field.name} of {what} is {wanted.simpleString()}, not {field.dataType.simpleString()}; "
                "read it as it is and cast it afterwards"
            )
        if field.dataType != wanted or not (field.nullable or field.name in never_null):
            raise UsageError(f"column {field.name} of {what} may have nulls; leave out NOT NULL (nullable=False)")
    for name in columns:
        if columns.count(name) > 1:
            raise UsageError(f"the schema names column {name} {columns.count(name)} times; once is enough")
    return columns


def _is_same(given: DataType, wanted: DataType) -> bool:
    return given.simpleString() == wanted.simpleString()


def arrow_schema(schema: StructType) -> pyarrow.Schema:
    """Return the Arrow schema that Spark demands of batches with these columns, nullability included."""
    pa = import_pyarrow()
    return pa.schema([pa.field(field.name, _arrow_type(pa, field.dataType), field.nullable) for field in schema.fields])


def _arrow_type(pa: Any, kind: DataType) -> Any:
    if isinstance(kind, ArrayType):
        return pa.list_(pa.field("element", _arrow_type(pa, kind.elementType), kind.containsNull))
    if isinstance(kind, StructType):
        return pa.struct([pa.field(one.name, _arrow_type(pa, one.dataType), one.nullable) for one in kind.fields])
    return {
        "binary": pa.binary(),
        "string": pa.string(),
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
    }[kind.simpleString()]
