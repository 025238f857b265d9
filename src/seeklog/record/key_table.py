"""The offset of each key's newest record: a table that grows with its segment, and its sorted form on disk."""

import cython
from cython import Py_ssize_t, bint, longlong, p_uchar, ulonglong
from cython.cimports.seeklog.record.cursor import RecordCursor
from cython.cimports.seeklog.record.key_hash import siphash
from cython.cimports.seeklog.record.layout import CONTROL, GROUP, INT32_MAX, INT64_MAX, Place
from cython.cimports.seeklog.record.primitives import (
    buffer_pointer,
    copy,
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
from seeklog.record.key_hash import FIXED_SECRET

# Slots of a `KeyTable`, little-endian: the first half of the hash, 32 bits of the second, the relative offset + 1.
# An offset field of 0 marks an empty slot.
_SLOT = cython.declare(Py_ssize_t, 16)
_SECOND = cython.declare(Py_ssize_t, 8)
_OFFSET = cython.declare(Py_ssize_t, 12)
_FIRST_BITS = cython.declare(cython.int, 6)
# A split block Bloom filter as Parquet defines it: a key sets one bit in each of the eight 32-bit words of one block.
# With 20 bits per key, 0.05 % of other keys pass it.
FILTER_BLOCK_SIZE = 32
_BLOCK = cython.declare(Py_ssize_t, 32)
_BLOCK_BITS = cython.declare(longlong, 256)
_BITS_PER_KEY = cython.declare(longlong, 20)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def salt(word: cython.int) -> ulonglong:
    """Return Parquet's factor that maps a hash to a bit of one of the eight words of a block."""
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
def block_of(at: Py_ssize_t, blocks: ulonglong, hashed: ulonglong) -> Py_ssize_t:
    """Return the position of a hash's block, in a filter at `at`."""
    return at + _BLOCK * cython.cast(Py_ssize_t, ((hashed >> 32) * blocks) >> 32)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def bit_of(word: cython.int, hashed: ulonglong) -> cython.int:
    """Return the number, within its block, of the bit that a hash sets in one word."""
    return 32 * word + cython.cast(cython.int, low_half(low_half(hashed) * salt(word)) >> 27)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def filter_add(p: p_uchar, at: Py_ssize_t, blocks: ulonglong, hashed: ulonglong) -> cython.void:
    block: Py_ssize_t = block_of(at, blocks, hashed)
    word: cython.int
    for word in range(8):
        bit: cython.int = bit_of(word, hashed)
        p[block + (bit >> 3)] |= 1 << (bit & 7)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def filter_may_hold(p: p_uchar, at: Py_ssize_t, blocks: ulonglong, hashed: ulonglong) -> bint:
    block: Py_ssize_t = block_of(at, blocks, hashed)
    word: cython.int
    for word in range(8):
        bit: cython.int = bit_of(word, hashed)
        if not (p[block + (bit >> 3)] >> (bit & 7)) & 1:
            return False
    return True


def filter_block_count(count: longlong):
    """Return the number of blocks of a filter for `count` keys; at least one."""
    return max(1, (count * _BITS_PER_KEY + _BLOCK_BITS - 1) // _BLOCK_BITS)


@cython.final
@cython.cclass
class KeyTable:
    """The last offset of every key in one segment, built from its batches in order.

    A key is stored as 96 bits of its hash. An entry is only a hint where to read: the caller compares the key there. If
    two keys collide and hide each other, the records are still in the log.

    The top bits of the hash choose the slot, so the slots are nearly sorted by hash.
    """

    base_offset = cython.declare(longlong, visibility="readonly")
    count = cython.declare(longlong, visibility="readonly")
    next_offset = cython.declare(longlong, visibility="readonly")
    _buffer: bytearray
    _slots: Py_ssize_t
    _shift: cython.int
    _secret_low: ulonglong
    _secret_high: ulonglong
    _cursor: RecordCursor

    def __init__(self, base_offset: longlong):
        secret: bytes = FIXED_SECRET
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.count = 0
        self._slots = 1 << _FIRST_BITS
        self._shift = 64 - _FIRST_BITS
        self._buffer = bytearray(_SLOT * self._slots)
        self._secret_low = load_little_u64(pointer(secret), 0)
        self._secret_high = load_little_u64(pointer(secret), 8)
        self._cursor = RecordCursor.__new__(RecordCursor)

    @property
    def size_bytes(self):
        """The memory that the table takes."""
        return len(self._buffer)

    def add(self, data: bytes, origin: longlong, contiguous: bint, stop: longlong, limit: Py_ssize_t):
        """Add the keys of the whole batches in `data` that end below `stop`; return the size of those batches.

        The batches must follow those added before. Their CRCs are checked; control batches and records without a key
        are skipped.
        """
        cursor: RecordCursor = self._cursor
        cursor.begin(data, 0, origin, self.next_offset, contiguous)
        while cursor.next_batch() and cursor.last_offset < stop:
            if cursor.last_offset - self.base_offset > INT32_MAX:
                raise CorruptBatch(
                    f"offset {cursor.last_offset} is too far from the segment's base {self.base_offset}",
                    position=cursor.position,
                )
            cursor.check()
            if not cursor.attributes & CONTROL:
                cursor.open(limit)
                self.add_records()
            cursor.advance()
            self.next_offset = cursor.next_offset
        cursor.release()
        return cursor.at

    @cython.cfunc
    def add_records(self) -> cython.int:
        """Add the keys of the open batch."""
        cursor: RecordCursor = self._cursor
        places: cython.pointer(Place) = cursor.places
        number: Py_ssize_t
        while cursor.more:
            for number in range(cursor.fill(GROUP, 0, INT64_MAX)):
                if places[number].key_size >= 0:
                    self.put(cursor.p, places[number].key_at, places[number].key_size, places[number].offset)
        return 0

    @cython.cfunc
    @cython.inline
    def put(self, key: p_uchar, at: Py_ssize_t, size: Py_ssize_t, offset: longlong) -> cython.int:
        first: ulonglong
        second: ulonglong
        if 4 * self.count >= 3 * self._slots:
            self.grow()
        first, second = siphash(key, at, size, self._secret_low, self._secret_high)
        second = low_half(second)
        slot: Py_ssize_t = self.slot_of(first, second)
        p: p_uchar = buffer_pointer(self._buffer)
        if load_little_u32(p, slot + _OFFSET) == 0:
            self.count += 1
            store_little_u32(p, slot, low_half(first))
            store_little_u32(p, slot + 4, first >> 32)
            store_little_u32(p, slot + _SECOND, second)
        store_little_u32(p, slot + _OFFSET, cython.cast(ulonglong, offset - self.base_offset + 1))
        return 0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def slot_of(self, first: ulonglong, second: ulonglong) -> Py_ssize_t:
        """Return the position in the buffer of a hash's slot, or of the empty slot that it would take."""
        p: p_uchar = buffer_pointer(self._buffer)
        slot: Py_ssize_t = cython.cast(Py_ssize_t, first >> self._shift)
        while True:
            at: Py_ssize_t = slot * _SLOT
            if load_little_u32(p, at + _OFFSET) == 0 or (
                load_little_u64(p, at) == first and load_little_u32(p, at + _SECOND) == second
            ):
                return at
            slot = (slot + 1) & (self._slots - 1)

    @cython.cfunc
    def grow(self) -> cython.int:
        old: bytearray = self._buffer
        source: p_uchar = buffer_pointer(old)
        number: Py_ssize_t
        self._slots *= 2
        self._shift -= 1
        self._buffer = bytearray(_SLOT * self._slots)
        for number in range(self._slots // 2):
            at: Py_ssize_t = number * _SLOT
            if load_little_u32(source, at + _OFFSET) != 0:
                slot: Py_ssize_t = self.slot_of(load_little_u64(source, at), load_little_u32(source, at + _SECOND))
                copy(buffer_pointer(self._buffer), slot, source, at, _SLOT)
        return 0

    def offset_of(self, first: ulonglong, second: ulonglong):
        """Return the last offset of a key with this hash, or -1."""
        slot: Py_ssize_t = self.slot_of(first, low_half(second))
        relative: longlong = load_little_u32(buffer_pointer(self._buffer), slot + _OFFSET)
        return self.base_offset + relative - 1 if relative else -1

    def encode(self, head: bytes):
        """Return `head`, the filter, the sorted hashes, and the last relative offset of each, in one buffer.

        Among keys with the same hash, the newer comes first.
        """
        blocks: longlong = filter_block_count(self.count)
        filter_at: Py_ssize_t = len(head)
        hashes_at: Py_ssize_t = filter_at + _BLOCK * blocks
        offsets_at: Py_ssize_t = hashes_at + 8 * self.count
        out: bytearray = bytearray(offsets_at + 4 * self.count)
        p: p_uchar = buffer_pointer(out)
        source: p_uchar = buffer_pointer(self._buffer)
        slot: Py_ssize_t
        done: Py_ssize_t = 0
        wrapped_end: Py_ssize_t = 0
        out[:filter_at] = head
        # Entries that wrapped around the end of the table are in the run at its start; they have the largest hashes.
        while wrapped_end < self._slots and load_little_u32(source, wrapped_end * _SLOT + _OFFSET) != 0:
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
    def is_home(self, source: p_uchar, slot: Py_ssize_t) -> bint:
        """Return whether the key in a slot did not wrap around the end of the table."""
        return cython.cast(Py_ssize_t, load_little_u64(source, slot * _SLOT) >> self._shift) <= slot

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def place(
        self,
        source: p_uchar,
        slot: Py_ssize_t,
        p: p_uchar,
        filter_at: Py_ssize_t,
        blocks: longlong,
        hashes_at: Py_ssize_t,
        offsets_at: Py_ssize_t,
        done: Py_ssize_t,
    ) -> Py_ssize_t:
        """Insert a slot's entry among the `done` sorted ones; return 1, or 0 for an empty slot."""
        relative: longlong = load_little_u32(source, slot * _SLOT + _OFFSET)
        first: ulonglong = load_little_u64(source, slot * _SLOT)
        other: ulonglong
        if relative == 0:
            return 0
        relative -= 1
        filter_add(p, filter_at, cython.cast(ulonglong, blocks), first)
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
    """The output of `KeyTable.encode`, searched in place: `buffer` is a mapped file or bytes."""

    count = cython.declare(Py_ssize_t, visibility="readonly")
    _view: object
    _p: p_uchar
    _filter_at: Py_ssize_t
    _blocks: longlong
    _hashes_at: Py_ssize_t
    _offsets_at: Py_ssize_t

    def __init__(self, buffer, *, head_size: Py_ssize_t, blocks: longlong, count: Py_ssize_t):
        view = view_of(buffer)
        room: longlong = len(view) - head_size
        if (
            head_size < 0
            or blocks < 1
            or count < 0
            or blocks > room // 32
            or count > room // 12
            or (32 * blocks + 12 * count > room)
        ):
            raise UsageError(f"{room:,} bytes cannot hold {blocks:,} blocks of a filter and {count:,} keys")
        self._view = view
        self._p = view_pointer(view)
        self.count = count
        self._filter_at = head_size
        self._blocks = blocks
        self._hashes_at = head_size + _BLOCK * blocks
        self._offsets_at = self._hashes_at + 8 * count

    @property
    def size_bytes(self):
        return len(self._view)

    def may_hold(self, first: ulonglong) -> bint:
        """Return whether the filter may contain a hash."""
        return filter_may_hold(self._p, self._filter_at, cython.cast(ulonglong, self._blocks), first)

    def offsets_of(self, first: ulonglong):
        """Return the relative offsets stored for a hash, the newest first: none, one, or several if keys collide."""
        place: Py_ssize_t
        if not filter_may_hold(self._p, self._filter_at, cython.cast(ulonglong, self._blocks), first):
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
    def floor(self, first: ulonglong) -> Py_ssize_t:
        """Return the index of the first hash not below this one.

        Hashes are spread evenly, so the search starts at a guess and widens until it passes the hash. It stays within a
        few neighbouring cache lines, where bisecting would jump through the whole table.
        """
        p: p_uchar = self._p
        at: Py_ssize_t = self._hashes_at
        low: Py_ssize_t = 0
        high: Py_ssize_t = self.count
        guess: Py_ssize_t = cython.cast(Py_ssize_t, ((first >> 32) * cython.cast(ulonglong, self.count)) >> 32)
        step: Py_ssize_t = 8
        middle: Py_ssize_t
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
