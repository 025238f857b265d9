"""`seeklog bench`: rates and latencies of a log on this machine, in a few seconds.

The result is saved in the user's state directory, and the next run is compared with it. To compare seeklog with other
logs, run `python -m bench` in its source.
"""

from __future__ import annotations

import json
import math
import os
import random
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import click

import seeklog
from seeklog.cli import completing, options
from seeklog.cli.app import verb
from seeklog.cli.show import amounts
from seeklog.cli.show.rows import Column, write_rows
from seeklog.cli.show.terminal import Terminal
from seeklog.config import LogConfig
from seeklog.log import Log
from seeklog.record.record import Record

Item = TypeVar("Item")
# The result of one measurement: operations per second, and latencies in microseconds.
Figure = dict[str, Any]

VALUE_BYTES = 100
BATCH = 500
KEYS = 1000
START_MS = 1_767_225_600_000
# A measurement of many small steps ends after this time, or after this many steps.
STEPS_S = 1.0
MAX_STEPS = 20_000


def _span(value: Any) -> str:
    return "" if value is None else amounts.span(value / 1e6)


def _change(value: Any) -> str:
    return "" if value is None else f"{value:+.0%}"


COLUMNS = (
    Column("benchmark"),
    Column("per_second", "rate", shown=lambda rate: f"{rate:,.0f} /s", is_right=True),
    Column("p50_us", "p50", shown=_span, is_right=True),
    Column("p99_us", "p99", shown=_span, is_right=True),
    Column("change", "since last run", shown=_change, is_right=True),
)


@verb
@click.argument("where", metavar="[DIR]", required=False, shell_complete=completing.directories)
@click.option(
    "--records",
    "-n",
    type=click.IntRange(1000, 10_000_000),
    metavar="N",
    default=300_000,
    show_default=True,
    help="Number of records.",
)
@options.rows
def bench(terminal: Terminal, where: str | None, records: int) -> None:
    """Measure the rates of appends, scans and seeks on this machine, with p50 and p99 latencies, in a few seconds.

    Uses a temporary directory; to measure a particular disk, name a directory on it as DIR. The result is compared with
    that of the last run. Other load on the machine distorts it.
    """
    before = _read_last_run(records=records)
    started = perf_counter()
    with (
        tempfile.TemporaryDirectory(prefix="seeklog-bench-", dir=where) as directory,
        terminal.progress("measuring", total=6, unit="benchmarks", stopped="the result was not saved") as bar,
    ):
        figures = []
        for figure in _measure(Path(directory), records=records, began=terminal.detail):
            figures.append(figure)
            bar.advance()
    rows = []
    for figure in figures:
        last = before.get(figure["benchmark"])
        rows.append(figure | {"change": round(figure["per_second"] / last - 1, 4) if last else None})
    write_rows(terminal, COLUMNS, rows)
    terminal.say(
        f"{amounts.count(records)} records of {VALUE_BYTES} bytes, in {amounts.span(perf_counter() - started)}"
    )
    try:
        _keep_run(figures, records=records)
    except OSError as error:
        terminal.say(f"cannot save the result for the next run: {error.strerror}")


# ---------------------------------------------------------------- measuring


def _measure(directory: Path, *, records: int, began: Callable[[str], None]) -> Iterator[Figure]:
    """Yield a figure for each measurement; call `began` with the name of the next one."""
    random_numbers = random.Random(7)
    batches = _batches(records, random_numbers)
    path = directory / "log"
    with Log(path, config=LogConfig(flush="os"), background=False) as log:
        began("append")
        append = log.append_many
        yield _timed(f"append, {BATCH} a batch", "records", batches, lambda batch: len(append(batch)), limit_s=math.inf)
        log.flush()
        began("scan")
        started = perf_counter()
        read = sum(len(chunk) for chunk in log.scan_chunks())
        rate = read / (perf_counter() - started)
        yield {"benchmark": "scan", "unit": "records", "per_second": round(rate, 1), "p50_us": None, "p99_us": None}
        offsets = [random_numbers.randrange(records) for _ in range(MAX_STEPS)]
        began("read by offset")
        yield _timed("read one by offset", "reads", offsets, lambda at: len(list(log.read(at, max_records=1))))
        began("seek by time")
        times = [START_MS + at for at in offsets]
        yield _timed("find an offset by time", "seeks", times, lambda at: int(log.offset_at_time(at) is not None))
        began("look up keys")
        log.latest_for_key(b"none")  # builds the key index
        keys = [b"key-%d" % (at % KEYS) for at in offsets]
        yield _timed("latest record of a key", "lookups", keys, lambda key: int(log.latest_for_key(key) is not None))
    began("durable appends")
    with Log(directory / "durable", config=LogConfig(flush="batch"), background=False) as log:

        def append_one(number: int) -> int:
            log.append(b"%0*d" % (VALUE_BYTES, number))
            return 1

        yield _timed("append one, durable", "records", range(MAX_STEPS), append_one)


def _batches(records: int, numbers: random.Random) -> Iterator[list[Record]]:
    values = [numbers.randbytes(VALUE_BYTES) for _ in range(BATCH)]
    for first in range(0, records, BATCH):
        yield [
            Record(value=values[at % BATCH], key=b"key-%d" % (at % KEYS), timestamp_ms=START_MS + at)
            for at in range(first, min(first + BATCH, records))
        ]


def _timed(
    work: str, unit: str, items: Iterable[Item], step: Callable[[Item], int], *, limit_s: float = STEPS_S
) -> Figure:
    spans: list[float] = []
    done = 0
    began = perf_counter()
    for item in items:
        started = perf_counter()
        done += step(item)
        ended = perf_counter()
        spans.append(ended - started)
        if ended - began > limit_s:
            break
    spans.sort()
    rate = done / sum(spans)
    p50_us, p99_us = (round(spans[math.ceil(share * len(spans)) - 1] * 1e6, 2) for share in (0.5, 0.99))
    return {"benchmark": work, "unit": unit, "per_second": round(rate, 1), "p50_us": p50_us, "p99_us": p99_us}


# ---------------------------------------------------------------- the last run


def _last_run_path() -> Path:
    home = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return Path(home) / "seeklog" / "bench.json"


def _read_last_run(*, records: int) -> dict[str, float]:
    """Return the rates of the last run with this many records, by measurement; empty without a last run."""
    try:
        found = json.loads(_last_run_path().read_bytes())
        if found["records"] != records:
            return {}
        return {str(figure["benchmark"]): float(figure["per_second"]) for figure in found["figures"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _keep_run(figures: Sequence[Figure], *, records: int) -> None:
    """Save a result for the next run."""
    path = _last_run_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f"{path.name}.{os.getpid()}")
    result = {"version": seeklog.__version__, "records": records, "figures": figures}
    written.write_text(json.dumps(result, indent=2) + "\n")
    written.replace(path)
