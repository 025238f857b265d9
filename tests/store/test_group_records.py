"""The records of `__consumer_offsets`: Kafka's keys and values of every version, and hostile bytes."""

from __future__ import annotations

import random
import struct
from dataclasses import replace

import pytest

from seeklog import TopicPartition
from seeklog.errors import CorruptionError
from seeklog.groups.groups import java_hash
from seeklog.groups.records import (
    CommittedOffset,
    GroupKey,
    GroupState,
    Member,
    OffsetKey,
    decode_assignment,
    decode_group,
    decode_key,
    decode_offset,
    decode_subscription,
    encode_assignment,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
    encode_subscription,
)

T = 1_700_000_000_000

# ---------------------------------------------------------------- Kafka's fields, by hand


class Fields:
    """Writes fields as Kafka's message definitions say: plain, or flexible with its varints and tagged fields."""

    def __init__(self, *, flexible: bool = False) -> None:
        self.flexible = flexible

    def size(self, size: int, plain: str) -> bytes:
        return uvarint(size + 1) if self.flexible else struct.pack(plain, size)

    def string(self, text: str | None) -> bytes:
        data = b"" if text is None else text.encode()
        return self.size(-1 if text is None else len(data), ">h") + data

    def data(self, data: bytes) -> bytes:
        return self.size(len(data), ">i") + data

    def array(self, items: list[bytes]) -> bytes:
        return self.size(len(items), ">i") + b"".join(items)

    def tags(self, tagged: dict[int, bytes]) -> bytes:
        """Return the tagged fields that end a flexible structure: a count, then tag, size and bytes of each."""
        if not self.flexible:
            return b""
        parts = [uvarint(tag) + uvarint(len(data)) + data for tag, data in tagged.items()]
        return uvarint(len(parts)) + b"".join(parts)


def uvarint(number: int) -> bytes:
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def offset_value(version: int, *, tagged: dict[int, bytes] | None = None) -> bytes:
    """Return Kafka's OffsetCommitValue: offset 7, leader epoch 3, metadata "note", committed at T."""
    fields = Fields(flexible=version >= 4)
    value = struct.pack(">hq", version, 7)
    if version >= 3:
        value += struct.pack(">i", 3)
    value += fields.string("note") + struct.pack(">q", T)
    if version == 1:
        value += struct.pack(">q", T + 1)
    return value + fields.tags(tagged or {})


SUBSCRIPTION = struct.pack(">hi", 1, 2) + b"\0\1a\0\1b" + struct.pack(">i", -1) + struct.pack(">i", 0)
ASSIGNMENT = struct.pack(">hi", 1, 1) + b"\0\1a" + struct.pack(">iii", 2, 0, 5) + struct.pack(">i", -1)


def group_value(version: int, *, tagged: dict[int, bytes] | None = None, protocol_type: str = "consumer") -> bytes:
    """Return Kafka's GroupMetadataValue of a group with two members."""
    fields = Fields(flexible=version >= 4)
    value = struct.pack(">h", version) + fields.string(protocol_type) + struct.pack(">i", 12)
    value += fields.string("range") + fields.string("member-1")
    if version >= 2:
        value += struct.pack(">q", T)
    members = []
    for name in ("member-1", "member-2"):
        member = fields.string(name)
        if version >= 3:
            member += fields.string("instance" if name == "member-1" else None)
        member += fields.string("client") + fields.string("/10.0.0.1")
        if version >= 1:
            member += struct.pack(">i", 60_000)
        member += struct.pack(">i", 10_000) + fields.data(SUBSCRIPTION)
        member += fields.data(ASSIGNMENT if name == "member-1" else b"") + fields.tags(tagged or {})
        members.append(member)
    return value + fields.array(members) + fields.tags(tagged or {})


def expected_group(version: int) -> GroupState:
    first = Member(
        member_id="member-1",
        group_instance_id="instance" if version >= 3 else None,
        client_id="client",
        client_host="/10.0.0.1",
        rebalance_timeout_ms=60_000 if version >= 1 else 10_000,
        session_timeout_ms=10_000,
        topics=frozenset({"a", "b"}),
        assignment=frozenset({TopicPartition("a", 0), TopicPartition("a", 5)}),
    )
    second = replace(first, member_id="member-2", group_instance_id=None, assignment=frozenset())
    return GroupState(
        generation=12,
        protocol_type="consumer",
        protocol="range",
        leader="member-1",
        state_timestamp_ms=T if version >= 2 else -1,
        members={"member-1": first, "member-2": second},
    )


TAGGED: dict[int, bytes] = {0: b"", 1: b"topic id", 300: bytes(200)}


# ---------------------------------------------------------------- every version


@pytest.mark.parametrize("version", [0, 1])
def test_key_of_offset_is_decoded(version: int) -> None:
    key = struct.pack(">h", version) + b"\0\5group\0\5topic" + struct.pack(">i", 9)

    assert decode_key(key) == OffsetKey("group", TopicPartition("topic", 9))


def test_key_of_group_is_decoded() -> None:
    assert decode_key(b"\0\2\0\5group") == GroupKey("group")


