"""`compact`: the compacted topics of a store, or of some of its partitions, one task a partition."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seeklog import names
from seeklog.config import LogConfig
from seeklog.errors import LogLocked, SeeklogError, UsageError
from seeklog.files import OsFiles
from seeklog.log import BUFFER_BYTES, Compacted, Log
from seeklog.spark.jobs.frame import frame_of
from seeklog.spark.jobs.partitions import Place, find_partitions
from seeklog.spark.jobs.progress import Progress, readable
from seeklog.spark.jobs.tasks import run_tasks
from seeklog.store import open_store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("seeklog")

OUTCOMES = {
    "topic": "string",
    "partition": "int",
    "done": "string",
    "rounds": "int",
    "segments_before": "bigint",
    "segments_after": "bigint",
    "records_before": "bigint",
    "records_after": "bigint",
    "bytes_before": "bigint",
    "bytes_after": "bigint",
    "first_dirty_offset": "bigint",
    "detail": "string",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """One partition that is to be compacted."""

    place: Place
    root: str | None
    config: LogConfig
    buffer_bytes: int


def compact(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    topics: Iterable[str] | None = None,
    config: LogConfig | Mapping[str, Any] | None = None,
    buffer_bytes: int = BUFFER_BYTES,
    progress: bool = True,
) -> DataFrame:
    """Compact every partition of a store whose topic is compacted, or those of some topics, due or not.

    The work is done when this returns: the DataFrame has a row for each partition, with what was done: `compacted`,
    `unchanged`, `locked` where somebody else writes it, `refused` where it cannot be opened or compacted. Each task
    holds the one partition that it works on. A job that was stopped may be run again: what was done is done.

    Each task takes `buffer_bytes` of memory for keys, and some megabytes. `config` holds for topics that say nothing
    else.
    """
    config = config if isinstance(config, LogConfig) else LogConfig.from_mapping(config or {})
    files = OsFiles()
    territory = find_partitions(path, topics=topics, config=config, files=files)
    if territory.root is not None and names.TOPICS not in files.list(territory.root):
        raise UsageError(f"{territory.root} is a broker's: open it with seeklog.open, which makes it a store, first")
    kept_by_broker = names.INTERNAL_TOPICS - {names.CONSUMER_OFFSETS}
    works = [
        _Work(place=place, root=territory.root, config=config, buffer_bytes=buffer_bytes)
        for place in territory.places
        if place.topic not in kept_by_broker and (place.config.compacts or topics is not None)
    ]
    shown = Progress("compact", counts=[1] * len(works), sizes=[0] * len(works), is_shown=progress)
    rows = sorted(run_tasks(spark, [[work] for work in works], _compact, progress=shown))
    done = Counter(str(row[2]) for row in rows)
    told = ", ".join(f"{count:,} {word}" for word, count in sorted(done.items()))
    freed = sum(int(row[8]) - int(row[9]) for row in rows)
    summary = f"{len(rows):,} partitions, {readable(max(freed, 0))} less: {told or 'nothing to do'}"
    logger.info("compact %s: %s", os.fsdecode(path), summary)
    shown.finish(summary)
    return frame_of(spark, OUTCOMES, rows)


def _compact(work: _Work) -> tuple[Any, ...]:
    """What a task does."""
    place = work.place
    try:
        return _row(place, *_compacted(work))
    except LogLocked as error:
        return _row(place, "locked", Compacted(), str(error))
    except SeeklogError as error:
        return _row(place, "refused", Compacted(), " ".join(str(error).split()))


def _compacted(work: _Work) -> tuple[str, Compacted]:
    place = work.place
    if work.root is not None and place.partition is not None:
        with (
            open_store(work.root, config=work.config, background=False) as store,
            store.writer(place.topic, place.partition) as log,
        ):
            done = log.compact(buffer_bytes=work.buffer_bytes)
    else:
        with Log(place.directory, config=place.config, files=OsFiles(), background=False) as log:
            done = log.compact(buffer_bytes=work.buffer_bytes)
    is_same = (done.records_before, done.segments_before) == (done.records_after, done.segments_after)
    return ("unchanged" if is_same else "compacted"), done


def _row(place: Place, word: str, done: Compacted, detail: str = "") -> tuple[Any, ...]:
    return (
        place.topic,
        place.partition,
        word,
        done.rounds,
        done.segments_before,
        done.segments_after,
        done.records_before,
        done.records_after,
        done.bytes_before,
        done.bytes_after,
        done.first_dirty_offset,
        detail,
    )
