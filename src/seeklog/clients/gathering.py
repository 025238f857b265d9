"""The way of one record from `send` to the batch of its partition, compiled.

A record is encoded straight into the batch that its lane is filling. Compiled, the common case runs without Python code
from its first look at the lane to the last byte, so no other thread can come between, and it takes no lock. Everything
else holds the lock: beginning a batch, waiting for room, closing. Interpreted, every record holds the lock.

Threads: any thread may put records. `lane.gathering = None` closes the batch of a lane, in one step, for all of them.
"""

import logging
import random
import threading
from collections import deque

import cython
from cython import Py_ssize_t, bint, longlong
from cython.cimports.seeklog.record.encode import field_size
from cython.cimports.seeklog.record.growing import GrowingBatch
from cython.cimports.seeklog.record.key_hash import murmur2_at
from cython.cimports.seeklog.record.layout import HEADER_SIZE
from cython.cimports.seeklog.record.primitives import pointer
from cython.cimports.seeklog.record.record import UNSET, Record, as_bytes, checked_timestamp, header_tuple

from seeklog.arguments import check_offset, shown
from seeklog.clock import check_timeout_s, nanoseconds_of
from seeklog.errors import InvalidRecord, TopicNotFound
from seeklog.names import RecordMetadata
from seeklog.record.encode import encode_headers
from seeklog.record.key_hash import partition_of

logger = logging.getLogger("seeklog")

# What a record takes in any batch besides its fields: length 5, attributes 1, timestamp delta 10, offset delta 5,
# count of headers 1.
RECORD_OVERHEAD = 22
# A caller with many records waits for the sender at this point: it would only take the processor from it, and what is
# encoded leaves the processor's cache.
FAR_BEHIND_BYTES = 2 << 20


@cython.final
@cython.cclass
class Lane:
    """The queue of batches for one log. `partition` is None for a log that is not part of a store."""

    name = cython.declare(str, visibility="readonly")
    destination = cython.declare(object, visibility="public")
    partition = cython.declare(object, visibility="readonly")
    number = cython.declare(longlong, visibility="readonly")
    batch_bytes = cython.declare(Py_ssize_t, visibility="public")
    bulk_bytes = cython.declare(Py_ssize_t, visibility="public")
    gathering = cython.declare("Gathering", visibility="public")
    failure = cython.declare(object, visibility="public")

    def __init__(self, name, destination, *, batch_bytes: Py_ssize_t, partition=None):
        self.name = name
        self.destination = destination
        self.partition = partition
        self.number = -1 if partition is None else partition[1]
        self.batch_bytes = batch_bytes
        # For records that are all there: larger batches compress better and cost less.
        self.bulk_bytes = batch_bytes
        self.gathering = None
        # The error that stopped the log permanently. The lane accepts no more records.
        self.failure = None


@cython.final
@cython.cclass
class Gathering:
    """A batch that is being filled or is waiting to be appended."""

    lane = cython.declare(Lane, visibility="readonly")
    batch = cython.declare(GrowingBatch, visibility="readonly")
    deadline = cython.declare(cython.double, visibility="readonly")
    delivery = cython.declare(object, visibility="readonly")

    def __init__(self, lane: Lane, deadline: cython.double, batch: GrowingBatch | None = None):
        self.lane = lane
        self.batch = GrowingBatch() if batch is None else batch
        self.deadline = deadline
        self.delivery = Delivery()


class Delivery:
    """The outcome of one batch, shared by the futures of its records.

    It is done with one assignment. An event exists only while a caller waits for it.
    """

    __slots__ = ("_callbacks", "_done", "_lock", "arrivals", "errors", "observed", "offsets")

    def __init__(self):
        # The event of each asyncio loop in which tasks wait for it.
        self.arrivals = {}
        self._lock = threading.Lock()
        self._done = None
        # None once it is done.
        self._callbacks = []
        # Indexes of the records whose outcome a caller has asked for.
        self.observed = set()
        self.offsets = ()
        self.errors = {}

    @property
    def is_done(self):
        return self._callbacks is None

    def finish(self, offsets, errors):
        """Complete the futures of the batch and run their callbacks in this thread.

        `errors` maps the indexes of failed records to their errors.
        """
        with self._lock:
            self.offsets, self.errors = offsets, errors
            callbacks, self._callbacks = self._callbacks, None
            if self._done is not None:
                self._done.set()
        for callback in callbacks or ():
            try:
                callback()
            except BaseException:  # even `sys.exit`: it must not end the thread that serves all other records
                logger.exception("a callback of an append failed")

    def abandon(self, error, count):
        """Fail every record in a forked child, without its callbacks. A thread of the parent may hold the lock."""
        self._lock = threading.Lock()
        self._callbacks = None
        self.errors = dict.fromkeys(range(count), error)

    def wait(self, timeout):
        """Wait up to `timeout` seconds until it is done, then raise `TimeoutError`."""
        timeout = check_timeout_s("timeout", timeout)
        with self._lock:
            if self._callbacks is None:
                return
            if self._done is None:
                self._done = threading.Event()
        if not self._done.wait(timeout):
            raise TimeoutError("the record was not written in time; wait again, or pass a longer timeout")

    def when_done(self, callback):
        with self._lock:
            if self._callbacks is not None:
                self._callbacks.append(callback)
                return
        callback()


