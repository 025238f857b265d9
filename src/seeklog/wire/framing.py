"""Frames: a request or a response between its size and the next frame.

    0  size            int32   of all that follows
    4  header                  request: api_key int16, version int16, correlation_id int32, client_id string,
                               and in flexible versions tagged fields
                               response: correlation_id int32, and in flexible versions tagged fields
    …  message

The client id keeps its 16-bit length in flexible versions. The header of a response to ApiVersions never has tagged
fields, because a client that asks does not know yet what the broker understands.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

from seeklog.errors import FrameTooLarge, MalformedMessage, UnsupportedVersion
from seeklog.wire import messages
from seeklog.wire.api_key import Api, ApiKey, api_of
from seeklog.wire.codec import Schema, Struct, decode, encode_parts
from seeklog.wire.table import schema_in

SIZE: Final = struct.Struct(">i")
_REQUEST_START: Final = struct.Struct(">hhi")
_RESPONSE_START: Final = struct.Struct(">ii")
_API_KEYS: Final = frozenset(ApiKey)


class RequestHeader(NamedTuple):
    """What a request begins with, and the position of its message in the frame."""

    api: Api
    version: int
    correlation_id: int
    client_id: str | None
    message_at: int


def frame_size(data: bytes | bytearray | memoryview, *, limit: int) -> int:
    """Return the size that a frame begins with, without the four bytes of the size itself. Raises `FrameTooLarge`."""
    (size,) = SIZE.unpack_from(data)
    if 0 <= size <= limit:
        return int(size)
    # Clients of other protocols connect too: the first letters of their text are read as a size.
    shown = bytes(data[: SIZE.size])
    said = ""
    if shown.isascii() and shown.decode().isprintable():
        said = f", the text {shown.decode()!r}: this is not Kafka's protocol"
    raise FrameTooLarge(f"a frame of {size:,} bytes{said}; the limit is {limit:,} bytes")


def read_request_header(frame: bytes | bytearray | memoryview) -> RequestHeader:
    """Return the header of a request, from a frame without its size.

    Raises `UnsupportedVersion` for an API or a version that is not in the tables, `MalformedMessage` for other bytes.
    """
    if len(frame) < _REQUEST_START.size:
        raise MalformedMessage(f"a request of {len(frame)} bytes has no header")
    key, version, correlation_id = _REQUEST_START.unpack_from(frame)
    if key not in _API_KEYS:
        raise UnsupportedVersion(
            f"the API key {key} is unknown", api_key=key, version=version, correlation_id=correlation_id
        )
    api = api_of(ApiKey(key))
    if version not in api.versions:
        raise UnsupportedVersion(
            f"{api.key.stem} has versions {api.versions[0]} to {api.versions[-1]}, not {version}",
            api_key=key,
            version=version,
            correlation_id=correlation_id,
        )
    header, message_at = decode(_request_header_schema(api.is_flexible(version)), frame)
    return RequestHeader(api, version, correlation_id, header.client_id, message_at)


def read_request(frame: bytes | bytearray | memoryview) -> tuple[RequestHeader, Any]:
    """Return the header and the message of a request. Its records are views of the frame.

    Bytes after the message are ignored, as Kafka ignores them: librdkafka sends a field of Metadata 8 to 10 in later
    versions, too.
    """
    header = read_request_header(frame)
    message, _ = decode(header.api.request_schema(header.version), frame, header.message_at)
    return header, message


def response_frame(api: Api, version: int, correlation_id: int, message: Struct) -> list[Any]:
    """Return the buffers of a response, its size first. Records are buffers as they are."""
    has_tags = api.is_flexible(version) and api.key is not ApiKey.API_VERSIONS
    head = _RESPONSE_START.pack(0, correlation_id) + (b"\0" if has_tags else b"")
    return _with_size(encode_parts(api.response_schema(version), message, head))


def request_frame(
    api: Api, version: int, correlation_id: int, message: Struct, *, client_id: str | None = None
) -> list[Any]:
    """Return the buffers of a request, its size first: the client's side, for the tests and for followers."""
    is_flexible = api.is_flexible(version)
    fields = messages.RequestHeader(
        request_api_key=api.key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    (head,) = encode_parts(_request_header_schema(is_flexible), fields, bytes(SIZE.size))
    return _with_size(encode_parts(api.request_schema(version), message, head))


def read_response(api: Api, version: int, frame: bytes | bytearray | memoryview) -> tuple[int, Any]:
    """Return the correlation id and the message of a response, from a frame without its size."""
    has_tags = api.is_flexible(version) and api.key is not ApiKey.API_VERSIONS
    schema = schema_in(messages.ResponseHeader, int(has_tags))
    header, message_at = decode(schema, frame)
    message, end = decode(api.response_schema(version), frame, message_at)
    if end != len(frame):
        raise MalformedMessage(f"the response to {api.key.stem} v{version} ends at byte {end} of {len(frame)}")
    return header.correlation_id, message


def _request_header_schema(is_flexible: bool) -> Schema:
    return schema_in(messages.RequestHeader, 2 if is_flexible else 1)


def _with_size(parts: list[Any]) -> list[Any]:
    """Put the size of all parts into the first four bytes."""
    size = sum(map(len, parts)) - SIZE.size
    parts[0] = SIZE.pack(size) + parts[0][SIZE.size :]
    return parts
