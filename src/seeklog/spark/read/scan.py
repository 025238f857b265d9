"""The task of a read: yields the records of a split as Arrow batches, decoded by the kernel from segment bytes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from seeklog.files import Files, translate, translated
from seeklog.log import View, pinned_view, scan_arrow
from seeklog.record.arrow import ALL_COLUMNS, import_pyarrow
from seeklog.spark.read.offsets import report_loss
from seeklog.spark.read.plan import Piece, Split, read_identity

if TYPE_CHECKING:
    import pyarrow

# Larger batches make Spark no faster. `columns.BYTES_PER_ROW` ends a batch of large records at 2 MB.
BATCH_ROWS: Final = 16384
MICROSECONDS_PER_MS: Final = 1000


def scan_split(split: Split, schema: pyarrow.Schema) -> Iterator[pyarrow.RecordBatch]:
    """Yield the records of a split as batches with the columns of `schema`.

    A segment deleted since planning raises `DataLoss`, or is skipped with a warning if the split allows it. A damaged
    batch raises `CorruptionError` with its file and byte.
    """
    files = split.origin.files()
    for piece in split.pieces:
        directory = f"{split.origin.root}/{piece}"
        with translated(f"{piece} cannot be read at {directory}"):
            yield from _scan_piece(piece, files, directory, schema, fail=split.fail_on_data_loss)


def _scan_piece(
    piece: Piece, files: Files, directory: str, schema: pyarrow.Schema, *, fail: bool
) -> Iterator[pyarrow.RecordBatch]:
    report = partial(report_loss, fail=fail)
    if read_identity(files, directory) != piece.identity:
        report(
            "PARTITIONS_DELETED",
            f"{piece} was deleted or recreated since offsets {piece.start} to {piece.stop - 1} of it were planned",
            piece.stop - piece.start,
        )
        return
    finish = _Finish(piece, schema, counts=not fail)
    pending = [(pinned_view(files, directory, piece.pin), piece.start, piece.stop)]
    while pending:
        view, start, stop = pending.pop()
        reached = start
        try:
            for batch in scan_arrow(
                view,
                start,
                stop,
                schema=finish.decoded,
                batch_rows=BATCH_ROWS,
                limit=piece.limit,
                timestamp_scale=MICROSECONDS_PER_MS,
                headers_null=True,
            ):
                if not fail:
                    reached = batch.column("offset")[-1].as_py() + 1
                yield finish(batch)
        except FileNotFoundError as error:
            paths = [segment.path for segment in view.segments]
            if error.filename not in paths:
                raise translate(error, f"{error.filename} cannot be read") from error
            number = paths.index(error.filename)
            missing = view.segments[number]
            report(
                "COULD_NOT_READ_OFFSET_RANGE",
                f"{piece}: the segment of offsets {missing.base_offset} to {missing.next_offset - 1} was deleted "
                "before it was read",
                min(stop, missing.next_offset) - max(start, missing.base_offset),
            )
            # The error discarded decoded rows of earlier segments that were not yielded: read them again.
            before, after = view.segments[:number], view.segments[number + 1 :]
            if after and missing.next_offset < stop:
                pending.append((View(after), missing.next_offset, stop))
            if before and reached < min(stop, missing.base_offset):
                pending.append((View(before), reached, min(stop, missing.base_offset)))


class _Finish:
    """Adds the columns that are constant for a piece to the decoded columns."""

    def __init__(self, piece: Piece, schema: pyarrow.Schema, *, counts: bool) -> None:
        """Choose the columns to decode; with `counts` that includes offsets even if `schema` lacks them."""
        self._pa = pa = import_pyarrow()
        self._schema = schema
        fields = [field for field in schema if field.name in ALL_COLUMNS]
        if "offset" not in schema.names and (counts or not fields):
            # A scan needs at least one column to count rows.
            fields.append(pa.field("offset", pa.int64()))
        self.decoded = pa.schema(fields)
        constants = {"topic": pa.scalar(piece.topic, pa.string()), "partition": pa.scalar(piece.partition, pa.int32())}
        self._constants: dict[str, Any] = {name: value for name, value in constants.items() if name in schema.names}
        self._repeated: dict[str, Any] = {}
        self._rows = 0

    def __call__(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        rows = batch.num_rows
        if rows > self._rows:
            # Shorter batches use slices of these.
            self._rows = rows
            self._repeated = {name: self._pa.repeat(value, rows) for name, value in self._constants.items()}
        columns = [
            self._repeated[name].slice(0, rows) if name in self._repeated else batch.column(name)
            for name in self._schema.names
        ]
        return self._pa.RecordBatch.from_arrays(columns, schema=self._schema)


def floor_divided(numbers: pyarrow.Array, by: int) -> pyarrow.Array:
    """Return integers divided and rounded down. Arrow rounds towards zero, which is up for times before 1970."""
    import pyarrow.compute as pc

    quotients = pc.divide(numbers, by)
    is_above = pc.less(numbers, pc.multiply(quotients, by))
    return pc.subtract(quotients, is_above.cast("int64"))
