"""`compact`: compacts partitions of a store, one task per partition."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from seeklog import names
from seeklog.arguments import check_flags
from seeklog.config import LogConfig
from seeklog.errors import LogLocked, SeeklogError, UsageError, counted
from seeklog.files import OsFiles
from seeklog.log import BUFFER_BYTES, Compacted
from seeklog.spark.jobs.partitions import ONLY_BROKER_WRITES, open_log, parse_config
from seeklog.spark.jobs.progress import Progress, readable, tally
from seeklog.spark.jobs.tasks import frame_of, run_tasks
from seeklog.spark.option_map import local_path
from seeklog.spark.read.schema import parse_schema
from seeklog.store import open_store
from seeklog.topics.scope import PartitionLocation, find_partitions

OUTCOMES = parse_schema(
    "topic string, partition int, done string, rounds int, segments_before bigint, segments_after bigint, "
    "records_before bigint, records_after bigint, bytes_before bigint, bytes_after bigint, first_dirty_offset bigint, "
    "detail string"
)


def compact(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    topics: Iterable[str] | None = None,
    config: LogConfig | Mapping[str, Any] | None = None,
    buffer_bytes: int = BUFFER_BYTES,
    progress: bool = True,
) -> DataFrame:
    """Compact every partition of a store's compacted topics, or of the given `topics`, whether due or not.

    All work is done on return. The DataFrame has a row per partition, and its column `done` is `compacted`,
    `unchanged`, `locked` (another process writes the partition), or `refused` (it cannot be opened or compacted).
    A task locks only the partition it compacts. A job that was stopped can be run again and keeps what it had done.

    Each task takes `buffer_bytes` of memory for keys, plus a few megabytes. `config` applies where a topic has no
    setting of its own.
    """
    check_flags(progress=progress)
    config = parse_config(config)
    files = OsFiles()
    root = local_path("path", os.fsdecode(path))
    scope = find_partitions(root, topics=topics, config=config, files=files)
    if scope.root is not None and names.TOPICS not in files.list(scope.root):
        raise UsageError(
            f"{scope.root} is a broker's data directory: open it with seeklog.open first, which makes it a store"
        )
    packs = [
        [location]
        for location in scope.partitions
        if location.topic not in ONLY_BROKER_WRITES and (location.config.compacts or topics is not None)
    ]
    shown = Progress.of("compact", packs, lambda location: 0, is_shown=progress)
    work = partial(_compact, scope.root, config, buffer_bytes)
    rows = sorted(run_tasks(spark, packs, work, progress=shown), key=lambda row: (row["topic"], row["partition"]))
    freed = sum(row["bytes_before"] - row["bytes_after"] for row in rows)
    done = tally(row["done"] for row in rows)
    shown.finish(f"{counted(len(rows), 'partition')}, {readable(max(freed, 0))} less: {done}", path=path)
    return frame_of(spark, OUTCOMES, rows)


def _compact(root: str | None, config: LogConfig, buffer_bytes: int, location: PartitionLocation) -> dict[str, Any]:
    """Compact one partition in a task and return its row."""
    compacted, detail = Compacted(), ""
    try:
        with contextlib.ExitStack() as stack:
            store = None if root is None else stack.enter_context(open_store(root, config=config, background=False))
            compacted = stack.enter_context(open_log(location, store)).compact(buffer_bytes=buffer_bytes)
        before = compacted.records_before, compacted.segments_before
        done = "unchanged" if before == (compacted.records_after, compacted.segments_after) else "compacted"
    except LogLocked as error:
        done, detail = "locked", str(error)
    except SeeklogError as error:
        done, detail = "refused", " ".join(str(error).split())
    return {
        "topic": location.topic,
        "partition": location.partition,
        "done": done,
        **asdict(compacted),
        "detail": detail,
    }
