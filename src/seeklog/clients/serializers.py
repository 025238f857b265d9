"""Serializers turn the keys and values of an application into bytes, deserializers the bytes back into them.

A producer or a consumer takes, as `key=` and `value=`, any of these:

- an object or a module with `dumps` and `loads`, such as `json`, `orjson`, `pickle`, or one from here;
- a callable: from a value to bytes for a producer, from bytes to a value for a consumer;
- `str`: text in UTF-8.

What a serializer returns as text is encoded in UTF-8. None stays None on both sides, without a call: a key may be
missing, and a value of None is a tombstone.

`json`, `text`, `msgpack` and `Avro` of this module serve both sides. The last two need the extras of their names.
"""

from __future__ import annotations

import io
import json as _json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Protocol, TypeAlias

from seeklog.errors import UsageError, import_failed
from seeklog.record import Bytes

if TYPE_CHECKING:
    from types import ModuleType

Field = Literal["key", "value"]
Encode: TypeAlias = Callable[[Any], "Bytes | str"]
Decode: TypeAlias = Callable[[bytes], Any]

# Confluent's framing: a zero, and the number of the schema as four bytes, big-endian.
_MAGIC: Final = 0
_FRAME_SIZE: Final = 5


class Dumps(Protocol):
    @property
    def dumps(self) -> Encode: ...


class Loads(Protocol):
    @property
    def loads(self) -> Decode: ...


Serializer: TypeAlias = "Dumps | Encode | type[str]"
Deserializer: TypeAlias = "Loads | Decode | type[str]"


def encode_of(given: Serializer, field: Field) -> Encode:
    """Return the callable that serializes a field, or raise `UsageError`."""
    return _method_of(given, field, "dumps")


def decode_of(given: Deserializer, field: Field) -> Decode:
    """Return the callable that deserializes a field, or raise `UsageError`."""
    return _method_of(given, field, "loads")


def _method_of(given: Any, field: Field, name: Literal["dumps", "loads"]) -> Callable[[Any], Any]:
    if given is str:
        given = text
    for found in (getattr(given, name, None), given):
        if callable(found):
            method: Callable[[Any], Any] = found
            return method
    raise UsageError(
        f"{field} must be a callable, str, or an object with {name}, such as the module json, not {given!r}"
    )


def name_of(method: Callable[..., Any]) -> str:
    """Return the name of a callable with its module, as far as it has them."""
    name = getattr(method, "__qualname__", None) or type(method).__qualname__
    module = getattr(method, "__module__", None)
    return f"{module}.{name}" if module else name


class _Json:
    """JSON: compact, in UTF-8. NaN and infinity, which JSON does not have, are refused on both sides."""

    def dumps(self, value: Any) -> bytes:
        return _json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()

    def loads(self, data: bytes) -> Any:
        return _json.loads(data, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"JSON has no {name}")


class _Text:
    """Text in UTF-8."""

    def dumps(self, value: str) -> bytes:
        if not isinstance(value, str):
            raise TypeError(f"a str is needed, not {type(value).__name__}")
        return value.encode()

    def loads(self, data: bytes) -> str:
        return data.decode()


class _MessagePack:
    """MessagePack. Needs the extra `msgpack`."""

    @property
    def dumps(self) -> Encode:
        packed: Encode = _import("msgpack").packb
        return packed

    @property
    def loads(self) -> Decode:
        unpacked: Decode = _import("msgpack").unpackb
        return unpacked


json: Final = _Json()
text: Final = _Text()
msgpack: Final = _MessagePack()


class Avro:
    """Avro in the wire format of Confluent's serializers: a zero, the id of the schema, and the datum.

    `schemas` finds a schema by its id: a mapping, or a callable that asks a registry. Schemas are dicts, or JSON in a
    str. Each is asked for once. Data is written with the schema `schema_id`, and read with the schema that it names;
    with a `reader_schema` it is resolved to that one by Avro's rules. Needs the extra `avro`.
    """

    def __init__(
        self,
        schemas: Mapping[int, Any] | Callable[[int], Any],
        *,
        schema_id: int | None = None,
        reader_schema: Any = None,
    ) -> None:
        self._fastavro = _import("fastavro")
        self._find = schemas if callable(schemas) else schemas.__getitem__
        self._schema_id = schema_id
        self._reader_schema = None if reader_schema is None else self._parsed(reader_schema)
        self._known: dict[int, Any] = {}

    def __repr__(self) -> str:
        return f"<Avro schema_id={self._schema_id}>"

    @property
    def dumps(self) -> Encode:
        if self._schema_id is None:
            raise UsageError("Avro needs the id of the schema to write with; pass schema_id=")
        return self._dump

    def _dump(self, value: Any) -> bytes:
        assert self._schema_id is not None
        out = io.BytesIO()
        out.write(bytes([_MAGIC]) + self._schema_id.to_bytes(4, "big"))
        self._fastavro.schemaless_writer(out, self._schema(self._schema_id), value)
        return out.getvalue()

    def loads(self, data: bytes) -> Any:
        if len(data) < _FRAME_SIZE or data[0] != _MAGIC:
            raise ValueError(
                f"it begins with {data[:_FRAME_SIZE].hex(' ') or 'nothing'}, not with 00 and the id of a schema"
            )
        schema = self._schema(int.from_bytes(data[1:_FRAME_SIZE], "big"))
        datum = io.BytesIO(data[_FRAME_SIZE:])
        value = self._fastavro.schemaless_reader(datum, schema, self._reader_schema)
        left = len(data) - _FRAME_SIZE - datum.tell()
        if left:
            raise ValueError(f"{left} bytes follow the datum: it was written with another schema")
        return value

    def _schema(self, schema_id: int) -> Any:
        schema = self._known.get(schema_id)
        if schema is None:
            try:
                found = self._find(schema_id)
            except LookupError as error:
                raise ValueError(f"there is no schema with id {schema_id}") from error
            schema = self._known[schema_id] = self._parsed(found)
        return schema

    def _parsed(self, schema: Any) -> Any:
        return self._fastavro.parse_schema(_json.loads(schema) if isinstance(schema, str) else schema)


_EXTRAS: Final = {"msgpack": "msgpack", "fastavro": "avro"}


def _import(package: str) -> ModuleType:
    from importlib import import_module

    try:
        return import_module(package)
    except ImportError as error:
        extra = _EXTRAS[package]
        raise import_failed(
            error, package, missing=f'this serializer needs {package}: pip install "seeklog[{extra}]"'
        ) from error
