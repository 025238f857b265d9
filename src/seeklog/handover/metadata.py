"""The records of a KRaft cluster's metadata that a handover writes and reads.

The value of such a record is a frame and a message, big-endian; a record has no key:

    frame_version   uvarint   1
    api_key         uvarint   which message it is
    version         uvarint   the message's version
    message

Messages are "flexible": a string is an unsigned varint of its length plus one (0: null) and UTF-8, an array the same
of its count, and each message ends with tagged fields: their number, then tag, size and bytes of each, all but the
bytes as unsigned varints. A uuid is 16 bytes.

    2  TopicRecord              name string, topic_id uuid
    3  PartitionRecord          partition int32, topic_id uuid, replicas isr removing adding arrays of int32,
                                leader int32, leader_epoch int32, partition_epoch int32, [1: directories array of uuid]
    4  ConfigRecord             resource_type int8, resource_name string, name string, value string?
    5  PartitionChangeRecord    partition int32, topic_id uuid; tags 1 leader int32, 2 replicas array of int32
    9  RemoveTopicRecord        topic_id uuid
    12 FeatureLevelRecord       name string, level int16
    23 24 25                    a transaction of metadata begins, ends, is aborted

PartitionRecord is written in version 1, which every KRaft broker since 3.7 reads. Messages of other kinds are passed
over. A message of these kinds in a version that is not known here is refused: what it says cannot be left out.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from seeklog.errors import CorruptionError, FormatError, UsageError

FRAME_VERSION: Final = 1
TOPIC: Final = 2
PARTITION: Final = 3
CONFIG: Final = 4
PARTITION_CHANGE: Final = 5
REMOVE_TOPIC: Final = 9
FEATURE_LEVEL: Final = 12
BEGIN_TRANSACTION: Final = 23
END_TRANSACTION: Final = 24
ABORT_TRANSACTION: Final = 25
# The latest version of each message that this module reads.
_MAX_VERSIONS: Final = {
    TOPIC: 0,
    PARTITION: 2,
    CONFIG: 0,
    PARTITION_CHANGE: 2,
    REMOVE_TOPIC: 0,
    FEATURE_LEVEL: 0,
    BEGIN_TRANSACTION: 0,
    END_TRANSACTION: 0,
    ABORT_TRANSACTION: 0,
}
_PARTITION_VERSION: Final = 1
_LEADER_TAG: Final = 1
_REPLICAS_TAG: Final = 2
UUID_SIZE: Final = 16
# A uvarint of 32 bits takes at most five bytes.
_UVARINT_BITS: Final = 35
TOPIC_RESOURCE: Final = 2
"""The resource type of a topic's configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevel:
    """A feature of the cluster and its level."""

    name: str
    level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord:
    """A topic that was created."""

    name: str
    topic_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    """A partition that was created."""

    partition: int
    topic_id: str
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int = 0
    directories: tuple[str, ...] = ()
    """The id of the log directory of each replica; none before version 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChange:
    """A partition whose leader or replicas changed; None: that did not."""

    partition: int
    topic_id: str
    leader: int | None = None
    replicas: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord:
    """A setting; None takes it away."""

    resource_type: int = TOPIC_RESOURCE
    resource_name: str
    name: str
    value: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopic:
    """A topic that was deleted."""

    topic_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The begin or the end of records that count together."""

    api_key: int


Written: TypeAlias = FeatureLevel | TopicRecord | PartitionRecord | ConfigRecord
MetadataRecord: TypeAlias = Written | PartitionChange | RemoveTopic | Transaction


# ---------------------------------------------------------------- writing


def encode_metadata(record: Written) -> bytes:
    """Return the value of a record of the metadata log."""
    if isinstance(record, FeatureLevel):
        body = _string(record.name) + struct.pack(">h", record.level)
        return _frame(FEATURE_LEVEL, 0) + body + _NO_TAGS
    if isinstance(record, TopicRecord):
        return _frame(TOPIC, 0) + _string(record.name) + encode_uuid(record.topic_id) + _NO_TAGS
    if isinstance(record, ConfigRecord):
        head = _frame(CONFIG, 0) + struct.pack(">b", record.resource_type)
        return head + _string(record.resource_name) + _string(record.name) + _string(record.value) + _NO_TAGS
    return b"".join(
        (
            _frame(PARTITION, _PARTITION_VERSION),
            struct.pack(">i", record.partition),
            encode_uuid(record.topic_id),
            _int32s(record.replicas),
            _int32s(record.isr),
            _int32s(()),
            _int32s(()),
            struct.pack(">iii", record.leader, record.leader_epoch, record.partition_epoch),
            _array([encode_uuid(directory) for directory in record.directories]),
            _NO_TAGS,
        )
    )


