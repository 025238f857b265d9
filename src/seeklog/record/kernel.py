"""The hot loops: record batches in Kafka's v2 format, encoded, checked, walked and decoded.

One source in Cython's pure Python mode: compiled on install, and run as it stands by the tests
(`SEEKLOG_PURE=1`). What only exists compiled stands behind `if cython.compiled:`.

A batch is a 61-byte header and its records, all big-endian:

     0  base_offset     int64       27  base_timestamp   int64
     8  batch_length    int32       35  max_timestamp    int64
    12  leader_epoch    int32       43  producer_id      int64
    16  magic           int8 = 2    51  producer_epoch   int16
    17  crc             uint32      53  base_sequence    int32
    21  attributes      int16       57  record_count     int32
    23  last_delta      int32       61  records

The CRC-32C covers byte 21 to the end, so base_offset and leader_epoch are set without computing it anew.

The invariant: no length, count or offset that was read from bytes is used before it was checked against
the bytes that are really there. Positions in errors are `origin` (where `data` starts in its file) + index.
"""

import sys

import cython
from fastcrc.crc32 import iscsi

from seeklog.errors import (
    CorruptBatch,
    CorruptionError,
    InvalidRecord,
    RecordTooLarge,
    UnsupportedCodec,
    UnsupportedMagic,
    UsageError,
)
from seeklog.record.codec import compress, decompress

HEADER_SIZE = 61
NO_TIMESTAMP = -1

_HEADER = cython.declare(cython.Py_ssize_t, 61)
# The CRC instruction sums 8 bytes in 3 cycles; fastcrc is faster above this size but costs 150 ns a call.
_SHORT = cython.declare(cython.Py_ssize_t, 2048)
# The smallest record: seven one-byte fields (length, attributes, two deltas, two lengths, header count).
_RECORD_MIN = cython.declare(cython.Py_ssize_t, 7)
_INT32_MAX = cython.declare(cython.longlong, 2**31 - 1)
_INT64_MAX = cython.declare(cython.longlong, 2**63 - 1)
# The offset behind the last one must be a number too.
_OFFSET_MAX = cython.declare(cython.longlong, 2**63 - 2)
_UNSET = cython.declare(cython.longlong, -(2**63) + 1)
_HAS_INSTRUCTION = cython.declare(cython.bint, False)
if cython.compiled:
    _HAS_INSTRUCTION = crc32c_has_instruction() != 0

_CODEC_MASK = cython.declare(cython.int, 0x07)
_LOG_APPEND_TIME = cython.declare(cython.int, 0x08)
_CONTROL = cython.declare(cython.int, 0x20)


# ---------------------------------------------------------------- bytes


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def pointer(data: bytes) -> cython.p_uchar:
    if cython.compiled:
        return cython.cast(cython.p_uchar, PyBytes_AS_STRING(data))
    else:
        return data


@cython.cfunc
@cython.inline
def new_buffer(size: cython.Py_ssize_t):
    """A bytearray whose bytes are not set when compiled: every one of them must be written."""
    if cython.compiled:
        return PyByteArray_FromStringAndSize(cython.NULL, size)
    else:
        return bytearray(size)


