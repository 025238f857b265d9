"""The running state of a segment: Kafka's rule for index entries, in appends and scans alike."""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from cases import for_each
from record.batches import HEADER_SIZE, INT32_MAX, INT64_MAX, RULES, SMALL, Row, Sketch, T, batch_of, seal, with_field
from seeklog.errors import CorruptBatch, UnsupportedMagic
from seeklog.record.batch_header import read_header
from seeklog.record.crc import crc32c
from seeklog.record.encode import stamp
from seeklog.record.segment_state import SegmentState

PUBLIC = (
    *("base_offset", "next_offset", "size", "crc", "batch_count", "record_count", "contiguous"),
    *("first_timestamp", "max_timestamp", "offset_table", "time_table", "epochs"),
)


def state_of(base_offset: int = 0, **rules: int) -> SegmentState:
    return SegmentState(base_offset, **{**RULES, **rules})


def facts(state: SegmentState) -> dict[str, object]:
    return {name: getattr(state, name) for name in PUBLIC}


def offset_entries(state: SegmentState) -> list[tuple[int, ...]]:
    return list(struct.iter_unpack(">ii", bytes(state.offset_table)))


def time_entries(state: SegmentState) -> list[tuple[int, ...]]:
    return list(struct.iter_unpack(">qi", bytes(state.time_table)))


@dataclass(slots=True)
class KafkasRule:
    """LogSegment.append of Kafka 4, line by line; offsets relative to a base of 0."""

    interval_bytes: int
    interval_records: int = 0
    size: int = 0
    bytes_since: int = 0
    records_since: int = 0
    largest: int = -1
    offset_of_largest: int = 0
    offsets: list[tuple[int, int]] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)

    def append(self, size: int, last_offset: int, max_timestamp: int, record_count: int) -> None:
        if max_timestamp > self.largest:
            self.largest, self.offset_of_largest = max_timestamp, last_offset
        by_records = self.interval_records > 0 and self.records_since >= self.interval_records
        if self.bytes_since > self.interval_bytes or by_records:
            self.offsets.append((last_offset, self.size))
            self.maybe_append_time()
            self.bytes_since = self.records_since = 0
        self.size += size
        self.bytes_since += size
        self.records_since += record_count

    def maybe_append_time(self) -> None:
        if self.largest > (self.times[-1][0] if self.times else -1):
            self.times.append((self.largest, self.offset_of_largest))


def batches(stamps: Sequence[int], *, counts: Sequence[int] = (1,), sizes: Sequence[int] = (10,)) -> list[bytes]:
    """Contiguous batches with the given largest timestamps; counts and value sizes repeat."""
    out = []
    base = 0
    for time, count, size in zip(stamps, itertools.cycle(counts), itertools.cycle(sizes), strict=False):
        rows = tuple(Row(bytes(size), timestamp_ms=time, delta=delta) for delta in range(count))
        out.append(Sketch(rows, base_offset=base).encode())
        base += count
    return out


# ---------------------------------------------------------------- Kafka's rule


@for_each("interval_bytes", [0, 1, 77, 78, 79, 155, 156, 157, 500, 4096])
@for_each("interval_records", [0, 1, 2, 3, 7])
def test_index_entries_are_written_when_kafka_writes_them(interval_bytes: int, interval_records: int) -> None:
    """Sizes and times go up and down; 78 bytes is one batch of one record of ten bytes."""
    chance = random.Random(7)
    stamps = [T + chance.randrange(-20, 60) * 10 + number for number in range(150)]
    rule = KafkasRule(interval_bytes, interval_records)
    state = state_of(interval_bytes=interval_bytes, interval_records=interval_records)

    for raw in batches(stamps, counts=(1, 1, 3), sizes=(10, 10, 10, 200)):
        header = read_header(raw, 0, 0)
        rule.append(len(raw), header[0] + header[5], header[7], header[11])
        state.append(raw)

        assert offset_entries(state) == rule.offsets
        assert time_entries(state) == rule.times
    rule.maybe_append_time()
    state.finish_times()
    assert time_entries(state) == rule.times


