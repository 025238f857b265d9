"""Produce: batches stay bytes. They are checked, stamped with their offsets, and appended.

A response waits until the records have what `acks` asks for. `acks=1` is satisfied when the topic's `flush` is, and
`acks=all` when the high watermark has passed the batch; under `flush=batch` both follow a sync that all who wait share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from seeklog.errors import CorruptBatch, SeeklogError
from seeklog.names import TopicPartition
from seeklog.record.layout import HEADER_SIZE
from seeklog.server.broker import Broker
from seeklog.server.errors import code_of
from seeklog.server.request import Answer, Request, handles
from seeklog.wire import messages
from seeklog.wire.api_key import ApiKey
from seeklog.wire.error_code import ErrorCode

if TYPE_CHECKING:
    from seeklog.wire.codec import Records

ACKS: Final = frozenset({-1, 0, 1})

_Topic = messages.ProduceResponse.TopicProduceResponse
_Partition = _Topic.PartitionProduceResponse


class _Target(NamedTuple):
    """The batch for one partition, or why it cannot be appended."""

    number: int
    partition: TopicPartition | None
    records: Records | None
    error: ErrorCode


@handles(ApiKey.PRODUCE)
def produce(broker: Broker, request: Request) -> Answer:
    message: messages.ProduceRequest = request.message
    refusal = ErrorCode.NONE if message.acks in ACKS else ErrorCode.INVALID_REQUIRED_ACKS
    targets = [_targets(broker, topic, refusal) for topic in message.topic_data]
    partitions = [target.partition for row in targets for target in row if target.partition is not None]
    if all(broker.is_open_to_write(one) and not broker.syncs_each(one) for one in partitions):
        answers = [[_append(broker, target) for target in row] for row in targets]
        for partition in partitions:
            broker.purgatory.changed(partition)
        return _response(message, answers) if message.acks else None
    return _produce_slowly(broker, message, targets, partitions)


async def _produce_slowly(
    broker: Broker,
    message: messages.ProduceRequest,
    targets: Sequence[Sequence[_Target]],
    partitions: Sequence[TopicPartition],
) -> messages.ProduceResponse | None:
    """Append in a thread, and wait for syncs: a log must be opened first, or its records be durable."""
    answers = await broker.in_thread(lambda: [[_append(broker, target) for target in row] for row in targets])
    for partition in partitions:
        broker.purgatory.changed(partition)
    if message.acks == 0:
        return None
    synced = [partition for partition in partitions if broker.syncs_each(partition)]
    outcomes = await asyncio.gather(*map(broker.sync, synced), return_exceptions=True)
    failed: dict[TopicPartition, SeeklogError] = {}
    for partition, outcome in zip(synced, outcomes, strict=True):
        if isinstance(outcome, SeeklogError):
            failed[partition] = outcome
        elif outcome is not None:
            raise outcome
    if failed:
        # Whether the records are durable is not known, so no offset is promised.
        answers = [
            [
                _failed(target.number, failed[target.partition]) if target.partition in failed else answer
                for target, answer in zip(row, given, strict=True)
            ]
            for row, given in zip(targets, answers, strict=True)
        ]
    return _response(message, answers)


def _targets(broker: Broker, topic: messages.ProduceRequest.TopicProduceData, refusal: ErrorCode) -> list[_Target]:
    known = broker.topic(topic.name, topic.topic_id)
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic.name else ErrorCode.UNKNOWN_TOPIC_ID
    targets = []
    for data in topic.partition_data:
        error, partition = refusal, None
        if known is None:
            error = error or missing
        elif data.index not in known.partitions:
            error = error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif not error:
            partition = TopicPartition(known.name, data.index)
        targets.append(_Target(data.index, partition, data.records, error))
    return targets


def _append(broker: Broker, target: _Target) -> _Partition:
    if target.partition is None:
        return _Partition(index=target.number, error_code=target.error, base_offset=-1)
    try:
        raw = bytes(cast("memoryview | None", target.records) or b"")
        if len(raw) < HEADER_SIZE:
            raise CorruptBatch(f"{len(raw)} bytes hold no record batch; send one", position=0)
        with broker.writing(target.partition) as log:
            offsets = log.append_batches(raw, wait=False)
            start = log.reader.log_start_offset
            stamped_ms = log.clock.now_ms() if log.config.message_timestamp_type == "LogAppendTime" else -1
    except SeeklogError as error:
        return _failed(target.number, error)
    return _Partition(
        index=target.number, base_offset=offsets.start, log_append_time_ms=stamped_ms, log_start_offset=start
    )


def _failed(index: int, error: SeeklogError) -> _Partition:
    return _Partition(index=index, error_code=code_of(error), base_offset=-1, error_message=str(error))


def _response(message: messages.ProduceRequest, answers: Sequence[Sequence[_Partition]]) -> messages.ProduceResponse:
    return messages.ProduceResponse(
        responses=[
            _Topic(name=topic.name, topic_id=topic.topic_id, partition_responses=given)
            for topic, given in zip(message.topic_data, answers, strict=True)
        ]
    )
