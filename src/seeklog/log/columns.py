"""Scanning a view into Arrow record batches, decoded by the kernel straight from file bytes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from seeklog.errors import CorruptionError
from seeklog.log.reading import Cursor
from seeklog.log.view import View
from seeklog.record import arrow
from seeklog.record.columns import Columns, Memory

if TYPE_CHECKING:
    import pyarrow

# Each chunk has a fixed decoding cost, so columns are read in larger chunks than records.
CHUNK = 256 << 10
# A first guess at the size of a row; columns grow past it. A record batch ends when this much is used.
BYTES_PER_ROW = 128


def scan_arrow(
    view: View,
    start: int,
    stop: int,
    *,
    schema: pyarrow.Schema,
    batch_rows: int,
    limit: int,
    timestamp_scale: int,
    headers_null: bool = False,
) -> Iterator[pyarrow.RecordBatch]:
    """Yield the records in [start, stop) as Arrow batches of about `batch_rows` rows. Every CRC is checked.

    With `headers_null` a record without headers has null headers instead of an empty list.
    """
    if start >= stop:
        return
    new_columns = partial(
        Columns,
        tuple(schema.names),
        rows=batch_rows,
        data_bytes=BYTES_PER_ROW * batch_rows,
        limit=limit,
        timestamp_scale=timestamp_scale,
        allocate=arrow.import_pyarrow().allocate_buffer,
    )
    room = Memory(bytearray, CHUNK)
    cursor = Cursor(view, start, chunk=CHUNK)
    more = True
    while more:
        # If files are replaced under the view, the rows that were not yielded yet are read again from here.
        first = max(start, cursor.next_offset)
        columns = new_columns(expected=stop - first)
        full = False
        while more and not full:
            try:
                cursor.at, cursor.next_offset, full = columns.add(
                    cursor.data,
                    cursor.at,
                    cursor.origin,
                    cursor.next_offset,
                    cursor.segment.contiguous,
                    max(first, cursor.resumed_at),
                    stop,
                )
                if not full and cursor.next_offset < stop:
                    full = _add_file(columns, room, cursor, max(first, cursor.resumed_at), stop)
                if not cursor.segment.contiguous:
                    cursor.segment.check_bound(cursor.next_offset, cursor.position)
            except CorruptionError as error:
                cursor.resume_or_raise(first, error)
                columns, full = new_columns(expected=stop - first), False
                continue
            more = cursor.next_offset < stop and (full or cursor.fill())
        if columns.rows:
            yield arrow.record_batch(columns.finish(), columns.rows, schema, headers_null=headers_null)


def _add_file(columns: Columns, room: Memory, cursor: Cursor, start: int, stop: int) -> bool:
    """Decode straight from the file of the cursor's segment, if that is open, up to its end or until columns are full.

    Reading and decoding then need the lock of the interpreter once for each record batch, not for each chunk. Threads
    that read other partitions hardly meet. Whatever cannot be decoded is left to the cursor, which reports it.
    """
    segment = cursor.segment
    file = segment.plain_file()
    if file is None:
        return False
    position, next_offset, full = columns.add_file(
        file.number, room, cursor.position, segment.size, cursor.next_offset, segment.contiguous, start, stop
    )
    if position != cursor.position:
        cursor.jump(position, next_offset)
    return full
