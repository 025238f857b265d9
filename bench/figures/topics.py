"""Thousands of topics of one partition, one call a topic: creating, opening and deleting them.

The calls wait for the disk, so each row compares the last tenth with the first tenth of the same run.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import seeklog
from bench.figures.opened_store import open_in_child
from bench.row import Row, Unit
from seeklog.files import OsFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from bench.measure import Bench

# The last calls may take 1.5 times as long as the first.
SLOWDOWN = 1 / 1.5
MAX_SYNCS = 2
MAX_OPEN_MS = 1000


class CountingFiles(OsFiles):
    """The real disk. It counts calls of fsync and fdatasync."""

    syncs = 0

    def sync(self, handle: int) -> None:
        self.syncs += 1
        super().sync(handle)

    def sync_directory(self, path: str) -> None:
        self.syncs += 1
        super().sync_directory(path)


def measure(bench: Bench) -> Iterator[Row]:
    count = bench.scale.topics
    names = [f"topic-{number:05d}" for number in range(count)]
    with bench.directory("topics-few") as few, bench.directory("topics") as path:
        with seeklog.open(few) as store:
            for name in names[: count // 10]:
                store.create_topic(name, partitions=1)
        files = CountingFiles()
        syncs = []
        with seeklog.open(path, files=files) as store:

            def create(name: str) -> None:
                before = files.syncs
                store.create_topic(name, partitions=1)
                syncs.append(files.syncs - before)

            yield _slowdown("create a topic", names, create)
        yield Row(
            work="create a topic, fsync and fdatasync calls, maximum",
            figure=max(syncs),
            unit=Unit.SYNCS,
            target=MAX_SYNCS,
            note=f"on average {sum(syncs) / count:.3f}",
        )
        yield from _opening(bench, few, path)
        with seeklog.open(path) as store:
            yield _slowdown("delete a topic", names, store.delete_topic)
        with bench.directory("topics-wide") as wide, seeklog.open(wide) as store:
            started = perf_counter()
            store.create_topic("wide", partitions=bench.scale.partitions)
            yield Row(
                work=f"create a topic of {bench.scale.partitions:,} partitions",
                figure=(perf_counter() - started) * 1e3,
                unit=Unit.MILLISECONDS,
            )


def _slowdown(work: str, names: list[str], act: Callable[[str], None]) -> Row:
    part = len(names) // 10
    seconds = []
    for name in names:
        started = perf_counter()
        act(name)
        seconds.append(perf_counter() - started)
    first, last = seconds[:part], seconds[-part:]
    medians = [sorted(times)[part // 2] * 1e3 for times in (first, last)]
    return Row(
        work=f"{work}, mean of the last {part:,} of {len(names):,}",
        figure=sum(last) / part * 1e3,
        unit=Unit.MILLISECONDS,
        peer=f"of the first {part:,}",
        peer_figure=sum(first) / part * 1e3,
        target=SLOWDOWN,
        target_text="<= 1.5 times as long",
        note=f"medians {medians[1]:.2f} and {medians[0]:.2f} ms; in all {sum(seconds):.1f} s",
    )


def _opening(bench: Bench, few: Path, path: Path) -> Iterator[Row]:
    count = bench.scale.topics
    of_few, of_all = ([open_in_child(where) for _ in range(bench.scale.repetitions)] for where in (few, path))
    yield Row(
        work=f"open a store of {count:,} topics",
        figure=min(opened.seconds for opened in of_all) * 1e3,
        unit=Unit.MILLISECONDS,
        target=MAX_OPEN_MS,
    )
    yield Row(
        work=f"describe a topic, which opens its log, mean of {count:,}",
        figure=min(opened.seconds_with_ends - opened.seconds for opened in of_all) / count * 1e3,
        unit=Unit.MILLISECONDS,
        peer=f"of {count // 10:,}",
        peer_figure=min(opened.seconds_with_ends - opened.seconds for opened in of_few) / (count // 10) * 1e3,
        target=SLOWDOWN,
        target_text="<= 1.5 times as long",
    )