def test_first_batch_is_never_indexed() -> None:
    state = state_of(interval_bytes=0)

    for raw in batches([T] * 3):
        state.append(raw)

    assert offset_entries(state) == [(1, 78), (2, 156)]


@pytest.mark.parametrize(("interval", "indexed"), [(155, True), (156, False)])
def test_interval_must_be_passed_not_reached(interval: int, indexed: bool) -> None:
    """Two batches of 78 bytes are 156: the third is indexed only if the interval is smaller."""
    state = state_of(interval_bytes=interval)

    for raw in batches([T] * 3):
        state.append(raw)

    assert offset_entries(state) == ([(2, 156)] if indexed else [])


def test_entry_contains_last_offset_and_start_of_its_batch() -> None:
    state = state_of(100, interval_bytes=0)
    first, second = (stamp(raw, 100 + n * 5, 0) for n, raw in enumerate(batches([T, T], counts=(5,))))

    state.append(first + second)

    assert offset_entries(state) == [(9, len(first))]


def test_time_entry_is_written_only_when_the_maximum_grew() -> None:
    state = state_of(interval_bytes=0)

    for raw in batches([T, T + 5, T + 5, T + 4, T + 6]):
        state.append(raw)

    # No entry at offset 0: the first batch is not indexed. The offset is that of the batch with the maximum.
    assert len(offset_entries(state)) == 4
    assert time_entries(state) == [(T + 5, 1), (T + 6, 4)]


def test_largest_timestamp_is_added_at_the_end_with_its_offset() -> None:
    state = state_of(interval_bytes=10**6)
    for raw in batches([T, T + 9, T + 3]):
        state.append(raw)
    assert time_entries(state) == []

    state.finish_times()
    state.finish_times()

    assert time_entries(state) == [(T + 9, 1)]


def test_segment_without_times_gets_no_time_entry() -> None:
    state = state_of(interval_bytes=0)
    for raw in batches([-1, -1, -1]):
        state.append(raw)

    state.finish_times()

    assert time_entries(state) == []
    assert (state.max_timestamp, state.first_timestamp) == (-1, -1)


# ---------------------------------------------------------------- counts


def test_new_state_is_empty() -> None:
    assert facts(state_of(77)) == {
        "base_offset": 77,
        "next_offset": 77,
        "size": 0,
        "crc": 0,
        "batch_count": 0,
        "record_count": 0,
        "contiguous": True,
        "first_timestamp": -1,
        "max_timestamp": -1,
        "offset_table": bytearray(),
        "time_table": bytearray(),
        "epochs": [],
    }


def test_state_adds_up_its_batches() -> None:
    raw = b"".join(batches([T + 3, T + 9, T], counts=(2, 1, 4)))
    state = state_of()

    state.append(raw)

    assert (state.next_offset, state.size, state.crc) == (7, len(raw), crc32c(raw))
    assert (state.batch_count, state.record_count) == (3, 7)
    assert (state.first_timestamp, state.max_timestamp) == (T + 3, T + 9)
    assert state.contiguous


def test_first_timestamp_is_the_largest_of_the_first_batch() -> None:
    """Kafka rolls by this timestamp."""
    rows = (Row(timestamp_ms=T), Row(timestamp_ms=T + 50, delta=1), Row(timestamp_ms=T + 20, delta=2))
    state = state_of()

    state.append(Sketch(rows).encode())

    assert state.first_timestamp == T + 50


def test_epochs_are_noted_where_they_grow() -> None:
    state = state_of()
    for base, epoch in enumerate((2, 2, 5, 3, 7)):
        state.append(with_field(with_field(batches([T])[0], "base_offset", base), "leader_epoch", epoch))

    assert state.epochs == [(2, 0), (5, 2), (7, 4)]


def test_gap_is_noted() -> None:
    state = state_of()
    first, second = batches([T, T])
    state.append(first + with_field(second, "base_offset", 5))

    assert not state.contiguous
    assert state.next_offset == 6


