"""Jobs over the files of a whole store, or of a broker's data directory: `verify` and `reindex`.

They carry the bytes of segments into tasks; no record goes through the JVM. Both work in a classic session and in
Spark Connect, where the files must lie on a file system that driver and executors share.
"""

from __future__ import annotations

from seeklog.spark.jobs.reindexing import reindex
from seeklog.spark.jobs.verification import verify

__all__ = ["reindex", "verify"]
