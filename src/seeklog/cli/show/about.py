"""A store or a topic described: the facts as JSON has them, and as tables."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import fields
from itertools import groupby
from typing import TYPE_CHECKING, Any

from seeklog.cli import opening
from seeklog.cli.show import amounts
from seeklog.cli.show.neutral import neutral
from seeklog.cli.show.rows import Column, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.config import LogConfig, canonical_word
from seeklog.errors import SeeklogError
from seeklog.log.check import Portrait, SegmentPortrait, take_portrait

if TYPE_CHECKING:
    from seeklog.cli.targets import Target
    from seeklog.store import Store

PARTITIONS = (
    Column("topic"),
    Column("partition", is_right=True),
    Column("segments", shown=lambda found: str(len(found)) if isinstance(found, list) else str(found), is_right=True),
    Column("records", shown=amounts.count, is_right=True),
    Column("size_bytes", "size", shown=amounts.size, is_right=True),
    Column("log_start_offset", "log start", shown=amounts.count, is_right=True),
    Column("high_watermark", "high watermark", shown=amounts.count, is_right=True),
    Column("log_end_offset", "log end", shown=amounts.count, is_right=True),
    Column("recovery_point", "recovery point", shown=amounts.count, is_right=True),
    Column("leader_epoch", "epoch", is_right=True),
    Column("state"),
)
SEGMENTS = (
    Column("partition", is_right=True),
    Column("base_offset", "base", shown=amounts.count, is_right=True),
    Column("next_offset", "next", shown=amounts.count, is_right=True),
    Column("records", shown=amounts.count, is_right=True),
    Column("size_bytes", "size", shown=amounts.size, is_right=True),
    Column("oldest"),
    Column("newest"),
    Column("state"),
    Column("index_entries", "index", shown=amounts.count, is_right=True),
    Column("time_index_entries", "times", shown=amounts.count, is_right=True),
    Column("files", "beside it", shown=lambda found: " ".join(suffix.lstrip(".") for suffix in found)),
)
CONFIG = (Column("word"), Column("value"), Column("from"))
GROUPS = (Column("group"), Column("lag", shown=amounts.count, is_right=True), Column("members", is_right=True))


def write_about(
    terminal: Terminal,
    directory: str,
    targets: list[Target],
    *,
    topic: str | None,
    utc: bool,
    row_format: str | None,
) -> None:
    """Write what is known of these partitions, which lie in one store."""
    is_table = row_format == "table" or (row_format is None and terminal.shows_tables)
    with contextlib.ExitStack() as opened:
        store = None
        if targets and targets[0].root is not None:
            store = opened.enter_context(opening.open_to_read(directory))
        described = [
            _topic(store, name, list(group), utc=utc, with_groups=topic is not None or not is_table)
            for name, group in groupby(targets, key=lambda target: target.place.topic)
        ]
    partitions = [partition for each in described for partition in each["partitions"]]
    if row_format == "csv":
        flat = [row | {"segments": len(row["segments"])} for row in partitions]
        write_rows(terminal, PARTITIONS, flat, row_format="csv")
    elif not is_table:
        write_rows(terminal, PARTITIONS, described, row_format=row_format)
    else:
        _write_tables(terminal, directory, described, partitions, is_detailed=topic is not None or store is None)


def _topic(store: Store | None, name: str, targets: list[Target], *, utc: bool, with_groups: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"topic": name, "topic_id": None}
    configured: Mapping[str, Any] = {}
    if store is not None:
        with contextlib.suppress(SeeklogError):
            description = store.describe_topic(name)
            found["topic_id"], configured = description.topic_id, description.configured
    partitions = [_partition(target, utc=utc) for target in targets]
    found["partitions"] = partitions
    found["records"] = sum(partition["records"] or 0 for partition in partitions)
    found["size_bytes"] = sum(partition["size_bytes"] for partition in partitions)
    found["config"] = list(_config(targets[0].place.config, configured))
    found["groups"] = list(_groups(store, name)) if store is not None and with_groups else []
    return found


def _partition(target: Target, *, utc: bool) -> dict[str, Any]:
    base = {"topic": target.place.topic, "partition": target.place.partition}
    try:
        portrait = take_portrait(
            target.place.directory,
            config=target.place.config,
            inherited=target.place.inherited,
            files=target.files,
        )
    except OSError as error:
        nothing = dict.fromkeys(column.name for column in PARTITIONS[2:])
        return base | nothing | {"segments": [], "size_bytes": 0, "state": f"unreadable: {error}", "set_aside": []}
    counts = [segment.record_count for segment in portrait.segments]
    return base | {
        "segments": [_segment(segment, target, utc=utc) for segment in portrait.segments],
        "records": None if None in counts else sum(count for count in counts if count is not None),
        "size_bytes": portrait.size_bytes,
        "log_start_offset": portrait.log_start_offset,
        "high_watermark": portrait.high_watermark,
        "log_end_offset": portrait.log_end_offset,
        "recovery_point": portrait.recovery_point,
        "leader_epoch": portrait.leader_epoch,
        "state": _state(portrait),
        "set_aside": [{"file": name, "size_bytes": size} for name, size in portrait.torn_files.items()],
    }


def _state(portrait: Portrait) -> str:
    if portrait.problem:
        return f"damaged: {portrait.problem}"
    if not portrait.is_ours:
        return "a broker's"
    return "ok" if not portrait.torn_files else f"ok, {len(portrait.torn_files)} set aside"


def _segment(segment: SegmentPortrait, target: Target, *, utc: bool) -> dict[str, Any]:
    return {
        "partition": target.place.partition,
        "base_offset": segment.base_offset,
        "next_offset": segment.next_offset,
        "records": segment.record_count,
        "batches": segment.batch_count,
        "size_bytes": segment.size_bytes,
        "oldest": amounts.moment(segment.first_timestamp_ms, utc=utc),
        "newest": amounts.moment(segment.max_timestamp_ms, utc=utc),
        "state": segment_state(segment),
        "sealed_at": amounts.moment(segment.seal.sealed_at_ms, utc=utc) if segment.seal is not None else None,
        "index_entries": len(segment.index_points),
        "time_index_entries": segment.time_points,
        "files": dict(segment.side_files),
    }


def segment_state(segment: SegmentPortrait) -> str:
    """Return in a word what a segment is."""
    if segment.is_active:
        return "active"
    if segment.seal is None:
        return "unsealed"
    if not segment.clean_offset:
        return "sealed"
    return "compacted" if segment.clean_offset >= segment.next_offset else "partly compacted"


def _config(config: LogConfig, configured: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    own = {canonical_word(word) for word in configured}
    for each in fields(LogConfig):
        word, value = canonical_word(each.name), getattr(config, each.name)
        source = "topic" if word in own else "default" if value == each.default else "store"
        yield {"word": word, "value": value, "from": source}


def _groups(store: Store, topic: str) -> Iterable[dict[str, Any]]:
    with contextlib.suppress(SeeklogError):
        for group in store.groups():
            lags = [lag for lag in store.lag(group) if lag.topic == topic]
            if lags:
                members = {lag.member_id for lag in lags if lag.member_id is not None}
                yield {"group": group, "lag": sum(lag.lag for lag in lags), "members": len(members)}


def _write_tables(
    terminal: Terminal,
    directory: str,
    described: list[dict[str, Any]],
    partitions: list[dict[str, Any]],
    *,
    is_detailed: bool,
) -> None:
    if not is_detailed:
        size = amounts.size(sum(row["size_bytes"] for row in partitions))
        count = f"{len(described)} topic{'s' if len(described) != 1 else ''}"
        terminal.write(f"{neutral(directory)}: {count}, {len(partitions)} partitions, {size}\n\n")
        write_rows(terminal, PARTITIONS, partitions, row_format="table")
        return
    for each in described:
        topic_id = f", id {each['topic_id']}" if each["topic_id"] else ""
        known = f"{len(each['partitions'])} partitions" if len(each["partitions"]) != 1 else "1 partition"
        records = f"{amounts.count(each['records'])} record{'s' if each['records'] != 1 else ''}"
        sizes = f"{records}, {amounts.size(each['size_bytes'])}"
        terminal.write(f"{neutral(each['topic'])}: {known}, {sizes}{topic_id}\n\n")
        write_rows(terminal, PARTITIONS[1:], each["partitions"], row_format="table")
        segments = [segment for partition in each["partitions"] for segment in partition["segments"]]
        if segments:
            terminal.write("\n")
            write_rows(terminal, SEGMENTS, segments, row_format="table")
        kept = [
            f"{row['file']} ({amounts.size(row['size_bytes'])})" for p in each["partitions"] for row in p["set_aside"]
        ]
        if kept:
            terminal.write(f"\nset aside as evidence: {neutral(', '.join(kept))}\n")
        terminal.write("\n")
        write_rows(terminal, CONFIG, each["config"], row_format="table")
        if each["groups"]:
            terminal.write("\n")
            write_rows(terminal, GROUPS, each["groups"], row_format="table")
