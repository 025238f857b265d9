"""Streams of a topic's record batches as data frames."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from seeklog.errors import import_failed

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


def to_pandas(batches: pyarrow.RecordBatchReader) -> pandas.DataFrame:
    """Return all rows of a stream as a pandas data frame. Headers become tuples of (key, value)."""
    try:
        import pandas
    except ImportError as error:
        missing = 'to_pandas needs pandas: pip install "seeklog[pandas]"'
        raise import_failed(error, "pandas", missing=missing) from error
    table = batches.read_all()
    if "headers" not in table.column_names:
        return table.to_pandas()
    place = table.column_names.index("headers")
    frame = table.drop_columns(["headers"]).to_pandas()
    frame.insert(place, "headers", pandas.Series(_header_tuples(table["headers"]), index=frame.index, dtype=object))
    return frame


def _header_tuples(column: Any) -> list[tuple[tuple[str, bytes | None], ...]]:
    """Return the headers of each record. Without this, pandas would get an array of dicts for each."""
    found: list[tuple[tuple[str, bytes | None], ...]] = []
    for chunk in column.chunks:
        pairs = chunk.flatten()
        if not len(pairs):
            found += [()] * len(chunk)
            continue
        flat = list(zip(pairs.field("key").to_pylist(), pairs.field("value").to_pylist(), strict=True))
        ends = [end - chunk.offsets[0].as_py() for end in chunk.offsets.to_pylist()]
        found += [tuple(flat[start:end]) for start, end in itertools.pairwise(ends)]
    return found


def to_polars(batches: pyarrow.RecordBatchReader) -> polars.DataFrame:
    """Return all rows of a stream as a polars data frame."""
    try:
        import polars
    except ImportError as error:
        missing = 'to_polars needs polars: pip install "seeklog[polars]"'
        raise import_failed(error, "polars", missing=missing) from error
    # One chunk would be another copy of everything.
    return polars.from_arrow(batches.read_all(), rechunk=False)  # type: ignore[return-value]  # a frame from a table
