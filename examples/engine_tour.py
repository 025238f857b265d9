"""A tour of the engine: append a day of card payments to a log, find some of them again, and survive a kill.

Run it with `python examples/engine_tour.py`. It writes its files to ./tour-data and removes those of an earlier run.
Merchants and amounts are generated from a fixed seed, so each run writes the same payments.
"""

from __future__ import annotations

import logging
import multiprocessing
import random
import shutil
import signal
import sys
import time
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from seeklog import Log, LogConfig, LogReader, LogWriter, Record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from multiprocessing.connection import Connection

    from seeklog.log import RecoveryReport

DATA = Path("tour-data/engine")
PAYMENTS = DATA / "payments-0"
MERCHANT_COUNT = 6
MORNING_MS = 1_767_225_600_000  # 2026-01-01T00:00Z
HOUR_MS = 3600 * 1000
PAYMENT_COUNT = 1_000_000
MORNING_END, NOON_END = 100_000, 550_000  # appended one by one up to the first, in thousands up to the second
# Small segments, so that a short tour rolls several.
CONFIG = LogConfig(segment_bytes=16 << 20)
# Spawned processes do not inherit the open log.
SPAWN = multiprocessing.get_context("spawn")


def main() -> None:
    logging.basicConfig(stream=sys.stdout, format="  (logged by %(name)s: %(message)s)")
    shutil.rmtree(DATA, ignore_errors=True)
    began = time.perf_counter()
    write_a_day_of_payments()
    find_by_offset()
    find_by_time()
    read_the_last_five()
    add_up_in_columns()
    follow_from_another_process()
    kill_a_writer_in_mid_append()
    tear_the_last_batch()
    summarise(time.perf_counter() - began)


# ---------------------------------------------------------------- the chapters


def write_a_day_of_payments() -> None:
    chapter(f"1. Write a day of payments: {PAYMENT_COUNT:,} of them")
    payments = list(make_payments(PAYMENT_COUNT))
    with Log(PAYMENTS, config=CONFIG) as log:
        began = time.perf_counter()
        for payment in payments[:MORNING_END]:
            log.append(payment.value, key=payment.key, timestamp_ms=payment.timestamp_ms)
        say_rate("append(), one by one", MORNING_END, began)

        began = time.perf_counter()
        for start in range(MORNING_END, NOON_END, 1000):
            log.append_many(payments[start : start + 1000])
        say_rate("append_many(), 1,000 a batch", NOON_END - MORNING_END, began)

        began = time.perf_counter()
        with LogWriter(log) as writer:
            for payment in payments[NOON_END:]:
                future = writer.append(payment.value, key=payment.key, timestamp_ms=payment.timestamp_ms)
            last_offset = future.result()
        say_rate("writer(), which makes the batches", PAYMENT_COUNT - NOON_END, began)
        say(f"The last payment has offset {last_offset:,}; the next one will get {log.log_end_offset:,}.")
    say()
    say("On disk, in Kafka's own format. A segment is named after its first offset:")
    for path in sorted(PAYMENTS.glob("*.log")):
        index_size = path.with_suffix(".index").stat().st_size
        say(f"{path.name}   {path.stat().st_size / 1e6:>4.1f} MB, its index {index_size / 1e3:>4.1f} kB")


def find_by_offset() -> None:
    chapter("2. Find a payment by offset")
    say("A small index gives the byte to start at, and every entry is checked before it is used:")
    with LogReader(PAYMENTS) as log:
        for offset in (27_182, 84_300, 314_159, 776_655):
            next(log.read(offset, max_records=1))  # warms the page cache, so that the next read measures seeklog
            began = time.perf_counter()
            record = next(log.read(offset, max_records=1))
            took = time.perf_counter() - began
            found = log.seek(offset)
            say(
                f"offset {offset:>7,}   {describe(record)}   {took * 1e6:>4.0f} us: "
                f"segment {found.segment:>7,}, byte {found.position:>10,}, {found.scanned_bytes:>5,} scanned"
            )


