"""Realistic payments: skewed, late, out of order, duplicated, and some of them malformed.

A few merchants have most of the payments; amounts are in paise. The same seed gives the same stream. Timestamps are the
times of arrival in the stream, so the records do not depend on the current time.
"""

from __future__ import annotations

import heapq
import itertools
import json
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import seeklog
from seeklog.record.key_hash import partition_of

PAYMENTS = "payments"
MORNING_MS = 1_767_225_600_000  # 2026-01-01T00:00Z
SEED = 7
PARTITIONS = 4
MERCHANTS = 40
PER_SECOND = 20.0
METHODS, METHOD_WEIGHTS = ("upi", "card", "netbanking", "wallet"), (60, 25, 10, 5)

# Shares of the payments.
OUT_OF_ORDER, LATE = 0.10, 0.015
BROKEN, RESENT, LARGE = 0.015, 0.02, 0.0002
# A burst is many small payments at one merchant, as when stolen cards are tested.
BURST_EVERY, FIRST_BURST = 60_000, 8_000
BURST_S = 120

Headers = tuple[tuple[str, bytes | None], ...]


class Arrival(NamedTuple):
    """A record as it arrives. The log does not contain `kind`, its defect if any, and `merchant`."""

    timestamp_ms: int
    number: int
    kind: str
    merchant: str
    key: bytes | None
    value: bytes | None
    headers: Headers


class _Payment(NamedTuple):
    payment_id: str
    merchant: str
    amount_paise: int
    currency: str
    method: str
    paid_at_ms: int

    def as_json(self, **changes: object) -> bytes:
        """Return the payment as JSON, with fields changed; a field set to `...` is omitted."""
        fields = self._asdict() | changes
        return json.dumps({name: value for name, value in fields.items() if value is not ...}).encode()


# ---------------------------------------------------------------- defects

NO_KEY = "no key"
# The most frequent first.
BREAKAGES: dict[str, Callable[[random.Random, _Payment], bytes | None]] = {
    "field missing": lambda source, payment: payment.as_json(**{source.choice(_Payment._fields): ...}),
    "cut off": lambda source, payment: payment.as_json()[: source.randrange(60)],
    "refund": lambda source, payment: payment.as_json(amount_paise=-payment.amount_paise),
    "amount as text": lambda source, payment: payment.as_json(amount_paise=str(payment.amount_paise)),
    "other currency": lambda source, payment: payment.as_json(currency=source.choice(("EUR", "inr", "??"))),
    "no value": lambda source, payment: None,
    "days old": lambda source, payment: payment.as_json(paid_at_ms=payment.paid_at_ms - _hours(source)),
    NO_KEY: lambda source, payment: payment.as_json(),
    "field null": lambda source, payment: payment.as_json(**{source.choice(_Payment._fields): None}),
    "clock ahead": lambda source, payment: payment.as_json(paid_at_ms=payment.paid_at_ms + _hours(source)),
    "two in one": lambda source, payment: payment.as_json() * 2,
    "nothing paid": lambda source, payment: payment.as_json(amount_paise=0),
    "half a paisa": lambda source, payment: payment.as_json(amount_paise=payment.amount_paise + 0.5),
    "not UTF-8": lambda source, payment: payment.as_json().replace(b"merchant_", b"merchant\xff"),
}
BREAKAGE_WEIGHTS = [1 / (rank + 1) ** 0.5 for rank in range(len(BREAKAGES))]


def _hours(source: random.Random) -> int:
    return source.randrange(2 * 3_600_000, 48 * 3_600_000)


# ---------------------------------------------------------------- the stream


def arrivals(*, seed: int = SEED, per_second: float = PER_SECOND) -> Iterator[Arrival]:
    """Yield an endless stream of records in the order of arrival."""
    return _Stream(random.Random(seed), per_second=per_second).arrivals()


