"""Control batches: the markers that end transactions.

A marker's key is a version (int16) and a type (int16): 0 abort, 1 commit.
"""

import cython
from cython.cimports.seeklog.record.batch_header import check_crc, next_batch
from cython.cimports.seeklog.record.cursor import RecordCursor
from cython.cimports.seeklog.record.layout import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL,
    GROUP,
    INT64_MAX,
    LAST_OFFSET_DELTA,
    PRODUCER_ID,
    TRANSACTIONAL_OR_CONTROL,
    Place,
)
from cython.cimports.seeklog.record.primitives import load_i16, load_i32, load_i64, pointer

from seeklog.errors import CorruptBatch
from seeklog.record.layout import new_places


@cython.cfunc
@cython.exceptval(-2)
def marker_type(cursor: RecordCursor) -> cython.longlong:
    """Return the type of the marker that an open control batch begins with: 0 abort, 1 commit, -1 none known."""
    places: Place[GROUP]
    if not cython.compiled:
        places = new_places()
    try:
        if cursor.fill(places, 1, 0, INT64_MAX) > 0 and places[0].key_size >= 4:
            return load_i16(cursor.p, places[0].key_at + 2)
    except CorruptBatch:
        pass
    return -1


def note_transactions(
    data: bytes, at: cython.Py_ssize_t, origin: cython.longlong, stop: cython.longlong, limit: cython.Py_ssize_t, note
):
    """Call `note(base_offset, last_offset, attributes, producer_id, marker)` for whole batches of transactions.

    Every batch below offset `stop` is walked and its CRC checked: what a damaged one would be taken for decides over
    others. Returns (index after them, whether the next one is at `stop` or above).
    """
    p: cython.p_uchar = pointer(data)
    end: cython.Py_ssize_t = len(data)
    size: cython.Py_ssize_t
    base: cython.longlong
    marker: cython.longlong
    attributes: cython.int
    cursor: RecordCursor = RecordCursor.__new__(RecordCursor)
    while at < end:
        size = next_batch(p, at, end, 0, False, origin + at)
        if size == 0:
            break
        base = load_i64(p, at + BASE_OFFSET)
        if base >= stop:
            return at, True
        check_crc(data, p, at, size, origin + at)
        attributes = load_i16(p, at + ATTRIBUTES)
        if attributes & TRANSACTIONAL_OR_CONTROL:
            marker = -1
            if attributes & CONTROL:
                cursor.open(data, at, size, origin + at, limit)
                marker = marker_type(cursor)
            note(base, base + load_i32(p, at + LAST_OFFSET_DELTA), attributes, load_i64(p, at + PRODUCER_ID), marker)
        at += size
    return at, False
