"""A tour of the engine: a day of card payments goes into a log, is found again, and survives a kill.

Run it with `make demo`. It leaves its files in ./demo-data (which it removes when it starts), so that you can
look at them afterwards. Merchants and amounts are made up, from a fixed seed: each run writes the same.
"""

from __future__ import annotations

import multiprocessing
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

from seeklog import Log, LogConfig, Record

DATA = Path("demo-data")
PAYMENTS = DATA / "payments-0"
MERCHANTS = ["chai_point", "metro_card", "book_stall", "bus_pass", "sari_house", "grocer_24"]
DAY_MS = 24 * 3600 * 1000
MORNING_MS = 1_767_225_600_000  # 2026-01-01T00:00Z
PAYMENT_COUNT = 300_000
# Small segments, so that a short tour sees them roll.
CONFIG = LogConfig(segment_bytes=8 << 20, flush="interval", retention_ms=-1)

Answer = TypeVar("Answer")


def main() -> None:
    shutil.rmtree(DATA, ignore_errors=True)
    started = time.perf_counter()
    write_a_day_of_payments()
    seek_by_offset_and_time()
    read_the_last_five()
    aggregate_with_arrow()
    follow_from_another_process()
    acknowledged = kill_a_writer_in_mid_append()
    tear_the_last_batch()
    summarise(acknowledged, time.perf_counter() - started)


# ---------------------------------------------------------------- the chapters


def write_a_day_of_payments() -> None:
    chapter("1. Write a day of payments")
    payments = list(make_payments(PAYMENT_COUNT))
    half = len(payments) // 2
    with Log(PAYMENTS, config=CONFIG) as log:
        began = time.perf_counter()
        for start in range(0, half, 1000):
            log.append_many(payments[start : start + 1000])
        took = time.perf_counter() - began
        say(f"append_many, 1,000 a batch   {half:>9,} payments   {half / took:>11,.0f} a second")

        began = time.perf_counter()
        with log.writer() as writer:
            for payment in payments[half:]:
                acknowledgement = writer.append(
                    payment.value, key=payment.key, timestamp_ms=payment.timestamp_ms
                )
            writer.flush()
            last_offset = acknowledgement.result()
        took = time.perf_counter() - began
        say(f"writer(), it makes batches   {half:>9,} payments   {half / took:>11,.0f} a second")
        say(f"the last one got offset {last_offset:,}; the log ends at {log.log_end_offset:,}")

    say()
    say("On disk, in Kafka's own format. A file is named after its first offset:")
    show_segments()


def seek_by_offset_and_time() -> None:
    chapter("2. Find one payment among them")
    say("An index entry every 4 KB says where to start; the rest is read forward:")
    choices = random.Random(2)
    with Log(PAYMENTS, read_only=True) as log:
        for offset in sorted(choices.sample(range(log.log_end_offset), 4)):
            found, _ = timed(lambda offset=offset: log.seek(offset))
            record, took = timed(lambda offset=offset: next(log.read(offset, max_records=1)))
            say(
                f"offset {offset:>7,}  {took * 1e6:>6.0f} us   segment {found.segment:>7,}, byte {found.position:>9,}, "
                f"{found.scanned_bytes:>6,} bytes scanned   {describe(record)}"
            )
        say()
        say("By time, through the time index:")
        for hour in (9, 12, 21):
            offset, took = timed(lambda hour=hour: log.offset_at_time(MORNING_MS + hour * 3600 * 1000))
            assert offset is not None
            record = next(log.read(offset, max_records=1))
            say(
                f"first at or after {hour:>2}:00  {took * 1e6:>6.0f} us   offset {offset:>7,}   {describe(record)}"
            )


def read_the_last_five() -> None:
    chapter("3. The last five, newest first")
    with Log(PAYMENTS, read_only=True) as log:
        newest_first = log.scan_reverse()
        for _ in range(5):
            record = next(newest_first)
            say(f"offset {record.offset:>7,}   {describe(record)}")


def aggregate_with_arrow() -> None:
    chapter("4. Add it all up, in columns")
    import pyarrow as pa
    import pyarrow.compute as pc

    with Log(PAYMENTS, read_only=True) as log:
        began = time.perf_counter()
        table = log.scan_arrow(columns=["key", "value"]).read_all()
        took = time.perf_counter() - began
    say(
        f"{table.num_rows:,} records to Arrow columns in {took * 1e3:.0f} ms ({table.num_rows / took / 1e6:.1f} M a second)"
    )
    payments = pa.table(
        {
            "merchant": table["key"].cast(pa.string()),
            "paise": pc.cast(pc.ascii_ltrim(table["value"].cast(pa.string()), "0"), pa.int64()),
        }
    )
    totals = payments.group_by("merchant").aggregate([("paise", "sum"), ("paise", "count")])
    for row in totals.sort_by([("paise_sum", "descending")]).to_pylist():
        say(f"{row['merchant']:<12} {row['paise_count']:>7,} payments   {rupees(row['paise_sum']):>16}")


def follow_from_another_process() -> None:
    chapter("5. Follow the log from another process")
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    with Log(PAYMENTS, config=CONFIG) as log:
        follower = spawn.Process(target=follow, args=(str(PAYMENTS), log.log_end_offset, 5, there))
        follower.start()
        here.recv()  # the follower is waiting at the end of the log
        for payment in make_payments(5, seed=5):
            sent_ns = time.time_ns()
            offset = log.append(payment.value or b"", key=payment.key)
            seen_offset, seen_ns = here.recv()
            assert seen_offset == offset
            say(f"offset {offset:,} was there {(seen_ns - sent_ns) / 1e6:.1f} ms after append was called")
        follower.join()
    say("It opened the directory read-only. Readers take no lock; only one process writes.")


