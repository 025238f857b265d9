"""The codec of Kafka's messages, compared with Kafka's own classes, with kafka-python, and with itself interpreted."""

from __future__ import annotations

import contextlib
import importlib
import pickle
import pkgutil
import random
import re
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka.protocol
import pytest
from kafka.protocol.api_message import ApiMessage

import seeklog.wire
from seeklog.errors import MalformedMessage, UsageError
from seeklog.wire import kind, messages
from seeklog.wire.codec import MAX_ELEMENTS, Schema, decode, encode, encode_parts
from seeklog.wire.table import definition_of, message_named, message_names, schema_in
from wire.golden import VERSIONS_MOST, read_golden
from wire.values import random_message, schema_named

GOLDEN = list(read_golden())
# kafka-python turns these numbers into sets.
BIT_FIELDS = re.compile(r"(\w+_)?authorized_operations")


def named(message: str) -> Iterator[tuple[int, Any, bytes]]:
    return ((version, value, encoded) for name, version, value, encoded in GOLDEN if name == message)


@pytest.mark.parametrize("name", message_names())
def test_message_has_the_bytes_of_kafkas_own_class(name: str) -> None:
    versions = set()
    for version, value, encoded in named(name):
        schema = schema_named(name, version)
        assert encode(schema, value) == encoded
        decoded, end = decode(schema, encoded)
        assert end == len(encoded)
        assert encode(schema, decoded) == encoded
        versions.add(version)
    assert versions == {*definition_of(message_named(name)).versions[:VERSIONS_MOST]}


@pytest.mark.parametrize("name", message_names())
def test_message_that_ends_anywhere_is_refused(name: str) -> None:
    for version, _, encoded in named(name):
        schema = schema_named(name, version)
        for size in range(0, len(encoded), 1 + len(encoded) // 50):
            with pytest.raises(MalformedMessage):
                decode(schema, encoded[:size])


@pytest.mark.parametrize("seed", range(4))
def test_damaged_message_is_decoded_or_refused(seed: int) -> None:
    """Goal: no damage raises anything but the declared error, and none lets the decoder read past the end."""
    chance = random.Random(seed)
    for name, version, _, encoded in GOLDEN:
        if not encoded:
            continue
        damaged = bytearray(encoded)
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        try:
            _, end = decode(schema_named(name, version), bytes(damaged))
        except MalformedMessage:
            continue
        assert end <= len(damaged)


# ---------------------------------------------------------------- kafka-python


def _kafka_python_messages() -> dict[str, Any]:
    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if ".old" not in module.name:
            importlib.import_module(module.name)
    found, open_classes = {}, [ApiMessage]
    while open_classes:
        open_classes += (one := open_classes.pop()).__subclasses__()
        found[one.__name__] = one
    return found


def _as_theirs(container: Any, value: Any, schema: Schema, version: int) -> dict[str, Any]:
    fields = {}
    for field in (*schema.fields, *schema.tagged):
        item = getattr(value, field.name)
        if BIT_FIELDS.fullmatch(field.name) or (field.tag >= 0 and (item == field.default or item == [])):
            continue
        theirs = container.fields[field.name]
        if item is not None and field.kind == kind.STRUCT:
            made = [
                theirs.data_class(version=version, **_as_theirs(theirs, one, field.schema, version))
                for one in (item if field.is_array else [item])
            ]
            item = made if field.is_array else made[0]
        elif item is not None and field.kind == kind.UUID:
            item = [uuid.UUID(bytes=one) for one in item] if field.is_array else uuid.UUID(bytes=item)
        fields[field.name] = item
    return fields


def test_message_has_the_bytes_of_kafka_python() -> None:
    theirs = _kafka_python_messages()
    chance = random.Random(1)
    compared = 0
    for name in message_names():
        for version in definition_of(message_named(name)).versions[:VERSIONS_MOST]:
            schema = schema_named(name, version)
            if name not in theirs or version > theirs[name].max_version or _has_bit_fields(schema):
                continue
            value = random_message(name, version, chance)
            fields = _as_theirs(theirs[name]._struct, value, schema, version)
            assert encode(schema, value) == bytes(theirs[name](version=version, **fields).encode(version=version))
            compared += 1
    assert compared > 400


def _has_bit_fields(schema: Schema) -> bool:
    return any(
        BIT_FIELDS.fullmatch(field.name) or (field.kind == kind.STRUCT and _has_bit_fields(field.schema))
        for field in schema.fields
    )


# ---------------------------------------------------------------- one behaviour each


def test_records_are_a_view_of_the_frame() -> None:
    schema = schema_in(messages.ProduceRequest, 9)
    topic = messages.ProduceRequest.TopicProduceData
    partition = topic.PartitionProduceData(index=3, records=b"batches")
    frame = encode(
        schema, messages.ProduceRequest(acks=-1, topic_data=[topic(name="orders", partition_data=[partition])])
    )

    found = decode(schema, frame)[0].topic_data[0].partition_data[0].records

    assert isinstance(found, memoryview)
    assert found.obj is frame
    assert found == b"batches"


def test_large_records_are_sent_as_they_are() -> None:
    schema = schema_in(messages.FetchResponse, 12)
    topic = messages.FetchResponse.FetchableTopicResponse
    records = [bytes(5000), b"small", memoryview(bytes(3000))]
    partitions = [topic.PartitionData(partition_index=at, records=one) for at, one in enumerate(records)]
    response = messages.FetchResponse(responses=[topic(topic="orders", partitions=partitions)])

    parts = encode_parts(schema, response)

    assert [one for one in parts if one is records[0] or one is records[2]] == [records[0], records[2]]
    assert b"".join(parts) == encode(schema, response)


def test_field_that_a_version_lacks_is_left_out_and_has_its_default() -> None:
    request = messages.FetchRequest(rack_id="a", max_wait_ms=5)
    schema = schema_in(messages.FetchRequest, 4)

    decoded, _ = decode(schema, encode(schema, request))

    assert (decoded.max_wait_ms, decoded.rack_id, decoded.session_epoch) == (5, "", -1)


def test_unknown_tagged_fields_are_skipped() -> None:
    schema = schema_in(messages.HeartbeatRequest, 4)
    encoded = encode(schema, messages.HeartbeatRequest(group_id="g", member_id="m"))

    decoded, end = decode(schema, encoded[:-1] + bytes((1, 99, 3)) + b"abc")

    assert (decoded.group_id, decoded.member_id) == ("g", "m")
    assert end == len(encoded) + 5


def test_tagged_field_ends_where_its_size_says() -> None:
    schema = schema_in(messages.FetchRequest, 12)
    encoded = encode(schema, messages.FetchRequest())
    cluster_id = bytes((1, 0, 3)) + b"\x02a!"

    with pytest.raises(MalformedMessage, match="cluster_id ends at byte"):
        decode(schema, encoded[:-1] + cluster_id)


@pytest.mark.parametrize("count", [2**31 - 1, MAX_ELEMENTS + 1, 100])
def test_array_longer_than_its_bytes_is_refused(count: int) -> None:
    schema = schema_in(messages.MetadataRequest, 1)

    with pytest.raises(MalformedMessage, match="elements of topics cannot fit"):
        decode(schema, count.to_bytes(4) + bytes(50))


def test_message_with_too_many_elements_is_refused() -> None:
    """Goal: a frame of some megabytes cannot make gigabytes of objects."""
    schema = schema_in(messages.DeleteTopicsRequest, 1)

    with pytest.raises(MalformedMessage, match="more than 1,000,000 elements"):
        decode(schema, (MAX_ELEMENTS + 1).to_bytes(4) + bytes(2 * MAX_ELEMENTS + 10))


def test_text_that_is_not_utf8_is_refused() -> None:
    schema = schema_in(messages.HeartbeatRequest, 0)

    with pytest.raises(MalformedMessage, match="group_id at byte 2 is not UTF-8"):
        decode(schema, b"\x00\x02\xff\xfe" + bytes(20))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"group_id": None}, "group_id cannot be None"),
        ({"generation_id": 2**31}, "generation_id cannot be 2147483648"),
        ({"group_id": "x" * 40_000}, "a string may have 32,767"),
    ],
)
def test_value_that_a_field_cannot_hold_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        encode(schema_in(messages.HeartbeatRequest, 0), messages.HeartbeatRequest(**fields))


