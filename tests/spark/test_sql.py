"""The data source in SQL: tables, temporary views, and options of a query."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from log.workbench import START_MS
from seeklog.errors import InvalidConfig
from seeklog.spark import catalog
from seeklog.spark.read.schema import RECORD_SCHEMA
from spark.workbench import append, make_store, message_of, numbered
from store.workbench import open_store


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Topic a with 30 and 20 records, b with 5; the path has a blank and a character that URLs escape."""
    return make_store(tmp_path_factory.mktemp("sql") / "the store 100%", {"a": [30, 20], "b": [5]})


@pytest.fixture(autouse=True)
def drop_tables(spark: SparkSession) -> Iterator[None]:
    yield
    for table in spark.catalog.listTables():
        spark.sql(f"DROP {'VIEW' if table.isTemporary else 'TABLE'} {table.name}")


def count(spark: SparkSession, query: str) -> int:
    return int(spark.sql(query).first()[0])


def test_table_is_created_with_options(spark: SparkSession, path: Path) -> None:
    spark.sql(f"CREATE TABLE t USING seeklog OPTIONS (path '{path}', subscribe 'a', includeHeaders 'true')")

    assert spark.table("t").columns == RECORD_SCHEMA.fieldNames()
    assert count(spark, "SELECT count(*) FROM t") == 50
    assert count(spark, "SELECT max(offset) FROM t WHERE partition = 1") == 19
    assert spark.sql("SELECT DISTINCT topic FROM t").collect() == [("a",)]


def test_table_is_created_with_a_location(spark: SparkSession, path: Path) -> None:
    spark.sql(
        f"CREATE TABLE t USING seeklog OPTIONS (assign '{{\"a\": [1]}}', columns 'offset,value') LOCATION '{path}'"
    )

    assert spark.table("t").columns == ["offset", "value"]
    assert count(spark, "SELECT count(*) FROM t") == 20


def test_table_reads_later_appends(spark: SparkSession, tmp_path: Path) -> None:
    path = make_store(tmp_path / "store", {"t": [5]})
    spark.sql(f"CREATE TABLE t USING seeklog OPTIONS (path '{path}', subscribe 't')")
    assert count(spark, "SELECT count(*) FROM t") == 5
    with open_store(path) as store:
        append(store, "t", numbered(4, first=5))

    assert count(spark, "SELECT count(*) FROM t") == 9


def test_query_options_extend_table_options(spark: SparkSession, path: Path) -> None:
    spark.sql(f"CREATE TABLE t USING seeklog OPTIONS (path '{path}', subscribe 'a', startingOffsets '-5')")

    assert count(spark, "SELECT count(*) FROM t") == 10
    assert count(spark, "SELECT count(*) FROM t WITH (startingOffsets = 'earliest')") == 50
    assert count(spark, f"SELECT count(*) FROM t WITH (endingTimestamp = '{START_MS + 27_000}')") == 7
    assert spark.read.option("startingOffsets", "-1").table("t").count() == 2


def test_table_is_created_from_python(spark: SparkSession, path: Path) -> None:
    spark.catalog.createTable("t", source="seeklog", path=str(path), subscribe="b")

    assert count(spark, "SELECT count(*) FROM t") == 5


def test_a_table_is_read_as_a_stream(spark: SparkSession, path: Path, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE t USING seeklog OPTIONS (path '{path}', subscribe 'a', startingOffsets 'earliest')")

    query = (
        spark.readStream.table("t")
        .writeStream.format("memory")
        .queryName("seen")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    assert count(spark, "SELECT count(*) FROM seen") == 50


def test_query_may_scan_a_table_twice(spark: SparkSession, path: Path) -> None:
    spark.sql(f"CREATE TABLE t USING seeklog OPTIONS (path '{path}', subscribe 'a')")

    counts = spark.sql("SELECT count(*) FROM t WHERE offset < 10 UNION ALL SELECT count(*) FROM t").collect()
    assert [row[0] for row in counts] == [20, 50]
    joined = "SELECT count(*) FROM t x JOIN t y ON x.partition = y.partition AND x.offset + 1 = y.offset"
    assert count(spark, joined) == 29 + 19


def test_a_metadata_table_is_a_table(spark: SparkSession, path: Path) -> None:
    spark.sql(f"CREATE TABLE lengths USING seeklog OPTIONS (path '{path}', table 'offsets')")

    found = spark.sql("SELECT topic, sum(record_count) FROM lengths GROUP BY topic ORDER BY topic").collect()
    assert found == [("a", 50), ("b", 5)]


def test_a_temporary_view_is_a_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    """Spark plans a view when it is created, so it keeps the records of that moment."""
    path = make_store(tmp_path / "store", {"t": [5]})
    spark.sql(f"CREATE TEMPORARY VIEW v USING seeklog OPTIONS (path '{path}', subscribe 't')")
    assert count(spark, "SELECT count(*) FROM v") == 5
    with open_store(path) as store:
        append(store, "t", numbered(4, first=5))

    assert count(spark, "SELECT count(*) FROM v") == 5


def test_table_with_explicit_schema_says_why_options_are_missing(spark: SparkSession, path: Path) -> None:
    spark.sql(f"CREATE TABLE t (offset BIGINT) USING seeklog OPTIONS (path '{path}', subscribe 'a')")

    message = message_of(lambda: spark.sql("SELECT count(*) FROM t").collect(), InvalidConfig)

    assert message.startswith("option path is missing")
    assert "a table created with an explicit schema does not keep its options" in message
    assert count(spark, f"SELECT count(*) FROM t WITH (path = '{path}', subscribe = 'a')") == 50


def test_wrong_option_is_refused_by_create_table(spark: SparkSession, path: Path) -> None:
    message = message_of(
        lambda: spark.sql(f"CREATE TABLE t USING seeklog OPTIONS (path '{path}', subscribed 'a')"), InvalidConfig
    )

    assert message == "unknown option subscribed; did you mean subscribe?"


# ---------------------------------------------------------------- what a table remembers


def test_sparks_entries_are_separated_from_table_options() -> None:
    given = {
        "provider": "seeklog",
        "owner": "me",
        "location": "file:/store",
        "path": "file:/store",
        "comment": "mine",
        "retention": "a property",
        "option.subscribe": "a",
        "subscribe": "a",
    }

    assert catalog.creation_options(given) == {"subscribe": "a", "path": "file:/store"}
    assert catalog.creation_options({"subscribe": "a", "path": "/store"}) is None


def test_options_are_kept_in_schema_and_overridden_by_query() -> None:
    kept = catalog.remember(RECORD_SCHEMA, {"path": "/store", "subscribe": "a"})

    assert kept.simpleString() == RECORD_SCHEMA.simpleString()
    assert kept == StructType.fromJson(json.loads(kept.json()))
    assert catalog.recall({"subscribe": "b"}, kept) == {"path": "/store", "subscribe": "b"}
    assert catalog.recall({"subscribe": "b"}, RECORD_SCHEMA) == {"subscribe": "b"}
    assert all(isinstance(field, StructField) for field in kept.fields)
