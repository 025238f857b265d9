"""`format("seeklog")`: the data source that Spark creates. Imports of its parts are delayed until they are used."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType


class SeeklogDataSource(DataSource):
    """The topics of a store, or of a broker's data directory, as a source and a sink."""

    @classmethod
    def name(cls) -> str:
        return "seeklog"

    def schema(self) -> StructType:
        from seeklog.spark import catalog
        from seeklog.spark.read import batch

        created_with = catalog.creation_options(self.options)
        if created_with is None:
            return batch.schema_of(self.options)
        return catalog.remember(batch.schema_of(created_with), created_with)

    def reader(self, schema: StructType) -> DataSourceReader:
        from seeklog.spark import catalog
        from seeklog.spark.read import batch

        return batch.batch_reader(catalog.recall(self.options, schema), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        from seeklog.spark import catalog
        from seeklog.spark.read.stream import StreamReader

        return StreamReader(catalog.recall(self.options, schema), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from seeklog.spark import catalog
        from seeklog.spark.write import sink

        return sink.batch_writer(catalog.recall_to_write(self.options, schema), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from seeklog.spark.write.sink import StreamWriter

        # In complete mode (`overwrite`) the whole result is appended each time, as by Spark's Kafka sink.
        return StreamWriter(self.options, schema)
