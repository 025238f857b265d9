"""Metadata tables: they match the records of the store, without reading them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import DataFrame, SparkSession

import seeklog
from interop.broker_directories import description
from interop.test_broker_directory import Row, encode_batch
from log.workbench import START_MS
from seeklog import Record, TopicPartition
from seeklog.errors import InvalidConfig, TopicNotFound, UsageError
from seeklog.files import OsFiles
from seeklog.log import take_snapshot
from seeklog.spark.read.options import parse_table_options
from seeklog.spark.read.tables import TABLES, TableReader
from spark.workbench import BROKERS, append, load, make_store, message_of, numbered, unpack_broker
from store.workbench import open_store


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Topic a with 300 and 200 records in segments of about 90, b with 20, and an empty one."""
    counts = {"a": [300, 200], "b": [20], "empty": [0]}
    return make_store(tmp_path_factory.mktemp("tables") / "store", counts, segment_bytes=4000)


def rows(path: Path, table: str, **options: str) -> list[dict[str, Any]]:
    """Return the rows of a table from its reader, without Spark."""
    reader = TableReader(parse_table_options({"path": str(path), "table": table, **options}), TABLES[table].schema)
    return [row for split in reader.partitions() for batch in reader.read(split) for row in batch.to_pylist()]


def milliseconds(moment: Any) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


# ---------------------------------------------------------------- through Spark


@pytest.mark.parametrize("table", sorted(TABLES))
def test_every_table_has_its_columns(spark: SparkSession, path: Path, table: str) -> None:
    frame = load(spark, path, table=table)

    assert frame.schema == TABLES[table].schema
    assert len(frame.collect()) == len(rows(path, table))


def test_counts_of_tables_equal_counts_of_records(spark: SparkSession, path: Path) -> None:
    def total(frame: DataFrame) -> int:
        return int(frame.agg({"record_count": "sum"}).first()[0])

    count = load(spark, path, subscribe="a,b").count()

    assert count == 520
    for table in ("segments", "batches", "offsets"):
        assert total(load(spark, path, table=table, subscribe="a,b")) == count


def test_a_users_schema_prunes_a_table(spark: SparkSession, path: Path) -> None:
    read = spark.read.format("seeklog").options(path=str(path), table="offsets", subscribe="a")

    assert sorted(read.schema("partition int, record_count long").load().collect()) == [(0, 300), (1, 200)]
    message = message_of(read.schema("partition long").load().collect, UsageError)
    assert message.startswith("column partition of the table offsets is int, not bigint")
    message = message_of(read.schema("size long, colour string").load().collect, UsageError)
    assert message.startswith("the table offsets has no column colour; it has topic, partition")


def test_unknown_table_is_refused(spark: SparkSession, path: Path) -> None:
    message = message_of(lambda: load(spark, path, table="segment"), InvalidConfig)
    assert message.startswith('option table is "segment", but must be records or segments or batches')
    assert "no topic 'nothing'" in message_of(
        lambda: load(spark, path, table="offsets", subscribe="nothing").collect(), TopicNotFound
    )


# ---------------------------------------------------------------- segments


def test_table_segments_matches_the_directories(path: Path) -> None:
    found = rows(path, "segments", subscribe="a")

    with open_store(path, read_only=True) as store:
        for number in (0, 1):
            mine = [row for row in found if row["partition"] == number]
            segments = take_snapshot(store.log("a", number)).view.segments
            assert len(mine) == len(segments) > 1
            for row, segment in zip(mine, segments, strict=True):
                records = list(store.log("a", number).scan(segment.base_offset, segment.next_offset))
                assert row["path"] == segment.path
                assert row["size"] == os.path.getsize(segment.path)
                assert (row["base_offset"], row["next_offset"]) == (records[0].offset, records[-1].offset + 1)
                assert row["record_count"] == len(records)
                assert row["batch_count"] == len(records) // 10
                assert milliseconds(row["first_timestamp"]) == records[0].timestamp_ms
                assert milliseconds(row["max_timestamp"]) == records[-1].timestamp_ms
                assert row["offset_index_size"] == os.path.getsize(segment.path.replace(".log", ".index"))
                assert row["time_index_size"] == os.path.getsize(segment.path.replace(".log", ".timeindex"))
            # The last segment is active and was closed cleanly; the others are sealed, by the store's clock.
            assert [row["is_sealed"] for row in mine] == [True] * (len(mine) - 1) + [False]
            assert {milliseconds(row["sealed_at"]) for row in mine} == {START_MS, None}


# ---------------------------------------------------------------- batches


