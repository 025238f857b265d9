"""`verify`: checks every batch, index entry, seal, and checkpoint of a store in Spark tasks."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from seeklog.archive.reading import Origin, StoredFiles, open_archive
from seeklog.arguments import check_flags
from seeklog.config import LogConfig
from seeklog.errors import counted
from seeklog.files import Files, absolute, translate, translated
from seeklog.log.check import (
    Finding,
    Inspection,
    Kind,
    Plan,
    SegmentTask,
    Severity,
    conclude,
    inspect_segment,
    plan_inspection,
)
from seeklog.spark.jobs.partitions import parse_config
from seeklog.spark.jobs.progress import Progress, readable
from seeklog.spark.jobs.tasks import frame_of, pack, run_tasks
from seeklog.spark.option_map import readable_path
from seeklog.spark.read.schema import parse_schema
from seeklog.topics.scope import PartitionLocation, find_partitions, still_has

FINDINGS = parse_schema(
    "topic string, partition int, segment bigint, file string, position bigint, offset bigint, kind string, "
    "severity string, detail string"
)


def verify(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    topics: Iterable[str] | None = None,
    config: LogConfig | Mapping[str, Any] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> DataFrame:
    """Check all files of a store, a broker's data directory, an archive, or one partition; return the findings.

    All work is done on return. The DataFrame has a row per finding, and none if all is well. Nothing is locked, and
    nothing on disk changes. Other processes may append meanwhile: the files are checked as they were at the call.
    `config` applies where a topic has no setting of its own; passing a broker's index interval makes checking its
    indexes faster. `path` may be a URL, with `storage_options` for fsspec.
    """
    check_flags(progress=progress)
    root = absolute(readable_path("path", os.fsdecode(path)))
    with translated(f"{root} cannot be read"):
        files = open_archive(Origin(root=root, storage_options=storage_options or {}).files(), root)
    stored = files.stored if isinstance(files, StoredFiles) else {}
    origin = Origin(root=root, storage_options=storage_options or {}, stored=stored)
    locations = find_partitions(root, topics=topics, config=parse_config(config), files=files).partitions
    plans = [_plan(root, location, files) for location in locations]
    packs = pack([(number, task) for number, plan in enumerate(plans) for task in plan.tasks], _size)
    shown = Progress.of("verify", packs, _size, is_shown=progress)
    inspections: list[list[Inspection]] = [[] for _ in plans]
    for number, inspection in run_tasks(spark, packs, partial(_inspect, origin), progress=shown):
        inspections[number].append(inspection)
    rows = [
        _row(location, finding)
        for location, plan, inspected in zip(locations, plans, inspections, strict=True)
        for finding in conclude(plan, inspected, files=files)
    ]
    shown.finish(_summary(list(chain.from_iterable(inspections)), rows, shown.seconds), path=path)
    return frame_of(spark, FINDINGS, rows)


def _plan(root: str, location: PartitionLocation, files: Files) -> Plan:
    try:
        return plan_inspection(location.directory, config=location.config, inherited=location.inherited, files=files)
    except FileNotFoundError:
        if not still_has(root, location, files):
            return Plan(directory=location.directory, checkpoint=None, tasks=())
        detail = "the directory of the partition is missing"
    except OSError as error:
        detail = str(translate(error, "the directory cannot be read"))
    missing = Finding(kind=Kind.UNREADABLE, severity=Severity.ERROR, path=location.directory, detail=detail)
    return Plan(directory=location.directory, checkpoint=location.inherited, tasks=(), findings=(missing,))


def _inspect(origin: Origin, item: tuple[int, SegmentTask]) -> tuple[int, Inspection]:
    number, task = item
    return number, inspect_segment(task, files=origin.files())


def _size(item: tuple[int, SegmentTask]) -> int:
    return item[1].size


def _row(location: PartitionLocation, finding: Finding) -> dict[str, object]:
    return {
        "topic": location.topic,
        "partition": location.partition,
        "segment": finding.segment,
        "file": finding.path,
        "position": finding.position,
        "offset": finding.offset,
        "kind": finding.kind.value,
        "severity": finding.severity.value,
        "detail": finding.detail,
    }


def _summary(inspections: Sequence[Inspection], rows: Sequence[Mapping[str, object]], seconds: float) -> str:
    size = sum(inspection.size for inspection in inspections)
    batches = sum(inspection.batch_count for inspection in inspections)
    records = sum(inspection.record_count for inspection in inspections)
    severities = Counter(row["severity"] for row in rows)
    findings = ", ".join(counted(severities[kind.value], kind.value) for kind in Severity if severities[kind.value])
    return (
        f"{counted(len(inspections), 'segment')}, {counted(batches, 'batch', 'batches')}, "
        f"{counted(records, 'record')}, {readable(size)} in {seconds:.1f} s "
        f"({size / seconds / 1e6:,.0f} MB/s): {findings or 'all is well'}"
    )
