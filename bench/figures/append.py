"""Appends with `flush="os"`, which the operating system writes to disk later.

The input of each contender is created before the clock starts: records, (key, value) pairs, rows. The clock stops
before close.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.measure import Bench, Stopwatch, best_of
from bench.peers.naive import NaiveLog
from bench.peers.sqlite import SqliteLog
from bench.row import Row, Unit
from bench.workload import CYCLE, make_records, make_rows, pairs
from seeklog import Log, LogConfig, Record

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH_RECORDS = 1_000
CONFIG = LogConfig(flush="os")


def measure(bench: Bench) -> Iterator[Row]:
    yield from _many(bench)
    yield from _one_by_one(bench)


def _many(bench: Bench) -> Iterator[Row]:
    count = bench.scale.appended
    peer_count = bench.scale.appended_by_peers
    records = make_records(count)
    batches = [records[first : first + BATCH_RECORDS] for first in range(0, count, BATCH_RECORDS)]
    transactions = [make_rows(first, BATCH_RECORDS) for first in range(0, peer_count, BATCH_RECORDS)]

    def seeklog() -> float:
        with bench.directory("append-seeklog") as path, Log(path, config=CONFIG) as log:
            with Stopwatch() as clock:
                for batch in batches:
                    log.append_many(batch)
            _check_end(log.log_end_offset, count)
        return count / clock.seconds

    def seeklog_making_records() -> float:
        cycle = pairs() * (count // CYCLE + 1)
        with bench.directory("append-seeklog") as path, Log(path, config=CONFIG) as log:
            with Stopwatch() as clock:
                for first in range(0, count, BATCH_RECORDS):
                    batch = cycle[first : first + BATCH_RECORDS]
                    log.append_many([Record(value, key=key) for key, value in batch])
            _check_end(log.log_end_offset, count)
        return count / clock.seconds

    def sqlite() -> float:
        with bench.directory("append-sqlite") as path:
            log = SqliteLog(path)
            with Stopwatch() as clock:
                for rows in transactions:
                    log.append_many(rows)
            log.close()
        return peer_count / clock.seconds

    rates = best_of(
        bench.scale.repetitions,
        {
            "seeklog": seeklog,
            "making records": seeklog_making_records,
            "naive": lambda: _naive(bench, peer_count),
            "sqlite": sqlite,
        },
    )
    work = "append_many, 1,000 a batch, flush=os"
    making = Unit.RECORDS_PER_SECOND.text(rates["making records"])
    yield Row(
        work=work,
        figure=rates["seeklog"],
        unit=Unit.RECORDS_PER_SECOND,
        peer="naive, no fsync",
        peer_figure=rates["naive"],
        target=15,
        note=f"Including the creation of Record objects: {making}.",
    )
    yield Row(
        work=work,
        figure=rates["seeklog"],
        unit=Unit.RECORDS_PER_SECOND,
        peer="SQLite, 1,000 a transaction",
        peer_figure=rates["sqlite"],
        target=10,
        note="SQLite with synchronous=OFF.",
    )


def _one_by_one(bench: Bench) -> Iterator[Row]:
    entries = pairs()[: bench.scale.appended_a_turn]
    with (
        bench.directory("append-seeklog") as path,
        bench.directory("append-naive") as naive_path,
        Log(path, config=CONFIG) as log,
    ):
        naive_log = NaiveLog(naive_path)

        def seeklog() -> float:
            append = log.append
            with Stopwatch() as clock:
                for key, value in entries:
                    append(value, key=key)
            return len(entries) / clock.seconds

        def naive() -> float:
            append = naive_log.append
            with Stopwatch() as clock:
                for key, value in entries:
                    append(key, value)
            return len(entries) / clock.seconds

        rates = best_of(bench.scale.short_turns, {"seeklog": seeklog, "naive": naive})
        _check_end(log.log_end_offset, naive_log.next_offset)
        naive_log.close()
    yield Row(
        work="append one by one, flush=os",
        figure=rates["seeklog"],
        unit=Unit.RECORDS_PER_SECOND,
        peer="naive, no fsync",
        peer_figure=rates["naive"],
        target=1.5,
    )


def _naive(bench: Bench, count: int) -> float:
    entries = (pairs() * (count // CYCLE + 1))[:count]
    with bench.directory("append-naive") as path:
        log = NaiveLog(path)
        append = log.append
        with Stopwatch() as clock:
            for key, value in entries:
                append(key, value)
        _check_end(log.next_offset, count)
        log.close()
    return count / clock.seconds


def _check_end(end: int, expected: int) -> None:
    if end != expected:
        raise ValueError(f"{expected} records were appended, but the log ends at {end}")
