"""Lake jobs over topics with offset gaps: compacted topics, and archives, some with declared gaps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import seeklog
from log.workbench import START_MS
from seeklog import Record, Store, TopicPartition
from seeklog.spark import jobs
from spark.test_import import records_of
from spark.test_lake import check_lake, copied, lake_rows, manifest_of, rows_of, source_rows
from spark.workbench import load
from store.workbench import open_store

SEGMENT_BYTES = 2000
AT = TopicPartition("orders", 0)


def append_keyed(store: Store, count: int, *, keys: int) -> None:
    """Append keyed records, one batch each; later records replace earlier ones."""
    with store._table.writing(AT) as log:
        for number in range(log.log_end_offset, log.log_end_offset + count):
            key = b"k%d" % (number * 7 % keys)
            log.append_many([Record(b"%050d" % number, key=key, timestamp_ms=START_MS + number * 1000)])
        log.flush()


@pytest.fixture
def compacted(tmp_path: Path) -> Iterator[Store]:
    """An open store with a topic from which compaction has removed many offsets."""
    with open_store(tmp_path / "store", segment_bytes=SEGMENT_BYTES) as store:
        store.create_topic("orders", partitions=1, config={"cleanup.policy": "compact"})
        append_keyed(store, 300, keys=90)
        store.compact("orders")
        yield store


def offsets_of(rows: list[tuple[Any, ...]]) -> list[int]:
    return [row[2] for row in rows]


@pytest.mark.id("lake-of-a-compacted-topic")
def test_compacted_topic_is_copied_without_loss(spark: SparkSession, compacted: Store, tmp_path: Path) -> None:
    """Goal: offsets removed by compaction are not a gap or a loss, before and after another compaction."""
    lake, path = tmp_path / "lake", compacted.path
    assert 0 < len(source_rows(spark, path)) < 300
    done = copied(spark, path, lake)["orders", 0]
    assert done.lost_offsets == 0
    check_lake(lake)
    assert lake_rows(spark, path, lake) == source_rows(spark, path)
    before = source_rows(spark, path)
    append_keyed(compacted, 300, keys=140)
    compacted.compact("orders")
    again = copied(spark, path, lake)["orders", 0]
    assert again.lost_offsets == 0
    check_lake(lake)
    (covered,) = manifest_of(lake).partitions[AT].ranges
    assert covered[0] == 0
    # The lake keeps its records, and gets those of the later records that compaction has kept.
    ours, theirs = lake_rows(spark, path, lake), source_rows(spark, path)
    assert set(offsets_of(theirs)) <= set(offsets_of(ours))
    assert [row for row in ours if row[2] in set(offsets_of(theirs))] == theirs
    assert {row[2] for row in ours} - set(offsets_of(theirs)) <= set(offsets_of(before))
    assert len(set(offsets_of(ours))) == len(ours)


def test_stats_of_compacted_topic_count_existing_records(spark: SparkSession, compacted: Store) -> None:
    (row,) = jobs.stats(spark, compacted.path, progress=False).collect()
    records = list(compacted.log("orders", 0).scan())
    assert (row.records, row.high_watermark) == (len(records), 300)
    assert row.distinct_keys == 90


@pytest.mark.id("lake-of-an-archive")
def test_lake_of_an_archive_has_the_same_rows(spark: SparkSession, compacted: Store, tmp_path: Path) -> None:
    archive, lake = tmp_path / "archive", tmp_path / "lake"
    compacted.archive(archive)
    done = copied(spark, archive, lake)["orders", 0]
    assert done.lost_offsets == 0
    check_lake(lake)
    with seeklog.open(archive, read_only=True) as cold:
        expected = [(record.offset, record.key, record.value) for record in cold.log("orders", 0).scan()]
    rows = [(row.offset, bytes(row.key), bytes(row.value)) for row in jobs.read_lake(spark, archive, lake).collect()]
    assert sorted(rows) == expected
    # All segments of an archive are sealed, so the lake has every row.
    assert lake_rows(spark, None, lake) == lake_rows(spark, archive, lake) == source_rows(spark, archive)
    by_address = jobs.to_lake(spark, f"file://{archive}", lake, progress=False).collect()
    assert [(row.records, row.lost_offsets) for row in by_address] == [(0, 0)]
    # The store continues the lake of its archive.
    append_keyed(compacted, 100, keys=90)
    assert copied(spark, compacted.path, lake)["orders", 0].lost_offsets == 0
    check_lake(lake)
    (row,) = jobs.stats(spark, archive, progress=False).collect()
    assert row.records == len(expected)


def test_lake_skips_declared_gaps_of_an_archive(spark: SparkSession, tmp_path: Path) -> None:
    archive, lake = tmp_path / "archive", tmp_path / "lake"
    with open_store(tmp_path / "store", segment_bytes=SEGMENT_BYTES) as store:
        store.create_topic("orders", partitions=1)
        append_keyed(store, 100, keys=50)
        store.archive(archive)
        append_keyed(store, 100, keys=50)
        with store._table.writing(AT) as log:
            log.delete_before(150)
        store.archive(archive, allow_gaps=True)
    with seeklog.open(archive, read_only=True) as cold:
        there = [record.offset for record in cold.log("orders", 0).scan()]
    assert len(there) < there[-1] + 1
    assert copied(spark, archive, lake)["orders", 0].lost_offsets == 0
    check_lake(lake)
    assert offsets_of(lake_rows(spark, archive, lake)) == there
    (row,) = jobs.stats(spark, archive, progress=False).collect()
    assert row.records == len(there)


def test_archive_is_imported_into_a_topic(spark: SparkSession, compacted: Store, tmp_path: Path) -> None:
    archive, target = tmp_path / "archive", tmp_path / "target"
    compacted.archive(archive)
    with open_store(target) as store:
        store.create_topic("again", partitions=1)
    count = len(rows_of(load(spark, archive, subscribe="orders")))
    for path, is_new in ((archive, True), (f"file://{archive}", False)):
        frame = load(spark, path, subscribe="orders").select("key", "value", "timestamp")
        done = jobs.load_into(
            frame, target, "again", key="key", value="value", timestamp="timestamp", import_id="from the archive"
        )
        assert done == ("again", count if is_new else 0, is_new)
    with seeklog.open(archive, read_only=True) as cold:
        expected = sorted((record.key, record.value) for record in cold.log("orders", 0).scan())
    assert sorted((record.key, record.value) for record in records_of(target, "again")) == expected
