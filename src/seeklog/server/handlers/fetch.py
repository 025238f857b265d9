"""Fetch: slices of segment files up to the high watermark, found by the index. A fetch waits without a thread.

Sessions (KIP-227) are not kept: each response says so with session 0, and each request names all its partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from seeklog.errors import OffsetOutOfRange, SeeklogError
from seeklog.log import LogReader, Slice
from seeklog.names import TopicPartition
from seeklog.server.broker import Broker
from seeklog.server.errors import code_of
from seeklog.server.request import Answer, Request, handles
from seeklog.wire import messages
from seeklog.wire.api_key import ApiKey
from seeklog.wire.error_code import ErrorCode

# A response that is larger is not worth its memory: the client asks again.
BYTES_MAX: Final = 50 << 20

_Topic = messages.FetchResponse.FetchableTopicResponse
_Partition = _Topic.PartitionData


class _Wanted(NamedTuple):
    """One partition of a request, or why it cannot be read."""

    asked: messages.FetchRequest.FetchTopic.FetchPartition
    partition: TopicPartition | None
    error: ErrorCode


@handles(ApiKey.FETCH)
def fetch(broker: Broker, request: Request) -> Answer:
    message: messages.FetchRequest = request.message
    if message.session_id:
        return messages.FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    wanted = [_wanted(broker, topic) for topic in message.topics]
    partitions = [one.partition for row in wanted for one in row if one.partition is not None]
    if not all(broker.reader(partition) is not None for partition in partitions):
        return _fetch_slowly(broker, message, wanted, partitions)
    if message.max_wait_ms > 0 and partitions and not _is_enough(broker, message, wanted):
        return _fetch_later(broker, message, wanted, partitions)
    return _response(broker, message, wanted)


async def _fetch_slowly(
    broker: Broker,
    message: messages.FetchRequest,
    wanted: Sequence[Sequence[_Wanted]],
    partitions: Sequence[TopicPartition],
) -> messages.FetchResponse:
    """Open the logs in a thread first."""
    for partition in partitions:
        if broker.reader(partition) is None:
            try:
                await broker.in_thread(broker.open_reader, partition)
            except SeeklogError:
                break  # the response reports it
    return await _fetch_later(broker, message, wanted, partitions)


async def _fetch_later(
    broker: Broker,
    message: messages.FetchRequest,
    wanted: Sequence[Sequence[_Wanted]],
    partitions: Sequence[TopicPartition],
) -> messages.FetchResponse:
    await broker.purgatory.wait(
        partitions, lambda: _is_enough(broker, message, wanted), timeout_s=max(message.max_wait_ms, 0) / 1000
    )
    return _response(broker, message, wanted)


def _wanted(broker: Broker, topic: messages.FetchRequest.FetchTopic) -> list[_Wanted]:
    known = broker.topic(topic.topic, topic.topic_id)
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic.topic else ErrorCode.UNKNOWN_TOPIC_ID
    return [
        _Wanted(asked, None, missing)
        if known is None
        else _Wanted(asked, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if asked.partition not in known.partitions
        else _Wanted(asked, TopicPartition(known.name, asked.partition), broker.epoch_error(asked.current_leader_epoch))
        for asked in topic.partitions
    ]


def _is_enough(broker: Broker, message: messages.FetchRequest, wanted: Sequence[Sequence[_Wanted]]) -> bool:
    """Return whether a response would have `min_bytes`, or an error that the client must hear of at once."""
    found = 0
    for row in wanted:
        for one in row:
            log = broker.reader(one.partition) if one.partition is not None else None
            if one.error or log is None:
                return True
            try:
                part = log.read_slice(one.asked.fetch_offset, max_bytes=one.asked.partition_max_bytes)
            except SeeklogError:
                return True
            found += len(part) if part is not None else 0
            if found >= message.min_bytes:
                return True
    return False


def _response(
    broker: Broker, message: messages.FetchRequest, wanted: Sequence[Sequence[_Wanted]]
) -> messages.FetchResponse:
    """Read each partition while there is room. The first batch is sent whole, however large it is (KIP-74)."""
    room = min(message.max_bytes, BYTES_MAX)
    is_first = True
    responses = []
    for topic, row in zip(message.topics, wanted, strict=True):
        answers = []
        for one in row:
            answer = _read(broker, one, room=room, is_first=is_first)
            size = len(answer.records or b"")
            room, is_first = room - size, is_first and not size
            answers.append(answer)
        responses.append(_Topic(topic=topic.topic, topic_id=topic.topic_id, partitions=answers))
    return messages.FetchResponse(responses=responses)


def _read(broker: Broker, one: _Wanted, *, room: int, is_first: bool) -> _Partition:
    index, asked = one.asked.partition, one.asked
    if one.partition is None or one.error:
        return _Partition(partition_index=index, error_code=one.error, high_watermark=-1, records=b"")
    log: LogReader | None = None
    part: Slice | None = None
    error = ErrorCode.NONE
    try:
        log = broker.open_reader(one.partition)
        if room > 0 or is_first:
            part = log.read_slice(asked.fetch_offset, max_bytes=max(min(asked.partition_max_bytes, room), 1))
            if part is not None and not is_first and len(part) > room:
                part = None
    except OffsetOutOfRange:
        error = ErrorCode.OFFSET_OUT_OF_RANGE
    except SeeklogError as failure:
        error = code_of(failure)
    if log is None:
        return _Partition(partition_index=index, error_code=error, high_watermark=-1, records=b"")
    watermark = log.known_watermark
    return _Partition(
        partition_index=index,
        error_code=error,
        high_watermark=watermark,
        last_stable_offset=watermark,
        log_start_offset=log.log_start_offset,
        records=part if part is not None else b"",
    )
