"""The records of `__consumer_offsets`: keys and values in Kafka's formats.

Everything is big-endian; a string is an int16 length and UTF-8 (-1: null), bytes an int32 length, an array an int32
count. Values of version 4 are "flexible": lengths and counts are unsigned varints of the number plus one, and each
structure ends with tagged fields. The first int16 is the version.

    key 0, 1   an offset:  group string, topic string, partition int32
    key 2      a group:    group string

    value of an offset     offset int64, [3: leader_epoch int32,] metadata string, commit_timestamp int64
                           [1: expire_timestamp int64]
    value of a group       protocol_type string, generation int32, protocol string?, leader string?,
                           [2: state_timestamp int64,] members array of: member_id string,
                           [3: group_instance_id string?,] client_id string, client_host string,
                           [1: rebalance_timeout int32,] session_timeout int32, subscription bytes, assignment bytes

    subscription           version int16, topics array of string, user data bytes ...
    assignment             version int16, array of (topic string, partitions array of int32), user data bytes

A null value deletes the offset or the group. Keys 1 and 2 are written, with value version 3, which brokers since 2.1
read. All of the above are read. Keys of other versions belong to kinds of groups that seeklog does not have.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from seeklog.errors import CorruptionError, counted
from seeklog.names import TopicPartition

OFFSET_KEY_VERSIONS = (0, 1)
GROUP_KEY_VERSION = 2
VALUE_VERSION = 3
FLEXIBLE_VERSION = 4
PROTOCOL_TYPE = "consumer"


@dataclass(frozen=True, slots=True)
class OffsetKey:
    """The key of a record with a committed offset."""

    group: str
    partition: TopicPartition


@dataclass(frozen=True, slots=True)
class GroupKey:
    """The key of a record with a group's state."""

    group: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """The offset of the next record that a group will read of a partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A consumer in a group, and the partitions assigned to it."""

    member_id: str
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    topics: frozenset[str] = frozenset()
    assignment: frozenset[TopicPartition] = frozenset()
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """The members of a group at one generation."""

    generation: int = 0
    protocol_type: str = PROTOCOL_TYPE
    protocol: str | None = None
    leader: str | None = None
    state_timestamp_ms: int = -1
    members: Mapping[str, Member] = field(default_factory=dict)


# ---------------------------------------------------------------- writing


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _array(items: Sequence[bytes]) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(items)


def encode_offset_key(group: str, partition: TopicPartition) -> bytes:
    return struct.pack(">h", 1) + _string(group) + _string(partition.topic) + struct.pack(">i", partition.partition)


def encode_offset(committed: CommittedOffset) -> bytes:
    head = struct.pack(">hqi", VALUE_VERSION, committed.offset, committed.leader_epoch)
    return head + _string(committed.metadata) + struct.pack(">q", committed.commit_timestamp_ms)


def encode_group_key(group: str) -> bytes:
    return struct.pack(">h", GROUP_KEY_VERSION) + _string(group)


def encode_group(state: GroupState) -> bytes:
    members = [
        _string(member.member_id)
        + _string(member.group_instance_id)
        + _string(member.client_id)
        + _string(member.client_host)
        + struct.pack(">ii", member.rebalance_timeout_ms, member.session_timeout_ms)
        + _bytes(encode_subscription(member.topics))
        + _bytes(encode_assignment(member.assignment))
        for _, member in sorted(state.members.items())
    ]
    return (
        struct.pack(">h", VALUE_VERSION)
        + _string(state.protocol_type)
        + struct.pack(">i", state.generation)
        + _string(state.protocol)
        + _string(state.leader)
        + struct.pack(">q", state.state_timestamp_ms)
        + _array(members)
    )


