"""confluent-kafka's producer, which is librdkafka in C, through a socket to a mock broker in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

if TYPE_CHECKING:
    from collections.abc import Sequence

TOPIC = "payments"
_POLL_EVERY = 10_000


class ConfluentProducer:
    """A producer with its own broker of four partitions. Create and warm it up before the clock starts."""

    def __init__(self, *, idempotence: bool) -> None:
        self._producer: Any = Producer(
            {
                "test.mock.num.brokers": 1,
                "linger.ms": 5,
                "partitioner": "murmur2_random",
                "queue.buffering.max.messages": 10_000_000,
                "queue.buffering.max.kbytes": 2_000_000,
                "enable.idempotence": idempotence,
                "log_level": 3,
            }
        )
        self.send([(b"warm", b"up")], keyed=True, reports=False)

    def send(self, pairs: Sequence[tuple[bytes, bytes]], *, keyed: bool, reports: bool) -> int:
        """Send records and wait until the broker has them. Return how many were reported; none without `reports`."""
        produce, poll = self._producer.produce, self._producer.poll
        delivered: list[Any] = []
        if reports:
            note = delivered.append
            for number, (key, value) in enumerate(pairs):
                produce(TOPIC, value, key, on_delivery=lambda _error, message: note(message.offset()))
                if number % _POLL_EVERY == 0:
                    poll(0)
        elif keyed:
            for key, value in pairs:
                produce(TOPIC, value, key)
        else:
            for _, value in pairs:
                produce(TOPIC, value)
        if self._producer.flush(60):
            raise TimeoutError("the mock broker has not answered")
        return len(delivered)
