"""The serializers: what each accepts, what each writes, and how a wrong one is refused."""

from __future__ import annotations

import json
import math
import pickle
import types
from typing import Any

import pytest

from cases import for_each
from seeklog import serializers
from seeklog.clients.serializers import Avro, decode_of, encode_of, name_of
from seeklog.errors import DeserializationError, MissingExtra, SerializationError, UsageError

VALUES: list[Any] = [{"id": 1, "name": "Zoë", "tags": ["a", None, 2.5]}, [], "text", 0, True, {"€": "\u2028"}]


# ---------------------------------------------------------------- what is accepted


def test_module_with_dumps_and_loads_serves_both_sides() -> None:
    assert encode_of(json, "value") is json.dumps
    assert decode_of(json, "value") is json.loads
    assert decode_of(pickle, "value")(encode_of(pickle, "value")({1, 2})) == {1, 2}  # type: ignore[arg-type]


def test_object_needs_only_the_method_of_its_side() -> None:
    writes = types.SimpleNamespace(dumps=lambda value: b"x")
    assert encode_of(writes, "key")("anything") == b"x"
    with pytest.raises(UsageError, match="key must be a callable, str, or an object with loads, such as the module"):
        decode_of(writes, "key")  # type: ignore[arg-type]


def test_callable_is_taken_as_it_is() -> None:
    assert encode_of(str.encode, "key") is str.encode
    assert decode_of(int, "key")(b"12") == 12


def test_str_means_text_in_utf_8_on_both_sides() -> None:
    assert encode_of(str, "key")("Zoë") == "Zoë".encode()
    assert decode_of(str, "key")("Zoë".encode()) == "Zoë"
    with pytest.raises(TypeError, match="a str is needed, not int"):
        encode_of(str, "key")(12)
    with pytest.raises(UnicodeDecodeError):
        decode_of(str, "key")(b"\xff")


@for_each("wrong", [1, "json", b"", object(), [json]])
def test_anything_else_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="value must be a callable, str, or an object with dumps"):
        encode_of(wrong, "value")


def test_callables_have_names_for_messages() -> None:
    assert name_of(json.loads) == "json.loads"
    assert name_of(serializers.json.loads) == "seeklog.clients.serializers._Json.loads"
    assert name_of(bytes.hex) == "bytes.hex"


# ---------------------------------------------------------------- formats


@for_each("value", VALUES)
def test_json_and_msgpack_return_what_they_were_given(value: Any) -> None:
    pytest.importorskip("msgpack")
    for serializer in (serializers.json, serializers.msgpack):
        data = encode_of(serializer, "value")(value)
        assert isinstance(data, bytes)
        assert decode_of(serializer, "value")(data) == value


def test_json_is_compact_and_in_utf_8() -> None:
    assert serializers.json.dumps({"name": "Zoë", "id": 1}) == '{"name":"Zoë","id":1}'.encode()


@for_each("value", [math.nan, math.inf, -math.inf])
def test_json_refuses_what_json_does_not_have(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        serializers.json.dumps(value)
    with pytest.raises(ValueError, match="JSON has no"):
        serializers.json.loads(json.dumps(value).encode())


USER = {
    "type": "record",
    "name": "User",
    "fields": [{"name": "name", "type": "string"}, {"name": "age", "type": "int"}],
}
OLDER = {"type": "record", "name": "User", "fields": [{"name": "name", "type": "string"}]}
NEWER = {
    "type": "record",
    "name": "User",
    "fields": [*USER["fields"], {"name": "mail", "type": ["null", "string"], "default": None}],  # type: ignore[misc]
}
ANNA = {"name": "Anna", "age": 42}
# A zero, the schema's id 7 in four bytes, the length 4 as a zigzag varint, "Anna", and 42 as one.
ANNA_BYTES = bytes.fromhex("00 00000007 08 416e6e61 54")


@pytest.fixture
def _fastavro() -> None:
    pytest.importorskip("fastavro")


@pytest.mark.usefixtures("_fastavro")
def test_avro_writes_the_wire_format_of_confluent() -> None:
    avro = Avro({7: USER}, schema_id=7)
    assert avro.dumps(ANNA) == ANNA_BYTES
    assert avro.loads(ANNA_BYTES) == ANNA


@pytest.mark.usefixtures("_fastavro")
def test_avro_reads_with_the_schema_that_the_data_names() -> None:
    schemas = {1: OLDER, 7: json.dumps(USER)}
    old, new = Avro(schemas, schema_id=1), Avro(schemas, schema_id=7)
    assert new.loads(old.dumps({"name": "Bob"})) == {"name": "Bob"}
    resolving = Avro(schemas, reader_schema=NEWER)
    assert resolving.loads(new.dumps(ANNA)) == {**ANNA, "mail": None}


@pytest.mark.usefixtures("_fastavro")
def test_avro_asks_for_each_schema_once() -> None:
    asked: list[int] = []

    def find(schema_id: int) -> Any:
        asked.append(schema_id)
        return USER

    avro = Avro(find, schema_id=7)
    for _ in range(3):
        avro.loads(avro.dumps(ANNA))
    assert asked == [7]


@pytest.mark.usefixtures("_fastavro")
@for_each(
    ("case"),
    [
        (b"", "it begins with nothing"),
        (b'{"name": 1}', "it begins with 7b 22 6e 61 6d, not with 00 and the id of a schema"),
        (b"\x00\x00\x00\x00", "not with 00 and the id"),
        (b"\x00\x00\x00\x00\x09x", "there is no schema with id 9"),
        (ANNA_BYTES + b"!!", "2 bytes follow the datum"),
    ],
)
def test_avro_names_what_is_wrong_with_data(case: tuple[bytes, str]) -> None:
    data, message = case
    with pytest.raises(ValueError, match=message):
        Avro({7: USER}).loads(data)


@pytest.mark.usefixtures("_fastavro")
@for_each("cut", range(5, len(ANNA_BYTES)))
def test_avro_refuses_a_datum_that_was_cut(cut: int) -> None:
    with pytest.raises(Exception):  # of fastavro
        Avro({7: USER}).loads(ANNA_BYTES[:cut])


@pytest.mark.usefixtures("_fastavro")
def test_avro_without_an_id_can_only_read() -> None:
    assert decode_of(Avro({7: USER}), "value")(ANNA_BYTES) == ANNA
    with pytest.raises(UsageError, match="pass schema_id="):
        encode_of(Avro({7: USER}), "value")


@pytest.mark.parametrize(
    ("package", "use", "extra"),
    [
        ("msgpack", lambda: encode_of(serializers.msgpack, "value"), "msgpack"),
        ("msgpack", lambda: decode_of(serializers.msgpack, "value"), "msgpack"),
        ("fastavro", lambda: Avro({}), "avro"),
    ],
)
def test_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch, package: str, use: Any, extra: str) -> None:
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(MissingExtra, match=rf'this serializer needs {package}: pip install "seeklog\[{extra}\]"'):
        use()


def test_errors_survive_pickling() -> None:
    error = DeserializationError(
        "m", topic="t", partition=1, offset=2, field="value", deserializer="json.loads", record=None
    )
    copied = pickle.loads(pickle.dumps(error))
    assert (str(copied), copied.topic, copied.partition, copied.offset, copied.field) == ("m", "t", 1, 2, "value")
    refused = pickle.loads(pickle.dumps(SerializationError("m", topic="t", field="key")))
    assert (str(refused), refused.topic, refused.field) == ("m", "t", "key")
