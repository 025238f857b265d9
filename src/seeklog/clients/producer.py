"""The producer: records go in by topic and key, batches go to partitions.

A key goes where Kafka's default partitioner puts it (murmur2). Records without a key stick to one partition until a
batch is full or has lingered, then to another, so that batches are large however many partitions there are.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import NamedTuple

from seeklog import names
from seeklog.clock import Clock
from seeklog.errors import InvalidRecord, SeeklogError, TopicNotFound, UsageError
from seeklog.names import TopicPartition
from seeklog.record.kernel import Record, partition_of, record_bound
from seeklog.storage.sender import Delivery, Gathering, Lane, Sender
from seeklog.topics.catalog import Topic
from seeklog.topics.table import PartitionTable
from seeklog.topics.topics import Topics

Partitioner = Callable[[bytes, int], int]


class RecordMetadata(NamedTuple):
    """Where a record was written."""

    topic: str
    partition: int
    offset: int


class SendFuture:
    """Where one record will be."""

    __slots__ = ("_delivery", "_partition", "_place")

    def __init__(self, partition: TopicPartition, delivery: Delivery, place: int) -> None:
        self._partition = partition
        self._delivery = delivery
        self._place = place

    @property
    def partition(self) -> int:
        """The partition that was chosen for the record."""
        return self._partition.partition

    def done(self) -> bool:
        """Tell whether the record was written or has failed."""
        return self._delivery.is_done

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Return where the record is, waiting for it; raises what went wrong, or `TimeoutError`."""
        error = self.exception(timeout)
        if error is not None:
            raise error
        return RecordMetadata(*self._partition, self._delivery.offsets[self._place])

    def exception(self, timeout: float | None = None) -> SeeklogError | None:
        """Return what went wrong, or None, waiting for it."""
        self._delivery.wait(timeout)
        return self._delivery.errors.get(self._place)

    def add_done_callback(self, callback: Callable[[SendFuture], object]) -> None:
        """Call `callback(future)` when it is settled: in the producer's thread, or here if it already is."""
        self._delivery.when_done(lambda: callback(self))


class _PartitionDestination:
    """One partition of the store, opened for writing when a batch comes."""

    def __init__(self, table: PartitionTable, partition: TopicPartition, *, syncs_each: bool) -> None:
        self._table = table
        self.partition = partition
        self.syncs_each = syncs_each

    def append_records(self, records: list[Record]) -> range:
        with self._table.writing(self.partition) as log:
            return log.append_many(records, wait=False)

    def flush(self) -> None:
        with self._table.writing(self.partition) as log:
            log.flush()


class _Route:
    """The ways to one topic's partitions."""

    def __init__(self, topic: Topic, *, version: int, needs_key: bool) -> None:
        self.topic = topic.name
        self.version = version
        self.count = topic.partition_count
        self.needs_key = needs_key
        self.lanes: list[tuple[TopicPartition, Lane] | None] = [None] * self.count
        self.there: list[int] = list(topic.partitions)
        self.sticky: tuple[TopicPartition, Lane]
        self.sticky_batch: Gathering | None = None

    def way_to(self, partition: int) -> tuple[TopicPartition, Lane]:
        way = self.lanes[partition] if 0 <= partition < self.count else None
        if way is None:
            raise TopicNotFound(
                f"topic {self.topic!r} has no partition {partition!r} here, only {', '.join(map(str, self.there))}"
            )
        return way

    def stick(self, size: int) -> tuple[TopicPartition, Lane]:
        """Return the way that a record without a key takes: the one of the last, while its batch has room."""
        lane = self.sticky[1]
        batch = lane.gathering
        if batch is None or batch is not self.sticky_batch or batch.size + size > lane.batch_bytes:
            self.turn()
        return self.sticky

    def turn(self) -> None:
        """Stick to another partition, if there is another."""
        before = getattr(self, "sticky", None)
        others = [number for number in self.there if before is None or number != before[0].partition]
        self.sticky = self.way_to(random.choice(others or self.there))
        self.sticky_batch = None


class Producer:
    """Sends records to topics. Any thread may send; close it, or use it as a context manager."""

    def __init__(
        self,
        topics: Topics,
        table: PartitionTable,
        clock: Clock,
        *,
        batch_bytes: int,
        linger_ms: float,
        buffer_bytes: int,
        partitioner: Partitioner,
    ) -> None:
        if batch_bytes < 1 or buffer_bytes < batch_bytes:
            raise UsageError("batch_bytes >= 1 and buffer_bytes >= batch_bytes must hold")
        self._topics = topics
        self._table = table
        self._batch_bytes = batch_bytes
        self._partition_of = partitioner
        self._now_ms = clock.now_ms
        self._routes: dict[str, _Route] = {}
        self._lanes: dict[TopicPartition, Lane] = {}
        self._sender = Sender(clock, linger_ms=linger_ms, buffer_bytes=buffer_bytes)
        self._put = self._sender.put

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
        record = Record(value, key=key, headers=headers, timestamp_ms=timestamp_ms)
        size = record_bound(record)
        route = self._routes.get(topic)
        if route is None or route.version != self._topics.version:
            route = self._find_route(topic)
        if partition is not None:
            where, lane = route.way_to(partition)
        elif key is not None:
            where, lane = route.way_to(self._partition_of(key, route.count))
        else:
            if route.needs_key:
                raise InvalidRecord(f"topic {topic!r} is compacted: a record needs a key; nothing was written")
            where, lane = route.stick(size)
            fate = self._put(lane, record, size)
            route.sticky_batch = lane.gathering
            return SendFuture(where, *fate)
        return SendFuture(where, *self._put(lane, record, size))

    def _find_route(self, name: str) -> _Route:
        version = self._topics.version
        topic = self._topics.find(name)
        if name == names.CONSUMER_OFFSETS:
            raise UsageError(f"{name} is written by commits alone")
        config = self._topics.config_of(topic)
        route = _Route(topic, version=version, needs_key="compact" in config.cleanup_policy)
        batch_bytes = min(self._batch_bytes, config.max_message_bytes, config.segment_bytes)
        for number in topic.partitions:
            partition = TopicPartition(name, number)
            lane = self._lanes.get(partition)
            if lane is None:
                destination = _PartitionDestination(self._table, partition, syncs_each=config.flush == "batch")
                lane = self._lanes[partition] = Lane(destination, batch_bytes=batch_bytes)
            route.lanes[number] = (partition, lane)
        route.turn()
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
        self._sender.close()
        self._raise_unseen()

    def _raise_unseen(self) -> None:
        error = self._sender.unseen_failure()
        if error is not None:
            raise error


def default_partitioner(key: bytes, count: int) -> int:
    """Return the partition that Kafka's default partitioner gives a key."""
    return partition_of(key, count)
