"""`to_lake`: a store's sealed segments copied to Parquet files by Spark's tasks, and a manifest of them."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from seeklog.clock import SystemClock
from seeklog.errors import DataLoss, UsageError
from seeklog.files import OsFiles
from seeklog.names import TopicPartition, check_topic_name
from seeklog.spark.jobs.frame import frame_of
from seeklog.spark.jobs.progress import Progress, readable
from seeklog.spark.jobs.tasks import run_tasks
from seeklog.spark.lake.directory import LakeDirectory
from seeklog.spark.lake.manifest import LakeFile, LakePartition, Manifest
from seeklog.spark.lake.parquet import Order, Written, refusal, write_piece
from seeklog.spark.lake.planning import Share, plan_shares
from seeklog.spark.option_map import local_path
from seeklog.spark.read.plan import Piece, plan_splits
from seeklog.store import Store, open_store, origin_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("seeklog")

COPIED: Final = {
    "topic": "string",
    "partition": "int",
    "start": "bigint",
    "next_offset": "bigint",
    "records": "bigint",
    "files": "int",
    "bytes": "bigint",
    "log_bytes": "bigint",
    "lost_offsets": "bigint",
}
COMPRESSIONS: Final = ("zstd", "snappy", "lz4", "gzip", "none")
# Of log, before it is decompressed: files of some 100 MB, and a task that does not last long.
FILE_BYTES: Final = 128 << 20


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
    """Copy sealed segments that the lake has not yet to Parquet files; return a row for each partition.

    The work is done when this returns. Files are `topic=<topic>/date=<day in UTC>/part-….parquet` below `lake`, a
    directory that driver and executors share, and count from the moment that the manifest names them, which is one
    moment for all. After a kill at any other one the lake is as before; run the job again. `file_bytes` is how much
    log becomes one file, if all of it is of one day.

    Raises `LogLocked` if another job is at work on the lake, `ArchiveMismatch` or `CorruptionError` if its manifest
    does not match its files or this store; nothing is changed then. Offsets that retention took before they were copied
    are counted in `lost_offsets`, and stay a gap in the manifest.
    """
    if compression not in COMPRESSIONS:
        raise UsageError(f"compression is {compression!r}; it can be {', '.join(COMPRESSIONS)}")
    if file_bytes < 1:
        raise UsageError(f"file_bytes is {file_bytes}; a file has at least 1")
    directory = LakeDirectory(lake, files=OsFiles())
    root = local_path("path", os.fsdecode(path))
    _check_apart(root, directory.path)
    with open_store(root, read_only=True, background=False) as store:
        chosen = chosen_topics(topics, store.topics())
        # Before anything is made: what is wrong from the start leaves no trace.
        plan_shares(store, directory.read_manifest() or Manifest(), chosen)
        with directory.locked():
            with _told(directory):
                manifest = _settled(directory)
            shares = plan_shares(store, manifest, chosen)
            orders = _orders(store, directory, shares, compression=compression, file_bytes=file_bytes)
            shown = Progress(
                "to_lake",
                counts=[sum(len(order.piece.pin.segments) for order in pack) for pack in orders],
                sizes=[sum(order.log_bytes for order in pack) for pack in orders],
                is_shown=progress,
            )
            written = run_tasks(spark, orders, write_piece, progress=shown)
            with _told(directory):
                files = _finished(directory, written)
                if orders:
                    directory.commit(_grown(manifest, shares, files))
    rows = [_row(share, files.get(share.at, []), orders) for share in shares]
    summary = _summary(rows, shown.seconds)
    logger.info("to_lake %s: %s", directory.path, summary)
    shown.finish(summary)
    return frame_of(spark, COPIED, rows)


def _check_apart(store: str, lake: str) -> None:
    store = os.path.abspath(store)
    if os.path.commonpath([store, lake]) == store:
        raise UsageError(f"the lake {lake} lies in the store {store}; give it a directory of its own, beside the store")


@contextlib.contextmanager
def _told(directory: LakeDirectory) -> Iterator[None]:
    """Tell what the operating system says in our own words."""
    try:
        yield
    except OSError as error:
        raise refusal(directory.path, error) from error


def chosen_topics(topics: Iterable[str] | None, all_topics: Sequence[str]) -> list[str]:
    """Return the topics that a job is asked for, each once; all of them if nobody has said which."""
    if isinstance(topics, str):
        raise UsageError(f"topics is a list of names: [{topics!r}]")
    if topics is None:
        return sorted(all_topics)
    chosen = sorted(set(topics))
    for topic in chosen:
        check_topic_name(topic)
    return chosen


def _settled(directory: LakeDirectory) -> Manifest:
    """Return the manifest of a lake that is whole; what a kill has left is removed."""
    manifest = directory.read_manifest()
    if manifest is None:
        # From now on a lake without a manifest is one that has lost it.
        manifest = Manifest(written_at_ms=SystemClock().now_ms())
        directory.commit(manifest)
    directory.check_files(manifest.files())
    removed = directory.sweep(manifest)
    if removed:
        logger.warning("%s: removed %d files of a job that did not come to its end", directory.path, removed)
    return manifest


def _orders(
    store: Store, directory: LakeDirectory, shares: Sequence[Share], *, compression: str, file_bytes: int
) -> list[list[Order]]:
    try:
        topic_ids = {share.at.topic: share.topic_id for share in shares}
        splits = plan_splits(store, [share.range for share in shares], split_bytes=file_bytes, topic_ids=topic_ids)
    except DataLoss as error:
        told = "segments were deleted while the job was planned; run to_lake again for what is left"
        raise DataLoss(error.condition, told) from error

    def order(piece: Piece) -> Order:
        size = sum(segment.size for segment in piece.pin.segments)
        span = sum(segment.next_offset - segment.base_offset for segment in piece.pin.segments)
        return Order(
            origin=origin_of(store),
            lake=directory.path,
            piece=piece,
            compression=compression,
            log_bytes=size * (piece.stop - piece.start) // max(1, span),
        )

    return [[order(piece) for piece in split.pieces] for split in splits]


def _finished(directory: LakeDirectory, written: Sequence[Written]) -> dict[TopicPartition, list[LakeFile]]:
    """Make the files visible that all tasks have written, or raise the first error and leave none."""
    failed = next((each.error for each in written if each.error is not None), None)
    if failed is not None:
        directory.discard(path for each in written for path, _ in each.files)
        raise failed
    files: dict[TopicPartition, list[LakeFile]] = {}
    for each in sorted(written, key=lambda one: one.piece[:3]):
        at = TopicPartition(each.piece.topic, each.piece.partition)
        files.setdefault(at, []).extend(directory.show(each.files))
    return files


def _grown(manifest: Manifest, shares: Iterable[Share], files: Mapping[TopicPartition, Sequence[LakeFile]]) -> Manifest:
    partitions = dict(manifest.partitions)
    for share in shares:
        if share.start == share.next_offset:
            continue
        known = partitions.get(share.at)
        added = files.get(share.at, ())
        if known is None:
            ranges = ((share.start, share.next_offset),)
            partitions[share.at] = LakePartition(topic_id=share.topic_id, ranges=ranges, files=tuple(added))
        else:
            partitions[share.at] = known.with_copied(share.start, share.next_offset, added)
    return Manifest(commit=manifest.commit + 1, written_at_ms=SystemClock().now_ms(), partitions=partitions)


def _row(share: Share, files: Sequence[LakeFile], orders: Sequence[Sequence[Order]]) -> tuple[object, ...]:
    mine = (order for pack in orders for order in pack if (order.piece.topic, order.piece.partition) == share.at)
    if share.lost:
        logger.warning("%s: %d offsets were deleted before they were copied to the lake", share.at, share.lost)
    return (
        share.at.topic,
        share.at.partition,
        share.start,
        share.next_offset,
        sum(file.rows for file in files),
        len(files),
        sum(file.size for file in files),
        sum(order.log_bytes for order in mine),
        share.lost,
    )


def _summary(rows: Sequence[Sequence[object]], seconds: float) -> str:
    records, files, size, log_bytes, lost = (sum(int(str(row[place])) for row in rows) for place in range(4, 9))
    if not records:
        return "nothing to do: all sealed segments are there"
    told = f", {lost:,} offsets LOST before" if lost else ""
    return (
        f"{records:,} records of {readable(log_bytes)} in {files:,} files of {readable(size)} in {seconds:.1f} s "
        f"({log_bytes / seconds / 1e6:,.0f} MB/s){told}"
    )
