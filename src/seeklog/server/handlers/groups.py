"""Consumer groups of the classic protocol: members, offsets, and their administration."""

from __future__ import annotations

from typing import Any, Final

from seeklog.errors import SeeklogError
from seeklog.groups.groups import Group as Stored
from seeklog.groups.records import CommittedOffset
from seeklog.names import TopicPartition
from seeklog.server.broker import NO_TOPIC_ID, NODE_ID, Broker, id_of_text
from seeklog.server.coordinator.group import Group, Joining, Refused, State
from seeklog.server.coordinator.groups import MAX_SESSION_S, METADATA_MAX, MIN_SESSION_S
from seeklog.server.errors import code_of
from seeklog.server.request import Request, handles
from seeklog.wire import messages
from seeklog.wire.api_key import ApiKey
from seeklog.wire.error_code import ErrorCode

GROUP, TRANSACTION = 0, 1
# Nobody asked which operations are allowed.
NO_OPERATIONS: Final = -(2**31)
KNOWN_ID_VERSION: Final = 4
"""The version of JoinGroup from which on a client takes an id before it joins."""


@handles(ApiKey.FIND_COORDINATOR)
def find_coordinator(broker: Broker, request: Request) -> messages.FindCoordinatorResponse:
    message: messages.FindCoordinatorRequest = request.message
    endpoint = broker.endpoint_for(request.listener)
    error = ErrorCode.NONE if message.key_type == GROUP else ErrorCode.COORDINATOR_NOT_AVAILABLE
    coordinator = messages.FindCoordinatorResponse.Coordinator
    return messages.FindCoordinatorResponse(
        error_code=error,
        node_id=NODE_ID,
        host=endpoint.host,
        port=endpoint.port,
        coordinators=[
            coordinator(key=key, node_id=NODE_ID, host=endpoint.host, port=endpoint.port, error_code=error)
            for key in message.coordinator_keys
        ],
    )


@handles(ApiKey.JOIN_GROUP)
async def join_group(broker: Broker, request: Request) -> messages.JoinGroupResponse:
    message: messages.JoinGroupRequest = request.message
    try:
        if not message.group_id:
            raise Refused(ErrorCode.INVALID_GROUP_ID)
        session_s = message.session_timeout_ms / 1000
        if not MIN_SESSION_S <= session_s <= MAX_SESSION_S:
            raise Refused(ErrorCode.INVALID_SESSION_TIMEOUT)
        group = await broker.groups.group(message.group_id, create=not message.member_id)
        if group is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
        rebalance_ms = message.rebalance_timeout_ms if message.rebalance_timeout_ms > 0 else message.session_timeout_ms
        joined = await group.join(
            Joining(
                member_id=message.member_id,
                instance_id=message.group_instance_id,
                client_id=request.client_id or "consumer",
                host=f"/{request.peer.rpartition(':')[0]}",
                session_timeout_s=session_s,
                rebalance_timeout_s=rebalance_ms / 1000,
                protocol_type=message.protocol_type,
                protocols=tuple((protocol.name, protocol.metadata) for protocol in message.protocols),
                needs_known_id=request.version >= KNOWN_ID_VERSION,
            )
        )
    except Refused as refused:
        return messages.JoinGroupResponse(
            error_code=refused.code,
            member_id=refused.member_id or message.member_id,
            protocol_name="" if request.version < 7 else None,
        )
    return messages.JoinGroupResponse(
        generation_id=joined.generation,
        protocol_type=message.protocol_type,
        protocol_name=joined.protocol,
        leader=joined.leader,
        skip_assignment=joined.skips_assignment,
        member_id=joined.member_id,
        members=[
            messages.JoinGroupResponse.JoinGroupResponseMember(
                member_id=member_id, group_instance_id=instance_id, metadata=metadata
            )
            for member_id, instance_id, metadata in joined.members
        ],
    )


@handles(ApiKey.SYNC_GROUP)
async def sync_group(broker: Broker, request: Request) -> messages.SyncGroupResponse:
    message: messages.SyncGroupRequest = request.message
    try:
        group = await _known_group(broker, message.group_id)
        assignment = await group.sync(
            message.member_id,
            message.group_instance_id,
            message.generation_id,
            {one.member_id: one.assignment for one in message.assignments},
            protocol_type=message.protocol_type,
            protocol=message.protocol_name,
        )
    except Refused as refused:
        return messages.SyncGroupResponse(error_code=refused.code)
    return messages.SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=assignment
    )


@handles(ApiKey.HEARTBEAT)
async def heartbeat(broker: Broker, request: Request) -> messages.HeartbeatResponse:
    message: messages.HeartbeatRequest = request.message
    try:
        group = await _known_group(broker, message.group_id)
        group.heartbeat(message.member_id, message.group_instance_id, message.generation_id)
    except Refused as refused:
        return messages.HeartbeatResponse(error_code=refused.code)
    return messages.HeartbeatResponse()


