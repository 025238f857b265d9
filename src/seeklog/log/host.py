"""What a store gives to the logs that lie in it. A lone log has no host."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from seeklog.log.background import Maintenance
from seeklog.log.side.checkpoint import Checkpoint
from seeklog.names import TopicPartition


class Opened(Protocol):
    """A segment that holds files or maps open."""

    @property
    def shared(self) -> object:
        """What the segments of its log share, and no other."""
        ...

    @property
    def index_bytes(self) -> int:
        """How much memory its indexes take."""
        ...

    def release(self) -> None:
        """Close them; they are opened again when they are needed."""
        ...


# Indexes are in memory while a segment is open: 5 MB for a segment of 1 GiB that has an entry every 4 KB.
MAX_INDEX_BYTES: Final = 128 << 20


class OpenSegments:
    """A bound on how many segments keep their files open for reading; one log has it, or many share it."""

    def __init__(self, max_segments: int) -> None:
        self._max_segments = max_segments
        self._open: OrderedDict[int, Opened] = OrderedDict()
        self._lock = threading.Lock()

    def opened(self, segment: Opened) -> None:
        """Note that a segment holds a file or an index open; the one that did so for longest is released."""
        with self._lock:
            self._open[id(segment)] = segment
            while len(self._open) > self._max_segments or (
                len(self._open) > 1 and sum(each.index_bytes for each in self._open.values()) > MAX_INDEX_BYTES
            ):
                self._open.popitem(last=False)[1].release()

    def forget(self, shared: object) -> None:
        """Release every segment of one log."""
        with self._lock:
            for key in [key for key, segment in self._open.items() if segment.shared is shared]:
                self._open.pop(key).release()


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What the logs of a store share."""

    source: TopicPartition
    open_segments: OpenSegments
    inherited: Callable[[], Checkpoint | None] = lambda: None
    """Returns what the checkpoints in the root say of the partition by now; a broker goes on writing them."""
    has_topic: Callable[[], bool] = lambda: True
    """Tells whether the topic is still there, for a reader that finds its directory gone."""
    cleaned: int = 0
    """Up to where a broker's checkpoint, or ours for one, says that a partition was compacted: advice."""
    maintenance: Maintenance | None = None
    """The thread that syncs the logs."""
