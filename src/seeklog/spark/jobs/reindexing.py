"""`reindex`: the indexes of a store's segments made what their logs say, by Spark's tasks."""

from __future__ import annotations

import contextlib
import logging
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from seeklog import names
from seeklog.config import LogConfig
from seeklog.errors import LogLocked, SeeklogError, UsageError
from seeklog.files import OsFiles
from seeklog.log import Log, lock_directory, lock_out_broker
from seeklog.log.check import Renewed, renew_index, sizes_of
from seeklog.spark.jobs.frame import frame_of
from seeklog.spark.jobs.partitions import Place, Territory, find_partitions
from seeklog.spark.jobs.progress import Progress, readable
from seeklog.spark.jobs.tasks import pack, run_tasks
from seeklog.store import Store, open_store
from seeklog.topics.layout import check_root

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("seeklog")

OUTCOMES = {
    "topic": "string",
    "partition": "int",
    "segment": "bigint",
    "file": "string",
    "done": "string",
    "index_bytes_before": "bigint",
    "index_bytes_after": "bigint",
    "time_index_bytes_before": "bigint",
    "time_index_bytes_after": "bigint",
    "key_index_bytes_before": "bigint",
    "key_index_bytes_after": "bigint",
    "batches": "bigint",
    "records": "bigint",
    "bytes": "bigint",
    "detail": "string",
}
_Tables = tuple[bytes | None, bytes | None]
# A partition that is held has its lock and a log open; a process may as a rule open a thousand files.
HELD_MOST = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segment:
    """One segment whose indexes are to be looked at."""

    place: int
    path: str
    base_offset: int
    size: int
    config: LogConfig


def reindex(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    topics: Iterable[str] | None = None,
    config: LogConfig | Mapping[str, Any] | None = None,
    progress: bool = True,
) -> DataFrame:
    """Make the indexes and seals of a store, a broker's data directory or one partition what the logs say.

    The work is done when this returns: the DataFrame has a row for each segment, with what was done: `unchanged`,
    `rebuilt`, or `damaged`, which is left as it is; `refused` where a whole partition cannot be opened. Every
    partition is held while it is worked on. One that somebody writes to raises `LogLocked` before anything is changed.

    A key index is made what the log says where there is one; who has none gets one when a key is looked for.

    Partitions of seeklog's are opened for writing, which recovers them, the indexes of the last segment included. Of
    those that only a broker has written nothing but indexes is changed. `config` holds for topics that say nothing
    else: a broker's index interval is to be given there if it is not Kafka's default.
    """
    files = OsFiles()
    config = config if isinstance(config, LogConfig) else LogConfig.from_mapping(config or {})
    territory = find_partitions(path, topics=topics, config=config, files=files)
    if territory.root is not None:
        # Refuses an archive, whose manifest knows every byte.
        check_root(files, territory.root, create=True)
    territory = _writable(territory, topics)
    places = territory.places
    _check_unlocked(places, files)
    rows: list[tuple[object, ...]] = []
    seconds, scanned = 0.0, 0
    for first in range(0, len(places), HELD_MOST):
        group = range(first, min(first + HELD_MOST, len(places)))
        with _Held(territory, config, files) as held:
            segments: list[_Segment] = []
            for number in group:
                try:
                    segments += held.take(number)
                except LogLocked:
                    raise
                except (SeeklogError, OSError) as error:
                    rows.append(_refused(places[number], error))
            packs = pack(segments, lambda segment: segment.size)
            shown = Progress(
                "reindex",
                counts=[len(each) for each in packs],
                sizes=[sum(segment.size for segment in each) for each in packs],
                is_shown=progress,
            )
            for segment, renewed in run_tasks(spark, packs, _renew, progress=shown):
                rows.append(_row(places[segment.place], segment, renewed))
                scanned += segment.size
            seconds += shown.seconds
        # Closing a log completes the indexes of its last segment.
        rows += [_row(places[segment.place], segment, renewed) for segment, renewed in held.recovered()]
    rows.sort(key=lambda row: tuple(-1 if field is None else field for field in row[:3]))
    summary = _summary(rows, scanned, max(seconds, 1e-3))
    logger.info("reindex %s: %s", os.fsdecode(path), summary)
    Progress("reindex", counts=[], sizes=[], is_shown=progress).finish(summary)
    return frame_of(spark, OUTCOMES, rows)


def _renew(segment: _Segment) -> tuple[_Segment, Renewed]:
    """What a task does."""
    return segment, renew_index(segment.path, config=segment.config)


def _writable(territory: Territory, topics: Iterable[str] | None) -> Territory:
    """Leave out the topics that a broker keeps for itself; one that was asked for by name is refused."""
    kept_by_broker = names.INTERNAL_TOPICS - {names.CONSUMER_OFFSETS}
    refused = sorted({place.topic for place in territory.places if place.topic in kept_by_broker})
    if refused and topics is not None:
        raise UsageError(f"{refused[0]} is a broker's own, and only a broker writes it")
    places = tuple(place for place in territory.places if place.topic not in kept_by_broker)
    return Territory(root=territory.root, places=places)


