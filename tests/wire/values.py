"""Random messages: any value in the fields that a version has, the default in all others."""

from __future__ import annotations

import random
from typing import Any, Final

from seeklog.wire import kind
from seeklog.wire.codec import Field, Schema, Struct
from seeklog.wire.table import message_named, schema_in

BITS: Final = {kind.INT8: 8, kind.INT16: 16, kind.INT32: 32, kind.INT64: 64}
TEXTS: Final = ("", "orders", "zażółć", "\N{GRINNING FACE}", "x" * 300)


def random_message(name: str, version: int, chance: random.Random) -> Struct:
    return random_struct(schema_named(name, version), chance, most=3)


def schema_named(name: str, version: int) -> Schema:
    return schema_in(message_named(name), version)


def random_struct(schema: Schema, chance: random.Random, *, most: int) -> Struct:
    """Return a structure whose arrays have at most so many elements."""
    values = {field.name: random_value(field, chance, most=most) for field in schema.fields}
    values |= {field.name: random_value(field, chance, most=most) for field in schema.tagged if chance.randrange(2)}
    return schema.type(**values)


def random_value(field: Field, chance: random.Random, *, most: int) -> Any:
    if field.is_nullable and not chance.randrange(4):
        return None
    if field.is_array:
        return [random_element(field, chance, most=max(most - 1, 1)) for _ in range(chance.randrange(most + 1))]
    return random_element(field, chance, most=most)


def random_element(field: Field, chance: random.Random, *, most: int) -> Any:
    match field.kind:
        case kind.BOOL:
            return bool(chance.randrange(2))
        case kind.UINT16:
            return chance.choice((0, 1, 0x7FFF, 0x8000, 0xFFFF))
        case kind.FLOAT64:
            return chance.choice((0.0, -1.5, 1e300))
        case kind.UUID:
            return chance.randbytes(16)
        case kind.STRING:
            return chance.choice(TEXTS)
        case kind.BYTES | kind.RECORDS:
            return chance.randbytes(chance.choice((0, 1, 127, 128, 300)))
        case kind.STRUCT:
            return random_struct(field.schema, chance, most=most)
    last = 2 ** (BITS[field.kind] - 1) - 1
    return chance.choice((0, 1, -1, last, -last - 1, chance.randint(-last, last)))
