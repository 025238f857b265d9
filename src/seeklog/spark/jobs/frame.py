"""A DataFrame of rows that are in the driver: given as Arrow, Spark keeps them with the plan and starts no task."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame_of(spark: SparkSession, columns: Mapping[str, str], rows: Sequence[tuple[object, ...]]) -> DataFrame:
    """Return rows as a DataFrame; `columns` are names and types, which are string, int or bigint."""
    import pyarrow

    types = {"string": pyarrow.string(), "int": pyarrow.int32(), "bigint": pyarrow.int64()}
    schema = pyarrow.schema([(name, types[word]) for name, word in columns.items()])
    arrays = [pyarrow.array([row[place] for row in rows], field.type) for place, field in enumerate(schema)]
    with no_word_of_pandas():
        if not rows and is_remote(spark):
            # Spark Connect refuses an Arrow table without rows.
            return spark.createDataFrame([], ", ".join(f"{name} {word}" for name, word in columns.items()))
        return spark.createDataFrame(pyarrow.Table.from_arrays(arrays, schema=schema))


def is_remote(spark: SparkSession) -> bool:
    """Tell whether a session is Spark Connect's."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@contextmanager
def no_word_of_pandas() -> Iterator[None]:
    """Keep PySpark from warning of a pandas that is too new for it: nothing here is pandas'."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\.")
        yield
