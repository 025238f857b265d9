"""Which records of a topic a verb reads: partitions, a range in each, and what they must look like.

--from and --to take a place (see `times`) for all partitions, or `PARTITION:PLACE` for one. A range begins with the
record at its first place and ends before the one at its second. An offset that some partitions have and others do not
is the edge in the others; one that none has is refused.
"""

from __future__ import annotations

import heapq
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from seeklog import names
from seeklog.cli import options
from seeklog.cli.exits import NothingFound
from seeklog.cli.times import Place, parse_place
from seeklog.errors import OffsetOutOfRange, TopicNotFound, UsageError
from seeklog.names import TopicPartition
from seeklog.record.record import Record
from seeklog.store import Range

if TYPE_CHECKING:
    from seeklog.config import LogConfig
    from seeklog.log import LogReader
    from seeklog.store import Store

_FOR_ONE: Final = re.compile(r"(\d{1,9}):(.+)\Z", re.ASCII | re.DOTALL)
# Where nothing but one record at a time is to be passed on, so many are still looked at together.
CHUNK_RECORDS: Final = 1000

Wanted = Callable[[Record], bool]


@dataclass(frozen=True, slots=True)
class Ranges:
    """Where to read: the words of `--partition`, `--from` and `--to`."""

    partitions: Sequence[int] = ()
    starts: Sequence[str] = ()
    stops: Sequence[str] = ()

    def check(self, *, utc: bool) -> None:
        """Refuse words that are not places, before `find` is called."""
        self._places(utc)

    def find(self, store: Store, topic: str, *, utc: bool) -> list[Range]:
        """Return the range to read in each partition."""
        # Invalid words are refused before the store, which may be far away, is read.
        first, last = self._places(utc)
        numbers = chosen(store, topic, self.partitions)
        first.check(numbers)
        last.check(numbers)
        logs = {partition: store.log(topic, partition) for partition in numbers}
        begins = first.offsets(logs, topic)
        ends = last.offsets(logs, topic, beyond_is_end=True)
        return [Range(partition, log, begins[partition], ends[partition]) for partition, log in logs.items()]

    def _places(self, utc: bool) -> tuple[_Places, _Places]:
        return (
            _Places(self.starts, option="--from", otherwise=Place("start"), utc=utc),
            _Places(self.stops, option="--to", otherwise=Place("end"), utc=utc),
        )


ranges = options.together(
    "ranges",
    Ranges,
    options.partitions,
    click.option(
        "--from",
        "starts",
        multiple=True,
        metavar="PLACE",
        help="Where to begin: OFFSET, -N (before the end), start, end, @TIME; or P:PLACE for partition P alone.",
    ),
    click.option(
        "--to", "stops", multiple=True, metavar="PLACE", help="Where to end, before what is there; by default the end."
    ),
)


def chosen(store: Store, topic: str, wanted: Iterable[int]) -> list[int]:
    """Return the partitions of a topic that were asked for, all of them if none was."""
    there = store.topic(topic).partitions
    numbers = sorted(set(wanted)) or list(there)
    for number in numbers:
        if number not in there:
            # Where a broker has shared them out among several disks they need not be all.
            known = ", ".join(map(str, there[:12])) + (", …" if len(there) > 12 else "")
            raise TopicNotFound(f"topic {topic!r} has no partition {number}, only {known}")
    return numbers


def partitions_of(
    store: Store, topic: str | None, *, internal: Iterable[str] = (), wants: Callable[[LogConfig], bool] | None = None
) -> list[TopicPartition]:
    """Return the partitions of a topic, or of all topics that `wants` accepts; of internal ones only those named."""
    if topic is not None:
        chosen = [topic]
    else:
        hidden = names.INTERNAL_TOPICS - set(internal)
        there = [name for name in store.topics(internal=True) if name not in hidden]
        chosen = [name for name in there if wants is None or wants(store.topic(name).config)]
    return [TopicPartition(name, number) for name in chosen for number in store.topic(name).partitions]


