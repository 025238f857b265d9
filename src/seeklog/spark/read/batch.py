"""`spark.read`: the reader of a batch. Spark plans it once, at the first action: it always reads the same offsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from seeklog.errors import InvalidConfig
from seeklog.spark.read.offsets import batch_ranges, key_ranges
from seeklog.spark.read.options import ReadOptions, parse_columns, parse_read_options, parse_table_options, wants_table
from seeklog.spark.read.plan import Split, plan_splits
from seeklog.spark.read.scan import scan_split
from seeklog.spark.read.schema import NEVER_NULL, RECORD_SCHEMA, arrow_schema, check_schema, pick
from seeklog.spark.read.tables import TABLES, TableReader

if TYPE_CHECKING:
    import pyarrow


def schema_of(options: Mapping[str, str]) -> StructType:
    """Return the columns of a batch or a stream with these options. Spark does not say which of the two it is."""
    if wants_table(options):
        return TABLES[parse_table_options(options).table].schema
    return pick(RECORD_SCHEMA, parse_columns(options))


def batch_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """Return the reader of records, or of a metadata table."""
    if wants_table(options):
        return TableReader(parse_table_options(options), schema)
    columns = check_schema(schema, RECORD_SCHEMA, subject="a topic", never_null=NEVER_NULL)
    parsed = parse_read_options(options)
    if columns != parsed.columns and "columns" in options:
        raise InvalidConfig(
            f"option columns is {','.join(parsed.columns)}, but the schema of this read is {','.join(columns)}; "
            "set one of the two (the columns of a table are fixed when it is created)"
        )
    return RecordReader(parsed, schema)


class RecordReader(DataSourceReader):
    """Reads records. Created in the planner, and pickled into every task."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = arrow_schema(schema)

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with options.open() as store:
            ranges = batch_ranges(store, options)
            if options.keys:
                ranges = key_ranges(store, ranges, options.keys)
            return list(plan_splits(store, ranges, **options.split_limits))

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        # Spark passes an `InputPartition` if there is nothing to read.
        return scan_split(partition, self._schema) if isinstance(partition, Split) else iter(())
