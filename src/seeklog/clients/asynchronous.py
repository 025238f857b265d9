"""Producers and consumers for asyncio.

A producer's records go into the same buffer, in the task that sends them: only a full buffer makes a task wait. A
consumer runs in a thread of its own, which has one call at a time, so that reads and commits never stop the loop.

Cancellation loses nothing. A cancelled `send` has not sent its record; a sent record is written, whether or not a task
still waits for its future. Records that a cancelled `poll` would have returned are returned by the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar

from seeklog.clients.consumer import AnyRecord, ConsumerBase
from seeklog.clients.gathering import AsyncIntake, Delivery, RecordStream, SendFuture
from seeklog.clients.producer import Producer
from seeklog.clients.serializing import serialized
from seeklog.clock import check_wait_ms
from seeklog.errors import LogClosed, SeeklogError
from seeklog.names import RecordMetadata, TopicPartition
from seeklog.record import Headers

if TYPE_CHECKING:
    from seeklog.clients.serializers import Encode

Answer = TypeVar("Answer")

# How long a call of the consumer's thread waits for records. A call that comes meanwhile waits for its end.
SLICE_MS: Final = 100
# A consumer without a group has no heartbeats to send between two polls, and a change of threads costs as much as some
# hundred records.
LARGE_CHUNK: Final = 16384


def arrival_of(delivery: Delivery) -> asyncio.Event:
    """Return the event of a batch in the running loop: its records wake the loop once, not each of them."""
    loop = asyncio.get_running_loop()
    event = delivery.arrivals.get(loop)
    if event is None:
        event = delivery.arrivals[loop] = asyncio.Event()
        delivery.when_done(partial(_call_in, loop, event.set))
    return event


def _call_in(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """Call a function in a loop, from any thread. A loop that was closed has no tasks that wait."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)


