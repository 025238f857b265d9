"""Batch headers: read, checked, and walked from batch to batch without looking at the records.

The invariant: no length, count or offset that was read from bytes is used before it was checked against
the bytes that are really there. Positions in errors are `origin` (where `data` starts in its file) + index.
"""

import cython
from cython.cimports.seeklog.record.crc import crc_of
from cython.cimports.seeklog.record.layout import (
    ATTRIBUTES,
    ATTRIBUTES_LOW,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BASE_TIMESTAMP,
    BATCH_LENGTH,
    BATCH_LENGTH_MIN,
    CODEC_MASK,
    CRC,
    HEADER_SIZE,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    MAGIC,
    MAGIC_END,
    MAX_TIMESTAMP,
    PREFIX_SIZE,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
    RECORD_SIZE_MIN,
)
from cython.cimports.seeklog.record.primitives import load_i16, load_i32, load_i64, load_u32, pointer

from seeklog.errors import CorruptBatch, FormatError, RecordTooLarge, UnsupportedMagic

# The offset after the last one must be a number too.
_OFFSET_MAX = cython.declare(cython.longlong, 2**63 - 2)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def batch_size(p: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the size of the batch at `at`; 0 if it is not all there, -1 if no v2 batch can start so."""
    length: cython.longlong
    if end - at < MAGIC_END:
        return 0
    length = load_i32(p, at + BATCH_LENGTH)
    if p[at + MAGIC] != 2 or length < BATCH_LENGTH_MIN:
        return -1
    if length > end - at - PREFIX_SIZE:
        return 0
    return cython.cast(cython.Py_ssize_t, length) + PREFIX_SIZE


@cython.cfunc
@cython.exceptval(-1, check=False)
def whole_batch_size(p: cython.p_uchar, at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Return the size of a batch that the caller has checked before; without that check it may raise."""
    size: cython.Py_ssize_t = batch_size(p, at, end)
    if size <= 0:
        raise CorruptBatch("no whole batch stands here", position=at)
    return size


@cython.cfunc
def header_error(p: cython.p_uchar, at: cython.Py_ssize_t, position: cython.longlong):
    """Say why no v2 batch starts at `at`. At least 17 bytes are there."""
    length: cython.longlong = load_i32(p, at + BATCH_LENGTH)
    magic: cython.int = p[at + MAGIC]
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
@cython.exceptval(-1, check=False)
def check_sum(
    data: bytes, p: cython.p_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t, position: cython.longlong
) -> cython.int:
    computed: cython.longlong = crc_of(data, p, at + ATTRIBUTES, size - ATTRIBUTES, 0)
    if load_u32(p, at + CRC) != computed:
        raise crc_error(load_u32(p, at + CRC), computed, position)
    return 0


@cython.cfunc
def crc_error(stored: cython.longlong, computed: cython.longlong, position: cython.longlong):
    return CorruptBatch(f"stored CRC {stored:#010x}, computed {computed:#010x}", position=position)


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def check_counts(
    p: cython.p_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t, position: cython.longlong
) -> cython.int:
    """Check what a valid CRC does not prove: that count and last delta can be true."""
    last_delta: cython.longlong = load_i32(p, at + LAST_OFFSET_DELTA)
    count: cython.longlong = load_i32(p, at + RECORD_COUNT)
    if count < 0 or last_delta < 0 or count > last_delta + 1:
        raise CorruptBatch(f"{count} records cannot have a last offset delta of {last_delta}", position=position)
    # Multiplied, not divided: this stands in the loop that recovers a log.
    if not p[at + ATTRIBUTES_LOW] & CODEC_MASK and count * RECORD_SIZE_MIN > size - HEADER_SIZE:
        raise CorruptBatch(f"{count} records cannot fit in {size - HEADER_SIZE} bytes", position=position)
    return 0


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def check_offsets(
    p: cython.p_uchar,
    at: cython.Py_ssize_t,
    next_offset: cython.longlong,
    contiguous: cython.bint,
    position: cython.longlong,
) -> cython.longlong:
    """Return a batch's last offset. It must not start below `next_offset`, or only there if `contiguous`."""
    base: cython.longlong = load_i64(p, at)
    last_delta: cython.longlong = load_i32(p, at + LAST_OFFSET_DELTA)
    if last_delta < 0 or base < 0 or base > _OFFSET_MAX - last_delta:
        raise CorruptBatch(f"base offset {base} with last offset delta {last_delta} cannot be", position=position)
    if base < next_offset or (contiguous and base != next_offset):
        raise CorruptBatch(f"base offset {base}, expected {next_offset}", position=position)
    return base + last_delta


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
def following(
    p: cython.p_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    next_offset: cython.longlong,
    contiguous: cython.bint,
    position: cython.longlong,
) -> cython.Py_ssize_t:
    size: cython.Py_ssize_t = batch_size(p, at, end)
    if size < 0:
        raise header_error(p, at, position)
    if size > 0:
        check_offsets(p, at, next_offset, contiguous, position)
    return size


# ---------------------------------------------------------------- for the other modules, by a call each


@cython.cfunc
@cython.exceptval(-1, check=False)
def next_batch(
    p: cython.p_uchar,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    next_offset: cython.longlong,
    contiguous: cython.bint,
    position: cython.longlong,
) -> cython.Py_ssize_t:
    """Return the size of the batch at `at`, its offsets checked; 0 if it is not all there.

    Raises if no batch can start so, or if it starts below `next_offset`, or not exactly there if `contiguous`.
    """
    return following(p, at, end, next_offset, contiguous, position)


@cython.cfunc
@cython.exceptval(-1, check=False)
def check_crc(
    data: bytes, p: cython.p_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t, position: cython.longlong
) -> cython.int:
    return check_sum(data, p, at, size, position)


@cython.cfunc
@cython.exceptval(-1, check=False)
def check_batch(
    data: bytes, p: cython.p_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t, position: cython.longlong
) -> cython.int:
    """Check the CRC of a batch, and that its counts can be true."""
    check_sum(data, p, at, size, position)
    return check_counts(p, at, size, position)


# ---------------------------------------------------------------- for Python


def read_header(data: bytes, at: cython.Py_ssize_t, origin: cython.longlong):
    """Return the header fields of the batch at `at` as a tuple, in the order of `BatchHeader`."""
    p: cython.p_uchar = pointer(data)
    end: cython.Py_ssize_t = len(data)
    if at < 0 or end - at < HEADER_SIZE:
        raise CorruptBatch(f"{max(end - at, 0)} bytes where a batch header takes {HEADER_SIZE}", position=origin + at)
    if batch_size(p, at, end) < 0:
        raise header_error(p, at, origin + at)
    return (
        load_i64(p, at),
        load_i32(p, at + BATCH_LENGTH) + PREFIX_SIZE,
        load_i32(p, at + LEADER_EPOCH),
        load_u32(p, at + CRC),
        load_i16(p, at + ATTRIBUTES),
        load_i32(p, at + LAST_OFFSET_DELTA),
        load_i64(p, at + BASE_TIMESTAMP),
        load_i64(p, at + MAX_TIMESTAMP),
        load_i64(p, at + PRODUCER_ID),
        load_i16(p, at + PRODUCER_EPOCH),
        load_i32(p, at + BASE_SEQUENCE),
        load_i32(p, at + RECORD_COUNT),
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
        check_sum(data, p, at, size, at)
        check_counts(p, at, size, at)
        if p[at + ATTRIBUTES_LOW] & CODEC_MASK > 4:
            raise FormatError(f"codec {p[at + ATTRIBUTES_LOW] & CODEC_MASK} is none of Kafka's five", position=at)
        span += load_i32(p, at + LAST_OFFSET_DELTA) + 1
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
        if load_i64(p, at + PRODUCER_ID) >= 0:
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
        size = following(p, at, end, next_offset, contiguous, origin + at)
        if size == 0:
            break
        last = load_i64(p, at) + load_i32(p, at + LAST_OFFSET_DELTA)
        if last >= target:
            break
        if not contiguous:
            check_sum(data, p, at, size, origin + at)
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
    if len(data) < HEADER_SIZE or p[MAGIC] != 2:
        return -1
    base = load_i64(p, BASE_OFFSET)
    last_delta = load_i32(p, LAST_OFFSET_DELTA)
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
    while end - at >= HEADER_SIZE and effort >= 0:
        size = batch_size(p, at, end)
        effort -= max(size, 0)
        if size > 0 and load_u32(p, at + CRC) == crc_of(data, p, at + ATTRIBUTES, size - ATTRIBUTES, 0):
            batches += 1
            records += load_i32(p, at + RECORD_COUNT)
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
        size = following(p, at, end, next_offset, contiguous, origin + at)
        if size == 0:
            break
        last = load_i64(p, at) + load_i32(p, at + LAST_OFFSET_DELTA)
        if last >= stop or (at + size - begin > max_bytes and not at_least_one):
            return at, next_offset, True
        if verify:
            check_sum(data, p, at, size, origin + at)
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
        check_sum(data, p, at, size, origin + at)
        if load_i64(p, at + MAX_TIMESTAMP) >= timestamp_ms:
            return at, True
        at += size
    return at, False