@cython.cfunc
@cython.inline
def new_bytes(size: cython.Py_ssize_t):
    """Bytes to be written before anybody else sees them, so that the result needs no copy when compiled."""
    if cython.compiled:
        return PyBytes_FromStringAndSize(cython.NULL, size)
    else:
        return bytearray(size)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def new_pointer(data: object) -> cython.p_uchar:
    if cython.compiled:
        return cython.cast(cython.p_uchar, PyBytes_AS_STRING(data))
    else:
        return data


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def buffer_pointer(buffer: bytearray) -> cython.p_uchar:
    if cython.compiled:
        return cython.cast(cython.p_uchar, PyByteArray_AS_STRING(buffer))
    else:
        return buffer


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def copy(
    target: cython.p_uchar,
    at: cython.Py_ssize_t,
    source: cython.p_uchar,
    start: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.void:
    if cython.compiled:
        memcpy(target + at, source + start, size)
    else:
        memoryview(target)[at : at + size] = source[start : start + size]


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def load_u32(p: cython.p_uchar, at: cython.Py_ssize_t) -> cython.longlong:
    if cython.compiled:
        return big_endian_u32(p + at)
    else:
        return (p[at] << 24) | (p[at + 1] << 16) | (p[at + 2] << 8) | p[at + 3]


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def load_i32(p: cython.p_uchar, at: cython.Py_ssize_t) -> cython.longlong:
    if cython.compiled:
        return cython.cast(int32_t, big_endian_u32(p + at))
    else:
        return load_u32(p, at) - ((p[at] & 0x80) << 25)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def load_i64(p: cython.p_uchar, at: cython.Py_ssize_t) -> cython.longlong:
    if cython.compiled:
        return big_endian_i64(p + at)
    else:
        return (load_i32(p, at) << 32) | load_u32(p, at + 4)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def load_i16(p: cython.p_uchar, at: cython.Py_ssize_t) -> cython.int:
    value: cython.int = (p[at] << 8) | p[at + 1]
    return value - ((value & 0x8000) << 1)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def store_i32(p: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong) -> cython.void:
    p[at] = (value >> 24) & 0xFF
    p[at + 1] = (value >> 16) & 0xFF
    p[at + 2] = (value >> 8) & 0xFF
    p[at + 3] = value & 0xFF


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def store_i64(p: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong) -> cython.void:
    store_i32(p, at, value >> 32)
    store_i32(p, at + 4, value)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def wrapped(value: cython.longlong) -> cython.longlong:
    """A sum or difference of two int64 as C and Java have it: 64 bits, what is above them lost.

    A timestamp delta may overflow, and comes back right when it is added to its base again.
    """
    if cython.compiled:
        return value
    else:
        return (value + 2**63) % 2**64 - 2**63


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def zigzag(value: cython.longlong) -> cython.ulonglong:
    return cython.cast(cython.ulonglong, (value << 1) ^ (value >> 63))


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def varint_size(value: cython.longlong) -> cython.Py_ssize_t:
    rest: cython.ulonglong = zigzag(value)
    size: cython.Py_ssize_t = 1
    while rest >= 0x80:
        rest >>= 7
        size += 1
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def store_varint(p: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    rest: cython.ulonglong = zigzag(value)
    while rest >= 0x80:
        p[at] = (rest & 0x7F) | 0x80
        rest >>= 7
        at += 1
    p[at] = rest & 0x7F
    return at + 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def load_varint(
    p: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """The zigzag varint at `at` and the place behind it; -1 for the place if there is no such varint.

    Ten bytes hold 64 bits; the tenth may hold only the last one.
    """
    value: cython.ulonglong = 0
    shift: cython.int = 0
    byte: cython.uint
    while at < end:
        byte = p[at]
        at += 1
        if shift == 63 and byte > 1:
            break
        value |= cython.cast(cython.ulonglong, byte & 0x7F) << shift
        if byte < 0x80:
            return cython.cast(cython.longlong, (value >> 1) ^ (0 - (value & 1))), at
        shift += 7
    return 0, -1


@cython.cfunc
@cython.inline
def crc_of(
    data: object, p: cython.p_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t, initial: cython.longlong
) -> cython.longlong:
    if cython.compiled:
        if size < _SHORT and _HAS_INSTRUCTION:
            return crc32c_short(cython.cast(cython.uint, initial), p + at, size)
    with memoryview(data) as view:
        return iscsi(view[at : at + size], initial)


def crc32c(data, initial: cython.longlong = 0):
    """Return the CRC-32C of any buffer, going on from `initial`."""
    if isinstance(data, bytes):
        return crc_of(data, pointer(data), 0, len(data), initial)
    with memoryview(data) as view:
        return iscsi(view, initial)


# ---------------------------------------------------------------- keys


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def load_little_u32(p: cython.p_uchar, at: cython.Py_ssize_t) -> cython.ulonglong:
    return p[at] | (p[at + 1] << 8) | (p[at + 2] << 16) | (cython.cast(cython.ulonglong, p[at + 3]) << 24)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def murmur2_at(p: cython.p_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.ulonglong:
    end: cython.Py_ssize_t = at + size
    # Computed in 64 bits and cut to 32 after each product, so that both ways to run it agree.
    cut: cython.ulonglong = 0xFFFFFFFF
    factor: cython.ulonglong = 0x5BD1E995
    seed: cython.ulonglong = 0x9747B28C
    mixed: cython.ulonglong = (seed ^ cython.cast(cython.ulonglong, size)) & cut
    word: cython.ulonglong
    while end - at >= 4:
        word = (load_little_u32(p, at) * factor) & cut
        word = ((word ^ (word >> 24)) * factor) & cut
        mixed = ((mixed * factor) & cut) ^ word
        at += 4
    if end - at >= 3:
        mixed ^= cython.cast(cython.ulonglong, p[at + 2]) << 16
    if end - at >= 2:
        mixed ^= cython.cast(cython.ulonglong, p[at + 1]) << 8
    if end - at >= 1:
        mixed = ((mixed ^ p[at]) * factor) & cut
    mixed = ((mixed ^ (mixed >> 13)) * factor) & cut
    return mixed ^ (mixed >> 15)


def murmur2(key: bytes):
    """Return the 32-bit hash, as an unsigned number, by which Kafka's clients place keys on partitions."""
    return murmur2_at(pointer(key), 0, len(key))


def partition_of(key: bytes, count: cython.longlong):
    """Return the partition, of `count`, that Kafka's default partitioner gives a key."""
    if count < 1:
        raise ValueError(f"a topic of {count} partitions")
    hashed: cython.longlong = murmur2_at(pointer(key), 0, len(key))
    return (hashed & 0x7FFFFFFF) % count


# SipHash-2-4 with 128 bits: https://cr.yp.to/siphash/siphash-20120918.pdf, and its authors' code for the wide result.
# Who does not know the secret cannot make two keys of one hash; 128 bits let a table of hashes stand for the keys.

SECRET_SIZE = 16
# The digits of pi: a secret that nobody chose, for hashes that are written to disk and need not resist anybody.
FIXED_SECRET = bytes.fromhex("243f6a8885a308d313198a2e03707344")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def load_little_u64(p: cython.p_uchar, at: cython.Py_ssize_t) -> cython.ulonglong:
    if cython.compiled:
        return little_endian_u64(p + at)
    else:
        return int.from_bytes(p[at : at + 8], "little")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def sip_round(
    v0: cython.ulonglong, v1: cython.ulonglong, v2: cython.ulonglong, v3: cython.ulonglong
) -> tuple[cython.ulonglong, cython.ulonglong, cython.ulonglong, cython.ulonglong]:
    # The cuts cost nothing compiled: they keep 64 bits where numbers have no end.
    cut: cython.ulonglong = 0xFFFFFFFFFFFFFFFF
    v0 = (v0 + v1) & cut
    v1 = (((v1 << 13) & cut) | (v1 >> 51)) ^ v0
    v0 = ((v0 << 32) & cut) | (v0 >> 32)
    v2 = (v2 + v3) & cut
    v3 = (((v3 << 16) & cut) | (v3 >> 48)) ^ v2
    v0 = (v0 + v3) & cut
    v3 = (((v3 << 21) & cut) | (v3 >> 43)) ^ v0
    v2 = (v2 + v1) & cut
    v1 = (((v1 << 17) & cut) | (v1 >> 47)) ^ v2
    v2 = ((v2 << 32) & cut) | (v2 >> 32)
    return v0, v1, v2, v3


@cython.cfunc
@cython.exceptval(check=False)
def siphash(
    p: cython.p_uchar,
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    secret_low: cython.ulonglong,
    secret_high: cython.ulonglong,
) -> tuple[cython.ulonglong, cython.ulonglong]:
    """Return the two halves of the hash of `size` bytes. The secret comes as `load_little_u64` of its halves."""
    end: cython.Py_ssize_t = at + size
    # Each number by itself: in an expression one of more than 32 bits would be an object.
    v0: cython.ulonglong = 0x736F6D6570736575
    v1: cython.ulonglong = 0x646F72616E646F6D ^ 0xEE
    v2: cython.ulonglong = 0x6C7967656E657261
    v3: cython.ulonglong = 0x7465646279746573
    word: cython.ulonglong
    first: cython.ulonglong
    shift: cython.int = 0
    v0 ^= secret_low
    v1 ^= secret_high
    v2 ^= secret_low
    v3 ^= secret_high
    while end - at >= 8:
        word = load_little_u64(p, at)
        v3 ^= word
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
        v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
        v0 ^= word
        at += 8
    word = cython.cast(cython.ulonglong, size & 0xFF) << 56
    while at < end:
        word |= cython.cast(cython.ulonglong, p[at]) << shift
        shift += 8
        at += 1
    v3 ^= word
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    v0 ^= word
    v2 ^= 0xEE
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    first = v0 ^ v1 ^ v2 ^ v3
    v1 ^= 0xDD
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    v0, v1, v2, v3 = sip_round(v0, v1, v2, v3)
    return first, v0 ^ v1 ^ v2 ^ v3


def hash_key(key: bytes, secret: bytes = FIXED_SECRET):
    """Return SipHash-2-4 of a key as two unsigned 64-bit numbers, the first half and the second.

    The secret has 16 bytes: random ones where keys of strangers must not be able to collide on purpose.
    """
    if len(secret) != 16:
        raise UsageError(f"a secret has {SECRET_SIZE} bytes, not {len(secret)}")
    q: cython.p_uchar = pointer(secret)
    first: cython.ulonglong
    second: cython.ulonglong
    first, second = siphash(pointer(key), 0, len(key), load_little_u64(q, 0), load_little_u64(q, 8))
    return first, second


# ---------------------------------------------------------------- records


@cython.freelist(256)
@cython.final
@cython.cclass
class Record:
    """One record. `offset` is -1 and `timestamp_ms` None until a log has given them.

    A value of None is a tombstone. Headers are a tuple of (str, bytes or None) in the order given. `topic` and
    `partition` are None unless the record was read out of a store.
    """

    offset = cython.declare(cython.longlong, visibility="readonly")
    key = cython.declare(object, visibility="readonly")
    value = cython.declare(object, visibility="readonly")
    headers = cython.declare(tuple, visibility="readonly")
    _timestamp: cython.longlong
    # (topic, partition): one reference, shared by all records of a partition, costs a decode next to nothing.
    _source: object

    def __init__(self, value, *, key=None, headers=(), timestamp_ms=None, offset=-1):
        self.offset = offset
        self._source = None
        self.key = key
        self.value = value
        self.headers = header_tuple(headers)
        self._timestamp = _UNSET if timestamp_ms is None else checked_timestamp(timestamp_ms)

    @property
    def timestamp_ms(self):
        """Milliseconds since 1970, or None if none was given yet."""
        return None if self._timestamp == _UNSET else self._timestamp

    @property
    def topic(self):
        """The topic that the record was read from, or None."""
        return None if self._source is None else self._source[0]

    @property
    def partition(self):
        """The partition that the record was read from, or None."""
        return None if self._source is None else self._source[1]

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        return record_fields(self) == record_fields(other)

    def __hash__(self):
        return hash(record_fields(self))

    def __repr__(self):
        headers = f", headers={self.headers!r}" if self.headers else ""
        source = "" if self._source is None else f"topic={self._source[0]!r}, partition={self._source[1]}, "
        return (
            f"Record({source}offset={self.offset}, timestamp_ms={self.timestamp_ms}, "
            f"key={self.key!r}, value={self.value!r}{headers})"
        )

    def __reduce__(self):
        return make_record, (self.value, self.key, self.headers, self.timestamp_ms, self.offset, self._source)


def make_record(value, key, headers, timestamp_ms, offset, source):
    """Return a record from positional fields, which is quicker than by keywords.

    `source` is (topic, partition) or None.
    """
    record: Record = Record.__new__(Record)
    record.offset = offset
    record.key = key
    record.value = value
    record.headers = header_tuple(headers)
    record._timestamp = _UNSET if timestamp_ms is None else checked_timestamp(timestamp_ms)
    record._source = source
    return record


@cython.cfunc
def record_fields(record: Record):
    return record._source, record.offset, record._timestamp, record.key, record.value, record.headers


@cython.cfunc
def checked_timestamp(timestamp_ms: object) -> cython.longlong:
    if not isinstance(timestamp_ms, int) or isinstance(timestamp_ms, bool):
        raise InvalidRecord(f"timestamp_ms must be an int or None, not {type(timestamp_ms).__name__}")
    if not -1 <= timestamp_ms <= 0x7FFFFFFFFFFFFFFF:
        raise InvalidRecord(f"timestamp_ms {timestamp_ms} is out of bounds: milliseconds since 1970, or -1 for none")
    return timestamp_ms


@cython.cfunc
@cython.inline
def field_size(what: str, field: object) -> cython.Py_ssize_t:
    """Return the encoded size of a key or value with its length, or refuse its type."""
    size: cython.Py_ssize_t
    if field is None:
        return 1
    if not isinstance(field, bytes):
        raise InvalidRecord(f"{what} must be bytes or None, not {type(field).__name__}; encode it first")
    size = len(field)
    return varint_size(size) + size


@cython.cfunc
def header_tuple(headers: object):
    try:
        return tuple(headers)
    except TypeError as error:
        raise InvalidRecord(f"headers must be a sequence of (str, bytes or None), not {headers!r}") from error


def encode_headers(headers: tuple):
    """Return the header part of a record: a count, then keys and values with their lengths."""
    out: bytearray = bytearray(varint(len(headers)))
    for header in headers:
        if not isinstance(header, tuple) or len(header) != 2:
            raise InvalidRecord(f"a header must be a (str, bytes or None) tuple, not {header!r}")
        key, value = header
        if not isinstance(key, str):
            raise InvalidRecord(f"a header's key must be str, not {type(key).__name__}")
        field_size("a header's value", value)
        # surrogateescape: keys that are not UTF-8 come out of the decoder so, and go back in unchanged.
        try:
            encoded = key.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise InvalidRecord(f"the header key {key!r} cannot be written: {error}") from error
        out += varint(len(encoded))
        out += encoded
        if value is None:
            out += varint(-1)
        else:
            out += varint(len(value))
            out += value
    return bytes(out)


@cython.cfunc
def varint(value: cython.longlong):
    out: bytearray = bytearray(10)
    size: cython.Py_ssize_t = store_varint(buffer_pointer(out), 0, value)
    return bytes(out[:size])


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def store_field(p: cython.p_uchar, at: cython.Py_ssize_t, field: object) -> cython.Py_ssize_t:
    """Store a key or value that `field_size` has measured."""
    size: cython.Py_ssize_t
    if field is None:
        return store_varint(p, at, -1)
    size = len(cython.cast(bytes, field))
    at = store_varint(p, at, size)
    copy(p, at, pointer(cython.cast(bytes, field)), 0, size)
    return at + size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def store_record(
    p: cython.p_uchar,
    at: cython.Py_ssize_t,
    body_size: cython.Py_ssize_t,
    timestamp_delta: cython.longlong,
    offset_delta: cython.longlong,
    key: object,
    value: object,
    headers: object,
) -> cython.Py_ssize_t:
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
@cython.inline
def body_size_of(
    timestamp_delta: cython.longlong,
    offset_delta: cython.longlong,
    key: object,
    value: object,
    headers: object,
) -> cython.Py_ssize_t:
    return (
        1
        + varint_size(timestamp_delta)
        + varint_size(offset_delta)
        + field_size("key", key)
        + field_size("value", value)
        + (1 if headers is None else len(cython.cast(bytes, headers)))
    )


def record_bound(record: Record):
    """Return an upper bound of the bytes that a record takes in any batch, or refuse what it holds."""
    # Besides the fields: length 5, attributes 1, timestamp delta 10, offset delta 5, header count 1.
    return (
        22
        + field_size("key", record.key)
        + field_size("value", record.value)
        + (len(encode_headers(record.headers)) if record.headers else 0)
    )


# ---------------------------------------------------------------- encoding a batch


@cython.cfunc
def finish_batch(
    batch: object,
    base_offset: cython.longlong,
    leader_epoch: cython.longlong,
    attributes: cython.longlong,
    last_delta: cython.longlong,
    base_timestamp: cython.longlong,
    max_timestamp: cython.longlong,
    producer_id: cython.longlong,
    producer_epoch: cython.longlong,
    base_sequence: cython.longlong,
    record_count: cython.longlong,
):
    """Write the header in front of the records that stand in `batch`, from `new_bytes`, and return it."""
    p: cython.p_uchar = new_pointer(batch)
    size: cython.Py_ssize_t = len(batch)
    store_i64(p, 0, base_offset)
    store_i32(p, 8, size - 12)
    store_i32(p, 12, leader_epoch)
    p[16] = 2
    p[21] = (attributes >> 8) & 0xFF
    p[22] = attributes & 0xFF
    store_i32(p, 23, last_delta)
    store_i64(p, 27, base_timestamp)
    store_i64(p, 35, max_timestamp)
    store_i64(p, 43, producer_id)
    p[51] = (producer_epoch >> 8) & 0xFF
    p[52] = producer_epoch & 0xFF
    store_i32(p, 53, base_sequence)
    store_i32(p, 57, record_count)
    store_i32(p, 17, crc_of(batch, p, 21, size - 21, 0))
    return batch if cython.compiled else bytes(batch)


def encode_one(
    value,
    key,
    headers,
    timestamp_ms,
    now_ms: cython.longlong,
    base_offset: cython.longlong,
    leader_epoch: cython.longlong,
    attributes: cython.longlong,
):
    """Return a batch of one record, uncompressed: the shortest way in."""
    encoded: object = encode_headers(header_tuple(headers)) if headers else None
    body: cython.Py_ssize_t = body_size_of(0, 0, key, value, encoded)
    if timestamp_ms is not None:
        timestamp_ms = checked_timestamp(timestamp_ms)
        if not attributes & _LOG_APPEND_TIME:
            now_ms = timestamp_ms
    if body > _INT32_MAX - _HEADER:
        raise RecordTooLarge(f"a record of {body:,} bytes; the format holds at most 2 GiB")
    batch = new_bytes(_HEADER + varint_size(body) + body)
    store_record(new_pointer(batch), _HEADER, body, 0, 0, key, value, encoded)
    return finish_batch(batch, base_offset, leader_epoch, attributes, 0, now_ms, now_ms, -1, -1, -1, 1)


def encode_records(
    records: list,
    now_ms: cython.longlong,
    base_offset: cython.longlong,
    leader_epoch: cython.longlong,
    attributes: cython.longlong,
    producer: tuple,
):
    """Return one batch of `records`; those without a timestamp get `now_ms`.

    The codec is in `attributes`. With the log-append-time bit set every record gets `now_ms`.
    """
    count: cython.Py_ssize_t = len(records)
    if count == 0:
        raise InvalidRecord("a batch needs at least one record")
    stamp_now: cython.bint = (attributes & _LOG_APPEND_TIME) != 0
    base_timestamp: cython.longlong = now_ms
    max_timestamp: cython.longlong = NO_TIMESTAMP
    timestamp: cython.longlong
    total: cython.Py_ssize_t = _HEADER
    body: cython.Py_ssize_t
    index: cython.Py_ssize_t
    record: Record
    encoded: object
    extras: dict = {}
    sizes: bytearray = new_buffer(count * 8)
    for index in range(count):
        item = records[index]
        if not isinstance(item, Record):
            raise InvalidRecord(f"item {index} is {type(item).__name__}, not a Record")
        record = item
        timestamp = now_ms if stamp_now or record._timestamp == _UNSET else record._timestamp
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
        if total > _INT32_MAX:
            raise RecordTooLarge(f"record {index} takes the batch past 2 GiB; the format holds no more")
    batch = new_bytes(total)
    p: cython.p_uchar = new_pointer(batch)
    at: cython.Py_ssize_t = _HEADER
    for index in range(count):
        record = records[index]
        timestamp = now_ms if stamp_now or record._timestamp == _UNSET else record._timestamp
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
    if attributes & _CODEC_MASK:
        packed: bytes = compress(attributes & _CODEC_MASK, memoryview(batch)[_HEADER:])
        batch = new_bytes(_HEADER + len(packed))
        copy(new_pointer(batch), _HEADER, pointer(packed), 0, len(packed))
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


def stamp(raw: bytes, base_offset: cython.longlong, leader_epoch: cython.longlong):
    """Return whole batches with consecutive offsets from `base_offset`, untouched but for 12 bytes each."""
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = len(raw)
    batch = new_bytes(end)
    p: cython.p_uchar = new_pointer(batch)
    copy(p, 0, pointer(raw), 0, end)
    size: cython.Py_ssize_t
    while at < end:
        size = whole_batch_size(p, at, end)
        store_i64(p, at, base_offset)
        store_i32(p, at + 12, leader_epoch)
        base_offset += load_i32(p, at + 23) + 1
        at += size
    return batch if cython.compiled else bytes(batch)


def stamp_append_time(raw: bytes, now_ms: cython.longlong):
    """Return whole batches marked as stamped by the log at `now_ms`; their CRCs are computed anew."""
    batch: bytearray = bytearray(raw)
    p: cython.p_uchar = buffer_pointer(batch)
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = len(batch)
    size: cython.Py_ssize_t
    while at < end:
        size = whole_batch_size(p, at, end)
        p[at + 22] = p[at + 22] | 0x08
        store_i64(p, at + 35, now_ms)
        store_i32(p, at + 17, crc_of(batch, p, at + 21, size - 21, 0))
        at += size
    return bytes(batch)


# ---------------------------------------------------------------- checking and walking batches


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def batch_size(p: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """The size of the batch at `at`; 0 if it is not all there, -1 if no v2 batch can start so."""
    length: cython.longlong
    if end - at < 17:
        return 0
    length = load_i32(p, at + 8)
    if p[at + 16] != 2 or length < 49:
        return -1
    if length > end - at - 12:
        return 0
    return cython.cast(cython.Py_ssize_t, length) + 12


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def whole_batch_size(p: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """The size of a batch that the caller has checked before: who has not gets an error, and no stray write."""
    size: cython.Py_ssize_t = batch_size(p, at, end)
    if size <= 0:
        raise CorruptBatch("no whole batch stands here", position=at)
    return size


@cython.cfunc
def header_error(p: cython.p_uchar, at: cython.Py_ssize_t, position: cython.longlong):
    """Say why no v2 batch starts at `at`. At least 17 bytes are there."""
    length: cython.longlong = load_i32(p, at + 8)
    magic: cython.int = p[at + 16]
    if length < 14:
        return CorruptBatch(f"batch length {length} is below the smallest possible, 14", position=position)
    if magic < 2:
        return UnsupportedMagic(
            f"a batch of magic {magic}; seeklog reads magic 2, which Kafka writes since 0.11",
            position=position,
            advice="Let a Kafka 3.x broker rewrite the topic (message.format.version 2.8 and compaction, or copy it).",
        )
    if magic > 2:
        return CorruptBatch(f"magic {magic} where a batch should start; expected 2", position=position)
    return CorruptBatch(f"batch length {length} is below the size of a batch header, 49", position=position)


@cython.cfunc
@cython.inline
def check_crc(
    data: bytes, p: cython.p_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t, position: cython.longlong
) -> cython.int:
    computed: cython.longlong = crc_of(data, p, at + 21, size - 21, 0)
    if load_u32(p, at + 17) != computed:
        raise crc_error(load_u32(p, at + 17), computed, position)
    return 0


@cython.cfunc
def crc_error(stored: cython.longlong, computed: cython.longlong, position: cython.longlong):
    return CorruptBatch(f"stored CRC {stored:#010x}, computed {computed:#010x}", position=position)


@cython.cfunc
@cython.inline
def check_counts(
    p: cython.p_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t, position: cython.longlong
) -> cython.int:
    """Check what a valid CRC does not prove: that count and last delta can be true."""
    last_delta: cython.longlong = load_i32(p, at + 23)
    count: cython.longlong = load_i32(p, at + 57)
    if count < 0 or last_delta < 0 or count > last_delta + 1:
        raise CorruptBatch(f"{count} records cannot have a last offset delta of {last_delta}", position=position)
    # Multiplied, not divided: this stands in the loop that recovers a log.
    if not p[at + 22] & _CODEC_MASK and count * _RECORD_MIN > size - _HEADER:
        raise CorruptBatch(f"{count} records cannot fit in {size - _HEADER} bytes", position=position)
    return 0


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def check_offsets(
    p: cython.p_uchar,
    at: cython.Py_ssize_t,
    next_offset: cython.longlong,
    contiguous: cython.bint,
    position: cython.longlong,
) -> cython.longlong:
    """Return a batch's last offset. It must not start below `next_offset`, or only there if `contiguous`."""
    base: cython.longlong = load_i64(p, at)
    last_delta: cython.longlong = load_i32(p, at + 23)
    if last_delta < 0 or base < 0 or base > _OFFSET_MAX - last_delta:
        raise CorruptBatch(f"base offset {base} with last offset delta {last_delta} cannot be", position=position)
    if base < next_offset or (contiguous and base != next_offset):
        raise CorruptBatch(f"base offset {base}, expected {next_offset}", position=position)
    return base + last_delta


def read_header(data: bytes, at: cython.Py_ssize_t, origin: cython.longlong):
    """Return the header fields of the batch at `at` as a tuple, in the order of `BatchHeader`."""
    p: cython.p_uchar = pointer(data)
    end: cython.Py_ssize_t = len(data)
    if at < 0 or end - at < _HEADER:
        raise CorruptBatch(f"{max(end - at, 0)} bytes where a batch header takes {_HEADER}", position=origin + at)
    if batch_size(p, at, end) < 0:
        raise header_error(p, at, origin + at)
    return (
        load_i64(p, at),
        load_i32(p, at + 8) + 12,
        load_i32(p, at + 12),
        load_u32(p, at + 17),
        load_i16(p, at + 21),
        load_i32(p, at + 23),
        load_i64(p, at + 27),
        load_i64(p, at + 35),
        load_i64(p, at + 43),
        load_i16(p, at + 51),
        load_i32(p, at + 53),
        load_i32(p, at + 57),
    )


def check_batches(data: bytes, max_batch_bytes: cython.longlong):
    """Check raw batches that a caller wants appended: whole, v2, CRC right, counts possible.

    Returns (number of batches, offsets they span).
    """
    p: cython.p_uchar = pointer(data)
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = len(data)
    size: cython.Py_ssize_t
    batch_count: cython.longlong = 0
    span: cython.longlong = 0
    while at < end:
        size = batch_size(p, at, end)
        if size < 0:
            raise header_error(p, at, at)
        if size == 0:
            raise CorruptBatch(f"the bytes end in the middle of a batch, {end - at} bytes in", position=at)
        if size > max_batch_bytes:
            raise RecordTooLarge(f"the batch at byte {at} has {size:,} bytes, max_message_bytes is {max_batch_bytes:,}")
        check_crc(data, p, at, size, at)
        check_counts(p, at, size, at)
        if p[at + 22] & _CODEC_MASK > 4:
            raise UnsupportedCodec(f"codec {p[at + 22] & _CODEC_MASK} is none of Kafka's five", position=at)
        span += load_i32(p, at + 23) + 1
        batch_count += 1
        at += size
    return batch_count, span


def has_producers(data: bytes, end: cython.Py_ssize_t):
    """Tell whether any batch in the first `end` bytes, which are whole batches, says who has written it."""
    p: cython.p_uchar = pointer(data)
    at: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    while at < end:
        size = batch_size(p, at, end)
        if size <= 0:
            break
        if load_i64(p, at + 43) >= 0:
            return True
        at += size
    return False


def skip_batches(
    data: bytes,
    at: cython.Py_ssize_t,
    origin: cython.longlong,
    next_offset: cython.longlong,
    target: cython.longlong,
    contiguous: cython.bint,
):
    """Walk headers to the first batch whose last offset is `target` or above.

    Returns (index of that batch or of the first one that is not all there, next offset at that place,
    batches walked). A batch that starts below `next_offset`, or not exactly there where offsets are
    `contiguous`, is damage. Where they are not, nothing but the CRC tells a gap from a damaged header, so
    every batch walked is summed.
    """
    p: cython.p_uchar = pointer(data)
    end: cython.Py_ssize_t = len(data)
    size: cython.Py_ssize_t
    last: cython.longlong
    walked: cython.longlong = 0
    while at < end:
        size = batch_size(p, at, end)
        if size == 0:
            break
        if size < 0:
            raise header_error(p, at, origin + at)
        last = check_offsets(p, at, next_offset, contiguous, origin + at)
        if last >= target:
            break
        if not contiguous:
            check_crc(data, p, at, size, origin + at)
        next_offset = last + 1
        walked += 1
        at += size
    return at, next_offset, walked


def walk_batches(data: bytes, next_offset: cython.longlong, contiguous: cython.bint):
    """Walk headers over whole batches, as far as they can be true.

    For a file that somebody else is writing: what cannot be a batch ends the walk and is no error here.
    Returns (index behind them, next offset there).
    """
    p: cython.p_uchar = pointer(data)
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = len(data)
    size: cython.Py_ssize_t
    try:
        while at < end:
            size = batch_size(p, at, end)
            if size <= 0:
                break
            next_offset = check_offsets(p, at, next_offset, contiguous, at) + 1
            at += size
    except CorruptBatch:
        pass
    return at, next_offset


def entry_base(data: bytes, last_offset: cython.longlong, exact: cython.bint):
    """Prove an index entry: return the base offset of the batch that `data` starts with, or -1.

    The batch must end with `last_offset` or, if not `exact`, not start above it: Kafka before 4.0 wrote one
    entry for all the batches of one append call.
    """
    p: cython.p_uchar = pointer(data)
    base: cython.longlong
    last_delta: cython.longlong
    if len(data) < _HEADER or p[16] != 2:
        return -1
    base = load_i64(p, 0)
    last_delta = load_i32(p, 23)
    if base < 0 or last_delta < 0 or base > last_offset or (exact and base + last_delta != last_offset):
        return -1
    return base


def count_whole_batches(data: bytes):
    """Count the batches with a valid CRC anywhere in `data`, and their records: what lies behind a cut.

    Bytes that look like the beginnings of large batches again and again are given up: then there may be more.
    """
    p: cython.p_uchar = pointer(data)
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = len(data)
    size: cython.Py_ssize_t
    batches: cython.longlong = 0
    records: cython.longlong = 0
    effort: cython.longlong = 16 * end
    while end - at >= _HEADER and effort >= 0:
        size = batch_size(p, at, end)
        effort -= max(size, 0)
        if size > 0 and load_u32(p, at + 17) == crc_of(data, p, at + 21, size - 21, 0):
            batches += 1
            records += load_i32(p, at + 57)
            at += size
        else:
            at += 1
    return batches, records


def take_batches(
    data: bytes,
    at: cython.Py_ssize_t,
    origin: cython.longlong,
    next_offset: cython.longlong,
    contiguous: cython.bint,
    stop: cython.longlong,
    max_bytes: cython.longlong,
    at_least_one: cython.bint,
    verify: cython.bint,
):
    """Walk the whole batches that end below `stop`, together at most `max_bytes`, or one if need be.

    Returns (index behind them, next offset there, done): done if `stop` or `max_bytes` was the reason.
    """
    p: cython.p_uchar = pointer(data)
    begin: cython.Py_ssize_t = at
    end: cython.Py_ssize_t = len(data)
    size: cython.Py_ssize_t
    last: cython.longlong
    while at < end:
        size = batch_size(p, at, end)
        if size == 0:
            break
        if size < 0:
            raise header_error(p, at, origin + at)
        last = check_offsets(p, at, next_offset, contiguous, origin + at)
        if last >= stop or (at + size - begin > max_bytes and not at_least_one):
            return at, next_offset, True
        if verify:
            check_crc(data, p, at, size, origin + at)
        at_least_one = False
        next_offset = last + 1
        at += size
    return at, next_offset, False


def find_time(data: bytes, at: cython.Py_ssize_t, origin: cython.longlong, timestamp_ms: cython.longlong):
    """Walk whole batches to the first whose largest timestamp is `timestamp_ms` or above.

    Returns (its index, found). Not found: the index of the first batch that is not all there. Every batch
    walked is summed: its timestamp decides.
    """
    p: cython.p_uchar = pointer(data)
    end: cython.Py_ssize_t = len(data)
    size: cython.Py_ssize_t
    while at < end:
        size = batch_size(p, at, end)
        if size == 0:
            break
        if size < 0:
            raise header_error(p, at, origin + at)
        check_crc(data, p, at, size, origin + at)
        if load_i64(p, at + 35) >= timestamp_ms:
            return at, True
        at += size
    return at, False


# ---------------------------------------------------------------- decoding records


@cython.cfunc
@cython.inline
def body_of(data: bytes, at: cython.Py_ssize_t, size: cython.Py_ssize_t, codec: cython.int, limit: cython.Py_ssize_t):
    """Return the decompressed records of a batch."""
    with memoryview(data) as view:
        return decompress(codec, view[at + _HEADER : at + size], limit=limit)


@cython.cfunc
def record_error(what: str, index: cython.longlong, position: cython.longlong):
    return CorruptBatch(f"record {index}: {what}", position=position)


@cython.cfunc
def decode_headers(
    data: bytes,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    index: cython.longlong,
    position: cython.longlong,
):
    """Return the headers of a record as a tuple; they must fill the bytes up to `end`."""
    p: cython.p_uchar = pointer(data)
    count: cython.longlong
    size: cython.longlong
    count, at = load_varint(p, at, end)
    # A header takes at least two bytes: the lengths of its key and of its value.
    if at < 0 or count < 0 or count > (end - at) // 2:
        raise record_error("the header count cannot be", index, position)
    headers: list = []
    while count > 0:
        size, at = load_varint(p, at, end)
        if at < 0 or size < 0 or size > end - at:
            raise record_error("a header's key overruns the record", index, position)
        key = data[at : at + size].decode("utf-8", "surrogateescape")
        at += cython.cast(cython.Py_ssize_t, size)
        size, at = load_varint(p, at, end)
        if at < 0 or size < -1 or size > end - at:
            raise record_error("a header's value overruns the record", index, position)
        if size < 0:
            headers.append((key, None))
        else:
            headers.append((key, data[at : at + size]))
            at += cython.cast(cython.Py_ssize_t, size)
        count -= 1
    if at != end:
        raise record_error(f"{end - at} bytes are left over", index, position)
    return tuple(headers)


@cython.cfunc
@cython.inline
def slice_bytes(data: bytes, p: cython.p_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t):
    if cython.compiled:
        return PyBytes_FromStringAndSize(cython.cast(cython.p_char, p + at), size)
    else:
        return data[at : at + size]


@cython.cfunc
def decode_batch(
    data: bytes,
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    position: cython.longlong,
    start: cython.longlong,
    stop: cython.longlong,
    max_records: cython.Py_ssize_t,
    limit: cython.Py_ssize_t,
    out: list,
    source: object,
) -> cython.int:
    """Add the records of one checked batch that lie in [start, stop) to `out`, while it has room."""
    p: cython.p_uchar = pointer(data)
    base_offset: cython.longlong = load_i64(p, at)
    attributes: cython.int = load_i16(p, at + 21)
    last_delta: cython.longlong = load_i32(p, at + 23)
    base_timestamp: cython.longlong = load_i64(p, at + 27)
    max_timestamp: cython.longlong = load_i64(p, at + 35)
    count: cython.longlong = load_i32(p, at + 57)
    body: bytes
    end: cython.Py_ssize_t
    record_end: cython.Py_ssize_t
    field: cython.longlong
    timestamp: cython.longlong
    offset_delta: cython.longlong
    previous_delta: cython.longlong = -1
    index: cython.longlong
    record: Record
    if attributes & _CONTROL:
        return 0
    if attributes & _CODEC_MASK:
        try:
            body = body_of(data, at, size, attributes & _CODEC_MASK, limit)
        except CorruptionError as error:
            raise type(error)(error.reason, position=position, advice=error.advice) from error
        p = pointer(body)
        at = 0
        end = len(body)
    else:
        body = data
        end = at + size
        at += _HEADER
    for index in range(count):
        if len(out) >= max_records:
            return 0
        field, at = load_varint(p, at, end)
        if at < 0 or field < 0 or field > end - at:
            raise record_error("its length overruns the batch", index, position)
        record_end = at + cython.cast(cython.Py_ssize_t, field)
        if record_end - at < 1:
            raise record_error("it is empty", index, position)
        timestamp, at = load_varint(p, at + 1, record_end)
        if at < 0:
            raise record_error("its timestamp is no varint", index, position)
        timestamp = max_timestamp if attributes & _LOG_APPEND_TIME else wrapped(base_timestamp + timestamp)
        if timestamp < -1:
            raise record_error("its timestamp is out of bounds", index, position)
        offset_delta, at = load_varint(p, at, record_end)
        if at < 0 or offset_delta <= previous_delta or offset_delta > last_delta:
            raise record_error("its offset does not lie in the batch", index, position)
        previous_delta = offset_delta
        if base_offset + offset_delta < start:
            at = record_end
            continue
        if base_offset + offset_delta >= stop:
            return 0
        record = Record.__new__(Record)
        record.offset = base_offset + offset_delta
        record._timestamp = timestamp
        record._source = source
        field, at = load_varint(p, at, record_end)
        if at < 0 or field < -1 or field > record_end - at:
            raise record_error("its key overruns the record", index, position)
        if field < 0:
            record.key = None
        else:
            record.key = slice_bytes(body, p, at, field)
            at += cython.cast(cython.Py_ssize_t, field)
        field, at = load_varint(p, at, record_end)
        if at < 0 or field < -1 or field > record_end - at:
            raise record_error("its value overruns the record", index, position)
        if field < 0:
            record.value = None
        else:
            record.value = slice_bytes(body, p, at, field)
            at += cython.cast(cython.Py_ssize_t, field)
        if record_end - at == 1 and p[at] == 0:
            record.headers = ()
        else:
            record.headers = decode_headers(body, at, record_end, index, position)
        at = record_end
        out.append(record)
    if at != end:
        raise CorruptBatch(f"{end - at} bytes are left over behind the last record", position=position)
    return 0


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

    Stops when `out` holds `max_records`, behind the batch with which `enough_records` or `enough_bytes` are
    reached, at the first batch that is not all there, or at `stop`. Every batch decoded has its CRC checked.
    Returns (index and next offset of the first batch not taken, bytes of the batches taken).
    """
    p: cython.p_uchar = pointer(data)
    end: cython.Py_ssize_t = len(data)
    size: cython.Py_ssize_t
    last: cython.longlong
    taken: cython.longlong = 0
    while at < end and next_offset < stop and len(out) < enough_records and taken < enough_bytes:
        size = batch_size(p, at, end)
        if size == 0:
            break
        if size < 0:
            raise header_error(p, at, origin + at)
        last = check_offsets(p, at, next_offset, contiguous, origin + at)
        if last >= start or not contiguous:
            check_crc(data, p, at, size, origin + at)
        if last >= start:
            check_counts(p, at, size, origin + at)
            if load_i64(p, at) < stop:
                decode_batch(data, at, size, origin + at, start, stop, max_records, limit, out, source)
            taken += size
        next_offset = last + 1
        at += size
    return at, next_offset, taken


# ---------------------------------------------------------------- decoding columns


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_i32(p: cython.p_uchar, index: cython.Py_ssize_t, value: cython.longlong) -> cython.void:
    if cython.compiled:
        cython.cast(cython.pointer(int32_t), p)[index] = cython.cast(int32_t, value)
    else:
        memoryview(p)[4 * index : 4 * index + 4] = value.to_bytes(4, sys.byteorder, signed=True)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_i64(p: cython.p_uchar, index: cython.Py_ssize_t, value: cython.longlong) -> cython.void:
    if cython.compiled:
        cython.cast(cython.pointer(int64_t), p)[index] = value
    else:
        memoryview(p)[8 * index : 8 * index + 8] = value.to_bytes(8, sys.byteorder, signed=True)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def get_i32(p: cython.p_uchar, index: cython.Py_ssize_t) -> cython.longlong:
    if cython.compiled:
        return native_i32(p + 4 * index)
    else:
        return int.from_bytes(p[4 * index : 4 * index + 4], sys.byteorder, signed=True)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def get_i64(p: cython.p_uchar, index: cython.Py_ssize_t) -> cython.longlong:
    if cython.compiled:
        return native_i64(p + 8 * index)
    else:
        return int.from_bytes(p[8 * index : 8 * index + 8], sys.byteorder, signed=True)


@cython.final
@cython.cclass
class BytesColumn:
    """A column of byte strings as Arrow lays it out: int32 ends, bytes, and one bit per row for "not null".

    It grows as rows come: only the bytes really used are ever touched.
    """

    ends: bytearray
    data: bytearray
    valid: bytearray
    rows: cython.Py_ssize_t
    used: cython.Py_ssize_t
    null_count: cython.Py_ssize_t
    _row_capacity: cython.Py_ssize_t
    _data_capacity: cython.Py_ssize_t
    _ends: cython.p_uchar
    _data: cython.p_uchar
    _valid: cython.p_uchar

    def __init__(self, rows: cython.Py_ssize_t, data_bytes: cython.Py_ssize_t):
        self.rows = 0
        self.used = 0
        self.null_count = 0
        self.ends = new_buffer(0)
        self.data = new_buffer(0)
        self.valid = new_buffer(0)
        self.resize_rows(rows)
        self.resize_data(data_bytes)
        put_i32(self._ends, 0, 0)

    @cython.cfunc
    def resize_rows(self, rows: cython.Py_ssize_t) -> cython.int:
        resize(self.ends, 4 * (rows + 1))
        resize(self.valid, (rows + 7) // 8)
        self._ends = buffer_pointer(self.ends)
        self._valid = buffer_pointer(self.valid)
        self._row_capacity = rows
        return 0

    @cython.cfunc
    def resize_data(self, size: cython.Py_ssize_t) -> cython.int:
        resize(self.data, size)
        self._data = buffer_pointer(self.data)
        self._data_capacity = size
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1, check=False)
    def add(self, p: cython.p_uchar, at: cython.Py_ssize_t, size: cython.longlong) -> cython.int:
        """Add a row: `size` bytes at `at`, or null if it is -1."""
        bit: cython.int = 1 << (self.rows & 7)
        if self.rows == self._row_capacity:
            self.resize_rows(2 * self.rows + 64)
        if bit == 1:
            self._valid[self.rows >> 3] = 0
        if size < 0:
            self.null_count += 1
        else:
            if size > self._data_capacity - self.used:
                self.resize_data(2 * self._data_capacity + size)
            copy(self._data, self.used, p, at, size)
            self.used += size
            self._valid[self.rows >> 3] |= bit
        self.rows += 1
        put_i32(self._ends, self.rows, self.used)
        return 0

    @cython.cfunc
    def finish(self):
        """Return (rows, null count, validity bits or None, ends, data), cut to what is used."""
        resize(self.ends, 4 * (self.rows + 1))
        resize(self.data, self.used)
        resize(self.valid, (self.rows + 7) // 8)
        return self.rows, self.null_count, self.valid if self.null_count else None, self.ends, self.data


@cython.cfunc
def resize(buffer: bytearray, size: cython.Py_ssize_t) -> cython.int:
    """Cut a buffer, or lengthen it by bytes that are not set when compiled."""
    if cython.compiled:
        PyByteArray_Resize(buffer, size)
    elif size < len(buffer):
        del buffer[size:]
    else:
        buffer.extend(bytes(size - len(buffer)))
    return 0


@cython.final
@cython.cclass
class Columns:
    """The columns of one Arrow batch, filled batch by batch. Only those asked for are built.

    `add` takes whole batches while there is room for their records and returns where it stopped.
    """

    rows = cython.declare(cython.Py_ssize_t, visibility="readonly")
    _capacity: cython.Py_ssize_t
    _data_capacity: cython.Py_ssize_t
    _data_claimed: cython.Py_ssize_t
    _limit: cython.Py_ssize_t
    _scale: cython.longlong
    _max_timestamp: cython.longlong
    _names: object
    _key: BytesColumn
    _value: BytesColumn
    _offsets: bytearray
    _timestamps: bytearray
    _timestamp_types: bytearray
    _header_ends: bytearray
    _header_keys: BytesColumn
    _header_values: BytesColumn
    _header_count: cython.Py_ssize_t
    _wants_headers: cython.bint

    def __init__(
        self,
        columns,
        *,
        rows: cython.Py_ssize_t,
        data_bytes: cython.Py_ssize_t,
        limit: cython.Py_ssize_t,
        timestamp_scale: cython.longlong,
    ):
        self._names = columns
        self._limit = limit
        self._scale = timestamp_scale
        self._max_timestamp = 0x7FFFFFFFFFFFFFFF // timestamp_scale
        self.allocate(rows, data_bytes)

    @cython.ccall
    def allocate(self, rows: cython.Py_ssize_t, data_bytes: cython.Py_ssize_t):
        """Start empty, with room for so many rows and so many bytes of keys, values and headers."""
        self.rows = 0
        self._capacity = rows
        self._data_capacity = data_bytes
        self._data_claimed = 0
        self._header_count = 0
        # First guesses: keys are short, values are most of the bytes. Both grow where that is wrong.
        self._key = BytesColumn(rows, min(16 * rows, data_bytes)) if "key" in self._names else None
        self._value = BytesColumn(rows, data_bytes) if "value" in self._names else None
        self._offsets = new_buffer(8 * rows) if "offset" in self._names else None
        self._timestamps = new_buffer(8 * rows) if "timestamp" in self._names else None
        self._timestamp_types = new_buffer(4 * rows) if "timestampType" in self._names else None
        self._header_ends = None
        self._header_keys = None
        self._header_values = None
        self._wants_headers = "headers" in self._names
        if self._wants_headers:
            self._header_ends = new_buffer(4 * (rows + 1))
            put_i32(buffer_pointer(self._header_ends), 0, 0)
            self._header_keys = BytesColumn(0, 0)
            self._header_values = BytesColumn(0, 0)

    def add(
        self,
        data: bytes,
        at: cython.Py_ssize_t,
        origin: cython.longlong,
        next_offset: cython.longlong,
        contiguous: cython.bint,
        start: cython.longlong,
        stop: cython.longlong,
    ):
        """Decode records with offsets in [start, stop) from consecutive batches, every CRC checked.

        Returns (index, next offset, full): the first batch not taken, and whether room was the reason. An
        empty `Columns` takes at least one batch, however large.
        """
        p: cython.p_uchar = pointer(data)
        end: cython.Py_ssize_t = len(data)
        size: cython.Py_ssize_t
        last: cython.longlong
        count: cython.longlong
        codec: cython.int
        body: bytes
        while at < end and next_offset < stop:
            size = batch_size(p, at, end)
            if size == 0:
                break
            if size < 0:
                raise header_error(p, at, origin + at)
            last = check_offsets(p, at, next_offset, contiguous, origin + at)
            if last >= start or not contiguous:
                check_crc(data, p, at, size, origin + at)
            if last >= start:
                check_counts(p, at, size, origin + at)
            if last >= start and load_i64(p, at) < stop and not (p[at + 22] & _CONTROL):
                count = load_i32(p, at + 57)
                codec = p[at + 22] & _CODEC_MASK
                if codec:
                    if self.rows and count > self._capacity - self.rows:
                        return at, next_offset, True
                    try:
                        body = body_of(data, at, size, codec, self._limit)
                    except CorruptionError as error:
                        raise type(error)(error.reason, position=origin + at, advice=error.advice) from error
                    if count > len(body) // _RECORD_MIN:
                        raise CorruptBatch(f"{count} records cannot fit in {len(body)} bytes", position=origin + at)
                    if not self.make_room(count, len(body)):
                        return at, next_offset, True
                    self.add_batch(p, at, body, 0, len(body), origin + at, start, stop)
                else:
                    if not self.make_room(count, size - _HEADER):
                        return at, next_offset, True
                    self.add_batch(p, at, data, at + _HEADER, at + size, origin + at, start, stop)
            next_offset = last + 1
            at += size
        return at, next_offset, False

    @cython.ccall
    def make_room(self, count: cython.longlong, size: cython.Py_ssize_t) -> cython.bint:
        """Claim room for a batch. Only an empty set of columns grows, to hold one large batch."""
        if count <= self._capacity - self.rows and size <= self._data_capacity - self._data_claimed:
            self._data_claimed += size
            return True
        if self.rows:
            return False
        self.allocate(max(count, self._capacity), max(size, self._data_capacity))
        self._data_claimed = size
        return True

    @cython.cfunc
    def add_batch(
        self,
        header: cython.p_uchar,
        header_at: cython.Py_ssize_t,
        body: bytes,
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        position: cython.longlong,
        start: cython.longlong,
        stop: cython.longlong,
    ) -> cython.int:
        p: cython.p_uchar = pointer(body)
        base_offset: cython.longlong = load_i64(header, header_at)
        append_time: cython.bint = (header[header_at + 22] & _LOG_APPEND_TIME) != 0
        last_delta: cython.longlong = load_i32(header, header_at + 23)
        base_timestamp: cython.longlong = load_i64(header, header_at + 27)
        max_timestamp: cython.longlong = load_i64(header, header_at + 35)
        count: cython.longlong = load_i32(header, header_at + 57)
        key: BytesColumn = self._key
        value: BytesColumn = self._value
        has_key: cython.bint = key is not None
        has_value: cython.bint = value is not None
        has_offset: cython.bint = self._offsets is not None
        has_timestamp: cython.bint = self._timestamps is not None
        offsets: cython.p_uchar = buffer_pointer(self._offsets) if has_offset else pointer(b"")
        timestamps: cython.p_uchar = buffer_pointer(self._timestamps) if has_timestamp else pointer(b"")
        has_type: cython.bint = self._timestamp_types is not None
        timestamp_types: cython.p_uchar = buffer_pointer(self._timestamp_types) if has_type else pointer(b"")
        wants_headers: cython.bint = self._wants_headers
        header_ends: cython.p_uchar = buffer_pointer(self._header_ends) if wants_headers else pointer(b"")
        record_end: cython.Py_ssize_t
        field: cython.longlong
        timestamp: cython.longlong
        offset_delta: cython.longlong
        previous_delta: cython.longlong = -1
        index: cython.longlong
        for index in range(count):
            field, at = load_varint(p, at, end)
            if at < 0 or field < 1 or field > end - at:
                raise record_error("its length overruns the batch", index, position)
            record_end = at + cython.cast(cython.Py_ssize_t, field)
            timestamp, at = load_varint(p, at + 1, record_end)
            if at < 0:
                raise record_error("its timestamp is no varint", index, position)
            timestamp = max_timestamp if append_time else wrapped(base_timestamp + timestamp)
            if timestamp < -1:
                raise record_error("its timestamp is out of bounds", index, position)
            offset_delta, at = load_varint(p, at, record_end)
            if at < 0 or offset_delta <= previous_delta or offset_delta > last_delta:
                raise record_error("its offset does not lie in the batch", index, position)
            previous_delta = offset_delta
            if base_offset + offset_delta < start:
                at = record_end
                continue
            if base_offset + offset_delta >= stop:
                return 0
            field, at = load_varint(p, at, record_end)
            if at < 0 or field < -1 or field > record_end - at:
                raise record_error("its key overruns the record", index, position)
            if has_key:
                key.add(p, at, field)
            if field > 0:
                at += cython.cast(cython.Py_ssize_t, field)
            field, at = load_varint(p, at, record_end)
            if at < 0 or field < -1 or field > record_end - at:
                raise record_error("its value overruns the record", index, position)
            if has_value:
                value.add(p, at, field)
            if field > 0:
                at += cython.cast(cython.Py_ssize_t, field)
            if not (record_end - at == 1 and p[at] == 0):
                self.add_headers(p, at, record_end, index, position)
            if has_offset:
                put_i64(offsets, self.rows, base_offset + offset_delta)
            if has_timestamp:
                if timestamp > self._max_timestamp:
                    raise record_error(
                        f"its timestamp {timestamp} is out of bounds of the column's unit", index, position
                    )
                put_i64(timestamps, self.rows, timestamp * self._scale)
            if has_type:
                # Kafka's TimestampType: 0 for CreateTime, 1 for LogAppendTime.
                put_i32(timestamp_types, self.rows, 1 if append_time else 0)
            self.rows += 1
            if wants_headers:
                put_i32(header_ends, self.rows, self._header_count)
            at = record_end
        if at != end:
            raise CorruptBatch(f"{end - at} bytes are left over behind the last record", position=position)
        return 0

    @cython.cfunc
    def add_headers(
        self,
        p: cython.p_uchar,
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        index: cython.longlong,
        position: cython.longlong,
    ) -> cython.int:
        """Check a record's headers, and keep them if they were asked for."""
        count: cython.longlong
        size: cython.longlong
        count, at = load_varint(p, at, end)
        if at < 0 or count < 0 or count > (end - at) // 2:
            raise record_error("the header count cannot be", index, position)
        while count > 0:
            size, at = load_varint(p, at, end)
            if at < 0 or size < 0 or size > end - at:
                raise record_error("a header's key overruns the record", index, position)
            if self._wants_headers:
                self._header_keys.add(p, at, size)
            at += cython.cast(cython.Py_ssize_t, size)
            size, at = load_varint(p, at, end)
            if at < 0 or size < -1 or size > end - at:
                raise record_error("a header's value overruns the record", index, position)
            if self._wants_headers:
                self._header_values.add(p, at, size)
                self._header_count += 1
            if size > 0:
                at += cython.cast(cython.Py_ssize_t, size)
            count -= 1
        if at != end:
            raise record_error(f"{end - at} bytes are left over", index, position)
        return 0

    def finish(self):
        """Return the buffers by column name, cut to the rows that were added. The columns are spent."""
        out: dict = {}
        if self._key is not None:
            out["key"] = self._key.finish()
        if self._value is not None:
            out["value"] = self._value.finish()
        if self._offsets is not None:
            resize(self._offsets, 8 * self.rows)
            out["offset"] = self._offsets
        if self._timestamps is not None:
            resize(self._timestamps, 8 * self.rows)
            out["timestamp"] = self._timestamps
        if self._timestamp_types is not None:
            resize(self._timestamp_types, 4 * self.rows)
            out["timestampType"] = self._timestamp_types
        if self._wants_headers:
            resize(self._header_ends, 4 * (self.rows + 1))
            out["headers"] = (self._header_ends, self._header_keys.finish(), self._header_values.finish())
        return out


def filled_lists(ends: bytearray, rows: cython.Py_ssize_t):
    """Return (number of empty lists, one bit per list that is set where it is not empty), by the lists' int32 ends."""
    if rows < 0 or len(ends) < 4 * (rows + 1):
        raise ValueError(f"{len(ends)} bytes hold no ends of {rows} lists")
    p: cython.p_uchar = buffer_pointer(ends)
    bits: bytearray = bytearray((rows + 7) // 8)
    out: cython.p_uchar = buffer_pointer(bits)
    empty: cython.Py_ssize_t = 0
    row: cython.Py_ssize_t
    for row in range(rows):
        if get_i32(p, row) == get_i32(p, row + 1):
            empty += 1
        else:
            out[row >> 3] |= 1 << (row & 7)
    return empty, bits


# ---------------------------------------------------------------- rows of Arrow arrays


@cython.cfunc
def view_of(buffer: object):
    """A view of a buffer's bytes, none for None. Who holds it holds the bytes where they are."""
    view = memoryview(b"" if buffer is None else buffer)
    # A view without bytes cannot be cast.
    return view.cast("B") if view.nbytes else memoryview(b"")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def view_pointer(view: object) -> cython.p_uchar:
    if cython.compiled:
        return cython.cast(cython.p_uchar, PyMemoryView_GET_BUFFER(view).buf)
    else:
        return view


@cython.cfunc
def check_view(
    what: str, view: object, width: cython.longlong, rows: cython.Py_ssize_t, offset: cython.Py_ssize_t
) -> cython.int:
    """Refuse a buffer that does not hold `rows` items of `width` bits behind `offset`."""
    size: cython.longlong = len(view)
    if rows < 0 or offset < 0 or rows > 8 * size // width or offset > 8 * size // width - rows:
        raise InvalidRecord(f"{size:,} bytes of {what} hold no {rows:,} rows from row {offset:,}; validate the array")
    return 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def bit_at(p: cython.p_uchar, index: cython.Py_ssize_t) -> cython.bint:
    return (p[index >> 3] >> (index & 7)) & 1 != 0


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
            if total > _INT32_MAX:
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
        used: cython.Py_ssize_t = _HEADER
        batch_bytes = min(batch_bytes, limit + _HEADER)
        # The room is reused by one call after the other: the allocator hands out the same again.
        room: cython.Py_ssize_t = _HEADER + min(max(batch_bytes, 0), 1 << 16)
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
                if size > _INT32_MAX - _HEADER:
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
            with memoryview(scratch) as whole, whole[_HEADER:used] as records:
                packed: bytes = compress(codec, records)
            batch = new_bytes(_HEADER + len(packed))
            copy(new_pointer(batch), _HEADER, pointer(packed), 0, len(packed))
        else:
            batch = new_bytes(used)
            copy(new_pointer(batch), _HEADER, p, _HEADER, used - _HEADER)
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
    if count < 1 or count > _INT32_MAX:
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
    if count < 1 or count > _INT32_MAX or rows > _INT32_MAX:
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


# ---------------------------------------------------------------- compaction

# A slot of the offset map: two halves of a key's hash, then the offset, less the map's base, plus one; 0: empty.
_MAP_SLOT = cython.declare(cython.Py_ssize_t, 20)
SLOT_SIZE = 20
# So many keys are hashed before the first is looked up: more than a core asks memory for at once.
_GROUP = cython.declare(cython.Py_ssize_t, 32)
_TRANSACTIONAL_OR_CONTROL = cython.declare(cython.int, 0x30)
_DELETE_HORIZON = cython.declare(cython.int, 0x40)
# The last relative offset that a slot holds.
_RELATIVE_MAX = cython.declare(cython.longlong, 2**32 - 3)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def get_u64_at(p: cython.p_uchar, at: cython.Py_ssize_t) -> cython.ulonglong:
    if cython.compiled:
        return cython.cast(cython.ulonglong, native_i64(p + at))
    else:
        return int.from_bytes(p[at : at + 8], sys.byteorder)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_u64_at(p: cython.p_uchar, at: cython.Py_ssize_t, value: cython.ulonglong) -> cython.void:
    if cython.compiled:
        memcpy(p + at, cython.address(value), 8)
    else:
        memoryview(p)[at : at + 8] = value.to_bytes(8, sys.byteorder)


@cython.cfunc
@cython.inline
def body_and_place(
    data: bytes,
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    position: cython.longlong,
    limit: cython.Py_ssize_t,
):
    """Return (the bytes that hold a batch's records, decompressed, where they start there, where they end)."""
    p: cython.p_uchar = pointer(data)
    codec: cython.int = p[at + 22] & _CODEC_MASK
    if not codec:
        return data, at + _HEADER, at + size
    try:
        body = body_of(data, at, size, codec, limit)
    except CorruptionError as error:
        raise type(error)(error.reason, position=position, advice=error.advice) from error
    return body, 0, len(body)


@cython.cfunc
def control_type(p: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
    """Return the type of the marker that a control batch's records begin with: 0 abort, 1 commit, -1 none known."""
    field: cython.longlong
    field, at = load_varint(p, at, end)
    if at < 0 or field < 1:
        return -1
    field, at = load_varint(p, at + 1, end)
    if at >= 0:
        field, at = load_varint(p, at, end)
    if at >= 0:
        field, at = load_varint(p, at, end)
    if at < 0 or field < 4 or field > end - at:
        return -1
    return load_i16(p, at + 2)


def note_transactions(
    data: bytes, at: cython.Py_ssize_t, origin: cython.longlong, stop: cython.longlong, limit: cython.Py_ssize_t, note
):
    """Tell `note(base_offset, last_offset, attributes, producer_id, marker)` of whole batches of transactions.

    Every batch below offset `stop` is walked and its CRC checked: what a damaged one would be taken for decides over
    others. Returns (index behind them, whether the next one is at `stop` or above).
    """
    p: cython.p_uchar = pointer(data)
    end: cython.Py_ssize_t = len(data)
    size: cython.Py_ssize_t
    here: cython.Py_ssize_t
    body_end: cython.Py_ssize_t
    last: cython.longlong
    attributes: cython.int
    body: bytes
    while at < end:
        size = batch_size(p, at, end)
        if size == 0:
            break
        if size < 0:
            raise header_error(p, at, origin + at)
        last = check_offsets(p, at, 0, False, origin + at)
        if load_i64(p, at) >= stop:
            return at, True
        check_crc(data, p, at, size, origin + at)
        attributes = load_i16(p, at + 21)
        if attributes & _TRANSACTIONAL_OR_CONTROL:
            marker = -1
            if attributes & _CONTROL:
                body, here, body_end = body_and_place(data, at, size, origin + at, limit)
                marker = control_type(pointer(body), here, body_end)
            note(load_i64(p, at), last, attributes, load_i64(p, at + 43), marker)
        at += size
    return at, False


def check_keyed(data: bytes, limit: cython.Py_ssize_t):
    """Refuse whole, checked batches that hold a record without key. Markers of transactions have none to miss."""
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = len(data)
    size: cython.Py_ssize_t
    here: cython.Py_ssize_t
    body_end: cython.Py_ssize_t
    record_end: cython.Py_ssize_t
    index: cython.longlong
    count: cython.longlong
    field: cython.longlong
    body: bytes
    p: cython.p_uchar = pointer(data)
    q: cython.p_uchar
    while at < end:
        size = whole_batch_size(p, at, end)
        count = load_i32(p, at + 57)
        if not p[at + 22] & _CONTROL and count:
            body, here, body_end = body_and_place(data, at, size, at, limit)
            q = pointer(body)
            for index in range(count):
                field, here = load_varint(q, here, body_end)
                if here < 0 or field < 1 or field > body_end - here:
                    raise record_error("its length overruns the batch", index, at)
                record_end = here + cython.cast(cython.Py_ssize_t, field)
                field, here = load_varint(q, here + 1, record_end)
                if here >= 0:
                    field, here = load_varint(q, here, record_end)
                if here >= 0:
                    field, here = load_varint(q, here, record_end)
                if here < 0:
                    raise record_error("its key overruns the record", index, at)
                if field < 0:
                    raise InvalidRecord(f"record {index} of the batch at byte {at} has no key")
                here = record_end
        at += size
    return None


@cython.final
@cython.cclass
class OffsetMap:
    """The last offset of each key of a run of batches: an open-addressing table in one flat buffer.

    Keys stand in it as 128-bit hashes under a secret, so no key is ever taken for another. It never grows: when
    four fifths of its slots are taken it is full, and takes no further key.
    """

    slots = cython.declare(cython.Py_ssize_t, visibility="readonly")
    capacity = cython.declare(cython.Py_ssize_t, visibility="readonly")
    count = cython.declare(cython.Py_ssize_t, visibility="readonly")
    base_offset = cython.declare(cython.longlong, visibility="readonly")
    latest_offset = cython.declare(cython.longlong, visibility="readonly")
    _table: bytearray
    _p: cython.p_uchar
    _secret_low: cython.ulonglong
    _secret_high: cython.ulonglong
    _waiting: bytearray

    def __init__(self, slots: cython.Py_ssize_t, *, base_offset: cython.longlong, secret: bytes):
        if slots < 2 or slots > _INT32_MAX or len(secret) != 16:
            raise ValueError(f"a map of {slots} slots, a secret of {len(secret)} bytes")
        self.slots = slots
        # Probing goes on over taken slots: at four fifths a key that is not there costs some 13 of them.
        self.capacity = slots * 4 // 5
        self.count = 0
        self.base_offset = base_offset
        # Every record up to here is in the map.
        self.latest_offset = base_offset - 1
        self._table = bytearray(slots * _MAP_SLOT)
        self._p = buffer_pointer(self._table)
        self._secret_low = load_little_u64(pointer(secret), 0)
        self._secret_high = load_little_u64(pointer(secret), 8)
        # Of each key that waits for its slot to be looked at: its hash, and its offset.
        self._waiting = new_buffer(24 * _GROUP)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def hash(
        self, key: cython.p_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t
    ) -> tuple[cython.ulonglong, cython.ulonglong]:
        """Return a key's hash, and have the slot where it belongs brought near.

        The table is larger than any cache. Who hashes a group of keys before looking at the first waits for the memory
        once, and not once a key.
        """
        first: cython.ulonglong
        second: cython.ulonglong
        first, second = siphash(key, at, size, self._secret_low, self._secret_high)
        if cython.compiled:
            fetch_ahead(self._p + self.home(first))
        return first, second

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def home(self, first: cython.ulonglong) -> cython.Py_ssize_t:
        """Return where a key's slot is unless others are in the way."""
        # The upper half of the first number spread over the slots, without a division.
        slot: cython.Py_ssize_t = cython.cast(
            cython.Py_ssize_t, ((first >> 32) * cython.cast(cython.ulonglong, self.slots)) >> 32
        )
        return slot * _MAP_SLOT

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def find(self, first: cython.ulonglong, second: cython.ulonglong) -> cython.Py_ssize_t:
        """Return where a key's slot is, by its hash, or the empty one that it would take."""
        p: cython.p_uchar = self._p
        place: cython.Py_ssize_t = self.home(first)
        end: cython.Py_ssize_t = self.slots * _MAP_SLOT
        while get_u32_at(p, place + 16) != 0:
            if get_u64_at(p, place) == first and get_u64_at(p, place + 8) == second:
                break
            place += _MAP_SLOT
            if place == end:
                place = 0
        return place

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def last_of(self, first: cython.ulonglong, second: cython.ulonglong) -> cython.longlong:
        """Return the last offset of a key, by its hash, or -1."""
        stored: cython.longlong = get_u32_at(self._p, self.find(first, second) + 16)
        return self.base_offset + stored - 1 if stored else -1

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def put(self, first: cython.ulonglong, second: cython.ulonglong, offset: cython.longlong) -> cython.bint:
        """Note the offset of a key, by its hash, or tell that there is no room."""
        place: cython.Py_ssize_t = self.find(first, second)
        if get_u32_at(self._p, place + 16) == 0:
            if self.count >= self.capacity:
                return False
            self.count += 1
            put_u64_at(self._p, place, first)
            put_u64_at(self._p, place + 8, second)
        put_u32_at(self._p, place + 16, offset - self.base_offset + 1)
        return True

    def get(self, key: bytes):
        """Return the last offset of a key, or None if the map does not have it."""
        first: cython.ulonglong
        second: cython.ulonglong
        first, second = self.hash(pointer(key), 0, len(key))
        found = self.last_of(first, second)
        return None if found < 0 else found

    def add_batches(
        self,
        data: bytes,
        at: cython.Py_ssize_t,
        origin: cython.longlong,
        start: cython.longlong,
        limit: cython.Py_ssize_t,
        judge,
    ):
        """Note the keys of consecutive whole batches, from offset `start` on, every CRC checked.

        Returns (index behind the batches taken, full): full if there was no room for all of a batch. Part of its
        keys may then be in the map, which is no harm, because nothing above `latest_offset` is ever dropped.
        `judge(base_offset, last_offset, attributes, producer_id, marker)` is asked of batches of transactions, and
        tells whether a batch counts for nothing.
        """
        p: cython.p_uchar = pointer(data)
        end: cython.Py_ssize_t = len(data)
        size: cython.Py_ssize_t
        last: cython.longlong
        attributes: cython.int
        body: bytes
        here: cython.Py_ssize_t
        body_end: cython.Py_ssize_t
        while at < end:
            size = batch_size(p, at, end)
            if size == 0:
                break
            if size < 0:
                raise header_error(p, at, origin + at)
            last = check_offsets(p, at, 0, False, origin + at)
            if last - self.base_offset > _RELATIVE_MAX:
                return at, True
            check_crc(data, p, at, size, origin + at)
            check_counts(p, at, size, origin + at)
            attributes = load_i16(p, at + 21)
            body, here, body_end = body_and_place(data, at, size, origin + at, limit)
            if attributes & _TRANSACTIONAL_OR_CONTROL:
                marker = control_type(pointer(body), here, body_end) if attributes & _CONTROL else -1
                if judge(load_i64(p, at), last, attributes, load_i64(p, at + 43), marker) or attributes & _CONTROL:
                    body_end = -1
            if body_end >= 0 and last >= start:
                if not self.add_records(p, at, body, here, body_end, origin + at, start):
                    return at, True
            if last > self.latest_offset:
                self.latest_offset = last
            at += size
        return at, False

    @cython.cfunc
    def add_records(
        self,
        header: cython.p_uchar,
        header_at: cython.Py_ssize_t,
        body: bytes,
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        position: cython.longlong,
        start: cython.longlong,
    ) -> cython.bint:
        p: cython.p_uchar = pointer(body)
        base_offset: cython.longlong = load_i64(header, header_at)
        last_delta: cython.longlong = load_i32(header, header_at + 23)
        count: cython.longlong = load_i32(header, header_at + 57)
        index: cython.longlong
        field: cython.longlong
        offset_delta: cython.longlong
        previous_delta: cython.longlong = -1
        record_end: cython.Py_ssize_t
        first: cython.ulonglong
        second: cython.ulonglong
        waiting: cython.p_uchar = buffer_pointer(self._waiting)
        waiting_count: cython.Py_ssize_t = 0
        for index in range(count):
            field, at = load_varint(p, at, end)
            if at < 0 or field < 1 or field > end - at:
                raise record_error("its length overruns the batch", index, position)
            record_end = at + cython.cast(cython.Py_ssize_t, field)
            field, at = load_varint(p, at + 1, record_end)
            if at < 0:
                raise record_error("its timestamp is no varint", index, position)
            offset_delta, at = load_varint(p, at, record_end)
            if at < 0 or offset_delta <= previous_delta or offset_delta > last_delta:
                raise record_error("its offset does not lie in the batch", index, position)
            previous_delta = offset_delta
            field, at = load_varint(p, at, record_end)
            if at < 0 or field < -1 or field > record_end - at:
                raise record_error("its key overruns the record", index, position)
            if field >= 0 and base_offset + offset_delta >= start:
                if waiting_count == _GROUP:
                    if not self.put_waiting(waiting, waiting_count):
                        return False
                    waiting_count = 0
                first, second = self.hash(p, at, field)
                put_u64_at(waiting, 24 * waiting_count, first)
                put_u64_at(waiting, 24 * waiting_count + 8, second)
                put_i64(waiting, 3 * waiting_count + 2, base_offset + offset_delta)
                waiting_count += 1
            at = record_end
        if at != end:
            raise CorruptBatch(f"{end - at} bytes are left over behind the last record", position=position)
        return self.put_waiting(waiting, waiting_count)

    @cython.cfunc
    @cython.exceptval(check=False)
    def put_waiting(self, waiting: cython.p_uchar, count: cython.Py_ssize_t) -> cython.bint:
        """Note the keys that were hashed, in their order, or tell that there is no room for all of them."""
        index: cython.Py_ssize_t
        for index in range(count):
            if not self.put(
                get_u64_at(waiting, 24 * index), get_u64_at(waiting, 24 * index + 8), get_i64(waiting, 3 * index + 2)
            ):
                return False
        return True


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def get_u32_at(p: cython.p_uchar, at: cython.Py_ssize_t) -> cython.longlong:
    """The unsigned number at any address, as it stands in this machine's memory."""
    if cython.compiled:
        return cython.cast(cython.uint, native_i32(p + at))
    else:
        return int.from_bytes(p[at : at + 4], sys.byteorder)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_u32_at(p: cython.p_uchar, at: cython.Py_ssize_t, value: cython.longlong) -> cython.void:
    if cython.compiled:
        word: cython.uint = cython.cast(cython.uint, value)
        memcpy(p + at, cython.address(word), 4)
    else:
        memoryview(p)[at : at + 4] = value.to_bytes(4, sys.byteorder)


@cython.final
@cython.cclass
class BatchFilter:
    """Copies of batches what compaction keeps, by Kafka's rules. Batches that lose nothing are copied as they are.

    A record stays if the map has no later offset of its key, or if it lies behind what was mapped; one without key
    goes. A tombstone stays until the delete horizon of its batch, which is set `delete_retention_ms` ahead when a
    batch with tombstones is first copied: attribute bit 6, and the horizon in place of the base timestamp. A batch
    that loses all its records goes, unless it is the last of a producer (`last_offsets`), or a marker that alone tells
    the epoch of one (`last_epochs`), or the last of its file: then its header stays. Producers are asked for, by
    `last_offsets.get(producer_id, -1)`, only then. Offsets, sequences and the codec of a batch never change.
    """

    records_read = cython.declare(cython.longlong, visibility="readonly")
    records_kept = cython.declare(cython.longlong, visibility="readonly")
    keyless = cython.declare(cython.longlong, visibility="readonly")
    """Records that were dropped because they have no key."""
    changed = cython.declare(cython.bint, visibility="readonly")
    """Whether any batch was dropped or written anew."""
    _tail: bytearray
    _has_tail: cython.bint
    _is_tail_bare: cython.bint
    _map: OffsetMap
    _now_ms: cython.longlong
    _delete_retention_ms: cython.longlong
    _limit: cython.Py_ssize_t
    _last_offsets: object
    _last_epochs: object
    _judge: object
    _out: bytearray
    _used: cython.Py_ssize_t
    _kept: bytearray
    _room: cython.Py_ssize_t
    _waiting: bytearray
    _tombstones: cython.longlong
    _newest: cython.longlong

    def __init__(
        self,
        offset_map: OffsetMap,
        *,
        now_ms: cython.longlong,
        delete_retention_ms: cython.longlong,
        last_offsets,
        last_epochs,
        limit: cython.Py_ssize_t,
        judge,
    ):
        self.records_read = 0
        self.records_kept = 0
        self.keyless = 0
        self.changed = False
        # The header of the batch that went last, which `finish` brings back, and whether it had been no more before.
        self._tail = new_buffer(_HEADER)
        self._has_tail = False
        self._is_tail_bare = False
        self._map = offset_map
        self._now_ms = now_ms
        self._delete_retention_ms = delete_retention_ms
        self._limit = limit
        self._last_offsets = last_offsets
        self._last_epochs = last_epochs
        self._judge = judge
        self._out = new_buffer(0)
        self._used = 0
        # Of each kept record of a batch: where it starts, where its offset delta starts, where it ends, its time.
        self._kept = new_buffer(32 * 64)
        self._room = 64
        # Of each record that waits to be looked up: the same, its offset, whether it is a tombstone, its key's hash.
        self._waiting = new_buffer(64 * _GROUP)
        self._tombstones = 0
        self._newest = NO_TIMESTAMP

    def begin(self):
        """Begin a file: it is not `changed` yet."""
        self.changed = False
        self._has_tail = False
        self._used = 0

    def finish(self):
        """End a file: if its last batch went, the header comes back, so that the file ends where it did."""
        if self._has_tail:
            self._has_tail = False
            self.changed = self.changed or not self._is_tail_bare
            self.write_bare(bytes(self._tail), 0)

    def add_batches(self, data: bytes, at: cython.Py_ssize_t, origin: cython.longlong):
        """Take consecutive whole batches, every CRC checked; return the index behind them."""
        p: cython.p_uchar = pointer(data)
        end: cython.Py_ssize_t = len(data)
        size: cython.Py_ssize_t
        while at < end:
            size = batch_size(p, at, end)
            if size == 0:
                break
            if size < 0:
                raise header_error(p, at, origin + at)
            check_offsets(p, at, 0, False, origin + at)
            check_crc(data, p, at, size, origin + at)
            check_counts(p, at, size, origin + at)
            self.add_batch(data, at, size, origin + at)
            at += size
        return at

    def take(self):
        """Return the batches copied so far, and forget them."""
        if not self._used:
            return b""
        with memoryview(self._out) as view:
            taken = bytes(view[: self._used])
        self._used = 0
        return taken

    @cython.cfunc
    def reserve(self, size: cython.Py_ssize_t) -> cython.p_uchar:
        """Return where the output starts, with room for `size` more bytes."""
        if size > len(self._out) - self._used:
            resize(self._out, 2 * len(self._out) + size)
        return buffer_pointer(self._out)

    @cython.cfunc
    def add_batch(
        self, data: bytes, at: cython.Py_ssize_t, size: cython.Py_ssize_t, position: cython.longlong
    ) -> cython.int:
        p: cython.p_uchar = pointer(data)
        attributes: cython.int = load_i16(p, at + 21)
        last: cython.longlong = load_i64(p, at) + load_i32(p, at + 23)
        base_timestamp: cython.longlong = load_i64(p, at + 27)
        max_timestamp: cython.longlong = load_i64(p, at + 35)
        producer: cython.longlong = load_i64(p, at + 43)
        count: cython.longlong = load_i32(p, at + 57)
        has_horizon: cython.bint = (attributes & _DELETE_HORIZON) != 0
        horizon: cython.longlong = base_timestamp if has_horizon else _INT64_MAX
        discard: cython.bint = False
        sets_horizon: cython.bint = False
        kept: cython.longlong = 0
        tombstones: cython.longlong = 0
        newest: cython.longlong = NO_TIMESTAMP
        body: bytes
        here: cython.Py_ssize_t
        body_end: cython.Py_ssize_t
        body, here, body_end = body_and_place(data, at, size, position, self._limit)
        if attributes & _TRANSACTIONAL_OR_CONTROL:
            marker = control_type(pointer(body), here, body_end) if attributes & _CONTROL else -1
            discard = self._judge(load_i64(p, at), last, attributes, producer, marker)
            if attributes & _CONTROL:
                # A marker whose transaction has no records left waits for its horizon, as a tombstone does.
                sets_horizon = discard
                discard = discard and has_horizon and horizon <= self._now_ms
        self.records_read += count
        if self._has_tail:
            self._has_tail = False
            self.changed = True
        if not discard and count:
            kept, tombstones, newest = self.choose(p, at, body, here, body_end, position)
            sets_horizon = sets_horizon or tombstones > 0
        self.records_kept += kept
        if kept:
            sets_horizon = sets_horizon and not has_horizon
            if kept == count and not sets_horizon:
                q = self.reserve(size)
                copy(q, self._used, p, at, size)
                self._used += size
                return 0
            if sets_horizon:
                attributes |= _DELETE_HORIZON
                base_timestamp = self._now_ms + self._delete_retention_ms
            elif not has_horizon:
                base_timestamp = get_i64(buffer_pointer(self._kept), 3)
            if attributes & _LOG_APPEND_TIME:
                newest = max_timestamp
            self.write(data, at, body, attributes, base_timestamp, newest, kept)
        elif producer >= 0 and (
            self._last_offsets.get(producer, -1) == last
            or (attributes & _CONTROL and self._last_epochs.get(producer, -1) == load_i16(p, at + 51))
        ):
            self.write_bare(data, at)
            if count == 0 and size == _HEADER:
                return 0
        else:
            copy(buffer_pointer(self._tail), 0, p, at, _HEADER)
            self._has_tail = True
            self._is_tail_bare = count == 0 and size == _HEADER
            return 0
        self.changed = True
        return 0

    @cython.cfunc
    def write_bare(self, data: bytes, at: cython.Py_ssize_t) -> cython.int:
        """Write the header of a batch without its records, and without what only they need: codec and horizon.

        The largest timestamp stays, as in Kafka.
        """
        p: cython.p_uchar = pointer(data)
        attributes: cython.int = load_i16(p, at + 21) & ~(_CODEC_MASK | _DELETE_HORIZON)
        return self.write(data, at, data, attributes, -1, load_i64(p, at + 35), 0)

    @cython.cfunc
    def choose(
        self,
        header: cython.p_uchar,
        header_at: cython.Py_ssize_t,
        body: bytes,
        at: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        position: cython.longlong,
    ) -> tuple[cython.longlong, cython.longlong, cython.longlong]:
        """Note which records of a batch stay; return (how many, how many tombstones among them, the newest time)."""
        p: cython.p_uchar = pointer(body)
        base_offset: cython.longlong = load_i64(header, header_at)
        attributes: cython.int = load_i16(header, header_at + 21)
        last_delta: cython.longlong = load_i32(header, header_at + 23)
        base_timestamp: cython.longlong = load_i64(header, header_at + 27)
        max_timestamp: cython.longlong = load_i64(header, header_at + 35)
        count: cython.longlong = load_i32(header, header_at + 57)
        # Without a horizon in the batch none has passed: it is set when the batch is copied.
        drops_tombstones: cython.bint = (attributes & _DELETE_HORIZON) != 0 and base_timestamp <= self._now_ms
        latest: cython.longlong = self._map.latest_offset
        kept: cython.longlong = 0
        index: cython.longlong
        offset_delta: cython.longlong
        previous_delta: cython.longlong = -1
        key_size: cython.longlong
        key_at: cython.Py_ssize_t
        field: cython.longlong
        timestamp: cython.longlong
        start: cython.Py_ssize_t
        rest: cython.Py_ssize_t
        record_end: cython.Py_ssize_t
        first: cython.ulonglong
        second: cython.ulonglong
        asks: cython.bint
        waiting: cython.p_uchar = buffer_pointer(self._waiting)
        waiting_count: cython.Py_ssize_t = 0
        self._tombstones = 0
        self._newest = NO_TIMESTAMP
        # No header proves the count of what is compressed: it is believed only as far as the records can be there.
        if count > (end - at) // _RECORD_MIN:
            raise CorruptBatch(f"{count} records cannot fit in {end - at} bytes", position=position)
        if count > self._room:
            self._room = 2 * count
            self._kept = new_buffer(32 * self._room)
        for index in range(count):
            start = at
            field, at = load_varint(p, at, end)
            if at < 0 or field < 1 or field > end - at:
                raise record_error("its length overruns the batch", index, position)
            record_end = at + cython.cast(cython.Py_ssize_t, field)
            timestamp, rest = load_varint(p, at + 1, record_end)
            if rest < 0:
                raise record_error("its timestamp is no varint", index, position)
            timestamp = max_timestamp if attributes & _LOG_APPEND_TIME else wrapped(base_timestamp + timestamp)
            offset_delta, at = load_varint(p, rest, record_end)
            if at < 0 or offset_delta <= previous_delta or offset_delta > last_delta:
                raise record_error("its offset does not lie in the batch", index, position)
            previous_delta = offset_delta
            key_size, key_at = load_varint(p, at, record_end)
            if key_at < 0 or key_size < -1 or key_size > record_end - key_at:
                raise record_error("its key overruns the record", index, position)
            at = key_at + (cython.cast(cython.Py_ssize_t, key_size) if key_size > 0 else 0)
            field, at = load_varint(p, at, record_end)
            if at < 0 or field < -1 or field > record_end - at:
                raise record_error("its value overruns the record", index, position)
            at = record_end
            asks = base_offset + offset_delta <= latest and not attributes & _CONTROL
            if asks and key_size < 0:
                self.keyless += 1
                continue
            if asks and field < 0 and drops_tombstones:
                continue
            if waiting_count == _GROUP:
                kept = self.keep_waiting(waiting, waiting_count, kept)
                waiting_count = 0
            put_i64(waiting, 8 * waiting_count, start)
            put_i64(waiting, 8 * waiting_count + 1, rest)
            put_i64(waiting, 8 * waiting_count + 2, record_end)
            put_i64(waiting, 8 * waiting_count + 3, timestamp)
            put_i64(waiting, 8 * waiting_count + 4, base_offset + offset_delta if asks else -1)
            put_i64(waiting, 8 * waiting_count + 5, 1 if field < 0 and not attributes & _CONTROL else 0)
            if asks:
                first, second = self._map.hash(p, key_at, key_size)
                put_u64_at(waiting, 64 * waiting_count + 48, first)
                put_u64_at(waiting, 64 * waiting_count + 56, second)
            waiting_count += 1
        if at != end:
            raise CorruptBatch(f"{end - at} bytes are left over behind the last record", position=position)
        kept = self.keep_waiting(waiting, waiting_count, kept)
        return kept, self._tombstones, self._newest

    @cython.cfunc
    @cython.exceptval(check=False)
    def keep_waiting(self, waiting: cython.p_uchar, count: cython.Py_ssize_t, kept: cython.longlong) -> cython.longlong:
        """Note which of the records that were hashed stay, behind those `kept` before; return how many these are now.

        One without an offset stays, whatever the map has.
        """
        index: cython.Py_ssize_t
        offset: cython.longlong
        timestamp: cython.longlong
        places: cython.p_uchar = buffer_pointer(self._kept)
        for index in range(count):
            offset = get_i64(waiting, 8 * index + 4)
            if offset >= 0 and offset < self._map.last_of(
                get_u64_at(waiting, 64 * index + 48), get_u64_at(waiting, 64 * index + 56)
            ):
                continue
            timestamp = get_i64(waiting, 8 * index + 3)
            copy(places, 32 * cython.cast(cython.Py_ssize_t, kept), waiting, 64 * index, 32)
            kept += 1
            self._tombstones += get_i64(waiting, 8 * index + 5)
            if timestamp > self._newest:
                self._newest = timestamp
        return kept

    @cython.cfunc
    def write(
        self,
        data: bytes,
        at: cython.Py_ssize_t,
        body: bytes,
        attributes: cython.int,
        base_timestamp: cython.longlong,
        max_timestamp: cython.longlong,
        kept: cython.longlong,
    ) -> cython.int:
        """Write a batch anew with the records that were chosen."""
        source: cython.p_uchar = pointer(data)
        p: cython.p_uchar = pointer(body)
        places: cython.p_uchar = buffer_pointer(self._kept)
        is_same_base: cython.bint = base_timestamp == load_i64(source, at + 27)
        codec: cython.int = attributes & _CODEC_MASK
        begin: cython.Py_ssize_t = self._used
        q: cython.p_uchar
        index: cython.longlong
        start: cython.Py_ssize_t
        rest: cython.Py_ssize_t
        end: cython.Py_ssize_t
        delta: cython.longlong
        body_size: cython.Py_ssize_t
        q = self.reserve(_HEADER)
        copy(q, begin, source, at, _HEADER)
        self._used = begin + _HEADER
        for index in range(kept):
            start = get_i64(places, 4 * index)
            rest = get_i64(places, 4 * index + 1)
            end = get_i64(places, 4 * index + 2)
            # A new length and a new timestamp delta take at most 5 and 10 bytes.
            q = self.reserve(end - start + 16)
            if is_same_base:
                copy(q, self._used, p, start, end - start)
                self._used += end - start
                continue
            delta = wrapped(get_i64(places, 4 * index + 3) - base_timestamp)
            body_size = 1 + varint_size(delta) + end - rest
            self._used = store_varint(q, self._used, body_size)
            q[self._used] = 0
            self._used = store_varint(q, self._used + 1, delta)
            copy(q, self._used, p, rest, end - rest)
            self._used += end - rest
        if codec and kept:
            with memoryview(self._out) as view:
                packed: bytes = compress(codec, view[begin + _HEADER : self._used])
            self._used = begin + _HEADER
            q = self.reserve(len(packed))
            copy(q, self._used, pointer(packed), 0, len(packed))
            self._used += len(packed)
        q = buffer_pointer(self._out)
        store_i32(q, begin + 8, self._used - begin - 12)
        q[begin + 21] = (attributes >> 8) & 0xFF
        q[begin + 22] = attributes & 0xFF
        store_i64(q, begin + 27, base_timestamp)
        store_i64(q, begin + 35, max_timestamp)
        store_i32(q, begin + 57, kept)
        store_i32(q, begin + 17, crc_of(self._out, q, begin + 21, self._used - begin - 21, 0))
        return 0


# ---------------------------------------------------------------- the running state of a segment


@cython.final
@cython.cclass
class SegmentState:
    """What is known of a segment's bytes, kept as batches pass: appended, or scanned from the file.

    Both ways in share this one place, so an index that is rebuilt from the log is the index that was
    written beside it. The index tables hold Kafka's entries; `storage/index.py` reads them.
    """

    base_offset = cython.declare(cython.longlong, visibility="readonly")
    next_offset = cython.declare(cython.longlong, visibility="readonly")
    size = cython.declare(cython.longlong, visibility="readonly")
    crc = cython.declare(cython.longlong, visibility="readonly")
    batch_count = cython.declare(cython.longlong, visibility="readonly")
    record_count = cython.declare(cython.longlong, visibility="readonly")
    contiguous = cython.declare(cython.bint, visibility="readonly")
    first_timestamp = cython.declare(cython.longlong, visibility="readonly")
    max_timestamp = cython.declare(cython.longlong, visibility="readonly")
    offset_table = cython.declare(bytearray, visibility="readonly")
    time_table = cython.declare(bytearray, visibility="readonly")
    epochs = cython.declare(list, visibility="readonly")
    problem = cython.declare(object, visibility="readonly")
    _interval_bytes: cython.longlong
    _interval_records: cython.longlong
    _segment_bytes: cython.longlong
    _segment_ms: cython.longlong
    _segment_index_bytes: cython.longlong
    _bytes_since: cython.longlong
    _records_since: cython.longlong
    _offset_of_max: cython.longlong
    _last_time: cython.longlong
    _last_epoch: cython.longlong

    def __init__(
        self,
        base_offset: cython.longlong,
        *,
        interval_bytes: cython.longlong,
        interval_records: cython.longlong,
        segment_bytes: cython.longlong,
        segment_ms: cython.longlong,
        segment_index_bytes: cython.longlong,
    ):
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.crc = 0
        self.batch_count = 0
        self.record_count = 0
        self.contiguous = True
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        self.offset_table = bytearray()
        self.time_table = bytearray()
        self.epochs = []
        self.problem = None
        self._interval_bytes = interval_bytes
        self._interval_records = interval_records
        self._segment_bytes = segment_bytes
        self._segment_ms = segment_ms
        self._segment_index_bytes = segment_index_bytes
        self._bytes_since = 0
        self._records_since = 0
        self._offset_of_max = base_offset
        self._last_time = NO_TIMESTAMP
        self._last_epoch = -1

    def must_roll_before(self, data: bytes) -> cython.bint:
        """Tell by Kafka's rules whether whole, stamped batches need a new segment."""
        p: cython.p_uchar = pointer(data)
        at: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t = len(data)
        max_timestamp: cython.longlong = NO_TIMESTAMP
        last: cython.longlong = self.next_offset - 1
        if self.batch_count == 0:
            return False
        while at < end:
            max_timestamp = max(max_timestamp, load_i64(p, at + 35))
            last = load_i64(p, at) + load_i32(p, at + 23)
            at += load_i32(p, at + 8) + 12
        return (
            self.size > self._segment_bytes - end
            or last - self.base_offset > _INT32_MAX
            or (self.first_timestamp >= 0 and max_timestamp - self.first_timestamp > self._segment_ms)
            or len(self.offset_table) > self._segment_index_bytes - 8
            # The time index keeps one slot free, for the entry that a roll adds.
            or len(self.time_table) > self._segment_index_bytes - 24
        )

    def append(self, data: bytes) -> cython.bint:
        """Take note of whole, well-formed batches that were just written; tell whether the indexes grew."""
        p: cython.p_uchar = pointer(data)
        at: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t = len(data)
        indexed: cython.Py_ssize_t = len(self.offset_table)
        self.crc = crc_of(data, p, 0, end, self.crc)
        while at < end:
            at += self.note(p, at)
        return len(self.offset_table) != indexed

    def scan(self, data: bytes, contiguous_from: cython.longlong) -> cython.Py_ssize_t:
        """Check batches read from the file, in order, and take note of them; return the bytes taken.

        Stops at a batch that is not all there, or at one that fails its checks: then `problem` is the
        error. From `contiguous_from` on, offsets may have no gaps.
        """
        p: cython.p_uchar = pointer(data)
        at: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t = len(data)
        size: cython.Py_ssize_t
        last: cython.longlong
        try:
            while at < end:
                size = batch_size(p, at, end)
                if size == 0:
                    break
                if size < 0:
                    raise header_error(p, at, self.size)
                last = check_offsets(p, at, self.next_offset, self.next_offset >= contiguous_from, self.size)
                if last - self.base_offset > _INT32_MAX:
                    raise CorruptBatch(
                        f"offset {last} is too far from the segment's base {self.base_offset}",
                        position=self.size,
                    )
                check_crc(data, p, at, size, self.size)
                check_counts(p, at, size, self.size)
                self.note(p, at)
                at += size
        except CorruptionError as error:
            self.problem = error
        self.crc = crc_of(data, p, 0, at, self.crc)
        return at

    @cython.cfunc
    @cython.inline
    def note(self, p: cython.p_uchar, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
        base: cython.longlong = load_i64(p, at)
        size: cython.Py_ssize_t = load_i32(p, at + 8) + 12
        epoch: cython.longlong = load_i32(p, at + 12)
        last: cython.longlong = base + load_i32(p, at + 23)
        max_timestamp: cython.longlong = load_i64(p, at + 35)
        count: cython.longlong = load_i32(p, at + 57)
        if base != self.next_offset:
            self.contiguous = False
        if epoch > self._last_epoch:
            self._last_epoch = epoch
            self.epochs.append((epoch, base))
        if self.batch_count == 0:
            # Kafka takes the first batch's largest timestamp as the time a segment began.
            self.first_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self._offset_of_max = last
        if self._bytes_since > self._interval_bytes or (
            self._interval_records > 0 and self._records_since >= self._interval_records
        ):
            self.add_offset_entry(last)
            self.add_time_entry()
            self._bytes_since = 0
            self._records_since = 0
        self._bytes_since += size
        self._records_since += count
        self.batch_count += 1
        self.record_count += count
        self.next_offset = last + 1
        self.size += size
        return size

    @cython.cfunc
    def add_offset_entry(self, last_offset: cython.longlong):
        entry: bytearray = bytearray(8)
        store_i32(buffer_pointer(entry), 0, last_offset - self.base_offset)
        store_i32(buffer_pointer(entry), 4, self.size)
        self.offset_table += entry

    @cython.cfunc
    def add_time_entry(self):
        entry: bytearray
        if self.max_timestamp > self._last_time:
            entry = bytearray(12)
            store_i64(buffer_pointer(entry), 0, self.max_timestamp)
            store_i32(buffer_pointer(entry), 8, self._offset_of_max - self.base_offset)
            self.time_table += entry
            self._last_time = self.max_timestamp

    def save(self):
        """Return the numbers that, with the two tables, make this state again."""
        return (
            self.base_offset,
            self.next_offset,
            self.size,
            self.crc,
            self.batch_count,
            self.record_count,
            int(self.contiguous),
            self.first_timestamp,
            self.max_timestamp,
            self._bytes_since,
            self._records_since,
            self._offset_of_max,
            self._last_time,
            self._last_epoch,
            crc32c(bytes(self.offset_table)),
            crc32c(bytes(self.time_table)),
        )

    def restore(self, saved: tuple, offset_table: bytes, time_table: bytes) -> cython.bint:
        """Become the state that was saved; tell whether the tables are the ones that it had."""
        if saved[0] != self.base_offset or saved[14:] != (crc32c(offset_table), crc32c(time_table)):
            return False
        self.next_offset = saved[1]
        self.size = saved[2]
        self.crc = saved[3]
        self.batch_count = saved[4]
        self.record_count = saved[5]
        self.contiguous = saved[6] != 0
        self.first_timestamp = saved[7]
        self.max_timestamp = saved[8]
        self._bytes_since = saved[9]
        self._records_since = saved[10]
        self._offset_of_max = saved[11]
        self._last_time = saved[12]
        self._last_epoch = saved[13]
        self.offset_table = bytearray(offset_table)
        self.time_table = bytearray(time_table)
        return True

    def finish_times(self):
        """Add the largest timestamp to the time index, as Kafka does on roll and close."""
        self.add_time_entry()


# ---------------------------------------------------------------- index lookup


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def floor_of(
    p: cython.p_uchar,
    count: cython.Py_ssize_t,
    entry_size: cython.Py_ssize_t,
    wide: cython.bint,
    target: cython.longlong,
) -> cython.Py_ssize_t:
    low: cython.Py_ssize_t = 0
    high: cython.Py_ssize_t = count
    middle: cython.Py_ssize_t
    field: cython.longlong
    while low < high:
        middle = (low + high) >> 1
        field = load_i64(p, middle * entry_size) if wide else load_i32(p, middle * entry_size)
        if field <= target:
            low = middle + 1
        else:
            high = middle
    return low - 1


def floor_entry(table, entry_size: cython.Py_ssize_t, wide: cython.bint, target: cython.longlong) -> cython.Py_ssize_t:
    """Return the number of the last entry whose first field is at most `target`, or -1.

    The field is an int64 if `wide`, else an int32. A table that is not sorted gives some entry, never an
    error: the caller proves what it gets.
    """
    if cython.compiled:
        view: Py_buffer
        PyObject_GetBuffer(table, cython.address(view), PyBUF_SIMPLE)
        found = floor_of(cython.cast(cython.p_uchar, view.buf), view.len // entry_size, entry_size, wide, target)
        PyBuffer_Release(cython.address(view))
        return found
    else:
        return floor_of(table, len(table) // entry_size, entry_size, wide, target)


@cython.cfunc
def around(p: cython.p_uchar, count: cython.Py_ssize_t, target: cython.longlong):
    number: cython.Py_ssize_t = floor_of(p, count, 8, False, target)
    ahead: cython.bint = number + 1 < count
    return (
        load_i32(p, 8 * number) if number >= 0 else -1,
        load_i32(p, 8 * number + 4) if number >= 0 else 0,
        load_i32(p, 8 * number + 8) if ahead else -1,
        load_i32(p, 8 * number + 12) if ahead else -1,
    )


def entries_around(table, target: cython.longlong):
    """Return the floor entry of an offset index and the one behind it, as four numbers.

    (last offset, position, next last offset, next position), offsets relative to the base; without a floor
    entry (-1, 0, ...), without one behind it (..., -1, -1).
    """
    if cython.compiled:
        view: Py_buffer
        PyObject_GetBuffer(table, cython.address(view), PyBUF_SIMPLE)
        found = around(cython.cast(cython.p_uchar, view.buf), view.len // 8, target)
        PyBuffer_Release(cython.address(view))
        return found
    else:
        return around(table, len(table) // 8, target)


# ---------------------------------------------------------------- where keys are


# Slots of a `KeyTable`, little-endian: the first half of the hash, 32 bits of the second, the offset less the base + 1.
# An offset field of 0 is an empty slot.
_SLOT = cython.declare(cython.Py_ssize_t, 16)
_SLOTS_FIRST = cython.declare(cython.Py_ssize_t, 64)
# A split block Bloom filter as Parquet defines it: a key sets one bit in each of the eight 32-bit words of one block.
# By 20 bits a key it takes 0.05 % of other keys for its own.
FILTER_BLOCK_SIZE = 32
_BLOCK = cython.declare(cython.Py_ssize_t, 32)
_BLOCK_BITS = cython.declare(cython.longlong, 256)
_BITS_PER_KEY = cython.declare(cython.longlong, 20)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def low_half(value: cython.ulonglong) -> cython.ulonglong:
    # A name of its own keeps the number a C one: written into an expression it would be an object.
    cut: cython.ulonglong = 0xFFFFFFFF
    return value & cut


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def load_u64(p: cython.p_uchar, at: cython.Py_ssize_t) -> cython.ulonglong:
    if cython.compiled:
        return cython.cast(cython.ulonglong, big_endian_i64(p + at))
    else:
        return int.from_bytes(p[at : at + 8], "big")


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def store_u64(p: cython.p_uchar, at: cython.Py_ssize_t, value: cython.ulonglong) -> cython.void:
    store_i32(p, at, cython.cast(cython.longlong, value >> 32))
    store_i32(p, at + 4, cython.cast(cython.longlong, low_half(value)))


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def store_little_u32(p: cython.p_uchar, at: cython.Py_ssize_t, value: cython.ulonglong) -> cython.void:
    p[at] = value & 0xFF
    p[at + 1] = (value >> 8) & 0xFF
    p[at + 2] = (value >> 16) & 0xFF
    p[at + 3] = (value >> 24) & 0xFF


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def salt(word: cython.int) -> cython.ulonglong:
    """The factor that spreads a hash over one of the eight words of a block. They are Parquet's."""
    if word < 4:
        if word < 2:
            return 0x47B6137B if word == 0 else 0x44974D91
        return 0x8824AD5B if word == 2 else 0xA2B7289D
    if word < 6:
        return 0x705495C7 if word == 4 else 0x2DF1424B
    return 0x9EFC4947 if word == 6 else 0x5C6BFB31


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def filter_add(
    p: cython.p_uchar, at: cython.Py_ssize_t, blocks: cython.ulonglong, hashed: cython.ulonglong
) -> cython.void:
    block: cython.Py_ssize_t = at + _BLOCK * cython.cast(cython.Py_ssize_t, ((hashed >> 32) * blocks) >> 32)
    low: cython.ulonglong = low_half(hashed)
    word: cython.int
    bit: cython.int
    for word in range(8):
        bit = cython.cast(cython.int, low_half(low * salt(word)) >> 27)
        p[block + 4 * word + (bit >> 3)] |= 1 << (bit & 7)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def filter_may_hold(
    p: cython.p_uchar, at: cython.Py_ssize_t, blocks: cython.ulonglong, hashed: cython.ulonglong
) -> cython.bint:
    block: cython.Py_ssize_t = at + _BLOCK * cython.cast(cython.Py_ssize_t, ((hashed >> 32) * blocks) >> 32)
    low: cython.ulonglong = low_half(hashed)
    word: cython.int
    bit: cython.int
    for word in range(8):
        bit = cython.cast(cython.int, low_half(low * salt(word)) >> 27)
        if not (p[block + 4 * word + (bit >> 3)] >> (bit & 7)) & 1:
            return False
    return True


def filter_block_count(count: cython.longlong):
    """Return how many blocks the filter of so many keys has; at least one."""
    return max(1, (count * _BITS_PER_KEY + _BLOCK_BITS - 1) // _BLOCK_BITS)


@cython.final
@cython.cclass
class KeyTable:
    """The last offset of every key in the batches of one segment, as they pass in order.

    Keys stand there by 96 bits of their hash. An entry is a hint where to read: whoever follows it compares the
    key, and a key that two others hide from each other is still in the log.

    The slot of a key is told by the top bits of its hash, so the slots are nearly in the order of the hashes.
    """

    base_offset = cython.declare(cython.longlong, visibility="readonly")
    count = cython.declare(cython.longlong, visibility="readonly")
    next_offset = cython.declare(cython.longlong, visibility="readonly")
    _buffer: bytearray
    _slots: cython.Py_ssize_t
    _shift: cython.int
    _secret_low: cython.ulonglong
    _secret_high: cython.ulonglong

    def __init__(self, base_offset: cython.longlong):
        secret: bytes = FIXED_SECRET
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.count = 0
        self._slots = _SLOTS_FIRST
        self._shift = 64 - 6
        self._buffer = bytearray(_SLOT * _SLOTS_FIRST)
        self._secret_low = load_little_u64(pointer(secret), 0)
        self._secret_high = load_little_u64(pointer(secret), 8)

    @property
    def size_bytes(self):
        """How much memory the table takes."""
        return len(self._buffer)

    def add(
        self,
        data: bytes,
        origin: cython.longlong,
        contiguous: cython.bint,
        stop: cython.longlong,
        limit: cython.Py_ssize_t,
    ):
        """Note the keys of the whole batches in `data` that end below `stop`; return how many bytes those are.

        The batches follow those that were added before. Their CRCs are checked; records without a key, and
        control batches, are passed over.
        """
        p: cython.p_uchar = pointer(data)
        at: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t = len(data)
        size: cython.Py_ssize_t
        last: cython.longlong
        while at < end:
            size = batch_size(p, at, end)
            if size == 0:
                break
            if size < 0:
                raise header_error(p, at, origin + at)
            last = check_offsets(p, at, self.next_offset, contiguous, origin + at)
            if last >= stop:
                break
            if last - self.base_offset > _INT32_MAX:
                raise CorruptBatch(
                    f"offset {last} is too far from the segment's base {self.base_offset}", position=origin + at
                )
            check_crc(data, p, at, size, origin + at)
            check_counts(p, at, size, origin + at)
            self.add_batch(data, at, size, origin + at, limit)
            self.next_offset = last + 1
            at += size
        return at

    @cython.cfunc
    def add_batch(
        self,
        data: bytes,
        at: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        position: cython.longlong,
        limit: cython.Py_ssize_t,
    ) -> cython.int:
        p: cython.p_uchar = pointer(data)
        relative: cython.longlong = load_i64(p, at) - self.base_offset
        attributes: cython.int = load_i16(p, at + 21)
        last_delta: cython.longlong = load_i32(p, at + 23)
        count: cython.longlong = load_i32(p, at + 57)
        body: bytes
        end: cython.Py_ssize_t
        record_end: cython.Py_ssize_t
        field: cython.longlong
        delta: cython.longlong
        previous_delta: cython.longlong = -1
        index: cython.longlong
        if attributes & _CONTROL:
            return 0
        if attributes & _CODEC_MASK:
            try:
                body = body_of(data, at, size, attributes & _CODEC_MASK, limit)
            except CorruptionError as error:
                raise type(error)(error.reason, position=position, advice=error.advice) from error
            p = pointer(body)
            at = 0
            end = len(body)
        else:
            end = at + size
            at += _HEADER
        for index in range(count):
            field, at = load_varint(p, at, end)
            if at < 0 or field < 0 or field > end - at:
                raise record_error("its length overruns the batch", index, position)
            record_end = at + cython.cast(cython.Py_ssize_t, field)
            if record_end - at < 1:
                raise record_error("it is empty", index, position)
            field, at = load_varint(p, at + 1, record_end)
            if at < 0:
                raise record_error("its timestamp is no varint", index, position)
            delta, at = load_varint(p, at, record_end)
            if at < 0 or delta <= previous_delta or delta > last_delta:
                raise record_error("its offset does not lie in the batch", index, position)
            previous_delta = delta
            field, at = load_varint(p, at, record_end)
            if at < 0 or field < -1 or field > record_end - at:
                raise record_error("its key overruns the record", index, position)
            if field >= 0:
                self.put(p, at, cython.cast(cython.Py_ssize_t, field), relative + delta)
            at = record_end
        if at != end:
            raise CorruptBatch(f"{end - at} bytes are left over behind the last record", position=position)
        return 0

    @cython.cfunc
    @cython.inline
    def put(
        self, key: cython.p_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t, relative: cython.longlong
    ) -> cython.int:
        first: cython.ulonglong
        second: cython.ulonglong
        slot: cython.Py_ssize_t
        p: cython.p_uchar
        if 4 * self.count >= 3 * self._slots:
            self.grow()
        first, second = siphash(key, at, size, self._secret_low, self._secret_high)
        second = low_half(second)
        slot = self.slot_of(first, second)
        p = buffer_pointer(self._buffer)
        if load_little_u32(p, slot + 12) == 0:
            self.count += 1
            store_little_u32(p, slot, low_half(first))
            store_little_u32(p, slot + 4, first >> 32)
            store_little_u32(p, slot + 8, second)
        store_little_u32(p, slot + 12, cython.cast(cython.ulonglong, relative + 1))
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def slot_of(self, first: cython.ulonglong, second: cython.ulonglong) -> cython.Py_ssize_t:
        """Return where in the buffer a hash stands, or the empty slot where it would."""
        p: cython.p_uchar = buffer_pointer(self._buffer)
        slot: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, first >> self._shift)
        at: cython.Py_ssize_t
        while True:
            at = slot * _SLOT
            if load_little_u32(p, at + 12) == 0 or (
                load_little_u64(p, at) == first and load_little_u32(p, at + 8) == second
            ):
                return at
            slot = (slot + 1) & (self._slots - 1)

    @cython.cfunc
    def grow(self) -> cython.int:
        old: bytearray = self._buffer
        source: cython.p_uchar = buffer_pointer(old)
        at: cython.Py_ssize_t
        slot: cython.Py_ssize_t
        self._slots *= 2
        self._shift -= 1
        self._buffer = bytearray(_SLOT * self._slots)
        for at in range(0, len(old), 16):
            if load_little_u32(source, at + 12) != 0:
                slot = self.slot_of(load_little_u64(source, at), load_little_u32(source, at + 8))
                copy(buffer_pointer(self._buffer), slot, source, at, _SLOT)
        return 0

    def offset_of(self, first: cython.ulonglong, second: cython.ulonglong):
        """Return the last offset of a key by its hash, or -1."""
        slot: cython.Py_ssize_t = self.slot_of(first, low_half(second))
        relative: cython.longlong = load_little_u32(buffer_pointer(self._buffer), slot + 12)
        return self.base_offset + relative - 1 if relative else -1

    def encode(self, head: bytes):
        """Return `head` and, behind it, the filter, the hashes in order, and each one's last offset less the base.

        Of keys with one hash the newer comes first.
        """
        blocks: cython.longlong = filter_block_count(self.count)
        filter_at: cython.Py_ssize_t = len(head)
        hashes_at: cython.Py_ssize_t = filter_at + _BLOCK * blocks
        offsets_at: cython.Py_ssize_t = hashes_at + 8 * self.count
        out: bytearray = bytearray(offsets_at + 4 * self.count)
        p: cython.p_uchar = buffer_pointer(out)
        source: cython.p_uchar = buffer_pointer(self._buffer)
        slot: cython.Py_ssize_t
        done: cython.Py_ssize_t = 0
        wrapped_end: cython.Py_ssize_t = 0
        out[:filter_at] = head
        # What found no slot before the end of the table stands in the run at its start; it has the largest hashes.
        while wrapped_end < self._slots and load_little_u32(source, wrapped_end * _SLOT + 12) != 0:
            wrapped_end += 1
        for slot in range(self._slots):
            if slot >= wrapped_end or self.is_home(source, slot):
                done += self.place(source, slot, p, filter_at, blocks, hashes_at, offsets_at, done)
        for slot in range(wrapped_end):
            if not self.is_home(source, slot):
                done += self.place(source, slot, p, filter_at, blocks, hashes_at, offsets_at, done)
        return out

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def is_home(self, source: cython.p_uchar, slot: cython.Py_ssize_t) -> cython.bint:
        """Tell whether the key in a slot has its own place there or before it."""
        return cython.cast(cython.Py_ssize_t, load_little_u64(source, slot * _SLOT) >> self._shift) <= slot

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def place(
        self,
        source: cython.p_uchar,
        slot: cython.Py_ssize_t,
        p: cython.p_uchar,
        filter_at: cython.Py_ssize_t,
        blocks: cython.longlong,
        hashes_at: cython.Py_ssize_t,
        offsets_at: cython.Py_ssize_t,
        done: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Insert a slot's entry among the `done` ones, which are in order; return 1, or 0 for an empty slot."""
        relative: cython.longlong = load_little_u32(source, slot * _SLOT + 12)
        first: cython.ulonglong = load_little_u64(source, slot * _SLOT)
        other: cython.ulonglong
        if relative == 0:
            return 0
        relative -= 1
        filter_add(p, filter_at, cython.cast(cython.ulonglong, blocks), first)
        while done > 0:
            other = load_u64(p, hashes_at + 8 * (done - 1))
            if other < first or (other == first and load_u32(p, offsets_at + 4 * (done - 1)) > relative):
                break
            store_u64(p, hashes_at + 8 * done, other)
            store_i32(p, offsets_at + 4 * done, load_u32(p, offsets_at + 4 * (done - 1)))
            done -= 1
        store_u64(p, hashes_at + 8 * done, first)
        store_i32(p, offsets_at + 4 * done, relative)
        return 1


@cython.final
@cython.cclass
class KeyEntries:
    """What `KeyTable.encode` wrote, looked up where it lies: `buffer` is mapped, or bytes."""

    count = cython.declare(cython.Py_ssize_t, visibility="readonly")
    _view: object
    _p: cython.p_uchar
    _filter_at: cython.Py_ssize_t
    _blocks: cython.longlong
    _hashes_at: cython.Py_ssize_t
    _offsets_at: cython.Py_ssize_t

    def __init__(self, buffer, *, head_size: cython.Py_ssize_t, blocks: cython.longlong, count: cython.Py_ssize_t):
        view = view_of(buffer)
        room: cython.longlong = len(view) - head_size
        if not (0 <= head_size and 1 <= blocks and 0 <= count and blocks <= room // 32 and count <= room // 12) or (
            32 * blocks + 12 * count > room
        ):
            raise UsageError(f"{room:,} bytes hold no {blocks:,} blocks of a filter and {count:,} keys")
        self._view = view
        self._p = view_pointer(view)
        self.count = count
        self._filter_at = head_size
        self._blocks = blocks
        self._hashes_at = head_size + _BLOCK * blocks
        self._offsets_at = self._hashes_at + 8 * count

    @property
    def size_bytes(self):
        """How many bytes the buffer has."""
        return len(self._view)

    def may_hold(self, first: cython.ulonglong) -> cython.bint:
        """Tell whether the filter takes a hash for one of its own."""
        return filter_may_hold(self._p, self._filter_at, cython.cast(cython.ulonglong, self._blocks), first)

    def offsets_of(self, first: cython.ulonglong):
        """Return the relative offsets that a hash stands for, the newest first: none, one, or of keys that collide."""
        place: cython.Py_ssize_t
        if not filter_may_hold(self._p, self._filter_at, cython.cast(cython.ulonglong, self._blocks), first):
            return ()
        place = self.floor(first)
        if place >= self.count or load_u64(self._p, self._hashes_at + 8 * place) != first:
            return ()
        if place + 1 >= self.count or load_u64(self._p, self._hashes_at + 8 * (place + 1)) != first:
            return (load_u32(self._p, self._offsets_at + 4 * place),)
        found: list = []
        while place < self.count and load_u64(self._p, self._hashes_at + 8 * place) == first:
            found.append(load_u32(self._p, self._offsets_at + 4 * place))
            place += 1
        return tuple(found)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def floor(self, first: cython.ulonglong) -> cython.Py_ssize_t:
        """Return the number of the first hash not below this one.

        Hashes are spread evenly, so the place is guessed, and the search widens from there until it has gone past
        the hash: it stays in a few neighbouring cache lines, where halving would jump through the whole table.
        """
        p: cython.p_uchar = self._p
        at: cython.Py_ssize_t = self._hashes_at
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = self.count
        guess: cython.Py_ssize_t = cython.cast(
            cython.Py_ssize_t, ((first >> 32) * cython.cast(cython.ulonglong, self.count)) >> 32
        )
        step: cython.Py_ssize_t = 8
        middle: cython.Py_ssize_t
        if low >= high:
            return 0
        if load_u64(p, at + 8 * guess) < first:
            low = guess + 1
            while high - low > step and load_u64(p, at + 8 * (low + step)) < first:
                low += step + 1
                step *= 2
            if high - low > step:
                high = low + step
        else:
            high = guess
            while high > step and load_u64(p, at + 8 * (high - step)) >= first:
                high -= step
                step *= 2
            if high > step:
                low = high - step
        while low < high:
            middle = (low + high) >> 1
            if load_u64(p, at + 8 * middle) < first:
                low = middle + 1
            else:
                high = middle
        return low
