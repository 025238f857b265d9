"""Bytes from an attacker or a broken disk: only declared errors, no trusted claims, and both decoders agree.

The CRC is made valid again (`seal`), so that the damage reaches the checks behind it. The tests of plain flips and
truncations leave the CRC alone.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cases import for_each
from record.batches import (
    CODECS,
    FIELDS,
    HEADER_SIZE,
    INT32_MAX,
    INT64_MAX,
    LIMIT,
    RULES,
    SMALL,
    SMALL_ROWS,
    Row,
    Sketch,
    T,
    batch_of,
    flips,
    header_bytes,
    one_record,
    read_all,
    record_body,
    seal,
    varint,
    with_field,
)
from record.columns import read_columns
from record.hostile import LAWFUL, PLACES, VARINTS, edge_values, overclaiming_batches
from seeklog.errors import CorruptBatch, CorruptionError
from seeklog.record.batch_header import (
    check_batches,
    count_whole_batches,
    entry_base,
    find_time,
    read_header,
    skip_batches,
    take_batches,
    walk_batches,
)
from seeklog.record.codec import CODEC_NAMES
from seeklog.record.decode import read_records
from seeklog.record.record import Record
from seeklog.record.segment_state import SegmentState

by_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: CODEC_NAMES[codec])
RAW = SMALL.encode()
Outcome = tuple[Any, ...]
# The most memory for a batch of a few hundred bytes; a trusted claim would take 2 GB.
MEMORY_BYTES = 1 << 20


def outcome(read: Callable[[], Any]) -> Outcome:
    """Return the result of a reader, or its error for damaged bytes; any other error fails the test."""
    try:
        return ("ok", read())
    except CorruptionError as error:
        return ("error", type(error).__name__, error.position)


def by_records(raw: bytes, start: int, stop: int, limit: int) -> tuple[int, int, list[Record]]:
    out: list[Record] = []
    end, next_offset, _ = read_records(raw, 0, 0, -(2**63), False, start, stop, 2**62, 2**62, 2**62, limit, out)
    return end, next_offset, out


def assert_agreement(raw: bytes, *, start: int = -(2**63), stop: int = INT64_MAX, limit: int = LIMIT) -> Outcome:
    """Records and columns give the same result, or fail with the same error at the same position."""
    records = outcome(lambda: by_records(raw, start, stop, limit))
    columns = outcome(lambda: read_columns(raw, start=start, stop=stop, limit=limit))
    assert records == columns, raw.hex()
    return records


def walk_all(raw: bytes) -> None:
    """Run every other reader of batches on the bytes."""
    for contiguous in (True, False):
        outcome(partial(skip_batches, raw, 0, 0, 40, INT64_MAX, contiguous))
        end, _ = walk_batches(raw, 40, contiguous)
        assert 0 <= end <= len(raw)
        for verify in (True, False):
            outcome(partial(take_batches, raw, 0, 0, 40, contiguous, INT64_MAX, INT64_MAX, True, verify))
    outcome(lambda: find_time(raw, 0, 0, INT64_MAX))
    outcome(lambda: read_header(raw, 0, 0))
    outcome(lambda: check_batches(raw, INT32_MAX))
    entry_base(raw, 43, True)
    entry_base(raw, 43, False)
    count_whole_batches(raw)
    for contiguous_from in (0, INT64_MAX):
        state = SegmentState(0, **RULES)
        taken = state.scan(raw, contiguous_from)
        assert 0 <= taken <= len(raw)
        assert state.size == taken
        assert state.problem is None or isinstance(state.problem, CorruptionError)
        state.finish_times()


# ---------------------------------------------------------------- plain damage


@pytest.mark.id("hostile-truncation")
@by_codec
def test_every_truncated_batch_counts_as_incomplete(codec: int) -> None:
    raw = Sketch(SMALL_ROWS, base_offset=40, codec=codec).encode()

    for size in range(len(raw)):
        assert by_records(raw[:size], 0, INT64_MAX, LIMIT) == (0, -(2**63), [])
        walk_all(raw[:size])


@pytest.mark.id("batch-bits-flipped")
def test_no_single_bit_flip_goes_unnoticed() -> None:
    """The CRC does not cover the first 21 bytes: offsets must follow, and a length must fit."""
    for bit, flipped in flips(RAW):
        out: list[Record] = []
        name = max((at, name) for name, (at, _) in FIELDS.items() if at <= bit >> 3)[1]
        try:
            end, _, _ = read_records(flipped, 0, 0, 40, True, 0, INT64_MAX, 100, 100, 2**62, LIMIT, out)
        except CorruptionError:
            assert name != "leader_epoch", bit
            continue
        if name == "leader_epoch":  # no reader uses it
            assert out == SMALL.records(), bit
        else:
            assert (end, out, name) == (0, [], "batch_length"), bit


def test_no_single_bit_flip_crashes_a_reader() -> None:
    for _, flipped in flips(RAW):
        assert_agreement(flipped)
        walk_all(flipped)


# ---------------------------------------------------------------- damage behind a right CRC


@pytest.mark.id("hostile-bits-right-crc")
def test_every_bit_flip_with_valid_crc_gives_an_error_or_a_record() -> None:
    for _, flipped in flips(RAW):
        sealed = seal(flipped)
        assert_agreement(sealed)
        walk_all(sealed)


@by_codec
def test_every_bit_flip_in_compressed_body_gives_an_error_or_a_record(codec: int) -> None:
    raw = Sketch(SMALL_ROWS, base_offset=40, codec=codec).encode()

    for bit, flipped in flips(raw):
        if bit >= 8 * HEADER_SIZE:
            assert_agreement(seal(flipped))


@by_codec
def test_every_truncation_of_the_records_is_an_error(codec: int) -> None:
    """The batch has its full length; its records are incomplete."""
    body = SMALL.body()

    for size in range(len(body)):
        raw = batch_of(body[:size], codec=codec, record_count=3, last_delta=3)
        assert assert_agreement(raw)[:2] == ("error", "CorruptBatch")


@pytest.mark.id("hostile-header-fields")
@pytest.mark.parametrize("name", FIELDS)
@by_codec
def test_any_value_in_any_header_field_gives_an_error_or_a_record(name: str, codec: int) -> None:
    raw = Sketch(SMALL_ROWS, base_offset=40, codec=codec).encode()

    for value in edge_values(FIELDS[name][1]):
        changed = with_field(raw, name, value)
        for hostile in (changed, seal(changed)):
            assert_agreement(hostile)
            assert_agreement(hostile, start=41, stop=43)
            walk_all(hostile)


@pytest.mark.parametrize("count", [-1, -INT32_MAX - 1, 4, 5, INT32_MAX])
@by_codec
def test_impossible_record_count_is_refused(count: int, codec: int) -> None:
    """The last delta of 3 allows four records at most, and there are three."""
    raw = seal(with_field(Sketch(SMALL_ROWS, base_offset=40, codec=codec).encode(), "record_count", count))

    assert assert_agreement(raw) == ("error", "CorruptBatch", 0)


@pytest.mark.parametrize("count", [0, 1, 2])
@by_codec
def test_record_count_below_the_records_is_damage(count: int, codec: int) -> None:
    raw = seal(with_field(Sketch(SMALL_ROWS, base_offset=40, codec=codec).encode(), "record_count", count))

    assert assert_agreement(raw) == ("error", "CorruptBatch", 0)


@pytest.mark.parametrize("delta", [-1, -INT32_MAX - 1, 0, 1, 2])
def test_last_delta_below_the_records_is_refused(delta: int) -> None:
    raw = seal(with_field(RAW, "last_delta", delta))

    assert assert_agreement(raw) == ("error", "CorruptBatch", 0)


@pytest.mark.parametrize("base_offset", [INT64_MAX - 3, INT64_MAX - 2, INT64_MAX - 1, INT64_MAX])
def test_offsets_past_the_last_possible_one_are_refused(base_offset: int) -> None:
    """The batch spans four offsets, and the next offset must be a number too."""
    raw = Sketch(SMALL_ROWS, base_offset=base_offset).encode()

    assert assert_agreement(raw) == ("error", "CorruptBatch", 0)


@pytest.mark.parametrize(
    ("base_timestamp", "delta"), [(-100, 0), (-2, 0), (0, -2), (INT64_MAX, 1), (INT64_MAX, INT64_MAX)]
)
def test_impossible_timestamp_is_refused_by_both_decoders(base_timestamp: int, delta: int) -> None:
    """Below -1, or past 64 bits and so below -1 by Java's arithmetic."""
    body = record_body(timestamp_delta=delta)
    raw = batch_of(varint(len(body)) + body, base_timestamp=base_timestamp)

    assert assert_agreement(raw) == ("error", "CorruptBatch", 0)


