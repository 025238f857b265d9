"""Spark over stores at a URL and over archives: the same rows as from a directory, and no secrets in plans."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

import seeklog
from cold.s3_server import BUCKET, S3Server
from cold.test_gaps import declare, with_a_gap
from cold.workbench import fill
from log.workbench import START_MS, segment_bases
from seeklog.archive.reading import Origin
from seeklog.errors import (
    ArchiveMismatch,
    CorruptionError,
    InvalidConfig,
    LostRecords,
    NotAccessible,
    NotALog,
    UsageError,
)
from seeklog.spark import jobs
from spark.workbench import RowOffset, everything, load, make_store, message_of, row_offsets
from store.workbench import open_store, snapshot

SEGMENT_BYTES = 4_000
SECRET = "secret-word"


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("stores") / "store"
    return make_store(
        root, {"orders": [500, 300], "quiet": [20]}, segment_bytes=SEGMENT_BYTES, index_interval_bytes=300
    )


@pytest.fixture(scope="module")
def bucket(s3: S3Server, directory: Path) -> str:
    """The store copied into a bucket."""
    return s3.upload(directory, "spark-store")


@pytest.fixture(scope="module")
def archive(s3: S3Server, directory: Path) -> str:
    with seeklog.open(directory, read_only=True) as store:
        store.archive(f"s3://{BUCKET}/spark-archive", storage_options=s3.options)
    return f"s3://{BUCKET}/spark-archive"


def options_of(s3: S3Server, **more: Any) -> str:
    return json.dumps({**s3.options, **more})


def load_cold(spark: SparkSession, url: str, s3: S3Server, **options: object) -> DataFrame:
    return load(spark, url, storageOptions=options_of(s3), **options)


def sealed(directory: Path, topic: str) -> list[RowOffset]:
    return [
        place
        for place in everything(directory, topic)
        if place.offset < segment_bases(directory / f"{topic}-{place.partition}")[-1]
    ]


def test_store_in_bucket_has_same_rows_as_in_directory(
    spark: SparkSession, s3: S3Server, bucket: str, directory: Path
) -> None:
    ours = load_cold(spark, bucket, s3, subscribe="orders", includeHeaders=True)
    theirs = load(spark, directory, subscribe="orders", includeHeaders=True)
    assert sorted(map(repr, ours.collect())) == sorted(map(repr, theirs.collect()))
    assert ours.count() == 800


def test_archive_has_sealed_rows_by_offset_and_time(
    spark: SparkSession, s3: S3Server, archive: str, directory: Path
) -> None:
    assert row_offsets(load_cold(spark, archive, s3, subscribe="orders")) == sealed(directory, "orders")
    some = load_cold(spark, archive, s3, assign='{"orders": [0]}', startingOffsets='{"orders": {"0": 123}}')
    assert row_offsets(some) == [one for one in sealed(directory, "orders") if one.partition == 0 and one.offset >= 123]
    late = load_cold(
        spark, archive, s3, subscribe="orders", startingTimestamp=START_MS + 200_000, endingTimestamp=START_MS + 205_000
    )
    assert [place.offset for place in row_offsets(late)] == [200, 201, 202, 203, 204] * 2


def test_task_requests_only_its_part_of_log(spark: SparkSession, s3: S3Server, archive: str) -> None:
    s3.traffic.clear()
    frame = load_cold(
        spark,
        archive,
        s3,
        assign='{"orders": [0]}',
        startingOffsets='{"orders": {"0": 200}}',
        endingOffsets='{"orders": {"0": 210}}',
    )
    assert frame.count() == 10
    assert len(set(s3.traffic.of("GET", ".log"))) == 1
    assert not [path for method, path in s3.traffic.requests if "list-type" in path]


def test_archive_in_directory_is_read_by_path(spark: SparkSession, directory: Path, tmp_path: Path) -> None:
    with seeklog.open(directory, read_only=True) as store:
        store.archive(tmp_path / "archive")
    for path in (tmp_path / "archive", f"file://{tmp_path}/archive"):
        assert row_offsets(load(spark, path, subscribe="orders")) == sealed(directory, "orders")


def test_segments_stored_under_other_names_are_read_by_tasks(
    spark: SparkSession, directory: Path, tmp_path: Path
) -> None:
    """Goal: as after compaction; the names are set by hand here."""
    with seeklog.open(directory, read_only=True) as store:
        store.archive(tmp_path / "archive", topics=["orders"])
    path = tmp_path / "archive" / "seeklog-archive.json"
    document = json.loads(path.read_text())
    segment = document["content"]["topics"][0]["partitions"][0]["segments"][1]
    for suffix in segment["files"]:
        folder = tmp_path / "archive" / "orders-0"
        os.rename(folder / f"{segment['stem']}{suffix}", folder / f"{segment['stem']}-0badcafe{suffix}")
    segment["stem"] += "-0badcafe"
    text = json.dumps(document["content"], sort_keys=True, separators=(",", ":"))
    path.write_text(json.dumps({**document, "crc32c": f"{seeklog.record.crc.crc32c(text.encode()):08x}"}))
    assert row_offsets(load(spark, tmp_path / "archive", subscribe="orders")) == sealed(directory, "orders")
    assert jobs.verify(spark, tmp_path / "archive", progress=False).count() == 0


@pytest.mark.parametrize("table", ["segments", "batches", "offsets", "groups"])
def test_metadata_tables_of_bucket_match_directory(
    spark: SparkSession, s3: S3Server, bucket: str, directory: Path, table: str
) -> None:
    ours = load_cold(spark, bucket, s3, table=table).drop("path").collect()
    theirs = load(spark, directory, table=table).drop("path").collect()
    assert sorted(map(repr, ours)) == sorted(map(repr, theirs))


def test_stream_of_archive_reads_all_of_it_and_then_waits(
    spark: SparkSession, s3: S3Server, archive: str, directory: Path, tmp_path: Path
) -> None:
    seen: list[RowOffset] = []

    def take(frame: DataFrame, number: int) -> None:
        seen.extend(row_offsets(frame))

    query = (
        spark.readStream.format("seeklog")
        .option("path", archive)
        .option("storageOptions", options_of(s3))
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    assert sorted(seen) == sealed(directory, "orders")


@pytest.mark.id("archive-gaps-in-spark")
def test_gaps_declared_by_archive_are_not_a_loss(spark: SparkSession, tmp_path: Path) -> None:
    """Goal: a batch, a stream with small steps and verify skip them, like offsets that compaction removed."""
    archive = tmp_path / "archive"
    with open_store(tmp_path / "store", segment_bytes=SEGMENT_BYTES) as store:
        store.create_topic("orders", partitions=1)
        fill(store, 300)
        missing = with_a_gap(store, archive)
    with seeklog.open(archive, read_only=True) as cold:
        there = [record.offset for record in cold.log("orders", 0).scan()]
    assert len(there) == there[-1] + 1 - len(missing)
    assert [place.offset for place in row_offsets(load(spark, archive, subscribe="orders", splitBytes=2_000))] == there
    inside = f'{{"orders": {{"0": {missing[1]}}}}}'
    late = load(spark, archive, subscribe="orders", startingOffsets=inside)
    assert [place.offset for place in row_offsets(late)] == [offset for offset in there if offset >= missing.stop]
    seen: list[int] = []
    query = (
        spark.readStream.format("seeklog")
        .options(path=str(archive), subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger=400)
        .load()
        .writeStream.foreachBatch(lambda frame, _: seen.extend(place.offset for place in row_offsets(frame)))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    assert seen == there
    assert {row["severity"] for row in jobs.verify(spark, archive, progress=False).collect()} == {"note"}
    declare(archive, [])
    told = message_of(lambda: load(spark, archive, subscribe="orders").count(), LostRecords)
    assert f"offsets {missing[0]} to {missing[-1]} are missing" in told
    assert "error" in {row["severity"] for row in jobs.verify(spark, archive, progress=False).collect()}


# ---------------------------------------------------------------- refusals and secrets


def test_plans_do_not_show_storage_options(spark: SparkSession, s3: S3Server, archive: str, capsys: Any) -> None:
    frame = load_cold(spark, archive, s3, subscribe="orders")
    for mode in ("simple", "extended", "formatted", "cost"):
        frame.explain(mode=mode)
    frame.count()
    assert SECRET not in capsys.readouterr().out
    assert SECRET not in repr(Origin(root=archive, storage_options=s3.options))


def test_unreachable_bucket_raises_error_without_secrets(spark: SparkSession, s3: S3Server) -> None:
    away = options_of(
        s3,
        endpoint_url="http://127.0.0.1:9",
        config_kwargs={"connect_timeout": 1, "read_timeout": 1, "retries": {"max_attempts": 0}},
    )
    told = message_of(
        lambda: load(spark, "s3://cold/x", subscribe="orders", storageOptions=away).count(), NotAccessible
    )
    assert "s3://cold/x" in told
    assert SECRET not in told
    assert "no store at" in message_of(
        lambda: load_cold(spark, "s3://no-such-bucket/x", s3, subscribe="orders").count(), NotALog
    )


def test_table_does_not_keep_secrets(spark: SparkSession, s3: S3Server, archive: str) -> None:
    told = message_of(
        lambda: spark.sql(
            f"CREATE TABLE cold USING seeklog OPTIONS (path '{archive}', subscribe 'orders', "
            f"storageOptions '{options_of(s3)}')"
        ),
        InvalidConfig,
    )
    assert "is not kept with a table" in told
    assert SECRET not in told


def test_sink_refuses_url(spark: SparkSession, archive: str) -> None:
    frame = spark.createDataFrame([(b"x",)], "value binary")
    write = frame.write.format("seeklog").option("path", archive).option("topic", "orders").mode("append")
    assert "a store at a URL is read-only" in message_of(write.save, InvalidConfig)


# ---------------------------------------------------------------- jobs


def test_archive_job_matches_archive_of_store(spark: SparkSession, directory: Path, tmp_path: Path) -> None:
    with seeklog.open(directory, read_only=True) as store:
        alone = store.archive(tmp_path / "alone")
    done = jobs.archive(spark, directory, tmp_path / "job", progress=False)
    assert snapshot(tmp_path / "job") == snapshot(tmp_path / "alone")
    assert (done.copied_segments, done.copied_bytes) == (alone.copied_segments, alone.copied_bytes)
    again = jobs.archive(spark, directory, tmp_path / "job", progress=False)
    assert (again.copied_segments, again.kept_segments) == (0, done.copied_segments)


def test_backup_job_matches_backup_of_store(spark: SparkSession, directory: Path, tmp_path: Path) -> None:
    with seeklog.open(directory, read_only=True) as store:
        store.archive(tmp_path / "store", include_active=True)
    done = jobs.archive(spark, directory, tmp_path / "job", include_active=True, progress=False)
    assert done.missing_records == 0
    assert snapshot(tmp_path / "job") == snapshot(tmp_path / "store")
    assert jobs.verify(spark, tmp_path / "job", progress=False).count() == 0
    rows = row_offsets(load(spark, tmp_path / "job", subscribe="orders"))
    assert rows == everything(directory, "orders")


def test_archive_job_writes_to_bucket_and_verifies(spark: SparkSession, s3: S3Server, directory: Path) -> None:
    url = f"s3://{BUCKET}/by-job"
    jobs.archive(spark, directory, url, storage_options=s3.options, progress=False)
    with seeklog.open(url, storage_options=s3.options) as cold:
        assert cold.log("orders", 0).high_watermark == segment_bases(directory / "orders-0")[-1]
    assert jobs.verify(spark, url, storage_options=s3.options, progress=False).count() == 0
    log = next(path for path in s3.system.ls(f"{BUCKET}/by-job/orders-0", detail=False) if path.endswith(".log"))
    data = bytearray(s3.system.cat_file(log))
    data[300] ^= 1
    s3.system.pipe_file(log, bytes(data))
    found = jobs.verify(spark, url, storage_options=s3.options, progress=False).collect()
    assert {row["file"] for row in found} >= {f"s3://{log}"}


@pytest.fixture
def damaged(directory: Path, tmp_path: Path) -> Path:
    root = Path(shutil.copytree(directory, tmp_path / "damaged"))
    path = sorted((root / "orders-0").glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    return root


def test_archive_job_refuses_same_errors_as_store(
    spark: SparkSession, damaged: Path, directory: Path, tmp_path: Path, s3: S3Server
) -> None:
    with pytest.raises(CorruptionError, match="orders-0"):
        jobs.archive(spark, damaged, tmp_path / "archive", progress=False)
    with pytest.raises(NotALog):
        seeklog.open(tmp_path / "archive", read_only=True)
    jobs.archive(spark, directory, tmp_path / "archive", progress=False)
    make_store(tmp_path / "other", {"orders": [500]}, segment_bytes=SEGMENT_BYTES)
    before = snapshot(tmp_path / "archive")
    with pytest.raises(ArchiveMismatch, match="recreated"):
        jobs.archive(spark, tmp_path / "other", tmp_path / "archive", progress=False)
    assert snapshot(tmp_path / "archive") == before
    with pytest.raises(UsageError, match="is an archive"):
        jobs.reindex(spark, tmp_path / "archive", progress=False)
    assert snapshot(tmp_path / "archive") == before
    with pytest.raises(UsageError, match="inside the store"):
        jobs.archive(spark, directory, directory / "archive", progress=False)
    with pytest.raises(NotAccessible, match="no-such-bucket"):
        jobs.archive(spark, directory, "s3://no-such-bucket/x", storage_options=s3.options, progress=False)
