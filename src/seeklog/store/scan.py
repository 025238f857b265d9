"""A topic's records as Arrow record batches. Needs the `arrow` extra."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from seeklog import names
from seeklog.arguments import check_whole_number
from seeklog.errors import SeeklogError, UsageError
from seeklog.log import LogReader, View, scan_batches, take_snapshot
from seeklog.record import arrow
from seeklog.store.parallel import MAX_THREADS, PIECE_BYTES, Piece, cut, note_partition, read_pieces, usable_cores
from seeklog.store.topic import Range

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
BATCH_ROWS: Final = 32768


def topic_schema(columns: Sequence[str] = COLUMNS, *, timestamp_unit: arrow.TimestampUnit) -> pa.Schema:
    """Return the Arrow schema of the columns, or raise `UsageError`. They are those of Spark's Kafka source."""
    wanted = (columns,) if isinstance(columns, str) else tuple(columns)
    for name in wanted:
        if name not in COLUMNS:
            raise UsageError(f"there is no column {name!r}; the columns are {', '.join(COLUMNS)}")
    if not wanted or len(set(wanted)) != len(wanted):
        raise UsageError("name at least one column, and each only once")
    fields = {field.name: field for field in arrow.schema(arrow.ALL_COLUMNS, timestamp_unit=timestamp_unit)}
    fields["topic"] = pa.field("topic", pa.string(), nullable=False)
    fields["partition"] = pa.field("partition", pa.int32(), nullable=False)
    return pa.schema([fields[name] for name in wanted])


class Span(NamedTuple):
    """The part of one partition that a scan read, and the number of rows in it."""

    partition: int
    start: int
    stop: int
    rows: int


Narrow = Callable[[Range], tuple[int, int]]
Reopen = Callable[[int], LogReader]


class Scan:
    """The record batches of a topic with the columns of a schema, in the order of the ranges."""

    def __init__(
        self,
        topic: str,
        schema: pa.Schema,
        *,
        batch_rows: int = BATCH_ROWS,
        timestamp_unit: arrow.TimestampUnit,
        key: bytes | None = None,
        threads: int | None = None,
        reopen: Reopen | None = None,
    ) -> None:
        """`key` selects the records with that key. `reopen` returns a reader in place of a closed one."""
        self._topic = topic
        self._schema = schema
        self._batch_rows = check_whole_number("batch_rows", batch_rows, minimum=1)
        self._timestamp_unit = timestamp_unit
        self._key = None if key is None else pa.scalar(key, pa.binary())
        self._threads = None if threads is None else check_whole_number("threads", threads, minimum=1)
        self._reopen = reopen
        own = [name for name in schema.names if name in arrow.ALL_COLUMNS]
        if key is not None and "key" not in own:
            own.append("key")
        # A scan needs at least one column to count rows.
        self._decoded = arrow.schema(own or ["offset"], timestamp_unit=timestamp_unit)

    def batches(
        self,
        ranges: Sequence[Range],
        *,
        narrow: Narrow = lambda part: (part.start, part.stop),
        note: Callable[[Span], object] = lambda span: None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches. `narrow` returns the part of a range to read; `note` is called after each partition."""
        # All pieces of a partition are read in this view. The store may close the log meanwhile.
        seen = {part.partition: (part.log, take_snapshot(part.log)) for part in ranges}
        threads = self._usable_threads(ranges, sum(snapshot.size_bytes for _, snapshot in seen.values()))

        def pieces() -> Iterator[Piece]:
            for part in ranges:
                start, stop = narrow(self._usable(part))
                # Each piece would need the index of its segment, which is fetched from a URL as a whole.
                is_whole = threads == 1 or names.is_url(part.log.location)
                yield from cut(seen[part.partition][1].view, part.partition, start, stop, is_whole=is_whole)

        def read(piece: Piece) -> Iterator[pa.RecordBatch]:
            log, snapshot = seen[piece.partition]
            return self._read(log, snapshot.view, piece)

        return self._counted(read_pieces(pieces(), read, threads=threads), note)

    def _counted(
        self, results: Iterator[tuple[Piece, pa.RecordBatch | None]], note: Callable[[Span], object]
    ) -> Iterator[pa.RecordBatch]:
        start, rows = None, 0
        try:
            for piece, batch in results:
                start = piece.start if start is None else start
                if batch is not None:
                    rows += batch.num_rows
                    yield batch
                elif piece.is_last:
                    note(Span(piece.partition, start, piece.stop, rows))
                    start, rows = None, 0
        finally:
            results.close()  # type: ignore[attr-defined]  # a generator: its threads must not wait for the collector

    def _usable_threads(self, ranges: Iterable[Range], size: int) -> int:
        """Return the number of threads that have something to do. `size` is that of all logs."""
        parts = [part for part in ranges if part.start < part.stop]
        if any(names.is_url(part.log.location) for part in parts):
            # They wait for the network, not for a core.
            return min(self._threads or MAX_THREADS, max(1, len(parts)))
        return min(self._threads or min(MAX_THREADS, usable_cores()), max(1, -(-size // PIECE_BYTES)))

    def _usable(self, part: Range) -> Range:
        """Return a range with an open log: the store closes a reader when its partition is written, or to make room."""
        if part.log.is_closed and self._reopen is not None:
            return replace(part, log=self._reopen(part.partition))
        return part

    def _read(self, log: LogReader, view: View, piece: Piece) -> Iterator[pa.RecordBatch]:
        if piece.start >= piece.stop:
            return
        constants: dict[str, Any] = {}
        try:
            for batch in scan_batches(
                log,
                view,
                piece.start,
                piece.stop,
                schema=self._decoded,
                batch_rows=self._batch_rows,
                timestamp_unit=self._timestamp_unit,
            ):
                rows = batch if self._key is None else batch.filter(pc.equal(batch.column("key"), self._key))
                if rows.num_rows:
                    yield self._finished(rows, piece.partition, constants)
        except SeeklogError as error:
            note_partition(error, self._topic, piece.partition)
            raise

    def _finished(self, batch: pa.RecordBatch, partition: int, constants: dict[str, Any]) -> pa.RecordBatch:
        """Return a decoded batch with all columns of the schema. `constants` are those of the longest batch so far."""
        if self._decoded is self._schema:
            return batch
        rows = batch.num_rows
        columns = []
        for name in self._schema.names:
            if name in ("topic", "partition"):
                if name not in constants or len(constants[name]) < rows:
                    value = self._topic if name == "topic" else pa.scalar(partition, pa.int32())
                    constants[name] = pa.repeat(value, rows)
                columns.append(constants[name].slice(0, rows))
            else:
                columns.append(batch.column(name))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
