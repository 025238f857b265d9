"""Jepsen's rules for logs, applied to a history of acknowledgements and reads.

lost            an acknowledged record that a reader passed without seeing it
duplicate       one record at two offsets
inconsistent    two records at one offset
reordered       a record before another that was acknowledged before the first was sent
non-monotonic   a reader that went back
stale           a reader that stopped before a record acknowledged when it began
invented        a record that no writer sent
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple


class Identity(NamedTuple):
    """Identifies a record: the `number`th of a writer."""

    writer: int
    number: int


@dataclass(frozen=True, slots=True)
class Sent:
    """A record that was acknowledged."""

    place: str
    """The partition."""
    identity: Identity
    offset: int
    key: bytes
    began: float
    """When it was sent, by a clock that all processes share."""
    ended: float
    """When it was acknowledged."""


@dataclass(slots=True)
class Reading:
    """One read of a partition, from an offset to another."""

    reader: str
    place: str
    began: float
    start: int
    end: int = 0
    """The offset after the last one that it had to see."""
    ended: float = 0.0
    seen: list[tuple[int, Identity]] = field(default_factory=list)
    gone: list[range] = field(default_factory=list)
    """Offsets that retention deleted before they were read; the reader got an error."""
    is_whole: bool = True
    """Whether it had to see every record; a copy may lack some."""


@dataclass(slots=True)
class History:
    """The events of all processes."""

    sent: list[Sent] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)

    def add(self, other: History) -> None:
        self.sent.extend(other.sent)
        self.readings.extend(other.readings)


def check(history: History, *, compacted: Iterable[str] = ()) -> Iterator[str]:
    """Yield each anomaly as one line. A compacted partition may lack a record whose key has a later one."""
    compacts = set(compacted)
    sent_to: dict[str, list[Sent]] = defaultdict(list)
    for sent in history.sent:
        sent_to[sent.place].append(sent)
    readings_of: dict[str, list[Reading]] = defaultdict(list)
    for reading in history.readings:
        readings_of[reading.place].append(reading)
    for place in sorted({*sent_to, *readings_of}):
        acknowledged = sorted(sent_to[place], key=lambda sent: sent.offset)
        yield from _check_identities(place, acknowledged, readings_of[place])
        yield from _check_order(place, acknowledged)
        yield from _check_steps(place, readings_of[place])
        yield from _check_losses(place, acknowledged, readings_of[place], is_compacted=place in compacts)


def _check_identities(place: str, acknowledged: list[Sent], readings: list[Reading]) -> Iterator[str]:
    at_offset: dict[int, Identity] = {}
    offset_of: dict[Identity, int] = {}

    def meet(offset: int, identity: Identity, who: str) -> Iterator[str]:
        if at_offset.setdefault(offset, identity) != identity:
            yield f"{place}: inconsistent: offset {offset} held {at_offset[offset]} and, for {who}, {identity}"
        if offset_of.setdefault(identity, offset) != offset:
            yield f"{place}: duplicate: {identity} is at {offset_of[identity]} and, for {who}, at {offset}"

    for sent in acknowledged:
        yield from meet(sent.offset, sent.identity, "its writer")
    known = set(offset_of)
    for reading in readings:
        for offset, identity in reading.seen:
            if identity not in known:
                yield f"{place}: invented: {reading.reader} saw {identity} at {offset}, which was never acknowledged"
            yield from meet(offset, identity, reading.reader)


def _check_order(place: str, acknowledged: list[Sent]) -> Iterator[str]:
    """A record acknowledged before another was sent must come before it."""
    earliest: Sent | None = None
    for sent in reversed(acknowledged):
        if earliest is not None and earliest.ended < sent.began:
            yield f"{place}: reordered: {earliest.identity} at {earliest.offset} came before {sent.identity} was sent"
        if earliest is None or sent.ended < earliest.ended:
            earliest = sent
    last: dict[int, Sent] = {}
    for sent in acknowledged:
        before = last.get(sent.identity.writer)
        if before is not None and before.identity.number > sent.identity.number:
            yield f"{place}: reordered: {sent.identity} at {sent.offset} after {before.identity} at {before.offset}"
        last[sent.identity.writer] = sent


def _check_steps(place: str, readings: list[Reading]) -> Iterator[str]:
    for reading in readings:
        for (before, _), (after, _) in pairwise(reading.seen):
            if after <= before:
                yield f"{place}: non-monotonic: {reading.reader} saw {after} after {before}"
    by_reader: dict[str, list[Reading]] = defaultdict(list)
    for reading in readings:
        by_reader[reading.reader].append(reading)
    for reader, each in by_reader.items():
        for earlier, later in pairwise(sorted(each, key=lambda reading: reading.began)):
            if later.end < earlier.end or later.start < earlier.start:
                steps = f"from {earlier.start}-{earlier.end} to {later.start}-{later.end}"
                yield f"{place}: non-monotonic: for {reader} the log went {steps}"


def _check_losses(
    place: str, acknowledged: list[Sent], readings: list[Reading], *, is_compacted: bool
) -> Iterator[str]:
    superseded_at: dict[int, float] = {}
    """By offset: when the first later record with the same key was sent."""
    earliest: dict[bytes, float] = {}
    for sent in reversed(acknowledged):
        superseded_at[sent.offset] = earliest.get(sent.key, math.inf)
        earliest[sent.key] = min(sent.began, superseded_at[sent.offset])

    offsets = [sent.offset for sent in acknowledged]
    for reading in readings:
        if not reading.is_whole:
            continue
        first, behind = bisect_left(offsets, reading.start), bisect_left(offsets, reading.end)
        # Checking the next record is enough: those after it were acknowledged later.
        for sent in acknowledged[behind : behind + 1]:
            if sent.ended < reading.began:
                yield f"{place}: stale: {reading.reader} stopped at {reading.end} after {sent.offset} was acknowledged"
        seen = {offset for offset, _ in reading.seen}
        for sent in acknowledged[first:behind]:
            if sent.offset in seen or any(sent.offset in gone for gone in reading.gone):
                continue
            if not (is_compacted and superseded_at[sent.offset] < reading.ended):
                yield f"{place}: lost: {reading.reader} passed {sent.offset} without seeing {sent.identity}"
