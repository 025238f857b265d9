"""The offset map of compaction: the last offset of every key in the dirty part of a log."""

import cython
from cython import Py_ssize_t, bint, longlong, p_uchar, ulonglong
from cython.cimports.seeklog.record import layout
from cython.cimports.seeklog.record.cursor import RecordCursor
from cython.cimports.seeklog.record.key_hash import siphash
from cython.cimports.seeklog.record.layout import GROUP, INT32_MAX, INT64_MAX, Place
from cython.cimports.seeklog.record.markers import report_batch
from cython.cimports.seeklog.record.primitives import (
    buffer_pointer,
    fetch_ahead,
    get_u32_at,
    get_u64_at,
    load_little_u64,
    pointer,
    put_u32_at,
    put_u64_at,
)

# A slot of the offset map: two halves of a key's hash, then the offset relative to the map's base, plus one; 0: empty.
SLOT_SIZE = 20
_SLOT = cython.declare(Py_ssize_t, 20)
_SECOND = cython.declare(Py_ssize_t, 8)
_OFFSET = cython.declare(Py_ssize_t, 16)
# The largest relative offset that a slot can hold.
_RELATIVE_MAX = cython.declare(longlong, 2**32 - 3)


@cython.final
@cython.cclass
class OffsetMap:
    """The last offset of each key in a run of batches: an open-addressing table in one flat buffer.

    Keys are stored as 128-bit hashes under a secret, so no key is ever taken for another. The table never grows: it is
    full when four fifths of its slots are taken.
    """

    def __init__(self, slots: Py_ssize_t, *, base_offset: longlong, secret: bytes):
        if slots < 2 or slots > INT32_MAX or len(secret) != 16:
            raise ValueError(f"a map of {slots} slots, a secret of {len(secret)} bytes")
        self.slots = slots
        # At four fifths, a search for a missing key probes about 13 slots.
        self.capacity = slots * 4 // 5
        self.count = 0
        self.base_offset = base_offset
        # The map covers every record up to and including this offset.
        self.latest_offset = base_offset - 1
        self._table = bytearray(slots * _SLOT)
        self._p = buffer_pointer(self._table)
        self._secret_low = load_little_u64(pointer(secret), 0)
        self._secret_high = load_little_u64(pointer(secret), 8)
        self._cursor = RecordCursor.__new__(RecordCursor)
        if not cython.compiled:
            self.latest, self._firsts, self._seconds = [0] * GROUP, [0] * GROUP, [0] * GROUP

    def hash(self, key, at, size):
        return siphash(key, at, size, self._secret_low, self._secret_high)

    def home(self, first):
        """Return the position of a key's slot if no other key has taken it."""
        # Scales the upper half of the hash to the number of slots without a division.
        slot: Py_ssize_t = cython.cast(Py_ssize_t, ((first >> 32) * cython.cast(ulonglong, self.slots)) >> 32)
        return slot * _SLOT

    def find(self, first, second):
        """Return the position of a key's slot, by its hash, or of the empty slot that it would take."""
        p: p_uchar = self._p
        place: Py_ssize_t = self.home(first)
        end: Py_ssize_t = self.slots * _SLOT
        while get_u32_at(p, place + _OFFSET) != 0:
            if get_u64_at(p, place) == first and get_u64_at(p, place + _SECOND) == second:
                break
            place += _SLOT
            if place == end:
                place = 0
        return place

    def last_of(self, first, second):
        """Return the last offset of the key with this hash, or -1."""
        stored: longlong = get_u32_at(self._p, self.find(first, second) + _OFFSET)
        return self.base_offset + stored - 1 if stored else -1

    def put(self, first, second, offset):
        """Store the offset of the key with this hash; return False if the table is full."""
        place: Py_ssize_t = self.find(first, second)
        if get_u32_at(self._p, place + _OFFSET) == 0:
            if self.count >= self.capacity:
                return False
            self.count += 1
            put_u64_at(self._p, place, first)
            put_u64_at(self._p, place + _SECOND, second)
        put_u32_at(self._p, place + _OFFSET, offset - self.base_offset + 1)
        return True

    def get(self, key: bytes):
        """Return the last offset of a key, or None if the map does not contain it."""
        first: ulonglong
        second: ulonglong
        first, second = self.hash(pointer(key), 0, len(key))
        found = self.last_of(first, second)
        return None if found < 0 else found

    def add_batches(
        self,
        data: bytes,
        at: Py_ssize_t,
        origin: longlong,
        start: longlong,
        limit: Py_ssize_t,
        judge,
    ):
        """Add the keys of consecutive whole batches, from offset `start` on, checking every CRC.

        Returns (index after the batches taken, full): full if a batch did not fit. Some of its keys may then be in the
        map, which is harmless, because compaction drops nothing above `latest_offset`. `judge` is called for batches of
        transactions like the argument of `report_batch`, and returns whether to ignore the batch.
        """
        cursor: RecordCursor = self._cursor
        cursor.begin(data, at, origin, 0, False)
        while cursor.next_batch():
            if cursor.last_offset - self.base_offset > _RELATIVE_MAX:
                return cursor.at, True
            cursor.check()
            cursor.open(limit)
            counts: bint = not cursor.attributes & layout.CONTROL
            if cursor.attributes & layout.TRANSACTIONAL_OR_CONTROL:
                counts = not report_batch(cursor, judge) and counts
            if counts and cursor.last_offset >= start and not self.add_records(start):
                return cursor.at, True
            self.latest_offset = max(self.latest_offset, cursor.last_offset)
            cursor.advance()
        cursor.release()
        return cursor.at, False

    def add_records(self, start):
        """Add the keys of the open batch, from offset `start` on; return 0 if they do not all fit."""
        cursor: RecordCursor = self._cursor
        places: cython.pointer(Place) = cursor.places
        number: Py_ssize_t
        while cursor.more:
            filled: Py_ssize_t = cursor.fill(GROUP, start, INT64_MAX)
            self.hash_keys(cursor, filled)
            for number in range(filled):
                if places[number].key_size >= 0 and not self.put(
                    self._firsts[number], self._seconds[number], places[number].offset
                ):
                    return 0
        return 1

    def hash_keys(self, cursor, filled):
        """Hash a group of keys and prefetch their slots.

        The table is larger than any cache. Prefetching waits for the memory once per group, not once per key.
        """
        places: cython.pointer(Place) = cursor.places
        number: Py_ssize_t
        for number in range(filled):
            if places[number].key_size >= 0:
                self._firsts[number], self._seconds[number] = self.hash(
                    cursor.p, places[number].key_at, places[number].key_size
                )
                fetch_ahead(self._p, self.home(self._firsts[number]))

    def look_up(self, cursor, filled):
        """Set `latest` to the last offset of each parsed record's key, or -1 if the map does not contain it."""
        number: Py_ssize_t
        self.hash_keys(cursor, filled)
        for number in range(filled):
            self.latest[number] = -1
            if cursor.places[number].key_size >= 0:
                self.latest[number] = self.last_of(self._firsts[number], self._seconds[number])
