"""`Log`: one partition with its Python face.

A log is a directory of segments in Kafka's format. One process opens it for writing; any number of others,
and of threads in all of them, read it meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from seeklog import names
from seeklog.clock import Clock, SystemClock
from seeklog.config import LogConfig
from seeklog.errors import (
    CorruptionError,
    DiskFull,
    InvalidName,
    LogClosed,
    LostRecords,
    NotAccessible,
    NotALog,
    OffsetOutOfRange,
    SeeklogError,
    TopicNotFound,
    UsageError,
)
from seeklog.files import Files, OsFiles, absolute, local_path
from seeklog.log import reading, transaction
from seeklog.log.clean import compaction, removal
from seeklog.log.clean.compaction import Cleanable, Compacted
from seeklog.log.clean.removal import Removal
from seeklog.log.columns import scan_arrow
from seeklog.log.flusher import Flusher
from seeklog.log.host import Host
from seeklog.log.observer import Observer
from seeklog.log.partition import Partition
from seeklog.log.producers import ProducerSequence
from seeklog.log.reading import FileRange, Seek
from seeklog.log.recovery import RecoveryReport
from seeklog.log.segment import SegmentReplaced
from seeklog.log.side.root_offsets import inherited_by
from seeklog.log.view import View
from seeklog.record import arrow
from seeklog.record.batch import Batch
from seeklog.record.kernel import Record

if TYPE_CHECKING:
    import pyarrow

Item = TypeVar("Item")
FOREVER_S = 3600.0


class Log:
    """An append-only sequence of records on disk, addressed by offset.

    Opens the log at `path`, or creates it; with `read_only=True` it must exist, and nothing on disk changes.
    Any thread may call any method; readers take no lock. Use it as a context manager, or call `close`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        config: LogConfig | None = None,
        read_only: bool = False,
        clock: Clock | None = None,
        files: Files | None = None,
        background: bool = True,
        host: Host | None = None,
    ) -> None:
        self.config = config or LogConfig()
        # Who brings the files is a store, or another that has looked at the path before.
        directory = absolute(os.fsdecode(path), follows=files is None)
        files = files or OsFiles()
        clock = clock or SystemClock()
        if names.is_url(directory) and isinstance(files, OsFiles):
            raise UsageError(f"{directory} is a URL: open the store that it lies in with seeklog.open")
        if "\0" in directory:
            raise InvalidName(f"{directory!r} cannot be a path: it holds a NUL")
        self._writing: Partition | None = None
        self._partition: Partition | Observer
        try:
            inherited = host.inherited if host is not None else inherited_by(files, directory, clock=clock)
            if read_only:
                self._partition = Observer(
                    directory, config=self.config, files=files, clock=clock, inherited=inherited, host=host
                )
            else:
                syncs = host.background if host is not None else Flusher
                self._partition = self._writing = Partition(
                    directory,
                    config=self.config,
                    files=files,
                    clock=clock,
                    background=syncs if background else None,
                    inherited=inherited,
                    host=host,
                )
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(f"{directory} cannot be opened for writing: the disk is full") from error
            raise NotAccessible(f"{directory} cannot be opened: {error}") from error
        self._limit = self.config.max_decompressed_bytes
        self._is_closed = False

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        mode = "read-only" if self._writing is None else "writing"
        return f"<Log {self.location} {mode}>"

    @property
    def path(self) -> Path:
        """The directory."""
        return local_path(self._partition.directory)

    @property
    def location(self) -> str:
        """The directory, or the URL that the log lies at."""
        return self._partition.directory

    @property
    def read_only(self) -> bool:
        return self._writing is None

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def has_failed(self) -> bool:
        """Whether a write or a sync has failed, so that only opening it anew lets it accept appends again."""
        return self._writing is not None and self._writing.is_over and not self._is_closed

    @property
    def is_same_topic(self) -> bool:
        """Whether the directory is still of the topic that was opened: a broker may recreate one under its name."""
        return not isinstance(self._partition, Observer) or self._partition.is_same_topic()

    @property
    def needs_recovery(self) -> bool:
        """Whether the log was not closed cleanly: a writer is at it, or was when the process or the power went."""
        return isinstance(self._partition, Observer) and not self._partition.is_clean

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
    def view(self) -> View:
        """The segments as they are at this moment: a snapshot, for those who share the reading out among others."""
        return self._fresh().view

    @property
    def contiguous_from(self) -> int:
        """The first offset from which on seeklog has written all that there is; no offset if a broker writes it."""
        return self._partition.contiguous_from

    @property
    def recovery(self) -> RecoveryReport:
        """What the open of this log found and did."""
        return self._partition.recovery

    @property
    def leader_epoch(self) -> int:
        """The epoch that new batches are stamped with."""
        return self._partition.leader_epoch

    def _fresh(self) -> Partition | Observer:
        if not isinstance(self._partition, Observer):
            return self._partition
        for is_last_try in (False, True):
            try:
                self._partition.refresh()
                break
            except (FileNotFoundError, NotALog) as error:
                gone = self._gone(self._partition, error)
                # A broker may have been creating a topic of that name just now: then it is another one.
                if is_last_try or isinstance(gone, TopicNotFound):
                    raise gone from error
            except OSError as error:
                raise NotAccessible(f"{self.location} cannot be read: {error}") from error
        return self._partition

    def _gone(self, observer: Observer, error: Exception) -> SeeklogError:
        """Say why the directory, or all that was in it, is not there any more."""
        if observer.source is not None and observer.has_topic is not None and not observer.has_topic():
            return TopicNotFound(f"topic {observer.source.topic!r} was deleted")
        return error if isinstance(error, NotALog) else NotALog(f"there is no log at {self.location} any more")

    # ------------------------------------------------------------ appending

    def append(
        self,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        producer: ProducerSequence | None = None,
    ) -> int:
        """Append one record and return its offset; how durable it then is, `LogConfig.flush` says.

        With a producer it is written once, as in `append_many`.
        """
        partition = self._writing or self._writer_only()
        if producer is None:
            return partition.append(value, key, headers, timestamp_ms)
        record = Record(value, key=key, headers=headers, timestamp_ms=timestamp_ms)
        return partition.append_records([record], producer=producer).start

    def append_many(
        self, records: Iterable[Record], *, wait: bool = True, producer: ProducerSequence | None = None
    ) -> range:
        """Append records as one batch with one write, and return their offsets; all of them or none.

        With `wait=False` the sync that `flush="batch"` promises is left to a `flush` of the caller's.

        A `producer` numbers its records, so that each is in the log once: if it appends one of its last five batches
        again, nothing is written and the offsets are those of the first time. `OutOfOrderSequence` says that records
        are missing before these, `DuplicateSequence` that these were written longer ago, `ProducerFenced` that the
        producer has a higher epoch by now.
        """
        return (self._writing or self._writer_only()).append_records(
            records if isinstance(records, list) else list(records), wait=wait, producer=producer
        )

    def place_of(self, producer_id: int) -> ProducerSequence | None:
        """Return what the next batch of a producer must begin with; None if the log does not know it.

        An application that numbers its records by itself learns from this, after a crash, which of them are written.
        """
        return (self._writing or self._writer_only()).place_of(producer_id)

    def append_batches(self, raw: bytes | bytearray | memoryview) -> range:
        """Append whole v2 batches: CRCs are checked, base offsets and leader epoch are set, nothing decoded.

        Batches of producers are checked by their epochs and sequences: repeated ones are acknowledged, not written.
        """
        if not isinstance(raw, bytes | bytearray | memoryview):
            raise UsageError(f"batches are bytes, not {type(raw).__name__}")
        return (self._writing or self._writer_only()).append_batches(bytes(raw))

    def append_part(self, part: transaction.Part) -> None:
        """Append this partition's part of a transaction that is being committed: durable, its staging removed."""
        partition = self._writing or self._writer_only()
        # While batches are staged and in the log, they must be the same: after a crash nothing else tells them apart.
        with partition.compacting():
            transaction.append_part(partition, part)
            transaction.close_part(partition, part)

    def flush(self) -> None:
        """Make every appended record durable."""
        (self._writing or self._writer_only()).flush()

    def _writer_only(self) -> Partition:
        raise UsageError(f"{self.location} is open read-only")

    # ------------------------------------------------------------ reading

    def read(self, offset: int, *, max_records: int = 500, max_bytes: int = 1 << 20) -> Iterator[Record]:
        """Read records from `offset` on, up to the high watermark; nothing if it is the next offset to come.

        At least one batch is read, however large. Everything is read and checked when the call returns.
        """
        partition = self._partition
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
        stop = self._partition.log_end_offset
        if offset >= stop:
            return iter(())
        try:
            return iter(reading.read_records(self._partition.view, offset, stop, max_records, max_bytes, self._limit))
        except (OSError, CorruptionError) as error:
            return self._read_again(offset, stop, max_records, max_bytes, error)

    def _checked_read(self, offset: int, max_records: int, max_bytes: int) -> int:
        if max_records < 1 or max_bytes < 1:
            raise UsageError("max_records and max_bytes must be at least 1")
        return self._checked_stop(offset)

    def _read_again(
        self, offset: int, stop: int, max_records: int, max_bytes: int, error: OSError | CorruptionError
    ) -> Iterator[Record]:
        """Tell a segment that was deleted or compacted, or a tail that another process has rewritten, from damage."""
        if isinstance(error, CorruptionError):
            if not isinstance(self._partition, Observer):
                raise error
            self._partition.reload()
            stop = min(stop, self._partition.log_end_offset)
        elif not isinstance(error, FileNotFoundError):
            raise self._unreadable(offset, error) from error
        view = self._partition.view
        if offset < view.bases[0]:
            raise self._out_of_range(offset) from error
        return iter(
            self._in_view(
                view,
                offset,
                lambda view: reading.read_records(view, offset, stop, max_records, max_bytes, self._limit),
            )
        )

    def _in_view(self, view: View, offset: int, work: Callable[[View], Item]) -> Item:
        """Do something in a view, and again in the newest one where compaction has replaced a file of it."""
        renewals = 0
        while True:
            try:
                return work(view)
            except CorruptionError:
                if renewals == reading.RENEWALS_MOST or not reading.was_overtaken(view):
                    raise
                renewals += 1
                renew = view.segments[0].shared.renew
                view = (renew() if renew is not None else None) or view
            except OSError as error:
                if renewals == reading.RENEWALS_MOST or not isinstance(error, FileNotFoundError):
                    raise self._unreadable(offset, error) from error
                renewals += 1
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
            return LostRecords("the file of a segment that is kept is gone", path=error.filename, advice=reading.ADVICE)
        return NotAccessible(f"{self.location} cannot be read at offset {offset}: {error}")

    @contextlib.contextmanager
    def _naming_unreadable(self, offset: int) -> Iterator[None]:
        """Say of an `OSError` what it means to whoever asks for an offset."""
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
        try:
            yield from items
        except OSError as error:
            raise self._unreadable(start, error) from error

    def scan(self, start: int | None = None, end: int | None = None) -> Iterator[Record]:
        """Stream the records in [start, end), by default all that are visible when the call is made."""
        return chain.from_iterable(self.scan_chunks(start, end))

    def scan_chunks(self, start: int | None = None, end: int | None = None) -> Iterator[list[Record]]:
        """Stream the records in [start, end) in lists, as many at a time as are decoded at once."""
        first, stop = self._range(start, end)
        view = self._partition.view
        return self._guarded(reading.scan_chunks(view, first, stop, limit=self._limit), first)

    def scan_reverse(self, start: int | None = None, end: int | None = None) -> Iterator[Record]:
        """Stream the records in [start, end) from the newest to the oldest."""
        first, stop = self._range(start, end)
        view = self._partition.view
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
            self._partition.view,
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
        batches = reading.read_batches(self._partition.view, offset, stop, max_bytes=max_bytes)
        return self._guarded(batches, offset)

    def read_ranges(self, offset: int, *, max_bytes: int = 1 << 20, uncommitted: bool = False) -> list[FileRange]:
        """Return the same batches as ranges of open files, for `os.sendfile`."""
        stop = self._batch_stop(offset, uncommitted=uncommitted)
        return self._in_view(
            self._partition.view, offset, lambda view: reading.read_ranges(view, offset, stop, max_bytes=max_bytes)
        )

    def _batch_stop(self, offset: int, *, uncommitted: bool) -> int:
        stop = self._checked_stop(offset)
        return self._partition.log_end_offset if uncommitted else stop

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
            before = self._partition.high_watermark
            if position < before:
                position = self._skip_missing(position, before)
                continue
            if self._partition.is_over:
                return
            self._partition.wait_beyond(position, FOREVER_S if timeout_ms is None else timeout_ms / 1000)
            if self._is_closed or (self._partition.high_watermark <= position and timeout_ms is not None):
                return

    def _skip_missing(self, position: int, stop: int) -> int:
        record = next(self.read(position, max_records=1), None)
        return stop if record is None else record.offset

    def seek(self, offset: int) -> Seek:
        """Find an offset through the index and tell segment, position, and what was scanned to get there."""
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
            raise UsageError(f"a key is bytes, not {type(key).__name__}")
        tries = 0
        while True:
            is_last_try = tries == reading.RENEWALS_MOST
            tries += 1
            first, stop = self._range(start, end)
            partition = self._partition
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
        if isinstance(self._partition, Observer):
            self._partition.reload()
            return True
        return isinstance(error, FileNotFoundError) and self._partition.view is not view

    def contains_key(self, key: bytes) -> bool:
        """Tell whether any visible record has this key, be it a tombstone."""
        return self.latest_for_key(key) is not None

    def last(self) -> Record:
        """Return the newest visible record."""
        record = next(self.scan_reverse(), None)
        if record is None:
            raise self._out_of_range(self._partition.high_watermark - 1)
        return record

    # ------------------------------------------------------------ what takes records away

    def advance_high_watermark(self, offset: int) -> None:
        """Let readers see everything below `offset`; only with `high_watermark="manual"`."""
        (self._writing or self._writer_only()).advance_high_watermark(offset)

    def truncate_to(self, offset: int) -> int:
        """Drop the batch that holds `offset` and everything behind it; return the new end of the log."""
        partition = self._writing or self._writer_only()
        with self._naming_unreadable(offset):
            return partition.truncate_to(offset)

    def delete_before(self, offset: int) -> int:
        """Raise `log_start_offset` to `offset`; return how many segments that deleted."""
        return (self._writing or self._writer_only()).delete_before(offset)

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

    def retain(self) -> int:
        """Delete old segments by `retention_ms` and `retention_bytes`; return how many."""
        return (self._writing or self._writer_only()).retain()

    def roll_if_due(self) -> bool:
        """Start a new segment if the last one spans `segment_ms`, or if retention keeps none of its records."""
        return (self._writing or self._writer_only()).roll_if_due()

    def make_key_indexes(self) -> int:
        """Make the key indexes that sealed segments lack, if `LogConfig.key_index` asks for it; return how many."""
        return (self._writing or self._writer_only()).make_key_indexes()

    def compact(self, *, buffer_bytes: int = compaction.BUFFER_BYTES) -> Compacted:
        """Keep, of what is sealed, the latest record of each key; return what that did. Offsets do not change.

        Appends and readers go on meanwhile. `buffer_bytes` bounds the memory for keys: what does not fit in it takes
        more rounds. Only where `cleanup_policy` holds "compact".
        """
        return self._compact(buffer_bytes, only_if_due=False)

    def compact_if_due(self, *, buffer_bytes: int = compaction.BUFFER_BYTES) -> Compacted:
        """Compact if `min_cleanable_dirty_ratio` or `max_compaction_lag_ms` ask for it; else `rounds` is 0."""
        return self._compact(buffer_bytes, only_if_due=True)

    def _compact(self, buffer_bytes: int, *, only_if_due: bool) -> Compacted:
        partition = self._writing or self._writer_only()
        if not self.config.compacts:
            raise UsageError(f'{self.path} is not compacted: its cleanup_policy is "{self.config.cleanup_policy}"')
        try:
            return compaction.compact(partition, buffer_bytes=buffer_bytes, only_if_due=only_if_due)
        except OSError as error:
            raise NotAccessible(f"{self.path} cannot be compacted: {error}") from error

    # ------------------------------------------------------------ leader epochs

    def begin_epoch(self, epoch: int) -> None:
        """Stamp batches with a new leader epoch from the end of the log on."""
        (self._writing or self._writer_only()).begin_epoch(epoch)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (the newest epoch not above `epoch`, where it ends), or (-1, -1) if there is none."""
        return self._partition.end_offset_for_epoch(epoch)

    def close(self) -> None:
        """Sync everything and let the log go; closing twice is nothing."""
        self._is_closed = True
        self._partition.close()
