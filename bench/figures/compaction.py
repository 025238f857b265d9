"""Compaction: bytes of log a second on one core, and the memory that it takes however many keys there are.

The first log has ten records a key, in 16 KB batches and eight segments: nine tenths of it go. The second has each key
once, so that nothing goes and the map is filled again and again: a process of its own, whose peak is looked at.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from bench.measure import Bench, Stopwatch, log_size, settle, warm_page_cache
from bench.row import Row, Unit
from bench.workload import KEY_SIZE, RECORDS_PER_16KB_BATCH, TIMESTAMP_MS, VALUE_SIZE
from seeklog import Log, LogConfig, Record

if TYPE_CHECKING:
    from collections.abc import Iterator
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
# Not ru_maxrss, which begins with what the parent had when it forked.
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
                raise ValueError(f"{done.records_after} records are left")
            rates.append(done.bytes_before / clock.seconds)
    yield Row(
        work=f"compaction, {count:,} records, ten a key",
        figure=max(rates) / 1e9,
        unit=Unit.GIGABYTES_PER_SECOND,
        target=0.2,
        note=f"{done.rounds} rounds",
    )
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


def _fill(path: Path, count: int, *, keys: int) -> None:
    """Append so many records of keys drawn at random, or of a new key each if `keys` is 0."""
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
