"""`seeklog seek`."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import click

from seeklog.cli import opening, selection
from seeklog.cli.app import verb
from seeklog.cli.partitions import chosen, partitions_option
from seeklog.cli.show import amounts
from seeklog.cli.show.rows import Column, formats, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.cli.times import Place, parse_place, utc_option
from seeklog.errors import OffsetOutOfRange
from seeklog.store import Range

if TYPE_CHECKING:
    from seeklog.log import LogReader, Seek


def _span(microseconds: int | None) -> str:
    return "" if microseconds is None else amounts.span(microseconds / 1e6)


COLUMNS = (
    Column("partition", is_right=True),
    Column("offset", shown=amounts.count, is_right=True),
    Column("timestamp", "time"),
    Column("segment"),
    Column("position", shown=amounts.count, is_right=True),
    Column("scanned_batches", "batches scanned", shown=amounts.count, is_right=True),
    Column("scanned_bytes", "bytes scanned", shown=amounts.count, is_right=True),
    Column("first_us", "first", shown=_span, is_right=True),
    Column("again_us", "again", shown=_span, is_right=True),
)


@verb
@opening.directory
@opening.topic
@click.argument("word", metavar="PLACE")
@partitions_option
@utc_option
@formats
def seek(
    terminal: Terminal,
    directory: str,
    topic: str,
    word: str,
    partitions: tuple[int, ...],
    utc: bool,
    row_format: str | None,
    as_json: bool,
) -> None:
    """Find a place in each partition: OFFSET, -N (before the end), start, end, or @TIME.

    Tells the record's offset and time, the segment and the byte where its batch begins, what was scanned behind the
    index's entry to get there, and how long it took: the first time, when the index is read, and again. What lies
    behind the last record has an offset, and no segment yet.
    """
    wanted = parse_place(word, utc=utc)
    with opening.open_to_read(directory) as store:
        numbers = chosen(store, topic, partitions)
        # Before anything else has looked at the indexes: so the first time is a first time.
        first = {partition: _timed(wanted, store.log(topic, partition)) for partition in numbers}
        ranges = selection.find_ranges(store, topic, partitions=partitions, starts=(word,), utc=utc)
        rows = [_row(each, wanted, first_s=first[each.partition][1], utc=utc) for each in ranges]
        write_rows(terminal, COLUMNS, rows, row_format=row_format, as_json=as_json)


# A place may be -100, which is no option.
seek.context_settings = {**seek.context_settings, "ignore_unknown_options": True}


def _row(each: Range, wanted: Place, *, first_s: float, utc: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"partition": each.partition, "offset": each.start}
    found, again_s = _timed(wanted, each.log)
    if found is not None:
        record = next(each.log.read(found.offset, max_records=1), None)
        row |= {
            "timestamp": amounts.moment(record.timestamp_ms, utc=utc) if record is not None else None,
            "segment": os.path.basename(found.path),
            "position": found.position,
            "scanned_batches": found.scanned_batches,
            "scanned_bytes": found.scanned_bytes,
            "first_us": round(first_s * 1e6),
            "again_us": round(again_s * 1e6),
        }
    return {column.name: row.get(column.name) for column in COLUMNS}


def _timed(wanted: Place, log: LogReader) -> tuple[Seek | None, float]:
    """Find a place; return it, or None where no record is, and how many seconds that took."""
    began = time.perf_counter()
    try:
        found = log.seek(wanted.offset_in(log))
    except OffsetOutOfRange:
        found = None
    return found, time.perf_counter() - began
