"""Addresses: where a server listens, and where it tells clients to connect."""

from __future__ import annotations

from typing import NamedTuple

from seeklog.errors import UsageError

LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


class Endpoint(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_endpoint(text: str) -> Endpoint:
    """Return the endpoint of `HOST:PORT` or `[IPV6]:PORT`. Raises `UsageError`."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{text!r} is not an address; write HOST:PORT, for example 127.0.0.1:9092")
    return Endpoint(host, int(port))


def check_loopback(endpoint: Endpoint) -> None:
    """Refuse an address that other machines can reach: a connection is neither encrypted nor authenticated."""
    if endpoint.host not in LOOPBACK:
        raise UsageError(
            f"{endpoint} can be reached from other machines, and connections are not encrypted; listen on 127.0.0.1"
        )
