"""The only walk over batches and their records, with all checks of them.

A record is, all varints zigzag:

    length, attributes int8, timestamp delta, offset delta,
    key length (-1: none), key, value length (-1: none), value,
    header count, then for each header: key length, key, value length (-1: none), value

The invariant: positions in `RecordCursor.places` are inside `RecordCursor.body`, and every record there has passed all
checks: its lengths and headers fill exactly its bytes, offsets ascend within the batch, and its timestamp is valid.

`cursor.pxd` declares the C types.
"""

import cython
from cython import Py_ssize_t, bint, longlong, p_uchar
from cython.cimports.seeklog.record import batch_header, layout
from cython.cimports.seeklog.record.layout import Place
from cython.cimports.seeklog.record.primitives import (
    load_i16,
    load_i32,
    load_i64,
    load_varint,
    pointer,
    view_at,
    wrapped,
)

from seeklog.errors import CorruptBatch, CorruptionError, counted
from seeklog.record.codec import decompress
from seeklog.record.layout import new_places

# The faults of a record: indexes into `_FAULTS`.
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
    "its timestamp is not a varint",
    "its timestamp is out of bounds",
    "its offset is outside the batch",
    "its key overruns the record",
    "its value overruns the record",
    "the header count is impossible",
    "a header's key overruns the record",
    "a header's value overruns the record",
    "bytes are left over after its headers",
)


