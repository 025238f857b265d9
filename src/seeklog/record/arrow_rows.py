"""Rows of Arrow arrays, read where they lie and encoded as batches."""

import cython
from cython.cimports.seeklog.record.encode import finish_batch
from cython.cimports.seeklog.record.key_hash import murmur2_at
from cython.cimports.seeklog.record.layout import HEADER_SIZE, INT32_MAX, NO_TIMESTAMP
from cython.cimports.seeklog.record.primitives import (
    bit_at,
    buffer_pointer,
    copy,
    get_i32,
    get_i64,
    new_buffer,
    new_bytes,
    new_pointer,
    pointer,
    put_i32,
    put_i64,
    resize,
    store_varint,
    varint_size,
    view_of,
    view_pointer,
    wrapped,
)

from seeklog.errors import InvalidRecord, RecordTooLarge
from seeklog.record.codec import compress


@cython.cfunc
def check_view(
    what: str, view: object, width: cython.longlong, rows: cython.Py_ssize_t, offset: cython.Py_ssize_t
) -> cython.int:
    """Refuse a buffer that does not hold `rows` items of `width` bits behind `offset`."""
    size: cython.longlong = len(view)
    if rows < 0 or offset < 0 or rows > 8 * size // width or offset > 8 * size // width - rows:
        raise InvalidRecord(f"{size:,} bytes of {what} hold no {rows:,} rows from row {offset:,}; validate the array")
    return 0


@cython.final
@cython.cclass
class ArrowBytes:
    """An Arrow array of byte strings or text, read where it lies.

    `offset` is the array's own: its first row in the buffers. Ends are int64 if `wide`, else int32. A buffer may be
    None where Arrow leaves it out.
    """

    rows = cython.declare(cython.Py_ssize_t, visibility="readonly")
    _views: tuple
    _valid: cython.p_uchar
    _ends: cython.p_uchar
    _data: cython.p_uchar
    _size: cython.longlong
    _offset: cython.Py_ssize_t
    _wide: cython.bint
    _has_nulls: cython.bint

    def __init__(self, rows: cython.Py_ssize_t, *, offset: cython.Py_ssize_t, wide: cython.bint, valid, ends, data):
        valid_view, ends_view, data_view = view_of(valid), view_of(ends), view_of(data)
        if rows:
            # One end more than there are rows; an array without rows may have none.
            check_view("ends", ends_view, 64 if wide else 32, rows + 1, offset)
        if valid is not None:
            check_view("validity", valid_view, 1, rows, offset)
        self.rows = rows
        self._views = (valid_view, ends_view, data_view)
        self._valid = view_pointer(valid_view)
        self._ends = view_pointer(ends_view)
        self._data = view_pointer(data_view)
        self._size = len(data_view)
        self._offset = offset
        self._wide = wide
        self._has_nulls = valid is not None

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def find(self, row: cython.Py_ssize_t) -> tuple[cython.longlong, cython.longlong]:
        """Return where a row's bytes start and how many they are: -1 for null, -2 if they cannot be."""
        start: cython.longlong
        end: cython.longlong
        row += self._offset
        if self._has_nulls and not bit_at(self._valid, row):
            return 0, -1
        if self._wide:
            start = get_i64(self._ends, row)
            end = get_i64(self._ends, row + 1)
        else:
            start = get_i32(self._ends, row)
            end = get_i32(self._ends, row + 1)
        if start < 0 or end < start or end > self._size:
            return 0, -2
        return start, end - start


@cython.final
@cython.cclass
class ArrowInts:
    """An Arrow array of whole numbers or times, read where it lies: int64 if `wide`, else int32."""

    rows = cython.declare(cython.Py_ssize_t, visibility="readonly")
    _views: tuple
    _valid: cython.p_uchar
    _data: cython.p_uchar
    _offset: cython.Py_ssize_t
    _wide: cython.bint
    _has_nulls: cython.bint

    def __init__(self, rows: cython.Py_ssize_t, *, offset: cython.Py_ssize_t, wide: cython.bint, valid, data):
        valid_view, data_view = view_of(valid), view_of(data)
        check_view("numbers", data_view, 64 if wide else 32, rows, offset)
        if valid is not None:
            check_view("validity", valid_view, 1, rows, offset)
        self.rows = rows
        self._views = (valid_view, data_view)
        self._valid = view_pointer(valid_view)
        self._data = view_pointer(data_view)
        self._offset = offset
        self._wide = wide
        self._has_nulls = valid is not None

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def is_null(self, row: cython.Py_ssize_t) -> cython.bint:
        return self._has_nulls and not bit_at(self._valid, self._offset + row)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def number(self, row: cython.Py_ssize_t) -> cython.longlong:
        if self._wide:
            return get_i64(self._data, self._offset + row)
        return get_i32(self._data, self._offset + row)


