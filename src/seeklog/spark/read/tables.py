"""Metadata tables: `option("table", ...)`, read from headers, seals, and indexes without decoding records.

segments   a row per segment. `record_count` is the number of records in its file.
batches    a row per readable batch, with the fields of its header.
offsets    a row per partition. `record_count` is the number of rows of a read from earliest to latest.
groups     a row per partition that a consumer group has committed or has assigned to a member.

Control batches are not records and are not counted, except in the header fields of `batches`. Neither are offsets that
compaction removed, so `record_count` is not a difference of offsets. The count in a seal is used for segments that
seeklog started; these contain control batches only if raw batches were appended.

Each table has a function that plans its splits in the driver, and a function that yields the rows of a split in a task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from seeklog import names
from seeklog.archive.reading import Origin
from seeklog.errors import GroupNotFound, SeeklogError
from seeklog.files import Files, translate
from seeklog.log import (
    Census,
    Pin,
    Segment,
    first_timestamp_ms,
    make_pin,
    pinned_view,
    scan_headers,
    take_census,
    take_snapshot,
)
from seeklog.log.side import Seal
from seeklog.names import TopicPartition
from seeklog.record.arrow import import_pyarrow
from seeklog.spark.read.offsets import Bounds, find_bounds, full_ranges
from seeklog.spark.read.options import Choice, TableOptions
from seeklog.spark.read.plan import pack, plan_splits
from seeklog.spark.read.schema import arrow_schema, check_schema, parse_schema
from seeklog.store import Store, open_store, origin_of

if TYPE_CHECKING:
    import pyarrow

ROWS_PER_BATCH: Final = 8192
# The headers of 1 GB are read in a fraction of a second, so the splits of tables are larger than those of records.
WALK_BYTES: Final = 1 << 30
OPEN_COST: Final = 1 << 20
US_PER_MS: Final = 1000


class TableReader(DataSourceReader):
    """Reads a metadata table."""

    def __init__(self, options: TableOptions, schema: StructType) -> None:
        known = TABLES[options.table].schema
        columns = check_schema(schema, known, subject=f"the table {options.table}")
        self._indexes = [known.fieldNames().index(name) for name in columns]
        self._schema = arrow_schema(schema)
        self._options = options

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with options.open() as store:
            return list(TABLES[options.table].plan(store, options.choice))

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        if not isinstance(partition, TableSplit):
            return  # Spark passes an `InputPartition` if there is nothing to read
        pa = import_pyarrow()
        rows = TABLES[self._options.table].rows(partition)
        try:
            while chunk := list(islice(rows, ROWS_PER_BATCH)):
                columns = list(zip(*chunk, strict=True))
                chosen = zip(self._indexes, self._schema, strict=True)
                arrays = [pa.array(columns[index], field.type) for index, field in chosen]
                yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        except OSError as error:
            advice = "it was deleted meanwhile; read the table again" if isinstance(error, FileNotFoundError) else ""
            fact = f"a file of the store at {partition.origin.root} cannot be read"
            raise translate(error, fact, advice=advice) from error


class TableSplit(InputPartition):
    """The parts of a table that one task reads."""

    def __init__(self, origin: Origin, parts: Sequence[Any]) -> None:
        self.origin = origin
        self.parts = tuple(parts)


class SegmentPlan(NamedTuple):
    """A segment to count, and the offsets to count in it. A trusted seal saves reading the headers."""

    at: TopicPartition
    start: int
    stop: int
    pin: Pin
    seal: Seal | None
    is_seal_trusted: bool
    limit: int

    @property
    def walk_cost(self) -> int:
        return OPEN_COST + (0 if self.is_seal_trusted else self.pin.segments[0].size)

    def open(self, files: Files, root: str) -> Segment:
        return pinned_view(files, f"{root}/{self.at}", self.pin).segments[0]

    def census(self, segment: Segment, *, start: int, stop: int) -> Census:
        """Return the census of the segment's records in [start, stop)."""
        seal = self.seal
        if self.is_seal_trusted and seal is not None and start <= segment.base_offset and segment.next_offset <= stop:
            first = next(scan_headers(segment, segment.base_offset, stop), None)
            first_ms = -1 if first is None else first_timestamp_ms(first[1])
            return Census(seal.batch_count, seal.record_count, first_ms, seal.max_timestamp_ms)
        return take_census(segment, start, stop, limit=self.limit)


