"""The open logs of a store. A limit on open files bounds how many there are.

A partition is open for writing, from its first append until it is the least recently used and room is needed; or open
for reading; or borrowed: open and locked for one change. Readers get the writing log if this process has one, because
it knows more and reads no files.

A partition that is open for writing stays locked until another process waits for its turn. From then on it is *shared*:
its lock is returned after each turn and acquired for the next, and readers in this process use a log of their own, as
those of other processes do.

Thread contract: any thread may call any method. Each entry has a lock, which is held while its log is opened or
closed. `_lock` guards only the table and is never held during I/O.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

from seeklog import names
from seeklog.clock import Clock
from seeklog.config import INT64_MAX
from seeklog.errors import (
    LogClosed,
    LogLocked,
    SeeklogError,
    TopicNotFound,
    UsageError,
)
from seeklog.files import (
    SHORT_WAIT_S,
    Files,
    ReadOnlyFiles,
    is_awaited,
    retry_while_locked,
    take_in_turn,
)
from seeklog.log import (
    Log,
    LogMetrics,
    LogReader,
    Maintenance,
    OpenSegments,
    Shared,
    is_same_topic,
    take_snapshot,
)
from seeklog.log.side import RootLine
from seeklog.metrics import FilesSection
from seeklog.names import TopicPartition
from seeklog.record.growing import GrowingBatch
from seeklog.topics.layout import partition_path
from seeklog.topics.log_opener import LogOpener
from seeklog.topics.topics import Topics

logger = logging.getLogger("seeklog")

Answer = TypeVar("Answer")

# An open writer has its lock file and its active segment open, and with `flush="batch"` its watermark.
FILES_PER_WRITER = 3
# A segment open for reading has its log open, and the map of its key index keeps that file open. The two other indexes
# are open while they are read.
FILES_PER_SEGMENT = 4
DROP_WAIT_S = 5.0
# How long a sync waits for a partition that another process is writing.
FLUSH_WAIT_S = 10.0
# How often the background thread looks whether another process waits for a partition that is idle here. Only the first
# turn that another process takes waits for this: from then on the lock is returned after each turn.
TURN_CHECK_S = 0.2


class _Entry:
    """The open logs of one partition."""

    __slots__ = (
        "borrowed",
        "is_shared",
        "is_stale",
        "lock",
        "looked_at_ms",
        "metrics",
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
        """The log that is open for a series of changes. Its lock is released between them."""
        self.reader: LogReader | None = None
        self.topic_id = ""
        self.version = -1
        """The version of the topics against which the open logs were last checked."""
        self.metrics: LogMetrics | None = None
        """What the writers of the partition counted; None if this process has not opened it for writing."""
        self.pins = 0
        """How many callers are using the writer. It stays open for them."""
        self.is_shared = False
        """Whether another process has waited for the writer's lock since the writer was opened."""
        self.looked_at_ms = -1
        """When this process last looked whether another one waits for the writer's lock."""
        self.was_locked = False
        """Whether another process held the lock at the last attempt to write."""
        self.is_stale = False
        """Whether to close the writer as soon as it has no users."""

    def open_log(self) -> LogReader | None:
        """Return the open log to read from, or None. A log that a caller has closed is not open."""
        # Other threads may close both meanwhile.
        writer, reader = self.writer, self.reader
        if writer is not None and not writer.is_closed and not self.is_shared:
            return writer.reader
        return reader if reader is not None and not reader.is_closed else None


