"""Where the newest record of a key is: a table that grows with a segment, and its sorted form, read in place."""

import cython
from cython.cimports.seeklog.record.batch_header import check_batch, next_batch
from cython.cimports.seeklog.record.cursor import RecordCursor
from cython.cimports.seeklog.record.key_hash import siphash
from cython.cimports.seeklog.record.layout import (
    ATTRIBUTES_LOW,
    BASE_OFFSET,
    CONTROL,
    GROUP,
    INT32_MAX,
    INT64_MAX,
    LAST_OFFSET_DELTA,
    Place,
)
from cython.cimports.seeklog.record.primitives import (
    buffer_pointer,
    copy,
    load_i32,
    load_i64,
    load_little_u32,
    load_little_u64,
    load_u32,
    load_u64,
    low_half,
    pointer,
    store_i32,
    store_little_u32,
    store_u64,
    view_of,
    view_pointer,
)

from seeklog.errors import CorruptBatch, UsageError
from seeklog.record.key_hash import FIXED_SECRET as _SECRET
from seeklog.record.layout import new_places

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
    _cursor: RecordCursor

    def __init__(self, base_offset: cython.longlong):
        secret: bytes = _SECRET
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.count = 0
        self._slots = _SLOTS_FIRST
        self._shift = 64 - 6
        self._buffer = bytearray(_SLOT * _SLOTS_FIRST)
        self._secret_low = load_little_u64(pointer(secret), 0)
        self._secret_high = load_little_u64(pointer(secret), 8)
        self._cursor = RecordCursor.__new__(RecordCursor)

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
            size = next_batch(p, at, end, self.next_offset, contiguous, origin + at)
            if size == 0:
                break
            last = load_i64(p, at + BASE_OFFSET) + load_i32(p, at + LAST_OFFSET_DELTA)
            if last >= stop:
                break
            if last - self.base_offset > INT32_MAX:
                raise CorruptBatch(
                    f"offset {last} is too far from the segment's base {self.base_offset}", position=origin + at
                )
            check_batch(data, p, at, size, origin + at)
            if not p[at + ATTRIBUTES_LOW] & CONTROL:
                self._cursor.open(data, at, size, origin + at, limit)
                self.add_records()
            self.next_offset = last + 1
            at += size
        self._cursor.release()
        return at

    @cython.cfunc
    def add_records(self) -> cython.int:
        """Note the keys of the open batch."""
        cursor: RecordCursor = self._cursor
        filled: cython.Py_ssize_t
        number: cython.Py_ssize_t
        places: Place[GROUP]
        if not cython.compiled:
            places = new_places()
        while cursor.more:
            filled = cursor.fill(places, GROUP, 0, INT64_MAX)
            for number in range(filled):
                if places[number].key_size >= 0:
                    self.put(
                        cursor.p,
                        places[number].key_at,
                        places[number].key_size,
                        places[number].offset - self.base_offset,
                    )
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
        if (
            head_size < 0
            or blocks < 1
            or count < 0
            or blocks > room // 32
            or count > room // 12
            or (32 * blocks + 12 * count > room)
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
