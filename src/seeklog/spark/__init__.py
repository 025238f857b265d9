"""Spark over seeklog: the data source `format("seeklog")`, a tuned local session, and jobs.

Needs the `spark` extra. PySpark is imported on first use.

Spark asks a Python process for its data sources. By default it starts the python3 on the path. Without an activated
virtual environment that is another Python, which does not find this source. So import this package before the first
session is created: it sets PYSPARK_PYTHON to this process's Python, unless something else is chosen.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from seeklog.errors import MissingExtra

if TYPE_CHECKING:
    from seeklog.spark.local.session import session as session
    from seeklog.spark.read.lag import LagListener as LagListener
    from seeklog.spark.read.lag import QueryLag as QueryLag

if find_spec("pyspark") is None:
    raise MissingExtra('Spark is not installed; run: pip install "seeklog[spark]"')
# Under spark-submit the JVM is already running, with the Python that its configuration names.
_is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
if sys.executable and not _is_submitted and "spark.pyspark.python" not in os.environ.get("PYSPARK_SUBMIT_ARGS", ""):
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# The module of each public name, imported on first access.
_MODULES = {
    "LagListener": "seeklog.spark.read.lag",
    "QueryLag": "seeklog.spark.read.lag",
    "session": "seeklog.spark.local.session",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