def offsets_at(store: Store, topic: str, wanted: Iterable[int], place: Place) -> dict[int, int]:
    """Return the offset of a place in each of the partitions that were asked for, in all of them if none was.

    An offset means one record in one partition: where there are several, it takes one that is named.
    """
    numbers = chosen(store, topic, wanted)
    if place.kind == "offset" and len(numbers) > 1:
        raise UsageError(
            f"{topic} has {len(numbers)} partitions, each with an offset {place.number} of its own; "
            "say which with --partition, or give -N, start, end or @TIME"
        )
    found = {}
    for number in numbers:
        try:
            found[number] = place.offset_in(store.log(topic, number))
        except OffsetOutOfRange as error:
            raise NothingFound(
                f"{topic}-{number} has no offset {error.offset}; it has {error.log_start_offset} to "
                f"{error.log_end_offset}, the next to come"
            ) from error
    return found


class _Places:
    """Where ranges begin or end, by partition."""

    def __init__(self, words: Sequence[str], *, option: str, otherwise: Place, utc: bool) -> None:
        self._option = option
        self._of: dict[int | None, Place] = {}
        for word in words:
            one = _FOR_ONE.match(word)
            place = parse_place(one[2] if one else word, utc=utc)
            partition = int(one[1]) if one else None
            if partition in self._of:
                raise UsageError(f"{option} {word} is given twice")
            self._of[partition] = place
        self._others = self._of.pop(None, otherwise)

    def check(self, chosen: Iterable[int]) -> None:
        for partition in self._of.keys() - set(chosen):
            raise UsageError(f"{self._option} {partition}:… names a partition that is not read")

    def offsets(self, logs: dict[int, LogReader], topic: str, *, beyond_is_end: bool = False) -> dict[int, int]:
        found: dict[int, int] = {}
        misses: list[OffsetOutOfRange] = []
        for partition, log in logs.items():
            try:
                found[partition] = self._of.get(partition, self._others).offset_in(log)
            except OffsetOutOfRange as error:
                is_beyond = error.offset > error.log_end_offset
                found[partition] = error.log_end_offset if is_beyond else error.log_start_offset
                if beyond_is_end and is_beyond:
                    continue
                missed = OffsetOutOfRange(
                    error.offset,
                    log_start_offset=error.log_start_offset,
                    log_end_offset=error.log_end_offset,
                    what=f"{topic}-{partition}: offset",
                )
                if partition in self._of:
                    raise missed from None
                misses.append(missed)
        if misses and len(misses) == len(logs):
            raise misses[0]
        return found


def scan(
    ranges: Sequence[Range], *, wanted: Wanted | None = None, limit: int | None = None, by_time: bool = False
) -> Iterator[list[Record]]:
    """Yield the wanted records in lists: partition by partition, or by their times.

    By time, records of one partition still come in the order of their offsets.
    """
    if by_time and len(ranges) > 1:
        streams = [itertools.chain.from_iterable(_chunks(each)) for each in ranges]
        merged = heapq.merge(*streams, key=lambda record: record.timestamp_ms or 0)
        chunks = iter(lambda: list(itertools.islice(merged, CHUNK_RECORDS)), [])
    else:
        chunks = itertools.chain.from_iterable(map(_chunks, ranges))
    left = limit
    if left == 0:
        return
    for chunk in chunks:
        kept = chunk if wanted is None else [record for record in chunk if wanted(record)]
        if left is not None:
            kept = kept[:left]
            left -= len(kept)
        if kept:
            yield kept
        if left == 0:
            return


def _chunks(each: Range) -> Iterator[list[Record]]:
    return each.log.scan_chunks(each.start, each.stop) if each.start < each.stop else iter(())


def last_records(ranges: Sequence[Range], *, wanted: Wanted | None, limit: int) -> list[Record]:
    """Return the newest wanted records of all ranges together, oldest first."""
    found: list[Record] = []
    for each in ranges:
        if each.start < each.stop:
            backwards = each.log.scan_reverse(each.start, each.stop)
            kept = list(itertools.islice((one for one in backwards if wanted is None or wanted(one)), limit))
            found = list(heapq.merge(found, reversed(kept), key=lambda record: record.timestamp_ms or 0))
    return found[-limit:] if limit else []
