"""A `SegmentState` as numbers. Together with the two index tables they restore it."""

from typing import NamedTuple


class SavedState(NamedTuple):
    """The saved state of a segment. The order of the fields is that of the checkpoint's `active` line."""

    base_offset: int
    next_offset: int
    size: int
    log_crc: int
    batch_count: int
    record_count: int
    is_contiguous: int
    first_timestamp_ms: int
    max_timestamp_ms: int
    bytes_since_entry: int
    records_since_entry: int
    offset_of_max_timestamp: int
    last_indexed_timestamp_ms: int
    last_epoch: int
    offset_index_crc: int
    time_index_crc: int

    def is_of(self, base_offset: int, *, size: int) -> bool:
        """Return whether this is the state of a segment with this base offset and size."""
        return (self.base_offset, self.size) == (base_offset, size)
