"""A batch that grows by one record at a time: its bytes are those of the same records encoded together."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from record.batches import CODECS, HEADER_SIZE, INT32_MAX, INT64_MAX, T
from record.twins import KERNEL, load_twin, plain
from seeklog.errors import InvalidRecord
from seeklog.record.batch import decode_records, read_header
from seeklog.record.encode import encode_records, stamp_append_time
from seeklog.record.growing import FIRST_ROOM, GrowingBatch, finish_batches
from seeklog.record.record import Record

NOW = T + 1000
UNLIMITED = INT32_MAX
PRODUCER = (7, 3, 41)

fields = st.one_of(st.none(), st.binary(max_size=200))
records = st.builds(
    Record,
    fields,
    key=fields,
    headers=st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=3),
    timestamp_ms=st.one_of(st.none(), st.sampled_from([-1, 0, T, INT64_MAX]), st.integers(T - 1000, T + 1000)),
)


def grown(some: list[Record], *, module: Any = KERNEL, limit: int = UNLIMITED) -> Any:
    batch = module.GrowingBatch()
    for record in some:
        twin = module.Record(record.value, key=record.key, headers=record.headers, timestamp_ms=record.timestamp_ms)
        assert batch.add(twin, NOW, limit) >= 0
    return batch


@given(some=st.lists(records, min_size=1, max_size=12), codec=st.sampled_from(CODECS))
def test_grown_batch_has_the_bytes_of_its_records_encoded_together(some: list[Record], codec: int) -> None:
    """Goal: for the compiled kernel and the interpreted one, whichever runs here."""
    expected = encode_records(some, NOW, 55, 3, codec, PRODUCER)

    assert grown(some).finish(NOW, 55, 3, codec, PRODUCER) == expected
    other = load_twin()
    if other is not None:
        assert grown(some, module=other).finish(NOW, 55, 3, codec, PRODUCER) == expected


def test_batch_grows_past_every_size_of_its_buffer() -> None:
    chance = random.Random(24)
    some: list[Record] = []
    batch = GrowingBatch()
    while batch.size < 40 * FIRST_ROOM:
        some.append(Record(chance.randbytes(chance.choice((0, 1, 63, 64, 700, 3000)))))
        assert batch.add(some[-1], NOW, UNLIMITED) == len(some) - 1
        assert batch.finish(NOW, 0, 0, 0, PRODUCER) == encode_records(some, NOW, 0, 0, 0, PRODUCER)
        assert batch.size == len(batch.finish(NOW, 0, 0, 0, PRODUCER))


def test_record_that_passes_the_limit_by_a_byte_is_not_added() -> None:
    """Goal: exact, not an estimate: the same record fits where the limit is the size of the batch."""
    first, second = Record(b"first", key=b"k"), Record(bytes(300), headers=[("h", b"1")])
    size = grown([first, second]).size
    for limit, expected in ((size, 1), (size - 1, -1)):
        batch = grown([first])
        before = batch.finish(NOW, 0, 0, 0, PRODUCER)
        assert batch.add(second, NOW, limit) == expected
        assert (batch.finish(NOW, 0, 0, 0, PRODUCER) == before) == (expected < 0)


def test_empty_batch_takes_a_record_of_any_size() -> None:
    batch = GrowingBatch()

    assert batch.add(Record(bytes(5000)), NOW, 1) == 0
    assert batch.add(Record(b""), NOW, 1) == -1


@pytest.mark.parametrize("words", [{"value": "text"}, {"value": b"", "key": 5}], ids=repr)
def test_refused_record_leaves_the_batch_unchanged(words: dict[str, Any]) -> None:
    batch = grown([Record(b"v")])
    before = batch.finish(NOW, 0, 0, 0, PRODUCER)
    with pytest.raises(InvalidRecord, match="must be bytes"):
        batch.add(Record(**words), NOW, UNLIMITED)

    assert batch.finish(NOW, 0, 0, 0, PRODUCER) == before


def test_batch_knows_its_times_and_whether_a_key_is_missing() -> None:
    batch = grown([Record(b"", key=b"", timestamp_ms=at) for at in (T, T - 5, T + 3)])
    assert (batch.base_timestamp, batch.min_timestamp, batch.max_timestamp) == (T, T - 5, T + 3)
    assert not batch.has_null_key

    batch.add(Record(b""), NOW, UNLIMITED)
    assert batch.has_null_key
    assert (batch.count, batch.max_timestamp) == (4, NOW)


@pytest.mark.parametrize("codec", CODECS)
def test_batches_finished_together_continue_offsets_and_sequences(codec: int) -> None:
    chance = random.Random(codec)
    groups = [[Record(chance.randbytes(90), key=b"k") for _ in range(count)] for count in (3, 1, 40)]
    sequence = 2**31 - 2  # 0 follows 2^31 - 1, which is in the first batch
    raw, first_end, largest = finish_batches([grown(group) for group in groups], NOW, 10, 2, codec, (7, 0, sequence))

    alone = [
        encode_records(group, NOW, offset, 2, codec, (7, 0, at))
        for group, offset, at in zip(groups, (10, 13, 14), (sequence, 1, 2), strict=True)
    ]
    assert raw == b"".join(alone)
    assert (first_end, largest) == (len(alone[0]), max(map(len, alone)))


def test_batches_without_a_producer_have_no_sequence() -> None:
    raw, first_end, _ = finish_batches([grown([Record(b"v")])] * 2, NOW, 0, 0, 0, (-1, -1, -1))

    assert [read_header(raw, at).base_sequence for at in (0, first_end)] == [-1, -1]


def test_log_append_time_replaces_the_time_of_every_record() -> None:
    some = [Record(b"v", timestamp_ms=T + number) for number in range(3)]
    batch = grown(some)

    raw = batch.finish(NOW, 0, 0, 8, (-1, -1, -1))

    assert raw == stamp_append_time(batch.finish(NOW, 0, 0, 0, (-1, -1, -1)), NOW)
    assert [record.timestamp_ms for record in decode_records(raw)] == [NOW] * 3


@given(some=st.lists(records, min_size=2, max_size=9))
def test_halves_of_a_batch_have_its_records_in_order(some: list[Record]) -> None:
    first, second = grown(some).split()

    assert first.count == len(some) // 2
    assert [plain(each) for each in decoded(first) + decoded(second)] == [plain(each) for each in decoded(grown(some))]


def decoded(batch: Any) -> list[Record]:
    """Return the records of a batch without their offsets."""
    return [
        Record(each.value, key=each.key, headers=each.headers, timestamp_ms=each.timestamp_ms)
        for each in batch.records()
    ]


def test_empty_batch_is_not_finished() -> None:
    for batches in ([GrowingBatch()], [grown([Record(b"v")]), GrowingBatch()]):
        with pytest.raises(InvalidRecord, match="at least one record"):
            finish_batches(batches, NOW, 0, 0, 0, PRODUCER)


def test_new_batch_has_only_the_room_of_its_header() -> None:
    assert GrowingBatch().size == HEADER_SIZE
    assert GrowingBatch().count == 0
