"""One client's connection: frames in, responses out, one request at a time and in order, as a Kafka broker does it.

Frames are parsed where they were received. A frame that is larger than the buffer gets one of its own, so that its
bytes are received once and never moved. While a request waits, for a sync or for records, nothing more is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

from seeklog.errors import ProtocolError
from seeklog.log import Slice
from seeklog.wire.framing import SIZE, frame_size

logger = logging.getLogger("seeklog")

BUFFER_SIZE: Final = 64 << 10
# Parts up to this size are joined: a call of the system for each costs more than the copy.
JOINED_MAX: Final = 64 << 10

Parts: TypeAlias = Sequence[Any]
"""The buffers of one response: bytes, and slices of files."""
FrameAnswer: TypeAlias = Parts | Awaitable[Parts | None] | None
"""A response, now or later; None for a request that has no response."""
Handle: TypeAlias = Callable[["Connection", memoryview], FrameAnswer]


class Connection(asyncio.BufferedProtocol):
    """Receives the frames of one client and sends the responses."""

    def __init__(self, handle: Handle, *, max_request_bytes: int, on_close: Callable[[Connection], None]) -> None:
        self._handle = handle
        self._max_request_bytes = max_request_bytes
        self._on_close = on_close
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(BUFFER_SIZE)
        self._view = memoryview(self._buffer)
        # The bytes of the buffer that are received and not parsed yet.
        self._start = self._end = 0
        # A frame that is larger than the buffer, and how much of it is there.
        self._large: bytearray | None = None
        self._large_size = 0
        self._running: asyncio.Task[None] | None = None
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._is_ending = False
        self.peer = ""

    # ------------------------------------------------------------ asyncio's calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        host, port, *_ = transport.get_extra_info("peername") or ("", 0)
        self.peer = f"{host}:{port}"

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._large is not None:
            return memoryview(self._large)[self._large_size :]
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._large is not None:
            self._large_size += nbytes
        else:
            self._end += nbytes
        self._serve()

    def pause_writing(self) -> None:
        self._can_write.clear()

    def resume_writing(self) -> None:
        self._can_write.set()

    def connection_lost(self, error: Exception | None) -> None:
        if self._running is not None:
            self._running.cancel()
        self._can_write.set()
        self._on_close(self)

    # ------------------------------------------------------------ frames

    def _serve(self) -> None:
        """Handle the complete frames, until one has to wait."""
        try:
            while self._running is None and not self._is_ending and (frame := self._next_frame()) is not None:
                answer = self._handle(self, frame)
                if isinstance(answer, Awaitable):
                    self._pause(answer)
                elif answer is not None:
                    self._send(answer)
                if not self._can_write.is_set() and self._running is None:
                    self._pause(self._drained())
        except ProtocolError as error:
            self._refuse(error)

    def _next_frame(self) -> memoryview | None:
        """Return the next complete frame without its size. Its bytes stay until the request is answered."""
        if self._large is not None:
            if self._large_size < len(self._large):
                return None
            large, self._large = self._large, None
            return memoryview(large)[SIZE.size :]
        received = self._end - self._start
        if received < SIZE.size:
            self._make_room(SIZE.size)
            return None
        size = SIZE.size + frame_size(self._view[self._start : self._start + SIZE.size], limit=self._max_request_bytes)
        if received >= size:
            frame = self._view[self._start + SIZE.size : self._start + size]
            self._start += size
            return frame
        if size > BUFFER_SIZE:
            self._large = bytearray(size)
            self._large[:received] = self._view[self._start : self._end]
            self._large_size = received
            self._start = self._end = 0
        else:
            self._make_room(size)
        return None

    def _make_room(self, size: int) -> None:
        """Move the unparsed bytes to the start of the buffer if a frame of this size does not fit behind them."""
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start + size > BUFFER_SIZE:
            rest = bytes(self._view[self._start : self._end])
            self._view[: len(rest)] = rest
            self._start, self._end = 0, len(rest)

    def _pause(self, answer: Awaitable[Parts | None]) -> None:
        assert self._transport is not None
        self._transport.pause_reading()
        self._running = asyncio.ensure_future(self._finish(answer))

    async def _finish(self, answer: Awaitable[Parts | None]) -> None:
        """Send an answer when it is there, and go on with the next request."""
        try:
            parts = await answer
            if parts is not None:
                self._send(parts)
            await self._can_write.wait()
        except ProtocolError as error:
            self._refuse(error)
        except Exception:
            logger.exception("%s: closing the connection after an unexpected error", self.peer)
            self.close()
        finally:
            self._running = None
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
            self._serve()

    async def _drained(self) -> None:
        await self._can_write.wait()

    def _send(self, parts: Parts) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        whole = [part.read() if isinstance(part, Slice) else part for part in parts]
        if len(whole) == 1:
            transport.write(whole[0])
        elif sum(map(len, whole)) <= JOINED_MAX:
            transport.write(b"".join(whole))
        else:
            for part in whole:
                transport.write(part)

    def _refuse(self, error: ProtocolError) -> None:
        logger.warning("%s: closing the connection: %s", self.peer, error)
        self.close()

    async def finish(self) -> None:
        """Answer the request in progress, and close."""
        self._is_ending = True
        if self._running is not None:
            await asyncio.wait([self._running])
        self.close()

    def close(self) -> None:
        """Close the connection once what was sent is delivered."""
        if self._transport is not None:
            with contextlib.suppress(OSError):
                self._transport.close()
