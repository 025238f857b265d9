"""Where a stream stops: the places that `endingOffsets` and its like name, as offsets that it never goes past.

Offsets, `latest` and what is counted back from it are found when the query starts, and stay: what comes later is not
read. The record that a time names may come later; until it has, the stream goes on. A restart finds all of them anew.
"""

from __future__ import annotations

from collections.abc import Mapping

from seeklog.names import TopicPartition
from seeklog.spark.read.bounds import AtTime, AtTimes
from seeklog.spark.read.offsets import Bounds, end_offsets
from seeklog.spark.read.options import SourceOptions
from seeklog.store import Store


class Endings:
    """The ends of a stream's partitions."""

    def __init__(self, store: Store, bounds: Mapping[TopicPartition, Bounds], options: SourceOptions) -> None:
        self._store = store
        self._place = options.end
        self._is_endless = options.end is None
        self._ends = end_offsets(store, bounds, options)
        # Where nothing is as late yet as the end's time.
        self._open = {
            at for at in self._ends if self._time_of(at) is not None and self._ends[at] >= bounds[at].high_watermark
        }

    def _time_of(self, at: TopicPartition) -> int | None:
        match self._place:
            case AtTime(timestamp_ms=timestamp_ms):
                return timestamp_ms
            case AtTimes(times_ms=times_ms):
                return times_ms.get(at)
        return None

    def stop(self, at: TopicPartition, here: Bounds) -> int | None:
        """Return how far a partition may be read now, or None if it came after the end of everything."""
        if self._is_endless:
            return here.high_watermark
        time_ms = self._time_of(at)
        if time_ms is not None and (at in self._open or at not in self._ends):
            found = self._store.log(at.topic, at.partition).offset_at_time(time_ms)
            if found is None or found >= here.high_watermark:
                return here.high_watermark
            self._ends[at] = found
            self._open.discard(at)
        end = self._ends.get(at)
        return None if end is None else min(end, here.high_watermark)
