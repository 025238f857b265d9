"""`format("seeklog")`: what Spark makes when it is asked for the data source. Modules are loaded when they are used."""

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
    """The topics of a store, or of a broker's data directory, as Spark reads and writes them."""

    @classmethod
    def name(cls) -> str:
        return "seeklog"

    def schema(self) -> StructType:
        from seeklog.spark import catalog
        from seeklog.spark.read import batch

        made_with = catalog.creation_options(self.options)
        if made_with is None:
            return batch.schema_of(self.options)
        return catalog.remember(batch.schema_of(made_with), made_with)

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

        # In complete mode (`overwrite`) the whole result is appended each time, as Spark's Kafka sink does.
        return StreamWriter(self.options, schema)
