"""Metadata tables: `option("table", ...)`. They come from headers, seals and indexes; records are not read.

segments   a row for each segment: what its file holds. `record_count` is how many records stand in its batches.
batches    a row for each batch that can be read, as its header has it.
offsets    a row for each partition. `record_count` is how many rows a read from earliest to latest has.
groups     a row for each partition that a consumer group has committed or has assigned to a member.

Markers of transactions (control batches) are nobody's records and count nowhere, except where a batch's own header
is shown. Offsets that compaction has left out do not count either, so `record_count` is not a difference of offsets.
The seal's count is taken for a segment that seeklog began itself; only raw batches appended by hand could have brought
markers into one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from seeklog import names
from seeklog.errors import GroupNotFound, NotAccessible, SeeklogError
from seeklog.files import OsFiles
from seeklog.names import TopicPartition
from seeklog.record.arrow import import_pyarrow
from seeklog.record.batch import BatchHeader
from seeklog.spark.offsets import Bounds, Range, find_bounds
from seeklog.spark.options import Choice, TableOptions
from seeklog.spark.plan import Split, plan_splits
from seeklog.spark.schema import arrow_schema, check_schema
from seeklog.storage.headers import Census, first_timestamp_ms, scan_headers, take_census
from seeklog.storage.log import Log
from seeklog.storage.pinned import Pin, make_pin, pinned_view
from seeklog.storage.seal import Seal
from seeklog.storage.segment import Segment
from seeklog.store import Store, open_store

if TYPE_CHECKING:
    import pyarrow

ROWS_PER_BATCH: Final = 8192
# Headers of a gigabyte are walked in a fraction of a second, so splits of tables are larger than those of records.
WALK_BYTES: Final = 1 << 30
OPEN_COST: Final = 1 << 20
US_PER_MS: Final = 1000

_TYPES: Final[Mapping[str, DataType]] = {
    "string": StringType(),
    "int": IntegerType(),
    "long": LongType(),
    "time": TimestampType(),
    "flag": BooleanType(),
}


def _struct(columns: str) -> StructType:
    return StructType(
        [StructField(name, _TYPES[kind]) for name, kind in (column.split() for column in columns.strip().splitlines())]
    )


SCHEMAS: Final[Mapping[str, StructType]] = {
    "segments": _struct(
        """topic string
        partition int
        base_offset long
        next_offset long
        size long
        batch_count long
        record_count long
        first_timestamp time
        max_timestamp time
        is_sealed flag
        is_contiguous flag
        sealed_at time
        offset_index_size long
        time_index_size long
        path string"""
    ),
    "batches": _struct(
        """topic string
        partition int
        segment long
        position long
        size long
        base_offset long
        last_offset long
        record_count int
        codec string
        timestamp_type int
        first_timestamp time
        max_timestamp time
        leader_epoch int
        producer_id long
        producer_epoch int
        base_sequence int
        is_transactional flag
        is_control flag
        crc long"""
    ),
    "offsets": _struct(
        """topic string
        partition int
        log_start_offset long
        high_watermark long
        log_end_offset long
        record_count long
        batch_count long
        size long
        segment_count int
        first_timestamp time
        max_timestamp time
        topic_id string
        path string"""
    ),
    "groups": _struct(
        """group string
        topic string
        partition int
        committed_offset long
        log_start_offset long
        high_watermark long
        lag long
        metadata string
        commit_timestamp time
        generation int
        member_id string
        client_id string"""
    ),
}


def table_schema(table: str) -> StructType:
    """Return the columns of a metadata table."""
    return SCHEMAS[table]


class SegmentPlan(NamedTuple):
    """One segment to be counted, and where; a seal that may be believed saves the walk."""

    topic: str
    partition: int
    start: int
    stop: int
    pin: Pin
    seal: Seal | None
    is_believed: bool
    limit: int


class PartitionPlan(NamedTuple):
    """One partition to be counted."""

    topic: str
    partition: int
    bounds: Bounds
    log_end_offset: int
    segments: tuple[SegmentPlan, ...]


class TableSplit(InputPartition):
    """What one task makes rows of."""

    def __init__(self, path: str, parts: Sequence[Any]) -> None:
        self.path = path
        self.parts = tuple(parts)


class TableReader(DataSourceReader):
    """Reads a metadata table."""

    def __init__(self, options: TableOptions, schema: StructType) -> None:
        known = SCHEMAS[options.table]
        self._columns = check_schema(schema, known, what=f"the table {options.table}")
        self._places = [known.fieldNames().index(name) for name in self._columns]
        self._schema = arrow_schema(schema)
        self._options = options

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with open_store(options.path, read_only=True, background=False) as store:
            return list(_PLANNERS[options.table](store, options.choice))

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        if not isinstance(partition, TableSplit | Split):
            return  # Spark makes a partition of its own where there is none
        rows = _ROWS[self._options.table](partition)
        try:
            while chunk := list(islice(rows, ROWS_PER_BATCH)):
                yield self._batch(chunk)
        except OSError as error:
            hint = "; it was deleted meanwhile, read the table again" if isinstance(error, FileNotFoundError) else ""
            raise NotAccessible(f"a file of the store at {partition.path} cannot be read: {error}{hint}") from error

    def _batch(self, rows: list[tuple[Any, ...]]) -> pyarrow.RecordBatch:
        pa = import_pyarrow()
        columns = list(zip(*rows, strict=True))
        arrays = [pa.array(columns[place], field.type) for place, field in zip(self._places, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


# ---------------------------------------------------------------- planning


def _plan_partitions(store: Store, choice: Choice) -> Iterator[PartitionPlan]:
    for at, bounds in find_bounds(store, choice).items():
        log = store.log(at.topic, at.partition)
        begun_here = _begun_here_from(log)
        limit = log.config.max_decompressed_bytes
        view = log._partition.view
        yield PartitionPlan(
            topic=at.topic,
            partition=at.partition,
            bounds=bounds,
            log_end_offset=log._partition.log_end_offset,
            segments=tuple(
                SegmentPlan(
                    topic=at.topic,
                    partition=at.partition,
                    start=max(segment.base_offset, bounds.log_start_offset),
                    stop=max(segment.base_offset, min(segment.next_offset, bounds.high_watermark)),
                    pin=make_pin(view, segment.base_offset, max(segment.next_offset, segment.base_offset + 1)),
                    seal=segment.seal,
                    is_believed=segment.seal is not None and segment.base_offset >= begun_here,
                    limit=limit,
                )
                for segment in view.segments
            ),
        )


def _begun_here_from(log: Log) -> int:
    """Return the first offset of which it is certain that seeklog has written all from there on."""
    checkpoint = getattr(log._partition, "_checkpoint", None)
    return 2**63 - 1 if checkpoint is None or checkpoint.foreign else checkpoint.contiguous_from


def _plan_segments(store: Store, choice: Choice) -> list[TableSplit]:
    plans = [segment for plan in _plan_partitions(store, choice) for segment in plan.segments]
    return _packed(str(store.path), plans, _walk_cost)


def _plan_offsets(store: Store, choice: Choice) -> list[TableSplit]:
    return _packed(str(store.path), _plan_partitions(store, choice), lambda plan: sum(map(_walk_cost, plan.segments)))


def _plan_batches(store: Store, choice: Choice) -> list[Split]:
    bounds = find_bounds(store, choice)
    ranges = [Range(at, one.log_start_offset, one.high_watermark) for at, one in bounds.items()]
    return plan_splits(store, ranges, split_bytes=WALK_BYTES)


def _plan_groups(store: Store, choice: Choice) -> list[TableSplit]:
    return [TableSplit(str(store.path), [choice])]


def _walk_cost(plan: SegmentPlan) -> int:
    return OPEN_COST + (0 if plan.is_believed else plan.pin.segments[0].size)


def _packed(path: str, parts: Iterable[Any], cost_of: Callable[[Any], int]) -> list[TableSplit]:
    groups: list[list[Any]] = []
    cost = WALK_BYTES
    for part in parts:
        cost += cost_of(part)
        if cost > WALK_BYTES:
            groups.append([])
            cost = cost_of(part)
        groups[-1].append(part)
    return [TableSplit(path, group) for group in groups]


# ---------------------------------------------------------------- rows


def _segment_rows(split: TableSplit) -> Iterator[tuple[Any, ...]]:
    for plan in split.parts:
        segment = _open_segment(split.path, plan)
        census = _census(segment, plan, start=segment.base_offset, stop=segment.next_offset)
        yield (
            plan.topic,
            plan.partition,
            segment.base_offset,
            segment.next_offset,
            segment.size,
            census.batch_count,
            census.record_count,
            _us(census.first_timestamp_ms),
            _us(census.max_timestamp_ms),
            plan.seal is not None and plan.seal.sealed_at_ms > 0,
            segment.contiguous,
            _us(plan.seal.sealed_at_ms if plan.seal is not None and plan.seal.sealed_at_ms else -1),
            _file_size(segment, names.OFFSET_INDEX),
            _file_size(segment, names.TIME_INDEX),
            segment.path,
        )


def _offset_rows(split: TableSplit) -> Iterator[tuple[Any, ...]]:
    for plan in split.parts:
        found = [
            _census(_open_segment(split.path, one), one, start=one.start, stop=one.stop)
            for one in plan.segments
            if one.start < one.stop
        ]
        first = next((one.first_timestamp_ms for one in found if one.record_count), -1)
        yield (
            plan.topic,
            plan.partition,
            plan.bounds.log_start_offset,
            plan.bounds.high_watermark,
            plan.log_end_offset,
            sum(one.record_count for one in found),
            sum(one.batch_count for one in found),
            sum(one.pin.segments[0].size for one in plan.segments),
            len(plan.segments),
            _us(first),
            _us(max((one.max_timestamp_ms for one in found), default=-1)),
            plan.bounds.topic_id,
            f"{split.path}/{TopicPartition(plan.topic, plan.partition)}",
        )


def _batch_rows(split: Split) -> Iterator[tuple[Any, ...]]:
    for piece in split.pieces:
        view = pinned_view(OsFiles(), f"{split.path}/{piece}", piece.pin)
        for segment in view.segments:
            for position, header in scan_headers(segment, piece.start, piece.stop):
                yield _batch_row(piece.topic, piece.partition, segment.base_offset, position, header)


def _batch_row(topic: str, partition: int, segment: int, position: int, header: BatchHeader) -> tuple[Any, ...]:
    return (
        topic,
        partition,
        segment,
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


def _group_rows(split: TableSplit) -> Iterator[tuple[Any, ...]]:
    (choice,) = split.parts
    with open_store(split.path, read_only=True, background=False) as store:
        chosen = None if choice == Choice() else find_bounds(store, choice)
        for name in store.groups():
            try:
                group = store._groups.find(name)
            except GroupNotFound:
                continue  # deleted since its name was listed
            readers = {at: one for one in store._groups.living(group).values() for at in one.assignment}
            for at in sorted({*group.offsets, *readers}):
                if chosen is not None and at not in chosen:
                    continue
                committed, reader = group.offsets.get(at), readers.get(at)
                start, end = _bounds_of(store, at)
                next_offset = committed.offset if committed is not None else None
                yield (
                    name,
                    at.topic,
                    at.partition,
                    next_offset,
                    start,
                    end,
                    None if start is None or end is None else max(0, end - max(start, next_offset or start)),
                    committed.metadata if committed is not None else None,
                    _us(committed.commit_timestamp_ms) if committed is not None else None,
                    group.state.generation,
                    reader.member_id if reader is not None else None,
                    reader.client_id if reader is not None else None,
                )


def _bounds_of(store: Store, at: TopicPartition) -> tuple[int | None, int | None]:
    try:
        log = store.log(at.topic, at.partition)
        return log.log_start_offset, log.high_watermark
    except SeeklogError:
        return None, None  # a group may speak of a topic that is gone, or of partitions that lie elsewhere


def _open_segment(path: str, plan: SegmentPlan) -> Segment:
    directory = f"{path}/{TopicPartition(plan.topic, plan.partition)}"
    return pinned_view(OsFiles(), directory, plan.pin).segments[0]


def _census(segment: Segment, plan: SegmentPlan, *, start: int, stop: int) -> Census:
    seal = plan.seal
    if plan.is_believed and seal is not None and start <= segment.base_offset and segment.next_offset <= stop:
        first = next(scan_headers(segment, segment.base_offset, stop), None)
        return Census(
            seal.batch_count,
            seal.record_count,
            -1 if first is None else first_timestamp_ms(first[1]),
            seal.max_timestamp_ms,
        )
    return take_census(segment, start, stop, limit=plan.limit)


def _file_size(segment: Segment, suffix: str) -> int | None:
    try:
        return segment.shared.files.file_size(segment.shared.path(segment.base_offset, suffix))
    except OSError:
        return None


def _us(timestamp_ms: int) -> int | None:
    return timestamp_ms * US_PER_MS if timestamp_ms >= 0 else None


_PLANNERS: Final[Mapping[str, Callable[[Store, Choice], Sequence[InputPartition]]]] = {
    "segments": _plan_segments,
    "batches": _plan_batches,
    "offsets": _plan_offsets,
    "groups": _plan_groups,
}
_ROWS: Final[Mapping[str, Callable[[Any], Iterator[tuple[Any, ...]]]]] = {
    "segments": _segment_rows,
    "batches": _batch_rows,
    "offsets": _offset_rows,
    "groups": _group_rows,
}
