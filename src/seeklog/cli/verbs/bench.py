"""`seeklog bench`."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import click

from seeklog.cli import completing
from seeklog.cli.app import verb
from seeklog.cli.show import amounts
from seeklog.cli.show.rows import Column, formats, write_rows
from seeklog.cli.show.terminal import Terminal


def _rate(value: Any) -> str:
    return f"{value:,.0f} /s"


def _span(value: Any) -> str:
    return "" if value is None else amounts.span(value / 1e6)


def _change(value: Any) -> str:
    return "" if value is None else f"{value:+.0%}"


COLUMNS = (
    Column("work"),
    Column("per_second", "rate", shown=_rate, is_right=True),
    Column("p50_us", "p50", shown=_span, is_right=True),
    Column("p99_us", "p99", shown=_span, is_right=True),
    Column("change", "to the last run", shown=_change, is_right=True),
)


@verb
@click.argument("where", metavar="[DIR]", required=False, shell_complete=completing.directories)
@click.option(
    "--records", "-n", type=click.IntRange(1000, 10_000_000), default=300_000, show_default=True, help="How many."
)
@formats
def bench(terminal: Terminal, where: str | None, records: int, row_format: str | None, as_json: bool) -> None:
    """Measure appends, scans and seeks on this machine, with half and 99 % of the waiting times, in some seconds.

    Works in a temporary directory, in DIR if that is given, to measure the disk that it lies on, and removes it. The
    result is compared with that of the last run. Other work on the machine shows.
    """
    from seeklog.cli.measuring import Figure, keep_run, measure, read_last_run

    before = read_last_run(records=records)
    figures: list[Figure] = []
    started = time.perf_counter()
    with (
        tempfile.TemporaryDirectory(prefix="seeklog-bench-", dir=where) as directory,
        terminal.progress("measuring", total=6, unit="works") as bar,
    ):
        for figure in measure(Path(directory), records=records, began=terminal.detail):
            figures.append(figure)
            bar.advance()
    rows = [
        {
            "work": each.work,
            "unit": each.unit,
            "per_second": round(each.per_second, 1),
            "p50_us": None if each.p50_us is None else round(each.p50_us, 2),
            "p99_us": None if each.p99_us is None else round(each.p99_us, 2),
            "change": round(each.per_second / before[each.work] - 1, 4) if before.get(each.work) else None,
        }
        for each in figures
    ]
    write_rows(terminal, COLUMNS, rows, row_format=row_format, as_json=as_json)
    terminal.say(f"{amounts.count(records)} records of 100 bytes, in {amounts.span(time.perf_counter() - started)}")
    try:
        keep_run(figures, records=records)
    except OSError as error:
        terminal.say(f"the result is not kept for the next run: {error.strerror}")
