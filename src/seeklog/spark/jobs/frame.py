"""A DataFrame of rows that are in the driver: given as Arrow, Spark keeps them with the plan and starts no task."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from seeklog.record.arrow import import_pyarrow
from seeklog.spark.read.schema import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def frame_of(spark: SparkSession, schema: StructType, rows: Sequence[Mapping[str, object]]) -> DataFrame:
    """Return rows as a DataFrame; a column that a row does not have is null."""
    with without_pandas_warning():
        if not rows and is_remote(spark):
            # Spark Connect refuses an Arrow table without rows.
            return spark.createDataFrame([], schema)
        return spark.createDataFrame(import_pyarrow().Table.from_pylist(list(rows), schema=arrow_schema(schema)))


def is_remote(spark: SparkSession) -> bool:
    """Tell whether a session is Spark Connect's."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@contextmanager
def without_pandas_warning() -> Iterator[None]:
    """Keep PySpark from warning of a pandas that is too new for it: pandas is not used here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\.")
        yield
