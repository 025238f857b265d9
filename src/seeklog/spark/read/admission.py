"""The part of a stream's backlog that one batch reads, by the rules of Spark's Kafka source plus byte limits."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, TypeVar

from seeklog.clock import Clock
from seeklog.spark.read.offsets import Range

Key = TypeVar("Key", bound=Hashable)

# Polling takes at most a fifth of an idle stream's time, and finds new records within a second.
IDLE_FACTOR: Final = 4
MAX_IDLE_S: Final = 1.0


def shares(sizes: Mapping[Key, int], maximum: int) -> dict[Key, int]:
    """Divide an amount in proportion to sizes, at least one for each, so that small partitions are not starved."""
    total = sum(sizes.values())
    return {key: max(1, maximum * size // total) if total else size for key, size in sizes.items()}


def within(
    backlog: Sequence[Range],
    maximum: int,
    *,
    size_of: Callable[[Range], int] = lambda part: part.length,
    cut: Callable[[Range, int], int] = lambda part, share: part.start + share,
) -> list[Range]:
    """Return the part of a backlog of about `maximum` offsets or bytes, divided among its partitions.

    `cut` returns the offset at which a range with its share ends.
    """
    share = shares({part.partition: size_of(part) for part in backlog}, maximum)
    return [part._replace(stop=min(part.stop, cut(part, max(1, share[part.partition])))) for part in backlog]


def shorter(first: Sequence[Range], second: Sequence[Range]) -> list[Range]:
    """Return the range of each partition that ends earlier, out of two parts of one backlog."""
    return [min(pair, key=lambda part: part.stop) for pair in zip(first, second, strict=True)]


class TriggerDelay:
    """Delays a batch until its backlog is large enough, or a time has passed. The first batch is not delayed."""

    def __init__(self, minimum: int, *, delay_ms: int, clock: Clock) -> None:
        self._minimum = minimum
        self._delay_s = delay_ms / 1000
        self._clock = clock
        self._last_s: float | None = None

    def is_over(self, count: int) -> bool:
        """Return whether to read a backlog of `count` offsets now; if so, start the next wait."""
        now_s = self._clock.monotonic()
        if self._last_s is not None and count < self._minimum and now_s - self._last_s < self._delay_s:
            return False
        self._last_s = now_s
        return True


class Pace:
    """Makes an idle stream poll less often, the longer a poll takes.

    Spark polls a hundred times a second. Repeating the last answer would be wrong for a caller that waits until the
    records it has just written are processed, so the poll itself is delayed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_s = 0.0
        self._next_s: float | None = None

    def begin(self) -> None:
        """Wait until the next poll is due."""
        if self._next_s is not None:
            self._clock.sleep(max(0.0, self._next_s - self._clock.monotonic()))
        self._began_s = self._clock.monotonic()

    def end(self, *, is_idle: bool) -> None:
        """Record the end of a poll, and whether it found nothing to read."""
        now_s = self._clock.monotonic()
        self._next_s = now_s + min(MAX_IDLE_S, IDLE_FACTOR * (now_s - self._began_s)) if is_idle else None
