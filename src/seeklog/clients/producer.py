"""The producer: records are sent by topic and key, and appended to partitions in batches.

A key maps to the partition that Kafka's default partitioner (murmur2) chooses. Records without a key stick to one
partition until its batch is full or has lingered, then move to another, so that batches are large with any number of
partitions.

If a log fails during an append, the batch may or may not be written. The producer reopens the log for its next batch.
An idempotent producer, which numbers the records of each partition, also appends the failed batch again; the log stores
it once. A plain producer reports it in the futures of its records.
"""

from __future__ import annotations

import random
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, NamedTuple, TypedDict

from seeklog import names
from seeklog.arguments import check_offset, shown
from seeklog.clients.sender import Future, Gathering, Lane, Sender, Unsynced, check_batching
from seeklog.clock import Clock, check_wait_s
from seeklog.errors import InvalidRecord, LogClosed, LogFailed, TopicNotFound, UsageError
from seeklog.log import Log, ProducerSequence, TimestampRule
from seeklog.metrics import Family, ProducerSection
from seeklog.names import TopicPartition
from seeklog.record import Bytes, Headers
from seeklog.record.encode import record_bound
from seeklog.record.record import Record, make_record
from seeklog.topics.catalog import Topic
from seeklog.topics.open_logs import OpenLogs
from seeklog.topics.producer_ids import Identity
from seeklog.topics.topics import Topics

Partitioner = Callable[[bytes, int], int]
# How often an idempotent producer appends a batch to a failing log. The log is reopened before each retry.
ATTEMPTS: Final = 3


class ProducerOptions(TypedDict, total=False):
    """The options that do not change what a producer takes, for type checkers."""

    batch_bytes: int
    linger_ms: float
    buffer_bytes: int
    partitioner: Partitioner
    lock_timeout: float
    idempotence: bool
    name: str | None
    resume: bool


class RecordMetadata(NamedTuple):
    """Where a record was written."""

    topic: str
    partition: int
    offset: int


class _PartitionLane(Lane):
    """The lane to one partition of a store. The partition is opened for writing when a batch arrives."""

    __slots__ = ("partition",)

    def __init__(
        self,
        table: OpenLogs,
        partition: TopicPartition,
        *,
        batch_bytes: int,
        lock_timeout: float,
        identity: Identity | None,
    ) -> None:
        destination = (
            _PartitionDestination(table, partition, lock_timeout=lock_timeout)
            if identity is None
            else _NumberedDestination(table, partition, identity, lock_timeout=lock_timeout)
        )
        super().__init__(str(partition), destination, batch_bytes=batch_bytes)
        self.partition = partition


class _PartitionDestination:
    """A partition. A log that failed is opened again for the next batch, and is thereby recovered.

    A failed batch is not appended again: it is not known whether the log has it.
    """

    reopens = True

    def __init__(self, table: OpenLogs, partition: TopicPartition, *, lock_timeout: float) -> None:
        self._table = table
        self._partition = partition
        self._lock_timeout = lock_timeout

    def append_records(self, records: list[Record]) -> tuple[range, Log | None]:
        return self._table.append(self._partition, records, wait_s=self._lock_timeout)

    def end_turn(self, *, has_more: bool) -> None:
        self._table.end_turn(self._partition, has_more=has_more)

    def sync(self, log: Unsynced, *, end: int) -> None:
        """Sync the log that was appended to. One opened since may lack its records."""
        assert isinstance(log, Log)
        try:
            log.flush()
        except LogClosed:
            # Closing a log syncs it, unless that failed.
            if log.recovery_point < end:
                raise LogFailed(
                    f"{self._partition} was closed before the last records were synced; they may be lost"
                ) from None


