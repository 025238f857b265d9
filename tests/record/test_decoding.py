"""Batches decoded to records: every window of offsets, gaps, control batches, and walks that decode nothing."""

from __future__ import annotations

import itertools

import pytest

from cases import for_each
from record.batches import (
    CODECS,
    INT64_MAX,
    LIMIT,
    SMALL,
    SMALL_ROWS,
    Row,
    Sketch,
    T,
    batch_of,
    field_of,
    read_all,
    seal,
    with_field,
)
from record.columns import make
from seeklog.errors import CorruptBatch, FormatError, UnsupportedMagic
from seeklog.record.batch_header import (
    count_whole_batches,
    entry_base,
    find_time,
    read_header,
    skip_batches,
    take_batches,
    walk_batches,
)
from seeklog.record.codec import CODEC_NAMES
from seeklog.record.crc import crc32c
from seeklog.record.decode import read_records
from seeklog.record.encode import encode_records
from seeklog.record.record import Record

by_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: CODEC_NAMES[codec])
EVERYTHING = 2**62
# Three batches: offsets 10-12, 13 (a batch of one), 14-17 with 15 and 16 missing inside.
BATCHES = (
    Sketch(tuple(Row(b"%d" % (10 + n), delta=n) for n in range(3)), base_offset=10),
    Sketch((Row(b"13"),), base_offset=13),
    Sketch((Row(b"14"), Row(b"17", delta=3)), base_offset=14),
)
RAW = b"".join(batch.encode() for batch in BATCHES)
OFFSETS = [10, 11, 12, 13, 14, 17]
# Where each batch starts, and the end.
EDGES = [0, *itertools.accumulate(len(batch.encode()) for batch in BATCHES)]


def read(
    raw: bytes,
    *,
    at: int = 0,
    origin: int = 0,
    next_offset: int = 10,
    contiguous: bool = True,
    start: int = 0,
    stop: int = INT64_MAX,
    max_records: int = EVERYTHING,
    enough_records: int = EVERYTHING,
    limit: int = LIMIT,
) -> tuple[int, int, list[Record]]:
    out: list[Record] = []
    end, next_offset, _ = read_records(
        raw, at, origin, next_offset, contiguous, start, stop, max_records, enough_records, EVERYTHING, limit, out
    )
    return end, next_offset, out


# ---------------------------------------------------------------- the content of a batch


@by_codec
def test_batch_built_by_hand_is_read(codec: int) -> None:
    raw = Sketch(SMALL_ROWS, base_offset=40, codec=codec).encode()

    assert read_all(raw) == SMALL.records()


@by_codec
def test_offsets_inside_a_batch_may_have_gaps(codec: int) -> None:
    """After compaction the last delta stays, though its record is gone."""
    rows = (Row(b"a", delta=2), Row(b"b", delta=900), Row(b"c", delta=1000))
    raw = Sketch(rows, base_offset=5, codec=codec, fields={"last_delta": 4000}).encode()

    end, next_offset, out = read(raw, next_offset=5)

    assert [record.offset for record in out] == [7, 905, 1005]
    assert (end, next_offset) == (len(raw), 4006)


@by_codec
def test_batch_may_be_empty(codec: int) -> None:
    empty = batch_of(b"", codec=codec, base_offset=10, last_delta=4, record_count=0)

    assert read(empty) == (len(empty), 15, [])


@by_codec
def test_append_time_gives_every_record_the_largest_timestamp(codec: int) -> None:
    raw = Sketch(SMALL_ROWS, codec=codec, attributes=0x08, fields={"max_timestamp": T + 77}).encode()

    assert [record.timestamp_ms for record in read_all(raw)] == [T + 77] * 3


@pytest.mark.parametrize("bit", [0x10, 0x40])
def test_transactional_and_horizon_bits_do_not_hide_records(bit: int) -> None:
    """With a delete horizon, the horizon is the base of the timestamp deltas."""
    raw = Sketch(SMALL_ROWS, base_offset=40, attributes=bit, fields={"base_timestamp": T + 10_000}).encode()

    assert read_all(raw) == SMALL.records()


@by_codec
def test_control_batch_is_skipped_without_records(codec: int) -> None:
    """Its key is a version and a type, here a commit."""
    marker = Sketch(
        (Row(b"\0\0\0\0\0\0", b"\0\0\0\1"),), base_offset=10, codec=codec, attributes=0x30, fields={"producer_id": 5}
    ).encode()
    after = Sketch((Row(b"after"),), base_offset=11).encode()

    end, next_offset, out = read(marker + after)

    assert [record.value for record in out] == [b"after"]
    assert (end, next_offset) == (len(marker + after), 12)


