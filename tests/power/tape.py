"""The tape: the possible disks after a power loss at any moment.

Writes before the last flush are durable. Any part of the later writes may survive, because a disk writes its cache back
in any order, sector by sector.
"""

from __future__ import annotations

import bisect
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from power.device import EVENT, FLUSH

if TYPE_CHECKING:
    import random
    from pathlib import Path

SECTOR_SIZE: Final = 512


@dataclass(frozen=True, slots=True)
class Event:
    """One request to the disk."""

    is_flush: bool
    position: int
    data: bytes
    end: int
    """The size of the tape when it was done."""


@dataclass(frozen=True, slots=True)
class Loss:
    """The parts of unflushed writes that survive a power loss."""

    moment: int
    """So many events were before it."""
    durable: int
    """The number of events up to the last flush."""
    kept: tuple[int, ...]
    """The events since then that reached the disk whole."""
    torn: int | None = None
    """One of which only some sectors did."""
    sectors: tuple[int, ...] = ()

    def __str__(self) -> str:
        pending = self.moment - self.durable
        torn = "" if self.torn is None else f", sectors {list(self.sectors)} of write {self.torn}"
        return f"event {self.moment}, {len(self.kept)} of {pending} writes since the flush{torn}"


class Tape:
    """Every event of one recording."""

    def __init__(self, path: Path) -> None:
        content = path.read_bytes()
        self.events: list[Event] = []
        at = 0
        while at < len(content):
            kind, position, size = EVENT.unpack_from(content, at)
            at += EVENT.size + size
            self.events.append(Event(kind == FLUSH, position, content[at - size : at], at))
        self._ends = [event.end for event in self.events]
        self._flushes = [number for number, event in enumerate(self.events) if event.is_flush]

    def moment(self, size: int) -> int:
        """Return the number of events when the tape had this size."""
        return bisect.bisect_right(self._ends, size)

    def flushed(self, moment: int) -> int:
        """Return the number of events that are durable at a moment."""
        before = bisect.bisect_left(self._flushes, moment)
        return self._flushes[before - 1] + 1 if before else 0

    def draw_loss(self, moment: int, *, chance: random.Random) -> Loss:
        """Choose a random state after a power loss at this moment."""
        durable = self.flushed(moment)
        pending = [number for number in range(durable, moment) if not self.events[number].is_flush]
        way = chance.choice(("nothing", "all", "prefix", "all but one", "some", "few", "torn"))
        if way == "nothing" or not pending:
            return Loss(moment, durable, ())
        if way == "all":
            return Loss(moment, durable, tuple(pending))
        if way == "prefix":
            return Loss(moment, durable, tuple(pending[: chance.randrange(len(pending))]))
        if way == "all but one":
            left_out = chance.choice(pending)
            return Loss(moment, durable, tuple(number for number in pending if number != left_out))
        likelihood = 0.15 if way == "few" else 0.5
        kept = [number for number in pending if chance.random() < likelihood]
        if way != "torn":
            return Loss(moment, durable, tuple(kept))
        torn = chance.choice(pending)
        count = -(-len(self.events[torn].data) // SECTOR_SIZE)
        sectors = tuple(number for number in range(count) if chance.random() < 0.5)
        return Loss(moment, durable, tuple(number for number in kept if number != torn), torn, sectors)

    def apply_loss(self, image: int, loss: Loss) -> None:
        """Write the surviving parts to an open image that has all durable events."""
        for number in sorted({*loss.kept} | ({loss.torn} if loss.torn is not None else set())):
            event = self.events[number]
            if number != loss.torn:
                os.pwrite(image, event.data, event.position)
                continue
            for sector in loss.sectors:
                start = sector * SECTOR_SIZE
                os.pwrite(image, event.data[start : start + SECTOR_SIZE], event.position + start)

    def apply_durable(self, image: int, *, first: int, end: int) -> None:
        """Write these events completely to an open image."""
        for event in self.events[first:end]:
            if not event.is_flush:
                os.pwrite(image, event.data, event.position)
