"""From keys to the few offsets that a batch reads for them, through the key indexes of the segments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from seeklog.errors import OffsetOutOfRange
from seeklog.spark.read.offsets import Range
from seeklog.store import Store


def key_ranges(store: Store, ranges: Iterable[Range], keys: Sequence[bytes]) -> list[Range]:
    """Return where the latest record of each key stands in each range, in order: ranges of one offset each."""
    found: list[Range] = []
    for at, start, stop in ranges:
        log = store.log(at.topic, at.partition)
        offsets: set[int] = set()
        for key in keys:
            try:
                record = log.latest_for_key(key, start=start, end=stop)
            except OffsetOutOfRange:
                # Deleted since the range was found: what is left of it is read.
                record = log.latest_for_key(key, start=log.log_start_offset, end=stop)
            if record is not None:
                offsets.add(record.offset)
        found += [Range(at, offset, offset + 1) for offset in sorted(offsets)]
    return found
