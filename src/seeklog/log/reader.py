"""`LogReader`: one partition, to read from.

A log is a directory of segments in Kafka's format. One process opens it for writing; any number of others,
and of threads in all of them, read it meanwhile.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from seeklog.clock import Clock, SystemClock
from seeklog.config import LogConfig
from seeklog.errors import (
    CorruptionError,
    LogClosed,
    LostRecords,
    NotALog,
    OffsetOutOfRange,
    SeeklogError,
    TopicNotFound,
    UsageError,
)
from seeklog.files import Files, OsFiles, local_path, translate
from seeklog.log import reading
from seeklog.log.clean import compaction, removal
from seeklog.log.clean.compaction import Cleanable
from seeklog.log.clean.removal import Removal
from seeklog.log.columns import scan_arrow
from seeklog.log.directory import directory_of, opening
from seeklog.log.host import Host
from seeklog.log.observer import Observer
from seeklog.log.partition import Partition
from seeklog.log.reading import FileRange, Seek
from seeklog.log.recovery import RecoveryReport
from seeklog.log.segment import ADVICE, SegmentReplaced
from seeklog.log.side.root_offsets import inherited_by
from seeklog.log.view import View
from seeklog.record import arrow
from seeklog.record.batch import Batch
from seeklog.record.record import Record

if TYPE_CHECKING:
    import pyarrow

Item = TypeVar("Item")


class LogReader:
    """The records of one partition, addressed by offset. Nothing on disk changes.

    Opens the log at `path`, which must exist. Any thread may call any method, and no lock is taken. Use it as a context
    manager, or call `close`.
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
        """The directory."""
        return local_path(self._source.directory)

    @property
    def location(self) -> str:
        """The directory, or the URL that the log lies at."""
        return self._source.directory

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def needs_recovery(self) -> bool:
        """Whether the log was not closed cleanly: a writer is at it, or was when the process or the power went."""
        return isinstance(self._source, Observer) and not self._source.is_clean

    # ------------------------------------------------------------ offsets

    @property
    def log_start_offset(self) -> int:
        """The first offset that is kept."""
        return self._fresh().log_start_offset

    @property
    def high_watermark(self) -> int:
        """The first offset that readers do not see yet: exclusive."""
        return self._fresh().high_watermark

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record will get: exclusive."""
        return self._fresh().log_end_offset

    @property
    def recovery_point(self) -> int:
        """Every record below this offset survives a power loss."""
        return self._fresh().recovery_point

    @property
    def size_bytes(self) -> int:
        """How many bytes of batches there are."""
        return sum(segment.size for segment in self._fresh().view.segments)

    @property
    def segment_count(self) -> int:
        return len(self._fresh().view.segments)

    @property
    def recovery(self) -> RecoveryReport:
        """What the open of this log found and did."""
        return self._source.recovery

    @property
    def leader_epoch(self) -> int:
        """The epoch that new batches are stamped with."""
        return self._source.leader_epoch

    def _fresh(self) -> Partition | Observer:
        source, is_last_try = self._source, False
        if not isinstance(source, Observer):
            return source
        while True:
            try:
                source.refresh()
                return source
            except (FileNotFoundError, NotALog) as error:
                gone = self._gone(source, error)
                # A broker may have been creating a topic of that name just now: then it is another one.
                if is_last_try or isinstance(gone, TopicNotFound):
                    raise gone from error
                is_last_try = True
            except OSError as error:
                raise translate(error, f"{self.location} cannot be read") from error

    def _gone(self, observer: Observer, error: Exception) -> SeeklogError:
        """Say why the directory, or all that was in it, is not there any more."""
        if observer.source is not None and observer.has_topic is not None and not observer.has_topic():
            return TopicNotFound(f"topic {observer.source.topic!r} was deleted")
        return error if isinstance(error, NotALog) else NotALog(f"there is no log at {self.location} any more")

    # ------------------------------------------------------------ reading

    def read(self, offset: int, *, max_records: int = 500, max_bytes: int = 1 << 20) -> Iterator[Record]:
        """Read records from `offset` on, up to the high watermark; nothing if it is the next offset to come.

        At least one batch is read, however large. Everything is read and checked when the call returns.
        """
        partition = self._source
        stop = partition.high_watermark
        if not partition.log_start_offset <= offset < stop or max_records < 1 or max_bytes < 1 or self._is_closed:
            stop = self._checked_read(offset, max_records, max_bytes)
            if offset >= stop:
                return iter(())
        try:
            return iter(reading.read_records(partition.view, offset, stop, max_records, max_bytes, self._limit))
        except (OSError, CorruptionError) as error:
            return self._read_again(offset, stop, max_records, max_bytes, error)

    def read_uncommitted(self, offset: int, *, max_records: int = 500, max_bytes: int = 1 << 20) -> Iterator[Record]:
        """Read as `read` does, but on to the end of the log, as a replica must."""
        self._checked_read(offset, max_records, max_bytes)
        stop = self._source.log_end_offset
        if offset >= stop:
            return iter(())
        try:
            return iter(reading.read_records(self._source.view, offset, stop, max_records, max_bytes, self._limit))
        except (OSError, CorruptionError) as error:
            return self._read_again(offset, stop, max_records, max_bytes, error)

    def _checked_read(self, offset: int, max_records: int, max_bytes: int) -> int:
        if max_records < 1 or max_bytes < 1:
            raise UsageError("max_records and max_bytes must be at least 1")
        return self._checked_stop(offset)

    def _read_again(
        self, offset: int, stop: int, max_records: int, max_bytes: int, error: OSError | CorruptionError
    ) -> Iterator[Record]:
        """Read again: a segment was deleted or compacted, another process has rewritten the tail, or it is damage."""
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
        """Do something in a view, and again in the newest one where compaction has replaced a file of it."""
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
        """Return the high watermark, or refuse an offset outside of the log."""
        self._check_open()
        partition = self._fresh()
        if not partition.log_start_offset <= offset <= partition.log_end_offset:
            raise self._out_of_range(offset)
        return partition.high_watermark

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogClosed(f"{self.location} is closed")

    def _unreadable(self, offset: int, error: OSError) -> SeeklogError:
        """Say what an `OSError` means: a segment that was deleted meanwhile, or a disk that does not answer."""
        if isinstance(error, FileNotFoundError):
            partition = self._fresh()
            if not partition.log_start_offset <= offset < partition.log_end_offset:
                return self._out_of_range(offset)
            return LostRecords("the file of a segment that is kept is gone", path=error.filename, advice=ADVICE)
        return translate(error, f"{self.location} cannot be read at offset {offset}")

    @contextlib.contextmanager
    def _naming_unreadable(self, offset: int) -> Iterator[None]:
        """Report an `OSError` as what it means for an offset that was asked for."""
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
            self._checked_stop(start)
            first = start
        if end is not None:
            if end < 0:
                raise UsageError(f"end {end} is negative")
            stop = min(stop, end)
        return first, stop

    def _guarded(self, items: Iterator[Item], start: int) -> Iterator[Item]:
        """Pass items on; a segment that retention deleted meanwhile is an offset out of range."""
        with self._naming_unreadable(start):
            yield from items

    def scan(self, start: int | None = None, end: int | None = None) -> Iterator[Record]:
        """Stream the records in [start, end), by default all that are visible when the call is made."""
        return chain.from_iterable(self.scan_chunks(start, end))

    def scan_chunks(self, start: int | None = None, end: int | None = None) -> Iterator[list[Record]]:
        """Stream the records in [start, end) in lists, as many at a time as are decoded at once."""
        first, stop = self._range(start, end)
        view = self._source.view
        return self._guarded(reading.scan_chunks(view, first, stop, limit=self._limit), first)

    def scan_reverse(self, start: int | None = None, end: int | None = None) -> Iterator[Record]:
        """Stream the records in [start, end) from the newest to the oldest."""
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
        """Stream the records in [start, end) as Arrow batches with only the columns asked for."""
        pyarrow = arrow.import_pyarrow()
        names = arrow.check_columns(columns)
        if timestamp_unit not in arrow.TIMESTAMP_SCALES or batch_rows < 1:
            raise UsageError('timestamp_unit is "ms" or "us", batch_rows at least 1')
        schema = arrow.schema(names, timestamp_unit=timestamp_unit)
        first, stop = self._range(start, end)
        batches = scan_arrow(
            self._source.view,
            first,
            stop,
            schema=schema,
            batch_rows=batch_rows,
            limit=self._limit,
            timestamp_scale=arrow.TIMESTAMP_SCALES[timestamp_unit],
        )
        return pyarrow.RecordBatchReader.from_batches(schema, self._guarded(batches, first))

    def read_batches(self, offset: int, *, max_bytes: int = 1 << 20, uncommitted: bool = False) -> Iterator[Batch]:
        """Read whole batches without decoding them, from the one that holds `offset` on; CRCs are checked."""
        stop = self._batch_stop(offset, uncommitted=uncommitted)
        batches = reading.read_batches(self._source.view, offset, stop, max_bytes=max_bytes)
        return self._guarded(batches, offset)

    def read_ranges(self, offset: int, *, max_bytes: int = 1 << 20, uncommitted: bool = False) -> list[FileRange]:
        """Return the same batches as ranges of open files, for `os.sendfile`."""
        stop = self._batch_stop(offset, uncommitted=uncommitted)
        return self._in_view(
            self._source.view, offset, lambda view: reading.read_ranges(view, offset, stop, max_bytes=max_bytes)
        )

    def _batch_stop(self, offset: int, *, uncommitted: bool) -> int:
        stop = self._checked_stop(offset)
        return self._source.log_end_offset if uncommitted else stop

    def follow(self, offset: int | None = None, *, timeout_ms: float | None = None) -> Iterator[Record]:
        """Stream records from `offset` (None: the next one to come), and wait for more.

        Ends when nothing has come for `timeout_ms`, or when the log is closed or has failed: nothing more will
        come then. Works across processes.
        """
        position = self.high_watermark if offset is None else offset
        self._checked_stop(position)
        return self._follow(position, timeout_ms)

    def _follow(self, position: int, timeout_ms: float | None) -> Iterator[Record]:
        while True:
            for record in self.read(position):
                position = record.offset + 1
                yield record
            # Offsets may be missing up to the watermark, where compaction or control batches left none.
            before = self._source.high_watermark
            if position < before:
                position = self._skip_missing(position, before)
                continue
            if self._source.is_over:
                return
            self._source.wait_beyond(position, None if timeout_ms is None else timeout_ms / 1000)
            if self._is_closed or (self._source.high_watermark <= position and timeout_ms is not None):
                return

    def _skip_missing(self, position: int, stop: int) -> int:
        record = next(self.read(position, max_records=1), None)
        return stop if record is None else record.offset

    def seek(self, offset: int) -> Seek:
        """Find an offset through the index; return segment, position, and what was scanned to get there."""
        self._check_open()
        partition = self._fresh()
        if not partition.log_start_offset <= offset < partition.log_end_offset:
            raise self._out_of_range(offset)
        return self._in_view(partition.view, offset, lambda view: reading.seek(view, offset))

    def offset_at_time(self, timestamp_ms: int) -> int | None:
        """Return the offset of the first record stamped at or after a time, or None if there is none."""
        self._check_open()
        while True:
            partition = self._fresh()
            start, stop = partition.log_start_offset, partition.high_watermark
            look = partial(reading.offset_at_time, timestamp_ms=timestamp_ms, start=start, stop=stop, limit=self._limit)
            try:
                return self._in_view(partition.view, start, look)
            except OffsetOutOfRange:
                # Nobody has asked for an offset: if the start of the log was raised meanwhile, this begins there.
                if not self._was_start_raised(start):
                    raise

    def _was_start_raised(self, start: int) -> bool:
        """Tell whether the log starts beyond an offset because somebody deleted what was there, not by a loss."""
        partition = self._fresh()
        if isinstance(partition, Observer) and not partition.explains_start_beyond(start):
            return False
        return partition.log_start_offset > start

    def latest_for_key(self, key: bytes, *, start: int | None = None, end: int | None = None) -> Record | None:
        """Return the newest record with this key in [start, end), by default of all that are visible, or None.

        A record whose value is None, a tombstone, is one too: it says that the key was deleted. The first lookup makes
        the key indexes that sealed segments lack, at the cost of reading those segments once (`LogConfig.key_index`).
        """
        if not isinstance(key, bytes):
            raise UsageError(f"a key must be bytes, not {type(key).__name__}")
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
                # A segment was deleted or compacted, or its writer in another process has rewritten the tail. Or the
                # index names a record that is not there: the last try asks the log.
                if is_last_try or not (self._may_have_moved(view, error) or isinstance(error, SegmentReplaced)):
                    if isinstance(error, OSError):
                        raise self._unreadable(first, error) from error
                    raise

    def _may_have_moved(self, view: View, error: OSError | CorruptionError) -> bool:
        """Tell whether the segments of a view may have changed under its reader; learn what they are by now."""
        if isinstance(self._source, Observer):
            self._source.reload()
            return True
        return isinstance(error, FileNotFoundError) and self._source.view is not view

    def contains_key(self, key: bytes) -> bool:
        """Tell whether any visible record has this key, be it a tombstone."""
        return self.latest_for_key(key) is not None

    def last(self) -> Record:
        """Return the newest visible record."""
        record = next(self.scan_reverse(), None)
        if record is None:
            raise self._out_of_range(self._source.high_watermark - 1)
        return record

    # ------------------------------------------------------------ what would be taken away

    def plan_truncate_to(self, offset: int) -> Removal:
        """Say what `truncate_to` would take away. Nothing changes; so with the other plans."""
        partition = self._fresh()
        self._checked_stop(offset)
        with self._naming_unreadable(offset):
            return removal.plan_truncation(partition.view, log_end_offset=partition.log_end_offset, offset=offset)

    def plan_delete_before(self, offset: int) -> Removal:
        """Say what `delete_before` would take away."""
        partition = self._fresh()
        if not 0 <= offset <= partition.high_watermark:
            raise self._out_of_range(offset)
        return removal.plan_delete(partition.view, log_start_offset=partition.log_start_offset, offset=offset)

    def plan_retention(self) -> Removal:
        """Say what `roll_if_due` and `retain` would take away together."""
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
        """Say how much there is for `compact` to look at, and whether it is due."""
        self._check_open()
        return compaction.cleanable(self._fresh())

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (the newest epoch not above `epoch`, where it ends), or (-1, -1) if there is none."""
        return self._source.end_offset_for_epoch(epoch)

    def close(self) -> None:
        """Release every file. Closing twice is nothing."""
        self._is_closed = True
        self._source.close()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a log holds at one moment."""

    view: View
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    recovery_point: int
    contiguous_from: int
    """The first offset from which on seeklog has written all that there is; INT64_MAX if a broker writes the log."""

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.view.segments)

    @property
    def clean_offset(self) -> int | None:
        """Up to where seals say that the log was compacted; None: nowhere."""
        return compaction.clean_offset_of(self.view)


def take_snapshot(log: LogReader) -> Snapshot:
    """Look at the files once and return what there is: for rooms that share the reading out among others."""
    seen = log._fresh()
    return Snapshot(
        view=seen.view,
        log_start_offset=seen.log_start_offset,
        high_watermark=seen.high_watermark,
        log_end_offset=seen.log_end_offset,
        recovery_point=seen.recovery_point,
        contiguous_from=seen.contiguous_from,
    )


def is_same_topic(log: LogReader) -> bool:
    """Tell whether the directory is still of the topic that was opened: a broker may recreate one under its name."""
    return not isinstance(log._source, Observer) or log._source.is_same_topic()
