"""librdkafka's mock cluster on 127.0.0.1, and the two requests that move raw batches in and out.

The mock stores batches unchanged, except that it stamps base offset and leader epoch like a broker. So a Fetch returns
a batch as librdkafka wrote it, and after a Produce librdkafka reads a batch as seeklog wrote it.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Producer

if TYPE_CHECKING:
    from types import TracebackType

TIMEOUT_S: Final = 10.0
PRODUCE, PRODUCE_VERSION = 0, 3  # the oldest version that carries v2 batches
FETCH, FETCH_VERSION = 1, 4  # likewise
FETCH_MAX_BYTES: Final = 16 << 20


class MockBroker:
    """A broker that runs while the object is open."""

    def __init__(self) -> None:
        # log_level 3: errors only. The mock announces itself at 5.
        self._owner = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "", "log_level": 3})
        (broker,) = self._owner.list_topics(timeout=TIMEOUT_S).brokers.values()
        self.bootstrap: str = f"{broker.host}:{broker.port}"
        self._socket = socket.create_connection((broker.host, broker.port), timeout=TIMEOUT_S)
        self._correlation_id = 0

    def __enter__(self) -> MockBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        del self._owner

    def client_config(self, **settings: Any) -> dict[str, Any]:
        """Return the configuration of a client of this broker; underscores stand for dots."""
        config = {"bootstrap.servers": self.bootstrap, "log_level": 3}
        return config | {word.replace("_", "."): value for word, value in settings.items()}

    def create_topic(self, topic: str) -> None:
        """Create a topic by a request for the metadata of an unknown topic."""
        self._owner.list_topics(topic, timeout=TIMEOUT_S)

    def produce(self, topic: str, raw: bytes) -> int:
        """Append raw batches to partition 0 and return their base offset."""
        partition = struct.pack(">iii", 1, 0, len(raw)) + raw
        body = struct.pack(">hhi", -1, -1, 5000) + struct.pack(">i", 1) + _string(topic) + partition
        answer = self._call(PRODUCE, PRODUCE_VERSION, body)
        # One topic, its name, one partition, its number; then the fields used here.
        error, base_offset = struct.unpack_from(">hq", answer, 4 + 2 + len(topic) + 4 + 4)
        assert error == 0, f"Produce answered with error {error}"
        return int(base_offset)

    def fetch(self, topic: str, offset: int = 0) -> bytes:
        """Return the raw batches of partition 0 from `offset` on, as many as one response has."""
        body = struct.pack(">iiiib", -1, 100, 1, FETCH_MAX_BYTES, 0)
        body += struct.pack(">i", 1) + _string(topic) + struct.pack(">iiqi", 1, 0, offset, FETCH_MAX_BYTES)
        answer = self._call(FETCH, FETCH_VERSION, body)
        # Throttle time, one topic, its name, one partition, its number.
        position = 4 + 4 + 2 + len(topic) + 4 + 4
        error, _high_watermark, _last_stable, aborted_count = struct.unpack_from(">hqqi", answer, position)
        assert error == 0, f"Fetch answered with error {error}"
        position += 22 + max(aborted_count, 0) * 16
        (size,) = struct.unpack_from(">i", answer, position)
        return answer[position + 4 : position + 4 + max(size, 0)]

    def fetch_all(self, topic: str, *, end_offset: int) -> bytes:
        """Return every raw batch of partition 0 below `end_offset`."""
        raw, offset = b"", 0
        while offset < end_offset:
            more = self.fetch(topic, offset)
            assert more, f"no batch at offset {offset}"
            raw += more
            offset = next_offset(more)
        return raw

    def _call(self, api: int, version: int, body: bytes) -> bytes:
        self._correlation_id += 1
        request = struct.pack(">hhi", api, version, self._correlation_id) + _string("interop") + body
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", self._receive(4))
        answer = self._receive(size)
        assert struct.unpack_from(">i", answer) == (self._correlation_id,)
        return answer[4:]

    def _receive(self, size: int) -> bytes:
        parts = []
        while size:
            part = self._socket.recv(size)
            assert part, "the broker closed the connection"
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def next_offset(raw: bytes) -> int:
    """Return the offset after the last batch in `raw`."""
    position = 0
    while position < len(raw):
        base_offset, length = struct.unpack_from(">qi", raw, position)
        (last_offset_delta,) = struct.unpack_from(">i", raw, position + 23)
        position += 12 + length
    return int(base_offset + last_offset_delta + 1)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()
