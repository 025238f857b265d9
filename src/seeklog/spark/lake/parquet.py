"""The task of `to_lake`: writes a piece of a partition to Parquet files, one for each day of its records.

The kernel decodes segments into Arrow, and Arrow encodes that as Parquet, without an object per record. A piece whose
timestamps are out of order may have many days: at most `MAX_OPEN` files are open at once, and they buffer at most
`BUFFER_BYTES`. Timestamps and offsets are encoded as differences.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from seeklog import names
from seeklog.archive.reading import Origin
from seeklog.config import INT64_MAX
from seeklog.errors import DataLoss
from seeklog.files import Files, OsFiles
from seeklog.spark.lake.directory import writing_to
from seeklog.spark.lake.manifest import LakeFile
from seeklog.spark.option_map import EPOCH
from seeklog.spark.read.plan import Piece, Split
from seeklog.spark.read.scan import floor_divided, scan_split
from seeklog.spark.read.schema import NEVER_NULL, RECORD_SCHEMA, arrow_schema

# A Parquet reader reads whole row groups, and skips them by their statistics.
GROUP_BYTES: Final = 64 << 20
GROUP_ROWS: Final = 1 << 20
# The rows that all open files of a task buffer together.
BUFFER_BYTES: Final = 2 * GROUP_BYTES
MAX_OPEN: Final = 64
WRITE_BYTES: Final = 1 << 20
DAY_US: Final = 24 * 3600 * 1_000_000
US_PER_MS: Final = 1000
_FIRST_DAY: Final = -719162  # 0001-01-01
_LAST_DAY: Final = 2932896  # 9999-12-31
_DELTA: Final = "DELTA_BINARY_PACKED"


class Order(NamedTuple):
    """The piece that one task writes, and how."""

    origin: Origin
    lake: str
    piece: Piece
    compression: str
    log_bytes: int


def lake_schema() -> pa.Schema:
    """Return the columns of a file. The topic is in the name of the directory."""
    fields = [field for field in arrow_schema(RECORD_SCHEMA) if field.name != "topic"]
    return pa.schema([field.with_nullable(field.name not in NEVER_NULL) for field in fields])


Written: TypeAlias = tuple[Piece, tuple[tuple[str, LakeFile], ...]]
"""A piece and its files, each with its hidden path."""


def write_piece(order: Order, *, files: Files | None = None) -> Written:
    """Write and sync the files of a piece under hidden names. After an error none is left."""
    writing = _Writing(order, files or OsFiles())
    try:
        with writing_to(order.lake):
            for batch in scan_split(Split(order.origin, [order.piece], fail_on_data_loss=True), writing.schema):
                writing.add(batch)
            return order.piece, writing.finish()
    except BaseException as error:
        writing.discard()
        if isinstance(error, DataLoss):
            advice = "segments were deleted before they were copied; run to_lake again to copy the rest"
            raise DataLoss(error.condition, f"{order.piece}: {advice}") from error
        raise


def date_of(day: int) -> str:
    """Return the date of a day since 1970, as in the name of its directory."""
    if not _FIRST_DAY <= day <= _LAST_DAY:
        return names.NO_DATE
    return (EPOCH + timedelta(days=day)).date().isoformat()


class _Sink:
    """A Python file object for Arrow that writes through `Files`."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path
        self._handle = files.open(path, write=True, create=True)
        self._pending = bytearray()
        self._position = 0
        self.closed = False

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position + len(self._pending)

    def write(self, data: Any) -> int:
        self._pending += data
        if len(self._pending) >= WRITE_BYTES:
            self.flush()
        return len(data)

    def flush(self) -> None:
        self._files.write(self._handle, self._pending, self._position)
        self._position += len(self._pending)
        self._pending = bytearray()

    def finish(self) -> int:
        """Sync and close the file; return its size."""
        self.flush()
        self._files.sync(self._handle)
        self.close()
        return self._position

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._files.close(self._handle)


@dataclass
class _OpenFile:
    """The file of one day, being written."""

    sink: _Sink
    parquet: Any
    start: int
    buffered: list[pa.RecordBatch] = field(default_factory=list)
    buffered_bytes: int = 0
    buffered_rows: int = 0
    rows: int = 0
    next_offset: int = 0
    min_us: int = INT64_MAX
    max_us: int = -INT64_MAX - 1

    def add(self, rows: pa.RecordBatch, size: int) -> None:
        min_us, max_us = _min_and_max(rows)
        self.min_us, self.max_us = min(self.min_us, min_us), max(self.max_us, max_us)
        self.next_offset = rows.column("offset")[-1].as_py() + 1
        self.rows += rows.num_rows
        self.buffered.append(rows)
        self.buffered_rows += rows.num_rows
        self.buffered_bytes += size


