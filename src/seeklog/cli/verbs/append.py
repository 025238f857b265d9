"""`seeklog append`."""

from __future__ import annotations

import contextlib
import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING

import click

from seeklog import names
from seeklog.cli import options
from seeklog.cli.app import verb
from seeklog.cli.formats import ARROW_FORMATS
from seeklog.cli.interrupt import HeldInterrupt, held_interrupt
from seeklog.cli.opening import check_can_be_written, open_to_write
from seeklog.cli.record_input import BadRecord, Numbered
from seeklog.cli.record_source import Source, records_in, source
from seeklog.cli.show import amounts
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
    "records failed",
    "is not recovered",
    "closed without a clean marker",
    "checkpoints could not be written",
)


@verb
@options.directory
@options.topic
@source
@click.option(
    "--partition", "-p", type=click.IntRange(0), metavar="N", help="Append to this partition. Default: chosen by key."
)
@click.option("--keep-partition", is_flag=True, help="Append each record to the partition that the input names.")
@click.option(
    "--compression", type=click.Choice(CODECS), help="Codec of the batches. Default: the topic's compression.type."
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="Append at most N records a second.")
@click.option("--create", "creates", is_flag=True, help="Create the topic, with one partition, if it does not exist.")
def append(
    terminal: Terminal,
    directory: str,
    topic: str,
    source: Source,
    partition: int | None,
    keep_partition: bool,
    compression: str | None,
    rate: float | None,
    creates: bool,
) -> None:
    """Append records from a file or stdin: lines, JSON lines, CSV, Parquet or Arrow.

    A line is a value or, with --key-sep, a key and a value. The other formats are those of export, whose files are read
    back unchanged. Their columns are key, value, timestamp, partition, headers and header.NAME. If yours have other
    names, pass --key-column, --value-column and --time-column; the remaining columns are then ignored.

    All records are durable when the command exits. It stops at the first invalid line or row; the records before it
    have been appended. Times without a zone are local.
    """
    reader = source.reader()
    names.check_topic_name(topic)
    names.check_not_internal(topic)
    if rate is not None and math.isnan(rate):
        raise UsageError("--rate is not a number; leave it out to append without a limit")

    with contextlib.ExitStack() as stack:
        stream, size = stack.enter_context(source.open())
        if stream.isatty():
            terminal.say("reading records from the terminal, one per line; end with Ctrl-D")
        form = source.find_format(stream, reader)
        if keep_partition and (partition is not None or form == "lines"):
            raise UsageError("--keep-partition conflicts with --partition, and lines have no partition; leave it out")
        config = None if compression is None else {COMPRESSION: compression}
        stack.enter_context(_without_repeated_warnings())
        progress = terminal.progress(f"appending to {topic}", total=size, unit="bytes")

        def send(draft: Draft) -> SendFuture:
            return producer.send(
                topic,
                draft.value,
                key=draft.key,
                headers=draft.headers,
                timestamp_ms=draft.timestamp_ms,
                partition=draft.partition if keep_partition else partition,
            )

        sending = Sending(send, rate=rate, held=stack.enter_context(held_interrupt()))
        unit = "row" if form in ARROW_FORMATS else "line"
        with _reported(terminal, sending, unit=unit, file=None if source.file == "-" else source.file):
            drafts = records_in(stream, reader, form=form, size=size, advance=progress.advance)
            if creates:
                check_can_be_written(directory)
                drafts = _first_read(drafts)
            store = stack.enter_context(open_to_write(directory, create=creates, background=True, config=config))
            found = _find_topic(store, topic, creates=creates, partition=partition)
            _check_compression(found, compression)
            # Without compression a larger record can never fit.
            max_value_bytes = found.config.max_message_bytes if found.config.compression_type == "none" else None
            stack.enter_context(progress)
            producer = stack.enter_context(store.producer(batch_bytes=BATCH_BYTES))
            _send_all(drafts, sending, unit=unit, max_value_bytes=max_value_bytes)
    # After the store was closed, and thereby synced.
    seconds = max(sending.seconds, 1e-9)
    how = f" ({amounts.size(progress.done)} in {amounts.span(seconds)}, {sending.written / seconds:,.0f} a second)"
    appended = amounts.counted(sending.written, "record")
    terminal.say(f"appended {appended} to {topic}{how if sending.written else ''}")


