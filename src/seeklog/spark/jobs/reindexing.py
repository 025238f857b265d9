"""`reindex`: rebuilds the indexes of a store's segments that do not match their logs, in Spark tasks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from seeklog import names
from seeklog.arguments import check_flags
from seeklog.config import LogConfig
from seeklog.errors import LogLocked, SeeklogError, UsageError, counted
from seeklog.files import OsFiles
from seeklog.log import lock_directory, lock_out_broker
from seeklog.log.check import Renewed, renew_index, sizes_of
from seeklog.spark.jobs.partitions import ONLY_BROKER_WRITES, open_log, parse_config
from seeklog.spark.jobs.progress import Progress, readable, tally
from seeklog.spark.jobs.tasks import frame_of, pack, run_tasks
from seeklog.spark.option_map import local_path
from seeklog.spark.read.schema import parse_schema
from seeklog.store import Store, open_store
from seeklog.topics.layout import check_root
from seeklog.topics.scope import PartitionLocation, find_partitions

OUTCOMES = parse_schema(
    "topic string, partition int, segment bigint, file string, done string, index_bytes_before bigint, "
    "index_bytes_after bigint, time_index_bytes_before bigint, time_index_bytes_after bigint, "
    "key_index_bytes_before bigint, key_index_bytes_after bigint, batches bigint, records bigint, bytes bigint, "
    "detail string"
)
_Indexes = tuple[bytes | None, bytes | None]
# A locked partition keeps its lock and a log open, and a process may usually open a thousand files.
MAX_LOCKED = 100


class _Segment(NamedTuple):
    """One segment whose indexes are checked."""

    location: PartitionLocation
    path: str
    base_offset: int
    size: int


def reindex(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    topics: Iterable[str] | None = None,
    config: LogConfig | Mapping[str, Any] | None = None,
    progress: bool = True,
) -> DataFrame:
    """Make the indexes and seals of a store, a broker's data directory, or one partition match the logs.

    All work is done on return. The DataFrame has a row per segment, and its column `done` is `unchanged`, `rebuilt`, or
    `damaged` (left unchanged); a partition that cannot be opened has one row, `refused`. Every partition is locked
    while its segments are checked. Raises `LogLocked`, before anything is changed, if another process writes one.

    Existing key indexes are rebuilt; missing ones are created by the first lookup of a key.

    seeklog's own partitions are opened for writing, which recovers them and the indexes of the last segment. In
    partitions that only a broker has written, nothing but indexes is changed. `config` applies where a topic has no
    setting of its own: pass a broker's index interval there unless it is Kafka's default.
    """
    check_flags(progress=progress)
    files = OsFiles()
    config = parse_config(config)
    scope = find_partitions(local_path("path", os.fsdecode(path)), topics=topics, config=config, files=files)
    root = scope.root
    if root is not None:
        # Refuses an archive, whose manifest lists the size of every file.
        check_root(files, root, create=True)
    locations = _without_broker_topics(scope.partitions, topics)
    _check_unlocked(locations, files)
    rows: list[dict[str, Any]] = []
    seconds, scanned = 0.0, 0
    for first in range(0, len(locations), MAX_LOCKED):
        segments: list[_Segment] = []
        active: list[tuple[_Segment, _Indexes]] = []
        with contextlib.ExitStack() as locks:
            store = _lock_root(root, config, files, locks)
            for location in locations[first : first + MAX_LOCKED]:
                try:
                    sealed, last = _lock_partition(location, store, files, locks)
                    segments += sealed
                    active += last
                except LogLocked:
                    raise
                except (SeeklogError, OSError) as error:
                    rows.append(_refused(location, error))
            packs = pack(segments, _size)
            shown = Progress.of("reindex", packs, _size, is_shown=progress)
            rows += [_row(segment, renewed) for segment, renewed in run_tasks(spark, packs, _renew, progress=shown)]
            scanned += sum(map(_size, segments))
            seconds += shown.seconds
        # Closing a log completes the indexes of its last segment.
        rows += [_row(segment, _recovered(segment, before, files)) for segment, before in active]
    keys = ("topic", "partition", "segment")
    rows.sort(key=lambda row: tuple(-1 if row[key] is None else row[key] for key in keys))
    speed = f"{scanned / max(seconds, 1e-3) / 1e6:,.0f} MB/s"
    summary = f"{counted(len(rows), 'segment')}, {readable(scanned)} scanned in {seconds:.1f} s ({speed})"
    finished = Progress("reindex", counts=[], sizes=[], is_shown=progress)
    finished.finish(f"{summary}: {tally(row['done'] for row in rows)}", path=path)
    return frame_of(spark, OUTCOMES, rows)


def _renew(segment: _Segment) -> tuple[_Segment, Renewed]:
    """Check the indexes of one segment in a task."""
    return segment, renew_index(segment.path, config=segment.location.config)


def _size(segment: _Segment) -> int:
    return segment.size


def _without_broker_topics(
    locations: Sequence[PartitionLocation], topics: Iterable[str] | None
) -> list[PartitionLocation]:
    """Skip topics that only a broker writes; refuse one that was named."""
    skipped = sorted({location.topic for location in locations if location.topic in ONLY_BROKER_WRITES})
    if skipped and topics is not None:
        raise UsageError(f"topic {skipped[0]} is internal to a broker, and only a broker may write it")
    return [location for location in locations if location.topic not in skipped]


def _check_unlocked(locations: Iterable[PartitionLocation], files: OsFiles) -> None:
    """Raise `LogLocked` if a partition is open for writing. `_lock_partition` finds writers that come later."""
    for location in locations:
        with contextlib.suppress(FileNotFoundError):
            if files.is_locked(f"{location.directory}/{names.LOCK}"):
                lock_directory(files, location.directory).close()


def _lock_root(root: str | None, config: LogConfig, files: OsFiles, locks: contextlib.ExitStack) -> Store | None:
    """Return the store at a root, or lock out a broker and leave its directory unchanged."""
    if root is None:
        return None
    if names.TOPICS in files.list(root):
        return locks.enter_context(open_store(root, config=config, background=False))
    locks.callback(lock_out_broker(files, root).close)
    return None


def _lock_partition(
    location: PartitionLocation, store: Store | None, files: OsFiles, locks: contextlib.ExitStack
) -> tuple[list[_Segment], list[tuple[_Segment, _Indexes]]]:
    """Lock a partition until `locks` closes.

    Return the segments to check, and the active segment, which opening the log recovers, with its indexes before that.
    """
    if names.CHECKPOINT not in files.list(location.directory):
        locks.callback(lock_directory(files, location.directory).close)
        return _segments(location, files), []
    before = [(segment, _indexes(segment, files)) for segment in _segments(location, files)[-1:]]
    locks.enter_context(open_log(location, store))
    # Listed again: opening may have removed segments.
    return _segments(location, files)[:-1], before


def _segments(location: PartitionLocation, files: OsFiles) -> list[_Segment]:
    parsed = filter(None, map(names.parse_segment_name, files.list(location.directory)))
    segments = []
    for base_offset in sorted(base_offset for base_offset, suffix in parsed if suffix == names.LOG):
        path = f"{location.directory}/{names.segment_name(base_offset, names.LOG)}"
        segments.append(_Segment(location, path, base_offset, files.file_size(path)))
    return segments


def _indexes(segment: _Segment, files: OsFiles) -> _Indexes:
    def read(suffix: str) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return files.read_file(segment.path.removesuffix(names.LOG) + suffix)
        return None

    return read(names.OFFSET_INDEX), read(names.TIME_INDEX)


def _recovered(segment: _Segment, before: _Indexes, files: OsFiles) -> Renewed:
    """Return what recovery did to the last segment of a log that is closed again."""
    after = _indexes(segment, files)
    return Renewed(
        done="unchanged" if after == before else "rebuilt",
        detail="by recovery" if after != before else "",
        sizes_before=sizes_of(before),
        sizes_after=sizes_of(after),
    )


def _row(segment: _Segment, renewed: Renewed) -> dict[str, Any]:
    sizes = zip(("index", "time_index"), renewed.sizes_before, renewed.sizes_after, strict=True)
    row: dict[str, Any] = {
        "topic": segment.location.topic,
        "partition": segment.location.partition,
        "segment": segment.base_offset,
        "file": segment.path,
        "done": renewed.done,
        "batches": renewed.batch_count,
        "records": renewed.record_count,
        "bytes": segment.size,
        "detail": renewed.detail,
    }
    for index, before, after in (*sizes, ("key_index", *renewed.key_sizes)):
        row |= {f"{index}_bytes_before": before, f"{index}_bytes_after": after}
    return row


def _refused(location: PartitionLocation, error: Exception) -> dict[str, Any]:
    return {
        "topic": location.topic,
        "partition": location.partition,
        "segment": None,
        "file": location.directory,
        "done": "refused",
        "batches": 0,
        "records": 0,
        "bytes": 0,
        "detail": " ".join(str(error).split()),
    }
