"""A batch that grows by one record at a time. Each record is encoded when it is added, and never again.

The buffer has room for the header before the records. The header is written when the batch is finished: only then are
its offsets, its producer and its codec known.
"""

import cython
from cython import Py_ssize_t, bint, longlong
from cython.cimports.seeklog.record import layout
from cython.cimports.seeklog.record.encode import body_size_of, store_record, write_header
from cython.cimports.seeklog.record.layout import HEADER_SIZE, INT32_MAX
from cython.cimports.seeklog.record.primitives import (
    buffer_pointer,
    copy,
    finished,
    new_buffer,
    new_bytes,
    new_pointer,
    pointer,
    resize,
    varint_size,
    wrapped,
)
from cython.cimports.seeklog.record.record import UNSET, Record

from seeklog.errors import InvalidRecord, RecordTooLarge
from seeklog.record.codec import compress
from seeklog.record.decode import read_records
from seeklog.record.encode import encode_headers

# A batch of a quiet partition takes little memory, and one that fills doubles its buffer a few times.
FIRST_ROOM = 1024


@cython.final
@cython.cclass
class GrowingBatch:
    """Records that are encoded already, and will be one batch. One thread at a time may use it."""

    def __init__(self):
        self.size = HEADER_SIZE
        self.count = 0
        self.base_timestamp = layout.NO_TIMESTAMP
        self.min_timestamp = layout.INT64_MAX
        self.max_timestamp = layout.NO_TIMESTAMP
        self.has_null_key = False
        self.buffer = new_buffer(FIRST_ROOM)
        self.room = FIRST_ROOM

    def add(self, record: Record, now_ms: longlong, limit: Py_ssize_t):
        """Add a record unless it takes an uncompressed batch past `limit` bytes. Return its index, or -1.

        An empty batch takes any record. A record without a timestamp gets `now_ms`.
        """
        return self.put(
            now_ms if record.timestamp == UNSET else record.timestamp,
            record.key,
            record.value,
            encode_headers(record.headers) if record.headers else None,
            limit,
        )

    @cython.cfunc
    @cython.exceptval(-1)
    def fits(self, timestamp: longlong, key: object, value: object, headers: object, limit: Py_ssize_t) -> cython.int:
        """Return whether `put` would take a record."""
        if self.count == 0:
            return True
        body: Py_ssize_t = body_size_of(wrapped(timestamp - self.base_timestamp), self.count, key, value, headers)
        return varint_size(body) + body <= limit - self.size

    @cython.cfunc
    @cython.exceptval(-2)
    def put(self, timestamp: longlong, key: object, value: object, headers: object, limit: Py_ssize_t) -> longlong:
        """Add a record as `add` does. `headers` are encoded, or None. Raises for a wrong type; then nothing changes.

        Makes no Python object and runs no Python code, so a compiled caller is not interrupted by other threads.
        """
        count: longlong = self.count
        delta: longlong = wrapped(timestamp - self.base_timestamp) if count else 0
        body: Py_ssize_t = body_size_of(delta, count, key, value, headers)
        size: Py_ssize_t = varint_size(body) + body
        if size > limit - self.size and count:
            return -1
        if size > INT32_MAX - self.size:
            raise RecordTooLarge(f"a record of {size:,} bytes; the format holds at most 2 GiB")
        if size > self.room - self.size:
            self.grow(size)
        self.size = store_record(buffer_pointer(self.buffer), self.size, body, delta, count, key, value, headers)
        self.note(timestamp, key is None)
        return count

    @cython.cfunc
    @cython.exceptval(check=False)
    def note(self, timestamp: longlong, has_null_key: bint) -> cython.void:
        """Count a record that was stored."""
        if self.count == 0:
            self.base_timestamp = timestamp
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        if timestamp < self.min_timestamp:
            self.min_timestamp = timestamp
        if has_null_key:
            self.has_null_key = True
        self.count += 1

    @cython.cfunc
    @cython.exceptval(-1)
    def grow(self, size: Py_ssize_t) -> cython.int:
        room: Py_ssize_t = max(2 * self.room, self.size + size)
        resize(self.buffer, room)
        self.room = room
        return 0

    def finish(
        self,
        now_ms: longlong,
        base_offset: longlong,
        leader_epoch: longlong,
        attributes: longlong,
        producer: tuple,
    ):
        """Return the batch as bytes, as `finish_batches` does. It may be finished many times."""
        return finish_batches([self], now_ms, base_offset, leader_epoch, attributes, producer)[0]

    def records(self) -> list:
        """Return the records, decoded."""
        found: list = []
        raw = self.finish(0, 0, 0, 0, (-1, -1, -1))
        everything = layout.INT64_MAX
        read_records(raw, 0, 0, 0, True, 0, everything, everything, everything, everything, INT32_MAX, found)
        return found

    def split(self):
        """Return two batches with the first and the second half of the records."""
        halves = GrowingBatch(), GrowingBatch()
        records = self.records()
        for index, record in enumerate(records):
            halves[index >= len(records) // 2].add(record, layout.NO_TIMESTAMP, INT32_MAX)
        return halves


def finish_batches(
    batches: list,
    now_ms: longlong,
    base_offset: longlong,
    leader_epoch: longlong,
    attributes: longlong,
    producer: tuple,
):
    """Return (batches as bytes, the end position of the first, the size of the largest).

    They get consecutive offsets and sequences from those given, and are compressed with the codec in `attributes`. If
    the log-append-time bit is set there, `now_ms` is the time of every record.
    """
    batch: GrowingBatch
    codec: cython.int = attributes & layout.CODEC_MASK
    sequence: longlong = producer[2]
    total: Py_ssize_t = 0
    at: Py_ssize_t = 0
    size: Py_ssize_t
    first: Py_ssize_t = 0
    largest: Py_ssize_t = 0
    packed: list = []
    for batch in batches:
        if batch.count == 0:
            raise InvalidRecord("a batch needs at least one record")
        if codec:
            with memoryview(batch.buffer) as whole, whole[HEADER_SIZE : batch.size] as records:
                body: bytes = compress(codec, records)
            packed.append(body)
            total += HEADER_SIZE + len(body)
        else:
            total += batch.size
    joined = new_bytes(total)
    index: Py_ssize_t
    for index in range(len(batches)):
        batch = batches[index]
        if codec:
            body = packed[index]
            size = HEADER_SIZE + len(body)
            copy(new_pointer(joined), at + HEADER_SIZE, pointer(body), 0, len(body))
        else:
            size = batch.size
            copy(new_pointer(joined), at + HEADER_SIZE, buffer_pointer(batch.buffer), HEADER_SIZE, size - HEADER_SIZE)
        write_header(
            joined,
            at,
            size,
            base_offset,
            leader_epoch,
            attributes,
            batch.count - 1,
            batch.base_timestamp,
            now_ms if attributes & layout.LOG_APPEND_TIME else batch.max_timestamp,
            producer[0],
            producer[1],
            sequence,
            batch.count,
        )
        base_offset += batch.count
        if sequence >= 0:
            # 0 follows the largest sequence.
            sequence = (sequence + batch.count) & INT32_MAX
        at += size
        if index == 0:
            first = size
        largest = max(largest, size)
    return finished(joined), first, largest
