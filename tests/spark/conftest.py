"""One Spark session for all of these tests: small, quiet, and with workers that find the data source."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

SOURCES = Path(__file__).resolve().parents[2] / "src"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A classic session with two tasks at a time."""
    # Spark looks for data sources in a process of its own: what this one has on its path must be in the environment.
    paths = [str(SOURCES), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    home = tmp_path_factory.mktemp("spark")
    logging = home / "log4j2.properties"
    logging.write_text("rootLogger.level = off\n")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("seeklog tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        # The tests are short: code that is compiled once and quickly is what they need.
        .config("spark.driver.extraJavaOptions", f"-XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={logging}")
        .getOrCreate()
    )
    yield session
    session.stop()
