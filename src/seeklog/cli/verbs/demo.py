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
    default=100_000,
    show_default=True,
    help="How many payments are made.",
)
@click.option("--no-spark", "is_without_spark", is_flag=True, help="Leave out the pipeline on Spark.")
def demo(terminal: Terminal, target: str, count: int, is_without_spark: bool) -> None:
    """Show what seeklog does, in two minutes, on made-up payments.

    Appends them, kills a writer in the middle of a batch and recovers, seeks by offset, time and key, runs a Spark
    pipeline if Spark and Java are there, and writes a page. Everything is left in DIR, by default demo-data; what an
    earlier demo left there is removed first, and a directory of somebody else's is refused.
    """
    from pathlib import Path

    from seeklog.cli.demo.tour import Tour

    Tour(terminal, Path(target), count).run(with_spark=not is_without_spark)
