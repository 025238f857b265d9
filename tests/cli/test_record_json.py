"""Records as lines of JSON."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seeklog.cli.show.neutral import neutral
from seeklog.cli.show.record_json import Draft, decode_line, line_encoder
from seeklog.errors import InvalidRecord
from seeklog.record.record import make_record

some_bytes = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)
# Keys of headers are text in Python; bytes that are not UTF-8 become surrogates.
header_keys = st.binary(max_size=8).map(lambda data: data.decode("utf-8", "surrogateescape")) | st.text(max_size=8)
timestamps = st.integers(-1, 2**63 - 1) | st.integers(0, 4_102_444_800_000)


@pytest.mark.id("json-line-round-trip")
@given(
    value=some_bytes,
    key=some_bytes,
    headers=st.lists(st.tuples(header_keys, some_bytes), max_size=4).map(tuple),
    timestamp_ms=timestamps,
    partition=st.integers(0, 2**31 - 1),
    utc=st.booleans(),
)
def test_record_round_trips_through_its_line(
    value: bytes | None,
    key: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
    timestamp_ms: int,
    partition: int,
    utc: bool,
) -> None:
    line = line_encoder(utc=utc)(make_record(value, key, headers, timestamp_ms, 7, ("orders", partition)))

    assert decode_line(line.encode()) == Draft(value, key, headers, timestamp_ms, partition)
    assert neutral(line) == line, "a line must not steer a terminal"


def test_format_of_a_line() -> None:
    record = make_record(b'{"id": 7}', b"\xff", (("a", b"\xc3\xa9"), ("a", None)), 1_767_225_600_001, 7, ("orders", 3))

    assert json.loads(line_encoder(utc=True)(record)) == {
        "topic": "orders",
        "partition": 3,
        "offset": 7,
        "timestamp": "2026-01-01T00:00:00.001Z",
        "key_base64": "/w==",
        "value": '{"id": 7}',
        "headers": [{"key": "a", "value": "é"}, {"key": "a", "value": None}],
    }


@pytest.mark.parametrize(
    ("line", "draft"),
    [
        ('{"value": "a"}', Draft(b"a")),
        ('{"value": null}', Draft(None)),
        ('{"value": {"id": 7, "name": "é"}}', Draft('{"id":7,"name":"é"}'.encode())),
        ('{"value": 7, "key": 8}', Draft(b"7", b"8")),
        (
            '{"value": "a", "headers": {"source": "web", "n": null}}',
            Draft(b"a", headers=(("source", b"web"), ("n", None))),
        ),
        ('{"value": "a", "timestamp": 5}', Draft(b"a", timestamp_ms=5)),
        ('{"value": "a", "timestamp": "1970-01-01T00:00:01Z"}', Draft(b"a", timestamp_ms=1000)),
        ('{"value": "a", "timestamp": null, "key": null, "headers": null}', Draft(b"a")),
    ],
)
def test_handwritten_lines_are_decoded(line: str, draft: Draft) -> None:
    assert decode_line(line.encode()) == draft


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"", "not JSON: Expecting value at column 1"),
        (b'{"value": ', "not JSON"),
        (b'{"value": "\xff"}', "byte 11 is not UTF-8"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"value": ' + b"9" * 5000 + b"}", "a number in it is too long"),
        (b'{"value": NaN}', "not JSON: JSON has no NaN; write null"),
        (b'{"value": [1, -Infinity]}', "not JSON: JSON has no -Infinity"),
        (b"[1]", "a list instead of an object"),
        (b"7", "a number instead of"),
        (b'{"id": 7}', "unknown field 'id'"),
        (b'{"valeu": 7}', "did you mean value?"),
        (b'{"key": "a"}', "no value"),
        (b'{"value": "a", "value_base64": "YQ=="}', "both given"),
        (b'{"value_base64": "!"}', "value_base64 is not base64"),
        (b'{"value_base64": 7}', "value_base64 is a number"),
        (b'{"value": "\\ud800"}', "half a surrogate pair"),
        (b'{"value": "a", "headers": 7}', "headers is a number"),
        (b'{"value": "a", "headers": [7]}', "a header is a number"),
        (b'{"value": "a", "headers": [{"value": "b"}]}', "a header has no key"),
        (b'{"value": "a", "headers": [{"key": "b", "x": 1}]}', "a header: unknown field 'x'"),
        (b'{"value": "a", "headers": {"\\ud800": "b"}}', "half a surrogate pair"),
        (b'{"value": "a", "timestamp": "noon"}', "'noon' is not a time"),
        (b'{"value": "a", "timestamp": "1969-01-01"}', "before 1970"),
        (b'{"value": "a", "timestamp": -2}', "out of bounds"),
        (b'{"value": "a", "timestamp": true}', "the timestamp is true or false"),
        (b'{"value": "a", "timestamp": 1.5}', "the timestamp is 1.5, not a whole number"),
        (b'{"value": "a", "partition": -1}', "not a whole number of at least 0"),
        (b'{"value": "a", "partition": "x"}', "the partition is text"),
        (b'{"value": "a", "partition": 1.5}', "the partition is 1.5, not a whole number"),
    ],
)
def test_invalid_line_is_refused_with_a_reason(line: bytes, message: str) -> None:
    with pytest.raises(InvalidRecord) as caught:
        decode_line(line)

    assert message in str(caught.value)


def test_byte_order_mark_is_not_part_of_the_first_line() -> None:
    assert decode_line(b'\xef\xbb\xbf{"value": "a"}').value == b"a"


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | inner))
def test_any_json_is_decoded_or_refused(found: object) -> None:
    for shape in (found, {"value": found}, {"value": "a", "headers": found}, {"value": "a", "timestamp": found}):
        with contextlib.suppress(InvalidRecord):
            assert isinstance(decode_line(json.dumps(shape).encode()), Draft)
