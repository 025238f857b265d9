"""The one walk over the records of a batch, with every check of them.

A record is, all varints zigzag:

    length, attributes int8, timestamp delta, offset delta,
    key length (-1: none), key, value length (-1: none), value,
    header count, then for each header: key length, key, value length (-1: none), value

The invariant: what `RecordCursor.places` says lies inside `RecordCursor.body`, and every record there has passed all
checks: its lengths and headers fill exactly its bytes, offsets ascend within the batch, and its timestamp can be one.
"""

import cython
from cython.cimports.seeklog.record.layout import (
    ATTRIBUTES_LOW,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP,
    RECORD_COUNT,
    RECORD_SIZE_MIN,
    Place,
)
from cython.cimports.seeklog.record.primitives import load_i32, load_i64, load_varint, pointer, wrapped

from seeklog.errors import CorruptBatch, CorruptionError
from seeklog.record.codec import decompress

# What may be wrong with a record: numbers into `_FAULTS`.
_LENGTH = cython.declare(cython.int, 1)
_EMPTY = cython.declare(cython.int, 2)
_TIMESTAMP = cython.declare(cython.int, 3)
_TIME_BOUNDS = cython.declare(cython.int, 4)
_OFFSET = cython.declare(cython.int, 5)
_KEY = cython.declare(cython.int, 6)
_VALUE = cython.declare(cython.int, 7)
_HEADER_COUNT = cython.declare(cython.int, 8)
_HEADER_KEY = cython.declare(cython.int, 9)
_HEADER_VALUE = cython.declare(cython.int, 10)
_LEFT_OVER = cython.declare(cython.int, 11)
_FAULTS = (
    "",
    "its length overruns the batch",
    "it is empty",
    "its timestamp is no varint",
    "its timestamp is out of bounds",
    "its offset does not lie in the batch",
    "its key overruns the record",
    "its value overruns the record",
    "the header count cannot be",
    "a header's key overruns the record",
    "a header's value overruns the record",
    "bytes are left over after its headers",
)


