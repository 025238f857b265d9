"""Appends that are on the disk when they are acknowledged: `flush="batch"`."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from bench.measure import Bench, Stopwatch, best_of
from bench.peers.naive import NaiveLog
from bench.peers.raw import RawFile
from bench.peers.sqlite import SqliteLog
from bench.row import Row, Unit
from bench.workload import CYCLE, RECORDS_PER_16KB_BATCH, encoded_cycle, make_rows, pairs
from seeklog import Log, LogConfig
from seeklog.files import OsFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG = LogConfig(flush="batch")
THREADS = 64
IN_FLIGHT = 1_000


class CountingFiles(OsFiles):
    """The real disk, with its syncs of files counted."""

    def __init__(self) -> None:
        self.sync_count = 0
        self._counting = threading.Lock()

    def sync(self, handle: int) -> None:
        super().sync(handle)
        with self._counting:
            self.sync_count += 1


def measure(bench: Bench) -> Iterator[Row]:
    yield from _records(bench)
    yield from _bulk(bench)


def _records(bench: Bench) -> Iterator[Row]:
    scale = bench.scale
    acknowledged_per_sync: list[float] = []

    def threads() -> float:
        rate, per_sync = _threads(bench)
        acknowledged_per_sync.append(per_sync)
        return rate

    rates = best_of(
        scale.durable_repetitions,
        {
            "one thread": lambda: _one_thread(bench),
            "naive": lambda: _naive(bench),
            "sqlite": lambda: _sqlite(bench),
            "threads": threads,
            "writer": lambda: _writer(bench),
        },
    )
    one_thread = rates["one thread"]
    unit = Unit.RECORDS_PER_SECOND
    work = "durable append, one thread"
    yield Row(work=work, figure=one_thread, unit=unit, peer="naive with fsync", peer_figure=rates["naive"], target=1)
    yield Row(
        work=work,
        figure=one_thread,
        unit=unit,
        peer="SQLite, synchronous=FULL",
        peer_figure=rates["sqlite"],
    )
    work = f"durable append, {THREADS} threads"
    yield Row(
        work=work,
        figure=max(acknowledged_per_sync),
        unit=Unit.ACKNOWLEDGEMENTS_PER_SYNC,
        target=20,
        note="Every sync of a file counts, indexes and side files included.",
    )
    yield Row(
        work=work,
        figure=rates["threads"],
        unit=unit,
        peer="seeklog, one thread",
        peer_figure=one_thread,
        target=4,
    )
    work = f"durable writer(), {IN_FLIGHT:,} futures in flight"
    yield Row(
        work=work,
        figure=rates["writer"],
        unit=unit,
        peer="seeklog, one thread",
        peer_figure=one_thread,
        target=50,
    )
    yield Row(
        work=work,
        figure=rates["writer"],
        unit=unit,
        peer="naive with fsync",
        peer_figure=rates["naive"],
        target=50,
    )


def _one_thread(bench: Bench) -> float:
    entries = pairs()[: bench.scale.durable]
    with bench.directory("durable-seeklog") as path, Log(path, config=CONFIG) as log, Stopwatch() as clock:
        for key, value in entries:
            log.append(value, key=key)
    return len(entries) / clock.seconds


def _naive(bench: Bench) -> float:
    entries = pairs()[: bench.scale.durable]
    with bench.directory("durable-naive") as path:
        log = NaiveLog(path, fsync=True)
        with Stopwatch() as clock:
            for key, value in entries:
                log.append(key, value)
        log.close()
    return len(entries) / clock.seconds


def _sqlite(bench: Bench) -> float:
    rows = make_rows(0, bench.scale.durable)
    with bench.directory("durable-sqlite") as path:
        log = SqliteLog(path, synchronous="FULL")
        with Stopwatch() as clock:
            for row in rows:
                log.append(row)
        log.close()
    return len(rows) / clock.seconds


def _threads(bench: Bench) -> tuple[float, float]:
    """Return acknowledgements per second and per sync, of threads that each wait for their own."""
    each = bench.scale.durable_threaded // THREADS
    files = CountingFiles()
    with bench.directory("durable-seeklog") as path, Log(path, config=CONFIG, files=files) as log:
        start = threading.Barrier(THREADS + 1)

        def append_all(first: int) -> None:
            start.wait()
            for number in range(first, first + each):
                key, value = pairs()[number % CYCLE]
                log.append(value, key=key)

        threads = [threading.Thread(target=append_all, args=(n * each,)) for n in range(THREADS)]
        for thread in threads:
            thread.start()
        synced_before = files.sync_count
        start.wait()
        with Stopwatch() as clock:
            for thread in threads:
                thread.join()
        syncs = files.sync_count - synced_before
        if log.log_end_offset != THREADS * each:
            raise ValueError(f"{THREADS * each} records were appended, the log ends at {log.log_end_offset}")
    return THREADS * each / clock.seconds, THREADS * each / syncs


def _writer(bench: Bench) -> float:
    """One thread that never waits for a record before 999 newer ones are on their way."""
    count = bench.scale.durable_written
    entries = (pairs() * (count // CYCLE + 1))[:count]
    with bench.directory("durable-seeklog") as path, Log(path, config=CONFIG) as log:
        with log.writer() as writer, Stopwatch() as clock:
            in_flight: deque[Any] = deque()
            for key, value in entries:
                in_flight.append(writer.append(value, key=key))
                if len(in_flight) == IN_FLIGHT:
                    in_flight.popleft().result()
            while in_flight:
                in_flight.popleft().result()
        if log.recovery_point != count:
            raise ValueError(f"{count} records were acknowledged, {log.recovery_point} are durable")
    return count / clock.seconds


def _bulk(bench: Bench) -> Iterator[Row]:
    piece = encoded_cycle(RECORDS_PER_16KB_BATCH)
    pieces = [piece] * bench.scale.durable_bulk_calls
    size = len(piece) * len(pieces)

    def seeklog() -> float:
        with (
            bench.directory("durable-seeklog") as path,
            Log(path, config=CONFIG) as log,
            Stopwatch() as clock,
        ):
            for raw in pieces:
                log.append_batches(raw)
        return size / 1e9 / clock.seconds

    def raw_file() -> float:
        with bench.directory("durable-raw") as path:
            path.mkdir()
            file = RawFile(path / "raw")
            with Stopwatch() as clock:
                file.append_all(pieces)
            file.close()
        return size / 1e9 / clock.seconds

    # More turns than elsewhere: a disk behind a network is the noisiest part of a machine.
    rates = best_of(2 * bench.scale.durable_repetitions, {"seeklog": seeklog, "raw": raw_file})
    yield Row(
        work="durable bulk, append_batches of 1 MB",
        figure=rates["seeklog"],
        unit=Unit.GIGABYTES_PER_SECOND,
        peer="raw write + fdatasync",
        peer_figure=rates["raw"],
        target=0.8,
    )
