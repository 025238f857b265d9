"""What a task does: a split in, Arrow batches out, decoded by the kernel straight from the bytes of segments."""

from __future__ import annotations

from collections.abc import Iterator
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
    if read_identity(files, directory) != piece.identity:
        report_loss(
            "PARTITIONS_DELETED",
            f"{piece} was deleted, or made anew, since offsets {piece.start} to {piece.stop - 1} of it were planned",
            count=piece.stop - piece.start,
            fail=fail,
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
            place = next((place for place, one in enumerate(view.segments) if one.path == error.filename), None)
            if place is None:
                raise translate(error, f"{error.filename} cannot be read") from error
            missing = view.segments[place]
            report_loss(
                "COULD_NOT_READ_OFFSET_RANGE",
                f"{piece}: the segment of offsets {missing.base_offset} to {missing.next_offset - 1} was deleted "
                "before it was read",
                count=min(stop, missing.next_offset) - max(start, missing.base_offset),
                fail=fail,
            )
            # Rows of the segments before it that were not yielded yet went with the error: they are read again.
            before, behind = view.segments[:place], view.segments[place + 1 :]
            pending += [
                (View(segments), first, last)
                for segments, first, last in (
                    (behind, missing.next_offset, stop),
                    (before, reached, min(stop, missing.base_offset)),
                )
                if segments and first < last
            ]


class _Finish:
    """Puts the columns that are the same for a whole piece beside those that were decoded."""

    def __init__(self, piece: Piece, schema: pyarrow.Schema, *, counts: bool) -> None:
        """Offsets are decoded whether they are asked for or not if `counts` says that the caller needs them."""
        self._pa = pa = import_pyarrow()
        self._schema = schema
        self._constants = {
            "topic": pa.scalar(piece.topic, pa.string()),
            "partition": pa.scalar(piece.partition, pa.int32()),
        }
        fields = [field for field in schema if field.name in ALL_COLUMNS]
        if "offset" not in schema.names and (counts or not fields):
            # A scan also needs some column to count rows by.
            fields.append(pa.field("offset", pa.int64()))
        self.decoded = pa.schema(fields)
        self._made: dict[str, Any] = {}
        self._made_rows = 0

    def __call__(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        rows = batch.num_rows
        if rows > self._made_rows:
            self._make(rows)
        return self._pa.RecordBatch.from_arrays(
            [self._column(batch, name, rows) for name in self._schema.names], schema=self._schema
        )

    def _column(self, batch: pyarrow.RecordBatch, name: str, rows: int) -> Any:
        made = self._made.get(name)
        return batch.column(name) if made is None else made.slice(0, rows)

    def _make(self, rows: int) -> None:
        """Make the columns that do not change; batches that are not longer have slices of them."""
        self._made_rows = rows
        for name, value in self._constants.items():
            if name in self._schema.names:
                self._made[name] = self._pa.repeat(value, rows)
