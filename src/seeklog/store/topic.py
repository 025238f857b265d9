"""`Topic`: a handle on one topic, for reading across its partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypedDict, TypeVar

from seeklog.arguments import check_offset, check_whole_number
from seeklog.clock import as_milliseconds
from seeklog.config import LogConfig
from seeklog.errors import LogClosed, TopicNotFound, UsageError
from seeklog.log import LogReader, find_offset_at_time, take_snapshot
from seeklog.names import TopicPartition
from seeklog.record import Bytes, arrow
from seeklog.record.encode import checked_key
from seeklog.record.key_hash import partition_of
from seeklog.record.record import Record
from seeklog.topics import catalog
from seeklog.topics.open_logs import OpenLogs
from seeklog.topics.topics import Topics

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Unpack

    import pandas
    import polars
    import pyarrow

    from seeklog.store.dataset import TopicDataset

Answer = TypeVar("Answer")
Point: TypeAlias = "int | datetime"

COLUMNS: Final = ("partition", *arrow.COLUMNS)


@dataclass(frozen=True, slots=True)
class Range:
    """The records of one partition in [start, stop)."""

    partition: int
    log: LogReader
    start: int
    stop: int


class ScanOptions(TypedDict, total=False):
    """The options of `Topic.scan_arrow`."""

    columns: Sequence[str]
    partitions: Sequence[int] | None
    start: Point | None
    end: Point | None
    key: Bytes | None
    batch_rows: int
    timestamp_unit: arrow.TimestampUnit
    threads: int | None


class _Point(NamedTuple):
    """An offset, or a time in milliseconds."""

    number: int
    is_time: bool

    def offset_in(self, log: LogReader, *, first: int, stop: int) -> int:
        if not self.is_time:
            return min(max(self.number, first), stop)
        found = find_offset_at_time(log, self.number)
        return stop if found is None else min(max(found, first), stop)


def _range_of(log: LogReader, *, partition: int, start: _Point | None, end: _Point | None) -> Range:
    seen = take_snapshot(log)
    first, stop = seen.log_start_offset, seen.high_watermark
    begin = first if start is None else start.offset_in(log, first=first, stop=stop)
    return Range(partition, log, begin, stop if end is None else end.offset_in(log, first=first, stop=stop))


class Topic:
    """One topic of a store: its id, its settings, and the records of all its partitions.

    A handle belongs to one topic id. After the topic was deleted, or deleted and recreated, every method raises
    `TopicNotFound`. Any thread may call any method.
    """

    def __init__(self, topics: Topics, table: OpenLogs, found: catalog.Topic) -> None:
        self._topics = topics
        self._table = table
        self.name = found.name
        self.topic_id = found.topic_id

    def __repr__(self) -> str:
        return f"<Topic {self.name} {self.topic_id}>"

    def _now(self) -> catalog.Topic:
        found = self._topics.find(self.name)
        if found.topic_id != self.topic_id:
            raise TopicNotFound(f"topic {self.name!r} was deleted and recreated; ask the store for it again")
        return found

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partition numbers."""
        self._topics.refresh()
        return self._now().partitions

    @property
    def config(self) -> LogConfig:
        """The topic's effective configuration."""
        self._topics.refresh()
        return self._topics.config_of(self._now())

    @property
    def configured(self) -> Mapping[str, Any]:
        """The settings of this topic itself, by Kafka's names. The others come from the store."""
        self._topics.refresh()
        return dict(self._now().config)

    def log(self, partition: int) -> LogReader:
        """Return a reader of one partition. The store closes it. After an append, call this again for a new reader."""
        topic_partition = TopicPartition(self.name, check_offset(partition, name="partition"))
        reader = self._table.reading(topic_partition)
        if self._table.topic_id(topic_partition) != self.topic_id:
            self._now()
        return reader

    def _ask(self, partition: int, question: Callable[[LogReader], Answer]) -> Answer:
        self._now()
        return self._table.ask(TopicPartition(self.name, partition), question)

    def _chosen(self, partitions: Sequence[int] | None) -> Sequence[int]:
        if isinstance(partitions, int):
            raise UsageError(f"partitions is a list of numbers; pass [{partitions}]")
        return self.partitions if partitions is None else partitions

    # ------------------------------------------------------------ records

    def scan(
        self,
        *,
        partitions: Sequence[int] | None = None,
        start: Point | None = None,
        end: Point | None = None,
        key: Bytes | None = None,
    ) -> Iterator[Record]:
        """Iterate over the records visible now: partition by partition, in offset order within each.

        `partitions` selects partitions. `start` and `end` bound the offsets of each: `start` is included, `end` is not.
        Each is an offset, or a time as a datetime with a time zone, which stands for the first record with that
        timestamp or a later one, as in `offset_at_time`. A partition that has no such offset begins at its first record
        and ends at its last. `key` selects the records with that key, in the partition to which Kafka's default
        partitioner maps it, or in `partitions`.
        """
        key = None if key is None else checked_key(key)
        ranges = self._ranges(partitions, start=start, end=end, key=key)
        records = chain.from_iterable(map(self._records, ranges))
        return records if key is None else (record for record in records if record.key == key)

    def _records(self, part: Range) -> Iterator[Record]:
        """Iterate over a range. The store closes a reader when its partition is written, or to make room."""
        log = part.log
        while True:
            try:
                records = log.scan(part.start, part.stop)
            except LogClosed:
                if not log.is_closed:
                    raise
                log = self.log(part.partition)
            else:
                return records

    def scan_arrow(
        self,
        *,
        columns: Sequence[str] = COLUMNS,
        partitions: Sequence[int] | None = None,
        start: Point | None = None,
        end: Point | None = None,
        key: Bytes | None = None,
        batch_rows: int = 32768,
        timestamp_unit: arrow.TimestampUnit = "ms",
        threads: int | None = None,
    ) -> pyarrow.RecordBatchReader:
        """Read the records of `scan`, in the same order, as a stream of Arrow batches with only these columns.

        The columns may also include `topic` and `timestampType`. Several threads read ahead, by default one for each
        core and at most 8; each holds at most 32 MiB of decoded batches, and one more. They start with the first batch.
        They end with the last one, or when the reader is closed or deleted.
        """
        pa = arrow.import_pyarrow()
        from seeklog.store.scan import Scan, topic_schema

        schema = topic_schema(columns, timestamp_unit=timestamp_unit)
        key = None if key is None else bytes(checked_key(key))
        scan = Scan(
            self.name,
            schema,
            batch_rows=batch_rows,
            timestamp_unit=timestamp_unit,
            key=key,
            threads=threads,
            reopen=self.log,
        )
        ranges = self._ranges(partitions, start=start, end=end, key=key)
        return pa.RecordBatchReader.from_batches(schema, scan.batches(ranges))

    def to_pandas(self, **options: Unpack[ScanOptions]) -> pandas.DataFrame:
        """Return the records of `scan_arrow`, which has the same options, as a pandas data frame.

        Keys and values are `bytes` or None, times have the type `datetime64[ms, UTC]`, and headers are tuples as in
        `Record.headers`.
        """
        arrow.import_pyarrow()
        from seeklog.store.frames import to_pandas

        return to_pandas(self.scan_arrow(**options))

    def to_polars(self, **options: Unpack[ScanOptions]) -> polars.DataFrame:
        """Return the records of `scan_arrow`, which has the same options, as a polars data frame."""
        arrow.import_pyarrow()
        from seeklog.store.frames import to_polars

        return to_polars(self.scan_arrow(**options))

    def dataset(self, *, threads: int | None = None) -> TopicDataset:
        """Return the topic as an Arrow dataset, for DuckDB, polars and other tools that scan datasets.

        Each scan of it reads the records that are visible when it begins, in the order of `scan`, with `threads` as in
        `scan_arrow`. The columns and the filter of a scan limit what is read: partitions, offsets and times.
        """
        arrow.import_pyarrow()
        from seeklog.store.dataset import TopicDataset

        return TopicDataset(self.name, self._ranges, threads=threads, reopen=self.log)

    def _ranges(
        self,
        partitions: Sequence[int] | None = None,
        *,
        start: Point | None = None,
        end: Point | None = None,
        key: Bytes | None = None,
    ) -> list[Range]:
        first, last = self._checked_point("start", start), self._checked_point("end", end)
        chosen = self._chosen(partitions)
        # A broker may hold only some partitions of a topic. How many there are is not known then.
        if key is not None and partitions is None and tuple(chosen) == tuple(range(len(chosen))):
            chosen = (partition_of(bytes(key), len(chosen)),)
        return [self._ask(number, partial(_range_of, partition=number, start=first, end=last)) for number in chosen]

    def _checked_point(self, name: str, point: Point | None) -> _Point | None:
        if point is None or isinstance(point, int):
            return None if point is None else _Point(check_whole_number(name, point), is_time=False)
        return _Point(as_milliseconds(point, clock=self._topics.clock), is_time=True)

    def latest(self, key: Bytes, *, partition: int | Literal["all"] | None = None) -> Record | None:
        """Return the newest record with this key, or None. Tombstones count.

        By default this looks in the partition to which Kafka's default partitioner maps the key. Pass a partition
        number, or "all" if the key may be in several, as after `add_partitions` or with a custom partitioner. Among
        several records the one with the highest timestamp wins, then the one with the highest offset.
        """
        key = checked_key(key)
        found = self._now()
        if partition is None:
            chosen: Sequence[int] = (partition_of(key, len(found.partitions)),)
        else:
            chosen = found.partitions if partition == "all" else (check_offset(partition, name="partition"),)
        records = [self._ask(number, partial(LogReader.latest_for_key, key=key)) for number in chosen]
        return max(
            (record for record in records if record is not None),
            key=lambda record: (record.timestamp_ms, record.offset),
            default=None,
        )

    def contains(self, key: Bytes, *, partition: int | Literal["all"] | None = None) -> bool:
        """Return whether a record has this key, even if it is a tombstone. `partition` is as in `latest`."""
        return self.latest(key, partition=partition) is not None

    def offset_at_time(self, timestamp_ms: int | datetime) -> dict[TopicPartition, int | None]:
        """Return for each partition the offset of the first record with a timestamp at or after a time, or None.

        The time is milliseconds since 1970, or a datetime with a time zone.
        """
        wanted_ms = as_milliseconds(timestamp_ms, clock=self._topics.clock)
        return {
            TopicPartition(self.name, number): self._ask(number, partial(find_offset_at_time, timestamp_ms=wanted_ms))
            for number in self.partitions
        }
