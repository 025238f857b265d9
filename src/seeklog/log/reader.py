"""`LogReader`: one partition, opened for reading.

A log is a directory of segments in Kafka's format. One process opens it for writing. Meanwhile any number of processes
and threads may read it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from seeklog.arguments import check_flags, check_offset, check_whole_number
from seeklog.clock import Clock, SystemClock, as_milliseconds, timeout_ms_in_s
from seeklog.config import INT64_MAX, LogConfig
from seeklog.errors import (
    CorruptionError,
    LogClosed,
    LostRecords,
    NotALog,
    OffsetOutOfRange,
    SeeklogError,
    TopicNotFound,
)
from seeklog.files import Files, OsFiles, local_path, translate
from seeklog.log import reading
from seeklog.log.clean import compaction, removal
from seeklog.log.clean.compaction import Cleanable
from seeklog.log.clean.removal import Removal
from seeklog.log.columns import scan_arrow
from seeklog.log.directory import directory_of, opening
from seeklog.log.headers import max_timestamp_ms
from seeklog.log.host import Host
from seeklog.log.observer import Observer
from seeklog.log.partition import Partition
from seeklog.log.reading import FileRange, Seek
from seeklog.log.recovery import RecoveryReport
from seeklog.log.segment import ADVICE, SegmentReplaced
from seeklog.log.side.root_offsets import inherited_by
from seeklog.log.slice import Slice, find_slice
from seeklog.log.view import View
from seeklog.record import Bytes, arrow
from seeklog.record.batch import Batch
from seeklog.record.encode import checked_key
from seeklog.record.record import Record

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow

Item = TypeVar("Item")


class LogReader:
    """A partition opened for reading: a sequence of records, each addressed by its offset.

    Opens the log at `path`, which must exist. A reader takes no lock and changes nothing on disk, and it sees what
    another process appends. Any thread may call any method. Use it as a context manager, or call `close`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        config: LogConfig | None = None,
        clock: Clock | None = None,
        files: Files | None = None,
        host: Host | None = None,
    ) -> None:
        directory = directory_of(path, files)
        files, clock = files or OsFiles(), clock or SystemClock()
        config = config or LogConfig()
        with opening(directory):
            inherited = host.inherited if host is not None else inherited_by(files, directory, clock=clock)
            observer = Observer(directory, config=config, files=files, clock=clock, inherited=inherited, host=host)
        self._attach(observer, config)

    def _attach(self, source: Partition | Observer, config: LogConfig) -> None:
        self.config = config
        self._source = source
        self._limit = config.max_decompressed_bytes
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.location}>"

    @property
    def path(self) -> Path:
        """The directory of the log. A log at a URL has none: see `location`."""
        return local_path(self._source.directory)

    @property
    def location(self) -> str:
        """The directory or the URL of the log."""
        return self._source.directory

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def needs_recovery(self) -> bool:
        """Whether the log was not closed cleanly: a writer has it open, or has crashed."""
        return isinstance(self._source, Observer) and not self._source.is_clean

    # ------------------------------------------------------------ offsets

    @property
    def log_start_offset(self) -> int:
        """The first offset that the log still holds, inclusive."""
        return self._fresh().log_start_offset

    @property
    def high_watermark(self) -> int:
        """The end of the records that readers see, exclusive."""
        return self._fresh().high_watermark

    def settled_watermark(self) -> int:
        """Return the high watermark that was read last or, in a log that this process writes, after a running append.

        An append changes the directory before it raises the watermark. Who sees the change must not miss the record.
        """
        return self._source.settled_watermark()

    @property
    def known_watermark(self) -> int:
        """The high watermark that was read last, without another look at the disk. For a writer it is current."""
        return self._source.high_watermark

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets: the end of the log, exclusive."""
        return self._fresh().log_end_offset

    @property
    def recovery_point(self) -> int:
        """The offset below which every record survives a power loss."""
        return self._fresh().recovery_point

    @property
    def size_bytes(self) -> int:
        """The total size of the batches in all segments."""
        return sum(segment.size for segment in self._fresh().view.segments)

    @property
    def segment_count(self) -> int:
        return len(self._fresh().view.segments)

    @property
    def recovery(self) -> RecoveryReport:
        """What recovery found and did when this log was opened."""
        return self._source.recovery

    @property
    def leader_epoch(self) -> int:
        """The leader epoch that is stamped on new batches."""
        return self._source.leader_epoch

    def _fresh(self) -> Partition | Observer:
        source, is_last_try = self._source, False
        if not isinstance(source, Observer):
            return source
        while True:
            try:
                source.refresh()
                return source
            except (FileNotFoundError, NotALog, LostRecords) as error:
                gone = self._gone_error(source, error)
                # A broker may be creating a topic with the same name: the second try then raises `TopicNotFound`.
                if is_last_try or isinstance(gone, TopicNotFound | LostRecords):
                    raise gone from error
                is_last_try = True
            except OSError as error:
                raise translate(error, f"{self.location} cannot be read") from error

    def _gone_error(self, observer: Observer, error: Exception) -> SeeklogError:
        if observer.source is not None and observer.has_topic is not None and not observer.has_topic():
            return TopicNotFound(f"topic {observer.source.topic!r} was deleted")
        return (
            error
            if isinstance(error, NotALog | LostRecords)
            else NotALog(f"there is no longer a log at {self.location}")
        )

    # ------------------------------------------------------------ reading

    def read(self, offset: int, *, max_records: int = 500, max_bytes: int = 1 << 20) -> Iterator[Record]:
        """Read records from `offset` up to the high watermark; none if `offset` is at or above it.

        Stops after `max_records`, or after about `max_bytes` of the log, but reads at least one batch, however large.
        All records are read and checked before the call returns. Raises `OffsetOutOfRange` for an offset outside the
        log.
        """
        if not (
            type(offset) is type(max_records) is type(max_bytes) is int
            and 0 < max_records <= INT64_MAX
            and 0 < max_bytes <= INT64_MAX
        ):
            offset, max_records, max_bytes = _checked_numbers(offset, max_records, max_bytes)
        partition = self._source
        stop = partition.high_watermark
        if not partition.log_start_offset <= offset < stop or self._is_closed:
            stop = self._checked_stop(check_offset(offset))
            if offset >= stop:
                return iter(())
        try:
            return iter(reading.read_records(partition.view, offset, stop, max_records, max_bytes, self._limit))
        except (OSError, CorruptionError) as error:
            return self._read_again(offset, stop, max_records, max_bytes, error)

    def read_uncommitted(self, offset: int, *, max_records: int = 500, max_bytes: int = 1 << 20) -> Iterator[Record]:
        """Read as `read` does, but past the high watermark, up to the log end offset. Meant for replication."""
        offset, max_records, max_bytes = _checked_numbers(offset, max_records, max_bytes)
        self._checked_stop(offset)
        stop = self._source.log_end_offset
        if offset >= stop:
            return iter(())
        try:
            return iter(reading.read_records(self._source.view, offset, stop, max_records, max_bytes, self._limit))
        except (OSError, CorruptionError) as error:
            return self._read_again(offset, stop, max_records, max_bytes, error)

    def _read_again(
        self, offset: int, stop: int, max_records: int, max_bytes: int, error: OSError | CorruptionError
    ) -> Iterator[Record]:
        """Read again after an error: a segment was deleted, compacted or rewritten, or it is damaged."""
        if isinstance(error, CorruptionError):
            if not isinstance(self._source, Observer):
                raise error
            self._source.reload()
            stop = min(stop, self._source.log_end_offset)
        elif not isinstance(error, FileNotFoundError):
            raise self._unreadable(offset, error) from error
        view = self._source.view
        if offset < view.bases[0]:
            raise self._out_of_range(offset) from error
        return iter(
            self._in_view(
                view, offset, lambda view: reading.read_records(view, offset, stop, max_records, max_bytes, self._limit)
            )
        )

    def _in_view(self, view: View, offset: int, work: Callable[[View], Item]) -> Item:
        """Call `work` with a view, and again with a newer one if compaction replaced a file of it."""
        renewals = 0
        while True:
            renewals += 1
            try:
                return work(view)
            except CorruptionError:
                if renewals > reading.MAX_RENEWALS or not reading.was_overtaken(view):
                    raise
                renew = view.segments[0].shared.renew
                view = (renew() if renew is not None else None) or view
            except OSError as error:
                if renewals > reading.MAX_RENEWALS or not isinstance(error, FileNotFoundError):
                    raise self._unreadable(offset, error) from error
                try:
                    view = reading.renewed(view, offset, error)
                except OSError:
                    raise self._unreadable(offset, error) from error

    def _checked_stop(self, offset: int) -> int:
        """Return the high watermark, after checking that the offset is in the log."""
        self._check_open()
        partition = self._fresh()
        if not partition.log_start_offset <= offset <= partition.log_end_offset:
            raise self._out_of_range(offset)
        return partition.high_watermark

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogClosed(f"{self.location} is closed; open it again")

    def _unreadable(self, offset: int, error: OSError) -> SeeklogError:
        """Return the error for an `OSError`: the offset was deleted, its segment is lost, or the disk failed."""
        if isinstance(error, FileNotFoundError):
            partition = self._fresh()
            if not partition.log_start_offset <= offset < partition.log_end_offset:
                return self._out_of_range(offset)
            lost = LostRecords(
                "the file of a segment that was not deleted is missing", path=error.filename, advice=ADVICE
            )
            return self._gone_error(partition, lost) if isinstance(partition, Observer) else lost
        return translate(error, f"{self.location} cannot be read at offset {offset}")

    @contextlib.contextmanager
    def _naming_unreadable(self, offset: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._unreadable(offset, error) from error

    def _out_of_range(self, offset: int) -> OffsetOutOfRange:
        partition = self._fresh()
        return OffsetOutOfRange(
            offset, log_start_offset=partition.log_start_offset, log_end_offset=partition.log_end_offset
        )

    def _range(self, start: int | None, end: int | None) -> tuple[int, int]:
        self._check_open()
        partition = self._fresh()
        first, stop = partition.log_start_offset, partition.high_watermark
        if start is not None:
            first = check_offset(start, name="start")
            if not partition.log_start_offset <= first <= partition.log_end_offset:
                raise self._out_of_range(first)
        if end is not None:
            stop = min(stop, check_whole_number("end", end))
        return first, stop

    def _guarded(self, items: Iterator[Item], start: int) -> Iterator[Item]:
        """Yield the items. Raises `OffsetOutOfRange` if retention deletes their segment first."""
        with self._naming_unreadable(start):
            yield from items

    def scan(self, start: int | None = None, end: int | None = None) -> Iterator[Record]:
        """Stream the records in [start, end), by default all that are visible at the time of the call."""
        return chain.from_iterable(self.scan_chunks(start, end))

    def scan_chunks(self, start: int | None = None, end: int | None = None) -> Iterator[list[Record]]:
        """Stream the records in [start, end) as lists, one for each chunk that is decoded at once."""
        first, stop = self._range(start, end)
        view = self._source.view
        return self._guarded(reading.scan_chunks(view, first, stop, limit=self._limit), first)

    def scan_reverse(self, start: int | None = None, end: int | None = None) -> Iterator[Record]:
        """Stream the records in [start, end), newest first."""
        first, stop = self._range(start, end)
        view = self._source.view
        return self._guarded(reading.scan_reverse(view, first, stop, limit=self._limit), first)

    def scan_arrow(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        columns: Sequence[str] = arrow.COLUMNS,
        batch_rows: int = 32768,
        timestamp_unit: arrow.TimestampUnit = "ms",
    ) -> pyarrow.RecordBatchReader:
        """Stream the records in [start, end) as Arrow batches that hold only `columns`."""
        pyarrow = arrow.import_pyarrow()
        schema = arrow.schema(arrow.check_columns(columns), timestamp_unit=timestamp_unit)
        batch_rows = check_whole_number("batch_rows", batch_rows, minimum=1)
        first, stop = self._range(start, end)
        batches = self._scan_batches(
            self._source.view, first, stop, schema=schema, batch_rows=batch_rows, timestamp_unit=timestamp_unit
        )
        return pyarrow.RecordBatchReader.from_batches(schema, batches)

    def _scan_batches(
        self,
        view: View,
        start: int,
        stop: int,
        *,
        schema: pyarrow.Schema,
        batch_rows: int,
        timestamp_unit: arrow.TimestampUnit,
    ) -> Iterator[pyarrow.RecordBatch]:
        batches = scan_arrow(
            view,
            start,
            stop,
            schema=schema,
            batch_rows=batch_rows,
            limit=self._limit,
            timestamp_scale=arrow.TIMESTAMP_SCALES[timestamp_unit],
        )
        return self._guarded(batches, start)

    def read_batches(self, offset: int, *, max_bytes: int = 1 << 20, uncommitted: bool = False) -> Iterator[Batch]:
        """Stream whole batches from the one that holds `offset`, without decoding them. CRCs are checked."""
        max_bytes = check_whole_number("max_bytes", max_bytes, minimum=1)
        offset = check_offset(offset)
        stop = self._batch_stop(offset, uncommitted=uncommitted)
        batches = reading.read_batches(self._source.view, offset, stop, max_bytes=max_bytes)
        return self._guarded(batches, offset)

    def read_ranges(self, offset: int, *, max_bytes: int = 1 << 20, uncommitted: bool = False) -> list[FileRange]:
        """Return the batches of `read_batches` as ranges of open files, for `os.sendfile`. CRCs are not checked."""
        max_bytes = check_whole_number("max_bytes", max_bytes, minimum=1)
        offset = check_offset(offset)
        stop = self._batch_stop(offset, uncommitted=uncommitted)
        return self._in_view(
            self._source.view, offset, lambda view: reading.read_ranges(view, offset, stop, max_bytes=max_bytes)
        )

    def read_slice(self, offset: int, *, max_bytes: int = 1 << 20, stop: int | None = None) -> Slice | None:
        """Return the batches from the one that holds `offset` as a part of one open file; None at the high watermark.

        Its size is at most `max_bytes`, or that of its first batch if that is larger. The last batch may be cut. `stop`
        is another end than the high watermark: the end of a batch. CRCs are not checked.
        """
        end = self._checked_stop(offset)
        stop = end if stop is None else stop
        if offset >= stop:
            return None
        return self._in_view(
            self._source.view, offset, lambda view: find_slice(view, offset, stop, max_bytes=max_bytes)
        )

    def _batch_stop(self, offset: int, *, uncommitted: bool) -> int:
        check_flags(uncommitted=uncommitted)
        stop = self._checked_stop(offset)
        return self._source.log_end_offset if uncommitted else stop

    def follow(self, offset: int | None = None, *, timeout_ms: float | None = None) -> Iterator[Record]:
        """Stream records from `offset` (default: the next one appended) and wait for more, from any process.

        Ends when no record arrives for `timeout_ms`, when the log is closed, or when a write to it fails.
        """
        timeout_s = timeout_ms_in_s("timeout_ms", timeout_ms)
        position = self.high_watermark if offset is None else check_offset(offset)
        self._checked_stop(position)
        return self._follow(position, timeout_s)

    def _follow(self, position: int, timeout_s: float | None) -> Iterator[Record]:
        while True:
            for record in self.read(position):
                position = record.offset + 1
                yield record
            # Compaction and control batches leave offsets without records below the watermark.
            before = self._source.high_watermark
            if position < before:
                position = self._skip_missing(position, before)
                continue
            if self._source.is_over:
                return
            self._source.wait_beyond(position, timeout_s)
            if self._is_closed or (self._source.high_watermark <= position and timeout_s is not None):
                return

    def _skip_missing(self, position: int, stop: int) -> int:
        record = next(self.read(position, max_records=1), None)
        return stop if record is None else record.offset

    def seek(self, offset: int) -> Seek:
        """Find an offset through the index. Return its segment and position, and how much was scanned to find it."""
        offset = check_offset(offset)
        self._check_open()
        partition = self._fresh()
        if not partition.log_start_offset <= offset < partition.log_end_offset:
            raise self._out_of_range(offset)
        return self._in_view(partition.view, offset, lambda view: reading.seek(view, offset))

    def offset_at_time(self, timestamp_ms: int | datetime) -> int | None:
        """Return the offset of the first record with a timestamp of `timestamp_ms` or later, or None.

        The time is milliseconds since 1970, or a datetime with a time zone.
        """
        self._check_open()
        return self._offset_at_time(as_milliseconds(timestamp_ms, clock=self._source.clock))

    def _offset_at_time(self, timestamp_ms: int) -> int | None:
        self._check_open()
        while True:
            partition = self._fresh()
            start, stop = partition.log_start_offset, partition.high_watermark
            find_offset = partial(
                reading.offset_at_time, timestamp_ms=timestamp_ms, start=start, stop=stop, limit=self._limit
            )
            try:
                return self._in_view(partition.view, start, find_offset)
            except OffsetOutOfRange:
                # The caller did not ask for an offset, so a raised start is not an error: begin there.
                if not self._was_start_raised(start):
                    raise

    def max_timestamp_ms(self) -> int | None:
        """Return the largest timestamp of the visible records, or None if no record has one.

        Records are not read: the seals and time indexes of the segments contain it.
        """
        self._check_open()
        while True:
            partition = self._fresh()
            start, stop = partition.log_start_offset, partition.high_watermark
            try:
                found = self._in_view(partition.view, start, partial(max_timestamp_ms, start=start, stop=stop))
            except OffsetOutOfRange:
                if not self._was_start_raised(start):
                    raise
            else:
                return found if found >= 0 else None

    def _was_start_raised(self, start: int) -> bool:
        """Return whether the log starts after `start` because of a delete, not a loss."""
        partition = self._fresh()
        if isinstance(partition, Observer) and not partition.explains_start_beyond(start):
            return False
        return partition.log_start_offset > start

    def latest_for_key(self, key: Bytes, *, start: int | None = None, end: int | None = None) -> Record | None:
        """Return the newest record with this key in [start, end), by default among all visible records, or None.

        A tombstone counts: a record whose value is None says that the key was deleted. The first lookup builds the
        key indexes that sealed segments lack, for which it reads those segments once (see `LogConfig.key_index`).
        """
        key = checked_key(key)
        tries = 0
        while True:
            tries += 1
            is_last_try = tries > reading.MAX_RENEWALS
            first, stop = self._range(start, end)
            partition = self._source
            view = partition.view
            try:
                return partition.keys.latest(
                    view,
                    key,
                    start=first,
                    stop=stop,
                    high_watermark=partition.high_watermark,
                    is_last_try=is_last_try,
                )
            except (OSError, CorruptionError) as error:
                # A segment was deleted or compacted, or another process rewrote the tail. Or the index names a record
                # that does not exist: the last try reads the log itself.
                if is_last_try or not (self._may_have_moved(view, error) or isinstance(error, SegmentReplaced)):
                    if isinstance(error, OSError):
                        raise self._unreadable(first, error) from error
                    raise

    def _may_have_moved(self, view: View, error: OSError | CorruptionError) -> bool:
        """Reload, and return whether the segments of a view may have changed."""
        if isinstance(self._source, Observer):
            self._source.reload()
            return True
        return isinstance(error, FileNotFoundError) and self._source.view is not view

    def contains_key(self, key: Bytes) -> bool:
        """Return whether any visible record has this key. A tombstone counts."""
        return self.latest_for_key(key) is not None

    def last(self) -> Record:
        """Return the newest visible record."""
        record = next(self.scan_reverse(), None)
        if record is None:
            raise self._out_of_range(self._source.high_watermark - 1)
        return record

    # ------------------------------------------------------------ plans for removal

    def plan_truncate_to(self, offset: int) -> Removal:
        """Return what `truncate_to` would remove. Like every plan, this changes nothing."""
        offset = check_offset(offset)
        partition = self._fresh()
        self._checked_stop(offset)
        with self._naming_unreadable(offset):
            return removal.plan_truncation(partition.view, log_end_offset=partition.log_end_offset, offset=offset)

    def plan_delete_before(self, offset: int) -> Removal:
        """Return what `delete_before` would remove."""
        offset = check_offset(offset)
        partition = self._fresh()
        if not 0 <= offset <= partition.high_watermark:
            raise self._out_of_range(offset)
        return removal.plan_delete(partition.view, log_start_offset=partition.log_start_offset, offset=offset)

    def plan_retention(self) -> Removal:
        """Return what `roll_if_due` and `retain` together would remove."""
        self._check_open()
        partition = self._fresh()
        return removal.plan_retention(
            partition.view,
            log_start_offset=partition.log_start_offset,
            high_watermark=partition.high_watermark,
            now_ms=partition.clock.now_ms(),
            config=self.config,
        )

    def cleanable(self) -> Cleanable:
        """Return how much `compact` would read, and whether it is due."""
        self._check_open()
        return compaction.cleanable(self._fresh())

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (the newest epoch not above `epoch`, its end offset), or (-1, -1) if there is no such epoch."""
        check_offset(epoch, name="epoch")
        return self._source.end_offset_for_epoch(epoch)

    def close(self) -> None:
        """Release every file. Closing a closed log does nothing."""
        self._is_closed = True
        self._source.close()


