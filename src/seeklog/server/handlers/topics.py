"""CreateTopics, DeleteTopics, CreatePartitions, DeleteRecords and InitProducerId."""

from __future__ import annotations

from collections import Counter
from functools import partial

from seeklog import names
from seeklog.errors import OffsetOutOfRange, SeeklogError, counted
from seeklog.names import TopicPartition
from seeklog.server.broker import NO_TOPIC_ID, Broker, id_of_text
from seeklog.server.errors import code_of
from seeklog.server.request import Request, handles
from seeklog.wire import messages
from seeklog.wire.api_key import ApiKey
from seeklog.wire.error_code import ErrorCode

DEFAULT = -1
# The high watermark, in DeleteRecords.
END = -1

_Created = messages.CreateTopicsResponse.CreatableTopicResult


@handles(ApiKey.CREATE_TOPICS)
async def create_topics(broker: Broker, request: Request) -> messages.CreateTopicsResponse:
    message: messages.CreateTopicsRequest = request.message
    asked = Counter(topic.name for topic in message.topics)
    topics = []
    for topic in {topic.name: topic for topic in message.topics}.values():
        if asked[topic.name] > 1:
            topics.append(_refused(topic.name, ErrorCode.INVALID_REQUEST, "the request names the topic twice"))
        else:
            topics.append(await _create(broker, topic, only_checks=message.validate_only))
    return messages.CreateTopicsResponse(topics=topics)


async def _create(broker: Broker, topic: messages.CreateTopicsRequest.CreatableTopic, *, only_checks: bool) -> _Created:
    partitions = broker.settings.partitions if topic.num_partitions == DEFAULT else topic.num_partitions
    if topic.assignments:
        partitions = len(topic.assignments)
    elif topic.replication_factor not in (DEFAULT, 1):
        text = f"replication factor {topic.replication_factor} is larger than the 1 available broker"
        return _refused(topic.name, ErrorCode.INVALID_REPLICATION_FACTOR, text)
    if partitions < 1:
        return _refused(topic.name, ErrorCode.INVALID_PARTITIONS, f"a topic cannot have {partitions} partitions")
    config = {setting.name: setting.value for setting in topic.configs if setting.value is not None}
    if broker.topic(topic.name) is not None:
        return _refused(topic.name, ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {topic.name!r} exists already")
    try:
        names.check_topic_name(topic.name)
        if only_checks:
            broker.check_settings(config)
            return _Created(name=topic.name, num_partitions=partitions, replication_factor=1, configs=[])
        work = partial(broker.store.create_topic, topic.name, partitions=partitions, config=config)
        made = await broker.in_thread(work)
    except SeeklogError as error:
        return _refused(topic.name, code_of(error), str(error))
    return _Created(
        name=topic.name,
        topic_id=id_of_text(made.topic_id),
        num_partitions=len(made.partitions),
        replication_factor=1,
        configs=[],  # null would make Java's AdminClient fail
    )


def _refused(name: str, error: ErrorCode, text: str) -> _Created:
    return _Created(name=name, error_code=error, error_message=text, configs=[])


@handles(ApiKey.DELETE_TOPICS)
async def delete_topics(broker: Broker, request: Request) -> messages.DeleteTopicsResponse:
    message: messages.DeleteTopicsRequest = request.message
    asked = [(name, NO_TOPIC_ID) for name in message.topic_names]
    asked += [(topic.name or "", topic.topic_id) for topic in message.topics]
    result = messages.DeleteTopicsResponse.DeletableTopicResult
    responses = []
    for name, topic_id in asked:
        topic = broker.topic(name, topic_id)
        if topic is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if name else ErrorCode.UNKNOWN_TOPIC_ID
            responses.append(result(name=name or None, topic_id=topic_id, error_code=error))
            continue
        answer = result(name=topic.name, topic_id=id_of_text(topic.topic_id))
        try:
            await broker.in_thread(broker.store.delete_topic, topic.name)
        except SeeklogError as failure:
            answer = answer.replace(error_code=code_of(failure), error_message=str(failure))
        for number in topic.partitions:
            broker.purgatory.changed(TopicPartition(topic.name, number))
        responses.append(answer)
    return messages.DeleteTopicsResponse(responses=responses)


@handles(ApiKey.CREATE_PARTITIONS)
async def create_partitions(broker: Broker, request: Request) -> messages.CreatePartitionsResponse:
    message: messages.CreatePartitionsRequest = request.message
    result = messages.CreatePartitionsResponse.CreatePartitionsTopicResult
    results = []
    for asked in message.topics:
        topic = broker.topic(asked.name)
        error, text = ErrorCode.NONE, None
        if topic is None:
            error, text = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {asked.name!r}"
        elif asked.count <= topic.partition_count:
            error = ErrorCode.INVALID_PARTITIONS
            text = f"topic {asked.name!r} has {counted(topic.partition_count, 'partition')}; ask for more"
        elif not message.validate_only:
            try:
                await broker.in_thread(partial(broker.store.add_partitions, asked.name, partitions=asked.count))
            except SeeklogError as failure:
                error, text = code_of(failure), str(failure)
        results.append(result(name=asked.name, error_code=error, error_message=text))
    return messages.CreatePartitionsResponse(results=results)


@handles(ApiKey.DELETE_RECORDS)
async def delete_records(broker: Broker, request: Request) -> messages.DeleteRecordsResponse:
    return await broker.in_thread(_delete_records, broker, request.message)


def _delete_records(broker: Broker, message: messages.DeleteRecordsRequest) -> messages.DeleteRecordsResponse:
    of_topic = messages.DeleteRecordsResponse.DeleteRecordsTopicResult
    topics = []
    for topic in message.topics:
        answers = []
        for asked in topic.partitions:
            error = broker.partition_error(topic.name, asked.partition_index, -1)
            start = -1
            if not error:
                try:
                    with broker.writing(TopicPartition(topic.name, asked.partition_index)) as log:
                        log.delete_before(log.high_watermark if asked.offset == END else asked.offset)
                        start = log.log_start_offset
                except OffsetOutOfRange:
                    error = ErrorCode.OFFSET_OUT_OF_RANGE
                except SeeklogError as failure:
                    error = code_of(failure)
            answers.append(
                of_topic.DeleteRecordsPartitionResult(
                    partition_index=asked.partition_index, low_watermark=start, error_code=error
                )
            )
        topics.append(of_topic(name=topic.name, partitions=answers))
    return messages.DeleteRecordsResponse(topics=topics)


@handles(ApiKey.INIT_PRODUCER_ID)
def init_producer_id(broker: Broker, request: Request) -> messages.InitProducerIdResponse:
    """Give an id to an idempotent producer. A producer of that id that is fenced gets the next epoch."""
    message: messages.InitProducerIdRequest = request.message
    if message.transactional_id is not None:
        return messages.InitProducerIdResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return messages.InitProducerIdResponse(producer_id=broker.new_producer_id(), producer_epoch=0)
