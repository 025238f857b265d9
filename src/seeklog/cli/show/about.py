"""The output of `seeklog info`: a store or a topic as JSON and as tables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import groupby
from typing import TYPE_CHECKING, Any

from seeklog.cli import opening
from seeklog.cli.show import amounts
from seeklog.cli.show.neutral import neutral
from seeklog.cli.show.rows import PARTITION, Column, count_column, size_column, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.config import LogConfig, canonical_setting
from seeklog.errors import SeeklogError
from seeklog.log.check import Portrait, SegmentPortrait, take_portrait

if TYPE_CHECKING:
    from seeklog.cli.targets import Target
    from seeklog.store import Store


_SIZE = size_column("size_bytes", "size")
PARTITIONS = (
    *PARTITION,
    Column("segments", shown=lambda found: str(len(found)) if isinstance(found, list) else str(found), is_right=True),
    count_column("records"),
    _SIZE,
    count_column("log_start_offset", "log start"),
    count_column("high_watermark", "high watermark"),
    count_column("log_end_offset", "log end"),
    count_column("recovery_point", "recovery point"),
    Column("leader_epoch", "epoch", is_right=True),
    Column("state"),
)
SEGMENTS = (
    Column("partition", is_right=True),
    count_column("base_offset", "base"),
    count_column("next_offset", "next"),
    count_column("records"),
    _SIZE,
    Column("first"),
    Column("newest"),
    Column("state"),
    count_column("index_entries", "index"),
    count_column("time_index_entries", "time index"),
    Column("files", "side files", shown=lambda found: " ".join(suffix.lstrip(".") for suffix in found)),
)
CONFIG = (Column("name", "setting"), Column("value"), Column("source"))
GROUPS = (Column("group"), count_column("lag"), Column("members", is_right=True))


def write_about(terminal: Terminal, directory: str, targets: list[Target], *, topic: str | None) -> None:
    """Describe the partitions of one store."""
    with contextlib.ExitStack() as opened:
        store = None
        if targets and targets[0].root is not None:
            store = opened.enter_context(opening.open_to_read(directory))
        described = [
            _topic(
                store,
                name,
                list(group),
                utc=terminal.utc,
                with_groups=topic is not None or terminal.row_format != "table",
            )
            for name, group in groupby(targets, key=lambda target: target.location.topic)
        ]
    partitions = [partition for description in described for partition in description["partitions"]]
    if terminal.row_format == "csv":
        flat = [row | {"segments": len(row["segments"])} for row in partitions]
        write_rows(terminal, PARTITIONS, flat)
    elif terminal.row_format != "table":
        write_rows(terminal, PARTITIONS, described)
    elif topic is None and store is not None:
        size = amounts.size(sum(row["size_bytes"] for row in partitions))
        counts = f"{amounts.counted(len(described), 'topic')}, {amounts.counted(len(partitions), 'partition')}"
        terminal.write(f"{neutral(directory)}: {counts}, {size}\n\n")
        write_rows(terminal, PARTITIONS, partitions)
    else:
        for description in described:
            _write_topic(terminal, description)


def _topic(store: Store | None, name: str, targets: list[Target], *, utc: bool, with_groups: bool) -> dict[str, Any]:
    topic_id: str | None = None
    configured: Mapping[str, Any] = {}
    if store is not None:
        with contextlib.suppress(SeeklogError):
            description = store.describe_topic(name)
            topic_id, configured = description.topic_id, description.configured
    partitions = [_partition(target, utc=utc) for target in targets]
    return {
        "topic": name,
        "topic_id": topic_id,
        "partitions": partitions,
        "records": sum(partition["records"] or 0 for partition in partitions),
        "size_bytes": sum(partition["size_bytes"] for partition in partitions),
        "config": list(_config(targets[0].location.config, configured)),
        "groups": list(_groups(store, name)) if store is not None and with_groups else [],
    }


def _partition(target: Target, *, utc: bool) -> dict[str, Any]:
    location = target.location
    base = {"topic": location.topic, "partition": location.partition}
    try:
        portrait = take_portrait(
            location.directory, config=location.config, inherited=location.inherited, files=target.files
        )
    except OSError as error:
        nothing = dict.fromkeys(column.name for column in PARTITIONS[2:])
        return base | nothing | {"segments": [], "size_bytes": 0, "state": f"unreadable: {error}", "quarantined": []}
    counts = [segment.record_count for segment in portrait.segments if segment.record_count is not None]
    return base | {
        "segments": [_segment(segment, location.partition, utc=utc) for segment in portrait.segments],
        "records": sum(counts) if len(counts) == len(portrait.segments) else None,
        "size_bytes": portrait.size_bytes,
        "log_start_offset": portrait.log_start_offset,
        "high_watermark": portrait.high_watermark,
        "log_end_offset": portrait.log_end_offset,
        "recovery_point": portrait.recovery_point,
        "leader_epoch": portrait.leader_epoch,
        "state": _state(portrait),
        "quarantined": [{"file": name, "size_bytes": size} for name, size in portrait.torn_files.items()],
    }


def _state(portrait: Portrait) -> str:
    if portrait.problem:
        return f"damaged: {portrait.problem}"
    if not portrait.is_ours:
        return "a broker's"
    return "ok" if not portrait.torn_files else f"ok, {len(portrait.torn_files)} quarantined"


def _segment(segment: SegmentPortrait, partition: int | None, *, utc: bool) -> dict[str, Any]:
    return {
        "partition": partition,
        "base_offset": segment.base_offset,
        "next_offset": segment.next_offset,
        "records": segment.record_count,
        "batches": segment.batch_count,
        "size_bytes": segment.size_bytes,
        "first": amounts.moment(segment.first_timestamp_ms, utc=utc),
        "newest": amounts.moment(segment.max_timestamp_ms, utc=utc),
        "state": _segment_state(segment),
        "sealed_at": amounts.moment(segment.seal.sealed_at_ms, utc=utc) if segment.seal is not None else None,
        "index_entries": len(segment.index_points),
        "time_index_entries": segment.time_points,
        "files": dict(segment.side_files),
    }


def _segment_state(segment: SegmentPortrait) -> str:
    if segment.is_active:
        return "active"
    if segment.seal is None:
        return "unsealed"
    if not segment.clean_offset:
        return "sealed"
    return "compacted" if segment.clean_offset >= segment.next_offset else "partly compacted"


def _config(config: LogConfig, configured: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    own = {canonical_setting(name) for name in configured}
    for field in fields(LogConfig):
        name, value = canonical_setting(field.name), getattr(config, field.name)
        source = "topic" if name in own else "default" if value == field.default else "store"
        yield {"name": name, "value": value, "source": source}


def _groups(store: Store, topic: str) -> Iterator[dict[str, Any]]:
    with contextlib.suppress(SeeklogError):
        for group in store.groups():
            lags = [lag for lag in store.lag(group) if lag.topic == topic]
            if lags:
                members = {lag.member_id for lag in lags if lag.member_id is not None}
                yield {"group": group, "lag": sum(lag.lag for lag in lags), "members": len(members)}


def _write_topic(terminal: Terminal, topic: dict[str, Any]) -> None:
    partitions = topic["partitions"]
    parts = [
        amounts.counted(len(partitions), "partition"),
        amounts.counted(topic["records"], "record"),
        amounts.size(topic["size_bytes"]),
        *([f"id {topic['topic_id']}"] if topic["topic_id"] else []),
    ]
    terminal.write(f"{neutral(topic['topic'])}: {', '.join(parts)}\n\n")
    write_rows(terminal, PARTITIONS[1:], partitions)
    if segments := [segment for partition in partitions for segment in partition["segments"]]:
        terminal.write("\n")
        write_rows(terminal, SEGMENTS, segments)
    if kept := [row for partition in partitions for row in partition["quarantined"]]:
        files = ", ".join(f"{row['file']} ({amounts.size(row['size_bytes'])})" for row in kept)
        terminal.write(f"\nquarantined: {neutral(files)}\n")
    terminal.write("\n")
    write_rows(terminal, CONFIG, topic["config"])
    if topic["groups"]:
        terminal.write("\n")
        write_rows(terminal, GROUPS, topic["groups"])