class _NumberedDestination:
    """A partition whose records are numbered. Every append waits as the flush policy demands, so no sync is left."""

    reopens = True

    def __init__(self, table: OpenLogs, partition: TopicPartition, identity: Identity, *, lock_timeout: float) -> None:
        self._table = table
        self._partition = partition
        self._lock_timeout = lock_timeout
        self._identity = identity
        self._next: ProducerSequence | None = None
        self._topic_id = ""
        """The topic that the sequence belongs to. A recreated topic has none of these records."""

    def append_records(self, records: list[Record]) -> tuple[range, None]:
        sequence = self._next
        # After a failed append it is unknown whether the batch is written, so the next one asks the log for its
        # sequence. With the same sequence the log would take it for a duplicate of this batch.
        self._next = None
        for attempt in range(ATTEMPTS):
            try:
                with self._table.writing(self._partition, wait_s=self._lock_timeout) as log:
                    topic_id = self._table.topic_id(self._partition)
                    if sequence is None or topic_id != self._topic_id:
                        sequence, self._topic_id = self._sequence_in(log), topic_id
                    offsets = log.append_many(records, producer=sequence)
                self._next = sequence.after(len(records))
                break
            except LogFailed:
                if attempt == ATTEMPTS - 1:
                    raise
            except InvalidRecord as error:
                # A record may have become too old since the last attempt, which may have written the batch. Its records
                # must not be appended in other batches.
                raise (
                    error if attempt == 0 else LogFailed(f"{self._partition}: a retry was refused: {error}")
                ) from error
        return offsets, None

    def _sequence_in(self, log: Log) -> ProducerSequence:
        first = self._identity.first_sequence
        known = log.next_sequence(first.producer_id)
        return known if known is not None and known.epoch == first.epoch else first

    def sync(self, log: Unsynced, *, end: int) -> None:
        """Do nothing: every append has waited."""

    def end_turn(self, *, has_more: bool) -> None:
        self._table.end_turn(self._partition, has_more=has_more)


class SendFuture(Future):
    """The future position of one record."""

    __slots__ = ()
    _lane: _PartitionLane

    @property
    def partition(self) -> int:
        """The partition chosen for the record."""
        return self._lane.partition.partition

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Return where the record is, waiting up to `timeout` seconds. Raises the send's error, or `TimeoutError`."""
        return RecordMetadata(*self._lane.partition, self._offset(timeout))


class _Route:
    """The lanes to one topic's partitions."""

    def __init__(
        self,
        topic: Topic,
        lanes: dict[int, _PartitionLane],
        *,
        version: int,
        needs_key: bool,
        timestamps: TimestampRule,
    ) -> None:
        self.topic = topic.name
        self.version = version
        self.count = topic.partition_count
        self.needs_key = needs_key
        self.timestamps = timestamps
        self.lanes = lanes
        self.sticky = self._other_lane()
        self.sticky_batch: Gathering | None = None

    def lane_to(self, partition: object) -> _PartitionLane:
        """Return the lane to a partition, or raise `TopicNotFound`."""
        lane = self.lanes.get(partition) if isinstance(partition, int) else None
        if lane is None:
            there = ", ".join(map(str, self.lanes))
            raise TopicNotFound(f"topic {self.topic!r} has no partition {shown(partition)} here; it has {there}")
        return lane

    def stick(self, size: int) -> _PartitionLane:
        """Return the lane for a record without a key: the current one while its batch has room."""
        lane = self.sticky
        batch = lane.gathering
        if batch is None or batch is not self.sticky_batch or batch.size + size > lane.batch_bytes:
            self.sticky = lane = self._other_lane(than=lane)
        return lane

    def _other_lane(self, than: _PartitionLane | None = None) -> _PartitionLane:
        lanes = list(self.lanes.values())
        return random.choice([lane for lane in lanes if lane is not than] or lanes)


