"""What a store shares with its logs. A lone log has no host."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from seeklog.log.background import Maintenance
from seeklog.log.metrics import LogMetrics
from seeklog.log.side.checkpoint import Checkpoint
from seeklog.metrics import FilesSection
from seeklog.names import TopicPartition


class OpenSegment(Protocol):
    """A segment that holds files or indexes open."""

    @property
    def shared(self) -> object:
        """The object that the segments of one log share."""
        ...

    @property
    def index_bytes(self) -> int: ...

    @property
    def has_file(self) -> bool: ...

    @property
    def has_map(self) -> bool:
        """Whether its key index is mapped."""
        ...

    def release(self) -> None:
        """Close its files and drop its indexes, until they are needed again."""
        ...


# The indexes of an open segment are in memory: 5 MB for a segment of 1 GiB with an entry every 4 KB.
MAX_INDEX_BYTES: Final = 128 << 20


class OpenSegments:
    """A bound on how many segments of a log, or of all logs in a store, are open for reading.

    It keeps no segment alive. A segment that left its log closes its files once the last scan that reads it has ended.
    """

    def __init__(self, max_segments: int) -> None:
        self._max_segments = max_segments
        self._open: OrderedDict[weakref.ref[OpenSegment], None] = OrderedDict()
        self._lock = threading.Lock()

    def opened(self, segment: OpenSegment) -> None:
        """Note that a segment opened a file or an index. Beyond the bound, the segment opened first is released."""
        with self._lock:
            self._open[weakref.ref(segment)] = None
            held = self._held()
            index_bytes = sum(each.index_bytes for each in held)
            while len(held) > self._max_segments or (len(held) > 1 and index_bytes > MAX_INDEX_BYTES):
                first = held.pop(0)
                index_bytes -= first.index_bytes
                del self._open[weakref.ref(first)]
                first.release()

    def count(self, files: FilesSection) -> None:
        """Add the open segments and their files to a section."""
        with self._lock:
            held = self._held()
        maps = sum(segment.has_map for segment in held)
        files.open_segments += len(held)
        files.mapped_files += maps
        files.open_files += maps + sum(segment.has_file for segment in held)

    def logs(self) -> set[object]:
        """Return what the open segments of each log share."""
        with self._lock:
            return {segment.shared for segment in self._held()}

    def forget(self, shared: object) -> None:
        with self._lock:
            for segment in self._held():
                if segment.shared is shared:
                    del self._open[weakref.ref(segment)]
                    segment.release()

    def _held(self) -> list[OpenSegment]:
        """Return the segments that still exist, the one opened first in front, and forget the others."""
        held = []
        for reference in list(self._open):
            segment = reference()
            if segment is None:
                del self._open[reference]
            else:
                held.append(segment)
        return held


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    source: TopicPartition
    open_segments: OpenSegments
    inherited: Callable[[], Checkpoint | None] = lambda: None
    """Reads the partition's checkpoint from the root, which a running broker updates."""
    has_topic: Callable[[], bool] = lambda: True
    """Returns whether the topic still exists, for a reader whose directory is gone."""
    owner_of: Callable[[str], str] = lambda setting: "the store"
    """Returns who sets a setting of the partition, for messages: its topic, or the store's default."""
    cleaned: int = 0
    """The offset up to which a checkpoint in the root says that the partition was compacted: only a hint."""
    metrics: LogMetrics | None = None
    """Where the writers of the partition count, from one opening of the log to the next."""
    is_unopened: Callable[[], bool] = lambda: False
    """Returns whether no writer has opened the partition. Then its files may be missing, and it has no records."""
    maintenance: Maintenance | None = None
