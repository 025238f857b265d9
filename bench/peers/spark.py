"""The limits of Python data sources in Spark: a source that repeats one batch, and a sink that discards rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    InputPartition,
    WriterCommitMessage,
)

from seeklog.spark.read.schema import RECORD_SCHEMA, arrow_schema, pick

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql.types import StructType

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


@dataclass
class Piece(InputPartition):
    """The number of rows of one task."""

    rows: int


class CeilingSource(DataSource):
    """Rows like those of the log, created once per task and repeated."""

    @classmethod
    def name(cls) -> str:
        return "bench_ceiling"

    def schema(self) -> StructType:
        return pick(RECORD_SCHEMA, COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        return CeilingReader(
            int(self.options["rows"]), int(self.options["tasks"]), int(self.options["batchrows"]), schema
        )


class CeilingReader(DataSourceReader):
    def __init__(self, rows: int, tasks: int, batch_rows: int, schema: StructType) -> None:
        self._rows = rows
        self._tasks = tasks
        self._batch_rows = batch_rows
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        return [Piece(self._rows // self._tasks) for _ in range(self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Piece)
        batch = same_batch(self._batch_rows, arrow_schema(self._schema))
        left = partition.rows
        while left > 0:
            yield batch if left >= batch.num_rows else batch.slice(0, left)
            left -= batch.num_rows


def same_batch(rows: int, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with rows of the same size as those of the log."""
    arrays = [
        pa.array([number.to_bytes(8, "big") for number in range(rows)], pa.binary()),
        pa.array([bytes([number % 256]) * 100 for number in range(rows)], pa.binary()),
        pa.array(["payments"] * rows, pa.string()),
        pa.array([0] * rows, pa.int32()),
        pa.array(range(rows), pa.int64()),
        pa.array(range(rows), schema.field("timestamp").type),
        pa.array([0] * rows, pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class NullSink(DataSource):
    """Discards the rows of a stream."""

    @classmethod
    def name(cls) -> str:
        return "bench_null"

    def streamWriter(self, schema: StructType, overwrite: bool) -> NullWriter:  # noqa: N802
        return NullWriter()


@dataclass
class Discarded(WriterCommitMessage):
    rows: int


class NullWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Discarded:
        return Discarded(sum(batch.num_rows for batch in iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        pass