# ---------------------------------------------------------------- scanning


@pytest.mark.parametrize("chunk", [1, 61, 100, 10**6])
def test_scan_gives_the_same_state_as_the_appends(chunk: int) -> None:
    """However the file is split into reads: bytes that were not accepted are read again with more after them."""
    chance = random.Random(3)
    raws = batches([T + chance.randrange(1000) for _ in range(60)], counts=(1, 4), sizes=(10, 80))
    appended, scanned = (state_of(interval_bytes=200) for _ in range(2))
    for raw in raws:
        appended.append(raw)
    whole = b"".join(raws)

    wanted = chunk
    while scanned.size < len(whole):
        taken = scanned.scan(whole[scanned.size : scanned.size + wanted], 0)
        wanted = chunk if taken else wanted * 2

    assert facts(scanned) == facts(appended)
    assert scanned.problem is None


@for_each("size", range(len(SMALL.encode())))
def test_scan_stops_at_incomplete_batch(size: int) -> None:
    first = batches([T], counts=(40,))[0]
    state = state_of()

    assert state.scan(first + SMALL.encode()[:size], 0) == len(first)
    assert state.problem is None
    assert (state.size, state.next_offset, state.crc) == (len(first), 40, crc32c(first))


@for_each("at", range(21, len(SMALL.encode())))
def test_scan_stops_at_batch_with_wrong_crc_and_reports_it(at: int) -> None:
    first = batches([T], counts=(40,))[0]
    damaged = bytearray(SMALL.encode())
    damaged[at] ^= 0x10
    state = state_of()

    assert state.scan(first + bytes(damaged), 0) == len(first)
    assert isinstance(state.problem, CorruptBatch)
    assert state.problem.position == len(first)
    assert state.size == len(first)


def test_position_of_a_problem_counts_from_the_start_of_the_file() -> None:
    first, second = batches([T, T])
    state = state_of()
    state.scan(first, 0)

    state.scan(bytes(100), 0)

    assert state.problem is not None
    assert state.problem.position == len(first)
    assert state.scan(second, 0) == len(second), "a scan goes on only if its caller ignores the problem"


@pytest.mark.id("segment-state-gap")
@pytest.mark.parametrize(("contiguous_from", "is_damage"), [(0, True), (1, True), (2, False), (INT64_MAX, False)])
def test_gap_is_damage_from_where_offsets_are_contiguous(contiguous_from: int, is_damage: bool) -> None:
    """The gap comes after offset 0, so it starts at 1."""
    first, second = batches([T, T])
    state = state_of()

    state.scan(first + with_field(second, "base_offset", 5), contiguous_from)

    assert (state.problem is not None) == is_damage
    assert state.next_offset == (1 if is_damage else 6)


@pytest.mark.parametrize("base_offset", [-1, -(2**63), 0])
def test_decreasing_offset_is_damage_everywhere(base_offset: int) -> None:
    first, second = batches([T, T])
    state = state_of()

    state.scan(first + with_field(second, "base_offset", base_offset), INT64_MAX)

    assert isinstance(state.problem, CorruptBatch)
    assert state.next_offset == 1


@pytest.mark.parametrize(("last_delta", "is_damage"), [(INT32_MAX, False), (INT32_MAX - 1, False)])
def test_largest_relative_offset_is_accepted(last_delta: int, is_damage: bool) -> None:
    state = state_of(1000)

    state.scan(batch_of(b"", base_offset=1000, last_delta=last_delta, record_count=0), 0)

    assert (state.problem is not None) == is_damage
    assert state.next_offset == 1000 + last_delta + 1


def test_offset_too_far_from_the_base_is_damage() -> None:
    """Goal: an index could not store it: relative offsets have 31 bits."""
    state = state_of(1000)

    state.scan(batch_of(b"", base_offset=1001, last_delta=INT32_MAX, record_count=0), INT64_MAX)

    assert isinstance(state.problem, CorruptBatch)
    assert "too far" in state.problem.reason


