"""Every error that seeklog raises on purpose. Each class asks for a different reaction::

    SeeklogError
    ├── UsageError                  the call is wrong: fix the program
    │   ├── InvalidName             choose another name for the topic or group
    │   ├── InvalidConfig           correct a setting, or an option of the Spark data source
    │   ├── MissingExtra            install the extra that the message names
    │   └── RecordTooLarge          split the record, or raise max.message.bytes
    ├── InvalidRecord               reject the record and continue
    │   └── SerializationError      send a value that the serializer takes
    ├── DeserializationError        skip the record, or keep it as a dead letter
    ├── TopicNotFound               create the topic
    ├── TopicExists                 use the existing topic
    ├── GroupNotFound               treat the group as new
    ├── GroupInUse                  stop its members first
    ├── CommitRefused               drop the work: another member owns the partition
    ├── NoOffset                    choose where to start
    ├── OffsetOutOfRange            start at a valid offset
    ├── ProducerFenced              stop: another instance has taken over
    ├── OutOfOrderSequence          send the missing batches first
    │   └── DuplicateSequence       treat the batch as appended
    ├── DataLoss                    decide whether to continue after the gap
    ├── HandoverRefused             resolve what the message names, then hand over
    ├── ArchiveMismatch             archive to another location, or delete the old archive
    ├── NotALog                     pass another path
    ├── NotAccessible               check permissions and devices, then retry
    ├── DiskFull                    free space, then append again
    ├── LogLocked                   wait, or open read-only
    ├── LogClosed                   open the log again
    ├── LogFailed                   open the log again, so that it recovers
    ├── ProtocolError               close the connection
    │   ├── FrameTooLarge           send less at once, or raise the server's limit
    │   ├── UnsupportedVersion      use an API and a version that the server announces
    │   └── MalformedMessage        close the connection: what follows cannot be read
    └── CorruptionError             bytes are damaged: verify, then repair
        ├── CorruptBatch            skip the batch, or salvage around it
        ├── LostRecords             restore the lost records from a copy
        └── FormatError             read it with another tool: the bytes may be whole
            └── UnsupportedMagic    convert the batches with Kafka's own tools

A message states what is wrong, where, and what to do next. An `OSError` appears only as `__cause__`.
"""

from __future__ import annotations

import os
from typing import Any


class SeeklogError(Exception):
    """The base class of all errors of seeklog. Every error survives pickling with its attributes."""

    def __reduce__(self) -> tuple[object, ...]:
        # The default would call the constructor with `args`, which hold only the message.
        return _rebuilt, (type(self), self.args), self.__dict__


def _rebuilt(kind: type[SeeklogError], args: tuple[object, ...]) -> SeeklogError:
    error = kind.__new__(kind)
    error.args = args
    return error


