"""Batches decoded to `Record` objects."""

import cython
from cython.cimports.seeklog.record.batch_header import check_batch, check_crc, next_batch, whole_batch_size
from cython.cimports.seeklog.record.cursor import RecordCursor
from cython.cimports.seeklog.record.layout import (
    ATTRIBUTES_LOW,
    BASE_OFFSET,
    CONTROL,
    GROUP,
    INT64_MAX,
    LAST_OFFSET_DELTA,
    Place,
)
from cython.cimports.seeklog.record.primitives import load_i32, load_i64, load_varint, pointer, slice_bytes
from cython.cimports.seeklog.record.record import Record

from seeklog.errors import InvalidRecord
from seeklog.record.layout import new_places


def read_records(
    data: bytes,
    at: cython.Py_ssize_t,
    origin: cython.longlong,
    next_offset: cython.longlong,
    contiguous: cython.bint,
    start: cython.longlong,
    stop: cython.longlong,
    max_records: cython.Py_ssize_t,
    enough_records: cython.Py_ssize_t,
    enough_bytes: cython.longlong,
    limit: cython.Py_ssize_t,
    out: list,
    source: object = None,
):
    """Decode records with offsets in [start, stop) from consecutive batches into `out`.

    Stops when `out` holds `max_records`, after the batch with which `enough_records` or `enough_bytes` are
    reached, at the first batch that is not all there, or at `stop`. Every batch decoded has its CRC checked.
    Returns (index and next offset of the first batch not taken, bytes of the batches taken).
    """
    p: cython.p_uchar = pointer(data)
    end: cython.Py_ssize_t = len(data)
    size: cython.Py_ssize_t
    base: cython.longlong
    last: cython.longlong
    taken: cython.longlong = 0
    cursor: RecordCursor = RecordCursor.__new__(RecordCursor)
    while at < end and next_offset < stop and len(out) < enough_records and taken < enough_bytes:
        size = next_batch(p, at, end, next_offset, contiguous, origin + at)
        if size == 0:
            break
        base = load_i64(p, at + BASE_OFFSET)
        last = base + load_i32(p, at + LAST_OFFSET_DELTA)
        if last >= start:
            check_batch(data, p, at, size, origin + at)
            if base < stop and not p[at + ATTRIBUTES_LOW] & CONTROL:
                cursor.open(data, at, size, origin + at, limit)
                decode_batch(cursor, start, stop, max_records, out, source)
            taken += size
        elif not contiguous:
            check_crc(data, p, at, size, origin + at)
        next_offset = last + 1
        at += size
    return at, next_offset, taken


@cython.cfunc
def decode_batch(
    cursor: RecordCursor,
    start: cython.longlong,
    stop: cython.longlong,
    max_records: cython.Py_ssize_t,
    out: list,
    source: object,
) -> cython.int:
    """Add the records of an open batch that lie in [start, stop) to `out`, while it has room."""
    body: bytes = cursor.body
    p: cython.p_uchar = cursor.p
    filled: cython.Py_ssize_t
    number: cython.Py_ssize_t
    record: Record
    places: Place[GROUP]
    if not cython.compiled:
        places = new_places()
    while cursor.more and len(out) < max_records:
        filled = cursor.fill(places, min(GROUP, max_records - len(out)), start, stop)
        for number in range(filled):
            record = Record.__new__(Record)
            record.offset = places[number].offset
            record.timestamp = places[number].timestamp_ms
            record.source = source
            record.key = field_of(body, p, places[number].key_at, places[number].key_size)
            record.value = field_of(body, p, places[number].value_at, places[number].value_size)
            if places[number].end - places[number].headers_at == 1:
                record.headers = ()
            else:
                record.headers = decode_headers(body, p, places[number].headers_at, places[number].end)
            out.append(record)
    return 0


@cython.cfunc
@cython.inline
def field_of(body: bytes, p: cython.p_uchar, at: cython.Py_ssize_t, size: cython.longlong):
    if size < 0:
        return None
    return slice_bytes(body, p, at, size)


@cython.cfunc
def decode_headers(body: bytes, p: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> tuple:
    """Return the headers of a record, which the cursor has checked."""
    count: cython.longlong
    size: cython.longlong
    count, at = load_varint(p, at, end)
    headers: list = []
    while count > 0:
        size, at = load_varint(p, at, end)
        key = body[at : at + size].decode("utf-8", "surrogateescape")
        at += cython.cast(cython.Py_ssize_t, size)
        size, at = load_varint(p, at, end)
        headers.append((key, field_of(body, p, at, size)))
        if size > 0:
            at += cython.cast(cython.Py_ssize_t, size)
        count -= 1
    return tuple(headers)


def check_keyed(data: bytes, limit: cython.Py_ssize_t):
    """Refuse whole, checked batches that hold a record without key. Markers of transactions have none to miss."""
    p: cython.p_uchar = pointer(data)
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = len(data)
    size: cython.Py_ssize_t
    filled: cython.Py_ssize_t
    number: cython.Py_ssize_t
    cursor: RecordCursor = RecordCursor.__new__(RecordCursor)
    places: Place[GROUP]
    if not cython.compiled:
        places = new_places()
    while at < end:
        size = whole_batch_size(p, at, end)
        if not p[at + ATTRIBUTES_LOW] & CONTROL:
            cursor.open(data, at, size, at, limit)
            while cursor.more:
                filled = cursor.fill(places, GROUP, 0, INT64_MAX)
                for number in range(filled):
                    if places[number].key_size < 0:
                        index = cursor.index - filled + number
                        raise InvalidRecord(f"record {index} of the batch at byte {at} has no key")
        at += size
