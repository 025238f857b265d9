"""How much of a stream's backlog one batch gets. The rules are those of Spark's Kafka source, and bytes beside them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, TypeVar

from seeklog.clock import Clock
from seeklog.names import TopicPartition
from seeklog.spark.read.offsets import Range

Key = TypeVar("Key", bound=Hashable)

# Looking takes a fifth of an idle stream's time at most, and what comes is seen after a second at the latest.
IDLE_FACTOR: Final = 4
IDLE_MOST_S: Final = 1.0


def shares(sizes: Mapping[Key, int], most: int) -> dict[Key, int]:
    """Share `most` out in proportion to sizes: one at least to each, so that small ones are not starved."""
    total = sum(sizes.values())
    return {key: max(1, most * size // total) if total else size for key, size in sizes.items()}


def within_offsets(backlog: Sequence[Range], most: int) -> list[Range]:
    """Return the part of a backlog that is `most` offsets long, shared out over its partitions."""
    share = shares({one.partition: one.stop - one.start for one in backlog}, most)
    return [one._replace(stop=min(one.stop, one.start + share[one.partition])) for one in backlog]


def within_bytes(
    backlog: Sequence[Range],
    most: int,
    *,
    size_of: Callable[[Range], int],
    cut: Callable[[Range, int], int],
) -> list[Range]:
    """Return the part of a backlog that takes about `most` bytes of log; of each partition a batch at least."""
    share = shares({one.partition: size_of(one) for one in backlog}, most)
    return [one._replace(stop=cut(one, max(1, share[one.partition]))) for one in backlog]


def shorter(first: Sequence[Range], second: Sequence[Range]) -> list[Range]:
    """Return of two parts of one backlog, for each partition, the one that ends earlier."""
    stops: dict[TopicPartition, int] = {one.partition: one.stop for one in second}
    return [one._replace(stop=min(one.stop, stops[one.partition])) for one in first]


class Patience:
    """Lets a backlog wait until it is worth a batch, or has waited long enough. The first one does not wait."""

    def __init__(self, least: int, *, delay_ms: int, clock: Clock) -> None:
        self._least = least
        self._delay_s = delay_ms / 1000
        self._clock = clock
        self._last_s: float | None = None

    def is_over(self, count: int) -> bool:
        """Tell whether a backlog of `count` offsets should be read now; if so, the wait begins anew."""
        now_s = self._clock.monotonic()
        if self._last_s is not None and count < self._least and now_s - self._last_s < self._delay_s:
            return False
        self._last_s = now_s
        return True


class Pace:
    """Lets an idle stream look less often the longer a look takes.

    Spark asks a hundred times a second. It must not be answered without a look, or a caller that waits until all
    is processed would not wait for what it has just written: so the look itself is put off.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_s = 0.0
        self._next_s: float | None = None

    def begin(self) -> None:
        """Wait until it is time to look."""
        if self._next_s is not None:
            self._clock.sleep(max(0.0, self._next_s - self._clock.monotonic()))
        self._began_s = self._clock.monotonic()

    def end(self, *, is_idle: bool) -> None:
        """Note that the look has ended, and whether there was nothing to read."""
        now_s = self._clock.monotonic()
        self._next_s = now_s + min(IDLE_MOST_S, IDLE_FACTOR * (now_s - self._began_s)) if is_idle else None