# ---------------------------------------------------------------- windows


@for_each("start", range(9, 20))
@for_each("stop", range(9, 20))
@by_codec
def test_every_offset_range_returns_its_records(start: int, stop: int, codec: int) -> None:
    raw = b"".join(Sketch(batch.rows, batch.base_offset, codec).encode() for batch in BATCHES)

    _, _, out = read(raw, start=start, stop=stop)

    assert [record.offset for record in out] == [offset for offset in OFFSETS if start <= offset < stop]
    assert [record.value for record in out] == [b"%d" % offset for offset in OFFSETS if start <= offset < stop]


@for_each("max_records", range(8))
def test_no_more_records_are_read_than_requested(max_records: int) -> None:
    _, _, out = read(RAW, max_records=max_records, enough_records=max_records)

    assert [record.offset for record in out] == OFFSETS[:max_records]


@pytest.mark.parametrize(("enough", "taken"), [(0, 0), (1, 1), (2, 1), (3, 1), (4, 2), (5, 3), (6, 3), (7, 3)])
def test_reading_ends_after_the_batch_that_reaches_the_target(enough: int, taken: int) -> None:
    end, next_offset, out = read(RAW, enough_records=enough)

    assert end == EDGES[taken]
    assert next_offset == [10, 13, 14, 18][taken]
    assert len(out) == [0, 3, 4, 6][taken]


@pytest.mark.id("decoding-partial-batch")
@for_each("size", range(len(RAW) + 1))
def test_reading_stops_before_incomplete_batch(size: int) -> None:
    whole = max(number for number, edge in enumerate(EDGES) if edge <= size)

    end, next_offset, out = read(RAW[:size])

    assert (end, next_offset) == (EDGES[whole], [10, 13, 14, 18][whole])
    assert len(out) == [0, 3, 4, 6][whole]


def test_reading_may_start_at_any_batch() -> None:
    for place, edge in enumerate(EDGES[:-1]):
        _, _, out = read(RAW, at=edge, next_offset=[10, 13, 14][place])
        assert [record.offset for record in out] == [o for o in OFFSETS if o >= [10, 13, 14][place]]


def test_batch_wholly_before_the_start_is_not_decoded() -> None:
    """Its body may be anything: with contiguous offsets, the header alone leads past it."""
    bomb = Sketch((Row(bytes(5000)),), base_offset=9, codec=4).encode()

    end, _, out = read(bomb + RAW, next_offset=9, start=10, limit=100)

    assert end == len(bomb + RAW)
    assert [record.offset for record in out] == OFFSETS


# ---------------------------------------------------------------- damage


def test_offset_below_the_expected_one_is_damage() -> None:
    with pytest.raises(CorruptBatch, match="base offset 10, expected 11"):
        read(RAW, next_offset=11)


@pytest.mark.id("decoding-gap")
def test_gap_is_damage_only_if_offsets_are_contiguous() -> None:
    assert len(read(RAW, next_offset=9, contiguous=False)[2]) == 6
    with pytest.raises(CorruptBatch, match="base offset 10, expected 9"):
        read(RAW, next_offset=9, contiguous=True)


@for_each("place", range(3))
def test_error_names_the_position_in_the_file(place: int) -> None:
    damaged = bytearray(RAW)
    damaged[EDGES[place + 1] - 1] ^= 1

    with pytest.raises(CorruptBatch, match=r"stored CRC 0x[0-9a-f]{8}, computed 0x[0-9a-f]{8}") as caught:
        read(bytes(damaged), origin=5000)

    assert caught.value.position == 5000 + EDGES[place]


@by_codec
def test_error_inside_records_names_position_of_the_batch(codec: int) -> None:
    """The second batch claims one record more than it has."""
    bad = batch_of(BATCHES[1].body(), codec=codec, base_offset=13, last_delta=1, record_count=2)

    with pytest.raises(CorruptBatch, match=r"record 1|cannot fit") as caught:
        read(BATCHES[0].encode() + bad, origin=5000)
    assert caught.value.position == 5000 + EDGES[1]
    with pytest.raises(CorruptBatch) as caught:
        make().add(BATCHES[0].encode() + bad, 0, 5000, 10, True, 0, INT64_MAX)
    assert caught.value.position == 5000 + EDGES[1]


@pytest.mark.parametrize("magic", [0, 1])
def test_older_format_is_named_with_its_magic_and_position(magic: int) -> None:
    old = with_field(BATCHES[1].encode(), "magic", magic)

    with pytest.raises(UnsupportedMagic, match=f"magic {magic}") as caught:
        read(BATCHES[0].encode() + old)

    assert caught.value.position == EDGES[1]
    assert caught.value.advice


