"""Facts about a segment's bytes, updated batch by batch."""

import cython
from cython import Py_ssize_t, bint, longlong, p_uchar
from cython.cimports.seeklog.record import layout
from cython.cimports.seeklog.record.batch_header import check_batch, next_batch
from cython.cimports.seeklog.record.crc import crc_of_data
from cython.cimports.seeklog.record.layout import INT32_MAX
from cython.cimports.seeklog.record.primitives import buffer_pointer, load_i32, load_i64, pointer, store_i32, store_i64

from seeklog.errors import CorruptBatch, CorruptionError
from seeklog.record.crc import crc32c
from seeklog.record.saved_state import SavedState


@cython.final
@cython.cclass
class SegmentState:
    """Facts about a segment's bytes, updated for every batch that is appended or scanned from the file.

    Appending and scanning share this class, so an index rebuilt from the log equals the index written with it. The
    index tables contain Kafka's entries; `seeklog.log.index` reads them.
    """

    base_offset = cython.declare(longlong, visibility="readonly")
    next_offset = cython.declare(longlong, visibility="readonly")
    size = cython.declare(longlong, visibility="readonly")
    crc = cython.declare(longlong, visibility="readonly")
    batch_count = cython.declare(longlong, visibility="readonly")
    record_count = cython.declare(longlong, visibility="readonly")
    contiguous = cython.declare(bint, visibility="readonly")
    first_timestamp = cython.declare(longlong, visibility="readonly")
    max_timestamp = cython.declare(longlong, visibility="readonly")
    offset_table = cython.declare(bytearray, visibility="readonly")
    time_table = cython.declare(bytearray, visibility="readonly")
    epochs = cython.declare(list, visibility="readonly")
    problem = cython.declare(object, visibility="readonly")
    _interval_bytes: longlong
    _interval_records: longlong
    _segment_bytes: longlong
    _segment_ms: longlong
    _segment_index_bytes: longlong
    _bytes_since: longlong
    _records_since: longlong
    _offset_of_max: longlong
    _last_time: longlong
    _last_epoch: longlong

    def __init__(
        self,
        base_offset: longlong,
        *,
        interval_bytes: longlong,
        interval_records: longlong,
        segment_bytes: longlong,
        segment_ms: longlong,
        segment_index_bytes: longlong,
    ):
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.crc = 0
        self.batch_count = 0
        self.record_count = 0
        self.contiguous = True
        self.first_timestamp = layout.NO_TIMESTAMP
        self.max_timestamp = layout.NO_TIMESTAMP
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
        self._last_time = layout.NO_TIMESTAMP
        self._last_epoch = -1

    def must_roll_before(self, data: bytes) -> bint:
        """Return whether, by Kafka's rules, whole, stamped batches need a new segment."""
        p: p_uchar = pointer(data)
        at: Py_ssize_t = 0
        end: Py_ssize_t = len(data)
        max_timestamp: longlong = layout.NO_TIMESTAMP
        last: longlong = self.next_offset - 1
        if self.batch_count == 0:
            return False
        while at < end:
            max_timestamp = max(max_timestamp, load_i64(p, at + layout.MAX_TIMESTAMP))
            last = load_i64(p, at + layout.BASE_OFFSET) + load_i32(p, at + layout.LAST_OFFSET_DELTA)
            at += load_i32(p, at + layout.BATCH_LENGTH) + layout.PREFIX_SIZE
        return (
            self.size > self._segment_bytes - end
            or last - self.base_offset > INT32_MAX
            or (self.first_timestamp >= 0 and max_timestamp - self.first_timestamp > self._segment_ms)
            or len(self.offset_table) > self._segment_index_bytes - 8
            # The time index keeps one slot free for the entry that a roll adds.
            or len(self.time_table) > self._segment_index_bytes - 24
        )

    def append(self, data: bytes) -> bint:
        """Add whole, well-formed batches that were just written; return whether the indexes grew."""
        p: p_uchar = pointer(data)
        at: Py_ssize_t = 0
        end: Py_ssize_t = len(data)
        indexed: Py_ssize_t = len(self.offset_table)
        self.crc = crc_of_data(data, p, end, self.crc)
        while at < end:
            at += self.note(p, at)
        return len(self.offset_table) != indexed

    def scan(self, data: bytes, contiguous_from: longlong) -> Py_ssize_t:
        """Check batches read from the file, in order, and add them; return the number of bytes accepted.

        Stops at an incomplete batch, or at one that fails its checks: then `problem` is the error. From
        `contiguous_from` on, offsets must have no gaps.
        """
        p: p_uchar = pointer(data)
        at: Py_ssize_t = 0
        end: Py_ssize_t = len(data)
        size: Py_ssize_t
        last: longlong
        try:
            while at < end:
                size = next_batch(p, at, end, self.next_offset, self.next_offset >= contiguous_from, self.size)
                if size == 0:
                    break
                last = load_i64(p, at + layout.BASE_OFFSET) + load_i32(p, at + layout.LAST_OFFSET_DELTA)
                if last - self.base_offset > INT32_MAX:
                    raise CorruptBatch(
                        f"offset {last} is too far from the segment's base {self.base_offset}",
                        position=self.size,
                    )
                check_batch(p, at, size, self.size)
                self.note(p, at)
                at += size
        except CorruptionError as error:
            self.problem = error
        self.crc = crc_of_data(data, p, at, self.crc)
        return at

    def skim(self, data: bytes, missing: longlong, contiguous_from: longlong, crc: longlong):
        """Add the batches whose headers are in `data`, of the `missing` bytes that follow this state in the file.

        Returns the number of their bytes, which may be more than those of `data`, and whether any has a producer.
        Another writer has checked and appended them, and knows the CRC of the segment at their end.
        """
        p: p_uchar = pointer(data)
        at: longlong = 0
        size: Py_ssize_t
        has_producers: bint = False
        while at < missing and at + layout.HEADER_SIZE <= len(data):
            size = next_batch(p, at, missing, self.next_offset, self.next_offset >= contiguous_from, self.size)
            if size == 0:
                break
            has_producers = has_producers or load_i64(p, at + layout.PRODUCER_ID) >= 0
            at += self.note(p, at)
        self.crc = crc
        return at, has_producers

    @cython.cfunc
    @cython.inline
    def note(self, p: p_uchar, at: Py_ssize_t) -> Py_ssize_t:
        base: longlong = load_i64(p, at + layout.BASE_OFFSET)
        size: Py_ssize_t = load_i32(p, at + layout.BATCH_LENGTH) + layout.PREFIX_SIZE
        epoch: longlong = load_i32(p, at + layout.LEADER_EPOCH)
        last: longlong = base + load_i32(p, at + layout.LAST_OFFSET_DELTA)
        max_timestamp: longlong = load_i64(p, at + layout.MAX_TIMESTAMP)
        count: longlong = load_i32(p, at + layout.RECORD_COUNT)
        if base != self.next_offset:
            self.contiguous = False
        if epoch > self._last_epoch:
            self._last_epoch = epoch
            self.epochs.append((epoch, base))
        if self.batch_count == 0:
            # Like Kafka, takes the first batch's largest timestamp as the start time of the segment.
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
    def add_offset_entry(self, last_offset: longlong):
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
        """Return the numbers that, with the two tables, restore this state."""
        return SavedState(
            base_offset=self.base_offset,
            next_offset=self.next_offset,
            size=self.size,
            log_crc=self.crc,
            batch_count=self.batch_count,
            record_count=self.record_count,
            is_contiguous=int(self.contiguous),
            first_timestamp_ms=self.first_timestamp,
            max_timestamp_ms=self.max_timestamp,
            bytes_since_entry=self._bytes_since,
            records_since_entry=self._records_since,
            offset_of_max_timestamp=self._offset_of_max,
            last_indexed_timestamp_ms=self._last_time,
            last_epoch=self._last_epoch,
            offset_index_crc=crc32c(bytes(self.offset_table)),
            time_index_crc=crc32c(bytes(self.time_table)),
        )

    def restore(self, numbers, offset_table: bytes, time_table: bytes) -> bint:
        """Restore a saved state; return whether it belongs to this segment and to these tables."""
        saved = SavedState(*numbers)
        if saved.base_offset != self.base_offset:
            return False
        if saved.offset_index_crc != crc32c(offset_table) or saved.time_index_crc != crc32c(time_table):
            return False
        self.next_offset = saved.next_offset
        self.size = saved.size
        self.crc = saved.log_crc
        self.batch_count = saved.batch_count
        self.record_count = saved.record_count
        self.contiguous = saved.is_contiguous != 0
        self.first_timestamp = saved.first_timestamp_ms
        self.max_timestamp = saved.max_timestamp_ms
        self._bytes_since = saved.bytes_since_entry
        self._records_since = saved.records_since_entry
        self._offset_of_max = saved.offset_of_max_timestamp
        self._last_time = saved.last_indexed_timestamp_ms
        self._last_epoch = saved.last_epoch
        self.offset_table = bytearray(offset_table)
        self.time_table = bytearray(time_table)
        return True

    def finish_times(self):
        """Add the largest timestamp to the time index, as Kafka does on roll and close."""
        self.add_time_entry()
