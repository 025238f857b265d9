"""Records encoded as batches, and batches stamped with the offsets, epoch and time that the log assigns."""

import cython
from cython import Py_ssize_t, bint, longlong, p_uchar
from cython.cimports.seeklog.record import layout
from cython.cimports.seeklog.record.batch_header import whole_batch_size
from cython.cimports.seeklog.record.crc import crc_of
from cython.cimports.seeklog.record.layout import HEADER_SIZE, INT32_MAX
from cython.cimports.seeklog.record.primitives import (
    buffer_pointer,
    copy,
    finished,
    get_i64,
    load_i32,
    new_buffer,
    new_bytes,
    new_pointer,
    pointer,
    put_i64,
    store_i16,
    store_i32,
    store_i64,
    store_varint,
    varint_size,
    wrapped,
)
from cython.cimports.seeklog.record.record import UNSET, Record, as_bytes, checked_timestamp, header_tuple

from seeklog.errors import InvalidRecord, RecordTooLarge, UsageError
from seeklog.record.codec import compress
from seeklog.record.record import invalid_headers

# For `timestamps`: every timestamp is accepted.
NO_CHECK = (-(2**63) + 1, 2**63 - 1, None)


@cython.cfunc
def field_size(what: str, field: object) -> Py_ssize_t:
    """Return the encoded size of a key or value including its length, or raise for a wrong type."""
    size: Py_ssize_t
    if field is None:
        return 1
    if not isinstance(field, bytes):
        raise InvalidRecord(f"{what} must be bytes or None, not {type(field).__name__}; pass {bytes_of(field)}")
    size = len(cython.cast(bytes, field))
    return varint_size(size) + size


def bytes_of(field: object) -> str:
    """Return how a caller makes bytes of an object of a wrong type."""
    if isinstance(field, str):
        return "text.encode()"
    return "json.dumps(…).encode()" if isinstance(field, (dict, list, tuple, int, float)) else "bytes(…)"


def checked_key(key: object):
    """Return a key that is looked up as bytes, or raise `UsageError`."""
    found = as_bytes(key)
    if not isinstance(found, bytes):
        raise UsageError(f"a key must be bytes, not {type(key).__name__}; pass {bytes_of(key)}")
    return found


def encode_headers(headers: tuple):
    """Return the headers of a record as bytes: their count, then keys and values with their lengths."""
    parts: list = [varint(len(headers))]
    for header in headers:
        if not isinstance(header, tuple) or len(header) != 2:
            raise invalid_headers(f"a header must be a tuple of a str and bytes or None, not {header!r}")
        key, value = header
        if not isinstance(key, str):
            raise invalid_headers(f"a header's key must be str, not {type(key).__name__}")
        field_size("a header's value", value)
        # The decoder returns keys that are not UTF-8 with surrogateescape; this restores their bytes.
        try:
            encoded = key.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise InvalidRecord(f"the header key {key!r} cannot be written: {error}") from error
        parts += varint(len(encoded)), encoded
        parts += (varint(-1),) if value is None else (varint(len(value)), value)
    return b"".join(parts)


@cython.cfunc
def varint(value: longlong):
    out: bytearray = bytearray(10)
    return bytes(out[: store_varint(buffer_pointer(out), 0, value)])


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def store_field(p: p_uchar, at: Py_ssize_t, field: object) -> Py_ssize_t:
    """Store a key or value that `field_size` has accepted."""
    size: Py_ssize_t
    if field is None:
        return store_varint(p, at, -1)
    size = len(cython.cast(bytes, field))
    at = store_varint(p, at, size)
    copy(p, at, pointer(cython.cast(bytes, field)), 0, size)
    return at + size


@cython.cfunc
@cython.exceptval(check=False)
def store_record(
    p: p_uchar,
    at: Py_ssize_t,
    body_size: Py_ssize_t,
    timestamp_delta: longlong,
    offset_delta: longlong,
    key: object,
    value: object,
    headers: object,
) -> Py_ssize_t:
    at = store_varint(p, at, body_size)
    p[at] = 0
    at = store_varint(p, at + 1, timestamp_delta)
    at = store_varint(p, at, offset_delta)
    at = store_field(p, at, key)
    at = store_field(p, at, value)
    if headers is None:
        p[at] = 0
        return at + 1
    copy(p, at, pointer(cython.cast(bytes, headers)), 0, len(cython.cast(bytes, headers)))
    return at + len(cython.cast(bytes, headers))


@cython.cfunc
def body_size_of(
    timestamp_delta: longlong,
    offset_delta: longlong,
    key: object,
    value: object,
    headers: object,
) -> Py_ssize_t:
    return (
        1
        + varint_size(timestamp_delta)
        + varint_size(offset_delta)
        + field_size("key", key)
        + field_size("value", value)
        + (1 if headers is None else len(cython.cast(bytes, headers)))
    )