def encode_subscription(topics: Iterable[str]) -> bytes:
    """Encode a member's subscription, in version 0 of Kafka's consumer protocol."""
    return struct.pack(">h", 0) + _array([_string(topic) for topic in sorted(topics)]) + _bytes(b"")


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode a member's assignment, in version 0 of Kafka's consumer protocol."""
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    topics = [
        _string(topic) + _array([struct.pack(">i", number) for number in numbers])
        for topic, numbers in by_topic.items()
    ]
    return struct.pack(">h", 0) + _array(topics) + _bytes(b"")


# ---------------------------------------------------------------- reading


class _Reader:
    """Reads fields from bytes. Every length is checked against the bytes that are left."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self.is_flexible = False

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self._data) - self._at:
            raise CorruptionError(f"a field of {counted(size, 'byte')} overruns the record's {len(self._data):,}")
        part = self._data[self._at : self._at + size]
        self._at += size
        return part

    def int16(self) -> int:
        return int.from_bytes(self.take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self.take(4), "big", signed=True)

    def int64(self) -> int:
        return int.from_bytes(self.take(8), "big", signed=True)

    def uvarint(self) -> int:
        value = shift = 0
        while shift < 35:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise CorruptionError("a length is not a varint")

    def nullable_string(self) -> str | None:
        size = self.uvarint() - 1 if self.is_flexible else self.int16()
        if size == -1:
            return None
        try:
            return self.take(size).decode()
        except UnicodeDecodeError as error:
            raise CorruptionError(f"a string is not UTF-8: {error}") from error

    def string(self) -> str:
        return self.nullable_string() or ""

    def bytes(self) -> bytes:
        size = self.uvarint() - 1 if self.is_flexible else self.int32()
        return b"" if size == -1 else self.take(size)

    def count(self) -> int:
        size = self.uvarint() - 1 if self.is_flexible else self.int32()
        if size > len(self._data) - self._at:  # every item takes at least a byte
            raise CorruptionError(
                f"{counted(size, 'item')} cannot fit in {counted(len(self._data) - self._at, 'byte')}"
            )
        return max(size, 0)

    def tagged_fields(self) -> None:
        if self.is_flexible:
            for _ in range(self.uvarint()):
                self.uvarint()
                self.take(self.uvarint())


def decode_key(key: bytes) -> OffsetKey | GroupKey | None:
    """Decode a record's key. None for a kind that seeklog does not use."""
    reader = _Reader(key)
    version = reader.int16()
    if version in OFFSET_KEY_VERSIONS:
        group, topic = reader.string(), reader.string()
        return OffsetKey(group, TopicPartition(topic, reader.int32()))
    return GroupKey(reader.string()) if version == GROUP_KEY_VERSION else None


def _value_reader(value: bytes) -> tuple[_Reader, int]:
    reader = _Reader(value)
    version = reader.int16()
    if not 0 <= version <= FLEXIBLE_VERSION:
        raise CorruptionError(f"version {version} of a value is not supported")
    reader.is_flexible = version >= FLEXIBLE_VERSION
    return reader, version


def decode_offset(value: bytes) -> CommittedOffset:
    """Decode the value of a committed offset."""
    reader, version = _value_reader(value)
    return CommittedOffset(
        offset=reader.int64(),
        leader_epoch=reader.int32() if version >= 3 else -1,
        metadata=reader.string(),
        commit_timestamp_ms=reader.int64(),
    )


def decode_group(value: bytes) -> GroupState:
    """Decode the value of a group."""
    reader, version = _value_reader(value)
    protocol_type = reader.string()
    generation = reader.int32()
    protocol = reader.nullable_string()
    leader = reader.nullable_string()
    state_timestamp_ms = reader.int64() if version >= 2 else -1
    members: dict[str, Member] = {}
    for _ in range(reader.count()):
        member_id = reader.string()
        instance = reader.nullable_string() if version >= 3 else None
        client_id, client_host = reader.string(), reader.string()
        rebalance = reader.int32() if version >= 1 else -1
        session = reader.int32()
        subscription, assignment = reader.bytes(), reader.bytes()
        reader.tagged_fields()
        of_consumers = protocol_type == PROTOCOL_TYPE
        members[member_id] = Member(
            member_id=member_id,
            group_instance_id=instance,
            client_id=client_id,
            client_host=client_host,
            rebalance_timeout_ms=rebalance if rebalance >= 0 else session,
            session_timeout_ms=session,
            topics=decode_subscription(subscription) if of_consumers else frozenset(),
            assignment=decode_assignment(assignment) if of_consumers else frozenset(),
        )
    return GroupState(
        generation=generation,
        protocol_type=protocol_type,
        protocol=protocol,
        leader=leader,
        state_timestamp_ms=state_timestamp_ms,
        members=members,
    )


def decode_subscription(data: bytes) -> frozenset[str]:
    """Decode the topics that a member subscribes to. Fields that later versions append are ignored."""
    if not data:
        return frozenset()
    reader = _Reader(data)
    reader.int16()
    return frozenset(reader.string() for _ in range(reader.count()))


def decode_assignment(data: bytes) -> frozenset[TopicPartition]:
    """Decode the partitions assigned to a member."""
    if not data:
        return frozenset()
    reader = _Reader(data)
    reader.int16()
    assigned = []
    for _ in range(reader.count()):
        topic = reader.string()
        assigned += [TopicPartition(topic, reader.int32()) for _ in range(reader.count())]
    return frozenset(assigned)
