"""Batches decoded into `Record` objects."""

import cython
from cython import Py_ssize_t, bint, longlong, p_uchar
from cython.cimports.seeklog.record.cursor import RecordCursor
from cython.cimports.seeklog.record.layout import CONTROL, GROUP, INT64_MAX, Place
from cython.cimports.seeklog.record.primitives import load_varint, slice_bytes
from cython.cimports.seeklog.record.record import Record

from seeklog.errors import CorruptBatch, InvalidRecord
from seeklog.record.encode import stamp

# Kept for the next call: creating a cursor costs as much as decoding a record.
_spare_cursor = None


def read_records(
    data: bytes,
    at: Py_ssize_t,
    origin: longlong,
    next_offset: longlong,
    contiguous: bint,
    start: longlong,
    stop: longlong,
    max_records: Py_ssize_t,
    enough_records: Py_ssize_t,
    enough_bytes: longlong,
    limit: Py_ssize_t,
    out: list,
    source: object = None,
):
    """Decode records with offsets in [start, stop) from consecutive batches into `out`.

    Stops when `out` holds `max_records`, after the batch that reaches `enough_records` or `enough_bytes`, at the first
    incomplete batch, or at `stop`. The CRC of every decoded batch is checked.
    Returns (index and next offset of the first batch not taken, bytes of the batches taken).
    """
    global _spare_cursor
    taken: longlong = 0
    cursor: RecordCursor = RecordCursor.__new__(RecordCursor) if _spare_cursor is None else _spare_cursor
    _spare_cursor = None
    cursor.begin(data, at, origin, next_offset, contiguous)
    while cursor.next_offset < stop and len(out) < enough_records and taken < enough_bytes and cursor.next_batch():
        if cursor.last_offset < start:
            cursor.skip()
            continue
        cursor.check()
        if cursor.base_offset < stop and not cursor.attributes & CONTROL:
            cursor.open(limit)
            decode_batch(cursor, start, stop, max_records, out, source)
        taken += cursor.size
        cursor.advance()
    reached = cursor.at, cursor.next_offset, taken
    cursor.release()
    _spare_cursor = cursor
    return reached


@cython.cfunc
def decode_batch(
    cursor: RecordCursor, start: longlong, stop: longlong, max_records: Py_ssize_t, out: list, source: object
) -> cython.int:
    """Append the records of an open batch with offsets in [start, stop) to `out`, while it has room."""
    body: bytes = cursor.body
    p: p_uchar = cursor.p
    places: cython.pointer(Place) = cursor.places
    number: Py_ssize_t
    while cursor.more and len(out) < max_records:
        for number in range(cursor.fill(min(GROUP, max_records - len(out)), start, stop)):
            record: Record = Record.__new__(Record)
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
def field_of(body: bytes, p: p_uchar, at: Py_ssize_t, size: longlong):
    if size < 0:
        return None
    return slice_bytes(body, p, at, size)


@cython.cfunc
def decode_headers(body: bytes, p: p_uchar, at: Py_ssize_t, end: Py_ssize_t) -> tuple:
    """Return the headers of a record, which the cursor has checked."""
    count: longlong
    size: longlong
    count, at = load_varint(p, at, end)
    headers: list = []
    while count > 0:
        size, at = load_varint(p, at, end)
        key = body[at : at + size].decode("utf-8", "surrogateescape")
        at += cython.cast(Py_ssize_t, size)
        size, at = load_varint(p, at, end)
        headers.append((key, field_of(body, p, at, size)))
        if size > 0:
            at += cython.cast(Py_ssize_t, size)
        count -= 1
    return tuple(headers)


def read_control_record(data: bytes, limit: Py_ssize_t):
    """Return the first record of a control batch, which readers never see; its CRC is not checked."""
    out: list = []
    cursor: RecordCursor = RecordCursor.__new__(RecordCursor)
    cursor.begin(data, 0, 0, 0, False)
    if cursor.next_batch():
        cursor.open(limit)
        decode_batch(cursor, 0, INT64_MAX, INT64_MAX, out, None)
    if not out:
        raise CorruptBatch("no whole batch with a record", position=0)
    return out[0]


def check_keyed(data: bytes, limit: Py_ssize_t):
    """Raise `InvalidRecord` if checked batches contain a record without a key. Transaction markers are exempt."""
    number: Py_ssize_t
    cursor: RecordCursor = RecordCursor.__new__(RecordCursor)
    # Offsets do not matter here: the log assigns new ones.
    cursor.begin(stamp(data, 0, 0), 0, 0, 0, True)
    while cursor.next_batch():
        if not cursor.attributes & CONTROL:
            cursor.open(limit)
            while cursor.more:
                filled: Py_ssize_t = cursor.fill(GROUP, 0, INT64_MAX)
                for number in range(filled):
                    if cursor.places[number].key_size < 0:
                        index = cursor.index - filled + number
                        raise InvalidRecord(f"record {index} of the batch at byte {cursor.at} has no key")
        cursor.advance()


def check_timestamps(data: bytes, limit: Py_ssize_t, check: object):
    """Call `check` with the index and the timestamp of each record in checked batches. It raises for an invalid one."""
    number: Py_ssize_t
    before: Py_ssize_t = 0
    cursor: RecordCursor = RecordCursor.__new__(RecordCursor)
    # Offsets do not matter here: the log assigns new ones.
    cursor.begin(stamp(data, 0, 0), 0, 0, 0, True)
    while cursor.next_batch():
        cursor.open(limit)
        while cursor.more:
            filled: Py_ssize_t = cursor.fill(GROUP, 0, INT64_MAX)
            for number in range(filled):
                check(before + number, cursor.places[number].timestamp_ms)
            before += filled
        cursor.advance()
