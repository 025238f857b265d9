"""Producing into a store: beside confluent-kafka's producer, many records at once beside the engine, and asyncio.

Topics have four partitions, with `flush="os"`. The clock runs until every record is written, or until the mock broker
has every record.
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import cycle, islice
from typing import TYPE_CHECKING

import pyarrow as pa

import seeklog
from bench.measure import Bench, Stopwatch, best_of
from bench.peers.confluent import TOPIC, ConfluentProducer
from bench.row import Row, Unit
from bench.workload import make_records, pairs
from seeklog import Log, LogConfig
from seeklog.record import rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from seeklog import Producer

CONFIG = LogConfig(flush="os")
PARTITIONS = 4
A_CALL = 1_000
NOW_MS = 1_700_000_000_000


def measure(bench: Bench) -> Iterator[Row]:
    yield from _one_by_one(bench)
    yield from _many(bench)
    yield from _arrow(bench)
    yield from _asyncio(bench)


def _rate(bench: Bench, count: int, work: Callable[[Producer], object], *, idempotence: bool = False) -> float:
    """Return records per second of a producer's work, with the flush at its end."""
    with bench.directory("producing") as path, seeklog.open(path, config=CONFIG) as store:
        store.create_topic(TOPIC, partitions=PARTITIONS)
        with store.producer(idempotence=idempotence) as producer:
            for partition in range(PARTITIONS):
                producer.send(TOPIC, b"opens the log", partition=partition)
            producer.flush()
            with Stopwatch() as clock:
                kept = work(producer)
                producer.flush()
            del kept
        return count / clock.seconds


def _one_by_one(bench: Bench) -> Iterator[Row]:
    count = bench.scale.sent_a_turn
    records = list(islice(cycle(pairs()), count))

    def keyed(producer: Producer) -> None:
        send = producer.send
        for key, value in records:
            send(TOPIC, value, key=key)

    def keyless(producer: Producer) -> None:
        send = producer.send
        for _, value in records:
            send(TOPIC, value)

    def kept(producer: Producer) -> object:
        send = producer.send
        return [send(TOPIC, value, key=key) for key, value in records]

    for idempotence in (False, True):
        peer = ConfluentProducer(idempotence=idempotence)

        def theirs(peer: ConfluentProducer = peer, *, is_keyed: bool, reports: bool = False) -> float:
            with Stopwatch() as clock:
                peer.send(records, keyed=is_keyed, reports=reports)
            return count / clock.seconds

        ours = partial(_rate, bench, count, idempotence=idempotence)
        rates = best_of(
            2 * bench.scale.repetitions,
            {
                "keyed": partial(ours, keyed),
                "their keyed": partial(theirs, is_keyed=True),
                "keyless": partial(ours, keyless),
                "their keyless": partial(theirs, is_keyed=False),
                "kept": partial(ours, kept),
                "their reports": partial(theirs, is_keyed=True, reports=True),
            },
        )
        which = ", idempotent" if idempotence else ""
        for work, name, their_name, peer_name in (
            ("send with keys", "keyed", "their keyed", "confluent-kafka"),
            ("send without keys", "keyless", "their keyless", "confluent-kafka"),
            ("send with keys, futures kept", "kept", "their keyed", "confluent-kafka"),
            ("send with keys, futures kept, and their reports", "kept", "their reports", "confluent-kafka, reporting"),
        ):
            yield Row(
                work=f"producer.{work}{which}",
                figure=rates[name],
                unit=Unit.RECORDS_PER_SECOND,
                peer=peer_name,
                peer_figure=rates[their_name],
                target=1.5,
            )


def _many(bench: Bench) -> Iterator[Row]:
    count = bench.scale.appended
    records = make_records(count)

    def append_many() -> float:
        with bench.directory("producing-engine") as path, Log(path, config=CONFIG) as log:
            with Stopwatch() as clock:
                for first in range(0, count, A_CALL):
                    log.append_many(records[first : first + A_CALL])
            return count / clock.seconds

    rates = best_of(
        2 * bench.scale.repetitions,
        {
            "append_many": append_many,
            "four": lambda: _rate(bench, count, lambda producer: producer.send_many(TOPIC, records)),
            "one": lambda: _rate(bench, count, lambda producer: producer.send_many(TOPIC, records, partition=0)),
        },
    )
    for work, name in (("to one partition", "one"), ("by key to four partitions", "four")):
        yield Row(
            work=f"producer.send_many {work}",
            figure=rates[name],
            unit=Unit.RECORDS_PER_SECOND,
            peer="append_many",
            peer_figure=rates["append_many"],
            target=0.7,
        )


