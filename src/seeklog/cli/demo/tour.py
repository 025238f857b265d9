"""The steps of the demo, and their text."""

from __future__ import annotations

import itertools
import json
import logging
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import seeklog
from seeklog.cli.demo import payments
from seeklog.cli.demo.payments import PARTITIONS, PAYMENTS, Arrival
from seeklog.cli.show import amounts
from seeklog.cli.show.terminal import Terminal
from seeklog.errors import SeeklogError, UsageError
from seeklog.store import Store, open_store

Answer = TypeVar("Answer")

# Small segments, so that the demo has several.
CONFIG: Final = {"segment.bytes": 256 << 10, "compression.type": "zstd"}
GROUP: Final = "ledger"
# The shares of the payments that are appended before the killed writer starts, and when it is killed.
BEFORE_KILL, UP_TO_KILL = 0.7, 0.8
# A measurement is the median of this many runs, as the first one opens files.
TIMES: Final = 15
# A demo may remove the output of an earlier demo in a directory with this file.
MARKER: Final = ".seeklog-demo"


class DemoFailed(SeeklogError):
    """The demo observed something that breaks a promise of seeklog."""


class Tour:
    """The demo. All of its files are in the directory `root`."""

    def __init__(self, terminal: Terminal, root: Path, count: int) -> None:
        self.terminal = terminal
        self.root = root
        self.store, self.output, self.report = root / "store", root / "output", root / "report.html"
        self.count = count
        self.records: list[Arrival] = []
        self.chapter = 0

    def run(self, *, with_spark: bool) -> None:
        """Run all steps."""
        self._prepare()
        began = time.monotonic()
        self._say(
            "seeklog is a commit log: records are appended at the end, get an offset, and are found again by",
            "offset, time or key. It runs inside a Python process and keeps a directory in Kafka's file format.",
        )
        self._append()
        self._kill()
        self._seek()
        spark = self._spark() if with_spark else "skipped (--no-spark)"
        self._report()
        self._sum_up(spark, time.monotonic() - began)

    def _prepare(self) -> None:
        """Remove the output of an earlier demo; refuse a directory with other files."""
        root, marker = self.root, self.root / MARKER
        if root.exists() and not root.is_dir():
            raise UsageError(f"{root} is a file; name a directory for the demo, or leave it out")
        if root.exists() and any(root.iterdir()) and not marker.is_file():
            raise UsageError(
                f"{root} is not empty and was not created by a demo; name another directory: seeklog demo DIR"
            )
        root.mkdir(parents=True, exist_ok=True)
        marker.write_text("Created by `seeklog demo`. The next demo removes its output from this directory.\n")
        for left in (self.store, self.output, self.report):
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left)
            else:
                left.unlink(missing_ok=True)

    # ------------------------------------------------------------ steps

    def _append(self) -> None:
        self._title(f"Generate {self.count:,} payments and append them")
        with self.terminal.progress("generating payments", total=self.count) as progress:
            self.records = list(progress.over(itertools.islice(payments.arrivals(), self.count)))
        first = self.records[: int(self.count * BEFORE_KILL)]
        with open_store(self.store) as store:
            store.create_topic(PAYMENTS, partitions=PARTITIONS, config=CONFIG)
            took = self._append_shown(store, first)
            self._say(
                f"Appended {len(first):,} payments of {payments.MERCHANTS} merchants to {PARTITIONS} partitions in",
                f"{took:.1f} s: {len(first) / took:,.0f} a second. Amounts are in paise. As in real data, a few",
                "merchants have most of the payments, and some payments are late, duplicated or malformed.",
            )
            with store.consumer([PAYMENTS], group=GROUP, auto_offset_reset="earliest", consumer_timeout_ms=0) as reader:
                read = sum(1 for _ in reader)
                reader.commit()
        self._say(f'The consumer group "{GROUP}" read {read:,} of them and committed its offsets.')

    def _append_shown(self, store: Store, records: list[Arrival]) -> float:
        with self.terminal.progress("appending", total=len(records)) as progress:
            payments.append(store, progress.over(records))
            return max(progress.seconds, 1e-9)

    def _kill(self) -> None:
        self._title("Kill a writer in the middle of a batch")
        acknowledged, written, size = self._kill_writer(int(self.count * UP_TO_KILL))
        self._say(
            f"Another process appended payments until {acknowledged:,} were acknowledged. SIGKILL ended it when",
            f"{written:,} of the {size:,} bytes of its next batch were written.",
        )
        # The demo itself reports the batch that recovery warns about.
        began = time.perf_counter()
        cut = 0
        with _no_warnings(), open_store(self.store) as store:
            for partition in range(PARTITIONS):
                with store.writer(PAYMENTS, partition) as log:
                    cut += log.recovery.cut_bytes
            took = time.perf_counter() - began
            recovered = store.describe_topic(PAYMENTS).record_count
            absent = payments.missing(store, self.records)
            self._say(
                f"Reopened in {amounts.span(took)}. The {cut:,} bytes of the torn batch were cut off and quarantined."
            )
            if recovered < acknowledged:
                raise DemoFailed(f"{acknowledged:,} payments were acknowledged, but only {recovered:,} were recovered")
            if cut != written:
                raise DemoFailed(f"the torn batch had {written:,} bytes, but recovery cut {cut:,}")
            self._say(
                f"{recovered:,} payments were recovered, among them all that were acknowledged. The other",
                f"{len(absent):,} are appended now.",
            )
            self._append_shown(store, absent)
            if store.describe_topic(PAYMENTS).record_count != self.count:
                raise DemoFailed("a payment is missing or duplicated")
            self._say(f"The topic has {self.count:,} payments: none is missing, and none is duplicated.")

    def _kill_writer(self, count: int) -> tuple[int, int, int]:
        """Kill a writer in mid-batch; return the acknowledged payments, the bytes written, and the batch size."""
        command = [sys.executable, "-m", "seeklog.cli.demo.killed_writer", str(self.store), str(count)]
        reported: dict[str, Any] = {}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writer:
            try:
                assert writer.stdout is not None
                for line in writer.stdout:
                    reported |= json.loads(line)
                    if "written" in reported:
                        break
            finally:
                writer.kill()
                errors = writer.stderr.read().decode() if writer.stderr is not None else ""
        if "written" not in reported:
            raise DemoFailed(f"the writer exited by itself: {errors.strip() or writer.returncode}")
        acknowledged = reported.get("acknowledged", int(self.count * BEFORE_KILL))
        return acknowledged, reported["written"], reported["size"]

    def _seek(self) -> None:
        self._title("Seek: by offset, by time, by key")
        with open_store(self.store, read_only=True, background=False) as store:
            log = max((store.log(PAYMENTS, number) for number in range(PARTITIONS)), key=lambda log: log.log_end_offset)
            offset = log.log_end_offset // 2
            took, found = _measured(lambda: next(log.read(offset, max_records=1)))
            seek = log.seek(offset)
            self._row(
                f"offset {offset:,}",
                took,
                _about(found),
                f"segment {seek.segment:,}, byte {seek.position:,}; {seek.scanned_bytes:,} bytes",
                "scanned from the index entry",
            )
            middle_ms = (self.records[0].timestamp_ms + self.records[-1].timestamp_ms) // 2
            took, at = _measured(lambda: log.offset_at_time(middle_ms))
            self._row(
                str(amounts.moment(middle_ms, utc=True)), took, f"offset {at:,} is the first at or after this time"
            )
            key = self.records[0].merchant.encode()
            took, newest = _measured(lambda: store.topic(PAYMENTS).latest(key))
            if newest is None or at is None:
                raise DemoFailed("the lookup found no record")
            self._row(f"newest of {key.decode()}", took, _about(newest))
            size = store.describe_topic(PAYMENTS).size_bytes
        self._say(f"The topic has {self.count:,} payments and {amounts.size(size)} on disk.")

    def _spark(self) -> str:
        from seeklog.cli import spark_jobs

        self._title("Run a Spark pipeline over the log")
        try:
            spark_jobs.check_can_run()
            self._say(
                "Malformed payments become dead letters. Valid ones become a table without duplicates, totals per",
                "merchant and five minutes, and alerts, each exactly once. This takes about a minute.",
            )
            began = time.monotonic()
            code = spark_jobs.payments(self.terminal, str(self.store), PAYMENTS, str(self.output))
        except UsageError as error:
            self._say(f"Skipped: {error}")
            return f"skipped: {error}"
        if code:
            raise DemoFailed("the pipeline failed; see its output above")
        return f"the payments pipeline, exactly once, {time.monotonic() - began:.0f} s; tables in {self.output}"

    def _report(self) -> None:
        from seeklog.cli.report.gather import gather
        from seeklog.cli.report.page import page
        from seeklog.cli.show.outfile import whole_file

        self._title("Write a report")
        with (
            open_store(self.store, read_only=True, background=False) as store,
            self.terminal.progress("reading", unit="bytes") as progress,
        ):
            facts = gather(store, name=str(self.store), progress=progress)
        with whole_file(str(self.report), replaces=True) as file:
            file.write(page(facts, utc=True).encode())
        damage = sum(len(topic.findings) for topic in facts.topics)
        self._say(
            f"{self.report} shows segments, throughput, sizes, keys, compression and lag.",
            f"Every byte was checked: {amounts.counted(damage, 'finding') if damage else 'no damage'}.",
        )

    def _sum_up(self, spark: str, seconds: float) -> None:
        self._title("Summary")
        store, program = shlex.quote(str(self.store)), _program()
        self._say(
            f"{self.count:,} payments were appended. A writer was killed in the middle of a batch: every",
            "acknowledged payment was recovered, and the torn batch was cut off. Lookups take microseconds.",
            f"Spark: {spark}.",
            f"The demo took {amounts.span(seconds)}. All of its files are in {self.root}.",
            "",
            "Commands to try next:",
            f"  {program} ls {store}",
            f"  {program} info {store} {PAYMENTS} --map",
            f"  {program} cat {store} {PAYMENTS} -n 5 --where 'value.amount_paise > 50000000'",
            f"  {program} lag {store}",
            f"  {program} verify {store}",
            "",
            f"And open {self.report} in a browser.",
        )

    # ------------------------------------------------------------ output

    def _title(self, text: str) -> None:
        self.chapter += 1
        self.terminal.write(f"\n{self.terminal.bold(f'{self.chapter}. {text}')}\n")

    def _say(self, *lines: str) -> None:
        for line in lines:
            self.terminal.write(f"   {line}".rstrip() + "\n")
        self.terminal.flush()

    def _row(self, name: str, seconds: float, *lines: str) -> None:
        taken = amounts.span(seconds)
        for line in lines:
            self._say(f"{name:<28}{taken:>9}  {line}")
            name = taken = ""


def _program() -> str:
    """Return the command for a shell: `seeklog`, or its path if it is not on the PATH."""
    own = Path(sys.argv[0])
    is_found = shutil.which("seeklog") is not None or own.name != "seeklog" or not own.is_file()
    return "seeklog" if is_found else shlex.quote(str(own))


def _measured(look_up: Callable[[], Answer]) -> tuple[float, Answer]:
    """Look something up several times; return the median of the times, and the answer."""
    times = []
    for _ in range(TIMES):
        began = time.perf_counter()
        answer = look_up()
        times.append(time.perf_counter() - began)
    return sorted(times)[TIMES // 2], answer


def _about(record: seeklog.Record) -> str:
    """Describe a payment."""
    try:
        paid = json.loads(record.value or b"")
        return f"{paid['merchant']} was paid ₹{int(paid['amount_paise']) / 100:,.2f} by {paid['method']}"
    except (ValueError, KeyError, TypeError):
        return f"a malformed payment of {len(record.value or b'')} bytes"


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Suppress the engine's warnings."""
    logger = logging.getLogger("seeklog")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
