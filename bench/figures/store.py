"""The store beside its engine: producer and writer, consumer and scan, commits, and opening many partitions.

Records are those of the other figures. Topics have four partitions unless noted, with `flush="os"`.
"""

from __future__ import annotations

from itertools import cycle, islice
from typing import TYPE_CHECKING

import seeklog
from bench.figures.opened_store import open_in_child
from bench.measure import Bench, Stopwatch, best_of, warm_page_cache
from bench.row import Row, Unit
from bench.workload import CYCLE, pairs
from seeklog import Log, LogConfig, TopicPartition
from seeklog.clients.log_writer import LogWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONFIG = LogConfig(flush="os")
TOPIC = "payments"
PARTITIONS_A_TOPIC = 100
COMMITS_A_TURN = 20
MANY_COMMITS = 100_000


def measure(bench: Bench) -> Iterator[Row]:
    yield from _producing(bench)
    yield from _consuming(bench)
    yield from _committing(bench)
    yield from _opening(bench)


def _producing(bench: Bench) -> Iterator[Row]:
    count = bench.scale.sent_a_turn
    records = list(islice(cycle(pairs()), count))

    def writer() -> float:
        with bench.directory("store-writer") as path, Log(path, config=CONFIG) as log, LogWriter(log) as writer:
            with Stopwatch() as clock:
                for key, value in records:
                    writer.append(value, key=key)
                writer.flush()
            return count / clock.seconds

    def producer(*, keyed: bool) -> float:
        with bench.directory("store-producer") as path, seeklog.open(path, config=CONFIG) as store:
            store.create_topic(TOPIC, partitions=4)
            with store.producer() as producer:
                with Stopwatch() as clock:
                    if keyed:
                        for key, value in records:
                            producer.send(TOPIC, value, key=key)
                    else:
                        for _, value in records:
                            producer.send(TOPIC, value)
                    producer.flush()
                return count / clock.seconds

    rates = best_of(
        2 * bench.scale.repetitions,
        {"writer": writer, "keyed": lambda: producer(keyed=True), "keyless": lambda: producer(keyed=False)},
    )
    for work, name, target in (
        ("producer.send with keys", "keyed", 0.7),
        ("producer.send without keys", "keyless", None),
    ):
        yield Row(
            work=work,
            figure=rates[name],
            unit=Unit.RECORDS_PER_SECOND,
            peer="the engine's writer()",
            peer_figure=rates["writer"],
            target=target,
        )


def _consuming(bench: Bench) -> Iterator[Row]:
    count = bench.scale.consumed
    with bench.directory("store-consumer") as path:
        _fill(path, count)
        warm_page_cache(path)
        with seeklog.open(path, config=CONFIG, background=False) as store:

            def scan() -> float:
                logs = [store.log(TOPIC, number) for number in range(4)]
                with Stopwatch() as clock:
                    seen = sum(_exhaust(log.scan()) for log in logs)
                return _checked(seen, count) / clock.seconds

            def iterate() -> float:
                with store.consumer([TOPIC], auto_offset_reset="earliest", consumer_timeout_ms=0) as consumer:
                    with Stopwatch() as clock:
                        seen = _exhaust(iter(consumer))
                    return _checked(seen, count) / clock.seconds

            def poll() -> float:
                with store.consumer([TOPIC], auto_offset_reset="earliest") as consumer:
                    seen = 0
                    with Stopwatch() as clock:
                        while records := consumer.poll():
                            seen += _exhaust(iter(records))
                    return _checked(seen, count) / clock.seconds

            rates = best_of(2 * bench.scale.repetitions, {"scan": scan, "iterate": iterate, "poll": poll})
    for work, name in (("consumer, iterated over", "iterate"), ("consumer.poll, at most 500", "poll")):
        yield Row(
            work=work,
            figure=rates[name],
            unit=Unit.RECORDS_PER_SECOND,
            peer="the engine's scan",
            peer_figure=rates["scan"],
            target=0.8,
        )


