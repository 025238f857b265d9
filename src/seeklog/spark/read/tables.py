"""Metadata tables: `option("table", ...)`. They come from headers, seals and indexes; records are not read.

segments   a row for each segment: what its file holds. `record_count` is how many records stand in its batches.
batches    a row for each batch that can be read, as its header has it.
offsets    a row for each partition. `record_count` is how many rows a read from earliest to latest has.
groups     a row for each partition that a consumer group has committed or has assigned to a member.

Markers of transactions (control batches) are nobody's records and count nowhere, except where a batch's own header
is shown. Offsets that compaction has left out do not count either, so `record_count` is not a difference of offsets.
The seal's count is taken for a segment that seeklog began itself; only raw batches appended by hand could have brought
markers into one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from seeklog.files import translate
from seeklog.record.arrow import import_pyarrow
from seeklog.spark.read import table_rows
from seeklog.spark.read.options import Choice, TableOptions
from seeklog.spark.read.schema import arrow_schema, check_schema
from seeklog.spark.read.table_rows import TableSplit
from seeklog.store import Store, open_store

if TYPE_CHECKING:
    import pyarrow

ROWS_PER_BATCH: Final = 8192

_TYPES: Final[Mapping[str, DataType]] = {
    "string": StringType(),
    "int": IntegerType(),
    "long": LongType(),
    "time": TimestampType(),
    "flag": BooleanType(),
}


def _struct(columns: str) -> StructType:
    return StructType(
        [StructField(name, _TYPES[kind]) for name, kind in (column.split() for column in columns.strip().splitlines())]
    )


SCHEMAS: Final[Mapping[str, StructType]] = {
    "segments": _struct(
        """topic string
        partition int
        base_offset long
        next_offset long
        size long
        batch_count long
        record_count long
        first_timestamp time
        max_timestamp time
        is_sealed flag
        is_contiguous flag
        sealed_at time
        offset_index_size long
        time_index_size long
        path string"""
    ),
    "batches": _struct(
        """topic string
        partition int
        segment long
        position long
        size long
        base_offset long
        last_offset long
        record_count int
        codec string
        timestamp_type int
        first_timestamp time
        max_timestamp time
        leader_epoch int
        producer_id long
        producer_epoch int
        base_sequence int
        is_transactional flag
        is_control flag
        crc long"""
    ),
    "offsets": _struct(
        """topic string
        partition int
        log_start_offset long
        high_watermark long
        log_end_offset long
        record_count long
        batch_count long
        size long
        segment_count int
        first_timestamp time
        max_timestamp time
        topic_id string
        path string"""
    ),
    "groups": _struct(
        """group string
        topic string
        partition int
        committed_offset long
        log_start_offset long
        high_watermark long
        lag long
        metadata string
        commit_timestamp time
        generation int
        member_id string
        client_id string"""
    ),
}


def table_schema(table: str) -> StructType:
    """Return the columns of a metadata table."""
    return SCHEMAS[table]


class TableReader(DataSourceReader):
    """Reads a metadata table."""

    def __init__(self, options: TableOptions, schema: StructType) -> None:
        known = SCHEMAS[options.table]
        self._columns = check_schema(schema, known, what=f"the table {options.table}")
        self._places = [known.fieldNames().index(name) for name in self._columns]
        self._schema = arrow_schema(schema)
        self._options = options

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with open_store(
            options.path, read_only=True, background=False, storage_options=options.storage_options
        ) as store:
            return list(_PLANNERS[options.table](store, options.choice))

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        if not isinstance(partition, TableSplit):
            return  # Spark makes a partition of its own where there is none
        rows = _ROWS[self._options.table](partition)
        try:
            while chunk := list(islice(rows, ROWS_PER_BATCH)):
                yield self._batch(chunk)
        except OSError as error:
            gone = "it was deleted meanwhile, read the table again" if isinstance(error, FileNotFoundError) else ""
            raise translate(
                error, f"a file of the store at {partition.origin.root} cannot be read", advice=gone
            ) from error

    def _batch(self, rows: list[tuple[Any, ...]]) -> pyarrow.RecordBatch:
        pa = import_pyarrow()
        columns = list(zip(*rows, strict=True))
        arrays = [pa.array(columns[place], field.type) for place, field in zip(self._places, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


_PLANNERS: Final[Mapping[str, Callable[[Store, Choice], Sequence[InputPartition]]]] = {
    "segments": table_rows.plan_segments,
    "batches": table_rows.plan_batches,
    "offsets": table_rows.plan_offsets,
    "groups": table_rows.plan_groups,
}
_ROWS: Final[Mapping[str, Callable[[Any], Iterator[tuple[Any, ...]]]]] = {
    "segments": table_rows.segment_rows,
    "batches": table_rows.batch_rows,
    "offsets": table_rows.offset_rows,
    "groups": table_rows.group_rows,
}
