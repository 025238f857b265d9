"""A producer that serializes keys and values, and passes the bytes on to a producer of bytes."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from seeklog.clients.producer import Producer, SendFuture
from seeklog.clients.serializers import Encode, Field, name_of
from seeklog.errors import SerializationError
from seeklog.names import TopicPartition
from seeklog.record import Headers


class SerializingProducer:
    """A producer whose keys and values are serialized before they are sent. Any thread may send.

    Create one with `Store.producer`, passing `key` or `value`. `producer` is the producer of bytes that it sends with.
    """

    def __init__(self, producer: Producer, *, key: Encode | None, value: Encode | None) -> None:
        self.producer = producer
        self._key = key
        self._value = value

    def __enter__(self) -> SerializingProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        partition: int | None = None,
    ) -> SendFuture:
        """Serialize a record, buffer it, and return its future, as `Producer.send` does.

        Raises `SerializationError` if a serializer fails; then nothing is sent. None is sent as None.
        """
        if key is not None and self._key is not None:
            key = serialized(self._key, key, topic, "key")
        if value is not None and self._value is not None:
            value = serialized(self._value, value, topic, "value")
        return self.producer.send(
            topic, value, key=key, headers=headers, timestamp_ms=timestamp_ms, partition=partition
        )

    def flush(self) -> None:
        """Send what is buffered and wait until it is written. Raises like `Producer.flush`."""
        self.producer.flush()

    def close(self) -> None:
        """Flush, and stop the thread. Closing twice has no effect."""
        self.producer.close()

    def written(self, partition: TopicPartition | tuple[str, int]) -> int:
        """Return how many records of this producer a partition has, as `Producer.written` does."""
        return self.producer.written(partition)

    def metrics(self) -> dict[str, Any]:
        """Return what this producer has counted, as `Producer.metrics` does."""
        return self.producer.metrics()


def serialized(dump: Encode, given: Any, topic: str, field: Field) -> bytes:
    """Return what a serializer makes of a field, or raise `SerializationError`."""
    try:
        data = dump(given)
        if isinstance(data, str):
            data = data.encode()
    except Exception as error:
        raise SerializationError(
            f"topic {topic!r}: {name_of(dump)} cannot serialize the {field}: {type(error).__name__}: {error}; nothing "
            "was sent. Send a value that it takes",
            topic=topic,
            field=field,
        ) from error
    if not isinstance(data, bytes | bytearray | memoryview):
        raise SerializationError(
            f"topic {topic!r}: {name_of(dump)} returned {type(data).__name__} for the {field}, not bytes or text; "
            "nothing was sent. Pass a serializer that returns bytes",
            topic=topic,
            field=field,
        )
    return bytes(data)
