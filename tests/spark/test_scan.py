"""The task of a read: Arrow batches of the right schema and size, and the rest of a log with deleted segments."""

from __future__ import annotations

import logging
from pathlib import Path

import pyarrow as pa
import pytest

import seeklog

pytest.importorskip("pyspark")

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from log.workbench import segment_bases
from seeklog import Record, TopicPartition
from seeklog.errors import DataLoss
from seeklog.files import OsFiles
from seeklog.spark.read.offsets import Range
from seeklog.spark.read.plan import Split, plan_splits
from seeklog.spark.read.scan import BATCH_ROWS, scan_split
from seeklog.spark.read.schema import RECORD_SCHEMA, arrow_schema, pick
from spark.workbench import append, make_store, numbered
from store.workbench import open_store


def plan(path: Path, topic: str = "t", *, start: int = 0, stop: int | None = None, fail: bool = True) -> Split:
    """Return the only split of a topic's first partition."""
    with open_store(path, read_only=True) as store:
        stop = store.log(topic, 0).high_watermark if stop is None else stop
        ranges = [Range(TopicPartition(topic, 0), start, stop)]
        (split,) = plan_splits(store, ranges, split_bytes=1 << 40, fail_on_data_loss=fail)
    return split


def scan(split: Split, *columns: str) -> list[pa.RecordBatch]:
    return list(scan_split(split, arrow_schema(pick(RECORD_SCHEMA, columns or RECORD_SCHEMA.fieldNames()))))


def offsets(batches: list[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


# ---------------------------------------------------------------- shape


@pytest.mark.parametrize("nullable", [True, False])
def test_batches_have_the_schema_that_spark_requires(tmp_path: Path, nullable: bool) -> None:
    path = make_store(tmp_path / "store", {"t": [20]})
    schema = StructType([StructField(one.name, one.dataType, nullable) for one in RECORD_SCHEMA.fields])
    demanded = to_arrow_schema(schema, timezone="UTC")

    (batch,) = scan_split(plan(path), arrow_schema(schema))

    assert demanded.equals(batch.schema)
    batch.validate(full=True)


def test_batches_have_about_sixteen_thousand_rows(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"t": [100_000]}, batch_records=500)

    batches = scan(plan(path))

    assert offsets(batches) == list(range(100_000))
    assert all(BATCH_ROWS - 500 < batch.num_rows <= BATCH_ROWS for batch in batches[:-1])
    for batch in batches:
        assert set(batch.column("topic").to_pylist()) == {"t"}
        assert set(batch.column("partition").to_pylist()) == {0}


def test_batches_of_large_records_have_fewer_rows(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"t": [0]})
    with open_store(path) as store:
        append(store, "t", [Record(b"v" * 10_000) for _ in range(2000)], batch_records=10)

    batches = scan(plan(path), "value")

    assert sum(batch.num_rows for batch in batches) == 2000
    assert all(1 << 20 <= batch.nbytes <= 8 << 20 for batch in batches[:-1])


def test_oversized_record_is_a_batch_alone(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"t": [0]}, max_message_bytes=8 << 20)
    with open_store(path, max_message_bytes=8 << 20) as store:
        append(store, "t", [Record(b"v" * (4 << 20)), Record(b"small")], batch_records=1)
        append(store, "t", numbered(40_000))

    batches = scan(plan(path), "topic", "value", "offset")

    assert offsets(batches) == list(range(40_002))
    # The constant columns grow with the largest batch.
    assert batches[-1].num_rows == 40_000
    assert batches[-1].column("topic")[-1].as_py() == "t"


def test_constant_columns_can_be_read_alone(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"t": [20]})

    (batch,) = scan(plan(path), "topic")

    assert batch.to_pydict() == {"topic": ["t"] * 20}


def test_split_of_many_partitions_is_read_in_order(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"t": [3, 0, 2, 4]})
    with open_store(path, read_only=True) as store:
        ranges = [Range(TopicPartition("t", number), 0, count) for number, count in ((0, 3), (2, 2), (3, 4))]
        (split,) = plan_splits(store, ranges)

    rows = [tuple(row.values()) for batch in scan(split, "partition", "offset") for row in batch.to_pylist()]

    assert rows == [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2), (3, 3)]