class _Stream:
    def __init__(self, source: random.Random, *, per_second: float) -> None:
        self._random = source
        self._per_second = per_second
        self._merchants = [f"merchant_{number}" for number in range(MERCHANTS)]
        # Slightly steeper than Zipf's law: the first of 40 merchants has a quarter of the payments.
        self._weights = list(itertools.accumulate(1 / (rank + 1) ** 1.1 for rank in range(MERCHANTS)))
        self._numbers = itertools.count()
        # Sent records wait here until they arrive.
        self._on_the_way: list[Arrival] = []

    def arrivals(self) -> Iterator[Arrival]:
        now_ms = float(MORNING_MS)
        for number in itertools.count():
            now_ms += self._random.expovariate(self._per_second) * 1000
            while self._on_the_way and self._on_the_way[0].timestamp_ms <= now_ms:
                yield heapq.heappop(self._on_the_way)
            self._pay(int(now_ms))
            if number % BURST_EVERY == FIRST_BURST:
                self._burst(int(now_ms))

    def _pay(self, now_ms: int) -> None:
        (merchant,) = self._random.choices(self._merchants, cum_weights=self._weights)
        amount_paise = 100 + int(self._random.lognormvariate(10.6, 1.1))  # half of them under 400 rupees
        if self._random.random() < LARGE:
            amount_paise = self._random.randrange(50_000_000, 90_000_000)
        payment = self._payment(merchant, amount_paise=amount_paise, paid_at_ms=now_ms)
        chance = self._random.random()
        if chance < BROKEN:
            self._send_broken(payment)
        else:
            self._send(payment, resent=chance < BROKEN + RESENT)

    def _burst(self, now_ms: int) -> None:
        merchant = self._random.choice(self._merchants[len(self._merchants) // 2 :])
        for _ in range(int(2 * BURST_S * self._per_second)):
            paid_at_ms = now_ms + self._random.randrange(BURST_S * 1000)
            self._send(self._payment(merchant, amount_paise=self._random.randrange(100, 5000), paid_at_ms=paid_at_ms))

    def _payment(self, merchant: str, *, amount_paise: int, paid_at_ms: int) -> _Payment:
        (method,) = self._random.choices(METHODS, METHOD_WEIGHTS)
        payment_id = f"pay_{self._random.getrandbits(48):012x}"
        return _Payment(payment_id, merchant, amount_paise, "INR", method, paid_at_ms)

    def _send(self, payment: _Payment, *, resent: bool = False) -> None:
        arrives_ms = payment.paid_at_ms + self._delay_ms()
        self._put("payment", payment, payment.as_json(), arrives_ms=arrives_ms)
        if resent:
            # The sender got no answer and sends the same bytes again, up to twenty minutes later.
            again_ms = int(self._random.triangular(100, 1_200_000, 100))
            self._put("duplicate", payment, payment.as_json(), arrives_ms=arrives_ms + again_ms)

    def _send_broken(self, payment: _Payment) -> None:
        (kind,) = self._random.choices(tuple(BREAKAGES), BREAKAGE_WEIGHTS)
        value = BREAKAGES[kind](self._random, payment)
        self._put(kind, payment, value, arrives_ms=payment.paid_at_ms + self._delay_ms())

    def _delay_ms(self) -> int:
        chance = self._random.random()
        if chance < LATE:
            return self._random.randrange(600_000, 2_300_000)  # a terminal without network
        if chance < LATE + OUT_OF_ORDER:
            return self._random.randrange(3_000, 120_000)
        return int(self._random.expovariate(1 / 800))

    def _put(self, kind: str, payment: _Payment, value: bytes | None, *, arrives_ms: int) -> None:
        key = None if kind == NO_KEY else payment.merchant.encode()
        number, headers = next(self._numbers), self._headers(payment)
        heapq.heappush(self._on_the_way, Arrival(arrives_ms, number, kind, payment.merchant, key, value, headers))

    def _headers(self, payment: _Payment) -> Headers:
        """Return the headers of a payment: 30 % have none, and some traces are null."""
        chance = self._random.random()
        if chance < 0.3:
            return ()
        trace = b"%08x" % self._random.getrandbits(32) if chance < 0.95 else None
        return (("source", payment.method.encode()), ("trace", trace))


# ---------------------------------------------------------------- appending to a store


def missing(store: seeklog.Store, records: Iterable[Arrival]) -> list[Arrival]:
    """Return the records of the stream that the topic does not have, even after a crash.

    Each partition has a prefix of its records, and its end offset is the length of the prefix.
    """
    left = [partition.log_end_offset for partition in store.describe_topic(PAYMENTS).partitions]
    absent = []
    for record in records:
        partition = _partition_of(record, len(left))
        if left[partition] <= 0:
            absent.append(record)
        left[partition] -= 1
    return absent


def append(store: seeklog.Store, records: Iterable[Arrival], *, topic: str = PAYMENTS) -> int:
    """Append records to a topic of the store, and return their number."""
    partition_count = len(store.describe_topic(topic).partitions)
    count = 0
    with store.producer() as producer:
        for record in records:
            producer.send(
                topic,
                record.value,
                key=record.key,
                headers=record.headers,
                timestamp_ms=record.timestamp_ms,
                partition=_partition_of(record, partition_count),
            )
            count += 1
        producer.flush()
    return count


def _partition_of(record: Arrival, partition_count: int) -> int:
    """Return the partition of a record: by its merchant even without a key, so that all runs are the same."""
    return partition_of(record.merchant.encode(), partition_count)


def generate(
    path: str | Path, *, count: int, seed: int = SEED, per_second: float = PER_SECOND, topic: str = PAYMENTS
) -> int:
    """Append the next `count` records of the stream to a topic of the store at `path`; create both if missing."""
    with seeklog.open(path) as store:
        if topic not in store.topics():
            store.create_topic(topic, partitions=PARTITIONS, config={"compression.type": "zstd"})
        already = store.describe_topic(topic).record_count
        stream = arrivals(seed=seed, per_second=per_second)
        return append(store, itertools.islice(stream, already, already + count), topic=topic)
