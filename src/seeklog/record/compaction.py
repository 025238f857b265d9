"""The part of compaction that copies batches, by Kafka's rules."""

import cython
from cython import Py_ssize_t, bint, longlong, p_uchar
from cython.cimports.seeklog.record import layout
from cython.cimports.seeklog.record.crc import crc_of
from cython.cimports.seeklog.record.cursor import RecordCursor
from cython.cimports.seeklog.record.layout import CONTROL, DELETE_HORIZON, GROUP, HEADER_SIZE, INT64_MAX, Place
from cython.cimports.seeklog.record.markers import report_batch
from cython.cimports.seeklog.record.offset_map import OffsetMap
from cython.cimports.seeklog.record.primitives import (
    buffer_pointer,
    copy,
    get_i64,
    load_i16,
    load_i64,
    new_buffer,
    pointer,
    put_i64,
    resize,
    store_i16,
    store_i32,
    store_i64,
    store_varint,
    varint_size,
    wrapped,
)

from seeklog.record.codec import compress


@cython.final
@cython.cclass
class BatchFilter:
    """Copies the batches and records that compaction keeps, by Kafka's rules. Unchanged batches are copied verbatim.

    A record stays if the map has no later offset for its key, or if its offset is above the mapped range; a record
    without a key is dropped. A tombstone stays until the delete horizon of its batch, which is set to
    `delete_retention_ms` from now when a batch with tombstones is first copied: attribute bit 6, with the horizon in
    the field of the base timestamp. A batch that loses all its records is dropped, unless it is its producer's last
    one (`last_offsets`), the only marker with its producer's epoch (`last_epochs`), or the last batch of the file: then
    its header stays. `last_offsets.get(producer_id, -1)` is called only for such batches. Offsets, sequences and the
    codec of a batch never change.
    """

    records_read = cython.declare(longlong, visibility="readonly")
    records_kept = cython.declare(longlong, visibility="readonly")
    keyless = cython.declare(longlong, visibility="readonly")
    """Records dropped because they have no key."""
    changed = cython.declare(bint, visibility="readonly")
    """Whether any batch was dropped or rewritten."""
    _tail: bytes
    _is_tail_bare: bint
    _map: OffsetMap
    _now_ms: longlong
    _delete_retention_ms: longlong
    _limit: Py_ssize_t
    _last_offsets: object
    _last_epochs: object
    _judge: object
    _out: bytearray
    _used: Py_ssize_t
    _kept: bytearray
    _cursor: RecordCursor
    _tombstones: longlong
    _newest: longlong

    def __init__(
        self,
        offset_map: OffsetMap,
        *,
        now_ms: longlong,
        delete_retention_ms: longlong,
        last_offsets,
        last_epochs,
        limit: Py_ssize_t,
        judge,
    ):
        self.records_read = 0
        self.records_kept = 0
        self.keyless = 0
        self.changed = False
        # The header of the last batch if it was dropped, for `finish`; and whether the batch was only a header before.
        self._tail = b""
        self._is_tail_bare = False
        self._map = offset_map
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._limit = limit
        self._last_offsets = last_offsets
        self._last_epochs = last_epochs
        self._judge = judge
        self._out = new_buffer(0)
        self._used = 0
        # For each kept record of a batch: its start, the start of its offset delta, its end, its timestamp.
        self._kept = new_buffer(0)
        self._cursor = RecordCursor.__new__(RecordCursor)
        self._tombstones = 0
        self._newest = layout.NO_TIMESTAMP

    def begin(self):
        """Start a file, and reset `changed`."""
        self.changed = False
        self._tail = b""
        self._used = 0

    def finish(self):
        """End a file: if its last batch was dropped, write its header, so that the file ends at the same offset."""
        if self._tail:
            self.changed = self.changed or not self._is_tail_bare
            self.write_bare(self._tail, 0)
            self._tail = b""

    def add_batches(self, data: bytes, at: Py_ssize_t, origin: longlong):
        """Process consecutive whole batches, checking every CRC; return the index after them."""
        cursor: RecordCursor = self._cursor
        cursor.begin(data, at, origin, 0, False)
        while cursor.next_batch():
            cursor.check()
            self.add_batch(cursor)
            cursor.advance()
        cursor.release()
        return cursor.at

    def take(self):
        """Return the batches copied so far, and clear the output."""
        if not self._used:
            return b""
        with memoryview(self._out) as view:
            taken = bytes(view[: self._used])
        self._used = 0
        return taken

    @cython.cfunc
    def reserve(self, size: Py_ssize_t) -> p_uchar:
        """Return a pointer to the output, with room for `size` more bytes."""
        if size > len(self._out) - self._used:
            resize(self._out, 2 * len(self._out) + size)
        return buffer_pointer(self._out)

    @cython.cfunc
    def add_batch(self, cursor: RecordCursor) -> cython.int:
        p: p_uchar = cursor.header
        at: Py_ssize_t = cursor.at
        attributes: cython.int = cursor.attributes
        base_timestamp: longlong = load_i64(p, at + layout.BASE_TIMESTAMP)
        producer: longlong = load_i64(p, at + layout.PRODUCER_ID)
        has_horizon: bint = (attributes & DELETE_HORIZON) != 0
        is_past_horizon: bint = has_horizon and base_timestamp <= self._now_ms
        discard: bint = False
        sets_horizon: bint = False
        kept: longlong = 0
        cursor.open(self._limit)
        if attributes & layout.TRANSACTIONAL_OR_CONTROL:
            discard = report_batch(cursor, self._judge)
            if attributes & CONTROL:
                # The marker of a transaction without records waits for its horizon, as a tombstone does.
                sets_horizon = discard
                discard = discard and is_past_horizon
        self.records_read += cursor.count
        if self._tail:
            self._tail = b""
            self.changed = True
        if not discard and cursor.count:
            kept = self.choose((attributes & CONTROL) != 0, is_past_horizon)
            sets_horizon = sets_horizon or self._tombstones > 0
        self.records_kept += kept
        is_bare: bint = cursor.count == 0 and cursor.size == HEADER_SIZE
        if kept:
            sets_horizon = sets_horizon and not has_horizon
            if kept == cursor.count and not sets_horizon:
                q: p_uchar = self.reserve(cursor.size)
                copy(q, self._used, p, at, cursor.size)
                self._used += cursor.size
                return 0
            max_timestamp: longlong = self._newest
            if attributes & layout.LOG_APPEND_TIME:
                max_timestamp = load_i64(p, at + layout.MAX_TIMESTAMP)
            if sets_horizon:
                attributes |= DELETE_HORIZON
                base_timestamp = self._now_ms + self._delete_retention_ms
            elif not has_horizon:
                base_timestamp = get_i64(buffer_pointer(self._kept), 3)
            self.write(cursor.data, at, cursor.body, attributes, base_timestamp, max_timestamp, kept)
        elif producer >= 0 and (
            self._last_offsets.get(producer, -1) == cursor.last_offset
            or (attributes & CONTROL and self._last_epochs.get(producer, -1) == load_i16(p, at + layout.PRODUCER_EPOCH))
        ):
            self.write_bare(cursor.data, at)
            if is_bare:
                return 0
        else:
            self._tail = cursor.data[at : at + HEADER_SIZE]
            self._is_tail_bare = is_bare
            return 0
        self.changed = True
        return 0

    @cython.cfunc
    def write_bare(self, data: bytes, at: Py_ssize_t) -> cython.int:
        """Write a batch as a header without records, and clear the fields that only records need: codec and horizon.

        The largest timestamp stays, as in Kafka.
        """
        p: p_uchar = pointer(data)
        attributes: cython.int = load_i16(p, at + layout.ATTRIBUTES) & ~(layout.CODEC_MASK | DELETE_HORIZON)
        return self.write(data, at, data, attributes, -1, load_i64(p, at + layout.MAX_TIMESTAMP), 0)

    @cython.cfunc
    def choose(self, is_control: bint, drops_tombstones: bint) -> longlong:
        """Select the records of the open batch that stay; return their number.

        Sets `_tombstones` and `_newest`, the largest timestamp, for the selected records.
        """
        cursor: RecordCursor = self._cursor
        places: cython.pointer(Place) = cursor.places
        latest: longlong = self._map.latest_offset
        found: cython.p_longlong = self._map.latest
        kept: longlong = 0
        number: Py_ssize_t
        self._tombstones = 0
        self._newest = layout.NO_TIMESTAMP
        while cursor.more:
            filled: Py_ssize_t = cursor.fill(GROUP, 0, INT64_MAX)
            if 32 * (kept + filled) > len(self._kept):
                resize(self._kept, 64 * (kept + filled))
            chosen: p_uchar = buffer_pointer(self._kept)
            if not is_control and filled and places[0].offset <= latest:
                self._map.look_up(cursor, filled)
            for number in range(filled):
                is_tombstone: bint = places[number].value_size < 0 and not is_control
                if not is_control and places[number].offset <= latest:
                    if places[number].key_size < 0:
                        self.keyless += 1
                        continue
                    if places[number].offset < found[number] or (is_tombstone and drops_tombstones):
                        continue
                put_i64(chosen, 4 * kept, places[number].start)
                put_i64(chosen, 4 * kept + 1, places[number].offset_at)
                put_i64(chosen, 4 * kept + 2, places[number].end)
                put_i64(chosen, 4 * kept + 3, places[number].timestamp_ms)
                kept += 1
                self._tombstones += is_tombstone
                self._newest = max(self._newest, places[number].timestamp_ms)
        return kept

    @cython.cfunc
    def write(
        self,
        data: bytes,
        at: Py_ssize_t,
        body: bytes,
        attributes: cython.int,
        base_timestamp: longlong,
        max_timestamp: longlong,
        kept: longlong,
    ) -> cython.int:
        """Rewrite a batch with the selected records."""
        source: p_uchar = pointer(data)
        p: p_uchar = pointer(body)
        places: p_uchar = buffer_pointer(self._kept)
        is_same_base: bint = base_timestamp == load_i64(source, at + layout.BASE_TIMESTAMP)
        codec: cython.int = attributes & layout.CODEC_MASK
        begin: Py_ssize_t = self._used
        q: p_uchar = self.reserve(HEADER_SIZE)
        index: longlong
        copy(q, begin, source, at, HEADER_SIZE)
        self._used = begin + HEADER_SIZE
        for index in range(kept):
            start: Py_ssize_t = get_i64(places, 4 * index)
            rest: Py_ssize_t = get_i64(places, 4 * index + 1)
            end: Py_ssize_t = get_i64(places, 4 * index + 2)
            # A new length and a new timestamp delta take at most 5 and 10 bytes.
            q = self.reserve(end - start + 16)
            if not is_same_base:
                delta: longlong = wrapped(get_i64(places, 4 * index + 3) - base_timestamp)
                self._used = store_varint(q, self._used, 1 + varint_size(delta) + end - rest)
                q[self._used] = 0
                self._used = store_varint(q, self._used + 1, delta)
                start = rest
            copy(q, self._used, p, start, end - start)
            self._used += end - start
        if codec and kept:
            with memoryview(self._out) as view:
                packed: bytes = compress(codec, view[begin + HEADER_SIZE : self._used])
            self._used = begin + HEADER_SIZE
            q = self.reserve(len(packed))
            copy(q, self._used, pointer(packed), 0, len(packed))
            self._used += len(packed)
        q = buffer_pointer(self._out)
        store_i32(q, begin + layout.BATCH_LENGTH, self._used - begin - layout.PREFIX_SIZE)
        store_i16(q, begin + layout.ATTRIBUTES, attributes)
        store_i64(q, begin + layout.BASE_TIMESTAMP, base_timestamp)
        store_i64(q, begin + layout.MAX_TIMESTAMP, max_timestamp)
        store_i32(q, begin + layout.RECORD_COUNT, kept)
        summed: Py_ssize_t = begin + layout.ATTRIBUTES
        store_i32(q, begin + layout.CRC, crc_of(q, summed, self._used - summed, 0))
        return 0
