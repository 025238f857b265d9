"""`stats`: every figure compared with a plain count of the same records."""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from log.workbench import START_MS
from seeklog import Record
from seeklog.errors import CorruptionError, TopicNotFound, UsageError
from seeklog.names import TopicPartition
from seeklog.record.batch import encode_batch
from seeklog.spark import jobs
from spark.workbench import append, unpack_broker
from store.workbench import open_store, snapshot

COUNTS = [700, 90, 0]


def random_records(seed: int, count: int) -> list[Record]:
    chance = random.Random(seed)
    return [
        Record(
            None if chance.random() < 0.05 else b"v" * chance.randrange(200),
            key=None if chance.random() < 0.1 else b"key-%d" % min(chance.randrange(40), chance.randrange(40)),
            timestamp_ms=START_MS + 500 * number + chance.randrange(3000),
        )
        for number in range(count)
    ]


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, list[list[Record]]]:
    records = [random_records(number, count) for number, count in enumerate(COUNTS)]
    with open_store(tmp_path / "store", segment_bytes=20_000) as store:
        store.create_topic("orders", partitions=len(COUNTS))
        for partition, some in enumerate(records):
            store.alter_topic("orders", {"compression.type": "zstd" if partition == 0 else "none"})
            append(store, "orders", some, partition=partition, batch_records=45)
            with store._table.writing(TopicPartition("orders", partition)) as log:
                extra = [Record(b"of a producer", key=b"p", timestamp_ms=START_MS)]
                log.append_batches(encode_batch(extra, producer_id=7 + partition, producer_epoch=0, base_sequence=0))
            some += extra
    return tmp_path / "store", records


def counted(spark: SparkSession, path: Path, **options: Any) -> list[Row]:
    rows = jobs.stats(spark, path, progress=False, **options).collect()
    return sorted(rows, key=lambda row: (row.topic, row.partition))


def ms_of(moment: datetime) -> int:
    return round(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1000)


def test_stats_equal_a_plain_count(spark: SparkSession, made: tuple[Path, list[list[Record]]]) -> None:
    path, records = made
    before = snapshot(path)
    rows = counted(spark, path, bucket_ms=10_000, top_keys=3)

    assert snapshot(path) == before
    assert [(row.topic, row.partition) for row in rows] == [("orders", number) for number in range(len(COUNTS))]
    for row, some in zip(rows, records, strict=True):
        with open_store(path, read_only=True) as store:
            batches = list(store.log("orders", row.partition).read_batches(0, max_bytes=1 << 30))
        sizes = [len(record.key or b"") + len(record.value or b"") for record in some]
        times = [record.timestamp_ms or 0 for record in some]
        steps = [before_ - behind for before_, behind in pairwise(times)]
        keys = Counter(record.key for record in some if record.key is not None)
        raw_size = sum(len(encode_batch(batch.records())) for batch in batches)
        assert (row.records, row.batches, row.high_watermark) == (len(some), len(batches), len(some))
        assert row.bytes == sum(len(batch.raw) for batch in batches)
        assert row.uncompressed_bytes == raw_size
        assert row.compression_ratio == pytest.approx(raw_size / row.bytes)
        by_codec = Counter(batch.codec for batch in batches)
        assert {each.codec: each.batches for each in row.codecs} == by_codec
        assert (row.batch_bytes.min, row.batch_bytes.max) == (
            min(len(batch.raw) for batch in batches),
            max(len(batch.raw) for batch in batches),
        )
        assert (row.record_bytes.min, row.record_bytes.max) == (min(sizes), max(sizes))
        assert row.record_bytes.avg == pytest.approx(sum(sizes) / len(sizes))
        assert row.record_bytes.p50 == pytest.approx(sorted(sizes)[(len(sizes) - 1) // 2], rel=0.04)
        assert row.null_keys == sum(record.key is None for record in some)
        assert row.tombstones == sum(record.value is None for record in some)
        assert row.distinct_keys == len(keys)
        assert row.top_keys_error == 0
        top = sorted(keys.items(), key=lambda item: (-item[1], item[0]))[:3]
        assert [(bytes(each.key), each.records) for each in row.top_keys] == top
        assert row.top_keys[0].share == pytest.approx(top[0][1] / sum(keys.values()))
        assert row.out_of_order == sum(step > 0 for step in steps)
        assert row.largest_step_back_ms == max([0, *steps])
        assert (ms_of(row.first_timestamp), ms_of(row.last_timestamp)) == (min(times), max(times))
        assert {ms_of(each.start): each.records for each in row.throughput} == Counter(
            time // 10_000 * 10_000 for time in times
        )
        assert sum(each.bytes for each in row.throughput) == sum(sizes)
        assert row.producers == 1


def test_columns_that_need_records_are_null_without_records(
    spark: SparkSession, made: tuple[Path, list[list[Record]]]
) -> None:
    path, records = made
    full, short = counted(spark, path), counted(spark, path, records=False)

    for row, other in zip(full, short, strict=True):
        for name in ("records", "batches", "bytes", "codecs", "batch_bytes", "producers", "last_timestamp"):
            assert row[name] == other[name]
        for name in ("uncompressed_bytes", "record_bytes", "null_keys", "distinct_keys", "top_keys"):
            assert other[name] is None
    assert counted(spark, path, keys=False)[0].top_keys is None
    assert short[0].records == len(records[0])


def test_stats_of_broker_directory_equal_data_source(spark: SparkSession, tmp_path: Path) -> None:
    root = unpack_broker("kafka-4.3.1-clean", tmp_path)
    frame = spark.read.format("seeklog").option("path", str(root)).option("subscribePattern", ".*").load()
    expected = {
        (row.topic, row.partition): row["count"] for row in frame.groupBy("topic", "partition").count().collect()
    }

    rows = counted(spark, root)

    assert {(row.topic, row.partition): row.records for row in rows if row.records} == expected


def test_stats_raise_typed_errors(spark: SparkSession, made: tuple[Path, list[list[Record]]]) -> None:
    path, _ = made
    with pytest.raises(TopicNotFound):
        counted(spark, path, topics=["ordres"])
    with pytest.raises(UsageError, match="bucket_ms"):
        counted(spark, path, bucket_ms=0)
    segment = path / "orders-1" / f"{0:020d}.log"
    raw = bytearray(segment.read_bytes())
    raw[70] ^= 1
    segment.write_bytes(raw)
    with pytest.raises(CorruptionError, match="stored CRC"):
        counted(spark, path)