@by_codec
def test_batch_that_expands_past_the_limit_is_refused(codec: int) -> None:
    if codec == 0:
        return  # nothing expands
    raw = Sketch((Row(bytes(100_000)),), base_offset=10, codec=codec).encode()

    with pytest.raises(FormatError) as caught:
        read(raw, origin=300, limit=99_999)

    assert caught.value.position == 300
    assert len(read(raw, limit=101_000)[2]) == 1


# ---------------------------------------------------------------- headers


def test_header_is_read_field_by_field() -> None:
    fields = {
        "leader_epoch": 7,
        "producer_id": 2**40,
        "producer_epoch": -3,
        "base_sequence": 2**30,
        "last_delta": 9,
        "base_timestamp": -1,
        "max_timestamp": 2**50,
    }
    raw = Sketch(SMALL_ROWS, base_offset=2**50, attributes=-128, fields=fields).encode()

    header = read_header(b"xx" + raw, 2, 100)

    crc = field_of(raw, "crc")
    assert header == (2**50, len(raw), 7, crc, -128, 9, -1, 2**50, 2**40, -3, 2**30, 3)


@for_each("size", range(61))
def test_incomplete_header_is_refused(size: int) -> None:
    with pytest.raises(CorruptBatch, match=rf"{size} bytes? where a batch header takes 61") as caught:
        read_header(RAW[:size], 0, 7)

    assert caught.value.position == 7


@pytest.mark.parametrize("at", [-1, -(2**40), len(RAW), 2**40])
def test_header_outside_the_bytes_is_refused(at: int) -> None:
    with pytest.raises(CorruptBatch):
        read_header(RAW, at, 0)


# ---------------------------------------------------------------- walking


@for_each("target", range(9, 20))
@for_each("contiguous", [True, False])
def test_skipping_finds_the_batch_with_the_offset(target: int, contiguous: bool) -> None:
    place = sum(target > last for last in (12, 13, 17))

    assert skip_batches(RAW, 0, 0, 10, target, contiguous) == (EDGES[place], [10, 13, 14, 18][place], place)


@for_each("size", range(len(RAW) + 1))
def test_skipping_stops_before_incomplete_batch(size: int) -> None:
    whole = max(number for number, edge in enumerate(EDGES) if edge <= size)

    assert skip_batches(RAW[:size], 0, 0, 10, 1000, True) == (EDGES[whole], [10, 13, 14, 18][whole], whole)


def test_skipping_over_gaps_checks_every_crc() -> None:
    """Only the CRC distinguishes a gap from a damaged header."""
    damaged = bytearray(RAW)
    damaged[EDGES[1] - 1] ^= 1

    with pytest.raises(CorruptBatch, match="CRC"):
        skip_batches(bytes(damaged), 0, 0, 10, 17, False)


@pytest.mark.parametrize(("next_offset", "contiguous"), [(11, False), (9, True)])
def test_skipping_refuses_offsets_out_of_sequence(next_offset: int, contiguous: bool) -> None:
    with pytest.raises(CorruptBatch, match="base offset 10"):
        skip_batches(RAW, 0, 0, next_offset, 17, contiguous)


@for_each("size", range(len(RAW) + 1))
@for_each("contiguous", [True, False])
def test_walking_continues_while_batches_are_whole(size: int, contiguous: bool) -> None:
    whole = max(number for number, edge in enumerate(EDGES) if edge <= size)

    assert walk_batches(RAW[:size], 10, contiguous) == (EDGES[whole], [10, 13, 14, 18][whole])


@pytest.mark.parametrize(
    "junk", [bytes(100), b"\xff" * 100, with_field(RAW, "magic", 1), with_field(RAW, "last_delta", -1)]
)
@for_each("contiguous", [True, False])
def test_walking_ends_without_error_at_bytes_that_cannot_be_a_batch(junk: bytes, contiguous: bool) -> None:
    assert walk_batches(RAW + junk, 10, contiguous) == (len(RAW), 18)


@pytest.mark.parametrize(
    ("base_offset", "contiguous", "walks"), [(17, False, False), (19, True, False), (19, False, True)]
)
def test_walking_ends_at_offsets_out_of_sequence(base_offset: int, contiguous: bool, walks: bool) -> None:
    more = with_field(BATCHES[1].encode(), "base_offset", base_offset)

    expected = (len(RAW + more), base_offset + 1) if walks else (len(RAW), 18)
    assert walk_batches(RAW + more, 10, contiguous) == expected


