"""The messages of Kafka's protocol: `messages.FetchRequest` is a class, created from `tables.txt` on first use.

A message is a named tuple with the fields of all versions. What a version lacks has its default after decoding, and is
left out when encoding. Structures inside a message are classes inside its class:
`FetchRequest.FetchTopic.FetchPartition`. `messages.pyi` tells type checkers about them.
"""

from __future__ import annotations

from seeklog.wire.codec import Struct
from seeklog.wire.table import message_named


def __getattr__(name: str) -> type[Struct]:
    try:
        return message_named(name)
    except KeyError:
        raise AttributeError(f"{name!r} is not among the messages of Kafka that seeklog uses") from None
