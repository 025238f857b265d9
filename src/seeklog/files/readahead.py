"""Parts of files that are dear to ask for, kept in memory; and read ahead of a reader that goes forward.

A window is a run of bytes of one file. A read inside of one asks nobody. A read at the end of one asks for more than is
wanted, twice as much each time, so a scan soon has few requests and large ones. A read elsewhere asks for little more
than it wants: what lies between two index entries, and the batch behind them. All windows together are bounded; the one
that was left alone for longest goes first. The files must not change.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

# A read out of order: an index interval and a batch, or several small ones. A request costs as much as so many bytes.
FIRST_BYTES = 32 << 10
# Where requests follow each other, larger ones than this gain nothing: their cost is in the bytes by then.
MAX_AHEAD_BYTES = 4 << 20
# What a reader leaves behind it in a window, for one that goes back to prove what it has found.
KEPT_BEHIND = 64 << 10
MAX_TOTAL_BYTES = 64 << 20

Fetch = Callable[[str, int, int], bytes]
"""Asked for a file's bytes in [start, stop); fewer come only at the end of the file."""


class _Window:
    """A run of bytes of one file, and how many were asked for when it was last lengthened."""

    __slots__ = ("ahead", "data", "is_last", "path", "start")

    def __init__(self, path: str, start: int, data: bytes, *, ahead: int, is_last: bool) -> None:
        self.path = path
        self.start = start
        self.data = data
        self.ahead = ahead
        self.is_last = is_last
        """Whether the file ends with it."""

    @property
    def end(self) -> int:
        return self.start + len(self.data)


class ReadAhead:
    """Reads through windows. Any thread may call anything; none waits for another's request."""

    def __init__(self, fetch: Fetch, *, max_total_bytes: int = MAX_TOTAL_BYTES) -> None:
        self._fetch = fetch
        self._max_total_bytes = max_total_bytes
        self._lock = threading.Lock()
        self._windows: dict[str, list[_Window]] = {}
        # The one that was left alone for longest first.
        self._order: OrderedDict[_Window, None] = OrderedDict()
        self.total = 0
        """How many bytes are kept."""

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
        """Return the window that holds a position, or that ends there."""
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
        # Another thread may have done it, or have put a longer one in its place.
        if window in self._order:
            del self._order[window]
            self.total -= len(window.data)
            self._windows[window.path].remove(window)
            if not self._windows[window.path]:
                del self._windows[window.path]
