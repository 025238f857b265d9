"""The records of a topic that a command reads: partitions, and a range of offsets in each.

--from and --to take a point (see `times`) for all partitions, or `PARTITION:POINT` for one partition. A range includes
its first point and excludes its second. If only some partitions have an offset, it is clamped to the start or the end
of the others; if no partition has it, it is refused.
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
from seeklog.cli.times import Point, parse_point
from seeklog.errors import OffsetOutOfRange, TopicNotFound, UsageError
from seeklog.names import TopicPartition
from seeklog.record.record import Record
from seeklog.store import Range

if TYPE_CHECKING:
    from seeklog.config import LogConfig
    from seeklog.log import LogReader
    from seeklog.store import Store

_FOR_PARTITION: Final = re.compile(r"(\d{1,9}):(.+)\Z", re.ASCII | re.DOTALL)
# Records merged by time are passed on in lists of this length.
CHUNK_RECORDS: Final = 1000

Wanted = Callable[[Record], bool]


@dataclass(frozen=True, slots=True)
class Ranges:
    """The values of `--partition`, `--from` and `--to`."""

    partitions: Sequence[int] = ()
    starts: Sequence[str] = ()
    stops: Sequence[str] = ()

    def check(self, *, utc: bool) -> None:
        """Raise `UsageError` for invalid points, without a store."""
        self._points(utc)

    def find(self, store: Store, topic: str, *, utc: bool) -> list[Range]:
        """Return the range to read in each partition."""
        # Parsed first, because reading a remote store takes time.
        first, last = self._points(utc)
        numbers = chosen(store, topic, self.partitions)
        first.check(numbers)
        last.check(numbers)
        logs = {partition: store.log(topic, partition) for partition in numbers}
        begins = first.offsets(logs, topic)
        ends = last.offsets(logs, topic, beyond_is_end=True)
        return [Range(partition, log, begins[partition], ends[partition]) for partition, log in logs.items()]

    def _points(self, utc: bool) -> tuple[_Points, _Points]:
        return (
            _Points(self.starts, option="--from", default=Point("start"), utc=utc),
            _Points(self.stops, option="--to", default=Point("end"), utc=utc),
        )


ranges = options.together(
    "ranges",
    Ranges,
    options.partitions,
    click.option(
        "--from",
        "starts",
        multiple=True,
        metavar="POINT",
        help="First record: OFFSET, -N (before the end), start, end or @TIME; P:POINT for partition P only.",
    ),
    click.option(
        "--to",
        "stops",
        multiple=True,
        metavar="POINT",
        help="Stop before this point, given as in --from. Default: end.",
    ),
)


def chosen(store: Store, topic: str, wanted: Iterable[int]) -> list[int]:
    """Return the wanted partitions of a topic; all of them if none is named."""
    existing = store.topic(topic).partitions
    numbers = sorted(set(wanted)) or list(existing)
    for number in numbers:
        if number not in existing:
            # With several data directories a broker keeps only some partitions here.
            known = ", ".join(map(str, existing[:12])) + (", …" if len(existing) > 12 else "")
            raise TopicNotFound(f"topic {topic!r} has no partition {number}; its partitions: {known}")
    return numbers


def partitions_of(
    store: Store, topic: str | None, *, internal: Iterable[str] = (), wants: Callable[[LogConfig], bool] | None = None
) -> list[TopicPartition]:
    """Return the partitions of a topic, or of all topics that `wants` accepts, with only these internal topics."""
    if topic is not None:
        chosen = [topic]
    else:
        hidden = names.INTERNAL_TOPICS - set(internal)
        existing = [name for name in store.topics(internal=True) if name not in hidden]
        chosen = [name for name in existing if wants is None or wants(store.topic(name).config)]
    return [TopicPartition(name, number) for name in chosen for number in store.topic(name).partitions]


def offsets_at(store: Store, topic: str, wanted: Iterable[int], point: Point) -> dict[int, int]:
    """Return the offset of a point in each wanted partition; in all partitions if none is named.

    A plain offset must select a single partition.
    """
    numbers = chosen(store, topic, wanted)
    if point.kind == "offset" and len(numbers) > 1:
        raise UsageError(
            f"the offset {point.number} is ambiguous: {topic} has {len(numbers)} partitions; "
            "choose one with --partition, or pass -N, start, end or @TIME"
        )
    found = {}
    for number in numbers:
        try:
            found[number] = point.offset_in(store.log(topic, number))
        except OffsetOutOfRange as error:
            raise NothingFound(
                f"{topic}-{number} has no offset {error.offset}; valid offsets are {error.log_start_offset} to "
                f"{error.log_end_offset}"
            ) from error
    return found


class _Points:
    """The points where ranges begin or end, by partition."""

    def __init__(self, texts: Sequence[str], *, option: str, default: Point, utc: bool) -> None:
        self._option = option
        self._by_partition: dict[int | None, Point] = {}
        for text in texts:
            match = _FOR_PARTITION.match(text)
            point = parse_point(match[2] if match else text, utc=utc)
            partition = int(match[1]) if match else None
            if partition in self._by_partition:
                raise UsageError(f"{option} {text} is given twice")
            self._by_partition[partition] = point
        self._default = self._by_partition.pop(None, default)

    def check(self, chosen: Iterable[int]) -> None:
        for partition in self._by_partition.keys() - set(chosen):
            raise UsageError(f"{self._option} {partition}:… names a partition that is not selected")

    def offsets(self, logs: dict[int, LogReader], topic: str, *, beyond_is_end: bool = False) -> dict[int, int]:
        found: dict[int, int] = {}
        misses: list[OffsetOutOfRange] = []
        for partition, log in logs.items():
            try:
                found[partition] = self._by_partition.get(partition, self._default).offset_in(log)
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
                if partition in self._by_partition:
                    raise missed from None
                misses.append(missed)
        if misses and len(misses) == len(logs):
            raise misses[0]
        return found


def scan(
    ranges: Sequence[Range], *, wanted: Wanted | None = None, limit: int | None = None, by_time: bool = False
) -> Iterator[list[Record]]:
    """Yield the wanted records in lists: partition by partition, or merged by time.

    A merge keeps the records of each partition in offset order.
    """
    if by_time and len(ranges) > 1:
        streams = [itertools.chain.from_iterable(_chunks(part)) for part in ranges]
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


def _chunks(part: Range) -> Iterator[list[Record]]:
    return part.log.scan_chunks(part.start, part.stop) if part.start < part.stop else iter(())


def last_records(ranges: Sequence[Range], *, wanted: Wanted | None, limit: int) -> list[Record]:
    """Return the newest `limit` wanted records of all ranges, oldest first."""
    found: list[Record] = []
    for part in ranges:
        if part.start < part.stop:
            backwards = part.log.scan_reverse(part.start, part.stop)
            kept = list(itertools.islice(filter(wanted, backwards) if wanted else backwards, limit))
            found = list(heapq.merge(found, reversed(kept), key=lambda record: record.timestamp_ms or 0))
    return found[-limit:] if limit else []
