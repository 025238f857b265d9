"""The metadata records of a KRaft cluster that seeklog reads or writes.

The value of such a record is a frame and a message, big-endian; a record has no key:

    frame_version   uvarint   1
    api_key         uvarint   the kind of message
    version         uvarint   the message's version
    message

Messages are "flexible": a string is an unsigned varint of its length plus one (0 for null), then UTF-8. An array is the
same with its count. Each message ends with tagged fields: their number, then the tag, size, and bytes of each; all but
the bytes are unsigned varints. A uuid is 16 bytes.

    2  TopicRecord              name string, topic_id uuid
    3  PartitionRecord          partition int32, topic_id uuid, replicas isr removing adding arrays of int32,
                                leader int32, leader_epoch int32, partition_epoch int32, [1: directories array of uuid]
    4  ConfigRecord             resource_type int8, resource_name string, name string, value string?
    5  PartitionChangeRecord    partition int32, topic_id uuid; tags 1 leader int32, 2 replicas array of int32
    9  RemoveTopicRecord        topic_id uuid
    12 FeatureLevelRecord       name string, level int16
    23 24 25                    the begin, end, and abort of a metadata transaction

PartitionRecord is written in version 1, which every KRaft broker since 3.7 reads. Messages of other kinds are skipped.
An unknown version of one of these kinds is refused, because it must not be ignored.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from seeklog.errors import CorruptionError, FormatError, UsageError, counted

FRAME_VERSION: Final = 1
BEGIN_TRANSACTION: Final = 23
END_TRANSACTION: Final = 24
ABORT_TRANSACTION: Final = 25
_LEADER_TAG: Final = 1
_REPLICAS_TAG: Final = 2
UUID_SIZE: Final = 16
# A uvarint of 32 bits takes at most five bytes.
_UVARINT_BITS: Final = 35
# The resource types of configurations.
TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevel:
    """A feature of the cluster, and its level."""

    name: str
    level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """The creation of a topic."""

    name: str
    topic_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    """The creation of a partition."""

    partition: int
    topic_id: str
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int = 0
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    directories: tuple[str, ...] = ()
    """The id of each replica's log directory. Empty before version 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChange:
    """A change of a partition's leader or replicas. None for the one that did not change."""

    partition: int
    topic_id: str
    leader: int | None = None
    replicas: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord:
    """A setting of a topic or a broker. The value None deletes it."""

    resource_type: int = TOPIC_RESOURCE
    resource_name: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopic:
    """The deletion of a topic."""

    topic_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The begin, end, or abort of a metadata transaction."""

    api_key: int


Written: TypeAlias = FeatureLevel | TopicRecord | PartitionRecord | ConfigRecord
MetadataRecord: TypeAlias = Written | PartitionChange | RemoveTopic | Transaction


# ---------------------------------------------------------------- fields


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _string(text: str | None) -> bytes:
    if text is None:
        return _uvarint(0)
    data = text.encode()
    return _uvarint(len(data) + 1) + data


def _array(items: Sequence[bytes]) -> bytes:
    return _uvarint(len(items) + 1) + b"".join(items)


def encode_uuid(text: str) -> bytes:
    """Decode an id from Kafka's text form: 22 characters of base64url."""
    try:
        data = base64.urlsafe_b64decode(f"{text}==")
    except (ValueError, binascii.Error):
        data = b""
    if len(data) != UUID_SIZE or decode_uuid(data) != text:
        raise UsageError(f"{text!r} is not an id of Kafka: pass 22 characters of base64url")
    return data


def decode_uuid(data: bytes) -> str:
    """Encode an id in Kafka's text form."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


class _Reader:
    """Reads fields from bytes. Every length is checked against the bytes that are left."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise CorruptionError(
                f"a field of {counted(size, 'byte')} overruns a metadata record of {len(self._data):,}"
            )
        part = self._data[self._at : self._at + size]
        self._at += size
        return part

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def int32(self) -> int:
        return self.number(4)

    def uvarint(self) -> int:
        value = shift = 0
        while shift < _UVARINT_BITS:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise CorruptionError("a number of a metadata record is not a varint")

    def nullable_string(self) -> str | None:
        size = self.uvarint()
        if size == 0:
            return None
        try:
            return self.take(size - 1).decode()
        except UnicodeDecodeError as error:
            raise CorruptionError(f"a string of a metadata record is not UTF-8: {error}") from error

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise CorruptionError("a string of a metadata record is null")
        return text

    def uuid(self) -> str:
        return decode_uuid(self.take(UUID_SIZE))

    def nullable_int32s(self) -> tuple[int, ...] | None:
        count = self._count(4)
        return None if count is None else tuple(self.int32() for _ in range(count))

    def int32s(self) -> tuple[int, ...]:
        return self.nullable_int32s() or ()

    def uuids(self) -> tuple[str, ...]:
        return tuple(self.uuid() for _ in range(self._count(UUID_SIZE) or 0))

    def _count(self, item_size: int) -> int | None:
        count = self.uvarint() - 1
        if count * item_size > self.left:
            raise CorruptionError(
                f"{counted(count, 'item')} cannot fit in {counted(self.left, 'byte')} of a metadata record"
            )
        return None if count < 0 else count

    def tags(self) -> dict[int, bytes]:
        """Return the tagged fields. They end a message, so no bytes may follow."""
        tags = {}
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            tags[tag] = self.take(self.uvarint())
        if self.left:
            raise CorruptionError(f"{counted(self.left, 'byte follows', 'bytes follow')} the end of a metadata record")
        return tags


