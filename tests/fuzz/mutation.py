"""Mutations of bytes, of numbers in text, of JSON, and of fields at fixed positions."""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Sequence
from typing import Any, Final

from fuzz.target import Scramble
from seeklog.record.crc import crc32c

ODD_BYTES: Final = (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF)
ODD_NUMBERS: Final = (
    *(-(2**63), -(2**31) - 1, -(2**31), -2, -1, 0, 1, 2, 127, 128, 255, 2**15 - 1, 2**15, 2**16),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**62, 2**63 - 1),
)
ODD_WORDS: Final = (
    *(b"-1", b"-0", b"0", b"00", b"+1", b"1_0", b" 1", b"1.5", b"1e5", b"nan", b"inf", b"0x10", b"\xd9\xa3", b""),
    *(str(number).encode() for number in (*ODD_NUMBERS, 2**63, 2**64, 10**30)),
    b"9" * 5000,
)
ODD_VALUES: Final[Sequence[Any]] = (
    *(None, True, False, [], {}, "", ".", "..", "../x", "/", "a/b", "a\0b", "\ud800", "é", "x" * 300, "0", "-1"),
    *(*ODD_NUMBERS, 2**63, 2**64, 10**30, -1.5, 1.5, 1e300, float("inf"), float("nan"), [[]], [None], {"": None}),
)
_NUMBER: Final = re.compile(rb"-?\d+")


def scrambler(chance: random.Random, *, size_most: int) -> Scramble:
    """Return a mutator of one to four places, which replaces libFuzzer's."""

    def scramble(data: bytes) -> bytes:
        damaged = bytearray(data)
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            _damage_once(damaged, chance)
        return bytes(damaged[:size_most])

    return scramble


def _damage_once(damaged: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(damaged) + 1)
    size = chance.choice((1, 1, 2, 4, 8, 32))
    kind = chance.randrange(7)
    if kind == 0 and at < len(damaged):
        damaged[at] ^= 1 << chance.randrange(8)
    elif kind == 1 and at < len(damaged):
        damaged[at] = chance.choice(ODD_BYTES)
    elif kind == 2:
        damaged[at:at] = chance.randbytes(size)
    elif kind == 3:
        del damaged[at : at + size]
    elif kind == 4:
        source = chance.randrange(len(damaged) + 1)
        damaged[at:at] = damaged[source : source + size]
    elif kind == 5:
        del damaged[at:]
    else:
        damaged[at : at + size] = chance.randbytes(size)


def put_number(data: bytes, chance: random.Random) -> bytes:
    """Return the bytes with an unusual number, big-endian, at a random position."""
    code, bits = chance.choice((("h", 16), ("i", 32), ("q", 64)))
    size = bits // 8
    if len(data) < size:
        return data
    number = chance.choice(ODD_NUMBERS)
    changed = bytearray(data)
    if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
        number = -1
    struct.pack_into(f">{code}", changed, chance.randrange(len(data) - size + 1), number)
    return bytes(changed)


def put_word(data: bytes, chance: random.Random) -> bytes:
    """Return text with one of its numbers replaced by an unusual one."""
    numbers = list(_NUMBER.finditer(data))
    if not numbers:
        return data
    one = chance.choice(numbers)
    return data[: one.start()] + chance.choice(ODD_WORDS) + data[one.end() :]


def mutate_json(data: bytes, chance: random.Random) -> bytes:
    """Return JSON with one of its values replaced, removed, or duplicated; other bytes are returned unchanged."""
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return data
    if chance.randrange(40) == 0:
        return data.replace(b"[", b"[" * 2000, 1)
    holder: dict[str, Any] = {"": tree}
    node: Any = holder
    key: Any = ""
    while isinstance(node[key], (dict, list)) and node[key] and chance.randrange(6):
        node = node[key]
        key = chance.choice(list(node)) if isinstance(node, dict) else chance.randrange(len(node))
    kind = chance.randrange(6)
    if kind == 0 and node is not holder:
        del node[key]
    elif kind == 1 and isinstance(node, list):
        node.append(node[key])
    elif kind == 2 and isinstance(node, dict):
        node[chance.choice(("x", "", "topic", "change"))] = chance.choice(ODD_VALUES)
    else:
        node[key] = chance.choice(ODD_VALUES)
    try:
        return json.dumps(holder[""]).encode("ascii")
    except (ValueError, RecursionError):
        return data


def seal_frame(data: bytes) -> bytes:
    """Return a framed text with the CRC of the lines before as its last line."""
    body = data.rpartition(b"crc32c ")[0] or data
    return body + b"crc32c %08x\n" % crc32c(body)


def mutate_frame(data: bytes, chance: random.Random, scramble: Scramble) -> bytes:
    """Damage a framed text: a number, a value of its JSON, a line, or any bytes; then usually correct its CRC."""
    kind = chance.randrange(8)
    if kind == 0:
        return scramble(data)
    first, *lines = data.rpartition(b"crc32c ")[0].splitlines() or [b""]
    at = chance.randrange(len(lines)) if lines else 0
    if kind <= 3 and lines:
        lines[at] = mutate_json(lines[at], chance)
    elif kind == 4 and lines:
        lines[at] = put_word(lines[at], chance)
    elif kind == 5 and lines:
        lines[at : at + 1] = chance.choice(([], [lines[at]] * 2, [b""]))
    elif lines:
        lines[at] = scramble(lines[at])
    else:
        first = scramble(first)
    return seal_frame(b"".join(line + b"\n" for line in (first, *lines)))
