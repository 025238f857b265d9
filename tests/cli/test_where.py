"""The expressions of `--where`."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seeklog.cli.where import compile_where
from seeklog.errors import UsageError
from seeklog.record.record import Record, make_record

RECORD = make_record(
    b'{"id": 7, "name": "Asha", "paid": true, "gone": null, "items": [{"sku": "a-1"}, {"sku": "b"}], "a-b": 1.5}',
    b"customer_7",
    (("source", b"web"), ("trace-id", b"12"), ("source", b"app"), ("empty", None)),
    1_767_225_600_000,
    42,
    ("orders", 3),
)
PLAIN = make_record(b"not JSON", None, (), -1, 0, ("orders", 0))
TOMBSTONE = make_record(None, b"9", (), 5, 1, ("orders", 0))


@pytest.mark.parametrize(
    "text",
    [
        "value.id = 7",
        "value.id == 7.0",
        "7 = value.id",
        "value.id != 8 and value.id <> 8",
        "value.id >= 7 and value.id <= 7 and value.id > 6 and value.id < 8",
        "VALUE.id IN (1, 7) AND NOT value.id IN (1, 2)",
        "value.id not in (1, 2)",
        "value.name = 'Asha' and value.name > 'A'",
        'value.name like "A%a" and value.name like "____" and value.name not like "a%"',
        "value.paid = true",
        "value.gone is null and value.nothing is null and value.id is not null",
        "value.items[0].sku = 'a-1' and value.items[-1]['sku'] = 'b'",
        "value.items[9].sku is null",
        "value['a-b'] = 1.5",
        "value like '%Asha%'",
        "key = 'customer_7'",
        "offset = 42 and partition = 3 and topic = 'orders'",
        "headers.source = 'app'",
        "header.source = 'app' and headers['trace-id'] = 12 and headers.empty is null",
        "timestamp >= '2026-01-01' and timestamp < '@2026-01-01T00:00:00.001'",
        "timestamp = 1767225600000",
        "'2026-01-01' <= timestamp",
        "(value.id = 1 or value.id = 7) and (not (value.id = 1))",
        "value.id = 1 or value.id = 2 or value.id = 7",
        "value.id = 1 or value.nothing = 1 or key is not null",
    ],
)
def test_expressions_that_match(text: str) -> None:
    assert compile_where(text, utc=True)(RECORD)


@pytest.mark.parametrize(
    "text",
    [
        "value.id = 8",
        "value.id = '7'",
        "value.id = true",
        "value.paid = 1",
        "value.nothing = 7",
        "not value.nothing = 7",
        "value.nothing != 7",
        "not (value.nothing = 7 and value.id = 7)",
        "value.id.deeper = 7",
        "value.name < 7",
        "value.items < 7",
        "value.items = value.name",
        "key = 7",
        "null = null",
        "value.name in ('asha', null)",
        "value.name like 'Asha_'",
    ],
)
def test_expressions_that_do_not_match(text: str) -> None:
    assert not compile_where(text, utc=True)(RECORD)


def test_numeric_key_compares_with_numbers() -> None:
    assert compile_where("key = 9 and key < 10 and 8 < key")(TOMBSTONE)
    assert compile_where("key = '9'")(TOMBSTONE)
    assert not compile_where("key < 9")(TOMBSTONE)


def test_missing_field_is_null() -> None:
    assert compile_where("value is null and value.id is null")(TOMBSTONE)
    assert compile_where("key is null and timestamp is null and value.id is null and headers.x is null")(PLAIN)
    assert not compile_where("value.id = 7 or key = 'a' or timestamp < 5")(PLAIN)


def test_too_deeply_nested_value_is_not_json() -> None:
    assert compile_where("value.id is null")(Record(b"[" * 200_000))


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "expected a name or a value, found the end"),
        ("value.id =", 11, "expected a name or a value, found the end"),
        ("value.id", 9, "expected a comparison"),
        ("value.id = 7 8", 14, "expected and, or, or the end, found 8"),
        ("(value.id = 7", 14, "expected ), found the end"),
        ("vale.id = 7", 1, "unknown field vale"),
        ("key = abc", 7, "unknown field abc"),
        ("key.a = 7", 7, "key has no parts"),
        ("headers = 7", 9, "the name of one header"),
        ("key = 'abc", 7, "an unclosed quote"),
        ("value. = 7", 8, "a name after the dot"),
        ("value[x] = 7", 7, "a number or a quoted name"),
        ("value[1.5] = 7", 7, "a number or a quoted name"),
        ("key like 7", 10, "expected a pattern"),
        ("key not = 7", 9, "expected like or in"),
        ("key in ()", 9, "expected a name or a value"),
        ("key in (offset)", 9, "a list takes values"),
        ("key is 7", 8, "expected null"),
        ("timestamp > 'noon'", 11, "is not a time"),
        ("offset > 1 ; drop", 12, "is not understood"),
        ("offset > 0x10", 10, "is not understood"),
        ("__import__('os').system('true')", 1, "unknown field __import__"),
    ],
)
def test_mistake_is_reported_with_its_column(text: str, column: int, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        compile_where(text)

    assert str(caught.value).startswith(f"--where: column {column}: ")
    assert message in str(caught.value)


def test_too_deeply_nested_expression_is_refused() -> None:
    for opening in ("(", "not "):
        with pytest.raises(UsageError, match="nested more than 50 levels deep"):
            compile_where(opening * 10_000 + "offset = 1")


@given(st.text(alphabet=" ()'\"=<>.,[]-_%0179aeinotkyvlu\\;", max_size=30))
def test_any_text_compiles_or_is_a_usage_error(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert compile_where(text)(RECORD) in (True, False)
