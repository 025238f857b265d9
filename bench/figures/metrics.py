"""What counting costs: its share of the work that it counts, and a call of `store.metrics`.

The share is below what two runs of the same work differ by, so it is not taken from a comparison of two runs. It is the
cost of one measured duration (two looks at the clock, one observation), times the number of durations that the work
measures. Everything else that is counted is an addition to an int; an append runs no code of the metrics.
"""

from __future__ import annotations

from functools import partial
from itertools import cycle, islice
from typing import TYPE_CHECKING
from unittest.mock import patch

import seeklog
from bench.measure import Bench, Stopwatch, best_of
from bench.row import Row, Unit
from bench.workload import pairs
from seeklog import Log, LogConfig, Record
from seeklog.clock import SystemClock
from seeklog.files import OsFiles
from seeklog.metrics import Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONFIG = LogConfig(flush="os")
TOPIC = "payments"
OBSERVATIONS = 100_000


class Unsynced(OsFiles):
    """A disk on which a thousand partitions are written quickly: the call that is measured reads memory alone."""

    def sync(self, handle: int) -> None:
        pass

    def sync_directory(self, path: str) -> None:
        pass


def measure(bench: Bench) -> Iterator[Row]:
    cost_s = _cost_of_duration(bench)
    yield Row(
        work="counting in producer.send with keys",
        figure=_share_of(bench, cost_s, partial(_send, bench)),
        unit=Unit.PERCENT,
        target=1,
    )
    yield Row(
        work="counting in append, flush=batch",
        figure=_share_of(bench, cost_s, partial(_append_durably, bench)),
        unit=Unit.PERCENT,
        target=1,
    )
    yield from _asking(bench)


def _cost_of_duration(bench: Bench) -> float:
    clock, histogram = SystemClock(), Histogram()

    def observe() -> float:
        with Stopwatch() as watch:
            for _ in range(OBSERVATIONS):
                began = clock.monotonic()
                histogram.observe(clock.monotonic() - began)
        return OBSERVATIONS / watch.seconds

    return 1 / best_of(bench.scale.repetitions, {"observe": observe})["observe"]


def _share_of(bench: Bench, cost_s: float, work: Callable[[], float]) -> float:
    """Return the cost of the durations that `work` measures, in percent of the seconds that it returns."""
    taken_s = 1 / best_of(bench.scale.repetitions, {"work": lambda: 1 / work()})["work"]
    counted = 0

    def count(histogram: Histogram, seconds: float) -> None:
        nonlocal counted
        counted += 1

    with patch.object(Histogram, "observe", count):
        work()
    return 100 * counted * cost_s / taken_s


def _send(bench: Bench) -> float:
    records = list(islice(cycle(pairs()), bench.scale.sent_a_turn))
    with bench.directory("metrics-producer") as path, seeklog.open(path, config=CONFIG) as store:
        store.create_topic(TOPIC, partitions=4)
        with store.producer() as producer, Stopwatch() as clock:
            for key, value in records:
                producer.send(TOPIC, value, key=key)
            producer.flush()
    return clock.seconds


def _append_durably(bench: Bench) -> float:
    entries = pairs()[: bench.scale.durable_a_turn]
    with (
        bench.directory("metrics-append") as path,
        Log(path, config=LogConfig(flush="batch")) as log,
        Stopwatch() as clock,
    ):
        for key, value in entries:
            log.append(value, key=key)
    return clock.seconds


def _asking(bench: Bench) -> Iterator[Row]:
    """Ask a store that has written many partitions."""
    count = bench.scale.partitions
    with bench.directory("metrics-asked") as path, seeklog.open(path, config=CONFIG, files=Unsynced()) as store:
        store.create_topic(TOPIC, partitions=count)
        for number in range(count):
            with store.writer(TOPIC, number) as log:
                log.append_many([Record(b"x")])
        work = f"metrics of {count:,} written partitions"
        for words, by_partition, target in ((work, False, 50), (f"{work}, by partition", True, 200)):
            seconds = []
            for _ in range(bench.scale.repetitions):
                with Stopwatch() as clock:
                    store.metrics(by_partition=by_partition)
                seconds.append(clock.seconds)
            yield Row(work=words, figure=1e3 * min(seconds), unit=Unit.MILLISECONDS, target=target)
