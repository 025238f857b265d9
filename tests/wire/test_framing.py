"""Frames: sizes and headers of requests and responses."""

from __future__ import annotations

import struct

import pytest

from seeklog.errors import FrameTooLarge, MalformedMessage, UnsupportedVersion
from seeklog.wire import messages
from seeklog.wire.api_key import ApiKey, api_of
from seeklog.wire.framing import SIZE, frame_size, read_request, read_response, request_frame, response_frame
from seeklog.wire.table import definition_of, message_named, message_names


def test_every_api_has_messages_and_every_message_its_api() -> None:
    keys = {definition_of(message_named(name)).api_key for name in message_names()} - {-1}

    assert keys == {*ApiKey}
    for key in ApiKey:
        api = api_of(key)
        assert definition_of(api.response).versions == api.versions
        assert definition_of(api.response).flexible_versions == api.flexible_versions


@pytest.mark.parametrize("key", ApiKey)
def test_request_and_response_round_trip_in_every_version(key: ApiKey) -> None:
    api = api_of(key)
    for version in api.versions:
        request = b"".join(request_frame(api, version, 7, api.request(), client_id="test"))
        assert frame_size(request, limit=10_000) == len(request) - 4
        header, message = read_request(request[4:])
        assert (header.api.key, header.version, header.correlation_id, header.client_id) == (key, version, 7, "test")
        assert message == read_request(request[4:])[1]

        response = b"".join(response_frame(api, version, 7, api.response()))
        assert SIZE.unpack_from(response)[0] == len(response) - 4
        assert read_response(api, version, response[4:])[0] == 7


def test_client_id_keeps_its_short_length_in_flexible_versions() -> None:
    frame = b"".join(request_frame(api_of(ApiKey.API_VERSIONS), 3, 1, messages.ApiVersionsRequest(), client_id="ab"))

    assert frame[4:17] == struct.pack(">hhih", 18, 3, 1, 2) + b"ab\0"


def test_response_to_api_versions_has_no_tags_in_its_header() -> None:
    frame = b"".join(response_frame(api_of(ApiKey.API_VERSIONS), 3, 9, messages.ApiVersionsResponse()))

    assert frame[4:10] == struct.pack(">ih", 9, 0)


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1\r\n", b"POST", b"HELO"])
def test_frame_of_another_protocol_is_refused_by_its_letters(start: bytes) -> None:
    with pytest.raises(FrameTooLarge, match="this is not Kafka's protocol; the limit is 1,048,576 bytes"):
        frame_size(start, limit=1 << 20)


@pytest.mark.parametrize("size", [-1, 101, 2**31 - 1])
def test_frame_above_the_limit_is_refused(size: int) -> None:
    with pytest.raises(FrameTooLarge, match="the limit is 100 bytes"):
        frame_size(SIZE.pack(size), limit=100)


@pytest.mark.parametrize(("key", "version"), [(4, 0), (999, 0), (-1, 3), (1, 3), (1, 19), (18, 5)])
def test_unknown_api_or_version_is_reported_with_its_correlation_id(key: int, version: int) -> None:
    with pytest.raises(UnsupportedVersion) as raised:
        read_request(struct.pack(">hhih", key, version, 42, -1))

    assert (raised.value.api_key, raised.value.version, raised.value.correlation_id) == (key, version, 42)


@pytest.mark.parametrize("size", range(10))
def test_header_that_ends_early_is_refused(size: int) -> None:
    with pytest.raises(MalformedMessage):
        read_request(struct.pack(">hhih", 12, 0, 1, 5)[:size])


def test_bytes_after_a_request_are_ignored() -> None:
    """librdkafka sends a field of Metadata 8 to 10 in version 13."""
    frame = b"".join(request_frame(api_of(ApiKey.METADATA), 13, 1, messages.MetadataRequest()))

    assert read_request(frame[4:] + b"xyz") == read_request(frame[4:])
