"""Transactions over the partitions of a store. `seeklog.log.transaction` has the file format and the rules.

A commit holds the lock of its application, so that two drivers of one query cannot commit at once. It then acquires the
locks of all partitions, in sorted order, and holds them until everything is appended. It waits for each lock: other
commits hold them only briefly, unless a long-lived writer has the partition.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from seeklog import names
from seeklog.arguments import check_flags, check_whole_number
from seeklog.clock import Clock, check_wait_s
from seeklog.config import INT32_MAX, LogConfig
from seeklog.errors import (
    InvalidRecord,
    LogLocked,
    NotAccessible,
    SeeklogError,
    TopicNotFound,
    UsageError,
)
from seeklog.files import Files, retry_while_locked, take_lock, translated
from seeklog.log import (
    Log,
    Part,
    StagedFile,
    Stager,
    Transaction,
    append_part,
    end_transaction,
    last_parts,
    read_staged,
    read_transaction,
    remove_staged,
    write_transaction,
)
from seeklog.names import TopicPartition
from seeklog.record import batch_header, decode
from seeklog.topics.layout import partition_path
from seeklog.topics.open_logs import OpenLogs
from seeklog.topics.topics import Topics

logger = logging.getLogger("seeklog")

LOCK_WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Staged:
    """A staged file and the partition it is for. Tasks send it to the driver, which commits."""

    topic: str
    topic_id: str
    partition: int
    file: StagedFile

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Target:
    """A topic to stage for: its partition count, and the configuration that batches must match."""

    name: str
    topic_id: str
    partition_count: int
    config: LogConfig


class Transactions:
    """Stages batches in a store and commits them. Any thread may call any method."""

    def __init__(self, topics: Topics, table: OpenLogs, *, files: Files, clock: Clock, read_only: bool) -> None:
        self._topics = topics
        self._table = table
        self._root = topics.root
        self._files = files
        self._clock = clock
        self._read_only = read_only

    def target(self, topic: str) -> Target:
        """Return what a task must know of a topic to stage batches for it. Opens no log."""
        if topic in names.INTERNAL_TOPICS:
            raise UsageError(f"{topic} is Kafka's own topic; write to another topic")
        found = self._topics.find(topic)
        return Target(topic, found.topic_id, found.partition_count, self._topics.config_of(found))

    def stager(self, app: str, partition: TopicPartition) -> Stager:
        """Return a staged file to write batches to. Takes no lock, and works in a store that is open read-only."""
        config = self._topics.config_of(self._topics.check(partition))
        return Stager(
            self._files,
            partition_path(self._root, partition),
            key=names.app_key(app),
            now_ms=self._clock.now_ms(),
            max_piece_bytes=config.segment_bytes,
        )

    def last_version(self, app: str) -> int | None:
        """Return the version of the application's last transaction, or None. It may still be unfinished."""
        transaction = read_transaction(self._files, self._root, names.app_key(app))
        return None if transaction is None else transaction.version

    def commit(
        self,
        app: str,
        version: int,
        staged: Sequence[Staged],
        *,
        keep: bool = True,
        wait_s: float = LOCK_WAIT_S,
    ) -> bool:
        """Append everything staged, exactly once. Durable on return. Return False if `version` is not a new version.

        Staged files that are not needed are removed. With `keep=False` the application's version is not stored, for an
        application that commits only once. An error before the commit leaves every log unchanged. After a later error,
        such as a full disk, the rest is appended when the partition is next opened for writing, or when the commit is
        repeated.
        """
        check_flags(keep=keep)
        check_whole_number("version", version)
        check_wait_s("wait_s", wait_s)
        if self._read_only:
            raise UsageError(f"{self._root} is open read-only; open it without read_only to commit")
        with self._translated("the transaction cannot be committed"), self._locked(app, wait_s, keep=keep):
            return self._commit(app, version, staged, keep=keep, wait_s=wait_s)

    def _translated(self, what: str) -> translated:
        return translated(f"{self._root}: {what}", when_full="try again when there is room")

    def _commit(self, app: str, version: int, staged: Sequence[Staged], *, keep: bool, wait_s: float) -> bool:
        last = read_transaction(self._files, self._root, names.app_key(app))
        if last is not None and last.is_open:
            self._finish(last, wait_s)
        # Another process may have changed the topics: compare what is staged with the topics of this moment.
        self._topics.refresh()
        before = () if last is None else last_parts(last.parts)
        if last is not None and last.version >= version and not self._is_for_new_topics(app, version, staged, before):
            # Its writer may have been killed before the rename was durable, and the caller will rely on it.
            self._files.sync_directory(self._root)
            self._remove(staged)
            return False
        begun: list[TopicPartition] = []
        try:
            with contextlib.ExitStack() as held:
                logs = self._hold(staged, held, wait_s)
                parts = tuple(self._parts(staged, logs))
                transaction = Transaction(app, version, "committing", (*before, *parts), keep)
                for part in parts:
                    self._files.sync_directory(f"{self._root}/{part.partition}")
                begun.extend(logs)
                if parts:
                    write_transaction(self._files, self._root, transaction)
                for part, log in zip(parts, logs.values(), strict=True):
                    append_part(log, part)
                    self._sweep(app, part.partition)
        except BaseException:
            self._close_logs(begun)
            raise
        end_transaction(self._files, self._root, transaction)
        return True

    def _is_for_new_topics(self, app: str, version: int, staged: Sequence[Staged], before: Sequence[Part]) -> bool:
        """Return whether all staged files are for topics that were recreated since the application wrote to them.

        The new topics lack the records of the old ones, so the version may be written again. Raises if some topics were
        not recreated: a version counts for all of an application's topics, and cannot be both stored and missing.
        """
        ids = {part.topic: part.topic_id for part in before}
        recreated = {item.topic for item in staged if ids.get(item.topic, item.topic_id) != item.topic_id}
        there = {
            topic
            for topic, topic_id in ids.items()
            if self._topics.has(topic) and self._topics.find(topic).topic_id == topic_id
        }
        others = ({item.topic for item in staged} | there) - recreated
        if recreated and others:
            raise UsageError(
                f"version {version} of {app!r} is for {', '.join(sorted(recreated))}, recreated since the last write, "
                f"but {', '.join(sorted(others))} may have it already. Write under another name; nothing was committed"
            )
        return bool(recreated)

    def _hold(self, staged: Sequence[Staged], held: contextlib.ExitStack, wait_s: float) -> dict[TopicPartition, Log]:
        """Borrow all partitions in sorted order, so that commits cannot deadlock."""
        logs: dict[TopicPartition, Log] = {}
        for partition in sorted({item.topic_partition for item in staged}):
            try:
                logs[partition] = held.enter_context(self._table.borrow(partition, wait_s=wait_s))
            except LogLocked as error:
                advice = (
                    f"the commit waited {wait_s:g} s for its lock; close the producer or log there, then commit again; "
                    "nothing was committed"
                )
                raise LogLocked(error.path, error.owner_pid, owner=error.owner, advice=advice) from error
        return logs

    def _close_logs(self, partitions: Collection[TopicPartition]) -> None:
        """Close the logs that this process has open. Reopening a log finishes what a commit could not."""
        for topic in sorted({partition.topic for partition in partitions}):
            with contextlib.suppress(SeeklogError, OSError):
                self._table.drop(topic)

    def _parts(self, staged: Sequence[Staged], logs: dict[TopicPartition, Log]) -> Iterator[Part]:
        # Waiting for the locks may have taken long: check with the locks held that the topics are still the same.
        self._topics.refresh()
        for partition, log in logs.items():
            mine = [item for item in staged if item.topic_partition == partition]
            topic = self._topics.check(partition)
            if any(item.topic_id != topic.topic_id for item in mine):
                raise TopicNotFound(
                    f"topic {partition.topic!r} was deleted and recreated after records were staged for it"
                )
            directory, config = partition_path(self._root, partition), self._topics.config_of(topic)
            for item in mine:
                self._check_size(directory, item.file)
                if config.compacts:
                    self._check_keyed(directory, item.file, config)
            # This offset is where the part begins, so no power loss may move the end of the log back. An append that
            # began before the log was borrowed may end only now; the part is searched for from this offset on.
            base_offset = log.log_end_offset
            log.flush()
            yield Part(str(partition), topic.topic_id, base_offset, tuple(item.file for item in mine))

    def _check_size(self, directory: str, file: StagedFile) -> None:
        try:
            size = self._files.file_size(f"{directory}/{file.name}")
        except FileNotFoundError:
            size = -1
        if size != file.size:
            raise NotAccessible(
                f"{directory}/{file.name} {'is missing' if size < 0 else f'has {size:,} bytes, not {file.size:,}'}: "
                "tasks must stage on a file system that they share with the driver; nothing was committed"
            )

    def _check_keyed(self, directory: str, file: StagedFile, config: LogConfig) -> None:
        """Refuse records without keys: the topic may have been altered to a compacted one after they were staged."""
        for piece in read_staged(self._files, directory, file):
            batch_header.check_batches(piece, INT32_MAX)
            try:
                decode.check_keyed(piece, config.max_decompressed_bytes)
            except InvalidRecord as error:
                raise InvalidRecord(f"{directory} is compacted: {error}; nothing was committed") from None

    @contextlib.contextmanager
    def _locked(self, app: str, wait_s: float, *, keep: bool) -> Iterator[None]:
        path = f"{self._root}/{names.transaction_name(names.app_key(app))}{names.LOCK}"
        what = f"the transaction of {app!r}"
        lock = retry_while_locked(self._clock, wait_s, lambda: take_lock(self._files, path, subject=what))
        try:
            yield
        finally:
            if not keep:
                with contextlib.suppress(OSError):
                    self._files.remove(path)
            lock.close()

    # ------------------------------------------------------------ finishing

    def finish_open(self) -> None:
        """Finish interrupted transactions whose locks are free. Errors are logged; the next commit raises them."""
        with self._translated("interrupted transactions cannot be listed"):
            keys = list(filter(None, map(names.parse_transaction_name, self._files.list(self._root))))
        for key in keys:
            try:
                transaction = read_transaction(self._files, self._root, key)
                if transaction is not None and transaction.is_open:
                    with self._locked(transaction.app, 0, keep=transaction.is_kept):
                        self._finish_if_open(key)
            except LogLocked:
                continue
            except (SeeklogError, OSError) as error:
                logger.warning("%s: an interrupted transaction is not finished: %s", self._root, error)

    def _finish_if_open(self, key: str) -> None:
        transaction = read_transaction(self._files, self._root, key)
        if transaction is not None and transaction.is_open:
            self._finish(transaction, 0)

    def _finish(self, transaction: Transaction, wait_s: float) -> None:
        """Finish an interrupted transaction: open each of its partitions, which appends what is missing.

        Parts of deleted topics are skipped.
        """
        # A topic may be newer than this process's copy of the catalog; its part must not be skipped.
        self._topics.refresh()
        for part in transaction.parts:
            partition = names.parse_partition_name(part.partition)
            if partition is not None and self._is_same_topic(partition, part.topic_id) and self._remaining_files(part):
                with self._table.borrow(partition, wait_s=wait_s) as log:
                    # A log that was already open for writing was not recovered, so its part is not appended yet.
                    if len(self._remaining_files(part)) == len(part.files):
                        append_part(log, part)
        end_transaction(self._files, self._root, transaction)

    def _remaining_files(self, part: Part) -> list[str]:
        """Return the staged files of a part that still exist. They are removed after all are appended and synced."""
        with contextlib.suppress(FileNotFoundError):  # the topic was just deleted
            listing = set(self._files.list(f"{self._root}/{part.partition}"))
            return [file.name for file in part.files if file.name in listing]
        return []

    def _is_same_topic(self, partition: TopicPartition, topic_id: str) -> bool:
        try:
            return self._topics.check(partition).topic_id == topic_id
        except TopicNotFound:
            return False

    # ------------------------------------------------------------ tidying

    def discard(self, app: str) -> None:
        """Remove what a failed job has staged, except for files named by a committed transaction.

        A killed task cannot clean up, so every partition is checked. A concurrent commit of the same application cleans
        up itself.
        """
        with contextlib.suppress(LogLocked), self._translated(f"the staged files of {app!r} cannot be removed"):
            is_known = read_transaction(self._files, self._root, names.app_key(app)) is not None
            with self._locked(app, 0, keep=is_known):
                self._discard(app)

    def _discard(self, app: str) -> None:
        # With the lock held: a file that a concurrent commit names must stay.
        transaction = read_transaction(self._files, self._root, names.app_key(app))
        parts = transaction.parts if transaction is not None and transaction.is_open else ()
        committed = {file.name for part in parts for file in part.files}
        for topic in self._topics.all():
            for number in topic.partitions:
                with contextlib.suppress(FileNotFoundError):  # the topic was just deleted
                    self._sweep(app, str(TopicPartition(topic.name, number)), but=committed)

    def _remove(self, staged: Sequence[Staged]) -> None:
        for partition in sorted({item.topic_partition for item in staged}):
            with contextlib.suppress(FileNotFoundError):  # the topic is gone, and its directory with it
                remove_staged(
                    self._files,
                    partition_path(self._root, partition),
                    [item.file.name for item in staged if item.topic_partition == partition],
                )

    def _sweep(self, app: str, partition: str, *, but: Collection[str] = ()) -> None:
        """Remove the application's other staged files here: of attempts that failed or were duplicates."""
        directory, prefix = f"{self._root}/{partition}", f"{names.STAGED}{names.app_key(app)}-"
        left = [name for name in self._files.list(directory) if name.startswith(prefix) and name not in but]
        remove_staged(self._files, directory, left)
