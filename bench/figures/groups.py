"""A group with a thousand partitions: its polls, and its commits beside raw syncs of the same disk.

Each partition has a hundred records. A raw sync is a write of 170 bytes at the end of a file, as many as a commit of
one partition has, and an `fdatasync`. Commits and raw syncs are measured in turns, because the rate of syncs varies
from second to second.
"""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING

import seeklog
from bench.measure import Bench, Stopwatch, best_of
from bench.row import Row, Unit
from seeklog import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.measure import Trial
    from seeklog import Consumer, Store

MANY = "many"
FEW = "few"
RECORDS_A_PARTITION = 100
COMMITS_A_TURN = 20
COMMIT_BYTES = 170


def measure(bench: Bench) -> Iterator[Row]:
    count = bench.scale.partitions
    with bench.directory("groups") as path:
        _fill(path, MANY, count)
        _fill(path, FEW, 4, total=count * RECORDS_A_PARTITION)
        with seeklog.open(path) as store:
            rates = best_of(
                bench.scale.repetitions,
                {topic: partial(_poll, store, topic, count) for topic in (MANY, FEW)},
            )
            yield Row(
                work=f"a group's poll of {count:,} partitions",
                figure=rates[MANY],
                unit=Unit.RECORDS_PER_SECOND,
                peer="the same records in 4 partitions",
                peer_figure=rates[FEW],
            )
            yield from _commits(bench, store, path)


def _commits(bench: Bench, store: Store, path: Path) -> Iterator[Row]:
    turns: dict[str, Trial] = {"raw": partial(_raw_syncs, path)}
    for partitions in (1, 100, bench.scale.partitions):
        offsets = {TopicPartition(MANY, number): RECORDS_A_PARTITION for number in range(partitions)}
        store.commit_offsets("fraud", offsets)
        turns[f"{partitions}"] = partial(_commit, store, offsets)
    rates = best_of(2 * bench.scale.repetitions, turns)
    for partitions, target in ((1, 0.7), (100, None), (bench.scale.partitions, None)):
        yield Row(
            work="commits of one partition" if partitions == 1 else f"commits of {partitions:,} partitions",
            figure=rates[f"{partitions}"],
            unit=Unit.RECORDS_PER_SECOND,
            peer="raw write + fdatasync",
            peer_figure=rates["raw"],
            target=target,
        )


def _poll(store: Store, topic: str, partitions: int) -> float:
    wanted = partitions * RECORDS_A_PARTITION
    with store.consumer([topic], group="fraud", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.poll()
        consumer.seek_to_beginning()
        with Stopwatch() as clock:
            seen = _poll_all(consumer, wanted)
        if seen != wanted:
            raise ValueError(f"saw {seen} of {wanted} records")
        return wanted / clock.seconds


def _poll_all(consumer: Consumer, wanted: int) -> int:
    seen = 0
    while seen < wanted:
        seen += len(consumer.poll())
    return seen


def _commit(store: Store, offsets: dict[TopicPartition, int]) -> float:
    with Stopwatch() as clock:
        for _ in range(COMMITS_A_TURN):
            store.commit_offsets("fraud", offsets)
    return COMMITS_A_TURN / clock.seconds


def _raw_syncs(path: Path) -> float:
    data = bytes(COMMIT_BYTES)
    handle = os.open(path / "raw", os.O_RDWR | os.O_CREAT)
    try:
        position = os.fstat(handle).st_size
        with Stopwatch() as clock:
            for number in range(COMMITS_A_TURN):
                os.pwrite(handle, data, position + number * COMMIT_BYTES)
                os.fdatasync(handle)
        return COMMITS_A_TURN / clock.seconds
    finally:
        os.close(handle)


def _fill(path: Path, topic: str, partitions: int, *, total: int | None = None) -> None:
    with seeklog.open(path) as store:
        store.create_topic(topic, partitions=partitions)
        with store.producer(linger_ms=100) as producer:
            for number in range(total or partitions * RECORDS_A_PARTITION):
                producer.send(topic, b"x" * 100, partition=number % partitions)