# A batch drops the callbacks of its futures when it is done, and with them the only cycles through a future.
@cython.no_gc
@cython.freelist(256)
@cython.cclass
class Future:
    """The outcome of one record."""

    _lane: Lane
    _delivery: object
    _index: Py_ssize_t

    def done(self):
        """Return whether the record was written or has failed."""
        return self._delivery.is_done

    def exception(self, timeout=None):
        """Return the error, or None if the record is written. Waits up to `timeout` seconds, then `TimeoutError`."""
        self._delivery.observed.add(self._index)
        self._delivery.wait(timeout)
        return self._delivery.errors.get(self._index)

    def add_done_callback(self, callback):
        """Call `callback(future)` when it is done: in the sender's thread, or immediately if it is done already."""
        self._delivery.observed.add(self._index)
        self._delivery.when_done(lambda: callback(self))

    def __await__(self):
        """Wait in an asyncio task, and return or raise what `result` does. Cancelling the task cancels no record."""
        if not self._delivery.is_done:
            self._delivery.observed.add(self._index)
            from seeklog.clients.asynchronous import arrival_of

            yield from arrival_of(self._delivery).wait().__await__()
        return self.result()

    def _offset(self, timeout):
        if timeout is not None or not self._delivery.is_done or self._delivery.errors:
            error = self.exception(timeout)
            if error is not None:
                raise error
        return self._delivery.offsets[self._index]


@cython.final
@cython.no_gc
@cython.cclass
class AppendFuture(Future):
    """The future offset of one record."""

    def result(self, timeout=None):
        """Return the record's offset, waiting up to `timeout` seconds. Raises the append's error, or `TimeoutError`."""
        return self._offset(timeout)


@cython.final
@cython.no_gc
@cython.cclass
class SendFuture(Future):
    """The future position of one record."""

    @property
    def partition(self):
        """The partition chosen for the record."""
        return self._lane.partition.partition

    def result(self, timeout=None):
        """Return where the record is, waiting up to `timeout` seconds. Raises the send's error, or `TimeoutError`."""
        topic, partition = self._lane.partition
        return RecordMetadata(topic, partition, self._offset(timeout))


@cython.cfunc
@cython.exceptval(-1)
def bound_of(key: object, value: object, headers: object) -> longlong:
    """Return an upper bound of a record's size, or raise for a wrong type. `headers` are encoded, or None."""
    bound: longlong = RECORD_OVERHEAD + field_size("key", key) + field_size("value", value)
    return bound if headers is None else bound + len(cython.cast(bytes, headers))


