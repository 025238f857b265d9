"""Rows of Arrow arrays, read in place and encoded as batches."""

import cython
from cython import Py_ssize_t, bint, longlong, p_uchar, uint
from cython.cimports.seeklog.record.growing import GrowingBatch
from cython.cimports.seeklog.record.key_hash import murmur2_at
from cython.cimports.seeklog.record.layout import HEADER_SIZE, INT32_MAX
from cython.cimports.seeklog.record.primitives import (
    bit_at,
    buffer_pointer,
    copy,
    get_i32,
    get_i64,
    new_buffer,
    put_i32,
    put_i64,
    store_varint,
    varint_size,
    view_of,
    view_pointer,
    wrapped,
)

from seeklog.errors import InvalidRecord, RecordTooLarge, counted


@cython.cfunc
def check_view(what: str, view: object, width: longlong, rows: Py_ssize_t, offset: Py_ssize_t) -> cython.int:
    """Raise `InvalidRecord` unless the buffer holds `rows` items of `width` bits after `offset`."""
    size: longlong = len(view)
    if rows < 0 or offset < 0 or rows > 8 * size // width or offset > 8 * size // width - rows:
        raise InvalidRecord(
            f"{counted(size, 'byte')} of {what} cannot hold {counted(rows, 'row')} from row {offset:,}; "
            "validate the array"
        )
    return 0


@cython.cclass
class ArrowColumn:
    """Rows of an Arrow array that may contain nulls. `offset` is the array's: its first row in the buffers.

    The buffers are read in place. A buffer may be None where Arrow omits it.
    """

    rows = cython.declare(Py_ssize_t, visibility="readonly")
    _offset: Py_ssize_t
    _view: object
    _valid: p_uchar
    _has_nulls: bint

    def __init__(self, rows: Py_ssize_t, *, offset: Py_ssize_t, valid):
        self._view = view_of(valid)
        if valid is not None:
            check_view("validity", self._view, 1, rows, offset)
        self.rows = rows
        self._offset = offset
        self._valid = view_pointer(self._view)
        self._has_nulls = valid is not None

    @cython.final
    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def is_null(self, row: Py_ssize_t) -> bint:
        return self._has_nulls and not bit_at(self._valid, self._offset + row)


@cython.final
@cython.cclass
class ArrowBytes(ArrowColumn):
    """Byte strings or text. The ends are int64 if `wide`, else int32."""

    _views: tuple
    _ends: p_uchar
    _data: p_uchar
    _size: longlong
    _wide: bint

    def __init__(self, rows: Py_ssize_t, *, offset: Py_ssize_t, wide: bint, valid, ends, data):
        ArrowColumn.__init__(self, rows, offset=offset, valid=valid)
        ends_view, data_view = view_of(ends), view_of(data)
        if rows:
            # There is one end more than rows; an array without rows may have none.
            check_view("ends", ends_view, 64 if wide else 32, rows + 1, offset)
        self._views = (ends_view, data_view)
        self._ends = view_pointer(ends_view)
        self._data = view_pointer(data_view)
        self._size = len(data_view)
        self._wide = wide

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def find(self, row: Py_ssize_t) -> tuple[longlong, longlong]:
        """Return the start and size of a row's bytes: size -1 for null, -2 if they are outside the buffer."""
        start: longlong
        end: longlong
        if self.is_null(row):
            return 0, -1
        row += self._offset
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
class ArrowInts(ArrowColumn):
    """Integers or times: int64 if `wide`, else int32."""

    _data_view: object
    _data: p_uchar
    _wide: bint

    def __init__(self, rows: Py_ssize_t, *, offset: Py_ssize_t, wide: bint, valid, data):
        ArrowColumn.__init__(self, rows, offset=offset, valid=valid)
        self._data_view = view_of(data)
        check_view("numbers", self._data_view, 64 if wide else 32, rows, offset)
        self._data = view_pointer(self._data_view)
        self._wide = wide

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def number(self, row: Py_ssize_t) -> longlong:
        if self._wide:
            return get_i64(self._data, self._offset + row)
        return get_i32(self._data, self._offset + row)


