"""Several processes that produce to one partition: their rate beside that of one, and how evenly they share it.

Each process sends records of 100 bytes for a second or two, in batches of 1,000, and waits until all are written.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

import seeklog
from bench.row import Row, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.measure import Bench

TOPIC: Final = "payments"
PROCESSES: Final = 3
# With its overhead in the batch, a record of 100 bytes takes 107 to 109.
BATCH_BYTES: Final = 110_000
BATCH_RECORDS: Final = 1000
RECORD: Final = b"x" * 100


def measure(bench: Bench) -> Iterator[Row]:
    for flush in ("interval", "batch"):
        one = max(_run(bench, 1, flush)[0] for _ in range(bench.scale.repetitions))
        runs = [_run(bench, PROCESSES, flush) for _ in range(bench.scale.repetitions)]
        yield Row(
            work=f'producers in {PROCESSES} processes, one partition, flush="{flush}"',
            figure=max(rate for rate, _ in runs),
            unit=Unit.RECORDS_PER_SECOND,
            peer="one process",
            peer_figure=one,
            target=0.5,
        )
        yield Row(
            work=f'the smallest share of a process below a third, flush="{flush}"',
            figure=max(100 / PROCESSES - 100 * share for _, share in runs),
            unit=Unit.PERCENT,
            target=15,
        )


def _run(bench: Bench, processes: int, flush: str) -> tuple[float, float]:
    """Return the records a second of all processes, and the smallest share of one."""
    with bench.directory("turns") as path:
        with seeklog.open(path) as store:
            store.create_topic(TOPIC, partitions=1, config={"flush": flush})
        seconds = 2.0 if bench.scale.repetitions > 1 else 0.3
        workers = [_start(path, seconds) for _ in range(processes)]
        for worker in workers:
            assert worker.stdout is not None
            worker.stdout.readline()  # it has opened the store
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        done = [json.loads(worker.communicate()[0]) for worker in workers]
        total = sum(each["count"] for each in done)
        with seeklog.open(path, read_only=True) as store:
            found = store.log(TOPIC, 0).log_end_offset
        if found != total:
            raise ValueError(f"{found} of {total} records are in the log")
        return total / max(each["seconds"] for each in done), min(each["count"] for each in done) / total


def _start(path: Path, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", __name__, str(path), str(seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _work(path: str, seconds: float) -> None:
    with seeklog.open(path) as store, store.producer(batch_bytes=BATCH_BYTES, linger_ms=1) as producer:
        print("open", flush=True)
        sys.stdin.readline()
        count = 0
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            for _ in range(BATCH_RECORDS):
                producer.send(TOPIC, RECORD, partition=0)
            count += BATCH_RECORDS
        producer.flush()
        print(json.dumps({"count": count, "seconds": time.perf_counter() - began}))


if __name__ == "__main__":
    _work(sys.argv[1], float(sys.argv[2]))