@cython.cclass
class Gatherer:
    """Gathers records into batches: the part of a `Sender` that callers run. The lock guards the queues.

    A subclass has `_wait_for_room`, which returns when the buffer has room or may not wait.
    """

    buffered = cython.declare(longlong, visibility="readonly")
    buffer_bytes = cython.declare(longlong, visibility="readonly")
    _refusal = cython.declare(object, visibility="public")
    _linger = cython.declare(cython.double, visibility="public")
    _lock = cython.declare(object, visibility="public")
    _ready = cython.declare(object, visibility="public")
    _begun = cython.declare(object, visibility="public")
    _full = cython.declare(object, visibility="public")
    _outstanding = cython.declare(set, visibility="public")
    _monotonic: object

    def __init__(self, monotonic, *, linger_s: cython.double, buffer_bytes: longlong):
        self._monotonic = monotonic
        self._linger = linger_s
        self.buffered = 0
        self.buffer_bytes = buffer_bytes
        # Reentrant: the garbage collector may close a dropped owner while this thread holds the lock.
        self._lock = threading.RLock()
        self._ready = threading.Condition(self._lock)
        # Ordered by the time they were begun, and so by deadline. Some are full and in `_full` as well.
        self._begun = deque()
        self._full = deque()
        self._outstanding = set()
        # What `put` raises; None while the sender is open.
        self._refusal = None

    def put(self, lane: Lane, value, key, headers, timestamp: longlong):
        """Add a record of a log to a batch, and return its future. Waits while the buffer is full."""
        future: AppendFuture = AppendFuture.__new__(AppendFuture)
        pairs: tuple = header_tuple(headers)
        encoded: object = encode_headers(pairs) if pairs else None
        key, value = as_bytes(key), as_bytes(value)
        self.put_record(lane, key, value, encoded, timestamp, bound_of(key, value, encoded), future)
        return future

    @cython.cfunc
    def put_record(
        self,
        lane: Lane,
        key: object,
        value: object,
        headers: object,
        timestamp: longlong,
        bound: longlong,
        future: Future,
    ) -> Gathering:
        """Add a record of at most `bound` bytes to the batch of a lane, and bind its future. `headers` are encoded."""
        gathering: Gathering = lane.gathering
        batch: GrowingBatch
        before: Py_ssize_t
        index: longlong
        if (
            cython.compiled
            and gathering is not None
            and self._refusal is None
            and lane.failure is None
            and self.buffered + bound <= self.buffer_bytes
        ):
            batch = gathering.batch
            before = batch.size
            index = batch.put(timestamp, key, value, headers, lane.batch_bytes)
            if index >= 0:
                self.buffered += batch.size - before
                future._lane = lane
                future._delivery = gathering.delivery
                future._index = index
                return gathering
        with self._lock:
            self._admit(lane, bound, self.buffer_bytes)
            while True:
                gathering = lane.gathering
                if gathering is not None:
                    batch = gathering.batch
                    before = batch.size
                    index = batch.put(timestamp, key, value, headers, lane.batch_bytes)
                    if index >= 0:
                        break
                self._begin(lane, None)
            self.buffered += batch.size - before
            future._lane = lane
            future._delivery = gathering.delivery
            future._index = index
        return gathering

    @cython.cfunc
    def _admit(self, lane: Lane, size: longlong, limit: longlong):
        """Wait for room below `limit`, and raise if the lane or the sender takes no more records. Holds the lock."""
        if self.buffered + size > limit and self.buffered:
            self._wait_for_room(lane, size, limit)
        if lane.failure is not None:
            raise lane.failure
        if self._refusal is not None:
            raise type(self._refusal)(*self._refusal.args) from self._refusal.__cause__

    @cython.cfunc
    def _begin(self, lane: Lane, batch: GrowingBatch | None) -> Gathering:
        """Close the batch of a lane as full, and begin the next one; with `batch`, that is whole at once."""
        gathering: Gathering = Gathering(lane, self._monotonic() + self._linger, batch)
        full: Gathering = lane.gathering
        # No Python code runs between these steps, so an interrupt finds either none of them done or all.
        self._outstanding.add(gathering)
        if full is not None:
            self._full.append(full)
        if batch is None:
            self._begun.append(gathering)
            lane.gathering = gathering
        else:
            self._full.append(gathering)
            lane.gathering = None
            self.buffered += batch.size - HEADER_SIZE
        self._ready.notify()
        return gathering

    def put_batch(self, lane: Lane, batch: GrowingBatch):
        """Queue a whole batch, and return its delivery. Waits while the buffer is full, or the sender far behind."""
        with self._lock:
            self._admit(lane, batch.size - HEADER_SIZE, min(self.buffer_bytes, FAR_BEHIND_BYTES))
            return self._begin(lane, batch).delivery

    def release(self, batches):
        """Free the room of batches. Holds the lock."""
        gathering: Gathering
        for gathering in batches:
            self.buffered -= gathering.batch.size - HEADER_SIZE


