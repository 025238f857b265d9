"""Jobs over the files of a whole store, or of a broker's data directory.

`verify` checks them, `reindex` rebuilds their indexes, `compact` keeps the latest record of each key, `stats` counts,
`archive` copies sealed segments as they are, `to_lake` copies them to Parquet and `read_lake` reads those and the log
as one; `load_into` brings other data into a topic. All but the last carry the bytes of segments into tasks; no record
goes through the JVM. All work in a classic session and in Spark Connect, where the files must lie on a file system that
driver and executors share.
"""

from __future__ import annotations

from seeklog.spark.jobs.archiving import archive
from seeklog.spark.jobs.compacting import compact
from seeklog.spark.jobs.importing import Imported, load_into
from seeklog.spark.jobs.lake import to_lake
from seeklog.spark.jobs.lake_reading import read_lake
from seeklog.spark.jobs.reindexing import reindex
from seeklog.spark.jobs.statistics import stats
from seeklog.spark.jobs.verification import verify

__all__ = ["Imported", "archive", "compact", "load_into", "read_lake", "reindex", "stats", "to_lake", "verify"]
