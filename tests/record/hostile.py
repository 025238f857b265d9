"""Hostile batches made from valid ones: the seeds of the tests, the proof and the fuzzers.

Every batch has the CRC of its bytes, unless it is simply cut.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from record.batches import (
    CODECS,
    FIELDS,
    INT32_MAX,
    INT64_MAX,
    SMALL,
    SMALL_ROWS,
    Sketch,
    batch_of,
    flips,
    one_record,
    record_body,
    seal,
    sized,
    varint,
    with_field,
)
from seeklog.record.encode import stamp

EDGE_VALUES = [0, 1, 2, 3, 4, 5, 7, 13, 14, 48, 49, 50, 60, 61, 127, 128, 255, 2**15 - 1, 2**16]
EDGE_VALUES += [INT32_MAX - 12, INT32_MAX - 1, INT32_MAX, 2**32 - 1, 2**62, INT64_MAX - 3, INT64_MAX - 1, INT64_MAX]
WIDTHS = {"q": 64, "i": 32, "h": 16, "b": 8, "I": 32}


def edge_values(code: str) -> Iterator[int]:
    bits = WIDTHS[code]
    low, high = (0, 2**bits - 1) if code == "I" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    for value in sorted({*EDGE_VALUES, *(-value for value in EDGE_VALUES), low, low + 1, low + 2, high}):
        if low <= value <= high:
            yield value


# Candidates for a varint, and the number that a decoder returns (None: not a varint).
VARINTS: dict[str, tuple[bytes, int | None]] = {
    "nothing behind": (b"\x80", None),
    "eleven bytes": (b"\x80" * 10 + b"\x01", None),
    "eleven bytes of zero": (b"\x80" * 10 + b"\x00", None),
    "65 bits": (b"\xff" * 9 + b"\x02", None),
    "ten bytes that go on": (b"\xff" * 10, None),
    "smallest": (b"\xff" * 9 + b"\x01", -(2**63)),
    "largest": (b"\xfe" + b"\xff" * 8 + b"\x01", INT64_MAX),
    "int32 max": (varint(INT32_MAX), INT32_MAX),
    "int32 max + 1": (varint(INT32_MAX + 1), INT32_MAX + 1),
    "int32 min": (varint(-(2**31)), -(2**31)),
    "2**32": (varint(2**32), 2**32),
    "-1": (varint(-1), -1),
    "-2": (varint(-2), -2),
    "64": (varint(64), 64),
    "2**62": (varint(2**62), 2**62),
}
# Each varint of a record, with valid bytes before and after it.
PLACES: dict[str, Callable[[bytes], bytes]] = {
    "record length": lambda v: batch_of(v + record_body()),
    "timestamp delta": lambda v: one_record(record_body(timestamp_delta=v)),
    "offset delta": lambda v: one_record(record_body(offset_delta=v)),
    "key length": lambda v: one_record(record_body(key=v)),
    "value length": lambda v: one_record(record_body(value=v)),
    "header count": lambda v: one_record(record_body(headers=v)),
    "header key length": lambda v: one_record(record_body(headers=varint(1) + v + varint(-1))),
    "header value length": lambda v: one_record(record_body(headers=varint(1) + sized(b"h") + v)),
}
# Where a value other than zero is valid: the record that the reader returns.
LAWFUL = {
    ("timestamp delta", "int32 max"),
    ("timestamp delta", "int32 max + 1"),
    ("timestamp delta", "int32 min"),
    ("timestamp delta", "2**32"),
    ("timestamp delta", "-1"),
    ("timestamp delta", "-2"),
    ("timestamp delta", "64"),
    ("timestamp delta", "2**62"),
    ("key length", "-1"),
    ("value length", "-1"),
    ("header value length", "-1"),
}


def overclaiming_batches() -> Iterator[bytes]:
    """Batches whose lengths and counts claim far more than they contain."""
    for place in PLACES.values():
        for hostile, _ in VARINTS.values():
            yield place(hostile)
    for name in ("batch_length", "record_count", "last_delta"):
        for codec in (0, 4):
            raw = Sketch(SMALL_ROWS, base_offset=40, codec=codec).encode()
            for value in (INT32_MAX, INT32_MAX - 1, 2**30):
                yield seal(with_field(raw, name, value))
    yield seal(with_field(with_field(SMALL.encode(), "record_count", INT32_MAX), "last_delta", INT32_MAX))


def hostile_batches(*, seed: int) -> Iterator[bytes]:
    """Batches that are valid, flipped, cut, resealed, and with each field and varint at its limits."""
    for codec in CODECS:
        yield Sketch(SMALL_ROWS, base_offset=40, codec=codec).encode()
    raw = SMALL.encode()
    for _, flipped in flips(raw):
        yield seal(flipped)
    yield from (raw[:size] for size in range(len(raw)))
    for name, (_, code) in FIELDS.items():
        yield from (seal(with_field(raw, name, value)) for value in edge_values(code))
    for place in PLACES.values():
        yield from (place(varint) for varint, _ in VARINTS.values())
    yield batch_of(b"", base_offset=40, last_delta=3, record_count=0)
    yield Sketch(SMALL_ROWS, base_offset=40, attributes=0x20).encode()
    chance = random.Random(seed)
    for _ in range(200):
        damaged = bytearray(raw + stamp(raw, 44, 1))
        for _ in range(chance.randrange(1, 5)):
            damaged[chance.randrange(len(damaged))] = chance.choice([0, 1, 2, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        yield seal(bytes(damaged[: len(raw)])) + bytes(damaged[len(raw) :])