@cython.final
@cython.cclass
class ArrowHeaders:
    """An Arrow list of (key, value) structs for each row, read where it lies.

    `keys` and `values` are those of all the structs; `pair_valid` says from `pair_offset` on which structs are null.
    """

    rows = cython.declare(cython.Py_ssize_t, visibility="readonly")
    _lists: ArrowBytes
    _keys: ArrowBytes
    _values: ArrowBytes
    _pair_view: object
    _pair_valid: cython.p_uchar
    _pair_offset: cython.Py_ssize_t
    _has_null_pairs: cython.bint

    def __init__(
        self,
        rows: cython.Py_ssize_t,
        *,
        offset: cython.Py_ssize_t,
        wide: cython.bint,
        valid,
        ends,
        pair_offset: cython.Py_ssize_t,
        pair_valid,
        keys: ArrowBytes,
        values: ArrowBytes,
    ):
        if keys.rows != values.rows:
            raise InvalidRecord(f"{keys.rows:,} header keys and {values.rows:,} values; validate the array")
        # A list's ends are laid out as those of byte strings are; what lies between them here is pairs.
        self._lists = ArrowBytes(rows, offset=offset, wide=wide, valid=valid, ends=ends, data=None)
        self._lists._size = keys.rows
        self._pair_view = view_of(pair_valid)
        if pair_valid is not None:
            check_view("validity", self._pair_view, 1, keys.rows, pair_offset)
        self.rows = rows
        self._keys = keys
        self._values = values
        self._pair_valid = view_pointer(self._pair_view)
        self._pair_offset = pair_offset
        self._has_null_pairs = pair_valid is not None

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def measure(self, row: cython.Py_ssize_t) -> cython.longlong:
        """Return the encoded size of a row's headers with their count, or refuse them."""
        first: cython.longlong
        count: cython.longlong
        size: cython.longlong
        total: cython.longlong
        pair: cython.longlong
        first, count = self._lists.find(row)
        if count == -2:
            raise outside("headers", row)
        if count <= 0:
            return 1
        total = varint_size(count)
        for pair in range(first, first + count):
            if self._has_null_pairs and not bit_at(self._pair_valid, self._pair_offset + pair):
                raise InvalidRecord(f"row {row}: a header is null; leave it out of the list")
            _, size = self._keys.find(pair)
            if size == -1:
                raise InvalidRecord(f"row {row}: a header's key is null; it must be text")
            if size == -2:
                raise outside("headers", row)
            total += varint_size(size) + size
            _, size = self._values.find(pair)
            if size == -2:
                raise outside("headers", row)
            total += 1 if size < 0 else varint_size(size) + size
            if total > INT32_MAX:
                raise RecordTooLarge(f"row {row}: its headers have more than 2 GiB; the format holds no more")
        return total

    @cython.cfunc
    @cython.exceptval(check=False)
    def store(self, p: cython.p_uchar, at: cython.Py_ssize_t, row: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Store the headers of a row that `measure` has passed; return the place behind them."""
        first: cython.longlong
        count: cython.longlong
        start: cython.longlong
        size: cython.longlong
        pair: cython.longlong
        first, count = self._lists.find(row)
        if count <= 0:
            p[at] = 0
            return at + 1
        at = store_varint(p, at, count)
        for pair in range(first, first + count):
            start, size = self._keys.find(pair)
            at = store_bytes(p, at, self._keys._data, start, size)
            start, size = self._values.find(pair)
            at = store_bytes(p, at, self._values._data, start, size)
        return at


@cython.cfunc
def outside(what: str, row: cython.longlong):
    return InvalidRecord(f"row {row}: the bytes of its {what} lie outside of their buffer; validate the array")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def store_bytes(
    p: cython.p_uchar,
    at: cython.Py_ssize_t,
    source: cython.p_uchar,
    start: cython.longlong,
    size: cython.longlong,
) -> cython.Py_ssize_t:
    """Store a key or value behind its length; -1 alone if that is the size."""
    at = store_varint(p, at, size)
    if size <= 0:
        return at
    copy(p, at, source, start, size)
    return at + cython.cast(cython.Py_ssize_t, size)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def floor_thousandth(value: cython.longlong) -> cython.longlong:
    """A thousandth, rounded down: C rounds towards zero."""
    return value // 1000 if value >= 0 else -1 - (-1 - value) // 1000


@cython.final
@cython.cclass
class ArrowRows:
    """Rows of Arrow arrays as records to be. A column may be None: no row has it.

    Times are in microseconds if `micros`, else in milliseconds.
    """

    rows = cython.declare(cython.Py_ssize_t, visibility="readonly")
    _key: ArrowBytes
    _value: ArrowBytes
    _timestamp: ArrowInts
    _headers: ArrowHeaders
    _micros: cython.bint

    def __init__(
        self,
        rows: cython.Py_ssize_t,
        *,
        key: ArrowBytes | None = None,
        value: ArrowBytes | None = None,
        timestamp: ArrowInts | None = None,
        headers: ArrowHeaders | None = None,
        micros: cython.bint = False,
    ):
        for name, column in (("key", key), ("value", value), ("timestamp", timestamp), ("headers", headers)):
            if column is not None and column.rows != rows:
                raise InvalidRecord(f"the column {name} has {column.rows:,} rows, another has {rows:,}")
        self.rows = rows
        self._key = key
        self._value = value
        self._timestamp = timestamp
        self._headers = headers
        self._micros = micros

    def encode(
        self,
        selection: ArrowInts | None,
        start: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        now_ms: cython.longlong,
        codec: cython.int,
        batch_bytes: cython.longlong,
        limit: cython.longlong,
    ):
        """Encode rows as one batch: as many as fit in `batch_bytes` before compression, or one that does not.

        The rows are those that `selection` lists in [start, stop) of itself, or if it is None those numbers. A null
        timestamp becomes `now_ms`. A record may take `limit` bytes. Returns (batch, first place not taken).
        """
        key: ArrowBytes = self._key
        value: ArrowBytes = self._value
        timestamps: ArrowInts = self._timestamp
        headers: ArrowHeaders = self._headers
        has_key: cython.bint = key is not None
        has_value: cython.bint = value is not None
        has_timestamp: cython.bint = timestamps is not None
        has_headers: cython.bint = headers is not None
        keys: cython.p_uchar = key._data if has_key else pointer(b"")
        values: cython.p_uchar = value._data if has_value else pointer(b"")
        key_at: cython.longlong = 0
        key_size: cython.longlong = -1
        value_at: cython.longlong = 0
        value_size: cython.longlong = -1
        header_size: cython.longlong = 1
        timestamp: cython.longlong = now_ms
        base_timestamp: cython.longlong = now_ms
        max_timestamp: cython.longlong = NO_TIMESTAMP
        delta: cython.longlong
        body: cython.longlong
        size: cython.longlong
        row: cython.longlong
        place: cython.Py_ssize_t = start
        count: cython.longlong = 0
        used: cython.Py_ssize_t = HEADER_SIZE
        batch_bytes = min(batch_bytes, limit + HEADER_SIZE)
        # The room is reused by one call after the other: the allocator hands out the same again.
        room: cython.Py_ssize_t = HEADER_SIZE + min(max(batch_bytes, 0), 1 << 16)
        scratch: bytearray = new_buffer(room)
        p: cython.p_uchar = buffer_pointer(scratch)
        if start < 0 or start >= stop or stop > (self.rows if selection is None else selection.rows):
            raise InvalidRecord(f"no rows from {start} to {stop}")
        while place < stop:
            row = place if selection is None else selection.number(place)
            if row < 0 or row >= self.rows:
                raise InvalidRecord(f"row {row} is selected; there are {self.rows:,}")
            if has_key:
                key_at, key_size = key.find(row)
                if key_size == -2:
                    raise outside("key", row)
            if has_value:
                value_at, value_size = value.find(row)
                if value_size == -2:
                    raise outside("value", row)
            if has_headers:
                header_size = headers.measure(row)
            if has_timestamp:
                if timestamps.is_null(row):
                    timestamp = now_ms
                else:
                    timestamp = timestamps.number(row)
                    if self._micros:
                        timestamp = floor_thousandth(timestamp)
                    if timestamp < -1:
                        raise InvalidRecord(
                            f"row {row}: its timestamp, {timestamp} ms, lies before 1970; a record's cannot"
                        )
            if count == 0:
                base_timestamp = timestamp
            delta = wrapped(timestamp - base_timestamp)
            body = (
                1
                + varint_size(delta)
                + varint_size(count)
                + (1 if key_size < 0 else varint_size(key_size) + key_size)
                + (1 if value_size < 0 else varint_size(value_size) + value_size)
                + header_size
            )
            size = varint_size(body) + body
            if size > batch_bytes - used:
                if count:
                    break
                if size > INT32_MAX - HEADER_SIZE:
                    raise RecordTooLarge(f"row {row}: its record has {size:,} bytes; the format holds at most 2 GiB")
                if size > limit:
                    raise RecordTooLarge(
                        f"row {row}: its record has {size:,} bytes, and no reader takes more than "
                        f"max_decompressed_bytes, {limit:,}"
                    )
            if size > room - used:
                room = max(2 * room, used + size)
                resize(scratch, room)
                p = buffer_pointer(scratch)
            if timestamp > max_timestamp:
                max_timestamp = timestamp
            used = store_varint(p, used, body)
            p[used] = 0
            used = store_varint(p, used + 1, delta)
            used = store_varint(p, used, count)
            used = store_bytes(p, used, keys, key_at, key_size)
            used = store_bytes(p, used, values, value_at, value_size)
            if has_headers:
                used = headers.store(p, used, row)
            else:
                p[used] = 0
                used += 1
            count += 1
            place += 1
        if codec:
            with memoryview(scratch) as whole, whole[HEADER_SIZE:used] as records:
                packed: bytes = compress(codec, records)
            batch = new_bytes(HEADER_SIZE + len(packed))
            copy(new_pointer(batch), HEADER_SIZE, pointer(packed), 0, len(packed))
        else:
            batch = new_bytes(used)
            copy(new_pointer(batch), HEADER_SIZE, p, HEADER_SIZE, used - HEADER_SIZE)
        return (
            finish_batch(batch, 0, 0, codec, count - 1, base_timestamp, max_timestamp, -1, -1, -1, count),
            place,
        )


def partitions_of(keys: ArrowBytes, count: cython.longlong):
    """Return the partition, of `count`, that Kafka's default partitioner gives each key: int32, -1 for null."""
    row: cython.Py_ssize_t
    at: cython.longlong
    size: cython.longlong
    hashed: cython.uint
    if count < 1 or count > INT32_MAX:
        raise ValueError(f"a topic of {count} partitions")
    out: bytearray = new_buffer(4 * keys.rows)
    p: cython.p_uchar = buffer_pointer(out)
    for row in range(keys.rows):
        at, size = keys.find(row)
        if size == -2:
            raise outside("key", row)
        if size < 0:
            put_i32(p, row, -1)
        else:
            hashed = cython.cast(cython.uint, murmur2_at(keys._data, at, size) & 0x7FFFFFFF)
            put_i32(p, row, hashed % cython.cast(cython.uint, count))
    return out


def group_rows(partitions: ArrowInts, count: cython.Py_ssize_t):
    """Return (row numbers, starts): the int32 rows of each of `count` partitions, ascending, one behind the other.

    Those of a partition stand in [starts[partition], starts[partition + 1]).
    """
    rows: cython.Py_ssize_t = partitions.rows
    row: cython.Py_ssize_t
    partition: cython.longlong
    if count < 1 or count > INT32_MAX or rows > INT32_MAX:
        raise ValueError(f"{rows} rows of {count} partitions")
    # Counted one place up, so that the sums are starts; then each start moves up to be the end.
    ends: bytearray = bytearray(8 * (count + 1))
    out: bytearray = new_buffer(4 * rows)
    e: cython.p_uchar = buffer_pointer(ends)
    p: cython.p_uchar = buffer_pointer(out)
    for row in range(rows):
        partition = partitions.number(row)
        if partitions.is_null(row) or partition < 0 or partition >= count:
            what = "null" if partitions.is_null(row) else str(partition)
            raise InvalidRecord(f"row {row}: its partition is {what}; the topic has 0 to {count - 1}")
        put_i64(e, partition + 1, get_i64(e, partition + 1) + 1)
    for partition in range(count):
        put_i64(e, partition + 1, get_i64(e, partition) + get_i64(e, partition + 1))
    starts: list = [get_i64(e, partition) for partition in range(count + 1)]
    for row in range(rows):
        partition = partitions.number(row)
        put_i32(p, get_i64(e, partition), row)
        put_i64(e, partition, get_i64(e, partition) + 1)
    return out, starts