class AsyncProducer(AsyncIntake):
    """Sends records to topics from asyncio tasks. Tasks of any loop may send.

    Create one with `Store.async_producer`. Use it with `async with`, or close it. `sync` is the `Producer` that it
    sends with.
    """

    sync: Producer

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def send_and_wait(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> RecordMetadata:
        """Send a record, wait until it is written, and return where it is. Raises its error."""
        future = await self.send(topic, value, key=key, headers=headers, timestamp_ms=timestamp_ms, partition=partition)
        return await future

    def _next_progress(self) -> asyncio.Future[None]:
        """Return what is done when the sender has written its next batches."""
        loop = asyncio.get_running_loop()
        progress = loop.create_future()

        def arrive() -> None:
            if not progress.done():
                progress.set_result(None)

        self.sync._sender.at_progress(partial(_call_in, loop, arrive))
        return progress

    async def flush(self) -> None:
        """Send what is buffered and wait until it is written. Raises like `Producer.flush`."""
        sender = self.sync._sender
        awaited = sender.begin_flush()
        try:
            while True:
                progress = self._next_progress()
                if sender.is_flushed(awaited):
                    break
                await progress
        finally:
            sender.end_flush()
        self.sync.raise_unseen()

    async def close(self) -> None:
        """Flush, and stop the thread. Closing twice has no effect."""
        try:
            await self.flush()
        finally:
            self.sync.close()

    async def start(self) -> None:
        """Do nothing: a producer is ready when it exists. For code that was written for aiokafka."""

    async def stop(self) -> None:
        """Close, as aiokafka calls it."""
        await self.close()

    def metrics(self) -> dict[str, Any]:
        """Return what this producer has counted, as `Producer.metrics` does."""
        return self.sync.metrics()


class AsyncSerializingProducer(AsyncProducer):
    """An asyncio producer whose keys and values are serialized before they are sent."""

    def __init__(self, sync: Producer, *, key: Encode | None, value: Encode | None) -> None:
        super().__init__(sync)
        self._key = key
        self._value = value

    async def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> SendFuture:
        """Serialize a record, buffer it, and return its future, as `AsyncProducer.send` does."""
        if key is not None and self._key is not None:
            key = serialized(self._key, key, topic, "key")
        if value is not None and self._value is not None:
            value = serialized(self._value, value, topic, "value")
        return await super().send(
            topic, value, key=key, headers=headers, timestamp_ms=timestamp_ms, partition=partition
        )


class AsyncConsumer(Generic[AnyRecord]):
    """Reads records in asyncio tasks, in one task at a time. `async for record in consumer` reads on for ever.

    Create one with `Store.async_consumer`. Use it with `async with`, or close it. Records that were returned count as
    processed with the next call that reads, and an automatic commit may then cover them.
    """

    def __init__(self, sync: ConsumerBase[AnyRecord], *, max_poll_records: int, in_group: bool) -> None:
        self._sync = sync
        self._max_records = max_poll_records
        self._chunk_records = max_poll_records if in_group else max(max_poll_records, LARGE_CHUNK)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="seeklog-consumer")
        self._polling: asyncio.Future[list[AnyRecord]] | None = None
        """A poll whose records nobody has taken. A cancelled task leaves it to the next one."""
        self._stream = RecordStream(self._refilled)
        """Its records were read and not returned."""
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ------------------------------------------------------------ reading

    def __aiter__(self) -> AsyncIterator[AnyRecord]:
        return self._stream

    async def _refilled(self) -> AnyRecord:
        while True:
            await self._fill(None, self._chunk_records)
            for record in self._stream.records:
                return record

    async def getone(self) -> AnyRecord:
        """Return the next record, as soon as there is one."""
        return await anext(self._stream)

    async def poll(self, timeout_ms: float = 0, *, max_records: int | None = None) -> list[AnyRecord]:
        """Return the next records, waiting up to `timeout_ms` for the first, as `Consumer.poll` does."""
        limit = self._max_records if max_records is None else max_records
        records = self._take(limit)
        if not records:
            await self._fill(check_wait_ms("timeout_ms", timeout_ms), limit)
            records = self._take(limit)
        return records

    def _take(self, limit: int) -> list[AnyRecord]:
        return [record for _, record in zip(range(limit), self._stream.records, strict=False)]

    async def _fill(self, timeout_ms: float | None, max_records: int) -> None:
        """Read the next records. After a timeout there are none."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout_ms is None else loop.time() + timeout_ms / 1000
        while True:
            self._check_open()
            left_ms = float(SLICE_MS) if deadline is None else max(0.0, 1000 * (deadline - loop.time()))
            # A poll that was begun before did not wait for this deadline.
            is_last = deadline is not None and left_ms <= SLICE_MS and self._polling is None
            if self._polling is None:
                self._begin_poll(min(left_ms, SLICE_MS), max_records)
            records = await self._polled()
            if records or is_last:
                self._stream.records = iter(records)
                return

    def _begin_poll(self, timeout_ms: float, max_records: int) -> None:
        poll = partial(self._sync.poll, timeout_ms, max_records=max_records)
        self._polling = asyncio.get_running_loop().run_in_executor(self._thread, poll)

    async def _polled(self) -> list[AnyRecord]:
        """Return the records of the poll that was begun. A cancelled task leaves them to the next one."""
        assert self._polling is not None
        await asyncio.wait([self._polling])
        polled, self._polling = self._polling, None
        return polled.result()

    # ------------------------------------------------------------ everything else

    async def commit(self, offsets: Mapping[TopicPartition, int | tuple[int, str]] | None = None) -> None:
        """Commit the positions after the records that were returned, or the given offsets. Durable on return."""
        await self._call(partial(self._sync.commit, offsets))

    async def committed(self, partition: TopicPartition | tuple[str, int]) -> int | None:
        """Return the group's committed offset for a partition, or None."""
        return await self._call(partial(self._sync.committed, partition))

    async def position(self, partition: TopicPartition | tuple[str, int]) -> int:
        """Return the offset of the next record of a partition that will be returned."""
        return await self._call(partial(self._sync.position, partition))

    async def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read these partitions, as `Consumer.assign` does."""
        await self._call(partial(self._sync.assign, partitions))

    async def seek(self, partition: TopicPartition | tuple[str, int], *, offset: int) -> None:
        """Continue a partition at an offset."""
        await self._call(partial(self._sync.seek, partition, offset=offset))

    async def seek_to_beginning(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Continue the given partitions, or all, at their first record."""
        await self._call(partial(self._sync.seek_to_beginning, *partitions))

    async def seek_to_end(self, *partitions: TopicPartition | tuple[str, int]) -> None:
        """Continue the given partitions, or all, after their last record."""
        await self._call(partial(self._sync.seek_to_end, *partitions))

    async def assignment(self) -> Collection[TopicPartition]:
        """Return the partitions that are assigned."""
        return await self._call(lambda: self._sync.assignment)

    async def close(self, *, commit: bool = True) -> None:
        """Commit the positions if commits are automatic, and leave the group. Closing twice has no effect."""
        if not self._is_closed:
            try:
                await self._call(partial(self._sync.close, commit=commit))
            finally:
                self._is_closed = True
                self._thread.shutdown(wait=False)

    async def start(self) -> None:
        """Do nothing: a consumer is ready when it exists. For code that was written for aiokafka."""

    async def stop(self) -> None:
        """Close, as aiokafka calls it."""
        await self.close()

    def metrics(self) -> dict[str, Any]:
        """Return what this consumer has counted, as `Consumer.metrics` does."""
        return self._sync.metrics()

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogClosed("the consumer is closed")

    async def _call(self, function: Callable[[], Answer]) -> Answer:
        """Call a method of the consumer in its thread, at the position after the records that were returned.

        A cancelled task leaves the call running: a commit that has begun is finished.
        """
        self._check_open()
        if self._polling is not None:
            with contextlib.suppress(SeeklogError):  # the next poll meets it again
                records = await self._polled()
                self._stream.records = iter([*self._stream.records, *records])
        unread, self._stream.records = list(self._stream.records), iter(())
        call = partial(self._at_position, unread, function)
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._thread, call))

    def _at_position(self, unread: list[AnyRecord], function: Callable[[], Answer]) -> Answer:
        """Go back to the first records that were not returned, then call the function."""
        first: dict[TopicPartition, int] = {}
        for record in unread:
            first.setdefault(_partition_of(record), record.offset)
        for partition, offset in first.items():
            if partition in self._sync.assignment:
                self._sync.seek(partition, offset=offset)
        return function()


def _partition_of(record: Any) -> TopicPartition:
    return TopicPartition(record.topic, record.partition)