@cython.final
@cython.cclass
class ArrowHeaders:
    """An Arrow list of (key, value) structs for each row, read in place.

    `keys` and `values` belong to all the structs; `pair_valid`, from bit `pair_offset`, marks structs that are not
    null.
    """

    rows = cython.declare(Py_ssize_t, visibility="readonly")
    _lists: ArrowBytes
    _keys: ArrowBytes
    _values: ArrowBytes
    _pairs: ArrowColumn

    def __init__(
        self,
        rows: Py_ssize_t,
        *,
        offset: Py_ssize_t,
        wide: bint,
        valid,
        ends,
        pair_offset: Py_ssize_t,
        pair_valid,
        keys: ArrowBytes,
        values: ArrowBytes,
    ):
        if keys.rows != values.rows:
            raise InvalidRecord(
                f"{counted(keys.rows, 'header key')} and {counted(values.rows, 'value')}; validate the array"
            )
        # The ends of a list have the same layout as those of byte strings, but count pairs.
        self._lists = ArrowBytes(rows, offset=offset, wide=wide, valid=valid, ends=ends, data=None)
        self._lists._size = keys.rows
        self._pairs = ArrowColumn(keys.rows, offset=pair_offset, valid=pair_valid)
        self.rows = rows
        self._keys = keys
        self._values = values

    @cython.cfunc
    def measure(self, row: Py_ssize_t) -> longlong:
        """Return the encoded size of a row's headers including their count, or raise if they are invalid."""
        first: longlong
        count: longlong
        size: longlong
        pair: longlong
        first, count = self._lists.find(row)
        if count == -2:
            raise outside("headers", row)
        if count <= 0:
            return 1
        total: longlong = varint_size(count)
        for pair in range(first, first + count):
            if self._pairs.is_null(pair):
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
                raise RecordTooLarge(f"row {row}: its headers have more than 2 GiB; the format allows no more")
        return total

    @cython.cfunc
    @cython.exceptval(check=False)
    def store(self, p: p_uchar, at: Py_ssize_t, row: Py_ssize_t) -> Py_ssize_t:
        """Store the headers of a row after `measure` accepted them; return the position after them."""
        first: longlong
        count: longlong
        start: longlong
        size: longlong
        pair: longlong
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
def outside(what: str, row: longlong):
    return InvalidRecord(f"row {row}: the bytes of its {what} are outside the buffer; validate the array")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def store_bytes(
    p: p_uchar,
    at: Py_ssize_t,
    source: p_uchar,
    start: longlong,
    size: longlong,
) -> Py_ssize_t:
    """Store the length, then the bytes, of a key or value; only the length if it is -1."""
    at = store_varint(p, at, size)
    if size <= 0:
        return at
    copy(p, at, source, start, size)
    return at + cython.cast(Py_ssize_t, size)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def floor_thousandth(value: longlong) -> longlong:
    """Divide by a thousand, rounding down: C rounds towards zero."""
    return value // 1000 if value >= 0 else -1 - (-1 - value) // 1000