def test_table_batches_matches_the_headers(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.create_topic("t", partitions=1, config={"compression.type": "zstd"})
        append(store, "t", numbered(5))
        store.alter_topic("t", {"message.timestamp.type": "LogAppendTime", "compression.type": "none"})
        append(store, "t", numbered(2))

    first, second = rows(tmp_path / "store", "batches")

    assert (first["base_offset"], first["last_offset"], first["record_count"]) == (0, 4, 5)
    assert (second["base_offset"], second["last_offset"], second["record_count"]) == (5, 6, 2)
    assert (first["position"], second["position"]) == (0, first["size"])
    assert (first["codec"], second["codec"]) == ("zstd", "none")
    assert (first["timestamp_type"], second["timestamp_type"]) == (0, 1)
    assert milliseconds(first["first_timestamp"]) == START_MS
    assert milliseconds(first["max_timestamp"]) == START_MS + 4000
    assert milliseconds(second["first_timestamp"]) == milliseconds(second["max_timestamp"]) == START_MS
    assert not first["is_control"]
    assert not first["is_transactional"]
    assert (first["producer_id"], first["producer_epoch"], first["base_sequence"]) == (-1, -1, -1)


@pytest.mark.parametrize("value_size", [1, 100, 3000, 50_000])
def test_batches_of_every_size_are_found(tmp_path: Path, value_size: int) -> None:
    """Headers of small batches are read in chunks, those of large batches one by one; the rows are the same."""
    path = make_store(tmp_path / "store", {"t": [0]}, segment_bytes=300_000)
    with open_store(path, segment_bytes=300_000) as store:
        append(store, "t", [Record(b"v" * value_size) for _ in range(200)], batch_records=3)

    found = rows(path, "batches")

    assert [row["base_offset"] for row in found] == list(range(0, 200, 3))
    assert sum(row["record_count"] for row in found) == 200


def test_headers_are_read_without_large_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_store(tmp_path / "store", {"t": [0]})
    with open_store(path) as store:
        append(store, "t", [Record(b"v" * 100_000) for _ in range(20)], batch_records=1)
    amounts = []
    real_read = OsFiles.read

    def noting_read(files: OsFiles, handle: int, size: int, position: int) -> bytes:
        data = real_read(files, handle, size, position)
        amounts.append(len(data))
        return data

    monkeypatch.setattr(OsFiles, "read", noting_read)
    reader = TableReader(parse_table_options({"path": str(path), "table": "batches"}), TABLES["batches"].schema)
    splits = reader.partitions()
    amounts.clear()
    assert sum(batch.num_rows for split in splits for batch in reader.read(split)) == 20
    assert sum(amounts) < 2 * (64 << 10)


# ---------------------------------------------------------------- offsets


def test_table_offsets_has_a_row_per_partition(path: Path) -> None:
    found = {(row["topic"], row["partition"]): row for row in rows(path, "offsets")}

    assert list(found) == [("a", 0), ("a", 1), ("b", 0), ("empty", 0)]
    with open_store(path, read_only=True) as store:
        for (topic, number), row in found.items():
            log = store.log(topic, number)
            assert (row["log_start_offset"], row["high_watermark"]) == (log.log_start_offset, log.high_watermark)
            assert row["log_end_offset"] == log.log_end_offset
            assert (row["size"], row["segment_count"]) == (log.size_bytes, log.segment_count)
            assert row["topic_id"] == store.describe_topic(topic).topic_id
    assert [row["record_count"] for row in found.values()] == [300, 200, 20, 0]
    assert milliseconds(found["a", 0]["first_timestamp"]) == START_MS
    assert milliseconds(found["a", 0]["max_timestamp"]) == START_MS + 299_000
    assert found["empty", 0]["max_timestamp"] is None


@pytest.mark.parametrize("start", [1, 5, 10, 95, 150, 299, 300])
def test_records_before_log_start_are_not_counted(tmp_path: Path, start: int) -> None:
    path = make_store(tmp_path / "store", {"t": [300]}, segment_bytes=4000)
    with open_store(path) as store, store._table.writing(TopicPartition("t", 0)) as log:
        log.delete_before(start)

    (row,) = rows(path, "offsets")

    assert (row["log_start_offset"], row["record_count"]) == (start, 300 - start)


def test_records_above_high_watermark_are_not_counted(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", flush="batch") as store:
        store.create_topic("t", partitions=1)
        append(store, "t", numbered(10))
        with store._table.writing(TopicPartition("t", 0)) as log:
            log.append_many(numbered(5, first=10), wait=False)

            (row,) = rows(tmp_path / "store", "offsets")
            batches = rows(tmp_path / "store", "batches")
    assert (row["high_watermark"], row["log_end_offset"], row["record_count"]) == (10, 15, 10)
    assert [batch["base_offset"] for batch in batches] == [0]


def test_log_open_for_writing_is_counted_correctly(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", segment_bytes=4000) as store:
        store.create_topic("t", partitions=1)
        for number in range(30):
            append(store, "t", numbered(10, first=10 * number))
            (row,) = rows(tmp_path / "store", "offsets")
            assert row["record_count"] == row["high_watermark"] == 10 * (number + 1)


@pytest.mark.parametrize("name", BROKERS)
def test_broker_counts_exclude_gaps_and_markers(name: str, tmp_path: Path) -> None:
    root = unpack_broker(name, tmp_path)
    expected = {at: partition for at, partition in description(name)["partitions"].items() if not at.startswith("__")}

    offsets = {f"{row['topic']}-{row['partition']}": row for row in rows(root, "offsets")}
    batches = rows(root, "batches")

    for at, partition in expected.items():
        assert offsets[at]["log_start_offset"] == partition["log_start_offset"], at
        assert offsets[at]["record_count"] == len(partition["records"]), at
        mine = [row for row in batches if f"{row['topic']}-{row['partition']}" == at]
        if partition["log_start_offset"] == 0:
            counted = sum(row["record_count"] for row in mine if not row["is_control"])
            assert counted == len(partition["records"]), at
        if partition["records"] and at != "compacted-0":
            times = [record[1] for record in partition["records"]]
            assert milliseconds(offsets[at]["max_timestamp"]) == max(times), at
    # Check that the collection has gaps and markers.
    assert any(row["is_control"] for row in batches)
    assert any(row["is_transactional"] and not row["is_control"] for row in batches)
    assert offsets["compacted-0"]["record_count"] < offsets["compacted-0"]["high_watermark"] // 2
    segments = [row for row in rows(root, "segments") if row["topic"] == "compacted"]
    assert sum(row["record_count"] for row in segments) == offsets["compacted-0"]["record_count"]


@pytest.mark.parametrize("name", BROKERS)
def test_broker_counts_stay_correct_after_takeover(name: str, tmp_path: Path) -> None:
    """The seals then count markers: the count of a seal is used only for segments that seeklog started."""
    root = unpack_broker(name, tmp_path)
    expected = description(name)["partitions"]["txn-0"]
    with open_store(root, segment_bytes=2000) as store:
        append(store, "txn", numbered(100), batch_records=5)

    (row,) = rows(root, "offsets", subscribe="txn")

    assert row["record_count"] == len(expected["records"]) + 100
    assert sum(one["record_count"] for one in rows(root, "segments", subscribe="txn")) == row["record_count"]


def test_batch_with_gaps_across_log_start_is_counted_by_record(tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as store:
        store.create_topic("t", partitions=1)
        with store._table.writing(TopicPartition("t", 0)) as log:
            # As after compaction: every other record is removed, and the batch still spans their offsets.
            kept = [Row(number, START_MS, b"k", b"v") for number in range(0, 20, 2)]
            log.append_batches(encode_batch(kept, leader_epoch=0, last_offset=19))
            assert log.log_end_offset == 20
            log.delete_before(7)
        offsets = [record.offset for record in store.log("t", 0).scan()]

    (row,) = rows(tmp_path / "store", "offsets")

    assert offsets == [8, 10, 12, 14, 16, 18]
    assert row["record_count"] == len(offsets)


# ---------------------------------------------------------------- groups


def test_table_groups_has_committed_offsets_and_lag(tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"a": [30, 20], "b": [5]})
    with open_store(path) as store:
        store._groups.commit("g", {TopicPartition("a", 0): (12, "checked"), TopicPartition("b", 0): 5})
        store._groups.commit("h", {TopicPartition("a", 1): 1})
    # Liveness of members uses the machine's clock.
    with seeklog.open(path) as store:
        consumer = store.consumer(
            ["b"], group="member", client_id="me", auto_offset_reset="earliest", enable_auto_commit=False
        )
        assert consumer.poll(5000)
        found = rows(path, "groups")

    assert [(row["group"], row["topic"], row["partition"], row["committed_offset"], row["lag"]) for row in found] == [
        ("g", "a", 0, 12, 18),
        ("g", "b", 0, 5, 0),
        ("h", "a", 1, 1, 19),
        ("member", "b", 0, None, 5),
    ]
    assert [row["metadata"] for row in found] == ["checked", "", "", None]
    assert [row["high_watermark"] for row in found] == [30, 5, 20, 5]
    assert milliseconds(found[0]["commit_timestamp"]) == START_MS
    assert (found[3]["client_id"], found[0]["client_id"]) == ("me", None)
    assert [row["group"] for row in rows(path, "groups", subscribe="b")] == ["g"]


def test_a_store_without_groups_has_an_empty_table(path: Path) -> None:
    assert rows(path, "groups") == []


@pytest.mark.parametrize("name", BROKERS)
def test_table_groups_reads_broker_groups(name: str, tmp_path: Path) -> None:
    root = unpack_broker(name, tmp_path)
    expected = description(name)["groups"]

    found = {(row["group"], f"{row['topic']}-{row['partition']}"): row for row in rows(root, "groups")}

    # A librdkafka client has committed the terminating zero of its text too.
    assert {key: (row["committed_offset"], row["metadata"].rstrip("\0")) for key, row in found.items()} == {
        (group, at): tuple(committed) for group, offsets in expected.items() for at, committed in offsets.items()
    }