_NO_TAGS: Final = b"\0"


def _frame(api_key: int, version: int) -> bytes:
    return _uvarint(FRAME_VERSION) + _uvarint(api_key) + _uvarint(version)


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


def _int32s(numbers: Sequence[int]) -> bytes:
    return _array([struct.pack(">i", number) for number in numbers])


def encode_uuid(text: str) -> bytes:
    """Return the 16 bytes of an id as Kafka writes it: 22 characters of base64url."""
    try:
        data = base64.urlsafe_b64decode(f"{text}==")
    except (ValueError, binascii.Error):
        data = b""
    if len(data) != UUID_SIZE or decode_uuid(data) != text:
        raise UsageError(f"{text!r} is not an id of Kafka's: 22 characters of base64url")
    return data


def decode_uuid(data: bytes) -> str:
    """Return an id as Kafka writes it."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


# ---------------------------------------------------------------- reading


class _Reader:
    """Takes fields from the front of bytes; every length is a claim until the bytes are there."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        if not 0 <= size <= self.left:
            raise CorruptionError(f"a field of {size} bytes overruns a metadata record of {len(self._data)}")
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
            raise CorruptionError(f"{count} items cannot fit in {self.left} bytes of a metadata record")
        return None if count < 0 else count

    def tags(self) -> dict[int, bytes]:
        """Return the tagged fields, which end a message: nothing may stand after them."""
        tags = {}
        for _ in range(self.uvarint()):
            tag = self.uvarint()
            tags[tag] = self.take(self.uvarint())
        if self.left:
            raise CorruptionError(f"{self.left} bytes stand after the end of a metadata record")
        return tags


def decode_metadata(value: bytes) -> MetadataRecord | None:
    """Return what a record of the metadata log says, or None if its kind does not matter here."""
    reader = _Reader(value)
    frame_version, api_key, version = reader.uvarint(), reader.uvarint(), reader.uvarint()
    if frame_version != FRAME_VERSION:
        raise FormatError(f"a metadata record has frame version {frame_version}, and only {FRAME_VERSION} is known")
    max_version = _MAX_VERSIONS.get(api_key)
    if max_version is None:
        return None
    if version > max_version:
        raise FormatError(
            f"a metadata record of kind {api_key} has version {version}, and versions up to {max_version} are known"
        )
    return _decode(reader, api_key, version)


def _decode(reader: _Reader, api_key: int, version: int) -> MetadataRecord:
    record: MetadataRecord
    if api_key == TOPIC:
        record = TopicRecord(name=reader.string(), topic_id=reader.uuid())
    elif api_key == PARTITION:
        record = _decode_partition(reader, version)
    elif api_key == CONFIG:
        record = ConfigRecord(
            resource_type=reader.number(1),
            resource_name=reader.string(),
            name=reader.string(),
            value=reader.nullable_string(),
        )
    elif api_key == PARTITION_CHANGE:
        return _decode_change(reader)
    elif api_key == REMOVE_TOPIC:
        record = RemoveTopic(topic_id=reader.uuid())
    elif api_key == FEATURE_LEVEL:
        record = FeatureLevel(name=reader.string(), level=reader.number(2))
    else:
        record = Transaction(api_key=api_key)
    reader.tags()
    return record


def _decode_partition(reader: _Reader, version: int) -> PartitionRecord:
    partition, topic_id = reader.int32(), reader.uuid()
    replicas, isr, _removing, _adding = (reader.int32s() for _ in range(4))
    leader, leader_epoch, partition_epoch = reader.int32(), reader.int32(), reader.int32()
    return PartitionRecord(
        partition=partition,
        topic_id=topic_id,
        replicas=replicas,
        isr=isr,
        leader=leader,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        directories=reader.uuids() if version >= 1 else (),
    )


def _decode_change(reader: _Reader) -> PartitionChange:
    partition, topic_id = reader.int32(), reader.uuid()
    tags = reader.tags()
    leader = _Reader(tags[_LEADER_TAG]).int32() if _LEADER_TAG in tags else None
    replicas = _Reader(tags[_REPLICAS_TAG]).nullable_int32s() if _REPLICAS_TAG in tags else None
    return PartitionChange(partition=partition, topic_id=topic_id, leader=leader, replicas=replicas)