@pytest.mark.parametrize("version", [3, 4, 5, 16, 32767, -1])
def test_keys_of_other_kinds_are_ignored(version: int) -> None:
    """Kafka keeps the new consumer groups, share groups and streams groups under keys 3 and up."""
    assert decode_key(struct.pack(">h", version) + b"\0\5group") is None


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_offset_is_decoded(version: int) -> None:
    expected = CommittedOffset(offset=7, leader_epoch=3 if version >= 3 else -1, metadata="note", commit_timestamp_ms=T)

    assert decode_offset(offset_value(version)) == expected


@pytest.mark.parametrize("version", range(5))
def test_every_version_of_group_is_decoded(version: int) -> None:
    assert decode_group(group_value(version)) == expected_group(version)


def test_tagged_fields_of_later_brokers_are_skipped() -> None:
    assert decode_offset(offset_value(4, tagged=TAGGED)) == decode_offset(offset_value(4))
    assert decode_group(group_value(4, tagged=TAGGED)) == expected_group(4)


@pytest.mark.parametrize("version", [-1, 5, 32767])
def test_unknown_version_of_value_is_refused(version: int) -> None:
    for value in (offset_value(3), group_value(3)):
        unknown = struct.pack(">h", version) + value[2:]
        with pytest.raises(CorruptionError, match="version"):
            (decode_offset if value == offset_value(3) else decode_group)(unknown)


def test_null_strings_and_arrays_are_decoded() -> None:
    """Kafka writes an empty group with neither protocol nor leader, and old ones with null metadata."""
    empty = struct.pack(">h", 3) + b"\0\0" + struct.pack(">i", 4) + b"\xff\xff\xff\xff" + struct.pack(">qi", T, -1)

    state = decode_group(empty)

    assert (state.generation, state.protocol, state.leader, dict(state.members)) == (4, None, None, {})
    assert decode_offset(struct.pack(">hqi", 3, 7, -1) + b"\xff\xff" + struct.pack(">q", T)).metadata == ""


def test_groups_of_other_protocols_are_decoded_without_assignments() -> None:
    """Kafka Connect keeps its workers here, whose subscription and assignment mean something else."""
    state = decode_group(group_value(3, protocol_type="connect").replace(SUBSCRIPTION, b"\xff" * len(SUBSCRIPTION)))

    assert state.protocol_type == "connect"
    assert [(name, member.topics, member.assignment) for name, member in state.members.items()] == [
        ("member-1", frozenset(), frozenset()),
        ("member-2", frozenset(), frozenset()),
    ]


# ---------------------------------------------------------------- encoding


def draw_text(draw: random.Random) -> str:
    return "".join(draw.choice("abc-_.ä世🔑") for _ in range(draw.randrange(12)))


def draw_partitions(draw: random.Random) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(draw.choice(["a", "b", "topic.c"]), draw.randrange(2**31)) for _ in range(draw.randrange(9))
    )


def draw_state(draw: random.Random) -> GroupState:
    members = {}
    for _ in range(draw.randrange(5)):
        member = Member(
            member_id=f"member-{draw.randrange(1000)}",
            client_id=draw_text(draw),
            client_host=draw_text(draw),
            rebalance_timeout_ms=draw.randrange(2**31),
            session_timeout_ms=draw.randrange(2**31),
            topics=frozenset(partition.topic for partition in draw_partitions(draw)),
            assignment=draw_partitions(draw),
            group_instance_id=draw.choice([None, draw_text(draw)]),
        )
        members[member.member_id] = member
    return GroupState(
        generation=draw.randrange(2**31),
        protocol=draw.choice([None, "cooperative-sticky"]),
        leader=draw.choice([None, *members]),
        state_timestamp_ms=draw.randrange(-1, 2**62),
        members=members,
    )


@pytest.mark.parametrize("seed", range(50))
def test_records_round_trip(seed: int) -> None:
    draw = random.Random(seed)
    state = draw_state(draw)
    group, partition = draw_text(draw), TopicPartition(draw_text(draw), draw.randrange(2**31))
    committed = CommittedOffset(
        offset=draw.randrange(2**63),
        leader_epoch=draw.randrange(-1, 2**31),
        metadata=draw_text(draw),
        commit_timestamp_ms=draw.randrange(-1, 2**63),
    )

    assert decode_group(encode_group(state)) == state
    assert decode_offset(encode_offset(committed)) == committed
    assert decode_key(encode_offset_key(group, partition)) == OffsetKey(group, partition)
    assert decode_key(encode_group_key(group)) == GroupKey(group)
    for member in state.members.values():
        assert decode_subscription(encode_subscription(member.topics)) == member.topics
        assert decode_assignment(encode_assignment(member.assignment)) == member.assignment


def test_bytes_of_offset_match_kafka() -> None:
    key = encode_offset_key("group", TopicPartition("topic", 9))
    value = encode_offset(CommittedOffset(offset=7, leader_epoch=3, metadata="note", commit_timestamp_ms=T))

    assert key == b"\0\1\0\5group\0\5topic\0\0\0\x09"
    assert value == offset_value(3)


