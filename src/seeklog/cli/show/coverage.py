"""How much of a store is in an archive."""

from __future__ import annotations

from seeklog.cli.show import amounts
from seeklog.cli.show.rows import PARTITION, Column, count_column, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.clock import SystemClock
from seeklog.topics.description import Archived, ArchivedPartition

COVERAGE = (
    *PARTITION,
    count_column("archived_end_offset", "archived up to"),
    count_column("high_watermark", "high watermark"),
    count_column("missing_records", "not archived"),
    Column("newest_archived", "newest archived"),
    Column(
        "newest_age_s", "age", shown=lambda seconds: "" if seconds is None else amounts.span(seconds), is_right=True
    ),
)


def write_coverage(terminal: Terminal, done: Archived) -> None:
    """Write a row for each partition, and report the sum."""
    now_ms = SystemClock().now_ms()
    write_rows(terminal, COVERAGE, [_row(part, now_ms=now_ms, utc=terminal.utc) for part in done.partitions])
    newest = max((part.newest_timestamp_ms or -1 for part in done.partitions), default=-1)
    age = f"; the newest archived record is {amounts.span(max(0, now_ms - newest) / 1000)} old" if newest >= 0 else ""
    terminal.say(f"not archived: {amounts.counted(done.missing_records, 'record')}{age}")


def _row(part: ArchivedPartition, *, now_ms: int, utc: bool) -> dict[str, object]:
    newest = part.newest_timestamp_ms
    return {
        "topic": part.topic,
        "partition": part.partition,
        "archived_end_offset": part.archived_end_offset,
        "high_watermark": part.high_watermark,
        "missing_records": part.missing_records,
        "newest_archived": amounts.moment(newest, utc=utc),
        "newest_age_s": None if newest is None else max(0, now_ms - newest) // 1000,
    }