@pytest.mark.parametrize(("field", "value"), [("record_count", 5), ("record_count", -1), ("last_delta", -1)])
def test_impossible_counts_are_damage(field: str, value: int) -> None:
    state = state_of()

    state.scan(seal(with_field(SMALL.encode(), field, value)), INT64_MAX)

    assert isinstance(state.problem, CorruptBatch)
    assert state.size == 0


@pytest.mark.parametrize("magic", [0, 1])
def test_older_format_is_distinguished_from_damage(magic: int) -> None:
    state = state_of()

    state.scan(with_field(SMALL.encode(), "magic", magic), INT64_MAX)

    assert isinstance(state.problem, UnsupportedMagic)


# ---------------------------------------------------------------- saved and restored


@pytest.mark.parametrize("count", [0, 1, 5, 40])
def test_restored_state_continues_as_if_never_saved(count: int) -> None:
    chance = random.Random(count)
    raws = batches([T + chance.randrange(100) for _ in range(80)])
    whole, saved = (state_of(interval_bytes=200, interval_records=9) for _ in range(2))
    for raw in raws[:count]:
        whole.append(raw)
        saved.append(raw)

    restored = state_of(interval_bytes=200, interval_records=9)
    assert restored.restore(saved.save(), bytes(saved.offset_table), bytes(saved.time_table))

    for raw in raws[count:]:
        whole.append(raw)
        restored.append(raw)
    assert {**facts(restored), "epochs": None} == {**facts(whole), "epochs": None}
    assert restored.save() == whole.save()


def test_state_is_not_restored_with_other_tables() -> None:
    state = state_of(interval_bytes=0)
    for raw in batches([T, T + 1, T + 2]):
        state.append(raw)
    offsets, times = bytes(state.offset_table), bytes(state.time_table)

    for wrong in ((offsets[:-8], times), (offsets, times[:-12]), (offsets, offsets), (b"", b"")):
        fresh = state_of(interval_bytes=0)
        assert not fresh.restore(state.save(), *wrong)
        assert facts(fresh) == facts(state_of(interval_bytes=0))


def test_state_is_not_restored_into_another_segment() -> None:
    assert not state_of(1).restore(state_of(0).save(), b"", b"")


# ---------------------------------------------------------------- when a segment must roll


def filled(*stamps: int, **rules: int) -> SegmentState:
    """A segment of batches of 78 bytes with these largest timestamps."""
    state = state_of(**rules)
    for raw in batches(stamps):
        state.append(raw)
    return state


def incoming(*, size: int = 78, base_offset: int = 100, last_delta: int = 0, timestamp: int = T) -> bytes:
    """An empty batch of any size, which is never decoded."""
    fields = {"base_offset": base_offset, "last_delta": last_delta, "max_timestamp": timestamp}
    return batch_of(bytes(size - HEADER_SIZE), record_count=0, **fields)


def test_empty_segment_never_rolls() -> None:
    """Otherwise a batch larger than the limits would roll forever."""
    state = state_of(segment_bytes=100, segment_ms=1, segment_index_bytes=24)

    assert not state.must_roll_before(incoming(size=1000, base_offset=2**40, timestamp=INT64_MAX))


@pytest.mark.parametrize(("size", "rolls"), [(61, False), (84, False), (85, True), (1000, True)])
def test_segment_rolls_before_growing_past_its_size(size: int, rolls: bool) -> None:
    """Two batches of 78 bytes in a segment of 240 leave room for exactly 84."""
    assert filled(T, T, segment_bytes=240).must_roll_before(incoming(size=size)) == rolls


@pytest.mark.parametrize(("timestamp", "rolls"), [(T + 100, False), (T + 101, True), (T - 10**6, False), (-1, False)])
def test_segment_rolls_before_timestamps_span_more_than_segment_ms(timestamp: int, rolls: bool) -> None:
    """The span starts at the first batch's largest timestamp, even if the second batch was later."""
    assert filled(T, T + 50, segment_ms=100).must_roll_before(incoming(timestamp=timestamp)) == rolls


