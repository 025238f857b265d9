"""Appends with `flush="batch"`, which are on disk when they are acknowledged."""

from __future__ import annotations

import itertools
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
from seeklog.clients.log_writer import LogWriter
from seeklog.files import OsFiles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.measure import Trial

CONFIG = LogConfig(flush="batch")
THREADS = 64
IN_FLIGHT = 1_000
BULK_CALLS_A_TURN = 4


class CountingFiles(OsFiles):
    """The real disk, counting syncs of files."""

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
    acknowledged_per_sync: list[float] = []

    def threads() -> float:
        rate, per_sync = _threads(bench)
        acknowledged_per_sync.append(per_sync)
        return rate

    with (
        bench.directory("durable-one-seeklog") as path,
        bench.directory("durable-naive") as naive_path,
        bench.directory("durable-sqlite") as sqlite_path,
        Log(path, config=CONFIG) as log,
    ):
        naive = NaiveLog(naive_path, fsync=True)
        sqlite = SqliteLog(sqlite_path, synchronous="FULL")
        one_by_one = best_of(
            bench.scale.short_turns,
            {
                "one thread": _one_thread(log, bench.scale.durable_a_turn),
                "naive": _naive(naive, bench.scale.durable_a_turn),
                "sqlite": _sqlite(sqlite, bench.scale.durable_a_turn),
            },
        )
        naive.close()
        sqlite.close()
    together = best_of(2 * bench.scale.repetitions, {"threads": threads, "writer": lambda: _writer(bench)})
    rates = one_by_one | together
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
        note="Counts every sync of a file, including indexes and side files.",
    )
    yield Row(
        work=work,
        figure=rates["threads"],
        unit=unit,
        peer="seeklog, one thread",
        peer_figure=one_thread,
        target=4,
    )
    work = f"durable LogWriter, {IN_FLIGHT:,} futures in flight"
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


def _one_thread(log: Log, count: int) -> Trial:
    def trial() -> float:
        with Stopwatch() as clock:
            for key, value in pairs()[:count]:
                log.append(value, key=key)
        return count / clock.seconds

    return trial


def _naive(log: NaiveLog, count: int) -> Trial:
    def trial() -> float:
        with Stopwatch() as clock:
            for key, value in pairs()[:count]:
                log.append(key, value)
        return count / clock.seconds

    return trial


def _sqlite(log: SqliteLog, count: int) -> Trial:
    offset = itertools.count()

    def trial() -> float:
        rows = [make_rows(next(offset), 1)[0] for _ in range(count)]
        with Stopwatch() as clock:
            for row in rows:
                log.append(row)
        return count / clock.seconds

    return trial


def _threads(bench: Bench) -> tuple[float, float]:
    """Return acknowledgements per second and per sync, of threads that each wait for their own records."""
    per_thread = bench.scale.durable_threaded // THREADS
    files = CountingFiles()
    with bench.directory("durable-seeklog") as path, Log(path, config=CONFIG, files=files) as log:
        start = threading.Barrier(THREADS + 1)

        def append_all(first: int) -> None:
            start.wait()
            for number in range(first, first + per_thread):
                key, value = pairs()[number % CYCLE]
                log.append(value, key=key)

        threads = [threading.Thread(target=append_all, args=(n * per_thread,)) for n in range(THREADS)]
        for thread in threads:
            thread.start()
        synced_before = files.sync_count
        start.wait()
        with Stopwatch() as clock:
            for thread in threads:
                thread.join()
        syncs = files.sync_count - synced_before
        if log.log_end_offset != THREADS * per_thread:
            raise ValueError(f"{THREADS * per_thread} records were appended, but the log ends at {log.log_end_offset}")
    return THREADS * per_thread / clock.seconds, THREADS * per_thread / syncs


def _writer(bench: Bench) -> float:
    """Append in one thread, which waits for a record after it has sent 999 more."""
    count = bench.scale.durable_written
    entries = (pairs() * (count // CYCLE + 1))[:count]
    with bench.directory("durable-seeklog") as path, Log(path, config=CONFIG) as log:
        with LogWriter(log) as writer, Stopwatch() as clock:
            in_flight: deque[Any] = deque()
            for key, value in entries:
                in_flight.append(writer.append(value, key=key))
                if len(in_flight) == IN_FLIGHT:
                    in_flight.popleft().result()
            while in_flight:
                in_flight.popleft().result()
        if log.recovery_point != count:
            raise ValueError(f"{count} records were acknowledged, but only {log.recovery_point} are durable")
    return count / clock.seconds


def _bulk(bench: Bench) -> Iterator[Row]:
    piece = encoded_cycle(RECORDS_PER_16KB_BATCH)
    pieces = [piece] * BULK_CALLS_A_TURN
    size = len(piece) * len(pieces)
    with (
        bench.directory("durable-seeklog") as path,
        bench.directory("durable-raw") as raw_path,
        Log(path, config=CONFIG) as log,
    ):
        raw_path.mkdir()
        file = RawFile(raw_path / "raw")

        def seeklog() -> float:
            with Stopwatch() as clock:
                for raw in pieces:
                    log.append_batches(raw)
            return size / 1e9 / clock.seconds

        def raw_file() -> float:
            with Stopwatch() as clock:
                file.append_all(pieces)
            return size / 1e9 / clock.seconds

        rates = best_of(bench.scale.short_turns // 2, {"seeklog": seeklog, "raw": raw_file})
        file.close()
    yield Row(
        work="durable bulk, append_batches of 1 MB",
        figure=rates["seeklog"],
        unit=Unit.GIGABYTES_PER_SECOND,
        peer="raw write + fdatasync",
        peer_figure=rates["raw"],
        target=0.8,
    )
