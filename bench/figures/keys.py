"""Lookups of the latest record of a key, beside SQLite with an index on (key, offset), and the size of key indexes.

Keys are random, a tenth as many as records, in 16 KB batches and four segments, the last one active. All files are in
the page cache.
"""

from __future__ import annotations

import random
import sqlite3
from typing import TYPE_CHECKING, Final

from bench.measure import Bench, Stopwatch, best_of, log_size, settle, warm_page_cache
from bench.row import Row, Unit
from bench.workload import KEY_SIZE, RECORDS_PER_16KB_BATCH, TIMESTAMP_MS, VALUE_SIZE
from seeklog import Log, LogConfig, Record
from seeklog.files import OsFiles
from seeklog.log import open_key_index
from seeklog.log.side import read_seal
from seeklog.record.key_hash import hash_key
from seeklog.record.key_table import KeyEntries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# The size of a record in a batch of 140.
RECORD_BYTES: Final = 118
RECORDS_PER_KEY: Final = 10
ABSENT_KEYS: Final = 1_000_000
SEED: Final = 20_261_115
SELECT: Final = "SELECT offset, timestamp_ms, key, value FROM log WHERE key = ? ORDER BY offset DESC LIMIT 1"


def measure(bench: Bench) -> Iterator[Row]:
    count = bench.scale.keyed
    with bench.directory("keys-log") as path, bench.directory("keys-sqlite") as other:
        _fill_log(path, count)
        _fill_sqlite(other, count)
        settle(path)
        settle(other)
        yield from _lookups(bench, path, other, count)
        yield from _side_files(path)


def _config(count: int) -> LogConfig:
    return LogConfig(flush="os", retention_ms=-1, segment_bytes=count * RECORD_BYTES * 2 // 7)


def _key(number: int) -> bytes:
    return number.to_bytes(KEY_SIZE, "big")


def _records(count: int) -> Iterator[tuple[bytes, bytes]]:
    source = random.Random(SEED)
    keys = count // RECORDS_PER_KEY
    values = [source.randbytes(VALUE_SIZE) for _ in range(1000)]
    for number in range(count):
        yield _key(source.randrange(keys)), values[number % len(values)]


def _fill_log(path: Path, count: int) -> None:
    with Log(path, config=_config(count)) as log:
        batch: list[Record] = []
        for key, value in _records(count):
            batch.append(Record(value, key=key, timestamp_ms=TIMESTAMP_MS))
            if len(batch) == RECORDS_PER_16KB_BATCH:
                log.append_many(batch)
                batch = []
        if batch:
            log.append_many(batch)


def _fill_sqlite(path: Path, count: int) -> None:
    connection = _connect(path)
    connection.execute("CREATE TABLE log (offset INTEGER PRIMARY KEY, timestamp_ms INTEGER, key BLOB, value BLOB)")
    connection.execute("BEGIN")
    rows = ((offset, TIMESTAMP_MS, key, value) for offset, (key, value) in enumerate(_records(count)))
    connection.executemany("INSERT INTO log VALUES (?, ?, ?, ?)", rows)
    connection.execute("CREATE INDEX by_key ON log (key, offset)")
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


def _connect(path: Path) -> sqlite3.Connection:
    path.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path / "log.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def _lookups(bench: Bench, path: Path, other: Path, count: int) -> Iterator[Row]:
    keys = count // RECORDS_PER_KEY
    chance = random.Random(SEED + 1)
    with Log(path, config=_config(count)) as log:
        with Stopwatch() as clock:
            # The first lookup of an absent key builds every index, and the table of the active segment.
            log.contains_key(b"absent")
        built = log_size(path) / clock.seconds / 1e9
        connection = _connect(other)
        warm_page_cache(path)
        warm_page_cache(other)

        def timed(look_up: Callable[[bytes], object], *, first: int, is_present: bool) -> float:
            wanted = [_key(first + chance.randrange(keys)) for _ in range(bench.scale.reads_a_turn)]
            with Stopwatch() as clock:
                answers = [look_up(key) for key in wanted]
            hits = sum(answer is not None and answer is not False for answer in answers)
            assert hits >= (0.9 * len(wanted) if is_present else 0)
            return len(wanted) / clock.seconds

        def select(key: bytes) -> object:
            return connection.execute(SELECT, (key,)).fetchone()

        assert all(_agree(log, select, _key(chance.randrange(keys))) for _ in range(1000))
        # Keys from 2**40 on were never appended.
        absent = 1 << 40
        rates = best_of(
            3 * bench.scale.repetitions,
            {
                "latest": lambda: timed(log.latest_for_key, first=0, is_present=True),
                "select": lambda: timed(select, first=0, is_present=True),
                "absent": lambda: timed(log.contains_key, first=absent, is_present=False),
                "select absent": lambda: timed(select, first=absent, is_present=False),
            },
        )
        connection.close()
    yield Row(
        work=f"latest_for_key, {count:,} records, {keys:,} keys",
        figure=1e6 / rates["latest"],
        unit=Unit.MICROSECONDS,
        peer="SQLite, an index",
        peer_figure=1e6 / rates["select"],
        target=1 / 3,
        target_text="0.33x",
    )
    yield Row(
        work="contains_key, a key that no record has",
        figure=1e6 / rates["absent"],
        unit=Unit.MICROSECONDS,
        peer="SQLite, an index",
        peer_figure=1e6 / rates["select absent"],
    )
    yield Row(work="key indexes, built by the first lookup", figure=built, unit=Unit.GIGABYTES_PER_SECOND)


def _agree(log: Log, select: Callable[[bytes], object], key: bytes) -> bool:
    record, row = log.latest_for_key(key), select(key)
    return (None if record is None else (record.offset, record.timestamp_ms, record.key, record.value)) == row


def _side_files(path: Path) -> Iterator[Row]:
    absent = [hash_key(_key((1 << 41) + number))[0] for number in range(ABSENT_KEYS)]
    rates, sizes = [], []
    for file in sorted(path.glob("*.keyindex")):
        seal = read_seal(OsFiles(), str(path), int(file.stem))
        assert seal is not None
        entries = open_key_index(file.read_bytes(), seal)
        assert isinstance(entries, KeyEntries)
        rates.append(100 * sum(map(entries.may_hold, absent)) / len(absent))
        sizes.append(file.stat().st_size / entries.count)
    yield Row(work="key index, false positives of a segment's filter", figure=max(rates), unit=Unit.PERCENT, target=0.1)
    yield Row(work="key index, bytes a key and segment", figure=max(sizes), unit=Unit.BYTES, target=16)
