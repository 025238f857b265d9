"""Verbs that read records: `seeklog cat`, `tail`, `seek` and `key`."""

from __future__ import annotations

import base64
import os
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

from seeklog.cli import options, selection
from seeklog.cli.app import verb
from seeklog.cli.exits import NothingFound
from seeklog.cli.opening import open_to_read
from seeklog.cli.selection import Ranges, Wanted
from seeklog.cli.show import amounts
from seeklog.cli.show.neutral import neutral_bytes
from seeklog.cli.show.record_output import FORMATS, Format, Writer, write_all
from seeklog.cli.show.rows import Column, count_column, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.cli.times import Place, parse_place
from seeklog.cli.where import compile_where
from seeklog.errors import OffsetOutOfRange, UsageError
from seeklog.store import Range

if TYPE_CHECKING:
    from seeklog.log import LogReader, Seek
    from seeklog.store import Store


@dataclass(frozen=True, slots=True)
class Filters:
    """The options that choose records."""

    key: str | None
    greps: Sequence[str]
    headers: Sequence[str]
    wheres: Sequence[str]

    def compile(self, *, utc: bool) -> Wanted | None:
        """Return a test for records, or None if all are wanted."""
        tests: list[Wanted] = []
        if self.key is not None:
            wanted_key = self.key.encode("utf-8", "surrogateescape")
            tests.append(lambda record: record.key == wanted_key)
        tests += [_has_header(text) for text in self.headers]
        tests += [_matches(pattern) for pattern in self.greps]
        tests += [compile_where(text, utc=utc) for text in self.wheres]
        if len(tests) < 2:
            return tests[0] if tests else None
        return lambda record: all(test(record) for test in tests)


def _has_header(text: str) -> Wanted:
    name, value = options.parse_pair(text, option="--header")
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


filters = options.together(
    "filters",
    Filters,
    click.option("--key", "key", metavar="TEXT", help="Only records with this key."),
    click.option("--grep", "greps", multiple=True, metavar="REGEX", help="Only records whose value matches."),
    click.option("--header", "headers", multiple=True, metavar="K=V", help="Only records with this header."),
    click.option(
        "--where", "wheres", multiple=True, metavar="EXPR", help="Only records for which this holds: value.id = 7."
    ),
)


def record_format(*template: str) -> options.Decorator:
    """Return a decorator that adds the options of `Format`; `template` spells the one for a template."""
    return options.together(
        "form",
        Format,
        *options.format_choice("record_format", FORMATS),
        click.option(
            *template,
            "template",
            metavar="FORMAT",
            help="As kcat's -f: '%o %k %v\\n'; also %p %t %T %h %S %K %R, \\t, \\xHH.",
        ),
    )


@verb
@options.directory
@options.topic
@selection.ranges
@click.option("-n", "limit", type=click.IntRange(0), metavar="N", help="Not more than so many records.")
@click.option("--by-time", is_flag=True, help="Merge the partitions by the times of the records.")
@filters
@record_format("-f", "--template")
@options.utc
def cat(
    terminal: Terminal,
    directory: str,
    topic: str,
    ranges: Ranges,
    limit: int | None,
    by_time: bool,
    filters: Filters,
    form: Format,
    utc: bool,
) -> None:
    """Read records: all of a topic, or a range, or those that match.

    Partitions come one after the other, each in the order of its offsets. All filters must hold. --where compares key,
    value, offset, partition, timestamp and headers.NAME, and looks into JSON: value.items[0].id >= 7 and not key like
    'x%'. JSON lines are lossless: append --json writes the same records.
    """
    wanted = filters.compile(utc=utc)
    with open_to_read(directory) as store:
        found = ranges.find(store, topic, utc=utc)
        writer = form.writer(terminal, utc=utc, partitions=len(found))
        write_all(terminal, writer, selection.scan(found, wanted=wanted, limit=limit, by_time=by_time))


# ---------------------------------------------------------------- tail


# How long one wait for records takes; Ctrl-C ends it at once.
POLL_MS = 60_000.0
LAST = 10


