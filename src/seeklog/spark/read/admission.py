"""How much of a stream's backlog one batch gets. The rules are those of Spark's Kafka source, and bytes beside them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, TypeVar

from seeklog.clock import Clock
from seeklog.spark.read.offsets import Range

Key = TypeVar("Key", bound=Hashable)

# Looks take at most a fifth of an idle stream's time, and new records are seen after a second at the latest.
IDLE_FACTOR: Final = 4
MAX_IDLE_S: Final = 1.0


def shares(sizes: Mapping[Key, int], maximum: int) -> dict[Key, int]:
    """Share an amount out in proportion to sizes: one at least to each, so that small ones are not starved."""
    total = sum(sizes.values())
    return {key: max(1, maximum * size // total) if total else size for key, size in sizes.items()}


def within(
    backlog: Sequence[Range],
    maximum: int,
    *,
    size_of: Callable[[Range], int] = lambda each: each.length,
    cut: Callable[[Range, int], int] = lambda each, share: each.start + share,
) -> list[Range]:
    """Return the part of a backlog that has about a size, shared out over its partitions; sizes are offsets or bytes.

    `cut` returns where a range ends that has its share.
    """
    share = shares({each.partition: size_of(each) for each in backlog}, maximum)
    return [each._replace(stop=min(each.stop, cut(each, max(1, share[each.partition])))) for each in backlog]


def shorter(first: Sequence[Range], second: Sequence[Range]) -> list[Range]:
    """Return of two parts of one backlog, for each partition, the part that ends earlier."""
    return [min(pair, key=lambda each: each.stop) for pair in zip(first, second, strict=True)]


class Patience:
    """Lets a backlog wait until it is worth a batch, or has waited long enough. The first batch does not wait."""

    def __init__(self, minimum: int, *, delay_ms: int, clock: Clock) -> None:
        self._minimum = minimum
        self._delay_s = delay_ms / 1000
        self._clock = clock
        self._last_s: float | None = None

    def is_over(self, count: int) -> bool:
        """Tell whether a backlog of `count` offsets should be read now; if so, the next wait begins."""
        now_s = self._clock.monotonic()
        if self._last_s is not None and count < self._minimum and now_s - self._last_s < self._delay_s:
            return False
        self._last_s = now_s
        return True


class Pace:
    """Lets an idle stream look less often the longer a look takes.

    Spark asks a hundred times a second. An answer without a look would be wrong for a caller that waits until all that
    it has just written is processed: so the look itself is put off.
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
        self._next_s = now_s + min(MAX_IDLE_S, IDLE_FACTOR * (now_s - self._began_s)) if is_idle else None
