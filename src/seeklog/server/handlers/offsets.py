"""ListOffsets and OffsetForLeaderEpoch: where to begin, and where an epoch ended."""

from __future__ import annotations

from typing import Final

from seeklog.errors import SeeklogError
from seeklog.log import LogReader, find_offset_at_time
from seeklog.names import TopicPartition
from seeklog.server.broker import Broker
from seeklog.server.errors import code_of
from seeklog.server.request import Request, handles
from seeklog.wire import messages
from seeklog.wire.api_key import ApiKey
from seeklog.wire.error_code import ErrorCode

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
# Nothing is in another tier.
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

_Topic = messages.ListOffsetsResponse.ListOffsetsTopicResponse
_Partition = _Topic.ListOffsetsPartitionResponse


@handles(ApiKey.LIST_OFFSETS)
async def list_offsets(broker: Broker, request: Request) -> messages.ListOffsetsResponse:
    return await broker.in_thread(_list_offsets, broker, request.message)


def _list_offsets(broker: Broker, message: messages.ListOffsetsRequest) -> messages.ListOffsetsResponse:
    topics = []
    for topic in message.topics:
        answers = []
        for asked in topic.partitions:
            answer = _Partition(partition_index=asked.partition_index, timestamp=-1, offset=-1)
            error = broker.partition_error(topic.name, asked.partition_index, asked.current_leader_epoch)
            if error:
                answers.append(answer.replace(error_code=error))
                continue
            try:
                log = broker.open_reader(TopicPartition(topic.name, asked.partition_index))
                timestamp, offset = _find(log, asked.timestamp)
            except SeeklogError as failure:
                answers.append(answer.replace(error_code=code_of(failure)))
                continue
            answers.append(answer.replace(timestamp=timestamp, offset=offset))
        topics.append(_Topic(name=topic.name, partitions=answers))
    return messages.ListOffsetsResponse(topics=topics)


def _find(log: LogReader, timestamp: int) -> tuple[int, int]:
    """Return the timestamp and the offset that a client asks for, each -1 if no record fits."""
    if timestamp == LATEST:
        return -1, log.high_watermark
    if timestamp in (EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD):
        return -1, log.log_start_offset
    if timestamp == LATEST_TIERED:
        return -1, -1
    if timestamp == MAX_TIMESTAMP:
        newest = log.max_timestamp_ms()
        if newest is None:
            return -1, -1
        timestamp = newest
    offset = find_offset_at_time(log, timestamp)
    if offset is None:
        return -1, -1
    record = next(log.read(offset, max_records=1), None)
    return (record.timestamp_ms or 0, record.offset) if record is not None else (-1, -1)


@handles(ApiKey.OFFSET_FOR_LEADER_EPOCH)
async def offset_for_leader_epoch(broker: Broker, request: Request) -> messages.OffsetForLeaderEpochResponse:
    return await broker.in_thread(_offsets_for_epochs, broker, request.message)


def _offsets_for_epochs(
    broker: Broker, message: messages.OffsetForLeaderEpochRequest
) -> messages.OffsetForLeaderEpochResponse:
    of_topic = messages.OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    topics = []
    for topic in message.topics:
        answers = []
        for asked in topic.partitions:
            error = broker.partition_error(topic.topic, asked.partition, asked.current_leader_epoch)
            epoch = end = -1
            if not error:
                try:
                    log = broker.open_reader(TopicPartition(topic.topic, asked.partition))
                    epoch, end = log.end_offset_for_epoch(asked.leader_epoch) if asked.leader_epoch >= 0 else (-1, -1)
                except SeeklogError as failure:
                    error = code_of(failure)
            answers.append(
                of_topic.EpochEndOffset(
                    error_code=error or ErrorCode.NONE, partition=asked.partition, leader_epoch=epoch, end_offset=end
                )
            )
        topics.append(of_topic(topic=topic.topic, partitions=answers))
    return messages.OffsetForLeaderEpochResponse(topics=topics)
