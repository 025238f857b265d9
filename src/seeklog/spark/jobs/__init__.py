"""Jobs over the files of a whole store, or of a broker's data directory.

`verify` checks the files, `reindex` rebuilds indexes, `compact` keeps the latest record of each key, `stats` counts,
`archive` copies sealed segments unchanged, `to_lake` copies them to Parquet, `read_lake` reads that Parquet and the
log as one DataFrame, and `load_into` appends a DataFrame to a topic. In all but the last two, tasks read the segment
files themselves and no record goes through the JVM. All jobs run in a classic session and in Spark Connect, on a file
system that driver and executors share.
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