class _Writing:
    """The files of one piece."""

    def __init__(self, order: Order, files: Files) -> None:
        self._order = order
        self._files = files
        self._unique = uuid.uuid4().hex
        self._open: dict[str, _OpenFile] = {}
        """By date, the least recently used first."""
        self._counts: Counter[str] = Counter()
        self._paths: list[str] = []
        self._done: list[tuple[str, LakeFile]] = []
        self._buffered_bytes = 0
        self.schema = lake_schema()

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows to the files of their days."""
        for date, rows in _by_date(batch):
            file = self._file_of(date, first_offset=rows.column("offset")[0].as_py())
            size = rows.get_total_buffer_size() if rows is batch else rows.nbytes
            file.add(rows, size)
            self._buffered_bytes += size
            if file.buffered_bytes >= GROUP_BYTES or file.buffered_rows >= GROUP_ROWS:
                self._write_group(file)
        while self._buffered_bytes > BUFFER_BYTES:
            self._write_group(max(self._open.values(), key=lambda file: file.buffered_bytes))

    def _file_of(self, date: str, *, first_offset: int) -> _OpenFile:
        file = self._open.pop(date, None)
        if file is None:
            if len(self._open) >= MAX_OPEN:
                self._close(next(iter(self._open)))
            file = self._create(date, first_offset)
        self._open[date] = file
        return file

    def _create(self, date: str, first_offset: int) -> _OpenFile:
        piece = self._order.piece
        number = self._counts[date]
        self._counts[date] += 1
        directory = names.lake_directory(piece.topic, date)
        self._files.make_directory(f"{self._order.lake}/{directory}")
        name = names.lake_file_name(piece.partition, start=piece.start, next_offset=piece.stop, number=number)
        path = f"{directory}/{names.hidden_lake_file(name, self._unique)}"
        sink = _Sink(self._files, f"{self._order.lake}/{path}")
        self._paths.append(sink.path)
        parquet = pq.ParquetWriter(
            sink,
            self.schema,
            compression=self._order.compression,
            # Values hardly ever repeat, and Parquet would build a dictionary of them only to discard it.
            use_dictionary=["key", "partition", "timestampType", "headers.list.element.key"],
            column_encoding={"offset": _DELTA, "timestamp": _DELTA},
            write_statistics=["key", "partition", "offset", "timestamp"],
            store_schema=False,
        )
        return _OpenFile(sink, parquet, first_offset)

    def _write_group(self, file: _OpenFile) -> None:
        if file.buffered:
            table = pa.Table.from_batches(file.buffered, schema=self.schema)
            file.parquet.write_table(table, row_group_size=GROUP_ROWS)
            self._buffered_bytes -= file.buffered_bytes
            file.buffered, file.buffered_bytes, file.buffered_rows = [], 0, 0

    def _close(self, date: str) -> None:
        file = self._open[date]
        self._write_group(file)
        file.parquet.close()
        size = file.sink.finish()
        del self._open[date]
        hidden = os.path.relpath(file.sink.path, self._order.lake)
        directory, name = os.path.split(hidden)
        entry = LakeFile(
            path=f"{directory}/{names.shown_lake_file(name)}",
            start=file.start,
            next_offset=file.next_offset,
            rows=file.rows,
            size=size,
            min_timestamp_ms=file.min_us // US_PER_MS,
            max_timestamp_ms=file.max_us // US_PER_MS,
        )
        self._done.append((hidden, entry))

    def finish(self) -> tuple[tuple[str, LakeFile], ...]:
        """Return the files, durable except for their names."""
        for date in list(self._open):
            self._close(date)
        return tuple(self._done)

    def discard(self) -> None:
        """Remove all files."""
        for file in self._open.values():
            file.sink.close()
        for path in self._paths:
            with contextlib.suppress(OSError):
                self._files.remove(path)


def _min_and_max(rows: pa.RecordBatch) -> tuple[int, int]:
    extent = pc.min_max(rows.column("timestamp").view("int64"))
    return extent["min"].as_py(), extent["max"].as_py()


def _by_date(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the rows of each date, in order."""
    first, last = (time // DAY_US for time in _min_and_max(batch))
    if first == last:
        yield date_of(first), batch
        return
    days = floor_divided(batch.column("timestamp").view("int64"), DAY_US)
    by_date: dict[str, list[int]] = {}
    for day in sorted(pc.unique(days).to_pylist()):
        by_date.setdefault(date_of(day), []).append(day)
    for date, of_date in by_date.items():
        yield date, batch.filter(pc.is_in(days, value_set=pa.array(of_date, "int64")))