def test_message_is_a_value() -> None:
    node = messages.MetadataResponse.MetadataResponseBroker(node_id=1, host="localhost", port=9092)

    assert node.replace(port=9093) == messages.MetadataResponse.MetadataResponseBroker(
        node_id=1, host="localhost", port=9093
    )
    assert repr(node) == "MetadataResponse.MetadataResponseBroker(node_id=1, host='localhost', port=9092, rack=None)"
    assert pickle.loads(pickle.dumps(node)) == node
    with pytest.raises(TypeError, match="has no field 'nodeId'"):
        messages.MetadataResponse.MetadataResponseBroker(nodeId=1)  # type: ignore[call-arg]


def test_decoding_keeps_no_reference() -> None:
    """Goal: the compiled codec fills structures without Python's help, and counts references itself."""
    schema = schema_in(messages.FetchRequest, 17)
    topic = messages.FetchRequest.FetchTopic
    encoded = encode(schema, messages.FetchRequest(topics=[topic(partitions=[topic.FetchPartition()] * 3)]))
    for raw in (encoded, encoded[:-1], encoded[:20]):
        before = [sys.getrefcount(one) for one in topic.FetchPartition._defaults]
        for _ in range(1000):
            with contextlib.suppress(MalformedMessage):
                decode(schema, raw)
        after = [sys.getrefcount(one) for one in topic.FetchPartition._defaults]
        assert all(abs(late - early) < 100 for early, late in zip(before, after, strict=True))


def test_compiled_kinds_are_those_of_the_source() -> None:
    source = Path(seeklog.wire.__file__).with_name("kind.pxd").read_text()
    compiled = {name: int(value) for name, value in re.findall(r"^    (\w+) = (\d+)$", source, flags=re.MULTILINE)}

    assert compiled == {name: value for name, value in vars(kind).items() if name.isupper()}