def _arrow(bench: Bench) -> Iterator[Row]:
    count = bench.scale.appended
    records = list(islice(cycle(pairs()), count))
    keys = pa.array([key for key, _ in records], pa.binary())
    values = pa.array([value for _, value in records], pa.binary())
    table = pa.table({"key": keys, "value": values})

    def encode() -> float:
        encoded = 0
        with Stopwatch() as clock:
            columns = rows.record_rows(key=keys, value=values)
            partitions = rows.partitions_of_keys(keys, count=PARTITIONS)
            for _, selected in rows.group_rows(partitions, count=PARTITIONS):
                for _, taken in rows.encode_rows(columns, rows=selected, now_ms=NOW_MS):
                    encoded += taken
        if encoded != count:
            raise ValueError(f"encoded {encoded} of {count} rows")
        return count / clock.seconds

    rates = best_of(
        2 * bench.scale.repetitions,
        {"encode": encode, "send": lambda: _rate(bench, count, lambda producer: producer.send_arrow(TOPIC, table))},
    )
    yield Row(
        work="producer.send_arrow by key to four partitions",
        figure=rates["send"],
        unit=Unit.RECORDS_PER_SECOND,
        peer="encoding them",
        peer_figure=rates["encode"],
        target=0.7,
    )


def _asyncio(bench: Bench) -> Iterator[Row]:
    """Compare asyncio's clients with the synchronous ones, over the same records."""
    count = bench.scale.sent_a_turn
    records = list(islice(cycle(pairs()), count))

    def send(producer: Producer) -> None:
        for key, value in records:
            producer.send(TOPIC, value, key=key)

    async def sending() -> float:
        with bench.directory("producing") as path, seeklog.open(path, config=CONFIG) as store:
            store.create_topic(TOPIC, partitions=PARTITIONS)
            async with store.async_producer() as producer:
                for partition in range(PARTITIONS):
                    await producer.send(TOPIC, b"opens the log", partition=partition)
                await producer.flush()
                with Stopwatch() as clock:
                    for key, value in records:
                        await producer.send(TOPIC, value, key=key)
                    await producer.flush()
            return count / clock.seconds

    rates = best_of(
        2 * bench.scale.repetitions,
        {"send": lambda: _rate(bench, count, send), "await": lambda: asyncio.run(sending())},
    )
    yield Row(
        work="await producer.send with keys",
        figure=rates["await"],
        unit=Unit.RECORDS_PER_SECOND,
        peer="producer.send",
        peer_figure=rates["send"],
        target=0.7,
    )
    stored = bench.scale.consumed
    with bench.directory("consuming") as path, seeklog.open(path, config=CONFIG) as store:
        store.create_topic(TOPIC, partitions=PARTITIONS)
        with store.producer() as producer:
            producer.send_many(TOPIC, make_records(stored))

        def iterate() -> float:
            seen = 0
            with store.consumer([TOPIC], auto_offset_reset="earliest") as consumer:
                with Stopwatch() as clock:
                    for _ in consumer:
                        seen += 1
                        if seen == stored:
                            break
                return _checked(seen, stored) / clock.seconds

        async def iterating() -> float:
            seen = 0
            async with store.async_consumer([TOPIC], auto_offset_reset="earliest") as consumer:
                with Stopwatch() as clock:
                    async for _ in consumer:
                        seen += 1
                        if seen == stored:
                            break
                return _checked(seen, stored) / clock.seconds

        rates = best_of(2 * bench.scale.repetitions, {"for": iterate, "async for": lambda: asyncio.run(iterating())})
    yield Row(
        work="async for record in consumer",
        figure=rates["async for"],
        unit=Unit.RECORDS_PER_SECOND,
        peer="for record in consumer",
        peer_figure=rates["for"],
        target=0.7,
    )


def _checked(seen: int, expected: int) -> int:
    if seen != expected:
        raise ValueError(f"saw {seen} of {expected} records")
    return seen
