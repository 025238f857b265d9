"""The options key and keys: whose latest records a batch reads, instead of all."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from seeklog.errors import InvalidConfig
from seeklog.spark.option_map import Words, wrong

KEYS_SHAPE: Final = 'a JSON list of keys: ["anna", "bob"], or {"base64": "AP8="} for one that is no text'
_BATCH_ONLY: Final = "it is for spark.read: the latest record of a key is found once, not followed"
KEY_WORDS: Final = ("key", "keys")
NOT_FOR_STREAMS: Final = dict.fromkeys(KEY_WORDS, _BATCH_ONLY)


def parse_keys(words: Words) -> tuple[bytes, ...]:
    """Return the keys whose latest records are wanted, each once; none if the options name none: then all are read."""
    key, several = words.text("key"), words.json("keys", shape=KEYS_SHAPE)
    if key is not None and several is not None:
        raise InvalidConfig("options key and keys both say what is looked for; give one of them")
    if key is not None:
        return (key.encode(),)
    if several is None:
        return ()
    if not isinstance(several, list) or not several:
        raise wrong("keys", words.text("keys"), KEYS_SHAPE)
    return tuple(dict.fromkeys(_key(one) for one in several))


def _key(one: Any) -> bytes:
    if isinstance(one, str):
        return one.encode("utf-8", "surrogatepass")
    if isinstance(one, dict) and list(one) == ["base64"] and isinstance(one["base64"], str):
        try:
            return base64.b64decode(one["base64"], validate=True)
        except (binascii.Error, ValueError):
            pass
    raise wrong("keys", one, KEYS_SHAPE)