@cython.final
@cython.cclass
class Route:
    """The lanes to one topic's partitions."""

    topic = cython.declare(str, visibility="readonly")
    version = cython.declare(longlong, visibility="readonly")
    count = cython.declare(longlong, visibility="readonly")
    needs_key = cython.declare(bint, visibility="readonly")
    timestamps = cython.declare(object, visibility="readonly")
    lanes = cython.declare(dict, visibility="readonly")
    _checked_up_to: longlong
    _accepted_up_to: longlong
    _by_number: list
    _sticky: Lane
    _sticky_gathering: Gathering

    def __init__(self, topic, lanes, *, count: longlong, version: longlong, needs_key: bint, timestamps):
        """`lanes` are those of the partitions that exist, `count` is the number of partitions that keys map to."""
        self.topic = topic
        self.version = version
        self.count = count
        self.needs_key = needs_key
        self.timestamps = timestamps
        self._checked_up_to = timestamps.checked_up_to
        self._accepted_up_to = timestamps.accepted_up_to
        self.lanes = lanes
        self._by_number = [lanes.get(number) for number in range(count)]
        self._sticky = self._other_lane(None)
        self._sticky_gathering = None

    def lane_to(self, partition):
        """Return the lane to a partition, or raise `TopicNotFound`."""
        lane = self.lanes.get(partition) if isinstance(partition, int) else None
        if lane is None:
            there = ", ".join(map(str, self.lanes))
            raise TopicNotFound(f"topic {self.topic!r} has no partition {shown(partition)} here; it has {there}")
        return lane

    @cython.cfunc
    def _other_lane(self, than: Lane | None) -> Lane:
        lanes: list = list(self.lanes.values())
        return random.choice([lane for lane in lanes if lane is not than] or lanes)


@cython.cclass
class Intake:
    """What a producer does for each record. `Producer` adds everything else."""

    _sender = cython.declare(Gatherer, visibility="public")
    _routes = cython.declare(dict, visibility="public")
    _topics = cython.declare(object, visibility="public")
    _partition_of = cython.declare(object, visibility="public")
    _now_ms = cython.declare(object, visibility="public")
    _now_ns: object
    _hashes: bint

    def __init__(self, sender: Gatherer, topics, *, partitioner, clock):
        self._sender = sender
        self._routes = {}
        self._topics = topics
        self._partition_of = partitioner
        self._hashes = partitioner is partition_of
        self._now_ms = clock.now_ms
        self._now_ns = nanoseconds_of(clock)

    @cython.cfunc
    @cython.exceptval(-2)
    def _now(self) -> longlong:
        nanoseconds: longlong
        if self._now_ns is None:
            return self._now_ms()
        nanoseconds = self._now_ns()
        return nanoseconds // 1000000

    def send(self, topic, value, *, key=None, headers=(), timestamp_ms=None, partition=None):
        """Buffer a record and return its future. Waits while the buffer is full.

        An invalid record or an unknown topic raises here. A later error is in the future. The topic's setting `flush`
        determines how durable the record is when its future is done.
        """
        return self._send(topic, value, key, headers, timestamp_ms, partition, True)

    @cython.cfunc
    def _send(
        self,
        topic: object,
        value: object,
        key: object,
        headers: object,
        timestamp_ms: object,
        partition: object,
        waits: bint,
    ) -> SendFuture:
        """Send as `send` does. Unless it `waits`, return None if there is no room."""
        future: SendFuture = SendFuture.__new__(SendFuture)
        timestamp: longlong = self._now() if timestamp_ms is None else checked_timestamp(timestamp_ms)
        lane: Lane
        encoded: object = None
        if not isinstance(headers, tuple) or headers:
            pairs: tuple = header_tuple(headers)
            encoded = encode_headers(pairs) if pairs else None
        if key is not None and not isinstance(key, bytes):
            key = as_bytes(key)
        if value is not None and not isinstance(value, bytes):
            value = as_bytes(value)
        bound: longlong = bound_of(key, value, encoded)
        if not waits and self._sender.buffered and self._sender.buffered + bound > self._sender.buffer_bytes:
            return None
        route: Route = self._route_to(topic)
        if timestamp_ms is not None and not route._checked_up_to < timestamp <= route._accepted_up_to:
            route.timestamps.check(None, timestamp)
        if key is None and route.needs_key:
            raise InvalidRecord(f"topic {topic!r} is compacted: a record needs a key; nothing was written")
        if partition is None:
            if key is None:
                self._send_keyless(route, value, encoded, timestamp, bound, future)
                return future
            lane = self._lane_of(route, key)
        else:
            if type(partition) is not int:
                partition = check_offset(partition, name="partition")
            lane = route.lane_to(partition)
        self._sender.put_record(lane, key, value, encoded, timestamp, bound, future)
        return future

    def _route_of(self, topic):
        return self._route_to(topic)

    def _send_each(self, topic, records, partition, sent):
        """Encode records into batches of their partitions. Queue each that is full, and add it to `sent`.

        After an error the records before it are queued.
        """
        timestamp: longlong
        index: longlong = 0
        number: longlong = -1
        record: Record
        lane: Lane
        keyless: Lane = None
        batch: GrowingBatch
        route: Route = self._route_to(topic)
        now: longlong = self._now()
        is_given: bint = partition is not None
        batches: list = [None] * route.count
        if is_given:
            lane = route.lane_to(check_offset(partition, name="partition"))
            number = lane.number
        try:
            for item in records:
                if not isinstance(item, Record):
                    raise InvalidRecord(f"item {index} is {type(item).__name__}, not a Record")
                record = item
                timestamp = now
                if record.timestamp != UNSET:
                    timestamp = record.timestamp
                    if not route._checked_up_to < timestamp <= route._accepted_up_to:
                        route.timestamps.check(index, timestamp)
                if record.key is None:
                    if route.needs_key:
                        raise InvalidRecord(f"topic {topic!r} is compacted: record {index} needs a key")
                    if not is_given:
                        if keyless is None:
                            keyless = route._other_lane(None)
                        number = keyless.number
                elif not is_given:
                    field_size("key", record.key)
                    number = self._lane_of(route, record.key).number
                encoded: object = encode_headers(record.headers) if record.headers else None
                batch = batches[number]
                if batch is None:
                    batch = GrowingBatch()
                    batches[number] = batch
                lane = route._by_number[number]
                if batch.put(timestamp, record.key, record.value, encoded, lane.bulk_bytes) < 0:
                    sent.add(lane.number, self._sender.put_batch(lane, batch), batch.count)
                    batch = GrowingBatch()
                    # There are many records, so the next batch will be full, too.
                    batch.grow(lane.bulk_bytes)
                    batches[number] = batch
                    batch.put(timestamp, record.key, record.value, encoded, lane.bulk_bytes)
                    keyless = None
                index += 1
        except InvalidRecord as error:
            error.add_note(f"It is record {index} of those given. The records before it are sent.")
            raise
        finally:
            for number in range(route.count):
                batch = batches[number]
                if batch is not None and batch.count:
                    sent.add(number, self._sender.put_batch(route._by_number[number], batch), batch.count)

    @cython.cfunc
    def _route_to(self, topic: object) -> Route:
        route: Route = self._routes.get(topic)
        if route is None or route.version != self._topics.version:
            route = self._find_route(topic)
        return route

    @cython.cfunc
    def _lane_of(self, route: Route, key: bytes) -> Lane:
        """Return the lane to the partition of a key."""
        lane: Lane = None
        if self._hashes:
            lane = route._by_number[(murmur2_at(pointer(key), 0, len(key)) & 0x7FFFFFFF) % route.count]
            if lane is not None:
                return lane
        return route.lane_to(self._partition_of(key, route.count))

    @cython.cfunc
    def _send_keyless(
        self,
        route: Route,
        value: object,
        headers: object,
        timestamp: longlong,
        bound: longlong,
        future: SendFuture,
    ) -> cython.int:
        """Send a record without a key: to the partition of the last one while its batch has room."""
        lane: Lane = route._sticky
        gathering: Gathering = lane.gathering
        if (
            gathering is None
            or gathering is not route._sticky_gathering
            or not gathering.batch.fits(timestamp, None, value, headers, lane.batch_bytes)
        ):
            lane = route._other_lane(lane)
            route._sticky = lane
        route._sticky_gathering = self._sender.put_record(lane, None, value, headers, timestamp, bound, future)
        return 0


