"""Dead letters: records that could not be deserialized, in a topic of their own.

A dead letter has the key, the value, the timestamp and the headers of the record, and the headers that Kafka Connect
adds to its dead letters. It is durable before the consumer continues after the record.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Sequence
from typing import Final

from seeklog import names
from seeklog.errors import DeserializationError, UsageError
from seeklog.names import TopicPartition
from seeklog.record.key_hash import partition_of
from seeklog.record.record import Record
from seeklog.topics.open_logs import OpenLogs
from seeklog.topics.topics import Topics

# How long an append waits while another process appends to the partition.
LOCK_WAIT_S: Final = 30.0
PREFIX: Final = "__connect.errors."


class DeadLetters:
    """Appends dead letters to a topic."""

    def __init__(self, topics: Topics, table: OpenLogs, topic: str, *, consumer: str) -> None:
        """`consumer` names the consumer in the headers."""
        names.check_not_internal(topic)
        topics.find(topic)
        self.topic = topic
        self._topics = topics
        self._table = table
        self._consumer = consumer

    def check_not_read(self, topics: Iterable[str]) -> None:
        """Raise `UsageError` if a consumer would read its own dead letters: each would come back for ever."""
        if self.topic in topics:
            raise UsageError(f"{self.topic} has the dead letters of this consumer; pass another dead_letter_topic")

    def append(self, errors: Sequence[DeserializationError], *, member_id: str) -> None:
        """Append the records of errors. All are durable on return; after an error some may be."""
        count = self._topics.find(self.topic).partition_count
        letters: dict[int, list[Record]] = {}
        for error in errors:
            number = error.partition % count if error.record.key is None else partition_of(error.record.key, count)
            letters.setdefault(number, []).append(self._letter(error, member_id=member_id))
        for number, records in letters.items():
            with self._table.borrow(TopicPartition(self.topic, number), wait_s=LOCK_WAIT_S, stays_open=True) as log:
                for record in records:
                    log.append_many([record], wait=False)

    def _letter(self, error: DeserializationError, *, member_id: str) -> Record:
        record, cause = error.record, error.__cause__
        context = {
            "topic": error.topic,
            "partition": str(error.partition),
            "offset": str(error.offset),
            "connector.name": self._consumer,
            "task.id": member_id,
            "stage": f"{error.field.upper()}_CONVERTER",
            "class.name": error.deserializer,
            "exception.class.name": f"{type(cause).__module__}.{type(cause).__qualname__}",
            "exception.message": str(cause),
            "exception.stacktrace": "".join(traceback.format_exception(cause)),
        }
        present = {name for name, _ in record.headers}
        # As in Connect, a dead letter that fails again keeps the headers of the first failure.
        added = [
            (PREFIX + name, text.encode(errors="backslashreplace"))
            for name, text in context.items()
            if PREFIX + name not in present
        ]
        return Record(
            record.value,
            key=record.key,
            headers=(*record.headers, *added),
            timestamp_ms=None if record.timestamp_ms < 0 else record.timestamp_ms,
        )