def _committing(bench: Bench) -> Iterator[Row]:
    with bench.directory("store-commit") as path, bench.directory("store-commit-log") as log_path:
        _fill(path, CYCLE)
        with (
            Log(log_path, config=LogConfig(flush="batch")) as log,
            seeklog.open(path, config=CONFIG) as store,
            store.producer() as producer,
            store.consumer([TOPIC], group="fraud", auto_offset_reset="earliest") as consumer,
        ):
            # As in a process that also produces, the partitions are open for writing.
            for number in range(len(consumer.assignment)):
                producer.send(TOPIC, b"x", partition=number)
            producer.flush()
            consumer.poll()
            consumer.commit()

            def commit() -> float:
                with Stopwatch() as clock:
                    for _ in range(COMMITS_A_TURN):
                        consumer.commit()
                return COMMITS_A_TURN / clock.seconds

            def append() -> float:
                with Stopwatch() as clock:
                    for _ in range(COMMITS_A_TURN):
                        log.append(b"x" * 100)
                return COMMITS_A_TURN / clock.seconds

            rates = best_of(2 * bench.scale.repetitions, {"commit": commit, "append": append})
    yield Row(
        work="a group's commit, durable",
        figure=1e3 / rates["commit"],
        unit=Unit.MILLISECONDS,
        peer="a durable append",
        peer_figure=1e3 / rates["append"],
        target=0.77,  # not slower than 1.3 times an append
    )
    yield from _many_commits(bench)


def _many_commits(bench: Bench) -> Iterator[Row]:
    """Commit very often without a close; measure the files left, and the time to open and read them."""
    partition = TopicPartition(TOPIC, 0)
    with bench.directory("store-commits") as path:
        _fill(path, CYCLE)
        with seeklog.open(path, config=CONFIG, background=False) as store:
            for number in range(MANY_COMMITS):
                store.commit_offsets("fraud", {partition: number % 10})
            size = sum(file.stat().st_size for file in path.glob("__consumer_offsets-*/*"))
            seconds = []
            for _ in range(bench.scale.repetitions):
                with Stopwatch() as clock, seeklog.open(path, config=CONFIG, background=False) as another:
                    another.lag("fraud")
                seconds.append(clock.seconds)
    work = f"{MANY_COMMITS:,} commits"
    yield Row(work=f"{work}, on disk", figure=size / 1e6, unit=Unit.MEGABYTES, target=16.8)
    yield Row(work=f"{work}, opened and read", figure=1e3 * min(seconds), unit=Unit.MILLISECONDS, target=50)


def _opening(bench: Bench) -> Iterator[Row]:
    count = bench.scale.partitions
    with bench.directory("store-open") as path:
        with seeklog.open(path) as store:
            for number in range(count // PARTITIONS_A_TOPIC):
                store.create_topic(f"topic-{number}", partitions=PARTITIONS_A_TOPIC)
        opens = [open_in_child(path) for _ in range(bench.scale.repetitions)]
    work = f"open a store of {count:,} partitions"
    for part, figure, unit, target in (
        ("", min(opened.seconds for opened in opens) * 1e3, Unit.MILLISECONDS, 1000),
        (" and read the end of each", min(opened.seconds_with_ends for opened in opens) * 1e3, Unit.MILLISECONDS, 1000),
        (", memory of the process", max(opened.resident_bytes for opened in opens) / 1e6, Unit.MEGABYTES, 200),
    ):
        yield Row(work=work + part, figure=figure, unit=unit, target=target)


def _fill(path: Path, count: int) -> None:
    with seeklog.open(path, config=CONFIG) as store:
        store.create_topic(TOPIC, partitions=4)
        with store.producer() as producer:
            for key, value in islice(cycle(pairs()), count):
                producer.send(TOPIC, value, key=key)


def _exhaust(records: Iterator[object]) -> int:
    count = 0
    for _record in records:
        count += 1
    return count


def _checked(seen: int, expected: int) -> int:
    if seen != expected:
        raise ValueError(f"saw {seen} of {expected} records")
    return seen
