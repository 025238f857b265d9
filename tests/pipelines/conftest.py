"""Fixtures of the pipeline tests, which need a Spark session."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
for path in (ROOT, HERE):
    # This directory must not be a package, which would hide the package `pipelines`.
    if str(path) not in sys.path:
        sys.path.insert(0, str(path))

from payments_place import Place  # noqa: E402


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """The environment of processes that start Spark or are started by it: the same Python and path."""
    paths = [str(ROOT), str(ROOT / "src"), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


@pytest.fixture(scope="session")
def spark(spark: SparkSession) -> SparkSession:
    """The session of all tests, in a time zone that must not affect results."""
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    return session


@pytest.fixture(scope="session")
def undisturbed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """The result of one run of the pipeline without a kill."""
    place = Place(tmp_path_factory.mktemp("undisturbed"))
    place.run(spark)
    return place