@verb
@options.directory
@options.topic
@click.option("--follow", "-f", "follows", is_flag=True, help="Then wait for more; Ctrl-C ends it.")
@click.option("-n", "limit", type=click.IntRange(0), metavar="N", help=f"How many, all together.  [default: {LAST}]")
@click.option(
    "--from",
    "starts",
    multiple=True,
    metavar="PLACE",
    help="All from there on: OFFSET, -N (before the end), start, end, @TIME; or P:PLACE for partition P alone.",
)
@options.partitions
@filters
@record_format("--template")
@options.utc
def tail(
    terminal: Terminal,
    directory: str,
    topic: str,
    follows: bool,
    limit: int | None,
    starts: tuple[str, ...],
    partitions: tuple[int, ...],
    filters: Filters,
    form: Format,
    utc: bool,
) -> None:
    """Read the newest records of all partitions by their times, and with -f those that come.

    When Ctrl-C ends it, it tells the command that goes on from there. Filters and formats are those of cat.
    """
    if starts and limit is not None:
        raise UsageError("-n counts from the end, and --from says where to begin: take one")
    if follows and form.record_format == "json":
        raise UsageError("a list of JSON has an end, and what is followed has none: take --format jsonl")
    wanted = filters.compile(utc=utc)
    with open_to_read(directory) as store:
        ranges = Ranges(partitions, starts).find(store, topic, utc=utc)
        writer = form.writer(terminal, utc=utc, partitions=len(ranges))
        # Always what Ctrl-C may tell as the way on: all before was written.
        positions = {each.partition: each.start if starts else each.stop for each in ranges}
        try:
            if starts:
                before = selection.scan(ranges, wanted=wanted, by_time=True)
            else:
                newest = selection.last_records(ranges, wanted=wanted, limit=LAST if limit is None else limit)
                before = iter([newest] if newest else [])
            write_all(terminal, writer, before)
            terminal.flush()
            positions.update({each.partition: each.stop for each in ranges})
            if follows:
                _follow(terminal, store, topic, positions=positions, wanted=wanted, writer=writer)
        except KeyboardInterrupt:
            if follows:
                given = _words(partitions, filters, form, utc=utc)
                places = [word for at in sorted(positions) for word in ("--from", f"{at}:{positions[at]}")]
                command = shlex.join(["seeklog", "tail", "-f", directory, topic, *given, *places])
                terminal.stopped(f"to go on from here: {command}")
            raise


def _words(partitions: Sequence[int], filters: Filters, form: Format, *, utc: bool) -> list[str]:
    """Return the options for a call that resumes this one, without the place to begin."""
    given: list[tuple[str, Sequence[Any]]] = [
        ("--partition", partitions),
        ("--grep", filters.greps),
        ("--header", filters.headers),
        ("--where", filters.wheres),
        ("--key", () if filters.key is None else (filters.key,)),
        ("--format", () if form.record_format is None else (form.record_format,)),
        ("--template", () if form.template is None else (form.template,)),
    ]
    words = [word for option, values in given for value in values for word in (option, str(value))]
    return words + ["--json"] * form.as_json + ["--utc"] * utc


def _follow(
    terminal: Terminal, store: Store, topic: str, *, positions: dict[int, int], wanted: Wanted | None, writer: Writer
) -> None:
    """Write records as they arrive; `positions` always holds the next offsets."""
    with store.consumer() as consumer:
        consumer.assign([(topic, partition) for partition in positions])
        for partition, offset in positions.items():
            consumer.seek((topic, partition), offset=offset)
        while True:
            records = consumer.poll(POLL_MS)
            kept = records if wanted is None else [record for record in records if wanted(record)]
            if kept:
                terminal.write_bytes(writer.encode(kept))
                terminal.flush()
            for record in records:
                positions[record.partition or 0] = record.offset + 1


# ---------------------------------------------------------------- seek


def _span(microseconds: int | None) -> str:
    return "" if microseconds is None else amounts.span(microseconds / 1e6)


FOUND = (
    Column("partition", is_right=True),
    count_column("offset"),
    Column("timestamp", "time"),
    Column("segment"),
    count_column("position"),
    count_column("scanned_batches", "batches scanned"),
    count_column("scanned_bytes", "bytes scanned"),
    Column("first_us", "first", shown=_span, is_right=True),
    Column("again_us", "again", shown=_span, is_right=True),
)