@cython.final
@cython.cclass
class ArrowRows:
    """Rows of Arrow arrays, ready to be encoded as records. A column may be None: then no row has it.

    Times are in microseconds if `micros`, else in milliseconds.
    """

    rows = cython.declare(Py_ssize_t, visibility="readonly")
    _key: ArrowBytes
    _value: ArrowBytes
    _timestamp: ArrowInts
    _headers: ArrowHeaders
    _micros: bint

    def __init__(
        self,
        rows: Py_ssize_t,
        *,
        key: ArrowBytes | None = None,
        value: ArrowBytes | None = None,
        timestamp: ArrowInts | None = None,
        headers: ArrowHeaders | None = None,
        micros: bint = False,
    ):
        for name, column in (("key", key), ("value", value), ("timestamp", timestamp), ("headers", headers)):
            if column is not None and column.rows != rows:
                raise InvalidRecord(f"the column {name} has {counted(column.rows, 'row')}, another has {rows:,}")
        self.rows = rows
        self._key = key
        self._value = value
        self._timestamp = timestamp
        self._headers = headers
        self._micros = micros

    def encode(
        self,
        selection: ArrowInts | None,
        start: Py_ssize_t,
        stop: Py_ssize_t,
        now_ms: longlong,
        codec: cython.int,
        batch_bytes: longlong,
        limit: longlong,
    ):
        """Encode rows as one finished batch. Arguments and results are those of `gather`."""
        batch, place = self.gather(selection, start, stop, now_ms, batch_bytes, limit)
        return batch.finish(now_ms, 0, 0, codec, (-1, -1, -1)), place

    def gather(
        self,
        selection: ArrowInts | None,
        start: Py_ssize_t,
        stop: Py_ssize_t,
        now_ms: longlong,
        batch_bytes: longlong,
        limit: longlong,
    ):
        """Encode rows into one batch: as many as fit in `batch_bytes` before compression, or one larger row.

        Takes the rows that `selection` lists in [start, stop), or these row numbers themselves if it is None. A null
        timestamp becomes `now_ms`. A record may take `limit` bytes. Returns (batch, index of the first row not taken).
        """
        place: Py_ssize_t = start
        batch_bytes = min(batch_bytes, limit + HEADER_SIZE)
        if start < 0 or start >= stop or stop > (self.rows if selection is None else selection.rows):
            raise InvalidRecord(f"no rows from {start} to {stop}")
        batch: GrowingBatch = GrowingBatch()
        # Room is cheap: the allocator returns the same memory to the next batch.
        batch.grow(min(max(batch_bytes, 0), 1 << 16))
        while place < stop:
            row: longlong = place if selection is None else selection.number(place)
            if row < 0 or row >= self.rows:
                raise InvalidRecord(f"row {row} is selected; there are {self.rows:,}")
            if not self._add(batch, row, now_ms, batch_bytes, limit):
                break
            place += 1
        return batch, place

    def scatter(self, partitions: ArrowInts, start: Py_ssize_t, now_ms: longlong, batches: list, batch_bytes: longlong):
        """Encode rows from `start` on, each into the batch of its partition, until a batch of `batch_bytes` is full.

        Returns (row that was not taken, partition of the full batch), or (number of rows, -1) at the end.
        """
        row: Py_ssize_t
        partition: longlong
        if start < 0 or partitions.rows != self.rows:
            raise InvalidRecord(
                f"{counted(self.rows, 'row')} from {start}, and {counted(partitions.rows, 'partition')}"
            )
        for row in range(start, self.rows):
            partition = partitions.number(row)
            if partitions.is_null(row) or partition < 0 or partition >= len(batches):
                raise not_a_partition(partitions, row, len(batches))
            if not self._add(batches[partition], row, now_ms, batch_bytes, INT32_MAX):
                return row, partition
        return self.rows, -1

    @cython.cfunc
    @cython.exceptval(-1)
    def _add(
        self, batch: GrowingBatch, row: Py_ssize_t, now_ms: longlong, batch_bytes: longlong, limit: longlong
    ) -> cython.int:
        """Add a row to a batch, and return 1; or 0 if that would take more than `batch_bytes`. An empty batch has room.

        Raises if the record is invalid or takes more than `limit` bytes.
        """
        key_at: longlong = 0
        key_size: longlong = -1
        value_at: longlong = 0
        value_size: longlong = -1
        header_size: longlong = 1
        timestamp: longlong = now_ms
        count: longlong = batch.count
        used: Py_ssize_t = batch.size
        if self._key is not None:
            key_at, key_size = self._key.find(row)
            if key_size == -2:
                raise outside("key", row)
        if self._value is not None:
            value_at, value_size = self._value.find(row)
            if value_size == -2:
                raise outside("value", row)
        if self._headers is not None:
            header_size = self._headers.measure(row)
        if self._timestamp is not None and not self._timestamp.is_null(row):
            timestamp = self._timestamp.number(row)
            if self._micros:
                timestamp = floor_thousandth(timestamp)
            if timestamp < -1:
                raise InvalidRecord(
                    f"row {row}: its timestamp, {timestamp} ms, is before 1970; a record's timestamp cannot be"
                )
        delta: longlong = wrapped(timestamp - batch.base_timestamp) if count else 0
        body: longlong = (
            1
            + varint_size(delta)
            + varint_size(count)
            + (1 if key_size < 0 else varint_size(key_size) + key_size)
            + (1 if value_size < 0 else varint_size(value_size) + value_size)
            + header_size
        )
        size: longlong = varint_size(body) + body
        if size > batch_bytes - used:
            if count:
                return 0
            if size > INT32_MAX - HEADER_SIZE:
                raise RecordTooLarge(f"row {row}: its record has {size:,} bytes; the format holds at most 2 GiB")
            if size > limit:
                raise RecordTooLarge(
                    f"row {row}: its record has {size:,} bytes, and no reader takes more than "
                    f"max.decompressed.bytes, {limit:,}; split the row, or raise that setting of the topic"
                )
        if size > batch.room - used:
            batch.grow(size)
        p: p_uchar = buffer_pointer(batch.buffer)
        used = store_varint(p, used, body)
        p[used] = 0
        used = store_varint(p, used + 1, delta)
        used = store_varint(p, used, count)
        used = store_bytes(p, used, self._key._data if key_size > 0 else p, key_at, key_size)
        used = store_bytes(p, used, self._value._data if value_size > 0 else p, value_at, value_size)
        if self._headers is not None:
            used = self._headers.store(p, used, row)
        else:
            p[used] = 0
            used += 1
        batch.size = used
        batch.note(timestamp, key_size < 0)
        return 1


