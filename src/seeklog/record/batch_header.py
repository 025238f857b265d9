"""Batch headers: reading, checking, and walking from batch to batch without looking at the records.

The invariant: no length, count or offset read from bytes is used before it is checked against the bytes that are
there. Positions in errors are `origin` (the position of `data` in its file) + index.

`batch_header.pxd` declares the C types for other modules.
"""

import cython
from cython import Py_ssize_t, bint, longlong, p_uchar
from cython.cimports.seeklog.record import layout
from cython.cimports.seeklog.record.crc import crc_of
from cython.cimports.seeklog.record.primitives import load_i16, load_i32, load_i64, load_u32, pointer

from seeklog.errors import CorruptBatch, FormatError, RecordTooLarge, UnsupportedMagic, counted

# The next offset must fit in an int64 too.
_MAX_OFFSET = cython.declare(longlong, 2**63 - 2)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
@cython.nogil
def batch_size(p: p_uchar, at: Py_ssize_t, end: Py_ssize_t) -> Py_ssize_t:
    """Return the size of the batch at `at`; 0 if it is incomplete, -1 if no v2 batch starts with these bytes."""
    if end - at < layout.MAGIC_END:
        return 0
    length: longlong = load_i32(p, at + layout.BATCH_LENGTH)
    if p[at + layout.MAGIC] != layout.MAGIC_V2 or length < layout.BATCH_LENGTH_MIN:
        return -1
    if length > end - at - layout.PREFIX_SIZE:
        return 0
    return cython.cast(Py_ssize_t, length) + layout.PREFIX_SIZE


def whole_batch_size(p, at, end):
    """Return the size of a batch that the caller has already checked; raise if it is not a whole batch."""
    size: Py_ssize_t = batch_size(p, at, end)
    if size <= 0:
        raise CorruptBatch("there is no whole batch at this position", position=at)
    return size


@cython.cfunc
def header_error(p: p_uchar, at: Py_ssize_t, position: longlong):
    """Return the error that explains why no v2 batch starts at `at`. At least 17 bytes are there."""
    length: longlong = load_i32(p, at + layout.BATCH_LENGTH)
    magic: cython.int = p[at + layout.MAGIC]
    if length < layout.OLD_LENGTH_MIN:
        return CorruptBatch(
            f"batch length {length} is below the smallest possible, {layout.OLD_LENGTH_MIN}", position=position
        )
    if magic < layout.MAGIC_V2:
        return UnsupportedMagic(
            f"a batch of magic {magic}; seeklog reads magic 2, which Kafka writes since 0.11",
            position=position,
            advice="Let a Kafka 3.x broker rewrite the topic (message.format.version 2.8 and compaction, or copy it).",
        )
    if magic > layout.MAGIC_V2:
        return CorruptBatch(f"magic {magic} where a batch should start; expected 2", position=position)
    return CorruptBatch(
        f"batch length {length} is below the size of a batch header, {layout.BATCH_LENGTH_MIN}", position=position
    )


def next_batch(p, at, end, next_offset, contiguous, position):
    """Check the offsets of the batch at `at` and return its size, or 0 if it is incomplete.

    Raises if no batch starts there, if its base offset is below `next_offset` or, if `contiguous`, differs from it.
    """
    size: Py_ssize_t = batch_size(p, at, end)
    if size < 0:
        with cython.gil:
            raise header_error(p, at, position)
    if size > 0:
        check_offsets(p, at, next_offset, contiguous, position)
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(-1, check=False)
@cython.nogil
def check_offsets(p: p_uchar, at: Py_ssize_t, next_offset: longlong, contiguous: bint, position: longlong) -> longlong:
    """Return a batch's last offset. Its base offset must be at least `next_offset`, or equal to it if `contiguous`."""
    base: longlong = load_i64(p, at + layout.BASE_OFFSET)
    last_delta: longlong = load_i32(p, at + layout.LAST_OFFSET_DELTA)
    if last_delta < 0 or base < 0 or base > _MAX_OFFSET - last_delta:
        with cython.gil:
            raise CorruptBatch(
                f"base offset {base} with last offset delta {last_delta} is impossible", position=position
            )
    if base < next_offset or (contiguous and base != next_offset):
        with cython.gil:
            raise CorruptBatch(f"base offset {base}, expected {next_offset}", position=position)
    return base + last_delta


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def last_offset(p: p_uchar, at: Py_ssize_t) -> longlong:
    return load_i64(p, at + layout.BASE_OFFSET) + load_i32(p, at + layout.LAST_OFFSET_DELTA)


