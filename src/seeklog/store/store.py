"""`Store`: a directory of topics with its Python face.

A store is laid out as a Kafka broker's data directory. Any number of processes open it; each partition has at most
one that writes it, which is found out when it is first written to. What must be written for a moment only, the
offsets of groups, takes the lock of its partition for that moment.
"""

from __future__ import annotations

import contextlib
import logging
import os
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from seeklog import names
from seeklog.clients.consumer import AutoOffsetReset, Consumer, Listener, offset_from_time
from seeklog.clients.producer import Partitioner, Producer
from seeklog.config import LogConfig
from seeklog.errors import (
    LogClosed,
    SeeklogError,
    TopicNotFound,
    UsageError,
)
from seeklog.files import ReadOnlyFiles, local_path, translated
from seeklog.groups.description import GroupDescription, PartitionLag
from seeklog.groups.groups import Groups
from seeklog.log import BUFFER_BYTES, Compacted, Log, LogReader, Maintenance, take_snapshot
from seeklog.names import TopicPartition
from seeklog.record.key_hash import partition_of
from seeklog.store.access import archive_source
from seeklog.store.topic import Topic
from seeklog.store.upkeep import Upkeep
from seeklog.topics.description import Archived, PartitionDescription, TopicDescription
from seeklog.topics.open_logs import OpenLogs
from seeklog.topics.producer_ids import ProducerIds
from seeklog.topics.topics import Topics
from seeklog.topics.transactions import Transactions

if TYPE_CHECKING:
    from seeklog.archive.planning import Verify
    from seeklog.store.opening import Place

logger = logging.getLogger("seeklog")


