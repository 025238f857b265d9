"""A cache of file ranges that are expensive to fetch, with read-ahead for sequential readers.

A window is a run of bytes of one file. A read inside a window needs no request. A read at the end of one fetches more
than requested, twice as much each time, so a scan soon makes few, large requests. A read elsewhere fetches little more
than requested: the range between two index entries, and the next batch. The total size of all windows is bounded; the
least recently used window is dropped first. The files must not change.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

# A random read: an index interval and a batch, or several small reads. A request costs as much as this many bytes.
FIRST_BYTES = 32 << 10
# Larger sequential requests gain nothing: their cost is in the bytes.
MAX_AHEAD_BYTES = 4 << 20
# Bytes before the current position that stay in a window, for a reader that goes back to verify.
KEPT_BEHIND = 64 << 10
MAX_TOTAL_BYTES = 64 << 20

Fetch = Callable[[str, int, int], bytes]
"""Returns a file's bytes in [start, stop); fewer only at the end of the file."""


class _Window:
    """A run of bytes of one file, and the size of its last request."""

    __slots__ = ("ahead", "data", "is_last", "path", "start")

    def __init__(self, path: str, start: int, data: bytes, *, ahead: int, is_last: bool) -> None:
        self.path = path
        self.start = start
        self.data = data
        self.ahead = ahead
        self.is_last = is_last
        """Whether the window ends at the end of the file."""

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class ReadAhead:
    """Reads through windows. Thread-safe; a thread never waits for another thread's request."""

    def __init__(self, fetch: Fetch, *, max_total_bytes: int = MAX_TOTAL_BYTES) -> None:
        self._fetch = fetch
        self._max_total_bytes = max_total_bytes
        self._lock = threading.Lock()
        self._windows: dict[str, list[_Window]] = {}
        # Least recently used first.
        self._order: OrderedDict[_Window, None] = OrderedDict()
        self.total = 0
        """Bytes in all windows."""

    def read(self, path: str, size: int, position: int, *, file_size: int | None) -> bytes:
        """Return up to `size` bytes at `position`; fewer only at the end of the file, whose size may be unknown."""
        end = position + size if file_size is None else min(position + size, file_size)
        if end <= position:
            return b""
        with self._lock:
            window = self._find(path, position)
            if window is not None:
                self._order.move_to_end(window)
                if end <= window.end or window.is_last:
                    return window.data[position - window.start : end - window.start]
        start, ahead = (
            (position, FIRST_BYTES) if window is None else (window.end, min(2 * window.ahead, MAX_AHEAD_BYTES))
        )
        stop = max(end, start + ahead)
        if file_size is not None:
            stop = min(stop, file_size)
        fetched = self._fetch(path, start, stop)
        first = position if window is None else max(window.start, position - KEPT_BEHIND)
        data = fetched if window is None else window.data[first - window.start :] + fetched
        is_last = start + len(fetched) < stop or stop == file_size
        with self._lock:
            if window is not None:
                self._drop(window)
            self._keep(_Window(path, first, data, ahead=stop - start, is_last=is_last))
        return data[position - first : end - first]

    def _find(self, path: str, position: int) -> _Window | None:
        """Return the window that contains a position, or that ends there."""
        for window in self._windows.get(path, ()):
            if window.start <= position <= window.end:
                return window
        return None

    def _keep(self, window: _Window) -> None:
        self._windows.setdefault(window.path, []).append(window)
        self._order[window] = None
        self.total += len(window.data)
        while self.total > self._max_total_bytes and len(self._order) > 1:
            self._drop(next(iter(self._order)))

    def _drop(self, window: _Window) -> None:
        # Another thread may have dropped or replaced it.
        if window in self._order:
            del self._order[window]
            self.total -= len(window.data)
            self._windows[window.path].remove(window)
            if not self._windows[window.path]:
                del self._windows[window.path]
