"""The compiled and the interpreted modules have one source: they agree on every input tried here.

Whichever of the two is running, the other is loaded next to it. Both get the same seeded inputs, valid and hostile, and
must give the same bytes, the same records and the same errors.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from record.batches import (
    CODECS,
    INT32_MAX,
    INT64_MAX,
    IS_COMPILED,
    LIMIT,
    T,
)
from record.hostile import hostile_batches
from record.twins import KERNEL, READERS, load_twin, outcome_of

SEED = 2026
WIDEST_SPANS = ((-1, INT64_MAX), (INT64_MAX, -1))


@pytest.fixture(scope="module")
def twin() -> Any:
    """The modules in the form that is not running here."""
    other = load_twin()
    if other is None:
        pytest.skip("nothing is compiled here: python setup.py build_ext --inplace")
    return other


def assert_twins(twin: Any, call: Callable[[Any], Any], about: str) -> None:
    mine, other = outcome_of(lambda: call(KERNEL)), outcome_of(lambda: call(twin))
    assert mine == other, about


def apply(reader: Callable[[Any, bytes], Any], raw: bytes, module: Any) -> Any:
    return reader(module, raw)


@pytest.mark.parametrize("reader", READERS)
def test_both_read_the_same_from_every_batch(twin: Any, reader: str) -> None:
    for raw in hostile_batches(seed=SEED):
        assert_twins(twin, partial(apply, READERS[reader], raw), raw.hex())


def random_rows(chance: random.Random) -> list[dict[str, Any]]:
    def some_bytes() -> bytes | None:
        return chance.choice([None, b"", chance.randbytes(chance.choice([1, 63, 64, 300]))])

    return [
        {
            "value": some_bytes(),
            "key": some_bytes(),
            "headers": tuple(("h" * chance.randrange(3), some_bytes()) for _ in range(chance.choice([0, 0, 1, 70]))),
            "timestamp_ms": chance.choice([None, T, -1, 0, INT64_MAX, chance.randrange(2**42)]),
        }
        for _ in range(chance.choice([1, 2, 70]))
    ]


# The widest spans of timestamps: their difference needs 65 bits.
WIDEST = [[{"value": b"", "key": None, "headers": (), "timestamp_ms": t} for t in pair] for pair in WIDEST_SPANS]


def test_both_write_the_same_bytes(twin: Any) -> None:
    chance = random.Random(SEED)
    for number, rows in enumerate([*WIDEST, *(random_rows(chance) for _ in range(60))]):
        attributes = chance.choice(CODECS) | chance.choice([0, 0x08, 0x10, 0x20])
        fields = (T, chance.choice([0, 5, 2**62]), chance.choice([0, INT32_MAX]), attributes, (2**40, 7, INT32_MAX))

        def encode(module: Any, rows: list[dict[str, Any]] = rows, fields: tuple[Any, ...] = fields) -> Any:
            records = [module.Record(**row) for row in rows]
            raw = module.encode_records(records, *fields)
            one = rows[0]
            return (
                raw,
                module.encode_one(one["value"], one["key"], one["headers"], one["timestamp_ms"], *fields[:3], 0x08),
                [module.record_bound(record) for record in records],
                module.stamp(raw, 99, 3),
                module.stamp_append_time(raw, T + 9),
                [repr(record) for record in records],
            )

        assert_twins(twin, encode, f"seed {SEED}, batch {number}")


def test_both_refuse_the_same(twin: Any) -> None:
    wrong: list[dict[str, Any]] = [
        {"value": "text"},
        {"value": b"", "key": 5},
        {"value": b"", "headers": [("h", "text")]},
        {"value": b"", "headers": [(b"h", b"")]},
        {"value": b"", "headers": ["h"]},
        {"value": b"", "timestamp_ms": -2},
        {"value": b"", "timestamp_ms": 2**63},
        {"value": b"", "timestamp_ms": "1"},
    ]

    def encode(fields: dict[str, Any], module: Any) -> Any:
        return module.encode_records([module.Record(**fields)], T, 0, 0, 0, (-1, -1, -1))

    for fields in wrong:
        assert_twins(twin, partial(encode, fields), repr(fields))


def arrow_buffers(chance: random.Random, rows: int, offset: int) -> dict[str, Any]:
    """The buffers of a small column of bytes: mostly valid, sometimes cut or with scattered ends."""
    wide = chance.random() < 0.3
    data = chance.randbytes(chance.choice([0, 5, 300]))
    ends = sorted(chance.randrange(len(data) + 1) for _ in range(offset + rows + 1))
    if chance.random() < 0.2:
        ends[chance.randrange(len(ends))] = chance.choice([-1, len(data) + 1, INT32_MAX])
    buffers = {
        "offset": offset,
        "wide": wide,
        "valid": chance.choice([None, chance.randbytes((offset + rows + 7) // 8)]),
        "ends": struct.pack(f"={len(ends)}{'q' if wide else 'i'}", *ends),
        "data": data,
    }
    if chance.random() < 0.05:
        name = chance.choice(["valid", "ends", "data"])
        buffers[name] = (buffers[name] or b"")[:-1]
    return buffers


def arrow_numbers(chance: random.Random, rows: int, offset: int, numbers: tuple[int, ...]) -> dict[str, Any]:
    wide = max(map(abs, numbers)) > INT32_MAX or chance.random() < 0.3
    drawn = [chance.choice(numbers) for _ in range(offset + rows)]
    return {
        "offset": offset,
        "wide": wide,
        "valid": chance.choice([None, chance.randbytes((offset + rows + 7) // 8)]),
        "data": struct.pack(f"={len(drawn)}{'q' if wide else 'i'}", *drawn),
    }


def encode_arrow_rows(module: Any, seed: int) -> Any:
    """All operations on rows of Arrow arrays, chosen by a seed: the same calls for either kernel."""
    chance = random.Random(seed)
    rows, offset, pair_count = chance.choice([1, 3, 9, 40]), chance.choice([0, 1, 8]), chance.choice([1, 4])
    keys = module.ArrowBytes(rows, **arrow_buffers(chance, rows, offset))
    values = module.ArrowBytes(rows, **arrow_buffers(chance, rows, offset))
    times = module.ArrowInts(
        rows,
        **arrow_numbers(chance, rows, offset, chance.choice([(0, -1, 999, 1000 * T), (INT64_MAX, -1), (-1001, 5)])),
    )
    pairs = [module.ArrowBytes(pair_count, **arrow_buffers(chance, pair_count, 1)) for _ in range(2)]
    ends = sorted(chance.randrange(pair_count + 1) for _ in range(offset + rows + 1))
    headers = module.ArrowHeaders(
        rows,
        offset=offset,
        wide=False,
        valid=chance.choice([None, chance.randbytes((offset + rows + 7) // 8)]),
        ends=struct.pack(f"={len(ends)}i", *ends),
        pair_offset=1,
        pair_valid=chance.choice([None, b"\xff", chance.randbytes(1)]),
        keys=pairs[0],
        values=pairs[1],
    )
    columns = module.ArrowRows(
        rows,
        key=chance.choice([None, keys]),
        value=chance.choice([None, values]),
        timestamp=chance.choice([None, times]),
        headers=chance.choice([None, headers]),
        micros=chance.random() < 0.5,
    )
    chosen = module.ArrowInts(5, **arrow_numbers(chance, 5, 2, (0, rows - 1, chance.choice([0, rows, -1]))))
    some, stop = chance.choice([(None, rows), (chosen, 5)])
    sizes = chance.choice(CODECS), chance.choice([1, 100, 500]), chance.choice([10, LIMIT])
    partitions = module.ArrowInts(rows, **arrow_numbers(chance, rows, offset, (0, 1, 2, chance.choice([2, 3, -1]))))
    steps: list[Callable[[], Any]] = [
        lambda: columns.encode(some, 0, stop, T, *sizes),
        lambda: module.partitions_of(keys, 7),
        lambda: module.group_rows(partitions, 3),
        lambda: module.filled_lists(bytearray(struct.pack(f"={len(ends)}i", *ends)), len(ends) - 1),
    ]
    return [outcome_of(step) for step in steps]


def test_both_encode_arrow_arrays_the_same(twin: Any) -> None:
    kinds = []
    for seed in range(SEED, SEED + 600):
        assert_twins(twin, partial(encode_arrow_rows, seed=seed), f"seed {seed}")
        outcome = outcome_of(partial(encode_arrow_rows, KERNEL, seed))
        # The columns were refused, or the first step was, or it produced a batch.
        first = outcome[0] if isinstance(outcome, tuple) else outcome[0][0]
        kinds.append(first if isinstance(first, str) else "batch")

    assert min(kinds.count(kind) for kind in ("batch", "InvalidRecord", "RecordTooLarge")) > 20, "all are tried"


def test_both_find_the_same_entries(twin: Any) -> None:
    def find(table: bytes, target: int, module: Any) -> Any:
        floors = module.floor_entry(table, 8, False, target), module.floor_entry(table, 12, True, target)
        return floors, module.entries_around(table, target)

    chance = random.Random(SEED)
    for _ in range(200):
        table = chance.randbytes(chance.randrange(100))
        target = chance.choice([0, 5, INT32_MAX, -1, chance.randrange(-(2**31), 2**31)])
        assert_twins(twin, partial(find, table, target), f"seed {SEED}: {table.hex()} {target}")


@pytest.mark.parametrize("size", [0, 1, 8, 2047, 2048, 2049])
def test_both_compute_the_same_crc(twin: Any, size: int) -> None:
    data = random.Random(SEED).randbytes(size)

    for initial in (0, 1, 2**32 - 1):
        assert KERNEL.crc32c(data, initial) == twin.crc32c(data, initial)


def test_twins_are_different_modules(twin: Any) -> None:
    """Otherwise all tests above prove nothing."""
    for mine, other in zip(KERNEL.modules, twin.modules, strict=True):
        assert mine.__name__ == other.__name__
        assert str(other.__file__).endswith(".py") == IS_COMPILED
        assert str(mine.__file__).endswith(".py") != IS_COMPILED
