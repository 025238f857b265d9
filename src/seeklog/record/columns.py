"""Batches decoded into the columns of an Arrow batch, without the interpreter's lock.

The memory of a column comes from `allocate`, a function that returns a writable buffer of a size. Its bytes need not be
initialized, and are touched only as rows are added.
"""

import cython
from cython import Py_ssize_t, bint, longlong, p_uchar
from cython.cimports.seeklog.record.cursor import RecordCursor, record_error
from cython.cimports.seeklog.record.layout import (
    BATCH_LENGTH,
    CONTROL,
    GROUP,
    INT64_MAX,
    LOG_APPEND_TIME,
    PREFIX_SIZE,
    RECORD_COUNT,
    Place,
)
from cython.cimports.seeklog.record.primitives import (
    buffer_pointer,
    copy,
    copy_string,
    get_i32,
    load_i32,
    load_varint,
    put_i32,
    put_i64,
    view_of,
    view_pointer,
)

# Room after the bytes of a column, in which `copy_string` may write.
_SLACK = cython.declare(Py_ssize_t, 32)


@cython.final
@cython.cclass
class Memory:
    """A buffer that moves to a larger one when it grows."""

    p: p_uchar
    size: Py_ssize_t
    _allocate: object
    _buffer: object
    _at: Py_ssize_t
    _view: object

    def __init__(self, allocate, size: Py_ssize_t):
        self._allocate = allocate
        buffer = allocate(size)
        self.place(buffer, view_of(buffer), 0, size)

    @cython.cfunc
    def place(self, buffer, view, at: Py_ssize_t, size: Py_ssize_t) -> cython.int:
        """Use `size` bytes of a buffer, from `at` on."""
        self._buffer = buffer
        self._at = at
        self._view = view[at : at + size]
        self.p = view_pointer(self._view)
        self.size = size
        return 0

    @cython.cfunc
    @cython.inline
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def reserve(self, size: Py_ssize_t, used: Py_ssize_t) -> cython.int:
        """Make room for `size` bytes, of which the first `used` are kept. `p` may change."""
        if size > self.size:
            with cython.gil:
                self.move(size, used)
        return 0

    @cython.cfunc
    def move(self, size: Py_ssize_t, used: Py_ssize_t) -> cython.int:
        larger: Memory = Memory(self._allocate, max(size, 2 * self.size))
        copy(larger.p, 0, self.p, 0, used)
        self.place(larger._buffer, larger._view, 0, larger.size)
        return 0

    @cython.cfunc
    def take(self, used: Py_ssize_t):
        """Return the buffer, trimmed to the used bytes. Do not use the memory afterwards."""
        self._view = None
        return self._buffer[self._at : self._at + used]


@cython.final
@cython.cclass
class Block:
    """One buffer for all columns, in parts of 64 bytes or a multiple, as Arrow recommends.

    An allocation releases the interpreter's lock, and threads that scan would meet at each.
    """

    _allocate: object
    _parts: list
    _size: Py_ssize_t

    def __init__(self, allocate):
        self._allocate = allocate
        self._parts = []
        self._size = 0

    @cython.cfunc
    def add(self, size: Py_ssize_t) -> Memory:
        """Return memory that is there once `allocate` was called."""
        part: Memory = Memory.__new__(Memory)
        part._allocate = self._allocate
        part._at = self._size
        part.size = (size + 63) // 64 * 64
        self._size += part.size
        self._parts.append(part)
        return part

    @cython.cfunc
    def allocate(self) -> cython.int:
        part: Memory
        buffer = self._allocate(self._size)
        view = view_of(buffer)
        for part in self._parts:
            part.place(buffer, view, part._at, part.size)
        return 0