@for_each("stop", range(9, 20))
@for_each("max_bytes", [0, 1, *(edge + step for edge in EDGES[1:] for step in (-1, 0, 1)), 10**6])
@for_each("at_least_one", [True, False])
def test_batches_are_taken_while_they_fit_below_the_stop(stop: int, max_bytes: int, at_least_one: bool) -> None:
    allowed = sum(last < stop for last in (12, 13, 17))
    fitting = sum(edge <= max_bytes for edge in EDGES[1:])
    place = min(allowed, max(fitting, 1) if at_least_one else fitting)

    assert take_batches(RAW, 0, 0, 10, True, stop, max_bytes, at_least_one, True) == (
        EDGES[place],
        [10, 13, 14, 18][place],
        place < 3,
    )


def test_crcs_are_checked_only_on_request() -> None:
    damaged = bytearray(RAW)
    damaged[EDGES[1] - 1] ^= 1

    assert take_batches(bytes(damaged), 0, 0, 10, True, 100, 10**6, True, False)[0] == len(RAW)
    with pytest.raises(CorruptBatch, match="CRC"):
        take_batches(bytes(damaged), 0, 0, 10, True, 100, 10**6, True, True)


@for_each("sought", range(T - 2, T + 8))
def test_time_is_found_in_the_first_batch_that_reaches_it(sought: int) -> None:
    stamps = (T, T + 5, T - 1, T + 5, T + 6)
    raws = [Sketch((Row(timestamp_ms=stamp),), base_offset=n).encode() for n, stamp in enumerate(stamps)]
    place = next((n for n, stamp in enumerate(stamps) if stamp >= sought), None)

    expected = (len(b"".join(raws)), False) if place is None else (len(b"".join(raws[:place])), True)
    assert find_time(b"".join(raws), 0, 0, sought) == expected


def test_damaged_timestamp_does_not_decide_a_search_by_time() -> None:
    damaged = with_field(RAW, "max_timestamp", T + 10**6)

    with pytest.raises(CorruptBatch, match="CRC"):
        find_time(damaged, 0, 0, T + 1)


@for_each("last_offset", range(8, 16))
@pytest.mark.parametrize("exact", [True, False])
def test_index_entry_is_proved_by_the_batch_it_names(last_offset: int, exact: bool) -> None:
    """Offsets 10 to 12: exactly 12, or anything from 10 on for an entry of an older broker."""
    proved = last_offset == 12 if exact else last_offset >= 10

    assert entry_base(RAW, last_offset, exact) == (10 if proved else -1)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        RAW[:60],
        with_field(RAW, "magic", 1),
        with_field(RAW, "base_offset", -1),
        with_field(RAW, "last_delta", -1),
        RAW[1:],
        bytes(100),
    ],
)
@pytest.mark.parametrize("exact", [True, False])
def test_bytes_without_a_batch_prove_no_entry(data: bytes, exact: bool) -> None:
    assert entry_base(data, 12, exact) == -1


@pytest.mark.parametrize("junk", [b"", b"x", bytes(70), b"\2" * 100])
def test_whole_batches_are_found_after_any_junk(junk: bytes) -> None:
    raws = [batch.encode() for batch in BATCHES]

    assert count_whole_batches(junk + raws[0] + junk + raws[1] + junk + raws[2][:-1]) == (2, 4)


def test_many_bytes_that_look_like_large_batches_end_the_count() -> None:
    """Goal: a client that chooses values cannot make a later recovery quadratic."""
    raw = BATCHES[0].encode()
    fake = raw[:8] + (10_000).to_bytes(4, "big") + raw[12:61]

    assert count_whole_batches(raw + 400 * fake + raw) == (1, 3)


def test_batch_with_wrong_crc_is_not_counted_as_whole() -> None:
    damaged = bytearray(RAW)
    damaged[EDGES[2] - 1] ^= 1

    assert count_whole_batches(bytes(damaged)) == (2, 5)


# ---------------------------------------------------------------- sums


def test_crc_is_crc_32c() -> None:
    """The check value of the polynomial, and RFC 3720's vectors."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(b"") == 0


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 2047, 2048, 2049, 5000])
def test_crc_continues_from_any_position_in_any_buffer(size: int) -> None:
    """2048 is where another implementation takes over."""
    data = bytes(n * 7 % 256 for n in range(5000))
    whole = crc32c(data)

    for kind in (bytes, bytearray, memoryview):
        assert crc32c(kind(data[size:]), crc32c(kind(data[:size]))) == whole


def test_crc_of_batch_of_any_size_is_right() -> None:
    for size in (0, 1, 1900, 1980, 2048, 3000):
        raw = Sketch((Row(bytes(size)),)).encode()
        assert encode_records([Record(bytes(size), timestamp_ms=T)], 0, 0, 0, 0, (-1, -1, -1)) == raw
        assert seal(raw) == raw
