"""Committing transactions over the partitions of a store; `seeklog.log.transaction` has the file and the rules.

A commit holds the lock of its application, so that two drivers of one query cannot both commit, and then the locks of
all partitions, in order, until everything is appended. Locks are waited for: others hold them for a commit as short as
this one, unless a long-lived writer has the partition.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from seeklog import names
from seeklog.clock import Clock
from seeklog.config import INT32_MAX, INT64_MAX, LogConfig
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
    """A staged file and where it is to go. Tasks send it to whoever commits."""

    topic: str
    topic_id: str
    partition: int
    file: StagedFile

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Target:
    """A topic to stage for: what the batches must be like, and for how many partitions."""

    name: str
    topic_id: str
    partition_count: int
    config: LogConfig


class Transactions:
    """What is staged in a store, and its way into the logs."""

    def __init__(self, topics: Topics, table: OpenLogs, *, files: Files, clock: Clock, read_only: bool) -> None:
        self._topics = topics
        self._table = table
        self._root = topics.root
        self._files = files
        self._clock = clock
        self._read_only = read_only

    def target(self, topic: str) -> Target:
        """Return what whoever stages for a topic must know of it; no log is opened for that."""
        if topic in names.INTERNAL_TOPICS:
            raise UsageError(f"{topic} is Kafka's own: records are not written to it")
        found = self._topics.find(topic)
        return Target(topic, found.topic_id, found.partition_count, self._topics.config_of(found))

    def stager(self, app: str, partition: TopicPartition) -> Stager:
        """Return a staged file to write batches to. Needs no lock, and a store that is open read-only will do."""
        config = self._topics.config_of(self._topics.check(partition))
        return Stager(
            self._files,
            partition_path(self._root, partition),
            key=names.app_key(app),
            now_ms=self._clock.now_ms(),
            max_piece_bytes=config.segment_bytes,
        )

    def last_version(self, app: str) -> int | None:
        """Return the version of the application's last transaction, finished or about to be, or None."""
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
        """Append all that is staged, once: durable on return. False if this version or a later one is there already.

        What was staged in vain is removed. With `keep=False` nothing is remembered of an application that comes only
        once. On an error before the commit nothing is in any log; on one after it, such as a full disk, the rest
        follows when the partition is next opened for writing, or with the same commit again.
        """
        if not 0 <= version <= INT64_MAX:
            raise UsageError(f"the version of a transaction is 0 or more, not {version}")
        if self._read_only:
            raise UsageError(f"{self._root} is open read-only: nothing can be committed")
        with self._translated("the transaction cannot be committed"), self._locked(app, wait_s, keep=keep):
            return self._commit(app, version, staged, keep=keep, wait_s=wait_s)

    def _translated(self, what: str) -> translated:
        return translated(f"{self._root}: {what}", when_full="do it again when there is room")

    def _commit(self, app: str, version: int, staged: Sequence[Staged], *, keep: bool, wait_s: float) -> bool:
        last = read_transaction(self._files, self._root, names.app_key(app))
        if last is not None and last.is_open:
            self._finish(last, wait_s)
        # Another process may have changed the topics: they are held against what is staged as they are now.
        self._topics.refresh()
        before = () if last is None else last_parts(last.parts)
        if last is not None and last.version >= version and not self._is_for_new_topics(app, version, staged, before):
            # Whoever wrote that may have been killed before it was durable, and the caller will rely on it.
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
            self._let_go(begun)
            raise
        end_transaction(self._files, self._root, transaction)
        return True

    def _is_for_new_topics(self, app: str, version: int, staged: Sequence[Staged], before: Sequence[Part]) -> bool:
        """Tell whether what is staged is for topics that were made anew since the application wrote to them.

        They lack what the old ones had, so they may be written to again. Refuses if others still have it: one version
        counts for all of an application's topics, and cannot be both there and missing.
        """
        ids = {part.topic: part.topic_id for part in before}
        anew = {each.topic for each in staged if ids.get(each.topic, each.topic_id) != each.topic_id}
        there = {
            topic
            for topic, topic_id in ids.items()
            if self._topics.has(topic) and self._topics.find(topic).topic_id == topic_id
        }
        others = ({each.topic for each in staged} | there) - anew
        if anew and others:
            raise UsageError(
                f"version {version} of {app!r} is for {', '.join(sorted(anew))}, made anew since it was written to; "
                f"but {', '.join(sorted(others))} may have it. Write under another name; nothing was committed"
            )
        return bool(anew)

    def _hold(self, staged: Sequence[Staged], held: contextlib.ExitStack, wait_s: float) -> dict[TopicPartition, Log]:
        """Take the locks of all partitions, in one order for everybody."""
        logs: dict[TopicPartition, Log] = {}
        for place in sorted({each.place for each in staged}):
            try:
                logs[place] = held.enter_context(self._table.borrow(place, wait_s=wait_s))
            except LogLocked as error:
                advice = (
                    f"a commit needs it for a moment and has waited for {wait_s:g} s: close the producer or log "
                    "there, then commit again; nothing was committed"
                )
                raise LogLocked(error.path, error.owner_pid, owner=error.owner, advice=advice) from error
        return logs

    def _let_go(self, places: Collection[TopicPartition]) -> None:
        """Close the logs that this process writes: who opens them anew finishes what a commit could not."""
        for topic in sorted({place.topic for place in places}):
            with contextlib.suppress(SeeklogError, OSError):
                self._table.drop(topic)

    def _parts(self, staged: Sequence[Staged], logs: dict[TopicPartition, Log]) -> Iterator[Part]:
        # The locks may have taken long: the topics must be what was staged for as they are with them held.
        self._topics.refresh()
        for place, log in logs.items():
            mine = [each for each in staged if each.place == place]
            topic = self._topics.check(place)
            if any(each.topic_id != topic.topic_id for each in mine):
                raise TopicNotFound(f"topic {place.topic!r} was deleted and made anew while records were staged for it")
            directory, config = partition_path(self._root, place), self._topics.config_of(topic)
            for each in mine:
                self._check_size(directory, each.file)
                if config.compacts:
                    self._check_keyed(directory, each.file, config)
            # Where the part begins is settled by this: no power loss may take the end of the log back. Who had begun to
            # append before the log was lent may be through only now; the part is looked for from here on.
            base_offset = log.log_end_offset
            log.flush()
            yield Part(str(place), topic.topic_id, base_offset, tuple(each.file for each in mine))

    def _check_size(self, directory: str, file: StagedFile) -> None:
        try:
            size = self._files.file_size(f"{directory}/{file.name}")
        except FileNotFoundError:
            size = -1
        if size != file.size:
            raise NotAccessible(
                f"{directory}/{file.name} {'is gone' if size < 0 else f'has {size} bytes, not {file.size}'}: what the "
                "tasks staged must be on a file system that they share with the driver; nothing was committed"
            )

    def _check_keyed(self, directory: str, file: StagedFile, config: LogConfig) -> None:
        """Refuse records without key; the topic may be compacted only since they were staged."""
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
        """Finish the transactions that were interrupted, but for what others hold. Errors are theirs who need it."""
        with self._translated("interrupted transactions cannot be looked for"):
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
        """Open every partition of an interrupted transaction, which appends what is missing, and note that it is done.

        A partition whose topic was deleted since has taken its part along.
        """
        # A topic may be newer than this process's copy of the catalog: its part is not gone, and must not be skipped.
        self._topics.refresh()
        for part in transaction.parts:
            place = names.parse_partition_name(part.partition)
            if place is not None and self._is_same_topic(place, part.topic_id) and self._left_of(part):
                with self._table.borrow(place, wait_s=wait_s) as log:
                    # A log that was open for writing here was not opened anew.
                    if len(self._left_of(part)) == len(part.files):
                        append_part(log, part)
        end_transaction(self._files, self._root, transaction)

    def _left_of(self, part: Part) -> list[str]:
        """Return which staged files of a part are there. They are removed when all of them are appended, and synced."""
        with contextlib.suppress(FileNotFoundError):  # the topic was just deleted
            listing = set(self._files.list(f"{self._root}/{part.partition}"))
            return [file.name for file in part.files if file.name in listing]
        return []

    def _is_same_topic(self, place: TopicPartition, topic_id: str) -> bool:
        try:
            return self._topics.check(place).topic_id == topic_id
        except TopicNotFound:
            return False

    # ------------------------------------------------------------ tidying

    def discard(self, app: str) -> None:
        """Remove what is staged for a job that failed, but for files that a committed transaction names.

        A task that was killed cannot clean up behind itself, so every partition is looked at. Whoever commits for the
        same application at this moment sweeps for himself.
        """
        with contextlib.suppress(LogLocked), self._translated(f"what {app!r} has staged cannot be removed"):
            is_known = read_transaction(self._files, self._root, names.app_key(app)) is not None
            with self._locked(app, 0, keep=is_known):
                self._discard(app)

    def _discard(self, app: str) -> None:
        # With the lock held: a file that a commit has just named must stay.
        transaction = read_transaction(self._files, self._root, names.app_key(app))
        parts = transaction.parts if transaction is not None and transaction.is_open else ()
        committed = {file.name for part in parts for file in part.files}
        for topic in self._topics.all():
            for number in topic.partitions:
                with contextlib.suppress(FileNotFoundError):  # the topic was just deleted
                    self._sweep(app, str(TopicPartition(topic.name, number)), but=committed)

    def _remove(self, staged: Sequence[Staged]) -> None:
        for place in sorted({each.place for each in staged}):
            with contextlib.suppress(FileNotFoundError):  # the topic is gone, and its directory with it
                remove_staged(
                    self._files,
                    partition_path(self._root, place),
                    [each.file.name for each in staged if each.place == place],
                )

    def _sweep(self, app: str, partition: str, *, but: Collection[str] = ()) -> None:
        """Remove what else the application has staged here: attempts that failed, or lost to a faster one."""
        directory, prefix = f"{self._root}/{partition}", f"{names.STAGED}{names.app_key(app)}-"
        left = [name for name in self._files.list(directory) if name.startswith(prefix) and name not in but]
        remove_staged(self._files, directory, left)
