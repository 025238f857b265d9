"""A topic as an Arrow dataset, for DuckDB and other tools that scan datasets. Needs the `arrow` extra.

A scan gets the columns it needs and the filter of the query. Both narrow what is read: a partition that the filter
excludes is not opened, offsets are narrowed to the range that the filter allows, and a lower bound on the time is
looked up like a seek. For an upper bound on the time, the rest of a log is read for its timestamps alone, because
records may be out of order; with LogAppendTime they are in order, and the rest is not read. The filter is then applied
to the rows that were read, so narrowing never changes a result.

Arrow itself decides whether a filter can match in a range, by the same pruning that it uses for Parquet files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs

from seeklog.log import LogReader, find_offset_at_time
from seeklog.record import arrow
from seeklog.store.scan import Reopen, Scan, Span, topic_schema
from seeklog.store.topic import Range

# Microseconds, as DuckDB and Spark have them: literals in filters then have the type of the column.
_TIME: Final = pa.timestamp("us", "UTC")
_FIRST_US: Final = -1000  # a record without a time has -1 ms
_LAST_US: Final = 2**63 - 1
_FORMAT: Final = ds.ParquetFileFormat()
_NOWHERE: Final = fs.LocalFileSystem()


class TopicDataset(ds.Dataset):  # type: ignore[misc]  # pyarrow has no types
    """One topic as a dataset. `ranges` is called when a scan begins; `reads` lists what scans have read."""

    def __init__(
        self,
        topic: str,
        ranges: Callable[[], Sequence[Range]],
        *,
        timestamp_unit: arrow.TimestampUnit = "us",
        threads: int | None = None,
        reopen: Reopen | None = None,
    ) -> None:
        self._topic = topic
        self._ranges = ranges
        self._timestamp_unit = timestamp_unit
        self._threads = threads
        self._reopen = reopen
        self._schema = topic_schema(timestamp_unit=timestamp_unit)
        self.reads: list[Span] = []
        self.failure: Exception | None = None
        """The error of the last scan that failed: DuckDB reports only its own text."""

    def begin(self) -> None:
        """Forget what earlier scans have read, and their error."""
        self.reads = []
        self.failure = None

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def scanner(self, columns: Sequence[str] | None = None, filter: Any = None, **_: Any) -> Any:  # noqa: A002
        """Return a scanner of the topic with these columns, and of the rows that match the filter."""
        wanted = list(columns or self._schema.names)
        # A column name inside a literal only adds an unneeded column.
        used = str(filter) if filter is not None else ""
        needed = wanted + [
            name for name in self._schema.names if name not in wanted and re.search(rf"\b{name}\b", used)
        ]
        schema = pa.schema([self._schema.field(name) for name in needed])
        batches = pa.RecordBatchReader.from_batches(schema, self._batches(schema, filter))
        return ds.Scanner.from_batches(batches, columns=wanted, filter=filter)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all records with all columns."""
        return self._batches(self._schema, None)

    def _batches(self, schema: pa.Schema, condition: Any) -> Iterator[pa.RecordBatch]:
        scan = Scan(
            self._topic, schema, timestamp_unit=self._timestamp_unit, threads=self._threads, reopen=self._reopen
        )
        try:
            yield from scan.batches(
                self._ranges(), narrow=partial(self._narrowed, condition=condition), note=self.reads.append
            )
        except Exception as error:
            self.failure = error
            raise

    def _narrowed(self, part: Range, condition: Any) -> tuple[int, int]:
        """Return the part of a range outside which the filter cannot match."""
        start, stop = part.start, part.stop
        if condition is None or start >= stop:
            return start, stop
        here = (ds.field("partition") == part.partition) & (ds.field("topic") == self._topic)
        if not self._may_hold(condition, here):
            return start, start
        start, stop = self._hull(
            condition, lambda low, high: here & (ds.field("offset") >= low) & (ds.field("offset") < high), start, stop
        )
        if start >= stop:
            return start, start
        first_us, end_us = self._hull(
            condition,
            lambda low, high: here & (ds.field("timestamp") >= _time(low)) & (ds.field("timestamp") < _time(high)),
            _FIRST_US,
            _LAST_US,
        )
        if first_us >= end_us:
            return start, start
        if first_us > 0:
            found = find_offset_at_time(part.log, -(-first_us // 1000))
            start = stop if found is None else max(start, found)
        if end_us < _LAST_US:
            stop = _stop_before(part.log, end_us, start=start, stop=stop)
        return start, max(start, stop)

    def _hull(self, condition: Any, between: Callable[[int, int], Any], low: int, high: int) -> tuple[int, int]:
        """Return the smallest [first, end) in [low, high) outside which the filter cannot match."""
        if not self._may_hold(condition, between(low, high)):
            return low, low
        # Cut as much as possible at the beginning, then at the end.
        first = _least(low, high, lambda middle: self._may_hold(condition, between(low, middle))) - 1
        return first, _least(first, high, lambda middle: not self._may_hold(condition, between(middle, high)))

    def _may_hold(self, condition: Any, known: Any) -> bool:
        file = _FORMAT.make_fragment("nothing", filesystem=_NOWHERE, partition_expression=known)
        files = ds.FileSystemDataset([file], self._schema, _FORMAT, _NOWHERE)
        return next(iter(files.get_fragments(filter=condition)), None) is not None


def _least(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the least number above `low` for which `holds` is true. It must be monotonic, and true for `high`."""
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def _time(microseconds: int) -> Any:
    return pa.scalar(microseconds, _TIME)


def _stop_before(log: LogReader, end_us: int, *, start: int, stop: int) -> int:
    """Return the offset after the last record with a timestamp before a time."""
    after = find_offset_at_time(log, -(-end_us // 1000))
    if after is None or after >= stop:
        return stop
    if log.config.message_timestamp_type == "LogAppendTime":
        return after
    after = max(start, after)
    last = after
    for batch in log.scan_arrow(after, stop, columns=("offset", "timestamp"), timestamp_unit="us"):
        early = batch.column("offset").filter(pc.less(batch.column("timestamp"), _time(end_us)))
        if len(early):
            last = early[len(early) - 1].as_py() + 1
    return last
