"""One record, as Python code appends and reads it."""

import cython
from cython import longlong

from seeklog.errors import InvalidRecord

# No timestamp. Every valid timestamp is -1 or above.
UNSET = cython.declare(longlong, -(2**63) + 1)


@cython.freelist(256)
@cython.final
@cython.cclass
class Record:
    """One record. `offset` is -1 and `timestamp_ms` may be None until the record is appended.

    A value of None is a tombstone. Headers are a tuple of (str, bytes or None) pairs in order; a dict is taken as its
    items. A bytearray or memoryview is copied. `topic` and `partition` are None unless the record was read from a
    store.
    """

    def __init__(self, value, *, key=None, headers=(), timestamp_ms=None, offset=-1):
        self.offset = offset
        self.source = None
        self.key = key if key is None or isinstance(key, bytes) else as_bytes(key)
        self.value = value if value is None or isinstance(value, bytes) else as_bytes(value)
        self.headers = header_tuple(headers)
        self.timestamp = UNSET if timestamp_ms is None else checked_timestamp(timestamp_ms)

    @property
    def timestamp_ms(self):
        """Milliseconds since 1970, or None if not set."""
        return None if self.timestamp == UNSET else self.timestamp

    @property
    def topic(self):
        """The topic that the record was read from, or None."""
        return None if self.source is None else self.source[0]

    @property
    def partition(self):
        """The partition that the record was read from, or None."""
        return None if self.source is None else self.source[1]

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        return record_fields(self) == record_fields(other)

    def __hash__(self):
        return hash(record_fields(self))

    def __repr__(self):
        headers = f", headers={self.headers!r}" if self.headers else ""
        source = "" if self.source is None else f"topic={self.source[0]!r}, partition={self.source[1]}, "
        return (
            f"Record({source}offset={self.offset}, timestamp_ms={self.timestamp_ms}, "
            f"key={self.key!r}, value={self.value!r}{headers})"
        )

    def __reduce__(self):
        return make_record, (self.value, self.key, self.headers, self.timestamp_ms, self.offset, self.source)


def make_record(value, key, headers, timestamp_ms, offset, source):
    """Return a record from positional fields, which is faster than keywords.

    `source` is (topic, partition) or None.
    """
    record: Record = Record.__new__(Record)
    record.offset = offset
    record.key = key if key is None or isinstance(key, bytes) else as_bytes(key)
    record.value = value if value is None or isinstance(value, bytes) else as_bytes(value)
    record.headers = header_tuple(headers)
    record.timestamp = UNSET if timestamp_ms is None else checked_timestamp(timestamp_ms)
    record.source = source
    return record


@cython.cfunc
def record_fields(record: Record):
    return record.source, record.offset, record.timestamp, record.key, record.value, record.headers


@cython.cfunc
@cython.exceptval(-2)
def checked_timestamp(timestamp_ms: object) -> longlong:
    if not isinstance(timestamp_ms, int) or isinstance(timestamp_ms, bool):
        raise InvalidRecord(
            f"timestamp_ms must be an int or None, not {type(timestamp_ms).__name__}; pass milliseconds since 1970, "
            "such as int(time.time() * 1000)"
        )
    if not -1 <= timestamp_ms <= 0x7FFFFFFFFFFFFFFF:
        raise InvalidRecord(f"timestamp_ms {timestamp_ms} is out of bounds: milliseconds since 1970, or -1 for none")
    return timestamp_ms


@cython.cfunc
def as_bytes(field: object):
    """Return the bytes of a bytearray or a memoryview, which may change later. The encoder checks all other types."""
    return bytes(field) if isinstance(field, (bytearray, memoryview)) else field


def invalid_headers(fact: str):
    """Return the error for headers, with what they look like."""
    return InvalidRecord(f"{fact}; pass pairs such as [('trace', b'1')], or a dict")


@cython.cfunc
def header_tuple(headers: object) -> tuple:
    if not isinstance(headers, (tuple, list)) and hasattr(headers, "items"):
        headers = headers.items()
    try:
        pairs = tuple(headers)
    except TypeError as error:
        raise invalid_headers(f"headers must be a sequence of pairs, not {headers!r}") from error
    for pair in pairs:
        if isinstance(pair, tuple) and len(pair) == 2 and not isinstance(pair[1], bytes) and pair[1] is not None:
            return tuple([copied_header(pair) for pair in pairs])
    return pairs


@cython.cfunc
def copied_header(header: object):
    return (header[0], as_bytes(header[1])) if isinstance(header, tuple) and len(header) == 2 else header
