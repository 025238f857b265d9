"""The producer: records go in by topic and key, batches go to partitions.

A key goes where Kafka's default partitioner puts it (murmur2). Records without a key stick to one partition until a
batch is full or has lingered, then to another, so that batches are large however many partitions there are.

An idempotent producer numbers the records of each partition. If a log fails in the middle of a batch, so that nobody
knows whether it is written, it opens the log anew and appends the same batch again: it is there once.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, NamedTuple

from seeklog import names
from seeklog.clients.sender import Future, Gathering, Lane, Sender
from seeklog.clock import Clock
from seeklog.errors import InvalidRecord, LogClosed, LogFailed, TopicNotFound, UsageError
from seeklog.log import Log, ProducerSequence
from seeklog.names import TopicPartition
from seeklog.record.encode import record_bound
from seeklog.record.record import Record, make_record
from seeklog.topics.catalog import Topic
from seeklog.topics.open_logs import OpenLogs
from seeklog.topics.producer_ids import Identity
from seeklog.topics.topics import Topics

Partitioner = Callable[[bytes, int], int]
# How often an idempotent producer appends a batch to a log that fails, each time to one that was opened anew.
ATTEMPTS: Final = 3


class RecordMetadata(NamedTuple):
    """Where a record was written."""

    topic: str
    partition: int
    offset: int


class _PartitionLane(Lane):
    """The way to one partition of the store, which is opened for writing when a batch comes."""

    __slots__ = ("partition",)

    def __init__(
        self, table: OpenLogs, partition: TopicPartition, *, batch_bytes: int, identity: Identity | None
    ) -> None:
        destination = (
            _PartitionDestination(table, partition)
            if identity is None
            else _NumberedDestination(table, partition, identity)
        )
        super().__init__(destination, batch_bytes=batch_bytes)
        self.partition = partition


class _PartitionDestination:
    def __init__(self, table: OpenLogs, partition: TopicPartition) -> None:
        self._table = table
        self._partition = partition
        self._unsynced: dict[Log, int] = {}
        """The logs that were appended to since the last sync, and up to where: one may be opened anew in between."""

    @property
    def syncs_each(self) -> bool:
        # The policy is that of the logs as they were open for the appends: the topic may have been altered.
        return bool(self._unsynced)

    def append_records(self, records: list[Record]) -> range:
        offsets, unsynced = self._table.append(self._partition, records)
        if unsynced is not None:
            self._unsynced[unsynced] = offsets.stop
        return offsets

    def flush(self) -> None:
        """Sync the very logs that were appended to: one that is opened anew may have lost what was not synced."""
        unsynced, self._unsynced = self._unsynced, {}
        for log, end in unsynced.items():
            try:
                log.flush()
            except LogClosed:
                # Whoever closed it has synced it, unless that failed.
                if log.recovery_point < end:
                    raise LogFailed(
                        f"{self._partition} was closed, and what was appended before is not synced"
                    ) from None


class _NumberedDestination:
    """A partition whose records are numbered. Every append waits for what the log promises, so no sync is left over."""

    def __init__(self, table: OpenLogs, partition: TopicPartition, identity: Identity) -> None:
        self._table = table
        self._partition = partition
        self._identity = identity
        self._next: ProducerSequence | None = None
        self._topic_id = ""
        """Of the topic that the place is in: one made anew under its name has none of these records."""
        self.syncs_each = False

    def append_records(self, records: list[Record]) -> range:
        place = self._next
        # If this fails nobody knows whether the batch is written; then the log says where the next one goes on. With
        # the same place it would be taken for this one.
        self._next = None
        for attempt in range(ATTEMPTS):
            try:
                with self._table.writing(self._partition) as log:
                    topic_id = self._table.topic_id(self._partition)
                    if place is None or topic_id != self._topic_id:
                        place, self._topic_id = self._place_in(log), topic_id
                    offsets = log.append_many(records, producer=place)
                self._next = place.after(len(records))
                break
            except LogFailed:
                if attempt == ATTEMPTS - 1:
                    raise
        return offsets

    def _place_in(self, log: Log) -> ProducerSequence:
        first = self._identity.first_place
        known = log.next_sequence(first.producer_id)
        return known if known is not None and known.epoch == first.epoch else first

    def flush(self) -> None:
        """Nothing: every append has waited."""


class SendFuture(Future):
    """Where one record will be."""

    __slots__ = ()
    _lane: _PartitionLane

    @property
    def partition(self) -> int:
        """The partition that was chosen for the record."""
        return self._lane.partition.partition

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Return where the record is, waiting for it; raises what went wrong, or `TimeoutError`."""
        return RecordMetadata(*self._lane.partition, self._offset(timeout))


