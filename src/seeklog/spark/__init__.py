"""Spark over seeklog: the data source `format("seeklog")`, a tuned local session, and jobs.

Needs the `spark` extra. PySpark is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seeklog.spark.local.session import session as session
    from seeklog.spark.read.lag import LagListener as LagListener
    from seeklog.spark.read.lag import QueryLag as QueryLag

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
