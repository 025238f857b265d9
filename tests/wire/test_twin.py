"""The compiled and the interpreted codec have one source: they agree on every message, whole and damaged."""

from __future__ import annotations

import random
from typing import Any

import pytest

from record.test_twin import twin  # noqa: F401  a fixture
from record.twins import KERNEL
from wire.golden import read_golden
from wire.twin import outcome_text, schema_for
from wire.values import schema_named


@pytest.mark.parametrize("seed", range(3))
def test_both_decode_and_encode_the_same(twin: Any, seed: int) -> None:  # noqa: F811
    chance = random.Random(seed)
    for name, version, value, encoded in read_golden():
        schema = schema_named(name, version)
        its = schema_for(twin, schema)
        assert KERNEL.encode(schema, value) == twin.encode(its, value)
        damaged = bytearray(encoded)
        for _ in range(seed if damaged else 0):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        raw = bytes(damaged)
        mine = outcome_text(lambda schema=schema, raw=raw: KERNEL.decode(schema, raw))
        others = outcome_text(lambda its=its, raw=raw: twin.decode(its, raw))
        assert mine == others, (name, version, raw.hex())