@verb
@options.directory
@options.topic
@click.argument("word", metavar="PLACE")
@options.partitions
@options.utc
@options.rows
def seek(
    terminal: Terminal,
    directory: str,
    topic: str,
    word: str,
    partitions: tuple[int, ...],
    utc: bool,
    row_format: str | None,
) -> None:
    """Find a place in each partition: OFFSET, -N (before the end), start, end, or @TIME.

    Tells the record's offset and time, the segment and the byte where its batch begins, what was scanned behind the
    index's entry to get there, and how long it took: the first time, when the index is read, and again. What lies
    behind the last record has an offset, and no segment yet.
    """
    wanted = parse_place(word, utc=utc)
    with open_to_read(directory) as store:
        numbers = selection.chosen(store, topic, partitions)
        # Before anything else has looked at the indexes: so the first time is a first time.
        first = {partition: _timed(wanted, store.log(topic, partition)) for partition in numbers}
        ranges = Ranges(partitions, (word,)).find(store, topic, utc=utc)
        rows = [_found_row(each, wanted, first_s=first[each.partition][1], utc=utc) for each in ranges]
        write_rows(terminal, FOUND, rows, row_format=row_format)


# A place may be -100, which is no option.
seek.context_settings = {**seek.context_settings, "ignore_unknown_options": True}


def _found_row(each: Range, wanted: Place, *, first_s: float, utc: bool) -> dict[str, Any]:
    row = dict.fromkeys(column.name for column in FOUND) | {"partition": each.partition, "offset": each.start}
    found, again_s = _timed(wanted, each.log)
    if found is None:
        return row
    record = next(each.log.read(found.offset, max_records=1), None)
    return row | {
        "timestamp": amounts.moment(record.timestamp_ms, utc=utc) if record is not None else None,
        "segment": os.path.basename(found.path),
        "position": found.position,
        "scanned_batches": found.scanned_batches,
        "scanned_bytes": found.scanned_bytes,
        "first_us": round(first_s * 1e6),
        "again_us": round(again_s * 1e6),
    }


def _timed(wanted: Place, log: LogReader) -> tuple[Seek | None, float]:
    """Find a place; return it, or None if no record is there, and the seconds that took."""
    began = time.perf_counter()
    try:
        found = log.seek(wanted.offset_in(log))
    except OffsetOutOfRange:
        found = None
    return found, time.perf_counter() - began


# ---------------------------------------------------------------- key


@verb
@options.directory
@options.topic
@click.argument("key", metavar="KEY")
@click.option("--base64", "is_base64", is_flag=True, help="KEY is base64, for one that is no text.")
@click.option("--hex", "is_hex", is_flag=True, help="KEY is hexadecimal.")
@click.option(
    "--partition",
    "-p",
    metavar="N|all",
    help="Look there; by default where Kafka's partitioner puts the key.",
)
@record_format("-f", "--template")
@options.utc
def key(
    terminal: Terminal,
    directory: str,
    topic: str,
    key: str,
    is_base64: bool,
    is_hex: bool,
    partition: str | None,
    form: Format,
    utc: bool,
) -> None:
    """Read the newest record that has a key, through the key indexes.

    A record without a value is a tombstone: the key was deleted. It is shown, and told. With --partition all, as after
    partitions were added, the latest time wins. A key that no record has is exit code 4.
    """
    wanted = _parse_key(key, is_base64=is_base64, is_hex=is_hex)
    where = _parse_partition(partition)
    writer = form.writer(terminal, utc=utc, partitions=2)
    with open_to_read(directory) as store:
        found = store.topic(topic).latest(wanted, partition=where)
        shown = neutral_bytes(wanted)
        if found is None:
            hint = "" if partition == "all" else "; --partition all looks in every partition"
            raise NothingFound(f'no record of {topic} has the key "{shown}"{hint}')
        write_all(terminal, writer, [[found]])
        if found.value is None:
            terminal.say(f'"{shown}" was deleted: its newest record is a tombstone')


def _parse_key(text: str, *, is_base64: bool, is_hex: bool) -> bytes:
    if is_base64 and is_hex:
        raise UsageError("--base64 and --hex are two ways to write a key: take one")
    try:
        if is_base64:
            return base64.b64decode(text, validate=True)
        return bytes.fromhex(text) if is_hex else text.encode("utf-8", "surrogateescape")
    except ValueError:
        raise UsageError(f"{text!r} is not {'base64' if is_base64 else 'hexadecimal'}") from None


def _parse_partition(text: str | None) -> int | Literal["all"] | None:
    if text is None or text == "all":
        return None if text is None else "all"
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise UsageError(f"--partition {text!r} is neither a number nor all")
    return int(text)
