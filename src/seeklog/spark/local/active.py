"""Which session a thread works with.

Spark keeps the active session by the thread of its JVM, and every Python thread has one of its own there. Reads go by
the session that they are called on. A write looks for its data source in the active session, so that the first thing
that a thread does must not be a write: `DATA_SOURCE_NOT_FOUND`, though the second write finds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def make_active(spark: SparkSession) -> None:
    """Make a session the active one of this thread."""
    # No job runs: it is what PySpark offers that says so to the JVM.
    spark.createDataFrame([], "nothing int")


def running_session() -> SparkSession | None:
    """Return the session of this process, made active in this thread, or None if there is none."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    other: SparkSession | None = getattr(SparkSession, "_instantiatedSession", None)
    if other is None or other.sparkContext._jsc is None:
        return None
    make_active(other)
    return other