class PartitionPlan(NamedTuple):
    """A partition to count."""

    at: TopicPartition
    bounds: Bounds
    log_end_offset: int
    segments: tuple[SegmentPlan, ...]

    @property
    def walk_cost(self) -> int:
        return sum(segment.walk_cost for segment in self.segments)


def _plan_partitions(store: Store, choice: Choice) -> Iterator[PartitionPlan]:
    for at, bounds in find_bounds(store, choice).items():
        log = store.log(at.topic, at.partition)
        seen = take_snapshot(log)
        segments = []
        for segment in seen.view.segments:
            segment.fetch_seal()  # costs a request for a file at a URL, but less than reading headers
            plan = SegmentPlan(
                at=at,
                start=max(segment.base_offset, bounds.log_start_offset),
                stop=max(segment.base_offset, min(segment.next_offset, bounds.high_watermark)),
                pin=make_pin(seen.view, segment.base_offset, max(segment.next_offset, segment.base_offset + 1)),
                seal=segment.seal,
                is_seal_trusted=segment.seal is not None and segment.base_offset >= seen.contiguous_from,
                limit=log.config.max_decompressed_bytes,
            )
            segments.append(plan)
        yield PartitionPlan(at, bounds, seen.log_end_offset, tuple(segments))


def _splits_of(store: Store, plans: Iterable[SegmentPlan | PartitionPlan]) -> list[TableSplit]:
    origin = origin_of(store)
    return [TableSplit(origin, group) for group in pack(plans, lambda plan: plan.walk_cost, WALK_BYTES)]


def _plan_segments(store: Store, choice: Choice) -> list[TableSplit]:
    return _splits_of(store, (segment for plan in _plan_partitions(store, choice) for segment in plan.segments))


def _segment_rows(split: TableSplit) -> Iterator[tuple[Any, ...]]:
    files = split.origin.files()
    for plan in split.parts:
        segment = plan.open(files, split.origin.root)
        census = plan.census(segment, start=segment.base_offset, stop=segment.next_offset)
        sealed_at_ms = plan.seal.sealed_at_ms if plan.seal is not None else 0
        yield (
            *plan.at,
            segment.base_offset,
            segment.next_offset,
            segment.size,
            census.batch_count,
            census.record_count,
            _us(census.first_timestamp_ms),
            _us(census.max_timestamp_ms),
            sealed_at_ms > 0,
            segment.contiguous,
            _us(sealed_at_ms or -1),
            _file_size(segment, names.OFFSET_INDEX),
            _file_size(segment, names.TIME_INDEX),
            segment.path,
        )


def _file_size(segment: Segment, suffix: str) -> int | None:
    try:
        return segment.shared.files.file_size(segment.shared.path(segment.base_offset, suffix))
    except OSError:
        return None


def _plan_offsets(store: Store, choice: Choice) -> list[TableSplit]:
    return _splits_of(store, _plan_partitions(store, choice))


def _offset_rows(split: TableSplit) -> Iterator[tuple[Any, ...]]:
    files, root = split.origin.files(), split.origin.root
    for plan in split.parts:
        censuses = [
            segment.census(segment.open(files, root), start=segment.start, stop=segment.stop)
            for segment in plan.segments
            if segment.start < segment.stop
        ]
        yield (
            *plan.at,
            plan.bounds.log_start_offset,
            plan.bounds.high_watermark,
            plan.log_end_offset,
            sum(census.record_count for census in censuses),
            sum(census.batch_count for census in censuses),
            sum(segment.pin.segments[0].size for segment in plan.segments),
            len(plan.segments),
            _us(next((census.first_timestamp_ms for census in censuses if census.record_count), -1)),
            _us(max((census.max_timestamp_ms for census in censuses), default=-1)),
            plan.bounds.topic_id,
            f"{root}/{plan.at}",
        )


def _plan_batches(store: Store, choice: Choice) -> list[TableSplit]:
    """Plan splits as for records. A batch belongs to the piece with its base offset, else to the partition's first."""
    bounds = find_bounds(store, choice)
    return [
        TableSplit(split.origin, [(piece, piece.start == bounds[piece.at].log_start_offset) for piece in split.pieces])
        for split in plan_splits(store, full_ranges(bounds), split_bytes=WALK_BYTES)
    ]


