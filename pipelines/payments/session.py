"""The Spark session that the command line runs the pipeline in."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession


def session() -> SparkSession:
    """Return a small local session."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    made = (
        SparkSession.builder.master("local[2]")
        .appName("payments")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("ERROR")
    return made