def partitions_of(keys: ArrowBytes, count: longlong):
    """Return each key's partition, of `count`, by Kafka's default partitioner: int32, -1 for null."""
    row: Py_ssize_t
    at: longlong
    size: longlong
    hashed: uint
    if count < 1 or count > INT32_MAX:
        raise ValueError(f"a topic of {count} partitions")
    out: bytearray = new_buffer(4 * keys.rows)
    p: p_uchar = buffer_pointer(out)
    for row in range(keys.rows):
        at, size = keys.find(row)
        if size == -2:
            raise outside("key", row)
        if size < 0:
            put_i32(p, row, -1)
        else:
            hashed = cython.cast(uint, murmur2_at(keys._data, at, size) & 0x7FFFFFFF)
            put_i32(p, row, hashed % cython.cast(uint, count))
    return out


@cython.cfunc
def not_a_partition(partitions: ArrowInts, row: Py_ssize_t, count: Py_ssize_t):
    what = "null" if partitions.is_null(row) else str(partitions.number(row))
    return InvalidRecord(f"row {row}: its partition is {what}; the topic has partitions 0 to {count - 1}")


def group_rows(partitions: ArrowInts, count: Py_ssize_t):
    """Return (row numbers, starts): the int32 rows of each of `count` partitions in turn, ascending.

    The rows of a partition are at [starts[partition], starts[partition + 1]).
    """
    rows: Py_ssize_t = partitions.rows
    row: Py_ssize_t
    partition: longlong
    if count < 1 or count > INT32_MAX or rows > INT32_MAX:
        raise ValueError(f"{rows} rows of {count} partitions")
    # Counts are stored one index up, so that their sums are starts; each start then moves up to become the end.
    ends: bytearray = bytearray(8 * (count + 1))
    out: bytearray = new_buffer(4 * rows)
    e: p_uchar = buffer_pointer(ends)
    p: p_uchar = buffer_pointer(out)
    for row in range(rows):
        partition = partitions.number(row)
        if partitions.is_null(row) or partition < 0 or partition >= count:
            raise not_a_partition(partitions, row, count)
        put_i64(e, partition + 1, get_i64(e, partition + 1) + 1)
    for partition in range(count):
        put_i64(e, partition + 1, get_i64(e, partition) + get_i64(e, partition + 1))
    starts: list = [get_i64(e, partition) for partition in range(count + 1)]
    for row in range(rows):
        partition = partitions.number(row)
        put_i32(p, get_i64(e, partition), row)
        put_i64(e, partition, get_i64(e, partition) + 1)
    return out, starts
