"""A server in a thread of its own, as the tests of clients need it, and raw connections to it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import seeklog
from seeklog.server import Server
from seeklog.wire.api_key import ApiKey, api_of
from seeklog.wire.codec import Struct
from seeklog.wire.framing import read_response, request_frame

PATIENCE_S = 30.0


class Served:
    """A running server."""

    def __init__(self, server: Server, loop: asyncio.AbstractEventLoop) -> None:
        self.server = server
        self.loop = loop
        self.bootstrap_servers = server.bootstrap_servers

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self.server.stop(), self.loop).result(PATIENCE_S)


@contextlib.contextmanager
def serving(directory: Path, *, rebalance_delay_s: float = 0.0, **options: Any) -> Iterator[Served]:
    """Serve a store on a free port of the loopback."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        with seeklog.open(directory) as store:
            options = {"listen": ["127.0.0.1:0"], **options}
            server = Server(store, initial_rebalance_delay_s=rebalance_delay_s, **options)
            asyncio.run_coroutine_threadsafe(server.start(), loop).result(PATIENCE_S)
            served = Served(server, loop)
            try:
                yield served
            finally:
                served.stop()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE_S)
        loop.close()


class RawClient:
    """Sends requests and reads responses, one frame at a time."""

    def __init__(self, bootstrap_servers: str) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        self._correlation_id = 0

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, key: ApiKey, version: int, message: Struct) -> int:
        self._correlation_id += 1
        frame = request_frame(api_of(key), version, self._correlation_id, message, client_id="raw")
        self.socket.sendall(b"".join(bytes(part) for part in frame))
        return self._correlation_id

    def receive(self, key: ApiKey, version: int) -> tuple[int, Any]:
        return read_response(api_of(key), version, self.receive_frame())

    def ask(self, key: ApiKey, version: int, message: Struct) -> Any:
        correlation_id = self.send(key, version, message)
        answered, response = self.receive(key, version)
        assert answered == correlation_id
        return response

    def receive_frame(self) -> bytes:
        return self._exactly(int.from_bytes(self._exactly(4)))

    def is_closed(self) -> bool:
        """Return whether the server has closed the connection. Waits for it."""
        return self.socket.recv(1) == b""

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise EOFError(f"the connection ends after {len(data)} of {size} bytes")
            data += part
        return data