def _check_unlocked(places: Iterable[Place], files: OsFiles) -> None:
    """Raise `LogLocked` for the first partition that somebody writes to. Later ones are found when they are opened."""
    for place in places:
        lock = f"{place.directory}/{names.LOCK}"
        with contextlib.suppress(FileNotFoundError):
            if files.is_locked(lock):
                lock_directory(files, place.directory).close()


class _Held:
    """Partitions that nobody else can write to, until the end of a `with`."""

    def __init__(self, territory: Territory, config: LogConfig, files: OsFiles) -> None:
        self._territory = territory
        self._config = config
        self._files = files
        self._open = contextlib.ExitStack()
        self._store: Store | None = None
        self._last: list[tuple[_Segment, _Tables]] = []
        """The segments that their logs recover themselves, with their indexes as they were."""

    def __enter__(self) -> _Held:
        root = self._territory.root
        if root is None:
            return self
        if names.TOPICS in self._files.list(root):
            self._store = self._open.enter_context(open_store(root, config=self._config, background=False))
        else:
            # A broker's directory stays one: nothing of ours is put into it.
            self._open.callback(lock_out_broker(self._files, root).close)
        return self

    def __exit__(self, *exception: object) -> None:
        self._open.close()

    def take(self, number: int) -> list[_Segment]:
        """Hold a partition and return its segments that do not grow."""
        place = self._territory.places[number]
        if names.CHECKPOINT not in self._files.list(place.directory):
            self._open.callback(lock_directory(self._files, place.directory).close)
            return self._segments(number)
        before = [(segment, self._tables(segment)) for segment in self._segments(number)[-1:]]
        if self._store is not None and place.partition is not None:
            self._open.enter_context(self._store.writer(place.topic, place.partition))
        else:
            self._open.enter_context(Log(place.directory, config=place.config, files=OsFiles(), background=False))
        self._last += before
        # Listed anew: opening may have removed segments that were deleted or cut.
        return self._segments(number)[:-1]

    def _segments(self, number: int) -> list[_Segment]:
        place = self._territory.places[number]
        found = filter(None, map(names.parse_segment_name, self._files.list(place.directory)))
        segments = []
        for base_offset in sorted(base_offset for base_offset, suffix in found if suffix == names.LOG):
            path = f"{place.directory}/{names.segment_name(base_offset, names.LOG)}"
            size = self._files.file_size(path)
            segments.append(_Segment(place=number, path=path, base_offset=base_offset, size=size, config=place.config))
        return segments

    def _tables(self, segment: _Segment) -> _Tables:
        offsets, times = (
            self._read(segment.path.removesuffix(names.LOG) + suffix)
            for suffix in (names.OFFSET_INDEX, names.TIME_INDEX)
        )
        return offsets, times

    def _read(self, path: str) -> bytes | None:
        try:
            return self._files.read_file(path)
        except FileNotFoundError:
            return None

    def recovered(self) -> Iterator[tuple[_Segment, Renewed]]:
        """Yield what became of the last segments, once their logs are closed."""
        for segment, before in self._last:
            after = self._tables(segment)
            yield (
                segment,
                Renewed(
                    done="unchanged" if after == before else "rebuilt",
                    detail="by recovery" if after != before else "",
                    sizes_before=sizes_of(before),
                    sizes_after=sizes_of(after),
                ),
            )


def _row(place: Place, segment: _Segment, renewed: Renewed) -> tuple[object, ...]:
    (index_before, time_before), (index_after, time_after) = renewed.sizes_before, renewed.sizes_after
    return (
        place.topic,
        place.partition,
        segment.base_offset,
        segment.path,
        renewed.done,
        index_before,
        index_after,
        time_before,
        time_after,
        *renewed.key_sizes,
        renewed.batch_count,
        renewed.record_count,
        segment.size,
        renewed.detail,
    )


def _refused(place: Place, error: Exception) -> tuple[object, ...]:
    detail = " ".join(str(error).split())
    nothing = (None,) * 6
    return (place.topic, place.partition, None, place.directory, "refused", *nothing, 0, 0, 0, detail)


def _summary(rows: list[tuple[object, ...]], scanned: int, seconds: float) -> str:
    done = Counter(str(row[4]) for row in rows)
    told = ", ".join(f"{count:,} {word}" for word, count in sorted(done.items()))
    speed = f"{readable(scanned)} scanned in {seconds:.1f} s ({scanned / seconds / 1e6:,.0f} MB/s)"
    return f"{len(rows):,} segments, {speed}: {told or 'nothing to do'}"
