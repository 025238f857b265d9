"""`format("seeklog")`: what Spark makes when it is asked for the data source. The work is done in modules loaded later."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource


class SeeklogDataSource(DataSource):
    """The topics of a store, or of a broker's data directory, as Spark reads and writes them."""

    @classmethod
    def name(cls) -> str:
        return "seeklog"
