"""Kernel columns as Arrow batches: types, nulls, and header keys that are not UTF-8."""

from __future__ import annotations

import datetime
import sys
from typing import Any

import pytest

from cases import for_each
from record.batches import INT64_MAX, LIMIT, SMALL, Row, Sketch, T
from seeklog.errors import UsageError
from seeklog.record import arrow
from seeklog.record.columns import Columns, filled_lists

pa = pytest.importorskip("pyarrow")


def new_columns(names: tuple[str, ...], *, scale: int) -> Columns:
    return Columns(names, rows=10, data_bytes=1000, limit=LIMIT, timestamp_scale=scale, allocate=pa.allocate_buffer)


def batch_of_columns(sketch: Sketch, columns: tuple[str, ...] = arrow.COLUMNS, *, unit: Any = "ms") -> Any:
    made = new_columns(columns, scale=arrow.TIMESTAMP_SCALES[unit])
    made.add(sketch.encode(), 0, 0, sketch.base_offset, True, 0, INT64_MAX)
    batch = arrow.record_batch(made.finish(), made.rows, arrow.schema(columns, timestamp_unit=unit))
    batch.validate(full=True)
    return batch


def test_every_column_has_its_type() -> None:
    header = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])

    assert arrow.schema(arrow.ALL_COLUMNS) == pa.schema(
        [
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp("ms", "UTC"), nullable=False),
            pa.field("headers", pa.list_(header)),
            pa.field("timestampType", pa.int32(), nullable=False),
        ]
    )


@pytest.mark.parametrize("unit", ["ms", "us"])
def test_timestamp_has_requested_unit_and_same_time(unit: Any) -> None:
    column = batch_of_columns(SMALL, ("timestamp",), unit=unit)["timestamp"]

    assert column.type == pa.timestamp(unit, "UTC")
    utc = datetime.UTC
    assert column.to_pylist() == [datetime.datetime.fromtimestamp(t / 1000, utc) for t in (T, T + 5, T - 3)]


def test_rows_equal_the_records() -> None:
    batch = batch_of_columns(SMALL, ("key", "value", "offset", "headers"))

    assert batch.to_pylist() == [
        {
            "key": record.key,
            "value": record.value,
            "offset": record.offset,
            "headers": [{"key": key, "value": value} for key, value in record.headers],
        }
        for record in SMALL.records()
    ]


def test_columns_have_the_requested_order() -> None:
    batch = batch_of_columns(SMALL, ("value", "offset", "key"))

    assert batch.schema.names == ["value", "offset", "key"]
    assert batch["offset"].to_pylist() == [40, 41, 43]


def test_nulls_stay_null_and_empty_stays_empty() -> None:
    batch = batch_of_columns(SMALL)

    assert batch["key"].to_pylist() == [b"k0", b"", None]
    assert (batch["key"].null_count, batch["value"].null_count, batch["offset"].null_count) == (1, 1, 0)


def test_no_rows_make_an_empty_batch() -> None:
    batch = batch_of_columns(Sketch((), fields={"last_delta": 0}))

    assert batch.num_rows == 0
    assert batch.schema == arrow.schema(arrow.COLUMNS)


@pytest.mark.parametrize(("attributes", "kind"), [(0x00, 0), (0x08, 1)])
def test_timestamp_type_is_returned_on_request(attributes: int, kind: int) -> None:
    batch = batch_of_columns(Sketch(SMALL.rows, attributes=attributes), arrow.ALL_COLUMNS)

    assert batch["timestampType"].to_pylist() == [kind] * 3
    assert "timestampType" not in arrow.COLUMNS


@pytest.mark.parametrize(
    ("raw", "text"), [(b"ascii", "ascii"), ("schlüssel".encode(), "schlüssel"), (b"a\xff\x80b", "a\ufffd\ufffdb")]
)
def test_header_key_that_is_not_utf8_becomes_text(raw: bytes, text: str) -> None:
    """Arrow's strings are UTF-8; other bytes would break their readers."""
    batch = batch_of_columns(Sketch((Row(b"v", None, ((raw, b"1"), (b"k", b"2"))),)), ("headers",))

    assert batch["headers"].to_pylist() == [[{"key": text, "value": b"1"}, {"key": "k", "value": b"2"}]]


# ---------------------------------------------------------------- schemas of Spark


def spark_schema() -> Any:
    """The schema that Spark 4 compares batches with: fields are nullable by default, and list items are `element`."""
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    return pa.schema(
        [
            pa.field("headers", pa.list_(pa.field("element", header))),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary(), metadata={"note": "of the caller"}),
            pa.field("offset", pa.int64()),
            pa.field("timestamp", pa.timestamp("us", "UTC")),
            pa.field("timestampType", pa.int32()),
        ]
    )


