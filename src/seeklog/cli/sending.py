"""Sends records, and knows how many of them are written.

Futures are looked at in windows: while one window is on its way, the one before is settled. So memory is bounded, an
error is found soon, and the count is exact also where something fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from seeklog.clock import SystemClock
from seeklog.errors import SeeklogError

if TYPE_CHECKING:
    from seeklog.cli.show.record_json import Draft
    from seeklog.clients.producer import SendFuture

WINDOW: Final = 5000
# A sleep is not much shorter than this, however short it was meant.
NAP_S: Final = 0.005


class Sending:
    """Records on their way, not more than `rate` a second."""

    def __init__(self, send: Callable[[Draft], SendFuture], *, rate: float | None = None) -> None:
        self.written = 0
        self._send = send
        self._sent: deque[SendFuture] = deque()
        """Whose fate is not known yet. One goes out when it is: Ctrl-C may come at any moment."""
        self._rate = rate
        self._clock = SystemClock()
        self._began = self._clock.monotonic()

    def send(self, draft: Draft) -> None:
        """Send a record; raises what was wrong with it or with one before it."""
        if self._rate is not None:
            ahead = self._began + (self.written + len(self._sent)) / self._rate - self._clock.monotonic()
            if ahead > NAP_S:
                self._clock.sleep(ahead)
        self._sent.append(self._send(draft))
        if len(self._sent) >= 2 * WINDOW:
            self.finish(left=WINDOW)

    def finish(self, *, left: int = 0) -> None:
        """Wait until all that was sent, but the last few, is written or has failed, and raise the first failure."""
        failure = self.settle(left=left)
        if failure is not None:
            raise failure

    def settle(self, *, left: int = 0) -> SeeklogError | None:
        """Wait until the fate of all that was sent, but the last few, is known, and return the first failure."""
        first: SeeklogError | None = None
        while len(self._sent) > left:
            failure = self._sent[0].exception()
            self._sent.popleft()
            if failure is None:
                self.written += 1
            else:
                first = first or failure
        return first
