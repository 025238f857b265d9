"""Every error that seeklog raises on purpose, each with its reason to be caught on its own::

    SeeklogError
    ├── UsageError                  the call is wrong: mend the program
    │   ├── InvalidName             ask for another name of a topic or a group
    │   ├── InvalidConfig           mend a setting, or an option of the Spark data source
    │   └── RecordTooLarge          split the record, or raise max_message_bytes
    ├── InvalidRecord               set the record aside and go on
    ├── TopicNotFound               create the topic
    ├── TopicExists                 use the topic that is there
    ├── GroupNotFound               treat the group as new
    ├── GroupInUse                  stop its members first
    ├── CommitRefused               drop the work: another member has the partition
    ├── NoOffset                    choose where to begin
    ├── OffsetOutOfRange            begin at an offset that is there
    ├── ProducerFenced              stop: another instance has taken over
    ├── OutOfOrderSequence          send what is missing first
    │   └── DuplicateSequence       count the batch as written
    ├── DataLoss                    decide whether to go on past the gap
    ├── HandoverRefused             resolve what the message names, then hand over
    ├── ArchiveMismatch             archive to another place, or drop what is there
    ├── NotALog                     give another path
    ├── NotAccessible               look at permissions and devices, then try again
    ├── DiskFull                    make room, then append again
    ├── LogLocked                   wait, or read only
    ├── LogClosed                   open the log again
    ├── LogFailed                   open the log again, so that it recovers
    └── CorruptionError             bytes are damaged: verify, then repair
        ├── CorruptBatch            skip the batch, or salvage around it
        ├── LostRecords             restore what was promised from a copy
        └── FormatError             read it with another tool: the bytes may be whole
            └── UnsupportedMagic    convert the batches with Kafka's own tools

A message states what is wrong, where, and what to do next. An `OSError` appears only as `__cause__`.
"""

from __future__ import annotations

import os


class SeeklogError(Exception):
    """The root of all of them. Each can be pickled, with all that it says."""

    def __reduce__(self) -> tuple[object, ...]:
        # By their constructors they could not be made again: those take facts by name, and `args` is the message.
        return _rebuilt, (type(self), self.args), self.__dict__


def _rebuilt(kind: type[SeeklogError], args: tuple[object, ...]) -> SeeklogError:
    error = kind.__new__(kind)
    error.args = args
    return error


class UsageError(SeeklogError, ValueError):
    """The call itself is wrong; nothing was read or written."""


class InvalidName(UsageError):
    """A file or topic name outside the allowed alphabet."""


class InvalidConfig(UsageError):
    """A setting, or an option of the Spark data source, that is unknown, wrong or at odds with another one."""


class RecordTooLarge(UsageError):
    """A batch over `max_message_bytes`, or a field that the format cannot hold; nothing was written."""


class InvalidRecord(SeeklogError, ValueError):
    """A record that this log refuses: wrong type, or a timestamp out of bounds; nothing was written."""


class ProducerFenced(SeeklogError):
    """A newer incarnation of the producer has written here; nothing was written, and this one never may again."""

    def __init__(self, message: str, *, producer_id: int, epoch: int, current_epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.current_epoch = current_epoch
        super().__init__(message)


class OutOfOrderSequence(SeeklogError):
    """A batch whose sequence does not follow the last one of its producer; nothing was written."""

    def __init__(self, message: str, *, producer_id: int, epoch: int, sequence: int, expected: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequence = sequence
        self.expected = expected
        super().__init__(message)


class DuplicateSequence(OutOfOrderSequence):
    """The records were written before, too long ago, or in other batches, to tell their offsets."""


class OffsetOutOfRange(SeeklogError, LookupError):
    """The log has no record at that offset. The valid range is in the message and in the attributes."""

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
    """The store has no such topic, or not that partition of it."""


class TopicExists(SeeklogError):
    """The store has a topic of that name already; nothing was changed."""


class HandoverRefused(SeeklogError):
    """A store cannot be given to this broker, or taken back from it, as it stands; nothing was changed."""


class DataLoss(SeeklogError):
    """Records that a reader was to have are gone: retention overtook it, or the topic was deleted or made anew.

    `condition` is the word that Spark's Kafka source has for the case, such as START_OFFSET_RESET.
    """

    def __init__(self, condition: str, message: str) -> None:
        self.condition = condition
        super().__init__(f"[DATA_LOSS.{condition}] {message}")


class GroupNotFound(SeeklogError, LookupError):
    """No such consumer group has committed or joined."""


class GroupInUse(SeeklogError):
    """The group has members that consume; nothing was changed."""


class CommitRefused(SeeklogError):
    """The offset is not this one's to commit: another member has the partition, or its topic was made anew since."""


class NoOffset(SeeklogError, LookupError):
    """Nothing says where to begin: the group has no offset there, and `auto_offset_reset` is "error"."""


class NotALog(SeeklogError):
    """The path holds something else, nothing, or an archive that is not complete; or a symbolic link leads to it."""


class ArchiveMismatch(SeeklogError):
    """An archive or a lake does not match its source, its files or what was asked; nothing was overwritten."""


class NotAccessible(SeeklogError):
    """The operating system refused access to the log; nothing was changed."""


class LogLocked(SeeklogError):
    """Another writer holds the log."""

    def __init__(
        self, path: str | os.PathLike[str], owner_pid: int | None, *, owner: str = "", advice: str = ""
    ) -> None:
        self.path = os.fspath(path)
        self.owner_pid = owner_pid
        self.owner = owner or (f"process {owner_pid}" if owner_pid else "another process")
        self.advice = advice or "close it there, or open here with read_only=True"
        super().__init__(f"{self.path} is open for writing in {self.owner}; {self.advice}")


class LogClosed(SeeklogError):
    """The log was closed, or belongs to the process that this one was forked from."""


class LogFailed(SeeklogError):
    """An earlier write or sync failed. No more appends are accepted; reopen the log to recover."""


class DiskFull(SeeklogError):
    """The disk is full: nothing was written; append again when there is room."""


class CorruptionError(SeeklogError):
    """Bytes on disk are not what was written. Nothing was changed."""

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
        place = ""
        if self.path is not None:
            place = self.path if position is None else f"{self.path}, byte {position}"
        elif position is not None:
            place = f"byte {position}"
        super().__init__(f"{place}: {reason}" if place else reason, *([advice] if advice else []))

    def __str__(self) -> str:
        return "\n".join(str(part) for part in self.args)

    def located(self, path: str | os.PathLike[str]) -> CorruptionError:
        """Return the same error with the file that it was found in, for a caller that knows it."""
        return type(self)(self.reason, path=path, position=self.position, advice=self.advice)


class CorruptBatch(CorruptionError):
    """A record batch fails its checks."""


class LostRecords(CorruptionError):
    """Records below the recovery point, which were promised durable, are damaged or missing."""


class FormatError(CorruptionError):
    """Bytes that may be whole, but that seeklog does not read: an unknown version or codec, or too much of it."""


class UnsupportedMagic(FormatError):
    """A batch in one of Kafka's formats before version 2."""
