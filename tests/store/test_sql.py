"""`Store.sql`: queries over topics, their parameters, their errors, and their end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from log.workbench import wait_until
from seeklog import Store
from seeklog.errors import CorruptBatch, LogClosed, SeeklogError, TopicNotFound, UsageError
from store.workbench import append, open_store

pytest.importorskip("duckdb")


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    with open_store(root) as store:
        store.create_topic("payments", partitions=2)
        store.create_topic("some-orders")
        for partition in (0, 1):
            values = [json.dumps({"id": number, "paise": 10 * number}).encode() for number in range(50)]
            append(store, "payments", values, partition=partition, key=b"m%d" % partition)
        yield store


def rows(store: Store, query: str, parameters: Any = None) -> list[dict[str, Any]]:
    return store.sql(query, parameters).read_all().to_pylist()


def test_result_is_a_stream_of_arrow_batches(store: Store) -> None:
    reader = store.sql("select text(key) as merchant, count(*) as n from payments group by 1 order by 1")

    assert reader.schema.names == ["merchant", "n"]
    assert reader.read_all().to_pylist() == [{"merchant": "m0", "n": 50}, {"merchant": "m1", "n": 50}]


def test_operators_of_json_take_the_bytes_of_values(store: Store) -> None:
    assert rows(store, "select max((value->>'paise')::int) as most from payments") == [{"most": 490}]


@pytest.mark.parametrize(
    ("condition", "parameters"),
    [('partition = ? and "offset" < ?', [1, 7]), ('partition = $p and "offset" < $n', {"p": 1, "n": 7})],
)
def test_parameters_replace_their_places(store: Store, condition: str, parameters: Any) -> None:
    assert rows(store, f"select count(*) as n from payments where {condition}", parameters) == [{"n": 7}]


def test_names_are_quoted_or_of_any_case(store: Store) -> None:
    assert rows(store, 'select count(*) as n from "some-orders"') == [{"n": 0}]
    assert rows(store, 'select count(*) as n from PAYMENTS join payments p using (partition, "offset")') == [{"n": 100}]


def test_query_reads_topics_that_only_its_parts_name(store: Store) -> None:
    query = 'with p as (select * from payments) select (select count(*) from "some-orders") as n, count(*) as m from p'

    assert rows(store, query) == [{"n": 0, "m": 100}]


@pytest.mark.parametrize(
    ("query", "error", "words"),
    [
        ("select * from pyments", TopicNotFound, 'did you mean "payments"'),
        ("selec 1", UsageError, "syntax error"),
        ("", UsageError, "one query"),
        ("select 1; select 2", UsageError, "one query"),
        ("create table copy as select * from payments", UsageError, "one query"),
        ("select * from payments where partition = ?", UsageError, "parameters"),
        ("select * from read_csv('/etc/passwd')", SeeklogError, "disabled"),
    ],
)
def test_invalid_query_is_refused(store: Store, query: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        rows(store, query)


def test_damage_is_the_error_of_the_scan(store: Store, root: Path) -> None:
    store.close()
    (file,) = (root / "payments-1").glob("*.log")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)

    with open_store(root, read_only=True) as damaged, pytest.raises(CorruptBatch, match="payments-1"):
        rows(damaged, "select sum(octet_length(value)) from payments")


def test_result_that_is_left_ends_its_threads(store: Store) -> None:
    before = set(threading.enumerate())
    reader = store.sql("select * from payments")
    reader.read_next_batch()
    del reader

    wait_until(lambda: set(threading.enumerate()) <= before, "the end of the query's threads")


def test_closed_store_runs_no_query(store: Store) -> None:
    store.close()
    with pytest.raises(LogClosed):
        store.sql("select 1")
