"""Batches decoded to the columns of an Arrow batch."""

import cython
from cython.cimports.seeklog.record.batch_header import check_batch, check_crc, next_batch
from cython.cimports.seeklog.record.cursor import RecordCursor, record_error
from cython.cimports.seeklog.record.layout import (
    ATTRIBUTES_LOW,
    BASE_OFFSET,
    CONTROL,
    GROUP,
    LAST_OFFSET_DELTA,
    LOG_APPEND_TIME,
    RECORD_COUNT,
    Place,
)
from cython.cimports.seeklog.record.primitives import (
    buffer_pointer,
    copy,
    get_i32,
    load_i32,
    load_i64,
    load_varint,
    new_buffer,
    pointer,
    put_i32,
    put_i64,
    resize,
)

from seeklog.record.layout import new_places


@cython.final
@cython.cclass
class BytesColumn:
    """A column of byte strings as Arrow lays it out: int32 ends, bytes, and one bit per row for "not null".

    It grows as rows come: only the bytes really used are ever touched.
    """

    ends: bytearray
    data: bytearray
    valid: bytearray
    rows: cython.Py_ssize_t
    used: cython.Py_ssize_t
    null_count: cython.Py_ssize_t
    _row_capacity: cython.Py_ssize_t
    _data_capacity: cython.Py_ssize_t
    _ends: cython.p_uchar
    _data: cython.p_uchar
    _valid: cython.p_uchar

    def __init__(self, rows: cython.Py_ssize_t, data_bytes: cython.Py_ssize_t):
        self.rows = 0
        self.used = 0
        self.null_count = 0
        self.ends = new_buffer(0)
        self.data = new_buffer(0)
        self.valid = new_buffer(0)
        self.resize_rows(rows)
        self.resize_data(data_bytes)
        put_i32(self._ends, 0, 0)

    @cython.cfunc
    def resize_rows(self, rows: cython.Py_ssize_t) -> cython.int:
        resize(self.ends, 4 * (rows + 1))
        resize(self.valid, (rows + 7) // 8)
        self._ends = buffer_pointer(self.ends)
        self._valid = buffer_pointer(self.valid)
        self._row_capacity = rows
        return 0

    @cython.cfunc
    def resize_data(self, size: cython.Py_ssize_t) -> cython.int:
        resize(self.data, size)
        self._data = buffer_pointer(self.data)
        self._data_capacity = size
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def add(self, p: cython.p_uchar, at: cython.Py_ssize_t, size: cython.longlong) -> cython.int:
        """Add a row: `size` bytes at `at`, or null if it is -1."""
        bit: cython.int = 1 << (self.rows & 7)
        if self.rows == self._row_capacity:
            self.resize_rows(2 * self.rows + 64)
        if bit == 1:
            self._valid[self.rows >> 3] = 0
        if size < 0:
            self.null_count += 1
        else:
            if size > self._data_capacity - self.used:
                self.resize_data(2 * self._data_capacity + size)
            copy(self._data, self.used, p, at, size)
            self.used += size
            self._valid[self.rows >> 3] |= bit
        self.rows += 1
        put_i32(self._ends, self.rows, self.used)
        return 0

    @cython.cfunc
    def finish(self):
        """Return (rows, null count, validity bits or None, ends, data), cut to what is used."""
        resize(self.ends, 4 * (self.rows + 1))
        resize(self.data, self.used)
        resize(self.valid, (self.rows + 7) // 8)
        return self.rows, self.null_count, self.valid if self.null_count else None, self.ends, self.data


@cython.final
@cython.cclass
class Columns:
    """The columns of one Arrow batch, filled batch by batch. Only those asked for are built.

    `add` takes whole batches while there is room for their records and returns where it stopped.
    """

    rows = cython.declare(cython.Py_ssize_t, visibility="readonly")
    _capacity: cython.Py_ssize_t
    _data_capacity: cython.Py_ssize_t
    _data_claimed: cython.Py_ssize_t
    _limit: cython.Py_ssize_t
    _scale: cython.longlong
    _max_timestamp: cython.longlong
    _names: object
    _key: BytesColumn
    _value: BytesColumn
    _offsets: bytearray
    _timestamps: bytearray
    _timestamp_types: bytearray
    _header_ends: bytearray
    _header_keys: BytesColumn
    _header_values: BytesColumn
    _header_count: cython.Py_ssize_t
    _wants_headers: cython.bint
    _cursor: RecordCursor

    def __init__(
        self,
        columns,
        *,
        rows: cython.Py_ssize_t,
        data_bytes: cython.Py_ssize_t,
        limit: cython.Py_ssize_t,
        timestamp_scale: cython.longlong,
    ):
        self._names = columns
        self._limit = limit
        self._scale = timestamp_scale
        self._max_timestamp = 0x7FFFFFFFFFFFFFFF // timestamp_scale
        self._cursor = RecordCursor.__new__(RecordCursor)
        self.allocate(rows, data_bytes)

    @cython.ccall
    def allocate(self, rows: cython.Py_ssize_t, data_bytes: cython.Py_ssize_t):
        """Start empty, with room for so many rows and so many bytes of keys, values and headers."""
        self.rows = 0
        self._capacity = rows
        self._data_capacity = data_bytes
        self._data_claimed = 0
        self._header_count = 0
        # First guesses: keys are short, values are most of the bytes. Both grow where that is wrong.
        self._key = BytesColumn(rows, min(16 * rows, data_bytes)) if "key" in self._names else None
        self._value = BytesColumn(rows, data_bytes) if "value" in self._names else None
        self._offsets = new_buffer(8 * rows) if "offset" in self._names else None
        self._timestamps = new_buffer(8 * rows) if "timestamp" in self._names else None
        self._timestamp_types = new_buffer(4 * rows) if "timestampType" in self._names else None
        self._header_ends = None
        self._header_keys = None
        self._header_values = None
        self._wants_headers = "headers" in self._names
        if self._wants_headers:
            self._header_ends = new_buffer(4 * (rows + 1))
            put_i32(buffer_pointer(self._header_ends), 0, 0)
            self._header_keys = BytesColumn(0, 0)
            self._header_values = BytesColumn(0, 0)

    def add(
        self,
        data: bytes,
        at: cython.Py_ssize_t,
        origin: cython.longlong,
        next_offset: cython.longlong,
        contiguous: cython.bint,
        start: cython.longlong,
        stop: cython.longlong,
    ):
        """Decode records with offsets in [start, stop) from consecutive batches, every CRC checked.

        Returns (index, next offset, full): the first batch not taken, and whether room was the reason. An
        empty `Columns` takes at least one batch, however large.
        """
        p: cython.p_uchar = pointer(data)
        end: cython.Py_ssize_t = len(data)
        size: cython.Py_ssize_t
        base: cython.longlong
        last: cython.longlong
        attributes: cython.int
        while at < end and next_offset < stop:
            size = next_batch(p, at, end, next_offset, contiguous, origin + at)
            if size == 0:
                break
            base = load_i64(p, at + BASE_OFFSET)
            last = base + load_i32(p, at + LAST_OFFSET_DELTA)
            if last >= start:
                check_batch(data, p, at, size, origin + at)
                attributes = p[at + ATTRIBUTES_LOW]
                if base < stop and not attributes & CONTROL:
                    # What cannot fit is not decompressed to find that out.
                    if self.rows and load_i32(p, at + RECORD_COUNT) > self._capacity - self.rows:
                        return at, next_offset, True
                    self._cursor.open(data, at, size, origin + at, self._limit)
                    if not self.make_room(self._cursor.count, self._cursor.size):
                        return at, next_offset, True
                    self.add_records((attributes & LOG_APPEND_TIME) != 0, start, stop)
            elif not contiguous:
                check_crc(data, p, at, size, origin + at)
            next_offset = last + 1
            at += size
        return at, next_offset, False

    @cython.ccall
    def make_room(self, count: cython.longlong, size: cython.Py_ssize_t) -> cython.bint:
        """Claim room for a batch. Only an empty set of columns grows, to hold one large batch."""
        if count <= self._capacity - self.rows and size <= self._data_capacity - self._data_claimed:
            self._data_claimed += size
            return True
        if self.rows:
            return False
        self.allocate(max(count, self._capacity), max(size, self._data_capacity))
        self._data_claimed = size
        return True

    @cython.cfunc
    def add_records(self, append_time: cython.bint, start: cython.longlong, stop: cython.longlong) -> cython.int:
        """Add the records of the open batch that lie in [start, stop)."""
        cursor: RecordCursor = self._cursor
        p: cython.p_uchar = cursor.p
        key: BytesColumn = self._key
        value: BytesColumn = self._value
        has_key: cython.bint = key is not None
        has_value: cython.bint = value is not None
        has_offset: cython.bint = self._offsets is not None
        has_timestamp: cython.bint = self._timestamps is not None
        has_type: cython.bint = self._timestamp_types is not None
        wants_headers: cython.bint = self._wants_headers
        offsets: cython.p_uchar = buffer_pointer(self._offsets) if has_offset else pointer(b"")
        timestamps: cython.p_uchar = buffer_pointer(self._timestamps) if has_timestamp else pointer(b"")
        timestamp_types: cython.p_uchar = buffer_pointer(self._timestamp_types) if has_type else pointer(b"")
        header_ends: cython.p_uchar = buffer_pointer(self._header_ends) if wants_headers else pointer(b"")
        filled: cython.Py_ssize_t
        number: cython.Py_ssize_t
        places: Place[GROUP]
        if not cython.compiled:
            places = new_places()
        while cursor.more:
            filled = cursor.fill(places, GROUP, start, stop)
            for number in range(filled):
                if has_key:
                    key.add(p, places[number].key_at, places[number].key_size)
                if has_value:
                    value.add(p, places[number].value_at, places[number].value_size)
                if has_offset:
                    put_i64(offsets, self.rows, places[number].offset)
                if has_timestamp:
                    if places[number].timestamp_ms > self._max_timestamp:
                        raise record_error(
                            f"its timestamp {places[number].timestamp_ms} is out of bounds of the column's unit",
                            cursor.index - filled + number,
                            cursor.position,
                        )
                    put_i64(timestamps, self.rows, places[number].timestamp_ms * self._scale)
                if has_type:
                    # Kafka's TimestampType: 0 for CreateTime, 1 for LogAppendTime.
                    put_i32(timestamp_types, self.rows, 1 if append_time else 0)
                if wants_headers:
                    if places[number].end - places[number].headers_at > 1:
                        self.add_headers(p, places[number].headers_at, places[number].end)
                    put_i32(header_ends, self.rows + 1, self._header_count)
                self.rows += 1
        return 0

    @cython.cfunc
    def add_headers(self, p: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        """Add the headers of a record, which the cursor has checked."""
        count: cython.longlong
        size: cython.longlong
        count, at = load_varint(p, at, end)
        while count > 0:
            size, at = load_varint(p, at, end)
            self._header_keys.add(p, at, size)
            at += cython.cast(cython.Py_ssize_t, size)
            size, at = load_varint(p, at, end)
            self._header_values.add(p, at, size)
            self._header_count += 1
            if size > 0:
                at += cython.cast(cython.Py_ssize_t, size)
            count -= 1
        return 0

    def finish(self):
        """Return the buffers by column name, cut to the rows that were added. The columns are spent."""
        out: dict = {}
        if self._key is not None:
            out["key"] = self._key.finish()
        if self._value is not None:
            out["value"] = self._value.finish()
        if self._offsets is not None:
            resize(self._offsets, 8 * self.rows)
            out["offset"] = self._offsets
        if self._timestamps is not None:
            resize(self._timestamps, 8 * self.rows)
            out["timestamp"] = self._timestamps
        if self._timestamp_types is not None:
            resize(self._timestamp_types, 4 * self.rows)
            out["timestampType"] = self._timestamp_types
        if self._wants_headers:
            resize(self._header_ends, 4 * (self.rows + 1))
            out["headers"] = (self._header_ends, self._header_keys.finish(), self._header_values.finish())
        return out


def filled_lists(ends: bytearray, rows: cython.Py_ssize_t):
    """Return (number of empty lists, one bit per list that is set where it is not empty), by the lists' int32 ends."""
    if rows < 0 or len(ends) < 4 * (rows + 1):
        raise ValueError(f"{len(ends)} bytes hold no ends of {rows} lists")
    p: cython.p_uchar = buffer_pointer(ends)
    bits: bytearray = bytearray((rows + 7) // 8)
    out: cython.p_uchar = buffer_pointer(bits)
    empty: cython.Py_ssize_t = 0
    row: cython.Py_ssize_t
    for row in range(rows):
        if get_i32(p, row) == get_i32(p, row + 1):
            empty += 1
        else:
            out[row >> 3] |= 1 << (row & 7)
    return empty, bits
