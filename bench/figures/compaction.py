"""Compaction: its rate on one core, its memory for many keys, and reads of a compacted log.

The first log has ten records per key, in 16 KB batches and eight segments: nine tenths of it are removed. The second
has each key once, so that nothing is removed and the map fills many times; another process compacts it, and its peak
memory counts.

The compacted first log is read beside a copy whose seals have no page checksums, to show what checking gaps costs.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from bench.measure import Bench, Stopwatch, Trial, best_of, log_size, settle, warm_page_cache
from bench.row import Row, Unit
from bench.workload import KEY_SIZE, RECORDS_PER_16KB_BATCH, TIMESTAMP_MS, VALUE_SIZE
from seeklog import Log, LogConfig, Record
from seeklog.files import OsFiles
from seeklog.log.side import read_seal, write_seal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

RECORD_BYTES: Final = 118
RECORDS_PER_KEY: Final = 10
SEED: Final = 20_261_116
CHILD: Final = """
import sys
from bench.figures.compaction import config_of
from seeklog import Log
with Log(sys.argv[1], config=config_of(int(sys.argv[2]))) as log:
    done = log.compact()
# Not ru_maxrss, which starts at the parent's memory at the fork.
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(int(peak) * 1024, done.rounds)
"""


def config_of(count: int) -> LogConfig:
    return LogConfig(
        flush="os", cleanup_policy="compact", retention_ms=-1, segment_bytes=max(count * RECORD_BYTES // 8, 1 << 16)
    )


def measure(bench: Bench) -> Iterator[Row]:
    count = bench.scale.keyed
    rates = []
    for _ in range(3):
        with bench.directory("compaction") as path:
            _fill(path, count, keys=count // RECORDS_PER_KEY)
            settle(path)
            warm_page_cache(path)
            with Log(path, config=config_of(count)) as log, Stopwatch() as clock:
                done = log.compact()
            if done.records_after < count // RECORDS_PER_KEY // 2:
                raise ValueError(f"only {done.records_after} records are left")
            rates.append(done.bytes_before / clock.seconds)
    yield Row(
        work=f"compaction, {count:,} records, ten a key",
        figure=max(rates) / 1e9,
        unit=Unit.GIGABYTES_PER_SECOND,
        target=0.2,
        note=f"{done.rounds} rounds",
    )
    yield from _reads(bench)
    with bench.directory("compaction-keys") as path:
        _fill(path, count, keys=0)
        size = log_size(path)
        child = subprocess.run(
            [sys.executable, "-c", CHILD, str(path), str(count)],
            check=True,
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        peak, rounds = child.stdout.split()
    yield Row(
        work=f"peak memory of compaction, {count:,} distinct keys",
        figure=int(peak) / 1e6,
        unit=Unit.MEGABYTES,
        target=256,
        note=f"{size / 1e6:,.0f} MB of log in {rounds} rounds",
    )


def _reads(bench: Bench) -> Iterator[Row]:
    count = bench.scale.keyed
    with bench.directory("compacted") as path, bench.directory("compacted-unpaged") as unpaged:
        _fill(path, count, keys=count // RECORDS_PER_KEY)
        with Log(path, config=config_of(count)) as log:
            log.compact()
            left = _scan(log, [])
        shutil.copytree(path, unpaged)
        _remove_pages(unpaged)
        for directory in (path, unpaged):
            settle(directory)
            warm_page_cache(directory)
        source = random.Random(SEED)
        offsets = [source.randrange(count // 2) for _ in range(bench.scale.reads_a_turn)]
        with Log(path, config=config_of(count)) as log, Log(unpaged, config=config_of(count)) as other:
            for work, read, expected, turns in (
                ("scan to records, a compacted log", _scan, left, bench.scale.repetitions),
                ("scan_arrow, a compacted log", _scan_arrow, left, bench.scale.repetitions),
                ("read one, a compacted log", _read_each, len(offsets), bench.scale.repetitions * 3),
            ):
                logs = {"pages": log, "none": other}
                rates = best_of(turns, {name: _rate(read, opened, offsets, expected) for name, opened in logs.items()})
                yield Row(
                    work=work,
                    figure=rates["pages"],
                    unit=Unit.RECORDS_PER_SECOND,
                    peer="without page checksums",
                    peer_figure=rates["none"],
                )


def _remove_pages(path: Path) -> None:
    """Remove the page checksums from the seals of a closed log."""
    files, removed = OsFiles(), 0
    for log in sorted(path.glob("*.log")):
        seal = read_seal(files, str(path), int(log.stem))
        if seal is not None and seal.pages is not None:
            write_seal(files, str(path), replace(seal, pages=None))
            removed += 1
    if not removed:
        raise ValueError("no segment has page checksums")


def _rate(read: Callable[[Log, list[int]], int], log: Log, offsets: list[int], expected: int) -> Trial:
    def trial() -> float:
        with Stopwatch() as clock:
            seen = read(log, offsets)
        if seen != expected:
            raise ValueError(f"saw {seen} of {expected} records")
        return seen / clock.seconds

    return trial


def _scan(log: Log, offsets: list[int]) -> int:
    return sum(1 for _ in log.scan())


def _scan_arrow(log: Log, offsets: list[int]) -> int:
    return sum(batch.num_rows for batch in log.scan_arrow())


def _read_each(log: Log, offsets: list[int]) -> int:
    return sum(1 for offset in offsets for _ in log.read(offset, max_records=1))


def _fill(path: Path, count: int, *, keys: int) -> None:
    """Append `count` records with random keys out of `keys`, or each with a new key if `keys` is 0."""
    source = random.Random(SEED)
    values = [source.randbytes(VALUE_SIZE) for _ in range(1000)]
    with Log(path, config=config_of(count)) as log:
        for first in range(0, count, RECORDS_PER_16KB_BATCH):
            numbers = range(first, min(first + RECORDS_PER_16KB_BATCH, count))
            log.append_many(
                [
                    Record(
                        values[number % 1000],
                        key=(source.randrange(keys) if keys else number).to_bytes(KEY_SIZE, "big"),
                        timestamp_ms=TIMESTAMP_MS,
                    )
                    for number in numbers
                ]
            )