@cython.final
@cython.cclass
class BytesColumn:
    """A column of byte strings in Arrow's layout: int32 ends, bytes, and a bit per row, set if the row is not null.

    The bits exist only once a row is null. Call `reserve` before rows are added.
    """

    rows: Py_ssize_t
    used: Py_ssize_t
    null_count: Py_ssize_t
    _allocate: object
    _ends: Memory
    _data: Memory
    _valid: Memory

    def __init__(self, block: Block, allocate, rows: Py_ssize_t, data_bytes: Py_ssize_t):
        self.rows = 0
        self.used = 0
        self.null_count = 0
        self._allocate = allocate
        self._ends = block.add(4 * (rows + 1))
        self._data = block.add(data_bytes + _SLACK)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def reserve(self, rows: Py_ssize_t, data_bytes: Py_ssize_t) -> cython.int:
        """Make room for this many more rows, and bytes in all of them together."""
        if self.rows == 0:
            put_i32(self._ends.p, 0, 0)
        self._ends.reserve(4 * (self.rows + rows + 1), 4 * (self.rows + 1))
        self._data.reserve(self.used + data_bytes + _SLACK, self.used)
        if self.null_count:
            self._valid.reserve((self.rows + rows + 7) // 8, (self.rows + 7) // 8)
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def add_records(
        self, p: p_uchar, end: Py_ssize_t, places: cython.pointer(Place), count: Py_ssize_t, is_key: bint
    ) -> cython.int:
        """Append the keys or the values of `count` records. The bytes at `p` may be read up to `end`."""
        # In local variables: the compiler must assume that the bytes which it copies overlap with `self`.
        data: p_uchar = self._data.p
        ends: p_uchar = self._ends.p
        used: Py_ssize_t = self.used
        row: Py_ssize_t = self.rows
        at: Py_ssize_t
        size: longlong
        number: Py_ssize_t
        for number in range(count):
            at = places[number].key_at if is_key else places[number].value_at
            size = places[number].key_size if is_key else places[number].value_size
            if size < 0:
                self.add_null(row)
            else:
                copy_string(data, used, p, at, size, end)
                used += size
                if self.null_count:
                    self.mark_valid(row)
            row += 1
            put_i32(ends, row, used)
        self.used = used
        self.rows = row
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def add(self, p: p_uchar, at: Py_ssize_t, size: longlong, end: Py_ssize_t) -> cython.int:
        """Append a row: `size` bytes at `at`, or null if `size` is -1."""
        if size < 0:
            self.add_null(self.rows)
        else:
            copy_string(self._data.p, self.used, p, at, size, end)
            self.used += size
            if self.null_count:
                self.mark_valid(self.rows)
        self.rows += 1
        put_i32(self._ends.p, self.rows, self.used)
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def add_null(self, row: Py_ssize_t) -> cython.int:
        if self.null_count == 0:
            with cython.gil:
                self.begin_bits(row)
        if row & 7 == 0:
            self._valid.p[row >> 3] = 0
        self.null_count += 1
        return 0

    @cython.cfunc
    def begin_bits(self, rows: Py_ssize_t) -> cython.int:
        """Create the bits. None of the rows before is null."""
        index: Py_ssize_t
        self._valid = Memory(self._allocate, (self._ends.size // 4 + 7) // 8)
        for index in range(rows >> 3):
            self._valid.p[index] = 0xFF
        if rows & 7:
            self._valid.p[rows >> 3] = (1 << (rows & 7)) - 1
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(check=False)
    def mark_valid(self, row: Py_ssize_t) -> cython.void:
        p: p_uchar = self._valid.p
        bit: cython.int = 1 << (row & 7)
        p[row >> 3] = 1 if bit == 1 else p[row >> 3] | bit

    @cython.cfunc
    def finish(self):
        """Return (rows, null count, validity bits or None, ends, data), trimmed to the used part."""
        if self.rows == 0:
            put_i32(self._ends.p, 0, 0)
        valid = self._valid.take((self.rows + 7) // 8) if self.null_count else None
        return self.rows, self.null_count, valid, self._ends.take(4 * (self.rows + 1)), self._data.take(self.used)


@cython.final
@cython.cclass
class Columns:
    """The columns of one Arrow batch, filled batch by batch. Only the requested columns are built.

    `add` takes whole batches while there is room for their records, and returns where it stopped. `rows` and
    `data_bytes` bound the columns; only one large batch may exceed them. Memory is allocated for `expected` rows, and
    grows.
    """

    rows = cython.declare(Py_ssize_t, visibility="readonly")
    _row_limit: Py_ssize_t
    _data_limit: Py_ssize_t
    _data_claimed: Py_ssize_t
    _limit: Py_ssize_t
    _scale: longlong
    _key: BytesColumn
    _value: BytesColumn
    _offsets: Memory
    _timestamps: Memory
    _timestamp_types: Memory
    _header_ends: Memory
    _header_keys: BytesColumn
    _header_values: BytesColumn
    _header_count: Py_ssize_t
    _cursor: RecordCursor

    def __init__(
        self,
        columns,
        *,
        rows: Py_ssize_t,
        data_bytes: Py_ssize_t,
        limit: Py_ssize_t,
        timestamp_scale: longlong,
        expected: Py_ssize_t = -1,
        allocate=bytearray,
    ):
        self.rows = 0
        self._row_limit = rows
        self._data_limit = data_bytes
        self._data_claimed = 0
        self._limit = limit
        self._scale = timestamp_scale
        self._header_count = 0
        self._cursor = RecordCursor.__new__(RecordCursor)
        if 0 <= expected < rows:
            data_bytes = data_bytes * expected // rows
            rows = expected
        # A first guess: keys are short, and values are most of the bytes.
        block: Block = Block(allocate)
        self._key = BytesColumn(block, allocate, rows, min(16 * rows, data_bytes)) if "key" in columns else None
        self._value = BytesColumn(block, allocate, rows, data_bytes) if "value" in columns else None
        self._offsets = block.add(8 * rows) if "offset" in columns else None
        self._timestamps = block.add(8 * rows) if "timestamp" in columns else None
        self._timestamp_types = block.add(4 * rows) if "timestampType" in columns else None
        self._header_ends = None
        if "headers" in columns:
            self._header_ends = block.add(4 * (rows + 1))
            self._header_keys = BytesColumn(block, allocate, 0, 0)
            self._header_values = BytesColumn(block, allocate, 0, 0)
        block.allocate()
        if self._header_ends is not None:
            put_i32(self._header_ends.p, 0, 0)

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
        least one batch, however large. The lock of the interpreter is not held meanwhile.
        """
        cursor: RecordCursor = self._cursor
        cursor.begin(data, at, origin, next_offset, contiguous)
        full: bint = False
        with cython.nogil:
            full = self.take(start, stop)
        return cursor.at, cursor.next_offset, full

    def add_file(
        self,
        descriptor: cython.int,
        room: Memory,
        position: longlong,
        end: longlong,
        next_offset: longlong,
        contiguous: bint,
        start: longlong,
        stop: longlong,
    ):
        """Decode batches of an open file in [position, end), a part at a time, as `add` does. `room` is for the parts.

        Returns (position and next offset of the first batch not taken, whether it did not fit). Stops before a batch
        that cannot be read whole: what is wrong with it is for the caller to find.
        """
        cursor: RecordCursor = self._cursor
        full: bint = False
        got: Py_ssize_t
        size: longlong
        if not cython.compiled:
            return position, next_offset, full
        with cython.nogil:
            while next_offset < stop and position < end:
                got = read_at(descriptor, room.p, min(room.size, end - position), position)
                if got <= 0:
                    break
                cursor.begin_at(room.p, got, position, next_offset, contiguous)
                full = self.take(start, stop)
                position += cursor.at
                next_offset = cursor.next_offset
                if full:
                    break
                if cursor.at == 0:
                    size = load_i32(room.p, BATCH_LENGTH) + PREFIX_SIZE if got >= PREFIX_SIZE else 0
                    if size <= room.size or size > end - position:
                        break
                    room.reserve(size, 0)
        return position, next_offset, full

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def take(self, start: longlong, stop: longlong) -> cython.int:
        """Take batches from the cursor; return whether one did not fit."""
        while self._cursor.next_offset < stop and self._cursor.next_batch():
            if self._cursor.last_offset < start:
                self._cursor.skip()
                continue
            self._cursor.check()
            if self._cursor.base_offset < stop and not self._cursor.attributes & CONTROL:
                # At most as many records are in the range as it has offsets.
                count: longlong = min(
                    load_i32(self._cursor.header, self._cursor.at + RECORD_COUNT),
                    min(stop, self._cursor.last_offset + 1) - max(start, self._cursor.base_offset),
                )
                # Do not decompress a batch that cannot fit.
                if self.rows and count > self._row_limit - self.rows:
                    return 1
                self._cursor.open(self._limit)
                if self.rows == 0:
                    self._data_claimed = 0
                elif self._cursor.body_size > self._data_limit - self._data_claimed:
                    return 1
                self._data_claimed += self._cursor.body_size
                self.reserve(count)
                self.add_records(start, stop)
            self._cursor.advance()
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def reserve(self, count: Py_ssize_t) -> cython.int:
        """Make room for `count` records of the open batch."""
        rows: Py_ssize_t = self.rows
        if self._key is not None:
            self._key.reserve(count, self._cursor.body_size)
        if self._value is not None:
            self._value.reserve(count, self._cursor.body_size)
        if self._offsets is not None:
            self._offsets.reserve(8 * (rows + count), 8 * rows)
        if self._timestamps is not None:
            self._timestamps.reserve(8 * (rows + count), 8 * rows)
        if self._timestamp_types is not None:
            self._timestamp_types.reserve(4 * (rows + count), 4 * rows)
        if self._header_ends is not None:
            self._header_ends.reserve(4 * (rows + count + 1), 4 * (rows + 1))
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def add_records(self, start: longlong, stop: longlong) -> cython.int:
        """Add the records of the open batch with offsets in [start, stop)."""
        p: p_uchar = self._cursor.p
        end: Py_ssize_t = self._cursor.readable
        places: cython.pointer(Place) = self._cursor.places
        offsets: p_uchar = self._offsets.p if self._offsets is not None else p
        timestamps: p_uchar = self._timestamps.p if self._timestamps is not None else p
        timestamp_types: p_uchar = self._timestamp_types.p if self._timestamp_types is not None else p
        header_ends: p_uchar = self._header_ends.p if self._header_ends is not None else p
        # Kafka's TimestampType: 0 for CreateTime, 1 for LogAppendTime.
        timestamp_type: cython.int = 1 if self._cursor.attributes & LOG_APPEND_TIME else 0
        scale: longlong = self._scale
        row: Py_ssize_t = self.rows
        number: Py_ssize_t
        while self._cursor.more:
            filled: Py_ssize_t = self._cursor.fill(GROUP, start, stop)
            if self._key is not None:
                self._key.add_records(p, end, places, filled, True)
            if self._value is not None:
                self._value.add_records(p, end, places, filled, False)
            if self._offsets is not None:
                for number in range(filled):
                    put_i64(offsets, row + number, places[number].offset)
            if self._timestamps is not None:
                self.check_timestamps(filled)
                for number in range(filled):
                    put_i64(timestamps, row + number, places[number].timestamp_ms * scale)
            if self._timestamp_types is not None:
                for number in range(filled):
                    put_i32(timestamp_types, row + number, timestamp_type)
            if self._header_ends is not None:
                for number in range(filled):
                    if places[number].end - places[number].headers_at > 1:
                        self.add_headers(p, places[number].headers_at, places[number].end)
                    put_i32(header_ends, row + number + 1, self._header_count)
            row += filled
        self.rows = row
        return 0

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def check_timestamps(self, filled: Py_ssize_t) -> cython.int:
        """Raise if a timestamp of the parsed records does not fit its column."""
        number: Py_ssize_t
        largest: longlong = INT64_MAX // self._scale
        places: cython.pointer(Place) = self._cursor.places
        for number in range(filled):
            if places[number].timestamp_ms > largest:
                with cython.gil:
                    self.refuse_timestamp(number, filled)
        return 0

    # Apart, because a function with Python objects takes the lock whenever it returns.
    @cython.cfunc
    def refuse_timestamp(self, number: Py_ssize_t, filled: Py_ssize_t) -> cython.int:
        timestamp = self._cursor.places[number].timestamp_ms
        what = f"its timestamp {timestamp} is out of bounds of the column's unit"
        raise record_error(what, self._cursor.index - filled + number, self._cursor.position)

    @cython.cfunc
    @cython.nogil
    @cython.exceptval(-1, check=False)
    def add_headers(self, p: p_uchar, at: Py_ssize_t, end: Py_ssize_t) -> cython.int:
        """Add the headers of a record, which the cursor has checked."""
        count: longlong
        size: longlong
        count, at = load_varint(p, at, end)
        self._header_keys.reserve(count, end - at)
        self._header_values.reserve(count, end - at)
        self._header_count += count
        while count > 0:
            size, at = load_varint(p, at, end)
            self._header_keys.add(p, at, size, end)
            at += cython.cast(Py_ssize_t, size)
            size, at = load_varint(p, at, end)
            self._header_values.add(p, at, size, end)
            if size > 0:
                at += cython.cast(Py_ssize_t, size)
            count -= 1
        return 0

    def finish(self):
        """Return the buffers by column name, trimmed to the rows added. Do not use the columns afterwards."""
        out: dict = {}
        if self._key is not None:
            out["key"] = self._key.finish()
        if self._value is not None:
            out["value"] = self._value.finish()
        if self._offsets is not None:
            out["offset"] = self._offsets.take(8 * self.rows)
        if self._timestamps is not None:
            out["timestamp"] = self._timestamps.take(8 * self.rows)
        if self._timestamp_types is not None:
            out["timestampType"] = self._timestamp_types.take(4 * self.rows)
        if self._header_ends is not None:
            ends = self._header_ends.take(4 * (self.rows + 1))
            out["headers"] = (ends, self._header_keys.finish(), self._header_values.finish())
        return out


def filled_lists(ends, rows: Py_ssize_t):
    """Return (number of empty lists, one bit per list, set if it is not empty) from the lists' int32 ends."""
    if rows < 0 or len(ends) < 4 * (rows + 1):
        raise ValueError(f"{len(ends)} bytes cannot hold the ends of {rows} lists")
    view = view_of(ends)
    p: p_uchar = view_pointer(view)
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
