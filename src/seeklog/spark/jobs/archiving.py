"""`archive`: copies the segments of a store to a directory or a bucket in Spark tasks.

A task copies segment files and reads them back. The driver plans the copies, and writes the manifest after the last
one. The guarantees of `Store.archive` hold here too.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from seeklog.archive.archiving import archive as archive_to
from seeklog.archive.copying import copy_segment
from seeklog.archive.manifest import SegmentEntry
from seeklog.archive.planning import Copy, Plan, Rules, Verify
from seeklog.archive.reading import Origin
from seeklog.archive.source import SourceChanged
from seeklog.arguments import check_flags
from seeklog.errors import counted
from seeklog.files import translated
from seeklog.files.depot import open_depot
from seeklog.spark.jobs.progress import Progress, readable
from seeklog.spark.jobs.tasks import pack, run_tasks
from seeklog.spark.option_map import readable_path
from seeklog.store import archive_source, open_store, origin_of
from seeklog.topics.description import Archived


class _Target(NamedTuple):
    """The target of the copies and how strictly they are checked. Contains secrets: never print it."""

    location: str
    storage_options: Mapping[str, Any]
    rules: Rules


def archive(
    spark: SparkSession,
    path: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    topics: Iterable[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    verify: Verify = "content",
    allow_gaps: bool = False,
    repair: bool = False,
    include_active: bool = False,
    progress: bool = True,
) -> Archived:
    """Copy the sealed segments of a store's topics to a directory or a URL in Spark tasks, as `Store.archive` does.

    With `include_active`, the other segments are copied up to the recovery point, too. `storage_options` apply to the
    target. Driver and executors must see the source under the same path.
    """
    check_flags(progress=progress)
    to = _Target(os.fsdecode(target), storage_options or {}, Rules(verify, allow_gaps, repair, include_active))
    depot = open_depot(to.location, storage_options=to.storage_options)
    source = readable_path("path", os.fsdecode(path))
    with open_store(source, read_only=True, background=False) as store:
        copy_all = partial(_copied, spark, origin_of(store), to, source, is_shown=progress)
        return archive_to(archive_source(store, topics, include_active=include_active), depot, to.rules, copy_all)


def _copied(
    spark: SparkSession, source: Origin, to: _Target, path: str, plan: Plan, *, is_shown: bool
) -> list[SegmentEntry]:
    """Copy the segments of a plan and return their entries in its order."""
    packs = pack(list(enumerate(plan.copies)), _size)
    shown = Progress.of("archive", packs, _size, is_shown=is_shown)
    results = dict(run_tasks(spark, packs, partial(_copy, source, to), progress=shown))
    entries = []
    for _, result in sorted(results.items()):
        if isinstance(result, SourceChanged):
            raise result
        entries.append(result)
    size = sum(copy.size for copy in plan.copies)
    shown.finish(f"{counted(len(results), 'segment')}, {readable(size)} in {shown.seconds:.1f} s", path=path)
    return entries


def _copy(source: Origin, to: _Target, item: tuple[int, Copy]) -> tuple[int, SegmentEntry | SourceChanged]:
    """Copy one segment in a task. Return `SourceChanged` instead of raising it, so that the driver plans again."""
    number, copy = item
    with translated(f"{copy.partition} cannot be archived to {to.location}"):
        try:
            depot = open_depot(to.location, storage_options=to.storage_options)
            return number, copy_segment(copy, source.files(), depot, to.rules)
        except SourceChanged as error:
            return number, error


def _size(item: tuple[int, Copy]) -> int:
    return item[1].size