def kill_a_writer_in_mid_append() -> int:
    chapter("6. Kill a writer in mid-append (SIGKILL)")
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    with Log(PAYMENTS, read_only=True) as log:
        before = log.log_end_offset
    writer = spawn.Process(target=append_until_killed, args=(str(PAYMENTS), there))
    writer.start()
    there.close()
    acknowledged = before - 1
    while acknowledged < before + 2000:
        acknowledged = here.recv()
    assert writer.pid is not None
    writer.kill()
    # What the child had already said before it died counts as well: `append` had returned.
    try:
        while True:
            acknowledged = here.recv()
    except EOFError:
        writer.join()
    say(
        f"the child was told that offsets up to {acknowledged:,} are appended; then it died ({signal_of(writer)})"
    )

    began = time.perf_counter()
    with Log(PAYMENTS, config=CONFIG) as log:
        took = time.perf_counter() - began
        say(f"opened again in {took * 1e3:.0f} ms; the log ends at {log.log_end_offset:,}")
        say(f"log.recovery: {log.recovery}")
        assert log.log_end_offset > acknowledged, "an acknowledged payment is missing"
        assert next(log.read(acknowledged, max_records=1)).offset == acknowledged
    say("Every payment whose append had returned is there.")
    return acknowledged


def tear_the_last_batch() -> None:
    chapter("7. Tear the last batch, as a power loss may")
    segment = max(PAYMENTS.glob("*.log"))
    with Log(PAYMENTS, config=CONFIG) as log:
        end = log.log_end_offset
        raw = next(log.read_batches(end - 1)).raw
    with segment.open("ab") as file:
        file.write(raw[: len(raw) // 2])
    say(f"{len(raw) // 2} bytes of half a batch now stand at the end of {segment.name}")
    with Log(PAYMENTS, config=CONFIG) as log:
        say(f"log.recovery: {log.recovery}")
        assert log.log_end_offset == end
        log.append(b"000000010000", key=b"chai_point")
    for torn in sorted(PAYMENTS.glob("*.torn")):
        say(f"what was cut is kept: {torn.name}, {torn.stat().st_size} bytes")
    say("Nothing whole was lost, nothing half is read, and the next append went on from there.")


def summarise(acknowledged: int, took: float) -> None:
    chapter("What you saw")
    files = [path for path in PAYMENTS.iterdir() if path.is_file()]
    say(
        f"{acknowledged + 1:,} payments in {PAYMENTS}, {sum(path.stat().st_size for path in files) / 1e6:.1f} MB, {took:.0f} s."
    )
    say("An ordered log that lives in a directory: append at the end, find anything by offset or time in")
    say("microseconds, read it as records or as columns, follow it from other processes, and pull the plug.")
    say(
        "The files are Kafka's own, so Kafka's tools read them too. Next: README.md, docs/format, docs/promises.md."
    )


# ---------------------------------------------------------------- what runs in the child processes


def follow(path: str, offset: int, count: int, parent: Connection) -> None:
    """Send the parent each record's offset and when it was seen."""
    with Log(path, read_only=True) as log:
        parent.send("ready")
        for _, record in zip(range(count), log.follow(offset, timeout_ms=10_000), strict=False):
            parent.send((record.offset, time.time_ns()))


def append_until_killed(path: str, parent: Connection) -> None:
    """Append for ever, and tell the parent each offset after `append` returned it."""
    with Log(path, config=CONFIG) as log:
        for payment in make_payments(1 << 30, seed=6):
            parent.send(log.append(payment.value or b"", key=payment.key))


# ---------------------------------------------------------------- odds and ends


def make_payments(count: int, *, seed: int = 1) -> Iterator[Record]:
    """Yield payments spread evenly over one day. The value is the amount in paise, in twelve digits."""
    choices = random.Random(seed)
    for number in range(count):
        paise = choices.randrange(10_00, 5_000_00)
        yield Record(
            b"%012d" % paise,
            key=choices.choice(MERCHANTS).encode(),
            timestamp_ms=MORNING_MS + number * DAY_MS // count,
        )


def show_segments() -> None:
    for path in sorted(PAYMENTS.glob("*.log")):
        index = path.with_suffix(".index").stat().st_size
        say(f"{path.name}   {path.stat().st_size / 1e6:>5.1f} MB   and {index / 1e3:>4.1f} kB of index")


def describe(record: Record) -> str:
    clock = time.strftime("%H:%M:%S", time.gmtime((record.timestamp_ms or 0) / 1000))
    return f"{clock}  {(record.key or b'').decode():<10}  {rupees(int(record.value or 0)):>9}"


def rupees(paise: int) -> str:
    return f"₹{paise / 100:,.2f}"


def signal_of(process: multiprocessing.process.BaseProcess) -> str:
    return signal.Signals(-(process.exitcode or 0)).name


def timed(work: Callable[[], Answer]) -> tuple[Answer, float]:
    """Return an answer and the seconds of the second of two calls: the first warms the page cache."""
    work()
    began = time.perf_counter()
    answer = work()
    return answer, time.perf_counter() - began


def chapter(title: str) -> None:
    print(f"\n{title}\n{'-' * len(title)}", flush=True)


def say(line: str = "") -> None:
    print(line and f"  {line}", flush=True)


if __name__ == "__main__":
    main()
