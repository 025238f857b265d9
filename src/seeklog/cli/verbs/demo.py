"""`seeklog demo`."""

from __future__ import annotations

import click

from seeklog.cli.app import verb
from seeklog.cli.show.terminal import Terminal


@verb
@click.argument("target", metavar="[DIR]", default="demo-data")
@click.option(
    "--records",
    "count",
    type=click.IntRange(1_000),
    metavar="N",
    default=100_000,
    show_default=True,
    help="Number of payments.",
)
@click.option("--no-spark", "is_without_spark", is_flag=True, help="Skip the Spark pipeline.")
def demo(terminal: Terminal, target: str, count: int, is_without_spark: bool) -> None:
    """Show what seeklog does, in two minutes, with generated payments.

    Appends payments, kills a writer in the middle of a batch and recovers, seeks by offset, time and key, runs a Spark
    pipeline if Spark and Java are installed, and writes an HTML report. Everything is written to DIR, by default
    demo-data. The output of an earlier demo is removed first; a directory with other files is refused.
    """
    from pathlib import Path

    from seeklog.cli.demo.tour import Tour

    with terminal.progress("the demo", stopped="run it again to start from the beginning"):
        Tour(terminal, Path(target), count).run(with_spark=not is_without_spark)
