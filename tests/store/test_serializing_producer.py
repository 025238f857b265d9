"""Producers that serialize: what they send, and values that cannot be serialized."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cases import for_each
from seeklog import Producer, Store, serializers
from seeklog.clients import SerializingProducer
from seeklog.errors import InvalidRecord, MissingExtra, SerializationError, UsageError
from store.workbench import open_store

PATIENCE_S = 60


@pytest.fixture
def store(root: Path) -> Iterator[Store]:
    with open_store(root) as store:
        store.create_topic("orders", partitions=3)
        yield store


def sent(store: Store) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for number in range(3) for record in store.log("orders", number).scan()]


def test_fields_are_serialized(store: Store) -> None:
    with store.producer(key=str, value=json, linger_ms=0) as producer:
        assert isinstance(producer, SerializingProducer)
        future = producer.send("orders", {"id": 1}, key="Zoë", headers={"trace": b"7f"}, timestamp_ms=1234, partition=2)
        assert future.result(PATIENCE_S).partition == 2
    (record,) = store.log("orders", 2).scan()
    assert (record.key, record.value) == ("Zoë".encode(), b'{"id": 1}')
    assert (record.headers, record.timestamp_ms) == ((("trace", b"7f"),), 1234)


def test_field_without_a_serializer_takes_bytes(store: Store) -> None:
    with store.producer(value=json, linger_ms=0) as producer:
        producer.send("orders", [1], key=b"k")
    assert sent(store) == [(b"k", b"[1]")]


def test_key_goes_to_the_partition_of_its_bytes(store: Store) -> None:
    with store.producer(linger_ms=0) as plain, store.producer(key=str, value=str, linger_ms=0) as producer:
        for number in range(20):
            expected = plain.send("orders", b"x", key=b"%d" % number).result(PATIENCE_S).partition
            assert producer.send("orders", "x", key=str(number)).result(PATIENCE_S).partition == expected


def test_none_is_sent_without_a_call(store: Store) -> None:
    def refuse(value: Any) -> bytes:
        raise AssertionError(value)

    with store.producer(key=refuse, value=refuse, linger_ms=0) as producer:
        producer.send("orders", None)
    assert sent(store) == [(None, None)]


@for_each("given", [b"x", bytearray(b"x"), memoryview(b"x"), "x"])
def test_serializer_may_return_any_bytes_or_text(tmp_path: Path, given: Any) -> None:
    with open_store(tmp_path / type(given).__name__) as store:
        store.create_topic("orders", partitions=3)
        with store.producer(value=lambda value: given, linger_ms=0) as producer:
            producer.send("orders", 1)
        assert sent(store) == [(None, b"x")]


def test_error_names_topic_field_and_cause_and_nothing_is_sent(store: Store) -> None:
    with store.producer(key=str, value=serializers.json, linger_ms=0) as producer:
        with pytest.raises(
            SerializationError, match=r"topic 'orders': .*cannot serialize the value: ValueError"
        ) as caught:
            producer.send("orders", math.nan)
        assert (caught.value.topic, caught.value.field) == ("orders", "value")
        assert isinstance(caught.value.__cause__, ValueError)
        assert isinstance(caught.value, InvalidRecord)
        with pytest.raises(SerializationError, match="cannot serialize the key: TypeError: a str is needed, not int"):
            producer.send("orders", 1, key=1)
    assert sent(store) == []


def test_serializer_that_returns_something_else_is_named(store: Store) -> None:
    with (
        store.producer(value=lambda value: value) as producer,
        pytest.raises(SerializationError, match="returned dict for the value, not bytes or text; nothing was sent"),
    ):
        producer.send("orders", {})


def test_unusable_serializer_is_refused_before_a_name_is_claimed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "msgpack", None)
    for _ in range(2):
        with pytest.raises(MissingExtra):
            store.producer(value=serializers.msgpack, name="one")
        with pytest.raises(UsageError, match="value must be a callable, str, or an object with dumps"):
            store.producer(value=3, name="one")  # type: ignore[call-overload]
    with store.producer(value=json, name="one", linger_ms=0) as producer:
        producer.send("orders", 1, partition=0)
        assert producer.written(("orders", 0)) == 1


def test_producer_without_serializers_is_the_plain_one(store: Store) -> None:
    with store.producer() as producer:
        assert type(producer) is Producer


def test_store_closes_and_counts_it_as_its_producer(root: Path) -> None:
    store = open_store(root)
    store.create_topic("orders", partitions=3)
    producer = store.producer(value=json, linger_ms=10**9)
    producer.send("orders", 1)
    store.close()
    with open_store(root, read_only=True) as store:
        assert sent(store) == [(None, b"1")]
    assert producer.metrics()["records_sent"] == 1


@for_each("value", [{"id": 1}, ["€", None, 2.5], "text", 0])
def test_records_come_back_as_they_were_sent(tmp_path: Path, value: Any) -> None:
    pytest.importorskip("msgpack")
    for number, serializer in enumerate((json, serializers.json, serializers.msgpack)):
        with open_store(tmp_path / f"{number}-{hash(repr(value))}") as store:
            store.create_topic("orders", partitions=3)
            with store.producer(key=str, value=serializer, linger_ms=0) as producer:
                producer.send("orders", value, key="k").result(PATIENCE_S)
            with store.consumer(["orders"], key=str, value=serializer, auto_offset_reset="earliest") as consumer:
                assert [(record.key, record.value) for record in consumer.poll()] == [("k", value)]