class OpenLogs(LogOpener):
    """Opens and closes the logs of a store."""

    def __init__(
        self,
        topics: Topics,
        *,
        files: Files,
        clock: Clock,
        check_root: Callable[[], None] | None,
        max_open_files: int,
        maintenance: Maintenance | None,
    ) -> None:
        """`check_root` raises `OSError` if the root's path leads to another directory. None: the store is read-only."""
        super().__init__(
            topics,
            files=files,
            clock=clock,
            check_root=check_root,
            max_segments=max(1, max_open_files // 2 // FILES_PER_SEGMENT),
        )
        self._maintenance = maintenance
        self._max_writers = max(1, max_open_files // 2 // FILES_PER_WRITER)
        self._lock = threading.Lock()
        self._entries: dict[TopicPartition, _Entry] = {}
        self._entries_by_topic: dict[str, list[_Entry]] = {}
        # Entries with a log that is open for writing or borrowed, the least recently used first.
        self._writers: OrderedDict[TopicPartition, _Entry] = OrderedDict()
        self._ends_turns = False
        """Whether the background thread looks for processes that wait for idle partitions."""
        self._changed: dict[TopicPartition, tuple[str, RootLine]] = {}
        """Offsets of closed logs that are not in the root's checkpoints yet."""
        self._is_closed = False

    # ------------------------------------------------------------ using logs

    def reading(self, partition: TopicPartition) -> LogReader:
        """Return a log to read from. It may be closed at any time; then call this again."""
        entry = self._entries.get(partition)
        if entry is not None and entry.version == self._topics.version:
            log = entry.open_log()
            if log is not None and not (self._topics.is_brokers and not is_same_topic(log)):
                return log
        entry = self._entry(partition)
        with entry.lock:
            self._check_against_topics(entry)
            log = entry.open_log()
            if log is not None and log is entry.reader and not is_same_topic(log):
                log.close()
                log = None
            if log is None:
                if not entry.is_shared:
                    self._close_writer(entry)
                log = self._open_to_read(partition)
                if not self._read_only and not entry.is_shared and self._needs_recovery(partition, log):
                    self._recover(partition)
                entry.reader = log
            return log

    def _needs_recovery(self, partition: TopicPartition, log: LogReader) -> bool:
        """Return whether no process writes a log that was not closed cleanly."""
        if not log.needs_recovery:
            return False
        try:
            # It may have been returned between the two looks.
            return not self._files.is_locked(self._path_in(partition, names.LOCK)) and log.needs_recovery
        except OSError:
            return True

    def _path_in(self, partition: TopicPartition, name: str) -> str:
        return f"{partition_path(self._root, partition)}/{name}"

    def _recover(self, partition: TopicPartition) -> None:
        """Recover a partition that was not closed cleanly, so that readers see all of it.

        A locked partition is left to its writer. One that cannot be recovered can still be read up to the damage.
        """
        try:
            self._open_to_write(partition, metrics=self._metrics_of(partition)).close()
        except LogLocked:
            return
        except SeeklogError as error:
            logger.warning("%s: the log was not closed cleanly and is not recovered: %s", partition, error)

    def refresh_readers(self) -> None:
        """Let readers that have files open notice which segments are gone, which frees the space of these.

        An error is left to the next read. The bound on open segments bounds how many readers there are.
        """
        if isinstance(self._files, ReadOnlyFiles):
            return  # nothing is deleted there
        for shared in self._open_segments.logs():
            entry = self._entries.get(shared.source) if isinstance(shared, Shared) and shared.source else None
            reader = entry.reader if entry is not None else None
            if reader is not None and not reader.is_closed:
                with contextlib.suppress(SeeklogError):
                    take_snapshot(reader)

    def topic_id(self, partition: TopicPartition) -> str:
        """Return the topic id of a partition's open log. The caller must be using the log."""
        return self._entries[partition].topic_id

    def ask(self, partition: TopicPartition, question: Callable[[LogReader], Answer]) -> Answer:
        """Call `question` with a log. Repeat it with a new log if this one is closed meanwhile, as on a reopen."""
        while True:
            log = self.reading(partition)
            try:
                return question(log)
            except LogClosed:
                if not log.is_closed:
                    raise

    def append(
        self, partition: TopicPartition, batches: Sequence[GrowingBatch], *, wait_s: float = SHORT_WAIT_S
    ) -> tuple[range, Log | None]:
        """Append the first batches, as many as one write may take.

        Return the offsets of their records and, with `flush="batch"`, the log that the caller must sync. Waits up to
        `wait_s` while another process writes the partition. Call `end_turn` after the last of a few batches.
        """
        entry, log = self._pin(partition, wait_s=wait_s)
        try:
            return log.append_encoded(batches, wait=False), log if log.config.flush == "batch" else None
        finally:
            self._unpin(entry)

    def flush(self, partition: TopicPartition, *, below: int = INT64_MAX) -> None:
        """Sync what this process has appended to a partition below an offset, if it has it open for writing."""
        entry = self._entries.get(partition)
        writer = entry.writer if entry is not None else None
        if entry is not None and writer is not None and writer.recovery_point < below:
            self._flush(entry)

    def flush_writers(self) -> None:
        """Sync what this process has appended to all partitions that it has open for writing."""
        with self._lock:
            entries = list(self._writers.values())
        for entry in entries:
            self._flush(entry)

    def _flush(self, entry: _Entry) -> None:
        writer = entry.writer
        if writer is None:
            return
        if entry.is_shared:
            # A process that has the log syncs our records, too, but may not have done so yet.
            self._take_turn(entry.partition, partial(self._flush_shared, entry), wait_s=FLUSH_WAIT_S)
        else:
            writer.flush()

    @staticmethod
    def _flush_shared(entry: _Entry) -> None:
        with entry.lock:
            if entry.writer is not None:
                entry.writer.sync_returned()

    @contextlib.contextmanager
    def writing(self, partition: TopicPartition, *, wait_s: float = SHORT_WAIT_S) -> Iterator[Log]:
        """Yield a log to append to. The log stays open afterwards, and its partition locked until `end_turn`."""
        entry, log = self._pin(partition, wait_s=wait_s)
        try:
            yield log
        finally:
            self._unpin(entry)

    def _pin(self, partition: TopicPartition, *, wait_s: float) -> tuple[_Entry, Log]:
        """Return a log that this process may append to, locked and pinned."""
        entry = self._entries.get(partition) or self._entry(partition)
        with entry.lock:
            log = self._current_writer(entry)
            if log is not None and (entry.pins or not entry.is_shared):
                entry.pins += 1
                return entry, log
            had_last_turn = log is not None and log.is_returned
            # A process that has held the lock this long takes no turns; the other partitions must not wait for it each
            # time.
            wait_s = 0.0 if entry.was_locked else wait_s
        # The entry's lock is not held during the wait: readers of the partition need it.
        attempt = partial(self._pin_locked, entry)
        try:
            log = self._take_turn(partition, attempt, wait_s=wait_s, had_last_turn=had_last_turn)
        except LogLocked:
            entry.was_locked = True
            raise
        entry.was_locked = False
        return entry, log

    def _current_writer(self, entry: _Entry) -> Log | None:
        """Return the open writer, which may be returned, after following changes of the topic. Holds the lock."""
        if entry.version != self._topics.version:
            self._check_against_topics(entry)
        if entry.is_stale:
            # A steady stream of new users would keep the stale writer open forever, so new ones wait.
            entry.unpinned.wait_for(lambda: not entry.is_stale, SHORT_WAIT_S)
        return self._usable_writer(entry)

    def _pin_locked(self, entry: _Entry) -> Log:
        """Acquire the writer's lock and pin the writer. Raises `LogLocked` if another process holds the lock."""
        with entry.lock:
            log = self._current_writer(entry)
            if log is not None and not self._holds(entry, log):
                log = None
            if log is None:
                log = self._open_writer(entry)
            entry.pins += 1
            return log

    def _holds(self, entry: _Entry, log: Log) -> bool:
        """Borrow the writer again if it was returned. False if it, or its topic, has changed: it is closed then.

        A shared log may be held only by its background thread, for a sync. `Log.borrow` waits for the end of that.
        """
        if entry.pins or not entry.is_shared:
            return True
        if log.borrow():
            # Another process may have altered the topic before its last append.
            self._topics.refresh()
            if entry.version != self._topics.version:
                self._check_against_topics(entry)
        else:
            entry.writer = None
            log.close()
        return entry.writer is log

    def _take_turn(
        self, partition: TopicPartition, attempt: Callable[[], Answer], *, wait_s: float, had_last_turn: bool = False
    ) -> Answer:
        return take_in_turn(
            self._files,
            self._path_in(partition, names.WAITING),
            attempt,
            clock=self._clock,
            wait_s=wait_s,
            had_last_turn=had_last_turn,
        )

    def end_turn(self, partition: TopicPartition, *, has_more: bool) -> None:
        """Return a partition's lock if another process waits for it.

        Return that of a shared partition in any case, unless the caller has more to append: then it keeps the lock for
        the rest of a millisecond.
        """
        entry = self._entries.get(partition)
        if entry is None or entry.writer is None:
            return
        if has_more or not entry.is_shared:
            # A look takes a few microseconds, and a turn of another process many more.
            now_ms = self._clock.now_ms()
            if entry.looked_at_ms == now_ms:
                return
            entry.looked_at_ms = now_ms
            if not self._is_awaited(entry):
                return
        self._try_return(entry)

    def _is_awaited(self, entry: _Entry) -> bool:
        return is_awaited(self._files, self._path_in(entry.partition, names.WAITING))

    def end_idle_turns(self) -> None:
        """Return the locks that other processes wait for, of partitions to which no thread is appending."""
        with self._lock:
            entries = list(self._writers.values())
        for entry in entries:
            # A thread that has the entry locked is using it, and ends the turn.
            if entry.writer is not None and entry.lock.acquire(blocking=False):
                try:
                    if entry.is_shared or self._is_awaited(entry):
                        self._try_return(entry)
                finally:
                    entry.lock.release()

    def _try_return(self, entry: _Entry) -> None:
        """Return the writer's lock. If that fails, so did the log: the next append opens it again."""
        try:
            self._return_writer(entry)
        except SeeklogError as error:
            logger.error("%s: the lock was not returned: %s", entry.partition, error)

    def _return_writer(self, entry: _Entry) -> None:
        with entry.lock:
            log = entry.writer
            if log is None or entry.pins:
                return
            if log.is_closed or log.has_failed:
                self._close_writer(entry)  # the next process recovers it
                return
            if not entry.is_shared:
                # A reader over the writer would not see what other processes append.
                entry.is_shared = True
                log.reader.close()
            log.pass_on()
            if log.is_closed:
                self._close_writer(entry)

    def _usable_writer(self, entry: _Entry) -> Log | None:
        """Return the log that is open for writing. Close a failed one, so that reopening recovers it."""
        log = entry.writer
        if log is None or not (log.is_closed or log.has_failed):
            return log
        if entry.pins:
            return log  # its users get the error
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
        """Close the least recently used logs above the limit."""
        with self._lock:
            excess = max(0, len(self._writers) - self._max_writers)
            idle = [entry for entry in self._writers.values() if not entry.pins][:excess]
        for entry in idle:
            # An entry that another thread has locked is in use, and that thread may wait for a lock held here.
            if not entry.lock.acquire(blocking=False):
                continue
            try:
                self._close_writer(entry)
                self._close_borrowed(entry)
            except SeeklogError as error:
                # The caller only needed the room. The next open of this log recovers it.
                logger.error("%s: closing the log failed: %s", entry.partition, error)
            finally:
                entry.lock.release()

    def _check_against_topics(self, entry: _Entry) -> None:
        """Close logs whose topic was deleted, recreated or reconfigured. The caller holds the entry's lock."""
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
        """Borrow a log for one change: its lock is acquired, and released afterwards.

        The log includes what other processes have appended. Waits up to `wait_s` while another process holds the lock.
        If this process has the partition open for writing, that log is used. Everything appended is durable at the end.
        With `stays_open` the log stays open, so the next change need not open it.
        """
        entry = self._entries.get(partition) or self._entry(partition)
        if entry.is_shared:
            # Others write it without a pause. If all their maintenance gave way to that, there would be none.
            wait_s = max(wait_s, SHORT_WAIT_S)
        stays_open = stays_open or entry.borrowed is not None
        try:
            log = self._lock_to_borrow(entry, wait_s)
        except LogLocked:
            if wait_s <= 0:
                raise
            log = self._take_turn(partition, partial(self._lock_to_borrow, entry, wait_s), wait_s=wait_s)
        try:
            if log is entry.writer:
                try:
                    yield log
                    log.flush()
                finally:
                    if entry.is_shared:
                        self._return_writer(entry)
                return
            try:
                yield log
            finally:
                if stays_open:
                    self._return_borrowed(entry, log)
                else:
                    self._close_borrowed(entry)
        finally:
            entry.lock.release()
        if len(self._writers) > self._max_writers:
            self._close_excess()

    def _lock_to_borrow(self, entry: _Entry, wait_s: float) -> Log:
        """Acquire the entry's lock and return its log, locked. Raises `LogLocked`, without the entry's lock."""
        entry.lock.acquire()
        try:
            if entry.writer is not None:
                self._wait_for_current_writer(entry, wait_s=max(wait_s, SHORT_WAIT_S))
                writer = self._usable_writer(entry)
                if writer is not None and self._holds(entry, writer):
                    return writer
            return self._borrow(entry)
        except BaseException:
            entry.lock.release()
            raise

    def _borrow(self, entry: _Entry) -> Log:
        """Return a locked log with the catalog's current configuration. The caller holds the entry's lock."""
        while entry.borrowed is not None:
            log = entry.borrowed
            if not log.borrow():
                entry.borrowed = None
                break
            try:
                # Another process may have altered the topic before its last append.
                self._topics.refresh()
                if entry.version == self._topics.version:
                    return log
                self._check_against_topics(entry)
            except BaseException:
                self._close_borrowed(entry)  # it holds the lock
                raise
        with self._lock:
            self._check_open()
        log = self._open_as_configured(entry.partition, metrics=self._metrics_of(entry.partition))
        entry.borrowed, entry.topic_id = log, self._topics.check(entry.partition).topic_id
        with self._lock:
            self._writers[entry.partition] = entry
        return log

    def _return_borrowed(self, entry: _Entry, log: Log) -> None:
        try:
            log.give_back()
        except BaseException:
            self._close_borrowed(entry)
            raise

    def _close_borrowed(self, entry: _Entry) -> None:
        """Close the borrowed log, if there is one. The caller holds the entry's lock."""
        log, entry.borrowed = entry.borrowed, None
        if log is not None:
            try:
                log.close()
            finally:
                self._closed(entry, log)

    def close_borrowed(self) -> None:
        """Close borrowed logs that stayed open, so that their recovery points and clean shutdown are on disk."""
        for entry in self._entries_of(None):
            if entry.borrowed is not None:
                with entry.lock:
                    self._close_borrowed(entry)

    def _closed(self, entry: _Entry, log: Log) -> None:
        with self._lock:
            self._writers.pop(entry.partition, None)
            # Another process may have written a log that failed. The next writer recovers it, and knows its offsets.
            if not log.has_ever_failed:
                self._changed[entry.partition] = (entry.topic_id, _offsets_of(log))

    @contextlib.contextmanager
    def borrow_beside_writers(self, partition: TopicPartition, *, wait_s: float) -> Iterator[Log]:
        """Borrow a log for long work, such as a compaction.

        Appends to a log that is already open for writing do not wait for the work, and closing that log ends the work.
        """
        with contextlib.ExitStack() as held:
            log = held.enter_context(self.borrow(partition, wait_s=wait_s))
            if log in self.open_writers() and not self._entries[partition].is_shared:
                held.close()
            yield log

    def _wait_for_current_writer(self, entry: _Entry, *, wait_s: float) -> None:
        """Wait until a stale writer is closed by its last user. The caller holds the entry's lock."""
        while True:
            self._topics.refresh()
            if entry.version != self._topics.version:
                self._check_against_topics(entry)
            if not entry.is_stale:
                return
            if not entry.unpinned.wait_for(lambda: not entry.is_stale or self._is_closed, wait_s):
                raise LogLocked(partition_path(self._root, entry.partition), os.getpid())
            with self._lock:
                self._check_open()

    def _entry(self, partition: TopicPartition) -> _Entry:
        self._topics.check(partition)
        with self._lock:
            self._check_open()
            entry = self._entries.get(partition)
            if entry is None:
                entry = self._entries[partition] = _Entry(partition)
                self._entries_by_topic.setdefault(partition.topic, []).append(entry)
            return entry

    def _open_writer(self, entry: _Entry) -> Log:
        with self._lock:
            self._check_open()
        self._close_borrowed(entry)
        log = self._open_as_configured(
            entry.partition, metrics=self._metrics_of(entry.partition), maintenance=self._maintenance
        )
        entry.writer = log
        reader = entry.reader
        if reader is not None and not entry.is_shared:
            entry.reader = None
            reader.close()
        if self._maintenance is not None and not self._ends_turns:
            self._ends_turns = True
            self._maintenance.every(TURN_CHECK_S, self.end_idle_turns)
        # Another process may have recreated the topic. From here on the lock prevents its deletion.
        entry.topic_id = self._topics.check(entry.partition).topic_id
        return log

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogClosed(f"the store at {self._root} is closed; open it again")

    def _metrics_of(self, partition: TopicPartition) -> LogMetrics:
        entry = self._entries[partition]
        if entry.metrics is None:
            entry.metrics = LogMetrics()
        return entry.metrics

    # ------------------------------------------------------------ closing logs

    def _close_writer(self, entry: _Entry) -> None:
        with entry.lock:
            if entry.pins or entry.writer is None:
                return
            log, entry.writer, entry.is_stale = entry.writer, None, False
            entry.is_shared = False
            try:
                if log.is_returned and log.recovery_point < log.log_end_offset:
                    # If no turn comes, the process that has the log syncs these records.
                    with contextlib.suppress(LogLocked):
                        retry_while_locked(self._clock, SHORT_WAIT_S, log.sync_returned)
                log.close()
            finally:
                self._closed(entry, log)

    def drop(self, topic: str) -> None:
        """Close every log of a topic, which is about to be deleted. Waits for appends in progress.

        A log whose last sync fails is closed, too. If the topic is not deleted after all, reopening recovers the log.
        """
        for entry in self._entries_of(topic):
            with entry.lock:
                # This covers a log that another thread reopened during the wait.
                if not entry.unpinned.wait_for(partial(self._try_close_stale, entry), DROP_WAIT_S):
                    raise UsageError(f"{entry.partition} is being written to in this process; close its producer first")
                self._changed.pop(entry.partition, None)

    def drop_changed(self) -> None:
        """Close logs whose topic was deleted, recreated or reconfigured."""
        for entry in self._entries_of(None):
            with entry.lock:
                if entry.version == self._topics.version:
                    continue
                try:
                    self._check_against_topics(entry)
                except TopicNotFound:
                    self._close_stale(entry)

    def _entries_of(self, topic: str | None) -> list[_Entry]:
        with self._lock:
            return list(self._entries.values() if topic is None else self._entries_by_topic.get(topic, ()))

    def _close_stale(self, entry: _Entry) -> bool:
        """Close an entry's logs, the writer once it has no users. Return whether the writer is closed."""
        with entry.lock:
            entry.is_stale = entry.writer is not None
            self._close_writer(entry)
            self._close_borrowed(entry)
            reader, entry.reader = entry.reader, None
            if reader is not None:
                reader.close()
            return entry.writer is None

    def _try_close_stale(self, entry: _Entry) -> bool:
        while True:
            try:
                return self._close_stale(entry)
            except SeeklogError as error:
                # The next attempt closes the rest: a log that failed to close is closed.
                logger.warning("%s: closing the log failed: %s", entry.partition, error)

    def abandon(self) -> None:
        """Forget every log in a forked child, and replace the lock: a thread of the parent may have held it."""
        self._lock = threading.Lock()
        # The parent's logs belong to the parent; nothing here closes or changes them.
        self._open_segments = OpenSegments(self._max_segments)
        self._entries = {}
        self._entries_by_topic = {}
        self._writers.clear()
        self._changed = {}

    def open_writers(self) -> list[Log]:
        """Return the logs that are open for writing."""
        with self._lock:
            return [entry.writer for entry in self._writers.values() if entry.writer is not None]

    def metrics(self) -> dict[TopicPartition, LogMetrics]:
        """Return what was counted in each partition that this process has opened for writing."""
        return {entry.partition: entry.metrics for entry in self._entries_of(None) if entry.metrics is not None}

    def count_files(self) -> FilesSection:
        """Count the open logs, and the files that they and their readers have open."""
        files = FilesSection()
        with self._lock:
            logs = [
                log for entry in self._writers.values() for log in (entry.writer, entry.borrowed) if log is not None
            ]
        files.open_logs = len(logs)
        files.open_files = sum(log.open_file_count for log in logs)
        self._open_segments.count(files)
        return files

    def writing_log(self, partition: TopicPartition) -> Log | None:
        """Return the log that is open for writing, or None."""
        entry = self._entries.get(partition)
        return entry.writer if entry is not None else None

    def known_log(self, partition: TopicPartition) -> LogReader | None:
        """Return the open log to read from, if there is one, without looking at the disk."""
        entry = self._entries.get(partition)
        return entry.open_log() if entry is not None else None

    def take_changed(self) -> dict[TopicPartition, tuple[str, RootLine]]:
        """Return the topic ids and offsets of partitions written since the last call."""
        with self._lock:
            changed, self._changed = self._changed, {}
            writers = list(self._writers.items())
        for partition, entry in writers:
            log = entry.writer
            if log is not None and not log.has_ever_failed and not log.is_returned:
                changed[partition] = (entry.topic_id, _offsets_of(log))
        return changed

    def put_back_changed(self, changed: Mapping[TopicPartition, tuple[str, RootLine]]) -> None:
        """Keep entries that could not be written for the next call."""
        with self._lock:
            self._changed = {**changed, **self._changed}

    def close(self) -> None:
        """Close every log. All are tried; the first error is raised at the end."""
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
