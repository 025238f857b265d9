"""The records of `__consumer_offsets`: keys, offsets and states of groups."""

from __future__ import annotations

from collections.abc import Iterator

from fuzz.target import Target, enter
from fuzz.targets.side_files import mutator
from seeklog.groups.records import (
    CommittedOffset,
    GroupState,
    Member,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_group_key,
    encode_offset,
    encode_offset_key,
)
from seeklog.names import TopicPartition


def key_seeds() -> Iterator[bytes]:
    yield encode_offset_key("group", TopicPartition("payments", 3))
    yield encode_group_key("group")


def offset_seeds() -> Iterator[bytes]:
    offset = encode_offset(CommittedOffset(offset=42, leader_epoch=3, metadata="here", commit_timestamp_ms=1))
    yield offset
    # The version before flexible ones, and a flexible one with a tagged field.
    yield b"\0\1" + offset[2:10] + offset[14:] + bytes(8)
    yield b"\0\4" + offset[2:14] + b"\5here" + bytes(8) + b"\1\0\1x"


def group_seeds() -> Iterator[bytes]:
    yield encode_group(GroupState())
    member = Member(
        member_id="m-1",
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=1,
        session_timeout_ms=6000,
        topics=frozenset({"payments"}),
        assignment=frozenset({TopicPartition("payments", 0), TopicPartition("payments", 1)}),
    )
    yield encode_group(GroupState(generation=3, protocol="range", leader="m-1", members={"m-1": member}))


enter(Target("group_key", decode_key, key_seeds, mutator(bytes), bytes, size_most=512))
enter(Target("group_offset", decode_offset, offset_seeds, mutator(bytes), bytes, size_most=512))
enter(Target("group_state", decode_group, group_seeds, mutator(bytes), bytes, size_most=1024))
