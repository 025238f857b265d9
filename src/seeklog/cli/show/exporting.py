"""Records on their way into a file of another format, in pieces that memory has room for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BufferedWriter
from typing import Any, Final

from seeklog.cli.selection import scan
from seeklog.cli.show.record_output import writer_of
from seeklog.record.arrow import import_pyarrow
from seeklog.store import Range

FORMATS: Final = ("parquet", "csv", "jsonl")
# A row group is in memory while it is written. Parquet's readers like them of about a million rows.
GROUP_BYTES: Final = 64 << 20
GROUP_ROWS: Final = 1 << 20

Count = Callable[[int], object]


def export_text(file: BufferedWriter, ranges: Sequence[Range], *, chosen: str, utc: bool, count: Count) -> None:
    """Write records as CSV or JSON lines, partition by partition."""
    writer = writer_of(chosen, utc=utc)
    file.write(writer.head)
    for records in scan(ranges):
        file.write(writer.encode(records))
        count(len(records))
    file.write(writer.tail)


def export_parquet(file: BufferedWriter, ranges: Sequence[Range], *, topic: str, count: Count) -> None:
    """Write records as Parquet with the columns of Spark's Kafka source, partition by partition."""
    import_pyarrow()
    import pyarrow as pa
    import pyarrow.parquet as pq

    from seeklog.store.dataset import TopicDataset

    table = TopicDataset(topic, lambda: ranges)
    group: list[Any] = []
    with pq.ParquetWriter(file, table.schema, compression="zstd") as writer:

        def write_group() -> None:
            if group:
                writer.write_table(pa.Table.from_batches(group), row_group_size=GROUP_ROWS)
                group.clear()

        for batch in table.batches():
            group.append(batch)
            count(batch.num_rows)
            if sum(each.nbytes for each in group) >= GROUP_BYTES or sum(map(len, group)) >= GROUP_ROWS:
                write_group()
        write_group()
