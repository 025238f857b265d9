"""`read_lake`: a lake's Parquet files and the rest of the log as one DataFrame, without gap or overlap.

The manifest gives the offsets in the files, and the log is read from the next one. Both ends are fixed when the
DataFrame is created, so it has the same records however the lake and the log grow.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession, functions
from pyspark.sql.types import DateType, StructField, StructType

from seeklog.arguments import check_flags
from seeklog.errors import DataLoss, TopicNotFound, UsageError, counted
from seeklog.files import OsFiles
from seeklog.names import TopicPartition
from seeklog.spark.jobs.lake import check_against
from seeklog.spark.jobs.partitions import choose_topics
from seeklog.spark.lake.directory import LakeDirectory
from seeklog.spark.lake.manifest import LakeFile, LakePartition, Manifest
from seeklog.spark.option_map import local_path, milliseconds_of
from seeklog.spark.read.offsets import Bounds, bounds_of
from seeklog.spark.read.options import parse_columns
from seeklog.spark.read.position import encode_offsets
from seeklog.spark.read.schema import RECORD_SCHEMA, pick
from seeklog.store import open_store

logger = logging.getLogger("seeklog")


def read_lake(
    spark: SparkSession,
    path: str | os.PathLike[str] | None,
    lake: str | os.PathLike[str],
    *,
    topics: Iterable[str] | None = None,
    columns: Sequence[str] | None = None,
    include_headers: bool = False,
    since: datetime | None = None,
    until: datetime | None = None,
    fail_on_data_loss: bool = True,
) -> DataFrame:
    """Return the records of a lake and those that follow in the store as one DataFrame, each record once.

    It has the columns of `format("seeklog")` and the records that exist at the moment of the call. Later appends,
    copies, and retention within the lake's offsets do not change it. `since` and `until` (exclusive) skip files by the
    times in the manifest, and records by their timestamps. Spark pushes filters down to its Parquet reader as usual.
    With `path=None` only the lake is read.

    Raises `DataLoss` if offsets between the lake and the log, or in a gap of the lake, were deleted.
    With `fail_on_data_loss=False` that is a warning with their number.
    """
    check_flags(include_headers=include_headers, fail_on_data_loss=fail_on_data_loss)
    directory = LakeDirectory(lake, files=OsFiles())
    # The manifest is read before the store: segments copied in between are then read from the log, and none is missed.
    manifest = directory.read_manifest() or Manifest()
    asked = {"includeHeaders": str(include_headers)}
    if columns is not None:
        asked = {"columns": ",".join([columns] if isinstance(columns, str) else columns)}
    names = parse_columns(asked)
    for moment in (since, until):
        if moment is not None and moment.tzinfo is None:
            raise UsageError(f"{moment} has no time zone: pass datetime(…, tzinfo=UTC)")
    path = None if path is None else os.path.abspath(local_path("path", os.fsdecode(path)))
    bounds = _live_bounds(path, manifest, topics)
    chosen = choose_topics(topics, sorted({*manifest.topics, *(at.topic for at in bounds)}))
    known = {at: copied for at, copied in manifest.partitions.items() if at.topic in chosen}
    check_against(known, bounds)
    _check_loss(known, bounds, fail=fail_on_data_loss)
    files = [file for copied in known.values() for file in copied.files if _is_within(file, since, until)]
    directory.check_files(files)
    needed = names if since is until is None or "timestamp" in names else (*names, "timestamp")
    parts = [_parquet(spark, directory.path, files).select(*needed)] if files else []
    if bounds or not parts:
        parts.append(_tail(spark, path, known, bounds, needed, fail=fail_on_data_loss))
    frame = parts[0] if len(parts) == 1 else parts[0].union(parts[1])
    return _within(frame, since, until).select(*names)


def _live_bounds(path: str | None, manifest: Manifest, topics: Iterable[str] | None) -> dict[TopicPartition, Bounds]:
    """Return the bounds of the chosen topics in the store, none without a store."""
    if path is None:
        for topic in choose_topics(topics, ()):
            if topic not in manifest.topics:
                raise TopicNotFound(f"the lake has no topic {topic!r}; it has {', '.join(manifest.topics) or 'none'}")
        return {}
    with open_store(path, read_only=True, background=False) as store:
        chosen = choose_topics(topics, sorted({*store.topics(), *manifest.topics}))
        for topic in chosen:
            if topic in manifest.topics and topic not in store.topics():
                raise TopicNotFound(
                    f"topic {topic!r} is in the lake and not in the store at {path}; pass path=None to read the lake"
                )
        return bounds_of(store, chosen)


def _check_loss(
    known: Mapping[TopicPartition, LakePartition], bounds: Mapping[TopicPartition, Bounds], *, fail: bool
) -> None:
    for at, copied in known.items():
        here, gaps = bounds.get(at), copied.gaps
        if here is not None and here.log_start_offset > copied.next_offset:
            gaps = [*gaps, (copied.next_offset, here.log_start_offset)]
        if not gaps:
            continue
        count = sum(end - start for start, end in gaps)
        lost = f"{gaps[0][0]} to {gaps[0][1] - 1}{' and more' if len(gaps) > 1 else ''}"
        fact = f"{at}: {counted(count, 'offset')} ({lost}) deleted from the log before being copied to the lake"
        if fail:
            raise DataLoss("COULD_NOT_READ_OFFSET_RANGE", f"{fact}; pass fail_on_data_loss=False to read the rest")
        logger.warning("[DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] %s; skipped", fact)


def _is_within(file: LakeFile, since: datetime | None, until: datetime | None) -> bool:
    return (since is None or file.max_timestamp_ms >= milliseconds_of(since)) and (
        until is None or file.min_timestamp_ms <= milliseconds_of(until)
    )


def _within(frame: DataFrame, since: datetime | None, until: datetime | None) -> DataFrame:
    if since is not None:
        frame = frame.where(functions.col("timestamp") >= functions.lit(since))
    if until is not None:
        frame = frame.where(functions.col("timestamp") < functions.lit(until))
    return frame


def _parquet(spark: SparkSession, lake: str, files: Iterable[LakeFile]) -> DataFrame:
    """Return the rows of these files. The schema is given, so that Spark opens no file to infer it."""
    schema = StructType([*RECORD_SCHEMA.fields, StructField("date", DateType())])
    root = f"file://{lake}"
    # The files use the proleptic Gregorian calendar for times before 1582 and 1900 too: rebase nothing.
    reader = spark.read.schema(schema).option("basePath", root).option("datetimeRebaseMode", "CORRECTED")
    return reader.option("__globPaths__", "false").parquet(*(f"{root}/{file.path}" for file in files))


def _tail(
    spark: SparkSession,
    path: str | None,
    known: Mapping[TopicPartition, LakePartition],
    bounds: Mapping[TopicPartition, Bounds],
    columns: Sequence[str],
    *,
    fail: bool,
) -> DataFrame:
    """Return the records after the lake, up to the high watermarks in `bounds`."""
    ranges = {
        at: (max(here.log_start_offset, known[at].next_offset if at in known else 0), here.high_watermark)
        for at, here in bounds.items()
    }
    starts = encode_offsets({at: start for at, (start, end) in ranges.items() if start < end})
    ends = encode_offsets({at: end for at, (start, end) in ranges.items() if start < end})
    if path is None or not starts:
        return spark.createDataFrame([], pick(RECORD_SCHEMA, columns))
    options = {
        "path": path,
        "assign": json.dumps({topic: list(map(int, inner)) for topic, inner in starts.items()}),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
        "columns": ",".join(columns),
        "failOnDataLoss": str(fail),
    }
    return spark.read.format("seeklog").options(**options).load()
