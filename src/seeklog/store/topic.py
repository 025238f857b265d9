"""`Topic`: a handle on one topic, for reading across its partitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from seeklog.arguments import check_offset
from seeklog.clock import as_milliseconds
from seeklog.config import LogConfig
from seeklog.errors import TopicNotFound, UsageError
from seeklog.log import LogReader, find_offset_at_time
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

    import pyarrow

    from seeklog.store.dataset import TopicDataset

Answer = TypeVar("Answer")

COLUMNS: Final = ("partition", *arrow.COLUMNS)


@dataclass(frozen=True, slots=True)
class Range:
    """The records of one partition in [start, stop)."""

    partition: int
    log: LogReader
    start: int
    stop: int


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

    def scan(self, *, partitions: Sequence[int] | None = None) -> Iterator[Record]:
        """Iterate over the records visible now: partition by partition, in offset order within each."""
        ranges = self._ranges(partitions)
        return (record for part in ranges for record in part.log.scan(part.start, part.stop))

    def scan_arrow(
        self,
        *,
        columns: Sequence[str] = COLUMNS,
        partitions: Sequence[int] | None = None,
        batch_rows: int = 32768,
        timestamp_unit: arrow.TimestampUnit = "ms",
    ) -> pyarrow.RecordBatchReader:
        """Read the same records as a stream of Arrow batches with the given columns, which may include `partition`."""
        pa = arrow.import_pyarrow()
        names = (columns,) if isinstance(columns, str) else tuple(columns)
        own = arrow.check_columns([name for name in names if name != "partition"] or ("offset",))
        number = pa.field("partition", pa.int32(), nullable=False)
        fields = {field.name: field for field in (*arrow.schema(own, timestamp_unit=timestamp_unit), number)}
        schema = pa.schema([fields[name] for name in names])
        ranges = self._ranges(partitions)

        def batches() -> Iterator[pyarrow.RecordBatch]:
            for part in ranges:
                for batch in part.log.scan_arrow(
                    part.start, part.stop, columns=own, batch_rows=batch_rows, timestamp_unit=timestamp_unit
                ):
                    found = {name: batch.column(name) for name in own}
                    found["partition"] = pa.repeat(pa.scalar(part.partition, pa.int32()), batch.num_rows)
                    yield pa.RecordBatch.from_arrays([found[name] for name in names], schema=schema)

        return pa.RecordBatchReader.from_batches(schema, batches())

    def dataset(self) -> TopicDataset:
        """Return the topic as an Arrow dataset, for DuckDB and other tools that scan datasets."""
        arrow.import_pyarrow()
        from seeklog.store.dataset import TopicDataset

        return TopicDataset(self.name, self._ranges)

    def _ranges(self, partitions: Sequence[int] | None = None) -> list[Range]:
        logs = {number: self.log(number) for number in self._chosen(partitions)}
        return [Range(number, log, log.log_start_offset, log.high_watermark) for number, log in logs.items()]

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
