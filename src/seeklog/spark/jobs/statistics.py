"""`stats`: statistics of a store's partitions, counted from segment files in Spark tasks.

Batches, codecs, producers, and throughput come from headers. Records are decoded for sizes, keys, and timestamp order,
and compressed batches are decompressed a second time for their size. With `records=False` only headers are read.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from seeklog.archive.reading import Origin
from seeklog.arguments import check_flags
from seeklog.config import INT64_MAX
from seeklog.errors import CorruptionError, DataLoss, UsageError, counted
from seeklog.files import translated
from seeklog.log import pinned_view, scan_headers
from seeklog.names import TopicPartition
from seeklog.record import codec
from seeklog.record.batch import BatchHeader
from seeklog.record.layout import CODEC_MASK, HEADER_SIZE
from seeklog.record.sketch import Keys, Sizes, Throughput
from seeklog.spark.jobs.partitions import choose_topics
from seeklog.spark.jobs.progress import Progress, readable
from seeklog.spark.jobs.tasks import frame_of, run_tasks
from seeklog.spark.option_map import local_path
from seeklog.spark.read.offsets import Bounds, bounds_of, full_ranges
from seeklog.spark.read.plan import Piece, Split, plan_splits
from seeklog.spark.read.scan import floor_divided, scan_split
from seeklog.spark.read.schema import RECORD_SCHEMA, arrow_schema, parse_schema, pick
from seeklog.store import open_store, origin_of

MINUTE_MS: Final = 60_000
TOP_KEYS: Final = 10
# Distinct producer ids are counted up to this number.
MAX_PRODUCERS: Final = 10_000
# Keys counted at once, to keep Arrow's table of them small.
KEY_ROWS: Final = 1 << 19
_PERCENTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
_SIZES: Final = "struct<min: bigint, avg: double, max: bigint, p50: bigint, p95: bigint, p99: bigint>"
STATISTICS: Final = parse_schema(
    "topic string, partition int, log_start_offset bigint, high_watermark bigint, records bigint, batches bigint, "
    "bytes bigint, uncompressed_bytes bigint, compression_ratio double, "
    "codecs array<struct<codec: string, batches: bigint, bytes: bigint>>, "
    f"batch_bytes {_SIZES}, record_bytes {_SIZES}, "
    "first_timestamp timestamp, last_timestamp timestamp, records_per_s double, bytes_per_s double, bucket_s double, "
    "throughput array<struct<start: timestamp, records: bigint, bytes: bigint>>, "
    "null_keys bigint, tombstones bigint, distinct_keys bigint, "
    "top_keys array<struct<key: binary, records: bigint, share: double>>, top_keys_error bigint, "
    "out_of_order bigint, largest_step_back_ms bigint, producers int"
)


@dataclass(slots=True, kw_only=True)
class TimeOrder:
    """How often a record is older than its predecessor, and by how much at most."""

    first_ms: int
    last_ms: int
    min_ms: int
    max_ms: int
    steps_back: int = 0
    largest_step_ms: int = 0

    def then(self, after: TimeOrder) -> TimeOrder:
        """Return the order of these records followed by those of `after`."""
        step = self.last_ms - after.first_ms
        return TimeOrder(
            first_ms=self.first_ms,
            last_ms=after.last_ms,
            min_ms=min(self.min_ms, after.min_ms),
            max_ms=max(self.max_ms, after.max_ms),
            steps_back=self.steps_back + after.steps_back + (step > 0),
            largest_step_ms=max(self.largest_step_ms, after.largest_step_ms, step),
        )


@dataclass
class Figures:
    """The counts of a part of one partition."""

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
    order: TimeOrder | None = None
    producers: set[int] = field(default_factory=set)

    def merge(self, after: Figures) -> None:
        """Add the counts of the part that follows."""
        for name in ("records", "size", "uncompressed", "null_keys", "tombstones"):
            setattr(self, name, getattr(self, name) + getattr(after, name))
        for counter in ("codecs", "codec_bytes", "producers"):
            getattr(self, counter).update(getattr(after, counter))
        for sketch in ("throughput", "batch_sizes", "record_sizes", "keys"):
            getattr(self, sketch).merge(getattr(after, sketch))
        if after.order is not None:
            self.add_order(after.order)

    def add_order(self, after: TimeOrder) -> None:
        """Add the timestamps of the records that follow."""
        self.order = after if self.order is None else self.order.then(after)


class Counting(NamedTuple):
    """The settings of a count, and the files to count."""

    origin: Origin
    starts: Mapping[TopicPartition, int]
    """The first offset of each partition. A batch that begins before it is counted by the partition's first piece."""
    bucket_ms: int
    records: bool
    keys: bool


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
    """Return a row of statistics per partition: sizes, compression, throughput, key skew, disorder, producers.

    All work is done on return and covers the records that existed at the call; nothing is locked or changed. The size
    of a record is that of its key and value. `throughput` has buckets of `bucket_ms`, or of a multiple if there are
    more than a thousand. `distinct_keys` and the percentiles are estimates (see `seeklog.record.sketch`); a count in
    `top_keys` is too low by at most `top_keys_error`. `keys=False` skips keys. `records=False` reads only headers:
    columns that need records are null, and timestamps are those of batches.
    """
    check_flags(records=records, keys=keys, progress=progress)
    if bucket_ms < 1 or top_keys < 0:
        raise UsageError(f"bucket_ms is {bucket_ms} and top_keys {top_keys}; they must be at least 1 and 0")
    root = local_path("path", os.fsdecode(path))
    with open_store(root, read_only=True, background=False) as store:
        bounds = bounds_of(store, choose_topics(topics, store.topics()))
        packs = [split.pieces for split in plan_splits(store, full_ranges(bounds))]
        starts = {at: here.log_start_offset for at, here in bounds.items()}
        counting = Counting(origin_of(store), starts, bucket_ms, records, keys and records)
    shown = Progress.of(
        "stats",
        packs,
        lambda piece: piece.segment_bytes,
        count_of=lambda piece: len(piece.pin.segments),
        is_shown=progress,
    )
    totals = {at: Figures(Throughput(bucket_ms)) for at in bounds}
    results = run_tasks(spark, packs, partial(count_piece, counting), progress=shown)
    for piece, figures in sorted(results, key=lambda result: result[0][:3]):
        totals[piece.at].merge(figures)
    rows = [
        {"topic": at.topic, "partition": at.partition} | _row(figures, bounds[at], counting=counting, top_keys=top_keys)
        for at, figures in totals.items()
    ]
    size = sum(figures.size for figures in totals.values())
    summary = (
        f"{counted(sum(figures.records for figures in totals.values()), 'record')}, {readable(size)} in "
        f"{shown.seconds:.1f} s ({size / shown.seconds / 1e6:,.0f} MB/s)"
    )
    shown.finish(summary, path=path)
    return frame_of(spark, STATISTICS, rows)