def check_crc(p, at, size, position):
    computed: longlong = crc_of(p, at + layout.ATTRIBUTES, size - layout.ATTRIBUTES, 0)
    stored: longlong = load_u32(p, at + layout.CRC)
    if stored != computed:
        with cython.gil:
            raise CorruptBatch(f"stored CRC {stored:#010x}, computed {computed:#010x}", position=position)
    return 0


def check_batch(p, at, size, position):
    """Check the CRC of a batch, and that its count and last delta are possible, which a valid CRC does not prove."""
    check_crc(p, at, size, position)
    last_delta: longlong = load_i32(p, at + layout.LAST_OFFSET_DELTA)
    count: longlong = load_i32(p, at + layout.RECORD_COUNT)
    room: longlong = size - layout.HEADER_SIZE
    if count < 0 or last_delta < 0 or count > last_delta + 1:
        with cython.gil:
            raise CorruptBatch(
                f"{counted(count, 'record')} cannot have a last offset delta of {last_delta}", position=position
            )
    # Multiplied instead of divided: this runs in the loop that recovers a log.
    if not p[at + layout.ATTRIBUTES_LOW] & layout.CODEC_MASK and count * layout.RECORD_SIZE_MIN > room:
        with cython.gil:
            raise CorruptBatch(f"{counted(count, 'record')} cannot fit in {counted(room, 'byte')}", position=position)
    return 0


# ---------------------------------------------------------------- for Python


def read_header(data: bytes, at: Py_ssize_t, origin: longlong):
    """Return the header fields of the batch at `at`, in the order of `BatchHeader`."""
    p: p_uchar = pointer(data)
    room: Py_ssize_t = len(data) - at
    if at < 0 or room < layout.HEADER_SIZE:
        raise CorruptBatch(
            f"{counted(max(room, 0), 'byte')} where a batch header takes {layout.HEADER_SIZE}", position=origin + at
        )
    if batch_size(p, at, at + room) < 0:
        raise header_error(p, at, origin + at)
    return (
        load_i64(p, at + layout.BASE_OFFSET),
        load_i32(p, at + layout.BATCH_LENGTH) + layout.PREFIX_SIZE,
        load_i32(p, at + layout.LEADER_EPOCH),
        load_u32(p, at + layout.CRC),
        load_i16(p, at + layout.ATTRIBUTES),
        load_i32(p, at + layout.LAST_OFFSET_DELTA),
        load_i64(p, at + layout.BASE_TIMESTAMP),
        load_i64(p, at + layout.MAX_TIMESTAMP),
        load_i64(p, at + layout.PRODUCER_ID),
        load_i16(p, at + layout.PRODUCER_EPOCH),
        load_i32(p, at + layout.BASE_SEQUENCE),
        load_i32(p, at + layout.RECORD_COUNT),
    )


def check_batches(data: bytes, max_batch_bytes: longlong):
    """Check raw batches before they are appended: whole, v2, CRC, possible counts.

    Returns (number of batches, number of offsets they span).
    """
    p: p_uchar = pointer(data)
    at: Py_ssize_t = 0
    end: Py_ssize_t = len(data)
    batch_count: longlong = 0
    span: longlong = 0
    while at < end:
        size: Py_ssize_t = batch_size(p, at, end)
        if size < 0:
            raise header_error(p, at, at)
        if size == 0:
            raise CorruptBatch(f"the bytes end in the middle of a batch, {counted(end - at, 'byte')} in", position=at)
        if size > max_batch_bytes:
            raise RecordTooLarge(
                f"the batch at byte {at} has {size:,} bytes, and max.message.bytes is {max_batch_bytes:,}"
            )
        check_batch(p, at, size, at)
        codec: cython.int = p[at + layout.ATTRIBUTES_LOW] & layout.CODEC_MASK
        if codec > layout.CODEC_MAX:
            raise FormatError(f"codec {codec} is not one of Kafka's five", position=at)
        span += load_i32(p, at + layout.LAST_OFFSET_DELTA) + 1
        batch_count += 1
        at += size
    return batch_count, span


def has_producers(data: bytes, end: Py_ssize_t):
    """Return whether any of the whole batches in the first `end` bytes has a producer id."""
    p: p_uchar = pointer(data)
    at: Py_ssize_t = 0
    while at < end:
        size: Py_ssize_t = batch_size(p, at, end)
        if size <= 0:
            break
        if load_i64(p, at + layout.PRODUCER_ID) >= 0:
            return True
        at += size
    return False


