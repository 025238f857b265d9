"""Transaction markers as a walk over batches finds them; `control` decodes a single one.

A marker's key is a version (int16) and a type (int16): 0 abort, 1 commit.
"""

from cython import Py_ssize_t, longlong
from cython.cimports.seeklog.record import layout
from cython.cimports.seeklog.record.cursor import RecordCursor
from cython.cimports.seeklog.record.primitives import load_i16, load_i64

from seeklog.errors import CorruptBatch


def report_batch(cursor, report):
    """Return `report(base_offset, last_offset, attributes, producer_id, marker)` for a batch.

    The marker is 0 (abort) or 1 (commit) for an open control batch that starts with one, else -1.
    """
    marker: longlong = -1
    if cursor.attributes & layout.CONTROL:
        try:
            if cursor.fill(1, 0, layout.INT64_MAX) > 0 and cursor.places[0].key_size >= 4:
                marker = load_i16(cursor.p, cursor.places[0].key_at + 2)
        except CorruptBatch:
            pass
        cursor.rewind()
    producer: longlong = load_i64(cursor.header, cursor.at + layout.PRODUCER_ID)
    return report(cursor.base_offset, cursor.last_offset, cursor.attributes, producer, marker)


def note_transactions(data: bytes, at: Py_ssize_t, origin: longlong, stop: longlong, limit: Py_ssize_t, note):
    """Call `note` for the whole batches of transactions, with the arguments of `report_batch`.

    The CRC of every batch below offset `stop` is checked, because a damaged marker would decide the fate of other
    batches. Returns (index after them, whether the next batch is at `stop` or above).
    """
    cursor: RecordCursor = RecordCursor.__new__(RecordCursor)
    cursor.begin(data, at, origin, 0, False)
    while cursor.next_batch():
        if cursor.base_offset >= stop:
            return cursor.at, True
        cursor.check_crc()
        if cursor.attributes & layout.TRANSACTIONAL_OR_CONTROL:
            if cursor.attributes & layout.CONTROL:
                cursor.open(limit)
            report_batch(cursor, note)
        cursor.advance()
    return cursor.at, False
