"""The acknowledged records of a ping-pong, compared with the records in the directory.

Each record has a unique number, and the history has its acknowledged offset. A record that was sent and not
acknowledged before a kill may exist or not, but only once, and after all acknowledged records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from soak.ledger import T, WrongAnswer, check_value, key_of

KEPT: Final = ("kept-0", "kept-1")
COMPACTED: Final = "compacted-0"
TRIMMED: Final = "trimmed-0"
PLACES: Final = (*KEPT, COMPACTED, TRIMMED)
GROUP: Final = "readers"


class Seen(NamedTuple):
    """A record that was read."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass
class History:
    """By partition: the number at each offset, the deleted offsets, and the unacknowledged numbers."""

    numbers: dict[str, dict[int, int]] = field(default_factory=lambda: {place: {} for place in PLACES})
    starts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PLACES, 0))
    maybe: dict[str, list[int]] = field(default_factory=lambda: {place: [] for place in PLACES})
    groups: dict[str, int] = field(default_factory=dict)
    next_number: int = 0
    checked: int = 0
    adopted: list[tuple[str, int, int]] = field(default_factory=list)
    """Records that nobody acknowledged and that are there: partition, offset, number."""

    # ------------------------------------------------------------ taking note

    def number(self) -> int:
        self.next_number += 1
        return self.next_number - 1

    def acknowledge(self, place: str, offset: int, number: int) -> None:
        """Record an acknowledgement. Raises `WrongAnswer` if the offset was acknowledged before."""
        known = self.numbers[place]
        if offset in known:
            raise WrongAnswer(f"{place}: offset {offset} was given to {known[offset]}, and now to {number}")
        known[offset] = number

    @property
    def record_count(self) -> int:
        return sum(map(len, self.numbers.values()))

    def end(self, place: str) -> int:
        return max(self.numbers[place], default=-1) + 1

    # ------------------------------------------------------------ holding against it

    def check(self, place: str, found: Iterable[Seen], *, start: int, end: int) -> None:
        """Compare all records of a partition with the history, and adopt unacknowledged ones."""
        known, last = self.numbers[place], -1
        newest: dict[bytes | None, int] = {}
        seen: set[int] = set()
        for record in found:
            if record.offset <= last:
                raise WrongAnswer(f"{place}: offset {record.offset} after {last}")
            last = record.offset
            fields = check_value(record.value)
            if f"{fields.topic}-{fields.partition}" != place:
                raise WrongAnswer(f"{place}: offset {record.offset} has {fields}")
            if known.get(record.offset, fields.number) != fields.number:
                raise WrongAnswer(f"{place}: offset {record.offset} has {fields.number}, not {known[record.offset]}")
            if record.offset not in known:
                self._adopt(place, record.offset, fields.number)
            if (record.key, record.timestamp_ms) != (key_of(fields.number), T + fields.number):
                raise WrongAnswer(f"{place}: {record.offset}: {record.key!r} {record.timestamp_ms}")
            newest[record.key] = record.offset
            seen.add(record.offset)
        self.maybe[place] = []
        expected = {offset for offset in known if offset >= self.starts[place]}
        if place == COMPACTED:
            expected = set({key_of(number): offset for offset, number in sorted(known.items())}.values())
        lost = sorted(expected - seen)
        if lost:
            raise WrongAnswer(f"{place}: {len(lost)} records are lost, the first at {lost[0]}, the last at {lost[-1]}")
        early = [offset for offset in seen if offset < self.starts[place]]
        if early or start < self.starts[place]:
            raise WrongAnswer(f"{place}: the start is {start}, not {self.starts[place]}: {early[:3]} are shown")
        if end < self.end(place):
            raise WrongAnswer(f"{place}: the end is {end}, offsets up to {self.end(place) - 1} were given")
        self.checked += len(seen)

    def _adopt(self, place: str, offset: int, number: int) -> None:
        if number not in self.maybe[place] or offset < self.end(place):
            raise WrongAnswer(f"{place}: nobody has written {number} at offset {offset}")
        self.adopt(place, offset, number)

    def adopt(self, place: str, offset: int, number: int) -> None:
        """Add an unacknowledged record to the history."""
        self.maybe[place].remove(number)
        self.acknowledge(place, offset, number)
        self.adopted.append((place, offset, number))

    # ------------------------------------------------------------ between processes

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> History:
        decoded = json.loads(path.read_text())
        decoded["numbers"] = {
            place: {int(offset): number for offset, number in known.items()}
            for place, known in decoded["numbers"].items()
        }
        return cls(**decoded)
