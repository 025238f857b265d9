"""The pipelines stand beside the package, and their tests need a Spark session."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
for path in (ROOT, HERE):
    # This directory must not be a package: it would hide the one whose name it has.
    if str(path) not in sys.path:
        sys.path.insert(0, str(path))

from payments_place import Place  # noqa: E402


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """What a process needs that Spark starts, or that starts Spark: the same Python, and the same path."""
    paths = [str(ROOT), str(ROOT / "src"), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


@pytest.fixture(scope="session")
def spark(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A classic session with two tasks at a time, in a time zone that no result may depend on."""
    os.environ.update(environment)
    home = tmp_path_factory.mktemp("spark")
    logging = home / "log4j2.properties"
    logging.write_text("rootLogger.level = off\n")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("pipeline tests")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "Asia/Kolkata")
        .config("spark.sql.warehouse.dir", str(home / "warehouse"))
        # The tests are short: code that is compiled once and quickly is what they need.
        .config("spark.driver.extraJavaOptions", f"-XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile={logging}")
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def undisturbed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A place where the pipeline ran once, from beginning to end."""
    place = Place(tmp_path_factory.mktemp("undisturbed"))
    place.run(spark)
    return place