class Producer:
    """Sends records to topics. Any thread may send.

    Create one with `Store.producer`. Use it as a context manager, or close it.
    """

    def __init__(
        self,
        topics: Topics,
        table: OpenLogs,
        clock: Clock,
        *,
        owner: object,
        family: Family[ProducerSection],
        batch_bytes: int,
        linger_ms: float,
        buffer_bytes: int,
        partitioner: Partitioner,
        lock_timeout: float,
        identity: Identity | None = None,
    ) -> None:
        check_wait_s("lock_timeout", lock_timeout)
        check_batching(batch_bytes=batch_bytes, linger_ms=linger_ms, buffer_bytes=buffer_bytes)
        if not callable(partitioner):
            raise UsageError(f"a partitioner must be callable with a key and a count, not {partitioner!r}")
        self._topics = topics
        self._table = table
        self._batch_bytes = batch_bytes
        self._partition_of = partitioner
        self._lock_timeout = lock_timeout
        self._identity = identity
        self._clock = clock
        self._now_ms = clock.now_ms
        self._routes: dict[str, _Route] = {}
        self._lanes: dict[TopicPartition, _PartitionLane] = {}
        self._sender = Sender(clock, linger_ms=linger_ms, buffer_bytes=buffer_bytes, family=family)
        self._put = self._sender.put
        # The store syncs the logs, so it must stay open for this producer even if nothing else refers to it.
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
        value: Bytes | None,
        *,
        key: Bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> SendFuture:
        """Buffer a record and return its future. Waits while the buffer is full.

        An invalid record or an unknown topic raises here. A later error is in the future. The topic's setting `flush`
        determines how durable the record is when its future is done.
        """
        record = make_record(value, key, headers, self._now_ms() if timestamp_ms is None else timestamp_ms, -1, None)
        key = record.key
        size = record_bound(record)
        route = self._routes.get(topic)
        if route is None or route.version != self._topics.version:
            route = self._find_route(topic)
        if timestamp_ms is not None:
            rule = route.timestamps
            if not rule.checked_up_to < timestamp_ms <= rule.accepted_up_to:
                rule.check(None, timestamp_ms)
        if key is None and route.needs_key:
            raise InvalidRecord(f"topic {topic!r} is compacted: a record needs a key; nothing was written")
        if partition is None:
            if key is None:
                lane = route.stick(size)
                future = self._put(lane, record, size, SendFuture)
                route.sticky_batch = lane.gathering
                return future
            partition = self._partition_of(key, route.count)
        elif type(partition) is not int:
            partition = check_offset(partition, name="partition")
        lane = route.lanes.get(partition) or route.lane_to(partition)
        return self._put(lane, record, size, SendFuture)

    def _find_route(self, name: str) -> _Route:
        version = self._topics.version
        topic = self._topics.find(name)
        if name in names.INTERNAL_TOPICS:
            raise UsageError(f"{name} is Kafka's own topic; send to another topic")
        config = self._topics.config_of(topic)
        batch_bytes = min(self._batch_bytes, config.max_message_bytes, config.segment_bytes)
        lanes: dict[int, _PartitionLane] = {}
        for number in topic.partitions:
            partition = TopicPartition(name, number)
            # A producer keeps one lane per partition, so that its batches stay in order.
            lane = self._lanes.get(partition)
            if lane is None:
                # Two threads may get here at once, and both must use the same lane.
                new = _PartitionLane(
                    self._table,
                    partition,
                    batch_bytes=batch_bytes,
                    lock_timeout=self._lock_timeout,
                    identity=self._identity,
                )
                lane = self._lanes.setdefault(partition, new)
            lane.batch_bytes = batch_bytes
            lanes[number] = lane
        timestamps = TimestampRule(config, self._clock, subject=f"topic {name!r}")
        route = _Route(topic, lanes, version=version, needs_key=config.compacts, timestamps=timestamps)
        self._routes[name] = route
        return route

    def flush(self) -> None:
        """Send what is buffered and wait until it is written.

        Raises the error of a failed record whose future nobody has checked, so that no failure goes unnoticed.
        """
        self._sender.flush()
        self._raise_unseen()

    def close(self) -> None:
        """Flush, and stop the thread. Closing twice has no effect."""
        try:
            self._sender.close()
        finally:
            if self._identity is not None:
                self._identity.release()
        self._raise_unseen()

    def written(self, partition: TopicPartition | tuple[str, int]) -> int:
        """Return how many records of this producer a partition has. A resumed producer continues after them.

        Records of earlier epochs are not counted. The count wraps around at 2^31.
        """
        if self._identity is None:
            raise UsageError("only an idempotent producer counts its records; pass idempotence=True or a name")
        self.flush()
        topic, number = partition
        wanted = self._find_route(topic).lane_to(number).partition
        with self._table.writing(wanted, wait_s=self._lock_timeout) as log:
            known = log.next_sequence(self._identity.producer_id)
        self._table.end_turn(wanted, has_more=False)
        return known.sequence if known is not None and known.epoch == self._identity.epoch else 0

    def metrics(self) -> dict[str, Any]:
        """Return what this producer has counted, and its buffer. Any thread may call this.

        The keys are those of the section `producer` in docs/metrics.md.
        """
        return self._sender.as_dict()

    def gauges(self) -> ProducerSection:
        """Return the numbers of the present moment alone. Any thread may call this."""
        return self._sender.gauges()

    def _raise_unseen(self) -> None:
        error = self._sender.unseen_failure()
        if error is not None:
            raise error
