"""The commands that read records: `seeklog cat`, `tail`, `seek` and `key`."""

from __future__ import annotations

import base64
import functools
import itertools
import os
import re
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

from seeklog.cli import options, selection
from seeklog.cli.app import Verb, verb
from seeklog.cli.exits import NothingFound
from seeklog.cli.opening import open_to_read
from seeklog.cli.selection import Ranges, Wanted
from seeklog.cli.show import amounts
from seeklog.cli.show.kcat_format import FIELD
from seeklog.cli.show.neutral import neutral_bytes
from seeklog.cli.show.record_output import FORMATS, Writer, stdout_writer, write_all
from seeklog.cli.show.rows import Column, count_column, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.cli.times import Point, parse_point
from seeklog.cli.where import compile_where
from seeklog.errors import OffsetOutOfRange, UsageError
from seeklog.store import Range

if TYPE_CHECKING:
    from seeklog.log import LogReader, Seek
    from seeklog.record.record import Record
    from seeklog.store import Store


@dataclass(frozen=True, slots=True)
class Filters:
    """The options that select records."""

    key: str | None
    greps: Sequence[str]
    headers: Sequence[str]
    wheres: Sequence[str]

    def compile(self, *, utc: bool) -> Wanted | None:
        """Return a predicate on records, or None if every record is wanted."""
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
        "--where", "wheres", multiple=True, metavar="EXPR", help="Only records that match, e.g. value.id = 7."
    ),
)


def record_format(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --format, --json and --template."""
    help_line = "A format as in kcat -f: '%o %k %v\\n'; also %p %t %T %h %S %K %R, \\t, \\xHH."
    template_option = click.option("--template", "-t", "template", metavar="FORMAT", help=help_line)
    decorated: Callable[..., Any] = options.formats(*FORMATS)(template_option(function))
    return decorated


follow = click.option("--follow", "-f", "follows", is_flag=True, help="Then wait for new records until Ctrl-C.")


class RecordVerb(Verb):
    """A subcommand that prints records. It refuses kcat's `-f TEMPLATE`, because -f follows here."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            words = [after for before, after in itertools.pairwise(args) if before in ("-f", "--follow")]
            words += [word.removeprefix("-f") for word in args if word.startswith("-f")]
            if any(parameter.name == "follows" for parameter in self.params):
                words += self.positionals(ctx, args)
            for word in words:
                if FIELD.search(word) and not os.path.exists(word):
                    raise click.UsageError(
                        f"{word!r} is a template, as for kcat -f; here the option is -t: -t {shlex.quote(word)}", ctx
                    )
        return super().parse_args(ctx, args)


record_verb = functools.partial(verb, kind=RecordVerb)


@record_verb
@options.location
@options.topic
@selection.ranges
@click.option("-n", "limit", type=click.IntRange(0), metavar="N", help="At most N records.")
@click.option("--by-time", is_flag=True, help="Merge the partitions by timestamp.")
@follow
@filters
@record_format
@options.utc
def cat(
    terminal: Terminal,
    directory: str,
    topic: str,
    ranges: Ranges,
    limit: int | None,
    by_time: bool,
    follows: bool,
    filters: Filters,
    template: str | None,
) -> None:
    """Read the records of a topic: all of them, a range, or those that match filters.

    Partitions are read one after another, each in offset order. A record must match all filters. --where compares
    key, value, offset, partition, timestamp and headers.NAME, and can reach into JSON: value.items[0].id >= 7 and not
    key like 'x%'. JSON lines are lossless: append --json appends the same records.

    With -f, wait for new records after the end. Ctrl-C prints the command that resumes from there.
    """
    if follows and ranges.stops:
        raise UsageError("--to ends the range, and -f does not end; leave one of them out")
    _check_format(terminal, follows=follows)
    wanted = filters.compile(utc=terminal.utc)
    with open_to_read(directory) as store:
        found = ranges.find(store, topic, utc=terminal.utc)
        writer = stdout_writer(terminal, template, partitions=len(found))
        records = selection.scan(found, wanted=wanted, limit=limit, by_time=by_time)
        again = ["seeklog", "cat", "-f", directory, topic, *_arguments(terminal, ranges.partitions, filters, template)]
        resumed = Resumed([*again, *["--by-time"] * by_time], {part.partition: part.start for part in found}, limit)
        if follows:
            _write_and_follow(terminal, store, topic, records, found, resumed, wanted=wanted, writer=writer)
        else:
            write_all(terminal, writer, records)


# The longest wait of one poll; Ctrl-C interrupts it at once.
POLL_MS = 60_000.0
LAST = 10


@record_verb
@options.location
@options.topic
@follow
@click.option(
    "-n",
    "limit",
    type=click.IntRange(0),
    metavar="N",
    help=f"The newest N records of all partitions.  [default: {LAST}]",
)
@click.option(
    "--from",
    "starts",
    multiple=True,
    metavar="POINT",
    help="All records from this point: OFFSET, -N, start, end or @TIME; P:POINT for partition P only.",
)
@options.partitions
@filters
@record_format
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
    template: str | None,
) -> None:
    """Read the newest records of all partitions, ordered by time. With -f, wait for new records.

    Ctrl-C prints the command that resumes from there. Filters and formats are those of cat.
    """
    if starts and limit is not None:
        raise UsageError("-n and --from both choose the first record; pass one of them")
    _check_format(terminal, follows=follows)
    wanted = filters.compile(utc=terminal.utc)
    with open_to_read(directory) as store:
        found = Ranges(partitions, starts).find(store, topic, utc=terminal.utc)
        writer = stdout_writer(terminal, template, partitions=len(found))
        again = ["seeklog", "tail", "-f", directory, topic, *_arguments(terminal, partitions, filters, template)]
        resumed = Resumed(again, {part.partition: part.start if starts else part.stop for part in found})
        if starts:
            records = selection.scan(found, wanted=wanted, by_time=True)
        else:
            records = _newest(found, wanted=wanted, limit=LAST if limit is None else limit)
        if follows:
            _write_and_follow(terminal, store, topic, records, found, resumed, wanted=wanted, writer=writer)
        else:
            write_all(terminal, writer, records)