@pytest.mark.parametrize(("timestamp", "rolls"), [(100, False), (101, True)])
def test_segment_that_starts_in_1970_rolls_by_time(timestamp: int, rolls: bool) -> None:
    assert filled(0, segment_ms=100).must_roll_before(incoming(timestamp=timestamp)) == rolls


def test_segment_that_starts_without_timestamp_does_not_roll_by_time() -> None:
    assert not filled(-1, segment_ms=100).must_roll_before(incoming(timestamp=T))


@pytest.mark.parametrize(
    ("count", "limit", "rolls"), [(4, 32, False), (5, 32, True), (5, 33, True), (5, 39, True), (5, 40, False)]
)
def test_segment_rolls_when_its_offset_index_is_full(count: int, limit: int, rolls: bool) -> None:
    """Entries of 8 bytes for all batches but the first; without timestamps there are no time entries."""
    state = filled(*[-1] * count, interval_bytes=0, segment_index_bytes=limit)
    assert len(state.offset_table) == 8 * (count - 1)

    assert state.must_roll_before(incoming(timestamp=-1)) == rolls


@pytest.mark.parametrize(
    ("count", "limit", "rolls"), [(3, 48, False), (4, 48, True), (4, 59, True), (4, 60, False), (5, 60, True)]
)
def test_segment_rolls_when_its_time_index_has_one_slot_left(count: int, limit: int, rolls: bool) -> None:
    """Entries of 12 bytes; the last slot is for the entry that the roll itself adds."""
    state = filled(*range(T, T + count), interval_bytes=0, segment_index_bytes=limit)
    assert len(state.time_table) == 12 * (count - 1)

    assert state.must_roll_before(incoming()) == rolls


@pytest.mark.parametrize(
    ("last_offset", "rolls"),
    [(1000 + INT32_MAX - 1, False), (1000 + INT32_MAX, False), (1000 + INT32_MAX + 1, True), (2**62, True)],
)
@pytest.mark.parametrize("delta", [0, 5])
def test_segment_rolls_before_relative_offset_exceeds_31_bits(last_offset: int, rolls: bool, delta: int) -> None:
    """Kafka accepts 2**31 - 1 itself."""
    state = state_of(1000)
    state.append(with_field(batches([T])[0], "base_offset", 1000))

    assert state.must_roll_before(incoming(base_offset=last_offset - delta, last_delta=delta)) == rolls


@pytest.mark.parametrize(
    ("second", "rolls"),
    [
        (incoming(size=61, base_offset=101), False),
        (incoming(size=1000, base_offset=101), True),
        (incoming(size=61, base_offset=101, timestamp=T + 101), True),
        (incoming(size=61, base_offset=2**31), True),
    ],
    ids=["fits", "size", "time", "offset"],
)
def test_every_batch_of_an_append_is_checked_for_a_roll(second: bytes, rolls: bool) -> None:
    state = filled(T, segment_bytes=240, segment_ms=100)

    assert state.must_roll_before(incoming(size=61) + second) == rolls


def test_append_returns_whether_the_indexes_grew() -> None:
    state = state_of(interval_bytes=100)

    assert [state.append(raw) for raw in batches([T] * 5)] == [False, False, True, False, True]


@pytest.mark.parametrize("base_offset", [1, 1003, 2**40 + 7])
def test_entries_are_relative_to_any_base_offset(base_offset: int) -> None:
    """Goal: both indexes store differences, whatever bits the base has."""
    state = SegmentState(base_offset, **{**RULES, "interval_bytes": 0})
    position, offsets, times = 0, b"", b""
    for number in range(20):
        raw = Sketch((Row(timestamp_ms=T + number),), base_offset=base_offset + number).encode()
        state.append(raw)
        if number:
            # The first batch of a segment has no entry: it is found without one.
            offsets += struct.pack(">ii", number, position)
            times += struct.pack(">qi", T + number, number)
        position += len(raw)

    assert bytes(state.offset_table) == offsets
    assert bytes(state.time_table) == times