def count_piece(counting: Counting, piece: Piece) -> tuple[Piece, Figures]:
    """Count one piece in a task."""
    try:
        with translated(f"{piece} cannot be read"):
            return piece, _count(counting, piece)
    except DataLoss as error:
        advice = "segments were deleted before they were counted; run stats again"
        raise DataLoss(error.condition, f"{piece}: {advice}") from error


def _count(counting: Counting, piece: Piece) -> Figures:
    figures = Figures(Throughput(counting.bucket_ms))
    is_first = piece.start == counting.starts[piece.at]
    for segment in pinned_view(counting.origin.files(), f"{counting.origin.root}/{piece}", piece.pin).segments:
        for position, header in scan_headers(segment, piece.start, piece.stop):
            if header.base_offset < piece.start and not is_first:
                continue
            raw_size = header.size
            if counting.records and header.attributes & CODEC_MASK:
                raw = segment.read(header.size, position)
                try:
                    body = codec.decompress(header.attributes & CODEC_MASK, raw[HEADER_SIZE:], limit=piece.limit)
                except CorruptionError as error:
                    raise segment.located(error) from error
                raw_size = HEADER_SIZE + len(body)
            _count_header(figures, header, raw_size, records=counting.records)
    if counting.records:
        _count_records(figures, counting, piece)
    return figures