@handles(ApiKey.LEAVE_GROUP)
async def leave_group(broker: Broker, request: Request) -> messages.LeaveGroupResponse:
    message: messages.LeaveGroupRequest = request.message
    answer = messages.LeaveGroupResponse.MemberResponse
    try:
        group = await _known_group(broker, message.group_id)
        if request.version < 3:
            group.leave(message.member_id, None)
            return messages.LeaveGroupResponse()
    except Refused as refused:
        return messages.LeaveGroupResponse(error_code=refused.code)
    answers = []
    for member in message.members:
        try:
            member_id, error = group.leave(member.member_id, member.group_instance_id), ErrorCode.NONE
        except Refused as refused:
            member_id, error = member.member_id, refused.code
        answers.append(answer(member_id=member_id, group_instance_id=member.group_instance_id, error_code=error))
    return messages.LeaveGroupResponse(members=answers)


async def _known_group(broker: Broker, name: str) -> Group:
    if not name:
        raise Refused(ErrorCode.INVALID_GROUP_ID)
    group = await broker.groups.group(name, create=False)
    if group is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    return group


# ---------------------------------------------------------------- offsets


@handles(ApiKey.OFFSET_COMMIT)
async def offset_commit(broker: Broker, request: Request) -> messages.OffsetCommitResponse:
    message: messages.OffsetCommitRequest = request.message
    offsets: dict[TopicPartition, CommittedOffset | None] = {}
    errors: dict[tuple[int, int], ErrorCode] = {}
    now_ms = broker.now_ms()
    for at, topic in enumerate(message.topics):
        known = broker.topic(topic.name, topic.topic_id)
        for partition in topic.partitions:
            key = (at, partition.partition_index)
            if known is None:
                errors[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic.name else ErrorCode.UNKNOWN_TOPIC_ID
            elif partition.partition_index not in known.partitions:
                errors[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len((partition.committed_metadata or "").encode()) > METADATA_MAX:
                errors[key] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                offsets[TopicPartition(known.name, partition.partition_index)] = CommittedOffset(
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=partition.committed_metadata or "",
                    commit_timestamp_ms=now_ms,
                )
    failure = ErrorCode.NONE
    try:
        if not message.group_id:
            raise Refused(ErrorCode.INVALID_GROUP_ID)
        await broker.groups.commit(
            message.group_id,
            offsets,
            member_id=message.member_id,
            instance_id=message.group_instance_id,
            generation=message.generation_id_or_member_epoch,
        )
    except Refused as refused:
        failure = refused.code
    except SeeklogError as error:
        failure = code_of(error)
    of_topic = messages.OffsetCommitResponse.OffsetCommitResponseTopic
    return messages.OffsetCommitResponse(
        topics=[
            of_topic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    of_topic.OffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=failure or errors.get((at, partition.partition_index), ErrorCode.NONE),
                    )
                    for partition in topic.partitions
                ],
            )
            for at, topic in enumerate(message.topics)
        ]
    )


@handles(ApiKey.OFFSET_FETCH)
async def offset_fetch(broker: Broker, request: Request) -> messages.OffsetFetchResponse:
    message: messages.OffsetFetchRequest = request.message
    if request.version < 8:
        stored = await broker.groups.stored(message.group_id)
        wanted = None if message.topics is None else [(one.name, one.partition_indexes) for one in message.topics]
        of_topic = messages.OffsetFetchResponse.OffsetFetchResponseTopic
        return messages.OffsetFetchResponse(
            topics=[
                of_topic(
                    name=name,
                    partitions=[
                        of_topic.OffsetFetchResponsePartition(**_fetched(stored, TopicPartition(name, number)))
                        for number in numbers
                    ],
                )
                for name, numbers in _wanted(stored, wanted)
            ]
        )
    return messages.OffsetFetchResponse(groups=[await _fetched_group(broker, asked) for asked in message.groups])


async def _fetched_group(
    broker: Broker, asked: messages.OffsetFetchRequest.OffsetFetchRequestGroup
) -> messages.OffsetFetchResponse.OffsetFetchResponseGroup:
    stored = await broker.groups.stored(asked.group_id)
    of_group = messages.OffsetFetchResponse.OffsetFetchResponseGroup
    of_topic = of_group.OffsetFetchResponseTopics
    wanted, unknown = None, []
    if asked.topics is not None:
        wanted = []
        for topic in asked.topics:
            known = broker.topic(topic.name, topic.topic_id)
            if known is not None or topic.topic_id == NO_TOPIC_ID:
                wanted.append((known.name if known is not None else topic.name, topic.partition_indexes))
            else:
                unknown.append(topic)
    topics = []
    for name, numbers in _wanted(stored, wanted):
        known = broker.topic(name)
        topics.append(
            of_topic(
                name=name,
                topic_id=id_of_text(known.topic_id) if known is not None else NO_TOPIC_ID,
                partitions=[
                    of_topic.OffsetFetchResponsePartitions(**_fetched(stored, TopicPartition(name, number)))
                    for number in numbers
                ],
            )
        )
    for topic in unknown:
        missing = [
            of_topic.OffsetFetchResponsePartitions(
                partition_index=number, committed_offset=-1, metadata="", error_code=ErrorCode.UNKNOWN_TOPIC_ID
            )
            for number in topic.partition_indexes
        ]
        topics.append(of_topic(topic_id=topic.topic_id, partitions=missing))
    return of_group(group_id=asked.group_id, topics=topics)


