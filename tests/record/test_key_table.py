"""Keys collected from batches, encoded in the order of their hashes, and looked up."""

from __future__ import annotations

import random
from types import ModuleType

import pytest

from record.batches import CODECS, INT64_MAX, IS_COMPILED, LIMIT, Row, Sketch, seal, with_field
from record.test_twin import twin  # noqa: F401  a fixture
from seeklog.errors import CorruptBatch, UsageError
from seeklog.record.key_hash import hash_key
from seeklog.record.key_table import FILTER_BLOCK_SIZE, KeyEntries, KeyTable, filter_block_count

BASE = 1000
HEAD = b"twelve bytes"
# Two keys whose hashes begin with the same 64 bits, found by 5.5 thousand million steps of Pollard's rho.
TWINS = bytes.fromhex("0678ebb84377a610"), bytes.fromhex("ab5d3c2811470ba3")
MANY = 20_000 if IS_COMPILED else 1_500


def keys_of(count: int) -> list[bytes]:
    return [b"key-%05d" % number for number in range(count)]


def batches_of(keys: list[bytes | None], *, per_batch: int = 100, codec: int = 0) -> bytes:
    """Return batches that contain one record for each key, from the base offset on."""
    return b"".join(
        Sketch(
            [Row(key=key, delta=delta) for delta, key in enumerate(keys[start : start + per_batch])],
            base_offset=BASE + start,
            codec=codec,
        ).encode()
        for start in range(0, len(keys), per_batch)
    )


def table_of(raw: bytes) -> KeyTable:
    table = KeyTable(BASE)
    assert table.add(raw, 0, True, INT64_MAX, LIMIT) == len(raw)
    return table


def entries_of(table: KeyTable) -> KeyEntries:
    return KeyEntries(
        bytes(table.encode(HEAD)), head_size=len(HEAD), blocks=filter_block_count(table.count), count=table.count
    )


@pytest.mark.parametrize("codec", CODECS)
def test_last_offset_of_every_key_is_found(codec: int) -> None:
    chance = random.Random(7)
    keys: list[bytes | None] = [chance.choice([None, b"", b"k%d" % chance.randrange(300)]) for _ in range(2000)]
    latest = {key: number for number, key in enumerate(keys) if key is not None}
    table = table_of(batches_of(keys, codec=codec))
    entries = entries_of(table)
    assert table.count == entries.count == len(latest)
    assert table.next_offset == BASE + len(keys)
    for key, number in latest.items():
        assert table.offset_of(*hash_key(key)) == BASE + number
        assert entries.offsets_of(hash_key(key)[0]) == (number,)


def test_missing_keys_are_not_found() -> None:
    table = table_of(batches_of(keys_of(500)))
    entries = entries_of(table)
    for number in range(500):
        first, second = hash_key(b"other-%d" % number)
        assert table.offset_of(first, second) == -1
        assert entries.offsets_of(first) == ()


def test_hashes_are_sorted_through_every_growth_of_the_table() -> None:
    """Goal: including hashes that wrapped around the end of the table, and key counts close to a growth."""
    for count in [0, 1, 47, 48, 49, 95, 96, 97, 191, 192, 193, 700]:
        table = table_of(batches_of(keys_of(count)))
        data = bytes(table.encode(HEAD))
        start = len(HEAD) + 32 * filter_block_count(count)
        hashes = [int.from_bytes(data[at : at + 8], "big") for at in range(start, start + 8 * count, 8)]
        assert hashes == sorted(hash_key(key)[0] for key in keys_of(count))
        assert len(data) == start + 12 * count


@pytest.mark.parametrize("count", [1, 2, 3, 10, 40])
def test_keys_that_wrap_around_the_table_are_sorted_too(count: int) -> None:
    """Goal: all keys want the last of the 64 initial slots, so all but one wrap around to the start."""
    numbered = (b"late-%d" % number for number in range(10**6))
    keys = [
        key for key, _ in zip((key for key in numbered if hash_key(key)[0] >> 58 == 63), range(count), strict=False)
    ]
    others = [key for key in keys_of(20) if hash_key(key)[0] >> 58 < 2]

    table = table_of(batches_of([*keys, *others]))
    entries = entries_of(table)

    assert table.count == len(keys) + len(others)
    for number, key in enumerate([*keys, *others]):
        assert table.offset_of(*hash_key(key)) == BASE + number
        assert entries.offsets_of(hash_key(key)[0]) == (number,)


@pytest.mark.parametrize("count", [1, 2, 100])
def test_encoded_table_has_the_documented_size(count: int) -> None:
    """A block of the filter has 32 bytes, a hash 8 and an offset 4, as docs/format says."""
    keys = keys_of(count)
    table = table_of(batches_of(list(keys)))

    assert FILTER_BLOCK_SIZE == 32
    assert len(table.encode(HEAD)) == len(HEAD) + 32 * filter_block_count(count) + (8 + 4) * count
    assert entries_of(table).size_bytes == len(table.encode(HEAD))
    # Bytes after the last hash are not taken for another hash.
    assert [entries_of(table).offsets_of(hash_key(key)[0]) for key in keys] == [(place,) for place in range(count)]


