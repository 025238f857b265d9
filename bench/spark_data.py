"""The rows of the Spark figures, in a topic and in Parquet files: payments, and incompressible values.

Both have 8-byte keys and timestamps spread evenly over one day, so that a hundredth of the day has a hundredth of the
rows. Values are 100 random bytes, or a payment in JSON of about 110 bytes.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import seeklog
from seeklog.record import rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PARTITIONS = 2
CHUNK_ROWS = 250_000
DAY_START_MS = 1_767_225_600_000  # 2026-01-01T00:00Z
DAY_MS = 24 * 3600 * 1000
# An eighth of Kafka's default, so that nearly all of the log is in sealed segments.
SEGMENT_BYTES = 128 << 20
# The default of the sink.
BATCH_BYTES = 64 << 10
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("timestamp", pa.timestamp("us", "UTC")),
    ]
)


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A topic of a store, and the same rows as Parquet."""

    topic: str
    store: Path
    parquet: Path
    count: int


def build(root: Path, topic: str, count: int, *, segment_bytes: int = SEGMENT_BYTES) -> Rows:
    """Write the rows of the topic `payments` or `random` to both."""
    built = Rows(topic=topic, store=root / "store", parquet=root / f"{topic}.parquet", count=count)
    built.parquet.mkdir(parents=True, exist_ok=True)
    with seeklog.open(built.store, config={"flush": "os", "retention.ms": -1}) as store:
        store.create_topic(topic, partitions=PARTITIONS, config={"segment.bytes": segment_bytes})
        for partition in range(PARTITIONS):
            path = built.parquet / f"part-{partition}.snappy.parquet"
            with (
                pq.ParquetWriter(path, SCHEMA, compression="snappy") as parquet,
                store._table.writing(seeklog.TopicPartition(topic, partition)) as log,
            ):
                for table in _tables(topic, partition, count // PARTITIONS):
                    parquet.write_table(pa.Table.from_batches([table]), row_group_size=CHUNK_ROWS * 4)
                    columns = rows.record_rows(**{name: table.column(name) for name in SCHEMA.names})
                    for batch, _ in rows.encode_rows(columns, now_ms=0, batch_bytes=BATCH_BYTES):
                        log.append_batches(batch)
    return built


def _tables(topic: str, partition: int, count: int) -> Iterator[pa.RecordBatch]:
    for first in range(0, count, CHUNK_ROWS):
        numbers = pa.array(range(first, min(count, first + CHUNK_ROWS)), pa.int64())
        times = pc.add(pc.divide(pc.multiply(numbers, DAY_MS * 1000), count), DAY_START_MS * 1000)
        values = _random_values(len(numbers)) if topic == "random" else _payments(numbers, partition)
        arrays = [_keys(numbers), values, times.cast(SCHEMA.field("timestamp").type)]
        yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _keys(numbers: Any) -> pa.Array:
    big = numbers.to_numpy().astype(">i8").tobytes()
    return pa.Array.from_buffers(pa.binary(8), len(numbers), [None, pa.py_buffer(big)]).cast(pa.binary())


def _random_values(count: int) -> pa.Array:
    return pa.Array.from_buffers(pa.binary(100), count, [None, pa.py_buffer(os.urandom(100 * count))]).cast(pa.binary())


def _payments(numbers: Any, partition: int) -> pa.Array:
    scattered = pc.bit_wise_and(pc.multiply(numbers, 2_654_435_761), 0xFFFFFF)
    merchants = pc.bit_wise_and(scattered, 0x3FF)
    pieces = (
        '{"payment_id":"',
        pc.cast(pc.add(pc.multiply(numbers, PARTITIONS), partition), pa.string()),
        '","merchant_id":"m',
        pc.cast(merchants, pa.string()),
        '","amount_paise":',
        pc.cast(scattered, pa.string()),
        ',"currency":"INR","status":"captured","method":"upi"}',
        "",
    )
    return pc.binary_join_element_wise(*pieces).cast(pa.binary())


def multiply(rows: Rows, root: Path, *, copies: int) -> int:
    """Create a data directory with many links to the same logs as partitions; return the size of all logs."""
    size = 0
    for source in sorted(rows.store.glob(f"{rows.topic}-*")):
        for copy in range(copies):
            target = root / f"copy{copy}-{source.name.rpartition('-')[2]}"
            target.mkdir(parents=True)
            for path in source.iterdir():
                if path.suffix == ".log":
                    (target / path.name).hardlink_to(path)
                    size += path.stat().st_size
                elif path.name != ".lock":
                    shutil.copy(path, target)
    return size


def drop_indexes(root: Path) -> None:
    """Remove every index."""
    for path in [*root.rglob("*.index"), *root.rglob("*.timeindex")]:
        path.unlink()
