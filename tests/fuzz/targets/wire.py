"""Kafka's messages, as a client could send them damaged: two bytes choose the message and its version."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from fuzz.mutation import put_number
from fuzz.target import Broken, Scramble, Target, enter
from fuzz.targets.batches import twin
from seeklog.wire.api_key import ApiKey, api_of
from seeklog.wire.codec import Schema, decode, encode
from seeklog.wire.framing import read_request
from wire.twin import outcome_text
from wire.twin import schema_for as twin_schema
from wire.values import random_message

_KEYS: Final = tuple(ApiKey)


def schema_for(data: bytes) -> Schema:
    """Return the request or the response that the first two bytes choose."""
    first, second = data[:2]
    api = api_of(_KEYS[first % len(_KEYS)])
    version = api.versions[(second >> 1) % len(api.versions)]
    return api.response_schema(version) if second & 1 else api.request_schema(version)


def message_seeds() -> Iterator[bytes]:
    chance = random.Random(1)
    for number, key in enumerate(_KEYS):
        api = api_of(key)
        for at, version in enumerate(api.versions):
            for is_response, name in enumerate((api.request.__name__, api.response.__name__)):
                choice = bytes((number, at << 1 | is_response))
                yield choice + encode(schema_for(choice), random_message(name, version, chance))


def read_message(data: bytes) -> None:
    if len(data) < 2:
        return
    schema = schema_for(data)
    found, end = decode(schema, data, 2)
    if end > len(data):
        raise Broken(f"the message ends at {end} of {len(data)} bytes")
    # Unknown tags are left out, so the bytes may differ; the values may not.
    again, _ = decode(schema, encode(schema, found))
    if again != found and repr(again) != repr(found):
        raise Broken(f"{found} is {again} after encoding it")


def read_message_by_twins(data: bytes) -> None:
    """Let both forms of the codec decode the bytes. The interpreted one tells libFuzzer which inputs are new."""
    if len(data) < 2:
        return
    schema = schema_for(data)
    mine = outcome_text(lambda: decode(schema, data, 2))
    others = outcome_text(lambda: twin().decode(twin_schema(twin(), schema), data, 2))
    if mine != others:
        raise Broken(f"{mine[:120]} but the twin {others[:120]}")


def frame_seeds() -> Iterator[bytes]:
    for key in _KEYS:
        api = api_of(key)
        for version in (api.versions[0], api.versions[-1]):
            header = int(key).to_bytes(2) + version.to_bytes(2) + bytes(4) + b"\0\2ab"
            tags = b"\0" if api.is_flexible(version) else b""
            yield header + tags + encode(api.request_schema(version), api.request())


def mutate(data: bytes, chance: random.Random, scramble: Scramble) -> bytes:
    return put_number(data, chance) if chance.randrange(3) == 0 else scramble(data)


enter(Target("message_twins", read_message_by_twins, message_seeds, mutate, bytes, size_most=4096, is_timed=False))
enter(Target("message", read_message, message_seeds, mutate, bytes, size_most=4096))
enter(Target("request", read_request, frame_seeds, mutate, bytes, size_most=2048))
