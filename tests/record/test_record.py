"""The `Record` class: its fields, equality, and pickling."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from record.batches import INT64_MAX, IS_COMPILED, T
from seeklog.errors import InvalidRecord
from seeklog.record.record import Record, make_record

FULL: dict[str, Any] = {"key": b"k", "headers": (("h", b"1"), ("n", None)), "timestamp_ms": T, "offset": 7}


def test_record_of_only_a_value_has_no_offset_time_key_or_headers() -> None:
    record = Record(b"v")

    assert (record.value, record.key, record.headers) == (b"v", None, ())
    assert record.timestamp_ms is None
    assert record.offset == -1


def test_record_keeps_its_fields() -> None:
    record = Record(b"v", **FULL)

    assert (record.value, record.key, record.headers) == (b"v", b"k", (("h", b"1"), ("n", None)))
    assert (record.timestamp_ms, record.offset) == (T, 7)


def test_headers_given_as_a_list_become_a_tuple() -> None:
    assert Record(b"v", headers=[("h", b"1")]).headers == (("h", b"1"),)


@pytest.mark.skipif(not IS_COMPILED, reason="only the compiled class can forbid it")
@pytest.mark.parametrize("name", ["offset", "timestamp_ms", "key", "value", "headers"])
def test_record_is_immutable(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(Record(b"v", **FULL), name, None)


def test_records_with_equal_fields_have_equal_hashes() -> None:
    one, other = Record(b"v", **FULL), Record(b"v", **FULL)

    assert one == other
    assert hash(one) == hash(other)
    assert {one, other} == {one}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("value", b"w"),
        ("value", None),
        ("key", None),
        ("headers", ()),
        ("timestamp_ms", T + 1),
        ("timestamp_ms", None),
        ("offset", 8),
    ],
)
def test_records_that_differ_in_one_field_differ(name: str, value: Any) -> None:
    fields: dict[str, Any] = {"value": b"v", **FULL}

    assert Record(**fields) != Record(**{**fields, name: value})


def test_record_differs_from_everything_else() -> None:
    assert Record(b"v") != b"v"
    assert Record(b"v") != ("v",)


def test_no_timestamp_differs_from_timestamp_minus_one() -> None:
    """-1 is a record without a time; None is a record that will get the log's."""
    assert Record(b"v", timestamp_ms=-1).timestamp_ms == -1
    assert Record(b"v", timestamp_ms=-1) != Record(b"v")


def test_repr_shows_all_fields() -> None:
    assert repr(Record(b"v", key=b"k", timestamp_ms=5, offset=3)) == (
        "Record(offset=3, timestamp_ms=5, key=b'k', value=b'v')"
    )
    assert "headers=(('h', b'1'),)" in repr(Record(b"v", headers=[("h", b"1")]))


@pytest.mark.parametrize("record", [Record(b"v", **FULL), Record(None), Record(b"", timestamp_ms=-1)])
def test_record_survives_a_pickle(record: Record) -> None:
    assert pickle.loads(pickle.dumps(record)) == record


def test_record_can_be_made_from_positional_fields() -> None:
    assert make_record(b"v", b"k", FULL["headers"], T, 7, None) == Record(b"v", **FULL)


@pytest.mark.parametrize("timestamp_ms", [-2, -(2**63), 2**63, 2**100])
def test_timestamp_out_of_bounds_is_refused(timestamp_ms: int) -> None:
    with pytest.raises(InvalidRecord, match=r"timestamp_ms .* is out of bounds"):
        Record(b"v", timestamp_ms=timestamp_ms)


@pytest.mark.parametrize("timestamp_ms", ["1", 1.5, True, b"1"])
def test_timestamp_that_is_not_an_int_is_refused(timestamp_ms: Any) -> None:
    with pytest.raises(InvalidRecord, match="must be an int or None"):
        Record(b"v", timestamp_ms=timestamp_ms)


@pytest.mark.parametrize("timestamp_ms", [-1, 0, 1, T, INT64_MAX])
def test_timestamp_at_its_bounds_is_kept(timestamp_ms: int) -> None:
    assert Record(b"v", timestamp_ms=timestamp_ms).timestamp_ms == timestamp_ms


def test_record_names_the_partition_it_was_read_from() -> None:
    record = make_record(b"v", b"k", (), T, 7, ("payments", 3))

    assert (record.topic, record.partition) == ("payments", 3)
    assert pickle.loads(pickle.dumps(record)) == record
    assert record != make_record(b"v", b"k", (), T, 7, ("payments", 4))
    assert repr(record).startswith("Record(topic='payments', partition=3, offset=7, ")


def test_record_outside_a_store_has_no_topic() -> None:
    assert (Record(b"v").topic, Record(b"v").partition) == (None, None)
