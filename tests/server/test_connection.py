"""Connections: frames that arrive in any pieces, requests in order, and bytes that are not Kafka's."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from seeklog.errors import UsageError
from seeklog.record.batch import encode_batch
from seeklog.record.record import Record
from seeklog.server.endpoint import Endpoint, check_loopback, parse_endpoint
from seeklog.wire import messages
from seeklog.wire.api_key import ApiKey, api_of
from seeklog.wire.error_code import ErrorCode
from seeklog.wire.framing import request_frame
from server.serving import RawClient, Served, serving


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture
def client(served: Served) -> Iterator[RawClient]:
    with RawClient(served.bootstrap_servers) as connected:
        yield connected


def produce_request(topic: str, value: bytes, *, acks: int = 1) -> messages.ProduceRequest:
    of_topic = messages.ProduceRequest.TopicProduceData
    batch = encode_batch([Record(value, timestamp_ms=1_700_000_000_000)])
    return messages.ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[of_topic(name=topic, partition_data=[of_topic.PartitionProduceData(index=0, records=batch)])],
    )


def create(client: RawClient, topic: str) -> None:
    asked = messages.MetadataRequest(
        topics=[messages.MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True
    )
    response = client.ask(ApiKey.METADATA, 9, asked)
    assert [one.error_code for one in response.topics] == [ErrorCode.NONE]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
def test_frames_arrive_in_pieces_of_any_size(client: RawClient, size: int) -> None:
    frames = b"".join(
        bytes(part)
        for number in range(3)
        for part in request_frame(api_of(ApiKey.API_VERSIONS), 3, number, messages.ApiVersionsRequest())
    )
    for at in range(0, len(frames), size):
        client.socket.sendall(frames[at : at + size])

    assert [client.receive(ApiKey.API_VERSIONS, 3)[0] for _ in range(3)] == [0, 1, 2]


@pytest.mark.parametrize("size", [10, 60_000, 65_000, 66_000, 900_000])
def test_request_larger_than_the_buffer_arrives_whole(client: RawClient, size: int) -> None:
    topic = f"large-{size}"
    create(client, topic)
    for number in range(2):
        response = client.ask(ApiKey.PRODUCE, 9, produce_request(topic, bytes(size)))
        (answer,) = response.responses[0].partition_responses
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, number)


def test_many_requests_at_once_are_answered_in_order(client: RawClient) -> None:
    create(client, "order")
    kinds = [
        (ApiKey.PRODUCE, 9, produce_request("order", b"x")),
        (ApiKey.API_VERSIONS, 3, messages.ApiVersionsRequest()),
    ]
    sent = [(client.send(*kinds[number % 2]), kinds[number % 2]) for number in range(400)]

    for correlation_id, (key, version, _) in sent:
        assert client.receive(key, version)[0] == correlation_id


def test_produce_without_acks_has_no_response(client: RawClient) -> None:
    create(client, "silent")
    client.send(ApiKey.PRODUCE, 9, produce_request("silent", b"x", acks=0))

    response = client.ask(ApiKey.PRODUCE, 9, produce_request("silent", b"y"))

    assert response.responses[0].partition_responses[0].base_offset == 1


def test_api_versions_of_an_unknown_version_is_answered_in_version_0(client: RawClient) -> None:
    client.socket.sendall(struct.pack(">ihhih", 10, 18, 99, 7, -1))

    correlation_id, response = client.receive(ApiKey.API_VERSIONS, 0)

    assert (correlation_id, response.error_code) == (7, ErrorCode.UNSUPPORTED_VERSION)
    versions = {one.api_key: (one.min_version, one.max_version) for one in response.api_keys}
    assert versions[ApiKey.PRODUCE] == (0, 13)
    assert versions[ApiKey.INIT_PRODUCER_ID] == (0, 5)


@pytest.mark.parametrize(
    "hostile",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        struct.pack(">i", -1),
        struct.pack(">i", 2**31 - 1),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 1, 3, 1, -1),
        struct.pack(">ihhi", 8, 12, 0, 1),
        struct.pack(">i", 4) + b"abcd",
    ],
    ids=["http", "negative", "huge", "unknown-api", "old-version", "no-client-id", "no-header"],
)
def test_bytes_that_are_not_a_request_close_the_connection(served: Served, hostile: bytes) -> None:
    with RawClient(served.bootstrap_servers) as client:
        client.socket.sendall(hostile)
        assert client.is_closed()


def test_stop_answers_a_fetch_that_waits(tmp_path: Path) -> None:
    with serving(tmp_path) as running, RawClient(running.bootstrap_servers) as client:
        create(client, "quiet")
        topic = messages.FetchRequest.FetchTopic
        asked = messages.FetchRequest(
            max_wait_ms=600_000,
            min_bytes=1,
            topics=[topic(topic="quiet", partitions=[topic.FetchPartition(partition=0, partition_max_bytes=1000)])],
        )
        client.send(ApiKey.FETCH, 11, asked)
        running.stop()
        _, response = client.receive(ApiKey.FETCH, 11)
        assert [one.records for one in response.responses[0].partitions] == [b""]
        assert client.is_closed()


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("127.0.0.1:9092", Endpoint("127.0.0.1", 9092)),
        ("[::1]:0", Endpoint("::1", 0)),
        ("localhost:1", Endpoint("localhost", 1)),
    ],
)
def test_address_is_parsed_and_shown_the_same(text: str, endpoint: Endpoint) -> None:
    assert parse_endpoint(text) == endpoint
    assert str(endpoint) == text
    check_loopback(endpoint)


@pytest.mark.parametrize("text", ["", "9092", ":9092", "localhost", "localhost:", "localhost:65536", "localhost:x"])
def test_text_that_is_not_an_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write HOST:PORT"):
        parse_endpoint(text)


@pytest.mark.parametrize("text", ["0.0.0.0:9092", "192.0.2.1:9092", "[::]:9092", "example.org:9092"])
def test_address_that_other_machines_reach_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="can be reached from other machines"):
        check_loopback(parse_endpoint(text))
