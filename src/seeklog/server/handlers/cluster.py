"""The cluster as clients see it: Metadata, DescribeCluster, DescribeTopicPartitions."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from seeklog import names
from seeklog.errors import SeeklogError, TopicExists
from seeklog.server.broker import NO_EPOCH, NO_TOPIC_ID, NODE_ID, Broker, id_of_text
from seeklog.server.errors import code_of
from seeklog.server.request import Request, handles
from seeklog.topics.catalog import Topic
from seeklog.wire import messages
from seeklog.wire.api_key import ApiKey
from seeklog.wire.error_code import ErrorCode

# Nobody asked which operations are allowed, or the server has no ACLs.
NO_OPERATIONS = -(2**31)
PARTITIONS_AT_ONCE = 2000


@handles(ApiKey.METADATA)
async def metadata(broker: Broker, request: Request) -> messages.MetadataResponse:
    asked = request.message.topics
    if asked is None or (request.version == 0 and not asked):
        described = [_topic(broker, topic) for topic in broker.topics()]
    else:
        may_create = request.message.allow_auto_topic_creation and broker.settings.auto_create_topics
        described = [await _asked_topic(broker, one, may_create=may_create) for one in asked]
    endpoint = broker.endpoint_for(request.listener)
    return messages.MetadataResponse(
        brokers=[
            messages.MetadataResponse.MetadataResponseBroker(node_id=NODE_ID, host=endpoint.host, port=endpoint.port)
        ],
        cluster_id=broker.cluster_id,
        controller_id=NODE_ID,
        topics=described,
    )


async def _asked_topic(
    broker: Broker, asked: messages.MetadataRequest.MetadataRequestTopic, *, may_create: bool
) -> messages.MetadataResponse.MetadataResponseTopic:
    name, topic_id = asked.name, asked.topic_id
    topic = broker.topic(name or "", topic_id)
    error = ErrorCode.NONE
    if name is None:
        error = ErrorCode.NONE if topic is not None else ErrorCode.UNKNOWN_TOPIC_ID
    elif topic is None and not names.is_topic_name(name):
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif topic is None and not may_create:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif topic is None:
        try:
            await broker.in_thread(partial(broker.store.create_topic, name, partitions=broker.settings.partitions))
        except TopicExists:
            pass  # another client was faster
        except SeeklogError as failure:
            error = code_of(failure)
        topic = broker.topic(name)
        if topic is None and not error:
            error = ErrorCode.LEADER_NOT_AVAILABLE
    if topic is None:
        return messages.MetadataResponse.MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id)
    return _topic(broker, topic)


def _topic(broker: Broker, topic: Topic) -> messages.MetadataResponse.MetadataResponseTopic:
    nodes = [NODE_ID]
    partition_of = messages.MetadataResponse.MetadataResponseTopic.MetadataResponsePartition
    return messages.MetadataResponse.MetadataResponseTopic(
        name=topic.name,
        topic_id=id_of_text(topic.topic_id),
        is_internal=topic.name in names.INTERNAL_TOPICS,
        partitions=[
            partition_of(
                partition_index=number, leader_id=NODE_ID, leader_epoch=NO_EPOCH, replica_nodes=nodes, isr_nodes=nodes
            )
            for number in topic.partitions
        ],
    )


@handles(ApiKey.DESCRIBE_CLUSTER)
def describe_cluster(broker: Broker, request: Request) -> messages.DescribeClusterResponse:
    endpoint = broker.endpoint_for(request.listener)
    if request.message.endpoint_type != 1:
        return messages.DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, error_message="this server has no controller endpoints"
        )
    return messages.DescribeClusterResponse(
        endpoint_type=1,
        cluster_id=broker.cluster_id,
        controller_id=NODE_ID,
        brokers=[
            messages.DescribeClusterResponse.DescribeClusterBroker(
                broker_id=NODE_ID, host=endpoint.host, port=endpoint.port
            )
        ],
    )


@handles(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
def describe_topic_partitions(broker: Broker, request: Request) -> messages.DescribeTopicPartitionsResponse:
    """Describe topics in the order of their names, so many partitions at once that the client can ask on."""
    asked = request.message
    cursor = asked.cursor
    wanted = sorted({topic.name for topic in asked.topics} or {topic.name for topic in broker.topics()})
    if cursor is not None:
        wanted = [name for name in wanted if name >= cursor.topic_name]
    room = max(1, min(asked.response_partition_limit, PARTITIONS_AT_ONCE))
    described, following = [], None
    for name in wanted:
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        if not room:
            following = messages.DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=first)
            break
        found = broker.topic(name)
        if found is None:
            described.append(_missing(name))
            continue
        numbers = [number for number in found.partitions if number >= first]
        described.append(_described(broker, found, numbers[:room]))
        if len(numbers) > room:
            following = messages.DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=numbers[room])
            break
        room -= len(numbers)
    return messages.DescribeTopicPartitionsResponse(topics=described, next_cursor=following)


_DescribedTopic = messages.DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic


def _missing(name: str) -> _DescribedTopic:
    is_valid = names.is_topic_name(name)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid else ErrorCode.INVALID_TOPIC_EXCEPTION
    return _DescribedTopic(error_code=error, name=name, topic_id=NO_TOPIC_ID)


def _described(broker: Broker, topic: Topic, partitions: Iterable[int]) -> _DescribedTopic:
    nodes = [NODE_ID]
    return _DescribedTopic(
        name=topic.name,
        topic_id=id_of_text(topic.topic_id),
        is_internal=topic.name in names.INTERNAL_TOPICS,
        topic_authorized_operations=NO_OPERATIONS,
        partitions=[
            _DescribedTopic.DescribeTopicPartitionsResponsePartition(
                partition_index=number,
                leader_id=NODE_ID,
                leader_epoch=NO_EPOCH,
                replica_nodes=nodes,
                isr_nodes=nodes,
            )
            for number in partitions
        ],
    )
