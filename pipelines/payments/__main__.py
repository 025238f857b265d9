"""The pipeline from the command line: `python -m pipelines.payments generate | run | summary`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.payments import generate
from pipelines.payments.rules import Rules, Topics
from seeklog.errors import MissingExtra, SeeklogError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        options.command(options)
    except SeeklogError as error:
        print(f"payments: {error}", file=sys.stderr)
        return 1
    return 0


def _cause(error: Exception) -> str:
    """Return the line with seeklog's error from the message of a failed query."""
    lines = str(error).splitlines()
    return next((line.partition(": ")[2] for line in lines if line.startswith("seeklog.errors.")), lines[0])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pipelines.payments", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    generated = commands.add_parser("generate", help="append test payments to a topic of a store")
    generated.set_defaults(command=_generate)
    generated.add_argument("store", type=Path)
    generated.add_argument("--count", type=int, default=100_000)
    generated.add_argument("--seed", type=int, default=generate.SEED)
    generated.add_argument("--per-second", type=float, default=generate.PER_SECOND, help="payments per second of time")

    run = commands.add_parser("run", help="process new payments, then print the summary and draw the plots")
    run.set_defaults(command=_run)
    summary = commands.add_parser("summary", help="print the summary and draw the plots again")
    summary.set_defaults(command=_summary)
    for command in (run, summary):
        command.add_argument("store", type=Path)
        command.add_argument("output", type=Path, help="the directory for tables, checkpoints and plots")
        command.add_argument(
            "--many-payments", type=int, default=Rules.many_payments, help="alert on a window with this many payments"
        )
    run.add_argument("--max-offsets-per-trigger", type=int, default=25_000)
    run.add_argument("--no-summary", action="store_true")

    for command in (generated, run, summary):
        command.add_argument("--topic", default=Topics.payments)
    return parser


def _generate(options: argparse.Namespace) -> None:
    count = generate.generate(
        options.store, count=options.count, seed=options.seed, per_second=options.per_second, topic=options.topic
    )
    print(f"{count:,} records appended to {options.topic} in {options.store}")


def _run(options: argparse.Namespace) -> None:
    if not options.no_summary:
        _check_can_draw()
    from pyspark.errors import StreamingQueryException

    from pipelines.payments.run import run

    with _session() as spark:
        began = time.perf_counter()
        try:
            run(
                spark,
                store=options.store,
                output=options.output,
                max_offsets_per_trigger=options.max_offsets_per_trigger,
                rules=_rules(options),
                topics=_topics(options),
            )
        except StreamingQueryException as error:
            raise SystemExit(f"payments: {_cause(error)}") from None
        print(f"done in {time.perf_counter() - began:.1f} s")
        if not options.no_summary:
            _show(spark, options)


def _summary(options: argparse.Namespace) -> None:
    _check_can_draw()
    with _session() as spark:
        _show(spark, options)


def _check_can_draw() -> None:
    """Stop before the work if the plots after it cannot be drawn."""
    if find_spec("matplotlib") is None:
        raise MissingExtra('the plots need matplotlib: pip install "seeklog[plots]"')


def _show(spark: SparkSession, options: argparse.Namespace) -> None:
    from pipelines.payments.plots import write_plots
    from pipelines.payments.summary import describe, summarise

    summary = summarise(
        spark, store=options.store, output=options.output, rules=_rules(options), topics=_topics(options)
    )
    print()
    print(describe(summary))
    print()
    for path in write_plots(summary, options.output / "plots"):
        print(f"drawn: {path}")


def _rules(options: argparse.Namespace) -> Rules:
    return Rules(many_payments=options.many_payments)


def _topics(options: argparse.Namespace) -> Topics:
    return Topics(
        payments=options.topic, dead_letters=f"{options.topic}-dead-letters", alerts=f"{options.topic}-alerts"
    )


@contextmanager
def _session() -> Iterator[SparkSession]:
    from seeklog.spark import session

    spark = session("payments")
    try:
        yield spark
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
