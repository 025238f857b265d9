"""`Store`: a directory of topics, with producers, consumers, groups, and archives.

A store has the layout of a Kafka broker's data directory. Any number of processes may open it. Each partition has at
most one writing process, which takes the partition's lock with its first append. The offsets of groups are shared:
their partition is locked only for the moment of a commit.
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
from typing import TYPE_CHECKING, Any, Never, overload

from seeklog import names
from seeklog.arguments import check_flags, check_offset
from seeklog.clients.consumer import (
    DEFAULT_POLL_RECORDS,
    AutoOffsetReset,
    Consumer,
    ConsumerBase,
    ConsumerOptions,
    Listener,
    offset_from_time,
)
from seeklog.clients.producer import Partitioner, Producer, ProducerOptions
from seeklog.clock import as_milliseconds, check_wait_s
from seeklog.config import DEFAULT_PARTITIONS, LogConfig
from seeklog.errors import (
    GroupNotFound,
    LogClosed,
    SeeklogError,
    TopicNotFound,
    UsageError,
)
from seeklog.files import HeldFiles, ReadOnlyFiles, local_path, translated
from seeklog.groups.description import GroupDescription, PartitionLag
from seeklog.groups.groups import Groups
from seeklog.log import BUFFER_BYTES, Compacted, Log, LogReader, Maintenance
from seeklog.metrics import ConsumerSection, Family, ProducerSection
from seeklog.names import TopicPartition
from seeklog.record.key_hash import partition_of
from seeklog.store.access import archive_source
from seeklog.store.topic import Topic
from seeklog.store.upkeep import Upkeep
from seeklog.topics.description import (
    Archived,
    PartitionDescription,
    TopicDescription,
    describe_partition,
    empty_partition,
)
from seeklog.topics.open_logs import OpenLogs
from seeklog.topics.producer_ids import ProducerIds
from seeklog.topics.topics import Topics
from seeklog.topics.transactions import Transactions

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Unpack

    import pyarrow

    from seeklog.archive.planning import Verify
    from seeklog.clients.asynchronous import AsyncConsumer, AsyncProducer
    from seeklog.clients.deserializing import ConsumerRecord, DeserializingConsumer, OnError
    from seeklog.clients.serializers import Deserializer, Serializer
    from seeklog.clients.serializing import SerializingProducer
    from seeklog.record.record import Record
    from seeklog.store.opening import Location
    from seeklog.topics.catalog import Topic as CatalogTopic

logger = logging.getLogger("seeklog")


class Store:
    """A directory of topics, and the producers and consumers that use them. Any thread may call any method.

    Open a store with `seeklog.open`.
    """

    def __init__(self, location: Location, *, config: LogConfig, max_open_files: int, background: bool) -> None:
        """Call `seeklog.open` instead; it checks the location and the configuration."""
        files, clock, read_only = location.files, location.clock, location.read_only
        self._location = location
        self._root = root = location.root
        self._files = files
        self._clock = clock
        self._read_only = read_only
        self._is_closed = False
        self._clients: weakref.WeakSet[Producer | ConsumerBase[Any]] = weakref.WeakSet()
        self._producers = Family(ProducerSection)
        self._consumers = Family(ConsumerSection)
        # Whatever changes the store, but for its logs: nothing more if the path comes to lead to another directory.
        held = None if read_only else HeldFiles(files, root)
        self._held_files = held or files
        self._topics = Topics(root, files=self._held_files, clock=clock, defaults=config, read_only=read_only)
        self._syncs = Maintenance(clock) if background else None
        self._table = OpenLogs(
            self._topics,
            files=files,
            clock=clock,
            check_root=held.check if held is not None else None,
            max_open_files=max_open_files,
            maintenance=self._syncs,
        )
        self._groups = Groups(self._topics, self._table, files=self._held_files, clock=clock, read_only=read_only)
        self._topics.forget = self._groups.forget_topic
        self._transactions = Transactions(
            self._topics, self._table, files=self._held_files, clock=clock, read_only=read_only
        )
        self._producer_ids = ProducerIds(root, files=self._held_files, clock=clock)
        if not read_only:
            self._topics.finish_deletes()
            self._transactions.finish_open()
        self._upkeep = Upkeep(self._topics, self._table, clock=clock, read_only=read_only)
        # A thread other than the one that syncs: jobs wait for locks of other processes.
        self._jobs = Maintenance(clock) if background else None
        for threads in self._threads():
            # A store that is dropped without being closed must not leave its threads running.
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
            raise LogClosed(f"the store at {self._root} is closed; open it again")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an exception, consumers commit nothing: the record that caused it must be read again.
        try:
            self._close(commit=kind is None)
        except SeeklogError as failure:
            if kind is None:
                raise
            logger.error("%s: closing the store failed after another error: %s", self._root, failure)

    def __repr__(self) -> str:
        return f"<Store {self._root}{' read-only' if self._read_only else ''}>"

    @property
    def path(self) -> Path:
        """The directory. Raises `UsageError` for a store at a URL."""
        return local_path(self._root)

    @property
    def location(self) -> str:
        """The directory or URL of the store."""
        return self._root

    @property
    def read_only(self) -> bool:
        return self._read_only

    def _abandon(self) -> None:
        """Replace the locks in a forked child: threads of the parent may have held them."""
        self._topics.abandon()
        self._table.abandon()
        self._groups.abandon()
        self._upkeep.abandon()
        self._producers.abandon()
        self._consumers.abandon()
        for threads in self._threads():
            threads.abandon()

    # ------------------------------------------------------------ topics

    def topics(self, *, internal: bool = False) -> list[str]:
        """Return the names of the topics, sorted. With `internal`, include Kafka's internal topics."""
        check_flags(internal=internal)
        self._check_open()
        self._topics.refresh()
        return [topic.name for topic in self._topics.all() if internal or topic.name not in names.INTERNAL_TOPICS]

    def create_topic(
        self, name: str, *, partitions: int = DEFAULT_PARTITIONS, config: Mapping[str, Any] | None = None
    ) -> TopicDescription:
        """Create a topic, completely and durably or not at all.

        `config` maps Kafka's setting names, with dots or underscores, to values. Settings left out are the store's.
        """
        names.check_topic_name(name)
        names.check_not_internal(name)
        topic = self._topics.create(name, partitions=partitions, config=config or {})
        return self._describe_topic(topic, empty_partition)

    def topic(self, name: str) -> Topic:
        """Return a handle on a topic. No log is opened."""
        self._check_open()
        self._topics.refresh()
        return Topic(self._topics, self._table, self._topics.find(name))

    def describe_topic(self, name: str) -> TopicDescription:
        """Return a topic's configuration, and the offsets and sizes of its partitions."""
        self._check_open()
        self._topics.refresh()
        topic = self._topics.find(name)
        return self._describe_topic(topic, partial(self._describe_partition, name))

    def _describe_topic(
        self, topic: CatalogTopic, describe_partition: Callable[[int], PartitionDescription]
    ) -> TopicDescription:
        return TopicDescription(
            name=topic.name,
            topic_id=topic.topic_id,
            config=self._topics.config_of(topic),
            configured=dict(topic.config),
            partitions=tuple(map(describe_partition, topic.partitions)),
        )

    def _describe_partition(self, topic: str, partition: int) -> PartitionDescription:
        return self._table.ask(TopicPartition(topic, partition), partial(describe_partition, partition=partition))

    def alter_topic(self, name: str, config: Mapping[str, Any]) -> TopicDescription:
        """Change settings of a topic. The value None resets a setting to the store's.

        The change takes effect at once in this process, and within two seconds in other processes that write the topic.
        """
        names.check_not_internal(name)
        self._topics.alter(name, config)
        self._table.drop_changed()
        return self.describe_topic(name)

    def add_partitions(self, name: str, *, partitions: int) -> TopicDescription:
        """Add partitions to a topic until it has `partitions`. Keys may map to other partitions afterwards."""
        names.check_not_internal(name)
        self._topics.grow(name, partitions=partitions)
        return self.describe_topic(name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, its records, and the offsets that groups committed for it."""
        names.check_not_internal(name)
        self._topics.find(name)
        self._table.drop(name)
        self._topics.delete(name)

    def log(self, topic: str, partition: int) -> LogReader:
        """Return a reader of one partition. The store closes it. After an append, call this again for a new reader."""
        self._check_open()
        return self._table.reading(TopicPartition(topic, check_offset(partition, name="partition")))

    def sql(self, query: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None) -> pyarrow.RecordBatchReader:
        """Run a query with DuckDB, and return its result as a stream of Arrow batches.

        Each topic is a table with the columns `key`, `value`, `topic`, `partition`, `offset`, `timestamp`,
        `timestampType` and `headers`, as in `seeklog sql`. Conditions on `partition`, `offset` and `timestamp` limit
        what is read. `parameters` replace `?`, or `$name` in a mapping. The query sees the records that are visible
        when it starts to read a topic. It cannot write, and cannot open other files.
        """
        # Imported on use: it would add to the time of `import seeklog`.
        from seeklog.store.sql import select

        self._check_open()
        return select(self, query, parameters)

    def writer(self, topic: str, partition: int, *, wait_s: float = 0.0) -> contextlib.AbstractContextManager[Log]:
        """Borrow one partition's log for writing, as a context manager. No other process can write it meanwhile.

        Everything appended is durable when the block ends. Raises `LogLocked` if another process holds the partition
        for longer than `wait_s`.
        """
        number = check_offset(partition, name="partition")
        check_wait_s("wait_s", wait_s)
        self._check_writable("no partition can be written")
        return self._table.borrow(TopicPartition(topic, number), wait_s=wait_s)

    # ------------------------------------------------------------ clients

    @overload
    def producer(self, **options: Unpack[ProducerOptions]) -> Producer: ...

    @overload
    def producer(
        self, *, value: Serializer, key: Serializer | None = None, **options: Unpack[ProducerOptions]
    ) -> SerializingProducer: ...

    @overload
    def producer(self, *, key: Serializer, **options: Unpack[ProducerOptions]) -> SerializingProducer: ...

    def producer(
        self,
        *,
        key: Serializer | None = None,
        value: Serializer | None = None,
        batch_bytes: int = 16384,
        linger_ms: float = 5,
        buffer_bytes: int = 32 << 20,
        partitioner: Partitioner = partition_of,
        lock_timeout: float = 10,
        idempotence: bool = False,
        name: str | None = None,
        resume: bool = False,
        **unknown: Never,
    ) -> Producer | SerializingProducer:
        """Return a producer. Its `send` returns a future immediately; a thread appends the batches.

        Producers of several processes may write one partition: they take turns. Records fail with `LogLocked` if no
        turn comes within `lock_timeout` seconds, because another process has the partition open without a producer.

        With `idempotence`, a batch whose append may have failed is sent again and stored exactly once. A `name` implies
        idempotence and fences older producers: an earlier producer of that name gets `ProducerFenced` in each partition
        that this one has written. With `resume`, the producer continues the sequence of its predecessor, and `written`
        returns how many of its records each partition holds. After a crash an application can then send the missing
        records, and none twice.

        `key` and `value` serialize these fields: see `seeklog.serializers`.
        """
        if unknown:
            from seeklog.clients.habits import refuse_arguments

            refuse_arguments(Store.producer, unknown)
        check_flags(idempotence=idempotence, resume=resume)
        self._check_writable("a producer needs a store that is open for writing")
        if resume and name is None:
            raise UsageError("resume needs a name: pass name=..., the name of the producer to resume")
        wrap = None if key is None and value is None else _serializing(key, value)
        identity = None
        if name is not None:
            with translated(f"{self._root}: the epoch of producer {name!r} cannot be saved"):
                identity = self._producer_ids.claim(name, resume=resume)
        elif idempotence:
            identity = self._producer_ids.new()
        try:
            producer = Producer(
                self._topics,
                self._table,
                self._clock,
                owner=self,
                family=self._producers,
                batch_bytes=batch_bytes,
                linger_ms=linger_ms,
                buffer_bytes=buffer_bytes,
                partitioner=partitioner,
                lock_timeout=lock_timeout,
                identity=identity,
            )
        except BaseException:
            if identity is not None:
                identity.release()
            raise
        self._clients.add(producer)
        self._producers.add(producer)
        return producer if wrap is None else wrap(producer)

    def async_producer(
        self, *, key: Serializer | None = None, value: Serializer | None = None, **options: Unpack[ProducerOptions]
    ) -> AsyncProducer:
        """Return a producer for asyncio: `await producer.send(…)` returns a future that can be awaited.

        The options are those of `producer`.
        """
        from seeklog.clients.asynchronous import AsyncProducer, AsyncSerializingProducer

        if key is None and value is None:
            return AsyncProducer(self.producer(**options))
        wrap = _serializing(key, value)
        return AsyncSerializingProducer(self.producer(**options), **wrap.keywords)

    @overload
    def async_consumer(
        self, topics: Sequence[str] = (), **options: Unpack[ConsumerOptions]
    ) -> AsyncConsumer[Record]: ...

    @overload
    def async_consumer(
        self, topics: Sequence[str] = (), *, value: Deserializer, key: Deserializer | None = None, **options: Any
    ) -> AsyncConsumer[ConsumerRecord]: ...

    @overload
    def async_consumer(
        self, topics: Sequence[str] = (), *, key: Deserializer, **options: Any
    ) -> AsyncConsumer[ConsumerRecord]: ...

    def async_consumer(self, topics: Sequence[str] = (), **options: Any) -> AsyncConsumer[Any]:
        """Return a consumer for asyncio: `async for record in consumer`. The options are those of `consumer`.

        Listeners are called in the consumer's thread.
        """
        from seeklog.clients.asynchronous import AsyncConsumer

        return AsyncConsumer(
            self.consumer(topics, **options),
            max_poll_records=options.get("max_poll_records", DEFAULT_POLL_RECORDS),
            in_group=options.get("group") is not None,
        )

    @overload
    def consumer(self, topics: Sequence[str] = (), **options: Unpack[ConsumerOptions]) -> Consumer: ...

    @overload
    def consumer(
        self,
        topics: Sequence[str] = (),
        *,
        value: Deserializer,
        key: Deserializer | None = None,
        on_error: OnError = "raise",
        dead_letter_topic: str | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> DeserializingConsumer: ...

    @overload
    def consumer(
        self,
        topics: Sequence[str] = (),
        *,
        key: Deserializer,
        on_error: OnError = "raise",
        dead_letter_topic: str | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> DeserializingConsumer: ...

    def consumer(
        self,
        topics: Sequence[str] = (),
        *,
        group: str | None = None,
        key: Deserializer | None = None,
        value: Deserializer | None = None,
        on_error: OnError = "raise",
        dead_letter_topic: str | None = None,
        auto_offset_reset: AutoOffsetReset = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5000,
        max_poll_records: int = DEFAULT_POLL_RECORDS,
        max_poll_interval_ms: int = 300_000,
        heartbeat_interval_ms: int = 200,
        consumer_timeout_ms: float | None = None,
        client_id: str = "seeklog",
        on_assign: Listener | None = None,
        on_revoke: Listener | None = None,
        **unknown: Never,
    ) -> Consumer | DeserializingConsumer:
        """Return a consumer of topics. The consumers of a group share the partitions, in one process or several.

        Without `topics`, call its `assign`. `auto_offset_reset` is the starting point in partitions for which the group
        has committed no offset, and in all partitions without a group. `on_assign` is called with partitions that were
        added, `on_revoke` with partitions that are about to be revoked (the listener can still commit them) or were
        lost because the consumer did not poll in time.

        `key` and `value` deserialize these fields: see `seeklog.serializers`. A record that cannot be deserialized
        raises `DeserializationError`, and the consumer stays there. With `on_error="skip"` it is logged and skipped; a
        callable gets the error, and the record is skipped unless the callable raises. With a `dead_letter_topic` it is
        appended there, durably, with the headers of Kafka Connect.
        """
        if unknown:
            from seeklog.clients.habits import refuse_arguments

            refuse_arguments(Store.consumer, unknown)
        self._check_open()
        if isinstance(topics, str):
            raise UsageError(f"topics is a list of names; pass [{topics!r}]")
        if group is not None:
            self._check_writable("a group's offsets cannot be written; consume without a group")
        kind: Callable[..., Consumer | DeserializingConsumer] = Consumer
        if key is not None or value is not None:
            kind = self._deserializing(key, value, on_error, dead_letter_topic, group=group, client_id=client_id)
        elif on_error != "raise" or dead_letter_topic is not None:
            raise UsageError("on_error and dead_letter_topic are for deserializers; pass key or value")
        consumer = kind(
            self._topics,
            self._table,
            self._groups,
            owner=self,
            family=self._consumers,
            files=self._held_files,
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
        self._consumers.add(consumer)
        return consumer

    def _deserializing(
        self,
        key: Deserializer | None,
        value: Deserializer | None,
        on_error: OnError,
        dead_letter_topic: str | None,
        *,
        group: str | None,
        client_id: str,
    ) -> Callable[..., DeserializingConsumer]:
        """Return the class of a deserializing consumer, bound to its deserializers."""
        # Imported on use: most programs have records of bytes.
        from seeklog.clients.dead_letters import DeadLetters
        from seeklog.clients.deserializing import Deserializers, DeserializingConsumer
        from seeklog.clients.serializers import decode_of

        letters = None
        if dead_letter_topic is not None:
            self._check_writable("dead letters cannot be written; pass on_error")
            letters = DeadLetters(self._topics, self._table, dead_letter_topic, consumer=group or client_id)
        return partial(
            DeserializingConsumer,
            deserializers=Deserializers(
                None if key is None else decode_of(key, "key"), None if value is None else decode_of(value, "value")
            ),
            on_error=on_error,
            dead_letters=letters,
        )

    def _check_writable(self, why: str) -> None:
        self._check_open()
        if self._read_only:
            cure = "a URL can only be read" if names.is_url(self._root) else "open it without read_only=True"
            raise UsageError(f"{self._root} is open read-only: {why}; {cure}")

    # ------------------------------------------------------------ groups

    def groups(self) -> list[str]:
        """Return the names of the groups that have committed offsets or members, sorted."""
        self._check_open()
        return self._groups.names()

    def describe_group(self, group: str) -> GroupDescription:
        """Return a group's members and committed offsets."""
        self._check_open()
        found = self._groups.find(group)
        return GroupDescription(
            name=group,
            generation=found.state.generation,
            members=tuple(member for _, member in sorted(self._groups.living(found).items())),
            committed=dict(sorted(found.offsets.items())),
        )

    def lag(self, group: str) -> list[PartitionLag]:
        """Return a group's lag in each partition that has a committed offset or is assigned to a member."""
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
                continue  # a group of a broker may have offsets of partitions that other brokers hold
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
        to_time_ms: int | datetime | None = None,
        partitions: Iterable[int] | None = None,
    ) -> dict[TopicPartition, int]:
        """Set the offsets at which a group without members continues in a topic. Return them.

        Pass either `to`, which is an offset, "earliest" or "latest", or `to_time_ms`, which selects the first record
        with a timestamp at or after that time: milliseconds since 1970, or a datetime with a time zone.
        """
        if (to is None) == (to_time_ms is None):
            raise UsageError("pass either to=... or to_time_ms=...")
        if to is not None and to not in ("earliest", "latest") and (not isinstance(to, int) or isinstance(to, bool)):
            raise UsageError(f'to is an offset, "earliest" or "latest", not {to!r}')
        wanted_ms = None if to_time_ms is None else as_milliseconds(to_time_ms, clock=self._clock)
        self._check_writable("offsets cannot be written")
        self._topics.refresh()
        try:
            self._groups.check_idle(self._groups.find(group))
        except GroupNotFound as error:
            raise GroupNotFound(f"{error}. To begin a new group at chosen offsets, call commit_offsets") from None
        found = self._topics.find(topic)
        offsets: dict[TopicPartition, int] = {}
        for number in found.partitions if partitions is None else partitions:
            partition = TopicPartition(topic, number)
            log = self._table.reading(partition)
            if wanted_ms is not None:
                offsets[partition] = self._table.ask(partition, partial(offset_from_time, timestamp_ms=wanted_ms))
            elif isinstance(to, int):
                offsets[partition] = to
            else:
                offsets[partition] = log.log_start_offset if to == "earliest" else log.high_watermark
        self._groups.commit(group, offsets, topic_ids=dict.fromkeys(offsets, found.topic_id))
        return offsets

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]) -> None:
        """Set the offsets at which a group without members continues. They are durable on return.

        For applications that track their own positions. Creates the group if it does not exist.
        """
        self._check_writable("offsets cannot be written")
        self._groups.commit(group, {TopicPartition(*partition): offset for partition, offset in offsets.items()})

    def delete_group(self, group: str) -> None:
        """Delete a group without members, and its offsets."""
        self._check_writable("a group cannot be deleted")
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
        include_active: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Archived:
        """Copy the sealed segments of topics, by default all but Kafka's internal ones, to a directory or a URL.

        Another call copies the segments sealed since. Segments stay in the archive after retention deletes them here.
        With `include_active`, the segments that are not sealed are copied up to the recovery point, too, and so are the
        offsets of groups, named producers, and the state of transactions: a backup, which `seeklog.restore` brings
        back. The result says how many records of each partition are not in the archive.

        Nothing in the archive is overwritten. Each copy is read back and compared by CRC, or with `verify="size"` by
        size alone. Raises `ArchiveMismatch` if the archive holds other bytes than this store, or if offsets were
        deleted here before they were archived; `allow_gaps=True` records these in the archive as missing, and its
        readers skip them. Raises `CorruptionError` if files named in the archive's manifest are missing; `repair=True`
        copies them again. `progress` is called with the bytes copied so far and the total.
        """
        # Imported on use: it would add milliseconds to `import seeklog`.
        from seeklog.archive.archiving import archive
        from seeklog.archive.copying import copy_plan
        from seeklog.archive.planning import Rules
        from seeklog.files.depot import open_depot

        self._check_open()
        rules = Rules(verify, allow_gaps, repair, include_active)
        depot = open_depot(
            os.fsdecode(target),
            storage_options=storage_options,
            files=None if isinstance(self._files, ReadOnlyFiles) else self._files,
        )
        source = archive_source(self, topics, include_active=include_active)
        if not self._read_only:
            # Rolled segments are sealed by the next sync.
            self._table.flush_writers()
            # Opening a reader completes what a crash interrupted.
            for source_topic in source.topics:
                for number in source_topic.topic.partitions:
                    self._table.reading(TopicPartition(source_topic.topic.name, number))
        copy_all = partial(copy_plan, files=self._files, depot=depot, rules=rules, progress=progress)
        return archive(source, depot, rules, copy_all)

    # ------------------------------------------------------------ maintenance

    def metrics(self, *, by_topic: bool = False, by_partition: bool = False, by_group: bool = False) -> dict[str, Any]:
        """Return what this store has counted since it was opened, as a dict that `json.dumps` takes.

        docs/metrics.md lists the keys. The totals are read from memory and have a fixed size. `by_topic` and
        `by_partition` add the numbers of each topic or partition that this store has opened for writing. `by_group`
        adds the lag of every group, and reads the ends of the partitions for that.
        """
        # Imported on use: it would add to the time of `import seeklog`.
        from seeklog.store.metrics import count_all, count_by_partition, count_by_topic, sum_lags

        check_flags(by_topic=by_topic, by_partition=by_partition, by_group=by_group)
        self._check_open()
        found = count_all(
            topics=self._topics,
            table=self._table,
            groups=self._groups,
            upkeep=self._upkeep,
            producers=self._producers,
            consumers=self._consumers,
        )
        if by_topic:
            found["by_topic"] = count_by_topic(self._table)
        if by_partition:
            found["by_partition"] = count_by_partition(self._table)
        if by_group:
            found["by_group"] = lags = {}
            for name in self._groups.names():
                with contextlib.suppress(GroupNotFound):  # deleted meanwhile
                    lags[name] = sum_lags(self.lag(name))
        return found

    def maintain(self) -> int:
        """Do all background work now: roll, sync, retain, compact, build key indexes, write the root's checkpoints.

        Returns the number of segments deleted. Partitions that another process writes are skipped.
        """
        self._check_writable("maintenance cannot write")
        self._upkeep.refresh()
        self._table.flush_writers()
        self._table.end_idle_turns()
        deleted = self._upkeep.roll_and_retain()
        self._upkeep.write_root_offsets()
        return deleted

    def compact(self, topic: str | None = None, *, buffer_bytes: int = BUFFER_BYTES) -> dict[TopicPartition, Compacted]:
        """Compact a topic, or every topic whose `cleanup.policy` includes "compact". Return the results by partition.

        Partitions are compacted whether due or not. Raises `LogLocked` at the first partition that another process
        writes; partitions before it are compacted.
        """
        self._check_writable("compaction cannot write")
        self._upkeep.refresh()
        done: dict[TopicPartition, Compacted] = {}
        for chosen in [self._topics.find(topic)] if topic is not None else self._upkeep.topics():
            for number in chosen.partitions:
                if topic is not None or self._topics.config_of(chosen).compacts:
                    partition = TopicPartition(chosen.name, number)
                    with self._table.borrow_beside_writers(partition, wait_s=0.0) as log:
                        done[partition] = log.compact(buffer_bytes=buffer_bytes)
        return done

    def close(self) -> None:
        """Close open producers and consumers, then every log. Closing twice has no effect.

        Everything is closed even after an error; the first error is raised at the end.
        """
        self._close(commit=True)

    def _close(self, *, commit: bool) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        first_error: BaseException | None = None
        steps: list[Callable[[], object]] = [
            partial(client.close, commit=commit) if isinstance(client, ConsumerBase) else client.close
            for client in list(self._clients)
        ]
        steps += [threads.stop for threads in self._threads()]
        steps.append(self._table.close)
        if not self._read_only:
            steps.append(self._upkeep.try_root_offsets)
        steps += [self._topics.close, self._location.close]
        for step in steps:
            try:
                step()
            except BaseException as error:  # a listener's error, or Ctrl-C: the rest must still be closed
                first_error = first_error or error
        if first_error is not None:
            raise first_error


def _serializing(key: Serializer | None, value: Serializer | None) -> partial[SerializingProducer]:
    """Return what wraps a producer. Raises `UsageError` for a serializer that cannot be used."""
    # Imported on use: most programs have records of bytes.
    from seeklog.clients.serializers import encode_of
    from seeklog.clients.serializing import SerializingProducer

    return partial(
        SerializingProducer,
        key=None if key is None else encode_of(key, "key"),
        value=None if value is None else encode_of(value, "value"),
    )


_open_stores: weakref.WeakSet[Store] = weakref.WeakSet()


def _abandon_all() -> None:
    for store in list(_open_stores):
        store._abandon()


os.register_at_fork(after_in_child=_abandon_all)