# ---------------------------------------------------------------- how little is read


def test_task_starts_reading_near_its_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_store(tmp_path / "store", {"t": [0]})
    with open_store(path) as store:
        append(store, "t", [Record(b"v" * 1000) for _ in range(5000)], batch_records=10)
    split = plan(path, start=4000, stop=4010)
    positions = []
    real_read = OsFiles.read

    def noting_read(files: OsFiles, handle: int, size: int, position: int) -> bytes:
        if files.size(handle) > 1000:  # the log, not the partition's metadata
            positions.append(position)
        return real_read(files, handle, size, position)

    monkeypatch.setattr(OsFiles, "read", noting_read)
    assert offsets(scan(split, "offset")) == list(range(4000, 4010))
    # Ten thousand bytes per batch, so the index points to the previous batch.
    assert len(positions) == 1
    assert positions[0] > 4000 * 1000 - 20_000


# ---------------------------------------------------------------- what others delete meanwhile


def remove_segments(path: Path, bases: list[int]) -> None:
    for base in bases:
        for file in (path / "t-0").glob(f"{base:020d}.*"):
            file.unlink()


@pytest.mark.parametrize("columns", [("offset",), ("value",)], ids=["offsets", "values"])
@pytest.mark.parametrize("gone", [[0], [2], [-1], [1, 2], [1, 3], [0, 1, 2]], ids=str)
def test_rest_of_a_range_is_read_and_lost_offsets_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, gone: list[int], columns: tuple[str, ...]
) -> None:
    path = make_store(tmp_path / "store", {"t": [500]}, segment_bytes=4000)
    split = plan(path, fail=False)
    bases = segment_bases(path / "t-0")
    assert len(bases) > 3
    edges = [*bases, 500]
    row_offsets = [place % len(bases) for place in gone]
    lost = {offset for place in row_offsets for offset in range(edges[place], edges[place + 1])}
    remove_segments(path, [bases[place] for place in row_offsets])

    with caplog.at_level(logging.WARNING, "seeklog"):
        batches = scan(split, *columns)

    # A value is its offset.
    found = [int(one) for batch in batches for one in batch.column(0).to_pylist()]
    assert found == [offset for offset in range(500) if offset not in lost]
    counts = [int(record.getMessage().split("; ")[1].split()[0]) for record in caplog.records]
    assert sum(counts) == len(lost)
    assert len(counts) == len(row_offsets)


def test_rows_before_a_missing_segment_are_yielded_once(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"t": [60_000]}, segment_bytes=300_000, batch_records=300)
    split = plan(path, fail=False)
    bases = segment_bases(path / "t-0")
    place = next(place for place, base in enumerate(bases) if base > 2 * BATCH_ROWS)
    remove_segments(path, [bases[place]])

    batches = scan(split, "value")

    found = [int(one) for batch in batches for one in batch.column(0).to_pylist()]
    assert found == [*range(bases[place]), *range(bases[place + 1], 60_000)]


def test_first_missing_segment_ends_a_strict_read(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"t": [500]}, segment_bytes=4000)
    split = plan(path)
    bases = segment_bases(path / "t-0")
    remove_segments(path, [bases[1]])

    with pytest.raises(DataLoss) as caught:
        scan(split)

    assert str(caught.value).startswith(
        f"[DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] t-0: the segment of offsets {bases[1]} to {bases[2] - 1} was deleted "
        f"before it was read; {bases[2] - bases[1]} offsets are missing"
    )


def test_deleted_partition_is_a_loss(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"t": [50]})
    strict, lenient = plan(path), plan(path, fail=False)
    with seeklog.open(path) as store:
        store.delete_topic("t")

    with pytest.raises(DataLoss, match=r"PARTITIONS_DELETED\] t-0 was deleted or recreated.*50 offsets"):
        scan(strict)
    assert scan(lenient) == []
