"""What a task does: a split in, Arrow batches out, decoded by the kernel straight from the bytes of segments."""

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

# On the flat part of Spark's curve; `columns.BYTES_PER_ROW` ends a batch of large records at 2 MB.
BATCH_ROWS: Final = 16384
MICROSECONDS_PER_MS: Final = 1000


def scan_split(split: Split, schema: pyarrow.Schema) -> Iterator[pyarrow.RecordBatch]:
    """Yield the records of a split as batches of just the columns of `schema`.

    A segment that was deleted since the split was planned raises `DataLoss`, or is left out with a warning if the
    split says so. Damage raises `CorruptionError` with file and byte.
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
            place = next((place for place, each in enumerate(view.segments) if each.path == error.filename), None)
            if place is None:
                raise translate(error, f"{error.filename} cannot be read") from error
            missing = view.segments[place]
            report(
                "COULD_NOT_READ_OFFSET_RANGE",
                f"{piece}: the segment of offsets {missing.base_offset} to {missing.next_offset - 1} was deleted "
                "before it was read",
                min(stop, missing.next_offset) - max(start, missing.base_offset),
            )
            # Rows of the segments before it that were not yielded yet went with the error: they are read again.
            before, after = view.segments[:place], view.segments[place + 1 :]
            if after and missing.next_offset < stop:
                pending.append((View(after), missing.next_offset, stop))
            if before and reached < min(stop, missing.base_offset):
                pending.append((View(before), reached, min(stop, missing.base_offset)))


class _Finish:
    """Puts the columns that are the same for a whole piece beside those that were decoded."""

    def __init__(self, piece: Piece, schema: pyarrow.Schema, *, counts: bool) -> None:
        """With `counts`, offsets are decoded even if `schema` does not have them."""
        self._pa = pa = import_pyarrow()
        self._schema = schema
        fields = [field for field in schema if field.name in ALL_COLUMNS]
        if "offset" not in schema.names and (counts or not fields):
            # A scan also needs some column to count rows by.
            fields.append(pa.field("offset", pa.int64()))
        self.decoded = pa.schema(fields)
        constants = {"topic": pa.scalar(piece.topic, pa.string()), "partition": pa.scalar(piece.partition, pa.int32())}
        self._constants: dict[str, Any] = {name: each for name, each in constants.items() if name in schema.names}
        self._repeated: dict[str, Any] = {}
        self._rows = 0

    def __call__(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        rows = batch.num_rows
        if rows > self._rows:
            # Batches that are not longer have slices of these.
            self._rows = rows
            self._repeated = {name: self._pa.repeat(each, rows) for name, each in self._constants.items()}
        columns = [
            self._repeated[name].slice(0, rows) if name in self._repeated else batch.column(name)
            for name in self._schema.names
        ]
        return self._pa.RecordBatch.from_arrays(columns, schema=self._schema)


def floor_divided(numbers: pyarrow.Array, by: int) -> pyarrow.Array:
    """Return whole numbers divided and rounded down. Arrow's own division cuts towards zero: before 1970 that is up."""
    import pyarrow.compute as pc

    cut = pc.divide(numbers, by)
    is_above = pc.less(numbers, pc.multiply(cut, by))
    return pc.subtract(cut, is_above.cast("int64"))
