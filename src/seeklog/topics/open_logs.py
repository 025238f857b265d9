"""The logs of a store that stand open, so few of them at a time that their files stay within a bound.

A partition is open for writing, from the first append on, until it is the one that was left alone for longest and
room is needed; or it is open for reading only; or it is lent: opened for one commit, and closed again. Whoever reads
gets the writing log where this process has one, because that one knows more and asks no file.

Thread contract: any thread may call anything. Each entry has a lock, which is held while its log is opened or
closed; `_lock` guards the table alone and is never held while a file is touched.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeVar

from seeklog.clock import Clock
from seeklog.errors import (
    LogClosed,
    LogLocked,
    NotALog,
    SeeklogError,
    TopicNotFound,
    UsageError,
)
from seeklog.files import SHORT_WAIT_S, Files, retry_while_locked, translate
from seeklog.log import Host, Log, LogReader, Maintenance, OpenSegments, is_same_topic, take_snapshot
from seeklog.log.side import Checkpoint, RootLine, RootWatch
from seeklog.names import TopicPartition
from seeklog.record.record import Record
from seeklog.topics.layout import partition_path
from seeklog.topics.topics import Topics

logger = logging.getLogger("seeklog")

Answer = TypeVar("Answer")

# A log that is written holds its lock and its last segment open and, with `flush="batch"`, its watermark.
FILES_PER_WRITER = 3
# A segment that is read has its log open, and Python's maps of its three indexes keep a file each.
FILES_PER_SEGMENT = 4
DROP_WAIT_S = 5.0


class _Entry:
    """One partition."""

    __slots__ = (
        "borrowed",
        "is_stale",
        "lock",
        "partition",
        "pins",
        "reader",
        "topic_id",
        "unpinned",
        "version",
        "was_locked",
        "writer",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.lock = threading.RLock()
        self.unpinned = threading.Condition(self.lock)
        self.writer: Log | None = None
        self.borrowed: Log | None = None
        """What is open for one change after the other; its lock is released in between."""
        self.reader: LogReader | None = None
        self.topic_id = ""
        self.version = -1
        """The state of the topics that the open logs were last held against."""
        self.pins = 0
        """How many use the writer just now: it stays open for them."""
        self.was_locked = False
        """Whether another process had it when it was last to be written."""
        self.is_stale = False
        """Whether the writer is to be closed as soon as nobody uses it."""

    def open_log(self) -> LogReader | None:
        """Return the log to read from, unless somebody who was given it has closed it."""
        if self.writer is not None and not self.writer.is_closed:
            return self.writer.reader
        return self.reader if self.reader is not None and not self.reader.is_closed else None


class OpenLogs:
    """Opens and closes the logs of a store."""

    def __init__(
        self,
        topics: Topics,
        *,
        files: Files,
        clock: Clock,
        read_only: bool,
        max_open_files: int,
        maintenance: Maintenance | None,
    ) -> None:
        self._topics = topics
        self._root = topics.root
        self._files = files
        self._clock = clock
        self._read_only = read_only
        self._maintenance = maintenance
        self._max_writers = max(1, max_open_files // 2 // FILES_PER_WRITER)
        self._max_segments = max(1, max_open_files // 2 // FILES_PER_SEGMENT)
        self._open_segments = OpenSegments(self._max_segments)
        self._root_watch = RootWatch(files, topics.root, clock=clock)
        self._lock = threading.Lock()
        self._entries: dict[TopicPartition, _Entry] = {}
        # Those with a log open to write, or borrowed; the one that was left alone for longest first.
        self._writers: OrderedDict[TopicPartition, _Entry] = OrderedDict()
        self._changed: dict[TopicPartition, tuple[str, RootLine]] = {}
        """What the root's checkpoints do not know yet, of logs that were closed."""
        self._is_closed = False

    # ------------------------------------------------------------ using logs

    def reading(self, partition: TopicPartition) -> LogReader:
        """Return a log to read from. It may be closed at any time after; ask again then."""
        entry = self._entries.get(partition)
        if entry is not None and entry.version == self._topics.version:
            log = entry.open_log()
            if log is not None and not (self._topics.is_brokers and not is_same_topic(log)):
                return log
        entry = self._entry(partition)
        with entry.lock:
            self._hold_against_topics(entry)
            log = entry.open_log()
            if log is not None and log is entry.reader and not is_same_topic(log):
                log.close()
                log = None
            if log is None:
                self._close_writer(entry)
                log = self._open_to_read(partition)
                if log.needs_recovery and not self._read_only:
                    self._recover(partition)
                entry.reader = log
            return log

    def _recover(self, partition: TopicPartition) -> None:
        """Recover a partition that was not closed cleanly, so that readers see all of it; its writer may do it.

        What cannot be recovered can still be read, up to where it is whole.
        """
        try:
            self._open_to_write(partition).close()
        except LogLocked:
            return
        except SeeklogError as error:
            logger.warning("%s: it was not closed cleanly and is not recovered: %s", partition, error)

    def topic_id(self, partition: TopicPartition) -> str:
        """Return the id of the topic that the open log of a partition is of, for who has it just now."""
        return self._entries[partition].topic_id

    def inherited(self, partition: TopicPartition) -> Checkpoint | None:
        """Return what a broker's checkpoints in the root say of a partition."""
        return self._root_watch.offsets().of(partition)

    def ask(self, partition: TopicPartition, question: Callable[[LogReader], Answer]) -> Answer:
        """Ask a log something. One that is closed meanwhile, because it is opened otherwise, is asked anew."""
        while True:
            log = self.reading(partition)
            try:
                return question(log)
            except LogClosed:
                if not log.is_closed:
                    raise

    def append(self, partition: TopicPartition, records: list[Record]) -> tuple[range, Log | None]:
        """Append records as one batch; return their offsets, and the log that the caller must sync: `flush="batch"`."""
        entry, log = self._pin(partition)
        try:
            return log.append_many(records, wait=False), log if log.config.flush == "batch" else None
        finally:
            self._unpin(entry)

    def flush(self, partition: TopicPartition) -> None:
        """Make durable what this process has appended to a partition, if it writes it."""
        entry = self._entries.get(partition)
        writer = entry.writer if entry is not None else None
        if writer is not None:
            writer.flush()

    @contextlib.contextmanager
    def writing(self, partition: TopicPartition) -> Iterator[Log]:
        """Give a log to append to. It stays open afterwards, and its partition locked."""
        entry, log = self._pin(partition)
        try:
            yield log
        finally:
            self._unpin(entry)

    def _pin(self, partition: TopicPartition) -> tuple[_Entry, Log]:
        entry = self._entries.get(partition) or self._entry(partition)
        with entry.lock:
            if entry.version != self._topics.version:
                self._hold_against_topics(entry)
            if entry.is_stale:
                # Those who use one with an older configuration end first: were one always to come between, none would.
                entry.unpinned.wait_for(lambda: not entry.is_stale, SHORT_WAIT_S)
            log = self._usable_writer(entry) or self._open_writer(entry)
            entry.pins += 1
            return entry, log

    def _usable_writer(self, entry: _Entry) -> Log | None:
        """Return the log that is open for writing. One that has failed is closed: opening it anew recovers it."""
        log = entry.writer
        if log is None or not (log.is_closed or log.has_failed):
            return log
        if entry.pins:
            return log  # those who use it are told what is wrong with it
        self._close_writer(entry)
        return None

    def _unpin(self, entry: _Entry) -> None:
        with entry.lock:
            entry.pins -= 1
            if entry.is_stale and not entry.pins:
                try:
                    self._close_writer(entry)
                finally:
                    entry.unpinned.notify_all()
        with self._lock:
            if entry.writer is not None:
                self._writers[entry.partition] = entry
                self._writers.move_to_end(entry.partition)
        if len(self._writers) > self._max_writers:
            self._close_excess()

    def _close_excess(self) -> None:
        """Close those that were left alone for longest, where more are open than may be."""
        with self._lock:
            excess = max(0, len(self._writers) - self._max_writers)
            idle = [entry for entry in self._writers.values() if not entry.pins][:excess]
        for entry in idle:
            # One that another thread holds is not idle, and that thread may wait for what this one holds.
            if not entry.lock.acquire(blocking=False):
                continue
            try:
                self._close_writer(entry)
                self._close_borrowed(entry)
            except SeeklogError as error:
                # The caller only needed the room; the next open of this log recovers it.
                logger.error("%s: closing it failed: %s", entry.partition, error)
            finally:
                entry.lock.release()

    def _hold_against_topics(self, entry: _Entry) -> None:
        """Close what was opened of a topic that is gone, made anew, or configured otherwise since. Holds the lock."""
        version = self._topics.version
        topic = self._topics.check(entry.partition)
        is_another = entry.topic_id != topic.topic_id
        log = entry.writer or entry.borrowed
        if is_another or (log is not None and log.config != self._topics.config_of(topic)):
            self._close_stale(entry)
            if is_another:
                self._changed.pop(entry.partition, None)
        entry.topic_id, entry.version = topic.topic_id, version

    @contextlib.contextmanager
    def borrow(self, partition: TopicPartition, *, wait_s: float, stays_open: bool = False) -> Iterator[Log]:
        """Give a log for one change: its lock is taken, and released afterwards.

        What other processes have appended is taken in first. Waits while another process holds the lock, as it does for
        a change of its own. A log that this process has open for writing is given as it is. All that was appended is
        durable at the end. With `stays_open` the next change costs no open.
        """
        entry = self._entries.get(partition) or self._entry(partition)
        with entry.lock:
            if entry.writer is not None:
                self._bring_up_to_date(entry, wait_s=max(wait_s, SHORT_WAIT_S))
                writer = self._usable_writer(entry)
                if writer is not None:
                    yield writer
                    writer.flush()
                    return
            stays_open = stays_open or entry.borrowed is not None
            log = self._borrow(entry, wait_s=wait_s)
            try:
                yield log
            finally:
                if not stays_open:
                    self._close_borrowed(entry)
                else:
                    self._give_back(entry, log)
        if len(self._writers) > self._max_writers:
            self._close_excess()

    def _borrow(self, entry: _Entry, *, wait_s: float) -> Log:
        """Return a log that is locked, and configured as the catalog has it while it is. Holds the entry's lock."""
        while entry.borrowed is not None:
            log = entry.borrowed
            try:
                goes_on = log.borrow()
            except LogLocked:
                goes_on = retry_while_locked(self._clock, wait_s, log.borrow)
            if not goes_on:
                entry.borrowed = None
                break
            try:
                # Another process may have altered the topic just before, and written.
                self._topics.refresh()
                if entry.version == self._topics.version:
                    return log
                self._hold_against_topics(entry)
            except BaseException:
                self._close_borrowed(entry)  # it holds the lock
                raise
        with self._lock:
            self._check_open()
        log = retry_while_locked(self._clock, wait_s, lambda: self._open_as_configured(entry.partition))
        entry.borrowed, entry.topic_id = log, self._topics.check(entry.partition).topic_id
        with self._lock:
            self._writers[entry.partition] = entry
        return log

    def _give_back(self, entry: _Entry, log: Log) -> None:
        try:
            log.give_back()
        except BaseException:
            self._close_borrowed(entry)
            raise

    def _close_borrowed(self, entry: _Entry) -> None:
        """Close a log that was borrowed for a moment. Holds the entry's lock."""
        log, entry.borrowed = entry.borrowed, None
        if log is not None:
            try:
                log.close()
            finally:
                self._closed(entry, log)

    def close_borrowed(self) -> None:
        """Close what is borrowed now and then, so that its recovery point and a clean end are on disk."""
        for entry in self._entries_of(None):
            if entry.borrowed is not None:
                with entry.lock:
                    self._close_borrowed(entry)

    def _closed(self, entry: _Entry, log: Log) -> None:
        with self._lock:
            self._writers.pop(entry.partition, None)
            self._changed[entry.partition] = (entry.topic_id, _offsets_of(log))

    @contextlib.contextmanager
    def borrow_beside_writers(self, partition: TopicPartition, *, wait_s: float) -> Iterator[Log]:
        """Give a log for long work, such as a compaction, as `lent` does.

        Those who append to one that stands open do not wait for that, and closing it ends the work.
        """
        with contextlib.ExitStack() as held:
            log = held.enter_context(self.borrow(partition, wait_s=wait_s))
            if log in self.open_writers():
                held.close()
            yield log

    def _bring_up_to_date(self, entry: _Entry, *, wait_s: float) -> None:
        """Leave no writer with an older configuration: it is closed as soon as nobody uses it. Holds the lock."""
        while True:
            self._topics.refresh()
            if entry.version != self._topics.version:
                self._hold_against_topics(entry)
            if not entry.is_stale:
                return
            if not entry.unpinned.wait_for(lambda: not entry.is_stale or self._is_closed, wait_s):
                raise LogLocked(partition_path(self._root, entry.partition), os.getpid())
            with self._lock:
                self._check_open()

    def _open_as_configured(self, partition: TopicPartition, *, maintenance: Maintenance | None = None) -> Log:
        """Open a log as the catalog has it while it is locked.

        Another process may have altered the topic just before, and written: what an older configuration deletes or
        compacts of that is gone for good.
        """
        while True:
            log = self._open_to_write(partition, maintenance=maintenance)
            try:
                # Whether or not it was this thread that learned of it.
                self._topics.refresh()
                if self._topics.config_of(self._topics.check(partition)) == log.config:
                    return log
            except BaseException:
                log.close()
                raise
            log.close()

    def _entry(self, partition: TopicPartition) -> _Entry:
        self._topics.check(partition)
        with self._lock:
            self._check_open()
            entry = self._entries.get(partition)
            if entry is None:
                entry = self._entries[partition] = _Entry(partition)
            return entry

    def _open_writer(self, entry: _Entry) -> Log:
        with self._lock:
            self._check_open()
        self._close_borrowed(entry)
        # Who has held it for a moment's time writes it, and the other partitions must not wait for that each time.
        wait_s, entry.was_locked = 0.0 if entry.was_locked else SHORT_WAIT_S, True
        log = retry_while_locked(
            self._clock,
            wait_s,
            lambda: self._open_as_configured(entry.partition, maintenance=self._maintenance),
        )
        entry.was_locked = False
        entry.writer = log
        reader, entry.reader = entry.reader, None
        if reader is not None:
            reader.close()
        # It may be one that another process has made anew; from here on nobody deletes it.
        entry.topic_id = self._topics.check(entry.partition).topic_id
        return log

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogClosed(f"the store at {self._root} is closed")

    def _open_to_write(self, partition: TopicPartition, *, maintenance: Maintenance | None = None) -> Log:
        if self._read_only:
            raise UsageError(f"the store at {self._root} is open read-only")
        path, config = self._path_of(partition), self._topics.config_of(self._topics.check(partition))
        with self._naming_deleted(partition):
            return Log(
                path,
                config=config,
                clock=self._clock,
                files=self._files,
                background=maintenance is not None,
                host=self._host_of(partition, maintenance=maintenance),
            )

    def _open_to_read(self, partition: TopicPartition) -> LogReader:
        path, config = self._path_of(partition), self._topics.config_of(self._topics.check(partition))
        with self._naming_deleted(partition):
            return LogReader(
                path,
                config=config,
                clock=self._clock,
                files=self._files,
                host=self._host_of(partition, maintenance=None),
            )

    def _path_of(self, partition: TopicPartition) -> str:
        path = partition_path(self._root, partition)
        try:
            if self._files.kind(path) == "link":
                raise NotALog(f"{path} is a symbolic link, and a store follows none. Nothing was changed")
        except FileNotFoundError:
            pass  # the open says so
        except OSError as error:
            raise translate(error, f"{path} cannot be opened") from error
        return path

    def _host_of(self, partition: TopicPartition, *, maintenance: Maintenance | None) -> Host:
        return Host(
            source=partition,
            open_segments=self._open_segments,
            inherited=partial(self.inherited, partition),
            has_topic=partial(self._has_topic, partition.topic),
            cleaned=self._root_watch.offsets().cleaned.get(partition, 0),
            maintenance=maintenance,
        )

    @contextlib.contextmanager
    def _naming_deleted(self, partition: TopicPartition) -> Iterator[None]:
        try:
            yield
        except NotALog as error:
            if not self._has_topic(partition.topic):
                raise TopicNotFound(f"topic {partition.topic!r} was deleted") from error
            raise

    def _has_topic(self, name: str) -> bool:
        """Tell whether a topic is there by now."""
        self._topics.refresh(at_once=True)
        return self._topics.has(name)

    # ------------------------------------------------------------ closing logs

    def _close_writer(self, entry: _Entry) -> None:
        with entry.lock:
            if entry.pins or entry.writer is None:
                return
            log, entry.writer, entry.is_stale = entry.writer, None, False
            try:
                log.close()
            finally:
                self._closed(entry, log)

    def drop(self, topic: str) -> None:
        """Close every log of a topic, to be opened anew when it is needed. Those who append just now end first."""
        for entry in self._entries_of(topic):
            with entry.lock:
                # Who has opened it anew while we waited ends, too.
                if not entry.unpinned.wait_for(lambda: self._close_stale(entry), DROP_WAIT_S):  # noqa: B023
                    raise UsageError(f"{entry.partition} is being written to in this process; close its producer first")
                self._changed.pop(entry.partition, None)

    def drop_changed(self) -> None:
        """Close what was opened of topics that are gone, made anew, or configured otherwise since."""
        for entry in self._entries_of(None):
            with entry.lock:
                if entry.version == self._topics.version:
                    continue
                try:
                    self._hold_against_topics(entry)
                except TopicNotFound:
                    self._close_stale(entry)

    def _entries_of(self, topic: str | None) -> list[_Entry]:
        with self._lock:
            return [entry for entry in self._entries.values() if topic in (None, entry.partition.topic)]

    def _close_stale(self, entry: _Entry) -> bool:
        """Close a writer as soon as nobody uses it; tell whether there is none any more."""
        with entry.lock:
            entry.is_stale = entry.writer is not None
            self._close_writer(entry)
            self._close_borrowed(entry)
            reader, entry.reader = entry.reader, None
            if reader is not None:
                reader.close()
            return entry.writer is None

    def abandon(self) -> None:
        """Forget every log in a forked child, and make the lock anew: a thread that is not in it may have held it."""
        self._lock = threading.Lock()
        # What the parent has open is its own, and stands still here.
        self._open_segments = OpenSegments(self._max_segments)
        self._entries = {}
        self._writers.clear()
        self._changed = {}

    def open_writers(self) -> list[Log]:
        """Return the logs that are open for writing."""
        with self._lock:
            return [entry.writer for entry in self._writers.values() if entry.writer is not None]

    def take_changed(self) -> dict[TopicPartition, tuple[str, RootLine]]:
        """Return topic id and offsets of the partitions that were written to since last asked."""
        with self._lock:
            changed, self._changed = self._changed, {}
            writers = list(self._writers.items())
        for partition, entry in writers:
            log = entry.writer
            if log is not None:
                changed[partition] = (entry.topic_id, _offsets_of(log))
        return changed

    def put_back_changed(self, changed: Mapping[TopicPartition, tuple[str, RootLine]]) -> None:
        """Keep for the next time what could not be written."""
        with self._lock:
            self._changed = {**changed, **self._changed}

    def close(self) -> None:
        """Close every log. The first error is raised when all of them were tried."""
        with self._lock:
            self._is_closed = True
            entries = list(self._entries.values())
        first_error: SeeklogError | None = None
        for entry in entries:
            with entry.lock:
                entry.pins = 0
                try:
                    self._close_writer(entry)
                    self._close_borrowed(entry)
                except SeeklogError as error:
                    first_error = first_error or error
                entry.unpinned.notify_all()
                if entry.reader is not None:
                    entry.reader.close()
        if first_error is not None:
            raise first_error


def _offsets_of(log: Log) -> RootLine:
    cleaned = take_snapshot(log).clean_offset if log.config.compacts else None
    return RootLine(log.recovery_point, log.log_start_offset, log.high_watermark, cleaned)