def skip_batches(
    data: bytes, at: Py_ssize_t, origin: longlong, next_offset: longlong, target: longlong, contiguous: bint
):
    """Walk headers to the first batch whose last offset is `target` or above.

    Returns (index of that batch or of the first incomplete one, next offset there, batches walked). A base offset
    below `next_offset`, or different from it if `contiguous`, is damage. If not `contiguous`, only the CRC
    distinguishes a gap from a damaged header, so the CRC of every batch walked is checked.
    """
    p: p_uchar = pointer(data)
    end: Py_ssize_t = len(data)
    walked: longlong = 0
    while at < end:
        size: Py_ssize_t = next_batch(p, at, end, next_offset, contiguous, origin + at)
        if size == 0:
            break
        last: longlong = last_offset(p, at)
        if last >= target:
            break
        if not contiguous:
            check_crc(p, at, size, origin + at)
        next_offset = last + 1
        walked += 1
        at += size
    return at, next_offset, walked


def walk_batches(data: bytes, next_offset: longlong, contiguous: bint):
    """Walk the headers of whole batches while their offsets are plausible.

    For a file that another process is writing: bytes that cannot be a batch end the walk without an error.
    Returns (index after the batches, next offset there).
    """
    p: p_uchar = pointer(data)
    at: Py_ssize_t = 0
    end: Py_ssize_t = len(data)
    try:
        while at < end:
            size: Py_ssize_t = batch_size(p, at, end)
            if size <= 0:
                break
            next_offset = check_offsets(p, at, next_offset, contiguous, at) + 1
            at += size
    except CorruptBatch:
        pass
    return at, next_offset


def entry_base(data: bytes, entry_offset: longlong, exact: bint):
    """Prove an index entry: return the base offset of the batch at the start of `data`, or -1.

    If `exact`, the batch must end with `entry_offset`. Otherwise it must not start above it: Kafka before 4.0 wrote
    one entry for all batches of an append call.
    """
    p: p_uchar = pointer(data)
    if len(data) < layout.HEADER_SIZE or p[layout.MAGIC] != layout.MAGIC_V2:
        return -1
    base: longlong = load_i64(p, layout.BASE_OFFSET)
    last_delta: longlong = load_i32(p, layout.LAST_OFFSET_DELTA)
    if base < 0 or last_delta < 0 or base > entry_offset or (exact and base + last_delta != entry_offset):
        return -1
    return base


def count_whole_batches(data: bytes):
    """Count the batches with a valid CRC anywhere in `data`, and their records: what a cut would remove.

    The search gives up on bytes that keep looking like the start of large batches; there may then be more.
    """
    p: p_uchar = pointer(data)
    at: Py_ssize_t = 0
    end: Py_ssize_t = len(data)
    batches: longlong = 0
    records: longlong = 0
    effort: longlong = 16 * end
    while end - at >= layout.HEADER_SIZE and effort >= 0:
        size: Py_ssize_t = batch_size(p, at, end)
        effort -= max(size, 0)
        if size > 0 and load_u32(p, at + layout.CRC) == crc_of(p, at + layout.ATTRIBUTES, size - layout.ATTRIBUTES, 0):
            batches += 1
            records += load_i32(p, at + layout.RECORD_COUNT)
            at += size
        else:
            at += 1
    return batches, records


def take_batches(
    data: bytes,
    at: Py_ssize_t,
    origin: longlong,
    next_offset: longlong,
    contiguous: bint,
    stop: longlong,
    max_bytes: longlong,
    at_least_one: bint,
    verify: bint,
):
    """Walk the whole batches below offset `stop`, up to `max_bytes` together, or at least one if `at_least_one`.

    Returns (index after them, next offset there, done): done if `stop` or `max_bytes` ended the walk.
    """
    p: p_uchar = pointer(data)
    begin: Py_ssize_t = at
    end: Py_ssize_t = len(data)
    while at < end:
        size: Py_ssize_t = next_batch(p, at, end, next_offset, contiguous, origin + at)
        if size == 0:
            break
        last: longlong = last_offset(p, at)
        if last >= stop or (at + size - begin > max_bytes and not at_least_one):
            return at, next_offset, True
        if verify:
            check_crc(p, at, size, origin + at)
        at_least_one = False
        next_offset = last + 1
        at += size
    return at, next_offset, False


def find_time(data: bytes, at: Py_ssize_t, origin: longlong, timestamp_ms: longlong):
    """Walk whole batches to the first one with a timestamp of `timestamp_ms` or above.

    Returns (its index, True), or (index of the first incomplete batch, False). The CRC of every batch walked is
    checked, because its timestamp decides.
    """
    p: p_uchar = pointer(data)
    end: Py_ssize_t = len(data)
    next_offset: longlong = 0
    while at < end:
        size: Py_ssize_t = next_batch(p, at, end, next_offset, False, origin + at)
        if size == 0:
            break
        check_crc(p, at, size, origin + at)
        if load_i64(p, at + layout.MAX_TIMESTAMP) >= timestamp_ms:
            return at, True
        next_offset = last_offset(p, at) + 1
        at += size
    return at, False
