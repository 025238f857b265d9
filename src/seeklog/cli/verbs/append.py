"""`seeklog append`."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterator
from io import BufferedReader
from typing import TYPE_CHECKING, cast

import click

from seeklog import names
from seeklog.cli import options
from seeklog.cli.app import verb
from seeklog.cli.opening import open_to_write
from seeklog.cli.record_input import BadLine, Numbered, Reader, read_chunks, split_lines
from seeklog.cli.show import amounts
from seeklog.cli.show.kcat_format import unescape
from seeklog.cli.show.terminal import Terminal
from seeklog.clock import SystemClock
from seeklog.config import canonical_setting
from seeklog.errors import InvalidRecord, SeeklogError, TopicNotFound, UsageError

if TYPE_CHECKING:
    from seeklog.cli.show.record_json import Draft
    from seeklog.clients.producer import SendFuture
    from seeklog.store import Store
    from seeklog.topics.description import TopicDescription

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Larger batches than a producer's usual ones: nobody waits for a single record here.
BATCH_BYTES = 64 << 10
COMPRESSION = "compression.type"
WINDOW = 5000
# A sleep is not much shorter than this, however short it was meant.
NAP_S = 0.005
# Warnings that come before or behind an error, of the same cause.
_SAID_BY_THE_ERROR = (
    "records were not written",
    "is not recovered",
    "closed without a clean marker",
    "checkpoints could not be written",
)


@verb
@options.directory
@options.topic
@click.argument("file", metavar="[FILE|-]", default="-")
@click.option("--json", "is_json", is_flag=True, help="Lines are JSON as cat writes it: key, value, headers, time.")
@click.option("--csv", "is_csv", is_flag=True, help="CSV whose first row names the columns: key, value, header.NAME …")
@click.option("--key", metavar="TEXT", help="The key of all records.")
@click.option("--key-sep", metavar="SEP", help="What stands between key and value in a line; \\t is a tab.")
@click.option("--delimiter", metavar="D", default="\\n", show_default=True, help="What ends a line; \\0 is a NUL.")
@click.option("--header", "headers", multiple=True, metavar="K=V", help="A header of all records; may be repeated.")
@click.option(
    "--null", "empty_is_null", is_flag=True, help="An empty value is null, a tombstone; an empty key is none."
)
@click.option("--partition", "-p", type=click.IntRange(0), help="Where all go; by default where their keys say.")
@click.option("--keep-partition", is_flag=True, help="Each goes where its JSON or CSV says.")
@click.option(
    "--compression", type=click.Choice(CODECS), help="How batches are compressed; by default as the topic says."
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="Not more than N records a second.")
@click.option("--create", "creates", is_flag=True, help="Make the topic, with one partition, if it is not there.")
def append(
    terminal: Terminal,
    directory: str,
    topic: str,
    file: str,
    is_json: bool,
    is_csv: bool,
    key: str | None,
    key_sep: str | None,
    delimiter: str,
    headers: tuple[str, ...],
    empty_is_null: bool,
    partition: int | None,
    keep_partition: bool,
    compression: str | None,
    rate: float | None,
    creates: bool,
) -> None:
    """Write records from a file or from stdin: each line is a value, or with --key-sep a key and a value.

    All are durable when it ends. At a line that is no record it stops: those before it are written, none behind it.
    With --csv, columns are key, value, timestamp, partition, headers (JSON) and header.NAME; an empty cell is no key.
    A time without a zone is local.
    """
    if is_json and is_csv:
        raise UsageError("--json and --csv are two formats: take one")
    if (is_json or is_csv) and (key is not None or key_sep is not None):
        raise UsageError("--key and --key-sep are for lines: JSON and CSV name their keys themselves")
    if key is not None and key_sep is not None:
        raise UsageError("--key gives all records one key, --key-sep each its own: take one")
    if keep_partition and (partition is not None or not (is_json or is_csv)):
        raise UsageError(
            "--keep-partition takes the partition out of JSON or CSV: leave out --partition, name a format"
        )
    if is_csv and delimiter != "\\n":
        raise UsageError("--delimiter is for lines and JSON: CSV has its own")
    ends = unescape(delimiter, option="--delimiter")
    pairs = [options.parse_pair(word, option="--header") for word in headers]
    reader = Reader(
        key=None if key is None else key.encode("utf-8", "surrogateescape"),
        key_separator=None if key_sep is None else unescape(key_sep, option="--key-sep"),
        empty_is_null=empty_is_null,
        headers=tuple((name, value.encode("utf-8", "surrogateescape")) for name, value in pairs),
    )
    names.check_topic_name(topic)
    names.check_not_internal(topic)

    with contextlib.ExitStack() as stack:
        stream, size = stack.enter_context(_opened(file))
        if stream.isatty():
            terminal.say("type records, a line each; Ctrl-D ends it")
        config = None if compression is None else {COMPRESSION: compression}
        stack.enter_context(_told_once())
        store = stack.enter_context(open_to_write(directory, create=creates, background=True, config=config))
        found = _find_topic(store, topic, creates=creates)
        _check_compression(found, compression)
        progress = stack.enter_context(terminal.progress(f"appending to {topic}", total=size, unit="bytes"))
        chunks = read_chunks(stream, read=progress.advance)
        if is_csv:
            drafts = reader.read_csv(chunks)
        else:
            lines = split_lines(chunks, delimiter=ends)
            drafts = reader.read_json(lines) if is_json else reader.read_lines(lines)
        producer = stack.enter_context(store.producer(batch_bytes=BATCH_BYTES))

        def send(draft: Draft) -> SendFuture:
            return producer.send(
                topic,
                draft.value,
                key=draft.key,
                headers=draft.headers,
                timestamp_ms=draft.timestamp_ms,
                partition=draft.partition if keep_partition else partition,
            )

        sending = Sending(send, rate=rate)
        # A size that no record can have; compression may make any small enough.
        max_value_bytes = found.config.max_message_bytes if found.config.compression_type == "none" else None
        _send_all(terminal, drafts, sending, max_value_bytes=max_value_bytes)
    # Behind the close of the store, which has synced it.
    records, seconds = amounts.counted(sending.written, "record"), progress.seconds
    speed = f", {sending.written / seconds:,.0f} a second" if sending.written and seconds > 0 else ""
    terminal.say(f"appended {records} to {topic} ({amounts.size(progress.done)} in {amounts.span(seconds)}{speed})")


@contextlib.contextmanager
def _opened(file: str) -> Iterator[tuple[BufferedReader, int | None]]:
    """Open what is to be read, with its size if that is known."""
    if file != "-":
        with open(file, "rb") as stream:
            found = os.fstat(stream.fileno())
            yield stream, found.st_size if stat.S_ISREG(found.st_mode) else None
        return
    if sys.stdin is None or sys.stdin.closed:
        raise UsageError("stdin is closed; name a file, or pipe records in")
    yield cast(BufferedReader, sys.stdin.buffer), None


def _find_topic(store: Store, topic: str, *, creates: bool) -> TopicDescription:
    try:
        return store.describe_topic(topic)
    except TopicNotFound as error:
        if creates:
            return store.create_topic(topic, partitions=1)
        if "did you mean" in str(error):
            raise
        raise TopicNotFound(f"{error}; --create makes it") from None


def _check_compression(found: TopicDescription, compression: str | None) -> None:
    own = {canonical_setting(word): value for word, value in found.configured.items()}.get(COMPRESSION)
    if compression is not None and own not in (None, compression):
        raise UsageError(f"topic {found.name} is compressed with {own}; change that with: seeklog config, or leave it")


class Sending:
    """Sends records, at most `rate` a second, and counts those that are written.

    Futures settle in windows: while one window is sent, the one before it settles. So memory is bounded, an error is
    found soon, and the count is exact also after a failure.
    """

    def __init__(self, send: Callable[[Draft], SendFuture], *, rate: float | None = None) -> None:
        self.written = 0
        self._send = send
        self._sent: deque[SendFuture] = deque()
        """Futures that have not settled. One leaves only after it has: Ctrl-C may come at any moment."""
        self._rate = rate
        self._clock = SystemClock()
        self._began = self._clock.monotonic()

    def send(self, draft: Draft) -> None:
        """Send a record; raise an error of this record or of an earlier one."""
        if self._rate is not None:
            ahead = self._began + (self.written + len(self._sent)) / self._rate - self._clock.monotonic()
            if ahead > NAP_S:
                self._clock.sleep(ahead)
        self._sent.append(self._send(draft))
        if len(self._sent) >= 2 * WINDOW:
            self.finish(left=WINDOW)

    def finish(self, *, left: int = 0) -> None:
        """Settle all futures but the last `left`, and raise the first failure."""
        failure = self.settle(left=left)
        if failure is not None:
            raise failure

    def settle(self, *, left: int = 0) -> SeeklogError | None:
        """Wait for all futures but the last `left`, and return the first failure."""
        first: SeeklogError | None = None
        while len(self._sent) > left:
            failure = self._sent[0].exception()
            self._sent.popleft()
            if failure is None:
                self.written += 1
            else:
                first = first or failure
        return first


def _send_all(terminal: Terminal, drafts: Iterator[Numbered], sending: Sending, *, max_value_bytes: int | None) -> None:
    try:
        for number, draft in drafts:
            size = len(draft.value or b"") + len(draft.key or b"")
            if max_value_bytes is not None and size > max_value_bytes:
                raise BadLine(
                    number, f"a record of {size:,} bytes; max.message.bytes of the topic is {max_value_bytes:,}"
                )
            try:
                sending.send(draft)
            except (InvalidRecord, TopicNotFound) as error:
                raise BadLine(number, str(error)) from None
        sending.finish()
    except BadLine as error:
        sending.finish()
        error.add_note(f"written before it: {amounts.counted(sending.written, 'record')}, behind it: none")
        raise
    except KeyboardInterrupt:
        sending.settle()
        terminal.stopped(f"stopped; written: {amounts.counted(sending.written, 'record')}")
        raise
    except SeeklogError as error:
        sending.settle()
        if sending.written:
            error.add_note(f"written before that: {amounts.counted(sending.written, 'record')}")
        raise


@contextlib.contextmanager
def _told_once() -> Iterator[None]:
    """Keep warnings from standing above an error that says the same; without one they are told at the end."""
    logger = logging.getLogger("seeklog")
    held: list[logging.LogRecord] = []

    def is_other(record: logging.LogRecord) -> bool:
        if any(words in record.msg for words in _SAID_BY_THE_ERROR):
            held.append(record)
            return False
        return True

    logger.addFilter(is_other)
    try:
        yield
    except SeeklogError:
        held.clear()
        raise
    finally:
        logger.removeFilter(is_other)
        for record in held:
            logger.handle(record)
