"""What compaction keeps of batches, by Kafka's rules."""

import cython
from cython.cimports.seeklog.record.batch_header import check_batch, next_batch
from cython.cimports.seeklog.record.crc import crc_of
from cython.cimports.seeklog.record.cursor import RecordCursor
from cython.cimports.seeklog.record.layout import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    BATCH_LENGTH,
    CODEC_MASK,
    CONTROL,
    CRC,
    DELETE_HORIZON,
    GROUP,
    HEADER_SIZE,
    INT64_MAX,
    LAST_OFFSET_DELTA,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    PREFIX_SIZE,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    TRANSACTIONAL_OR_CONTROL,
    Place,
)
from cython.cimports.seeklog.record.markers import marker_type
from cython.cimports.seeklog.record.offset_map import OffsetMap
from cython.cimports.seeklog.record.primitives import (
    buffer_pointer,
    copy,
    get_i64,
    load_i16,
    load_i32,
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
from seeklog.record.layout import new_places


@cython.final
@cython.cclass
class BatchFilter:
    """Copies of batches what compaction keeps, by Kafka's rules. Batches that lose nothing are copied as they are.

    A record stays if the map has no later offset of its key, or if it lies behind what was mapped; one without key
    goes. A tombstone stays until the delete horizon of its batch, which is set `delete_retention_ms` ahead when a
    batch with tombstones is first copied: attribute bit 6, and the horizon in place of the base timestamp. A batch
    that loses all its records goes, unless it is the last of a producer (`last_offsets`), or a marker that alone tells
    the epoch of one (`last_epochs`), or the last of its file: then its header stays. Producers are asked for, by
    `last_offsets.get(producer_id, -1)`, only then. Offsets, sequences and the codec of a batch never change.
    """

    records_read = cython.declare(cython.longlong, visibility="readonly")
    records_kept = cython.declare(cython.longlong, visibility="readonly")
    keyless = cython.declare(cython.longlong, visibility="readonly")
    """Records that were dropped because they have no key."""
    changed = cython.declare(cython.bint, visibility="readonly")
    """Whether any batch was dropped or written anew."""
    _tail: bytearray
    _has_tail: cython.bint
    _is_tail_bare: cython.bint
    _map: OffsetMap
    _now_ms: cython.longlong
    _delete_retention_ms: cython.longlong
    _limit: cython.Py_ssize_t
    _last_offsets: object
    _last_epochs: object
    _judge: object
    _out: bytearray
    _used: cython.Py_ssize_t
    _kept: bytearray
    _room: cython.Py_ssize_t
    _cursor: RecordCursor
    _tombstones: cython.longlong
    _newest: cython.longlong

    def __init__(
        self,
        offset_map: OffsetMap,
        *,
        now_ms: cython.longlong,
        delete_retention_ms: cython.longlong,
        last_offsets,
        last_epochs,
        limit: cython.Py_ssize_t,
        judge,
    ):
        self.records_read = 0
        self.records_kept = 0
        self.keyless = 0
        self.changed = False
        # The header of the batch that went last, which `finish` brings back, and whether it had been no more before.
        self._tail = new_buffer(HEADER_SIZE)
        self._has_tail = False
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
        # Of each kept record of a batch: where it starts, where its offset delta starts, where it ends, its time.
        self._kept = new_buffer(32 * 64)
        self._room = 64
        self._cursor = RecordCursor.__new__(RecordCursor)
        self._tombstones = 0
        self._newest = NO_TIMESTAMP

    def begin(self):
        """Begin a file: it is not `changed` yet."""
        self.changed = False
        self._has_tail = False
        self._used = 0

    def finish(self):
        """End a file: if its last batch went, the header comes back, so that the file ends where it did."""
        if self._has_tail:
            self._has_tail = False
            self.changed = self.changed or not self._is_tail_bare
            self.write_bare(bytes(self._tail), 0)

    def add_batches(self, data: bytes, at: cython.Py_ssize_t, origin: cython.longlong):
        """Take consecutive whole batches, every CRC checked; return the index behind them."""
        p: cython.p_uchar = pointer(data)
        end: cython.Py_ssize_t = len(data)
        size: cython.Py_ssize_t
        while at < end:
            size = next_batch(p, at, end, 0, False, origin + at)
            if size == 0:
                break
            check_batch(data, p, at, size, origin + at)
            self.add_batch(data, at, size, origin + at)
            at += size
        self._cursor.release()
        return at

    def take(self):
        """Return the batches copied so far, and forget them."""
        if not self._used:
            return b""
        with memoryview(self._out) as view:
            taken = bytes(view[: self._used])
        self._used = 0
        return taken

    @cython.cfunc
    def reserve(self, size: cython.Py_ssize_t) -> cython.p_uchar:
        """Return where the output starts, with room for `size` more bytes."""
        if size > len(self._out) - self._used:
            resize(self._out, 2 * len(self._out) + size)
        return buffer_pointer(self._out)

    @cython.cfunc
    def add_batch(
        self, data: bytes, at: cython.Py_ssize_t, size: cython.Py_ssize_t, position: cython.longlong
    ) -> cython.int:
        p: cython.p_uchar = pointer(data)
        attributes: cython.int = load_i16(p, at + ATTRIBUTES)
        last: cython.longlong = load_i64(p, at + BASE_OFFSET) + load_i32(p, at + LAST_OFFSET_DELTA)
        base_timestamp: cython.longlong = load_i64(p, at + BASE_TIMESTAMP)
        max_timestamp: cython.longlong = load_i64(p, at + MAX_TIMESTAMP)
        producer: cython.longlong = load_i64(p, at + PRODUCER_ID)
        count: cython.longlong = load_i32(p, at + RECORD_COUNT)
        has_horizon: cython.bint = (attributes & DELETE_HORIZON) != 0
        horizon: cython.longlong = base_timestamp if has_horizon else INT64_MAX
        discard: cython.bint = False
        sets_horizon: cython.bint = False
        kept: cython.longlong = 0
        newest: cython.longlong
        cursor: RecordCursor = self._cursor
        cursor.open(data, at, size, position, self._limit)
        if attributes & TRANSACTIONAL_OR_CONTROL:
            marker = marker_type(cursor) if attributes & CONTROL else -1
            cursor.rewind()
            discard = self._judge(load_i64(p, at + BASE_OFFSET), last, attributes, producer, marker)
            if attributes & CONTROL:
                # A marker whose transaction has no records left waits for its horizon, as a tombstone does.
                sets_horizon = discard
                discard = discard and has_horizon and horizon <= self._now_ms
        self.records_read += count
        if self._has_tail:
            self._has_tail = False
            self.changed = True
        if not discard and count:
            kept = self.choose(attributes, has_horizon and horizon <= self._now_ms)
            sets_horizon = sets_horizon or self._tombstones > 0
        self.records_kept += kept
        if kept:
            sets_horizon = sets_horizon and not has_horizon
            if kept == count and not sets_horizon:
                q = self.reserve(size)
                copy(q, self._used, p, at, size)
                self._used += size
                return 0
            if sets_horizon:
                attributes |= DELETE_HORIZON
                base_timestamp = self._now_ms + self._delete_retention_ms
            elif not has_horizon:
                base_timestamp = get_i64(buffer_pointer(self._kept), 3)
            newest = max_timestamp if attributes & LOG_APPEND_TIME else self._newest
            self.write(data, at, cursor.body, attributes, base_timestamp, newest, kept)
        elif producer >= 0 and (
            self._last_offsets.get(producer, -1) == last
            or (attributes & CONTROL and self._last_epochs.get(producer, -1) == load_i16(p, at + PRODUCER_EPOCH))
        ):
            self.write_bare(data, at)
            if count == 0 and size == HEADER_SIZE:
                return 0
        else:
            copy(buffer_pointer(self._tail), 0, p, at, HEADER_SIZE)
            self._has_tail = True
            self._is_tail_bare = count == 0 and size == HEADER_SIZE
            return 0
        self.changed = True
        return 0

    @cython.cfunc
    def write_bare(self, data: bytes, at: cython.Py_ssize_t) -> cython.int:
        """Write the header of a batch without its records, and without what only they need: codec and horizon.

        The largest timestamp stays, as in Kafka.
        """
        p: cython.p_uchar = pointer(data)
        attributes: cython.int = load_i16(p, at + ATTRIBUTES) & ~(CODEC_MASK | DELETE_HORIZON)
        return self.write(data, at, data, attributes, -1, load_i64(p, at + MAX_TIMESTAMP), 0)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def choose(self, attributes: cython.int, drops_tombstones: cython.bint) -> cython.longlong:
        """Note which records of the open batch stay; return how many.

        Tombstones among them, and the newest time, stand in `_tombstones` and `_newest`.
        """
        cursor: RecordCursor = self._cursor
        is_control: cython.bint = (attributes & CONTROL) != 0
        latest: cython.longlong = self._map.latest_offset
        found: cython.p_longlong = self._map.latest
        kept: cython.longlong = 0
        filled: cython.Py_ssize_t
        number: cython.Py_ssize_t
        chosen: cython.p_uchar
        places: Place[GROUP]
        if not cython.compiled:
            places = new_places()
        self._tombstones = 0
        self._newest = NO_TIMESTAMP
        while cursor.more:
            filled = cursor.fill(places, GROUP, 0, INT64_MAX)
            if filled == 0:
                break
            if kept + filled > self._room:
                self._room = 2 * (kept + filled)
                resize(self._kept, 32 * self._room)
            chosen = buffer_pointer(self._kept)
            if not is_control and places[0].offset <= latest:
                self._map.look_up(cursor.p, places, filled)
            for number in range(filled):
                if not is_control and places[number].offset <= latest:
                    if places[number].key_size < 0:
                        self.keyless += 1
                        continue
                    if places[number].value_size < 0 and drops_tombstones:
                        continue
                    if places[number].offset < found[number]:
                        continue
                put_i64(chosen, 4 * kept, places[number].start)
                put_i64(chosen, 4 * kept + 1, places[number].offset_at)
                put_i64(chosen, 4 * kept + 2, places[number].end)
                put_i64(chosen, 4 * kept + 3, places[number].timestamp_ms)
                kept += 1
                if places[number].value_size < 0 and not is_control:
                    self._tombstones += 1
                if places[number].timestamp_ms > self._newest:
                    self._newest = places[number].timestamp_ms
        return kept

    @cython.cfunc
    def write(
        self,
        data: bytes,
        at: cython.Py_ssize_t,
        body: bytes,
        attributes: cython.int,
        base_timestamp: cython.longlong,
        max_timestamp: cython.longlong,
        kept: cython.longlong,
    ) -> cython.int:
        """Write a batch anew with the records that were chosen."""
        source: cython.p_uchar = pointer(data)
        p: cython.p_uchar = pointer(body)
        places: cython.p_uchar = buffer_pointer(self._kept)
        is_same_base: cython.bint = base_timestamp == load_i64(source, at + BASE_TIMESTAMP)
        codec: cython.int = attributes & CODEC_MASK
        begin: cython.Py_ssize_t = self._used
        q: cython.p_uchar
        index: cython.longlong
        start: cython.Py_ssize_t
        rest: cython.Py_ssize_t
        end: cython.Py_ssize_t
        delta: cython.longlong
        body_size: cython.Py_ssize_t
        q = self.reserve(HEADER_SIZE)
        copy(q, begin, source, at, HEADER_SIZE)
        self._used = begin + HEADER_SIZE
        for index in range(kept):
            start = get_i64(places, 4 * index)
            rest = get_i64(places, 4 * index + 1)
            end = get_i64(places, 4 * index + 2)
            # A new length and a new timestamp delta take at most 5 and 10 bytes.
            q = self.reserve(end - start + 16)
            if is_same_base:
                copy(q, self._used, p, start, end - start)
                self._used += end - start
                continue
            delta = wrapped(get_i64(places, 4 * index + 3) - base_timestamp)
            body_size = 1 + varint_size(delta) + end - rest
            self._used = store_varint(q, self._used, body_size)
            q[self._used] = 0
            self._used = store_varint(q, self._used + 1, delta)
            copy(q, self._used, p, rest, end - rest)
            self._used += end - rest
        if codec and kept:
            with memoryview(self._out) as view:
                packed: bytes = compress(codec, view[begin + HEADER_SIZE : self._used])
            self._used = begin + HEADER_SIZE
            q = self.reserve(len(packed))
            copy(q, self._used, pointer(packed), 0, len(packed))
            self._used += len(packed)
        q = buffer_pointer(self._out)
        store_i32(q, begin + BATCH_LENGTH, self._used - begin - PREFIX_SIZE)
        store_i16(q, begin + ATTRIBUTES, attributes)
        store_i64(q, begin + BASE_TIMESTAMP, base_timestamp)
        store_i64(q, begin + MAX_TIMESTAMP, max_timestamp)
        store_i32(q, begin + RECORD_COUNT, kept)
        store_i32(q, begin + CRC, crc_of(self._out, q, begin + ATTRIBUTES, self._used - begin - ATTRIBUTES, 0))
        return 0