def find_by_time() -> None:
    chapter("3. Find a payment by time")
    with LogReader(PAYMENTS) as log:
        for hour in (9, 12, 21):
            log.offset_at_time(MORNING_MS + hour * HOUR_MS)
            began = time.perf_counter()
            offset = log.offset_at_time(MORNING_MS + hour * HOUR_MS)
            took = time.perf_counter() - began
            assert offset is not None
            record = next(log.read(offset, max_records=1))
            say(f"first from {hour:02}:00 on   {describe(record)}   {took * 1e6:>4.0f} us: offset {offset:,}")


def read_the_last_five() -> None:
    chapter("4. Read the last five, newest first")
    with LogReader(PAYMENTS) as log:
        for record in islice(log.scan_reverse(), 5):
            say(f"offset {record.offset:>7,}   {describe(record)}")


def add_up_in_columns() -> None:
    chapter("5. Sum them all in columns (Arrow)")
    import pyarrow as pa
    import pyarrow.compute as pc

    with LogReader(PAYMENTS) as log:
        began = time.perf_counter()
        table = log.scan_arrow(columns=["key", "value"]).read_all()
        took = time.perf_counter() - began
    rate = table.num_rows / took / 1e6
    say(f"{table.num_rows:,} payments to Arrow columns in {took * 1e3:.0f} ms, {rate:.1f} million a second")
    amounts = pc.extract_regex(table["value"].cast(pa.string()), r'"amount_paise":(?P<paise>\d+)')
    paise = pc.struct_field(amounts, "paise").cast(pa.int64())
    payments = pa.table({"merchant": table["key"].cast(pa.string()), "paise": paise})
    totals = payments.group_by("merchant").aggregate([("paise", "sum"), ("paise", "count")])
    for row in totals.sort_by("merchant").to_pylist():
        say(f"{row['merchant']}   {row['paise_count']:>6,} payments   {rupees(row['paise_sum']):>15}")


def follow_from_another_process() -> None:
    chapter("6. Follow the log from another process")
    here, there = SPAWN.Pipe()
    with Log(PAYMENTS, config=CONFIG) as log:
        follower = SPAWN.Process(target=follow, args=(log.log_end_offset, 5, there))
        follower.start()
        here.recv()  # the other process has opened the log and waits at its end
        for payment in make_payments(5, seed=6):
            sent_ns = time.time_ns()
            offset = log.append(payment.value, key=payment.key)
            seen_offset, seen_ns = here.recv()
            assert seen_offset == offset
            say(f"offset {offset:,} was read there {(seen_ns - sent_ns) / 1e6:.1f} ms after it was appended here")
        follower.join()
    say("Readers take no lock and need no server. One process at a time writes.")


def kill_a_writer_in_mid_append() -> None:
    chapter("7. Kill a writer during an append")
    here, there = SPAWN.Pipe()
    writer = SPAWN.Process(target=append_for_ever, args=(there,))
    writer.start()
    there.close()  # so that the pipe ends when the writer does
    acknowledged = here.recv()
    enough = acknowledged + 2000
    while acknowledged < enough:
        acknowledged = here.recv()
    writer.kill()
    try:
        while True:  # offsets it sent before it died
            acknowledged = here.recv()
    except EOFError:
        writer.join()
    assert writer.exitcode == -signal.SIGKILL
    say(f"The other process had appended up to offset {acknowledged:,} when SIGKILL ended it.")

    began = time.perf_counter()
    with Log(PAYMENTS, config=CONFIG) as log:
        took = time.perf_counter() - began
        say(f"Reopened in {took * 1e3:.0f} ms. Recovery: {explain(log.recovery)}.")
        assert log.log_end_offset > acknowledged, "a payment is missing although its append returned"
        say(f"The last offset is {log.log_end_offset - 1:,}: every append that returned is in the log.")


