"""What the demo shows, step by step, and says about it."""

from __future__ import annotations

import itertools
import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import seeklog
from seeklog.cli.demo import payments
from seeklog.cli.demo.payments import PAYMENTS, Arrival
from seeklog.cli.demo.place import Place
from seeklog.cli.show import amounts
from seeklog.cli.show.terminal import Terminal
from seeklog.errors import SeeklogError, UsageError
from seeklog.store import Store, open_store

Answer = TypeVar("Answer")

PARTITIONS: Final = 4
# Small segments, so that a short demo has some. Payments of a fixed day must not be deleted for their age.
CONFIG: Final = {"segment.bytes": 256 << 10, "retention.ms": -1, "compression.type": "zstd"}
GROUP: Final = "ledger"
# Shares of the payments: so many are there before the doomed writer comes, and so many when it is done.
BEFORE_KILL, UP_TO_KILL = 0.7, 0.8
# A measurement is the middle one of so many: the first one opens files.
TIMES: Final = 15


class DemoFailed(SeeklogError):
    """What the demo has shown is not what seeklog promises."""


@dataclass
class Tour:
    """The demo, while it goes on."""

    terminal: Terminal
    place: Place
    count: int
    records: list[Arrival] = field(default_factory=list)
    chapter: int = 0

    def run(self, *, with_spark: bool) -> None:
        """Show everything."""
        began = time.monotonic()
        self._say("seeklog is a commit log: records go in at the end, get a number, and are found again by it, by")
        self._say("time and by key. It lives in a directory, in Kafka's own file format, inside a Python process.")
        self._append()
        self._kill()
        self._seek()
        spark = self._spark() if with_spark else "left out, as asked (--no-spark)"
        self._report()
        self._sum_up(spark, time.monotonic() - began)

    # ------------------------------------------------------------ the chapters

    def _append(self) -> None:
        self._title(f"Make {self.count:,} payments, and append them")
        with self.terminal.progress("making payments", total=self.count) as progress:
            for record in itertools.islice(payments.arrivals(), self.count):
                self.records.append(record)
                progress.advance()
        first = self.records[: int(self.count * BEFORE_KILL)]
        with open_store(self.place.store) as store:
            store.create_topic(PAYMENTS, partitions=PARTITIONS, config=CONFIG)
            took = self._append_shown(store, first)
            self._say(f"{len(first):,} payments of {payments.MERCHANTS} merchants are in {PARTITIONS} partitions:")
            self._say(
                f"{took:.1f} s, {len(first) / took:,.0f} a second. Amounts are in paise. As in life few merchants"
            )
            self._say("have most of the payments, some come late, twice, or broken.")
            with store.consumer([PAYMENTS], group=GROUP, auto_offset_reset="earliest", consumer_timeout_ms=0) as reader:
                read = sum(1 for _ in reader)
                reader.commit()
        self._say(f'A consumer group, "{GROUP}", has read {read:,} of them, and has committed how far it is.')

    def _append_shown(self, store: Store, records: list[Arrival]) -> float:
        with self.terminal.progress("appending", total=len(records)) as progress:
            payments.append(store, records, on_record=lambda count: progress.advance())
            return max(progress.seconds, 1e-9)

    def _kill(self) -> None:
        self._title("Kill a writer in the middle of a batch")
        acknowledged, written, size = self._doomed(int(self.count * UP_TO_KILL))
        self._say(
            f"Another process has appended up to {acknowledged:,} payments, and each was acknowledged. Then it had"
        )
        self._say(f"{written:,} of {size:,} bytes of a batch on disk, when SIGKILL ended it.")
        # Recovery warns that it cuts a batch: that is the story here, and is told in its words.
        began = time.perf_counter()
        cut = 0
        with _no_warnings(), open_store(self.place.store) as store:
            for partition in range(PARTITIONS):
                with store.writer(PAYMENTS, partition) as log:
                    cut += log.recovery.cut_bytes
            took = time.perf_counter() - began
            there = store.describe_topic(PAYMENTS).record_count
            absent = payments.missing(store, self.records)
            self._say(
                f"Opened again: {amounts.span(took)}. The {cut:,} bytes of half a batch are cut off, and kept aside."
            )
            if there < acknowledged:
                raise DemoFailed(f"{acknowledged:,} payments were acknowledged, and {there:,} are there")
            if cut != written:
                raise DemoFailed(f"half a batch of {written:,} bytes was written, and {cut:,} bytes were cut")
            self._say(f"{there:,} payments are there: all that were acknowledged. The other {len(absent):,} follow.")
            self._append_shown(store, absent)
            if store.describe_topic(PAYMENTS).record_count != self.count:
                raise DemoFailed("a payment is missing, or there twice")
            self._say(f"Now there are {self.count:,}: none is missing, and none is there twice.")

    def _doomed(self, count: int) -> tuple[int, int, int]:
        """Start the writer and kill it in mid-batch; return what it acknowledged, wrote, and meant to write."""
        command = [sys.executable, "-m", "seeklog.cli.demo.doomed", str(self.place.store), str(count)]
        told: dict[str, Any] = {}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writer:
            try:
                assert writer.stdout is not None
                for line in writer.stdout:
                    told |= json.loads(line)
                    if "written" in told:
                        break
            finally:
                writer.kill()
                errors = writer.stderr.read().decode() if writer.stderr is not None else ""
        if "written" not in told:
            raise DemoFailed(f"the writer ended by itself: {errors.strip() or writer.returncode}")
        return told.get("acknowledged", int(self.count * BEFORE_KILL)), told["written"], told["size"]

    def _seek(self) -> None:
        self._title("Seek: by offset, by time, by key")
        with open_store(self.place.store, read_only=True, background=False) as store:
            log = max((store.log(PAYMENTS, number) for number in range(PARTITIONS)), key=lambda log: log.log_end_offset)
            offset = log.log_end_offset // 2
            took, found = _measured(lambda: next(log.read(offset, max_records=1)))
            seek = log.seek(offset)
            self._row(f"offset {offset:,}", took, _about(found))
            self._say(
                f"{'':<28}{'':>9}  segment {seek.segment:,}, byte {seek.position:,}; {seek.scanned_bytes:,} bytes"
            )
            self._say(f"{'':<28}{'':>9}  passed over from the index entry on")
            middle_ms = (self.records[0].timestamp_ms + self.records[-1].timestamp_ms) // 2
            took, at = _measured(lambda: log.offset_at_time(middle_ms))
            moment = amounts.moment(middle_ms, utc=True)
            self._row(f"{moment}", took, f"the first from then on is offset {at:,}")
            key = self.records[0].merchant.encode()
            took, newest = _measured(lambda: store.topic(PAYMENTS).latest(key))
            if newest is None or at is None:
                raise DemoFailed("what was looked for is not there")
            self._row(f"the newest of {key.decode()}", took, _about(newest))
            size = store.describe_topic(PAYMENTS).size_bytes
        self._say(f"Among {self.count:,} payments, {amounts.size(size)} on disk. µs are millionths of a second.")

    def _spark(self) -> str:
        from seeklog.cli import spark_jobs

        self._title("Run a Spark pipeline over the log")
        try:
            spark_jobs.check_can_run()
            self._say("Bad payments become dead letters, good ones a table without copies, sums by merchant and five")
            self._say("minutes, and alerts; each exactly once. It takes about a minute.")
            self.terminal.flush()
            began = time.monotonic()
            code = spark_jobs.payments(self.terminal, str(self.place.store), PAYMENTS, str(self.place.output))
        except UsageError as error:
            self._say(f"Left out: {error}")
            return f"left out: {error}"
        if code:
            raise DemoFailed("the pipeline failed; what it said stands above")
        return f"the payments pipeline, exactly once, {time.monotonic() - began:.0f} s; tables in {self.place.output}"

    def _report(self) -> None:
        from seeklog.cli.report.gather import gather
        from seeklog.cli.report.page import page
        from seeklog.cli.show.outfile import whole_file

        self._title("Write a page about it")
        with (
            open_store(self.place.store, read_only=True, background=False) as store,
            self.terminal.progress("reading", unit="bytes") as progress,
        ):
            facts = gather(store, name=str(self.place.store), progress=progress)
        with whole_file(str(self.place.report), replaces=True) as file:
            file.write(page(facts, utc=True).encode())
        damage = sum(len(topic.findings) for topic in facts.topics)
        self._say(f"{self.place.report}: its segments, throughput, sizes, keys, compression and lag. Every byte was")
        self._say("checked on the way, and all is well." if not damage else f"checked: {damage} findings.")

    def _sum_up(self, spark: str, seconds: float) -> None:
        store = shlex.quote(str(self.place.store))
        self._title("What you have seen")
        self._say(f"{self.count:,} payments went into a log. A writer was killed in mid-batch: what it was told is")
        self._say("written was there, half a batch was not. Single ones were found in microseconds.")
        self._say(f"Spark: {spark}.")
        self._say(f"It took {amounts.span(seconds)}. Everything is in {self.place.root}; remove it when you like.")
        self._say("")
        self._say("Five commands to go on with:")
        for command in commands(store, program=_program()):
            self._say(f"  {command}")
        self._say("")
        self._say(f"And open {self.place.report} in a browser.")

    # ------------------------------------------------------------ how it is said

    def _title(self, text: str) -> None:
        self.chapter += 1
        line = f"{self.chapter}. {text}"
        self.terminal.write(f"\n\x1b[1m{line}\x1b[0m\n" if self.terminal.has_colors else f"\n{line}\n")

    def _say(self, text: str) -> None:
        self.terminal.write(f"   {text}".rstrip() + "\n")
        self.terminal.flush()

    def _row(self, what: str, seconds: float, found: str) -> None:
        self._say(f"{what:<28}{amounts.span(seconds):>9}  {found}")