def _batch_rows(split: TableSplit) -> Iterator[tuple[Any, ...]]:
    files = split.origin.files()
    for piece, is_first in split.parts:
        for segment in pinned_view(files, f"{split.origin.root}/{piece}", piece.pin).segments:
            for position, header in scan_headers(segment, piece.start, piece.stop):
                if header.base_offset < piece.start and not is_first:
                    continue
                yield (
                    *piece.at,
                    segment.base_offset,
                    position,
                    header.size,
                    header.base_offset,
                    header.last_offset,
                    header.record_count,
                    header.codec,
                    int(header.is_log_append_time),
                    _us(first_timestamp_ms(header)),
                    _us(header.max_timestamp_ms),
                    header.leader_epoch,
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    header.is_transactional,
                    header.is_control,
                    header.crc,
                )


def _plan_groups(store: Store, choice: Choice) -> list[TableSplit]:
    """Return one split for all groups."""
    return [TableSplit(origin_of(store), [choice])]


def _group_rows(split: TableSplit) -> Iterator[tuple[Any, ...]]:
    (choice,) = split.parts
    origin = split.origin
    with open_store(origin.root, read_only=True, background=False, storage_options=origin.storage_options) as store:
        chosen = None if choice == Choice() else find_bounds(store, choice)
        for name in store.groups():
            try:
                group = store.describe_group(name)
            except GroupNotFound:
                continue  # deleted since its name was listed
            readers = {at: member for member in group.members for at in member.assignment}
            for at in sorted({*group.committed, *readers}):
                if chosen is not None and at not in chosen:
                    continue
                committed, reader = group.committed.get(at), readers.get(at)
                start, end = _bounds_of(store, at)
                next_offset = committed.offset if committed is not None else None
                yield (
                    name,
                    *at,
                    next_offset,
                    start,
                    end,
                    None if start is None or end is None else max(0, end - max(start, next_offset or start)),
                    committed.metadata if committed is not None else None,
                    _us(committed.commit_timestamp_ms) if committed is not None else None,
                    group.generation,
                    reader.member_id if reader is not None else None,
                    reader.client_id if reader is not None else None,
                )


def _bounds_of(store: Store, at: TopicPartition) -> tuple[int | None, int | None]:
    try:
        log = store.log(at.topic, at.partition)
        return log.log_start_offset, log.high_watermark
    except SeeklogError:
        return None, None  # a group may have committed offsets of a deleted topic or of another store


def _us(timestamp_ms: int) -> int | None:
    return timestamp_ms * US_PER_MS if timestamp_ms >= 0 else None


class Table(NamedTuple):
    """A metadata table: its columns, its splits, and the rows of a split."""

    schema: StructType
    plan: Callable[[Store, Choice], Sequence[InputPartition]]
    rows: Callable[[TableSplit], Iterator[tuple[Any, ...]]]


TABLES: Final = {
    "segments": Table(
        parse_schema(
            "topic string, partition int, base_offset bigint, next_offset bigint, size bigint, batch_count bigint, "
            "record_count bigint, first_timestamp timestamp, max_timestamp timestamp, is_sealed boolean, "
            "is_contiguous boolean, sealed_at timestamp, offset_index_size bigint, time_index_size bigint, path string"
        ),
        _plan_segments,
        _segment_rows,
    ),
    "batches": Table(
        parse_schema(
            "topic string, partition int, segment bigint, position bigint, size bigint, base_offset bigint, "
            "last_offset bigint, record_count int, codec string, timestamp_type int, first_timestamp timestamp, "
            "max_timestamp timestamp, leader_epoch int, producer_id bigint, producer_epoch int, base_sequence int, "
            "is_transactional boolean, is_control boolean, crc bigint"
        ),
        _plan_batches,
        _batch_rows,
    ),
    "offsets": Table(
        parse_schema(
            "topic string, partition int, log_start_offset bigint, high_watermark bigint, log_end_offset bigint, "
            "record_count bigint, batch_count bigint, size bigint, segment_count int, first_timestamp timestamp, "
            "max_timestamp timestamp, topic_id string, path string"
        ),
        _plan_offsets,
        _offset_rows,
    ),
    "groups": Table(
        parse_schema(
            "group string, topic string, partition int, committed_offset bigint, log_start_offset bigint, "
            "high_watermark bigint, lag bigint, metadata string, commit_timestamp timestamp, generation int, "
            "member_id string, client_id string"
        ),
        _plan_groups,
        _group_rows,
    ),
}
