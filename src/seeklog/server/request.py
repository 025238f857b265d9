"""A request on its way through the server, and the table of the handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from seeklog.server.broker import Broker
from seeklog.wire.api_key import ApiKey, api_of
from seeklog.wire.codec import Struct

Response: TypeAlias = Struct | None
"""None: the request has no response, as a Produce with acks=0."""
Answer: TypeAlias = Response | Awaitable[Response]
Handler: TypeAlias = Callable[[Broker, "Request"], Answer]


@dataclass(frozen=True, slots=True)
class Request:
    """A decoded request, and where it came from."""

    message: Any
    version: int
    client_id: str | None
    peer: str
    listener: int
    """The number of the listener that the client is connected to."""


HANDLERS: Final[dict[ApiKey, Handler]] = {}
# Where Kafka announces other versions than it has messages for. librdkafka up to 2.8 asks for Produce 0 to 2 before it
# believes in the newer ones, though nobody sends them; InitProducerId 6 is unstable.
_ANNOUNCED: Final = {ApiKey.PRODUCE: range(14), ApiKey.INIT_PRODUCER_ID: range(6)}


def handles(key: ApiKey) -> Callable[[Handler], Handler]:
    """Enter a function as the handler of an API."""

    def enter(handler: Handler) -> Handler:
        assert key not in HANDLERS, f"{key.name} has two handlers"
        HANDLERS[key] = handler
        return handler

    return enter


def announced_versions(key: ApiKey) -> range:
    """Return the versions of an API that ApiVersions announces."""
    return _ANNOUNCED.get(key) or api_of(key).versions


def is_served(key: ApiKey, version: int) -> bool:
    return key in HANDLERS and version in api_of(key).versions and version in announced_versions(key)
