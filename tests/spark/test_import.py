"""`load_into`: appends anything Spark reads to a topic, all rows or none, and once."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from seeklog import Record
from seeklog.errors import InvalidConfig, TopicNotFound, UsageError
from seeklog.spark import jobs
from store.workbench import open_store, snapshot

COLUMNS = "id long, who string, amount double, paid_at timestamp, tags array<string>, `a b` binary"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with open_store(tmp_path / "store") as opened:
        opened.create_topic("payments", partitions=3)
    return tmp_path / "store"


@pytest.fixture
def payments(spark: SparkSession) -> DataFrame:
    rows = [
        (
            number,
            f"who-{number % 7}" if number % 10 else None,
            number / 2,
            datetime(2026, 1, 1, number % 24),
            ["x"],
            b"\1",
        )
        for number in range(100)
    ]
    return spark.createDataFrame(rows, COLUMNS).coalesce(2)


def records_of(store: Path, topic: str = "payments") -> list[Record]:
    with open_store(store, read_only=True) as opened:
        return [
            record
            for one in opened.describe_topic(topic).partitions
            for record in opened.log(topic, one.partition).scan()
        ]


def test_other_columns_become_a_json_value(store: Path, payments: DataFrame) -> None:
    done = jobs.load_into(payments, store, "payments", key="who", timestamp="paid_at", headers=["amount", "a b"])

    assert done == ("payments", 100, True)
    found = {json.loads(record.value or b"")["id"]: record for record in records_of(store)}
    assert len(found) == 100
    for number, record in found.items():
        assert record.key == (b"who-%d" % (number % 7) if number % 10 else None)
        assert json.loads(record.value or b"") == {"id": number, "tags": ["x"]}
        moment = datetime(2026, 1, 1, number % 24, tzinfo=UTC)
        assert record.timestamp_ms == moment.timestamp() * 1000
        assert record.headers == (("amount", b"%r" % (number / 2)), ("a b", b"\1"))
    by_key: dict[bytes, set[int | None]] = {}
    for record in found.values():
        if record.key is not None:
            by_key.setdefault(record.key, set()).add(record.partition)
    assert {len(partitions) for partitions in by_key.values()} == {1}


def test_expressions_give_the_parts_of_a_record(store: Path, payments: DataFrame) -> None:
    jobs.load_into(
        payments.where("id < 4"),
        store,
        "payments",
        key="id",
        value="struct(who, amount)",
        timestamp="1000 * id",
        partition="cast(id % 3 as int)",
        compression="zstd",
    )

    found = sorted(records_of(store), key=lambda record: record.key or b"")
    assert [record.key for record in found] == [b"0", b"1", b"2", b"3"]
    assert [record.timestamp_ms for record in found] == [0, 1000, 2000, 3000]
    assert [record.partition for record in found] == [0, 1, 2, 0]
    assert json.loads(found[1].value or b"") == {"who": "who-1", "amount": 0.5}


@pytest.mark.parametrize("source", ["parquet", "csv", "json"])
def test_files_of_any_format_are_imported_into_a_new_topic(
    spark: SparkSession, store: Path, payments: DataFrame, tmp_path: Path, source: str
) -> None:
    rows = payments.select("id", "who")
    rows.write.format(source).option("header", "true").save(str(tmp_path / "files"))

    done = jobs.load_into(
        spark,
        store,
        "made",
        source=source,
        location=str(tmp_path / "files"),
        options={"header": "true"} if source == "csv" else None,
        key="who",
        value="id",
        create_partitions=2,
        config={"compression.type": "zstd"},
    )

    assert done.records == 100
    assert sorted(int(record.value or b"") for record in records_of(store, "made")) == list(range(100))
    with open_store(store, read_only=True) as opened:
        assert len(opened.describe_topic("made").partitions) == 2
        assert opened.describe_topic("made").config.compression_type == "zstd"


def test_import_with_id_is_appended_once(store: Path, payments: DataFrame) -> None:
    for turn in range(3):
        done = jobs.load_into(payments, store, "payments", import_id="january")
        assert (done.records, done.is_new) == ((100, True) if turn == 0 else (0, False))
    assert len(records_of(store)) == 100
    assert jobs.load_into(payments, store, "payments", import_id="february").is_new
    assert len(records_of(store)) == 200


def test_import_with_id_is_repeated_after_topic_is_recreated(store: Path, payments: DataFrame) -> None:
    for _ in range(2):
        assert jobs.load_into(payments, store, "again", import_id="january", create_partitions=2).is_new
        assert len(records_of(store, "again")) == 100
        with open_store(store) as opened:
            opened.delete_topic("again")


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"topic": "paymnets"}, TopicNotFound, "create_partitions"),
        ({"key": "whom"}, UsageError, "key is 'whom', not an expression over the columns id, who"),
        ({"value": "id +"}, UsageError, "value is 'id \\+', not an expression"),
        ({"timestamp": "who"}, UsageError, r"which is string; .* to_timestamp\(who\)"),
        ({"partition": "who"}, UsageError, r"it must be int: cast\(who as int\)"),
        ({"headers": ["nobody"]}, UsageError, "no column nobody for a header"),
        ({"headers": "who"}, UsageError, "headers must be a list"),
        ({"import_id": " "}, UsageError, "import_id is blank"),
        ({"source": "csv"}, UsageError, "a DataFrame already has its rows"),
        ({"compression": "lzma"}, InvalidConfig, "lzma"),
        ({"config": {"flush": "os"}}, UsageError, "pass create_partitions too"),
    ],
)
def test_invalid_import_is_refused_and_changes_nothing(
    store: Path, payments: DataFrame, settings: dict[str, Any], kind: type[Exception], message: str
) -> None:
    before = snapshot(store, locks=False)

    with pytest.raises(kind, match=message) as caught:
        jobs.load_into(payments, store, **{"topic": "payments", **settings})

    assert "\n" not in str(caught.value)
    assert snapshot(store, locks=False) == before