def tear_the_last_batch() -> None:
    chapter("8. Tear the last batch, as a power loss can")
    with Log(PAYMENTS, config=CONFIG) as log:
        end = log.log_end_offset
        batch = next(log.read_batches(end - 1)).raw
    segment = max(PAYMENTS.glob("*.log"))
    with segment.open("ab") as file:
        file.write(batch[: len(batch) // 2])
    say(f"{segment.name} now ends with {len(batch) // 2} bytes of a batch of {len(batch)}.")
    with Log(PAYMENTS, config=CONFIG) as log:
        say(f"Recovery: {explain(log.recovery)}.")
        assert log.log_end_offset == end
        assert log.append(b'{"tx":"after","amount_paise":100}', key=b"merchant_0") == end
    for path in PAYMENTS.glob("*.torn"):
        say(f"{path.name} keeps the {path.stat().st_size} bytes that were cut; the log continues at {end:,}.")


def summarise(took: float) -> None:
    chapter("Summary")
    size = sum(path.stat().st_size for path in PAYMENTS.iterdir())
    with LogReader(PAYMENTS) as log:
        say(f"{log.log_end_offset:,} payments, {size / 1e6:.1f} MB in {PAYMENTS}, {took:.0f} seconds.")
    say("An ordered log in a directory: append records, find them by offset or by time, read them as records")
    say("or as columns, and follow the log from other processes. Kafka reads the same files.")
    say("docs/format describes every byte, docs/promises.md what survives a crash, README.md how to use it.")


# ---------------------------------------------------------------- the other processes


def follow(offset: int, count: int, parent: Connection) -> None:
    """Send the parent the offset of each new record and the time it was read."""
    with LogReader(PAYMENTS) as log:
        parent.send("ready")
        for record in islice(log.follow(offset), count):
            parent.send((record.offset, time.time_ns()))


def append_for_ever(parent: Connection) -> None:
    """Append, and send the parent each offset that `append` returns."""
    with Log(PAYMENTS, config=CONFIG) as log:
        for payment in make_payments(10**9, seed=7):
            parent.send(log.append(payment.value, key=payment.key))


# ---------------------------------------------------------------- payments


def make_payments(count: int, *, seed: int = 1) -> Iterator[Record]:
    """Yield payments, spread evenly over one day."""
    choices = random.Random(seed)
    for number in range(count):
        amount_paise = choices.randrange(10_00, 5000_00)
        yield Record(
            b'{"tx":"tx_%06d","amount_paise":%d}' % (number, amount_paise),
            key=b"merchant_%d" % choices.randrange(MERCHANT_COUNT),
            timestamp_ms=MORNING_MS + number * 24 * HOUR_MS // count,
        )


def explain(recovery: RecoveryReport) -> str:
    cut = f"cut {recovery.cut_bytes} bytes ({recovery.cut_reason})" if recovery.cut_bytes else "nothing to cut"
    return f"{recovery.scanned_batches:,} batches checked, indexes rebuilt, {cut}"


def describe(record: Record) -> str:
    assert record.key is not None
    assert record.value is not None
    clock = time.strftime("%H:%M:%S", time.gmtime((record.timestamp_ms or 0) // 1000))
    amount = int(record.value.rpartition(b":")[2].rstrip(b"}"))
    return f"{clock}  {record.key.decode()}  {rupees(amount):>9}"


def rupees(paise: int) -> str:
    return f"₹{paise / 100:,.2f}"


# ---------------------------------------------------------------- printing


def chapter(title: str) -> None:
    print(f"\n{title}\n{'-' * len(title)}", flush=True)


def say_rate(method: str, count: int, began: float) -> None:
    say(f"{method:<34} {count:>7,} payments   {count / (time.perf_counter() - began):>10,.0f} a second")


def say(line: str = "") -> None:
    print(f"  {line}".rstrip(), flush=True)


if __name__ == "__main__":
    main()