@pytest.mark.id("key-filter-false-positives")
def test_filter_passes_at_most_one_foreign_key_in_a_thousand() -> None:
    entries = entries_of(table_of(batches_of(keys_of(MANY))))
    assert all(entries.may_hold(hash_key(key)[0]) for key in keys_of(MANY))
    passed = sum(entries.may_hold(hash_key(b"stranger-%d" % number)[0]) for number in range(5 * MANY))
    assert passed <= 5 * MANY / 1000


def test_two_keys_with_the_same_hash_are_kept_newer_first() -> None:
    assert hash_key(TWINS[0])[0] == hash_key(TWINS[1])[0]
    assert hash_key(TWINS[0])[1] != hash_key(TWINS[1])[1]
    for order in [(0, 1), (1, 0), (0, 1, 0), (1, 0, 1)]:
        keys = [b"before", *(TWINS[each] for each in order), b"behind"]
        latest = {key: number for number, key in enumerate(keys)}
        table = table_of(batches_of(keys))
        found = entries_of(table).offsets_of(hash_key(TWINS[0])[0])
        assert found == tuple(sorted((latest[key] for key in TWINS), reverse=True))
        assert [table.offset_of(*hash_key(key)) - BASE for key in TWINS] == [latest[key] for key in TWINS]


def test_batches_that_end_at_or_above_the_stop_are_ignored() -> None:
    raw = batches_of(keys_of(30), per_batch=10)
    for stop, taken in [(9, 0), (10, 1), (19, 1), (20, 2), (30, 3)]:
        table = KeyTable(BASE)
        assert table.add(raw, 0, True, BASE + stop, LIMIT) == taken * len(raw) // 3
        assert (table.count, table.next_offset) == (10 * taken, BASE + 10 * taken)


def test_incomplete_batch_waits() -> None:
    raw = batches_of(keys_of(20), per_batch=10)
    table = KeyTable(BASE)
    assert table.add(raw[:-1], 0, True, INT64_MAX, LIMIT) == len(raw) // 2
    assert table.add(raw[len(raw) // 2 :], len(raw) // 2, True, INT64_MAX, LIMIT) == len(raw) // 2
    assert table.count == 20


def test_control_batches_add_no_keys() -> None:
    table = table_of(Sketch([Row(key=b"marker")], base_offset=BASE, attributes=0x20).encode())
    assert (table.count, table.next_offset) == (0, BASE + 1)


def test_damage_is_reported_with_its_position() -> None:
    raw = batches_of(keys_of(10))
    with pytest.raises(CorruptBatch) as caught:
        KeyTable(BASE).add(raw[:-1] + b"?", 77, True, INT64_MAX, LIMIT)
    assert caught.value.position == 77
    far = seal(with_field(raw, "base_offset", BASE + 2**31))
    with pytest.raises(CorruptBatch, match="too far"):
        KeyTable(BASE).add(far, 0, False, INT64_MAX, LIMIT)


@pytest.mark.parametrize(
    ("blocks", "count"), [(0, 0), (-1, 0), (2, 0), (1, -1), (1, 1), (2**62, 0), (1, 2**62), (2**58, 2**60)]
)
def test_entries_that_cannot_fit_are_refused(blocks: int, count: int) -> None:
    with pytest.raises(UsageError, match="cannot hold"):
        KeyEntries(bytes(12 + 32 + 11), head_size=12, blocks=blocks, count=count)


def test_unsorted_table_gives_an_answer_without_error() -> None:
    chance = random.Random(3)
    for count in range(40):
        data = b"\xff" * 32 * filter_block_count(count) + chance.randbytes(12 * count)
        entries = KeyEntries(data, head_size=0, blocks=filter_block_count(count), count=count)
        for _ in range(50):
            assert len(entries.offsets_of(chance.getrandbits(64))) <= 1


def test_both_kernels_store_and_find_the_same(twin: ModuleType) -> None:  # noqa: F811
    raw = batches_of(keys_of(1000))
    mine, other = table_of(raw), twin.KeyTable(BASE)
    assert other.add(raw, 0, True, INT64_MAX, LIMIT) == len(raw)
    data = bytes(mine.encode(HEAD))
    assert bytes(other.encode(HEAD)) == data
    assert other.size_bytes == mine.size_bytes
    theirs = twin.KeyEntries(data, head_size=len(HEAD), blocks=filter_block_count(1000), count=1000)
    ours = entries_of(mine)
    for number in range(900, 1100):
        first, second = hash_key(b"key-%05d" % number)
        assert theirs.offsets_of(first) == ours.offsets_of(first)
        assert other.offset_of(first, second) == mine.offset_of(first, second)
