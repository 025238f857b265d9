"""The entry point for Spark, which looks for `DefaultSource` in every package named pyspark_*.

An error here would stop Spark from finding any data source, so this imports the class only. The class loads its
modules on first use.
"""

from seeklog.spark.source import SeeklogDataSource as DefaultSource

__all__ = ["DefaultSource"]