def columns_of(sketch: Sketch, names: Any) -> tuple[dict[str, Any], int]:
    made = new_columns(tuple(names), scale=1000)
    made.add(sketch.encode(), 0, 0, sketch.base_offset, True, 0, INT64_MAX)
    return made.finish(), made.rows


@pytest.mark.parametrize("headers_null", [False, True])
def test_any_schema_of_the_same_types_is_used_without_a_copy(headers_null: bool) -> None:
    schema = spark_schema()
    columns, rows = columns_of(SMALL, schema.names)

    batch = arrow.record_batch(columns, rows, schema, headers_null=headers_null)

    batch.validate(full=True)
    assert batch.schema.equals(schema, check_metadata=True)
    assert batch["headers"].type.value_field.name == "element"
    assert batch.drop_columns("headers").to_pylist() == (
        batch_of_columns(SMALL, ("key", "value", "offset", "timestamp", "timestampType"), unit="us").to_pylist()
    )
    for name in ("offset", "timestamp", "timestampType"):
        assert batch[name].buffers()[1].address == pa.py_buffer(columns[name]).address
    for name in ("key", "value"):
        assert batch[name].buffers()[2].address == pa.py_buffer(columns[name][4]).address
    assert batch["headers"].buffers()[1].address == pa.py_buffer(columns["headers"][0]).address


def test_records_without_headers_get_null_on_request() -> None:
    columns, rows = columns_of(SMALL, ("headers",))

    batch = arrow.record_batch(columns, rows, arrow.schema(("headers",)), headers_null=True)

    batch.validate(full=True)
    assert batch["headers"].null_count == 1
    assert batch["headers"].to_pylist() == [
        [{"key": "trace", "value": b"1"}, {"key": "none", "value": None}],
        None,
        [{"key": "", "value": b""}],
    ]


@pytest.mark.parametrize("has_headers", [False, True])
def test_columns_with_only_null_headers_or_no_null_headers_are_right(has_headers: bool) -> None:
    headers = ((b"h", b"1"),) if has_headers else ()
    columns, rows = columns_of(Sketch(tuple(Row(b"v", None, headers, delta=n) for n in range(9))), ("headers",))

    batch = arrow.record_batch(columns, rows, arrow.schema(("headers",)), headers_null=True)

    batch.validate(full=True)
    assert batch["headers"].null_count == (0 if has_headers else 9)
    assert batch["headers"].to_pylist() == [[{"key": "h", "value": b"1"}] if has_headers else None] * 9


@for_each("rows", range(18))
def test_nonempty_lists_have_their_bit_at_every_count(rows: int) -> None:
    """Eight lists share a byte."""
    sizes = [(row * row) % 3 for row in range(rows)]
    ends = bytearray(b"".join(sum(sizes[:row]).to_bytes(4, sys.byteorder) for row in range(rows + 1)))

    empty, bits = filled_lists(ends, rows)

    assert empty == sizes.count(0)
    assert len(bits) == (rows + 7) // 8
    assert [bits[row >> 3] >> (row & 7) & 1 for row in range(8 * len(bits))][:rows] == [size > 0 for size in sizes]


@pytest.mark.parametrize(("size", "rows"), [(0, 0), (3, 0), (4, 1), (7, 1), (8, -1)])
def test_ends_that_are_not_all_there_are_refused(size: int, rows: int) -> None:
    with pytest.raises(ValueError, match="cannot hold the ends"):
        filled_lists(bytearray(size), rows)


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("columns", [["offset"], ("offset", "value"), arrow.COLUMNS, arrow.ALL_COLUMNS])
def test_known_columns_are_accepted(columns: Any) -> None:
    assert arrow.check_columns(columns) == tuple(columns)


def test_single_string_is_one_column_name() -> None:
    assert arrow.check_columns("offset") == ("offset",)


@pytest.mark.parametrize("columns", [["offsets"], [""], "values", ["offset", "nope"]])
def test_unknown_column_is_refused_with_list_of_columns(columns: Any) -> None:
    with pytest.raises(UsageError, match="the columns are key, value, offset, timestamp, headers, timestampType"):
        arrow.check_columns(columns)


@pytest.mark.parametrize("columns", [[], (), ["offset", "offset"]])
def test_missing_or_repeated_column_is_refused(columns: Any) -> None:
    with pytest.raises(UsageError, match="at least one column"):
        arrow.check_columns(columns)


def test_error_without_pyarrow_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    with pytest.raises(UsageError, match=r"pip install .*seeklog\[arrow\]"):
        arrow.import_pyarrow()
