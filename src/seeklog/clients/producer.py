"""The producer: records are sent by topic and key, and appended to partitions in batches.

A key maps to the partition that Kafka's default partitioner (murmur2) chooses. Records without a key stick to one
partition until its batch is full or has lingered, then move to another, so that batches are large with any number of
partitions.

If a log fails during an append, the batch may or may not be written. The producer reopens the log for its next batch.
An idempotent producer, which numbers the records of each partition, also appends the failed batch again; the log stores
it once. A plain producer reports it in the futures of its records.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypedDict

from seeklog import names
from seeklog.clients.gathering import Intake, Lane, Route, SendFuture
from seeklog.clients.sender import Destination, Sender, Unsynced, check_batching
from seeklog.clock import Clock, check_wait_s
from seeklog.errors import LogClosed, LogFailed, ProducerFenced, SeeklogError, UsageError
from seeklog.log import Log, ProducerSequence, TimestampRule
from seeklog.metrics import Family, ProducerSection
from seeklog.names import RecordMetadata, TopicPartition
from seeklog.record.growing import GrowingBatch
from seeklog.record.record import Record
from seeklog.topics.open_logs import OpenLogs
from seeklog.topics.producer_ids import Identity
from seeklog.topics.topics import Topics

if TYPE_CHECKING:
    import pyarrow

    from seeklog.clients.bulk import SendManyFuture

Partitioner = Callable[[bytes, int], int]
# How often an idempotent producer appends a batch to a failing log. The log is reopened before each retry.
ATTEMPTS: Final = 3
# Larger than the batches that gather: records that are sent together are all there already, and a batch costs as much
# as a hundred of them.
BULK_BYTES: Final = 128 << 10


__all__ = ["Producer", "ProducerOptions", "RecordMetadata", "SendFuture"]


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


class _PartitionDestination:
    """A partition. A log that failed is opened again for the next batch, and is thereby recovered.

    A failed batch is not appended again: it is not known whether the log has it.
    """

    reopens = True

    def __init__(self, table: OpenLogs, partition: TopicPartition, *, lock_timeout: float) -> None:
        self._table = table
        self._partition = partition
        self._lock_timeout = lock_timeout

    def append(self, batches: Sequence[GrowingBatch]) -> tuple[range, Log | None]:
        return self._table.append(self._partition, batches, wait_s=self._lock_timeout)

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

    def append(self, batches: Sequence[GrowingBatch]) -> tuple[range, None]:
        sequence = self._next
        # After a failed append it is unknown whether the batches are written, so the next one asks the log for its
        # sequence. With the same sequence the log would take it for a duplicate of these batches.
        self._next = None
        for attempt in range(ATTEMPTS):
            try:
                with self._table.writing(self._partition, wait_s=self._lock_timeout) as log:
                    topic_id = self._table.topic_id(self._partition)
                    written: range | None = None
                    if sequence is None or topic_id != self._topic_id:
                        sequence, self._topic_id = self._sequence_in(log), topic_id
                    elif attempt:
                        written = self._find_written(log, batches, sequence)
                    offsets = written or log.append_encoded(batches, producer=sequence)
                self._next = sequence.after(len(offsets))
                break
            except ProducerFenced:
                raise
            except LogFailed:
                if attempt == ATTEMPTS - 1:
                    raise
            except SeeklogError as error:
                # The last attempt may have written the batches, and now a record has become too old, or the disk is
                # full. Their records must not be appended in other batches.
                if attempt:
                    raise LogFailed(f"{self._partition}: a retry was refused: {error}") from error
                raise
        return offsets, None

    def _find_written(self, log: Log, batches: Sequence[GrowingBatch], sequence: ProducerSequence) -> range | None:
        """Return the offsets of the first batches, as many as an earlier attempt has written; None if it has none.

        They are in the log in one run, because one write appends them.
        """
        written = sequence.until(self._sequence_in(log))
        count = 0
        for batch in batches:
            before, count = count, count + batch.count
            if count == written:
                # The log knows it, and waits for its sync.
                offsets = log.append_encoded([batch], producer=sequence.after(before))
                return range(offsets.stop - count, offsets.stop)
        return None

    def _sequence_in(self, log: Log) -> ProducerSequence:
        first = self._identity.first_sequence
        known = log.next_sequence(first.producer_id)
        return known if known is not None and known.epoch == first.epoch else first

    def sync(self, log: Unsynced, *, end: int) -> None:
        """Do nothing: every append has waited."""

    def end_turn(self, *, has_more: bool) -> None:
        self._table.end_turn(self._partition, has_more=has_more)


class Producer(Intake):
    """Sends records to topics. Any thread may send.

    Create one with `Store.producer`. Use it as a context manager, or close it.
    """

    _sender: Sender

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
        super().__init__(
            Sender(clock, linger_ms=linger_ms, buffer_bytes=buffer_bytes, family=family),
            topics,
            partitioner=partitioner,
            clock=clock,
        )
        self._table = table
        self._batch_bytes = batch_bytes
        self._lock_timeout = lock_timeout
        self._identity = identity
        self._clock = clock
        self._lanes: dict[TopicPartition, Lane] = {}
        self._turns = itertools.count()
        # The store syncs the logs, so it must stay open for this producer even if nothing else refers to it.
        self._owner = owner
        weakref.finalize(self, self._sender.end)

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send_many(self, topic: str, records: Iterable[Record], *, partition: int | None = None) -> SendManyFuture:
        """Buffer records, encoded, and return one future for all of them. Waits while the buffer is full.

        Partitions are chosen as by `send`, and each keeps the order of its records, after those sent before. An invalid
        record raises here; the records before it are sent, and those after it are not.
        """
        from seeklog.clients.bulk import SendManyFuture

        sent = SendManyFuture(self._clock)
        self._send_each(topic, records, partition, sent)
        return sent

    def send_arrow(self, topic: str, table: pyarrow.Table | pyarrow.RecordBatch) -> SendManyFuture:
        """Send the rows of an Arrow table, as `send_many` does. Needs the extra `arrow`.

        The columns are `value`, and optionally `key`, `timestamp`, `headers` and `partition`, with the types that
        `scan_arrow` returns; text may stand for bytes. Other columns are ignored. A row without a partition goes to
        that of its key. Rows without both stay together in each record batch of the table.
        """
        from seeklog.clients.bulk import SendManyFuture, send_table

        sent = SendManyFuture(self._clock)
        send_table(
            table,
            sent,
            route=self._route_of(topic),
            sender=self._sender,
            partitioner=self._partition_of,
            now_ms=self._now_ms(),
            turn=next(self._turns),
        )
        return sent

    def _find_route(self, name: str) -> Route:
        version = self._topics.version
        topic = self._topics.find(name)
        if name in names.INTERNAL_TOPICS:
            raise UsageError(f"{name} is Kafka's own topic; send to another topic")
        config = self._topics.config_of(topic)
        batch_bytes = min(self._batch_bytes, config.max_message_bytes, config.segment_bytes)
        bulk_bytes = min(max(self._batch_bytes, BULK_BYTES), config.max_message_bytes, config.segment_bytes)
        lanes: dict[int, Lane] = {}
        for number in topic.partitions:
            partition = TopicPartition(name, number)
            # A producer keeps one lane per partition, so that its batches stay in order.
            lane = self._lanes.get(partition)
            if lane is None:
                # Two threads may get here at once, and both must use the same lane.
                lane = self._lanes.setdefault(partition, self._new_lane(partition, batch_bytes=batch_bytes))
            lane.batch_bytes = batch_bytes
            lane.bulk_bytes = bulk_bytes
            lanes[number] = lane
        timestamps = TimestampRule(config, self._clock, subject=f"topic {name!r}")
        route = Route(
            name,
            lanes,
            count=topic.partition_count,
            version=version,
            needs_key=config.compacts,
            timestamps=timestamps,
        )
        self._routes[name] = route
        return route

    def _new_lane(self, partition: TopicPartition, *, batch_bytes: int) -> Lane:
        """Return the lane to a partition, which is opened for writing when a batch arrives."""
        destination: Destination
        if self._identity is None:
            destination = _PartitionDestination(self._table, partition, lock_timeout=self._lock_timeout)
        else:
            destination = _NumberedDestination(self._table, partition, self._identity, lock_timeout=self._lock_timeout)
        return Lane(str(partition), destination, batch_bytes=batch_bytes, partition=partition)

    def flush(self) -> None:
        """Send what is buffered and wait until it is written.

        Raises the error of a failed record whose future nobody has checked, so that no failure goes unnoticed.
        """
        self._sender.flush()
        self.raise_unseen()

    def close(self) -> None:
        """Flush, and stop the thread. Closing twice has no effect."""
        try:
            self._sender.close()
        finally:
            if self._identity is not None:
                self._identity.release()
        self.raise_unseen()

    def written(self, partition: TopicPartition | tuple[str, int]) -> int:
        """Return how many records of this producer a partition has. A resumed producer continues after them.

        Records of earlier epochs are not counted. The count wraps around at 2^31.
        """
        if self._identity is None:
            raise UsageError("only an idempotent producer counts its records; pass idempotence=True or a name")
        self.flush()
        topic, number = partition
        self._find_route(topic).lane_to(number)
        wanted = TopicPartition(topic, number)
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

    def raise_unseen(self) -> None:
        """Raise the error of a failed record whose future nobody has checked, as `flush` does."""
        error = self._sender.unseen_failure()
        if error is not None:
            raise error
