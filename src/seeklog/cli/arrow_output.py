"""Records as Parquet and Arrow files, without loss.

The columns are those of Spark's Kafka source: key, value, topic, partition, offset, timestamp, timestampType, headers.
Times are in milliseconds, as in the log: microseconds cannot hold all of them. Keys of headers are text there. If one
is not UTF-8, the file gets a ninth column, `header_keys`: the bytes of all header keys of such a record, else null.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from io import BufferedWriter
from typing import Any, Final

from seeklog.store import Range

# A row group is in memory until it is written. Readers of Parquet work best with about a million rows.
GROUP_BYTES: Final = 64 << 20
GROUP_ROWS: Final = 1 << 20
HEADER_KEYS: Final = "header_keys"
# What the engine writes for bytes that are not UTF-8. The text may also be in a key.
_REPLACEMENT: Final = "\ufffd"

Count = Callable[[int], object]


class _KeysNotText(Exception):
    """A key of a header may not be UTF-8, and the file has no column for it."""


def write_arrow(file: BufferedWriter, ranges: Sequence[Range], *, form: str, topic: str, count: Count) -> None:
    """Write records to a file: `parquet`, `arrow` (IPC file) or `arrows` (IPC stream), partition by partition."""
    try:
        _write(file, ranges, form, topic, count, has_keys=False)
    except _KeysNotText:
        # Rare enough to begin again: the columns must be known before the first row is written.
        file.seek(0)
        file.truncate()
        _write(file, ranges, form, topic, count, has_keys=True)


def _write(
    file: BufferedWriter, ranges: Sequence[Range], form: str, topic: str, count: Count, *, has_keys: bool
) -> None:
    import pyarrow as pa

    from seeklog.store.dataset import TopicDataset

    table = TopicDataset(topic, lambda: ranges, timestamp_unit="ms")
    schema = table.schema.append(pa.field(HEADER_KEYS, pa.list_(pa.binary()))) if has_keys else table.schema
    logs = {part.partition: part.log for part in ranges}
    done = 0
    with _writer(file, schema, form) as write:
        for batch in table.batches():
            rows = batch
            is_doubtful = _has_replacement(batch)
            if has_keys:
                keys = _header_keys(batch, logs) if is_doubtful else [None] * batch.num_rows
                arrays = [*batch.columns, pa.array(keys, pa.list_(pa.binary()))]
                rows = pa.RecordBatch.from_arrays(arrays, schema=schema)
            elif is_doubtful:
                count(-done)
                raise _KeysNotText
            write(rows)
            count(batch.num_rows)
            done += batch.num_rows


@contextlib.contextmanager
def _writer(file: BufferedWriter, schema: Any, form: str) -> Iterator[Callable[[Any], object]]:
    """Yield a function that writes a batch."""
    import pyarrow as pa

    if form != "parquet":
        with (pa.ipc.new_file if form == "arrow" else pa.ipc.new_stream)(file, schema) as writer:
            yield writer.write_batch
        return
    import pyarrow.parquet as pq

    group: list[Any] = []
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:

        def write_group() -> None:
            if group:
                writer.write_table(pa.Table.from_batches(group), row_group_size=GROUP_ROWS)
                group.clear()

        def write(batch: Any) -> None:
            group.append(batch)
            if sum(rows.nbytes for rows in group) >= GROUP_BYTES or sum(map(len, group)) >= GROUP_ROWS:
                write_group()

        yield write
        write_group()


def _has_replacement(batch: Any) -> bool:
    import pyarrow.compute as pc

    keys = batch.column("headers").flatten().field("key")
    return bool(pc.any(pc.match_substring(keys, _REPLACEMENT)).as_py())


def _header_keys(batch: Any, logs: dict[int, Any]) -> list[list[bytes] | None]:
    """Return the header keys of each record that has one that is not UTF-8, from the records themselves."""
    offsets = batch.column("offset").to_pylist()
    log = logs[batch.column("partition")[0].as_py()]
    keys = {
        record.offset: [key.encode("utf-8", "surrogateescape") for key, _ in record.headers]
        for record in log.scan(offsets[0], offsets[-1] + 1)
        if any("\udc80" <= character <= "\udcff" for key, _ in record.headers for character in key)
    }
    return [keys.get(offset) for offset in offsets]