def _newest(ranges: Sequence[Range], *, wanted: Wanted | None, limit: int) -> Iterator[list[Record]]:
    found = selection.last_records(ranges, wanted=wanted, limit=limit)
    if found:
        yield found


def _check_format(terminal: Terminal, *, follows: bool) -> None:
    if follows and terminal.format_option == "json":
        raise UsageError("a JSON list must end, and -f does not; use --format jsonl")


def _arguments(terminal: Terminal, partitions: Sequence[int], filters: Filters, template: str | None) -> list[str]:
    """Return the options for a call that resumes this one, without --from."""
    given: list[tuple[str, Sequence[Any]]] = [
        ("--partition", partitions),
        ("--grep", filters.greps),
        ("--header", filters.headers),
        ("--where", filters.wheres),
        ("--key", () if filters.key is None else (filters.key,)),
        ("--format", () if terminal.format_option is None else (terminal.format_option,)),
        ("--template", () if template is None else (template,)),
    ]
    arguments = [word for option, values in given for value in values for word in (option, str(value))]
    return arguments + ["--json"] * terminal.as_json + ["--utc"] * terminal.utc


@dataclass(slots=True)
class Resumed:
    """The call that would resume this one."""

    command: list[str]
    """Without the options that follow from the other fields."""
    positions: dict[int, int]
    """The next offset of each partition: the records before it have been written."""
    limit: int | None = None
    """How many records are left to write."""

    def __str__(self) -> str:
        left = [] if self.limit is None else ["-n", str(self.limit)]
        points = [word for at in sorted(self.positions) for word in ("--from", f"{at}:{self.positions[at]}")]
        return shlex.join([*self.command, *left, *points])


def _write_and_follow(
    terminal: Terminal,
    store: Store,
    topic: str,
    records: Iterator[list[Record]],
    ranges: Sequence[Range],
    resumed: Resumed,
    *,
    wanted: Wanted | None,
    writer: Writer,
) -> None:
    """Write the records of the ranges, then those that arrive. Ctrl-C prints the call that resumes."""
    written = 0
    try:
        terminal.write_bytes(writer.head)
        for chunk in records:
            terminal.write_bytes(writer.encode(chunk))
            written += len(chunk)
        terminal.flush()
        resumed.positions.update({part.partition: part.stop for part in ranges})
        if resumed.limit is not None:
            resumed.limit -= written
        _follow(terminal, store, topic, resumed, wanted=wanted, writer=writer)
    except KeyboardInterrupt:
        terminal.stopped(f"resume with: {resumed}")
        raise


