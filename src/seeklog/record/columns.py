"""Batches decoded into the columns of an Arrow batch."""

import cython
from cython import Py_ssize_t, bint, longlong, p_uchar
from cython.cimports.seeklog.record.cursor import RecordCursor, record_error
from cython.cimports.seeklog.record.layout import CONTROL, GROUP, INT64_MAX, LOG_APPEND_TIME, RECORD_COUNT, Place
from cython.cimports.seeklog.record.primitives import (
    buffer_pointer,
    copy,
    get_i32,
    load_i32,
    load_varint,
    new_buffer,
    put_i32,
    put_i64,
    resize,
)


@cython.final
@cython.cclass
class BytesColumn:
    """A column of byte strings in Arrow's layout: int32 ends, bytes, and a validity bit per row.

    It grows with its rows: memory is touched only as it is used.
    """

    ends: bytearray
    data: bytearray
    valid: bytearray
    rows: Py_ssize_t
    used: Py_ssize_t
    null_count: Py_ssize_t
    _row_capacity: Py_ssize_t
    _data_capacity: Py_ssize_t
    _ends: p_uchar
    _data: p_uchar
    _valid: p_uchar

    def __init__(self, rows: Py_ssize_t, data_bytes: Py_ssize_t):
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
    def resize_rows(self, rows: Py_ssize_t) -> cython.int:
        resize(self.ends, 4 * (rows + 1))
        resize(self.valid, (rows + 7) // 8)
        self._ends = buffer_pointer(self.ends)
        self._valid = buffer_pointer(self.valid)
        self._row_capacity = rows
        return 0

    @cython.cfunc
    def resize_data(self, size: Py_ssize_t) -> cython.int:
        resize(self.data, size)
        self._data = buffer_pointer(self.data)
        self._data_capacity = size
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def add(self, p: p_uchar, at: Py_ssize_t, size: longlong) -> cython.int:
        """Append a row: `size` bytes at `at`, or null if `size` is -1."""
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
        """Return (rows, null count, validity bits or None, ends, data), trimmed to the used part."""
        resize(self.ends, 4 * (self.rows + 1))
        resize(self.data, self.used)
        resize(self.valid, (self.rows + 7) // 8)
        return self.rows, self.null_count, self.valid if self.null_count else None, self.ends, self.data


@cython.final
@cython.cclass
class Columns:
    """The columns of one Arrow batch, filled batch by batch. Only the requested columns are built.

    `add` takes whole batches while there is room for their records, and returns where it stopped.
    """

    rows = cython.declare(Py_ssize_t, visibility="readonly")
    _names: object
    _capacity: Py_ssize_t
    _data_capacity: Py_ssize_t
    _data_claimed: Py_ssize_t
    _limit: Py_ssize_t
    _scale: longlong
    _key: BytesColumn
    _value: BytesColumn
    _offsets: bytearray
    _timestamps: bytearray
    _timestamp_types: bytearray
    _header_ends: bytearray
    _header_keys: BytesColumn
    _header_values: BytesColumn
    _header_count: Py_ssize_t
    _cursor: RecordCursor

    def __init__(
        self, columns, *, rows: Py_ssize_t, data_bytes: Py_ssize_t, limit: Py_ssize_t, timestamp_scale: longlong
    ):
        self._names = columns
        self._limit = limit
        self._scale = timestamp_scale
        self._cursor = RecordCursor.__new__(RecordCursor)
        self.allocate(rows, data_bytes)

    @cython.cfunc
    def allocate(self, rows: Py_ssize_t, data_bytes: Py_ssize_t) -> cython.int:
        """Start empty, with room for this many rows and bytes of keys, values and headers."""
        self.rows = 0
        self._capacity = rows
        self._data_capacity = data_bytes
        self._data_claimed = 0
        self._header_count = 0
        # A first guess: keys are short, and values are most of the bytes. Both columns grow if needed.
        self._key = BytesColumn(rows, min(16 * rows, data_bytes)) if "key" in self._names else None
        self._value = BytesColumn(rows, data_bytes) if "value" in self._names else None
        self._offsets = new_buffer(8 * rows) if "offset" in self._names else None
        self._timestamps = new_buffer(8 * rows) if "timestamp" in self._names else None
        self._timestamp_types = new_buffer(4 * rows) if "timestampType" in self._names else None
        self._header_ends = None
        if "headers" in self._names:
            self._header_ends = new_buffer(4 * (rows + 1))
            put_i32(buffer_pointer(self._header_ends), 0, 0)
            self._header_keys = BytesColumn(0, 0)
            self._header_values = BytesColumn(0, 0)
        return 0

    def add(
        self,
        data: bytes,
        at: Py_ssize_t,
        origin: longlong,
        next_offset: longlong,
        contiguous: bint,
        start: longlong,
        stop: longlong,
    ):
        """Decode records with offsets in [start, stop) from consecutive batches, checking every CRC.

        Returns (index and next offset of the first batch not taken, whether it did not fit). Empty `Columns` take at
        least one batch, however large.
        """
        cursor: RecordCursor = self._cursor
        cursor.begin(data, at, origin, next_offset, contiguous)
        while cursor.next_offset < stop and cursor.next_batch():
            if cursor.last_offset < start:
                cursor.skip()
                continue
            cursor.check()
            if cursor.base_offset < stop and not cursor.attributes & CONTROL:
                # Do not decompress a batch that cannot fit.
                count: longlong = load_i32(cursor.header, cursor.at + RECORD_COUNT)
                if self.rows and count > self._capacity - self.rows:
                    return cursor.at, cursor.next_offset, True
                cursor.open(self._limit)
                if not self.make_room(count, cursor.body_size):
                    return cursor.at, cursor.next_offset, True
                self.add_records(start, stop)
            cursor.advance()
        return cursor.at, cursor.next_offset, False

    @cython.cfunc
    def make_room(self, count: longlong, size: Py_ssize_t) -> bint:
        """Reserve room for a batch. Only empty columns grow, to hold one large batch."""
        if count > self._capacity - self.rows or size > self._data_capacity - self._data_claimed:
            if self.rows:
                return False
            self.allocate(max(count, self._capacity), max(size, self._data_capacity))
        self._data_claimed += size
        return True

    @cython.cfunc
    def add_records(self, start: longlong, stop: longlong) -> cython.int:
        """Add the records of the open batch with offsets in [start, stop)."""
        cursor: RecordCursor = self._cursor
        p: p_uchar = cursor.p
        places: cython.pointer(Place) = cursor.places
        key: BytesColumn = self._key
        value: BytesColumn = self._value
        has_key: bint = key is not None
        has_value: bint = value is not None
        has_offset: bint = self._offsets is not None
        has_timestamp: bint = self._timestamps is not None
        has_type: bint = self._timestamp_types is not None
        has_headers: bint = self._header_ends is not None
        offsets: p_uchar = buffer_pointer(self._offsets) if has_offset else p
        timestamps: p_uchar = buffer_pointer(self._timestamps) if has_timestamp else p
        timestamp_types: p_uchar = buffer_pointer(self._timestamp_types) if has_type else p
        header_ends: p_uchar = buffer_pointer(self._header_ends) if has_headers else p
        # Kafka's TimestampType: 0 for CreateTime, 1 for LogAppendTime.
        timestamp_type: cython.int = 1 if cursor.attributes & LOG_APPEND_TIME else 0
        max_timestamp: longlong = INT64_MAX // self._scale
        row: Py_ssize_t = self.rows
        number: Py_ssize_t
        while cursor.more:
            filled: Py_ssize_t = cursor.fill(GROUP, start, stop)
            for number in range(filled):
                if has_key:
                    key.add(p, places[number].key_at, places[number].key_size)
                if has_value:
                    value.add(p, places[number].value_at, places[number].value_size)
                if has_offset:
                    put_i64(offsets, row, places[number].offset)
                if has_timestamp:
                    if places[number].timestamp_ms > max_timestamp:
                        what = f"its timestamp {places[number].timestamp_ms} is out of bounds of the column's unit"
                        raise record_error(what, cursor.index - filled + number, cursor.position)
                    put_i64(timestamps, row, places[number].timestamp_ms * self._scale)
                if has_type:
                    put_i32(timestamp_types, row, timestamp_type)
                row += 1
                if has_headers:
                    if places[number].end - places[number].headers_at > 1:
                        self.add_headers(p, places[number].headers_at, places[number].end)
                    put_i32(header_ends, row, self._header_count)
        self.rows = row
        return 0

    @cython.cfunc
    def add_headers(self, p: p_uchar, at: Py_ssize_t, end: Py_ssize_t) -> cython.int:
        """Add the headers of a record, which the cursor has checked."""
        count: longlong
        size: longlong
        count, at = load_varint(p, at, end)
        self._header_count += count
        while count > 0:
            size, at = load_varint(p, at, end)
            self._header_keys.add(p, at, size)
            at += cython.cast(Py_ssize_t, size)
            size, at = load_varint(p, at, end)
            self._header_values.add(p, at, size)
            if size > 0:
                at += cython.cast(Py_ssize_t, size)
            count -= 1
        return 0

    def finish(self):
        """Return the buffers by column name, trimmed to the rows added. Do not use the columns afterwards."""
        out: dict = {}
        for name, column in (("key", self._key), ("value", self._value)):
            if column is not None:
                out[name] = column.finish()
        for name, buffer, width in (
            ("offset", self._offsets, 8),
            ("timestamp", self._timestamps, 8),
            ("timestampType", self._timestamp_types, 4),
        ):
            if buffer is not None:
                resize(buffer, width * self.rows)
                out[name] = buffer
        if self._header_ends is not None:
            resize(self._header_ends, 4 * (self.rows + 1))
            out["headers"] = (self._header_ends, self._header_keys.finish(), self._header_values.finish())
        return out


def filled_lists(ends: bytearray, rows: Py_ssize_t):
    """Return (number of empty lists, one bit per list, set if it is not empty) from the lists' int32 ends."""
    if rows < 0 or len(ends) < 4 * (rows + 1):
        raise ValueError(f"{len(ends)} bytes cannot hold the ends of {rows} lists")
    p: p_uchar = buffer_pointer(ends)
    bits: bytearray = bytearray((rows + 7) // 8)
    out: p_uchar = buffer_pointer(bits)
    empty: Py_ssize_t = 0
    row: Py_ssize_t
    for row in range(rows):
        if get_i32(p, row) == get_i32(p, row + 1):
            empty += 1
        else:
            out[row >> 3] |= 1 << (row & 7)
    return empty, bits
