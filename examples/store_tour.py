"""A tour of the store: a topic of payments keyed by merchant, shared by two consumers, one of which is killed.

Run it with `python examples/store_tour.py`. It writes its files to ./tour-data and removes those of an earlier run.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import seeklog

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

DATA = Path("tour-data/store")
TOPIC, GROUP = "payments", "fraud"
PAYMENT_COUNT = 300_000
MERCHANT_COUNT = 40
MORNING_MS = 1_767_225_600_000  # 2026-01-01T00:00Z
NOON_MS = MORNING_MS + 12 * 3600 * 1000
STEP_MS = 24 * 3600 * 1000 // PAYMENT_COUNT
# Spawned processes do not inherit the open store.
SPAWN = multiprocessing.get_context("spawn")
PATIENCE_S = 60


def main() -> None:
    logging.basicConfig(stream=sys.stdout, format="  (logged by %(name)s: %(message)s)")
    shutil.rmtree(DATA, ignore_errors=True)
    with seeklog.open(DATA) as store:
        create_a_topic(store)
        share_the_topic(store)
        reset_offsets_to_noon(store)
        list_the_files(store)


# ---------------------------------------------------------------- the chapters


def create_a_topic(store: seeklog.Store) -> None:
    chapter(f"1. A topic of four partitions, and {PAYMENT_COUNT:,} payments by merchant")
    store.create_topic(TOPIC, partitions=4, config={"segment.bytes": 512 << 10, "compression.type": "zstd"})
    source = random.Random(7)
    with store.producer() as producer:
        began = time.perf_counter()
        for number in range(PAYMENT_COUNT):
            # A few merchants have most of the payments.
            merchant = f"merchant_{int(MERCHANT_COUNT * source.random() ** 2)}"
            payment = json.dumps({"merchant": merchant, "paise": source.randrange(100, 500_000)})
            producer.send(TOPIC, payment.encode(), key=merchant.encode(), timestamp_ms=MORNING_MS + number * STEP_MS)
        producer.flush()
        took = time.perf_counter() - began
    say(f"{PAYMENT_COUNT / took:,.0f} payments a second, including the encoding to JSON. By partition:")
    for partition in store.describe_topic(TOPIC).partitions:
        say(
            f"  {TOPIC}-{partition.partition}: {partition.high_watermark:>9,} records, "
            f"{partition.size_bytes / 1e6:5.1f} MB in {partition.segment_count} segments"
        )


def share_the_topic(store: seeklog.Store) -> None:
    chapter(f"2. Two processes consume it as group {GROUP!r}; one is killed halfway")
    workers = [start_consumer() for _ in range(2)]
    deadline = time.monotonic() + PATIENCE_S
    while min(worker.seen() for worker in workers) < PAYMENT_COUNT // 20 and time.monotonic() < deadline:
        time.sleep(0.01)
    victim, heir = workers
    for worker in workers:
        say(f"  process {worker.process.pid} has read {worker.seen():,}")
    assert victim.process.pid is not None
    victim.process.kill()
    victim.process.join()
    say(f"  process {victim.process.pid} was killed ({signal.Signals(-(victim.process.exitcode or 0)).name})")
    while sum(lag.lag for lag in store.lag(GROUP)) and time.monotonic() < deadline:
        time.sleep(0.01)
    members = store.describe_group(GROUP).members
    say(
        f"  process {heir.process.pid} has taken over and reads {len(members[0].assignment)} partitions; the group's "
        f"lag is {sum(lag.lag for lag in store.lag(GROUP)):,} records"
    )
    heir.process.terminate()
    heir.process.join()


def reset_offsets_to_noon(store: seeklog.Store) -> None:
    chapter("3. Reset the group to noon")
    store.reset_offsets(GROUP, TOPIC, to_time_ms=NOON_MS)
    say("Partition, committed offset, and lag:")
    for lag in store.lag(GROUP):
        say(f"  {lag.topic}-{lag.partition}  {lag.committed:>8,}  {lag.lag:>8,}")
    with store.consumer([TOPIC], group=GROUP, consumer_timeout_ms=0) as consumer:
        began = time.perf_counter()
        total = count = 0
        for record in consumer:
            assert record.value is not None
            total += json.loads(record.value)["paise"]
            count += 1
        took = time.perf_counter() - began
    say(f"The afternoon: {count:,} payments, {total / 100:,.2f} rupees, in {took:.1f} s with JSON parsing.")


def list_the_files(store: seeklog.Store) -> None:
    chapter("4. The files, as in a Kafka broker's data directory")
    say("  " + "  ".join(sorted(path.name for path in store.path.iterdir())))
    say(f"  {TOPIC}-0: " + "  ".join(sorted(path.name for path in (store.path / f"{TOPIC}-0").iterdir())[:8]) + "  ...")
    say(f"Committed offsets are records too: {count_commits(store)} of them in __consumer_offsets.")


# ---------------------------------------------------------------- the other processes


class Worker:
    """A consumer in another process, which reports how many records it has read."""

    def __init__(self, process: multiprocessing.process.BaseProcess, counts: Connection) -> None:
        self.process = process
        self._counts = counts
        self._seen = 0

    def seen(self) -> int:
        while self._counts.poll():
            try:
                self._seen = self._counts.recv()
            except EOFError:
                break
        return self._seen


def start_consumer() -> Worker:
    here, there = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(target=consume_for_ever, args=(there,), daemon=True)
    process.start()
    return Worker(process, here)


def consume_for_ever(parent: Connection) -> None:
    seen = 0
    with (
        seeklog.open(DATA) as store,
        store.consumer([TOPIC], group=GROUP, auto_offset_reset="earliest", auto_commit_interval_ms=100) as consumer,
    ):
        while True:
            records = consumer.poll(timeout_ms=100)
            seen += len(records)
            parent.send(seen)
            time.sleep(0.002)  # the time to process 500 payments


def count_commits(store: seeklog.Store) -> int:
    return sum(partition.high_watermark for partition in store.describe_topic("__consumer_offsets").partitions)


# ---------------------------------------------------------------- printing


def chapter(title: str) -> None:
    print(f"\n{title}\n{'-' * len(title)}", flush=True)


def say(line: str = "") -> None:
    print(f"  {line}".rstrip(), flush=True)


if __name__ == "__main__":
    main()
