"""`to_lake` and `read_lake`: each record once during appends and copies, as the data source reads it."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from log.workbench import START_MS
from seeklog import Record, TopicPartition
from seeklog.errors import (
    ArchiveMismatch,
    CorruptionError,
    DataLoss,
    LogLocked,
    SeeklogError,
    TopicNotFound,
    UsageError,
)
from seeklog.files import OsFiles
from seeklog.log import take_snapshot
from seeklog.record.crc import crc32c
from seeklog.spark import jobs
from seeklog.spark.lake.directory import LakeDirectory
from seeklog.spark.lake.manifest import Manifest
from spark.workbench import append, load, make_store, numbered, unpack_broker
from store.workbench import Holder, open_store, snapshot

SEGMENT_BYTES = 2000
DAY_MS = 86_400_000
# 2023-11-15T00:00Z, the midnight after the first record.
MIDNIGHT_MS = (START_MS // DAY_MS + 1) * DAY_MS


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "store", {"orders": [300, 200], "other": [100]}, segment_bytes=SEGMENT_BYTES)


def copied(spark: SparkSession, store: Path, lake: Path, **options: Any) -> dict[tuple[str, int], Any]:
    rows = jobs.to_lake(spark, store, lake, progress=False, **options).collect()
    return {(row.topic, row.partition): row for row in rows}


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    """Return all rows in the order of the log."""
    rows = [tuple(row) for row in frame.select("topic", "partition", "offset", *frame.columns).collect()]
    return sorted(rows, key=lambda row: row[:3])


def source_rows(spark: SparkSession, store: Path, topic: str = "orders") -> list[tuple[Any, ...]]:
    return rows_of(load(spark, store, subscribe=topic, includeHeaders=True))


def lake_rows(spark: SparkSession, store: Path | None, lake: Path, topic: str = "orders") -> list[tuple[Any, ...]]:
    return rows_of(jobs.read_lake(spark, store, lake, topics=[topic], include_headers=True))


def manifest_of(lake: Path) -> Manifest:
    manifest = LakeDirectory(lake, files=OsFiles()).read_manifest()
    assert manifest is not None
    return manifest


def check_lake(lake: Path) -> None:
    """Compare the manifest with the files: it lists exactly the existing files and their content."""
    manifest = manifest_of(lake)
    there = {str(path.relative_to(lake)) for path in lake.glob("topic=*/date=*/*")}
    assert there == {file.path for file in manifest.files()}
    for at, one in manifest.partitions.items():
        found: Counter[int] = Counter()
        for file in one.files:
            table = pq.ParquetFile(lake / file.path).read()
            offsets = table.column("offset").to_pylist()
            assert (offsets[0], offsets[-1] + 1, len(offsets)) == (file.start, file.next_offset, file.rows)
            assert offsets == sorted(offsets)
            assert set(table.column("partition").to_pylist()) == {at.partition}
            found.update(offsets)
        assert max(found.values(), default=1) == 1
        assert all(any(start <= offset < end for start, end in one.ranges) for offset in found)


def test_lake_and_log_equal_what_the_data_source_reads(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    done = copied(spark, store, lake)

    check_lake(lake)
    for (topic, partition), row in done.items():
        with open_store(store, read_only=True) as opened:
            last = take_snapshot(opened.log(topic, partition)).view.last.base_offset
        assert (row.start, row.next_offset, row.records, row.lost_offsets) == (0, last, last, 0)
        assert 0 < last < 300
    for topic in ("orders", "other"):
        assert lake_rows(spark, store, lake, topic) == source_rows(spark, store, topic)
        assert lake_rows(spark, None, lake, topic) == [
            row for row in source_rows(spark, store, topic) if row[2] < done[topic, row[1]].next_offset
        ]
    frame = jobs.read_lake(spark, store, lake)
    assert frame.schema == load(spark, store, subscribePattern=".*").schema
    assert frame.count() == 600
    again = copied(spark, store, lake)
    assert {row.records for row in again.values()} == {0}
    assert manifest_of(lake).commit == 1


def test_records_of_every_kind_survive_in_the_file_of_their_day(spark: SparkSession, tmp_path: Path) -> None:
    """Goal: nulls, headers, and unordered times: around midnight, none (just before 1970), and after the year 9999."""
    root, lake = tmp_path / "store", tmp_path / "lake"
    around = [MIDNIGHT_MS + step for step in (-1, 0, 1, -DAY_MS - 1, DAY_MS - 1, DAY_MS, -1)]
    with open_store(root, segment_bytes=600) as store:
        store.create_topic("1984", partitions=1)
        records = [
            Record(None, key=b"k", timestamp_ms=around[0]),
            Record(b"", key=b"", timestamp_ms=around[1], headers=[("a", None), ("a", b"\xff"), ("ü", b"")]),
            Record(b"v", timestamp_ms=around[2], headers=[]),
            *(Record(b"x", timestamp_ms=time) for time in around[3:]),
            Record(b"none", timestamp_ms=-1),
        ]
        append(store, "1984", records)
        with store._table.writing(TopicPartition("1984", 0)) as log:
            log.append_many([Record(b"far ahead", timestamp_ms=253_402_300_800_000)] * 3)
        store.alter_topic("1984", {"message.timestamp.type": "LogAppendTime"})
        for _ in range(4):
            append(store, "1984", [Record(b"stamped" * 20), Record(b"stamped" * 20)])

    done = copied(spark, root, lake)["1984", 0]

    check_lake(lake)
    assert done.next_offset > len(records) + 3
    frames = (
        load(spark, root, subscribe="1984", includeHeaders=True),
        jobs.read_lake(spark, root, lake, include_headers=True),
    )
    # Python has no date after the year 9999.
    ours, theirs = (rows_of(frame.selectExpr("*", "unix_micros(timestamp) us").drop("timestamp")) for frame in frames)
    assert theirs == ours
    dates = {
        date.name: sum(pq.ParquetFile(path).metadata.num_rows for path in date.iterdir())
        for date in (lake / "topic=1984").iterdir()
    }
    stamped = done.records - len(records) - 3
    assert dates == {
        "date=2023-11-13": 1,
        "date=2023-11-14": 2 + stamped,
        "date=2023-11-15": 3,
        "date=2023-11-16": 1,
        "date=1969-12-31": 1,
        "date=__HIVE_DEFAULT_PARTITION__": 3,
    }


@pytest.mark.id("lake-readers-beside-writers")
def test_reader_gets_each_record_once_during_appends_and_copies(spark: SparkSession, tmp_path: Path) -> None:
    """Goal: a DataFrame has the records at its creation, whatever is copied later."""
    root, lake = make_store(tmp_path / "store", {"orders": [0, 0]}, segment_bytes=SEGMENT_BYTES), tmp_path / "lake"
    frames = []
    with open_store(root, segment_bytes=SEGMENT_BYTES) as store:
        for turn in range(4):
            for partition in range(2):
                append(store, "orders", numbered(70, first=70 * turn), partition=partition, batch_records=7)
            frames.append((140 * (turn + 1), jobs.read_lake(spark, root, lake, topics=["orders"])))
            copied(spark, root, lake, file_bytes=1500 if turn % 2 else 1 << 20)
            frames.append((140 * (turn + 1), jobs.read_lake(spark, root, lake, topics=["orders"])))
            store.maintain()
        store.create_topic("later", partitions=1)
        store.add_partitions("orders", partitions=3)
        append(store, "orders", numbered(5), partition=2)
        frames.append((565, jobs.read_lake(spark, root, lake)))
    for count, frame in frames:
        found = Counter((row.partition, row.offset) for row in frame.select("partition", "offset").collect())
        assert (len(found), max(found.values(), default=0)) == (count, 1)
    # Maintenance seals a rolled segment, so the first turn may find none.
    assert manifest_of(lake).commit >= 3
    check_lake(lake)
    assert lake_rows(spark, root, lake) == source_rows(spark, root)


@pytest.mark.id("lake-outlives-retention")
def test_lake_keeps_deleted_records_and_counts_lost_offsets(
    spark: SparkSession, store: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake = tmp_path / "lake"
    expected = source_rows(spark, store)
    end = copied(spark, store, lake, topics=["orders"])["orders", 0].next_offset
    with (
        open_store(store, segment_bytes=SEGMENT_BYTES) as opened,
        opened._table.writing(TopicPartition("orders", 0)) as log,
    ):
        log.delete_before(end - 5)
        assert lake_rows(spark, store, lake) == expected
        for first in range(300, 500, 10):
            log.append_many(numbered(10, first=first))
        log.delete_before(end + 40)

    with pytest.raises(DataLoss, match=rf"orders-0: 40 offsets \({end} to {end + 39}\) deleted"):
        jobs.read_lake(spark, store, lake)
    whole = jobs.read_lake(spark, store, lake, topics=["orders"], fail_on_data_loss=False)
    assert whole.where("partition = 0").count() == 500 - 40
    assert "40 offsets" in caplog.text
    with open_store(store) as opened:
        append(opened, "orders", numbered(1, first=500))
    row = copied(spark, store, lake)["orders", 0]
    assert (row.start, row.lost_offsets) == (end + 40, 40)
    assert manifest_of(lake).partitions[TopicPartition("orders", 0)].gaps == [(end, end + 40)]
    with pytest.raises(DataLoss):
        jobs.read_lake(spark, store, lake)
    after = jobs.read_lake(spark, store, lake, topics=["orders"], fail_on_data_loss=False)
    assert after.where("partition = 0").count() == 501 - 40
    check_lake(lake)


@pytest.mark.parametrize("name", ["kafka-3.9.2-clean", "kafka-4.3.1-clean"])
def test_lake_of_broker_directory_equals_data_source(spark: SparkSession, tmp_path: Path, name: str) -> None:
    root, lake = unpack_broker(name, tmp_path), tmp_path / "lake"
    before = snapshot(root)

    done = copied(spark, root, lake)

    assert sum(row.records for row in done.values()) > 0
    assert snapshot(root) == before
    check_lake(lake)
    for topic in sorted({topic for topic, _ in done}):
        assert lake_rows(spark, root, lake, topic) == source_rows(spark, root, topic)


def test_times_skip_files_and_filters_reach_parquet(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    copied(spark, store, lake, file_bytes=1000)
    since, until = (datetime.fromtimestamp((START_MS + 1000 * step) / 1000, UTC) for step in (100, 120))

    part = jobs.read_lake(spark, store, lake, topics=["orders"], columns=["offset"], since=since, until=until)

    assert part.columns == ["offset"]
    assert sorted(row.offset for row in part.collect()) == sorted([*range(100, 120)] * 2)
    assert 0 < len(part.inputFiles()) < 10
    plan = jobs.read_lake(spark, store, lake).where("offset > 7").select("value")._jdf.queryExecution().toString()
    assert "PushedFilters: [IsNotNull(offset), GreaterThan(offset,7)]" in plan
    assert "ReadSchema: struct<value:binary,offset:bigint>" in plan
    with pytest.raises(UsageError, match="no time zone"):
        jobs.read_lake(spark, store, lake, since=datetime(2026, 1, 1))
    with pytest.raises(UsageError, match="ofset is not one of them"):
        jobs.read_lake(spark, store, lake, columns=["ofset"])


def damage(lake: Path, how: str, store: Path) -> None:
    manifest = lake / "_seeklog" / "manifest"
    file = next(iter(manifest_of(lake).files()))
    match how:
        case "a bit of the manifest":
            manifest.write_bytes(manifest.read_bytes().replace(b'"ranges": [[0,', b'"ranges": [[1,', 1))
        case "half a manifest":
            manifest.write_bytes(manifest.read_bytes()[:100])
        case "a manifest of a newer version":
            body = manifest.read_bytes().replace(b"seeklog-lake 1", b"seeklog-lake 2").rpartition(b"crc32c ")[0]
            manifest.write_bytes(body + b"crc32c %08x\n" % crc32c(body))
        case "a manifest that names another's file":
            body = manifest.read_bytes().replace(b"topic=orders/", b"topic=other/../").rpartition(b"crc32c ")[0]
            manifest.write_bytes(body + b"crc32c %08x\n" % crc32c(body))
        case "no manifest":
            manifest.unlink()
        case "a file is gone":
            (lake / file.path).unlink()
        case "a file was cut":
            (lake / file.path).write_bytes((lake / file.path).read_bytes()[:-1])
        case "the topic was recreated":
            with open_store(store) as opened:
                opened.delete_topic("orders")
                opened.create_topic("orders", partitions=2)
        case "the log was cut":
            with open_store(store) as opened, opened._table.writing(TopicPartition("orders", 0)) as log:
                log.truncate_to(3)


@pytest.mark.id("lake-mismatch")
@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ("a bit of the manifest", CorruptionError, "fails its CRC"),
        ("half a manifest", CorruptionError, "fails its CRC"),
        ("a manifest of a newer version", CorruptionError, "a newer seeklog wrote it"),
        ("a manifest that names another's file", CorruptionError, "is not a file of orders-0"),
        ("no manifest", ArchiveMismatch, "no manifest at _seeklog/manifest: restore the manifest"),
        ("a file is gone", ArchiveMismatch, "is in the manifest but cannot be read"),
        ("a file was cut", ArchiveMismatch, "in the manifest: restore it"),
        ("the topic was recreated", ArchiveMismatch, "topic orders was deleted and recreated"),
        ("the log was cut", ArchiveMismatch, "orders-0 ends at offset 0, but the lake has it up to"),
    ],
)
def test_mismatched_lake_is_refused_and_unchanged(
    spark: SparkSession, store: Path, tmp_path: Path, how: str, kind: type[SeeklogError], message: str
) -> None:
    lake = tmp_path / "lake"
    copied(spark, store, lake)
    damage(lake, how, store)
    before = snapshot(lake)

    with pytest.raises(kind, match=message):
        jobs.to_lake(spark, store, lake, progress=False)
    with pytest.raises(kind, match=message):
        jobs.read_lake(spark, store, lake)

    assert {**snapshot(lake), "_seeklog/lock": b""} == {**before, "_seeklog/lock": b""}


def test_invalid_arguments_are_refused_and_create_no_lake(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with pytest.raises(UsageError, match="compression is 'lzma'"):
        jobs.to_lake(spark, store, lake, compression="lzma")
    with pytest.raises(UsageError, match=r"topics must be a list of names: \['orders'\]"):
        jobs.to_lake(spark, store, lake, topics="orders")
    with pytest.raises(TopicNotFound, match="ordres"):
        jobs.to_lake(spark, store, lake, topics=["ordres"])
    assert not lake.exists()
    for inside in (store, store / "lake"):
        with pytest.raises(UsageError, match="is inside the store"):
            jobs.to_lake(spark, store, inside, progress=False)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thing").touch()
    with pytest.raises(ArchiveMismatch, match=r"holds 'thing' and no manifest .* choose another directory"):
        jobs.to_lake(spark, store, tmp_path / "other", progress=False)
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["thing"]
    copied(spark, store, lake, topics=["other"])
    with pytest.raises(TopicNotFound, match="the lake has no topic 'orders'; it has other"):
        jobs.read_lake(spark, None, lake, topics=["orders"])
    with open_store(store) as opened:
        opened.delete_topic("other")
    with pytest.raises(TopicNotFound, match=r"'other' is in the lake and not in the store .* path=None"):
        jobs.read_lake(spark, store, lake)
    assert jobs.read_lake(spark, None, lake).count() > 0


def test_second_job_on_a_lake_is_refused_with_owner_pid(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    copied(spark, store, lake, topics=["other"])
    before = snapshot(lake)

    with Holder(lake / "_seeklog" / "lock") as holder:
        with pytest.raises(LogLocked, match="another to_lake is writing there") as caught:
            jobs.to_lake(spark, store, lake, progress=False)
        assert caught.value.owner_pid == holder.pid
        assert jobs.read_lake(spark, store, lake).count() == 600

    assert {**snapshot(lake), "_seeklog/lock": b""} == {**before, "_seeklog/lock": b""}


def test_damaged_segment_fails_job_with_file_and_byte(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    segment = store / "orders-1" / f"{0:020d}.log"
    raw = bytearray(segment.read_bytes())
    raw[70] ^= 1
    segment.write_bytes(raw)

    with pytest.raises(CorruptionError, match="byte 0: stored CRC") as caught:
        jobs.to_lake(spark, store, lake, progress=False)

    assert caught.value.path == str(segment)
    assert manifest_of(lake).commit == 0
    check_lake(lake)