def _wanted(stored: Stored | None, asked: Any) -> list[tuple[str, list[int]]]:
    """Return topics with their partitions: those that were asked for, or all that have offsets."""
    if asked is not None:
        return list(asked)
    found: dict[str, list[int]] = {}
    for partition in sorted(stored.offsets if stored is not None else ()):
        found.setdefault(partition.topic, []).append(partition.partition)
    return list(found.items())


def _fetched(stored: Stored | None, partition: TopicPartition) -> dict[str, Any]:
    committed = stored.offsets.get(partition) if stored is not None else None
    # No offset is -1 without an error, also in a group that does not exist: Java takes any error for fatal.
    return {
        "partition_index": partition.partition,
        "committed_offset": -1 if committed is None else committed.offset,
        "committed_leader_epoch": -1 if committed is None else committed.leader_epoch,
        "metadata": "" if committed is None else committed.metadata,
    }


@handles(ApiKey.OFFSET_DELETE)
async def offset_delete(broker: Broker, request: Request) -> messages.OffsetDeleteResponse:
    message: messages.OffsetDeleteRequest = request.message
    group = await broker.groups.group(message.group_id, create=False)
    if group is None:
        return messages.OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    stored = await broker.groups.stored(message.group_id)
    partitions = [
        TopicPartition(topic.name, partition.partition_index)
        for topic in message.topics
        for partition in topic.partitions
    ]
    error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.members else ErrorCode.NONE
    if not error:
        known = [one for one in partitions if stored is not None and one in stored.offsets]
        await broker.groups.delete_offsets(message.group_id, known)
    of_topic = messages.OffsetDeleteResponse.OffsetDeleteResponseTopic
    return messages.OffsetDeleteResponse(
        topics=[
            of_topic(
                name=topic.name,
                partitions=[
                    of_topic.OffsetDeleteResponsePartition(partition_index=one.partition_index, error_code=error)
                    for one in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


# ---------------------------------------------------------------- administration


@handles(ApiKey.DESCRIBE_GROUPS)
async def describe_groups(broker: Broker, request: Request) -> messages.DescribeGroupsResponse:
    described = messages.DescribeGroupsResponse.DescribedGroup
    groups = []
    for name in request.message.groups:
        group = await broker.groups.group(name, create=False)
        if group is None:
            is_new = request.version >= 6
            groups.append(
                described(
                    error_code=ErrorCode.GROUP_ID_NOT_FOUND if is_new else ErrorCode.NONE,
                    error_message=f"there is no group {name!r}" if is_new else None,
                    group_id=name,
                    group_state=State.DEAD.value,
                )
            )
            continue
        is_shared = group.state in (State.COMPLETING, State.STABLE)
        groups.append(
            described(
                group_id=name,
                group_state=group.state.value,
                protocol_type=group.protocol_type,
                protocol_data=group.protocol if is_shared else "",
                authorized_operations=NO_OPERATIONS,
                members=[
                    described.DescribedGroupMember(
                        member_id=member.member_id,
                        group_instance_id=member.instance_id,
                        client_id=member.client_id,
                        client_host=member.host,
                        member_metadata=member.metadata(group.protocol) if is_shared else b"",
                        member_assignment=member.assignment,
                    )
                    for member in group.members.values()
                ],
            )
        )
    return messages.DescribeGroupsResponse(groups=groups)


@handles(ApiKey.LIST_GROUPS)
async def list_groups(broker: Broker, request: Request) -> messages.ListGroupsResponse:
    message: messages.ListGroupsRequest = request.message
    states = {state.lower() for state in message.states_filter}
    types = {kind.lower() for kind in message.types_filter}
    return messages.ListGroupsResponse(
        groups=[
            messages.ListGroupsResponse.ListedGroup(
                group_id=group.name,
                protocol_type=group.protocol_type,
                group_state=group.state.value,
                group_type="classic",
            )
            for group in await broker.groups.all()
            if (not states or group.state.value.lower() in states) and (not types or "classic" in types)
        ]
    )


@handles(ApiKey.DELETE_GROUPS)
async def delete_groups(broker: Broker, request: Request) -> messages.DeleteGroupsResponse:
    results = []
    for name in request.message.groups_names:
        try:
            error = await broker.groups.delete(name)
        except SeeklogError as failure:
            error = code_of(failure)
        results.append(messages.DeleteGroupsResponse.DeletableGroupResult(group_id=name, error_code=error))
    return messages.DeleteGroupsResponse(results=results)