def _find_topic(store: Store, topic: str, *, creates: bool, partition: int | None) -> TopicDescription:
    try:
        return store.describe_topic(topic)
    except TopicNotFound as error:
        if creates and partition:
            raise UsageError(
                f"--create creates one partition, 0, and --partition is {partition}; leave out --partition, or create "
                f"the topic first with: seeklog create DIR {topic} --partitions {partition + 1}"
            ) from None
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

    def __init__(
        self, send: Callable[[Draft], SendFuture], *, rate: float | None = None, held: HeldInterrupt | None = None
    ) -> None:
        self.written = 0
        self.last_number: int | None = None
        """The line or row of the last record that was appended."""
        self._send = send
        self._held = held or HeldInterrupt()
        self._sent: deque[tuple[int, SendFuture]] = deque()
        """Unsettled futures, with the lines or rows of their records."""
        self._rate = rate
        self._clock = SystemClock()
        self._began: float | None = None
        """When the first record was sent."""

    @property
    def seconds(self) -> float:
        """The time since the first record was sent."""
        return 0.0 if self._began is None else self._clock.monotonic() - self._began

    def send(self, number: int, draft: Draft) -> None:
        """Send the record of a line or row; raise the error of this record or of an earlier one."""
        if self._began is None:
            self._began = self._clock.monotonic()
        if self._rate is not None:
            ahead = (self.written + len(self._sent)) / self._rate - self.seconds
            if ahead > NAP_S:
                self._clock.sleep(ahead)
        with self._held:
            self._sent.append((number, self._send(draft)))
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
            failure = self._sent[0][1].exception()
            with self._held:
                number, _ = self._sent.popleft()
                if failure is None:
                    self.written += 1
                    self.last_number = number
                else:
                    first = first or failure
        return first


def _first_read(drafts: Iterable[Numbered]) -> Iterable[Numbered]:
    """Read the first record, so that an input that fails before it leaves no empty topic."""
    rest = iter(drafts)
    return chain(list(islice(rest, 1)), rest)


def _send_all(drafts: Iterable[Numbered], sending: Sending, *, unit: str, max_value_bytes: int | None) -> None:
    for number, draft in drafts:
        size = len(draft.value or b"") + len(draft.key or b"")
        if max_value_bytes is not None and size > max_value_bytes:
            reason = f"the record has {size:,} bytes; max.message.bytes of the topic is {max_value_bytes:,}"
            raise BadRecord(number, reason, unit=unit)
        try:
            sending.send(number, draft)
        except (InvalidRecord, TopicNotFound) as error:
            raise BadRecord(number, str(error), unit=unit) from None
    sending.finish()


@contextlib.contextmanager
def _reported(terminal: Terminal, sending: Sending, *, unit: str, file: str | None) -> Iterator[None]:
    """Settle what was sent before an error or Ctrl-C, and say how much of it was appended."""
    try:
        yield
    except BadRecord as error:
        sending.finish()
        error.file = file
        were = "was" if sending.written == 1 else "were"
        error.add_note(f"{amounts.counted(sending.written, 'record')} before it {were} appended, none after it")
        raise
    except KeyboardInterrupt:
        sending.settle()
        terminal.stopped(f"stopped after appending {amounts.counted(sending.written, 'record')}{_up_to(sending, unit)}")
        raise
    except SeeklogError as error:
        sending.settle()
        if sending.written:
            error.add_note(f"{amounts.counted(sending.written, 'record')} appended before the error")
        raise


def _up_to(sending: Sending, unit: str) -> str:
    """Return where to continue after Ctrl-C."""
    if sending.last_number is None:
        return ""
    return f", up to {unit} {sending.last_number:,}; to continue, append the {unit}s after it"


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