@cython.final
@cython.cclass
class RecordCursor:
    """Walks consecutive batches: call `begin`, then `next_batch` and `advance` until `next_batch` returns False.

    Before `check`, only the size and the offsets of a batch are checked. `open` prepares its records; `fill` parses
    them while there are `more`.
    """

    def begin(self, data, at, origin, next_offset, contiguous):
        """Start before the batch at `at`. Errors give positions in the file, where `data` starts at `origin`."""
        self.data = self.body = data
        self._is_decompressed = False
        self.begin_at(pointer(data), len(data), origin, next_offset, contiguous)
        self.at = at
        if not cython.compiled:
            self.places = new_places()
        return 0

    def begin_at(self, p, end, origin, next_offset, contiguous):
        """Start at the first of `end` bytes at `p`, which must stay there. Then `data` and `body` must not be used."""
        self.header = p
        self._data_end = end
        self.at = 0
        self.next_offset = next_offset
        self._origin = origin
        self._contiguous = contiguous
        return 0

    def next_batch(self):
        """Find the next batch; return whether it is complete.

        Raises if no batch starts there, if its base offset is below `next_offset` or, if `contiguous`, differs from it.
        """
        p: p_uchar = self.header
        at: Py_ssize_t = self.at
        self.position = self._origin + at
        self.size = batch_header.next_batch(p, at, self._data_end, self.next_offset, self._contiguous, self.position)
        if self.size == 0:
            return False
        self.base_offset = load_i64(p, at + layout.BASE_OFFSET)
        self.last_offset = self.base_offset + load_i32(p, at + layout.LAST_OFFSET_DELTA)
        self.attributes = load_i16(p, at + layout.ATTRIBUTES)
        return True

    def check(self):
        """Check the CRC of the batch, and that its counts are possible."""
        return batch_header.check_batch(self.header, self.at, self.size, self.position)

    def check_crc(self):
        return batch_header.check_crc(self.header, self.at, self.size, self.position)

    def advance(self):
        self.next_offset = self.last_offset + 1
        self.at += self.size

    def skip(self):
        """Skip the batch. If offsets may have gaps, only its CRC proves its header, so the CRC is checked."""
        if not self._contiguous:
            self.check_crc()
        self.advance()
        return 0

    def open(self, limit):
        """Prepare the records of the batch, decompressing at most `limit` bytes."""
        codec: cython.int = self.attributes & layout.CODEC_MASK
        self.count = load_i32(self.header, self.at + layout.RECORD_COUNT)
        if codec:
            with cython.gil:
                self.body = self.decompressed(codec, limit)
                self.p = pointer(self.body)
                self._end = self.readable = len(self.body)
            self._begin = 0
            self._is_decompressed = True
        else:
            if self._is_decompressed:
                with cython.gil:
                    self.body = self.data
                self._is_decompressed = False
            self.p = self.header
            self.readable = self._data_end
            self._begin = self.at + layout.HEADER_SIZE
            self._end = self.at + self.size
        self.body_size = self._end - self._begin
        # No header proves the count of compressed records: it is accepted only if that many records can fit.
        # A control batch may have any content; its type is then read as unknown.
        is_control: bint = (self.attributes & layout.CONTROL) != 0
        if self.count < 0 or (self.count > self.body_size // layout.RECORD_SIZE_MIN and not is_control):
            with cython.gil:
                raise CorruptBatch(
                    f"{counted(self.count, 'record')} cannot fit in {counted(self.body_size, 'byte')}",
                    position=self.position,
                )
        self.rewind()
        return 0

    def decompressed(self, codec, limit):
        try:
            with view_at(self.header, self.at + layout.HEADER_SIZE, self.size - layout.HEADER_SIZE) as compressed:
                return decompress(codec, compressed, limit=limit)
        except CorruptionError as error:
            raise type(error)(error.reason, position=self.position, advice=error.advice) from error

    def rewind(self):
        """Start again at the first record."""
        self._next = self._begin
        self.index = 0
        self._previous_delta = -1
        # A batch without records may still contain bytes.
        self.more = self.count > 0 or self.body_size > 0

    def release(self):
        """Drop the references to the bytes of the batches."""
        self.data = self.body = b""
        self.more = False
        return 0

    def fill(self, room, start, stop):
        """Parse the next records with offsets in [start, stop) into at most `room` places; return their number.

        Call again while `more` is true. Records below `start` are skipped by their length, and nothing is read from
        `stop` on. A damaged record raises only after all records before it were returned.
        """
        p: p_uchar = self.p
        places: cython.pointer(Place) = self.places
        at: Py_ssize_t = self._next
        end: Py_ssize_t = self._end
        base_offset: longlong = self.base_offset
        last_delta: longlong = self.last_offset - base_offset
        base_timestamp: longlong = load_i64(self.header, self.at + layout.BASE_TIMESTAMP)
        append_time: longlong = load_i64(self.header, self.at + layout.MAX_TIMESTAMP)
        has_append_time: bint = (self.attributes & layout.LOG_APPEND_TIME) != 0
        previous_delta: longlong = self._previous_delta
        index: longlong = self.index
        count: longlong = self.count
        filled: Py_ssize_t = 0
        fault: cython.int = 0
        here: Py_ssize_t
        record_end: Py_ssize_t
        size: longlong
        delta: longlong
        timestamp: longlong
        while filled < room and index < count:
            size, here = load_varint(p, at, end)
            if here < 0 or size < 0 or size > end - here:
                fault = _LENGTH
                break
            if size == 0:
                fault = _EMPTY
                break
            record_end = here + cython.cast(Py_ssize_t, size)
            # One byte of attributes, all unused.
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
                here += cython.cast(Py_ssize_t, size)
            size, here = load_varint(p, here, record_end)
            if here < 0 or size < -1 or size > record_end - here:
                fault = _VALUE
                break
            places[filled].value_at = here
            places[filled].value_size = size
            if size > 0:
                here += cython.cast(Py_ssize_t, size)
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
        self._next = at
        self._previous_delta = previous_delta
        self.index = index
        if filled == 0:
            if fault:
                with cython.gil:
                    raise record_error(_FAULTS[fault], index, self.position)
            if index == count and at != end:
                with cython.gil:
                    raise CorruptBatch(
                        f"{counted(end - at, 'byte is', 'bytes are')} left over after the last record",
                        position=self.position,
                    )
        # The next call, which has no records to return, finds the damage again and raises.
        self.more = index < count or at != end
        return filled


@cython.cfunc
@cython.exceptval(check=False)
@cython.nogil
def header_fault(p: p_uchar, at: Py_ssize_t, end: Py_ssize_t) -> cython.int:
    """Return the fault number of a record's headers, which must fill its bytes, or 0."""
    count: longlong
    size: longlong
    count, at = load_varint(p, at, end)
    # A header takes at least two bytes: the lengths of its key and of its value.
    if at < 0 or count < 0 or count > (end - at) // 2:
        return _HEADER_COUNT
    while count > 0:
        size, at = load_varint(p, at, end)
        if at < 0 or size < 0 or size > end - at:
            return _HEADER_KEY
        at += cython.cast(Py_ssize_t, size)
        size, at = load_varint(p, at, end)
        if at < 0 or size < -1 or size > end - at:
            return _HEADER_VALUE
        if size > 0:
            at += cython.cast(Py_ssize_t, size)
        count -= 1
    return 0 if at == end else _LEFT_OVER


def record_error(what, index, position):
    return CorruptBatch(f"record {index}: {what}", position=position)
