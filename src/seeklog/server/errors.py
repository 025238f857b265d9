"""Kafka's error code for each of our errors."""

from __future__ import annotations

import logging
from typing import Final

from seeklog import errors
from seeklog.errors import SeeklogError
from seeklog.wire.error_code import ErrorCode

logger = logging.getLogger("seeklog")

# The first that fits counts, so subclasses come before their bases.
_CODES: Final[tuple[tuple[type[SeeklogError], ErrorCode], ...]] = (
    (errors.InvalidName, ErrorCode.INVALID_TOPIC_EXCEPTION),
    (errors.InvalidConfig, ErrorCode.INVALID_CONFIG),
    (errors.RecordTooLarge, ErrorCode.MESSAGE_TOO_LARGE),
    (errors.TopicNotFound, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    (errors.TopicExists, ErrorCode.TOPIC_ALREADY_EXISTS),
    (errors.OffsetOutOfRange, ErrorCode.OFFSET_OUT_OF_RANGE),
    (errors.ProducerFenced, ErrorCode.INVALID_PRODUCER_EPOCH),
    (errors.DuplicateSequence, ErrorCode.DUPLICATE_SEQUENCE_NUMBER),
    (errors.OutOfOrderSequence, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    (errors.InvalidRecord, ErrorCode.INVALID_RECORD),
    (errors.UnsupportedMagic, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    (errors.CorruptBatch, ErrorCode.CORRUPT_MESSAGE),
    (errors.CorruptionError, ErrorCode.KAFKA_STORAGE_ERROR),
    (errors.DiskFull, ErrorCode.KAFKA_STORAGE_ERROR),
    (errors.LogFailed, ErrorCode.KAFKA_STORAGE_ERROR),
    (errors.LogLocked, ErrorCode.KAFKA_STORAGE_ERROR),
    (errors.LogClosed, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (errors.NotALog, ErrorCode.KAFKA_STORAGE_ERROR),
    (errors.NotAccessible, ErrorCode.KAFKA_STORAGE_ERROR),
    (errors.UsageError, ErrorCode.INVALID_REQUEST),
)


def code_of(error: SeeklogError) -> ErrorCode:
    """Return the error code that a client gets. What it cannot explain is logged."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            if code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER):
                logger.error("%s", error)
            return code
    logger.error("%s: %s", type(error).__name__, error)
    return ErrorCode.UNKNOWN_SERVER_ERROR
