"""The metrics of a store: what its parts have counted, as one dict."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from seeklog.groups.description import PartitionLag
from seeklog.groups.groups import Groups
from seeklog.log import Log, LogMetrics, take_snapshot
from seeklog.metrics import CatalogSection, ConsumerSection, Family, LagSection, OffsetsSection, ProducerSection
from seeklog.store.upkeep import Upkeep
from seeklog.topics.open_logs import OpenLogs
from seeklog.topics.topics import Topics


def count_all(
    *,
    topics: Topics,
    table: OpenLogs,
    groups: Groups,
    upkeep: Upkeep,
    producers: Family[ProducerSection],
    consumers: Family[ConsumerSection],
) -> dict[str, Any]:
    """Return the sections that are always there. Nothing is read from the disk."""
    logs = LogMetrics()
    for counted in table.metrics().values():
        logs.add(counted)
    return {
        **logs.as_dict(),
        "maintenance": upkeep.metrics.as_dict(),
        "files": table.count_files().as_dict(),
        "catalog": _catalog(topics).as_dict(),
        "producer": producers.total().as_dict(),
        "consumer": consumers.total().as_dict(),
        "group": groups.metrics.as_dict(),
    }


def _catalog(topics: Topics) -> CatalogSection:
    section = CatalogSection()
    section.topics, section.partitions = topics.count()
    section.changes = topics.change_count
    return section


def count_by_topic(table: OpenLogs) -> dict[str, Any]:
    """Return the numbers of each topic with a partition that this process has opened for writing."""
    topics: dict[str, LogMetrics] = {}
    for partition, counted in sorted(table.metrics().items()):
        topics.setdefault(partition.topic, LogMetrics()).add(counted)
    return {name: counted.as_dict() for name, counted in topics.items()}


def count_by_partition(table: OpenLogs) -> dict[str, Any]:
    """Return the numbers of each of these partitions, and the offsets of those that are open for writing now."""
    found: dict[str, Any] = {}
    for partition, counted in sorted(table.metrics().items()):
        numbers = found[str(partition)] = counted.as_dict()
        log = table.writing_log(partition)
        if log is not None:
            numbers["offsets"] = _offsets(log).as_dict()
    return found


def _offsets(log: Log) -> OffsetsSection:
    section = OffsetsSection()
    seen = take_snapshot(log)
    section.log_start_offset, section.high_watermark = seen.log_start_offset, seen.high_watermark
    section.log_end_offset, section.recovery_point = seen.log_end_offset, seen.recovery_point
    section.size_bytes, section.segments = seen.size_bytes, len(seen.view.segments)
    return section


def sum_lags(lags: Iterable[PartitionLag]) -> dict[str, Any]:
    section = LagSection()
    members = set()
    for each in lags:
        members.add(each.member_id)
        section.partitions += 1
        section.records_lag += each.lag
        section.records_lag_max = max(section.records_lag_max, each.lag)
    section.members = len(members - {None})
    return {"lag": section.as_dict()}
