"""Sends records with a producer, and knows how many of them are written.

Futures are looked at in windows: while one window is on its way, the one before is settled. So memory is bounded, an
error is found soon, and the count is exact also where something fails.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from seeklog.clock import Clock, SystemClock
from seeklog.errors import SeeklogError

if TYPE_CHECKING:
    from seeklog.cli.show.record_json import Draft
    from seeklog.clients.producer import Producer, SendFuture

WINDOW: Final = 5000
# A sleep is not much shorter than this, however short it was meant.
NAP_S: Final = 0.005


class Sending:
    """Records on their way to one topic."""

    def __init__(
        self, producer: Producer, topic: str, *, partition: int | None, keep_partition: bool, rate: float | None
    ) -> None:
        self.written = 0
        self.failure: SeeklogError | None = None
        self._producer = producer
        self._topic = topic
        self._partition = partition
        self._keep_partition = keep_partition
        self._sent: deque[SendFuture] = deque()
        """Whose fate is not known yet. One goes out when it is: Ctrl-C may come at any moment."""
        self._pace = None if rate is None else _Pace(rate, SystemClock())

    def send(self, draft: Draft) -> None:
        """Send a record; raises what was wrong with it or with one before it."""
        if self._pace is not None:
            self._pace.wait()
        self._sent.append(
            self._producer.send(
                self._topic,
                draft.value,
                key=draft.key,
                headers=draft.headers,
                timestamp_ms=draft.timestamp_ms,
                partition=draft.partition if self._keep_partition else self._partition,
            )
        )
        if len(self._sent) >= 2 * WINDOW:
            self._settle(left=WINDOW)
            self._raise_failure()

    def finish(self) -> None:
        """Wait until all that was sent is written or has failed, and raise the first failure."""
        self.settle()
        self._raise_failure()

    def settle(self) -> None:
        """Wait until the fate of all that was sent is known, and keep it."""
        self._settle(left=0)

    def _settle(self, *, left: int) -> None:
        while len(self._sent) > left:
            failure = self._sent[0].exception()
            self._sent.popleft()
            if failure is None:
                self.written += 1
            else:
                self.failure = self.failure or failure

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure


class _Pace:
    """Lets so many a second through."""

    def __init__(self, rate: float, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._began = clock.monotonic()
        self._passed = 0

    def wait(self) -> None:
        ahead = self._began + self._passed / self._rate - self._clock.monotonic()
        if ahead > NAP_S:
            self._clock.sleep(ahead)
        self._passed += 1