def record_bound(record: Record):
    """Return an upper bound of a record's size in any batch, or raise if the record is invalid."""
    # Besides the fields: length 5, attributes 1, timestamp delta 10, offset delta 5, header count 1.
    return (
        22
        + field_size("key", record.key)
        + field_size("value", record.value)
        + (len(encode_headers(record.headers)) if record.headers else 0)
    )


def finish_batch(
    batch,
    base_offset,
    leader_epoch,
    attributes,
    last_delta,
    base_timestamp,
    max_timestamp,
    producer_id,
    producer_epoch,
    base_sequence,
    record_count,
):
    """Write the header before the records in `batch`, which came from `new_bytes`, and return the batch."""
    write_header(
        batch,
        0,
        len(batch),
        base_offset,
        leader_epoch,
        attributes,
        last_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    return finished(batch)


@cython.cfunc
@cython.exceptval(-1)
def write_header(
    data: object,
    at: Py_ssize_t,
    size: Py_ssize_t,
    base_offset: longlong,
    leader_epoch: longlong,
    attributes: longlong,
    last_delta: longlong,
    base_timestamp: longlong,
    max_timestamp: longlong,
    producer_id: longlong,
    producer_epoch: longlong,
    base_sequence: longlong,
    record_count: longlong,
) -> cython.int:
    """Write the header of the batch of `size` bytes at `at`, whose records are there, into an object of `new_bytes`."""
    p: p_uchar = new_pointer(data)
    store_i64(p, at + layout.BASE_OFFSET, base_offset)
    store_i32(p, at + layout.BATCH_LENGTH, size - layout.PREFIX_SIZE)
    store_i32(p, at + layout.LEADER_EPOCH, leader_epoch)
    p[at + layout.MAGIC] = layout.MAGIC_V2
    store_i16(p, at + layout.ATTRIBUTES, attributes)
    store_i32(p, at + layout.LAST_OFFSET_DELTA, last_delta)
    store_i64(p, at + layout.BASE_TIMESTAMP, base_timestamp)
    store_i64(p, at + layout.MAX_TIMESTAMP, max_timestamp)
    store_i64(p, at + layout.PRODUCER_ID, producer_id)
    store_i16(p, at + layout.PRODUCER_EPOCH, producer_epoch)
    store_i32(p, at + layout.BASE_SEQUENCE, base_sequence)
    store_i32(p, at + layout.RECORD_COUNT, record_count)
    store_i32(p, at + layout.CRC, crc_of(p, at + layout.ATTRIBUTES, size - layout.ATTRIBUTES, 0))
    return 0


def encode_one(
    value,
    key,
    headers,
    timestamp_ms,
    now_ms: longlong,
    base_offset: longlong,
    leader_epoch: longlong,
    attributes: longlong,
    timestamps: tuple = NO_CHECK,
):
    """Return an uncompressed batch of one record: the fastest path of an append.

    `timestamps` are as in `encode_records`.
    """
    if isinstance(value, (bytearray, memoryview)) or isinstance(key, (bytearray, memoryview)):
        return encode_one(
            as_bytes(value),
            as_bytes(key),
            headers,
            timestamp_ms,
            now_ms,
            base_offset,
            leader_epoch,
            attributes,
            timestamps,
        )
    encoded: object = encode_headers(header_tuple(headers)) if headers else None
    body: Py_ssize_t = body_size_of(0, 0, key, value, encoded)
    timestamp: longlong
    checked_up_to: longlong
    accepted_up_to: longlong
    if timestamp_ms is not None:
        timestamp = checked_timestamp(timestamp_ms)
        if not attributes & layout.LOG_APPEND_TIME:
            now_ms = timestamp
            checked_up_to = timestamps[0]
            accepted_up_to = timestamps[1]
            if timestamp <= checked_up_to or timestamp > accepted_up_to:
                timestamps[2](None, timestamp)
    if body > INT32_MAX - HEADER_SIZE:
        raise RecordTooLarge(f"a record of {body:,} bytes; the format holds at most 2 GiB")
    batch = new_bytes(HEADER_SIZE + varint_size(body) + body)
    store_record(new_pointer(batch), HEADER_SIZE, body, 0, 0, key, value, encoded)
    return finish_batch(batch, base_offset, leader_epoch, attributes, 0, now_ms, now_ms, -1, -1, -1, 1)


def encode_records(
    records: list,
    now_ms: longlong,
    base_offset: longlong,
    leader_epoch: longlong,
    attributes: longlong,
    producer: tuple,
    timestamps: tuple = NO_CHECK,
):
    """Return one batch of `records`; those without a timestamp get `now_ms`.

    `attributes` contain the codec. If the log-append-time bit is set, every record gets `now_ms`. `timestamps` are two
    times and a function: a timestamp up to the first or after the second is passed to the function, which raises if it
    must not be written.
    """
    count: Py_ssize_t = len(records)
    if count == 0:
        raise InvalidRecord("a batch needs at least one record")
    stamp_now: bint = (attributes & layout.LOG_APPEND_TIME) != 0
    checked_up_to: longlong = UNSET if stamp_now else timestamps[0]
    accepted_up_to: longlong = layout.INT64_MAX if stamp_now else timestamps[1]
    base_timestamp: longlong = now_ms
    max_timestamp: longlong = layout.NO_TIMESTAMP
    timestamp: longlong
    total: Py_ssize_t = HEADER_SIZE
    body: Py_ssize_t
    index: Py_ssize_t
    record: Record
    encoded: object
    extras: dict = {}
    sizes: bytearray = new_buffer(count * 8)
    for index in range(count):
        item = records[index]
        if not isinstance(item, Record):
            raise InvalidRecord(f"item {index} is {type(item).__name__}, not a Record")
        record = item
        timestamp = now_ms if stamp_now or record.timestamp == UNSET else record.timestamp
        if timestamp <= checked_up_to or timestamp > accepted_up_to:
            timestamps[2](index, timestamp)
        if index == 0:
            base_timestamp = timestamp
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        encoded = None
        if record.headers:
            encoded = encode_headers(record.headers)
            extras[index] = encoded
        body = body_size_of(wrapped(timestamp - base_timestamp), index, record.key, record.value, encoded)
        put_i64(buffer_pointer(sizes), index, body)
        total += varint_size(body) + body
        if total > INT32_MAX:
            raise RecordTooLarge(f"record {index} takes the batch past 2 GiB; the format allows no more")
    batch = new_bytes(total)
    p: p_uchar = new_pointer(batch)
    at: Py_ssize_t = HEADER_SIZE
    for index in range(count):
        record = records[index]
        timestamp = now_ms if stamp_now or record.timestamp == UNSET else record.timestamp
        body = get_i64(buffer_pointer(sizes), index)
        at = store_record(
            p,
            at,
            body,
            wrapped(timestamp - base_timestamp),
            index,
            record.key,
            record.value,
            extras[index] if record.headers else None,
        )
    if attributes & layout.CODEC_MASK:
        packed: bytes = compress(attributes & layout.CODEC_MASK, memoryview(batch)[HEADER_SIZE:])
        batch = new_bytes(HEADER_SIZE + len(packed))
        copy(new_pointer(batch), HEADER_SIZE, pointer(packed), 0, len(packed))
    return finish_batch(
        batch,
        base_offset,
        leader_epoch,
        attributes,
        count - 1,
        base_timestamp,
        max_timestamp,
        producer[0],
        producer[1],
        producer[2],
        count,
    )


def stamp(raw: bytes, base_offset: longlong, leader_epoch: longlong):
    """Return whole batches with consecutive offsets from `base_offset`; only 12 bytes of each change."""
    at: Py_ssize_t = 0
    end: Py_ssize_t = len(raw)
    batch = new_bytes(end)
    p: p_uchar = new_pointer(batch)
    copy(p, 0, pointer(raw), 0, end)
    while at < end:
        size: Py_ssize_t = whole_batch_size(p, at, end)
        store_i64(p, at + layout.BASE_OFFSET, base_offset)
        store_i32(p, at + layout.LEADER_EPOCH, leader_epoch)
        base_offset += load_i32(p, at + layout.LAST_OFFSET_DELTA) + 1
        at += size
    return finished(batch)


def stamp_append_time(raw: bytes, now_ms: longlong):
    """Return whole batches stamped with the log append time `now_ms`, with new CRCs."""
    batch: bytearray = bytearray(raw)
    p: p_uchar = buffer_pointer(batch)
    at: Py_ssize_t = 0
    end: Py_ssize_t = len(batch)
    while at < end:
        size: Py_ssize_t = whole_batch_size(p, at, end)
        p[at + layout.ATTRIBUTES_LOW] = p[at + layout.ATTRIBUTES_LOW] | layout.LOG_APPEND_TIME
        store_i64(p, at + layout.MAX_TIMESTAMP, now_ms)
        store_i32(p, at + layout.CRC, crc_of(p, at + layout.ATTRIBUTES, size - layout.ATTRIBUTES, 0))
        at += size
    return bytes(batch)