@pytest.mark.parametrize("field", ["record_count", "last_delta"])
@pytest.mark.parametrize("value", [-1, 2, INT32_MAX])
def test_both_decoders_agree_on_control_batch_with_impossible_counts(field: str, value: int) -> None:
    marker = Sketch((Row(b"\0\0\0\0\0\0", b"\0\0\0\1"),), attributes=0x30).encode()

    assert_agreement(seal(with_field(marker, field, value)))


# ---------------------------------------------------------------- varints


@pytest.mark.id("hostile-varint")
@for_each("what", VARINTS)
@for_each("place", PLACES)
def test_hostile_varint_is_refused_in_every_field(place: str, what: str) -> None:
    raw = PLACES[place](VARINTS[what][0])

    found = assert_agreement(raw)

    if (place, what) in LAWFUL:
        assert found[0] == "ok"
    else:
        assert found == ("error", "CorruptBatch", 0)


@for_each("place", PLACES)
@for_each("what", [name for name, (_, value) in VARINTS.items() if value is not None])
@by_codec
def test_hostile_varint_is_refused_inside_a_compressed_body(place: str, what: str, codec: int) -> None:
    plain = PLACES[place](VARINTS[what][0])

    found = assert_agreement(batch_of(plain[HEADER_SIZE:], codec=codec))

    if (place, what) in LAWFUL:
        assert found[1][2] == read_all(plain)
    else:
        assert found == ("error", "CorruptBatch", 0)