def test_bytes_of_group_do_not_depend_on_order_of_members() -> None:
    state = expected_group(3)
    turned = replace(state, members=dict(reversed(state.members.items())))

    assert encode_group_key("group") == b"\0\2\0\5group"
    assert encode_group(turned) == encode_group(state)


# ---------------------------------------------------------------- hostile bytes

DECODERS = {
    "key of an offset": (decode_key, encode_offset_key("group", TopicPartition("topic", 9))),
    "key of a group": (decode_key, encode_group_key("group")),
    **{f"offset, version {version}": (decode_offset, offset_value(version)) for version in range(4)},
    "offset, tagged": (decode_offset, offset_value(4, tagged=TAGGED)),
    **{f"group, version {version}": (decode_group, group_value(version)) for version in range(4)},
    "group, tagged": (decode_group, group_value(4, tagged=TAGGED)),
    "subscription": (decode_subscription, encode_subscription(["a", "b"])),
    "assignment": (decode_assignment, encode_assignment([TopicPartition("a", 0), TopicPartition("b", 5)])),
}
# How many bytes after the last needed field may be missing without an error.
UNREAD = {"offset, version 1": 8, "offset, tagged": 1 + 2 + 10 + 204, "subscription": 4, "assignment": 4}


@pytest.mark.parametrize("what", DECODERS)
def test_truncated_value_is_refused_at_every_byte(what: str) -> None:
    decode, whole = DECODERS[what]
    # The tagged fields of the whole group come last, and none of them is needed.
    unread = len(Fields(flexible=True).tags(TAGGED)) if what == "group, tagged" else UNREAD.get(what, 0)
    first = 1 if what in ("subscription", "assignment") else 0  # no bytes at all are an empty one

    for size in range(first, len(whole)):
        if size < len(whole) - unread:
            with pytest.raises(CorruptionError):
                decode(whole[:size])
        else:
            assert decode(whole[:size]) == decode(whole)


@pytest.mark.parametrize("what", DECODERS)
def test_damaged_bytes_are_decoded_or_refused(what: str) -> None:
    decode, whole = DECODERS[what]
    draw = random.Random(7)
    mutants = [
        whole[:at] + bytes([byte]) + whole[at + 1 :]
        for at in range(len(whole))
        for byte in (0x00, 0x7F, 0x80, 0xFF, whole[at] ^ 1)
    ]
    mutants += [whole[:2] + draw.randbytes(draw.randrange(60)) for _ in range(500)]
    mutants += [struct.pack(">h", draw.randrange(5)) + draw.randbytes(draw.randrange(60)) for _ in range(500)]
    for mutant in mutants:
        try:
            decode(mutant)
        except CorruptionError:
            continue


@pytest.mark.parametrize("count", [2**31 - 1, 10**6])
def test_impossible_count_is_refused_before_allocation(count: int) -> None:
    head = struct.pack(">h", 3) + b"\0\x08consumer" + struct.pack(">i", 1) + b"\xff\xff\xff\xff" + struct.pack(">q", T)
    with pytest.raises(CorruptionError, match="cannot fit"):
        decode_group(head + struct.pack(">i", count) + bytes(100))
    with pytest.raises(CorruptionError, match="cannot fit"):
        decode_subscription(struct.pack(">hi", 0, count))


def test_endless_varint_is_refused() -> None:
    with pytest.raises(CorruptionError, match="varint"):
        decode_group(b"\0\4" + b"\xff" * 50)


# ---------------------------------------------------------------- where a group lies


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("group", 98629247),
        ("hello", 99162322),
        ("hello world", 1794106052),
        # "Ea" and "FB" are the pair that every Java book has.
        ("Ea", 2236),
        ("FB", 2236),
        # By the formula alone; the first two are negative in Java.
        ("zzzzzzzz", None),
        ("consumer-group", None),
        ("Grüße, 世界", None),
        ("🔑", None),
        ("a🔑b\U0010ffff", None),
    ],
)
def test_name_hashes_like_java_string(text: str, hashed: int | None) -> None:
    """The formula of String.hashCode over UTF-16 code units, in Java's int arithmetic; Kafka takes its magnitude."""
    units = struct.unpack(f">{len(text.encode('utf-16-be')) // 2}H", text.encode("utf-16-be"))
    total = sum(unit * 31 ** (len(units) - 1 - place) for place, unit in enumerate(units))
    signed = (total + 2**31) % 2**32 - 2**31
    if hashed is not None:
        assert signed == hashed

    assert java_hash(text) == abs(signed)


def test_hash_of_smallest_int_becomes_zero() -> None:
    """ "polygenelubricants".hashCode() is Integer.MIN_VALUE, for which Kafka's Utils.abs gives 0."""
    assert java_hash("polygenelubricants") == 0
    assert java_hash("DESIGNING WORKHOUSES") == 0


def test_surrogate_pair_hashes_as_two_characters() -> None:
    assert java_hash("🔑") == 31 * 0xD83D + 0xDD11


@pytest.mark.parametrize("name", ["zzzzzzzz", "a negative hash", "group-7"])
def test_partition_of_group_is_never_negative(name: str) -> None:
    assert 0 <= java_hash(name) < 2**31
