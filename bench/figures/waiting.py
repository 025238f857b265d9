"""A consumer that waits for records which do not come: its processor time, and what an empty poll costs."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import seeklog
from bench.measure import Bench, Stopwatch
from bench.row import Row, Unit
from seeklog.files import OsFiles
from seeklog.files.polling import Polling

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from seeklog import Consumer
    from seeklog.files import Files
    from seeklog.files.watch import DirectoryWatch

TOPIC = "payments"
WAITED_MS = 5_000
EMPTY_POLLS = 200
# A consumer looks at every partition, watches it, and looks once more before it rests. Where it cannot watch, its
# pauses grow with each look.
FIRST_POLLS = 3
FIRST_WAIT_MS = 10_000


class Unwatched(OsFiles):
    """The disk of a system that reports no changes."""

    def watch(self) -> DirectoryWatch:
        return Polling()


def measure(bench: Bench) -> Iterator[Row]:
    count = bench.scale.partitions
    work = f"an idle consumer of {count:,} partitions"
    with bench.directory("waiting") as path:
        with seeklog.open(path) as store:
            store.create_topic(TOPIC, partitions=count)
        yield Row(work=work, figure=_share(path), unit=Unit.PERCENT, target=2)
        yield Row(work=f"{work}, in a group", figure=_share(path, group="fraud"), unit=Unit.PERCENT, target=2)
        yield Row(work=f"{work}, polling", figure=_share(path, files=Unwatched()), unit=Unit.PERCENT, target=2)
        figure = _share(path, group="risk", files=Unwatched())
        yield Row(work=f"{work}, in a group, polling", figure=figure, unit=Unit.PERCENT, target=2)
        yield Row(
            work=f"an empty poll of {count:,} partitions", figure=_empty_poll(path), unit=Unit.MICROSECONDS, target=1000
        )


def _share(path: Path, *, group: str | None = None, files: Files | None = None) -> float:
    """Return the processor time of a waiting consumer, in percent of the time that it waits."""
    with seeklog.open(path, files=files) as store, store.consumer([TOPIC], group=group) as consumer:
        _settle(consumer)
        consumer.poll(FIRST_WAIT_MS if files is not None else 0)
        if group is not None:
            consumer.commit()  # the first commit writes an offset for every partition, later ones what has changed
        before = _processor_seconds()
        with Stopwatch() as clock:
            if consumer.poll(WAITED_MS):
                raise ValueError("a record came")
        return 100 * (_processor_seconds() - before) / clock.seconds


def _empty_poll(path: Path) -> float:
    with seeklog.open(path) as store, store.consumer([TOPIC]) as consumer:
        _settle(consumer)
        with Stopwatch() as clock:
            for _ in range(EMPTY_POLLS):
                consumer.poll()
        return 1e6 * clock.seconds / EMPTY_POLLS


def _settle(consumer: Consumer) -> None:
    for _ in range(FIRST_POLLS):
        consumer.poll()


def _processor_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
