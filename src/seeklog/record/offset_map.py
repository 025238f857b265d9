"""The offset map of compaction: the last offset of every key in the dirty part of a log."""

import cython
from cython.cimports.seeklog.record.batch_header import check_batch, next_batch
from cython.cimports.seeklog.record.cursor import RecordCursor
from cython.cimports.seeklog.record.key_hash import siphash
from cython.cimports.seeklog.record.layout import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL,
    GROUP,
    INT32_MAX,
    INT64_MAX,
    LAST_OFFSET_DELTA,
    PRODUCER_ID,
    TRANSACTIONAL_OR_CONTROL,
    Place,
)
from cython.cimports.seeklog.record.markers import marker_type
from cython.cimports.seeklog.record.primitives import (
    buffer_pointer,
    fetch_ahead,
    get_u32_at,
    get_u64_at,
    load_i16,
    load_i32,
    load_i64,
    load_little_u64,
    pointer,
    put_u32_at,
    put_u64_at,
)

from seeklog.record.layout import new_places

# A slot of the offset map: two halves of a key's hash, then the offset, less the map's base, plus one; 0: empty.
_MAP_SLOT = cython.declare(cython.Py_ssize_t, 20)
SLOT_SIZE = 20
# The last relative offset that a slot holds.
_RELATIVE_MAX = cython.declare(cython.longlong, 2**32 - 3)


@cython.final
@cython.cclass
class OffsetMap:
    """The last offset of each key of a run of batches: an open-addressing table in one flat buffer.

    Keys stand in it as 128-bit hashes under a secret, so no key is ever taken for another. It never grows: when
    four fifths of its slots are taken it is full, and takes no further key.
    """

    def __init__(self, slots: cython.Py_ssize_t, *, base_offset: cython.longlong, secret: bytes):
        if slots < 2 or slots > INT32_MAX or len(secret) != 16:
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
        self._cursor = RecordCursor.__new__(RecordCursor)
        if not cython.compiled:
            self.latest, self._firsts, self._seconds = [0] * GROUP, [0] * GROUP, [0] * GROUP

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def hash(
        self, key: cython.p_uchar, at: cython.Py_ssize_t, size: cython.Py_ssize_t
    ) -> tuple[cython.ulonglong, cython.ulonglong]:
        """Return a key's hash, and have the slot where it belongs brought near.

        The table is larger than any cache. Hash a group of keys before looking for the first, and the wait for the
        memory comes once, not once a key.
        """
        first: cython.ulonglong
        second: cython.ulonglong
        first, second = siphash(key, at, size, self._secret_low, self._secret_high)
        fetch_ahead(self._p, self.home(first))
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
        base: cython.longlong
        last: cython.longlong
        marker: cython.longlong
        attributes: cython.int
        counts: cython.bint
        cursor: RecordCursor = self._cursor
        while at < end:
            size = next_batch(p, at, end, 0, False, origin + at)
            if size == 0:
                break
            base = load_i64(p, at + BASE_OFFSET)
            last = base + load_i32(p, at + LAST_OFFSET_DELTA)
            if last - self.base_offset > _RELATIVE_MAX:
                return at, True
            check_batch(data, p, at, size, origin + at)
            cursor.open(data, at, size, origin + at, limit)
            attributes = load_i16(p, at + ATTRIBUTES)
            counts = not attributes & CONTROL
            if attributes & TRANSACTIONAL_OR_CONTROL:
                marker = marker_type(cursor) if attributes & CONTROL else -1
                if judge(base, last, attributes, load_i64(p, at + PRODUCER_ID), marker):
                    counts = False
            if counts and last >= start and not self.add_records(start):
                return at, True
            if last > self.latest_offset:
                self.latest_offset = last
            at += size
        cursor.release()
        return at, False

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def add_records(self, start: cython.longlong) -> cython.int:
        """Note the keys of the open batch, from offset `start` on; return 0 if there is no room for all of them."""
        cursor: RecordCursor = self._cursor
        filled: cython.Py_ssize_t
        number: cython.Py_ssize_t
        places: Place[GROUP]
        if not cython.compiled:
            places = new_places()
        while cursor.more:
            filled = cursor.fill(places, GROUP, start, INT64_MAX)
            for number in range(filled):
                if places[number].key_size >= 0:
                    self._firsts[number], self._seconds[number] = self.hash(
                        cursor.p, places[number].key_at, places[number].key_size
                    )
            for number in range(filled):
                if places[number].key_size < 0:
                    continue
                if not self.put(self._firsts[number], self._seconds[number], places[number].offset):
                    return 0
        return 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def look_up(self, p: cython.p_uchar, places: cython.pointer(Place), filled: cython.Py_ssize_t) -> cython.void:
        """Note in `latest` the last offset of the key of each place, or -1 if the map does not have it."""
        number: cython.Py_ssize_t
        for number in range(filled):
            if places[number].key_size >= 0:
                self._firsts[number], self._seconds[number] = self.hash(
                    p, places[number].key_at, places[number].key_size
                )
        for number in range(filled):
            self.latest[number] = -1
            if places[number].key_size >= 0:
                self.latest[number] = self.last_of(self._firsts[number], self._seconds[number])