@cython.cclass
class AsyncIntake:
    """What an asyncio producer does for each record. `AsyncProducer` adds everything else."""

    sync = cython.declare(Intake, visibility="readonly")

    def __init__(self, sync: Intake):
        self.sync = sync

    async def send(self, topic, value, *, key=None, headers=(), timestamp_ms=None, partition=None):
        """Buffer a record and return its future, which can be awaited. Waits while the buffer is full.

        An invalid record or an unknown topic raises here. If it is cancelled while it waits, nothing was sent.
        """
        future: SendFuture = self.sync._send(topic, value, key, headers, timestamp_ms, partition, False)
        while future is None:
            # Before the next attempt, so that no progress goes unnoticed between the two.
            progress = self._next_progress()
            future = self.sync._send(topic, value, key, headers, timestamp_ms, partition, False)
            if future is None:
                await progress
        return future


@cython.final
@cython.cclass
class RecordStream:
    """An asynchronous iterator for one task.

    `refill` is a coroutine function: it reads more records into `records`, an iterator, and returns the first of them.
    """

    records = cython.declare(object, visibility="public")
    _refill: object

    def __init__(self, refill):
        self.records = iter(())
        self._refill = refill

    def __aiter__(self):
        return self

    async def __anext__(self):
        record = next(self.records, None)
        return await self._refill() if record is None else record