class Store:
    """Topics, and those who write and read them. Any thread may call any method."""

    def __init__(self, place: Place, *, config: LogConfig, max_open_files: int, background: bool) -> None:
        """Use `seeklog.open`, which makes sure of the place and of the configuration."""
        files, clock, read_only = place.files, place.clock, place.read_only
        self._place = place
        self._root = root = place.root
        self._files = files
        self._clock = clock
        self._read_only = read_only
        self._is_closed = False
        self._clients: weakref.WeakSet[Producer | Consumer] = weakref.WeakSet()
        self._topics = Topics(root, files=files, clock=clock, defaults=config, read_only=read_only)
        self._syncs = Maintenance(clock) if background else None
        self._table = OpenLogs(
            self._topics,
            files=files,
            clock=clock,
            read_only=read_only,
            max_open_files=max_open_files,
            maintenance=self._syncs,
        )
        self._groups = Groups(self._topics, self._table, files=files, clock=clock, read_only=read_only)
        self._topics.forget = self._groups.forget_topic
        self._transactions = Transactions(self._topics, self._table, files=files, clock=clock, read_only=read_only)
        self._producer_ids = ProducerIds(root, files=files, clock=clock)
        if not read_only:
            self._topics.finish_deletes()
            self._transactions.finish_open()
        self._upkeep = Upkeep(self._topics, self._table, read_only=read_only)
        # Apart from the syncs: jobs wait for locks of other processes.
        self._jobs = Maintenance(clock) if background else None
        for threads in self._threads():
            # A store that is dropped without being closed takes its threads along.
            weakref.finalize(self, threads.end)
        if self._jobs is not None:
            self._upkeep.schedule(self._jobs)
        _open_stores.add(self)

    def _threads(self) -> list[Maintenance]:
        return [threads for threads in (self._jobs, self._syncs) if threads is not None]

    def __enter__(self) -> Store:
        self._check_open()
        return self

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogClosed(f"the store at {self._root} is closed")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A record that could not be dealt with must come again: consumers commit nothing then.
        try:
            self._close(commit=kind is None)
        except SeeklogError as failure:
            if kind is None:
                raise
            logger.error("%s: closing it failed, too: %s", self._root, failure)

    def __repr__(self) -> str:
        return f"<Store {self._root}{' read-only' if self._read_only else ''}>"

    @property
    def path(self) -> Path:
        """The directory."""
        return local_path(self._root)

    @property
    def location(self) -> str:
        """The directory, or the URL that the store lies at."""
        return self._root

    @property
    def read_only(self) -> bool:
        return self._read_only

    def _abandon(self) -> None:
        """Renew the locks in a forked child: threads that are not in it may have held them."""
        self._topics.abandon()
        self._table.abandon()
        self._groups.abandon()
        for threads in self._threads():
            threads.abandon()

    # ------------------------------------------------------------ topics

    def topics(self, *, internal: bool = False) -> list[str]:
        """Return the names of the topics, in order; with `internal` also Kafka's own."""
        self._check_open()
        self._topics.refresh()
        return [topic.name for topic in self._topics.all() if internal or topic.name not in names.INTERNAL_TOPICS]

    def create_topic(
        self, name: str, *, partitions: int = 4, config: Mapping[str, Any] | None = None
    ) -> TopicDescription:
        """Make a topic: whole and durable on return, or not at all.

        `config` has Kafka's words, with dots or underscores; those not given are the store's.
        """
        names.check_topic_name(name)
        names.check_not_internal(name)
        self._topics.create(name, partitions=partitions, config=config or {})
        return self.describe_topic(name)

    def topic(self, name: str) -> Topic:
        """Return a handle on a topic, without a look at its logs."""
        self._check_open()
        self._topics.refresh()
        return Topic(self._topics, self._table, self._topics.find(name))

    def describe_topic(self, name: str) -> TopicDescription:
        """Return a topic's configuration, and how large its partitions are."""
        self._check_open()
        self._topics.refresh()
        topic = self._topics.find(name)
        return TopicDescription(
            name=topic.name,
            topic_id=topic.topic_id,
            config=self._topics.config_of(topic),
            configured=dict(topic.config),
            partitions=tuple(self._describe(TopicPartition(name, number)) for number in topic.partitions),
        )

    def _describe(self, partition: TopicPartition) -> PartitionDescription:
        return self._table.ask(partition, partial(_describe, partition=partition.partition))

    def alter_topic(self, name: str, config: Mapping[str, Any]) -> TopicDescription:
        """Change words of a topic's configuration; None takes one back to the store's.

        Holds at once in this process; another that writes the topic learns of it within a second or two.
        """
        names.check_not_internal(name)
        self._topics.alter(name, config)
        self._table.drop_changed()
        return self.describe_topic(name)

    def add_partitions(self, name: str, *, partitions: int) -> TopicDescription:
        """Give a topic more partitions, so that it has `partitions` in all. Keys may go to others from then on."""
        names.check_not_internal(name)
        self._topics.grow(name, partitions=partitions)
        return self.describe_topic(name)

    def delete_topic(self, name: str) -> None:
        """Take a topic away with all of its records, and with what groups have committed for it."""
        names.check_not_internal(name)
        self._topics.find(name)
        self._table.drop(name)
        self._topics.delete(name)

    def log(self, topic: str, partition: int) -> LogReader:
        """Return a reader of one partition. The store closes it; after a write, ask for it again."""
        self._check_open()
        return self._table.reading(TopicPartition(topic, partition))

    def writer(self, topic: str, partition: int, *, wait_s: float = 0.0) -> contextlib.AbstractContextManager[Log]:
        """Give one partition's log to write to, in a `with`: nobody else writes it meanwhile.

        `LogLocked` if another process has it for longer than `wait_s`. All that was appended is durable at the end.
        """
        self._check_writable("nothing of it can be held")
        return self._table.lent(TopicPartition(topic, partition), wait_s=wait_s)

    @property
    def transactions(self) -> Transactions:
        """Staged batches that are appended to many partitions together, once: what the Spark sink writes with."""
        self._check_open()
        return self._transactions

    # ------------------------------------------------------------ clients

    def producer(
        self,
        *,
        batch_bytes: int = 16384,
        linger_ms: float = 5,
        buffer_bytes: int = 32 << 20,
        partitioner: Partitioner = partition_of,
        idempotence: bool = False,
        name: str | None = None,
        resume: bool = False,
    ) -> Producer:
        """Return a producer: `send` returns a future at once, batches go to the partitions afterwards.

        With `idempotence` a batch that may or may not be written when a log fails is sent again, and is there once. A
        `name` implies it, and fences: where this producer has written, one that had the name before gets
        `ProducerFenced`. With `resume` it goes on as the last one of that name, and `written` tells how many of its
        records each partition has: so an application that crashed sends what is missing, and nothing twice.
        """
        self._check_writable("a producer writes")
        if resume and name is None:
            raise UsageError("only a producer with a name can resume")
        identity = None
        if name is not None:
            with translated(f"{self._root}: the epoch of producer {name!r} cannot be kept"):
                identity = self._producer_ids.claim(name, resume=resume)
        elif idempotence:
            identity = self._producer_ids.new()
        try:
            producer = Producer(
                self._topics,
                self._table,
                self._clock,
                owner=self,
                batch_bytes=batch_bytes,
                linger_ms=linger_ms,
                buffer_bytes=buffer_bytes,
                partitioner=partitioner,
                identity=identity,
            )
        except BaseException:
            if identity is not None:
                identity.release()
            raise
        self._clients.add(producer)
        return producer

    def consumer(
        self,
        topics: Sequence[str] = (),
        *,
        group: str | None = None,
        auto_offset_reset: AutoOffsetReset = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5000,
        max_poll_records: int = 500,
        max_poll_interval_ms: int = 300_000,
        heartbeat_interval_ms: int = 200,
        consumer_timeout_ms: float | None = None,
        client_id: str = "seeklog",
        on_assign: Listener | None = None,
        on_revoke: Listener | None = None,
    ) -> Consumer:
        """Return a consumer of topics. Those of one group, in this process or others, share the partitions.

        Without topics it reads what is given to its `assign`. Where the group has no offset yet, or it has no
        group, `auto_offset_reset` says where it begins. `on_assign` is told of partitions that it gets, `on_revoke`
        of those that it is about to give up (it can still commit them), or has lost because it did not poll.
        """
        self._check_open()
        if isinstance(topics, str):
            raise UsageError(f"topics is a list of names: [{topics!r}]")
        if group is not None:
            self._check_writable("a group's offsets are written; consume without a group")
        consumer = Consumer(
            self._topics,
            self._table,
            self._groups,
            owner=self,
            files=self._files,
            clock=self._clock,
            subscribed=topics,
            group=group,
            auto_offset_reset=auto_offset_reset,
            enable_auto_commit=enable_auto_commit,
            auto_commit_interval_ms=auto_commit_interval_ms,
            max_poll_records=max_poll_records,
            max_poll_interval_ms=max_poll_interval_ms,
            heartbeat_interval_ms=heartbeat_interval_ms,
            consumer_timeout_ms=consumer_timeout_ms,
            client_id=client_id,
            on_assign=on_assign,
            on_revoke=on_revoke,
        )
        self._clients.add(consumer)
        return consumer

    def _check_writable(self, why: str) -> None:
        self._check_open()
        if self._read_only:
            raise UsageError(f"{self._root} is open read-only: {why}")

    # ------------------------------------------------------------ groups

    def groups(self) -> list[str]:
        """Return the names of the groups that have committed or joined, in order."""
        self._check_open()
        return self._groups.names()

    def describe_group(self, group: str) -> GroupDescription:
        """Return a group's members and offsets."""
        self._check_open()
        found = self._groups.find(group)
        return GroupDescription(
            name=group,
            generation=found.state.generation,
            members=tuple(member for _, member in sorted(self._groups.living(found).items())),
            committed=dict(sorted(found.offsets.items())),
        )

    def lag(self, group: str) -> list[PartitionLag]:
        """Return how far a group is behind, for each partition that it has committed or that a member reads."""
        self._check_open()
        found = self._groups.find(group)
        readers = {
            partition: name for name, member in self._groups.living(found).items() for partition in member.assignment
        }
        lags = []
        for partition in sorted({*found.offsets, *readers}):
            try:
                log = self._table.reading(partition)
            except TopicNotFound:
                continue  # a broker's group may speak of partitions that lie elsewhere
            start, end = log.log_start_offset, log.high_watermark
            committed = found.offsets.get(partition)
            lags.append(
                PartitionLag(
                    topic=partition.topic,
                    partition=partition.partition,
                    committed=None if committed is None else committed.offset,
                    log_start_offset=start,
                    high_watermark=end,
                    lag=max(0, end - max(start, committed.offset if committed is not None else start)),
                    member_id=readers.get(partition),
                )
            )
        return lags

    def reset_offsets(
        self,
        group: str,
        topic: str,
        *,
        to: int | str | None = None,
        to_time_ms: int | None = None,
        partitions: Iterable[int] | None = None,
    ) -> dict[TopicPartition, int]:
        """Set where a group without members reads on in a topic, and return that.

        `to` is an offset, "earliest" or "latest"; or `to_time_ms` finds the first record stamped at or after it.
        """
        if (to is None) == (to_time_ms is None):
            raise UsageError("say where to: either to=... or to_time_ms=...")
        if to is not None and to not in ("earliest", "latest") and (not isinstance(to, int) or isinstance(to, bool)):
            raise UsageError(f'to is an offset, "earliest" or "latest", not {to!r}')
        self._check_writable("offsets are written")
        self._topics.refresh()
        self._groups.check_idle(self._groups.find(group))
        found = self._topics.find(topic)
        offsets: dict[TopicPartition, int] = {}
        for number in found.partitions if partitions is None else partitions:
            partition = TopicPartition(topic, number)
            log = self._table.reading(partition)
            if to_time_ms is not None:
                offsets[partition] = self._table.ask(partition, partial(offset_from_time, timestamp_ms=to_time_ms))
            elif isinstance(to, int):
                offsets[partition] = to
            else:
                offsets[partition] = log.log_start_offset if to == "earliest" else log.high_watermark
        self._groups.commit(group, offsets, topic_ids=dict.fromkeys(offsets, found.topic_id))
        return offsets

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set where a group without members reads on, durably: for an application that keeps its own count.

        Makes the group if it is not there.
        """
        self._check_writable("offsets are written")
        self._groups.commit(group, offsets)

    def delete_group(self, group: str) -> None:
        """Take a group without members away, with its offsets."""
        self._check_writable("a group is written")
        self._groups.delete(group)

    # ------------------------------------------------------------ archives

    def archive(
        self,
        target: str | os.PathLike[str],
        *,
        topics: Iterable[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        verify: Verify = "content",
        allow_gaps: bool = False,
        repair: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Archived:
        """Copy the sealed segments of topics, by default of all but Kafka's own, to a directory or a URL.

        Called again it copies what has come since. What is in an archive stays, also when retention deletes it here. A
        copy is read back and compared by its CRC, or by its size alone with `verify="size"`. What an archive has
        otherwise than this store is refused with `ArchiveMismatch`, and files that its manifest names and that are not
        there with `CorruptionError`, or copied again with `repair=True`; nothing is overwritten. Offsets that were
        deleted here before they were archived are refused, too, unless `allow_gaps=True`: then the archive declares
        them to be missing, and its readers go over them. `progress` is given how many bytes of how many are copied.
        """
        # Loaded when it is used: it would cost every import some milliseconds.
        from seeklog.archive.archiving import archive
        from seeklog.archive.copying import copy_plan
        from seeklog.archive.planning import Rules
        from seeklog.files.depot import open_depot

        self._check_open()
        rules = Rules(verify, allow_gaps, repair)
        depot = open_depot(
            os.fsdecode(target),
            storage_options=storage_options,
            files=None if isinstance(self._files, ReadOnlyFiles) else self._files,
        )
        source = archive_source(self, topics)
        if not self._read_only:
            # What was rolled is sealed with the next sync.
            for log in self._table.open_writers():
                log.flush()
            # What a crash left half done is finished, as it is for any reader.
            for each in source.topics:
                for number in each.topic.partitions:
                    self._table.reading(TopicPartition(each.topic.name, number))
        copy_all = partial(copy_plan, files=self._files, depot=depot, rules=rules, progress=progress)
        return archive(source, depot, rules, copy_all)

    # ------------------------------------------------------------ maintenance

    def maintain(self) -> int:
        """Roll what is due, sync, retain, compact what is due, make key indexes, write the root's checkpoints.

        What the thread does on its schedule, all of it now. Returns how many segments were deleted. Partitions that
        another process writes are left to it.
        """
        self._check_writable("maintenance writes")
        self._upkeep.refresh()
        for log in self._table.open_writers():
            log.flush()
        deleted = self._upkeep.roll_and_retain()
        self._upkeep.write_root_offsets()
        return deleted

    def compact(self, topic: str | None = None, *, buffer_bytes: int = BUFFER_BYTES) -> dict[TopicPartition, Compacted]:
        """Compact a topic, or all whose `cleanup.policy` holds "compact", due or not; return what that did to each.

        A partition that another process writes raises `LogLocked`; those before it are done.
        """
        self._check_writable("compaction writes")
        self._upkeep.refresh()
        done: dict[TopicPartition, Compacted] = {}
        for each in [self._topics.find(topic)] if topic is not None else self._upkeep.topics():
            for number in each.partitions:
                if topic is not None or self._topics.config_of(each).compacts:
                    partition = TopicPartition(each.name, number)
                    with self._table.lent_beside_writers(partition, wait_s=0.0) as log:
                        done[partition] = log.compact(buffer_bytes=buffer_bytes)
        return done

    def close(self) -> None:
        """Close producers and consumers that are still open, then every log. Closing twice is nothing.

        Raises the first error of what could not be written; everything else is closed all the same.
        """
        self._close(commit=True)

    def _close(self, *, commit: bool) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        first_error: BaseException | None = None
        steps: list[Callable[[], object]] = [
            partial(client.close, commit=commit) if isinstance(client, Consumer) else client.close
            for client in list(self._clients)
        ]
        steps += [threads.stop for threads in self._threads()]
        steps.append(self._table.close)
        if not self._read_only:
            steps.append(self._upkeep.try_root_offsets)
        steps += [self._topics.close, self._place.close]
        for step in steps:
            try:
                step()
            except BaseException as error:  # a listener's, or Ctrl-C: the rest must be closed all the same
                first_error = first_error or error
        if first_error is not None:
            raise first_error


_open_stores: weakref.WeakSet[Store] = weakref.WeakSet()


def _abandon_all() -> None:
    for store in list(_open_stores):
        store._abandon()


os.register_at_fork(after_in_child=_abandon_all)


def _describe(log: LogReader, *, partition: int) -> PartitionDescription:
    seen = take_snapshot(log)
    return PartitionDescription(
        partition=partition,
        log_start_offset=seen.log_start_offset,
        high_watermark=seen.high_watermark,
        log_end_offset=seen.log_end_offset,
        size_bytes=seen.size_bytes,
        segment_count=len(seen.view.segments),
    )
