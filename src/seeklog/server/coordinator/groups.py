"""The coordinator of groups: finds and makes them, and keeps their members and offsets in `__consumer_offsets`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from seeklog.errors import SeeklogError
from seeklog.groups.groups import Group as Stored
from seeklog.groups.groups import Groups
from seeklog.groups.records import CommittedOffset, encode_group_key
from seeklog.names import TopicPartition
from seeklog.record.record import Record
from seeklog.server.coordinator.group import NO_GENERATION, Group, Refused, State
from seeklog.wire import messages
from seeklog.wire.codec import encode
from seeklog.wire.error_code import ErrorCode
from seeklog.wire.table import schema_in

if TYPE_CHECKING:
    from seeklog.server.broker import Broker

logger = logging.getLogger("seeklog")

VALUE_VERSION = 3
MIN_SESSION_S, MAX_SESSION_S = 6.0, 1800.0
METADATA_MAX = 4096


class GroupCoordinator:
    """All groups of a store. Its methods are for the event loop's thread."""

    def __init__(self, broker: Broker, stored: Groups, *, initial_delay_s: float) -> None:
        self._broker = broker
        self._stored = stored
        self._initial_delay_s = initial_delay_s
        self._groups: dict[str, Group] = {}

    async def group(self, name: str, *, create: bool) -> Group | None:
        """Return a group; one that is stored continues its generations."""
        group = self._groups.get(name)
        if group is None:
            found = await self._broker.in_thread(self._stored.look, name)
            group = self._groups.get(name)
            if group is None and (found is not None or create):
                group = self._groups[name] = Group(name, self._initial_delay_s, self.save)
                if found is not None:
                    group.generation = found.state.generation
                    group.protocol_type = found.state.protocol_type
        return group

    async def all(self) -> list[Group]:
        """Return every group, sorted by name."""
        for name in await self._broker.in_thread(self._stored.names):
            await self.group(name, create=False)
        return [group for _, group in sorted(self._groups.items())]

    def save(self, group: Group) -> asyncio.Future[None]:
        """Make the members of a group durable, as they are at this call."""
        record = Record(_value_of(group, now_ms=self._broker.now_ms()), key=encode_group_key(group.name))
        saving = asyncio.ensure_future(self._broker.in_thread(self._append, group.name, record))
        saving.add_done_callback(lambda done: _log_failure(group.name, done))
        return saving

    def _append(self, name: str, record: Record) -> None:
        with self._stored.changing(name) as change:
            change.pending.append(record)

    # ------------------------------------------------------------ offsets

    async def stored(self, name: str) -> Stored | None:
        return await self._broker.in_thread(self._stored.look, name)

    async def commit(
        self,
        name: str,
        offsets: Mapping[TopicPartition, CommittedOffset | None],
        *,
        member_id: str,
        instance_id: str | None,
        generation: int,
    ) -> None:
        """Make offsets durable; None deletes one. Raises `Refused` for a member of another generation."""
        group = await self.group(name, create=True)
        assert group is not None
        if generation == NO_GENERATION and not member_id:
            if group.state is not State.EMPTY:
                raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            if group.state in (State.EMPTY, State.DEAD) and not group.members:
                raise Refused(ErrorCode.UNKNOWN_MEMBER_ID if generation >= 0 else ErrorCode.ILLEGAL_GENERATION)
            member = group.checked(member_id, instance_id, generation)
            if group.state is State.COMPLETING:
                raise Refused(ErrorCode.REBALANCE_IN_PROGRESS)
            group.touch(member)
        await self._broker.in_thread(self._put_offsets, name, offsets)

    def _put_offsets(self, name: str, offsets: Mapping[TopicPartition, CommittedOffset | None]) -> None:
        with self._stored.changing(name) as change:
            change.put_offsets(offsets)

    async def delete_offsets(self, name: str, partitions: Iterable[TopicPartition]) -> None:
        await self._broker.in_thread(self._put_offsets, name, dict.fromkeys(partitions))

    async def delete(self, name: str) -> ErrorCode:
        """Delete a group without members."""
        group = await self.group(name, create=False)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if group.members or group.pending:
            return ErrorCode.NON_EMPTY_GROUP
        group.close()
        self._groups.pop(name, None)
        await self._broker.in_thread(self._delete, name)
        return ErrorCode.NONE

    def _delete(self, name: str) -> None:
        with self._stored.changing(name) as change:
            change.put_offsets(dict.fromkeys(change.group.offsets))
            change.drop_state()

    def close(self) -> None:
        for group in self._groups.values():
            group.close()


def _value_of(group: Group, *, now_ms: int) -> bytes:
    """Return the record of a group's members, in Kafka's format."""
    value = messages.GroupMetadataValue(
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol=group.protocol or None,
        leader=group.leader or None,
        current_state_timestamp=now_ms,
        members=[
            messages.GroupMetadataValue.MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.host,
                rebalance_timeout=int(1000 * member.rebalance_timeout_s),
                session_timeout=int(1000 * member.session_timeout_s),
                subscription=member.metadata(group.protocol),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
    return VALUE_VERSION.to_bytes(2) + encode(schema_in(messages.GroupMetadataValue, VALUE_VERSION), value)


def _log_failure(name: str, done: asyncio.Future[None]) -> None:
    error = done.exception() if not done.cancelled() else None
    if isinstance(error, SeeklogError):
        logger.error("group %s: its members were not saved: %s", name, error)