@for_each("padding", range(1, 10))
def test_varint_with_padding_is_read(padding: int) -> None:
    """Java reads them too; the maximum is ten bytes."""
    long_two = b"\x84" + b"\x80" * (padding - 1) + b"\x00"

    (record,) = read_all(one_record(record_body(key=long_two + b"ab")))

    assert record.key == b"ab"


def test_record_of_zero_bytes_is_refused() -> None:
    assert assert_agreement(batch_of(varint(0) + bytes(7))) == ("error", "CorruptBatch", 0)


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (1, 1), (3, 2)])
def test_offsets_inside_a_batch_must_grow(deltas: tuple[int, int]) -> None:
    raw = Sketch(tuple(Row(delta=delta) for delta in deltas)).encode()

    assert assert_agreement(seal(with_field(raw, "last_delta", 5))) == ("error", "CorruptBatch", 0)


@pytest.mark.parametrize("extra", [b"\0", b"\1", b"\0\0", bytes(100)])
def test_bytes_after_the_headers_of_a_record_are_damage(extra: bytes) -> None:
    assert assert_agreement(one_record(record_body() + extra)) == ("error", "CorruptBatch", 0)
    with_header = record_body(headers=header_bytes([(b"h", b"1")])) + extra
    assert assert_agreement(one_record(with_header)) == ("error", "CorruptBatch", 0)


@for_each("size", range(4))
def test_any_bytes_after_a_record_without_headers_are_damage(size: int) -> None:
    """Goal: the fast path for records without headers does not skip the check, anywhere in the batch."""
    for more in range(1, 140):
        raw = one_record(record_body(value=varint(size) + bytes(size)) + bytes(more))
        assert assert_agreement(raw) == ("error", "CorruptBatch", 0)


