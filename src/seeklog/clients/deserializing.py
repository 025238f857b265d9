"""A consumer that deserializes keys and values, and what it does with a record that cannot be deserialized.

Such a record is met when every record before it, in its partition, was returned. Then the consumer raises its error and
stays there; or it handles the record, and moves its position past it. A commit covers a record only once it was handled
completely, so after a crash it is met again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, TypeAlias

from seeklog.clients.consumer import ConsumerBase, Position
from seeklog.clients.dead_letters import DeadLetters
from seeklog.clients.serializers import Decode, Field, name_of
from seeklog.errors import DeserializationError, UsageError
from seeklog.names import TopicPartition
from seeklog.record.record import Record

logger = logging.getLogger("seeklog")

ErrorHandler = Callable[[DeserializationError], object]
OnError: TypeAlias = Literal["raise", "skip"] | ErrorHandler

# How many dead letters are appended together, and share a sync.
MAX_DEAD_LETTERS: Final = 500


class ConsumerRecord:
    """A record with a deserialized key and value. `record` has their bytes."""

    __slots__ = ("key", "record", "value")

    def __init__(self, record: Record, key: Any, value: Any) -> None:
        self.record = record
        self.key = key
        self.value = value

    @property
    def topic(self) -> str | None:
        return self.record.topic

    @property
    def partition(self) -> int | None:
        return self.record.partition

    @property
    def offset(self) -> int:
        return self.record.offset

    @property
    def timestamp_ms(self) -> int:
        return self.record.timestamp_ms

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        return self.record.headers

    def __repr__(self) -> str:
        return (
            f"ConsumerRecord(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp_ms={self.timestamp_ms}, key={self.key!r}, value={self.value!r})"
        )


class Deserializers:
    """The callables for the two fields of a record. None leaves the bytes."""

    def __init__(self, key: Decode | None, value: Decode | None) -> None:
        self._key = key
        self._value = value

    def take(
        self, records: Sequence[Record], max_records: int
    ) -> tuple[list[ConsumerRecord], DeserializationError | None]:
        """Deserialize the first records, up to one that fails. Return them and, if there are none, its error."""
        load_key, load_value = self._key, self._value
        taken: list[ConsumerRecord] = []
        for record in records[:max_records]:
            key, value = record.key, record.value
            field: Field = "key"
            try:
                if key is not None and load_key is not None:
                    key = load_key(key)
                field = "value"
                if value is not None and load_value is not None:
                    value = load_value(value)
            except Exception as error:
                return taken, None if taken else self._error_of(record, field, error)
            taken.append(ConsumerRecord(record, key, value))
        return taken, None

    def _error_of(self, record: Record, field: Field, cause: Exception) -> DeserializationError:
        load = self._key if field == "key" else self._value
        assert load is not None
        assert record.topic is not None
        assert record.partition is not None
        name = name_of(load)
        error = DeserializationError(
            f"{record.topic}-{record.partition}, offset {record.offset}: {name} cannot deserialize the {field}: "
            f"{type(cause).__name__}: {cause}. Seek to offset {record.offset + 1} to skip the record, or "
            "pass on_error or dead_letter_topic to the consumer",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            field=field,
            deserializer=name,
            record=record,
        )
        error.__cause__ = cause
        return error


class DeserializingConsumer(ConsumerBase[ConsumerRecord]):
    """A consumer whose records have deserialized keys and values. One thread at a time may use it.

    Create one with `Store.consumer`, passing `key` or `value`. Everything else is as with `Consumer`.
    """

    def __init__(
        self,
        *words: Any,
        deserializers: Deserializers,
        on_error: OnError,
        dead_letters: DeadLetters | None,
        **named: Any,
    ) -> None:
        if on_error not in ("raise", "skip") and not callable(on_error):
            raise UsageError(f'on_error must be "raise", "skip" or a callable, not {on_error!r}')
        if dead_letters is not None and on_error != "raise":
            raise UsageError("pass on_error or dead_letter_topic, not both")
        self._deserializers = deserializers
        self._on_error = on_error
        self._dead_letters = dead_letters
        if dead_letters is not None:
            dead_letters.check_not_read(named["subscribed"])
        super().__init__(*words, **named)

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        chosen = list(partitions)
        if self._dead_letters is not None:
            self._dead_letters.check_not_read(topic for topic, _ in chosen)
        super().assign(chosen)

    def _take(self, ready: list[Position], max_records: int) -> list[ConsumerRecord]:
        records: list[ConsumerRecord] = []
        moves: list[tuple[Position, int]] = []
        for position in ready:
            taken, error = self._deserializers.take(position.fetched, max_records - len(records))
            if error is not None and position is ready[0]:
                # Partitions take turns to be the first, so the error of each is met in time.
                self._handle(position, error)
                return []
            records += taken
            moves.append((position, len(taken)))
            if len(records) == max_records:
                break
        # Only now: an error or Ctrl-C in a deserializer loses no records.
        for position, count in moves:
            if count:
                position.take(count)
        return records

    def _handle(self, position: Position, error: DeserializationError) -> None:
        """Raise the error of a position's first record, or move the position past the record."""
        self._metrics.records_failed += 1
        if self._dead_letters is not None:
            self._keep(self._dead_letters, position, error)
            return
        if self._on_error == "raise":
            raise error
        if callable(self._on_error):
            self._on_error(error)
        else:
            logger.warning("skipped a record: %s", error)
        position.take(1)

    def _keep(self, letters: DeadLetters, position: Position, first: DeserializationError) -> None:
        """Append the first records of a position that fail, of which one is known, as dead letters."""
        errors = [first]
        for record in position.fetched[1:MAX_DEAD_LETTERS]:
            _, error = self._deserializers.take((record,), 1)
            if error is None:
                break
            errors.append(error)
        letters.append(errors, member_id=self.member_id or "0")
        self._metrics.records_failed += len(errors) - 1
        self._metrics.dead_letters += len(errors)
        logger.warning(
            "%s: %d records from offset %d on are dead letters in %s: %s",
            position.partition,
            len(errors),
            first.offset,
            letters.topic,
            first.__cause__,
        )
        position.take(len(errors))
