"""Where Spark finds the data source: it looks for `DefaultSource` in every package that is called pyspark_*.

An error here would keep it from finding any other source, so nothing is imported but the class, which loads the rest
when it is used.
"""

from seeklog.spark.source import SeeklogDataSource as DefaultSource

__all__ = ["DefaultSource"]