def test_bytes_after_last_record_are_damage() -> None:
    assert assert_agreement(batch_of(SMALL.body() + b"\0", record_count=3, last_delta=3)) == (
        "error",
        "CorruptBatch",
        0,
    )


# ---------------------------------------------------------------- memory


@pytest.mark.id("hostile-claims-cost-nothing")
def test_no_claim_in_a_batch_costs_memory() -> None:
    batches = list(overclaiming_batches())
    assert_agreement(RAW)  # memory allocated once and kept must not count
    tracemalloc.start()
    try:
        for raw in batches:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            assert_agreement(raw)
            walk_all(raw)
            assert tracemalloc.get_traced_memory()[1] - before < MEMORY_BYTES, raw.hex()
    finally:
        tracemalloc.stop()


# ---------------------------------------------------------------- anything at all

small_bytes = st.one_of(st.none(), st.binary(max_size=12))
rows = st.lists(
    st.builds(
        Row,
        value=small_bytes,
        key=small_bytes,
        headers=st.lists(st.tuples(st.binary(max_size=5), small_bytes), max_size=3).map(tuple),
        timestamp_ms=st.one_of(st.just(T), st.integers(-1, T * 2)),
    ),
    max_size=5,
)
gaps = st.lists(st.integers(0, 3), min_size=5, max_size=5)


@st.composite
def sketches(draw: st.DrawFn) -> Sketch:
    delta = -1
    placed = []
    for row, gap in zip(draw(rows), draw(gaps), strict=False):
        delta += 1 + gap
        placed.append(Row(row.value, row.key, row.headers, row.timestamp_ms, delta))
    return Sketch(
        tuple(placed),
        base_offset=draw(st.integers(0, 100)),
        codec=draw(st.sampled_from(CODECS)),
        attributes=draw(st.sampled_from([0, 0, 0x08, 0x10, 0x20, 0x40])),
        fields={"last_delta": max(delta, 0) + draw(st.integers(0, 2))},
    )


@given(sketch=sketches(), start=st.integers(-1, 130), stop=st.integers(-1, 130))
def test_records_and_columns_agree_on_every_batch(sketch: Sketch, start: int, stop: int) -> None:
    kind, (_, _, records) = assert_agreement(sketch.encode(), start=start, stop=stop)

    assert kind == "ok"
    if not sketch.attributes & (0x08 | 0x20):
        assert records == [record for record in sketch.records() if start <= record.offset < stop]


@given(
    sketch=sketches(),
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4),
    is_sealed=st.booleans(),
    start=st.integers(-1, 130),
    stop=st.integers(-1, 130),
)
@example(SMALL, [(22, 0x2F)], True, 0, 100)
@settings(max_examples=300)
def test_records_and_columns_agree_on_every_damaged_batch(
    sketch: Sketch, changes: list[tuple[int, int]], is_sealed: bool, start: int, stop: int
) -> None:
    damaged = bytearray(sketch.encode())
    for place, byte in changes:
        damaged[place % len(damaged)] = byte
    raw = seal(bytes(damaged)) if is_sealed else bytes(damaged)

    assert_agreement(raw, start=start, stop=stop)
    walk_all(raw)


@given(data=st.binary(max_size=200))
def test_any_bytes_give_an_error_or_no_records(data: bytes) -> None:
    kind, *rest = assert_agreement(data)

    assert kind == "error" or rest[0][2] == []
    walk_all(data)


def test_hostile_batch_does_not_hide_the_one_before_it() -> None:
    out: list[Record] = []
    with pytest.raises(CorruptBatch):
        read_records(
            RAW + seal(with_field(with_field(RAW, "base_offset", 44), "record_count", -1)),
            *(0, 0, 40, True, 0, INT64_MAX, 100, 100, 2**62, LIMIT, out),
        )

    assert out == SMALL.records()