class _Field(NamedTuple):
    """Reads and writes one kind of field."""

    read: Callable[[_Reader], Any]
    write: Callable[[Any], bytes]


_INT8: Final = _Field(lambda reader: reader.number(1), struct.Struct(">b").pack)
_INT16: Final = _Field(lambda reader: reader.number(2), struct.Struct(">h").pack)
_INT32: Final = _Field(_Reader.int32, struct.Struct(">i").pack)
_STRING: Final = _Field(_Reader.string, _string)
_NULLABLE_STRING: Final = _Field(_Reader.nullable_string, _string)
_UUID: Final = _Field(_Reader.uuid, encode_uuid)
_UUIDS: Final = _Field(_Reader.uuids, lambda ids: _array([encode_uuid(uuid) for uuid in ids]))
_INT32S: Final = _Field(_Reader.int32s, lambda numbers: _array([_INT32.write(number) for number in numbers]))


# ---------------------------------------------------------------- messages


class _Message(NamedTuple):
    """A kind of message: the latest version read, the version written, and its fields in order."""

    record: Callable[..., MetadataRecord]
    max_version: int
    written_version: int
    fields: Mapping[str, _Field]


_PARTITION_FIELDS: Final = {
    "partition": _INT32,
    "topic_id": _UUID,
    "replicas": _INT32S,
    "isr": _INT32S,
    "removing": _INT32S,
    "adding": _INT32S,
    "leader": _INT32,
    "leader_epoch": _INT32,
    "partition_epoch": _INT32,
    "directories": _UUIDS,
}
_MESSAGES: Final[Mapping[int, _Message]] = {
    2: _Message(TopicRecord, 0, 0, {"name": _STRING, "topic_id": _UUID}),
    3: _Message(PartitionRecord, 2, 1, _PARTITION_FIELDS),
    4: _Message(
        ConfigRecord,
        0,
        0,
        {"resource_type": _INT8, "resource_name": _STRING, "name": _STRING, "value": _NULLABLE_STRING},
    ),
    5: _Message(PartitionChange, 2, 0, {"partition": _INT32, "topic_id": _UUID}),
    9: _Message(RemoveTopic, 0, 0, {"topic_id": _UUID}),
    12: _Message(FeatureLevel, 0, 0, {"name": _STRING, "level": _INT16}),
    BEGIN_TRANSACTION: _Message(partial(Transaction, api_key=BEGIN_TRANSACTION), 0, 0, {}),
    END_TRANSACTION: _Message(partial(Transaction, api_key=END_TRANSACTION), 0, 0, {}),
    ABORT_TRANSACTION: _Message(partial(Transaction, api_key=ABORT_TRANSACTION), 0, 0, {}),
}


def encode_metadata(record: Written) -> bytes:
    """Encode the value of a metadata record."""
    api_key, message = next((key, message) for key, message in _MESSAGES.items() if message.record is type(record))
    frame = map(_uvarint, (FRAME_VERSION, api_key, message.written_version))
    fields = (field.write(getattr(record, name)) for name, field in message.fields.items())
    no_tags = _uvarint(0)
    return b"".join((*frame, *fields, no_tags))


def decode_metadata(value: bytes) -> MetadataRecord | None:
    """Decode the value of a metadata record, or return None for a kind that seeklog does not use."""
    reader = _Reader(value)
    frame_version, api_key, version = reader.uvarint(), reader.uvarint(), reader.uvarint()
    if frame_version != FRAME_VERSION:
        raise FormatError(f"a metadata record has frame version {frame_version}, and only {FRAME_VERSION} is supported")
    message = _MESSAGES.get(api_key)
    if message is None:
        return None
    if version > message.max_version:
        raise FormatError(
            f"a metadata record of kind {api_key} has version {version}, and versions up to {message.max_version} are "
            "supported"
        )
    fields = dict(message.fields)
    if version == 0:
        fields.pop("directories", None)
    values = {name: field.read(reader) for name, field in fields.items()}
    tags = reader.tags()
    if message.record is PartitionChange:
        values["leader"] = _Reader(tags[_LEADER_TAG]).int32() if _LEADER_TAG in tags else None
        values["replicas"] = _Reader(tags[_REPLICAS_TAG]).nullable_int32s() if _REPLICAS_TAG in tags else None
    return message.record(**values)
