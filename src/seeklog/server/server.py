"""`Server`: Kafka's protocol over a store, for the clients on this machine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from seeklog.config import DEFAULT_PARTITIONS
from seeklog.errors import UnsupportedVersion, UsageError
from seeklog.server import handlers
from seeklog.server.broker import Broker, Settings
from seeklog.server.connection import Connection, FrameAnswer, Parts
from seeklog.server.endpoint import Endpoint, check_loopback, parse_endpoint
from seeklog.server.request import HANDLERS, Request, is_served
from seeklog.wire.api_key import Api, ApiKey, api_of
from seeklog.wire.error_code import ErrorCode
from seeklog.wire.framing import read_request, response_frame

if TYPE_CHECKING:
    from seeklog.store import Store

logger = logging.getLogger("seeklog")

DEFAULT_LISTEN: Final = ("127.0.0.1:9092", "[::1]:9092")
BACKLOG: Final = 128
assert handlers  # entering them is all that importing them is for


class Server:
    """Serves a store to Kafka clients. Use it as an async context manager, in one event loop."""

    def __init__(
        self,
        store: Store,
        *,
        listen: Sequence[str] = DEFAULT_LISTEN,
        advertise: Sequence[str] = (),
        auto_create_topics: bool = True,
        partitions: int = DEFAULT_PARTITIONS,
        initial_rebalance_delay_s: float = 3.0,
    ) -> None:
        if store.read_only:
            raise UsageError(f"{store.location} is open read-only; open it without read_only to serve it")
        self._listen = [parse_endpoint(text) for text in listen]
        for endpoint in self._listen:
            check_loopback(endpoint)
        self._advertise = [parse_endpoint(text) for text in advertise]
        settings = Settings(
            auto_create_topics=auto_create_topics,
            partitions=partitions,
            initial_rebalance_delay_s=initial_rebalance_delay_s,
        )
        self.broker = Broker(store, cluster_id="seeklog", settings=settings)
        self._servers: list[asyncio.Server] = []
        self._connections: set[Connection] = set()

    @property
    def endpoints(self) -> list[Endpoint]:
        """Where the server listens."""
        found = []
        for server in self._servers:
            host, port, *_ = server.sockets[0].getsockname()
            found.append(Endpoint(host, port))
        return found

    @property
    def bootstrap_servers(self) -> str:
        """The addresses in the form that Kafka clients take."""
        return ",".join(map(str, self.broker.endpoints))

    async def start(self) -> None:
        """Listen. Port 0 is any free port."""
        loop = asyncio.get_running_loop()
        for number, endpoint in enumerate(self._listen):
            make = partial(self._connection, number)
            server = await loop.create_server(make, endpoint.host, endpoint.port, backlog=BACKLOG)
            self._servers.append(server)
        self.broker.endpoints = self._advertise or self.endpoints
        logger.info("serving %s at %s", self.broker.store.location, ", ".join(map(str, self.endpoints)))

    async def stop(self) -> None:
        """Answer the requests that wait, close every connection, and stop listening."""
        for server in self._servers:
            server.close()
        self.broker.stop_waiting()
        await asyncio.gather(*(connection.finish() for connection in tuple(self._connections)))
        for server in self._servers:
            await server.wait_closed()
        self.broker.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _connection(self, listener: int) -> Connection:
        connection = Connection(
            partial(self._handle, listener),
            max_request_bytes=self.broker.settings.max_request_bytes,
            on_close=self._connections.discard,
        )
        self._connections.add(connection)
        return connection

    def _handle(self, listener: int, connection: Connection, frame: memoryview) -> FrameAnswer:
        try:
            header, message = read_request(frame)
        except UnsupportedVersion as error:
            if error.api_key != ApiKey.API_VERSIONS:
                raise
            # The client does not know yet what is announced: version 0 of the response tells every client (KIP-511).
            response = handlers.versions.versions_response(ErrorCode.UNSUPPORTED_VERSION)
            return response_frame(api_of(ApiKey.API_VERSIONS), 0, error.correlation_id, response)
        api, version = header.api, header.version
        if not is_served(api.key, version):
            raise UnsupportedVersion(
                f"{api.key.stem} v{version} is not served",
                api_key=api.key,
                version=version,
                correlation_id=header.correlation_id,
            )
        request = Request(message, version, header.client_id, connection.peer, listener)
        answer = HANDLERS[api.key](self.broker, request)
        if isinstance(answer, Awaitable):
            return _framed(api, version, header.correlation_id, answer)
        return None if answer is None else response_frame(api, version, header.correlation_id, answer)


async def _framed(api: Api, version: int, correlation_id: int, answer: Awaitable[Any]) -> Parts | None:
    response = await answer
    return None if response is None else response_frame(api, version, correlation_id, response)