def commands(store: str, *, program: str = "seeklog") -> tuple[str, ...]:
    """Return what to try next, `program` being how the shell finds this command."""
    return (
        f"{program} ls {store}",
        f"{program} info {store} {PAYMENTS} --map",
        f"{program} cat {store} {PAYMENTS} -n 5 --where 'value.amount_paise > 50000000'",
        f"{program} lag {store}",
        f"{program} verify {store}",
    )


def _program() -> str:
    """Return the word that runs this command from here: its path where the shell would not find it by its name."""
    own = Path(sys.argv[0])
    is_found = shutil.which("seeklog") is not None or own.name != "seeklog" or not own.is_file()
    return "seeklog" if is_found else shlex.quote(str(own))


def _measured(ask: Callable[[], Answer]) -> tuple[float, Answer]:
    """Ask several times; return the middle of the times, and the answer."""
    times = []
    for _ in range(TIMES):
        began = time.perf_counter()
        answer = ask()
        times.append(time.perf_counter() - began)
    return sorted(times)[TIMES // 2], answer


def _about(record: seeklog.Record) -> str:
    """Return what a payment says, whole or broken."""
    try:
        told = json.loads(record.value or b"")
        return f"{told['merchant']} was paid ₹{int(told['amount_paise']) / 100:,.2f} by {told['method']}"
    except (ValueError, KeyError, TypeError):
        return f"a broken payment of {len(record.value or b'')} bytes"


class _no_warnings:  # noqa: N801
    """Keeps the engine's warnings from the terminal for a while."""

    def __enter__(self) -> None:
        import logging

        self._logger = logging.getLogger("seeklog")
        self._before = self._logger.level
        self._logger.setLevel(logging.ERROR)

    def __exit__(self, *error: object) -> None:
        self._logger.setLevel(self._before)
