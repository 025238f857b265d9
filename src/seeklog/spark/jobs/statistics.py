"""`stats`: what a store's partitions hold, in figures, counted by Spark's tasks on the bytes of segments.

Headers tell batches, codecs, producers and throughput; records are decoded for sizes, keys and the order of times, and
compressed batches are expanded once more to see how large they were. Without records only headers are read.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from seeklog.archive.reading import Origin
from seeklog.config import INT64_MAX
from seeklog.errors import CorruptionError, DataLoss, SeeklogError, UsageError
from seeklog.files import translate
from seeklog.log import pinned_view, scan_headers
from seeklog.names import TopicPartition
from seeklog.record import codec
from seeklog.record.arrow import import_pyarrow
from seeklog.record.batch import BatchHeader
from seeklog.record.layout import CODEC_MASK, HEADER_SIZE
from seeklog.record.sketch import Keys, Sizes, Throughput
from seeklog.spark.jobs.frame import is_remote, no_word_of_pandas
from seeklog.spark.jobs.lake import chosen_topics
from seeklog.spark.jobs.progress import Progress, readable
from seeklog.spark.jobs.tasks import run_tasks
from seeklog.spark.option_map import local_path
from seeklog.spark.read.offsets import Bounds, Range, find_bounds
from seeklog.spark.read.options import Choice
from seeklog.spark.read.plan import Piece, Split, plan_splits
from seeklog.spark.read.scan import scan_split
from seeklog.spark.times import floor_divided
from seeklog.store import open_store

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("seeklog")

MINUTE_MS: Final = 60_000
TOP_KEYS: Final = 10
# Producers have ids of their own; a store that has more of them is told as having so many.
PRODUCERS_MOST: Final = 10_000
# Keys are counted so many at once, for the sake of Arrow's table of them.
KEY_ROWS: Final = 1 << 19
_PERCENTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_SIZES: Final = "struct<min: bigint, avg: double, max: bigint, p50: bigint, p95: bigint, p99: bigint>"
STATISTICS: Final = {
    "topic": "string",
    "partition": "int",
    "log_start_offset": "bigint",
    "high_watermark": "bigint",
    "records": "bigint",
    "batches": "bigint",
    "bytes": "bigint",
    "uncompressed_bytes": "bigint",
    "compression_ratio": "double",
    "codecs": "array<struct<codec: string, batches: bigint, bytes: bigint>>",
    "batch_bytes": _SIZES,
    "record_bytes": _SIZES,
    "first_timestamp": "timestamp",
    "last_timestamp": "timestamp",
    "records_per_s": "double",
    "bytes_per_s": "double",
    "bucket_s": "double",
    "throughput": "array<struct<start: timestamp, records: bigint, bytes: bigint>>",
    "null_keys": "bigint",
    "tombstones": "bigint",
    "distinct_keys": "bigint",
    "top_keys": "array<struct<key: binary, records: bigint, share: double>>",
    "top_keys_error": "bigint",
    "out_of_order": "bigint",
    "largest_step_back_ms": "bigint",
    "producers": "int",
}


@dataclass
class TimeOrder:
    """Whether times rise: how often one is before its predecessor, and by how much at most."""

    first_ms: int | None = None
    last_ms: int | None = None
    least_ms: int | None = None
    most_ms: int | None = None
    steps_back: int = 0
    largest_step_ms: int = 0

    def merge(self, behind: TimeOrder) -> None:
        """Add what follows."""
        if behind.first_ms is None or behind.last_ms is None or behind.least_ms is None or behind.most_ms is None:
            return
        if self.last_ms is None or self.least_ms is None or self.most_ms is None:
            self.__dict__.update(behind.__dict__)
            return
        step = self.last_ms - behind.first_ms
        self.steps_back += behind.steps_back + (step > 0)
        self.largest_step_ms = max(self.largest_step_ms, behind.largest_step_ms, step)
        self.last_ms = behind.last_ms
        self.least_ms, self.most_ms = min(self.least_ms, behind.least_ms), max(self.most_ms, behind.most_ms)


@dataclass
class Figures:
    """What was counted of a part of one partition."""

    throughput: Throughput
    records: int = 0
    size: int = 0
    uncompressed: int = 0
    codecs: Counter[str] = field(default_factory=Counter)
    codec_bytes: Counter[str] = field(default_factory=Counter)
    batch_sizes: Sizes = field(default_factory=Sizes)
    record_sizes: Sizes = field(default_factory=Sizes)
    null_keys: int = 0
    tombstones: int = 0
    keys: Keys = field(default_factory=Keys)
    order: TimeOrder = field(default_factory=TimeOrder)
    producers: set[int] = field(default_factory=set)

    def merge(self, behind: Figures) -> None:
        """Add what follows."""
        for name in ("records", "size", "uncompressed", "null_keys", "tombstones"):
            setattr(self, name, getattr(self, name) + getattr(behind, name))
        self.codecs.update(behind.codecs)
        self.codec_bytes.update(behind.codec_bytes)
        for sketch in ("throughput", "batch_sizes", "record_sizes", "keys", "order"):
            getattr(self, sketch).merge(getattr(behind, sketch))
        self.producers |= behind.producers


class Task(NamedTuple):
    """What one task counts."""

    origin: Origin
    piece: Piece
    is_first: bool
    """Whether a batch that begins before the piece belongs to it: to the first of a partition."""
    bucket_ms: int
    records: bool
    keys: bool


class Counted(NamedTuple):
    """What has come of it."""

    piece: Piece
    figures: Figures | None
    error: SeeklogError | None = None


def stats(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    topics: Iterable[str] | None = None,
    records: bool = True,
    keys: bool = True,
    bucket_ms: int = MINUTE_MS,
    top_keys: int = TOP_KEYS,
    progress: bool = True,
) -> DataFrame:
    """Return a row of figures for each partition: sizes, compression, throughput, key skew, disorder, producers.

    The work is done when this returns, of what there was when it was called; nothing is locked or changed. Sizes of
    records are those of key and value. `throughput` has buckets of `bucket_ms`, or of a multiple if they are more than
    a thousand. `distinct_keys` and the percentiles are near the truth, as `seeklog.sketch` says; a count in
    `top_keys` is too low by `top_keys_error` at most. Without `keys` the keys are not looked at, and without `records`
    only headers are read: what only records tell is null then, and times are those of batches.
    """
    if bucket_ms < 1 or top_keys < 0:
        raise UsageError("bucket_ms is at least 1, top_keys at least 0")
    root = local_path("path", os.fsdecode(path))
    with open_store(root, read_only=True, background=False) as store:
        chosen = chosen_topics(topics, store.topics())
        bounds = find_bounds(store, Choice(topics=tuple(chosen))) if chosen else {}
        ranges = [Range(at, one.log_start_offset, one.high_watermark) for at, one in bounds.items()]
        starts = {one.partition: one.start for one in ranges}
        packs = [
            [
                Task(split.origin, piece, piece.start == starts[_place(piece)], bucket_ms, records, keys and records)
                for piece in split.pieces
            ]
            for split in plan_splits(store, ranges)
        ]
    sizes = [sum(sum(one.size for one in task.piece.pin.segments) for task in pack) for pack in packs]
    shown = Progress(
        "stats",
        counts=[sum(len(task.piece.pin.segments) for task in pack) for pack in packs],
        sizes=sizes,
        is_shown=progress,
    )
    counted = run_tasks(spark, packs, count_piece, progress=shown)
    failed = next((each.error for each in counted if each.error is not None), None)
    if failed is not None:
        raise failed
    found = {at: Figures(Throughput(bucket_ms)) for at in bounds}
    for each in sorted(counted, key=lambda one: one.piece[:3]):
        if each.figures is not None:
            found[_place(each.piece)].merge(each.figures)
    rows = [
        {"topic": at.topic, "partition": at.partition}
        | _row(figures, bounds[at], records=records, keys=keys and records, top_keys=top_keys)
        for at, figures in found.items()
    ]
    total = sum(figures.size for figures in found.values())
    summary = (
        f"{sum(figures.records for figures in found.values()):,} records, {readable(total)} in {shown.seconds:.1f} s "
        f"({total / shown.seconds / 1e6:,.0f} MB/s)"
    )
    logger.info("stats %s: %s", os.fsdecode(path), summary)
    shown.finish(summary)
    return _frame(spark, rows)


def _place(piece: Piece) -> TopicPartition:
    return TopicPartition(piece.topic, piece.partition)


# ---------------------------------------------------------------- what a task does


def count_piece(task: Task) -> Counted:
    """Count one piece; an error of ours is returned."""
    try:
        return Counted(task.piece, _count(task))
    except DataLoss as error:
        told = f"{task.piece}: segments were deleted before they were counted; run stats again"
        return Counted(task.piece, None, DataLoss(error.condition, told))
    except SeeklogError as error:
        return Counted(task.piece, None, error)
    except OSError as error:
        return Counted(task.piece, None, translate(error, f"{task.piece} cannot be read"))


def _count(task: Task) -> Figures:
    figures = Figures(Throughput(task.bucket_ms))
    piece = task.piece
    for segment in pinned_view(task.origin.files(), f"{task.origin.root}/{piece}", piece.pin).segments:
        for position, header in scan_headers(segment, piece.start, piece.stop):
            if header.base_offset < piece.start and not task.is_first:
                continue
            raw_size = header.size
            if task.records and header.attributes & CODEC_MASK:
                raw = segment.read(header.size, position)
                try:
                    body = codec.decompress(header.attributes & CODEC_MASK, raw[HEADER_SIZE:], limit=piece.limit)
                except CorruptionError as error:
                    raise segment.located(error) from error
                raw_size = HEADER_SIZE + len(body)
            _count_header(figures, header, raw_size, records=task.records)
    if task.records:
        _count_records(figures, task)
    return figures


def _count_header(figures: Figures, header: BatchHeader, raw_size: int, *, records: bool) -> None:
    figures.size += header.size
    figures.uncompressed += raw_size
    figures.codecs[header.codec] += 1
    figures.codec_bytes[header.codec] += header.size
    figures.batch_sizes.add(header.size)
    if header.producer_id >= 0 and len(figures.producers) < PRODUCERS_MOST:
        figures.producers.add(header.producer_id)
    if records or header.is_control or not header.record_count:
        return
    figures.records += header.record_count
    time = header.max_timestamp_ms
    figures.throughput.add(time, records=header.record_count, size=header.size)
    figures.order.merge(TimeOrder(time, time, time, time))


def _count_records(figures: Figures, task: Task) -> None:
    pa = import_pyarrow()
    schema = pa.schema(
        [
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("timestamp", pa.timestamp("us", "UTC")),
        ]
    )
    pending: list[pyarrow.Array] = []
    waiting = 0
    for batch in scan_split(Split(task.origin, [task.piece], fail_on_data_loss=True), schema):
        _count_batch(figures, batch)
        if task.keys:
            pending.append(batch.column("key").drop_null())
            waiting += batch.num_rows
            if waiting >= KEY_ROWS:
                figures.keys.add_all(pa.chunked_array(pending))
                pending, waiting = [], 0
    if pending:
        figures.keys.add_all(pa.chunked_array(pending))


def _count_batch(figures: Figures, batch: pyarrow.RecordBatch) -> None:
    import pyarrow.compute as pc

    pa = import_pyarrow()
    rows = batch.num_rows
    key, value = batch.column("key"), batch.column("value")
    figures.records += rows
    figures.null_keys += key.null_count
    figures.tombstones += value.null_count
    sizes = pc.add(
        pc.fill_null(pc.binary_length(key), 0).cast("int64"), pc.fill_null(pc.binary_length(value), 0).cast("int64")
    )
    figures.record_sizes.add_all(sizes)
    times = floor_divided(batch.column("timestamp").view("int64"), 1000)
    steps = pc.subtract(times.slice(0, rows - 1), times.slice(1))
    extent = pc.min_max(times)
    figures.order.merge(
        TimeOrder(
            first_ms=times[0].as_py(),
            last_ms=times[-1].as_py(),
            least_ms=extent["min"].as_py(),
            most_ms=extent["max"].as_py(),
            steps_back=pc.sum(pc.greater(steps, 0)).as_py() or 0,
            largest_step_ms=max(0, pc.max(steps).as_py() or 0),
        )
    )
    scale = figures.throughput.bucket_ms
    table = pa.table({"time": floor_divided(times, scale), "size": sizes})
    added = table.group_by("time").aggregate([("size", "count"), ("size", "sum")])
    for each in added.to_pylist():
        figures.throughput.add(each["time"] * scale, records=each["size_count"], size=each["size_sum"])


# ---------------------------------------------------------------- rows


def _row(figures: Figures, bounds: Bounds, *, records: bool, keys: bool, top_keys: int) -> dict[str, Any]:
    order, throughput = figures.order, figures.throughput
    # At least a millisecond: of records of one moment nobody knows how long they took.
    seconds = max(1, (order.most_ms or 0) - (order.least_ms or 0)) / 1000
    counted = sum(throughput.size.values())
    row: dict[str, Any] = {
        "log_start_offset": bounds.log_start_offset,
        "high_watermark": bounds.high_watermark,
        "records": figures.records,
        "batches": figures.batch_sizes.count,
        "bytes": figures.size,
        "codecs": [
            {"codec": name, "batches": count, "bytes": figures.codec_bytes[name]}
            for name, count in sorted(figures.codecs.items())
        ],
        "batch_bytes": _sizes(figures.batch_sizes),
        "first_timestamp": _us(order.least_ms),
        "last_timestamp": _us(order.most_ms),
        "records_per_s": figures.records / seconds if figures.records else None,
        "bytes_per_s": counted / seconds if figures.records else None,
        "bucket_s": throughput.bucket_ms / 1000,
        "throughput": [
            {"start": bucket * throughput.bucket_ms * 1000, "records": count, "bytes": throughput.size[bucket]}
            for bucket, count in sorted(throughput.records.items())
        ],
        "producers": len(figures.producers),
        "out_of_order": order.steps_back,
        "largest_step_back_ms": order.largest_step_ms,
    }
    if records:
        row |= {
            "uncompressed_bytes": figures.uncompressed,
            "compression_ratio": figures.uncompressed / figures.size if figures.size else None,
            "record_bytes": _sizes(figures.record_sizes),
            "null_keys": figures.null_keys,
            "tombstones": figures.tombstones,
        }
    if keys:
        row |= {
            "distinct_keys": figures.keys.distinct,
            "top_keys": [
                {"key": key, "records": count, "share": count / figures.keys.count}
                for key, count in figures.keys.most_frequent(top_keys)
            ],
            "top_keys_error": figures.keys.error,
        }
    return row


def _sizes(sizes: Sizes) -> dict[str, Any] | None:
    if not sizes.count:
        return None
    return {
        "min": sizes.least,
        "avg": sizes.total / sizes.count,
        "max": sizes.most,
        **{name: sizes.percentile(share) for name, share in _PERCENTILES.items()},
    }


def _us(time_ms: int | None) -> int | None:
    return None if time_ms is None or abs(time_ms) > INT64_MAX // 1000 else time_ms * 1000


def _frame(spark: SparkSession, rows: Sequence[dict[str, Any]]) -> DataFrame:
    with no_word_of_pandas():
        if not rows and is_remote(spark):
            # Spark Connect refuses an Arrow table without rows.
            return spark.createDataFrame([], ", ".join(f"{name} {word}" for name, word in STATISTICS.items()))
        return spark.createDataFrame(import_pyarrow().Table.from_pylist(list(rows), schema=_arrow_schema()))


def _arrow_schema() -> pyarrow.Schema:
    pa = import_pyarrow()
    types = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "double": pa.float64(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", "UTC"),
    }

    def kind_of(word: str) -> Any:
        if word.startswith("array<"):
            return pa.list_(kind_of(word[len("array<") : -1]))
        if word.startswith("struct<"):
            fields = (one.split(": ") for one in word[len("struct<") : -1].split(", "))
            return pa.struct([(name, kind_of(inner)) for name, inner in fields])
        return types[word]

    return pa.schema([(name, kind_of(word)) for name, word in STATISTICS.items()])
