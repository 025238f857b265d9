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
# Larger than a producer's default: throughput matters here, not latency.
BATCH_BYTES = 64 << 10
COMPRESSION = "compression.type"
WINDOW = 5000
# Shorter sleeps take about this long anyway.
NAP_S = 0.005
# Warnings with the same cause as the error that comes before or after them.
_REPEATED_WARNINGS = (
    "records were not written",
    "is not recovered",
    "closed without a clean marker",
    "checkpoints could not be written",
)


@verb
@options.directory
@options.topic
@click.argument("file", metavar="[FILE|-]", default="-")
@click.option(
    "--json", "is_json", is_flag=True, help="Each line is JSON as printed by cat: key, value, headers, timestamp."
)
@click.option("--csv", "is_csv", is_flag=True, help="CSV with column names in the first row: key, value, header.NAME …")
@click.option("--key", metavar="TEXT", help="The key of every record.")
@click.option("--key-sep", metavar="SEP", help="Separates key and value in a line; \\t is a tab.")
@click.option("--delimiter", metavar="D", default="\\n", show_default=True, help="Ends a line; \\0 is NUL.")
@click.option("--header", "headers", multiple=True, metavar="K=V", help="A header of every record. Repeatable.")
@click.option(
    "--null",
    "empty_is_null",
    is_flag=True,
    help="Treat an empty value as null (a tombstone) and an empty key as no key.",
)
@click.option("--partition", "-p", type=click.IntRange(0), help="Append to this partition. Default: chosen by key.")
@click.option("--keep-partition", is_flag=True, help="Append each record to the partition in its JSON or CSV.")
@click.option(
    "--compression", type=click.Choice(CODECS), help="Codec of the batches. Default: the topic's compression.type."
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="Append at most N records a second.")
@click.option("--create", "creates", is_flag=True, help="Create the topic, with one partition, if it does not exist.")
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
    """Append records from a file or stdin. Each line is a value or, with --key-sep, a key and a value.

    All records are durable when the command exits. It stops at the first invalid line; records before that line have
    been appended. The columns of --csv are key, value, timestamp, partition, headers (JSON) and header.NAME; an empty
    key cell means no key. Times without a zone are local.
    """
    if is_json and is_csv:
        raise UsageError("--json and --csv conflict; pass one of them")
    if (is_json or is_csv) and (key is not None or key_sep is not None):
        raise UsageError("--key and --key-sep do not apply to JSON and CSV, which contain the keys")
    if key is not None and key_sep is not None:
        raise UsageError("--key and --key-sep conflict; pass one of them")
    if keep_partition and (partition is not None or not (is_json or is_csv)):
        raise UsageError("--keep-partition needs --json or --csv, and conflicts with --partition")
    if is_csv and delimiter != "\\n":
        raise UsageError("--delimiter does not apply to CSV")
    ends = unescape(delimiter, option="--delimiter")
    pairs = [options.parse_pair(text, option="--header") for text in headers]
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
            terminal.say("reading records from the terminal, one per line; end with Ctrl-D")
        config = None if compression is None else {COMPRESSION: compression}
        stack.enter_context(_without_repeated_warnings())
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
        # Without compression a larger record can never fit.
        max_value_bytes = found.config.max_message_bytes if found.config.compression_type == "none" else None
        _send_all(terminal, drafts, sending, max_value_bytes=max_value_bytes)
    # After the store was closed, and thereby synced.
    records, seconds = amounts.counted(sending.written, "record"), progress.seconds
    speed = f", {sending.written / seconds:,.0f} a second" if sending.written and seconds > 0 else ""
    terminal.say(f"appended {records} to {topic} ({amounts.size(progress.done)} in {amounts.span(seconds)}{speed})")


@contextlib.contextmanager
def _opened(file: str) -> Iterator[tuple[BufferedReader, int | None]]:
    """Open the input; yield it with its size, None if that is unknown."""
    if file != "-":
        with open(file, "rb") as stream:
            found = os.fstat(stream.fileno())
            yield stream, found.st_size if stat.S_ISREG(found.st_mode) else None
        return
    if sys.stdin is None or sys.stdin.closed:
        raise UsageError("stdin is closed; name a file, or pipe records into the command")
    yield cast(BufferedReader, sys.stdin.buffer), None


def _find_topic(store: Store, topic: str, *, creates: bool) -> TopicDescription:
    try:
        return store.describe_topic(topic)
    except TopicNotFound as error:
        if creates:
            return store.create_topic(topic)
        if "did you mean" in str(error):
            raise
        raise TopicNotFound(f"{error}; pass --create to create it") from None


def _check_compression(found: TopicDescription, compression: str | None) -> None:
    own = {canonical_setting(name): value for name, value in found.configured.items()}.get(COMPRESSION)
    if compression is not None and own not in (None, compression):
        raise UsageError(
            f"compression.type of topic {found.name} is {own}; omit --compression, or change it with: seeklog config"
        )


class Sending:
    """Sends records, at most `rate` a second, and counts those that were appended.

    Futures settle in windows: while one window is sent, the previous one settles. This bounds memory, detects errors
    early, and keeps the count exact after a failure.
    """

    def __init__(self, send: Callable[[Draft], SendFuture], *, rate: float | None = None) -> None:
        self.written = 0
        self._send = send
        self._sent: deque[SendFuture] = deque()
        """Unsettled futures. A future is removed only after it settled, as Ctrl-C may come at any moment."""
        self._rate = rate
        self._clock = SystemClock()
        self._began = self._clock.monotonic()

    def send(self, draft: Draft) -> None:
        """Send a record; raise the error of this record or of an earlier one."""
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
                    number, f"the record has {size:,} bytes; max.message.bytes of the topic is {max_value_bytes:,}"
                )
            try:
                sending.send(draft)
            except (InvalidRecord, TopicNotFound) as error:
                raise BadLine(number, str(error)) from None
        sending.finish()
    except BadLine as error:
        sending.finish()
        error.add_note(f"{amounts.counted(sending.written, 'record')} before it were appended, none after it")
        raise
    except KeyboardInterrupt:
        sending.settle()
        terminal.stopped(f"stopped after appending {amounts.counted(sending.written, 'record')}")
        raise
    except SeeklogError as error:
        sending.settle()
        if sending.written:
            error.add_note(f"{amounts.counted(sending.written, 'record')} appended before the error")
        raise


@contextlib.contextmanager
def _without_repeated_warnings() -> Iterator[None]:
    """Hold back warnings that an error would repeat; log them at the end if no error comes."""
    logger = logging.getLogger("seeklog")
    held: list[logging.LogRecord] = []

    def is_other(record: logging.LogRecord) -> bool:
        if any(text in record.msg for text in _REPEATED_WARNINGS):
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