def _count_header(figures: Figures, header: BatchHeader, raw_size: int, *, records: bool) -> None:
    figures.size += header.size
    figures.uncompressed += raw_size
    figures.codecs[header.codec] += 1
    figures.codec_bytes[header.codec] += header.size
    figures.batch_sizes.add(header.size)
    if header.producer_id >= 0 and len(figures.producers) < MAX_PRODUCERS:
        figures.producers.add(header.producer_id)
    if records or header.is_control or not header.record_count:
        return
    figures.records += header.record_count
    time = header.max_timestamp_ms
    figures.throughput.add(time, records=header.record_count, size=header.size)
    figures.add_order(TimeOrder(first_ms=time, last_ms=time, min_ms=time, max_ms=time))


def _count_records(figures: Figures, counting: Counting, piece: Piece) -> None:
    schema = arrow_schema(pick(RECORD_SCHEMA, ("key", "value", "timestamp")))
    pending: list[pa.Array] = []
    waiting = 0
    for batch in scan_split(Split(counting.origin, [piece], fail_on_data_loss=True), schema):
        _count_batch(figures, batch)
        if counting.keys:
            pending.append(batch.column("key").drop_null())
            waiting += batch.num_rows
            if waiting >= KEY_ROWS:
                figures.keys.add_all(pa.chunked_array(pending))
                pending, waiting = [], 0
    if pending:
        figures.keys.add_all(pa.chunked_array(pending))


def _count_batch(figures: Figures, batch: pa.RecordBatch) -> None:
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
    order = TimeOrder(
        first_ms=times[0].as_py(),
        last_ms=times[-1].as_py(),
        min_ms=extent["min"].as_py(),
        max_ms=extent["max"].as_py(),
        steps_back=pc.sum(pc.greater(steps, 0)).as_py() or 0,
        largest_step_ms=max(0, pc.max(steps).as_py() or 0),
    )
    figures.add_order(order)
    scale = figures.throughput.bucket_ms
    table = pa.table({"time": floor_divided(times, scale), "size": sizes})
    added = table.group_by("time").aggregate([("size", "count"), ("size", "sum")])
    for bucket in added.to_pylist():
        figures.throughput.add(bucket["time"] * scale, records=bucket["size_count"], size=bucket["size_sum"])


def _row(figures: Figures, bounds: Bounds, *, counting: Counting, top_keys: int) -> dict[str, Any]:
    order = figures.order or TimeOrder(first_ms=0, last_ms=0, min_ms=0, max_ms=0)
    throughput = figures.throughput
    # At least a millisecond, where all records have the same timestamp.
    seconds = max(1, order.max_ms - order.min_ms) / 1000
    sampled_bytes = sum(throughput.size.values())
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
        "first_timestamp": _us(order.min_ms) if figures.order is not None else None,
        "last_timestamp": _us(order.max_ms) if figures.order is not None else None,
        "records_per_s": figures.records / seconds if figures.records else None,
        "bytes_per_s": sampled_bytes / seconds if figures.records else None,
        "bucket_s": throughput.bucket_ms / 1000,
        "throughput": [
            {"start": bucket * throughput.bucket_ms * 1000, "records": count, "bytes": throughput.size[bucket]}
            for bucket, count in sorted(throughput.records.items())
        ],
        "producers": len(figures.producers),
        "out_of_order": order.steps_back,
        "largest_step_back_ms": order.largest_step_ms,
    }
    if counting.records:
        row |= {
            "uncompressed_bytes": figures.uncompressed,
            "compression_ratio": figures.uncompressed / figures.size if figures.size else None,
            "record_bytes": _sizes(figures.record_sizes),
            "null_keys": figures.null_keys,
            "tombstones": figures.tombstones,
        }
    if counting.keys:
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


def _us(time_ms: int) -> int | None:
    return time_ms * 1000 if abs(time_ms) <= INT64_MAX // 1000 else None
