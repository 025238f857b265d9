"""`reindex`: the indexes of a store's segments rebuilt where they differ from their logs, by Spark's tasks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from seeklog import names
from seeklog.config import LogConfig
from seeklog.errors import LogLocked, SeeklogError, UsageError
from seeklog.files import OsFiles
from seeklog.log import lock_directory, lock_out_broker
from seeklog.log.check import Renewed, renew_index, sizes_of
from seeklog.spark.jobs.partitions import ONLY_BROKER_WRITES, open_log, parse_config
from seeklog.spark.jobs.progress import Progress, counted, readable
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
# A partition that is held has its lock and a log open; a process may as a rule open a thousand files.
MAX_HELD = 100


class _Segment(NamedTuple):
    """One segment whose indexes are to be checked."""

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
    """Make the indexes and seals of a store, a broker's data directory or one partition match the logs.

    The work is done when this returns: the DataFrame has a row for each segment, with what was done: `unchanged`,
    `rebuilt`, or `damaged`, which is left as it is; `refused` where a whole partition cannot be opened. Every
    partition is held while it is worked on. A partition that another process writes to raises `LogLocked` before
    anything is changed.

    A key index is rebuilt where there is one; a log without gets one when a key is looked for.

    Partitions of seeklog's are opened for writing, which recovers them, the indexes of the last segment included. Of
    those that only a broker has written nothing but indexes is changed. `config` holds for topics that say nothing
    else: a broker's index interval is to be given there if it is not Kafka's default.
    """
    files = OsFiles()
    config = parse_config(config)
    scope = find_partitions(local_path("path", os.fsdecode(path)), topics=topics, config=config, files=files)
    root = scope.root
    if root is not None:
        # Refuses an archive, whose manifest knows every byte.
        check_root(files, root, create=True)
    locations = _writable(scope.partitions, topics)
    _check_unlocked(locations, files)
    rows: list[dict[str, Any]] = []
    seconds, scanned = 0.0, 0
    for first in range(0, len(locations), MAX_HELD):
        segments: list[_Segment] = []
        recovered: list[tuple[_Segment, _Indexes]] = []
        with contextlib.ExitStack() as held:
            store = _hold_root(root, config, files, held)
            for location in locations[first : first + MAX_HELD]:
                try:
                    lasting, last = _hold(location, store, files, held)
                    segments += lasting
                    recovered += last
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
        rows += [_row(segment, _recovered(segment, before, files)) for segment, before in recovered]
    keys = ("topic", "partition", "segment")
    rows.sort(key=lambda row: tuple(-1 if row[key] is None else row[key] for key in keys))
    speed = f"{scanned / max(seconds, 1e-3) / 1e6:,.0f} MB/s"
    summary = f"{len(rows):,} segments, {readable(scanned)} scanned in {seconds:.1f} s ({speed})"
    finished = Progress("reindex", counts=[], sizes=[], is_shown=progress)
    finished.finish(f"{summary}: {counted(row['done'] for row in rows)}", path=path)
    return frame_of(spark, OUTCOMES, rows)


def _renew(segment: _Segment) -> tuple[_Segment, Renewed]:
    """What a task does."""
    return segment, renew_index(segment.path, config=segment.location.config)


def _size(segment: _Segment) -> int:
    return segment.size


def _writable(locations: Iterable[PartitionLocation], topics: Iterable[str] | None) -> list[PartitionLocation]:
    """Leave out the topics that only a broker writes; one that was asked for by name is refused."""
    locations = list(locations)
    refused = sorted({location.topic for location in locations if location.topic in ONLY_BROKER_WRITES})
    if refused and topics is not None:
        raise UsageError(f"{refused[0]} is a broker's own, and only a broker writes it")
    return [location for location in locations if location.topic not in ONLY_BROKER_WRITES]


def _check_unlocked(locations: Iterable[PartitionLocation], files: OsFiles) -> None:
    """Raise `LogLocked` for the first partition that is written to. Later ones are found when they are opened."""
    for location in locations:
        with contextlib.suppress(FileNotFoundError):
            if files.is_locked(f"{location.directory}/{names.LOCK}"):
                lock_directory(files, location.directory).close()


def _hold_root(root: str | None, config: LogConfig, files: OsFiles, held: contextlib.ExitStack) -> Store | None:
    """Return the store that lies at a root; a broker is kept out of its directory, and nothing of ours put into it."""
    if root is None:
        return None
    if names.TOPICS in files.list(root):
        return held.enter_context(open_store(root, config=config, background=False))
    held.callback(lock_out_broker(files, root).close)
    return None


def _hold(
    location: PartitionLocation, store: Store | None, files: OsFiles, held: contextlib.ExitStack
) -> tuple[list[_Segment], list[tuple[_Segment, _Indexes]]]:
    """Keep others from writing to a partition until `held` ends.

    Return its segments that do not grow, and the one that its log recovers itself, with its indexes as they were.
    """
    if names.CHECKPOINT not in files.list(location.directory):
        held.callback(lock_directory(files, location.directory).close)
        return _segments(location, files), []
    before = [(segment, _indexes(segment, files)) for segment in _segments(location, files)[-1:]]
    held.enter_context(open_log(location, store))
    # Listed again: opening may have removed segments that were deleted or cut.
    return _segments(location, files)[:-1], before


def _segments(location: PartitionLocation, files: OsFiles) -> list[_Segment]:
    found = filter(None, map(names.parse_segment_name, files.list(location.directory)))
    segments = []
    for base_offset in sorted(base_offset for base_offset, suffix in found if suffix == names.LOG):
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
    """Return what became of the last segment of a log, which is closed."""
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
