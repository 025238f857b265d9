"""Which records of a topic a verb reads: partitions, a range in each, and what they must look like.

--from and --to take a place (see `times`) for all partitions, or `PARTITION:PLACE` for one. A range begins with the
record at its first place and ends before the one at its second. An offset that some partitions have and others do not
is the edge in the others; one that none has is refused.
"""

from __future__ import annotations

import heapq
import itertools
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from seeklog.cli.option_types import parse_pair
from seeklog.cli.partitions import chosen, partitions_option
from seeklog.cli.times import Place, parse_place
from seeklog.cli.where import compile_where
from seeklog.errors import OffsetOutOfRange, UsageError
from seeklog.record.record import Record
from seeklog.store import Range

if TYPE_CHECKING:
    from seeklog.log import LogReader
    from seeklog.store import Store

_FOR_ONE: Final = re.compile(r"(\d{1,9}):(.+)\Z", re.ASCII | re.DOTALL)
# Where nothing but one record at a time is to be passed on, so many are still looked at together.
CHUNK_RECORDS: Final = 1000

Wanted = Callable[[Record], bool]


def range_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the options `--partition`, `--from` and `--to`."""
    function = click.option(
        "--to", "stops", multiple=True, metavar="PLACE", help="Where to end, before what is there; by default the end."
    )(function)
    function = click.option(
        "--from",
        "starts",
        multiple=True,
        metavar="PLACE",
        help="Where to begin: OFFSET, -N (before the end), start, end, @TIME; or P:PLACE for partition P alone.",
    )(function)
    return partitions_option(function)


def filter_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the options that say what records must look like."""
    for option in (
        click.option(
            "--where", "wheres", multiple=True, metavar="EXPR", help="Only records for which this holds: value.id = 7."
        ),
        click.option("--header", "headers", multiple=True, metavar="K=V", help="Only records with this header."),
        click.option("--grep", "greps", multiple=True, metavar="REGEX", help="Only records whose value matches."),
        click.option("--key", "key", metavar="TEXT", help="Only records with this key."),
    ):
        function = option(function)
    return function


def check_places(*, starts: Sequence[str], stops: Sequence[str], utc: bool) -> None:
    """Refuse words that are no places, for who looks for the ranges later."""
    _Places(starts, option="--from", otherwise=Place("start"), utc=utc)
    _Places(stops, option="--to", otherwise=Place("end"), utc=utc)


def find_ranges(
    store: Store,
    topic: str,
    *,
    partitions: Sequence[int] = (),
    starts: Sequence[str] = (),
    stops: Sequence[str] = (),
    utc: bool = False,
) -> list[Range]:
    """Return what is to be read of each partition that was chosen."""
    # Words that cannot be understood are told before a store that may be far away is looked at.
    first = _Places(starts, option="--from", otherwise=Place("start"), utc=utc)
    last = _Places(stops, option="--to", otherwise=Place("end"), utc=utc)
    numbers = chosen(store, topic, partitions)
    first.check(numbers)
    last.check(numbers)
    logs = {partition: store.log(topic, partition) for partition in numbers}
    begins = first.offsets(logs, topic)
    ends = last.offsets(logs, topic, beyond_is_end=True)
    return [Range(partition, log, begins[partition], ends[partition]) for partition, log in logs.items()]


class _Places:
    """Where ranges begin or end, by partition."""

    def __init__(self, words: Sequence[str], *, option: str, otherwise: Place, utc: bool) -> None:
        self._option = option
        self._of: dict[int, Place] = {}
        self._others = otherwise
        has_others = False
        for word in words:
            one = _FOR_ONE.match(word)
            place = parse_place(one[2] if one else word, utc=utc)
            if (int(one[1]) in self._of) if one else has_others:
                raise UsageError(f"{option} {word} is given twice")
            if one:
                self._of[int(one[1])] = place
            else:
                self._others, has_others = place, True

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
                misses.append(_named(error, topic, partition))
                if partition in self._of:
                    raise misses[-1] from None
        if misses and len(misses) == len(logs):
            raise misses[0]
        return found


def _named(error: OffsetOutOfRange, topic: str, partition: int) -> OffsetOutOfRange:
    return OffsetOutOfRange(
        error.offset,
        log_start_offset=error.log_start_offset,
        log_end_offset=error.log_end_offset,
        what=f"{topic}-{partition}: offset",
    )


def compile_filter(
    *, key: str | None, greps: Sequence[str], headers: Sequence[str], wheres: Sequence[str], utc: bool
) -> Wanted | None:
    """Return what tells whether a record is wanted, or None if all are."""
    tests: list[Wanted] = []
    if key is not None:
        wanted_key = key.encode("utf-8", "surrogateescape")
        tests.append(lambda record: record.key == wanted_key)
    tests += [_has_header(text) for text in headers]
    tests += [_matches(pattern) for pattern in greps]
    tests += [compile_where(text, utc=utc) for text in wheres]
    if len(tests) < 2:
        return tests[0] if tests else None
    return lambda record: all(test(record) for test in tests)


def _has_header(text: str) -> Wanted:
    name, value = parse_pair(text, option="--header")
    pair = (name, value.encode("utf-8", "surrogateescape"))
    return lambda record: pair in record.headers


def _matches(pattern: str) -> Wanted:
    try:
        expression = re.compile(pattern)
    except re.error as error:
        where = "" if error.colno is None else f"column {error.colno}: "
        raise UsageError(f"--grep {pattern!r}: {where}{error.msg}") from None
    return lambda record: (
        record.value is not None and expression.search(record.value.decode("utf-8", "replace")) is not None
    )


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


def resume_command(words: Sequence[str], positions: dict[int, int]) -> str:
    """Return the command that reads on at these offsets, for a shell."""
    places = [word for partition, offset in sorted(positions.items()) for word in ("--from", f"{partition}:{offset}")]
    return shlex.join(["seeklog", *words, *places])