@cython.freelist(8)
@cython.final
@cython.cclass
class RecordCursor:
    """Walks one batch after the other: `open` it, then `fill` until that returns 0.

    The caller has checked the batch's header, and brings a table of `GROUP` places to fill. What stands there points
    into `body`, by `p`, until the next `open`.
    """

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def open(
        self,
        data: bytes,
        at: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        position: cython.longlong,
        limit: cython.Py_ssize_t,
    ) -> cython.int:
        """Begin a batch. Its records are decompressed to at most `limit` bytes; errors name `position`."""
        header: cython.p_uchar = pointer(data)
        attributes: cython.int = header[at + ATTRIBUTES_LOW]
        self.position = position
        self._base_offset = load_i64(header, at + BASE_OFFSET)
        self._last_delta = load_i32(header, at + LAST_OFFSET_DELTA)
        self._base_timestamp = load_i64(header, at + BASE_TIMESTAMP)
        self._append_time = load_i64(header, at + MAX_TIMESTAMP)
        self._has_append_time = (attributes & LOG_APPEND_TIME) != 0
        self.count = load_i32(header, at + RECORD_COUNT)
        if attributes & CODEC_MASK:
            self.body = decompressed(data, at, size, attributes & CODEC_MASK, position, limit)
            self._begin = 0
            self._end = len(self.body)
        else:
            self.body = data
            self._begin = at + HEADER_SIZE
            self._end = at + size
        self.p = pointer(self.body)
        self.size = self._end - self._begin
        # No header proves the count of what is compressed: it is believed only as far as the records can be there.
        # A control batch may have any content: whoever asks for its type gets none.
        if self.count > self.size // RECORD_SIZE_MIN and not attributes & CONTROL:
            raise CorruptBatch(f"{self.count} records cannot fit in {self.size} bytes", position=position)
        self.rewind()
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def rewind(self) -> cython.void:
        """Begin with the first record again."""
        self._at = self._begin
        self.index = 0
        self._previous_delta = -1
        # Also without records there may be bytes left over.
        self.more = self.count > 0 or self.size > 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def release(self) -> cython.int:
        """Forget the batch, so that its bytes may go."""
        self.body = b""
        self.more = False
        return 0

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def fill(
        self,
        places: cython.pointer(Place),
        room: cython.Py_ssize_t,
        start: cython.longlong,
        stop: cython.longlong,
    ) -> cython.Py_ssize_t:
        """Parse the next records with offsets in [start, stop) into at most `room` places; return how many.

        `more` says whether to call again. Records below `start` are passed over by their length, and nothing is read
        from `stop` on. A damaged record raises when all records before it were handed out.
        """
        p: cython.p_uchar = self.p
        at: cython.Py_ssize_t = self._at
        end: cython.Py_ssize_t = self._end
        base_offset: cython.longlong = self._base_offset
        last_delta: cython.longlong = self._last_delta
        base_timestamp: cython.longlong = self._base_timestamp
        previous_delta: cython.longlong = self._previous_delta
        has_append_time: cython.bint = self._has_append_time
        append_time: cython.longlong = self._append_time
        index: cython.longlong = self.index
        count: cython.longlong = self.count
        filled: cython.Py_ssize_t = 0
        fault: cython.int = 0
        here: cython.Py_ssize_t
        record_end: cython.Py_ssize_t
        size: cython.longlong
        delta: cython.longlong
        timestamp: cython.longlong
        while filled < room and index < count:
            size, here = load_varint(p, at, end)
            if here < 0 or size < 0 or size > end - here:
                fault = _LENGTH
                break
            if size == 0:
                fault = _EMPTY
                break
            record_end = here + cython.cast(cython.Py_ssize_t, size)
            # One byte of attributes, of which none is used.
            timestamp, here = load_varint(p, here + 1, record_end)
            if here < 0:
                fault = _TIMESTAMP
                break
            timestamp = append_time if has_append_time else wrapped(base_timestamp + timestamp)
            if timestamp < -1:
                fault = _TIME_BOUNDS
                break
            places[filled].start = at
            places[filled].offset_at = here
            places[filled].timestamp_ms = timestamp
            delta, here = load_varint(p, here, record_end)
            if here < 0 or delta <= previous_delta or delta > last_delta:
                fault = _OFFSET
                break
            if base_offset + delta < start:
                previous_delta = delta
                at = record_end
                index += 1
                continue
            if base_offset + delta >= stop:
                self.more = False
                return filled
            places[filled].offset = base_offset + delta
            size, here = load_varint(p, here, record_end)
            if here < 0 or size < -1 or size > record_end - here:
                fault = _KEY
                break
            places[filled].key_at = here
            places[filled].key_size = size
            if size > 0:
                here += cython.cast(cython.Py_ssize_t, size)
            size, here = load_varint(p, here, record_end)
            if here < 0 or size < -1 or size > record_end - here:
                fault = _VALUE
                break
            places[filled].value_at = here
            places[filled].value_size = size
            if size > 0:
                here += cython.cast(cython.Py_ssize_t, size)
            places[filled].headers_at = here
            places[filled].end = record_end
            if not (record_end - here == 1 and p[here] == 0):
                fault = header_fault(p, here, record_end)
                if fault:
                    break
            previous_delta = delta
            at = record_end
            index += 1
            filled += 1
        self._at = at
        self._previous_delta = previous_delta
        self.index = index
        if filled == 0:
            if fault:
                raise record_error(_FAULTS[fault], index, self.position)
            if index == count and at != end:
                raise CorruptBatch(f"{end - at} bytes are left over behind the last record", position=self.position)
        # Damage is met again, by the call that has nothing else to return.
        self.more = index < count or at != end
        return filled


@cython.cfunc
@cython.exceptval(check=False)
def header_fault(p: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
    """Return the number of what is wrong with the headers of a record, which must fill its bytes, or 0."""
    count: cython.longlong
    size: cython.longlong
    count, at = load_varint(p, at, end)
    # A header takes at least two bytes: the lengths of its key and of its value.
    if at < 0 or count < 0 or count > (end - at) // 2:
        return _HEADER_COUNT
    while count > 0:
        size, at = load_varint(p, at, end)
        if at < 0 or size < 0 or size > end - at:
            return _HEADER_KEY
        at += cython.cast(cython.Py_ssize_t, size)
        size, at = load_varint(p, at, end)
        if at < 0 or size < -1 or size > end - at:
            return _HEADER_VALUE
        if size > 0:
            at += cython.cast(cython.Py_ssize_t, size)
        count -= 1
    return 0 if at == end else _LEFT_OVER


@cython.cfunc
def record_error(what: object, index: cython.longlong, position: cython.longlong):
    return CorruptBatch(f"record {index}: {what}", position=position)


@cython.cfunc
def decompressed(
    data: bytes,
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    codec: cython.int,
    position: cython.longlong,
    limit: cython.Py_ssize_t,
):
    """Return the records of a compressed batch."""
    try:
        with memoryview(data) as view:
            return decompress(codec, view[at + HEADER_SIZE : at + size], limit=limit)
    except CorruptionError as error:
        raise type(error)(error.reason, position=position, advice=error.advice) from error
