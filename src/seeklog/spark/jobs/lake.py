"""`to_lake`: copies a store's sealed segments to Parquet files in Spark tasks, and lists them in a manifest."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from seeklog.arguments import check_flags
from seeklog.clock import SystemClock
from seeklog.config import INT64_MAX
from seeklog.errors import ArchiveMismatch, DataLoss, SeeklogError, UsageError, counted
from seeklog.files import OsFiles, ReadOnlyFiles
from seeklog.log import LogReader, take_snapshot
from seeklog.names import TopicPartition
from seeklog.spark.jobs.partitions import choose_topics
from seeklog.spark.jobs.progress import Progress, readable
from seeklog.spark.jobs.tasks import frame_of, run_tasks
from seeklog.spark.lake.directory import LakeDirectory, writing_to
from seeklog.spark.lake.manifest import LakeFile, LakePartition, Manifest
from seeklog.spark.lake.parquet import Order, write_piece
from seeklog.spark.option_map import local_path
from seeklog.spark.read.offsets import Bounds, Range, bounds_of
from seeklog.spark.read.plan import Piece, plan_splits
from seeklog.spark.read.schema import parse_schema
from seeklog.store import Store, open_store, origin_of

logger = logging.getLogger("seeklog")

COPIED: Final = parse_schema(
    "topic string, partition int, start bigint, next_offset bigint, records bigint, files int, bytes bigint, "
    "log_bytes bigint, lost_offsets bigint"
)
COMPRESSIONS: Final = ("zstd", "snappy", "lz4", "gzip", "none")
# Bytes of log, still compressed: this gives Parquet files of some 100 MB and short tasks.
FILE_BYTES: Final = 128 << 20


class Share(NamedTuple):
    """The offsets of one partition that one job copies."""

    range: Range
    lost: int
    """The number of offsets that were deleted before they were copied."""


def to_lake(
    spark: SparkSession,
    path: str | os.PathLike[str],
    lake: str | os.PathLike[str],
    *,
    topics: Iterable[str] | None = None,
    compression: str = "zstd",
    file_bytes: int = FILE_BYTES,
    progress: bool = True,
) -> DataFrame:
    """Copy the sealed segments that are not in the lake yet to Parquet files; return a row for each partition.

    All work is done on return. Files are `topic=<topic>/date=<day in UTC>/part-….parquet` under `lake`, a directory
    that driver and executors share. A file belongs to the lake once the manifest lists it, and one write of the
    manifest lists all files of a job. After a kill before that the lake is unchanged; run the job again. `file_bytes`
    is the amount of log copied to one file, if its records are of one day.

    Raises `LogLocked` if another job is writing to the lake, and `ArchiveMismatch` or `CorruptionError` if its manifest
    does not match its files or this store; nothing is changed then. Offsets that retention deleted before they were
    copied are counted in `lost_offsets` and remain a gap in the manifest.
    """
    check_flags(progress=progress)
    if compression not in COMPRESSIONS:
        raise UsageError(f"compression is {compression!r}; it must be one of {', '.join(COMPRESSIONS)}")
    if file_bytes < 1:
        raise UsageError(f"file_bytes is {file_bytes}; it must be at least 1")
    directory = LakeDirectory(lake, files=OsFiles())
    root = os.path.abspath(local_path("path", os.fsdecode(path)))
    if os.path.commonpath([root, directory.path]) == root:
        raise UsageError(f"the lake {directory.path} is inside the store {root}; choose a directory beside the store")
    with open_store(root, read_only=True, background=False) as store:
        chosen = choose_topics(topics, store.topics())
        # Planned once before anything is created, so that a mismatch leaves no lake behind.
        plan_shares(store, directory.read_manifest() or Manifest(), chosen)
        with directory.locked():
            manifest = _prepare(directory)
            shares = plan_shares(store, manifest, chosen)
            orders = _orders(store, directory, shares, compression=compression, file_bytes=file_bytes)
            shown = Progress.of(
                "to_lake",
                orders,
                lambda order: order.log_bytes,
                count_of=lambda order: len(order.piece.pin.segments),
                is_shown=progress,
            )
            try:
                written = run_tasks(spark, orders, write_piece, progress=shown)
            except SeeklogError:
                # Remove the files of the tasks that succeeded.
                with contextlib.suppress(OSError):
                    directory.sweep(manifest)
                raise
            files: dict[TopicPartition, list[LakeFile]] = {share.range.partition: [] for share in shares}
            with writing_to(directory.path):
                for piece, hidden in sorted(written, key=lambda result: result[0][:3]):
                    files[piece.at] += directory.publish(hidden)
                if orders:
                    directory.commit(_extended(manifest, shares, files))
    log_bytes = dict.fromkeys(files, 0)
    for order in (order for pack in orders for order in pack):
        log_bytes[order.piece.at] += order.log_bytes
    rows = [_row(share, files[share.range.partition], log_bytes[share.range.partition]) for share in shares]
    shown.finish(_summary(rows, shown.seconds), path=directory.path)
    return frame_of(spark, COPIED, rows)


def plan_shares(store: Store, manifest: Manifest, topics: Sequence[str]) -> list[Share]:
    """Return a share for each partition, empty where nothing is left to copy.

    Raises `ArchiveMismatch` if a topic was recreated, or if its log ends before the lake does.
    """
    shares = []
    bounds = bounds_of(store, topics)
    check_against(manifest.partitions, bounds)
    for at, here in bounds.items():
        known = manifest.partitions.get(at)
        end = _sealed_end(store.log(at.topic, at.partition), here)
        begin = here.log_start_offset if known is None else known.next_offset
        start = max(begin, here.log_start_offset)
        # A loss is counted by the job that copies the offsets after it; otherwise the next job would count it again.
        lost = start - begin if start < end else 0
        shares.append(Share(Range(at, start, max(start, end), here.topic_id), lost))
    return shares


def check_against(known: Mapping[TopicPartition, LakePartition], bounds: Mapping[TopicPartition, Bounds]) -> None:
    """Raise `ArchiveMismatch` if the lake cannot have been copied from these partitions of the store."""
    for at in sorted(known.keys() & bounds.keys()):
        copied, here = known[at], bounds[at]
        if here.topic_id != copied.topic_id:
            raise ArchiveMismatch(
                f"topic {at.topic} was deleted and recreated: the lake has topic id {copied.topic_id}, the store "
                f"{here.topic_id}; write it to another lake, or rename it"
            )
        if here.high_watermark < copied.next_offset:
            raise ArchiveMismatch(
                f"{at} ends at offset {here.high_watermark}, but the lake has it up to {copied.next_offset}: the log "
                "was truncated, or this is another store; write it to another lake"
            )


def _sealed_end(log: LogReader, bounds: Bounds) -> int:
    """Return the offset after the last record in a sealed segment, which is synced and never grows."""
    seen = take_snapshot(log)
    # A broker writes no seals, but it flushes a segment when it rolls.
    is_brokers = seen.contiguous_from == INT64_MAX
    end = bounds.log_start_offset
    # All segments of an archive are sealed, the last one included.
    is_archive = isinstance(seen.view.last.shared.files, ReadOnlyFiles)
    for segment in seen.view.segments if is_archive else seen.view.segments[:-1]:
        segment.fetch_seal()
        is_durable = is_brokers or segment.seal is not None or segment.next_offset <= seen.recovery_point
        if not is_durable or segment.next_offset > bounds.high_watermark:
            break
        end = max(end, segment.next_offset)
    return end


def _prepare(directory: LakeDirectory) -> Manifest:
    """Check the files of a lake, remove those of a killed job, and return the manifest."""
    with writing_to(directory.path):
        manifest = directory.read_manifest()
        if manifest is None:
            # Written first: a lake whose manifest is missing has lost it.
            manifest = Manifest(written_at_ms=SystemClock().now_ms())
            directory.commit(manifest)
        directory.check_files(manifest.files())
        removed = directory.sweep(manifest)
    if removed:
        logger.warning("%s: removed %s of a job that did not finish", directory.path, counted(removed, "file"))
    return manifest


def _orders(
    store: Store, directory: LakeDirectory, shares: Sequence[Share], *, compression: str, file_bytes: int
) -> list[list[Order]]:
    try:
        splits = plan_splits(store, [share.range for share in shares], split_bytes=file_bytes)
    except DataLoss as error:
        advice = "segments were deleted while the job was planned; run to_lake again to copy the rest"
        raise DataLoss(error.condition, advice) from error

    origin = origin_of(store)

    def order(piece: Piece) -> Order:
        span = sum(segment.next_offset - segment.base_offset for segment in piece.pin.segments)
        log_bytes = piece.segment_bytes * (piece.stop - piece.start) // max(1, span)
        return Order(origin, directory.path, piece, compression, log_bytes)

    return [[order(piece) for piece in split.pieces] for split in splits]


def _extended(
    manifest: Manifest, shares: Iterable[Share], files: Mapping[TopicPartition, Sequence[LakeFile]]
) -> Manifest:
    partitions = dict(manifest.partitions)
    for (at, start, stop, topic_id), _ in shares:
        if start < stop:
            known = partitions.get(at) or LakePartition(topic_id=topic_id, ranges=(), files=())
            partitions[at] = known.with_copied(start, stop, files[at])
    return Manifest(commit=manifest.commit + 1, written_at_ms=SystemClock().now_ms(), partitions=partitions)


def _row(share: Share, files: Sequence[LakeFile], log_bytes: int) -> dict[str, Any]:
    at, start, stop, _ = share.range
    if share.lost:
        lost = counted(share.lost, "offset was", "offsets were")
        logger.warning("%s: %s deleted before being copied to the lake", at, lost)
    return {
        "topic": at.topic,
        "partition": at.partition,
        "start": start,
        "next_offset": stop,
        "records": sum(file.rows for file in files),
        "files": len(files),
        "bytes": sum(file.size for file in files),
        "log_bytes": log_bytes,
        "lost_offsets": share.lost,
    }


def _summary(rows: Sequence[Mapping[str, Any]], seconds: float) -> str:
    names = ("records", "files", "bytes", "log_bytes", "lost_offsets")
    records, files, size, log_bytes, lost = (sum(row[name] for row in rows) for name in names)
    if not records:
        return "nothing to do: all sealed segments are in the lake"
    missing = f", {counted(lost, 'offset')} LOST before being copied" if lost else ""
    return (
        f"{counted(records, 'record')} of {readable(log_bytes)} in {counted(files, 'file')} of {readable(size)} in "
        f"{seconds:.1f} s ({log_bytes / seconds / 1e6:,.0f} MB/s){missing}"
    )
