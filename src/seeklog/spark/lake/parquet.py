"""What a task of `to_lake` does: a piece of a partition in, Parquet files out, one for each day that it touches.

The kernel decodes the bytes of segments into Arrow, and Arrow encodes that as Parquet; no record becomes an object.
A piece whose times are in disorder touches many days: of the files that it writes so many stand open at once, and so
much is held in memory, however many there are. Timestamps and offsets are encoded as differences.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from seeklog import names
from seeklog.archive.reading import Origin
from seeklog.errors import DataLoss, SeeklogError
from seeklog.files import Files, OsFiles, translate
from seeklog.record.arrow import import_pyarrow
from seeklog.spark.lake.manifest import LakeFile
from seeklog.spark.read.plan import Piece, Split
from seeklog.spark.read.scan import scan_split
from seeklog.spark.times import floor_divided

if TYPE_CHECKING:
    import pyarrow

# A row group is what a reader of Parquet reads at once, and passes over by its statistics.
GROUP_BYTES: Final = 64 << 20
GROUP_ROWS: Final = 1 << 20
# What all open files of a task hold back together.
HELD_BYTES: Final = 2 * GROUP_BYTES
OPEN_MOST: Final = 64
WRITE_BYTES: Final = 1 << 20
DAY_US: Final = 24 * 3600 * 1_000_000
US_PER_MS: Final = 1000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_DAY: Final = -719162  # 0001-01-01
_LAST_DAY: Final = 2932896  # 9999-12-31
_DELTA: Final = "DELTA_BINARY_PACKED"


class Order(NamedTuple):
    """What one task writes, and where."""

    origin: Origin
    lake: str
    piece: Piece
    compression: str
    log_bytes: int


class Written(NamedTuple):
    """What has become of an order."""

    piece: Piece
    files: tuple[tuple[str, LakeFile], ...]
    """Each with the hidden path that it has for now."""
    error: SeeklogError | None = None


def lake_schema() -> pyarrow.Schema:
    """Return the columns of a file. The topic is in the name of its directory."""
    pa = import_pyarrow()
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    return pa.schema(
        [
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
            pa.field("timestampType", pa.int32(), nullable=False),
            pa.field("headers", pa.list_(pa.field("element", header))),
        ]
    )


def write_piece(order: Order, *, files: Files | None = None) -> Written:
    """Write the files of a piece, synced, under hidden names. An error of ours is returned, and leaves no file."""
    writing = _Writing(order, files or OsFiles())
    try:
        split = Split(order.origin, [order.piece], fail_on_data_loss=True)
        for batch in scan_split(split, writing.schema):
            writing.add(batch)
        return Written(order.piece, writing.finish())
    except DataLoss as error:
        writing.discard()
        told = f"{order.piece}: segments were deleted before they were copied; run to_lake again for what is left"
        return Written(order.piece, (), DataLoss(error.condition, told))
    except SeeklogError as error:
        writing.discard()
        return Written(order.piece, (), error)
    except OSError as error:
        writing.discard()
        return Written(order.piece, (), refusal(order.lake, error))
    except BaseException:
        writing.discard()
        raise


def refusal(lake: str, error: OSError) -> SeeklogError:
    """Return what a job says when the disk of the lake does not take what it writes."""
    when_full = "nothing was added; run to_lake again with more room"
    return translate(error, f"the lake at {lake} cannot be written", when_full=when_full)


def date_of(day: int) -> str:
    """Return the date of a day since 1970, as the name of its directory has it."""
    if not _FIRST_DAY <= day <= _LAST_DAY:
        return names.NO_DATE
    return (_EPOCH + timedelta(days=day)).date().isoformat()


class _Sink:
    """A file that Arrow writes to, through our own door to the disk."""

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
        if not self._pending and len(data) >= WRITE_BYTES:
            self._files.write(self._handle, data, self._position)
            self._position += len(data)
        else:
            self._pending += data
            if len(self._pending) >= WRITE_BYTES:
                self.flush()
        return len(data)

    def flush(self) -> None:
        if self._pending:
            self._files.write(self._handle, self._pending, self._position)
            self._position += len(self._pending)
            self._pending = bytearray()

    def finish(self) -> int:
        """Make it durable; return its size."""
        self.flush()
        self._files.sync(self._handle)
        self.close()
        return self._position

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._files.close(self._handle)


@dataclass
class _Open:
    """A file of one day that is being written."""

    number: int
    sink: _Sink
    parquet: Any
    held: list[pyarrow.RecordBatch] = field(default_factory=list)
    held_bytes: int = 0
    held_rows: int = 0
    rows: int = 0
    start: int = 0
    last: int = 0
    least_us: int = 0
    most_us: int = 0


class _Writing:
    """The files of one piece."""

    def __init__(self, order: Order, files: Files) -> None:
        self._order = order
        self._files = files
        self._unique = uuid.uuid4().hex
        self._open: dict[str, _Open] = {}
        """By date; the one used last stands last."""
        self._counts: dict[str, int] = {}
        self._paths: list[str] = []
        self._done: list[tuple[str, LakeFile]] = []
        self._held_bytes = 0
        self.schema = lake_schema()

    def add(self, batch: pyarrow.RecordBatch) -> None:
        """Write rows, each to the file of its day."""
        for date, rows in _by_date(batch):
            open_file = self._file_of(date)
            times = _least_and_most(rows)
            if not open_file.rows:
                open_file.start, (open_file.least_us, open_file.most_us) = rows.column("offset")[0].as_py(), times
            open_file.last = rows.column("offset")[-1].as_py()
            open_file.least_us = min(open_file.least_us, times[0])
            open_file.most_us = max(open_file.most_us, times[1])
            open_file.rows += rows.num_rows
            open_file.held.append(rows)
            open_file.held_rows += rows.num_rows
            size = rows.get_total_buffer_size() if rows is batch else rows.nbytes
            open_file.held_bytes += size
            self._held_bytes += size
            if open_file.held_bytes >= GROUP_BYTES or open_file.held_rows >= GROUP_ROWS:
                self._write_group(open_file)
        while self._held_bytes > HELD_BYTES:
            self._write_group(max(self._open.values(), key=lambda one: one.held_bytes))

    def _file_of(self, date: str) -> _Open:
        found = self._open.pop(date, None)
        if found is None:
            if len(self._open) >= OPEN_MOST:
                self._close(next(iter(self._open)))
            found = self._begin(date)
        self._open[date] = found
        return found

    def _begin(self, date: str) -> _Open:
        import pyarrow.parquet as pq

        piece = self._order.piece
        number = self._counts.get(date, 0)
        self._counts[date] = number + 1
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
            # Values are hardly ever the same; a dictionary of them is built only to be thrown away.
            use_dictionary=["key", "partition", "timestampType", "headers.list.element.key"],
            column_encoding={"offset": _DELTA, "timestamp": _DELTA},
            write_statistics=["key", "partition", "offset", "timestamp"],
            store_schema=False,
        )
        return _Open(number, sink, parquet)

    def _write_group(self, one: _Open) -> None:
        if one.held:
            table = import_pyarrow().Table.from_batches(one.held, schema=self.schema)
            one.parquet.write_table(table, row_group_size=GROUP_ROWS)
            self._held_bytes -= one.held_bytes
            one.held, one.held_bytes, one.held_rows = [], 0, 0

    def _close(self, date: str) -> None:
        one = self._open[date]
        self._write_group(one)
        one.parquet.close()
        size = one.sink.finish()
        del self._open[date]
        hidden = os.path.relpath(one.sink.path, self._order.lake)
        directory, name = os.path.split(hidden)
        self._done.append(
            (
                hidden,
                LakeFile(
                    path=f"{directory}/{names.shown_lake_file(name)}",
                    start=one.start,
                    next_offset=one.last + 1,
                    rows=one.rows,
                    size=size,
                    min_timestamp_ms=one.least_us // US_PER_MS,
                    max_timestamp_ms=one.most_us // US_PER_MS,
                ),
            )
        )

    def finish(self) -> tuple[tuple[str, LakeFile], ...]:
        """Return the files, all of them durable but for their names."""
        for date in list(self._open):
            self._close(date)
        return tuple(self._done)

    def discard(self) -> None:
        """Leave nothing."""
        for one in self._open.values():
            one.sink.close()
        for path in self._paths:
            with contextlib.suppress(OSError):
                self._files.remove(path)


def _least_and_most(rows: pyarrow.RecordBatch) -> tuple[int, int]:
    import pyarrow.compute as pc

    found = pc.min_max(rows.column("timestamp").view("int64"))
    return found["min"].as_py(), found["max"].as_py()


def _by_date(batch: pyarrow.RecordBatch) -> Iterator[tuple[str, pyarrow.RecordBatch]]:
    """Yield the rows of each date, in their order."""
    import pyarrow.compute as pc

    least, most = (time // DAY_US for time in _least_and_most(batch))
    if least == most:
        yield date_of(least), batch
        return
    days = floor_divided(batch.column("timestamp").view("int64"), DAY_US)
    by_date: dict[str, list[int]] = {}
    for day in sorted(pc.unique(days).to_pylist()):
        by_date.setdefault(date_of(day), []).append(day)
    for date, found in by_date.items():
        yield date, batch.filter(pc.is_in(days, value_set=import_pyarrow().array(found, "int64")))