def counted(number: int, thing: str, things: str = "") -> str:
    """Return `1 batch` or `2,000 batches`, for messages."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


class UsageError(SeeklogError, ValueError):
    """The call is wrong. Nothing was read or written; fix the call."""


class InvalidName(UsageError):
    """A topic, group or file name contains characters that are not allowed. Choose another name."""


class InvalidConfig(UsageError):
    """A setting or a Spark option is unknown, out of bounds, or in conflict with another one. Nothing was changed."""


class MissingExtra(UsageError, ImportError):
    """A package of an extra is not installed. The message has the command that installs it."""


class RecordTooLarge(UsageError):
    """A batch is larger than `max.message.bytes`, or a field is too large for the format. Nothing was written."""


class InvalidRecord(SeeklogError, ValueError):
    """The log refuses a record: wrong type, no key, or a timestamp out of bounds. Nothing was written."""


class SerializationError(InvalidRecord):
    """A serializer raised an error, which is the cause, or returned something other than bytes. Nothing was sent."""

    def __init__(self, message: str, *, topic: str, field: str) -> None:
        self.topic = topic
        self.field = field
        super().__init__(message)


class DeserializationError(SeeklogError):
    """A deserializer raised an error, which is the cause. The consumer stays at the record until it is skipped.

    `record` is the record with its bytes, and `field` is "key" or "value". `deserializer` is the name of the callable.
    """

    def __init__(
        self, message: str, *, topic: str, partition: int, offset: int, field: str, deserializer: str, record: Any
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.field = field
        self.deserializer = deserializer
        self.record = record
        super().__init__(message)


class ProducerFenced(SeeklogError):
    """A newer instance of the producer has taken over. Nothing was written; this instance can never append again."""

    def __init__(self, message: str, *, producer_id: int, epoch: int, current_epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.current_epoch = current_epoch
        super().__init__(message)


class OutOfOrderSequence(SeeklogError):
    """A batch does not continue its producer's sequence. Nothing was written; send the missing batches first."""

    def __init__(self, message: str, *, producer_id: int, epoch: int, sequence: int, expected: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = sequence
        self.expected = expected
        super().__init__(message)


class DuplicateSequence(OutOfOrderSequence):
    """The records were appended before, but their offsets are no longer known. Treat them as appended."""


class OffsetOutOfRange(SeeklogError, LookupError):
    """The log has no record at this offset. The message and the attributes give the valid range."""

    def __init__(self, offset: int, *, log_start_offset: int, log_end_offset: int, what: str = "") -> None:
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        holds = (
            f"valid offsets are {log_start_offset} to {log_end_offset - 1}"
            if log_end_offset > log_start_offset
            else f"the log is empty, its next offset is {log_end_offset}"
        )
        self.what = what
        super().__init__(f"{what or 'offset'} {offset} is out of range: {holds}")


class TopicNotFound(SeeklogError, LookupError):
    """The store has no such topic, or the topic has no such partition."""


class TopicExists(SeeklogError):
    """A topic with this name already exists. Nothing was changed."""


class HandoverRefused(SeeklogError):
    """A store cannot be handed to this broker, or taken back from it, in its current state. Nothing was changed."""


class DataLoss(SeeklogError):
    """Records that a reader had not read yet are gone: retention deleted them, or the topic was deleted or recreated.

    `condition` is the name that Spark's Kafka source gives the case, such as START_OFFSET_RESET.
    """

    def __init__(self, condition: str, message: str) -> None:
        self.condition = condition
        super().__init__(f"[DATA_LOSS.{condition}] {message}")


class GroupNotFound(SeeklogError, LookupError):
    """No consumer group with this name has committed an offset or has members."""


class GroupInUse(SeeklogError):
    """The group has active members. Nothing was changed; stop them first."""


class CommitRefused(SeeklogError):
    """The offset was not committed: another member owns the partition, or its topic was recreated."""


class NoOffset(SeeklogError, LookupError):
    """There is no start position: the group has no committed offset, and `auto_offset_reset` is "error"."""


def import_failed(error: ImportError, package: str, *, missing: str) -> SeeklogError:
    """Return the error for a package that cannot be imported. `missing` is its message if it is not installed.

    A package that is installed may fail too: a memory limit, a damaged file, a library that it does not find.
    """
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(cause, ModuleNotFoundError) and (cause.name or "").partition(".")[0] == package:
        return MissingExtra(missing)
    return SeeklogError(
        f"{package} is installed but cannot be loaded: {' '.join(str(cause).split())}; raise the memory limit of the "
        f"process if it has one (ulimit -v), or reinstall the package: pip install --force-reinstall {package}"
    )


class NotALog(SeeklogError):
    """The path is missing, is not a log or a complete archive, or is reached through a symbolic link."""


class ArchiveMismatch(SeeklogError):
    """An archive or a lake does not match its source, its files or the request. Nothing was overwritten."""


class NotAccessible(SeeklogError):
    """The operating system refused access to the log. Nothing was changed; check permissions, then retry."""


class LogLocked(SeeklogError):
    """Another writer holds the lock of the log. Wait for it, or open the log read-only."""

    def __init__(
        self, path: str | os.PathLike[str], owner_pid: int | None, *, owner: str = "", advice: str = ""
    ) -> None:
        self.path = os.fspath(path)
        self.owner_pid = owner_pid
        self.owner = owner or (f"process {owner_pid}" if owner_pid else "another process")
        self.advice = advice or "close it there, or open here with read_only=True"
        super().__init__(f"{self.path} is open for writing in {self.owner}; {self.advice}")


class LogClosed(SeeklogError):
    """The log was closed, or was opened by the parent of this forked process. Open it again."""


class LogFailed(SeeklogError):
    """A write or a sync failed, or the lock or the directory is no longer in place. Reopen the log to recover."""


class DiskFull(SeeklogError):
    """The disk or the quota is full. Nothing was written; append again when there is room."""


class CorruptionError(SeeklogError):
    """Bytes on disk fail their checks. Nothing was changed; verify the log, then repair it."""

    def __init__(
        self,
        reason: str,
        *,
        path: str | os.PathLike[str] | None = None,
        position: int | None = None,
        advice: str = "",
    ) -> None:
        self.reason = reason
        self.path = os.fspath(path) if path is not None else None
        self.position = position
        self.advice = advice
        location = ""
        if self.path is not None:
            location = self.path if position is None else f"{self.path}, byte {position}"
        elif position is not None:
            location = f"byte {position}"
        super().__init__(f"{location}: {reason}" if location else reason, *([advice] if advice else []))

    def __str__(self) -> str:
        return "\n".join(str(part) for part in self.args)

    def located(self, path: str | os.PathLike[str]) -> CorruptionError:
        """Return the same error with the path of the damaged file, for a caller that knows it."""
        return type(self)(self.reason, path=path, position=self.position, advice=self.advice)


class CorruptBatch(CorruptionError):
    """A record batch fails its checks. Skip it, or salvage the records around it."""


class LostRecords(CorruptionError):
    """Records below the recovery point are damaged or missing, although they were synced. Restore them from a copy."""


class FormatError(CorruptionError):
    """seeklog cannot read the bytes, which may be whole: unknown version or codec, or data that expands too far."""


class UnsupportedMagic(FormatError):
    """A batch has one of Kafka's formats before version 2. Convert it with Kafka's own tools."""


class ProtocolError(SeeklogError):
    """The other end of a connection does not speak Kafka's protocol, or not as it must. Close the connection."""


class FrameTooLarge(ProtocolError):
    """A frame is larger than the limit, or the bytes are of another protocol. Nothing was allocated for it."""


class UnsupportedVersion(ProtocolError):
    """A request has an unknown API, or a version that its API does not have."""

    def __init__(self, message: str, *, api_key: int, version: int, correlation_id: int) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        super().__init__(message)


class MalformedMessage(ProtocolError):
    """A message of Kafka's protocol cannot be decoded. The message names the field or the byte."""
