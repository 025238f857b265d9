"""Reads of one record at a random offset, and the effect of the index.

No contender caches records: each call finds the position, reads bytes, checks the CRC (SQLite has none), and creates
the record. SQLite has its page cache of 2 MB.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import cycle
from typing import TYPE_CHECKING

from bench.measure import Bench, Stopwatch, Trial, best_of, drop_page_cache, settle, warm_page_cache
from bench.peers.naive import NaiveLog
from bench.peers.sqlite import SqliteLog
from bench.row import Row, Unit
from bench.workload import (
    RECORDS_PER_16KB_BATCH,
    build_log,
    check_record,
    fill_naive,
    fill_sqlite,
    random_offsets,
    whole_cycles,
)
from seeklog import Log, LogReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    Read = Callable[[int], object]

CHECKED_READS = 200


def measure(bench: Bench) -> Iterator[Row]:
    yield from _random(bench)
    yield from _with_and_without_index(bench)


def _random(bench: Bench) -> Iterator[Row]:
    count = whole_cycles(bench.scale.stored)
    with (
        bench.directory("read-seeklog") as path,
        bench.directory("read-seeklog-16kb") as path_16kb,
        bench.directory("read-naive") as naive_path,
        bench.directory("read-sqlite") as sqlite_path,
    ):
        build_log(path, count, records_per_batch=1)
        build_log(path_16kb, count, records_per_batch=RECORDS_PER_16KB_BATCH)
        with _naive(naive_path, count) as naive, _sqlite(sqlite_path, count) as sqlite:
            yield from _warm(bench, path, path_16kb, naive, sqlite, count=count)
            yield from _cold(bench, path, path_16kb, naive, sqlite_path, count=count)
        if bench.large:
            yield from _large(bench, path, count=count)


def _warm(
    bench: Bench, path: Path, path_16kb: Path, naive: NaiveLog, sqlite: SqliteLog, *, count: int
) -> Iterator[Row]:
    for directory in (path, path_16kb, naive.directory):
        warm_page_cache(directory)
    offsets = random_offsets(bench.scale.reads_a_turn * bench.scale.short_turns, below=count)
    a_turn = bench.scale.reads_a_turn
    with Log(path) as log, Log(path_16kb) as log_16kb:
        _check_reads(log, log_16kb, naive, sqlite, offsets[:CHECKED_READS])
        rates = best_of(
            bench.scale.short_turns,
            {
                "seeklog": _reading_log(log, offsets, a_turn=a_turn),
                "naive": _reading_naive(naive, offsets, a_turn=a_turn // 2),
                "sqlite": _reading(sqlite.read, offsets, a_turn=a_turn // 2),
                "16kb": _reading_log(log_16kb, offsets, a_turn=a_turn // 2),
            },
        )
    size = f"{_millions(count)} records"
    work = f"read one, random, warm, {size}, one-record batches"
    yield _latency(work, rates["seeklog"], "naive", rates["naive"], target=4)
    yield _latency(work, rates["seeklog"], "SQLite", rates["sqlite"], target=1.5)
    work = f"read one, random, warm, {size}, 16 KB batches"
    yield _latency(work, rates["16kb"], "naive", rates["naive"])
    yield _latency(work, rates["16kb"], "SQLite", rates["sqlite"])


def _cold(
    bench: Bench, path: Path, path_16kb: Path, naive: NaiveLog, sqlite_path: Path, *, count: int
) -> Iterator[Row]:
    """Measure logs opened after their files were dropped from the page cache: only what an open reads is in memory."""
    offsets = random_offsets(bench.scale.cold_reads, below=count)

    def seeklog(directory: Path) -> Trial:
        def trial() -> float:
            drop_page_cache(directory)
            with LogReader(directory) as log:
                return _reading_log(log, offsets)()

        return trial

    def naive_cold() -> float:
        # It stays open, because opening it reads the whole log. Its index is in memory, so only the log is cold.
        drop_page_cache(naive.directory)
        return _reading_naive(naive, offsets)()

    def sqlite_cold() -> float:
        drop_page_cache(sqlite_path)
        log = SqliteLog(sqlite_path)
        try:
            return _reading(log.read, offsets)()
        finally:
            log.close()

    rates = best_of(
        3,
        {"seeklog": seeklog(path), "naive": naive_cold, "sqlite": sqlite_cold, "16kb": seeklog(path_16kb)},
    )
    for batches, figure in (("one-record", rates["seeklog"]), ("16 KB", rates["16kb"])):
        work = f"read one, random, cold, {batches} batches"
        yield _latency(work, figure, "naive", rates["naive"])
        yield _latency(work, figure, "SQLite", rates["sqlite"])


def _large(bench: Bench, path: Path, *, count: int) -> Iterator[Row]:
    large_count = whole_cycles(bench.scale.stored_large)
    with bench.directory("read-seeklog-large") as large_path:
        build_log(large_path, large_count, records_per_batch=1)
        settle(large_path)
        warm_page_cache(large_path)
        warm_page_cache(path)
        a_turn = bench.scale.reads_a_turn
        reads = a_turn * bench.scale.short_turns
        with Log(path) as log, Log(large_path) as large_log:
            rates = best_of(
                bench.scale.short_turns,
                {
                    "large": _reading_log(large_log, random_offsets(reads, below=large_count), a_turn=a_turn),
                    "seeklog": _reading_log(log, random_offsets(reads, below=count), a_turn=a_turn),
                },
            )
    yield _latency(
        f"read one, random, warm, {_millions(large_count)} records, one-record batches",
        rates["large"],
        f"seeklog, {_millions(count)}",
        rates["seeklog"],
        target=1 / 1.5,
        target_text="within 1.5x",
    )


def _with_and_without_index(bench: Bench) -> Iterator[Row]:
    """Find the middle of a log of 1 M one-record batches with the index, and by reading from the start."""
    count = whole_cycles(bench.scale.sought)
    offset = bench.scale.sought // 2
    with (
        bench.directory("seek-seeklog") as path,
        bench.directory("seek-naive") as naive_path,
        bench.directory("seek-sqlite") as sqlite_path,
    ):
        build_log(path, count, records_per_batch=1)
        with _naive(naive_path, count) as naive, _sqlite(sqlite_path, count) as sqlite, Log(path) as log:

            def scan_log() -> float:
                with Stopwatch() as clock:
                    for record in log.scan():
                        if record.offset == offset:
                            break
                check_record(offset, (record.offset, record.key, record.value))
                return 1 / clock.seconds

            same = [offset] * 500
            rates = best_of(
                bench.scale.repetitions,
                {
                    "seeklog": _reading_log(log, same),
                    "naive": _reading_naive(naive, same),
                    "sqlite": _reading(sqlite.read, same),
                    "seeklog scan": scan_log,
                    "naive scan": _reading(lambda sought: next(naive.scan(sought)), [offset]),
                    "sqlite scan": _reading(sqlite.read_without_index, [offset]),
                },
            )
    work = f"offset {offset:,} of {_millions(bench.scale.sought)}"
    yield _latency(
        f"{work}, with index", rates["seeklog"], "seeklog without index", rates["seeklog scan"], target=1_000
    )
    yield _latency(f"{work}, with index", rates["seeklog"], "naive", rates["naive"])
    yield _latency(f"{work}, with index", rates["seeklog"], "SQLite", rates["sqlite"])
    yield _latency(f"{work}, without", rates["seeklog scan"], "naive", rates["naive scan"])
    yield _latency(f"{work}, without", rates["seeklog scan"], "SQLite", rates["sqlite scan"])


def _millions(count: int) -> str:
    return f"{round(count / 1e6, 1):g} M"


def _latency(
    work: str, rate: float, peer: str, peer_rate: float, *, target: float | None = None, target_text: str = ""
) -> Row:
    return Row(
        work=work,
        figure=1e6 / rate,
        unit=Unit.MICROSECONDS,
        peer=peer,
        peer_figure=1e6 / peer_rate,
        target=target,
        target_text=target_text,
    )


def _reading_log(log: LogReader, offsets: Sequence[int], *, a_turn: int = 0) -> Trial:
    turns = _turns(offsets, a_turn)

    def trial() -> float:
        read = log.read
        chosen = next(turns)
        with Stopwatch() as clock:
            for offset in chosen:
                next(read(offset, max_records=1))
        return len(chosen) / clock.seconds

    return trial


def _reading_naive(naive: NaiveLog, offsets: Sequence[int], *, a_turn: int = 0) -> Trial:
    turns = _turns(offsets, a_turn)

    def trial() -> float:
        read = naive.read
        chosen = next(turns)
        with Stopwatch() as clock:
            for offset in chosen:
                next(read(offset))
        return len(chosen) / clock.seconds

    return trial


def _reading(read: Read, offsets: Sequence[int], *, a_turn: int = 0) -> Trial:
    turns = _turns(offsets, a_turn)

    def trial() -> float:
        chosen = next(turns)
        with Stopwatch() as clock:
            for offset in chosen:
                read(offset)
        return len(chosen) / clock.seconds

    return trial


def _turns(offsets: Sequence[int], a_turn: int) -> Iterator[Sequence[int]]:
    """Yield other offsets for each turn, so that no turn finds its records in the processor's cache."""
    size = a_turn or len(offsets)
    return cycle([offsets[first : first + size] for first in range(0, len(offsets), size)])


def _check_reads(log: Log, log_16kb: Log, naive: NaiveLog, sqlite: SqliteLog, offsets: Sequence[int]) -> None:
    for offset in offsets:
        for opened in (log, log_16kb):
            record = next(opened.read(offset, max_records=1))
            check_record(offset, (record.offset, record.key, record.value))
        check_record(offset, next(naive.read(offset)))
        found, _timestamp_ms, key, value = sqlite.read(offset)
        check_record(offset, (found, key, value))


@contextmanager
def _naive(path: Path, count: int) -> Iterator[NaiveLog]:
    log = NaiveLog(path)
    try:
        fill_naive(log, count)
        settle(path)
        yield log
    finally:
        log.close()


@contextmanager
def _sqlite(path: Path, count: int) -> Iterator[SqliteLog]:
    log = SqliteLog(path)
    try:
        fill_sqlite(log, count)
        settle(path)
        yield log
    finally:
        log.close()