def _follow(
    terminal: Terminal, store: Store, topic: str, resumed: Resumed, *, wanted: Wanted | None, writer: Writer
) -> None:
    """Write records as they arrive, and keep the place in `resumed`."""
    with store.consumer() as consumer:
        consumer.assign([(topic, partition) for partition in resumed.positions])
        for partition, offset in resumed.positions.items():
            consumer.seek((topic, partition), offset=offset)
        while resumed.limit != 0:
            found = consumer.poll(POLL_MS)
            kept = (found if wanted is None else [record for record in found if wanted(record)])[: resumed.limit]
            if kept:
                terminal.write_bytes(writer.encode(kept))
                terminal.flush()
            if resumed.limit is not None:
                resumed.limit -= len(kept)
            for record in found:
                resumed.positions[record.partition or 0] = record.offset + 1


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
@options.location
@options.topic
@click.argument("text", metavar="POINT")
@options.partitions
@options.utc
@options.rows
def seek(terminal: Terminal, directory: str, topic: str, text: str, partitions: tuple[int, ...]) -> None:
    """Locate a point in each partition: OFFSET, -N (before the end), start, end, or @TIME.

    Prints the offset and time of the record, the segment and byte where its batch begins, how many batches and bytes
    were scanned after the index entry, and how long two lookups took: the first reads the index, the second finds it
    in memory. The end of the log has an offset but no segment.
    """
    point = parse_point(text, utc=terminal.utc)
    with open_to_read(directory) as store:
        numbers = selection.chosen(store, topic, partitions)
        # Timed before anything else reads the indexes.
        first = {partition: _timed(point, store.log(topic, partition)) for partition in numbers}
        ranges = Ranges(partitions, (text,)).find(store, topic, utc=terminal.utc)
        rows = [_found_row(part, point, first_s=first[part.partition][1], utc=terminal.utc) for part in ranges]
        write_rows(terminal, FOUND, rows)


# A point such as -100 is not an option.
seek.context_settings = {**seek.context_settings, "ignore_unknown_options": True}


def _found_row(part: Range, point: Point, *, first_s: float, utc: bool) -> dict[str, Any]:
    row = dict.fromkeys(column.name for column in FOUND) | {"partition": part.partition, "offset": part.start}
    found, again_s = _timed(point, part.log)
    if found is None:
        return row
    record = next(part.log.read(found.offset, max_records=1), None)
    return row | {
        "timestamp": amounts.moment(record.timestamp_ms, utc=utc) if record is not None else None,
        "segment": os.path.basename(found.path),
        "position": found.position,
        "scanned_batches": found.scanned_batches,
        "scanned_bytes": found.scanned_bytes,
        "first_us": round(first_s * 1e6),
        "again_us": round(again_s * 1e6),
    }


def _timed(point: Point, log: LogReader) -> tuple[Seek | None, float]:
    """Return where a point is on disk, None if it has no record, and the seconds the lookup took."""
    began = time.perf_counter()
    try:
        found = log.seek(point.offset_in(log))
    except OffsetOutOfRange:
        found = None
    return found, time.perf_counter() - began


@record_verb
@options.location
@options.topic
@click.argument("key", metavar="KEY")
@click.option("--base64", "is_base64", is_flag=True, help="KEY is base64, for binary keys.")
@click.option("--hex", "is_hex", is_flag=True, help="KEY is hexadecimal.")
@click.option(
    "--partition",
    "-p",
    metavar="N|all",
    help="Search this partition, or all. Default: the one that Kafka's partitioner chooses.",
)
@record_format
@options.utc
def key(
    terminal: Terminal,
    directory: str,
    topic: str,
    key: str,
    is_base64: bool,
    is_hex: bool,
    partition: str | None,
    template: str | None,
) -> None:
    """Read the newest record with a key, through the key indexes.

    If that record is a tombstone (it has no value), the key was deleted: the record is printed, with a message. Use
    --partition all if partitions were added since; then the latest timestamp wins. If no record has the key, the exit
    code is 4.
    """
    wanted = _parse_key(key, is_base64=is_base64, is_hex=is_hex)
    where = _parse_partition(partition)
    writer = stdout_writer(terminal, template, partitions=2)
    with open_to_read(directory) as store:
        found = store.topic(topic).latest(wanted, partition=where)
        shown = neutral_bytes(wanted)
        if found is None:
            hint = "" if partition == "all" else "; --partition all searches every partition"
            raise NothingFound(f'no record of {topic} has the key "{shown}"{hint}')
        write_all(terminal, writer, [[found]])
        if found.value is None:
            terminal.say(f'"{shown}" was deleted: its newest record is a tombstone')


def _parse_key(text: str, *, is_base64: bool, is_hex: bool) -> bytes:
    if is_base64 and is_hex:
        raise UsageError("--base64 and --hex conflict; pass one of them")
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
        raise UsageError(f"--partition {text!r} is not a number or all")
    return int(text)