def _checked_numbers(offset: object, max_records: object, max_bytes: object) -> tuple[int, int, int]:
    return (
        check_offset(offset),
        check_whole_number("max_records", max_records, minimum=1),
        check_whole_number("max_bytes", max_bytes, minimum=1),
    )


@dataclass(frozen=True, slots=True)
class Snapshot:
    view: View
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    recovery_point: int
    contiguous_from: int
    """The offset from which seeklog wrote every batch; INT64_MAX if a broker writes the log."""

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.view.segments)

    @property
    def clean_offset(self) -> int | None:
        """The offset up to which the log was compacted by its seals, exclusive; None if it was not."""
        return compaction.clean_offset_of(self.view)


def find_offset_at_time(log: LogReader, timestamp_ms: int) -> int | None:
    """Return the same as `offset_at_time`, for a time that is known to be in milliseconds."""
    return log._offset_at_time(timestamp_ms)


def scan_batches(
    log: LogReader,
    view: View,
    start: int,
    stop: int,
    *,
    schema: pyarrow.Schema,
    batch_rows: int,
    timestamp_unit: arrow.TimestampUnit,
) -> Iterator[pyarrow.RecordBatch]:
    """Return the batches of `scan_arrow` in a view of the log, which may be closed by now."""
    return log._scan_batches(view, start, stop, schema=schema, batch_rows=batch_rows, timestamp_unit=timestamp_unit)


def take_snapshot(log: LogReader) -> Snapshot:
    """Read the files once, and return a state that several readers can share."""
    seen = log._fresh()
    return Snapshot(
        view=seen.view,
        log_start_offset=seen.log_start_offset,
        high_watermark=seen.high_watermark,
        log_end_offset=seen.log_end_offset,
        recovery_point=seen.recovery_point,
        contiguous_from=seen.contiguous_from,
    )


def take_durable_snapshot(log: LogReader) -> Snapshot:
    """Return the same, with the recovery point that a writer noted when it returned the log.

    A writer that returns a log does not write a checkpoint.
    """
    seen, source = take_snapshot(log), log._source
    if isinstance(source, Observer) and seen.recovery_point < seen.log_end_offset:
        note = source.note()
        if note is not None:
            return replace(seen, recovery_point=max(seen.recovery_point, min(note.recovery_point, seen.log_end_offset)))
    return seen


def is_same_topic(log: LogReader) -> bool:
    """Return whether the directory still belongs to the topic that was opened: a broker may have recreated it."""
    return not isinstance(log._source, Observer) or log._source.is_same_topic()