class _Route:
    """The ways to one topic's partitions."""

    def __init__(self, topic: Topic, lanes: dict[int, _PartitionLane], *, version: int, needs_key: bool) -> None:
        self.topic = topic.name
        self.version = version
        self.count = topic.partition_count
        self.needs_key = needs_key
        self.lanes = lanes
        self.sticky = self._other_lane()
        self.sticky_batch: Gathering | None = None

    def lane_to(self, partition: object) -> _PartitionLane:
        """Return the way to a partition, or say which there are."""
        lane = self.lanes.get(partition) if isinstance(partition, int) else None
        if lane is None:
            there = ", ".join(map(str, self.lanes))
            raise TopicNotFound(f"topic {self.topic!r} has no partition {partition!r} here, only {there}")
        return lane

    def stick(self, size: int) -> _PartitionLane:
        """Return the way that a record without a key takes: the one of the last, while its batch has room."""
        lane = self.sticky
        batch = lane.gathering
        if batch is None or batch is not self.sticky_batch or batch.size + size > lane.batch_bytes:
            self.sticky = lane = self._other_lane(than=lane)
        return lane

    def _other_lane(self, than: _PartitionLane | None = None) -> _PartitionLane:
        lanes = list(self.lanes.values())
        return random.choice([lane for lane in lanes if lane is not than] or lanes)


class Producer:
    """Sends records to topics. Any thread may send; close it, or use it as a context manager."""

    def __init__(
        self,
        topics: Topics,
        table: OpenLogs,
        clock: Clock,
        *,
        owner: object,
        batch_bytes: int,
        linger_ms: float,
        buffer_bytes: int,
        partitioner: Partitioner,
        identity: Identity | None = None,
    ) -> None:
        numbers = all(isinstance(number, int | float) for number in (batch_bytes, linger_ms, buffer_bytes))
        if not numbers or batch_bytes < 1 or buffer_bytes < batch_bytes:
            raise UsageError("batch_bytes >= 1 and buffer_bytes >= batch_bytes must hold, all of them numbers")
        if not callable(partitioner):
            raise UsageError(f"a partitioner is called with a key and a count, and {partitioner!r} cannot be")
        self._topics = topics
        self._table = table
        self._batch_bytes = batch_bytes
        self._partition_of = partitioner
        self._identity = identity
        self._now_ms = clock.now_ms
        self._routes: dict[str, _Route] = {}
        self._lanes: dict[TopicPartition, _PartitionLane] = {}
        self._sender = Sender(clock, linger_ms=linger_ms, buffer_bytes=buffer_bytes)
        self._put = self._sender.put
        # While somebody sends, the store must stay open, though nobody else refers to it: it syncs the logs.
        self._owner = owner
        weakref.finalize(self, self._sender.end)

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> SendFuture:
        """Take a record and return its future; waits while the buffer is full.

        What is wrong with the record or the topic is raised here; what goes wrong later is in the future. How
        durable a record is when its future is done, the topic's `flush` says.
        """
        if timestamp_ms is None:
            timestamp_ms = self._now_ms()
        record = make_record(value, key, headers, timestamp_ms, -1, None)
        size = record_bound(record)
        route = self._routes.get(topic)
        if route is None or route.version != self._topics.version:
            route = self._find_route(topic)
        if key is None and route.needs_key:
            raise InvalidRecord(f"topic {topic!r} is compacted: a record needs a key; nothing was written")
        if partition is None:
            if key is None:
                lane = route.stick(size)
                future = self._put(lane, record, size, SendFuture)
                route.sticky_batch = lane.gathering
                return future
            partition = self._partition_of(key, route.count)
        lane = route.lanes.get(partition) or route.lane_to(partition)
        return self._put(lane, record, size, SendFuture)

    def _find_route(self, name: str) -> _Route:
        version = self._topics.version
        topic = self._topics.find(name)
        if name in names.INTERNAL_TOPICS:
            raise UsageError(f"{name} is Kafka's own: nobody sends to it")
        config = self._topics.config_of(topic)
        batch_bytes = min(self._batch_bytes, config.max_message_bytes, config.segment_bytes)
        lanes: dict[int, _PartitionLane] = {}
        for number in topic.partitions:
            partition = TopicPartition(name, number)
            # A lane stays the same for as long as the producer does: its batches keep their order.
            lane = self._lanes.get(partition)
            if lane is None:
                # Two threads may come here at once: one lane must be both's.
                new = _PartitionLane(self._table, partition, batch_bytes=batch_bytes, identity=self._identity)
                lane = self._lanes.setdefault(partition, new)
            lane.batch_bytes = batch_bytes
            lanes[number] = lane
        route = _Route(topic, lanes, version=version, needs_key="compact" in config.cleanup_policy)
        self._routes[name] = route
        return route

    def flush(self) -> None:
        """Send what has gathered and wait until all of it is written.

        Raises the error of a record that failed, if nobody has asked its future: so nothing is lost in silence.
        """
        self._sender.flush()
        self._raise_unseen()

    def close(self) -> None:
        """Flush, and end the thread. Closing twice is nothing."""
        try:
            self._sender.close()
        finally:
            if self._identity is not None:
                self._identity.release()
        self._raise_unseen()

    def written(self, partition: TopicPartition | tuple[str, int]) -> int:
        """Return how many records of this producer are in a partition: for one that resumes, to go on behind them.

        Counted are those of its epoch; the count begins again at 2^31.
        """
        if self._identity is None:
            raise UsageError("only an idempotent producer counts its records")
        self.flush()
        topic, number = partition
        with self._table.writing(self._find_route(topic).lane_to(number).partition) as log:
            known = log.next_sequence(self._identity.producer_id)
        return known.sequence if known is not None and known.epoch == self._identity.epoch else 0

    def _raise_unseen(self) -> None:
        error = self._sender.unseen_failure()
        if error is not None:
            raise error
