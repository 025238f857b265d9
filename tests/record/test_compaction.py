"""The map of last offsets, and the filter that copies the batches that compaction keeps."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from cases import for_each
from record.batches import (
    CODECS,
    HEADER_SIZE,
    INT64_MAX,
    LIMIT,
    Row,
    Sketch,
    T,
    batch_of,
    record_body,
    seal,
    sized,
    varint,
    with_field,
)
from record.twins import KERNEL, load_twin
from seeklog.errors import CorruptBatch, InvalidRecord
from seeklog.record.batch import Batch, decode_records, encode_batch, split_batches
from seeklog.record.columns import Columns
from seeklog.record.compaction import BatchFilter
from seeklog.record.decode import check_keyed
from seeklog.record.key_table import KeyTable
from seeklog.record.layout import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from seeklog.record.markers import note_transactions
from seeklog.record.offset_map import OffsetMap
from seeklog.record.record import Record

SECRET = bytes(range(16))
DAY_MS = 24 * 3600 * 1000
NOW = T + 10 * DAY_MS


def never(*_: int) -> bool:
    return False


def map_of(raw: bytes, *, slots: int = 1000, start: int = 0, module: Any = KERNEL) -> OffsetMap:
    offset_map = module.OffsetMap(slots, base_offset=start, secret=SECRET)
    offset_map.add_batches(raw, 0, 0, start, LIMIT, never)
    return offset_map


def filtered(
    raw: bytes,
    offset_map: OffsetMap | None = None,
    *,
    now_ms: int = NOW,
    ends: bool = False,
    last_offsets: dict[int, int] | None = None,
    last_epochs: dict[int, int] | None = None,
    judge: Any = never,
    module: Any = KERNEL,
) -> tuple[bytes, BatchFilter]:
    sieve = module.BatchFilter(
        offset_map or map_of(raw, module=module),
        now_ms=now_ms,
        delete_retention_ms=DAY_MS,
        last_offsets=last_offsets or {},
        last_epochs=last_epochs or {},
        limit=LIMIT,
        judge=judge,
    )
    sieve.begin()
    assert sieve.add_batches(raw, 0, 0) == len(raw)
    if ends:
        sieve.finish()
    return sieve.take(), sieve


def batch(keys: Iterable[bytes | None], *, base_offset: int = 0, value: bytes | None = b"v", **options: Any) -> bytes:
    records = [Record(value, key=key, timestamp_ms=T + number) for number, key in enumerate(keys)]
    return encode_batch(records, base_offset=base_offset, **options)


def only(raw: bytes) -> Batch:
    (one,) = split_batches(raw)
    return one


def test_map_contains_last_offset_of_each_key() -> None:
    offset_map = map_of(batch([b"a", b"b", b"a", b""]) + batch([b"b", b"c"], base_offset=10))

    assert [offset_map.get(key) for key in (b"a", b"b", b"c", b"", b"d")] == [2, 10, 11, 3, None]
    assert (offset_map.count, offset_map.latest_offset) == (4, 11)


def test_map_has_as_many_keys_as_a_dict() -> None:
    chance = random.Random(5)
    expected: dict[bytes, int] = {}
    raw = b""
    for base in range(0, 5000, 50):
        keys = [chance.randbytes(chance.randrange(4)) for _ in range(50)]
        expected |= {key: base + number for number, key in enumerate(keys)}
        raw += batch(keys, base_offset=base)
    offset_map = map_of(raw, slots=len(expected) * 5 // 4 + 2)

    assert {key: offset_map.get(key) for key in expected} == expected
    assert offset_map.count == len(expected)


@pytest.mark.id("offset-map-full")
def test_full_map_stops_before_batch_that_does_not_fit() -> None:
    raw = batch([b"a", b"b", b"c"]) + batch([b"a", b"d", b"e", b"f"], base_offset=3)
    offset_map = OffsetMap(7, base_offset=0, secret=SECRET)
    size = len(batch([b"a", b"b", b"c"]))

    assert offset_map.capacity == 5
    assert offset_map.add_batches(raw, 0, 0, 0, LIMIT, never) == (size, True)
    assert offset_map.latest_offset == 2
    # Part of the second batch is in the map. Its records stay; those that it supersedes are dropped.
    kept, _ = filtered(raw, offset_map)
    assert [record.offset for record in decode_records(kept)] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("count", [31, 32, 33, 64, 65, 200])
def test_full_map_stops_anywhere_in_a_large_batch(count: int) -> None:
    """Goal: keys are added 32 at a time; none counts as added that was not."""
    keys = [b"%d" % number for number in range(count)]
    raw = batch([b"first"]) + batch(keys, base_offset=1)
    for room in (1, count // 2, count - 1):
        offset_map = OffsetMap((room + 1) * 5 // 4 + 1, base_offset=0, secret=SECRET)
        assert offset_map.capacity < count + 1

        assert offset_map.add_batches(raw, 0, 0, 0, LIMIT, never) == (len(batch([b"first"])), True)
        assert offset_map.latest_offset == 0
        kept, _ = filtered(raw, offset_map)
        assert [record.offset for record in decode_records(kept)] == list(range(count + 1))


def test_map_is_full_when_relative_offset_exceeds_its_slot() -> None:
    raw = batch([b"a"]) + batch([b"b"], base_offset=2**32 - 3) + batch([b"c"], base_offset=2**32 - 2)
    offset_map = OffsetMap(100, base_offset=0, secret=SECRET)

    assert offset_map.add_batches(raw, 0, 0, 0, LIMIT, never) == (2 * len(raw) // 3, True)
    assert offset_map.get(b"b") == 2**32 - 3


def test_records_below_the_start_are_not_mapped() -> None:
    offset_map = map_of(batch([b"a", b"b", b"c"]), start=1)

    assert [offset_map.get(key) for key in (b"a", b"b", b"c")] == [None, 1, 2]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("seed", range(8))
def test_filter_keeps_the_records_that_a_dict_keeps(codec: int, seed: int) -> None:
    chance = random.Random(seed)
    rows: dict[int, Record] = {}
    raw, base = b"", chance.randrange(1000)
    for _ in range(30):
        records = [
            Record(
                chance.choice([b"", chance.randbytes(20)]),
                key=b"%d" % chance.randrange(40),
                headers=(("h", chance.choice([None, b"x"])),) * chance.randrange(3),
                timestamp_ms=chance.choice([-1, 0, T, T + chance.randrange(10**6)]),
            )
            for _ in range(chance.randrange(1, 9))
        ]
        raw += encode_batch(records, base_offset=base, codec=codec)
        base += len(records) + chance.randrange(3)
    rows = {record.offset: record for record in decode_records(raw)}
    last = {record.key: offset for offset, record in rows.items()}

    kept, sieve = filtered(raw)

    assert decode_records(kept) == [rows[offset] for offset in sorted(last.values())]
    assert (sieve.records_read, sieve.records_kept) == (len(rows), len(last))
    before = {batch.base_offset: batch for batch in split_batches(raw)}
    for each in split_batches(kept):
        old = before[each.base_offset].header
        assert (each.last_offset, each.header.attributes, each.header.base_sequence) == (
            old.last_offset,
            old.attributes,
            old.base_sequence,
        )
        stamps = [record.timestamp_ms for record in each.records()]
        assert (each.header.base_timestamp_ms, each.max_timestamp_ms) == (stamps[0], max(stamps))
    assert filtered(kept)[0] == kept


def test_batch_that_loses_nothing_is_copied_unchanged() -> None:
    # Reencoding would change the batch: no codec reproduces the bytes of another library.
    odd = Sketch((Row(b"v", key=b"a", delta=2),), fields={"last_delta": 7, "base_timestamp": T}).encode()
    kept, sieve = filtered(odd)

    assert kept == odd
    assert not sieve.changed


@pytest.mark.id("tombstone-horizon")
@pytest.mark.parametrize("codec", CODECS)
def test_tombstone_gets_a_horizon_and_is_dropped_after_it(codec: int) -> None:
    raw = encode_batch(
        [
            Record(b"old", key=b"a", timestamp_ms=T),
            Record(None, key=b"a", timestamp_ms=T + 5),
            Record(b"x", key=b"b", timestamp_ms=T + 3),
        ],
        codec=codec,
    )
    first, _ = filtered(raw)
    header = only(first).header

    assert header.attributes == codec | DELETE_HORIZON
    assert header.base_timestamp_ms == NOW + DAY_MS
    assert header.max_timestamp_ms == T + 5
    assert [(r.key, r.value, r.timestamp_ms) for r in decode_records(first)] == [
        (b"a", None, T + 5),
        (b"b", b"x", T + 3),
    ]
    assert filtered(first, now_ms=NOW + DAY_MS - 1)[0] == first
    second, _ = filtered(first, now_ms=NOW + DAY_MS)
    assert [(r.key, r.timestamp_ms) for r in decode_records(second)] == [(b"b", T + 3)]
    # The horizon stays, as in Kafka: timestamps are still relative to it.
    assert only(second).header.delete_horizon_ms == NOW + DAY_MS


def test_old_tombstone_without_horizon_stays() -> None:
    raw = batch([b"a"], value=None)

    assert decode_records(filtered(raw, now_ms=T + 1000 * DAY_MS)[0]) == decode_records(raw)


def test_log_append_time_of_batch_stays() -> None:
    records = [Record(None, key=key) for key in (b"a", b"a", b"b")]
    raw = encode_batch(records, now_ms=T, log_append_time=True)
    kept, _ = filtered(raw)

    assert only(kept).header.attributes == LOG_APPEND_TIME | DELETE_HORIZON
    assert only(kept).max_timestamp_ms == T
    assert [record.timestamp_ms for record in decode_records(kept)] == [T, T]


def test_record_without_key_is_dropped_and_counted() -> None:
    kept, sieve = filtered(batch([None, b"a", None]))

    assert [record.key for record in decode_records(kept)] == [b"a"]
    assert sieve.keyless == 2


@pytest.mark.parametrize("codec", CODECS)
def test_emptied_batch_is_dropped_unless_last_of_producer_or_file(codec: int) -> None:
    producer = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 40, "codec": codec, "leader_epoch": 5}
    raw = batch([b"a", b"b"], **producer) + batch([b"a", b"b"], base_offset=2)
    last = len(batch([b"a", b"b"], **producer))

    assert filtered(raw)[0] == raw[last:]
    assert filtered(raw, last_offsets={7: 0, 8: 1})[0] == raw[last:]
    whole_map = map_of(raw)
    for part, options in ((raw, {"last_offsets": {7: 1}}), (raw[:last], {"ends": True})):
        kept, sieve = filtered(part, whole_map, **options)
        assert sieve.changed
        header = next(split_batches(kept)).header
        assert header.size == HEADER_SIZE
        assert header[4:] == (0, 1, -1, T + 1, 7, 3, 40, 0)
        assert (header.base_offset, header.leader_epoch) == (0, 5)
        assert decode_records(kept) == decode_records(part[last:])
        again, sieve = filtered(kept, whole_map, **options)
        assert again == kept
        assert not sieve.changed
        assert filtered(kept, whole_map)[0] == part[last:]


def test_header_without_records_in_the_middle_is_dropped() -> None:
    raw = batch([b"a"]) + batch([b"a"], base_offset=1) + batch([b"b"], base_offset=2) + batch([b"b"], base_offset=3)
    size = len(batch([b"a"]))
    whole_map = map_of(raw)
    first, _ = filtered(raw[:size], whole_map, ends=True)
    kept, sieve = filtered(first + raw[size:], whole_map, ends=True)

    assert [batch.base_offset for batch in split_batches(kept)] == [1, 3]
    assert sieve.changed


def marker(kind: int, *, base_offset: int, epoch: int = 3) -> bytes:
    key = struct.pack(">hh", 0, kind)
    record = Record(struct.pack(">hi", 0, 1), key=key, timestamp_ms=T)
    options: dict[str, Any] = {"producer_id": 7, "producer_epoch": epoch, "transactional": True, "control": True}
    return encode_batch([record], base_offset=base_offset, **options)


def test_judge_decides_which_transaction_batches_count() -> None:
    options: dict[str, Any] = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 0, "transactional": True}
    raw = batch([b"a"], **options) + batch([b"b"], base_offset=1, **options) + marker(0, base_offset=2)
    asked: list[tuple[int, ...]] = []

    def judge(*facts: int) -> bool:
        asked.append(facts)
        return facts[0] == 1

    offset_map = OffsetMap(100, base_offset=0, secret=SECRET)
    offset_map.add_batches(raw, 0, 0, 0, LIMIT, judge)
    both = TRANSACTIONAL | CONTROL
    assert asked == [(0, 0, TRANSACTIONAL, 7, -1), (1, 1, TRANSACTIONAL, 7, -1), (2, 2, both, 7, 0)]
    assert [offset_map.get(key) for key in (b"a", b"b")] == [0, None]
    assert offset_map.latest_offset == 2
    kept, _ = filtered(raw, offset_map, judge=judge)
    assert [batch.base_offset for batch in split_batches(kept)] == [0, 2]


def test_marker_without_records_waits_for_its_horizon() -> None:
    raw = marker(1, base_offset=5)
    kept, _ = filtered(raw, judge=lambda *_: True)

    assert only(kept).header.delete_horizon_ms == NOW + DAY_MS
    assert only(kept).record_count == 1
    assert filtered(kept, judge=lambda *_: True)[0] == kept
    assert filtered(kept, judge=lambda *_: True, now_ms=NOW + DAY_MS)[0] == b""
    assert filtered(kept, now_ms=NOW + DAY_MS)[0] == kept


def test_only_marker_with_a_producers_epoch_keeps_its_header() -> None:
    raw = marker(1, base_offset=5) + batch([b"a"], base_offset=6)
    kept, _ = filtered(raw, judge=lambda *_: True)
    options: dict[str, Any] = {"judge": lambda *_: True, "now_ms": NOW + DAY_MS}

    for epochs in ({}, {7: 2}, {8: 3}):
        assert [batch.base_offset for batch in split_batches(filtered(kept, last_epochs=epochs, **options)[0])] == [6]
    bare, _ = filtered(kept, last_epochs={7: 3}, **options)
    assert [(batch.base_offset, batch.record_count) for batch in split_batches(bare)] == [(5, 0), (6, 1)]
    again, sieve = filtered(bare, last_epochs={7: 3}, **options)
    assert again == bare
    assert not sieve.changed


def test_marker_of_first_epoch_is_dropped_with_unknown_producer() -> None:
    raw = marker(1, base_offset=5, epoch=0) + batch([b"a"], base_offset=6)
    kept, _ = filtered(raw, judge=lambda *_: True)
    options: dict[str, Any] = {"judge": lambda *_: True, "now_ms": NOW + DAY_MS}

    assert [batch.base_offset for batch in split_batches(filtered(kept, **options)[0])] == [6]
    bare, _ = filtered(kept, last_epochs={7: 0}, **options)
    assert [batch.base_offset for batch in split_batches(bare)] == [5, 6]


def test_transaction_batches_are_reported_in_order_up_to_the_stop() -> None:
    options: dict[str, Any] = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 0, "transactional": True}
    parts = [batch([b"a"]), batch([b"b", b"c"], base_offset=1, **options), marker(0, base_offset=3)]
    raw = b"".join([*parts, batch([b"d"], base_offset=4, **options)])
    reported: list[tuple[int, ...]] = []

    def note(*facts: int) -> None:
        reported.append(facts)

    assert note_transactions(raw, 0, 0, 4, LIMIT, note) == (len(b"".join(parts)), True)
    assert reported == [(1, 2, TRANSACTIONAL, 7, -1), (3, 3, TRANSACTIONAL | CONTROL, 7, 0)]
    assert note_transactions(raw[:-1], 0, 0, 100, LIMIT, note) == (len(b"".join(parts)), False)
    # A damaged marker would have other batches dropped, so every byte under the CRC counts.
    begin = len(parts[0]) + len(parts[1])
    for place in range(begin + 21, begin + len(parts[2])):
        damaged = bytearray(raw)
        damaged[place] ^= 1
        with pytest.raises(CorruptBatch):
            note_transactions(bytes(damaged), 0, 0, 100, LIMIT, note)


@pytest.mark.parametrize("codec", CODECS)
def test_check_keyed_names_the_record(codec: int) -> None:
    check_keyed(batch([b"a", b""], codec=codec) + marker(1, base_offset=0), LIMIT)
    with pytest.raises(InvalidRecord, match="record 1 of the batch at byte 0 has no key"):
        check_keyed(batch([b"a", None], codec=codec), LIMIT)


@pytest.mark.parametrize("base_offset", [-1, -5, -(2**63), INT64_MAX - 1, INT64_MAX])
def test_check_keyed_checks_every_record_whatever_its_offset(base_offset: int) -> None:
    """Goal: the log assigns other offsets, so the current ones must not hide a record."""
    raw = batch([b"a", None]) + batch([b"a"])

    with pytest.raises(InvalidRecord, match="record 1 of the batch at byte 0 has no key"):
        check_keyed(with_field(raw, "base_offset", base_offset), LIMIT)
    check_keyed(with_field(batch([b"a", b"b"]), "base_offset", base_offset), LIMIT)


@for_each("place", range(HEADER_SIZE, HEADER_SIZE + 26))
def test_damaged_records_are_refused_or_copied_whole(place: int) -> None:
    """Goal: no byte of the records, under a valid CRC, makes the filter read outside them."""
    sound = batch([b"a", b"a"])
    for byte in range(256):
        raw = seal(sound[:place] + bytes([byte]) + sound[place + 1 :])
        # The map, built from the same bytes, finds the damage first; with a map of valid bytes, the filter finds it.
        for offset_map in (None, map_of(sound)):
            try:
                kept, _ = filtered(raw, offset_map)
            except CorruptBatch:
                continue
            assert len(kept) <= len(raw) + 32


RECORD = record_body(key=sized(b"a"))
WRONG_RECORDS = {
    "its length overruns the batch": varint(100) + RECORD,
    "its timestamp is not a varint": varint(1) + bytes(10),
    "its offset is outside the batch": sized(record_body(offset_delta=1, key=sized(b"a"))),
    "its key overruns the record": sized(record_body(key=varint(50))),
    "7 bytes are left over after the last record": sized(RECORD) + bytes(7),
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("reason", [*WRONG_RECORDS, "its value overruns the record"])
def test_filter_names_the_fault_of_a_record(reason: str, codec: int) -> None:
    value = sized(record_body(key=sized(b"a"), value=varint(50)))
    raw = batch_of(WRONG_RECORDS.get(reason, value), codec=codec)

    with pytest.raises(CorruptBatch, match=reason):
        filtered(raw, map_of(batch([b"a"])))


@pytest.mark.parametrize("codec", CODECS)
def test_filter_allocates_no_room_for_impossible_record_count(codec: int) -> None:
    """Goal: a count is only a claim, and no size in the header proves the count of compressed records."""
    raw = batch_of(sized(RECORD), codec=codec, record_count=2**31 - 1, last_delta=2**31 - 2)

    with pytest.raises(CorruptBatch, match="2,147,483,647 records cannot fit"):
        filtered(raw, map_of(batch([b"a"])))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("reason", WRONG_RECORDS)
def test_map_names_the_fault_of_a_record(reason: str, codec: int) -> None:
    with pytest.raises(CorruptBatch, match=reason):
        map_of(batch_of(WRONG_RECORDS[reason], codec=codec))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (varint(100) + RECORD, "its length overruns the batch"),
        (varint(1) + bytes(7), "its timestamp is not a varint"),
        (varint(2) + bytes(7), "its offset is outside the batch"),
        (varint(3) + bytes(7), "its key overruns the record"),
        (varint(4) + bytes(7), "its value overruns the record"),
        (varint(5) + bytes(7), "the header count is impossible"),
        (varint(1) + bytes(5), "1 record cannot fit in 6 bytes"),
    ],
)
@pytest.mark.parametrize("codec", CODECS)
def test_key_check_does_not_read_past_the_record(body: bytes, reason: str, codec: int) -> None:
    with pytest.raises(CorruptBatch, match=reason):
        check_keyed(batch_of(body, codec=codec), LIMIT)


def add_columns(raw: bytes) -> None:
    Columns(["offset"], rows=10, data_bytes=100, limit=LIMIT, timestamp_scale=1).add(raw, 0, 0, 0, False, 0, INT64_MAX)


DECODING: dict[str, Callable[[bytes], object]] = {
    "records": decode_records,
    "columns": add_columns,
    "keyed": lambda raw: check_keyed(raw, LIMIT),
    "key table": lambda raw: KeyTable(0).add(raw, 0, False, INT64_MAX, LIMIT),
    "offset map": map_of,
    "compaction": lambda raw: filtered(raw, map_of(b"")),
}
TWO_KEYED = [sized(record_body(offset_delta=delta, key=sized(b"a"))) for delta in range(2)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("body", "record_count", "reason"),
    [
        (TWO_KEYED[0] + TWO_KEYED[0], 2, "record 1: its offset is outside the batch"),
        (TWO_KEYED[1] + TWO_KEYED[0], 2, "record 1: its offset is outside the batch"),
        (TWO_KEYED[0] + TWO_KEYED[1], 1, "8 bytes are left over after the last record"),
        (TWO_KEYED[0] + TWO_KEYED[1], 3, "record 2: its length overruns the batch|3 records cannot fit"),
        (sized(record_body(key=sized(b"a")) + b"\0"), 1, "record 0: bytes are left over after its headers"),
        (sized(record_body(timestamp_delta=varint(-T - 2), key=sized(b"a"))), 1, "record 0: its timestamp"),
    ],
)
@pytest.mark.parametrize("walk", DECODING)
def test_all_walks_apply_the_same_checks_to_a_record(
    body: bytes, record_count: int, reason: str, codec: int, walk: str
) -> None:
    raw = batch_of(body, codec=codec, record_count=record_count, last_delta=2)

    with pytest.raises(CorruptBatch, match=reason):
        DECODING[walk](raw)


# A length, attributes, then the numbers before the key: time and offset, and the size of the key.
@pytest.mark.parametrize(
    "body", [b"", varint(-1), *(varint(size) + bytes(size) for size in (1, 2, 3, 4)), sized(bytes(3) + varint(4))]
)
def test_control_batch_without_whole_type_is_unknown_marker(body: bytes) -> None:
    reported: list[int] = []
    raw = batch_of(body, attributes=CONTROL | TRANSACTIONAL, producer_id=7)

    assert note_transactions(raw, 0, 0, 100, LIMIT, lambda *facts: reported.append(facts[-1])) == (len(raw), False)
    assert reported == [-1]


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec])
def test_damage_inside_compressed_batch_is_reported_at_the_batch(codec: int) -> None:
    first = batch([b"a"])
    damaged = seal(batch([b"b"], base_offset=1, codec=codec)[:HEADER_SIZE] + b"no stream at all")
    raw = first + seal(damaged[:8] + struct.pack(">i", len(damaged) - 12) + damaged[12:])

    with pytest.raises(CorruptBatch) as caught:
        map_of(raw)
    assert caught.value.position == len(first)
    with pytest.raises(CorruptBatch) as caught:
        filtered(raw, map_of(first))
    assert caught.value.position == len(first)


def test_invalid_header_stops_map_filter_and_transaction_walk() -> None:
    first = batch([b"a"])
    raw = first + batch([b"b"], base_offset=1)
    wrong = raw[: len(first) + 16] + b"\3" + raw[len(first) + 17 :]

    for run in (
        map_of,
        lambda data: filtered(data, map_of(first)),
        lambda data: note_transactions(data, 0, 0, 100, LIMIT, never),
    ):
        with pytest.raises(CorruptBatch, match=f"byte {len(first)}: magic 3 where a batch should start"):
            run(wrong)


@for_each("kept", range(1, HEADER_SIZE + 5))
def test_incomplete_batch_waits_for_its_rest(kept: int) -> None:
    first = batch([b"a"])
    raw = first + batch([b"b"], base_offset=1)[:kept]
    sieve = BatchFilter(
        map_of(first), now_ms=NOW, delete_retention_ms=1, last_offsets={}, last_epochs={}, limit=LIMIT, judge=never
    )
    sieve.begin()

    assert sieve.add_batches(raw, 0, 0) == len(first)
    assert OffsetMap(9, base_offset=0, secret=SECRET).add_batches(raw, 0, 0, 0, LIMIT, never) == (len(first), False)


def test_batches_with_growing_record_counts_are_filtered() -> None:
    """Goal: the buffer for kept records starts small and grows with the batches."""
    sizes = [1, 100, 10_000]
    raw, base = b"", 0
    for size in sizes:
        raw += batch([b"%d" % number for number in range(base, base + size)], base_offset=base)
        base += size
    doubled = raw + batch([b"0", b"1"], base_offset=base)
    kept, sieve = filtered(doubled, map_of(doubled, slots=20_000))

    assert [record.offset for record in decode_records(kept)] == [*range(2, base + 2)]
    assert sieve.records_kept == base


@pytest.mark.parametrize(("slots", "secret"), [(1, SECRET), (2**31, SECRET), (100, SECRET[:-1]), (100, b"")])
def test_useless_map_is_refused(slots: int, secret: bytes) -> None:
    with pytest.raises(ValueError, match=f"a map of {slots} slots, a secret of {len(secret)} bytes"):
        OffsetMap(slots, base_offset=0, secret=secret)


def test_wrong_crc_is_refused() -> None:
    raw = bytearray(batch([b"a", b"b"]))
    raw[-1] ^= 1
    for run in (map_of, filtered):
        with pytest.raises(CorruptBatch, match="CRC"):
            run(bytes(raw), *([OffsetMap(9, base_offset=0, secret=SECRET)] if run is filtered else []))


@pytest.mark.parametrize("seed", range(20))
def test_interpreted_kernel_gives_the_same_bytes(seed: int) -> None:
    twin = load_twin()
    if twin is None:
        pytest.skip("nothing is compiled here: python setup.py build_ext --inplace")
    chance = random.Random(seed)
    raw = b""
    for base in range(0, 100, 10):
        records = [
            Record(
                chance.choice([None, chance.randbytes(9)]),
                key=chance.choice([None, b"%d" % chance.randrange(20)]),
                timestamp_ms=T + chance.randrange(-(10**9), 10**9),
            )
            for _ in range(chance.randrange(1, 10))
        ]
        raw += encode_batch(records, base_offset=base, codec=chance.choice(CODECS), producer_id=chance.randrange(-1, 3))
    options: dict[str, Any] = {"ends": chance.random() < 0.5, "last_offsets": {0: 19, 1: 99}}
    mine, its = filtered(raw, **options), filtered(raw, module=twin, **options)
    assert mine[0] == its[0]
    assert (mine[1].records_kept, mine[1].keyless) == (its[1].records_kept, its[1].keyless)


@pytest.mark.parametrize("seed", range(12))
def test_map_finds_keys_that_wrapped_around_its_end(seed: int) -> None:
    """Goal: at its fullest and with any secret, some keys wrap around to the start of the table."""
    offset_map = OffsetMap(40, base_offset=0, secret=random.Random(seed).randbytes(16))
    keys = [b"key %d" % number for number in range(offset_map.capacity)]
    raw = b"".join(batch([key], base_offset=offset) for offset, key in enumerate(keys))

    assert offset_map.add_batches(raw, 0, 0, 0, LIMIT, lambda *_: False) == (len(raw), False)

    assert [offset_map.get(key) for key in keys] == list(range(len(keys)))
    assert offset_map.get(b"another") is None
